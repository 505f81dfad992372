/* SPDX-License-Identifier: Apache-2.0
 *
 * files.h - a checkpoint's shards, open for reading while work on them is left.
 *
 * Tasks come in file order, so only a few shards are open at a time whatever their number.
 */
#ifndef FP8Q_FILES_H
#define FP8Q_FILES_H

#include <pthread.h>

#include "checkpoint/checkpoint.h"

struct fp8q_files {
    const struct fp8q_ckpt *ckpt; /* borrowed */
    bool outgrows_memory;         /* so what was read is dropped from the system's cache */
    pthread_mutex_t lock;
    struct fp8q_open_shard {
        int fd;
        uint64_t tasks_left;
    } * shards;
};

/* All closed, no tasks counted.  */
int fp8q_files_create(const struct fp8q_ckpt *ckpt, struct fp8q_files *files_out,
                      struct fp8q_error *err);
void fp8q_files_reset(struct fp8q_files *files);
/* Before the work: @n more tasks will acquire this shard.  */
void fp8q_files_expect(struct fp8q_files *files, uint32_t shard, uint64_t n);
/* Descriptor for one task; opened if need be, checked to be the file whose header was read.  */
int fp8q_files_acquire(struct fp8q_files *files, uint32_t shard, int *fd_out,
                       struct fp8q_error *err);
/* A hint: no task needs the first @offset bytes of this shard any more.  */
void fp8q_files_passed(const struct fp8q_files *files, uint32_t shard, uint64_t offset);
/* Ends one task, whether or not it acquired the shard; the last one checks again that the file did
 * not change, and closes it.  */
int fp8q_files_release(struct fp8q_files *files, uint32_t shard, struct fp8q_error *err);

#endif
