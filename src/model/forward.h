/* SPDX-License-Identifier: Apache-2.0
 *
 * forward.h - the forward pass of a decoder, one transformer layer at a time, in F32.
 *
 * Weights are read from disk where they are needed, 128 rows at a time, so memory depends on the
 * tokens in work and not on the model.  A branch is one way to run a network: whose weights,
 * rounded how, with which activations quantized.  Results do not depend on the number of threads or
 * the instruction set.
 */
#ifndef FP8Q_FORWARD_H
#define FP8Q_FORWARD_H

#include "base/watch.h"
#include "kernel/gemm.h"
#include "model/inputs.h"

/* Of the inputs of one linear with a static scale: how many there were, how many beyond the range
 * of the scale, and the largest of all in units of that range.  */
struct fp8q_clipping {
    uint64_t values, clipped;
    float largest;
};

/* Weights that stand in for those on disk: rounded, but not written yet.  */
struct fp8q_stand_in {
    const void *ctx;
    bool (*has)(const void *ctx, const struct fp8q_tensor *weight);
    /* As fp8q_weights_read(), of a weight that it has.  */
    int (*read)(const void *ctx, const struct fp8q_tensor *weight, uint64_t row, uint64_t n_rows,
                void *raw, float *out, struct fp8q_error *err);
};

struct fp8q_branch {
    const struct fp8q_model *model;       /* weights, and everything that its config.json says */
    const struct fp8q_stand_in *stand_in; /* NULL, or asked before @model's weights are */
    enum fp8q_acts acts;
    /* Linears that are F8 here get quantized activations; NULL: in @model.  */
    const struct fp8q_model *acts_like;
    /* Weights to round to 128x128 blocks of FP8 after reading, by slot; NULL: none.  They get
     * quantized activations too.  */
    const bool *round;
    enum fp8q_scale_fmt round_fmt;
    struct fp8q_clipping *clipping; /* NULL, or what is counted, by slot */
    /* NULL, or keys and values pass through a cache of FP8: their scales, by layer.  */
    const float (*cache_scales)[2];
};

/* Rotation of a group's tokens by one model's rotary embeddings: cos and sin of ropes[i],
 * [n_tokens][dim/2].  */
struct fp8q_rotary {
    const struct fp8q_model *model;
    float *cos[2], *sin[2];
};
#define FP8Q_MAX_MODELS 9

/* Samples that run together, one after another in every array of [n_tokens][...].  */
struct fp8q_group {
    const struct fp8q_sample *samples;
    size_t n_samples, n_tokens, max_sample;
    size_t *first;                              /* token where each sample begins; owned */
    struct fp8q_rotary rotary[FP8Q_MAX_MODELS]; /* by model; owned */
    unsigned n_models;
};

struct fp8q_forward;

/* What the linears of one site of one layer are given; borrowed.  */
struct fp8q_site_inputs {
    const struct fp8q_group *group;
    uint32_t layer;
    enum fp8q_site_kind site;
    const float *x; /* [n_tokens][width] */
    size_t width, n_tokens;
    const uint32_t *tokens; /* which of the group's they are, in rising order; NULL: all */
    uint32_t expert; /* FP8Q_NO_EXPERT: of the layer, or of the expert that all tokens have */
};
#define FP8Q_NO_EXPERT UINT32_MAX
/* Called with the inputs of each site.  */
typedef int fp8q_site_fn(void *ctx, struct fp8q_forward *fw, const struct fp8q_site_inputs *inputs,
                         struct fp8q_error *err);

/* Called with the keys behind the rotation and the values of a layer as attention reads them, @fw->k
 * and @fw->v.  */
typedef int fp8q_cache_fn(void *ctx, struct fp8q_forward *fw, const struct fp8q_group *group,
                          uint32_t layer, struct fp8q_error *err);

struct fp8q_forward {
    unsigned n_threads;
    const struct fp8q_watch *watch; /* NULL, or who may stop it */
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    fp8q_site_fn *on_site;   /* NULL: none */
    fp8q_cache_fn *on_cache; /* NULL: none */
    void *on_site_ctx;       /* of both */
    size_t max_tokens;
    /* buffers, owned */
    float *x, *q, *k, *v, *att, *gate, *up, *packed;
    /* latent attention: the compressed queries, the latent vectors with the keys' common part behind
     * each, the same by themselves, and what becomes of them */
    struct {
        float *q_a, *kv_a, *kv_c, *kv;
    } latent;
    float *routed;              /* mixtures: a token's rows for one expert, and what it gave */
    float *workers;             /* one area a thread: see worker_floats */
    size_t worker_floats, wide; /* @wide: the widest input of a linear */
};

/* Buffers for groups of up to @max_tokens tokens (of samples of at most @max_sample) of @model.
 * On failure *@fw_out is zeroed; else fp8q_forward_close() it.  */
int fp8q_forward_open(struct fp8q_forward *fw_out, const struct fp8q_model *model,
                      unsigned n_threads, const char *kernel_name, size_t max_tokens,
                      size_t max_sample, struct fp8q_error *err);
void fp8q_forward_close(struct fp8q_forward *fw);

/* Floats of a worker's memory that attention takes for samples of at most @max_sample tokens.  */
size_t fp8q_attention_floats(const struct fp8q_gemm *gemm, const struct fp8q_model *model,
                             size_t max_sample);

/* How many samples from @first on fit in one group of @max_tokens (at least one).  */
size_t fp8q_group_size(const struct fp8q_inputs *inputs, size_t first, size_t max_tokens);
/* A group for runs of @model; more models of the same sizes are added by the second.  On failure
 * of the first *@group_out is zeroed; else fp8q_group_close() it.  */
int fp8q_group_open(struct fp8q_group *group_out, const struct fp8q_model *model,
                    const struct fp8q_sample *samples, size_t n_samples, struct fp8q_error *err);
int fp8q_group_add(struct fp8q_group *group, const struct fp8q_model *model,
                   struct fp8q_error *err);
void fp8q_group_close(struct fp8q_group *group);

/* Tokens for groups whose buffers, with @n_branches hidden states, stay near @bytes; and at least
 * the longest sample.  */
size_t fp8q_group_tokens(const struct fp8q_model *model, const struct fp8q_inputs *inputs,
                         unsigned n_branches, uint64_t bytes);

/* h [n_tokens][hidden]: embeddings of the group.  */
int fp8q_forward_embed(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                       const struct fp8q_group *group, float *h, struct fp8q_error *err);
/* One layer, in place.  The branch's model must be one of the group's.  */
int fp8q_forward_layer(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                       const struct fp8q_group *group, uint32_t layer, float *h,
                       struct fp8q_error *err);
/* A part of a layer, for who must see all samples at a site before any goes on.  */
struct fp8q_part {
    uint32_t layer;
    enum fp8q_site_kind from;  /* FP8Q_SITE_QKV, or FP8Q_SITE_GATE_UP: the MLP alone */
    enum fp8q_site_kind until; /* only its inputs are made; FP8Q_N_SITES: to the end */
};
/* @h is what attention left where the part goes beyond it, and else stays.  */
int fp8q_forward_part(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                      const struct fp8q_group *group, const struct fp8q_part *part, float *h,
                      struct fp8q_error *err);
/* Final norm, in place, of @n_tokens rows.  */
int fp8q_forward_norm(struct fp8q_forward *fw, const struct fp8q_branch *branch, size_t n_tokens,
                      float *h, struct fp8q_error *err);

/* How the input of one product is quantized.  */
struct fp8q_act_format {
    enum fp8q_acts acts; /* never SERVED */
    float scale;         /* with FP8Q_ACTS_STATIC */
    size_t step; /* columns of a segment of a product of FP8 values; 0: the product is of F32 */
};
/* That of the linear of @slot in this branch; and of the output head.  */
struct fp8q_act_format fp8q_branch_acts(const struct fp8q_branch *branch, size_t slot);
struct fp8q_act_format fp8q_branch_head_acts(const struct fp8q_branch *branch);

/* One matrix product of the layer: out[t][j] = sum x[t][k] w[first_row + j][k] + bias[j], with w one
 * matrix of the weight, or w[k][first_row + j].  */
struct fp8q_product {
    struct fp8q_weights weights;
    const struct fp8q_stand_in *stand_in; /* NULL, or what has this weight */
    uint64_t matrix;                      /* which one of a stack */
    uint64_t first_row, n_rows; /* part of its rows, or of its columns where it is @transposed */
    bool transposed;
    float *out;
    size_t stride; /* of @out */
    float *bias;   /* NULL or n_rows values; owned by whoever made it */
    struct fp8q_act_format format;
    bool round;
    enum fp8q_scale_fmt round_fmt;
    struct fp8q_clipping *clipping; /* NULL, or where its static inputs are counted */
};
/* Settles how it is computed, once its weight, format and rounding are there.  fp8q_products_run() does.  */
void fp8q_product_prepare(struct fp8q_product *product);

/* All products of one input of @n_tokens rows, each activation format packed once.  */
int fp8q_products_run(struct fp8q_forward *fw, const float *x, size_t n_tokens,
                      struct fp8q_product *products, size_t n_products, struct fp8q_error *err);

/* The two halves of it, for inputs that stay packed while many parts of a weight pass.  */
struct fp8q_packed {
    float *packed; /* fp8q_packed_floats(n_tokens, width) of them, borrowed */
    size_t n_tokens;
    struct fp8q_act_format format;
};
size_t fp8q_packed_floats(const struct fp8q_gemm *gemm, size_t n_tokens, size_t width);
/* Fills @to's floats from @x, rows of @width.  Adds to @clipping, if it is given and the format is static.  */
int fp8q_products_pack(struct fp8q_forward *fw, const float *x, size_t width,
                       const struct fp8q_packed *to, struct fp8q_clipping *clipping,
                       struct fp8q_error *err);
/* Those of @products that want @packed's format.  */
int fp8q_products_packed(struct fp8q_forward *fw, const struct fp8q_packed *packed,
                         struct fp8q_product *products, size_t n_products, struct fp8q_error *err);

#endif
