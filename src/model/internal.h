/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of this room share: the table of architectures, and the parts of a
 * layer.
 */
#ifndef FP8Q_MODEL_INTERNAL_H
#define FP8Q_MODEL_INTERNAL_H

#include "model/forward.h"

/* ---- architectures.c: what an architecture is before its config is read ---------------------- */

enum fp8q_trait {
    FP8Q_QKV_BIAS = 1 << 0,       /* q, k, v always have one */
    FP8Q_ATTENTION_BIAS = 1 << 1, /* `attention_bias` of the config: q, k, v, o */
    FP8Q_BIAS_NOT_O = 1 << 2,     /* ... but not o */
    FP8Q_MLP_BIAS = 1 << 3,       /* `mlp_bias` of the config */
    FP8Q_NORM_PLUS_ONE = 1 << 4,
    FP8Q_EMBED_BY_WIDTH = 1 << 5, /* embeddings times sqrt(hidden_size) */
    FP8Q_FUSED_QKV = 1 << 6,
    FP8Q_FUSED_GATE_UP = 1 << 7,
    FP8Q_MROPE = 1 << 8,
    FP8Q_MROPE_ALTERNATE = 1 << 9,
    FP8Q_ROPE_INTERLEAVED = 1 << 10,
    FP8Q_ROPE_LOCAL = 1 << 11,  /* windowed layers have a rotary embedding of their own */
    FP8Q_MULTIPLIERS = 1 << 12, /* Granite's four factors */
    FP8Q_SOFT_CAPS = 1 << 13,
    FP8Q_QUERY_SCALAR = 1 << 14, /* attention is scaled by `query_pre_attn_scalar` */
    FP8Q_NO_ROPE_LAYERS = 1 << 15,
    FP8Q_TIED = 1 << 16,         /* when the config does not say */
    FP8Q_PARTIAL_ROPE = 1 << 17, /* `partial_rotary_factor` */
    FP8Q_BIASED = 1 << 18,       /* `attention_bias` is true where the config is silent */
    FP8Q_OUT_BIAS = 1 << 19,     /* `attention_out_bias` for o */
    FP8Q_USE_BIAS = 1 << 20,     /* `use_bias`: all seven */
    FP8Q_LATENT = 1 << 21,       /* latent attention (MLA) */
    FP8Q_QK_NORM_FLAG = 1 << 22, /* the norms of q and k only with `use_qk_norm` */
};

/* Which layers have a sliding window where `layer_types` does not say.  */
enum fp8q_windows {
    FP8Q_WINDOW_NEVER,
    FP8Q_WINDOW_ALL,       /* all, if the config has one */
    FP8Q_WINDOW_TYPES,     /* the same, but `layer_types` is asked */
    FP8Q_WINDOW_FLAG_ALL,  /* all, with `use_sliding_window` */
    FP8Q_WINDOW_FROM,      /* with `use_sliding_window`, from `max_window_layers` on */
    FP8Q_WINDOW_LAST,      /* the same without the flag */
    FP8Q_WINDOW_EVEN,      /* 0, 2, 4, ... */
    FP8Q_WINDOW_FLAG_EVEN, /* the same with `use_sliding_window`, below `max_window_layers` */
    FP8Q_WINDOW_PATTERN    /* all but every n-th (`sliding_window_pattern`) */
};

struct fp8q_architecture {
    const char *model_type;
    unsigned traits;
    enum fp8q_windows windows;
    enum fp8q_qk_norm qk_norm;
    enum fp8q_activation activation; /* the only one that the architecture has here */
    const char *norms[FP8Q_N_NORMS]; /* NULL: none */
    double norm_eps, theta, partial; /* when the config leaves them out; 0: 1e-6, 1e4, 1 */
    uint64_t n_kv_heads, head_dim;   /* same; 0: n_heads, hidden / n_heads */
    uint64_t window;                 /* same; 0: none */
    uint64_t pattern;                /* with FP8Q_WINDOW_PATTERN, same */
    double local_theta; /* with FP8Q_ROPE_LOCAL: of `rope_local_base_freq`; 0: @theta */
};

/* NULL if there is none of that name.  */
const struct fp8q_architecture *fp8q_architecture_find(const char *model_type);
/* Whether a VLM's or VLA's text can be run as its language model alone.  */
bool fp8q_wrapper_known(const char *model_type);
/* All names, for a message.  */
void fp8q_architecture_list(struct fp8q_text *out);

/* ---- config.c, config_experts.c, served.c: from the config to the description ----------------- */

int fp8q_config_read(struct fp8q_model *model, const struct fp8q_architecture *arch,
                     const struct fp8q_json *config, struct fp8q_error *err);
/* The experts of the model's architecture, if it has any.  */
int fp8q_config_experts(struct fp8q_model *model, const struct fp8q_json *config,
                        struct fp8q_error *err);
/* An integer from 1 to @max; @fallback (0: there is none) where the key is missing or null.  */
int fp8q_config_size(const struct fp8q_json *config, const char *key, uint64_t fallback,
                     uint64_t max, uint64_t *out, struct fp8q_error *err);

/* Opens @m->targets, by which fp8q_served_acts() finds what holds for a weight.  */
int fp8q_served_open(struct fp8q_model *m, struct fp8q_error *err);
/* Activation format of weight @name with @scaling, and its static scale.  FP8Q_E_FORMAT if a static
 * one is missing or no scale.  */
int fp8q_served_acts(const struct fp8q_model *m, const char *name, enum fp8q_scaling scaling,
                     uint8_t *acts_out, float *static_scale_out, struct fp8q_error *err);

/* ---- parts of a layer ------------------------------------------------------------------------ */

struct fp8q_layer {
    struct fp8q_forward *fw;
    const struct fp8q_branch *branch;
    const struct fp8q_group *group;
    const struct fp8q_rotary *rotary;
    uint32_t index;
    enum fp8q_site_kind from, until; /* fp8q_part */
    float *h;
};

/* steps.c: small steps over tokens.  Each fails with FP8Q_E_FORMAT "not-finite" where a sum of
 * squares is NaN or infinite.  */

/* Weight [n] of any float dtype as F32; free it.  model.c has checked the shape.  */
int fp8q_step_read(const struct fp8q_forward *fw, const struct fp8q_model *model, const char *name,
                   uint64_t n, float **out, struct fp8q_error *err);
/* Norm @name of @n_tokens rows, @in to @out, which may be the same.  */
int fp8q_step_norm(struct fp8q_forward *fw, const struct fp8q_model *model, const char *name,
                   size_t n_tokens, const float *in, float *out, struct fp8q_error *err);
/* The norm of parts of rows: @width elements at the beginning of each of @n_tokens rows.  */
struct fp8q_norm_job {
    const char *name;
    const float *in;
    float *out;
    size_t n_tokens, width, in_stride, out_stride;
    float eps;
};
int fp8q_step_norm_part(struct fp8q_forward *fw, const struct fp8q_model *model,
                        const struct fp8q_norm_job *norm, struct fp8q_error *err);
/* Latent attention: rotation of the keys' common part, behind the latent vector in each row of
 * latent.kv_a.  */
int fp8q_step_turn_key(const struct fp8q_layer *layer, struct fp8q_error *err);
/* From latent.kv and the common part of the keys to k and v of @fw; rotation and scale of q.  */
int fp8q_step_spread(const struct fp8q_layer *layer, struct fp8q_error *err);
/* q and k of @fw: their norms, rotation, and the scale of attention into q.  */
int fp8q_step_rotate(const struct fp8q_layer *layer, struct fp8q_error *err);
/* gate = activation(gate) * up, @n_tokens rows of @width.  */
int fp8q_step_activate(struct fp8q_forward *fw, const struct fp8q_model *model, float *gate,
                       const float *up, size_t n_tokens, size_t width, struct fp8q_error *err);
/* h += scale * x of @fw.  */
int fp8q_step_add(const struct fp8q_layer *layer, struct fp8q_error *err);

#define FP8Q_Q_A_NORM "self_attn.q_a_layernorm.weight"
#define FP8Q_KV_A_NORM "self_attn.kv_a_layernorm.weight"

/* layer.c: opens the weight @name of a product; the branch may have another in its place.  */
int fp8q_product_open(const struct fp8q_branch *branch, const char *name,
                      struct fp8q_product *product, struct fp8q_error *err);
/* Releases what products opened.  */
void fp8q_products_close(struct fp8q_product *products, size_t n);

/* attention.c: q [T][heads*dim], k [T][kv*dim] and v [T][kv*value_dim] after rotation -> att
 * [T][heads*value_dim].  */
int fp8q_attention(struct fp8q_forward *fw, const struct fp8q_model *model,
                   const struct fp8q_group *group, uint64_t window, struct fp8q_error *err);

/* experts.c: @x [T][hidden] -> x of @fw, the weighted sum of each token's experts.  @shared: what
 * the shared expert gave stands in `routed`, and is weighed and added.  */
int fp8q_experts(const struct fp8q_layer *layer, const float *x, bool shared,
                 struct fp8q_error *err);

#endif
