/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c - an open checkpoint: finds tensors, reads them, notices changed files, closes.
 */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/io.h"

void fp8q_shard_free(struct fp8q_shard *shard)
{
    free(shard->name);
    free(shard->path);
    fp8q_st_reset(&shard->header);
}

void fp8q_ckpt_close(struct fp8q_ckpt *ckpt)
{
    if (!ckpt)
        return;
    for (size_t i = 0; i < ckpt->n_shards; i++)
        fp8q_shard_free(&ckpt->shards[i]);

    free(ckpt->shards);
    free(ckpt->tensors);
    free(ckpt->index_text);
    free(ckpt->config_text);
    fp8q_json_free(ckpt->config);
    fp8q_names_free(ckpt->other_files, ckpt->n_other_files);
    free(ckpt->dir);
    free(ckpt->path);
    free(ckpt);
}

const struct fp8q_tensor *fp8q_ckpt_find(const struct fp8q_ckpt *ckpt, const char *name)
{
    return fp8q_ckpt_find_joined(ckpt, name, strlen(name), "");
}

const struct fp8q_tensor *fp8q_ckpt_find_joined(const struct fp8q_ckpt *ckpt, const char *head,
                                                size_t head_len, const char *tail)
{
    size_t from = 0, to = ckpt->n_tensors;

    while (from < to) {
        size_t middle = from + (to - from) / 2;
        const char *name = ckpt->tensors[middle].name;

        /* Compared piece by piece: a joined name would need memory.  */
        int order = strncmp(head, name, head_len);
        if (order == 0)
            order = strcmp(tail, name + head_len);
        if (order == 0)
            return &ckpt->tensors[middle];

        if (order < 0)
            to = middle;
        else
            from = middle + 1;
    }

    return NULL;
}

static int check_same(const struct fp8q_shard *shard, const struct stat *now,
                      struct fp8q_error *err)
{
    const struct stat *then = &shard->stat;
    struct fp8q_shown shown;

    /* A header that was checked says nothing about another file under its name.  */
    if (now->st_size == then->st_size && now->st_dev == then->st_dev &&
        now->st_ino == then->st_ino && now->st_mtim.tv_sec == then->st_mtim.tv_sec &&
        now->st_mtim.tv_nsec == then->st_mtim.tv_nsec)

        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: changed since its header was read",
                     fp8q_show(&shown, shard->path));
}

int fp8q_shard_unchanged(const struct fp8q_shard *shard, int fd, struct fp8q_error *err)
{
    struct stat st;

    FP8Q_TRY(fp8q_fstat(fd, &st, shard->path, err));
    return check_same(shard, &st, err);
}

int fp8q_ckpt_read(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor, uint64_t offset,
                   void *buf, size_t len, struct fp8q_error *err)
{
    const struct fp8q_shard *shard = &ckpt->shards[tensor->shard];
    struct fp8q_shown shown;
    struct stat st;
    int fd;

    if (offset > tensor->size_bytes || len > tensor->size_bytes - offset)
        return fp8q_fail(err, FP8Q_E_ARG, "range", "tensor \"%s\" has %" PRIu64 " bytes only",
                         fp8q_show(&shown, tensor->name), tensor->size_bytes);

    FP8Q_TRY(fp8q_open_read(shard->path, &st, &fd, err));
    int status = check_same(shard, &st, err);
    if (status == FP8Q_OK)
        status = fp8q_pread(fd, buf, len, tensor->offset + offset, shard->path, err);

    /* Reading loses nothing at a failed close.  */
    (void)fp8q_close(&fd, shard->path, NULL); /* only read */
    return status;
}

int fp8q_ckpt_unchanged(const struct fp8q_ckpt *ckpt, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    for (size_t i = 0; i < ckpt->n_shards; i++) {
        struct stat st;
        bool there;

        FP8Q_TRY(fp8q_stat(ckpt->shards[i].path, &st, &there, err));
        if (!there)
            return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: is gone",
                             fp8q_show(&shown, ckpt->shards[i].path));
        FP8Q_TRY(check_same(&ckpt->shards[i], &st, err));
    }
    return FP8Q_OK;
}
