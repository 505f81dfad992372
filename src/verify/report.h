/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h - what verify found: checks, and under each check its findings.
 *
 * A check is one question that is asked of many things ("is each tensor's CRC-32 as written?").  It
 * passes if nothing was found.  Findings are kept in an order that does not depend on the threads,
 * so that two runs over the same files say the same.
 */
#ifndef FP8Q_VERIFY_REPORT_H
#define FP8Q_VERIFY_REPORT_H

#include "base/error.h"
#include "plan/manifest.h"

/* One thing that is wrong.  Both texts are owned, and safe to print.  */
struct fp8q_finding {
    uint64_t rank; /* low ranks come first; of equal ones the earlier */
    char *where;   /* a tensor, a file, or "" */
    char *observed;
};

/* A check in the making.  Set @id, @status and @limit, count what is looked at, add findings, then
 * hand it to fp8q_report_add().  Not locked.  */
struct fp8q_findings {
    const char *id;
    enum fp8q_check_status status; /* of the check if anything is found */
    const char *limit;             /* what was expected */
    uint64_t n_looked_at, n_found;
    struct fp8q_finding *items; /* those with the lowest ranks, sorted */
    size_t n_items, cap;
    bool keeps_all; /* else the first FP8Q_MOST_FINDINGS are kept, and the rest is counted */
    bool failed;    /* no memory for one */
};
#define FP8Q_MOST_FINDINGS 1000

/* Notes that @where (not shown yet: any bytes) is wrong in the way that @fmt says.  */
void fp8q_findings_add(struct fp8q_findings *f, uint64_t rank, const char *where, const char *fmt,
                       ...) FP8Q_PRINTF(4, 5);
void fp8q_findings_reset(struct fp8q_findings *f);

struct fp8q_sqnr {
    const char *name; /* borrowed from the plan */
    double db;        /* infinite if exact */
};

struct fp8q_report {
    struct fp8q_check *checks;
    struct fp8q_findings *findings; /* of each check */
    size_t n_checks, n_failed, n_warned, cap_checks, cap_findings;

    struct fp8q_sqnr *sqnr; /* with a source: quantized tensors, worst first */
    size_t n_sqnr;
    double sqnr_mean;    /* of those that are not exact */
    double bound_factor; /* 1, or 2 for weights that another tool quantized; 0 without a source */

    bool ours; /* a manifest was found, and it is whole */
    struct fp8q_manifest manifest;
    struct fp8q_ckpt *ckpt, *source; /* owned */
    struct fp8q_plan *plan;          /* owned; with a source */
};

/* Turns @findings into a check of the report, which takes its texts over (also on failure).  */
int fp8q_report_add(struct fp8q_report *report, struct fp8q_findings *findings,
                    struct fp8q_error *err);
/* The same for @n of them, unless @status is a failure already: which it returns.  Releases all. */
int fp8q_report_add_all(struct fp8q_report *report, int status,
                        struct fp8q_findings *const *findings, size_t n, struct fp8q_error *err);
/* The last @n checks come before the @n_before in front of them.  */
void fp8q_report_put_before(struct fp8q_report *report, size_t n_before, size_t n);
void fp8q_report_reset(struct fp8q_report *report);

#endif
