/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h - the scale rules and the block grid.  No I/O, no threads, no intrinsics.
 */
#ifndef FP8Q_BLOCK_H
#define FP8Q_BLOCK_H

#include "base/error.h"
#include "kernel/kernel.h"

#define FP8Q_BLOCK 128 /* rows and columns of a block; engines accept no other */
#define FP8Q_E4M3_MAX 448.0f
#define FP8Q_MIN_SCALE                                                                             \
    0x1p-126f /* smallest normal F32: GPU kernels flush smaller scales to zero                     \
               */

/* Whether a dtype is one that kernels read as weights, and which.  */
bool fp8q_float_of(enum fp8q_dtype dtype, enum fp8q_float *float_out);

/* F32 value of amax bits as a kernel returns them; false if they are Inf or NaN.  */
bool fp8q_amax_value(enum fp8q_float from, uint32_t bits, float *amax_out);

/* How a matrix is cut for scales.  [rows, cols] in elements of one scale; 0 means the whole extent.
 * Block: {128, 128}; per channel: {1, 0}; per tensor: {0, 0}; MXFP8: {1, 32}.  */
struct fp8q_grid {
    uint32_t rows, cols;
};

/* Whether the largest value of a block, as FP8 and multiplied back by @scale, is no longer finite:
 * with a power-of-two scale values from 248 * 2^120 on round up to 2^128.  */
bool fp8q_scale_overflows(float amax, float scale);

/* Sizes of the scale matrix of an [n_rows, n_cols] weight (ceiling division).  */
void fp8q_grid_shape(struct fp8q_grid grid, uint64_t n_rows, uint64_t n_cols,
                     uint64_t shape_out[2]);

/* One stripe: all columns of up to 128 rows, packed row-major.  */
struct fp8q_stripe {
    const void *src; /* weights in format @from */
    enum fp8q_float from;
    uint32_t n_rows;
    uint64_t n_cols;
};

/* amax bits per column block of 128 over all rows of the stripe: ceil(n_cols/128) values.  */
void fp8q_stripe_amax(const struct fp8q_kernel *k, const struct fp8q_stripe *stripe,
                      uint32_t *amax_out);
/* Scales of @n blocks from their amax bits; false if one of them is Inf or NaN.  */
bool fp8q_block_scales(enum fp8q_float from, const uint32_t *amax, size_t n,
                       enum fp8q_scale_fmt fmt, float *scales_out);
/* codes for scales per column block of 128 (@scales: ceil(n_cols/128)).  */
void fp8q_stripe_encode(const struct fp8q_kernel *k, const struct fp8q_stripe *stripe,
                        const float *scales, uint8_t *codes_out);
/* Row and column (within the stripe) of the first NaN or Inf; false if all are finite.  */
bool fp8q_stripe_nonfinite(const struct fp8q_stripe *stripe, uint64_t *row_out, uint64_t *col_out);

#endif
