/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_logprobs.c - tier 2 from log-probabilities of two serving stacks: rise of the NLL, and the KL
 * divergence as far as the listed tokens show it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gate/internal.h"
#include "gate/stats.h"

static const struct fp8q_logprob *find_token(const struct fp8q_task_result *r,
                                             const struct fp8q_logprob_position *p, int64_t token)
{
    /* A position lists 4096 tokens at most, and usually few: no table is worth while.  */
    for (size_t i = 0; i < p->count; i++)
        if (r->top[p->first + i].token == token)
            return &r->top[p->first + i];
    return NULL;
}

/* KL divergence over the tokens that both sides list and one bucket for all the rest: merging
 * outcomes can only lower it, so this is a lower bound of the true one.  */
static double position_kld(const struct fp8q_task_result *base,
                           const struct fp8q_logprob_position *p,
                           const struct fp8q_task_result *quant,
                           const struct fp8q_logprob_position *q)
{
    double kld = 0, p_rest = 1, q_rest = 1;

    for (size_t i = 0; i < p->count; i++) {
        const struct fp8q_logprob *own = &base->top[p->first + i];
        const struct fp8q_logprob *other = find_token(quant, q, own->token);
        if (!other || find_token(base, p, own->token) != own)
            continue; /* not in both lists, or listed twice: into the bucket */

        kld += exp(own->value) * (own->value - other->value);
        p_rest -= exp(own->value);
        q_rest -= exp(other->value);
    }

    /* Both sums may pass 1 by rounding.  */
    if (p_rest > 1e-9 && q_rest > 1e-9)
        kld += p_rest * log(p_rest / q_rest);
    return kld > 0 ? kld : 0;
}

static int64_t first_choice(const struct fp8q_task_result *r, const struct fp8q_logprob_position *p)
{
    const struct fp8q_logprob *best = NULL;

    for (size_t i = 0; i < p->count; i++)
        if (!best || r->top[p->first + i].value > best->value)
            best = &r->top[p->first + i];
    return best ? best->token : -1;
}

struct logprob_values {
    double *loss, *kld; /* per position */
    uint64_t *prompt;
    size_t same_choice;
};

static bool collect_positions(const struct fp8q_task_result *base,
                              const struct fp8q_task_result *quant, struct logprob_values *v)
{
    for (size_t item = 0; item < base->n_items; item++) {
        /* All starts before were equal, so equal ends mean prompts of equal length.  */
        if (base->position_starts[item + 1] != quant->position_starts[item + 1])
            return false;

        for (size_t i = base->position_starts[item]; i < base->position_starts[item + 1]; i++) {
            const struct fp8q_logprob_position *p = &base->positions[i], *q = &quant->positions[i];
            if (p->token != q->token)
                return false;

            /* Log-probabilities: base minus quantized is the rise of the NLL, in nats.  */
            v->loss[i] = p->value - q->value;
            v->kld[i] = position_kld(base, p, quant, q);
            v->prompt[i] = item;
            v->same_choice += first_choice(base, p) == first_choice(quant, q);
        }
    }
    return true;
}

/* The largest that one more prompt could be expected to show, going by those seen.  */
static double prompt_range(const double *values, const uint64_t *prompts, size_t n)
{
    double range = 0;

    for (size_t i = 0, first; i < n;) {
        double sum = 0;
        for (first = i; i < n && prompts[i] == prompts[first]; i++)
            sum += values[i];
        range = fmax(range, fabs(sum) / (double)(i - first));
    }
    return range;
}

/* What is held against one limit.  */
struct serving_limit {
    const char *suffix, *what;
    const double *values; /* by position */
    double limit;         /* NAN: none */
};

static int add_serving_limit(const struct fp8q_task_check *c, const struct logprob_values *v,
                             const struct serving_limit *l)
{
    const struct fp8q_bootstrap how = {c->policy->seed, (uint32_t)c->policy->resamples, c->tail};
    size_t n = c->task->base->n_positions, n_prompts;
    const struct fp8q_clustered values = {l->values, v->prompt, n};
    struct fp8q_interval i;
    char message[300];

    FP8Q_TRY(fp8q_mean_bounds(&values, &how, prompt_range(l->values, v->prompt, n), &i, &n_prompts,
                              c->err));
    snprintf(message, sizeof(message), "%s %.5g [%.5g, %.5g] over %zu position%s of %zu prompt%s%s",
             l->what, i.estimate, i.low, i.high, n, fp8q_plural(n), n_prompts,
             fp8q_plural(n_prompts), isnan(l->limit) ? "; the policy sets no limit" : "");

    struct fp8q_gate_check check = fp8q_gate_check_of(2, FP8Q_VERDICT_SKIPPED);
    if (!isnan(l->limit))
        check = fp8q_gate_check_limit(2, i.estimate, i.low, i.high, n_prompts, l->limit);
    check.n = n;
    check.method = "bootstrap and t, by prompt";
    /* Prompts count and not positions, which are no independent draws within a prompt.  */
    if (check.verdict == FP8Q_VERDICT_PASS && n_prompts < c->policy->min_items) {
        check.verdict = FP8Q_VERDICT_INCONCLUSIVE;
        check.n_needed = c->policy->min_items;
    }
    return fp8q_task_check_add(c, check, l->suffix, message);
}

/* Other weights cannot give the same bits at every position.  */
static bool are_identical(const struct fp8q_task_result *a, const struct fp8q_task_result *b)
{
    for (size_t i = 0; i < a->n_positions; i++)
        if (a->positions[i].value < b->positions[i].value ||
            a->positions[i].value > b->positions[i].value)
            return false;
    return true;
}

static int judge_logprobs(const struct fp8q_task_check *c, struct logprob_values *v)
{
    const struct fp8q_task_result *base = c->task->base, *quant = c->task->quant;
    const struct fp8q_policy *p = c->policy;
    char message[120];

    if (!collect_positions(base, quant, v))
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_FOREIGN,
                                       "the two runs are of different prompts");
    if (are_identical(base, quant))
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_FOREIGN,
                                       "both runs have the same log-probabilities at every "
                                       "position: they are of the same weights");
    if (isnan(p->delta_nll_max) && isnan(p->serving_kld_max))
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_MISSING,
                                       "the policy sets no limit for log-probabilities (serving)");

    const struct serving_limit nll = {".nll", "rise of the NLL", v->loss, p->delta_nll_max};
    const struct serving_limit kld = {".kld", "KLD (top tokens, a lower bound)", v->kld,
                                      p->serving_kld_max};
    FP8Q_TRY(add_serving_limit(c, v, &nll));
    FP8Q_TRY(add_serving_limit(c, v, &kld));

    /* For people: no limit is set for it, so it decides nothing.  */
    snprintf(message, sizeof(message), "the first choice is the same at %.2f %% of positions",
             100 * (double)v->same_choice / (double)base->n_positions);
    return fp8q_task_check_add(c, fp8q_gate_check_of(2, FP8Q_VERDICT_SKIPPED), ".top1", message);
}

int fp8q_task_check_logprobs(const struct fp8q_task_check *c)
{
    size_t n = c->task->base->n_positions;
    if (c->task->base->n_items != c->task->quant->n_items || n != c->task->quant->n_positions)
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_FOREIGN,
                                       "the two runs are of different prompts");

    struct logprob_values v = {.loss = fp8q_array(n, sizeof(double)),
                               .kld = fp8q_array(n, sizeof(double)),
                               .prompt = fp8q_array(n, sizeof(uint64_t))};
    int status = v.loss && v.kld && v.prompt ? judge_logprobs(c, &v) : fp8q_fail_nomem(c->err);

    free(v.loss);
    free(v.kld);
    free(v.prompt);
    return status;
}
