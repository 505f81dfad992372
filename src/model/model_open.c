/* SPDX-License-Identifier: Apache-2.0
 *
 * model_open.c - opens a model: finds its architecture and its tensors, and checks their shapes.
 * What config.json says is read in config.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/internal.h"
#include "select/backbone.h"
#include "select/families.h"
#include "checkpoint/packed.h"

/* ---- tensors ------------------------------------------------------------------------------- */

static int check_tensor(const struct fp8q_model *m, const char *name, uint32_t ndim, uint64_t rows,
                        uint64_t cols, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = fp8q_ckpt_find(m->ckpt, name);
    struct fp8q_shown shown;
    /* A file of another architecture often shows by a name first.  */
    if (!t)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tensor-missing",
                         "there is no tensor \"%s\", as config.json makes one expect",
                         fp8q_show(&shown, name));
    if (t->ndim != ndim || t->shape[0] != rows || (ndim == 2 && t->shape[1] != cols))
        return fp8q_fail(err, FP8Q_E_FORMAT, "tensor-shape",
                         "tensor \"%s\": expected shape [%llu%s%.0llu], as config.json says, found "
                         "%u dimensions and %llu elements",
                         fp8q_show(&shown, name), (unsigned long long)rows, ndim == 2 ? ", " : "",
                         (unsigned long long)cols, t->ndim, (unsigned long long)t->n_elems);
    return FP8Q_OK;
}

static bool has(const struct fp8q_ckpt *ckpt, const char *prefix, const char *rest)
{
    char name[160];
    /* Longer names than this are none of those that are looked for.  */
    snprintf(name, sizeof(name), "%s%s", prefix, rest);
    return fp8q_ckpt_find(ckpt, name) != NULL;
}

/* The first of the roots @list, separated by spaces, that holds a layer.  */
static bool try_roots(struct fp8q_model *m, const char *list)
{
    char prefix[sizeof(m->prefix)];
    for (; list && *list; list += strspn(list, " ")) {
        size_t len = strcspn(list, " ");
        snprintf(prefix, sizeof(prefix), "%.*s.", (int)len, list);
        list += len;

        /* Every architecture here has an o_proj; q, k and v may be one weight.  */
        if (has(m->ckpt, prefix, "layers.0.self_attn.o_proj.weight")) {
            memcpy(m->prefix, prefix, sizeof(prefix));
            return true;
        }
    }
    return false;
}

static int find_prefix(struct fp8q_model *m, struct fp8q_error *err)
{
    struct fp8q_family family = fp8q_family_of(m->ckpt->config);
    if (try_roots(m, family.decoders) || try_roots(m, family.more_decoders) ||
        try_roots(m, "model model.language_model language_model.model language_model"))
        return FP8Q_OK;

    return fp8q_fail(
        err, FP8Q_E_FORMAT, "names",
        "there is no \"layers.0.self_attn.o_proj.weight\" under any of \"%s\", "
        "\"model\", \"model.language_model\" or \"language_model.model\", as a %s has it",
        family.decoders ? family.decoders : "", m->architecture);
}

/* How a weight is scaled, and what happens to its input.  */
static int open_weight(struct fp8q_model *m, size_t slot, const char *name, struct fp8q_error *err)
{
    struct fp8q_weights weights;
    FP8Q_TRY(fp8q_weights_open(m->ckpt, name, &weights, err));
    enum fp8q_scaling scaling = weights.scaling;
    fp8q_weights_reset(&weights);

    m->scaling[slot] = (uint8_t)scaling;
    return fp8q_served_acts(m, name, scaling, &m->served[slot], &m->static_scale[slot], err);
}

/* A weight that may be quantized, of the expected shape.  */
static int check_weight(struct fp8q_model *m, size_t slot, const char *name, uint64_t rows,
                        uint64_t cols, struct fp8q_error *err)
{
    FP8Q_TRY(check_tensor(m, name, 2, rows, cols, err));
    return open_weight(m, slot, name, err);
}

/* Linears that lie in one tensor have all of this in common.  */
static void copy_slot(struct fp8q_model *m, size_t to, size_t from)
{
    m->scaling[to] = m->scaling[from];
    m->served[to] = m->served[from];
    m->static_scale[to] = m->static_scale[from];
}

static int check_linear(struct fp8q_model *m, uint32_t layer, enum fp8q_linear linear,
                        struct fp8q_error *err)
{
    struct fp8q_name name;
    uint64_t shape[2], rows = fp8q_linear_disk_rows(m, linear);
    size_t slot = fp8q_linear_slot(layer, linear);
    fp8q_layer_shape(m, layer, linear, shape);
    if (linear >= FP8Q_GATE_PROJ && m->sparse[layer])
        rows = m->moe.shared_width;
    if (linear == FP8Q_DOWN_PROJ)
        rows = m->hidden;
    fp8q_linear_name(m, layer, linear, ".weight", &name);

    if (fp8q_linear_is_rest(m, linear)) { /* opened with its first part */
        copy_slot(m, slot, slot - 1);
        return FP8Q_OK;
    }
    FP8Q_TRY(check_weight(m, slot, name.text, rows, shape[1], err));

    if (!m->bias[linear])
        return FP8Q_OK;
    fp8q_linear_name(m, layer, linear, ".bias", &name);
    return check_tensor(m, name.text, 1, rows, 0, err);
}

/* One value for each expert; ERNIE has them as a matrix of one row.  */
static int check_bias(const struct fp8q_model *m, const char *name, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = fp8q_ckpt_find(m->ckpt, name);
    if (t && t->n_elems == m->moe.n_experts)
        return FP8Q_OK;
    return check_tensor(m, name, 1, m->moe.n_experts, 0, err);
}

/* All of them are checked, though a run may read few: better now than in layer 30.  */
static int check_each(struct fp8q_model *m, uint32_t layer, struct fp8q_error *err)
{
    const struct fp8q_moe *moe = &m->moe;
    for (uint32_t e = 0; e < moe->n_experts; e++)
        for (int i = FP8Q_GATE_PROJ; i <= FP8Q_DOWN_PROJ; i++) {
            struct fp8q_name name;
            enum fp8q_linear linear = (enum fp8q_linear)i;
            bool down = linear == FP8Q_DOWN_PROJ;
            fp8q_expert_name(m, layer, e, linear, ".weight", &name);
            FP8Q_TRY(check_weight(m, fp8q_expert_slot(m, layer, e, linear), name.text,
                                  down ? m->hidden : moe->width, down ? moe->width : m->hidden,
                                  err));
        }
    return FP8Q_OK;
}

/* Outputs and inputs of the experts' gate and up together, or of their down.  */
static void stack_sizes(const struct fp8q_model *m, bool down, uint64_t *outputs_out,
                        uint64_t *inputs_out)
{
    *outputs_out = down ? m->hidden : 2 * m->moe.width;
    *inputs_out = down ? m->moe.width : m->hidden;
}

/* Shape and scales of a stack; what is found holds for all its experts.  */
static int check_stack(struct fp8q_model *m, uint32_t layer, enum fp8q_linear linear,
                       struct fp8q_error *err)
{
    struct fp8q_place place;
    struct fp8q_shown shown;
    uint64_t outputs, inputs;
    size_t first = fp8q_expert_slot(m, layer, 0, linear);
    fp8q_expert_place(m, layer, 0, linear, &place);
    stack_sizes(m, linear == FP8Q_DOWN_PROJ, &outputs, &inputs);

    const struct fp8q_tensor *t = fp8q_ckpt_find(m->ckpt, place.name.text);
    uint64_t rows = place.transposed ? inputs : outputs, cols = place.transposed ? outputs : inputs;
    if (!t || t->ndim != 3 || t->shape[0] != m->moe.n_experts || t->shape[1] != rows ||
        t->shape[2] != cols)
        return fp8q_fail(err, FP8Q_E_FORMAT, t ? "tensor-shape" : "tensor-missing",
                         "tensor \"%s\": expected the shape [%u, %llu, %llu]",
                         fp8q_show(&shown, place.name.text), m->moe.n_experts,
                         (unsigned long long)rows, (unsigned long long)cols);

    FP8Q_TRY(open_weight(m, first, place.name.text, err));
    for (uint32_t e = 1; e < m->moe.n_experts; e++)
        copy_slot(m, fp8q_expert_slot(m, layer, e, linear), first);
    return FP8Q_OK;
}

static int check_stacks(struct fp8q_model *m, uint32_t layer, struct fp8q_error *err)
{
    for (int i = FP8Q_GATE_PROJ; i <= FP8Q_DOWN_PROJ; i++)
        FP8Q_TRY(check_stack(m, layer, (enum fp8q_linear)i, err));
    return FP8Q_OK;
}

static int check_experts(struct fp8q_model *m, uint32_t layer, struct fp8q_error *err)
{
    const struct fp8q_moe *moe = &m->moe;
    struct fp8q_name name;
    FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, moe->router, &name), 2, moe->n_experts,
                          m->hidden, err));

    if (moe->shared_gate)
        FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, moe->shared_gate, &name), 2, 1,
                              m->hidden, err));
    if (moe->bias)
        FP8Q_TRY(check_bias(m, fp8q_layer_name(m, layer, moe->bias, &name), err));

    return moe->stack ? check_stacks(m, layer, err) : check_each(m, layer, err);
}

static int check_norms(struct fp8q_model *m, uint32_t layer, struct fp8q_error *err)
{
    struct fp8q_name name;
    for (int i = 0; i < FP8Q_N_NORMS; i++)
        if (m->norms[i])
            FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, m->norms[i], &name), 1, m->hidden, 0,
                                  err));
    if (m->latent.q_rank)
        FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, FP8Q_Q_A_NORM, &name), 1,
                              m->latent.q_rank, 0, err));
    if (m->latent.kv_rank)
        FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, FP8Q_KV_A_NORM, &name), 1,
                              m->latent.kv_rank, 0, err));

    /* The norms of q and k are one for all heads, or as wide as all of them.  */
    if (m->qk_norm == FP8Q_QK_NORM_NONE)
        return FP8Q_OK;

    bool whole = m->qk_norm == FP8Q_QK_NORM_WHOLE;

    uint64_t q = (uint64_t)m->head_dim * (whole ? m->n_heads : 1);
    uint64_t k = (uint64_t)m->head_dim * (whole ? m->n_kv_heads : 1);
    FP8Q_TRY(
        check_tensor(m, fp8q_layer_name(m, layer, "self_attn.q_norm.weight", &name), 1, q, 0, err));
    return check_tensor(m, fp8q_layer_name(m, layer, "self_attn.k_norm.weight", &name), 1, k, 0,
                        err);
}

static int check_layer(struct fp8q_model *m, uint32_t layer, struct fp8q_error *err)
{
    for (int i = 0; i < FP8Q_N_LINEARS; i++)
        if (fp8q_linear_exists(m, layer, (enum fp8q_linear)i))
            FP8Q_TRY(check_linear(m, layer, (enum fp8q_linear)i, err));

    if (m->sparse[layer])
        FP8Q_TRY(check_experts(m, layer, err));
    return check_norms(m, layer, err);
}

/* The table of tokens; of two tied ones a file that drops copies may keep the head alone.  */
static int find_table(struct fp8q_model *m, struct fp8q_error *err)
{
    const struct fp8q_tensor *table = fp8q_backbone_table(m->ckpt, m->prefix);
    if (!table)
        table = fp8q_backbone_head(m->ckpt, m->prefix);

    if (table)
        snprintf(m->embed_name, sizeof(m->embed_name), "%s", table->name);
    else
        snprintf(m->embed_name, sizeof(m->embed_name), "%sembed_tokens.weight", m->prefix);
    return check_tensor(m, m->embed_name, 2, m->vocab, m->hidden, err);
}

/* Tied as config.json says; where it does not, as the file says.  */
static int find_head(struct fp8q_model *m, const struct fp8q_json *text, bool tied_by_default,
                     struct fp8q_error *err)
{
    const struct fp8q_json *tie = fp8q_json_get(m->ckpt->config, "tie_word_embeddings");
    const struct fp8q_json *tie_text = fp8q_json_get(text, "tie_word_embeddings");
    const struct fp8q_tensor *head = fp8q_backbone_head(m->ckpt, m->prefix);

    /* A wrapper may say so at the top or in its language model's part; where the two disagree, a head
     * of its own is used.  */
    bool disagree = head && tie && !fp8q_json_bool(tie, false);
    m->tied = fp8q_json_bool(tie, false) || (fp8q_json_bool(tie_text, false) && !disagree);
    if (!tie && !tie_text)
        m->tied = head == NULL || (tied_by_default && m->ckpt->config == text);

    /* A tied head that is stored all the same is a copy, and not read.  */
    if (m->tied)
        snprintf(m->head_name, sizeof(m->head_name), "%s", m->embed_name);
    else
        snprintf(m->head_name, sizeof(m->head_name), "%s", head ? head->name : "lm_head.weight");

    FP8Q_TRY(check_tensor(m, m->head_name, 2, m->vocab, m->hidden, err));

    struct fp8q_weights weights;
    FP8Q_TRY(fp8q_weights_open(m->ckpt, m->head_name, &weights, err));
    m->head_scaling = weights.scaling;
    fp8q_weights_reset(&weights);

    uint8_t served;
    FP8Q_TRY(
        fp8q_served_acts(m, m->head_name, m->head_scaling, &served, &m->head_static_scale, err));
    m->head_served = (enum fp8q_acts)served;
    return FP8Q_OK;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static const struct fp8q_tensor *find_in_layer(const struct fp8q_model *m, uint32_t layer,
                                               const char *rest)
{
    struct fp8q_name name;
    return fp8q_ckpt_find(m->ckpt, fp8q_layer_name(m, layer, rest, &name));
}

/* Which of the two layouts a stack's shape is; NONE if both would be the same.  */
static enum fp8q_stack layout_of(const struct fp8q_model *m, const struct fp8q_tensor *t, bool down)
{
    uint64_t outputs, inputs;
    stack_sizes(m, down, &outputs, &inputs);
    if (!t || t->ndim != 3 || outputs == inputs)
        return FP8Q_STACK_NONE;
    return t->shape[1] == inputs ? FP8Q_STACK_COLUMNS : FP8Q_STACK_ROWS;
}

/* Whether experts are stacked: published so (Qwen3-VL-MoE), or saved by transformers 5 as it holds
 * them in memory, where a router may have another name than in published files.  */
static void find_stacks(struct fp8q_model *m)
{
    static const char *const routers[] = {"mlp.gate.weight",
                                          "mlp.gate.moe_statics.e_score_correction_bias"};
    uint32_t layer = 0;
    while (layer < m->n_layers && !m->sparse[layer])
        layer++;
    if (layer == m->n_layers || !find_in_layer(m, layer, "mlp.experts.gate_up_proj"))
        return;

    /* The two shapes cannot both be square.  */
    m->moe.stack = layout_of(m, find_in_layer(m, layer, "mlp.experts.gate_up_proj"), false);
    if (m->moe.stack == FP8Q_STACK_NONE)
        m->moe.stack = layout_of(m, find_in_layer(m, layer, "mlp.experts.down_proj"), true);
    if (m->moe.stack == FP8Q_STACK_NONE)
        m->moe.stack = FP8Q_STACK_ROWS; /* what is wrong with them is said when they are checked */

    /* By themselves they are called as everywhere.  */
    m->moe.experts = "mlp.experts";
    memcpy(m->moe.linears, (const char *const[3]){"gate_proj", "up_proj", "down_proj"},
           sizeof(m->moe.linears));
    if (!find_in_layer(m, layer, m->moe.router))
        m->moe.router = routers[0];
    if (m->moe.bias && !find_in_layer(m, layer, m->moe.bias))
        m->moe.bias = routers[1];
}

/* Engines give the linears that share an input one static scale: the largest.  */
static void share_static_scales(struct fp8q_model *m, size_t first, size_t n)
{
    float largest = 0;
    for (size_t i = first; i < first + n; i++)
        if (m->static_scale[i] > largest)
            largest = m->static_scale[i];
    for (size_t i = first; i < first + n; i++)
        m->static_scale[i] = largest;
}

static void share_expert_scales(struct fp8q_model *m, uint32_t layer)
{
    float largest[3] = {0};
    for (uint32_t e = 0; e < m->moe.n_experts; e++)
        for (int i = 0; i < 3; i++)
            largest[i] =
                fmaxf(largest[i],
                      m->static_scale[fp8q_expert_slot(m, layer, e, FP8Q_GATE_PROJ) + (size_t)i]);

    largest[0] = largest[1] = fmaxf(largest[0], largest[1]);
    for (uint32_t e = 0; e < m->moe.n_experts; e++)
        memcpy(&m->static_scale[fp8q_expert_slot(m, layer, e, FP8Q_GATE_PROJ)], largest,
               sizeof(largest));
}

static int find_tensors(struct fp8q_model *m, struct fp8q_error *err)
{
    struct fp8q_name name;
    m->n_slots = (size_t)m->n_layers * (FP8Q_N_LINEARS + 3 * (size_t)m->moe.n_experts);
    m->scaling = fp8q_array(m->n_slots, sizeof(*m->scaling));
    m->served = fp8q_array(m->n_slots, sizeof(*m->served));
    m->static_scale = fp8q_array(m->n_slots, sizeof(*m->static_scale));
    if (!m->scaling || !m->served || !m->static_scale)
        return fp8q_fail_nomem(err);

    FP8Q_TRY(find_table(m, err));
    snprintf(name.text, sizeof(name.text), "%snorm.weight", m->prefix);
    FP8Q_TRY(check_tensor(m, name.text, 1, m->hidden, 0, err));

    for (uint32_t layer = 0; layer < m->n_layers; layer++)
        FP8Q_TRY(check_layer(m, layer, err));

    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        share_static_scales(m, fp8q_linear_slot(layer, FP8Q_Q_PROJ), 3);
        share_static_scales(m, fp8q_linear_slot(layer, FP8Q_GATE_PROJ), 2);
        /* Engines have one scale for all experts of a layer, and one more for what they give down.  */
        share_expert_scales(m, layer);
    }
    return FP8Q_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* The part of config.json that describes the language model, and its architecture.  */
static int find_architecture(const struct fp8q_ckpt *ckpt, const struct fp8q_json **text_out,
                             const struct fp8q_architecture **arch_out, struct fp8q_error *err)
{
    const struct fp8q_json *config = ckpt->config;
    struct fp8q_shown shown, shown_type;
    if (!config)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "no-config",
                         "%s: there is no config.json, so the network is not known",
                         fp8q_show(&shown, ckpt->path));

    /* A wrapper that computes more than its language model does is as unknown as any other.  */
    const char *type = fp8q_json_string(fp8q_json_get(config, "model_type"), NULL);
    *text_out = config;
    if (type && fp8q_wrapper_known(type)) {
        *text_out = fp8q_language_config(config);
        type = fp8q_json_string(fp8q_json_get(*text_out, "model_type"), type);
    }

    *arch_out = fp8q_architecture_find(type);
    if (*arch_out)
        return FP8Q_OK;
    struct fp8q_text known = {0};
    fp8q_architecture_list(&known);
    int status = fp8q_fail(
        err, FP8Q_E_UNSUPPORTED, "family",
        "%s: model_type \"%s\" cannot be evaluated; known are %s", fp8q_show(&shown, ckpt->path),
        type ? fp8q_show(&shown_type, type) : "(none)", known.data ? known.data : "");
    fp8q_text_reset(&known);
    return status;
}

/* A policy's language model is described by its tensors: its config goes to *@own_out, to be freed.
 */
static int describe_policy(struct fp8q_model *m, const struct fp8q_json **text_out,
                           const struct fp8q_architecture **arch_out, struct fp8q_json **own_out,
                           struct fp8q_error *err)
{
    snprintf(m->architecture, sizeof(m->architecture), "policy");
    FP8Q_TRY(find_prefix(m, err));
    FP8Q_TRY(fp8q_backbone_config(m->ckpt, m->prefix, own_out, err));
    *text_out = *own_out;
    *arch_out =
        fp8q_architecture_find(fp8q_json_string(fp8q_json_get(*own_out, "model_type"), NULL));
    return FP8Q_OK;
}

static int describe(struct fp8q_model *m, struct fp8q_json **own_out, struct fp8q_error *err)
{
    const struct fp8q_architecture *arch;
    const struct fp8q_json *text;
    if (fp8q_backbone_of_policy(m->ckpt->config))
        FP8Q_TRY(describe_policy(m, &text, &arch, own_out, err));
    else
        FP8Q_TRY(find_architecture(m->ckpt, &text, &arch, err));
    snprintf(m->architecture, sizeof(m->architecture), "%s", arch->model_type);

    /* The sizes come first: they bound what is looked for among the tensors.  */
    FP8Q_TRY(fp8q_config_read(m, arch, text, err));
    FP8Q_TRY(find_prefix(m, err));
    find_stacks(m);
    FP8Q_TRY(fp8q_served_open(m, err));
    FP8Q_TRY(find_tensors(m, err));
    return find_head(m, text, arch->traits & FP8Q_TIED, err);
}

int fp8q_model_open(const struct fp8q_ckpt *ckpt, struct fp8q_model *model_out,
                    struct fp8q_error *err)
{
    *model_out = (struct fp8q_model){.ckpt = ckpt};
    struct fp8q_json *own = NULL;
    int status = fp8q_refuse_packed(ckpt, err);
    if (status == FP8Q_OK)
        status = describe(model_out, &own, err);
    fp8q_json_free(own);
    if (status != FP8Q_OK)
        fp8q_model_reset(model_out);
    return status;
}
