/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_tasks.c - tier 2: is the quantized model not worse at a task by more than a margin.
 *
 * Non-inferiority: the upper bound of (base - quant) must lie within the margin.  Items are paired
 * by id; outcomes of 0 and 1 get exact bounds, all else a seeded bootstrap.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/gate.h"
#include "base/mem.h"
#include "gate/stats.h"

#define NONE ((double)NAN)

struct task_check {
    struct fp8q_gate *gate;
    const struct fp8q_policy *policy;
    const struct fp8q_gate_task *task;
    const struct fp8q_task_policy *own; /* NULL: nothing special */
    double tail;
    struct fp8q_error *err;
};

static int add(const struct task_check *c, struct fp8q_gate_check check, const char *suffix,
               const char *message)
{
    char id[200];
    snprintf(id, sizeof(id), "task.%.150s%s", c->task->name, suffix);
    return fp8q_gate_add(c->gate, check, c->err, id, "%s", message);
}

static int add_verdict(const struct task_check *c, enum fp8q_verdict verdict, const char *message)
{
    return add(c, fp8q_gate_check_of(2, verdict), "", message);
}

/* ---- margin -------------------------------------------------------------------------------- */

/* An own margin goes before an own recovery, both before those of all tasks; a recovery before a
 * margin there, since the margin has a default.  */
static double margin_for(const struct task_check *c, double base_mean)
{
    double margin = c->policy->margin, recovery = c->policy->recovery;
    if (c->own && !isnan(c->own->margin))
        return c->own->margin;
    if (c->own && !isnan(c->own->recovery))
        recovery = c->own->recovery;
    return isnan(recovery) ? margin : (1 - recovery) * fabs(base_mean);
}

static bool lower_is_better(const struct task_check *c)
{
    return c->own && c->own->lower_is_better;
}

/* @loss is (base - quant), turned over where lower scores are better.  @pairs: how many items only
 * the base and only the quantized model solved, so that the number needed can be told better; else
 * NULL.  */
static int add_loss(const struct task_check *c, struct fp8q_interval loss, double base,
                    double quant, uint64_t n, const uint64_t *pairs, const char *method)
{
    char message[500], needed[80] = "", split[100] = "";
    double margin = margin_for(c, base);
    if (isnan(margin))
        return add_verdict(c, FP8Q_VERDICT_MISSING, "the policy sets no margin for this task");
    struct fp8q_gate_check check =
        fp8q_gate_check_limit(2, loss.estimate, loss.low, loss.high, n, margin);
    check.method = method;
    if (check.verdict == FP8Q_VERDICT_PASS && n < c->policy->min_items) {
        check.verdict = FP8Q_VERDICT_INCONCLUSIVE;
        check.n_needed = c->policy->min_items;
    } else if (check.verdict == FP8Q_VERDICT_INCONCLUSIVE && pairs)
        check.n_needed = fp8q_pairs_needed(n, pairs[0], pairs[1], c->tail, margin);
    if (check.n_needed)
        snprintf(needed, sizeof(needed), "; about %llu would decide",
                 (unsigned long long)check.n_needed);
    if (pairs)
        snprintf(split, sizeof(split), ", %llu lost and %llu won (McNemar p %.2g)",
                 (unsigned long long)pairs[0], (unsigned long long)pairs[1],
                 fp8q_mcnemar(pairs[0], pairs[1]));
    snprintf(message, sizeof(message),
             "%s: base %.6g, quantized %.6g; loss %.4g [%.4g, %.4g], margin %.4g, %llu items%s%s",
             c->task->base->metric, base, quant, loss.estimate, loss.low, loss.high, margin,
             (unsigned long long)n, split, needed);
    return add(c, check, "", message);
}

/* ---- paired items -------------------------------------------------------------------------- */

/* NULL if both hold the same questions, else what differs.  */
static const char *pairing_error(const struct fp8q_task_result *a, const struct fp8q_task_result *b)
{
    if (a->n_items != b->n_items)
        return "base and quantized run have different numbers of items";
    for (size_t i = 0; i < a->n_items; i++) {
        if (strcmp(a->items[i].id, b->items[i].id) != 0)
            return "base and quantized run have different ids";
        if (a->items[i].hash && b->items[i].hash && a->items[i].hash != b->items[i].hash)
            return "an item of the same id is another question (prompt, document or target differ)";
    }
    return NULL;
}

static bool is_binary(const struct fp8q_task_result *result)
{
    for (size_t i = 0; i < result->n_items; i++)
        if (result->items[i].score != 0 && result->items[i].score != 1)
            return false;
    return !result->clustered;
}

static double mean_score(const struct fp8q_task_result *result)
{
    double sum = 0;
    for (size_t i = 0; i < result->n_items; i++)
        sum += result->items[i].score;
    return sum / (double)result->n_items;
}

static int check_binary(const struct task_check *c)
{
    const struct fp8q_task_item *b = c->task->base->items, *q = c->task->quant->items;
    uint64_t n = c->task->base->n_items, base_only = 0, quant_only = 0;
    for (uint64_t i = 0; i < n; i++) {
        base_only += b[i].score > q[i].score;
        quant_only += q[i].score > b[i].score;
    }
    const uint64_t pairs[2] = {lower_is_better(c) ? quant_only : base_only,
                               lower_is_better(c) ? base_only : quant_only};
    struct fp8q_interval loss = fp8q_paired_binary(n, pairs[0], pairs[1], c->tail);
    return add_loss(c, loss, mean_score(c->task->base), mean_score(c->task->quant), n, pairs,
                    "exact, paired (Berger-Boos)");
}

static int check_scores(const struct task_check *c)
{
    const struct fp8q_task_result *base = c->task->base, *quant = c->task->quant;
    size_t n = base->n_items, n_clusters;
    double *loss = fp8q_array(n, sizeof(*loss));
    uint64_t *clusters = fp8q_array(n, sizeof(*clusters));
    struct fp8q_interval interval = {0};
    int status = loss && clusters ? FP8Q_OK : fp8q_fail_nomem(c->err);
    for (size_t i = 0; i < n && status == FP8Q_OK; i++) {
        double d = base->items[i].score - quant->items[i].score;
        loss[i] = lower_is_better(c) ? -d : d;
        clusters[i] = base->items[i].cluster;
    }
    if (status == FP8Q_OK)
        status = fp8q_bootstrap_mean(loss, base->clustered ? clusters : NULL, n, c->policy->seed,
                                     (uint32_t)c->policy->resamples, c->tail, &interval,
                                     &n_clusters, c->err);
    free(loss);
    free(clusters);
    FP8Q_TRY(status);
    return add_loss(c, interval, mean_score(base), mean_score(quant), n, NULL,
                    base->clustered ? "bootstrap, paired, by cluster" : "bootstrap, paired");
}

/* ---- aggregates ---------------------------------------------------------------------------- */

/* mean * n where that is a whole number, as for accuracies.  */
static bool success_count(const struct fp8q_task_result *r, uint64_t *k_out)
{
    double k = r->mean * (double)r->n, whole = round(k);
    *k_out = (uint64_t)(whole > 0 ? whole : 0);
    return r->n > 0 && r->mean >= 0 && r->mean <= 1 && fabs(k - whole) < 1e-6 * (double)r->n;
}

static int check_aggregates(const struct task_check *c)
{
    const struct fp8q_task_result *b = c->task->base, *q = c->task->quant;
    uint64_t kb, kq, n = b->n < q->n ? b->n : q->n;
    struct fp8q_interval loss;
    const char *method = "normal, unpaired";
    if (success_count(b, &kb) && success_count(q, &kq)) {
        loss = lower_is_better(c) ? fp8q_unpaired_binary(kq, q->n, kb, b->n, c->tail)
                                  : fp8q_unpaired_binary(kb, b->n, kq, q->n, c->tail);
        method = "exact rates, unpaired (MOVER)";
    } else if (isnan(b->se) || isnan(q->se)) {
        return add_verdict(c, FP8Q_VERDICT_MISSING,
                           "only means without errors or counts; give the sample logs");
    } else {
        loss = lower_is_better(c) ? fp8q_unpaired_means(q->mean, q->se, b->mean, b->se, c->tail)
                                  : fp8q_unpaired_means(b->mean, b->se, q->mean, q->se, c->tail);
    }
    return add_loss(c, loss, b->mean, q->mean, n, NULL, method);
}

/* ---- log-probabilities --------------------------------------------------------------------- */

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

static int add_serving_limit(const struct task_check *c, const char *suffix, const char *what,
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
    return add(c, check, suffix, message);
}

static int judge_logprobs(const struct task_check *c, struct logprob_values *v)
{
    const struct fp8q_task_result *base = c->task->base, *quant = c->task->quant;
    size_t n = base->n_positions;
    char message[120];
    if (!collect_positions(base, quant, v))
        return add_verdict(c, FP8Q_VERDICT_FOREIGN, "the two runs are of different prompts");
    FP8Q_TRY(add_serving_limit(c, ".nll", "rise of the NLL", v->loss, v->prompt, n,
                               c->policy->delta_nll_max));
    FP8Q_TRY(add_serving_limit(c, ".kld", "KLD (top tokens, a lower bound)", v->kld, v->prompt, n,
                               c->policy->serving_kld_max));
    snprintf(message, sizeof(message), "the first choice is the same at %.2f %% of positions",
             100 * (double)v->same_choice / (double)n);
    return add(c, fp8q_gate_check_of(2, FP8Q_VERDICT_SKIPPED), ".top1", message);
}

static int check_logprobs(const struct task_check *c)
{
    size_t n = c->task->base->n_positions;
    if (c->task->base->n_items != c->task->quant->n_items || n != c->task->quant->n_positions)
        return add_verdict(c, FP8Q_VERDICT_FOREIGN, "the two runs are of different prompts");
    struct logprob_values v = {.loss = fp8q_array(n, sizeof(double)),
                               .kld = fp8q_array(n, sizeof(double)),
                               .prompt = fp8q_array(n, sizeof(uint64_t))};
    int status = v.loss && v.kld && v.prompt ? judge_logprobs(c, &v) : fp8q_fail_nomem(c->err);
    free(v.loss);
    free(v.kld);
    free(v.prompt);
    return status;
}

/* ---- tier 2 -------------------------------------------------------------------------------- */

static int check_task(const struct task_check *c)
{
    const struct fp8q_task_result *b = c->task->base, *q = c->task->quant;
    if (b->aggregate != q->aggregate || !b->position_starts != !q->position_starts)
        return add_verdict(c, FP8Q_VERDICT_FOREIGN,
                           "base and quantized run are in different formats");
    if (strcmp(b->metric, q->metric) != 0)
        return add_verdict(c, FP8Q_VERDICT_FOREIGN,
                           "base and quantized run have different metrics");
    if (b->version && q->version && b->version != q->version)
        return add_verdict(c, FP8Q_VERDICT_FOREIGN,
                           "base and quantized run are of different versions of the task");
    if (b->aggregate)
        return check_aggregates(c);
    if (b->position_starts)
        return check_logprobs(c);
    const char *unpaired = pairing_error(b, q);
    if (unpaired)
        return add_verdict(c, FP8Q_VERDICT_FOREIGN, unpaired);
    return is_binary(b) && is_binary(q) ? check_binary(c) : check_scores(c);
}

static bool was_given(const struct fp8q_gate_request *r, const char *name)
{
    for (size_t i = 0; i < r->n_tasks; i++)
        if (strcmp(r->tasks[i].name, name) == 0)
            return true;
    return false;
}

int fp8q_gate_tasks(struct fp8q_gate *gate, const struct fp8q_gate_request *request,
                    struct fp8q_error *err)
{
    const struct fp8q_policy *p = request->policy;
    for (size_t i = 0; i < request->n_tasks; i++) {
        const struct task_check check = {.gate = gate,
                                         .policy = p,
                                         .task = &request->tasks[i],
                                         .own = fp8q_policy_task(p, request->tasks[i].name),
                                         .tail = 1 - p->confidence,
                                         .err = err};
        FP8Q_TRY(check_task(&check));
    }
    for (size_t i = 0; i < p->n_required_tasks; i++) {
        char id[200];
        if (was_given(request, p->required_tasks[i]))
            continue;
        snprintf(id, sizeof(id), "task.%.150s", p->required_tasks[i]);
        FP8Q_TRY(fp8q_gate_add(gate, fp8q_gate_check_of(2, FP8Q_VERDICT_MISSING), err, id,
                               "the policy requires this task, no results were given (--task)"));
    }
    return FP8Q_OK;
}
