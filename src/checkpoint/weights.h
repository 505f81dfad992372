/* SPDX-License-Identifier: Apache-2.0
 *
 * weights.h - a weight matrix as F32, whatever it is stored as: BF16, F16, F32, or F8_E4M3 with
 * scales as this tool and others write them.
 *
 * The scales of X stand in `X_scale_inv` or `X_scale` (F32, BF16, F16 or F8_E8M0; X =
 * `NAME.weight`): one for each 128x128 block, one for each row ([N,1] or [N]), or one for all
 * (scalar, [1], [1,1]).  A stacked weight [E,N,K] is read as E*N rows, with the scales of E
 * matrices one after another.
 */
#ifndef FP8Q_WEIGHTS_H
#define FP8Q_WEIGHTS_H

#include "kernel/block.h"
#include "checkpoint/checkpoint.h"

enum fp8q_scaling {
    FP8Q_SCALING_NONE,  /* not F8 */
    FP8Q_SCALING_BLOCK, /* 128x128 */
    FP8Q_SCALING_ROW,   /* per output channel */
    FP8Q_SCALING_TENSOR
};

struct fp8q_weights {
    const struct fp8q_ckpt *ckpt;         /* borrowed */
    const struct fp8q_tensor *tensor;     /* borrowed */
    const struct fp8q_tensor *scale_from; /* NULL if @scaling is NONE */
    uint64_t n_rows, n_cols;
    uint64_t matrix_rows; /* n_rows, or N of a stacked [E,N,K] */
    enum fp8q_scaling scaling;
    enum fp8q_float from;          /* if @scaling is NONE */
    float *scales;                 /* as stored, widened; owned */
    uint64_t grid_rows, grid_cols; /* of one matrix's scales */
};

/* Opens tensor @name of 2 or 3 dimensions and reads its scales.  Fails with FP8Q_E_ARG if there is
 * no such tensor, FP8Q_E_UNSUPPORTED for another dtype or shape, FP8Q_E_FORMAT if scales are
 * missing, of a wrong shape, not finite or negative.  On failure *@weights_out is zeroed; else
 * fp8q_weights_reset() it.  */
int fp8q_weights_open(const struct fp8q_ckpt *ckpt, const char *name,
                      struct fp8q_weights *weights_out, struct fp8q_error *err);
void fp8q_weights_reset(struct fp8q_weights *weights);

/* Scale of the block that holds element [row, col].  */
float fp8q_weights_scale(const struct fp8q_weights *weights, uint64_t row, uint64_t col);

/* Codes as floats of format @to (code * scale rounded to F32, then once more where @to is another):
 * @n_rows x @n_cols of them, packed row-major, from element [row, col] of an F8 weight on.  */
void fp8q_weights_decode(const struct fp8q_weights *weights, const struct fp8q_kernel *kernel,
                         uint64_t row, uint64_t n_rows, uint64_t col, uint64_t n_cols,
                         const uint8_t *codes, enum fp8q_float to, void *out);

/* Reads rows @row .. @row + @n_rows - 1 as F32 (code * scale, rounded once), packed row-major. @raw
 * has room for @n_rows * n_cols * 4 bytes.  Values may be NaN or Inf where the file says so.  */
int fp8q_weights_read(const struct fp8q_weights *weights, const struct fp8q_kernel *kernel,
                      uint64_t row, uint64_t n_rows, void *raw, float *out, struct fp8q_error *err);

/* A whole small tensor of any float dtype as F32 (F8_E8M0 too): norms, biases, scales.  The caller
 * gives room for tensor->n_elems.  */
int fp8q_read_floats(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor,
                     const struct fp8q_kernel *kernel, float *out, struct fp8q_error *err);

/* F32 values rounded once more to BF16, F16 or F32 (nearest even).  F16 ends at 65504: beyond it is
 * FP8Q_E_UNSUPPORTED, never a silent infinity.  @name is the tensor's, for the message.  */
int fp8q_store_floats(const float *values, size_t n, enum fp8q_dtype to, char *out,
                      const char *name, struct fp8q_error *err);

#endif
