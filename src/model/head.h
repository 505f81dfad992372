/* SPDX-License-Identifier: Apache-2.0
 *
 * head.h - logits and what is computed from them, in one pass over the vocabulary.
 *
 * Logits of all tokens never exist at once: 2,048 words at a time go through running sums.  With z
 * and y the logits of two branches and Z, Y their log-sum-exps, KL = sum softmax(z) (z - y) - Z +
 * Y, so three sums a token are enough.
 */
#ifndef FP8Q_HEAD_H
#define FP8Q_HEAD_H

#include "model/forward.h"

struct fp8q_token_score {
    double nll;    /* of the target, in nats; 0 without one */
    double kld;    /* KL(reference || this branch), in nats; 0 for the reference */
    double margin; /* reference: logit of its first choice less that of the second */
    uint32_t top;  /* first choice */
};

/* Hidden states to score; everything is borrowed.  */
struct fp8q_head_job {
    const struct fp8q_branch *branches; /* the first is the reference */
    unsigned n_branches;
    float *const *h;        /* h[b] [n_tokens][hidden]: of branch b after the final norm */
    const int64_t *targets; /* token to predict, or -1 */
    size_t n_tokens;
    struct fp8q_token_score *const *scores_out; /* [b] has room for n_tokens */
};

/* FP8Q_E_FORMAT "not-finite" if a logit is NaN or infinite.  */
int fp8q_head_score(struct fp8q_forward *fw, const struct fp8q_head_job *job,
                    struct fp8q_error *err);

#endif
