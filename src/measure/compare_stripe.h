/* SPDX-License-Identifier: Apache-2.0
 *
 * compare_stripe.h - the errors of all rows of the table on one stripe; no I/O, no threads.
 */
#ifndef FP8Q_COMPARE_STRIPE_H
#define FP8Q_COMPARE_STRIPE_H

#include "kernel/block.h"

/* The rows of the table, in its order.  */
enum fp8q_compare_row {
    FP8Q_CMP_FP8_TENSOR,
    FP8Q_CMP_FP8_CHANNEL,
    FP8Q_CMP_FP8_BLOCK,
    FP8Q_CMP_FP8_UE8M0, /* block, power-of-two scales */
    FP8Q_CMP_MXFP8,     /* 32 columns of a row, power-of-two scales */
    FP8Q_CMP_INT8_TENSOR,
    FP8Q_CMP_INT8_CHANNEL,
    FP8Q_CMP_INT8_BLOCK,
    FP8Q_CMP_INT4_TENSOR,
    FP8Q_CMP_INT4_CHANNEL,
    FP8Q_CMP_INT4_BLOCK,
    FP8Q_CMP_ROWS
};

/* Scratch of one worker, grown to the widest stripe so far.  */
struct fp8q_compare_scratch {
    void *src;
    float *row;     /* one row in F32 */
    uint8_t *codes; /* one row */
    uint32_t *amax; /* per column block */
    uint64_t src_cap, cols_cap;
};
int fp8q_compare_scratch_fit(struct fp8q_compare_scratch *scratch, uint64_t n_rows, uint64_t n_cols,
                             unsigned elem_bytes, struct fp8q_error *err);
void fp8q_compare_scratch_reset(struct fp8q_compare_scratch *scratch);

struct fp8q_stripe_sums {
    double w2, d2[FP8Q_CMP_ROWS];
};
/* @tensor_amax is that of the whole tensor.  All values must be finite.  */
void fp8q_compare_stripe(const struct fp8q_kernel *kernel, const struct fp8q_stripe *stripe,
                         float tensor_amax, struct fp8q_compare_scratch *scratch,
                         struct fp8q_stripe_sums *sums_out);

#endif
