/* SPDX-License-Identifier: Apache-2.0
 *
 * factor.h - the triangular factor of a Hessian, by which errors of columns are made up for.
 *
 * Channels are put in order by rising second moment, and H = L L^T with L lower triangular.  The
 * output error of a row of weights with errors d is then |d L|^2, whose j-th term holds d_j and the
 * errors of the positions behind it: going from the last position to the first, each weight is
 * rounded from
 *
 *     w_j + sum over i > j of d_i L_ij / L_jj
 *
 * which is GPTQ (the error of a column spread over all that follow) without the inverse of H.
 */
#ifndef FP8Q_FACTOR_H
#define FP8Q_FACTOR_H

#include "calibration/moments.h"

struct fp8q_factor {
    size_t n;
    uint32_t *order; /* position -> channel */
    float *l;        /* [n][n]: below the diagonal L_ij / L_jj, on it L_jj; above it anything */
    bool usable;     /* false: no moments, so that nothing is made up for */
};

/* Room for @n channels: 4 bytes x n^2.  On failure *@factor_out is zeroed; else reset it.  */
int fp8q_factor_open(size_t n, struct fp8q_factor *factor_out, struct fp8q_error *err);
void fp8q_factor_reset(struct fp8q_factor *factor);

/* From the moments of the tokens to fit, or of @all.  */
int fp8q_factor_make(struct fp8q_factor *factor, const struct fp8q_moments *moments, bool all,
                     const struct fp8q_forward *fw, struct fp8q_error *err);

#endif
