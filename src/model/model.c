/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c - names and shapes of a model's linears, and what sets two models apart.  Opening one is
 * the work of model_open.c.
 */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "select/targets.h"

/* ---- names and shapes ---------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum fp8q_site_kind site;
} linears[FP8Q_N_LINEARS] = {
    {"self_attn.q_proj", FP8Q_SITE_QKV},
    {"self_attn.k_proj", FP8Q_SITE_QKV},
    {"self_attn.v_proj", FP8Q_SITE_QKV},
    {"self_attn.q_b_proj", FP8Q_SITE_Q_B},
    {"self_attn.kv_a_proj_with_mqa", FP8Q_SITE_KV_A},
    {"self_attn.kv_b_proj", FP8Q_SITE_KV_B},
    {"self_attn.o_proj", FP8Q_SITE_O},
    {"mlp.gate_proj", FP8Q_SITE_GATE_UP},
    {"mlp.up_proj", FP8Q_SITE_GATE_UP},
    {"mlp.down_proj", FP8Q_SITE_DOWN},
};

static bool is_fused(const struct fp8q_model *m, enum fp8q_linear linear)
{
    return (linear <= FP8Q_V_PROJ && m->fused_qkv) ||
           ((linear == FP8Q_GATE_PROJ || linear == FP8Q_UP_PROJ) && m->fused_gate_up);
}

const char *fp8q_layer_name(const struct fp8q_model *model, uint32_t layer, const char *rest,
                            struct fp8q_name *buf)
{
    snprintf(buf->text, sizeof(buf->text), "%slayers.%u.%s", model->prefix, layer, rest);
    return buf->text;
}

const char *fp8q_linear_name(const struct fp8q_model *model, uint32_t layer,
                             enum fp8q_linear linear, const char *suffix, struct fp8q_name *buf)
{
    const char *name = linears[linear].name, *within = "";
    /* Where a mixture has an expert for every token, the MLP's linears are that one's.  */
    bool shared = linear >= FP8Q_GATE_PROJ && model->sparse[layer] && model->moe.shared_width;

    /* Parts of a fused weight share its name; see fp8q_linear_first_row().  */
    if (is_fused(model, linear))
        name = linear <= FP8Q_V_PROJ ? "self_attn.qkv_proj" : "mlp.gate_up_proj";
    if (linear == FP8Q_Q_PROJ && model->latent.q_rank)
        name = "self_attn.q_a_proj";
    if (shared) {
        within = model->moe.shared;
        name += strlen("mlp");
    }
    snprintf(buf->text, sizeof(buf->text), "%slayers.%u.%s%s%s", model->prefix, layer, within, name,
             suffix);

    return buf->text;
}

const char *fp8q_expert_name(const struct fp8q_model *model, uint32_t layer, uint32_t expert,
                             enum fp8q_linear linear, const char *suffix, struct fp8q_name *buf)
{
    const struct fp8q_moe *moe = &model->moe;
    snprintf(buf->text, sizeof(buf->text), "%slayers.%u.%s.%u.%s%s", model->prefix, layer,
             moe->experts, expert, moe->linears[linear - FP8Q_GATE_PROJ], suffix);
    return buf->text;
}

void fp8q_expert_place(const struct fp8q_model *model, uint32_t layer, uint32_t expert,
                       enum fp8q_linear linear, struct fp8q_place *place_out)
{
    const struct fp8q_moe *moe = &model->moe;
    bool down = linear == FP8Q_DOWN_PROJ;
    *place_out = (struct fp8q_place){.n_rows = down ? model->hidden : moe->width};
    if (moe->stack == FP8Q_STACK_NONE) {
        fp8q_expert_name(model, layer, expert, linear, ".weight", &place_out->name);
        return;
    }

    /* Stacks have one name everywhere, and no ".weight" behind it.  */
    snprintf(place_out->name.text, sizeof(place_out->name.text), "%slayers.%u.%s.%s", model->prefix,
             layer, moe->experts, down ? "down_proj" : "gate_up_proj");
    place_out->matrix = expert;
    place_out->first_row = linear == FP8Q_UP_PROJ ? moe->width : 0;
    place_out->transposed = moe->stack == FP8Q_STACK_COLUMNS;
}

enum fp8q_site_kind fp8q_linear_site(enum fp8q_linear linear)
{
    return linears[linear].site;
}

enum fp8q_linear fp8q_site_first(enum fp8q_site_kind site)
{
    static const enum fp8q_linear first[FP8Q_N_SITES] = {
        FP8Q_Q_PROJ, FP8Q_Q_B_PROJ,  FP8Q_KV_A_PROJ, FP8Q_KV_B_PROJ,
        FP8Q_O_PROJ, FP8Q_GATE_PROJ, FP8Q_DOWN_PROJ};
    return first[site];
}

bool fp8q_linear_exists(const struct fp8q_model *m, uint32_t layer, enum fp8q_linear linear)
{
    bool latent = m->latent.kv_rank > 0;
    switch (linear) {
    case FP8Q_K_PROJ:
    case FP8Q_V_PROJ:
        return !latent;
    case FP8Q_Q_B_PROJ:
        return m->latent.q_rank > 0;
    case FP8Q_KV_A_PROJ:
    case FP8Q_KV_B_PROJ:
        return latent;
    /* A mixture without a shared expert has no linears of its own there.  */
    case FP8Q_GATE_PROJ:
    case FP8Q_UP_PROJ:
    case FP8Q_DOWN_PROJ:
        return !m->sparse[layer] || m->moe.shared_width > 0;
    default:
        return true;
    }
}

void fp8q_linear_shape(const struct fp8q_model *m, enum fp8q_linear linear, uint64_t shape_out[2])
{
    uint64_t q = (uint64_t)m->n_heads * m->head_dim, kv = (uint64_t)m->n_kv_heads * m->head_dim;
    uint64_t values = (uint64_t)m->n_heads * m->value_dim;
    const struct fp8q_latent *l = &m->latent;
    const uint64_t shapes[FP8Q_N_LINEARS][2] = {
        [FP8Q_Q_PROJ] = {l->q_rank ? l->q_rank : q, m->hidden},
        [FP8Q_K_PROJ] = {kv, m->hidden},
        [FP8Q_V_PROJ] = {kv, m->hidden},
        [FP8Q_Q_B_PROJ] = {q, l->q_rank},
        [FP8Q_KV_A_PROJ] = {(uint64_t)l->kv_rank + l->turning, m->hidden},
        [FP8Q_KV_B_PROJ] = {(uint64_t)m->n_heads * (l->plain + m->value_dim), l->kv_rank},
        [FP8Q_O_PROJ] = {m->hidden, values},
        [FP8Q_GATE_PROJ] = {m->intermediate, m->hidden},
        [FP8Q_UP_PROJ] = {m->intermediate, m->hidden},
        [FP8Q_DOWN_PROJ] = {m->hidden, m->intermediate},
    };
    memcpy(shape_out, shapes[linear], sizeof(shapes[linear]));
}

void fp8q_layer_shape(const struct fp8q_model *m, uint32_t layer, enum fp8q_linear linear,
                      uint64_t shape_out[2])
{
    fp8q_linear_shape(m, linear, shape_out);
    /* In a layer of experts the MLP's place is that of the shared one, of another width.  */
    if (linear >= FP8Q_GATE_PROJ && m->sparse[layer])
        shape_out[linear == FP8Q_DOWN_PROJ] = m->moe.shared_width;
}

uint64_t fp8q_linear_first_row(const struct fp8q_model *m, enum fp8q_linear linear)
{
    uint64_t first = 0, shape[2];
    /* A weight of its own begins where its tensor does.  */
    if (!is_fused(m, linear))
        return 0;

    for (int i = linear <= FP8Q_V_PROJ ? FP8Q_Q_PROJ : FP8Q_GATE_PROJ; i < (int)linear; i++) {
        fp8q_linear_shape(m, (enum fp8q_linear)i, shape);
        first += shape[0];
    }
    return first;
}

uint64_t fp8q_linear_disk_rows(const struct fp8q_model *m, enum fp8q_linear linear)
{
    uint64_t rows = 0, shape[2];
    for (int i = 0; i < FP8Q_N_LINEARS; i++) {
        enum fp8q_linear other = (enum fp8q_linear)i;
        bool mate = is_fused(m, linear) && linears[i].site == linears[linear].site;
        fp8q_linear_shape(m, other, shape);
        if (mate || other == linear)
            rows += shape[0];
    }
    return rows;
}

bool fp8q_linear_is_rest(const struct fp8q_model *m, enum fp8q_linear linear)
{
    return is_fused(m, linear) && linear != FP8Q_Q_PROJ && linear != FP8Q_GATE_PROJ;
}

uint64_t fp8q_site_width(const struct fp8q_model *model, enum fp8q_site_kind site)
{
    uint64_t shape[2];
    fp8q_linear_shape(model, fp8q_site_first(site), shape);
    return shape[1];
}

size_t fp8q_linear_slot(uint32_t layer, enum fp8q_linear linear)
{
    return (size_t)layer * FP8Q_N_LINEARS + (size_t)linear;
}

size_t fp8q_expert_slot(const struct fp8q_model *m, uint32_t layer, uint32_t expert,
                        enum fp8q_linear linear)
{
    size_t before = (size_t)m->n_layers * FP8Q_N_LINEARS;
    size_t index = (size_t)layer * m->moe.n_experts + expert;
    return before + index * 3 + (size_t)(linear - FP8Q_GATE_PROJ);
}

void fp8q_model_reset(struct fp8q_model *model)
{
    free(model->window);
    free(model->rope_of);
    free(model->sparse);
    free(model->scaling);
    free(model->served);
    free(model->static_scale);
    fp8q_targets_close(model->targets);
    *model = (struct fp8q_model){0};
}

/* ---- two models ------------------------------------------------------------------------------ */

int fp8q_model_same(const struct fp8q_model *a, const struct fp8q_model *b, struct fp8q_error *err)
{
    const struct {
        const char *what;
        uint64_t a, b;
    } sizes[] = {
        {"hidden_size", a->hidden, b->hidden},
        {"intermediate_size", a->intermediate, b->intermediate},
        {"vocab_size", a->vocab, b->vocab},
        {"num_hidden_layers", a->n_layers, b->n_layers},
        {"num_attention_heads", a->n_heads, b->n_heads},
        {"num_key_value_heads", a->n_kv_heads, b->n_kv_heads},
        {"head_dim", a->head_dim, b->head_dim},
        {"v_head_dim", a->value_dim, b->value_dim},
        {"kv_lora_rank", a->latent.kv_rank, b->latent.kv_rank},
        {"q_lora_rank", a->latent.q_rank, b->latent.q_rank},
        {"qk_rope_head_dim", a->latent.turning, b->latent.turning},
        {"number of experts", a->moe.n_experts, b->moe.n_experts},
        {"moe_intermediate_size", a->moe.width, b->moe.width},
        {"width of the shared expert", a->moe.shared_width, b->moe.shared_width},
    };
    if (strcmp(a->architecture, b->architecture) != 0)
        return fp8q_fail(err, FP8Q_E_ARG, "mismatch",
                         "the checkpoints are of different architectures: %s and %s",
                         a->architecture, b->architecture);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (sizes[i].a != sizes[i].b)
            return fp8q_fail(err, FP8Q_E_ARG, "mismatch",
                             "the checkpoints are of different networks: %s is %llu and %llu",
                             sizes[i].what, (unsigned long long)sizes[i].a,
                             (unsigned long long)sizes[i].b);
    return FP8Q_OK;
}

static void add_difference(struct fp8q_text *out, bool differs, const char *what)
{
    if (differs)
        fp8q_text_printf(out, "%s%s", out->len ? ", " : "", what);
}

void fp8q_model_differences(const struct fp8q_model *a, const struct fp8q_model *b,
                            struct fp8q_text *out)
{
    const struct {
        const char *what;
        size_t offset, size;
    } members[] = {
        {"rotary embedding", offsetof(struct fp8q_model, ropes), sizeof(a->ropes)},
        {"rms_norm_eps", offsetof(struct fp8q_model, norm_eps), sizeof(a->norm_eps)},
        {"tie_word_embeddings", offsetof(struct fp8q_model, tied), sizeof(a->tied)},
        {"biases", offsetof(struct fp8q_model, bias), sizeof(a->bias)},
        {"embedding_multiplier", offsetof(struct fp8q_model, embed_scale), sizeof(float)},
        {"residual_multiplier", offsetof(struct fp8q_model, residual_scale), sizeof(float)},
        {"logits_scaling", offsetof(struct fp8q_model, logit_scale), sizeof(float)},
        {"scale of attention", offsetof(struct fp8q_model, attention_scale), sizeof(float)},
        {"attn_logit_softcapping", offsetof(struct fp8q_model, attention_cap), sizeof(float)},
        {"final_logit_softcapping", offsetof(struct fp8q_model, logit_cap), sizeof(float)},
        {"num_experts_per_tok", offsetof(struct fp8q_model, moe.n_active), sizeof(uint32_t)},
        {"norm_topk_prob", offsetof(struct fp8q_model, moe.normalized), sizeof(bool)},
        {"routed_scaling_factor", offsetof(struct fp8q_model, moe.scale), sizeof(float)},
        {"topk_method", offsetof(struct fp8q_model, moe.group_by), sizeof(unsigned)},
        {"n_group", offsetof(struct fp8q_model, moe.n_groups), sizeof(uint32_t)},
        {"topk_group", offsetof(struct fp8q_model, moe.n_best_groups), sizeof(uint32_t)},
    };

    /* Byte by byte: a difference that changes no result is rare, and harmless to name.  */
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
        add_difference(out,
                       memcmp((const char *)a + members[i].offset,
                              (const char *)b + members[i].offset, members[i].size) != 0,
                       members[i].what);

    /* By layer, as far as both go; model_same() has seen to it that it is all.  */
    size_t n = fp8q_min_size(a->n_layers, b->n_layers);
    add_difference(out, memcmp(a->window, b->window, n * sizeof(*a->window)) != 0,
                   "sliding_window");
    add_difference(out, memcmp(a->rope_of, b->rope_of, n) != 0, "layers without rotation");
    add_difference(out, memcmp(a->sparse, b->sparse, n * sizeof(*a->sparse)) != 0,
                   "layers with experts");
}

const char *fp8q_served_name(const struct fp8q_model *m)
{
    static const char *const names[] = {
        "left as they are",
        "",
        "per token and 128 channels",
        "per token and 128 channels, scales powers of two",
        "per token",
        "per token and 32 channels, scales powers of two",
        "static scales",
    };
    int found = -1;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->scaling[i] == FP8Q_SCALING_NONE)
            continue;
        /* One word for all is rare only where a recipe mixes schemes.  */
        if (found >= 0 && found != m->served[i])
            return "mixed";
        found = m->served[i];
    }
    return found >= 0 ? names[found] : "nothing is quantized";
}
