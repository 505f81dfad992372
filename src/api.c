/* SPDX-License-Identifier: Apache-2.0
 *
 * api.c - the public calls, each a few stages in a row.
 */
#include <stdlib.h>

#include "convert/convert.h"
#include "base/pool.h"
#include "verify/verify.h"

static int pick_kernel(const struct fp8q_run *run, const struct fp8q_kernel **kernel_out,
                       struct fp8q_error *err)
{
    *kernel_out = fp8q_kernel_select(run ? run->kernel : NULL);
    return *kernel_out ? FP8Q_OK
                       : fp8q_fail(err, FP8Q_E_ARG, "kernel", "no such kernel on this CPU: %s",
                                   run->kernel);
}

static unsigned threads_of(const struct fp8q_run *run)
{
    return run && run->threads ? run->threads : fp8q_cpu_count();
}

static int convert(const struct fp8q_ckpt *ckpt, const struct fp8q_ckpt *like,
                   const struct fp8q_request *request, const char *destination,
                   const struct fp8q_run *run, struct fp8q_result *result,
                   struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_convert_options o = {.destination = destination, .request = request};
    struct fp8q_plan_options options = fp8q_request_options(request, like);
    struct fp8q_convert_result done = {.complete = false};
    struct fp8q_plan *plan = NULL;
    options.threads = threads_of(run);
    options.max_memory = run ? run->max_memory : 0;
    o.overwrite = run && run->overwrite;
    o.resume = run && run->resume;
    FP8Q_TRY(pick_kernel(run, &o.kernel, err));
    int status = fp8q_plan_create(ckpt, &options, &plan, warnings, err);
    if (status == FP8Q_OK)
        status = fp8q_plan_check(plan, err);
    if (status == FP8Q_OK)
        status = fp8q_convert(plan, &o, &done, warnings, err);
    if (status == FP8Q_OK)
        *result = (struct fp8q_result){.n_quantized = plan->selection.n_quantize,
                                       .n_kept = ckpt->n_tensors - plan->selection.n_quantize,
                                       .source_bytes = plan->source_bytes,
                                       .output_bytes = plan->output_bytes,
                                       .source_fingerprint = done.finish.source_fingerprint,
                                       .output_fingerprint = done.finish.output_fingerprint};
    fp8q_plan_destroy(plan);
    return status;
}

int fp8q_convert_checkpoint(const struct fp8q_request *request, const char *destination,
                            const struct fp8q_run *run, struct fp8q_result *result_out,
                            struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_ckpt *ckpt = NULL, *like = NULL;
    struct fp8q_result result = {.n_quantized = 0};
    int status = fp8q_ckpt_open(request->source, &ckpt, warnings, err);
    if (status == FP8Q_OK && request->like)
        status = fp8q_ckpt_open(request->like, &like, warnings, err);
    if (status == FP8Q_OK)
        status = convert(ckpt, like, request, destination, run, &result, warnings, err);
    if (result_out)
        *result_out = result;
    fp8q_ckpt_close(like);
    fp8q_ckpt_close(ckpt);
    return status;
}

int fp8q_verify_checkpoint(const char *path, const char *source, bool strict,
                           const struct fp8q_run *run, struct fp8q_check **checks_out,
                           size_t *n_checks_out, struct fp8q_error *err)
{
    struct fp8q_verify_options o = {.source = source, .strict = strict, .threads = threads_of(run)};
    struct fp8q_report report;
    struct fp8q_warnings warnings = {0};
    *checks_out = NULL;
    *n_checks_out = 0;
    FP8Q_TRY(pick_kernel(run, &o.kernel, err));
    int status = fp8q_verify(path, &o, &report, &warnings, err);
    *checks_out = report.checks; /* now the caller's */
    *n_checks_out = report.n_checks;
    report.checks = NULL;
    fp8q_report_reset(&report);
    fp8q_warnings_reset(&warnings);
    return status;
}
