/* SPDX-License-Identifier: Apache-2.0
 *
 * scales.h - which tensor scales an FP8 weight, and how.
 *
 * | companion of X.weight         | written by                                              |
 * |-------------------------------|---------------------------------------------------------|
 * | X.weight_scale_inv            | DeepSeek-V3 and whoever follows it, transformers, fp8q  |
 * | X.weight_scale                | compressed-tensors, ModelOpt, fp8q                      |
 * | X.scale                       | DeepSeek-V4                                             |
 * | X.qscale_weight               | Mistral                                                 |
 * | X.scale_weight                | ComfyUI                                                 |
 *
 * A weight without ".weight" (stacked experts) has NAME_scale_inv or NAME_scale.  A table that lies
 * in parts, X.shard_N.weight, may have one X.weight_scale for all.  Scales are F32, BF16, F16,
 * F8_E8M0, or U8, which holds E8M0.
 */
#ifndef FP8Q_CHECKPOINT_SCALES_H
#define FP8Q_CHECKPOINT_SCALES_H

#include "checkpoint/checkpoint.h"

/* F8_E4M3, F8_E5M2 and their FNUZ kin: an element a byte, with scales beside it.  */
bool fp8q_is_fp8(enum fp8q_dtype dtype);

/* The FP8 weight that tensor @name scales (or whose inputs it scales), or NULL.  */
const struct fp8q_tensor *fp8q_scaled_weight(const struct fp8q_ckpt *ckpt, const char *name);

/* The tensor that scales @weight.  FP8Q_E_FORMAT "scale-missing" or "scale-twice".  */
int fp8q_find_scales(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *weight,
                     const struct fp8q_tensor **scales_out, struct fp8q_error *err);

enum fp8q_scaling {
    FP8Q_SCALING_NONE,  /* not FP8 */
    FP8Q_SCALING_BLOCK, /* of some rows and columns */
    FP8Q_SCALING_ROW,   /* per row (per channel) */
    FP8Q_SCALING_TENSOR,
    FP8Q_SCALING_GROUP /* MXFP8: of 32 columns of a row, a power of two */
};

/* How the scales of a weight lie on it.  A stacked weight [E, N, K] is E matrices one below the
 * other.  */
struct fp8q_scale_layout {
    enum fp8q_scaling scaling;
    uint64_t matrix_rows, n_cols;    /* of one matrix */
    uint64_t grid_rows, grid_cols;   /* scales of one matrix */
    uint64_t block_rows, block_cols; /* elements of one scale */
    uint64_t matrix_scales;          /* from one matrix's scales to the next; 0: they share */
};

/* Finds the layout from the shapes, and from config.json's weight_block_size where it says one.
 * FP8Q_E_FORMAT "scale-shape" if the shapes make no sense together.  */
int fp8q_find_layout(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *weight,
                     const struct fp8q_tensor *scales, struct fp8q_scale_layout *layout_out,
                     struct fp8q_error *err);

/* "block FP8 (one scale for 128x128)", for people; @cap of 64 is enough.  */
const char *fp8q_scaling_text(const struct fp8q_scale_layout *layout, enum fp8q_dtype weight,
                              char *buf, size_t cap);

#endif
