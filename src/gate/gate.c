/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.c - verdicts, the checks of tier 0, and the whole.
 */
#include "gate/gate.h"

#include <stdlib.h>
#include <string.h>

#include "gate/internal.h"

const char *fp8q_verdict_name(enum fp8q_verdict verdict)
{
    static const char *const names[] = {"pass",  "skipped", "inconclusive", "missing",
                                        "stale", "foreign", "fail",         "widened"};
    return names[verdict];
}

int fp8q_verdict_status(enum fp8q_verdict verdict)
{
    switch (verdict) {
    case FP8Q_VERDICT_PASS:
    case FP8Q_VERDICT_SKIPPED:
        return FP8Q_OK;
    case FP8Q_VERDICT_INCONCLUSIVE:
    case FP8Q_VERDICT_MISSING:
    case FP8Q_VERDICT_STALE:
    case FP8Q_VERDICT_FOREIGN:
        return FP8Q_E_EVIDENCE;
    case FP8Q_VERDICT_FAIL:
        return FP8Q_E_MISMATCH;
    case FP8Q_VERDICT_WIDENED:
        return FP8Q_E_POLICY;
    }
    return FP8Q_E_MISMATCH;
}

/* ---- tier 0 -------------------------------------------------------------------------------- */

static int add(struct fp8q_gate *gate, enum fp8q_verdict verdict, struct fp8q_error *err,
               const char *id, const char *message)
{
    return fp8q_gate_add(gate, fp8q_gate_check_of(0, verdict), err, id, "%s", message);
}

/* What is not there: missing where the policy demands it.  */
static enum fp8q_verdict absent(bool required)
{
    return required ? FP8Q_VERDICT_MISSING : FP8Q_VERDICT_SKIPPED;
}

static int check_verify(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                        struct fp8q_error *err)
{
    const struct fp8q_gate_facts *f = &r->facts;
    const char *proved = f->is_planned ? "every byte as planned"
                                       : "the structure is sound; without manifest and --source "
                                         "no value can be checked";

    if (!f->verify_ran)
        return add(gate, absent(r->policy->verify_required), err, "verify",
                   "the checkpoint was not verified");
    if (f->verify_status != FP8Q_OK)
        return add(gate, FP8Q_VERDICT_FAIL, err, "verify",
                   f->verify_message ? f->verify_message : "verify found differences");
    /* Whether warnings are failures was decided in verify, by the policy (verify.strict).  */
    if (f->verify_warning)
        return fp8q_gate_add(gate, fp8q_gate_check_of(0, FP8Q_VERDICT_PASS), err, "verify",
                             "%s; warning: %s", proved, f->verify_warning);
    return add(gate, FP8Q_VERDICT_PASS, err, "verify", proved);
}

/* Only where it differs is there something to say.  */
static int check_config(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                        struct fp8q_error *err)
{
    if (!r->facts.source_config_differs)
        return FP8Q_OK;
    return add(gate, FP8Q_VERDICT_FAIL, err, "config",
               "config.json describes another network than that of the source");
}

static int check_lock(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                      struct fp8q_error *err)
{
    const struct fp8q_gate_facts *f = &r->facts;
    struct fp8q_shown shown;

    if (!f->lock_given)
        return add(gate, absent(r->policy->lock_required), err, "lock",
                   "no lock file was given (--lock)");
    if (f->n_widened > 0)
        return fp8q_gate_add(gate, fp8q_gate_check_of(0, FP8Q_VERDICT_WIDENED), err, "lock",
                             "%zu quantized tensor%s beyond the lock, the first is \"%s\"",
                             f->n_widened, fp8q_plural(f->n_widened),
                             fp8q_show(&shown, f->first_widened));
    /* Fewer than the lock allows is no risk to accuracy: it passes, with a word.  */
    return fp8q_gate_add(gate, fp8q_gate_check_of(0, FP8Q_VERDICT_PASS), err, "lock",
                         "the quantized set is within the lock%s",
                         f->n_narrowed ? "; some that it allows are not quantized" : "");
}

static int check_fallback(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                          struct fp8q_error *err)
{
    const struct fp8q_gate_facts *f = &r->facts;
    bool required = r->policy->fallback_required;

    if (!f->fallback_given && !required)
        return FP8Q_OK;
    if (!f->fallback_given)
        return add(gate, FP8Q_VERDICT_MISSING, err, "fallback",
                   "the policy requires the source or a dequantized copy (--source)");
    if (f->fallback_matches)
        return add(gate, FP8Q_VERDICT_PASS, err, "fallback",
                   "the source exists and is the one that the checkpoint was made of");
    /* Given without being asked for, and wrong: whoever gave it relies on it.  */
    return add(gate, required ? FP8Q_VERDICT_FAIL : FP8Q_VERDICT_FOREIGN, err, "fallback",
               "what --source names is not what the checkpoint was made of");
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* A policy that asks for nothing passes nothing.  */
static int check_any(struct fp8q_gate *gate, struct fp8q_error *err)
{
    for (size_t i = 0; i < gate->n_checks; i++)
        if (gate->checks[i].verdict != FP8Q_VERDICT_SKIPPED &&
            strcmp(gate->checks[i].id, "fallback") != 0)
            return FP8Q_OK;
    return add(gate, FP8Q_VERDICT_MISSING, err, "gate",
               "nothing was judged: the policy requires nothing and nothing was given");
}

static int run(struct fp8q_gate *gate, const struct fp8q_gate_request *request,
               struct fp8q_error *err)
{
    /* What is found wrong is a check and not a status: all checks run, and one report has it
     * all.  */
    FP8Q_TRY(check_verify(gate, request, err));
    FP8Q_TRY(check_config(gate, request, err));
    FP8Q_TRY(check_lock(gate, request, err));
    FP8Q_TRY(check_fallback(gate, request, err));
    FP8Q_TRY(fp8q_gate_eval(gate, request, err));
    FP8Q_TRY(fp8q_gate_tasks(gate, request, err));
    return check_any(gate, err);
}

int fp8q_gate(const struct fp8q_gate_request *request, struct fp8q_gate *gate_out,
              struct fp8q_error *err)
{
    *gate_out = (struct fp8q_gate){0};
    int status = run(gate_out, request, err);
    if (status != FP8Q_OK)
        fp8q_gate_reset(gate_out);
    return status;
}

void fp8q_gate_reset(struct fp8q_gate *gate)
{
    for (size_t i = 0; i < gate->n_checks; i++) {
        free(gate->checks[i].id);
        free(gate->checks[i].message);
    }
    free(gate->checks);
    *gate = (struct fp8q_gate){0};
}
