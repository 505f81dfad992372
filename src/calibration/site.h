/* SPDX-License-Identifier: Apache-2.0
 *
 * site.h - the prepared matrices behind compensate.h.
 */
#ifndef FP8Q_SITE_H
#define FP8Q_SITE_H

#include "calibration/compensate.h"

/* One block of 128 channels.  Factors are [column][later column] in the block's order: row i of the
 * upper Cholesky factor of the inverse of the damped moments, divided by its diagonal.  */
struct fp8q_site_block {
    uint8_t order[FP8Q_BLOCK], order_fit[FP8Q_BLOCK]; /* channels by falling second moment */
    float factors[FP8Q_MOMENTS];                      /* from all tokens */
    float factors_fit[FP8Q_MOMENTS];                  /* from those that were not held out */
    float held[FP8Q_MOMENTS]; /* moments of those that were, in natural order */
};

struct fp8q_site {
    uint64_t n_cols;
    size_t n_blocks;
    struct fp8q_site_block *blocks;
};

#endif
