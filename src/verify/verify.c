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
    struct fp8q_findings f = {
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
        fp8q_findings_add(&f, 0, report->ckpt->path, "%s", found.message);
    }
    return fp8q_report_add(report, &f, err);
}

static int check_lock(struct fp8q_report *report, const char *path, bool *widened_out,
                      struct fp8q_error *err)
{
    struct fp8q_findings added = {.id = "lock",
                                  .status = FP8Q_CHECK_FAIL,
                                  .limit = "nothing quantized beyond the lock",
                                  .n_looked_at = 1};
    struct fp8q_findings missing = {.id = "lock-missing",
                                    .status = FP8Q_CHECK_WARN,
                                    .limit = "all of the lock quantized",
                                    .n_looked_at = 1};
    struct fp8q_findings *const all[] = {&added, &missing};
    struct fp8q_lock_result r;
    FP8Q_TRY(fp8q_lock_compare(path, report->ckpt, &r, err));

    *widened_out = r.n_added > 0;
    if (r.n_added)
        fp8q_findings_add(&added, 0, r.first_added, "%zu quantized tensors are not in the lock",
                          r.n_added);
    if (r.n_missing)
        fp8q_findings_add(&missing, 0, r.first_missing, "%zu tensors of the lock are not quantized",
                          r.n_missing);
    return fp8q_report_add_all(report, FP8Q_OK, all, 2, err);
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
    if (o->source)
        compared = fp8q_ckpt_open(o->source, &report->source, NULL, &why);
    if (o->source && compared == FP8Q_OK)
        compared = fp8q_verify_source(report, o, payload, &why);

    size_t of_source = report->n_checks - first;
    int status = FP8Q_OK;
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

int fp8q_verify(const char *path, const struct fp8q_verify_options *o, struct fp8q_report *report,
                struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    bool widened = false;
    *report = (struct fp8q_report){0};
    FP8Q_TRY(fp8q_ckpt_open(path, &report->ckpt, warnings, err));
    FP8Q_TRY(read_manifest(report, err));
    FP8Q_TRY(fp8q_verify_structure(report, warnings, err));
    FP8Q_TRY(fp8q_verify_config(report, err));
    if (report->ours)
        FP8Q_TRY(fp8q_verify_written(report, err));
    FP8Q_TRY(verify_bytes(report, o, err));
    if (o->lock_file)
        FP8Q_TRY(check_lock(report, o->lock_file, &widened, err));

    if (widened)
        return fp8q_fail(err, FP8Q_E_POLICY, "lock-widened", "%s: more is quantized than %s allows",
                         path, o->lock_file);
    return judge(report, path, o->strict, err);
}
