/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.c - from the first stripe of a shard to its record.
 */
#include "convert/shards.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"

int fp8q_shards_create(const struct fp8q_plan *plan, const struct fp8q_stream_options *options,
                       struct fp8q_shards *s, struct fp8q_error *err)
{
    *s = (struct fp8q_shards){.plan = plan, .options = options, .lock = PTHREAD_MUTEX_INITIALIZER};
    s->files = fp8q_array(plan->n_shards, sizeof(*s->files));
    s->crcs = fp8q_array(plan->n_pieces, sizeof(*s->crcs));
    s->source_crc = fp8q_array(plan->n_stripes, sizeof(*s->source_crc));
    s->output_crc = fp8q_array(plan->n_stripes, sizeof(*s->output_crc));
    for (size_t i = 0; s->files && i < plan->n_shards; i++)
        s->files[i] = (struct fp8q_open_output){.fd = -1, .writer = PTHREAD_MUTEX_INITIALIZER};

    if (s->files && s->crcs && s->source_crc && s->output_crc)
        return FP8Q_OK;
    fp8q_shards_reset(s);
    return fp8q_fail_nomem(err);
}

void fp8q_shards_reset(struct fp8q_shards *s)
{
    for (size_t i = 0; s->files && i < s->plan->n_shards; i++) {
        struct fp8q_open_output *f = &s->files[i];

        if (s->options->shared && f->fd >= 0) /* nobody else knows its name */
            (void)fp8q_unlink(f->path, NULL);
        (void)fp8q_close(&f->fd, "", NULL);
        free(f->path);
        free(f->scales);
    }

    free(s->files);
    free(s->crcs);
    free(s->source_crc);
    free(s->output_crc);

    s->files = NULL;
    s->crcs = NULL;
    s->source_crc = s->output_crc = NULL;
}

/* ---- the beginning --------------------------------------------------------------------------- */

mode_t fp8q_shards_mode(const struct fp8q_plan *plan, size_t shard)
{
    return plan->ckpt->shards[plan->shard_sources[shard]].stat.st_mode;
}

static int open_output(struct fp8q_shards *s, uint32_t shard, struct fp8q_error *err)
{
    const struct fp8q_stream_options *o = s->options;
    const struct fp8q_out_shard *out = &s->plan->shards[shard];
    struct fp8q_open_output *f = &s->files[shard];

    /* A worker may come here again after another one failed.  */
    if (!f->scales)
        f->scales = fp8q_array(out->scale_bytes, 1);
    if (!f->path && o->shared)
        f->path = fp8q_join_unique(o->record_dir, "shard");
    else if (!f->path)
        f->path = fp8q_join(o->out_dir, out->name);
    if (!f->scales || !f->path)
        return fp8q_fail_nomem(err);

    FP8Q_TRY(fp8q_unlink(f->path, err)); /* what a killed run left of it */
    FP8Q_TRY(fp8q_create_mode(f->path, fp8q_shards_mode(s->plan, shard), &f->fd, err));

    /* Where space can be promised, a full disk is found here and not in the middle of a shard.  */
    FP8Q_TRY(fp8q_reserve(f->fd, out->size_bytes, f->path, err));

    return fp8q_pwrite(f->fd, out->header, (size_t)out->data_start, 0, f->path, err);
}

int fp8q_shards_acquire(struct fp8q_shards *s, uint32_t shard, struct fp8q_error *err)
{
    pthread_mutex_lock(&s->lock);
    int status = s->files[shard].fd < 0 ? open_output(s, shard, err) : FP8Q_OK;
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Checksum of a whole piece from those of its stripes.  */
static uint32_t join_stripes(const struct fp8q_piece *p, const uint32_t *crc, uint64_t stripe_len,
                             uint64_t total_len)
{
    uint32_t joined = 0;
    for (uint64_t i = 0; i < p->n_stripes; i++)
        joined = fp8q_crc32_join(joined, crc[p->first_stripe + i],
                                 fp8q_min_u64(total_len - i * stripe_len, stripe_len));
    return joined;
}

static void join_piece(struct fp8q_shards *s, size_t piece, const float *scales)
{
    const struct fp8q_piece *p = &s->plan->pieces[piece];
    const struct fp8q_tensor *t = &s->plan->ckpt->tensors[p->source];
    const struct fp8q_out_tensor *o = &s->plan->tensors[p->output];
    struct fp8q_piece_crc *crc = &s->crcs[piece];
    bool kept = p->kind == FP8Q_OUT_KEPT;

    /* A kept tensor is cut by bytes, whatever its shape; a matrix by rows.  */
    uint64_t in_row = kept ? 1 : p->n_cols * (fp8q_dtype_bits(t->dtype) / 8);
    uint64_t out_row = kept ? 1 : p->n_cols * (fp8q_dtype_bits(o->dtype) / 8);
    uint64_t rows = kept ? FP8Q_COPY_BYTES : FP8Q_BLOCK;
    uint64_t n_rows = kept ? p->n_cols : p->n_rows;

    crc->source = join_stripes(p, s->source_crc, rows * in_row, n_rows * in_row);
    crc->output = join_stripes(p, s->output_crc, rows * out_row, n_rows * out_row);

    if (p->scale != SIZE_MAX) {
        const struct fp8q_out_tensor *scale = &s->plan->tensors[p->scale];
        crc->scales = fp8q_crc32(0, (const char *)scales + p->scale_offset,
                                 (size_t)(scale->end - scale->begin));
    }
}

static int write_inline_scales(const struct fp8q_shards *s, uint32_t shard, struct fp8q_error *err)
{
    const struct fp8q_out_shard *o = &s->plan->shards[shard];
    const struct fp8q_open_output *f = &s->files[shard];
    for (size_t i = o->first_tensor; i < o->first_tensor + o->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &s->plan->tensors[i];
        if (t->kind == FP8Q_OUT_CONSTANT)
            FP8Q_TRY(fp8q_pwrite(f->fd, &t->value, sizeof(t->value), o->data_start + t->begin,
                                 f->path, err));
    }

    for (size_t i = o->first_piece; i < o->first_piece + o->n_pieces; i++) {
        const struct fp8q_piece *p = &s->plan->pieces[i];
        if (p->scale == SIZE_MAX)
            continue;
        const struct fp8q_out_tensor *t = &s->plan->tensors[p->scale];
        FP8Q_TRY(fp8q_pwrite(f->fd, (const char *)f->scales + p->scale_offset,
                             (size_t)(t->end - t->begin), o->data_start + t->begin, f->path, err));
    }
    return FP8Q_OK;
}

/* The name must be on disk before the record that vouches for it.  */
static int give_name(struct fp8q_open_output *f, const char *out_dir, const char *name,
                     struct fp8q_error *err)
{
    char *path = fp8q_join(out_dir, name);

    if (!path)
        return fp8q_fail_nomem(err);

    /* Another process may have put its shard there already; the bytes are the same.  */
    int status = fp8q_rename(f->path, path, err);
    if (status != FP8Q_OK) {
        (void)fp8q_unlink(f->path, NULL);
        free(path);
        return status;
    }

    free(f->path);
    f->path = strdup(path);

    *strrchr(path, '/') = '\0';
    status = f->path ? fp8q_fsync_dir(path, err) : fp8q_fail_nomem(err);
    free(path);
    return status;
}

static int end_output(struct fp8q_shards *s, uint32_t shard, struct fp8q_error *err)
{
    const struct fp8q_out_shard *o = &s->plan->shards[shard];
    struct fp8q_open_output *f = &s->files[shard];
    struct fp8q_record record = {.crcs = s->crcs};
    bool there;

    for (size_t i = o->first_piece; i < o->first_piece + o->n_pieces; i++)
        join_piece(s, i, f->scales);

    if (s->plan->options.scales == FP8Q_SCALES_INLINE)
        FP8Q_TRY(write_inline_scales(s, shard, err));

    /* The record vouches for what is on disk, so the fsync comes before it.  */
    FP8Q_TRY(fp8q_fsync(f->fd, f->path, err));
    if (s->drop_cache)
        fp8q_drop_cache(f->fd, 0, 0);

    FP8Q_TRY(fp8q_close(&f->fd, f->path, err));
    if (s->options->shared)
        FP8Q_TRY(give_name(f, s->options->out_dir, o->name, err));

    FP8Q_TRY(fp8q_lstat(f->path, &record.stat, &there, err));

    record.scales = f->scales;
    FP8Q_TRY(fp8q_record_write(s->plan, shard, s->options->record_dir, &record, err));

    free(f->scales);
    f->scales = NULL;
    return FP8Q_OK;
}

int fp8q_shards_release(struct fp8q_shards *s, uint32_t shard, struct fp8q_error *err)
{
    pthread_mutex_lock(&s->lock);
    bool last = --s->files[shard].stripes_left == 0;
    pthread_mutex_unlock(&s->lock);

    /* Outside of the lock: only one worker gets here, and others may open shards meanwhile.  */
    return last ? end_output(s, shard, err) : FP8Q_OK;
}

int fp8q_shards_write_empty(struct fp8q_shards *s, struct fp8q_error *err)
{
    for (uint32_t i = 0; i < s->plan->n_shards; i++) {
        /* The sidecar is finish.c's: its scales are known when all shards are done.  */
        if (i == s->plan->sidecar || s->options->skip[i] || s->files[i].stripes_left > 0)
            continue;
        FP8Q_TRY(open_output(s, i, err));
        FP8Q_TRY(end_output(s, i, err));
    }
    return FP8Q_OK;
}
