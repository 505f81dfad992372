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

#include "base/mem.h"
#include "gate/internal.h"
#include "gate/stats.h"

int fp8q_task_check_add(const struct fp8q_task_check *c, struct fp8q_gate_check check,
                        const char *suffix, const char *message)
{
    char id[200];
    snprintf(id, sizeof(id), "task.%.150s%s", c->task->name, suffix);
    return fp8q_gate_add(c->gate, check, c->err, id, "%s", message);
}

int fp8q_task_check_verdict(const struct fp8q_task_check *c, enum fp8q_verdict verdict,
                            const char *message)
{
    return fp8q_task_check_add(c, fp8q_gate_check_of(2, verdict), "", message);
}

/* ---- margin -------------------------------------------------------------------------------- */

/* An own margin goes before an own recovery, both before those of all tasks; a recovery before a
 * margin there, since the margin has a default.  */
static double margin_for(const struct fp8q_task_check *c, double base_mean)
{
    double margin = c->policy->margin, recovery = c->policy->recovery;
    if (c->own && !isnan(c->own->margin))
        return c->own->margin;
    if (c->own && !isnan(c->own->recovery))
        recovery = c->own->recovery;
    return isnan(recovery) ? margin : (1 - recovery) * fabs(base_mean);
}

static bool lower_is_better(const struct fp8q_task_check *c)
{
    return c->own && c->own->lower_is_better;
}

/* @loss is (base - quant), turned over where lower scores are better.  @pairs: how many items only
 * the base and only the quantized model solved, so that the number needed can be told better; else
 * NULL.  */
static int add_loss(const struct fp8q_task_check *c, struct fp8q_interval loss, double base,
                    double quant, uint64_t n, const uint64_t *pairs, const char *method)
{
    char message[500], needed[80] = "", split[100] = "";
    double margin = margin_for(c, base);
    if (isnan(margin))
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_MISSING,
                                       "the policy sets no margin for this task");
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
    return fp8q_task_check_add(c, check, "", message);
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

static int check_binary(const struct fp8q_task_check *c)
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

static int check_scores(const struct fp8q_task_check *c)
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

static int check_aggregates(const struct fp8q_task_check *c)
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
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_MISSING,
                                       "only means without errors or counts; give the sample logs");
    } else {
        loss = lower_is_better(c) ? fp8q_unpaired_means(q->mean, q->se, b->mean, b->se, c->tail)
                                  : fp8q_unpaired_means(b->mean, b->se, q->mean, q->se, c->tail);
    }
    return add_loss(c, loss, b->mean, q->mean, n, NULL, method);
}

/* ---- tier 2 -------------------------------------------------------------------------------- */

static int check_task(const struct fp8q_task_check *c)
{
    const struct fp8q_task_result *b = c->task->base, *q = c->task->quant;
    if (b->aggregate != q->aggregate || !b->position_starts != !q->position_starts)
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_FOREIGN,
                                       "base and quantized run are in different formats");
    if (strcmp(b->metric, q->metric) != 0)
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_FOREIGN,
                                       "base and quantized run have different metrics");
    if (b->version && q->version && b->version != q->version)
        return fp8q_task_check_verdict(
            c, FP8Q_VERDICT_FOREIGN,
            "base and quantized run are of different versions of the task");
    if (b->aggregate)
        return check_aggregates(c);
    if (b->position_starts)
        return fp8q_task_check_logprobs(c);
    const char *unpaired = pairing_error(b, q);
    if (unpaired)
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_FOREIGN, unpaired);
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
        const struct fp8q_task_check check = {.gate = gate,
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
