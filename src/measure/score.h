/* SPDX-License-Identifier: Apache-2.0
 *
 * score.h - from scores of tokens to figures: means, errors by sample, quantiles.
 */
#ifndef FP8Q_SCORE_H
#define FP8Q_SCORE_H

#include "model/head.h"

struct fp8q_eval_figures {
    uint64_t tokens, samples;            /* scored positions, and the samples that they are of */
    double kld, kld_se, kld_se_by_token; /* mean and its standard error with samples (tokens) as
                                            units; NaN if fewer than 2 */
    double kld_median, kld_p95, kld_p99, kld_p999, kld_max;
    double top1, top1_se; /* share of positions with the same first choice; error by sample */
    uint64_t flips;       /* first choice changed where the source's led by more than 1 nat */
    uint64_t nll_tokens;  /* scored positions with a target */
    double ppl_source, ppl_output, dlnppl, dlnppl_se; /* NaN without targets */
};

/* Scores of one comparison: arrays over all scored tokens, sample after sample.  */
struct fp8q_scores {
    const struct fp8q_token_score *source, *output;
    const uint32_t *sample; /* which sample a token is of */
    const bool *has_target;
    size_t n_tokens, n_samples;
    const uint8_t *part; /* NULL, or only the tokens of part @which count */
    uint8_t which;
};

/* Of no token all figures but the counts are NaN.  */
int fp8q_scores_figures(const struct fp8q_scores *scores, struct fp8q_eval_figures *figures_out,
                        struct fp8q_error *err);

/* Standard error of sum(x)/sum(n) with the pairs (x_i, n_i) as units (linearized); NaN for fewer
 * than two.  */
double fp8q_ratio_se(const double *x, const double *n, size_t count);

#endif
