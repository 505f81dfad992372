/* SPDX-License-Identifier: Apache-2.0
 *
 * samples.h - what everybody who calibrates asks of the samples: which tokens are held out, and
 * whether the model finds them likely.
 */
#ifndef FP8Q_CALIBRATION_SAMPLES_H
#define FP8Q_CALIBRATION_SAMPLES_H

#include "model/forward.h"

/* A quarter of the tokens: every fourth sample; of fewer than four samples, every fourth run of 64
 * tokens, or of a quarter of the longest where that is no more than 192.  */
struct fp8q_holdout {
    size_t n_samples, run;
};
struct fp8q_holdout fp8q_holdout_of(const struct fp8q_inputs *inputs);

/* Length of the run of tokens from @t on that have the same fate, and whether they are held out.  */
size_t fp8q_holdout_run(const struct fp8q_holdout *holdout, size_t sample, size_t n_tokens,
                        size_t t, bool *held_out);

/* Negative log-likelihood of about 512 of the group's targets, and how many (0: embeddings have
 * none).  @h is what the last layer left, and is consumed.  */
int fp8q_likelihood(struct fp8q_forward *fw, const struct fp8q_model *model,
                    const struct fp8q_group *group, float *h, double *nll_sum_out,
                    uint64_t *nll_tokens_out, struct fp8q_error *err);

/* No likelier than words drawn at random: 0.9 ln(vocabulary) nats or more a token.  Not asked of
 * vocabularies under 1,024 words, where chance is not far from what a byte-level model can do.  */
bool fp8q_is_noise(double nll_sum, uint64_t nll_tokens, uint64_t vocab);

#endif
