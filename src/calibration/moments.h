/* SPDX-License-Identifier: Apache-2.0
 *
 * moments.h - second moments of the input of one linear, in full: the Hessian that sequential GPTQ
 * rounds by.
 *
 * Sums of u u^T over tokens, u = the token's vector scaled to length 1, so that no loud token drowns
 * the others.  Each run of tokens is one product in F32 whose sums go over rising tokens, and runs
 * are added in their order: the bits depend neither on threads, nor on the instruction set, nor on
 * how samples are grouped.
 */
#ifndef FP8Q_MOMENTS_H
#define FP8Q_MOMENTS_H

#include "model/forward.h"

enum fp8q_share { FP8Q_FIT, FP8Q_HELD, FP8Q_N_SHARES };

struct fp8q_moments {
    size_t width;
    float *sums[FP8Q_N_SHARES]; /* [width][width]; symmetric once they are closed */
    uint64_t n_tokens[FP8Q_N_SHARES];
};

/* Tokens that are of one sample and have the same fate.  */
struct fp8q_token_run {
    size_t first, n;
    enum fp8q_share share;
};

/* Takes 8 bytes x width^2.  On failure *@moments_out is zeroed; else fp8q_moments_reset() it.  */
int fp8q_moments_open(size_t width, struct fp8q_moments *moments_out, struct fp8q_error *err);
void fp8q_moments_reset(struct fp8q_moments *moments);

/* Adds the rows of @x that @runs name, which lie one after another.  FP8Q_E_FORMAT "not-finite".  */
int fp8q_moments_add(struct fp8q_moments *moments, const struct fp8q_forward *fw, const float *x,
                     const struct fp8q_token_run *runs, size_t n_runs, struct fp8q_error *err);
/* After the last: fills in the half that was left out.  */
int fp8q_moments_mirror(struct fp8q_moments *moments, const struct fp8q_forward *fw,
                        struct fp8q_error *err);

#endif
