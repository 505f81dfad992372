/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.h - one decision about a checkpoint from verify, eval evidence and task results.
 *
 * Pure: it reads no file and no clock.  The caller brings the facts (what verify said,
 * fingerprints, evidence already read, the time) and a policy; gate turns them into checks, each
 * with a verdict of its own. docs/reference/policy.md describes every check.
 */
#ifndef FP8Q_GATE_H
#define FP8Q_GATE_H

#include "gate/evidence.h"
#include "gate/policy.h"
#include "gate/tasks.h"

/* Worse ones later: the verdict of the whole is that of its worst check.  */
enum fp8q_verdict {
    FP8Q_VERDICT_PASS,
    FP8Q_VERDICT_SKIPPED, /* not asked for, or could not be asked and need not be */
    FP8Q_VERDICT_INCONCLUSIVE,
    FP8Q_VERDICT_MISSING,
    FP8Q_VERDICT_STALE,   /* evidence of something older: bytes, stack or date differ */
    FP8Q_VERDICT_FOREIGN, /* evidence of something else */
    FP8Q_VERDICT_FAIL,
    FP8Q_VERDICT_WIDENED /* more is quantized than the lock allows */
};
const char *fp8q_verdict_name(enum fp8q_verdict verdict);
/* 0; FP8Q_E_EVIDENCE (inconclusive, missing, stale, foreign), FP8Q_E_MISMATCH (fail), FP8Q_E_POLICY
 * (widened).  */
int fp8q_verdict_status(enum fp8q_verdict verdict);

/* NAN: does not apply.  */
struct fp8q_gate_check {
    char *id, *message; /* owned; id: "eval.kld-vs-floor" */
    const char *method; /* static: how @low and @high were found; NULL: point comparison */
    unsigned tier;      /* 0 verify, 1 eval, 2 tasks */
    enum fp8q_verdict verdict;
    double observed, limit, low, high;
    uint64_t n, n_needed; /* items or tokens; needed: that would decide, 0: unknown or none */
};

/* T0 as the caller found it.  Borrowed.  */
struct fp8q_gate_facts {
    int verify_status; /* of fp8q_verify(): 0 or FP8Q_E_MISMATCH; other failures end the command */
    bool verify_ran;
    const char *verify_message; /* NULL if it passed */
    const char *verify_warning; /* the first warning of it; NULL: none */
    bool lock_given;
    size_t n_widened, n_narrowed;
    const char *first_widened; /* a name quantized beyond the lock */

    struct fp8q_fingerprint output; /* of the checkpoint that is judged */
    struct fp8q_fingerprint config; /* of its config.json; not known: it has none */
    struct fp8q_fingerprint source; /* as its manifest names it, or of --source */
    bool source_config_differs;     /* the source's config.json describes another network */
    bool is_planned;                /* verify had a manifest or the source to compare with */
    /* The source or a dequantized copy, where a fallback was looked for.  */
    bool fallback_given, fallback_matches;
};

struct fp8q_gate_task {
    const char *name;
    const struct fp8q_task_result *base, *quant;
    bool names_metric; /* its check is called after the metric too: not the task's first one */
};

struct fp8q_gate_request {
    const struct fp8q_policy *policy;
    struct fp8q_gate_facts facts;
    const struct fp8q_evidence *evidence;
    size_t n_evidence;
    const struct fp8q_evidence *baselines; /* eval of plain rounding of the same source */
    size_t n_baselines;
    const struct fp8q_gate_task *tasks;
    size_t n_tasks;
    const char *stack; /* NULL: not stated */
    int64_t now;       /* seconds since 1970 */
};

struct fp8q_gate {
    struct fp8q_gate_check *checks; /* in the order of tiers */
    size_t n_checks, cap;
    enum fp8q_verdict verdict;
};

/* FP8Q_OK whatever the verdict; only FP8Q_E_NOMEM fails.  On failure *@gate_out is zeroed; else
 * fp8q_gate_reset().  */
int fp8q_gate(const struct fp8q_gate_request *request, struct fp8q_gate *gate_out,
              struct fp8q_error *err);
void fp8q_gate_reset(struct fp8q_gate *gate);

#endif
