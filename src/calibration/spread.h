/* SPDX-License-Identifier: Apache-2.0
 *
 * spread.h - rounds the weights of one linear input by its full Hessian: the error of each column is
 * spread over all columns that follow (factor.h).
 *
 * Scales are those of plain rounding, so that the values are what any engine reads.  The guard of
 * gptq.h stays: plain values are kept unless those made without the held-out tokens have the
 * smaller output error on them, summed over all weights of the input; and what is written keeps the
 * bound that verify holds each block to.
 */
#ifndef FP8Q_SPREAD_H
#define FP8Q_SPREAD_H

#include "calibration/codes.h"
#include "calibration/factor.h"
#include "calibration/gptq.h"

struct fp8q_spread_job {
    struct fp8q_codes *codes;
    const struct fp8q_forward *fw; /* kernels, threads, watch */
    const struct fp8q_moments *moments;
    const size_t *sources; /* tensors that share the input */
    size_t n_sources;
    enum fp8q_scale_fmt fmt;
};

/* Puts values and scales of all tensors; *@spread_out is false if they were rounded plainly.
 * @sums_out: the output errors on held-out tokens.  */
int fp8q_spread(const struct fp8q_spread_job *job, struct fp8q_gptq_error *sums_out,
                bool *spread_out, struct fp8q_error *err);
/* The same without moments: plainly.  */
int fp8q_spread_none(const struct fp8q_spread_job *job, struct fp8q_error *err);

#endif
