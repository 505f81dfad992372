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
            continue;
        kld += exp(own->value) * (own->value - other->value);
        p_rest -= exp(own->value);
        q_rest -= exp(other->value);
    }
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
        if (base->position_starts[item + 1] != quant->position_starts[item + 1])
            return false;
        for (size_t i = base->position_starts[item]; i < base->position_starts[item + 1]; i++) {
            const struct fp8q_logprob_position *p = &base->positions[i], *q = &quant->positions[i];
            if (p->token != q->token)
                return false;
            v->loss[i] = p->value - q->value;
            v->kld[i] = position_kld(base, p, quant, q);
            v->prompt[i] = item;
            v->same_choice += first_choice(base, p) == first_choice(quant, q);
        }
    }
    return true;
}

static int add_serving_limit(const struct fp8q_task_check *c, const char *suffix, const char *what,
                             const double *values, const uint64_t *prompts, size_t n, double limit)
{
    struct fp8q_interval interval;
    char message[300];
    size_t n_clusters;
    FP8Q_TRY(fp8q_bootstrap_mean(values, prompts, n, c->policy->seed,
                                 (uint32_t)c->policy->resamples, c->tail, &interval, &n_clusters,
                                 c->err));
    struct fp8q_gate_check check =
        isnan(limit)
            ? fp8q_gate_check_of(2, FP8Q_VERDICT_SKIPPED)
            : fp8q_gate_check_limit(2, interval.estimate, interval.low, interval.high, n, limit);
    check.method = "bootstrap, by prompt";
    snprintf(message, sizeof(message), "%s %.5g [%.5g, %.5g] over %zu positions of %zu prompts%s",
             what, interval.estimate, interval.low, interval.high, n, n_clusters,
             isnan(limit) ? "; the policy sets no limit" : "");
    return fp8q_task_check_add(c, check, suffix, message);
}

static int judge_logprobs(const struct fp8q_task_check *c, struct logprob_values *v)
{
    const struct fp8q_task_result *base = c->task->base, *quant = c->task->quant;
    size_t n = base->n_positions;
    char message[120];
    if (!collect_positions(base, quant, v))
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_FOREIGN,
                                       "the two runs are of different prompts");
    FP8Q_TRY(add_serving_limit(c, ".nll", "rise of the NLL", v->loss, v->prompt, n,
                               c->policy->delta_nll_max));
    FP8Q_TRY(add_serving_limit(c, ".kld", "KLD (top tokens, a lower bound)", v->kld, v->prompt, n,
                               c->policy->serving_kld_max));
    snprintf(message, sizeof(message), "the first choice is the same at %.2f %% of positions",
             100 * (double)v->same_choice / (double)n);
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
