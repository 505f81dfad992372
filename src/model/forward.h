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

#include "kernel/gemm.h"
#include "model/inputs.h"

/* What happens to the input of a quantized linear.  E4M3, amax/448, nearest even, saturating.  */
enum fp8q_acts {
    FP8Q_ACTS_NONE,
    FP8Q_ACTS_SERVED,     /* as engines do: by 128 channels for block scales, else by token */
    FP8Q_ACTS_BLOCK,      /* per token and 128 channels */
    FP8Q_ACTS_BLOCK_POW2, /* the same with the power of two not below amax/448 */
    FP8Q_ACTS_TOKEN       /* per token */
};

struct fp8q_branch {
    const struct fp8q_model *model;
    enum fp8q_acts acts;
    /* Linears that are F8 here get quantized activations; NULL: in @model.  */
    const struct fp8q_model *acts_like;
    /* Weights to round to 128x128 blocks of FP8 after reading, [layer * FP8Q_N_LINEARS + linear];
     * NULL: none.  They get quantized activations too.  */
    const bool *round;
    enum fp8q_scale_fmt round_fmt;
};

/* Samples that run together, one after another in every array of [n_tokens][...].  */
struct fp8q_group {
    const struct fp8q_sample *samples;
    size_t n_samples, n_tokens, max_sample;
    size_t *first;    /* token where each sample begins; owned */
    float *cos, *sin; /* [n_tokens][head_dim/2]; owned */
};

struct fp8q_forward;
/* Called with the input of each site, [n_tokens][width]; @x is borrowed.  */
typedef int fp8q_site_fn(void *ctx, struct fp8q_forward *fw, const struct fp8q_group *group,
                         uint32_t layer, enum fp8q_site_kind site, const float *x, size_t width,
                         struct fp8q_error *err);

struct fp8q_forward {
    unsigned n_threads;
    const struct fp8q_watch *watch; /* NULL, or who may stop it */
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    fp8q_site_fn *on_site; /* NULL: none */
    void *on_site_ctx;
    size_t max_tokens;
    /* buffers, owned */
    float *x, *q, *k, *v, *att, *gate, *up, *packed;
    float *workers;             /* one area a thread: see worker_floats */
    size_t worker_floats, wide; /* @wide: the widest input of a linear */
};

/* Buffers for groups of up to @max_tokens tokens (of samples of at most @max_sample) of @model.
 * On failure *@fw_out is zeroed; else fp8q_forward_close() it.  */
int fp8q_forward_open(struct fp8q_forward *fw_out, const struct fp8q_model *model,
                      unsigned n_threads, const char *kernel_name, size_t max_tokens,
                      size_t max_sample, struct fp8q_error *err);
void fp8q_forward_close(struct fp8q_forward *fw);

/* How many samples from @first on fit in one group of @max_tokens (at least one).  */
size_t fp8q_group_size(const struct fp8q_inputs *inputs, size_t first, size_t max_tokens);
int fp8q_group_open(struct fp8q_group *group_out, const struct fp8q_model *model,
                    const struct fp8q_sample *samples, size_t n_samples, struct fp8q_error *err);
void fp8q_group_close(struct fp8q_group *group);

/* Tokens for groups whose buffers, with @n_branches hidden states, stay near @bytes; and at least
 * the longest sample.  */
size_t fp8q_group_tokens(const struct fp8q_model *model, const struct fp8q_inputs *inputs,
                         unsigned n_branches, uint64_t bytes);

/* h [n_tokens][hidden]: embeddings of the group.  */
int fp8q_forward_embed(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                       const struct fp8q_group *group, float *h, struct fp8q_error *err);
/* One layer, in place.  */
int fp8q_forward_layer(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                       const struct fp8q_group *group, uint32_t layer, float *h,
                       struct fp8q_error *err);
/* Final norm, in place, of @n_tokens rows.  */
int fp8q_forward_norm(struct fp8q_forward *fw, const struct fp8q_branch *branch, size_t n_tokens,
                      float *h, struct fp8q_error *err);

/* One matrix product of the layer: out[t][j] = sum x[t][k] w[first_row + j][k] + bias[j].  */
struct fp8q_product {
    struct fp8q_weights weights;
    uint64_t first_row, n_rows; /* part of the weight's rows; @first_row is a multiple of 128 */
    float *out;
    size_t stride;       /* of @out */
    float *bias;         /* NULL or n_rows values; owned by whoever made it */
    enum fp8q_acts acts; /* never SERVED */
    bool round;
    enum fp8q_scale_fmt round_fmt;
};
/* All products of one input, each activation format packed once.  @packed: room for
 * fp8q_packed_a(n_tokens, width).  */
int fp8q_products_run(struct fp8q_forward *fw, const float *x, size_t n_tokens, size_t width,
                      struct fp8q_product *products, size_t n_products, struct fp8q_error *err);
/* The two halves of it, for inputs that stay packed while many parts of a weight pass.  */
int fp8q_products_pack(struct fp8q_forward *fw, const float *x, size_t n_tokens, size_t width,
                       enum fp8q_acts acts, float *packed, struct fp8q_error *err);
int fp8q_products_packed(struct fp8q_forward *fw, const float *packed, size_t n_tokens,
                         enum fp8q_acts acts, struct fp8q_product *products, size_t n_products,
                         struct fp8q_error *err);
/* Activation format of a linear in this branch (never SERVED); @head: of the output head.  */
enum fp8q_acts fp8q_branch_acts(const struct fp8q_branch *branch, uint32_t layer,
                                enum fp8q_linear linear);
enum fp8q_acts fp8q_branch_head_acts(const struct fp8q_branch *branch);

/* Quantizes one token's activations in place; @codes has room for @n bytes.  False if one is NaN or
 * Inf.  */
bool fp8q_quantize_acts(const struct fp8q_kernel *kernel, enum fp8q_acts acts, float *x, size_t n,
                        uint8_t *codes);

/* attention.c: q [T][heads*dim], k and v [T][kv*dim] after rotation -> att [T][heads*dim].  */
int fp8q_attention(struct fp8q_forward *fw, const struct fp8q_model *model,
                   const struct fp8q_group *group, uint64_t window, struct fp8q_error *err);
size_t fp8q_attention_floats(const struct fp8q_gemm *gemm, const struct fp8q_model *model,
                             size_t max_sample);

#endif
