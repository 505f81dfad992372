/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c - an open checkpoint: finds tensors, notices changed files, closes.
 */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "checkpoint/internal.h"

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
    fp8q_reading_close(ckpt->reading); /* may name a shard's path in its last message */
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

    /* By the descriptor: it says which file is being read, whatever its name stands for by now.  */
    FP8Q_TRY(fp8q_fstat(fd, &st, shard->path, err));
    return check_same(shard, &st, err);
}

int fp8q_shard_in_place(const struct fp8q_shard *shard, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    bool there;

    /* By the name: an open descriptor would not notice that another file took its place.  */
    FP8Q_TRY(fp8q_stat(shard->path, &st, &there, err));
    if (!there)
        return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: is gone",
                         fp8q_show(&shown, shard->path));
    return check_same(shard, &st, err);
}

int fp8q_ckpt_unchanged(const struct fp8q_ckpt *ckpt, struct fp8q_error *err)
{
    for (size_t i = 0; i < ckpt->n_shards; i++)
        FP8Q_TRY(fp8q_shard_in_place(&ckpt->shards[i], err));
    return FP8Q_OK;
}
