/* SPDX-License-Identifier: Apache-2.0
 *
 * verification.c - the handle of a proof: its checks and what they found.
 */
#include <stdlib.h>

#include "api/internal.h"
#include "base/caller.h"
#include "verify/verify.h"

struct fp8q_verification {
    struct fp8q_report report;
    struct fp8q_verification_info info;
};

int fp8q_verification_open(const struct fp8q_verify_request *request, const struct fp8q_run *run,
                           struct fp8q_verification **verification_out,
                           struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_verify_request r = {0};
    struct fp8q_manner manner;
    FP8Q_TRY(fp8q_require(verification_out, "verification_out", err));
    *verification_out = NULL;
    FP8Q_TRY(fp8q_struct_copy(&r, sizeof(r), request, "verify_request", err));
    FP8Q_TRY(fp8q_require(r.path, "verify_request.path", err));
    FP8Q_TRY(fp8q_manner_of(run, &manner, err));

    struct fp8q_verification *v = calloc(1, sizeof(*v));
    if (!v)
        return fp8q_fail_nomem(err);
    const struct fp8q_verify_options options = {.source = r.source,
                                                .lock_file = r.lock,
                                                .calibration = r.calibration,
                                                .strict = r.strict,
                                                .threads = manner.threads,
                                                .kernel = manner.kernel,
                                                .watch = &manner.watch};
    int status = fp8q_verify(r.path, &options, &v->report, warnings, err);

    v->info = (struct fp8q_verification_info){.n_checks = v->report.n_checks,
                                              .n_failed = v->report.n_failed,
                                              .n_warned = v->report.n_warned,
                                              .has_manifest = v->report.ours,
                                              .bound_factor = v->report.bound_factor,
                                              .n_sqnr = v->report.n_sqnr,
                                              .sqnr_mean = v->report.sqnr_mean};
    /* Of a proof that failed too: its checks say why.  */
    *verification_out = v;
    return status;
}

void fp8q_verification_close(struct fp8q_verification *v)
{
    if (!v)
        return;
    fp8q_report_reset(&v->report);
    free(v);
}

const struct fp8q_verification_info *fp8q_verification_info(const struct fp8q_verification *v)
{
    return &v->info;
}

const struct fp8q_check *fp8q_verification_check(const struct fp8q_verification *v, size_t index)
{
    return index < v->info.n_checks ? &v->report.checks[index] : NULL;
}

bool fp8q_verification_sqnr(const struct fp8q_verification *v, size_t index, const char **name_out,
                            double *db_out)
{
    *name_out = NULL;
    if (index >= v->info.n_sqnr)
        return false;

    *name_out = v->report.sqnr[index].name;
    *db_out = v->report.sqnr[index].db;
    return true;
}

bool fp8q_verification_finding(const struct fp8q_verification *v, size_t check, size_t index,
                               const char **where_out, const char **observed_out)
{
    *where_out = *observed_out = NULL;
    if (check >= v->info.n_checks || index >= v->report.findings[check].n_items)
        return false;

    *where_out = v->report.findings[check].items[index].where;
    *observed_out = v->report.findings[check].items[index].observed;
    return true;
}

uint64_t fp8q_verification_count(const struct fp8q_verification *v, size_t check)
{
    return check < v->info.n_checks ? v->report.findings[check].n_found : 0;
}
