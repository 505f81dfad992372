/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c - the order of the checks and their report.
 */
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/lock.h"
#include "base/mem.h"

void fp8q_finding_add(struct fp8q_finding *f, uint64_t rank, const char *where, const char *fmt,
                      ...)
{
    struct fp8q_shown shown;
    if (f->n_found++ > 0 && rank >= f->first_rank)
        return;
    f->first_rank = rank;
    snprintf(f->where, sizeof(f->where), "%s", fp8q_show(&shown, where));
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->observed, sizeof(f->observed), fmt, args);
    va_end(args);
}

int fp8q_verify_report_add(struct fp8q_verify_report *report, const struct fp8q_finding *f,
                           struct fp8q_error *err)
{
    struct fp8q_check *checks =
        realloc(report->checks, (report->n_checks + 1) * sizeof(*report->checks));
    if (!checks)
        return fp8q_fail_nomem(err);
    report->checks = checks;
    struct fp8q_check *c = &checks[report->n_checks++];
    *c = (struct fp8q_check){.id = f->id, .status = f->n_found ? f->status : FP8Q_CHECK_PASS};
    snprintf(c->limit, sizeof(c->limit), "%s", f->limit ? f->limit : "");
    memcpy(c->where, f->where, sizeof(c->where));
    if (f->n_found == 0)
        snprintf(c->observed, sizeof(c->observed), "%llu checked",
                 (unsigned long long)f->n_looked_at);
    else if (f->n_found == 1)
        memcpy(c->observed, f->observed, sizeof(c->observed));
    else
        snprintf(c->observed, sizeof(c->observed), "%.200s (and %llu more)", f->observed,
                 (unsigned long long)(f->n_found - 1));
    report->n_failed += c->status == FP8Q_CHECK_FAIL;
    report->n_warned += c->status == FP8Q_CHECK_WARN;
    return FP8Q_OK;
}

void fp8q_verify_report_reset(struct fp8q_verify_report *report)
{
    free(report->checks);
    free(report->sqnr);
    fp8q_manifest_reset(&report->manifest);
    fp8q_plan_destroy(report->plan);
    fp8q_ckpt_close(report->source);
    fp8q_ckpt_close(report->ckpt);
    *report = (struct fp8q_verify_report){0};
}

/* A damaged manifest is a failed check, not an error: the rest is still worth looking at.  */
static int read_manifest(struct fp8q_verify_report *report, struct fp8q_error *err)
{
    struct fp8q_error found = {0};
    struct fp8q_finding f = {
        .id = "manifest", .status = FP8Q_CHECK_FAIL, .limit = "complete, its own CRC-32 right"};
    int status = fp8q_manifest_read(report->ckpt, &report->manifest, &report->ours, &found);
    if (status == FP8Q_E_NOMEM || status == FP8Q_E_IO) {
        if (err)
            *err = found;
        return status;
    }
    f.n_looked_at = report->ours;
    if (status != FP8Q_OK) {
        report->ours = false;
        fp8q_finding_add(&f, 0, report->ckpt->path, "%s", found.message);
    }
    return fp8q_verify_report_add(report, &f, err);
}

static int check_lock(struct fp8q_verify_report *report, const char *path, bool *widened_out,
                      struct fp8q_error *err)
{
    struct fp8q_lock_result r;
    struct fp8q_finding f = {.id = "lock",
                             .status = FP8Q_CHECK_FAIL,
                             .limit = "nothing quantized beyond the lock",
                             .n_looked_at = 1};
    FP8Q_TRY(fp8q_lock_compare(path, report->ckpt, &r, err));
    *widened_out = r.n_added > 0;
    if (r.n_added)
        fp8q_finding_add(&f, 0, r.first_added, "%zu quantized tensors are not in the lock",
                         r.n_added);
    FP8Q_TRY(fp8q_verify_report_add(report, &f, err));
    f = (struct fp8q_finding){.id = "lock-missing",
                              .status = FP8Q_CHECK_WARN,
                              .limit = "all of the lock quantized",
                              .n_looked_at = 1};
    if (r.n_missing)
        fp8q_finding_add(&f, 0, r.first_missing, "%zu tensors of the lock are not quantized",
                         r.n_missing);
    return fp8q_verify_report_add(report, &f, err);
}

/* The last @n of the report's checks come before the @n_before in front of them.  */
static void put_before(struct fp8q_verify_report *report, size_t n_before, size_t n)
{
    struct fp8q_check *all = report->checks + report->n_checks - n_before - n, last;
    for (size_t i = 0; i < n; i++) {
        last = all[n_before + i];
        memmove(all + i + 1, all + i, n_before * sizeof(*all));
        all[i] = last;
    }
}

/* The comparison with the source reads every byte of the output, and the checks of these bytes by
 * themselves look on; yet they are what a reader wants to see first, even when the source cannot be
 * compared.  */
static int verify_bytes(struct fp8q_verify_report *report, const struct fp8q_verify_options *o,
                        struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_payload *payload;
    struct fp8q_error why = {0};
    FP8Q_TRY(fp8q_payload_open(report, o, &payload, err));
    size_t first = report->n_checks;
    int compared = FP8Q_OK;
    if (o->source)
        compared = fp8q_ckpt_open(o->source, &report->source, NULL, &why);
    if (o->source && compared == FP8Q_OK)
        compared = fp8q_verify_source(report, o, payload, warnings, &why);
    size_t of_source = report->n_checks - first;
    int status = compared == FP8Q_E_CANCELLED ? compared : fp8q_payload_finish(payload, err);
    if (status == FP8Q_OK)
        put_before(report, of_source, report->n_checks - first - of_source);
    if (compared != FP8Q_OK && err && status == compared)
        *err = why;
    fp8q_payload_close(payload);
    if (status != FP8Q_OK || compared == FP8Q_OK)
        return status;
    if (err)
        *err = why;
    return compared;
}

int fp8q_verify(const char *path, const struct fp8q_verify_options *o,
                struct fp8q_verify_report *report, struct fp8q_warnings *warnings,
                struct fp8q_error *err)
{
    bool widened = false;
    *report = (struct fp8q_verify_report){0};
    FP8Q_TRY(fp8q_ckpt_open(path, &report->ckpt, warnings, err));
    FP8Q_TRY(read_manifest(report, err));
    FP8Q_TRY(fp8q_verify_structure(report, o, warnings, err));
    FP8Q_TRY(verify_bytes(report, o, warnings, err));
    if (o->lock_file)
        FP8Q_TRY(check_lock(report, o->lock_file, &widened, err));
    if (widened)
        return fp8q_fail(err, FP8Q_E_POLICY, "lock-widened", "%s: more is quantized than %s allows",
                         path, o->lock_file);
    size_t failed = report->n_failed + (o->strict ? report->n_warned : 0);
    for (size_t i = 0; i < report->n_checks && failed; i++) {
        const struct fp8q_check *c = &report->checks[i];
        if (c->status == FP8Q_CHECK_FAIL || (o->strict && c->status == FP8Q_CHECK_WARN))
            return fp8q_fail(err, FP8Q_E_MISMATCH, c->id, "%s: %s: %s%s%s", path, c->id,
                             c->observed, c->where[0] ? ", " : "", c->where);
    }
    return FP8Q_OK;
}
