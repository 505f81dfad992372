/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h - config.json and tensor names -> the description of a decoder that forward.h can run.
 *
 * Which architectures: the table of architectures.c.  Everything else is refused by name, and so is
 * every rotary embedding, activation or attention that there is no branch for here.
 */
#ifndef FP8Q_MODEL_H
#define FP8Q_MODEL_H

#include "checkpoint/weights.h"
#include "model/rope.h"

/* Latent attention has neither k nor v; where it compresses its queries, q is their first half.  */
enum fp8q_linear {
    FP8Q_Q_PROJ,
    FP8Q_K_PROJ,
    FP8Q_V_PROJ,
    FP8Q_Q_B_PROJ,
    FP8Q_KV_A_PROJ,
    FP8Q_KV_B_PROJ,
    FP8Q_O_PROJ,
    FP8Q_GATE_PROJ,
    FP8Q_UP_PROJ,
    FP8Q_DOWN_PROJ,
    FP8Q_N_LINEARS
};

/* Inputs of linears: q/k/v share one, gate and up too.  A site is named after its first linear.  Only
 * latent attention has the second to the fourth.  */
enum fp8q_site_kind {
    FP8Q_SITE_QKV,
    FP8Q_SITE_Q_B,
    FP8Q_SITE_KV_A, /* what q has, under a name that does not depend on what q is called */
    FP8Q_SITE_KV_B,
    FP8Q_SITE_O,
    FP8Q_SITE_GATE_UP,
    FP8Q_SITE_DOWN,
    FP8Q_N_SITES
};

/* What happens to the input of a quantized linear.  E4M3, nearest even, saturating; the scale is
 * amax/448 of the values that share it.  */
enum fp8q_acts {
    FP8Q_ACTS_NONE,
    FP8Q_ACTS_SERVED,     /* as engines do with this checkpoint: fp8q_model.served */
    FP8Q_ACTS_BLOCK,      /* per token and 128 channels */
    FP8Q_ACTS_BLOCK_POW2, /* the same with the power of two not below amax/448 */
    FP8Q_ACTS_TOKEN,      /* per token */
    FP8Q_ACTS_GROUP,      /* MXFP8: per token and 32 channels, powers of two */
    FP8Q_ACTS_STATIC      /* one scale that the checkpoint brings; what is larger saturates */
};

enum fp8q_activation { FP8Q_SILU, FP8Q_GELU_TANH };
enum fp8q_qk_norm { FP8Q_QK_NORM_NONE, FP8Q_QK_NORM_HEAD, FP8Q_QK_NORM_WHOLE };

/* Norms around the two halves of a layer: before and behind attention, before and behind the MLP. */
enum fp8q_norm { FP8Q_NORM_IN, FP8Q_NORM_OUT, FP8Q_NORM_MLP_IN, FP8Q_NORM_MLP_OUT, FP8Q_N_NORMS };

/* Latent attention: keys and values of all heads are products of one short vector, queries perhaps of
 * another.  A head's query and key are @plain elements that do not turn, then @turning ones that do;
 * of the key these are the same for all heads.  All zero where attention is the usual one.  */
struct fp8q_latent {
    uint32_t kv_rank, q_rank; /* lengths of the vectors; @q_rank 0: queries are not compressed */
    uint32_t plain, turning;
    float eps; /* of the norms of the two vectors */
};

/* How experts lie on disk: each in matrices of its own, or all of a layer in one tensor of three
 * dimensions, gate and up one below the other.  Rows are outputs, or in the last of the three inputs.  */
enum fp8q_stack { FP8Q_STACK_NONE, FP8Q_STACK_ROWS, FP8Q_STACK_COLUMNS };

/* A mixture of experts in place of the MLP; all zero where there is none.  */
struct fp8q_moe {
    uint32_t n_experts, n_active;
    uint64_t width;        /* intermediate size of an expert */
    uint64_t shared_width; /* of the expert that every token has; 0: none */
    const char *router;    /* names behind "layers.N." */
    const char *bias;      /* NULL, or what is added to the scores by which experts are chosen */
    const char *experts;   /* "mlp.experts" */
    enum fp8q_stack stack;
    const char *linears[3];  /* gate, up, down of one expert */
    const char *shared;      /* of the shared one, whose linears are called as those of an MLP */
    const char *shared_gate; /* NULL, or what says how much of it a token gets */

    bool sigmoid;    /* scores of experts are sigmoids of their logits, else the softmax of all */
    bool normalized; /* the weights of a token's experts add up to 1 ... */
    float least_sum; /* ... unless their sum is less than this */
    float scale;     /* factor of the weights */
    /* Experts are chosen from the best groups; a group is as good as its best experts, @group_by of
     * them, together.  0: no groups.  */
    unsigned group_by;
    uint32_t n_groups, n_best_groups;
};

struct fp8q_model {
    const struct fp8q_ckpt *ckpt;       /* borrowed */
    char architecture[32];              /* the language model's `model_type` */
    char prefix[64];                    /* "model.", "model.language_model.", ... */
    char head_name[96], embed_name[96]; /* tensors that give the logits, and that ids are rows of */
    const char *norms[FP8Q_N_NORMS];    /* names behind "layers.N."; NULL: none */

    uint32_t n_layers, n_heads, n_kv_heads;
    uint32_t head_dim, value_dim; /* of queries and keys; of values, mostly the same */
    struct fp8q_latent latent;
    uint64_t hidden, intermediate, vocab;
    float norm_eps;
    bool norm_plus_one; /* norms multiply by 1 + weight */
    bool tied;
    enum fp8q_activation activation;
    enum fp8q_qk_norm qk_norm;
    bool bias[FP8Q_N_LINEARS];
    bool fused_qkv, fused_gate_up;     /* on disk one weight, its parts one below the other */
    float embed_scale, residual_scale; /* factors, 1 for most */
    float logit_scale, attention_scale;
    float attention_cap, logit_cap; /* x -> cap tanh(x / cap); 0: none */

    struct fp8q_rope ropes[2]; /* the second is that of windowed layers, where they have another */
    uint8_t *rope_of;          /* per layer: index in @ropes, or FP8Q_NO_ROPE.  Owned  */
    uint64_t *window; /* per layer: keys that a query sees, itself included; 0: all before it.
                       * Owned  */
    struct fp8q_moe moe;
    bool *sparse; /* per layer: experts in place of the MLP.  Owned  */

    /* By slot (fp8q_linear_slot(), fp8q_expert_slot()), owned.  */
    size_t n_slots;
    uint8_t *scaling;    /* enum fp8q_scaling of the weight */
    uint8_t *served;     /* enum fp8q_acts: what config.json and tensors say of its input */
    float *static_scale; /* with FP8Q_ACTS_STATIC */
    enum fp8q_scaling head_scaling;
    enum fp8q_acts head_served;
    float head_static_scale;
    struct fp8q_targets *targets; /* of config groups; owned */
};
#define FP8Q_NO_ROPE 0xFF

/* Describes @ckpt and checks that every tensor is there with the right shape.  FP8Q_E_UNSUPPORTED:
 * no config.json, another architecture, or a variant that is not computed here.  FP8Q_E_FORMAT:
 * config.json and tensors disagree.  On failure *@model_out is zeroed; else fp8q_model_reset() it.
 */
int fp8q_model_open(const struct fp8q_ckpt *ckpt, struct fp8q_model *model_out,
                    struct fp8q_error *err);
void fp8q_model_reset(struct fp8q_model *model);

/* FP8Q_E_ARG "mismatch" unless the two can be compared token by token: the same architecture and
 * sizes.  What is quantized may differ, and what config.json says of the computation too: see
 * below.  */
int fp8q_model_same(const struct fp8q_model *a, const struct fp8q_model *b, struct fp8q_error *err);
/* Names, one after another with ", " between them, what the two config.json make differ in the
 * computation ("rotary embedding", "rms_norm_eps", ...); adds nothing where they agree.  */
void fp8q_model_differences(const struct fp8q_model *a, const struct fp8q_model *b,
                            struct fp8q_text *out);

struct fp8q_name {
    char text[160];
};
/* "model.layers.3.self_attn.q_proj" + @suffix (".weight", "", ...).  Fused parts share a name.  */
const char *fp8q_linear_name(const struct fp8q_model *model, uint32_t layer,
                             enum fp8q_linear linear, const char *suffix, struct fp8q_name *buf);
/* The same of expert @expert; @linear is one of gate, up and down.  */
const char *fp8q_expert_name(const struct fp8q_model *model, uint32_t layer, uint32_t expert,
                             enum fp8q_linear linear, const char *suffix, struct fp8q_name *buf);
/* The tensor that holds a linear of an expert, and the place in there.  */
struct fp8q_place {
    struct fp8q_name name;
    uint64_t matrix;            /* which one of a stack */
    uint64_t first_row, n_rows; /* outputs of the linear, as rows or columns of the matrix */
    bool transposed;            /* outputs are columns */
};
void fp8q_expert_place(const struct fp8q_model *model, uint32_t layer, uint32_t expert,
                       enum fp8q_linear linear, struct fp8q_place *place_out);
/* "model.layers.3." + @rest.  */
const char *fp8q_layer_name(const struct fp8q_model *model, uint32_t layer, const char *rest,
                            struct fp8q_name *buf);
/* Whether layer @layer has this linear, apart from those of experts.  */
bool fp8q_linear_exists(const struct fp8q_model *model, uint32_t layer, enum fp8q_linear linear);
/* [rows, columns] of a linear's weight, or of its part of a fused one.  */
void fp8q_linear_shape(const struct fp8q_model *model, enum fp8q_linear linear,
                       uint64_t shape_out[2]);
/* The same in a layer whose MLP may be the shared expert's.  */
void fp8q_layer_shape(const struct fp8q_model *model, uint32_t layer, enum fp8q_linear linear,
                      uint64_t shape_out[2]);
/* First row of a part in its fused weight; 0 for others.  */
uint64_t fp8q_linear_first_row(const struct fp8q_model *model, enum fp8q_linear linear);
/* Rows of the tensor that holds a linear: of all parts where it is fused.  */
uint64_t fp8q_linear_disk_rows(const struct fp8q_model *model, enum fp8q_linear linear);
/* True for a part of a fused weight that is not its first: its tensor was seen already.  */
bool fp8q_linear_is_rest(const struct fp8q_model *model, enum fp8q_linear linear);
enum fp8q_site_kind fp8q_linear_site(enum fp8q_linear linear);
enum fp8q_linear fp8q_site_first(enum fp8q_site_kind site);
uint64_t fp8q_site_width(const struct fp8q_model *model, enum fp8q_site_kind site);

/* Index of a linear in arrays by slot.  Those of all layers come first, then the experts'.  */
size_t fp8q_linear_slot(uint32_t layer, enum fp8q_linear linear);
size_t fp8q_expert_slot(const struct fp8q_model *model, uint32_t layer, uint32_t expert,
                        enum fp8q_linear linear);

/* What FP8Q_ACTS_SERVED means for this checkpoint, for a report: "per token and 128 channels", "per
 * token", "left as they are", ..., "mixed" where linears differ.  Static storage.  */
const char *fp8q_served_name(const struct fp8q_model *model);

/* Scales of an FP8 cache of keys and values, by layer, as the checkpoint has them (k_scale, v_scale);
 * 1 where it has none.  */
int fp8q_cache_scales_read(const struct fp8q_model *model, float (*scales_out)[2],
                           struct fp8q_error *err);

#endif
