/* SPDX-License-Identifier: Apache-2.0
 *
 * finish.c - sidecar, index and config, from the plan and the records.
 *
 * How it works.  Every checksum of the output is known already: those of pieces stand in the records
 * of the shards, and are joined to those of tensors.  The fingerprints of source and output follow
 * from them, and go into the manifest; then the scales of one record after another are written at
 * the places that the sidecar's header gives them.  So finishing reads no weights, but for what the
 * plan does not carry (the scales of an FP8 source).
 */
#include "convert/finish.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"
#include "checkpoint/fingerprint.h"
#include "convert/record.h"
#include "convert/shards.h"
#include "format/names.h"

/* ---- records --------------------------------------------------------------------------------- */

/* The record of a shard, which must be there.  Free @record->scales.  */
static int need_record(const struct fp8q_plan *plan, size_t shard, const char *dir,
                       struct fp8q_record *record, struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    bool found;
    FP8Q_TRY(fp8q_record_read(plan, shard, dir, record, &found, err));
    if (found)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_EVIDENCE, "part-missing",
                     "%s: shard \"%s\" is not there yet: its part has not ended or was not run",
                     fp8q_show(&a, dir), fp8q_show(&b, plan->shards[shard].name));
}

/* Checksums of tensors from those of pieces.  The pieces of one source stand in the order of its
 * rows, whatever shards they went to.  */
static void join_pieces(const struct fp8q_plan *plan, const struct fp8q_piece_crc *crcs,
                        struct fp8q_results *results)
{
    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];

        /* Bytes of a row; a kept piece counts its bytes as columns.  */
        uint64_t row = p->n_cols;
        if (p->kind != FP8Q_OUT_KEPT)
            row *= fp8q_dtype_bits(plan->ckpt->tensors[p->source].dtype) / 8;

        uint32_t *source = &results->source_crc[p->source];
        *source = fp8q_crc32_join(*source, crcs[i].source, p->n_rows * row);
        results->output_crc[p->output] = crcs[i].output;

        if (p->scale != SIZE_MAX)
            results->output_crc[p->scale] = crcs[i].scales;
    }

    /* What the plan knows was made by no piece.  */
    for (size_t i = 0; i < plan->n_tensors; i++)
        if (plan->tensors[i].kind == FP8Q_OUT_CONSTANT)
            results->output_crc[i] = fp8q_crc32(0, &plan->tensors[i].value, sizeof(float));
}

static int read_each(const struct fp8q_plan *plan, const char *dir, struct fp8q_record *record,
                     struct fp8q_results *results, struct fp8q_error *err)
{
    for (size_t i = 0; i < plan->n_shards; i++) {
        /* No stripe fills the sidecar, so it has no record.  */
        if (i == plan->sidecar)
            continue;
        FP8Q_TRY(need_record(plan, i, dir, record, err));
        free(record->scales);
    }

    join_pieces(plan, record->crcs, results);
    return FP8Q_OK;
}

static int read_records(const struct fp8q_plan *plan, const char *dir, struct fp8q_results *results,
                        struct fp8q_error *err)
{
    struct fp8q_record record = {.crcs = fp8q_array(plan->n_pieces, sizeof(*record.crcs))};
    int status = record.crcs ? read_each(plan, dir, &record, results, err) : fp8q_fail_nomem(err);
    free(record.crcs);
    return status;
}

/* ---- fingerprints ---------------------------------------------------------------------------- */

enum { CHUNK = 1 << 18 };

/* Source tensors that the plan does not carry (scales of an FP8 source) are read for their
 * checksum, by way of @buf.  */
static int crc_of_uncarried(const struct fp8q_plan *plan, size_t source, char *buf,
                            uint32_t *crc_out, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = &plan->ckpt->tensors[source];

    *crc_out = 0;
    for (uint64_t at = 0; at < t->size_bytes; at += CHUNK) {
        size_t n = (size_t)fp8q_min_u64(t->size_bytes - at, CHUNK);
        FP8Q_TRY(fp8q_ckpt_read(plan->ckpt, t, at, buf, n, err));
        *crc_out = fp8q_crc32(*crc_out, buf, n);
    }
    return FP8Q_OK;
}

static int add_sources(const struct fp8q_plan *plan, const struct fp8q_results *results,
                       bool *carried, char *buf, uint32_t *fingerprint, struct fp8q_error *err)
{
    for (size_t i = 0; i < plan->n_pieces; i++)
        carried[plan->pieces[i].source] = true;

    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &plan->ckpt->tensors[i];
        uint32_t crc = results->source_crc[i];
        if (!carried[i])
            FP8Q_TRY(crc_of_uncarried(plan, i, buf, &crc, err));

        *fingerprint =
            fp8q_fingerprint_add(*fingerprint, t->name, t->dtype, t->shape, t->ndim, crc);
    }
    return FP8Q_OK;
}

static int source_fingerprint(const struct fp8q_plan *plan, const struct fp8q_results *results,
                              uint32_t *fingerprint_out, struct fp8q_error *err)
{
    bool *carried = fp8q_array(plan->ckpt->n_tensors, sizeof(*carried));
    char *buf = malloc(CHUNK);

    *fingerprint_out = 0;
    int status = carried && buf ? add_sources(plan, results, carried, buf, fingerprint_out, err)
                                : fp8q_fail_nomem(err);
    free(carried);
    free(buf);
    return status;
}

static uint32_t output_fingerprint(const struct fp8q_plan *plan, const struct fp8q_results *results)
{
    uint32_t fingerprint = 0;

    /* By name, as checkpoint/fingerprint.h asks, so that it does not depend on the sharding.  */
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[plan->by_name[i]];
        fingerprint = fp8q_fingerprint_add(fingerprint, t->name, t->dtype, t->shape, t->ndim,
                                           results->output_crc[plan->by_name[i]]);
    }
    return fingerprint;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Permission bits of a file that is written anew: those of the source's file of that name, or of
 * its first shard, since scales are weights too.  */
static mode_t mode_of(const struct fp8q_plan *plan, const char *name)
{
    struct stat st;
    bool there = false;
    char *path = fp8q_join(plan->ckpt->dir, name);
    if (path && plan->ckpt->is_dir)
        (void)fp8q_stat(path, &st, &there, NULL);
    free(path);
    return there ? st.st_mode : fp8q_shards_mode(plan, 0);
}

/* A file at its place in DST.partial.  */
struct named_file {
    char *path;
    int fd;
};

static int open_named(const struct fp8q_plan *plan, const char *dir, const char *name,
                      struct named_file *f, struct fp8q_error *err)
{
    *f = (struct named_file){.path = fp8q_join(dir, name), .fd = -1};
    if (!f->path)
        return fp8q_fail_nomem(err);

    /* A resumed run may have left one.  */
    FP8Q_TRY(fp8q_unlink(f->path, err));
    return fp8q_create_mode(f->path, mode_of(plan, name), &f->fd, err);
}

/* @status is the outcome of the writes.  */
static int close_named(struct named_file *f, int status, struct fp8q_error *err)
{
    status = fp8q_close_after(status, &f->fd, f->path, err);
    free(f->path);
    return status;
}

static int fill_named(const struct fp8q_plan *plan, const char *dir, const char *name,
                      const char *data, size_t len, struct named_file *f, struct fp8q_error *err)
{
    FP8Q_TRY(open_named(plan, dir, name, f, err));
    FP8Q_TRY(fp8q_pwrite(f->fd, data, len, 0, f->path, err));
    return fp8q_fsync(f->fd, f->path, err);
}

static int write_named(const struct fp8q_plan *plan, const char *dir, const char *name,
                       const char *data, size_t len, struct fp8q_finish_result *result,
                       struct fp8q_error *err)
{
    struct named_file f;
    int status = fill_named(plan, dir, name, data, len, &f, err);
    result->file_bytes += len;
    return close_named(&f, status, err);
}

/* The scales of one shard, at the places that the sidecar's header gives them.  */
static int write_shard_scales(const struct fp8q_plan *plan, size_t shard, const float *scales,
                              const struct named_file *f, uint64_t data_start,
                              struct fp8q_error *err)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    for (size_t k = s->first_piece; k < s->first_piece + s->n_pieces; k++) {
        const struct fp8q_piece *p = &plan->pieces[k];
        if (p->scale == SIZE_MAX)
            continue;
        const struct fp8q_out_tensor *t = &plan->tensors[p->scale];
        FP8Q_TRY(fp8q_pwrite(f->fd, (const char *)scales + p->scale_offset,
                             (size_t)(t->end - t->begin), data_start + t->begin, f->path, err));
    }
    return FP8Q_OK;
}

/* One record at a time, so memory holds the scales of one shard.  */
static int write_each(const struct fp8q_plan *plan, const char *record_dir,
                      struct fp8q_record *record, const struct named_file *f, uint64_t data_start,
                      struct fp8q_error *err)
{
    for (size_t i = 0; i < plan->n_shards; i++) {
        if (i == plan->sidecar || plan->shards[i].scale_bytes == 0)
            continue;
        FP8Q_TRY(need_record(plan, i, record_dir, record, err));
        int status = write_shard_scales(plan, i, record->scales, f, data_start, err);
        free(record->scales);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

static int write_scales(const struct fp8q_plan *plan, const char *record_dir,
                        const struct named_file *f, uint64_t data_start, struct fp8q_error *err)
{
    struct fp8q_record record = {.crcs = fp8q_array(plan->n_pieces, sizeof(*record.crcs))};
    int status = record.crcs ? write_each(plan, record_dir, &record, f, data_start, err)
                             : fp8q_fail_nomem(err);
    free(record.crcs);
    return status;
}

static int write_constants(const struct fp8q_plan *plan, const struct named_file *f,
                           uint64_t data_start, struct fp8q_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[i];
        if (t->kind == FP8Q_OUT_CONSTANT)
            FP8Q_TRY(fp8q_pwrite(f->fd, &t->value, sizeof(t->value), data_start + t->begin, f->path,
                                 err));
    }
    return FP8Q_OK;
}

static int fill_sidecar(const struct fp8q_plan *plan, const struct fp8q_finish_options *o,
                        const struct fp8q_text *header, struct named_file *f,
                        struct fp8q_error *err)
{
    FP8Q_TRY(open_named(plan, o->out_dir, plan->shards[plan->sidecar].name, f, err));
    FP8Q_TRY(fp8q_pwrite(f->fd, header->data, header->len, 0, f->path, err));
    FP8Q_TRY(write_scales(plan, o->record_dir, f, header->len, err));
    FP8Q_TRY(write_constants(plan, f, header->len, err));
    return fp8q_fsync(f->fd, f->path, err);
}

static int write_sidecar(const struct fp8q_plan *plan, const struct fp8q_finish_options *o,
                         const struct fp8q_manifest_facts *facts, struct fp8q_finish_result *result,
                         struct fp8q_error *err)
{
    const struct fp8q_out_shard *s = &plan->shards[plan->sidecar];
    struct fp8q_text header = {0};
    struct named_file f;

    FP8Q_TRY(fp8q_manifest_sidecar_header(plan, facts, &header, err));
    int status = fill_sidecar(plan, o, &header, &f, err);

    result->file_bytes += header.len;
    if (s->n_tensors)
        result->file_bytes += plan->tensors[s->first_tensor + s->n_tensors - 1].end;
    fp8q_text_reset(&header);
    return close_named(&f, status, err);
}

static int write_manifest(const struct fp8q_plan *plan, const struct fp8q_finish_options *o,
                          const struct fp8q_manifest_facts *facts,
                          struct fp8q_finish_result *result, struct fp8q_error *err)
{
    struct fp8q_text text = {0};
    if (plan->options.dequantize)
        return FP8Q_OK;
    if (plan->sidecar != SIZE_MAX)
        return write_sidecar(plan, o, facts, result, err);

    FP8Q_TRY(fp8q_manifest_file(plan, facts, &text, err));
    int status =
        write_named(plan, o->out_dir, FP8Q_MANIFEST_NAME, text.data, text.len, result, err);
    fp8q_text_reset(&text);
    return status;
}

static int write_files(const struct fp8q_plan *plan, const struct fp8q_finish_options *o,
                       const struct fp8q_results *results, struct fp8q_finish_result *result,
                       struct fp8q_error *err)
{
    FP8Q_TRY(source_fingerprint(plan, results, &result->source_fingerprint, err));
    result->output_fingerprint = output_fingerprint(plan, results);

    struct fp8q_manifest_facts facts = {.request = o->request,
                                        .results = results,
                                        .source_fingerprint = result->source_fingerprint,
                                        .output_fingerprint = result->output_fingerprint,
                                        .side_files = o->copies->files,
                                        .n_side_files = o->copies->count,
                                        .rounding = o->rounding};
    FP8Q_TRY(fp8q_request_evidence(o->request, &facts.evidence_crc32, &facts.has_evidence, err));

    FP8Q_TRY(write_manifest(plan, o, &facts, result, err));

    if (plan->index_text)
        FP8Q_TRY(write_named(plan, o->out_dir, FP8Q_INDEX_NAME, plan->index_text,
                             strlen(plan->index_text), result, err));
    if (plan->config_text)
        FP8Q_TRY(write_named(plan, o->out_dir, FP8Q_CONFIG_NAME, plan->config_text,
                             strlen(plan->config_text), result, err));
    if (plan->hf_quant_text)
        FP8Q_TRY(write_named(plan, o->out_dir, FP8Q_HF_QUANT_NAME, plan->hf_quant_text,
                             strlen(plan->hf_quant_text), result, err));
    return FP8Q_OK;
}

static int finish(const struct fp8q_plan *plan, const struct fp8q_finish_options *o,
                  struct fp8q_results *results, struct fp8q_finish_result *result,
                  struct fp8q_error *err)
{
    FP8Q_TRY(read_records(plan, o->record_dir, results, err));
    FP8Q_TRY(write_files(plan, o, results, result, err));

    /* The sidecar is counted by who wrote it.  */
    for (size_t i = 0; i < plan->n_shards; i++)
        result->file_bytes += i == plan->sidecar ? 0 : plan->shards[i].size_bytes;
    return FP8Q_OK;
}

int fp8q_finish(const struct fp8q_plan *plan, const struct fp8q_finish_options *options,
                struct fp8q_finish_result *result, struct fp8q_error *err)
{
    struct fp8q_results results;
    *result = (struct fp8q_finish_result){0};
    FP8Q_TRY(fp8q_results_create(plan, &results, err));
    int status = finish(plan, options, &results, result, err);
    fp8q_results_reset(&results);
    return status;
}
