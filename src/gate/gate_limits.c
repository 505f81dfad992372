/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_limits.c - tier 1: is what an evaluation measured within the limits of the policy.
 *
 * How it works.  Figures are held against limits, each with the upper bound of an interval, never
 * with the estimate.  Limits are ratios, since absolute KLD does not travel between models: to plain
 * rounding of the same source, and to what quantizing activations alone costs.  Weight error is not
 * asked about at all.  Intervals have samples as units (tokens of one text are no independent draws)
 * and quantiles of Student's t; what has no interval is inconclusive.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gate/internal.h"
#include "gate/stats.h"

#define NONE ((double)NAN)

struct eval_check {
    struct fp8q_gate *gate;
    const struct fp8q_gate_request *request;
    const struct fp8q_evidence *evidence, *baseline; /* baseline may be NULL */
    bool requantized;                                /* judge that row of both */
    double t;                                        /* quantile at the policy's confidence */
    bool *kld_judged;                                /* set once a limit of the KLD was applied */
    struct fp8q_error *err;
};

static const struct fp8q_evidence_row *row_of(const struct eval_check *c,
                                              const struct fp8q_evidence *e)
{
    return c->requantized ? &e->eval.requant : &e->eval.output;
}

/* An upper limit on what has the standard error @se; NAN: no interval, so nothing is decided.  */
static int add_limit(const struct eval_check *c, const char *id, const char *what, double estimate,
                     double se, double limit, const char *method)
{
    const struct fp8q_evidence_eval *e = &c->evidence->eval;
    struct fp8q_gate_check check = fp8q_gate_check_limit(1, estimate, estimate - c->t * se,
                                                         estimate + c->t * se, e->tokens, limit);

    if (isnan(check.high))
        return fp8q_gate_add(c->gate, check, c->err, id,
                             "%s: %.4g, limit %.4g; its error is not known: %zu sample%s scored, "
                             "two at least make an interval",
                             what, estimate, limit, e->n_scored, fp8q_plural(e->n_scored));
    check.method = method;
    return fp8q_gate_add(c->gate, check, c->err, id, "%s: %.4g [%.4g, %.4g], limit %.4g", what,
                         estimate, check.low, check.high, limit);
}

/* A limit that the policy sets and that nothing was measured for.  */
static int add_unmeasured(const struct eval_check *c, const char *id, bool required,
                          const char *what)
{
    enum fp8q_verdict verdict = required ? FP8Q_VERDICT_MISSING : FP8Q_VERDICT_SKIPPED;
    return fp8q_gate_add(c->gate, fp8q_gate_check_of(1, verdict), c->err, id, "%s", what);
}

/* KLD of the evidence over that of the baseline, sample by sample: what makes a sample hard is hard
 * for both, and cancels.  */
static int paired_ratio(const struct eval_check *c, double *ratio_out, double *se_out)
{
    const struct fp8q_evidence_eval *a = &c->evidence->eval, *b = &c->baseline->eval;
    double *sums = fp8q_array(2 * (uint64_t)a->n_samples, sizeof(*sums));
    size_t n = 0;
    if (!sums)
        return fp8q_fail_nomem(c->err);

    for (size_t i = 0; i < a->n_samples; i++)
        if (a->samples[i].tokens > 0) { /* the KLD of none is no number */
            sums[n] = a->samples[i].kld * (double)a->samples[i].tokens;
            sums[a->n_samples + n] = b->samples[i].kld * (double)b->samples[i].tokens;
            n++;
        }

    *ratio_out = fp8q_ratio(sums, sums + a->n_samples, n, se_out);
    free(sums);
    return FP8Q_OK;
}

/* Error of a/b from both errors, as if the two were independent: samples of rows are not in the
 * file, and what they have in common only makes the true error smaller.  */
static double ratio_se(double a, double a_se, double b, double b_se)
{
    return a / b * hypot(a > 0 ? a_se / a : 0, b_se / b);
}

static int check_baseline(const struct eval_check *c)
{
    const struct fp8q_policy *p = c->request->policy;
    const char *id = "eval.kld-vs-baseline", *method = "t, paired by sample";
    double ratio = NONE, se = NONE;

    if (isnan(p->kld_vs_baseline))
        return FP8Q_OK;
    if (!c->baseline)
        return add_unmeasured(c, id, p->baseline_required,
                              "no evidence of plain rounding to compare with (--baseline)");

    const struct fp8q_evidence_row *a = row_of(c, c->evidence), *b = row_of(c, c->baseline);
    if (isnan(b->kld))
        return add_unmeasured(c, id, true,
                              "the baseline has no row of requantized scales (eval "
                              "--requant-ue8m0): like is compared with like");
    *c->kld_judged = true;
    /* By nothing a ratio cannot be taken, and that is no reason to pass.  */
    if (!(b->kld > 0))
        return fp8q_gate_add(
            c->gate,
            fp8q_gate_check_of(1, a->kld > 0 ? FP8Q_VERDICT_FAIL : FP8Q_VERDICT_INCONCLUSIVE),
            c->err, id, "plain rounding costs nothing, this costs a KLD of %.5g", a->kld);

    /* The file has samples of the output's own row only: another row cannot be paired.  */
    if (c->requantized) {
        method = "t, errors by sample, rows independent";
        ratio = a->kld / b->kld;
        se = ratio_se(a->kld, a->kld_se, b->kld, b->kld_se);
    } else {
        FP8Q_TRY(paired_ratio(c, &ratio, &se));
    }
    return add_limit(c, id, "KLD in units of plain rounding", ratio, se, p->kld_vs_baseline,
                     method);
}

static int check_floor(const struct eval_check *c)
{
    const struct fp8q_policy *p = c->request->policy;
    const struct fp8q_evidence_row *e = row_of(c, c->evidence), *floor = &c->evidence->eval.floor;
    const char *id = "eval.kld-vs-floor";

    if (isnan(p->kld_vs_floor))
        return FP8Q_OK;
    if (!(floor->kld > 0))
        return add_unmeasured(c, id, p->floor_required,
                              "the activation floor was not measured (eval --decompose)");

    *c->kld_judged = true;
    /* Without an error of its own the floor counts as exact; that of the output remains.  */
    double floor_se = isnan(floor->kld_se) ? 0 : floor->kld_se;
    return add_limit(c, id, "KLD in units of the activation floor", e->kld / floor->kld,
                     ratio_se(e->kld, e->kld_se, floor->kld, floor_se), p->kld_vs_floor,
                     "t, errors by sample");
}

/* Share of changed first choices and its upper bound: the wider of t over samples and the exact
 * one over tokens, since samples without a single change tell nothing of the spread.  */
static int check_top1_min(const struct eval_check *c)
{
    const struct fp8q_evidence_row *row = row_of(c, c->evidence);
    const double limit = 1 - c->request->policy->top1_min;
    uint64_t n = c->evidence->eval.tokens;

    if (isnan(c->request->policy->top1_min))
        return FP8Q_OK;
    if (isnan(row->top1))
        return add_unmeasured(c, "eval.top1", true, "top-1 agreement was not measured");

    /* add_limit() takes an upper limit, so agreement is judged by what it lacks.  */
    double changed = 1 - row->top1, half = c->t * row->top1_se;
    uint64_t k = (uint64_t)llround(changed * (double)n);
    struct fp8q_interval exact = fp8q_proportion(k, n, 1 - c->request->policy->confidence);
    if (!isnan(half))
        half = fmax(half, exact.high - changed);
    return add_limit(c, "eval.top1", "share of changed first choices", changed, half / c->t, limit,
                     "t over samples, exact over tokens");
}

static int check_top1_drop(const struct eval_check *c)
{
    double limit = c->request->policy->top1_drop;
    if (isnan(limit) || !c->baseline)
        return FP8Q_OK;

    const struct fp8q_evidence_row *a = row_of(c, c->evidence), *b = row_of(c, c->baseline);
    if (isnan(a->top1) || isnan(b->top1))
        return add_unmeasured(c, "eval.top1-vs-baseline", false,
                              "top-1 agreement was not measured on both sides");
    return add_limit(c, "eval.top1-vs-baseline", "top-1 agreement lost against plain rounding",
                     b->top1 - a->top1, hypot(a->top1_se, b->top1_se), limit,
                     "t, errors by sample, rows independent");
}

static int check_perplexity(const struct eval_check *c)
{
    double limit = c->request->policy->delta_ln_ppl_max;
    const struct fp8q_evidence_row *row = row_of(c, c->evidence);

    if (isnan(limit))
        return FP8Q_OK;
    if (isnan(row->dln))
        return add_unmeasured(c, "eval.ppl", true, "perplexity was not measured");
    return add_limit(c, "eval.ppl", "change of ln PPL", row->dln, row->dln_se, limit,
                     "t, error by sample");
}

/* Static input scales that no longer fit their inputs.  Counts over all inputs, so there is no
 * interval.  */
static int check_static(const struct eval_check *c, const char *id, const char *what,
                        double observed, double limit)
{
    if (isnan(observed) || isnan(limit))
        return FP8Q_OK;
    struct fp8q_gate_check check =
        fp8q_gate_check_limit(1, observed, observed, observed, c->evidence->eval.tokens, limit);
    return fp8q_gate_add(c->gate, check, c->err, id, "%s: %.4g, limit %.4g", what, observed, limit);
}

static int check_statics(const struct eval_check *c)
{
    const struct fp8q_evidence_eval *e = &c->evidence->eval;
    const struct fp8q_policy *p = c->request->policy;

    FP8Q_TRY(check_static(c, "eval.clipped", "share of a linear's inputs that are clipped",
                          e->clipped, p->clipped_max));
    return check_static(c, "eval.unused", "powers of two of an input range that are unused",
                        e->unused, p->unused_max);
}

/* ---- parts and states ---------------------------------------------------------------------- */

/* One check for each part: a mean over all of them would hide the one that suffers.  */
static int check_part(const struct eval_check *c, const char *kind,
                      const struct fp8q_evidence_part *p, double limit)
{
    struct fp8q_shown shown;
    char id[128];
    double units = (double)p->samples;
    double t = units > 1 ? fp8q_t_bound(1 - c->request->policy->confidence, units - 1) : NONE;
    struct fp8q_gate_check check = fp8q_gate_check_limit(1, p->kld, p->kld - t * p->kld_se,
                                                         p->kld + t * p->kld_se, p->tokens, limit);
    check.method = "t, error by sample";
    snprintf(id, sizeof(id), "eval.%s.%s", kind, fp8q_show(&shown, p->name));

    if (isnan(check.high))
        return fp8q_gate_add(
            c->gate, check, c->err, id,
            "KLD of %llu tokens of %llu sample%s: %.4g, limit %.4g; two samples at "
            "least make an interval",
            (unsigned long long)p->tokens, (unsigned long long)p->samples, fp8q_plural(p->samples),
            p->kld, limit);
    return fp8q_gate_add(c->gate, check, c->err, id,
                         "KLD of %llu tokens of %llu samples: %.4g [%.4g, %.4g], limit %.4g",
                         (unsigned long long)p->tokens, (unsigned long long)p->samples, p->kld,
                         check.low, check.high, limit);
}

static int check_parts(const struct eval_check *c, const char *kind,
                       const struct fp8q_evidence_parts *parts, double limit)
{
    char id[32];
    if (isnan(limit))
        return FP8Q_OK;
    snprintf(id, sizeof(id), "eval.%s", kind);
    if (parts->n == 0)
        return add_unmeasured(c, id, true, "the inputs of the evidence say nothing of it");

    *c->kld_judged = true;
    for (size_t i = 0; i < parts->n; i++)
        FP8Q_TRY(check_part(c, kind, &parts->items[i], limit));
    return FP8Q_OK;
}

/* Over all tokens, so there is no interval.  */
static int check_states(const struct eval_check *c)
{
    double observed = c->evidence->eval.state_error;
    double limit = c->request->policy->state_error_max;
    if (isnan(limit))
        return FP8Q_OK;
    if (isnan(observed))
        return add_unmeasured(c, "eval.states", true, "errors of states were not measured");
    return check_static(c, "eval.states",
                        "largest relative error of keys, values and the last hidden state",
                        observed, limit);
}

static int check_figures(const struct eval_check *c)
{
    const struct fp8q_policy *p = c->request->policy;
    const struct fp8q_evidence_eval *e = &c->evidence->eval;
    const struct fp8q_evidence_row *row = row_of(c, c->evidence);

    FP8Q_TRY(check_statics(c));
    FP8Q_TRY(check_states(c));
    if (e->tokens == 0 && !isnan(p->state_error_max)) {
        *c->kld_judged = true; /* where nothing is predicted there is none */
        return FP8Q_OK;
    }

    /* Before any limit: an interval of so few tokens would only look like an answer.  */
    if (e->tokens < p->min_tokens) {
        struct fp8q_gate_check check = fp8q_gate_check_of(1, FP8Q_VERDICT_INCONCLUSIVE);
        check.n = e->tokens;
        check.n_needed = p->min_tokens;
        *c->kld_judged = true; /* of too few, which is said */
        return fp8q_gate_add(c->gate, check, c->err, "eval.tokens",
                             "%llu token%s scored, the policy asks for %llu",
                             (unsigned long long)e->tokens, fp8q_plural(e->tokens),
                             (unsigned long long)p->min_tokens);
    }

    if (!isnan(p->kld_max)) {
        *c->kld_judged = true;
        FP8Q_TRY(add_limit(c, "eval.kld", "KLD", row->kld, row->kld_se, p->kld_max,
                           "t, error by sample"));
    }
    FP8Q_TRY(check_parts(c, "modality", &e->modalities, p->kld_max_by_modality));
    FP8Q_TRY(check_parts(c, "category", &e->categories, p->kld_max_by_category));
    FP8Q_TRY(check_baseline(c));
    FP8Q_TRY(check_floor(c));
    FP8Q_TRY(check_top1_min(c));
    FP8Q_TRY(check_top1_drop(c));
    return check_perplexity(c);
}

int fp8q_gate_limits(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                     const struct fp8q_evidence *e, const struct fp8q_evidence *baseline,
                     struct fp8q_error *err)
{
    bool kld_judged = false;
    double units = (double)e->eval.n_scored;
    const struct eval_check check = {
        .gate = gate,
        .request = r,
        .evidence = e,
        .baseline = baseline,
        .requantized = r->policy->requantized,
        .t = units > 1 ? fp8q_t_bound(1 - r->policy->confidence, units - 1) : NONE,
        .kld_judged = &kld_judged,
        .err = err};

    if (r->policy->requantized && isnan(e->eval.requant.kld))
        return add_unmeasured(&check, "eval.requantized", true,
                              "requantized scales were not measured (eval --requant-ue8m0)");
    FP8Q_TRY(check_figures(&check));

    /* Evidence that nothing could be held against is none.  */
    if (kld_judged)
        return FP8Q_OK;
    return add_unmeasured(&check, "eval.limits", true,
                          "no limit of the KLD could be applied: give --baseline, or evidence of "
                          "eval --decompose, or set eval.kld_max in the policy");
}
