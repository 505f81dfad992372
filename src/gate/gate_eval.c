/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_eval.c - tier 1: is the evidence about these bytes, and is the KL divergence within limits.
 *
 * Limits are ratios, since absolute KLD does not travel between models: to plain rounding of the
 * same source, and to what quantizing activations alone costs.  Weight error is not asked about at
 * all.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/internal.h"
#include "gate/stats.h"

#define NONE ((double)NAN)
#define DAY 86400

/* ---- does it speak of this checkpoint ------------------------------------------------------ */

static bool differ(struct fp8q_fingerprint a, struct fp8q_fingerprint b)
{
    return a.known && b.known && a.crc32 != b.crc32;
}

/* Verdict on the evidence itself, with the reason.  */
static enum fp8q_verdict judge_evidence(const struct fp8q_evidence *e,
                                        const struct fp8q_gate_request *r, const char **reason_out)
{
    const struct fp8q_gate_facts *f = &r->facts;
    const struct fp8q_policy *p = r->policy;
    const char *stack = r->stack ? r->stack : p->stack;
    if (!e->has_eval) {
        *reason_out = "its kind is not one that gate knows";
        return FP8Q_VERDICT_FOREIGN;
    }
    *reason_out = "it names no fingerprints of source and output";
    if (!e->output.known || !e->source.known)
        return FP8Q_VERDICT_MISSING;
    *reason_out = "it was made with another source";
    if (differ(e->source, f->source))
        return FP8Q_VERDICT_FOREIGN;
    *reason_out = "it was made for other weights than these";
    if (differ(e->output, f->output))
        return f->source.known ? FP8Q_VERDICT_STALE : FP8Q_VERDICT_FOREIGN;
    *reason_out = "it was measured on other inputs than the policy names";
    if (p->inputs.known && (!e->inputs.known || differ(e->inputs, p->inputs)))
        return FP8Q_VERDICT_FOREIGN;
    *reason_out = "it is of another serving stack";
    if (stack && (!e->stack || strcmp(e->stack, stack) != 0))
        return FP8Q_VERDICT_STALE;
    *reason_out = "it is older than the policy allows";
    if (!isnan(p->max_age_days) && (double)(r->now - e->created) > p->max_age_days * DAY)
        return FP8Q_VERDICT_STALE;
    *reason_out = "it is dated in the future";
    if (e->created > r->now + DAY)
        return FP8Q_VERDICT_STALE;
    return FP8Q_VERDICT_PASS;
}

/* ---- limits -------------------------------------------------------------------------------- */

struct eval_check {
    struct fp8q_gate *gate;
    const struct fp8q_gate_request *request;
    const struct fp8q_evidence *evidence, *baseline; /* baseline may be NULL */
    double z; /* normal quantile of the policy's confidence */
    struct fp8q_error *err;
};

static bool same_samples(const struct fp8q_evidence_eval *a, const struct fp8q_evidence_eval *b)
{
    if (a->n_samples != b->n_samples || a->n_samples < 2)
        return false;
    for (size_t i = 0; i < a->n_samples; i++)
        if (a->samples[i].tokens != b->samples[i].tokens)
            return false;
    return true;
}

/* KLD of the evidence over that of the baseline.  Sample by sample where both list the same ones:
 * what makes a sample hard is hard for both, and cancels.  */
static int kld_ratio(const struct eval_check *c, double *ratio_out, double *se_out,
                     const char **method_out)
{
    const struct fp8q_evidence_eval *a = &c->evidence->eval, *b = &c->baseline->eval;
    *method_out = "normal, runs independent";
    *ratio_out = a->kld / b->kld;
    *se_out = *ratio_out * hypot(a->kld_se / a->kld, b->kld_se / b->kld);
    if (!same_samples(a, b))
        return FP8Q_OK;
    double *sums = fp8q_array(2 * (uint64_t)a->n_samples, sizeof(*sums));
    if (!sums)
        return fp8q_fail_nomem(c->err);
    for (size_t i = 0; i < a->n_samples; i++) {
        sums[i] = a->samples[i].kld * (double)a->samples[i].tokens;
        sums[a->n_samples + i] = b->samples[i].kld * (double)b->samples[i].tokens;
    }
    *ratio_out = fp8q_ratio(sums, sums + a->n_samples, a->n_samples, se_out);
    *method_out = "normal, paired by sample";
    free(sums);
    return FP8Q_OK;
}

static int add_limit(const struct eval_check *c, const char *id, const char *what, double estimate,
                     double se, double limit, const char *method)
{
    struct fp8q_gate_check check = fp8q_gate_check_limit(
        1, estimate, estimate - c->z * se, estimate + c->z * se, c->evidence->eval.tokens, limit);
    check.method = isnan(se) ? NULL : method;
    if (isnan(se))
        return fp8q_gate_add(c->gate, check, c->err, id, "%s: %.4g, limit %.4g", what, estimate,
                             limit);
    return fp8q_gate_add(c->gate, check, c->err, id, "%s: %.4g [%.4g, %.4g], limit %.4g", what,
                         estimate, check.low, check.high, limit);
}

/* A limit that the policy sets and that nothing was measured for.  */
static int add_unmeasured(const struct eval_check *c, const char *id, bool required,
                          const char *what)
{
    return fp8q_gate_add(
        c->gate, fp8q_gate_check_of(1, required ? FP8Q_VERDICT_MISSING : FP8Q_VERDICT_SKIPPED),
        c->err, id, "%s", what);
}

static int check_baseline(const struct eval_check *c)
{
    const struct fp8q_policy *p = c->request->policy;
    const char *id = "eval.kld-vs-baseline", *method;
    double ratio, se;
    if (isnan(p->kld_vs_baseline))
        return FP8Q_OK;
    if (!c->baseline)
        return add_unmeasured(c, id, p->baseline_required,
                              "no evidence of plain rounding to compare with (--baseline)");
    if (c->baseline->eval.kld == 0)
        return fp8q_gate_add(c->gate,
                             fp8q_gate_check_of(1, c->evidence->eval.kld == 0 ? FP8Q_VERDICT_PASS
                                                                              : FP8Q_VERDICT_FAIL),
                             c->err, id, "plain rounding costs nothing, this costs a KLD of %.5g",
                             c->evidence->eval.kld);
    FP8Q_TRY(kld_ratio(c, &ratio, &se, &method));
    return add_limit(c, id, "KLD in units of plain rounding", ratio, se, p->kld_vs_baseline,
                     method);
}

static int check_floor(const struct eval_check *c)
{
    const struct fp8q_policy *p = c->request->policy;
    const struct fp8q_evidence_eval *e = &c->evidence->eval;
    const char *id = "eval.kld-vs-floor";
    if (isnan(p->kld_vs_floor))
        return FP8Q_OK;
    if (isnan(e->floor_kld) || e->floor_kld == 0)
        return add_unmeasured(c, id, p->floor_required,
                              "the activation floor was not measured (eval --decompose)");
    double ratio = e->kld / e->floor_kld;
    return add_limit(c, id, "KLD in units of the activation floor", ratio, e->kld_se / e->floor_kld,
                     p->kld_vs_floor, "normal, over samples");
}

static int check_top1(const struct eval_check *c)
{
    const struct fp8q_policy *p = c->request->policy;
    const struct fp8q_evidence_eval *e = &c->evidence->eval;
    double var = e->top1 * (1 - e->top1) / (double)e->tokens;
    if (!isnan(p->top1_min)) {
        if (isnan(e->top1))
            FP8Q_TRY(add_unmeasured(c, "eval.top1", true, "top-1 agreement was not measured"));
        else
            FP8Q_TRY(add_limit(c, "eval.top1", "share of changed first choices", 1 - e->top1,
                               sqrt(var), 1 - p->top1_min, "normal, over tokens"));
    }
    if (isnan(p->top1_drop) || !c->baseline || isnan(e->top1) || isnan(c->baseline->eval.top1))
        return FP8Q_OK;
    const struct fp8q_evidence_eval *b = &c->baseline->eval;
    var += b->top1 * (1 - b->top1) / (double)b->tokens;
    return add_limit(c, "eval.top1-vs-baseline", "top-1 agreement lost against plain rounding",
                     b->top1 - e->top1, sqrt(var), p->top1_drop, "normal, runs independent");
}

static int check_figures(const struct eval_check *c)
{
    const struct fp8q_policy *p = c->request->policy;
    const struct fp8q_evidence_eval *e = &c->evidence->eval;
    if (e->tokens < p->min_tokens) {
        struct fp8q_gate_check check = fp8q_gate_check_of(1, FP8Q_VERDICT_INCONCLUSIVE);
        check.n = e->tokens;
        check.n_needed = p->min_tokens;
        return fp8q_gate_add(c->gate, check, c->err, "eval.tokens",
                             "%llu tokens were scored, the policy asks for %llu",
                             (unsigned long long)e->tokens, (unsigned long long)p->min_tokens);
    }
    if (!isnan(p->kld_max))
        FP8Q_TRY(
            add_limit(c, "eval.kld", "KLD", e->kld, e->kld_se, p->kld_max, "normal, over samples"));
    FP8Q_TRY(check_baseline(c));
    FP8Q_TRY(check_floor(c));
    FP8Q_TRY(check_top1(c));
    if (!isnan(p->delta_ln_ppl_max) && isnan(e->delta_ln_ppl))
        return add_unmeasured(c, "eval.ppl", true, "perplexity was not measured");
    if (!isnan(p->delta_ln_ppl_max))
        return add_limit(c, "eval.ppl", "change of ln PPL", e->delta_ln_ppl, NONE,
                         p->delta_ln_ppl_max, NULL);
    return FP8Q_OK;
}

/* Some limit on the KLD must have been applied: evidence that nothing could be held against is
 * none.  */
static int check_any_limit(const struct eval_check *c, size_t first)
{
    for (size_t i = first; i < c->gate->n_checks; i++)
        if (strncmp(c->gate->checks[i].id, "eval.", 5) == 0 &&
            c->gate->checks[i].verdict != FP8Q_VERDICT_SKIPPED)
            return FP8Q_OK;
    return add_unmeasured(
        c, "eval.limits", true,
        "no limit could be applied: give --baseline, or evidence of eval --decompose");
}

/* ---- baselines ----------------------------------------------------------------------------- */

/* The baseline for @e: same source, inputs and treatment of activations.  */
static const struct fp8q_evidence *find_baseline(const struct fp8q_gate_request *r,
                                                 const struct fp8q_evidence *e)
{
    for (size_t i = 0; i < r->n_baselines; i++) {
        const struct fp8q_evidence *b = &r->baselines[i];
        if (b->has_eval && b->source.known && b->inputs.known && e->inputs.known &&
            b->source.crc32 == e->source.crc32 && b->inputs.crc32 == e->inputs.crc32 &&
            strcmp(b->eval.acts, e->eval.acts) == 0)
            return b;
    }
    return NULL;
}

static int check_baseline_use(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                              struct fp8q_error *err)
{
    for (size_t i = 0; i < r->n_baselines; i++) {
        struct fp8q_shown shown;
        bool used = false;
        for (size_t j = 0; j < r->n_evidence; j++)
            used = used || find_baseline(r, &r->evidence[j]) == &r->baselines[i];
        if (!used)
            FP8Q_TRY(fp8q_gate_add(gate, fp8q_gate_check_of(1, FP8Q_VERDICT_FOREIGN), err,
                                   "baseline",
                                   "%s: no evidence has its source, inputs and activations",
                                   fp8q_show(&shown, r->baselines[i].path)));
    }
    return FP8Q_OK;
}

/* ---- tier 1 -------------------------------------------------------------------------------- */

/* The figures of the row that the policy judges, as if they were those of the output.  Only the KLD
 * is measured for it.  */
static struct fp8q_evidence requantized(const struct fp8q_evidence *e)
{
    struct fp8q_evidence copy = *e;
    copy.eval.kld = e->eval.requant_kld;
    copy.eval.kld_se = e->eval.kld_se * e->eval.requant_kld / e->eval.kld;
    copy.eval.top1 = copy.eval.delta_ln_ppl = NONE;
    copy.eval.n_samples = 0;
    return copy;
}

static int check_row(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                     const struct fp8q_evidence *e, struct fp8q_error *err)
{
    size_t first = gate->n_checks;
    const struct eval_check check = {.gate = gate,
                                     .request = r,
                                     .evidence = e,
                                     .baseline = find_baseline(r, e),
                                     .z = fp8q_normal_quantile(r->policy->confidence),
                                     .err = err};
    FP8Q_TRY(check_figures(&check));
    return check_any_limit(&check, first);
}

static int check_evidence(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                          const struct fp8q_evidence *e, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *reason;
    enum fp8q_verdict verdict = judge_evidence(e, r, &reason);
    if (verdict != FP8Q_VERDICT_PASS)
        return fp8q_gate_add(gate, fp8q_gate_check_of(1, verdict), err, "eval", "%s: %s",
                             fp8q_show(&shown, e->path), reason);
    FP8Q_TRY(fp8q_gate_add(gate, fp8q_gate_check_of(1, verdict), err, "eval",
                           "%s is about this checkpoint", fp8q_show(&shown, e->path)));
    if (!r->policy->requantized)
        return check_row(gate, r, e, err);
    if (isnan(e->eval.requant_kld))
        return fp8q_gate_add(gate, fp8q_gate_check_of(1, FP8Q_VERDICT_MISSING), err,
                             "eval.requantized",
                             "requantized scales were not measured (eval --requant-ue8m0)");
    const struct fp8q_evidence row = requantized(e);
    return check_row(gate, r, &row, err);
}

int fp8q_gate_eval(struct fp8q_gate *gate, const struct fp8q_gate_request *request,
                   struct fp8q_error *err)
{
    if (request->n_evidence == 0 && request->policy->eval_required)
        FP8Q_TRY(fp8q_gate_add(gate, fp8q_gate_check_of(1, FP8Q_VERDICT_MISSING), err, "eval",
                               "no evidence of an eval was given (--evidence)"));
    for (size_t i = 0; i < request->n_evidence; i++)
        FP8Q_TRY(check_evidence(gate, request, &request->evidence[i], err));
    return check_baseline_use(gate, request, err);
}
