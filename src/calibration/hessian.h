/* SPDX-License-Identifier: Apache-2.0
 *
 * hessian.h - the prepared Hessian of one linear input: what GPTQ (gptq.h) needs of the second
 * moments that a calibration file holds.
 */
#ifndef FP8Q_HESSIAN_H
#define FP8Q_HESSIAN_H

#include "calibration/calib.h"

/* One block of 128 channels.  Factors are [column][later column] in the block's order: row i of the
 * upper Cholesky factor of the inverse of the damped moments, divided by its diagonal.  */
struct fp8q_hessian_block {
    uint8_t order[FP8Q_BLOCK], order_fit[FP8Q_BLOCK]; /* channels by falling second moment */
    float factors[FP8Q_MOMENTS];                      /* from all tokens */
    float factors_fit[FP8Q_MOMENTS];                  /* from those that were not held out */
    float held[FP8Q_MOMENTS]; /* moments of those that were, in natural order */
};

/* Immutable once created, may be shared by threads.  */
struct fp8q_hessian {
    uint64_t n_cols;
    size_t n_blocks;
    struct fp8q_hessian_block *blocks;
};

/* Prepares the linear input that feeds tensor @tensor_name (fp8q_calib_site_of()).  *@hessian_out
 * is NULL (and the result FP8Q_OK) if the file has no second moments for it or is noise
 * (fp8q_calib_is_noise()): plain rounding.  FP8Q_E_EVIDENCE "calibration-shape" if it has them for
 * another width.  Memory: 3 x 64 KiB for each 128 columns.  Destroy it with the function below.  */
int fp8q_hessian_create(const struct fp8q_calib *calib, const char *tensor_name, uint64_t n_cols,
                        unsigned n_threads, struct fp8q_hessian **hessian_out,
                        struct fp8q_error *err);
void fp8q_hessian_destroy(struct fp8q_hessian *hessian); /* NULL: nothing */

#endif
