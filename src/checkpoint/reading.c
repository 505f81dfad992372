/* SPDX-License-Identifier: Apache-2.0
 *
 * reading.c - reads small parts of tensors: scales, mostly, of which thousands lie in one shard.
 *
 * A shard stays open after it was read, for the next read of it, from whatever thread.  A few at a
 * time: when all places are taken, the one that nobody reads and that was used longest ago makes
 * room; if all are being read, this read opens and closes the file for itself.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/io.h"
#include "checkpoint/internal.h"

enum { PLACES = 8 };

struct fp8q_reading {
    pthread_mutex_t lock;
    uint64_t clock;
    struct place {
        const struct fp8q_shard *shard; /* NULL: free */
        int fd;
        unsigned readers;
        uint64_t used; /* by @clock */
    } places[PLACES];
};

int fp8q_reading_create(struct fp8q_reading **reading_out, struct fp8q_error *err)
{
    *reading_out = calloc(1, sizeof(**reading_out));
    if (!*reading_out)
        return fp8q_fail_nomem(err);

    pthread_mutex_init(&(*reading_out)->lock, NULL);
    return FP8Q_OK;
}

static void close_place(struct place *p)
{
    if (p->shard)
        (void)fp8q_close(&p->fd, p->shard->path, NULL); /* only read: nothing to lose */
    p->shard = NULL;
}

void fp8q_reading_close(struct fp8q_reading *reading)
{
    if (!reading)
        return;
    for (size_t i = 0; i < PLACES; i++)
        close_place(&reading->places[i]);

    pthread_mutex_destroy(&reading->lock);
    free(reading);
}

/* The place of a shard, or the one that it may have; NULL if all are being read.  */
static struct place *find_place(struct fp8q_reading *r, const struct fp8q_shard *shard)
{
    struct place *best = NULL;

    for (size_t i = 0; i < PLACES; i++) {
        struct place *p = &r->places[i];
        if (p->shard == shard)
            return p;
        if (p->readers == 0 && (!best || p->used < best->used))
            best = p;
    }
    return best;
}

/* Takes a place for one read, opening the shard if need be; *@place_out is NULL without one.  */
static int acquire(struct fp8q_reading *r, const struct fp8q_shard *shard, struct place **place_out,
                   struct fp8q_error *err)
{
    int status = FP8Q_OK;

    /* Opened under the lock, so that no other thread takes the place before it has its file.  */
    pthread_mutex_lock(&r->lock);
    struct place *p = find_place(r, shard);
    if (p && p->shard != shard) {
        close_place(p);
        status = fp8q_open_read(shard->path, NULL, &p->fd, err);
        p->shard = status == FP8Q_OK ? shard : NULL;
    }

    /* A reader from here on: nobody closes the place before release().  */
    if (p && status == FP8Q_OK) {
        p->readers++;
        p->used = ++r->clock;
    }
    pthread_mutex_unlock(&r->lock);
    *place_out = p;
    return status;
}

/* After a failure the next read opens the file anew: another one may stand there by then.  */
static void release(struct fp8q_reading *r, struct place *p, bool failed)
{
    pthread_mutex_lock(&r->lock);
    if (--p->readers == 0 && failed)
        close_place(p);
    pthread_mutex_unlock(&r->lock);
}

/* The file that is open is the one whose header was read, and still has its name.  */
static int read_checked(const struct fp8q_shard *shard, int fd, uint64_t at, void *buf, size_t len,
                        struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_shard_in_place(shard, err));
    FP8Q_TRY(fp8q_shard_unchanged(shard, fd, err));
    return fp8q_pread(fd, buf, len, at, shard->path, err);
}

static int read_alone(const struct fp8q_shard *shard, uint64_t at, void *buf, size_t len,
                      struct fp8q_error *err)
{
    int fd;
    FP8Q_TRY(fp8q_open_read(shard->path, NULL, &fd, err));
    int status = read_checked(shard, fd, at, buf, len, err);
    (void)fp8q_close(&fd, shard->path, NULL);
    return status;
}

int fp8q_ckpt_read(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor, uint64_t offset,
                   void *buf, size_t len, struct fp8q_error *err)
{
    const struct fp8q_shard *shard = &ckpt->shards[tensor->shard];
    uint64_t at = tensor->offset + offset;
    struct fp8q_shown shown;

    /* Beyond the end lie the bytes of the next tensor, which would be taken for this one's.  */
    if (offset > tensor->size_bytes || len > tensor->size_bytes - offset)
        return fp8q_fail(err, FP8Q_E_ARG, "range", "tensor \"%s\" has %" PRIu64 " bytes only",
                         fp8q_show(&shown, tensor->name), tensor->size_bytes);

    struct place *place = NULL;
    if (ckpt->reading)
        FP8Q_TRY(acquire(ckpt->reading, shard, &place, err));
    if (!place)
        return read_alone(shard, at, buf, len, err);

    /* Without the lock: pread() has no position that threads would share.  */
    int status = read_checked(shard, place->fd, at, buf, len, err);
    release(ckpt->reading, place, status != FP8Q_OK);
    return status;
}
