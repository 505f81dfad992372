/* SPDX-License-Identifier: Apache-2.0
 *
 * score.h - from scores of tokens to figures: means, errors by sample, quantiles.
 */
#ifndef FP8Q_SCORE_H
#define FP8Q_SCORE_H

#include "measure/eval.h"

/* Scores of one comparison: arrays over all scored tokens, sample after sample.  */
struct fp8q_scores {
    const struct fp8q_token_score *source, *output;
    const uint32_t *sample; /* which sample a token is of */
    const bool *has_target;
    size_t n_tokens, n_samples;
};

int fp8q_scores_figures(const struct fp8q_scores *scores, struct fp8q_eval_figures *figures_out,
                        struct fp8q_error *err);

/* Standard error of sum(x)/sum(n) with the pairs (x_i, n_i) as units (linearized); NaN for fewer
 * than two.  */
double fp8q_ratio_se(const double *x, const double *n, size_t count);

#endif
