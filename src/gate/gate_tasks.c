/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_tasks.c - tier 2: is the quantized model not worse at a task by more than a margin.
 *
 * Non-inferiority: the upper bound of (base - quant) must lie within the margin.  Items are paired
 * by id; outcomes of 0 and 1 get exact bounds, all else a bootstrap and a t interval over clusters,
 * of which the wider counts.  What cannot show a loss (a base model that solves nothing, a single
 * cluster, the same file on both sides) cannot pass.
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
    char id[280];
    bool named = c->task->names_metric;

    /* Lengths are bounded so that suffixes, which tell checks apart, always fit.  */
    snprintf(id, sizeof(id), "task.%.150s%s%.64s%s", c->task->name, named ? "." : "",
             named ? c->task->base->metric : "", suffix);
    return fp8q_gate_add(c->gate, check, c->err, id, "%s", message);
}

int fp8q_task_check_verdict(const struct fp8q_task_check *c, enum fp8q_verdict verdict,
                            const char *message)
{
    return fp8q_task_check_add(c, fp8q_gate_check_of(2, verdict), "", message);
}

/* ---- direction ----------------------------------------------------------------------------- */

/* What the results say, or the name of their metric; UNKNOWN where the two sides differ too.  */
static enum fp8q_direction stated_direction(const struct fp8q_task_check *c)
{
    enum fp8q_direction b = c->task->base->direction, q = c->task->quant->direction;
    return b == FP8Q_DIRECTION_UNKNOWN ? q : b;
}

static bool contradict(enum fp8q_direction a, enum fp8q_direction b)
{
    return a != FP8Q_DIRECTION_UNKNOWN && b != FP8Q_DIRECTION_UNKNOWN && a != b;
}

/* *@lower_out: less of the metric is better.  NULL, or what is wrong and which @verdict it has.  */
static const char *find_direction(const struct fp8q_task_check *c, bool *lower_out,
                                  enum fp8q_verdict *verdict)
{
    enum fp8q_direction said = stated_direction(c);
    enum fp8q_direction own = c->own ? c->own->direction : FP8Q_DIRECTION_UNKNOWN;

    *verdict = FP8Q_VERDICT_FOREIGN;
    if (contradict(c->task->base->direction, c->task->quant->direction))
        return "in one run more of the metric is better, in the other less";
    if (contradict(own, said))
        return "the policy has the metric's direction the other way round than the results "
               "(tasks.per_task: lower_is_better)";

    /* A column "score" is one of which more is better, unless the policy says otherwise.  */
    if (own == FP8Q_DIRECTION_UNKNOWN)
        own = said;
    if (own == FP8Q_DIRECTION_UNKNOWN && strcmp(c->task->base->metric, "score") == 0)
        own = FP8Q_DIRECTION_HIGHER;

    *verdict = FP8Q_VERDICT_MISSING;
    *lower_out = own == FP8Q_DIRECTION_LOWER;
    return own != FP8Q_DIRECTION_UNKNOWN
               ? NULL
               : "whether more or less of this metric is better is not known: say so in the policy "
                 "(tasks.per_task: lower_is_better)";
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

/* What a comparison found.  */
struct loss {
    struct fp8q_interval interval; /* of base - quant, turned over where less is better */
    double base, quant;            /* means */
    uint64_t n;                    /* items */
    uint64_t units;                /* independent ones: clusters */
    const uint64_t *pairs; /* that only the base and only the quantized model solved; NULL: n/a */
    const char *method;
};

static void describe_loss(const struct fp8q_task_check *c, const struct loss *l, double margin,
                          uint64_t n_needed, char *message, size_t size)
{
    char needed[80] = "", split[100] = "", clusters[60] = "";

    if (n_needed)
        snprintf(needed, sizeof(needed), "; about %llu would decide", (unsigned long long)n_needed);
    if (l->units < l->n)
        snprintf(clusters, sizeof(clusters), " in %llu cluster%s", (unsigned long long)l->units,
                 fp8q_plural(l->units));
    if (l->pairs)
        snprintf(split, sizeof(split), ", %llu lost and %llu won (McNemar p %.2g)",
                 (unsigned long long)l->pairs[0], (unsigned long long)l->pairs[1],
                 fp8q_mcnemar(l->pairs[0], l->pairs[1]));

    snprintf(
        message, size,
        "%s: base %.6g, quantized %.6g; loss %.4g [%.4g, %.4g], margin %.4g, %llu item%s%s%s%s",
        c->task->base->metric, l->base, l->quant, l->interval.estimate, l->interval.low,
        l->interval.high, margin, (unsigned long long)l->n, fp8q_plural(l->n), clusters, split,
        needed);
}

static int add_loss(const struct fp8q_task_check *c, const struct loss *l)
{
    char message[500];
    double margin = margin_for(c, l->base);
    if (isnan(margin))
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_MISSING,
                                       "the policy sets no margin for this task");

    const struct fp8q_interval *i = &l->interval;
    struct fp8q_gate_check check =
        fp8q_gate_check_limit(2, i->estimate, i->low, i->high, l->units, margin);
    check.method = isnan(i->high) ? NULL : l->method;
    /* People count items; the limit was judged by independent units.  */
    check.n = l->n;

    /* Too few to pass, however clear; a failure needs no more of them.  */
    if (check.verdict == FP8Q_VERDICT_PASS && l->units < c->policy->min_items) {
        check.verdict = FP8Q_VERDICT_INCONCLUSIVE;
        check.n_needed = c->policy->min_items;
    } else if (check.verdict == FP8Q_VERDICT_INCONCLUSIVE && l->pairs) {
        check.n_needed = fp8q_pairs_needed(l->n, l->pairs[0], l->pairs[1], c->tail, margin);
    }
    describe_loss(c, l, margin, check.n_needed, message, sizeof(message));
    return fp8q_task_check_add(c, check, "", message);
}

static int add_no_loss_possible(const struct fp8q_task_check *c)
{
    return fp8q_task_check_verdict(c, FP8Q_VERDICT_INCONCLUSIVE,
                                   "the base model solves none of the items, so no loss could be "
                                   "seen");
}

/* ---- paired items -------------------------------------------------------------------------- */

/* NULL if both hold the same questions, else what differs.  */
static const char *pairing_error(const struct fp8q_task_result *a, const struct fp8q_task_result *b)
{
    if (a->n_items != b->n_items)
        return "base and quantized run have different numbers of items";
    if (a->clustered != b->clustered)
        return "one of the two runs has clusters, the other has none";

    /* Both are sorted by id, so that pairs stand at the same place.  */
    for (size_t i = 0; i < a->n_items; i++) {
        if (strcmp(a->items[i].id, b->items[i].id) != 0)
            return "base and quantized run have different ids";
        if (a->clustered && a->items[i].cluster != b->items[i].cluster)
            return "an item of the same id is in another cluster";
        if (a->items[i].hash && b->items[i].hash && a->items[i].hash != b->items[i].hash)
            return "an item of the same id is another question (prompt, document or target differ)";
    }
    return NULL;
}

static bool is_binary(const struct fp8q_task_result *result)
{
    /* Exact bounds are of independent items: with clusters the bootstrap has to do.  */
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

static int check_binary(const struct fp8q_task_check *c, bool lower)
{
    const struct fp8q_task_item *b = c->task->base->items, *q = c->task->quant->items;
    uint64_t n = c->task->base->n_items, base_only = 0, quant_only = 0;

    for (uint64_t i = 0; i < n; i++) {
        base_only += b[i].score > q[i].score;
        quant_only += q[i].score > b[i].score;
    }
    /* Where less is better, what only the quantized run scored is the loss.  */
    const uint64_t pairs[2] = {lower ? quant_only : base_only, lower ? base_only : quant_only};

    const struct loss loss = {.interval = fp8q_paired_binary(n, pairs[0], pairs[1], c->tail),
                              .base = mean_score(c->task->base),
                              .quant = mean_score(c->task->quant),
                              .n = n,
                              .units = n,
                              .pairs = pairs,
                              .method = "exact, paired (Berger-Boos)"};
    return loss.base == (lower ? 1 : 0) ? add_no_loss_possible(c) : add_loss(c, &loss);
}

/* What one more item could lose at worst, going by the scores seen and zero.  */
static double score_range(const struct fp8q_task_result *a, const struct fp8q_task_result *b)
{
    double low = 0, high = 0;

    for (size_t i = 0; i < a->n_items; i++) {
        low = fmin(low, fmin(a->items[i].score, b->items[i].score));
        high = fmax(high, fmax(a->items[i].score, b->items[i].score));
    }
    return high - low;
}

static bool is_constant(const struct fp8q_task_result *a)
{
    for (size_t i = 1; i < a->n_items; i++)
        if (a->items[i].score != a->items[0].score)
            return false;
    return true;
}

static int bound_scores(const struct fp8q_task_check *c, bool lower, double *losses,
                        uint64_t *clusters, struct loss *loss)
{
    const struct fp8q_task_result *base = c->task->base, *quant = c->task->quant;
    const struct fp8q_bootstrap how = {c->policy->seed, (uint32_t)c->policy->resamples, c->tail};
    size_t units = 0;

    for (size_t i = 0; i < base->n_items; i++) {
        double d = base->items[i].score - quant->items[i].score;
        losses[i] = lower ? -d : d;
        clusters[i] = base->items[i].cluster;
    }

    const struct fp8q_clustered values = {losses, base->clustered ? clusters : NULL, base->n_items};
    FP8Q_TRY(
        fp8q_mean_bounds(&values, &how, score_range(base, quant), &loss->interval, &units, c->err));
    loss->units = units;
    return FP8Q_OK;
}

static int check_scores(const struct fp8q_task_check *c, bool lower)
{
    const struct fp8q_task_result *base = c->task->base, *quant = c->task->quant;
    struct loss loss = {.base = mean_score(base),
                        .quant = mean_score(quant),
                        .n = base->n_items,
                        .method = base->clustered ? "bootstrap and t, paired, by cluster"
                                                  : "bootstrap and t, paired"};

    /* Without any spread an interval would be a point, and prove what nobody saw.  */
    if (is_constant(base) && is_constant(quant) && loss.base == loss.quant)
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_INCONCLUSIVE,
                                       "every item of both runs has the same score, so no loss "
                                       "could be seen");

    double *losses = fp8q_array(base->n_items, sizeof(*losses));
    uint64_t *clusters = fp8q_array(base->n_items, sizeof(*clusters));
    int status = losses && clusters ? bound_scores(c, lower, losses, clusters, &loss)
                                    : fp8q_fail_nomem(c->err);
    free(losses);
    free(clusters);
    FP8Q_TRY(status);
    return add_loss(c, &loss);
}

/* ---- aggregates ---------------------------------------------------------------------------- */

/* mean * n where that is a whole number and the error is that of a proportion, as for accuracies. */
static bool success_count(const struct fp8q_task_result *r, uint64_t *k_out)
{
    if (r->n == 0 || !(r->mean >= 0 && r->mean <= 1))
        return false;

    /* An error larger than a proportion's is of something else, such as clusters.  */
    double n = (double)r->n, k = r->mean * n, whole = round(k);
    double se = sqrt(r->mean * (1 - r->mean) / fmax(n - 1, 1));
    *k_out = (uint64_t)whole;
    return fabs(k - whole) < 1e-6 * n && !(r->se > 1.05 * se + 1e-9);
}

/* Error of a mean, and no less than what one more item of the worst kind would add.  */
static double guarded_se(const struct fp8q_task_result *r)
{
    return hypot(r->se, fmax(fabs(r->mean), 1) / (double)r->n);
}

static struct fp8q_interval means_interval(const struct fp8q_task_result *b,
                                           const struct fp8q_task_result *q, double tail)
{
    /* Degrees of freedom of the smaller side: the wider interval of the two.  */
    double n = (double)(b->n < q->n ? b->n : q->n), difference = b->mean - q->mean;
    double half = fp8q_t_bound(tail, n - 1) * hypot(guarded_se(b), guarded_se(q));

    if (n < 2)
        half = (double)NAN;
    return (struct fp8q_interval){difference, difference - half, difference + half};
}

static int check_aggregates(const struct fp8q_task_check *c, bool lower)
{
    /* Where less is better, the loss is (quant - base).  */
    const struct fp8q_task_result *b = lower ? c->task->quant : c->task->base;
    const struct fp8q_task_result *q = lower ? c->task->base : c->task->quant;
    struct loss loss = {
        .base = c->task->base->mean, .quant = c->task->quant->mean, .n = b->n < q->n ? b->n : q->n};
    uint64_t kb, kq;

    loss.units = loss.n;
    if (loss.n == 0)
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_MISSING,
                                       "the results do not say of how many items they are; give "
                                       "the sample logs");
    /* Exact where counts can be had back, by the stated errors otherwise.  */
    if (success_count(b, &kb) && success_count(q, &kq)) {
        if (loss.base == (lower ? 1 : 0))
            return add_no_loss_possible(c);
        loss.interval = fp8q_unpaired_binary(kb, b->n, kq, q->n, c->tail);
        loss.method = "exact rates, unpaired (MOVER)";
    } else if (isnan(b->se) || isnan(q->se)) {
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_MISSING,
                                       "only means without errors or counts; give the sample logs");
    } else {
        loss.interval = means_interval(b, q, c->tail);
        loss.method = "t, unpaired";
    }
    return add_loss(c, &loss);
}

/* ---- the same question? -------------------------------------------------------------------- */

/* Largest score; items or the mean.  */
static double largest(const struct fp8q_task_result *r)
{
    double max = r->aggregate ? r->mean : 0;
    for (size_t i = 0; i < r->n_items; i++)
        max = fmax(max, r->items[i].score);
    return max;
}

/* 0.75 in one file and 75 in the other: no loss could show.  */
static bool scales_differ(const struct fp8q_task_result *b, const struct fp8q_task_result *q)
{
    double low = fmin(largest(b), largest(q)), high = fmax(largest(b), largest(q));

    /* Perplexities and the like may have any size: nothing is said of those.  */
    return b->direction != FP8Q_DIRECTION_LOWER && low <= 1 && high > 10;
}

/* ---- tier 2 -------------------------------------------------------------------------------- */

/* NULL if both are of the same question, else what differs.  */
static const char *kind_error(const struct fp8q_task_result *b, const struct fp8q_task_result *q)
{
    if (b->content_len > 0 && b->content_len == q->content_len && b->content_crc == q->content_crc)
        return "both sides are the same file: one of the two runs was given twice";
    if (b->aggregate != q->aggregate || !b->position_starts != !q->position_starts)
        return "base and quantized run are in different formats";
    if (strcmp(b->metric, q->metric) != 0 || b->n_metrics != q->n_metrics)
        return "base and quantized run have different metrics";
    if (b->version && q->version && b->version != q->version)
        return "base and quantized run are of different versions of the task";
    if (b->n && q->n && b->n != q->n)
        return "base and quantized run are of different numbers of items";
    if (scales_differ(b, q))
        return "one run has scores of up to 1, the other of more than 10: they are of different "
               "scales";
    return b->aggregate || b->position_starts ? NULL : pairing_error(b, q);
}

static int check_task(const struct fp8q_task_check *c)
{
    const struct fp8q_task_result *b = c->task->base, *q = c->task->quant;
    enum fp8q_verdict verdict;
    bool lower = false;

    const char *wrong = kind_error(b, q);
    if (wrong)
        return fp8q_task_check_verdict(c, FP8Q_VERDICT_FOREIGN, wrong);
    if (b->position_starts)
        return fp8q_task_check_logprobs(c);

    /* Log-probabilities have their direction; of other metrics it must be known, or a gain could be
     * taken for a loss.  */
    wrong = find_direction(c, &lower, &verdict);
    if (wrong)
        return fp8q_task_check_verdict(c, verdict, wrong);
    if (b->aggregate)
        return check_aggregates(c, lower);
    return is_binary(b) && is_binary(q) ? check_binary(c, lower) : check_scores(c, lower);
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

    /* Required by name: a task that was left out must not pass by its absence.  */
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
