/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c - reads what an architecture's row leaves to config.json: sizes, biases, windows,
 * factors; experts are in config_experts.c.  Defaults are those of transformers' configuration classes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/internal.h"

static int bad_number(const char *key, double value, struct fp8q_error *err)
{
    return fp8q_fail(err, FP8Q_E_FORMAT, "config", "config.json: \"%s\" is %g", key, value);
}

int fp8q_config_size(const struct fp8q_json *config, const char *key, uint64_t fallback,
                     uint64_t max, uint64_t *out, struct fp8q_error *err)
{
    const struct fp8q_json *value = fp8q_json_get(config, key);
    /* Some files write null where others leave a key out.  */
    *out = fallback;
    if ((!value || fp8q_json_is_null(value)) && fallback > 0)
        return FP8Q_OK;
    if (!fp8q_json_uint(value, out) || *out == 0 || *out > max)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: \"%s\" must be an integer from 1 to %llu", key,
                         (unsigned long long)max);
    return FP8Q_OK;
}

/* A factor that is not 0; @fallback where the key is missing or null.  */
static int get_factor(const struct fp8q_json *config, const char *key, double fallback, float *out,
                      struct fp8q_error *err)
{
    /* Zero is a value only where it is also the default, and then means: none.  */
    double value = fp8q_json_number(fp8q_json_get(config, key), fallback);
    if (!(fabs(value) < 1e30) || (value == 0 && fallback != 0))
        return bad_number(key, value, err);
    *out = (float)value;
    return FP8Q_OK;
}

/* ---- sizes --------------------------------------------------------------------------------- */

/* Sizes of latent attention; every head has keys and values of its own.  */
static int read_latent(struct fp8q_model *m, const struct fp8q_json *config, struct fp8q_error *err)
{
    const struct {
        const char *key;
        uint64_t fallback;
        uint32_t *out;
    } sizes[] = {
        {"kv_lora_rank", 512, &m->latent.kv_rank},   {"q_lora_rank", 1536, &m->latent.q_rank},
        {"qk_nope_head_dim", 128, &m->latent.plain}, {"qk_rope_head_dim", 64, &m->latent.turning},
        {"v_head_dim", 128, &m->value_dim},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        uint64_t size;
        const struct fp8q_json *value = fp8q_json_get(config, sizes[i].key);
        bool none = sizes[i].out == &m->latent.q_rank && value && fp8q_json_is_null(value);
        FP8Q_TRY(fp8q_config_size(config, sizes[i].key, sizes[i].fallback, 1u << 16, &size, err));
        *sizes[i].out = none ? 0 : (uint32_t)size;
    }

    /* As transformers and DeepSeek's own code have it, whatever `rms_norm_eps` says.  */
    m->latent.eps = 1e-6f;
    m->n_kv_heads = m->n_heads;
    m->head_dim = m->latent.plain + m->latent.turning;
    if (m->head_dim > FP8Q_MAX_HEAD_DIM || m->value_dim > FP8Q_MAX_HEAD_DIM ||
        m->latent.turning % 2 != 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "attention",
                         "config.json: heads of %u + %u elements, values of %u", m->latent.plain,
                         m->latent.turning, m->value_dim);
    return FP8Q_OK;
}

static int read_heads(struct fp8q_model *m, const struct fp8q_architecture *a,
                      const struct fp8q_json *config, struct fp8q_error *err)
{
    uint64_t heads, kv, dim;
    FP8Q_TRY(fp8q_config_size(config, "num_attention_heads", 0, 4096, &heads, err));
    m->n_heads = (uint32_t)heads;
    if (a->traits & FP8Q_LATENT)
        return read_latent(m, config, err);

    /* Silent configs mean the class's default, which is not always one for each head.  */
    FP8Q_TRY(fp8q_config_size(config, "num_key_value_heads", a->n_kv_heads ? a->n_kv_heads : heads,
                              4096, &kv, err));

    uint64_t plain_dim = fp8q_max_u64(m->hidden / heads, 1);
    FP8Q_TRY(fp8q_config_size(config, "head_dim", a->head_dim ? a->head_dim : plain_dim,
                              FP8Q_MAX_HEAD_DIM, &dim, err));
    if (heads % kv != 0 || dim % 2 != 0)
        return fp8q_fail(
            err, FP8Q_E_FORMAT, "config",
            "config.json: %llu heads of %llu with %llu key/value heads do not fit together",
            (unsigned long long)heads, (unsigned long long)dim, (unsigned long long)kv);

    m->n_kv_heads = (uint32_t)kv;
    m->head_dim = m->value_dim = (uint32_t)dim;
    return FP8Q_OK;
}

static int read_activation(struct fp8q_model *m, const struct fp8q_architecture *a,
                           const struct fp8q_json *config, struct fp8q_error *err)
{
    static const char *const names[] = {"silu", "gelu_pytorch_tanh"};
    struct fp8q_shown shown;
    const char *wanted = names[a->activation];

    /* Gemma's two keys: the older one says "gelu" in its first checkpoints and is overruled.  */
    const struct fp8q_json *value = fp8q_json_get(config, "hidden_activation");
    if (!value || fp8q_json_is_null(value))
        value = fp8q_json_get(config, "hidden_act");
    const char *act = fp8q_json_string(value, wanted);
    bool same =
        strcmp(act, wanted) == 0 || (a->activation == FP8Q_SILU && strcmp(act, "swish") == 0);
    if (!same)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "activation",
                         "config.json: \"hidden_act\" is \"%s\"; of %s only \"%s\" is computed",
                         fp8q_show(&shown, act), a->model_type, wanted);
    m->activation = a->activation;
    return FP8Q_OK;
}

static int read_sizes(struct fp8q_model *m, const struct fp8q_architecture *a,
                      const struct fp8q_json *config, struct fp8q_error *err)
{
    uint64_t layers;
    FP8Q_TRY(fp8q_config_size(config, "num_hidden_layers", 0, 10000, &layers, err));
    FP8Q_TRY(fp8q_config_size(config, "hidden_size", 0, 1u << 20, &m->hidden, err));
    FP8Q_TRY(fp8q_config_size(config, "intermediate_size", 0, 1u << 22, &m->intermediate, err));
    FP8Q_TRY(fp8q_config_size(config, "vocab_size", 0, 1u << 24, &m->vocab, err));
    m->n_layers = (uint32_t)layers;
    FP8Q_TRY(read_heads(m, a, config, err));

    /* The number of layers is bounded by the file: each has tensors of its own.  */
    if ((uint64_t)m->n_layers * 4 > m->ckpt->n_tensors)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: %u layers, but there are only %llu tensors", m->n_layers,
                         (unsigned long long)m->ckpt->n_tensors);

    double eps = fp8q_json_number(fp8q_json_get(config, "rms_norm_eps"),
                                  a->norm_eps > 0 ? a->norm_eps : 1e-6);
    if (!(eps >= 0 && eps < 1))
        return bad_number("rms_norm_eps", eps, err);

    m->norm_eps = (float)eps;
    return read_activation(m, a, config, err);
}

static void read_biases(struct fp8q_model *m, const struct fp8q_architecture *a,
                        const struct fp8q_json *config)
{
    bool attention =
        (a->traits & FP8Q_ATTENTION_BIAS) &&
        fp8q_json_bool(fp8q_json_get(config, "attention_bias"), (a->traits & FP8Q_BIASED) != 0);
    bool out = attention && !(a->traits & FP8Q_BIAS_NOT_O);
    bool mlp =
        (a->traits & FP8Q_MLP_BIAS) && fp8q_json_bool(fp8q_json_get(config, "mlp_bias"), false);
    bool qkv =
        (a->traits & FP8Q_QKV_BIAS) && fp8q_json_bool(fp8q_json_get(config, "qkv_bias"), true);

    /* The three that share an input have a bias together or not at all.  */
    for (int i = FP8Q_Q_PROJ; i <= FP8Q_V_PROJ; i++)
        m->bias[i] = attention || qkv;
    if (a->traits & FP8Q_OUT_BIAS)
        out = fp8q_json_bool(fp8q_json_get(config, "attention_out_bias"), false);
    m->bias[FP8Q_O_PROJ] = out;

    /* Only what makes the latent vectors has them.  */
    m->bias[FP8Q_KV_A_PROJ] = attention && m->latent.kv_rank > 0;
    m->bias[FP8Q_Q_PROJ] &= m->latent.kv_rank == 0 || m->latent.q_rank > 0;

    for (int i = FP8Q_GATE_PROJ; i <= FP8Q_DOWN_PROJ; i++)
        m->bias[i] = mlp;

    bool all =
        (a->traits & FP8Q_USE_BIAS) && fp8q_json_bool(fp8q_json_get(config, "use_bias"), false);
    for (int i = 0; i < FP8Q_N_LINEARS; i++)
        m->bias[i] |= all && i != FP8Q_Q_B_PROJ && i != FP8Q_KV_A_PROJ && i != FP8Q_KV_B_PROJ;
}

/* ---- factors ------------------------------------------------------------------------------- */

static int read_factors(struct fp8q_model *m, const struct fp8q_architecture *a,
                        const struct fp8q_json *config, struct fp8q_error *err)
{
    m->embed_scale = m->residual_scale = m->logit_scale = 1.0f;
    /* What a head's dot product is divided by, as everyone does it.  */
    m->attention_scale = 1.0f / sqrtf((float)m->head_dim);

    if (a->traits & FP8Q_EMBED_BY_WIDTH)
        m->embed_scale = (float)sqrt((double)m->hidden);

    if (a->traits & FP8Q_MULTIPLIERS) {
        FP8Q_TRY(get_factor(config, "embedding_multiplier", 1, &m->embed_scale, err));
        FP8Q_TRY(get_factor(config, "residual_multiplier", 1, &m->residual_scale, err));
        FP8Q_TRY(get_factor(config, "attention_multiplier", 1, &m->attention_scale, err));
        FP8Q_TRY(get_factor(config, "logits_scaling", 1, &m->logit_scale, err));
        m->logit_scale = 1.0f / m->logit_scale;
    }

    if (a->traits & FP8Q_QUERY_SCALAR) {
        float scalar = 256;
        FP8Q_TRY(get_factor(config, "query_pre_attn_scalar", 256, &scalar, err));

        if (!(scalar > 0))
            return bad_number("query_pre_attn_scalar", (double)scalar, err);
        m->attention_scale = (float)(1.0 / sqrt((double)scalar));
    }

    /* Null means none, a missing key the class's default.  */
    const struct fp8q_json *attention = fp8q_json_get(config, "attn_logit_softcapping");
    const struct fp8q_json *logits = fp8q_json_get(config, "final_logit_softcapping");
    bool caps = a->traits & FP8Q_SOFT_CAPS;
    FP8Q_TRY(get_factor(config, "attn_logit_softcapping", caps && !attention ? 50 : 0,
                        &m->attention_cap, err));
    FP8Q_TRY(get_factor(config, "final_logit_softcapping", caps && !logits ? 30 : 0, &m->logit_cap,
                        err));
    if (m->attention_cap < 0 || m->logit_cap < 0)
        return bad_number("final_logit_softcapping", (double)m->logit_cap, err);

    /* A wrapper has a head of its own, and applies nothing behind it.  */
    if (config != m->ckpt->config) {
        m->logit_scale = 1.0f;
        m->logit_cap = 0;
    }
    return FP8Q_OK;
}

/* ---- windows ------------------------------------------------------------------------------- */

struct windows {
    const struct fp8q_architecture *arch;
    bool flag;               /* `use_sliding_window` */
    uint64_t bound, pattern; /* `max_window_layers`, `sliding_window_pattern` */
};

static bool has_window(const struct windows *w, uint32_t layer)
{
    switch (w->arch->windows) {
    case FP8Q_WINDOW_NEVER:
        break;
    case FP8Q_WINDOW_ALL:
    case FP8Q_WINDOW_TYPES:
        return true;
    case FP8Q_WINDOW_FLAG_ALL:
        return w->flag;
    case FP8Q_WINDOW_FROM:
        return w->flag && layer >= w->bound;
    case FP8Q_WINDOW_LAST:
        return layer >= w->bound;
    /* Gemma 2 begins with a window, its every second layer sees all.  */
    case FP8Q_WINDOW_EVEN:
        return layer % 2 == 0;
    case FP8Q_WINDOW_FLAG_EVEN:
        return w->flag && layer % 2 == 0 && layer < w->bound;
    case FP8Q_WINDOW_PATTERN:
        return (layer + 1) % w->pattern != 0;
    }
    return false;
}

/* Whether an architecture looks at `layer_types` at all, with this config.  */
static bool has_types(const struct windows *w)
{
    switch (w->arch->windows) {
    case FP8Q_WINDOW_FROM:
    case FP8Q_WINDOW_FLAG_EVEN:
        return w->flag;
    case FP8Q_WINDOW_LAST:
    case FP8Q_WINDOW_EVEN:
    case FP8Q_WINDOW_PATTERN:
    case FP8Q_WINDOW_TYPES:
        return true;
    default:
        return false;
    }
}

/* `layer_types` decides where it is given; before it existed, the rule of the architecture.  */
static int read_windows(struct fp8q_model *m, const struct fp8q_architecture *a,
                        const struct fp8q_json *config, struct fp8q_error *err)
{
    const struct fp8q_json *value = fp8q_json_get(config, "sliding_window");
    struct windows w = {.arch = a, .bound = a->windows == FP8Q_WINDOW_LAST ? 62 : 28};

    uint64_t window = value ? 0 : a->window;
    if (value && !fp8q_json_is_null(value) && !fp8q_json_uint(value, &window))
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: \"sliding_window\" must be null or an integer");

    /* PaliGemma says so of its prefix, which the inputs describe (inputs.h).  */
    bool bidirectional =
        fp8q_json_bool(fp8q_json_get(config, "use_bidirectional_attention"), false);
    if (bidirectional && config == m->ckpt->config)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "attention",
                         "config.json: \"use_bidirectional_attention\" is not computed");

    /* OLMo's: queries, keys and values are held within bounds.  */
    const struct fp8q_json *clip = fp8q_json_get(config, "clip_qkv");
    if (clip && !fp8q_json_is_null(clip))
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "attention",
                         "config.json: \"clip_qkv\" is not computed");

    w.flag = fp8q_json_bool(fp8q_json_get(config, "use_sliding_window"), false);
    fp8q_json_uint(fp8q_json_get(config, "max_window_layers"), &w.bound);
    if (!fp8q_json_uint(fp8q_json_get(config, "sliding_window_pattern"), &w.pattern) ||
        w.pattern == 0)
        w.pattern = a->pattern;

    const struct fp8q_json *types = fp8q_json_get(config, "layer_types");
    bool by_type = has_types(&w) && fp8q_json_is_array(types);
    if (by_type && fp8q_json_count(types) != m->n_layers)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: \"layer_types\" has %llu entries for %u layers",
                         (unsigned long long)fp8q_json_count(types), m->n_layers);

    const struct fp8q_json *type = by_type ? fp8q_json_first(types) : NULL;
    for (uint32_t i = 0; i < m->n_layers; i++, type = fp8q_json_next(type)) {
        bool slides = has_window(&w, i);
        if (by_type)
            slides = strcmp(fp8q_json_string(type, ""), "sliding_attention") == 0;
        /* 0 is "all before it", so a config without a window needs no case of its own.  */
        m->window[i] = slides ? window : 0;
        if (slides && (a->traits & FP8Q_ROPE_LOCAL))
            m->rope_of[i] = 1;
    }
    return FP8Q_OK;
}

/* ---- rotary embeddings --------------------------------------------------------------------- */

static int read_ropes(struct fp8q_model *m, const struct fp8q_architecture *a,
                      const struct fp8q_json *config, struct fp8q_error *err)
{
    struct fp8q_rope_how how = {.head_dim = m->head_dim,
                                .theta = a->theta > 0 ? a->theta : 1e4,
                                .partial = a->partial > 0 ? a->partial : 1,
                                .whole = !(a->traits & FP8Q_PARTIAL_ROPE),
                                .mrope = a->traits & FP8Q_MROPE,
                                .alternate = a->traits & FP8Q_MROPE_ALTERNATE,
                                .interleaved = a->traits & FP8Q_ROPE_INTERLEAVED};
    if (a->traits & FP8Q_LATENT) {
        how.head_dim = m->latent.turning;
        how.interleaved = fp8q_json_bool(fp8q_json_get(config, "rope_interleave"), true);
    }
    if (a->traits & FP8Q_ROPE_LOCAL)
        how.layer_type = "full_attention";
    FP8Q_TRY(fp8q_rope_read(&m->ropes[0], config, &how, err));
    if (a->traits & FP8Q_LATENT)
        m->attention_scale *= m->ropes[0].score_scaling;
    /* Two that are alike compare alike, whatever the layers use.  */
    m->ropes[1] = m->ropes[0];
    if (!(a->traits & FP8Q_ROPE_LOCAL))
        return FP8Q_OK;

    /* Windowed layers: perhaps a base of their own, and never scaled.  */
    how.layer_type = "sliding_attention";
    if (a->local_theta > 0) {
        how.theta = a->local_theta;
        how.theta_key = "rope_local_base_freq";
    }
    how.unscaled = true;
    return fp8q_rope_read(&m->ropes[1], config, &how, err);
}

/* SmolLM3: `no_rope_layers` holds 1 for layers that do rotate; by default all but every fourth.  */
static int read_no_rope(struct fp8q_model *m, const struct fp8q_json *config,
                        struct fp8q_error *err)
{
    const struct fp8q_json *list = fp8q_json_get(config, "no_rope_layers");
    const struct fp8q_json *item = fp8q_json_first(list);
    uint64_t interval;

    if (fp8q_json_is_array(list) && fp8q_json_count(list) != m->n_layers)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: \"no_rope_layers\" has %llu entries for %u layers",
                         (unsigned long long)fp8q_json_count(list), m->n_layers);
    if (fp8q_json_bool(fp8q_json_get(config, "use_sliding_window"), false))
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "attention",
                         "config.json: \"use_sliding_window\" of %s is not computed",
                         m->architecture);
    FP8Q_TRY(fp8q_config_size(config, "no_rope_layer_interval", 4, 10000, &interval, err));

    for (uint32_t i = 0; i < m->n_layers; i++, item = fp8q_json_next(item)) {
        bool rotates = (i + 1) % interval != 0;
        if (fp8q_json_is_array(list))
            rotates = fp8q_json_number(item, 1) != 0;
        /* NoPE: such a layer knows of positions only what the others have left in the state.  */
        if (!rotates)
            m->rope_of[i] = FP8Q_NO_ROPE;
    }
    return FP8Q_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

int fp8q_config_read(struct fp8q_model *m, const struct fp8q_architecture *a,
                     const struct fp8q_json *config, struct fp8q_error *err)
{
    memcpy(m->norms, a->norms, sizeof(m->norms));
    m->qk_norm = a->qk_norm;
    if ((a->traits & FP8Q_QK_NORM_FLAG) &&
        !fp8q_json_bool(fp8q_json_get(config, "use_qk_norm"), false))
        m->qk_norm = FP8Q_QK_NORM_NONE;
    m->norm_plus_one = a->traits & FP8Q_NORM_PLUS_ONE;
    m->fused_qkv = a->traits & FP8Q_FUSED_QKV;
    m->fused_gate_up = a->traits & FP8Q_FUSED_GATE_UP;

    FP8Q_TRY(read_sizes(m, a, config, err));
    read_biases(m, a, config);
    FP8Q_TRY(read_factors(m, a, config, err));

    m->window = fp8q_array(m->n_layers, sizeof(*m->window));
    m->rope_of = fp8q_array(m->n_layers, sizeof(*m->rope_of));
    m->sparse = fp8q_array(m->n_layers, sizeof(*m->sparse));
    if (!m->window || !m->rope_of || !m->sparse)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(read_ropes(m, a, config, err));
    FP8Q_TRY(read_windows(m, a, config, err));

    if (a->traits & FP8Q_NO_ROPE_LAYERS)
        FP8Q_TRY(read_no_rope(m, config, err));
    return fp8q_config_experts(m, config, err);
}
