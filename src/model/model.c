/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c - reads the sizes from config.json and finds the tensors.  The rotary embedding is in
 * rope.c.
 */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/rope.h"

static const struct {
    const char *name;
    enum fp8q_site_kind site;
} linears[FP8Q_N_LINEARS] = {
    {"self_attn.q_proj", FP8Q_SITE_QKV},  {"self_attn.k_proj", FP8Q_SITE_QKV},
    {"self_attn.v_proj", FP8Q_SITE_QKV},  {"self_attn.o_proj", FP8Q_SITE_O},
    {"mlp.gate_proj", FP8Q_SITE_GATE_UP}, {"mlp.up_proj", FP8Q_SITE_GATE_UP},
    {"mlp.down_proj", FP8Q_SITE_DOWN},
};

enum trait {
    QKV_BIAS = 1,       /* q, k, v always have one */
    ATTENTION_BIAS = 2, /* `attention_bias` of the config: q, k, v, o */
    MLP_BIAS = 4,
    QK_NORM = 8,
    MROPE = 16,
    WINDOW_FLAG = 32, /* sliding window only with `use_sliding_window`, by layer */
    WINDOW_ALL = 64   /* sliding window in all layers when the config has one */
};

static const struct family {
    const char *model_type;
    unsigned traits;
    double norm_eps, theta;        /* when the config leaves them out */
    uint64_t n_kv_heads, head_dim; /* same; 0: n_heads, hidden / n_heads */
} families[] = {
    {"llama", ATTENTION_BIAS | MLP_BIAS, 1e-6, 1e4, 0, 0},
    {"mistral", WINDOW_ALL, 1e-6, 1e4, 8, 0},
    {"qwen2", QKV_BIAS | WINDOW_FLAG, 1e-6, 1e4, 32, 0},
    {"qwen2_vl", QKV_BIAS | WINDOW_FLAG | MROPE, 1e-5, 1e6, 8, 0},
    {"qwen2_5_vl", QKV_BIAS | WINDOW_FLAG | MROPE, 1e-5, 1e6, 8, 0},
    {"qwen3", ATTENTION_BIAS | QK_NORM | WINDOW_FLAG, 1e-6, 1e4, 32, 128},
};

/* ---- names and shapes ---------------------------------------------------------------------- */

const char *fp8q_layer_name(const struct fp8q_model *model, uint32_t layer, const char *rest,
                            struct fp8q_name *buf)
{
    snprintf(buf->text, sizeof(buf->text), "%slayers.%u.%s", model->prefix, layer, rest);
    return buf->text;
}

const char *fp8q_linear_name(const struct fp8q_model *model, uint32_t layer,
                             enum fp8q_linear linear, const char *suffix, struct fp8q_name *buf)
{
    snprintf(buf->text, sizeof(buf->text), "%slayers.%u.%s%s", model->prefix, layer,
             linears[linear].name, suffix);
    return buf->text;
}

enum fp8q_site_kind fp8q_linear_site(enum fp8q_linear linear)
{
    return linears[linear].site;
}

enum fp8q_linear fp8q_site_first(enum fp8q_site_kind site)
{
    static const enum fp8q_linear first[FP8Q_N_SITES] = {FP8Q_Q_PROJ, FP8Q_O_PROJ, FP8Q_GATE_PROJ,
                                                         FP8Q_DOWN_PROJ};
    return first[site];
}

void fp8q_linear_shape(const struct fp8q_model *m, enum fp8q_linear linear, uint64_t shape_out[2])
{
    uint64_t q = (uint64_t)m->n_heads * m->head_dim, kv = (uint64_t)m->n_kv_heads * m->head_dim;
    const uint64_t shapes[FP8Q_N_LINEARS][2] = {
        {q, m->hidden},
        {kv, m->hidden},
        {kv, m->hidden},
        {m->hidden, q},
        {m->intermediate, m->hidden},
        {m->intermediate, m->hidden},
        {m->hidden, m->intermediate},
    };
    memcpy(shape_out, shapes[linear], sizeof(shapes[linear]));
}

uint64_t fp8q_site_width(const struct fp8q_model *model, enum fp8q_site_kind site)
{
    uint64_t shape[2];
    fp8q_linear_shape(model, fp8q_site_first(site), shape);
    return shape[1];
}

/* ---- config -------------------------------------------------------------------------------- */

static int get_size(const struct fp8q_json *config, const char *key, uint64_t fallback,
                    uint64_t max, uint64_t *out, struct fp8q_error *err)
{
    const struct fp8q_json *value = fp8q_json_get(config, key);
    *out = fallback;
    if ((!value || fp8q_json_is_null(value)) && fallback > 0)
        return FP8Q_OK;
    if (!fp8q_json_uint(value, out) || *out == 0 || *out > max)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: \"%s\" must be an integer from 1 to %llu", key,
                         (unsigned long long)max);
    return FP8Q_OK;
}

static const struct family *find_family(const char *type)
{
    for (size_t i = 0; type && i < sizeof(families) / sizeof(*families); i++)
        if (strcmp(type, families[i].model_type) == 0)
            return &families[i];
    return NULL;
}

static int read_sizes(struct fp8q_model *m, const struct family *f, const struct fp8q_json *config,
                      struct fp8q_error *err)
{
    uint64_t layers, heads, kv, dim;
    FP8Q_TRY(get_size(config, "num_hidden_layers", 0, 10000, &layers, err));
    FP8Q_TRY(get_size(config, "hidden_size", 0, 1u << 20, &m->hidden, err));
    FP8Q_TRY(get_size(config, "intermediate_size", 0, 1u << 22, &m->intermediate, err));
    FP8Q_TRY(get_size(config, "vocab_size", 0, 1u << 24, &m->vocab, err));
    FP8Q_TRY(get_size(config, "num_attention_heads", 0, 4096, &heads, err));
    FP8Q_TRY(get_size(config, "num_key_value_heads", f->n_kv_heads ? f->n_kv_heads : heads, 4096,
                      &kv, err));
    uint64_t plain_dim = m->hidden / heads;
    FP8Q_TRY(get_size(config, "head_dim",
                      f->head_dim ? f->head_dim
                      : plain_dim ? plain_dim
                                  : 1,
                      FP8Q_MAX_HEAD_DIM, &dim, err));
    if (heads % kv != 0 || dim % 2 != 0)
        return fp8q_fail(
            err, FP8Q_E_FORMAT, "config",
            "config.json: %llu heads of %llu with %llu key/value heads do not fit together",
            (unsigned long long)heads, (unsigned long long)dim, (unsigned long long)kv);
    m->n_layers = (uint32_t)layers;
    m->n_heads = (uint32_t)heads;
    m->n_kv_heads = (uint32_t)kv;
    m->head_dim = (uint32_t)dim;
    double eps = fp8q_json_number(fp8q_json_get(config, "rms_norm_eps"), f->norm_eps);
    if (!(eps >= 0 && eps < 1))
        return fp8q_fail(err, FP8Q_E_FORMAT, "config", "config.json: \"rms_norm_eps\" is %g", eps);
    m->norm_eps = (float)eps;
    const char *act = fp8q_json_string(fp8q_json_get(config, "hidden_act"), "silu");
    struct fp8q_shown shown;
    if (strcmp(act, "silu") != 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "family",
                         "config.json: \"hidden_act\" is \"%s\"; only \"silu\" is computed",
                         fp8q_show(&shown, act));
    return FP8Q_OK;
}

static void read_biases(struct fp8q_model *m, const struct family *f,
                        const struct fp8q_json *config)
{
    bool attention = (f->traits & ATTENTION_BIAS) &&
                     fp8q_json_bool(fp8q_json_get(config, "attention_bias"), false);
    bool mlp = (f->traits & MLP_BIAS) && fp8q_json_bool(fp8q_json_get(config, "mlp_bias"), false);
    for (int i = FP8Q_Q_PROJ; i <= FP8Q_V_PROJ; i++)
        m->bias[i] = attention || (f->traits & QKV_BIAS);
    m->bias[FP8Q_O_PROJ] = attention;
    for (int i = FP8Q_GATE_PROJ; i <= FP8Q_DOWN_PROJ; i++)
        m->bias[i] = mlp;
    m->qk_norm = f->traits & QK_NORM;
}

/* `layer_types` decides where it is given; before it existed, layers from `max_window_layers` on.
 */
static int read_windows(struct fp8q_model *m, const struct family *f,
                        const struct fp8q_json *config, struct fp8q_error *err)
{
    m->window = fp8q_array(m->n_layers, sizeof(*m->window));
    if (!m->window)
        return fp8q_fail_nomem(err);
    const struct fp8q_json *value = fp8q_json_get(config, "sliding_window");
    uint64_t window = 0, first = 0;
    if (value && !fp8q_json_is_null(value) && !fp8q_json_uint(value, &window))
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: \"sliding_window\" must be null or an integer");
    if (!value && (f->traits & WINDOW_ALL))
        window = 4096;
    bool on = (f->traits & WINDOW_ALL) ||
              ((f->traits & WINDOW_FLAG) &&
               fp8q_json_bool(fp8q_json_get(config, "use_sliding_window"), false));
    if (!on || window == 0)
        return FP8Q_OK;
    const struct fp8q_json *types = fp8q_json_get(config, "layer_types");
    bool by_type = (f->traits & WINDOW_FLAG) && fp8q_json_is_array(types);
    if (by_type && fp8q_json_count(types) != m->n_layers)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: \"layer_types\" has %llu entries for %u layers",
                         (unsigned long long)fp8q_json_count(types), m->n_layers);
    if ((f->traits & WINDOW_FLAG) &&
        !fp8q_json_uint(fp8q_json_get(config, "max_window_layers"), &first))
        first = 28;
    const struct fp8q_json *type = fp8q_json_first(types);
    for (uint32_t i = 0; i < m->n_layers; i++, type = by_type ? fp8q_json_next(type) : NULL)
        if (by_type ? strcmp(fp8q_json_string(type, ""), "sliding_attention") == 0 : i >= first)
            m->window[i] = window;
    return FP8Q_OK;
}

/* ---- tensors ------------------------------------------------------------------------------- */

static bool has(const struct fp8q_ckpt *ckpt, const char *prefix, const char *rest)
{
    char name[160];
    snprintf(name, sizeof(name), "%s%s", prefix, rest);
    return fp8q_ckpt_find(ckpt, name) != NULL;
}

static int find_prefix(struct fp8q_model *m, struct fp8q_error *err)
{
    static const char *const prefixes[] = {"model.", "model.language_model.",
                                           "language_model.model."};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (has(m->ckpt, prefixes[i], "layers.0.self_attn.q_proj.weight")) {
            snprintf(m->prefix, sizeof(m->prefix), "%s", prefixes[i]);
            return FP8Q_OK;
        }
    return fp8q_fail(err, FP8Q_E_FORMAT, "names",
                     "there is no \"layers.0.self_attn.q_proj.weight\" under \"model.\", "
                     "\"model.language_model.\" or \"language_model.model.\", as a %s has it",
                     m->family);
}

static int check_tensor(const struct fp8q_model *m, const char *name, uint32_t ndim, uint64_t rows,
                        uint64_t cols, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = fp8q_ckpt_find(m->ckpt, name);
    struct fp8q_shown shown;
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

static int check_layer(struct fp8q_model *m, uint32_t layer, struct fp8q_error *err)
{
    struct fp8q_name name;
    for (int i = 0; i < FP8Q_N_LINEARS; i++) {
        enum fp8q_linear linear = (enum fp8q_linear)i;
        uint64_t shape[2];
        fp8q_linear_shape(m, linear, shape);
        FP8Q_TRY(check_tensor(m, fp8q_linear_name(m, layer, linear, ".weight", &name), 2, shape[0],
                              shape[1], err));
        struct fp8q_weights weights;
        FP8Q_TRY(fp8q_weights_open(m->ckpt, name.text, &weights, err));
        m->scaling[layer * FP8Q_N_LINEARS + (uint32_t)i] = (uint8_t)weights.scaling;
        fp8q_weights_reset(&weights);
        if (m->bias[i])
            FP8Q_TRY(check_tensor(m, fp8q_linear_name(m, layer, linear, ".bias", &name), 1,
                                  shape[0], 0, err));
    }
    FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, "input_layernorm.weight", &name), 1,
                          m->hidden, 0, err));
    FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, "post_attention_layernorm.weight", &name), 1,
                          m->hidden, 0, err));
    if (m->qk_norm) {
        FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, "self_attn.q_norm.weight", &name), 1,
                              m->head_dim, 0, err));
        FP8Q_TRY(check_tensor(m, fp8q_layer_name(m, layer, "self_attn.k_norm.weight", &name), 1,
                              m->head_dim, 0, err));
    }
    return FP8Q_OK;
}

/* Tied as config.json says; where it does not, as the file says.  */
static int find_head(struct fp8q_model *m, const struct fp8q_json *text, struct fp8q_error *err)
{
    static const char *const heads[] = {"lm_head.weight", "language_model.lm_head.weight"};
    const struct fp8q_json *tie = fp8q_json_get(m->ckpt->config, "tie_word_embeddings");
    const struct fp8q_json *tie_text = fp8q_json_get(text, "tie_word_embeddings");
    const char *head = NULL;
    for (size_t i = 0; i < 2 && !head; i++)
        if (fp8q_ckpt_find(m->ckpt, heads[i]))
            head = heads[i];
    m->tied = fp8q_json_bool(tie, false) || fp8q_json_bool(tie_text, false);
    if (!tie && !tie_text)
        m->tied = head == NULL;
    if (m->tied)
        snprintf(m->head_name, sizeof(m->head_name), "%sembed_tokens.weight", m->prefix);
    else
        snprintf(m->head_name, sizeof(m->head_name), "%s", head ? head : heads[0]);
    FP8Q_TRY(check_tensor(m, m->head_name, 2, m->vocab, m->hidden, err));
    struct fp8q_weights weights;
    FP8Q_TRY(fp8q_weights_open(m->ckpt, m->head_name, &weights, err));
    m->head_scaling = weights.scaling;
    fp8q_weights_reset(&weights);
    return FP8Q_OK;
}

static int find_tensors(struct fp8q_model *m, const struct fp8q_json *text, struct fp8q_error *err)
{
    struct fp8q_name name;
    FP8Q_TRY(find_prefix(m, err));
    /* The number of layers is bounded by the file: each has tensors of its own.  */
    if ((uint64_t)m->n_layers * FP8Q_N_LINEARS > m->ckpt->n_tensors)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: %u layers, but there are only %llu tensors", m->n_layers,
                         (unsigned long long)m->ckpt->n_tensors);
    m->scaling = fp8q_array((uint64_t)m->n_layers * FP8Q_N_LINEARS, sizeof(*m->scaling));
    if (!m->scaling)
        return fp8q_fail_nomem(err);
    snprintf(name.text, sizeof(name.text), "%sembed_tokens.weight", m->prefix);
    FP8Q_TRY(check_tensor(m, name.text, 2, m->vocab, m->hidden, err));
    snprintf(name.text, sizeof(name.text), "%snorm.weight", m->prefix);
    FP8Q_TRY(check_tensor(m, name.text, 1, m->hidden, 0, err));
    for (uint32_t layer = 0; layer < m->n_layers; layer++)
        FP8Q_TRY(check_layer(m, layer, err));
    return find_head(m, text, err);
}

static int describe(struct fp8q_model *m, struct fp8q_error *err)
{
    const struct fp8q_json *config = m->ckpt->config;
    struct fp8q_shown shown;
    if (!config)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "family",
                         "%s: there is no config.json, so the network is not known",
                         fp8q_show(&shown, m->ckpt->path));
    const char *type = fp8q_json_string(fp8q_json_get(config, "model_type"), NULL);
    const struct family *f = find_family(type);
    if (!f)
        return fp8q_fail(
            err, FP8Q_E_UNSUPPORTED, "family",
            "%s: model_type \"%s\" cannot be evaluated; known are llama, mistral, qwen2, "
            "qwen2_vl, qwen2_5_vl and qwen3",
            fp8q_show(&shown, m->ckpt->path),
            type ? fp8q_show(&(struct fp8q_shown){{0}}, type) : "(none)");
    snprintf(m->family, sizeof(m->family), "%s", f->model_type);
    const struct fp8q_json *text = config;
    if ((f->traits & MROPE) && fp8q_json_is_object(fp8q_json_get(config, "text_config")))
        text = fp8q_json_get(config, "text_config");
    FP8Q_TRY(read_sizes(m, f, text, err));
    read_biases(m, f, text);
    FP8Q_TRY(fp8q_rope_read(&m->rope, text, m->head_dim, f->theta, f->traits & MROPE, err));
    FP8Q_TRY(find_tensors(m, text, err));
    return read_windows(m, f, text, err);
}

int fp8q_model_open(const struct fp8q_ckpt *ckpt, struct fp8q_model *model_out,
                    struct fp8q_error *err)
{
    *model_out = (struct fp8q_model){.ckpt = ckpt};
    int status = describe(model_out, err);
    if (status != FP8Q_OK)
        fp8q_model_reset(model_out);
    return status;
}

void fp8q_model_reset(struct fp8q_model *model)
{
    free(model->window);
    free(model->scaling);
    *model = (struct fp8q_model){0};
}

int fp8q_model_same(const struct fp8q_model *a, const struct fp8q_model *b, struct fp8q_error *err)
{
    struct {
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
    };
    if (strcmp(a->family, b->family) != 0)
        return fp8q_fail(err, FP8Q_E_ARG, "mismatch",
                         "the checkpoints are of different families: %s and %s", a->family,
                         b->family);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (sizes[i].a != sizes[i].b)
            return fp8q_fail(err, FP8Q_E_ARG, "mismatch",
                             "the checkpoints are of different networks: %s is %llu and %llu",
                             sizes[i].what, (unsigned long long)sizes[i].a,
                             (unsigned long long)sizes[i].b);
    if (memcmp(a->rope.inv_freq, b->rope.inv_freq, a->head_dim / 2 * sizeof(float)) != 0 ||
        a->norm_eps != b->norm_eps)
        return fp8q_fail(
            err, FP8Q_E_ARG, "mismatch",
            "the checkpoints differ in rotary embedding or rms_norm_eps (config.json)");
    return FP8Q_OK;
}
