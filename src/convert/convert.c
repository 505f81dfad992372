/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.c - drives the stages.
 *
 * 1. job_open: what is read, what will be written, the state; side files are opened, so that one
 *    that cannot be read is found before the first byte.
 * 2. outdir.c takes the destination: whose are the names?
 * 3. Side files are copied first, since they are small and their names are the odd ones.
 * 4. stream.c writes the shards that are left, finish.c the rest.
 * 5. The source must not have changed; commit.c gives the final name.
 */
#include "convert/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "calibration/rounding.h"
#include "calibration/sequential.h"
#include "destination/commit.h"
#include "destination/outdir.h"
#include "convert/resume.h"
#include "destination/state.h"
#include "format/names.h"

/* ---- the job --------------------------------------------------------------------------------- */

struct job {
    const struct fp8q_plan *plan;
    const struct fp8q_convert_options *o;
    struct fp8q_side_files copies;
    struct fp8q_guard_list reads;
    struct fp8q_listing files;
    struct fp8q_text state;
    struct fp8q_outdir_job outdir;
};

static int list_reads(struct job *j, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = j->plan->ckpt, *like = j->plan->options.select.like;

    FP8Q_TRY(fp8q_guard_add(&j->reads, ckpt->path, "the source", err));
    for (size_t i = 0; i < ckpt->n_shards; i++)
        FP8Q_TRY(fp8q_guard_add(&j->reads, ckpt->shards[i].path, "a shard of the source", err));

    /* Side files may be links that lead out of the source, so each is guarded by itself.  */
    for (size_t i = 0; i < j->copies.count; i++) {
        char *path = fp8q_join(ckpt->dir, j->copies.files[i].name);
        int status = path ? fp8q_guard_add(&j->reads, path, "a file of the source", err)
                          : fp8q_fail_nomem(err);
        free(path);
        FP8Q_TRY(status);
    }

    if (like)
        FP8Q_TRY(fp8q_guard_add(&j->reads, like->path, "the checkpoint of --like", err));
    for (size_t i = 0; like && i < like->n_shards; i++)
        FP8Q_TRY(fp8q_guard_add(&j->reads, like->shards[i].path, "a shard of --like", err));
    FP8Q_TRY(fp8q_guard_add(&j->reads, j->o->request->inputs, "the inputs", err));
    return fp8q_guard_add(&j->reads, j->o->request->calibration, "the calibration", err);
}

static int list_files(struct job *j, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = j->plan;

    for (size_t i = 0; i < plan->n_shards; i++)
        FP8Q_TRY(fp8q_listing_add(&j->files, plan->shards[i].name, err));

    if (plan->index_text)
        FP8Q_TRY(fp8q_listing_add(&j->files, FP8Q_INDEX_NAME, err));
    if (plan->config_text)
        FP8Q_TRY(fp8q_listing_add(&j->files, FP8Q_CONFIG_NAME, err));
    if (plan->hf_quant_text)
        FP8Q_TRY(fp8q_listing_add(&j->files, FP8Q_HF_QUANT_NAME, err));

    /* With a sidecar the manifest is in its header; what `dequantize` writes has none.  */
    if (!plan->options.dequantize && plan->sidecar == SIZE_MAX)
        FP8Q_TRY(fp8q_listing_add(&j->files, FP8Q_MANIFEST_NAME, err));

    for (size_t i = 0; i < j->copies.count; i++)
        FP8Q_TRY(fp8q_listing_add(&j->files, j->copies.files[i].name, err));

    return fp8q_listing_sort(&j->files, err);
}

/* Bytes of all that this run will write; a part writes its shards.  @part_of is to be filled.  */
static int add_sizes(const struct job *j, unsigned *part_of, uint64_t *size_out,
                     struct fp8q_error *err)
{
    const struct fp8q_plan *plan = j->plan;
    if (j->o->n_parts)
        FP8Q_TRY(fp8q_part_of_shards(plan, j->o->n_parts, part_of, err));

    *size_out = j->o->n_parts ? 0 : j->copies.bytes;
    /* The working file is there until all shards are.  */
    if (j->o->request->gptq)
        *size_out += fp8q_codes_size(plan);
    /* The record of a shard holds its scales as well.  */
    for (size_t i = 0; i < plan->n_shards; i++)
        if (i != plan->sidecar && part_of[i] == j->o->part)
            *size_out += plan->shards[i].size_bytes + plan->shards[i].scale_bytes;
    return FP8Q_OK;
}

static int output_size(const struct job *j, uint64_t *size_out, struct fp8q_error *err)
{
    unsigned *part_of = fp8q_array(j->plan->n_shards, sizeof(*part_of));
    *size_out = 0;
    int status = part_of ? add_sizes(j, part_of, size_out, err) : fp8q_fail_nomem(err);
    free(part_of);
    return status;
}

static enum fp8q_outdir_use use_of(const struct fp8q_convert_options *o)
{
    if (o->n_parts)
        return FP8Q_OUTDIR_PART;
    return o->resume ? FP8Q_OUTDIR_RESUME : FP8Q_OUTDIR_FRESH;
}

static int job_fill(struct job *j, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    uint64_t size;
    if (j->o->request->gptq && j->o->n_parts)
        return fp8q_fail(err, FP8Q_E_ARG, "gptq-part",
                         "--gptq goes through all layers in their order, so its work cannot be "
                         "shared out: leave --part out");

    FP8Q_TRY(fp8q_side_files_list(j->plan->ckpt, &j->copies, warnings, err));
    FP8Q_TRY(list_reads(j, err));
    FP8Q_TRY(list_files(j, err));

    const struct fp8q_state_facts facts = {.plan = j->plan,
                                           .request = j->o->request,
                                           .copies = &j->copies,
                                           .files = &j->files,
                                           .n_parts = j->o->n_parts,
                                           .lock_path = j->o->lock_path,
                                           .lock_is_checked = j->o->lock_is_checked};
    FP8Q_TRY(fp8q_state_text(&facts, &j->state, err));
    FP8Q_TRY(output_size(j, &size, err));

    j->outdir = (struct fp8q_outdir_job){.destination = j->o->destination,
                                         .rules = {.ckpt = j->plan->ckpt,
                                                   .reads = &j->reads,
                                                   .copies = &j->copies,
                                                   .files = &j->files,
                                                   .overwrite = j->o->overwrite},
                                         .state = j->state.data,
                                         .size_bytes = size,
                                         .lock_path = j->o->lock_text ? j->o->lock_path : NULL,
                                         .lock_text = j->o->lock_text,
                                         .use = use_of(j->o)};
    return FP8Q_OK;
}

static void job_close(struct job *j)
{
    fp8q_side_files_reset(&j->copies);
    fp8q_guard_reset(&j->reads);
    fp8q_listing_reset(&j->files);
    fp8q_text_reset(&j->state);
}

static int job_open(struct job *j, const struct fp8q_plan *plan,
                    const struct fp8q_convert_options *o, struct fp8q_warnings *warnings,
                    struct fp8q_error *err)
{
    *j = (struct job){.plan = plan, .o = o};
    int status = job_fill(j, warnings, err);
    if (status != FP8Q_OK)
        job_close(j);
    return status;
}

int fp8q_convert_check(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                       struct fp8q_error *err)
{
    struct job j;
    FP8Q_TRY(job_open(&j, plan, o, NULL, err));
    int status = fp8q_outdir_check(&j.outdir, err);
    job_close(&j);
    return status;
}

/* ---- rounding -------------------------------------------------------------------------------- */

/* How values are rounded: plainly, as a calibration file and its guard say, or layer by layer before
 * the stream.  */
struct rounding {
    struct fp8q_rounding gptq;
    struct fp8q_codes codes;
    bool compensates, has_codes;
    struct fp8q_text json; /* for the manifest */
};

static int warn_about_inputs(const struct job *j, const struct fp8q_sequential *s,
                             struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *inputs = fp8q_show(&shown, j->o->request->inputs);

    if (s->noise)
        return fp8q_warn(warnings, err, "calibration-noise",
                         "%s: the model finds its inputs no likelier than chance, so every linear "
                         "keeps plain rounding",
                         inputs);
    if (s->n_unreached > 0)
        FP8Q_TRY(fp8q_warn(warnings, err, "gptq-unreached",
                           "%s: no token comes to %zu experts, which keep plain rounding: %s%s",
                           inputs, s->n_unreached, s->unreached.data,
                           s->n_unreached > FP8Q_NAMED_EXPERTS ? ", ..." : ""));
    if (s->n_unheld > 0)
        FP8Q_TRY(fp8q_warn(warnings, err, "calibration-unheld",
                           "%s: of %zu linear inputs no token was held out, so nothing shows "
                           "whether GPTQ helps and they keep plain rounding; give four samples or "
                           "more",
                           inputs, s->n_unheld));
    return FP8Q_OK;
}

/* Layer by layer through the model, into a working file that the stream reads.  */
static int round_layers(const struct job *j, const struct fp8q_outdir *out, struct rounding *r,
                        struct fp8q_sequential *s, struct fp8q_warnings *warnings,
                        struct fp8q_error *err)
{
    const struct fp8q_sequential_job job = {
        .codes = &r->codes, .inputs = j->o->request->inputs, .watch = j->o->watch};
    char *path = fp8q_join(out->names.work, FP8Q_CODES_NAME);
    int status =
        path ? fp8q_codes_open(j->plan, j->o->kernel, path, &r->codes, err) : fp8q_fail_nomem(err);
    free(path);
    FP8Q_TRY(status);
    FP8Q_TRY(fp8q_sequential_run(&job, s, warnings, err));
    FP8Q_TRY(warn_about_inputs(j, s, warnings, err));
    return fp8q_sequential_json(s, j->o->request->inputs, &r->json, err);
}

static int open_codes(const struct job *j, const struct fp8q_outdir *out, struct rounding *r,
                      struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                      struct fp8q_error *err)
{
    struct fp8q_sequential s = {.names = NULL};
    int status = round_layers(j, out, r, &s, warnings, err);

    result->n_compensated = s.n_spread;
    result->n_guarded = s.n_plain;
    r->has_codes = !s.noise;
    fp8q_sequential_reset(&s);
    return status;
}

static int open_rounding(const struct job *j, const struct fp8q_outdir *out, struct rounding *r,
                         struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                         struct fp8q_error *err)
{
    const char *calibration = j->o->request->calibration;

    *r = (struct rounding){.codes = {.fd = -1}};
    if (j->o->request->gptq)
        return open_codes(j, out, r, result, warnings, err);

    /* Static scales take the same file, for another end; GPTQ rounds in blocks only.  */
    bool for_scales = fp8q_plan_has_scheme(j->plan, FP8Q_SCHEME_STATIC) &&
                      !fp8q_plan_has_scheme(j->plan, FP8Q_SCHEME_BLOCK);
    r->compensates = calibration && !for_scales && !j->o->request->no_gptq;
    if (!r->compensates) {
        fp8q_text_puts(&r->json, "{\"method\": \"nearest-even\"}");
        return fp8q_text_status(&r->json, err);
    }

    /* To be closed in every case, so a failure leaves it to close_rounding().  */
    FP8Q_TRY(
        fp8q_rounding_open(j->plan, calibration, j->o->kernel, NULL, j->o->watch, &r->gptq, err));

    result->n_compensated = r->gptq.n_compensated;
    result->n_guarded = r->gptq.n_plain + r->gptq.n_without;

    if (fp8q_calib_is_noise(&r->gptq.calib))
        FP8Q_TRY(fp8q_warn(warnings, err, "calibration-noise",
                           "%s: the model finds its inputs no likelier than chance, so every "
                           "linear keeps plain rounding",
                           calibration));

    size_t unheld = fp8q_calib_unheld(&r->gptq.calib);
    if (unheld > 0)
        FP8Q_TRY(fp8q_warn(warnings, err, "calibration-unheld",
                           "%s: of %zu of its %zu linear inputs no token was held out, so nothing "
                           "shows whether GPTQ helps and they keep plain rounding; calibrate with "
                           "four samples or more",
                           calibration, unheld, r->gptq.calib.n_sites));

    return fp8q_rounding_json(&r->gptq, &r->json, err);
}

static void close_rounding(struct rounding *r)
{
    if (r->compensates)
        fp8q_rounding_close(&r->gptq);
    fp8q_codes_close(&r->codes);
    fp8q_text_reset(&r->json);
}

/* ---- the work -------------------------------------------------------------------------------- */

static int stream_rest(const struct job *j, const struct fp8q_outdir *out,
                       struct rounding *rounding, bool *skip, size_t *resumed_out,
                       struct fp8q_error *err)
{
    const struct fp8q_plan *plan = j->plan;
    struct fp8q_parts_asked asked = {
        .part = j->o->part, .n_parts = j->o->n_parts, .look = j->o->resume || j->o->n_parts != 0};
    struct fp8q_stream_options o = {.kernel = j->o->kernel,
                                    .watch = j->o->watch,
                                    .out_dir = out->names.partial,
                                    .record_dir = out->names.work,
                                    .skip = skip,
                                    .shared = j->o->n_parts != 0,
                                    .rounding = rounding->compensates ? &rounding->gptq : NULL,
                                    .codes = rounding->has_codes ? &rounding->codes : NULL};

    FP8Q_TRY(fp8q_parts_choose(plan, out, &asked, skip, resumed_out, err));

    /* Shards may lie in sub-directories, as they do in the source.  */
    for (size_t i = 0; i < plan->n_shards; i++)
        FP8Q_TRY(fp8q_make_parents_like(plan->ckpt, out->names.partial, plan->shards[i].name, err));
    return fp8q_stream(plan, &o, err);
}

/* Writes the shards that are this run's and not done yet.  */
static int stream(const struct job *j, const struct fp8q_outdir *out, struct rounding *rounding,
                  size_t *resumed_out, struct fp8q_error *err)
{
    bool *skip = fp8q_array(j->plan->n_shards, sizeof(*skip));
    int status =
        skip ? stream_rest(j, out, rounding, skip, resumed_out, err) : fp8q_fail_nomem(err);
    free(skip);
    return status;
}

static int copy(struct job *j, const struct fp8q_outdir *out, struct fp8q_error *err)
{
    return fp8q_copies_run(j->plan->ckpt, &j->copies, out->names.partial, j->o->watch, err);
}

/* The statistics behind static scales are of these very weights, all of which were read now.  */
static int check_origin(const struct job *j, const struct fp8q_finish_result *result,
                        struct fp8q_error *err)
{
    const struct fp8q_data_scales *data = j->plan->options.data;
    char hex[16];
    struct fp8q_shown shown;
    if (!data || !data->source_fingerprint)
        return FP8Q_OK;

    snprintf(hex, sizeof(hex), "%08x", (unsigned)result->source_fingerprint);
    if (strcmp(hex, data->source_fingerprint) == 0)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-foreign",
                     "%s: statistics of other weights, of fingerprint \"%s\"; these are %s",
                     fp8q_show(&shown, j->o->request->calibration), data->source_fingerprint, hex);
}

static int finish(const struct job *j, const struct fp8q_outdir *out,
                  const struct rounding *rounding, struct fp8q_finish_result *result,
                  struct fp8q_error *err)
{
    struct fp8q_finish_options o = {.request = j->o->request,
                                    .rounding = rounding->json.data,
                                    .copies = &j->copies,
                                    .out_dir = out->names.partial,
                                    .record_dir = out->names.work};
    FP8Q_TRY(fp8q_finish(j->plan, &o, result, err));

    FP8Q_TRY(check_origin(j, result, err));

    /* What was made partly of old and partly of new weights must not get the name.  */
    FP8Q_TRY(fp8q_ckpt_unchanged(j->plan->ckpt, err));
    FP8Q_TRY(fp8q_copies_unchanged(j->plan->ckpt, &j->copies, err));

    /* The last chance to stop: what follows gives the name.  */
    return fp8q_watch_check(j->o->watch, err);
}

static int commit(struct fp8q_outdir *out, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    /* Kept, since the commit frees the names.  */
    char *partial = strdup(out->names.partial);
    bool left = false;
    int status = fp8q_outdir_commit(out, &left, err);
    if (left && partial)
        (void)fp8q_warn(warnings, NULL, "old-left",
                        "%s: the old output had files that fp8q did not write; they are there",
                        fp8q_show(&shown, partial));
    free(partial);
    return status;
}

static int make_part(struct job *j, struct fp8q_outdir *out, struct rounding *rounding,
                     struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                     struct fp8q_error *err)
{
    FP8Q_TRY(open_rounding(j, out, rounding, result, warnings, err));
    return stream(j, out, rounding, &result->resumed_shards, err);
}

static int make_all(struct job *j, struct fp8q_outdir *out, struct rounding *rounding,
                    struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                    struct fp8q_error *err)
{
    FP8Q_TRY(open_rounding(j, out, rounding, result, warnings, err));
    FP8Q_TRY(copy(j, out, err));
    FP8Q_TRY(stream(j, out, rounding, &result->resumed_shards, err));
    return finish(j, out, rounding, &result->finish, err);
}

static int convert(struct job *j, struct fp8q_outdir *out, struct fp8q_convert_result *result,
                   struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct rounding rounding;
    bool is_part = j->o->n_parts != 0;

    /* Parts make shards alone; what there is once is made by `fp8q finish`.  */
    int status = is_part ? make_part(j, out, &rounding, result, warnings, err)
                         : make_all(j, out, &rounding, result, warnings, err);
    close_rounding(&rounding);

    if (status != FP8Q_OK) {
        fp8q_workdir_abandon(out);
        return status;
    }
    if (!is_part)
        return commit(out, warnings, err);

    fp8q_workdir_close(out, false);
    return FP8Q_OK;
}

static int take_and_convert(struct job *j, struct fp8q_convert_result *result,
                            struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_outdir out;
    FP8Q_TRY(fp8q_outdir_open(&j->outdir, &out, warnings, err));
    return convert(j, &out, result, warnings, err);
}

int fp8q_convert(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                 struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                 struct fp8q_error *err)
{
    struct job j;
    *result = (struct fp8q_convert_result){.complete = o->n_parts == 0};
    FP8Q_TRY(job_open(&j, plan, o, warnings, err));
    int status = take_and_convert(&j, result, warnings, err);
    job_close(&j);
    return status;
}

/* ---- done already ---------------------------------------------------------------------------- */

int fp8q_convert_complete(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                          bool *complete_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct job j;
    char *changed = NULL;

    *complete_out = false;
    FP8Q_TRY(job_open(&j, plan, o, NULL, err));
    const struct fp8q_wanted wanted = {plan, o->request, &j.copies, o->destination, o->watch};
    int status = fp8q_complete(&wanted, complete_out, &changed, err);

    /* A run that was killed after its commit may have left its work directory.  */
    if (*complete_out)
        fp8q_outdir_clean(&j.outdir);
    else if (changed && !o->overwrite)
        status = fp8q_fail(err, FP8Q_E_ARG, "resume-differs",
                           "%s: is complete, but %.500s; --overwrite makes it anew",
                           fp8q_show(&shown, o->destination), changed);

    free(changed);
    job_close(&j);
    return status;
}

/* ---- parts ----------------------------------------------------------------------------------- */

void fp8q_convert_parts_reset(struct fp8q_convert_parts *parts)
{
    fp8q_request_reset(&parts->request);
    free(parts->lock_path);
    *parts = (struct fp8q_convert_parts){.n_parts = 0};
}

static int parse_state(const struct fp8q_json *json, const char *path,
                       struct fp8q_convert_parts *parts, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    (void)fp8q_json_uint(fp8q_json_get(json, "parts"), &parts->n_parts);
    if (parts->n_parts == 0 || parts->n_parts > UINT16_MAX)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "no-parts",
                         "%s: no part of a conversion to it has been run", fp8q_show(&shown, path));

    FP8Q_TRY(fp8q_request_parse(fp8q_json_get(json, "request"), &parts->request, err));
    int status = fp8q_state_lock(json, &parts->lock_path, &parts->lock_is_checked, err);
    if (status != FP8Q_OK)
        fp8q_convert_parts_reset(parts);
    return status;
}

static int read_state(const struct fp8q_destination *names, const char *destination,
                      struct fp8q_json **json_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct fp8q_listing files;
    FP8Q_TRY(fp8q_workdir_state(names, json_out, &files, err));
    fp8q_listing_reset(&files);
    return *json_out ? FP8Q_OK
                     : fp8q_fail(err, FP8Q_E_EVIDENCE, "no-parts",
                                 "%s: no part of a conversion to it has been run",
                                 fp8q_show(&shown, destination));
}

int fp8q_convert_state(const char *destination, struct fp8q_convert_parts *parts,
                       struct fp8q_error *err)
{
    struct fp8q_destination names;
    struct fp8q_json *json = NULL;
    *parts = (struct fp8q_convert_parts){.n_parts = 0};

    /* Whether it is a file is in the state; names of directories have all that is needed here.  */
    FP8Q_TRY(fp8q_destination_open(destination, true, &names, err));
    int status = read_state(&names, destination, &json, err);
    fp8q_destination_reset(&names);
    FP8Q_TRY(status);

    status = parse_state(json, destination, parts, err);
    fp8q_json_free(json); /* the parts own their strings */
    return status;
}

static int read_result(const struct fp8q_ckpt *done, struct fp8q_finish_result *result,
                       struct fp8q_error *err)
{
    struct fp8q_manifest m;
    bool found;

    for (size_t i = 0; i < done->n_shards; i++)
        result->file_bytes += (uint64_t)done->shards[i].stat.st_size;

    FP8Q_TRY(fp8q_manifest_read(done, &m, &found, err));
    if (!found)
        return FP8Q_OK;

    const char *output = fp8q_json_string(fp8q_json_get(m.json, "fingerprint"), NULL);
    const char *source = fp8q_json_string(fp8q_json_path(m.json, "source.fingerprint"), NULL);
    (void)fp8q_parse_crc(output, &result->output_fingerprint);
    (void)fp8q_parse_crc(source, &result->source_fingerprint);
    fp8q_manifest_reset(&m);
    return FP8Q_OK;
}

static int killed_lock(const struct fp8q_destination *names, struct fp8q_lock_file *lock_out,
                       char **copy_out, struct fp8q_error *err)
{
    struct fp8q_json *state;
    struct fp8q_listing files;
    FP8Q_TRY(fp8q_workdir_state(names, &state, &files, err));
    int status = fp8q_commit_killed_lock(names, &files, lock_out, err);
    fp8q_json_free(state);
    fp8q_listing_reset(&files);
    FP8Q_TRY(status);

    if (!lock_out->had_before)
        return FP8Q_OK;
    *copy_out = fp8q_join(names->work, FP8Q_REPLACED_LOCK_NAME);
    return *copy_out ? FP8Q_OK : fp8q_fail_nomem(err);
}

int fp8q_convert_killed_lock(const char *destination, bool is_dir, struct fp8q_lock_file *lock_out,
                             char **copy_out, struct fp8q_error *err)
{
    struct fp8q_destination names;
    *lock_out = (struct fp8q_lock_file){.path = NULL};
    *copy_out = NULL;
    FP8Q_TRY(fp8q_destination_open(destination, is_dir, &names, err));
    int status = killed_lock(&names, lock_out, copy_out, err);
    fp8q_destination_reset(&names);
    return status;
}

/* What a run that was killed after its commit would have said.  */
static int describe_output(const struct fp8q_convert_options *o, struct fp8q_finish_result *result,
                           struct fp8q_error *err)
{
    struct fp8q_ckpt *done;
    FP8Q_TRY(fp8q_ckpt_open(o->destination, &done, NULL, err));
    int status = read_result(done, result, err);
    fp8q_ckpt_close(done);
    return status;
}

static int make_rest(struct job *j, struct fp8q_outdir *out, struct rounding *rounding,
                     struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                     struct fp8q_error *err)
{
    FP8Q_TRY(open_rounding(j, out, rounding, result, warnings, err));
    FP8Q_TRY(copy(j, out, err));
    return finish(j, out, rounding, &result->finish, err);
}

static int finish_parts(struct job *j, struct fp8q_outdir *out, struct fp8q_convert_result *result,
                        struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct rounding rounding;

    /* Before all else: a part that is missing should cost no copies.  */
    int status = fp8q_parts_check(j->plan, out, j->o->n_parts, err);
    if (status != FP8Q_OK) {
        fp8q_workdir_close(out, false); /* the parts stay */
        return status;
    }

    status = make_rest(j, out, &rounding, result, warnings, err);
    close_rounding(&rounding);
    if (status != FP8Q_OK) {
        fp8q_workdir_close(out, false);
        return status;
    }
    return commit(out, warnings, err);
}

static int take_and_finish(struct job *j, struct fp8q_convert_result *result,
                           struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_outdir out;
    FP8Q_TRY(fp8q_outdir_open(&j->outdir, &out, warnings, err));
    if (!out.committed)
        return finish_parts(j, &out, result, warnings, err);

    /* The run before this one was killed when all but the cleaning was done.  */
    fp8q_workdir_close(&out, true);
    return describe_output(j->o, &result->finish, err);
}

int fp8q_convert_finish(const struct fp8q_plan *plan, const struct fp8q_convert_options *o,
                        struct fp8q_convert_result *result, struct fp8q_warnings *warnings,
                        struct fp8q_error *err)
{
    struct job j;
    *result = (struct fp8q_convert_result){.complete = true};

    FP8Q_TRY(job_open(&j, plan, o, warnings, err));
    j.outdir.use = FP8Q_OUTDIR_FINISH;
    /* Its shards are there already, so no space is asked for.  */
    j.outdir.size_bytes = 0;

    int status = take_and_finish(&j, result, warnings, err);
    job_close(&j);
    return status;
}
