/* SPDX-License-Identifier: Apache-2.0
 *
 * conversion.c - the one driver of conversions: open, check, run.
 */
#include "api/conversion.h"

#include <stdlib.h>

/* ---- open and close -------------------------------------------------------------------------- */

static const char *suffix_of(const struct fp8q_request *r)
{
    static const char *const suffixes[] = {"-FP8-BLOCK", "-FP8-Dynamic", "-FP8", "-MXFP8",
                                           "-FP8-Static"};

    if (r->dequantize)
        return "-dequantized";
    if (r->format == FP8Q_FORMAT_FP8 && r->scheme != FP8Q_SCHEME_GROUP)
        return "-FP8";
    return suffixes[r->scheme];
}

static int make_plan(struct fp8q_conversion *c, struct fp8q_warnings *warnings,
                     struct fp8q_error *err)
{
    struct fp8q_plan_options options = fp8q_request_options(&c->request, c->like);
    struct fp8q_shown shown;

    if (fp8q_plan_takes_data(&options) && c->request.calibration) {
        FP8Q_TRY(
            fp8q_data_scales_open(c->request.calibration, c->request.input_range, &c->data, err));
        options.data = &c->data.scales;
    }

    options.threads = c->manner.threads;
    options.max_memory = c->manner.max_memory;
    FP8Q_TRY(fp8q_plan_create(c->ckpt, &options, &c->plan, warnings, err));

    /* A mere copy is hardly what was meant.  */
    if (c->request.dequantize && c->plan->by_reason[FP8Q_WHY_ALREADY_FP8].tensors == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "not-quantized", "%s: holds no F8_E4M3 weight",
                         fp8q_show(&shown, c->request.source));
    return FP8Q_OK;
}

/* Opens what the request names, and plans.  */
static int open_sources(struct fp8q_conversion *c, struct fp8q_warnings *warnings,
                        struct fp8q_error *err)
{
    const struct fp8q_watch *watch = &c->manner.watch;

    FP8Q_TRY(fp8q_ckpt_open_watched(c->request.source, watch, &c->ckpt, warnings, err));
    if (c->request.like)
        FP8Q_TRY(fp8q_ckpt_open_watched(c->request.like, watch, &c->like, warnings, err));

    c->default_destination = fp8q_default_destination(c->ckpt, suffix_of(&c->request));
    if (!c->default_destination)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(make_plan(c, warnings, err));
    return fp8q_conversion_describe(c, err);
}

static int open_request(struct fp8q_conversion *c, const struct fp8q_request *request,
                        struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_request_copy(request, &c->request, err));
    return open_sources(c, warnings, err);
}

static int new_conversion(const struct fp8q_run *run, struct fp8q_conversion **conversion_out,
                          struct fp8q_error *err)
{
    struct fp8q_manner manner;
    FP8Q_TRY(fp8q_require(conversion_out, "conversion_out", err));
    *conversion_out = NULL;
    FP8Q_TRY(fp8q_manner_of(run, &manner, err));

    *conversion_out = calloc(1, sizeof(**conversion_out));
    if (!*conversion_out)
        return fp8q_fail_nomem(err);
    (*conversion_out)->manner = manner;
    return FP8Q_OK;
}

static int give_or_close(int status, struct fp8q_conversion **conversion)
{
    if (status == FP8Q_OK)
        return FP8Q_OK;
    fp8q_conversion_close(*conversion);
    *conversion = NULL;
    return status;
}

int fp8q_conversion_open(const struct fp8q_request *request, const struct fp8q_run *run,
                         struct fp8q_conversion **conversion_out, struct fp8q_warnings *warnings,
                         struct fp8q_error *err)
{
    FP8Q_TRY(new_conversion(run, conversion_out, err));
    return give_or_close(open_request(*conversion_out, request, warnings, err), conversion_out);
}

/* The request that parts left beside @destination, how many they are, and their lock, unless the
 * caller has named one: then the states are compared.  */
static int read_parts(struct fp8q_conversion *c, const char *destination,
                      struct fp8q_request *request_out, unsigned *n_parts_out,
                      struct fp8q_error *err)
{
    struct fp8q_convert_parts parts;
    FP8Q_TRY(fp8q_convert_state(destination, &parts, err));
    *n_parts_out = (unsigned)parts.n_parts;

    /* What is moved out is the handle's from here on.  */
    *request_out = parts.request;
    parts.request = (struct fp8q_request){.size = sizeof(parts.request)};
    if (!c->lock_path) {
        c->lock_path = c->lock_file = parts.lock_path;
        c->lock_is_checked = parts.lock_is_checked;
        parts.lock_path = NULL;
    }
    fp8q_convert_parts_reset(&parts);
    return FP8Q_OK;
}

static int open_parts(struct fp8q_conversion *c, const char *destination,
                      struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_require(destination, "destination", err));
    FP8Q_TRY(read_parts(c, destination, &c->request, &c->n_parts, err));
    return open_sources(c, warnings, err);
}

int fp8q_conversion_open_parts(const char *destination, const struct fp8q_run *run,
                               struct fp8q_conversion **conversion_out,
                               struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    FP8Q_TRY(new_conversion(run, conversion_out, err));
    return give_or_close(open_parts(*conversion_out, destination, warnings, err), conversion_out);
}

void fp8q_conversion_close(struct fp8q_conversion *c)
{
    if (!c)
        return;
    fp8q_plan_destroy(c->plan);
    fp8q_data_scales_close(&c->data);
    fp8q_ckpt_close(c->like);
    fp8q_ckpt_close(c->ckpt);
    fp8q_request_reset(&c->request);
    fp8q_manifest_reset(&c->origin);
    fp8q_text_reset(&c->lock);
    free(c->lock_file);
    fp8q_lock_file_reset(&c->killed_lock);
    free(c->killed_copy);
    free(c->default_destination);
    free(c->tensors);
    free(c->outputs);
    free(c);
}

/* ---- check ----------------------------------------------------------------------------------- */

static struct fp8q_convert_options options_of(const struct fp8q_conversion *c,
                                              const char *destination)
{
    return (struct fp8q_convert_options){.destination = destination,
                                         .request = &c->request,
                                         .kernel = c->manner.kernel,
                                         .watch = &c->manner.watch,
                                         .overwrite = c->manner.overwrite,
                                         .resume = c->manner.resume,
                                         .lock_path = c->lock_file ? c->lock_file : c->lock_path,
                                         .lock_text = c->lock.data,
                                         .lock_is_checked = c->lock_is_checked};
}

/* A lock that will be taken back is none that this conversion has to agree with.  */
static int look_for_killed_lock(struct fp8q_conversion *c, const char *destination,
                                struct fp8q_error *err)
{
    fp8q_lock_file_reset(&c->killed_lock);
    free(c->killed_copy);
    return fp8q_convert_killed_lock(destination, c->ckpt->is_dir, &c->killed_lock, &c->killed_copy,
                                    err);
}

int fp8q_conversion_check(struct fp8q_conversion *c, const char *destination, unsigned n_parts,
                          bool *complete_out, struct fp8q_error *err)
{
    bool complete = false;

    if (complete_out)
        *complete_out = false;
    FP8Q_TRY(fp8q_plan_check(c->plan, err));
    if (!destination)
        return FP8Q_OK;

    struct fp8q_convert_options options = options_of(c, destination);
    options.n_parts = n_parts;
    options.part = n_parts ? 1 : 0; /* which one makes no difference here */
    if (complete_out && c->manner.resume && !n_parts)
        FP8Q_TRY(fp8q_convert_complete(c->plan, &options, &complete, err));
    if (complete)
        *complete_out = true;
    else
        FP8Q_TRY(fp8q_convert_check(c->plan, &options, err));

    return look_for_killed_lock(c, destination, err);
}

/* ---- run ------------------------------------------------------------------------------------- */

static void keep_result(struct fp8q_conversion *c, const struct fp8q_convert_result *r)
{
    c->has_result = true;
    c->result = (struct fp8q_result){.complete = r->complete,
                                     .n_quantized = c->plan->selection.n_quantize,
                                     .n_kept = c->ckpt->n_tensors - c->plan->selection.n_quantize,
                                     .source_bytes = c->plan->source_bytes,
                                     .output_bytes = c->plan->output_bytes,
                                     .file_bytes = r->finish.file_bytes,
                                     .source_fingerprint = r->finish.source_fingerprint,
                                     .output_fingerprint = r->finish.output_fingerprint,
                                     .resumed_shards = r->resumed_shards,
                                     .n_gptq = r->n_compensated,
                                     .n_plain = r->n_guarded};
}

static int run(struct fp8q_conversion *c, const struct fp8q_convert_options *options,
               struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_convert_result result;
    /* Again, since a caller need not have asked for the check.  */
    FP8Q_TRY(fp8q_plan_check(c->plan, err));
    FP8Q_TRY(fp8q_convert(c->plan, options, &result, warnings, err));

    keep_result(c, &result);
    return FP8Q_OK;
}

int fp8q_conversion_run(struct fp8q_conversion *c, const char *destination,
                        struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_require(destination, "destination", err));
    struct fp8q_convert_options options = options_of(c, destination);
    return run(c, &options, warnings, err);
}

int fp8q_conversion_run_part(struct fp8q_conversion *c, const char *destination, unsigned part,
                             unsigned n_parts, struct fp8q_warnings *warnings,
                             struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_require(destination, "destination", err));
    if (part < 1 || part > n_parts || n_parts > FP8Q_MOST_SHARES)
        return fp8q_fail(err, FP8Q_E_ARG, "part",
                         "part %u of %u: expected a part from 1 on, of at most %d", part, n_parts,
                         FP8Q_MOST_SHARES);

    FP8Q_TRY(fp8q_conversion_place_lock(c, err));
    struct fp8q_convert_options options = options_of(c, destination);
    options.part = part;
    options.n_parts = n_parts;
    return run(c, &options, warnings, err);
}

int fp8q_conversion_finish(struct fp8q_conversion *c, const char *destination,
                           struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_convert_result result;
    unsigned n_parts = c->n_parts;
    bool lock_is_there;
    FP8Q_TRY(fp8q_require(destination, "destination", err));

    /* Zero in a conversion that was opened by its request: the number stands beside the
     * destination.  */
    if (!n_parts) {
        struct fp8q_request theirs = {0};
        int status = read_parts(c, destination, &theirs, &n_parts, err);
        fp8q_request_reset(&theirs); /* that it is the same is checked when the parts are opened */
        FP8Q_TRY(status);
    }

    FP8Q_TRY(look_for_killed_lock(c, destination, err));
    FP8Q_TRY(fp8q_conversion_recheck_lock(c, &lock_is_there, err));
    struct fp8q_convert_options options = options_of(c, destination);
    options.n_parts = n_parts;
    if (lock_is_there)
        options.lock_text = NULL;
    FP8Q_TRY(fp8q_convert_finish(c->plan, &options, &result, warnings, err));

    keep_result(c, &result);
    return FP8Q_OK;
}

const struct fp8q_result *fp8q_conversion_result(const struct fp8q_conversion *c)
{
    return c->has_result ? &c->result : NULL;
}
