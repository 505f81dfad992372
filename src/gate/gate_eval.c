/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_eval.c - tier 1: is the evidence about these bytes, and about the question that the policy
 * asks; only then are its figures held against limits (gate_limits.c).
 */
#include <math.h>
#include <string.h>

#include "gate/internal.h"

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

/* ---- tier 1 -------------------------------------------------------------------------------- */

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
    return fp8q_gate_limits(gate, r, e, find_baseline(r, e), err);
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
