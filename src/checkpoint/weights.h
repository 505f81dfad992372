/* SPDX-License-Identifier: Apache-2.0
 *
 * weights.h - a weight matrix as F32, whatever it is stored as: BF16, F16, F32, or FP8 with scales
 * as this tool and others write them (scales.h).
 */
#ifndef FP8Q_WEIGHTS_H
#define FP8Q_WEIGHTS_H

#include "checkpoint/scales.h"
#include "kernel/block.h"

struct fp8q_weights {
    const struct fp8q_ckpt *ckpt;         /* borrowed */
    const struct fp8q_tensor *tensor;     /* borrowed */
    const struct fp8q_tensor *scale_from; /* NULL if not FP8 */
    uint64_t n_rows, n_cols;
    uint64_t matrix_rows; /* n_rows, or N of a stacked [E,N,K] */
    enum fp8q_scaling scaling;
    struct fp8q_scale_layout layout; /* if @scaling is not NONE */
    enum fp8q_float from;            /* if @scaling is NONE */
    float *scales;                   /* as stored, widened; owned */
    float values[256];               /* of the FP8 codes */
    float largest_scale;
    bool has_zero_scale;
};

/* Opens tensor @name of 2 or 3 dimensions and reads its scales.  Fails with FP8Q_E_ARG if there is
 * no such tensor, FP8Q_E_UNSUPPORTED for another dtype or shape, FP8Q_E_FORMAT if scales are
 * missing, there twice, of a wrong shape, not finite or negative.  On failure *@weights_out is
 * zeroed; else fp8q_weights_reset() it.  */
int fp8q_weights_open(const struct fp8q_ckpt *ckpt, const char *name,
                      struct fp8q_weights *weights_out, struct fp8q_error *err);
void fp8q_weights_reset(struct fp8q_weights *weights);

/* Scale of the element [row, col].  */
float fp8q_weights_scale(const struct fp8q_weights *weights, uint64_t row, uint64_t col);
/* The scales of a row from its first column on, of weights that have scales: one for each
 * layout.block_cols columns.  */
const float *fp8q_weights_row_scales(const struct fp8q_weights *weights, uint64_t row);
/* Columns from @col on that share its scale, itself counted.  */
uint64_t fp8q_weights_run(const struct fp8q_weights *weights, uint64_t col);

/* A rectangle of a weight's elements, packed row-major.  */
struct fp8q_tile {
    uint64_t row, n_rows, col, n_cols;
};

/* The FP8 values of a tile as floats of format @to: value * scale rounded to F32, then once more
 * where @to is another.  FP8Q_E_FORMAT "scale-zero" if a scale of zero stands over a value that is
 * none, and FP8Q_E_UNSUPPORTED "value-overflow" if a finite value leaves @to (F16 excepted, which
 * gives infinity: fp8q_store_floats() looks at it).  */
int fp8q_weights_decode(const struct fp8q_weights *weights, const struct fp8q_kernel *kernel,
                        const struct fp8q_tile *tile, const uint8_t *codes, enum fp8q_float to,
                        void *out, struct fp8q_error *err);

/* The FP8 values of @n_rows rows from @row on, as stored.  A scale of zero over other values is an
 * error, as in fp8q_weights_decode().  */
int fp8q_weights_read_codes(const struct fp8q_weights *weights, uint64_t row, uint64_t n_rows,
                            uint8_t *codes_out, struct fp8q_error *err);

/* Reads rows @row .. @row + @n_rows - 1 as F32 (value * scale, rounded once), packed row-major.
 * @raw has room for @n_rows * n_cols * 4 bytes.  Values may be NaN or Inf where the file says so.
 */
int fp8q_weights_read(const struct fp8q_weights *weights, const struct fp8q_kernel *kernel,
                      uint64_t row, uint64_t n_rows, void *raw, float *out, struct fp8q_error *err);

/* The same of a rectangle, row by row from disk; @raw has room for its elements of 4 bytes.  */
int fp8q_weights_read_tile(const struct fp8q_weights *weights, const struct fp8q_kernel *kernel,
                           const struct fp8q_tile *tile, void *raw, float *out,
                           struct fp8q_error *err);

/* A whole small tensor of any float dtype as F32 (F8_E8M0 too): norms, biases, scales.  The caller
 * gives room for tensor->n_elems.  */
int fp8q_read_floats(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor,
                     const struct fp8q_kernel *kernel, float *out, struct fp8q_error *err);

/* F32 values rounded once more to BF16, F16 or F32 (nearest even).  A finite value that does not
 * fit is FP8Q_E_UNSUPPORTED, never a silent infinity.  @name is the tensor's, for the message.  */
int fp8q_store_floats(const float *values, size_t n, enum fp8q_dtype to, char *out,
                      const char *name, struct fp8q_error *err);

#endif
