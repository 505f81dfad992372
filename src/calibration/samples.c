/* SPDX-License-Identifier: Apache-2.0
 *
 * samples.c - which tokens of the samples are held out, and whether the model finds them likely.
 */
#include "calibration/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/head.h"

#define NLL_TOKENS 512 /* tokens, spread over a group, whose likelihood is noted */
#define HELD_RUN 64    /* tokens: with few samples, every fourth such run is held out */

/* ---- which tokens are held out --------------------------------------------------------------- */

struct fp8q_holdout fp8q_holdout_of(const struct fp8q_inputs *inputs)
{
    size_t longest = 0;
    for (size_t i = 0; i < inputs->n_samples; i++)
        longest = fp8q_max_size(longest, inputs->samples[i].n_tokens);

    /* Short samples have shorter runs, so that the last quarter of the longest is held out.  */
    size_t run = longest > 3 * HELD_RUN ? HELD_RUN : fp8q_max_size(longest / 4, 1);
    return (struct fp8q_holdout){inputs->n_samples, run};
}

size_t fp8q_holdout_run(const struct fp8q_holdout *holdout, size_t sample, size_t n_tokens,
                        size_t t, bool *held_out)
{
    /* Whole samples where there are enough: neighbouring tokens are alike, so that runs of one text
     * would judge a fit by what it has nearly seen.  */
    if (holdout->n_samples >= 4) {
        *held_out = sample % 4 == 3;
        return n_tokens - t;
    }

    *held_out = t / holdout->run % 4 == 3;
    return fp8q_min_size((t / holdout->run + 1) * holdout->run, n_tokens) - t;
}

/* ---- are the inputs likely ------------------------------------------------------------------- */

/* Moves every @step-th position of @h that has a target to the front; how many there are.  */
static size_t pick_targets(const struct fp8q_group *g, size_t hidden, size_t step, float *h,
                           int64_t *targets)
{
    size_t n = 0, seen = 0;

    for (size_t i = 0; i < g->n_samples; i++)
        for (size_t t = 0; t < g->samples[i].n_tokens; t++) {
            int64_t target = fp8q_sample_target(&g->samples[i], t);
            if (target < 0 || !fp8q_sample_scored(&g->samples[i], t) || seen++ % step != 0)
                continue;

            /* Never backwards: row n stands at or before its token.  */
            memmove(h + n * hidden, h + (g->first[i] + t) * hidden, hidden * sizeof(*h));
            targets[n++] = target;
        }
    return n;
}

static int score_targets(struct fp8q_forward *fw, const struct fp8q_model *model, float *h,
                         const int64_t *targets, size_t n, struct fp8q_token_score *scores,
                         struct fp8q_error *err)
{
    const struct fp8q_branch branch = {.model = model};

    if (n == 0)
        return FP8Q_OK;
    FP8Q_TRY(fp8q_forward_norm(fw, &branch, n, h, err));
    return fp8q_head_score(fw, &(struct fp8q_head_job){&branch, 1, &h, targets, n, &scores}, err);
}

int fp8q_likelihood(struct fp8q_forward *fw, const struct fp8q_model *model,
                    const struct fp8q_group *g, float *h, double *nll_sum_out,
                    uint64_t *nll_tokens_out, struct fp8q_error *err)
{
    int64_t *targets = fp8q_array(g->n_tokens, sizeof(*targets));
    struct fp8q_token_score *scores = fp8q_array(g->n_tokens, sizeof(*scores));
    int status = targets && scores ? FP8Q_OK : fp8q_fail_nomem(err);
    size_t n = 0;

    *nll_sum_out = 0;
    if (status == FP8Q_OK) {
        /* Spread over the group: the first tokens of a text have the least context.  */
        size_t step = g->n_tokens / NLL_TOKENS + 1;
        n = pick_targets(g, (size_t)model->hidden, step, h, targets);
        status = score_targets(fw, model, h, targets, n, scores, err);
    }

    *nll_tokens_out = n;
    for (size_t t = 0; status == FP8Q_OK && t < n; t++)
        *nll_sum_out += scores[t].nll;
    free(targets);
    free(scores);
    return status;
}

bool fp8q_is_noise(double nll_sum, uint64_t nll_tokens, uint64_t vocab)
{
    return nll_tokens > 0 && vocab >= 1024 &&
           nll_sum / (double)nll_tokens >= 0.9 * log((double)vocab);
}
