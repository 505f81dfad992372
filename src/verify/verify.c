/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c - the order of the checks.
 */
#include "verify/internal.h"

#include "plan/lock.h"

/* A damaged manifest is a failed check, not an error: the rest is still worth looking at.  */
static int read_manifest(struct fp8q_report *report, struct fp8q_error *err)
{
    struct fp8q_error found = {0};
    struct fp8q_findings f = {.id = "manifest",
                              .status = FP8Q_CHECK_FAIL,
                              .limit = "there, complete, its own CRC-32 right",
                              .n_looked_at = 1};

    /* Into an error of its own, of which a finding is made below.  */
    int status = fp8q_manifest_read(report->ckpt, &report->manifest, &report->ours, &found);
    if (status == FP8Q_E_NOMEM || status == FP8Q_E_IO) {
        if (err)
            *err = found;
        return status;
    }

    if (status != FP8Q_OK) {
        /* What a damaged manifest says counts for nothing.  */
        report->ours = false;
        fp8q_findings_add(&f, 0, report->ckpt->path, "%s", found.message);
    } else if (!report->ours) {
        f.status = FP8Q_CHECK_WARN;
        fp8q_findings_add(&f, 0, report->ckpt->path, "no manifest: checksums were not checked");
    }
    return fp8q_report_add(report, &f, err);
}

/* Every difference is a finding, however many: who reviews a lock wants to see all of it.  */
static int check_lock(struct fp8q_report *report, const char *path, size_t *n_beyond_out,
                      struct fp8q_error *err)
{
    static const struct {
        const char *id, *limit;
        enum fp8q_check_status status;
    } checks[FP8Q_LOCK_KINDS] = {
        [FP8Q_LOCK_ADDED] = {"lock", "nothing quantized beyond the lock", FP8Q_CHECK_FAIL},
        [FP8Q_LOCK_SCHEME] = {"lock-scheme", "scaled as the lock says", FP8Q_CHECK_FAIL},
        [FP8Q_LOCK_SHAPE] = {"lock-shape", "of the shape in the lock", FP8Q_CHECK_FAIL},
        [FP8Q_LOCK_MISSING] = {"lock-missing", "all of the lock quantized", FP8Q_CHECK_WARN}};
    struct fp8q_findings findings[FP8Q_LOCK_KINDS], *all[FP8Q_LOCK_KINDS];
    struct fp8q_lock_result r;
    int status = fp8q_lock_compare(path, report->ckpt, &r, err);

    /* After a failure too, since fp8q_report_add_all() releases them all.  */
    for (size_t k = 0; k < FP8Q_LOCK_KINDS; k++) {
        all[k] = &findings[k];
        findings[k] = (struct fp8q_findings){.id = checks[k].id,
                                             .status = checks[k].status,
                                             .limit = checks[k].limit,
                                             .n_looked_at = 1,
                                             .keeps_all = true};
    }

    for (size_t i = 0; i < r.n_items; i++)
        fp8q_findings_add(&findings[r.items[i].kind], i, r.items[i].name, "%s",
                          r.items[i].observed);

    *n_beyond_out = r.n_beyond;
    fp8q_lock_result_reset(&r);
    return fp8q_report_add_all(report, status, all, FP8Q_LOCK_KINDS, err);
}

/* The comparison with the source reads every byte of the output, and the checks of these bytes by
 * themselves look on; yet they are what a reader wants to see first, even when the source cannot be
 * compared.  */
static int verify_bytes(struct fp8q_report *report, const struct fp8q_verify_options *o,
                        struct fp8q_error *err)
{
    struct fp8q_payload *payload;
    struct fp8q_error why = {0};
    FP8Q_TRY(fp8q_payload_open(report, o, &payload, err));

    size_t first = report->n_checks;
    int compared = FP8Q_OK;
    /* Kept in @why until the payload was looked at: a failure there is the one that is told.  */
    if (o->source)
        compared = fp8q_ckpt_open(o->source, &report->source, NULL, &why);
    if (o->source && compared == FP8Q_OK)
        compared = fp8q_verify_source(report, o, payload, &why);

    size_t of_source = report->n_checks - first;
    int status = FP8Q_OK;

    /* Whoever cancelled does not want to wait for the rest.  */
    if (compared != FP8Q_E_CANCELLED)
        status = fp8q_payload_finish(payload, err);

    if (status == FP8Q_OK)
        fp8q_report_put_before(report, of_source, report->n_checks - first - of_source);
    fp8q_payload_close(payload);

    if (status == FP8Q_OK && compared != FP8Q_OK) {
        if (err)
            *err = why;
        return compared;
    }
    return status;
}

/* The first check that makes the whole fail.  */
static int judge(const struct fp8q_report *report, const char *path, bool strict,
                 struct fp8q_error *err)
{
    for (size_t i = 0; i < report->n_checks; i++) {
        const struct fp8q_check *c = &report->checks[i];
        if (c->status == FP8Q_CHECK_FAIL || (strict && c->status == FP8Q_CHECK_WARN))
            return fp8q_fail(err, FP8Q_E_MISMATCH, c->id, "%s: %s: %s%s%s", path, c->id,
                             c->observed, c->where[0] ? ", " : "", c->where);
    }
    return FP8Q_OK;
}

/* Opens @path, and keeps what opening warned of in @of_opening too: some of it is a defect in an
 * output, whether or not the caller wants to hear warnings.  */
static int open_checkpoint(const char *path, struct fp8q_report *report,
                           struct fp8q_warnings *of_opening, struct fp8q_warnings *warnings,
                           struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_ckpt_open(path, &report->ckpt, of_opening, err));
    for (size_t i = 0; i < of_opening->count; i++)
        FP8Q_TRY(
            fp8q_warn(warnings, err, of_opening->items[i].id, "%s", of_opening->items[i].message));
    return FP8Q_OK;
}

static int check_all(const char *path, const struct fp8q_verify_options *o,
                     struct fp8q_report *report, struct fp8q_warnings *of_opening,
                     struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    size_t n_beyond = 0;

    /* This is the order of the report.  The manifest comes early: the checks behind it are stricter
     * on what fp8q wrote.  */
    FP8Q_TRY(open_checkpoint(path, report, of_opening, warnings, err));
    FP8Q_TRY(read_manifest(report, err));
    FP8Q_TRY(fp8q_verify_structure(report, of_opening, err));
    FP8Q_TRY(fp8q_verify_config(report, err));
    if (report->ours)
        FP8Q_TRY(fp8q_verify_written(report, err));
    FP8Q_TRY(verify_bytes(report, o, err));

    if (o->lock_file)
        FP8Q_TRY(check_lock(report, o->lock_file, &n_beyond, err));

    /* Before the verdict of the checks: a lock that was widened has a status of its own.  */
    if (n_beyond)
        return fp8q_fail(err, FP8Q_E_POLICY, "lock-widened",
                         "%s: %zu tensor%s quantized in another way than %s allows", path, n_beyond,
                         n_beyond == 1 ? " is" : "s are", o->lock_file);
    return judge(report, path, o->strict, err);
}

int fp8q_verify(const char *path, const struct fp8q_verify_options *o, struct fp8q_report *report,
                struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_warnings of_opening = {0};
    *report = (struct fp8q_report){0};
    int status = check_all(path, o, report, &of_opening, warnings, err);
    fp8q_warnings_reset(&of_opening);
    return status;
}
