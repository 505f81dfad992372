/* SPDX-License-Identifier: Apache-2.0
 *
 * files.c - opens each shard at its first task and closes it after its last.
 */
#include "checkpoint/files.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"

/* A checkpoint that takes more than half of the memory would push out whatever else is cached, and
 * gain nothing: it is read once.  A smaller one stays for the next command.  */
static bool outgrows_memory(const struct fp8q_ckpt *ckpt)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);

    /* Unknown sizes mean: keep the cache as it is.  */
    return pages > 0 && size > 0 && ckpt->data_bytes / (uint64_t)size > (uint64_t)pages / 2;
}

int fp8q_files_create(const struct fp8q_ckpt *ckpt, struct fp8q_files *files,
                      struct fp8q_error *err)
{
    *files = (struct fp8q_files){
        .ckpt = ckpt, .outgrows_memory = outgrows_memory(ckpt), .lock = PTHREAD_MUTEX_INITIALIZER};

    files->shards = fp8q_array(ckpt->n_shards, sizeof(*files->shards));
    if (!files->shards)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < ckpt->n_shards; i++)
        files->shards[i].fd = -1;

    return FP8Q_OK;
}

void fp8q_files_reset(struct fp8q_files *files)
{
    for (size_t i = 0; files->shards && i < files->ckpt->n_shards; i++)
        (void)fp8q_close(&files->shards[i].fd, "", NULL); /* open only after a failure */

    free(files->shards);
    files->shards = NULL;
}

void fp8q_files_expect(struct fp8q_files *files, uint32_t shard, uint64_t n)
{
    files->shards[shard].tasks_left += n;
}

int fp8q_files_acquire(struct fp8q_files *files, uint32_t shard, int *fd_out,
                       struct fp8q_error *err)
{
    struct fp8q_open_shard *s = &files->shards[shard];
    int status = FP8Q_OK;

    /* Opened under the lock: of several workers one opens, and the others wait for its descriptor.  */
    pthread_mutex_lock(&files->lock);
    if (s->fd < 0) {
        status = fp8q_open_read(files->ckpt->shards[shard].path, NULL, &s->fd, err);
        if (status == FP8Q_OK)
            status = fp8q_shard_unchanged(&files->ckpt->shards[shard], s->fd, err);
    }

    *fd_out = s->fd;
    pthread_mutex_unlock(&files->lock);
    return status;
}

void fp8q_files_passed(const struct fp8q_files *files, uint32_t shard, uint64_t offset)
{
    if (files->outgrows_memory)
        fp8q_drop_cache(files->shards[shard].fd, 0, offset);
}

int fp8q_files_release(struct fp8q_files *files, uint32_t shard, struct fp8q_error *err)
{
    struct fp8q_open_shard *s = &files->shards[shard];

    pthread_mutex_lock(&files->lock);
    bool last = --s->tasks_left == 0;
    pthread_mutex_unlock(&files->lock);

    if (!last || s->fd < 0) /* no task had to open it */
        return FP8Q_OK;

    /* Nobody else is left, so no lock.  Checked again, as a file may have been written to while it
     * was read.  */
    FP8Q_TRY(fp8q_shard_unchanged(&files->ckpt->shards[shard], s->fd, err));
    fp8q_files_passed(files, shard, 0); /* 0: to the end of the file */
    return fp8q_close(&s->fd, files->ckpt->shards[shard].path, err);
}
