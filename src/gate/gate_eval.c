/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_eval.c - tier 1: is the evidence about these bytes, and is the KL divergence within limits.
 *
 * How it works.  An evidence file must first be about this checkpoint and about the question that
 * the policy asks; then its figures are held against limits, each with the upper bound of an
 * interval, never with the estimate.  Limits are ratios, since absolute KLD does not travel between
 * models: to plain rounding of the same source, and to what quantizing activations alone costs.
 * Weight error is not asked about at all.  Intervals have samples as units (tokens of one text are
 * no independent draws) and quantiles of Student's t; what has no interval is inconclusive.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/internal.h"
#include "gate/stats.h"

#define NONE ((double)NAN)
#define DAY 86400

/* A verdict on a file, and why.  */
struct judgement {
    enum fp8q_verdict verdict;
    const char *reason; /* static */
};

/* ---- does it speak of this checkpoint ------------------------------------------------------ */

static bool differ(struct fp8q_fingerprint a, struct fp8q_fingerprint b)
{
    return a.known && b.known && a.crc32 != b.crc32;
}

static bool equal(struct fp8q_fingerprint a, struct fp8q_fingerprint b)
{
    return a.known && b.known && a.crc32 == b.crc32;
}

/* Is it about these bytes?  */
static struct judgement judge_subject(const struct fp8q_evidence *e,
                                      const struct fp8q_gate_facts *f)
{
    if (!e->has_eval)
        return (struct judgement){FP8Q_VERDICT_FOREIGN, "its kind is not one that gate knows"};
    if (!e->output.known || !e->source.known)
        return (struct judgement){FP8Q_VERDICT_MISSING,
                                  "it names no fingerprints of source and output"};
    if (equal(e->source, e->output) || equal(e->source, f->output))
        return (struct judgement){FP8Q_VERDICT_FOREIGN,
                                  "it compares a checkpoint with itself, not with its source"};
    if (!f->source.known)
        return (struct judgement){
            FP8Q_VERDICT_MISSING,
            "what this checkpoint was made of is not known, so nobody can tell whether it is of "
            "that source: give --source"};

    /* Another source was never ours; the same source with other bytes was, before a new
     * conversion.  */
    if (differ(e->source, f->source))
        return (struct judgement){FP8Q_VERDICT_FOREIGN, "it was made with another source"};
    if (!equal(e->output, f->output))
        return (struct judgement){FP8Q_VERDICT_STALE, "it was made for other weights than these"};

    /* The same weights under another config.json are another network.  */
    if (!f->config.known)
        return (struct judgement){FP8Q_VERDICT_PASS, NULL};
    if (!e->config.known)
        return (struct judgement){FP8Q_VERDICT_MISSING,
                                  "it does not say with which config.json it was made"};
    if (differ(e->config, f->config))
        return (struct judgement){
            FP8Q_VERDICT_STALE,
            "config.json describes another network than the one that was evaluated"};
    return (struct judgement){FP8Q_VERDICT_PASS, NULL};
}

/* Is it of the question that the policy asks, and new enough?  */
static struct judgement judge_question(const struct fp8q_evidence *e,
                                       const struct fp8q_gate_request *r)
{
    const struct fp8q_policy *p = r->policy;
    const char *stack = r->stack ? r->stack : p->stack;
    const char *acts = p->acts ? p->acts : FP8Q_POLICY_ACTS;

    if (strcmp(acts, "any") != 0 && strcmp(acts, e->eval.acts) != 0)
        return (struct judgement){
            FP8Q_VERDICT_FOREIGN,
            "it treats activations in another way than the policy judges (eval.acts)"};
    if (p->inputs.known && !equal(e->inputs, p->inputs))
        return (struct judgement){FP8Q_VERDICT_FOREIGN,
                                  "it was measured on other inputs than the policy names"};
    if (stack && (!e->stack || strcmp(e->stack, stack) != 0))
        return (struct judgement){FP8Q_VERDICT_STALE, "it is of another serving stack"};

    if (!isnan(p->max_age_days) && (double)(r->now - e->created) > p->max_age_days * DAY)
        return (struct judgement){FP8Q_VERDICT_STALE, "it is older than the policy allows"};
    /* A day for clocks that differ; beyond that, evidence would never grow old.  */
    if (e->created > r->now + DAY)
        return (struct judgement){FP8Q_VERDICT_STALE, "it is dated in the future"};
    return (struct judgement){FP8Q_VERDICT_PASS, NULL};
}

static struct judgement judge_evidence(const struct fp8q_evidence *e,
                                       const struct fp8q_gate_request *r)
{
    struct judgement j = judge_subject(e, &r->facts);
    return j.verdict == FP8Q_VERDICT_PASS ? judge_question(e, r) : j;
}

/* ---- baselines ----------------------------------------------------------------------------- */

static bool same_samples(const struct fp8q_evidence_eval *a, const struct fp8q_evidence_eval *b)
{
    if (a->n_samples != b->n_samples)
        return false;
    /* Sample by sample, because the ratio is taken in pairs.  */
    for (size_t i = 0; i < a->n_samples; i++)
        if (a->samples[i].tokens != b->samples[i].tokens)
            return false;
    return true;
}

/* May @b stand for plain rounding at all?  */
static struct judgement judge_baseline(const struct fp8q_evidence *b,
                                       const struct fp8q_gate_request *r)
{
    if (!b->has_eval)
        return (struct judgement){FP8Q_VERDICT_FOREIGN, "its kind is not one that gate knows"};
    if (!b->output.known || !b->source.known || !b->inputs.known)
        return (struct judgement){FP8Q_VERDICT_MISSING,
                                  "it names no fingerprints of source, output and inputs"};

    if (equal(b->source, b->output))
        return (struct judgement){FP8Q_VERDICT_FOREIGN,
                                  "it compares a checkpoint with itself, not with its source"};
    if (equal(b->output, r->facts.output))
        return (struct judgement){
            FP8Q_VERDICT_FOREIGN,
            "it is of the checkpoint that is judged: equal to itself anything "
            "is"};

    /* Any recipe is within 25 % of itself: only plain rounding is a yardstick.  */
    if (!b->rounding || strcmp(b->rounding, FP8Q_PLAIN_ROUNDING) != 0)
        return (struct judgement){
            FP8Q_VERDICT_FOREIGN,
            "it does not say that its output was rounded plainly (a conversion by fp8q quantize "
            "without --calibration, evaluated by this version)"};
    return (struct judgement){FP8Q_VERDICT_PASS, NULL};
}

/* Does it answer the question of @e: same source, inputs, samples and treatment of activations?  */
static bool is_baseline_of(const struct fp8q_evidence *b, const struct fp8q_evidence *e)
{
    return e->has_eval && equal(b->source, e->source) && equal(b->inputs, e->inputs) &&
           strcmp(b->eval.acts, e->eval.acts) == 0 && same_samples(&b->eval, &e->eval);
}

static const struct fp8q_evidence *find_baseline(const struct fp8q_gate_request *r,
                                                 const struct fp8q_evidence *e)
{
    for (size_t i = 0; i < r->n_baselines; i++)
        if (judge_baseline(&r->baselines[i], r).verdict == FP8Q_VERDICT_PASS &&
            is_baseline_of(&r->baselines[i], e))
            return &r->baselines[i];
    return NULL;
}

/* A baseline that nothing was held against was given by mistake.  */
static int check_baselines(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                           struct fp8q_error *err)
{
    for (size_t i = 0; i < r->n_baselines; i++) {
        const struct fp8q_evidence *b = &r->baselines[i];
        struct judgement j = judge_baseline(b, r);
        struct fp8q_shown shown;
        bool used = false;

        for (size_t k = 0; k < r->n_evidence; k++)
            used = used || is_baseline_of(b, &r->evidence[k]);
        if (j.verdict == FP8Q_VERDICT_PASS && !used)
            j = (struct judgement){FP8Q_VERDICT_FOREIGN,
                                   "no evidence has its source, inputs, samples and activations"};
        if (j.verdict != FP8Q_VERDICT_PASS)
            FP8Q_TRY(fp8q_gate_add(gate, fp8q_gate_check_of(1, j.verdict), err, "baseline",
                                   "%s: %s", fp8q_show(&shown, b->path), j.reason));
    }
    return FP8Q_OK;
}

/* ---- limits -------------------------------------------------------------------------------- */

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
                             what, estimate, limit, e->n_scored, e->n_scored == 1 ? "" : "s");
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

static int check_figures(const struct eval_check *c)
{
    const struct fp8q_policy *p = c->request->policy;
    const struct fp8q_evidence_eval *e = &c->evidence->eval;
    const struct fp8q_evidence_row *row = row_of(c, c->evidence);

    FP8Q_TRY(check_statics(c));

    /* Before any limit: an interval of so few tokens would only look like an answer.  */
    if (e->tokens < p->min_tokens) {
        struct fp8q_gate_check check = fp8q_gate_check_of(1, FP8Q_VERDICT_INCONCLUSIVE);
        check.n = e->tokens;
        check.n_needed = p->min_tokens;
        *c->kld_judged = true; /* of too few, which is said */
        return fp8q_gate_add(c->gate, check, c->err, "eval.tokens",
                             "%llu tokens were scored, the policy asks for %llu",
                             (unsigned long long)e->tokens, (unsigned long long)p->min_tokens);
    }

    if (!isnan(p->kld_max)) {
        *c->kld_judged = true;
        FP8Q_TRY(add_limit(c, "eval.kld", "KLD", row->kld, row->kld_se, p->kld_max,
                           "t, error by sample"));
    }
    FP8Q_TRY(check_baseline(c));
    FP8Q_TRY(check_floor(c));
    FP8Q_TRY(check_top1_min(c));
    FP8Q_TRY(check_top1_drop(c));
    return check_perplexity(c);
}

/* ---- tier 1 -------------------------------------------------------------------------------- */

static int check_limits(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                        const struct fp8q_evidence *e, struct fp8q_error *err)
{
    bool kld_judged = false;
    double units = (double)e->eval.n_scored;
    const struct eval_check check = {
        .gate = gate,
        .request = r,
        .evidence = e,
        .baseline = find_baseline(r, e),
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

static int check_evidence(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                          const struct fp8q_evidence *e, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct judgement j = judge_evidence(e, r);

    if (j.verdict != FP8Q_VERDICT_PASS)
        return fp8q_gate_add(gate, fp8q_gate_check_of(1, j.verdict), err, "eval", "%s: %s",
                             fp8q_show(&shown, e->path), j.reason);
    FP8Q_TRY(fp8q_gate_add(gate, fp8q_gate_check_of(1, j.verdict), err, "eval",
                           "%s is about this checkpoint", fp8q_show(&shown, e->path)));
    /* Evidence about the right bytes, yet the loss is partly that of another network.  */
    if (e->config_differences && *e->config_differences)
        FP8Q_TRY(fp8q_gate_add(gate, fp8q_gate_check_of(1, FP8Q_VERDICT_FAIL), err, "eval.config",
                               "by its config.json the checkpoint computes something else than its "
                               "source: %s",
                               fp8q_show(&shown, e->config_differences)));
    return check_limits(gate, r, e, err);
}

int fp8q_gate_eval(struct fp8q_gate *gate, const struct fp8q_gate_request *request,
                   struct fp8q_error *err)
{
    if (request->n_evidence == 0 && request->policy->eval_required)
        FP8Q_TRY(fp8q_gate_add(gate, fp8q_gate_check_of(1, FP8Q_VERDICT_MISSING), err, "eval",
                               "no evidence of an eval was given (--evidence)"));

    for (size_t i = 0; i < request->n_evidence; i++)
        FP8Q_TRY(check_evidence(gate, request, &request->evidence[i], err));
    return check_baselines(gate, request, err);
}
