/* SPDX-License-Identifier: Apache-2.0
 *
 * finish.c - sidecar, index, config and copies, from the plan and the records.
 */
#include "convert/finish.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/copies.h"
#include "checkpoint/fingerprint.h"
#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/crc.h"
#include "base/mem.h"
#include "format/names.h"
#include "convert/record.h"

/* ---- records --------------------------------------------------------------------------------- */

static int missing_record(const struct fp8q_plan *plan, size_t shard, const char *dir,
                          struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    return fp8q_fail(err, FP8Q_E_EVIDENCE, "part-missing",
                     "%s: shard \"%s\" is not there yet: its part has not ended or was not run",
                     fp8q_show(&a, dir), fp8q_show(&b, plan->shards[shard].name));
}

static int read_records(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                        struct fp8q_results *results, struct fp8q_error *err)
{
    bool found;
    for (size_t i = 0; i < plan->n_shards; i++) {
        if (i == plan->sidecar)
            continue;
        FP8Q_TRY(fp8q_record_read(plan, i, out->work, results, NULL, &found, err));
        if (!found)
            return missing_record(plan, i, out->partial, err);
    }
    return FP8Q_OK;
}

/* ---- fingerprints ---------------------------------------------------------------------------- */

/* Source tensors that the plan does not carry (scales of an FP8 source) are read for their
 * checksum.  */
static int crc_of_uncarried(const struct fp8q_plan *plan, size_t source, uint32_t *crc_out,
                            struct fp8q_error *err)
{
    enum { CHUNK = 1 << 18 };
    const struct fp8q_tensor *t = &plan->ckpt->tensors[source];
    char *buf = malloc(CHUNK);
    int status = buf ? FP8Q_OK : fp8q_fail_nomem(err);
    *crc_out = 0;
    for (uint64_t at = 0; status == FP8Q_OK && at < t->size_bytes;) {
        uint64_t left = t->size_bytes - at;
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        status = fp8q_ckpt_read(plan->ckpt, t, at, buf, n, err);
        if (status == FP8Q_OK)
            *crc_out = fp8q_crc32(*crc_out, buf, n);
        at += n;
    }
    free(buf);
    return status;
}

static int source_fingerprint(const struct fp8q_plan *plan, const struct fp8q_results *results,
                              uint32_t *fingerprint_out, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = plan->ckpt;
    uint32_t fingerprint = 0;
    bool *carried = fp8q_array(ckpt->n_tensors, sizeof(*carried));
    int status = carried ? FP8Q_OK : fp8q_fail_nomem(err);
    for (size_t i = 0; i < plan->n_pieces && carried; i++)
        carried[plan->pieces[i].source] = true;
    for (size_t i = 0; i < ckpt->n_tensors && status == FP8Q_OK; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        uint32_t crc = results->source_crc[i];
        if (!carried[i])
            status = crc_of_uncarried(plan, i, &crc, err);
        fingerprint = fp8q_fingerprint_add(fingerprint, t->name, t->dtype, t->shape, t->ndim, crc);
    }
    free(carried);
    *fingerprint_out = fingerprint;
    return status;
}

static uint32_t output_fingerprint(const struct fp8q_plan *plan, const struct fp8q_results *results)
{
    uint32_t fingerprint = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[plan->by_name[i]];
        fingerprint = fp8q_fingerprint_add(fingerprint, t->name, t->dtype, t->shape, t->ndim,
                                           results->output_crc[plan->by_name[i]]);
    }
    return fingerprint;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int write_named(const struct fp8q_outdir *out, const char *name, const char *data,
                       size_t len, struct fp8q_finish_result *result, struct fp8q_error *err)
{
    char *path = fp8q_join(out->partial, name);
    int status = path ? fp8q_remove_tree(path, err) : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = fp8q_write_file(path, data, len, err);
    result->file_bytes += len;
    free(path);
    return status;
}

/* Scales of every shard, at the places that the sidecar's header gives them.  */
static int write_scales(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                        struct fp8q_results *results, int fd, const char *path, uint64_t data_start,
                        struct fp8q_error *err)
{
    for (size_t i = 0; i < plan->n_shards; i++) {
        const struct fp8q_out_shard *s = &plan->shards[i];
        float *scales;
        bool found;
        if (i == plan->sidecar || s->scale_bytes == 0)
            continue;
        FP8Q_TRY(fp8q_record_read(plan, i, out->work, results, &scales, &found, err));
        int status = found ? FP8Q_OK : missing_record(plan, i, out->partial, err);
        for (size_t k = s->first_piece; k < s->first_piece + s->n_pieces && status == FP8Q_OK;
             k++) {
            const struct fp8q_piece *p = &plan->pieces[k];
            if (p->scale == SIZE_MAX)
                continue;
            const struct fp8q_out_tensor *t = &plan->tensors[p->scale];
            status = fp8q_pwrite(fd, (const char *)scales + p->scale_offset,
                                 (size_t)(t->end - t->begin), data_start + t->begin, path, err);
        }
        free(scales);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

static int write_sidecar(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                         const struct fp8q_manifest_facts *facts, struct fp8q_results *results,
                         struct fp8q_finish_result *result, struct fp8q_error *err)
{
    struct fp8q_text header = {0};
    int fd = -1;
    const struct fp8q_out_shard *s = &plan->shards[plan->sidecar];
    char *path = fp8q_join(out->partial, s->name);
    int status =
        path ? fp8q_manifest_sidecar_header(plan, facts, &header, err) : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = fp8q_remove_tree(path, err);
    if (status == FP8Q_OK)
        status = fp8q_create(path, &fd, err);
    if (status == FP8Q_OK)
        status = fp8q_pwrite(fd, header.data, header.len, 0, path, err);
    if (status == FP8Q_OK)
        status = write_scales(plan, out, results, fd, path, header.len, err);
    if (status == FP8Q_OK)
        status = fp8q_fsync(fd, path, err);
    int closed = fp8q_close(&fd, path, status == FP8Q_OK ? err : NULL);
    result->file_bytes += header.len;
    if (s->n_tensors)
        result->file_bytes += plan->tensors[s->first_tensor + s->n_tensors - 1].end;
    fp8q_text_reset(&header);
    free(path);
    return status == FP8Q_OK ? closed : status;
}

static int write_manifest(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                          const struct fp8q_manifest_facts *facts, struct fp8q_results *results,
                          struct fp8q_finish_result *result, struct fp8q_error *err)
{
    struct fp8q_text text = {0};
    if (plan->options.dequantize)
        return FP8Q_OK;
    if (plan->sidecar != SIZE_MAX)
        return write_sidecar(plan, out, facts, results, result, err);
    int status = fp8q_manifest_file(plan, facts, &text, err);
    if (status == FP8Q_OK)
        status = write_named(out, FP8Q_MANIFEST_NAME, text.data, text.len, result, err);
    fp8q_text_reset(&text);
    return status;
}

int fp8q_finish(const struct fp8q_plan *plan, const struct fp8q_finish_options *options,
                const struct fp8q_outdir *out, struct fp8q_finish_result *result,
                struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_results results;
    struct fp8q_copies copies = {0};
    *result = (struct fp8q_finish_result){0};
    FP8Q_TRY(fp8q_results_create(plan, &results, err));
    int status = read_records(plan, out, &results, err);
    if (status == FP8Q_OK)
        status = source_fingerprint(plan, &results, &result->source_fingerprint, err);
    result->output_fingerprint = output_fingerprint(plan, &results);
    if (status == FP8Q_OK)
        status = fp8q_copies_list(plan->ckpt, &copies, warnings, err);
    if (status == FP8Q_OK)
        status = fp8q_copies_run(plan->ckpt, &copies, out->partial, options->watch, err);
    struct fp8q_manifest_facts facts = {.request = options->request,
                                        .results = &results,
                                        .source_fingerprint = result->source_fingerprint,
                                        .output_fingerprint = result->output_fingerprint,
                                        .side_files = copies.files,
                                        .n_side_files = copies.count,
                                        .rounding = options->rounding};
    if (status == FP8Q_OK)
        status = write_manifest(plan, out, &facts, &results, result, err);
    if (status == FP8Q_OK && plan->index_text)
        status = write_named(out, FP8Q_INDEX_NAME, plan->index_text, strlen(plan->index_text),
                             result, err);
    if (status == FP8Q_OK && plan->config_text)
        status = write_named(out, FP8Q_CONFIG_NAME, plan->config_text, strlen(plan->config_text),
                             result, err);
    for (size_t i = 0; i < plan->n_shards; i++)
        result->file_bytes += i == plan->sidecar ? 0 : plan->shards[i].size_bytes;
    fp8q_copies_reset(&copies);
    fp8q_results_reset(&results);
    return status;
}
