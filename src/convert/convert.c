/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.c - drives the stages, and decides what a run still has to do.
 */
#include "convert/convert.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "plan/manifest.h"
#include "base/mem.h"
#include "convert/record.h"
#include "calibration/rounding.h"

static uint64_t output_size(const struct fp8q_plan *plan)
{
    uint64_t size = 0;
    for (size_t i = 0; i < plan->n_shards; i++)
        size += i == plan->sidecar ? 0 : plan->shards[i].size_bytes + plan->shards[i].scale_bytes;
    return size;
}

/* ---- parts ----------------------------------------------------------------------------------- */

struct sized {
    size_t shard;
    uint64_t bytes;
};

static int by_size(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->shard < y->shard ? -1 : 1;
}

/* Largest shard first, each to the part that has least so far.  */
int fp8q_part_of_shards(const struct fp8q_plan *plan, unsigned n_parts, unsigned *part_out,
                        struct fp8q_error *err)
{
    struct sized *order = fp8q_array(plan->n_shards, sizeof(*order));
    uint64_t *load = fp8q_array(n_parts, sizeof(*load));
    if (!order || !load) {
        free(order);
        free(load);
        return fp8q_fail_nomem(err);
    }
    size_t n = 0;
    for (size_t i = 0; i < plan->n_shards; i++) {
        part_out[i] = 0;
        if (i != plan->sidecar)
            order[n++] = (struct sized){i, plan->shards[i].size_bytes};
    }
    qsort(order, n, sizeof(*order), by_size);
    for (size_t i = 0; i < n; i++) {
        unsigned least = 0;
        for (unsigned p = 1; p < n_parts; p++)
            if (load[p] < load[least])
                least = p;
        load[least] += order[i].bytes;
        part_out[order[i].shard] = least + 1;
    }
    free(order);
    free(load);
    return FP8Q_OK;
}

/* ---- what is left to do ---------------------------------------------------------------------- */

static bool shard_is_there(const struct fp8q_plan *plan, size_t shard,
                           const struct fp8q_outdir *out)
{
    struct stat st;
    bool there = false;
    char *path = fp8q_join(out->partial, plan->shards[shard].name);
    if (path) /* what cannot be looked at is made again */
        (void)fp8q_lstat(path, &st, &there, NULL);
    free(path);
    return there && S_ISREG(st.st_mode) && (uint64_t)st.st_size == plan->shards[shard].size_bytes;
}

/* Skips other parts' shards and those that an earlier run completed.  */
static int choose_shards(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                         const struct fp8q_outdir *out, bool *skip, size_t *resumed_out,
                         struct fp8q_error *err)
{
    struct fp8q_results results;
    *resumed_out = 0;
    unsigned *part = fp8q_array(plan->n_shards, sizeof(*part));
    int status = part ? FP8Q_OK : fp8q_fail_nomem(err);
    if (status == FP8Q_OK && o->n_parts)
        status = fp8q_part_of_shards(plan, o->n_parts, part, err);
    for (size_t i = 0; i < plan->n_shards && status == FP8Q_OK; i++)
        skip[i] = part[i] != o->part;
    free(part);
    FP8Q_TRY(status);
    FP8Q_TRY(fp8q_results_create(plan, &results, err));
    for (size_t i = 0; i < plan->n_shards && status == FP8Q_OK; i++) {
        bool found = false;
        if (i == plan->sidecar || skip[i])
            continue;
        if (o->resume || o->n_parts)
            status = fp8q_record_read(plan, i, out->work, &results, NULL, &found, err);
        if (found && shard_is_there(plan, i, out)) {
            skip[i] = true;
            ++*resumed_out;
        }
    }
    fp8q_results_reset(&results);
    return status;
}

static int make_directories(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                            struct fp8q_error *err)
{
    for (size_t i = 0; i < plan->n_shards; i++)
        FP8Q_TRY(fp8q_make_parents(out->partial, plan->shards[i].name, err));
    return FP8Q_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* How codes are rounded: plainly, or as a calibration file and its guard say.  */
struct rounding {
    struct fp8q_rounding compensation;
    bool compensates;
    struct fp8q_text json; /* for the manifest */
};

static int open_rounding(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                         struct rounding *r, struct fp8q_convert_result *result,
                         struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    *r = (struct rounding){.compensates = o->request->calibration != NULL};
    if (!r->compensates) {
        fp8q_text_puts(&r->json, "{\"method\": \"nearest-even\"}");
        return fp8q_text_status(&r->json, err);
    }
    FP8Q_TRY(fp8q_rounding_open(plan, o->request->calibration, o->kernel, NULL, o->watch,
                                &r->compensation, err));
    result->n_compensated = r->compensation.n_compensated;
    result->n_guarded = r->compensation.n_plain + r->compensation.n_without;
    if (fp8q_calib_is_noise(&r->compensation.calib))
        FP8Q_TRY(
            fp8q_warn(warnings, err, "calibration-noise",
                      "%s: the model finds its inputs no likelier than chance, so every site keeps "
                      "plain rounding",
                      o->request->calibration));
    return fp8q_rounding_json(&r->compensation, &r->json, err);
}

static void close_rounding(struct rounding *r)
{
    if (r->compensates)
        fp8q_rounding_close(&r->compensation);
    fp8q_text_reset(&r->json);
}

static int run(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
               const struct fp8q_outdir *out, struct rounding *rounding,
               struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
               struct fp8q_error *err)
{
    bool *skip = fp8q_array(plan->n_shards, sizeof(*skip));
    if (!skip)
        return fp8q_fail_nomem(err);
    int status = choose_shards(plan, o, out, skip, &result->resumed_shards, err);
    if (status == FP8Q_OK)
        status = make_directories(plan, out, err);
    if (status == FP8Q_OK)
        status =
            fp8q_stream(plan,
                        &(struct fp8q_stream_options){
                            .kernel = o->kernel,
                            .watch = o->watch,
                            .out_dir = out->partial,
                            .record_dir = out->work,
                            .skip = skip,
                            .shared = o->n_parts != 0,
                            .rounding = rounding->compensates ? &rounding->compensation : NULL},
                        err);
    if (status == FP8Q_OK && !o->n_parts)
        status = fp8q_finish(
            plan, &(struct fp8q_finish_options){o->request, rounding->json.data, o->watch}, out,
            &result->finish, warnings, err);
    if (status == FP8Q_OK)
        status = fp8q_watch_check(o->watch, err);
    free(skip);
    return status;
}

/* ---- done already ---------------------------------------------------------------------------- */

/* The manifest tells of the same version, options and source.  */
static int is_same_request(const struct fp8q_manifest *m, const struct fp8q_plan *plan,
                           const struct fp8q_request *request, bool *same_out,
                           struct fp8q_error *err)
{
    struct fp8q_jsonw done = {.indent = 0}, wanted = {.indent = 0};
    uint32_t crc;
    fp8q_request_write(&m->request, NULL, &done);
    fp8q_request_write(request, NULL, &wanted);
    int status = fp8q_text_status(&done.text, err);
    if (status == FP8Q_OK)
        status = fp8q_text_status(&wanted.text, err);
    *same_out = status == FP8Q_OK && strcmp(done.text.data, wanted.text.data) == 0 &&
                strcmp(fp8q_json_string(fp8q_json_get(m->json, "fp8q"), ""), FP8Q_VERSION) == 0 &&
                fp8q_parse_crc(
                    fp8q_json_string(fp8q_json_path(m->json, "source.files_crc32"), NULL), &crc) &&
                crc == fp8q_source_crc32(plan->ckpt);
    fp8q_text_reset(&done.text);
    fp8q_text_reset(&wanted.text);
    return status;
}

int fp8q_convert_complete(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                          bool *complete_out, struct fp8q_error *err)
{
    struct fp8q_error why = {0};
    struct fp8q_ckpt *done = NULL;
    struct fp8q_manifest m = {0};
    struct stat st;
    bool there;
    *complete_out = false;
    FP8Q_TRY(fp8q_stat(o->destination, &st, &there, err));
    if (!there)
        return FP8Q_OK;
    int status = fp8q_ckpt_open(o->destination, &done, NULL, &why);
    if (status == FP8Q_OK)
        status = fp8q_manifest_read(done, &m, &there, &why);
    if (status == FP8Q_OK && there)
        status = is_same_request(&m, plan, o->request, complete_out, &why);
    fp8q_manifest_reset(&m);
    fp8q_ckpt_close(done);
    if (*complete_out)
        fp8q_outdir_clean(plan->ckpt, o->destination);
    if (status != FP8Q_E_IO && status != FP8Q_E_NOMEM)
        return FP8Q_OK; /* not readable as an output of ours: not complete */
    if (err)
        *err = why;
    return status;
}

/* ---- a whole conversion ---------------------------------------------------------------------- */

int fp8q_convert(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                 struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                 struct fp8q_error *err)
{
    struct fp8q_outdir out;
    struct rounding rounding;
    struct fp8q_text state = {0};
    *result = (struct fp8q_convert_result){.complete = o->n_parts == 0};
    enum fp8q_outdir_use use = o->n_parts  ? FP8Q_OUTDIR_PART
                               : o->resume ? FP8Q_OUTDIR_RESUME
                                           : FP8Q_OUTDIR_FRESH;
    int status = fp8q_outdir_check(plan->ckpt, o->destination, o->overwrite, err);
    if (status == FP8Q_OK)
        status = fp8q_request_state(plan, o->request, o->n_parts, &state, err);
    if (status == FP8Q_OK)
        status = fp8q_outdir_open(plan->ckpt, o->destination, state.data,
                                  o->n_parts ? 0 : output_size(plan), use, o->overwrite, &out, err);
    fp8q_text_reset(&state);
    FP8Q_TRY(status);
    status = open_rounding(plan, o, &rounding, result, warnings, err);
    if (status == FP8Q_OK)
        status = run(plan, o, &out, &rounding, result, warnings, err);
    close_rounding(&rounding);
    if (status != FP8Q_OK) {
        fp8q_outdir_abandon(&out);
        return status;
    }
    if (o->n_parts) {
        fp8q_outdir_leave(&out);
        return FP8Q_OK;
    }
    return fp8q_outdir_commit(&out, err);
}

int fp8q_convert_state(const char *destination, struct fp8q_json **json_out,
                       struct fp8q_request *request_out, uint64_t *n_parts_out,
                       struct fp8q_error *err)
{
    struct fp8q_shown shown;
    /* The second is where a commit that was killed left it.  */
    static const char *const places[] = {".partial/.fp8q/state.json", ".partial.fp8q/state.json"};
    char *data = NULL;
    size_t len = strlen(destination), end = len;
    *json_out = NULL;
    while (end > 1 && destination[end - 1] == '/')
        end--;
    char *path = malloc(end + 64);
    if (!path)
        return fp8q_fail_nomem(err);
    memcpy(path, destination, end);
    int status = FP8Q_OK;
    for (size_t i = 0; i < 2 && !data && status == FP8Q_OK; i++) {
        strcpy(path + end, places[i]);
        status = fp8q_read_file_if_there(path, (uint64_t)1 << 30, &data, &len, err);
    }
    if (status == FP8Q_OK && !data)
        status = fp8q_fail(err, FP8Q_E_EVIDENCE, "no-parts",
                           "%s: no part of a conversion to it has been run",
                           fp8q_show(&shown, destination));
    if (status == FP8Q_OK)
        status = fp8q_json_parse(data, len, 0, path, json_out, err);
    if (status == FP8Q_OK)
        status = fp8q_request_parse(fp8q_json_get(*json_out, "request"), request_out, err);
    if (status == FP8Q_OK && !fp8q_json_uint(fp8q_json_get(*json_out, "parts"), n_parts_out))
        status = fp8q_fail(err, FP8Q_E_FORMAT, "state", "%s: has no number of parts", path);
    free(data);
    free(path);
    return status;
}

/* Every shard with its record must be there; says which parts to run.  */
static int check_parts(const struct fp8q_plan *plan, unsigned n_parts,
                       const struct fp8q_outdir *out, struct fp8q_error *err)
{
    struct fp8q_results results = {0};
    struct fp8q_text missing = {0};
    struct fp8q_shown shown;
    unsigned *part = fp8q_array(plan->n_shards, sizeof(*part));
    bool *absent = fp8q_array((uint64_t)n_parts + 1, sizeof(*absent));
    int status = part && absent ? fp8q_results_create(plan, &results, err) : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = fp8q_part_of_shards(plan, n_parts, part, err);
    for (size_t i = 0; i < plan->n_shards && status == FP8Q_OK; i++) {
        bool found = true;
        if (i == plan->sidecar)
            continue;
        status = fp8q_record_read(plan, i, out->work, &results, NULL, &found, err);
        if (!found || !shard_is_there(plan, i, out))
            absent[part[i]] = true;
    }
    for (unsigned i = 1; i <= n_parts && status == FP8Q_OK; i++)
        if (absent[i])
            fp8q_text_printf(&missing, "%s%u", missing.len ? ", " : "", i);
    if (status == FP8Q_OK)
        status = fp8q_text_status(&missing, err);
    if (status == FP8Q_OK && missing.len)
        status = fp8q_fail(err, FP8Q_E_EVIDENCE, "part-missing",
                           "%s: of %u parts these have not ended or were not run: %.200s",
                           fp8q_show(&shown, out->final), n_parts, missing.data);
    fp8q_results_reset(&results);
    fp8q_text_reset(&missing);
    free(part);
    free(absent);
    return status;
}

int fp8q_convert_finish(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                        struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                        struct fp8q_error *err)
{
    struct fp8q_outdir out;
    struct rounding rounding;
    struct fp8q_text state = {0};
    *result = (struct fp8q_convert_result){.complete = true};
    FP8Q_TRY(fp8q_outdir_check(plan->ckpt, o->destination, o->overwrite, err));
    FP8Q_TRY(fp8q_request_state(plan, o->request, o->n_parts, &state, err));
    int status = fp8q_outdir_open(plan->ckpt, o->destination, state.data, 0, FP8Q_OUTDIR_FINISH,
                                  o->overwrite, &out, err);
    fp8q_text_reset(&state);
    FP8Q_TRY(status);
    status = check_parts(plan, o->n_parts, &out, err);
    if (status != FP8Q_OK) {
        fp8q_outdir_leave(&out);
        return status;
    }
    status = open_rounding(plan, o, &rounding, result, warnings, err);
    if (status == FP8Q_OK)
        status = fp8q_finish(
            plan, &(struct fp8q_finish_options){o->request, rounding.json.data, o->watch}, &out,
            &result->finish, warnings, err);
    close_rounding(&rounding);
    if (status != FP8Q_OK) {
        fp8q_outdir_leave(&out); /* the parts stay */
        return status;
    }
    return fp8q_outdir_commit(&out, err);
}
