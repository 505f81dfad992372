/* SPDX-License-Identifier: Apache-2.0
 *
 * fingerprint.c - CRCs of 4 MiB pieces in parallel, joined in order.
 */
#include "checkpoint/fingerprint.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/pool.h"
#include "checkpoint/files.h"

#define PIECE ((uint64_t)4 << 20)

struct piece {
    const struct fp8q_tensor *tensor;
    uint64_t offset, size;
    uint32_t crc;
};

struct job {
    const struct fp8q_ckpt *ckpt;
    struct piece *pieces; /* in the order in which they are joined */
    struct piece **order; /* in the order in which they are read */
    struct fp8q_files files;
    uint8_t *buffers; /* PIECE bytes a worker */
    const struct fp8q_watch *watch;
    _Atomic uint64_t done;
};

static uint32_t add_le(uint32_t crc, uint64_t value, size_t size)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return fp8q_crc32(crc, bytes, size);
}

uint32_t fp8q_fingerprint_add(uint32_t crc, const char *name, enum fp8q_dtype dtype,
                              const uint64_t *shape, uint32_t ndim, uint32_t data_crc)
{
    const char *dtype_name = fp8q_dtype_name(dtype);

    /* The NUL ends the name, so that no two records can read alike.  */
    crc = fp8q_crc32(crc, name, strlen(name) + 1);
    crc = fp8q_crc32(crc, dtype_name, strlen(dtype_name) + 1);

    crc = add_le(crc, ndim, 4);
    for (uint32_t i = 0; i < ndim; i++)
        crc = add_le(crc, shape[i], 8);

    return add_le(crc, data_crc, 4);
}

static int read_piece(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct job *job = ctx;
    struct piece *p = job->order[task];
    uint32_t shard = p->tensor->shard;
    uint8_t *buffer = job->buffers + worker * PIECE;
    int fd;

    FP8Q_TRY(fp8q_files_acquire(&job->files, shard, &fd, err));
    FP8Q_TRY(fp8q_pread(fd, buffer, (size_t)p->size, p->tensor->offset + p->offset,
                        job->ckpt->shards[shard].path, err));
    /* The last release of a shard closes it, so not before the read.  */
    FP8Q_TRY(fp8q_files_release(&job->files, shard, err));
    p->crc = fp8q_crc32(0, buffer, (size_t)p->size);

    uint64_t done = atomic_fetch_add(&job->done, p->size) + p->size;
    fp8q_watch_report(job->watch, "fingerprint", done, job->ckpt->data_bytes, FP8Q_UNIT_BYTES);
    return FP8Q_OK;
}

static uint32_t join_pieces(const struct fp8q_ckpt *ckpt, const struct piece *p)
{
    uint32_t crc = 0;

    /* In the order of names: how the tensors are spread over shards makes no difference.  */
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        uint32_t data = 0;
        for (uint64_t offset = 0; offset < t->size_bytes; offset += PIECE, p++)
            data = fp8q_crc32_join(data, p->crc, p->size);
        crc = fp8q_fingerprint_add(crc, t->name, t->dtype, t->shape, t->ndim, data);
    }

    return crc;
}

/* Tasks in the order of the file, so that few shards are open at a time and a disk reads ahead.  */
static int compare_places(const void *a, const void *b)
{
    const struct piece *x = *(struct piece *const *)a, *y = *(struct piece *const *)b;
    uint64_t at = x->tensor->offset + x->offset, bt = y->tensor->offset + y->offset;

    if (x->tensor->shard != y->tensor->shard)
        return x->tensor->shard < y->tensor->shard ? -1 : 1;
    return at < bt ? -1 : at > bt;
}

/* Fills job->pieces, in the order in which they are joined, and job->order.  */
static void cut(struct job *job, uint64_t n_pieces)
{
    struct piece *p = job->pieces;

    for (size_t i = 0; i < job->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &job->ckpt->tensors[i];
        for (uint64_t at = 0; at < t->size_bytes; at += PIECE, p++) {
            *p = (struct piece){t, at, fp8q_min_u64(t->size_bytes - at, PIECE), 0};
            fp8q_files_expect(&job->files, t->shard, 1);
        }
    }

    for (uint64_t i = 0; i < n_pieces; i++)
        job->order[i] = &job->pieces[i];
    if (n_pieces)
        qsort(job->order, (size_t)n_pieces, sizeof(*job->order), compare_places);
}

static int fingerprint(struct job *job, unsigned n_threads, uint32_t *fingerprint_out,
                       struct fp8q_error *err)
{
    uint64_t n = 0;
    for (size_t i = 0; i < job->ckpt->n_tensors; i++)
        n += fp8q_ceil_div(job->ckpt->tensors[i].size_bytes, PIECE);

    job->pieces = fp8q_array(n, sizeof(*job->pieces));
    job->order = fp8q_array(n, sizeof(struct piece *));
    job->buffers = fp8q_array(n_threads ? n_threads : 1, PIECE);
    if (!job->pieces || !job->order || !job->buffers)
        return fp8q_fail_nomem(err);

    cut(job, n);
    FP8Q_TRY(fp8q_pool_run(job->watch, n_threads, n, read_piece, job, err));
    *fingerprint_out = join_pieces(job->ckpt, job->pieces);
    return FP8Q_OK;
}

int fp8q_fingerprint(const struct fp8q_ckpt *ckpt, unsigned n_threads,
                     const struct fp8q_watch *watch, uint32_t *fingerprint_out,
                     struct fp8q_error *err)
{
    struct job job = {.ckpt = ckpt, .watch = watch};

    *fingerprint_out = 0;
    FP8Q_TRY(fp8q_files_create(ckpt, &job.files, err));

    int status = fingerprint(&job, n_threads, fingerprint_out, err);
    fp8q_files_reset(&job.files);
    free(job.pieces);
    free(job.order);
    free(job.buffers);
    return status;
}
