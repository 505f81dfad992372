/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.h - output shards while stripes of them are left: opened at the first, ended at the last.
 */
#ifndef FP8Q_SHARDS_H
#define FP8Q_SHARDS_H

#include <pthread.h>

#include "calibration/codes.h"
#include "calibration/rounding.h"
#include "convert/record.h"

/* How a plan is streamed.  */
struct fp8q_stream_options {
    const struct fp8q_kernel *kernel;
    const struct fp8q_watch *watch; /* NULL allowed */
    const char *out_dir;            /* where the shards go */
    const char *record_dir;         /* where the records go */
    const bool *skip;               /* by output shard: not ours, or done already */
    /* Another process may be making the same shard (a part that a scheduler started twice): each
     * makes its own in @record_dir, and what gets the name is whole.  */
    bool shared;
    struct fp8q_rounding *rounding; /* NULL, or error-compensated rounding */
    const struct fp8q_codes *codes; /* NULL, or FP8 values that are rounded already */
};

/* A file that is open while stripes of it are left.  */
struct fp8q_open_output {
    int fd;
    char *path;
    float *scales; /* of its pieces */
    uint64_t stripes_left;
    pthread_mutex_t writer; /* held while writing: the kernel takes one writer a file anyway */
    uint64_t unflushed;     /* bytes written since write-back was last started; under @writer */
};

struct fp8q_shards {
    const struct fp8q_plan *plan;
    const struct fp8q_stream_options *options;
    bool drop_cache;                   /* what was written need not stay in memory */
    pthread_mutex_t lock;              /* guards the opening of files and @stripes_left */
    struct fp8q_open_output *files;    /* by output shard */
    struct fp8q_piece_crc *crcs;       /* by piece, once its shard has ended */
    uint32_t *source_crc, *output_crc; /* by stripe number, from the stripes */
};

int fp8q_shards_create(const struct fp8q_plan *plan, const struct fp8q_stream_options *options,
                       struct fp8q_shards *shards_out, struct fp8q_error *err);
/* Files that are open then belong to a run that failed.  */
void fp8q_shards_reset(struct fp8q_shards *shards);

/* Creates the shard with its full size reserved and its header written, unless it is open.  */
int fp8q_shards_acquire(struct fp8q_shards *shards, uint32_t shard, struct fp8q_error *err);

/* Ends one stripe whose bytes are written.  After the last one: checksums, inline scales, fsync,
 * the final name in DST.partial, and the record.  */
int fp8q_shards_release(struct fp8q_shards *shards, uint32_t shard, struct fp8q_error *err);

/* Shards whose tensors are all empty have no stripe that could end them.  */
int fp8q_shards_write_empty(struct fp8q_shards *shards, struct fp8q_error *err);

/* Permission bits of an output shard: those of the source's shard that it comes from.  */
mode_t fp8q_shards_mode(const struct fp8q_plan *plan, size_t shard);

#endif
