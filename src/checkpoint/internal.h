/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files that open a checkpoint share.
 */
#ifndef FP8Q_CHECKPOINT_INTERNAL_H
#define FP8Q_CHECKPOINT_INTERNAL_H

#include "checkpoint/checkpoint.h"
#include "format/index.h"

/* What is needed only while opening.  */
struct fp8q_opening {
    struct fp8q_ckpt *ckpt;
    const struct fp8q_watch *watch;
    struct fp8q_warnings *warnings;
    struct fp8q_error *err;
    struct fp8q_index index;
    char **names; /* of the directory */
    size_t n_names;
    bool has_single; /* model.safetensors beside an index, which may name it or not */
};

/* Every shard file exists; two names of one file become one shard.  Reads nothing.  */
int fp8q_ckpt_check_shards(struct fp8q_opening *o);

/* Reduces the table of all tensors, sorted by (name, shard), to one of each name as the index says;
 * gives the index's warnings.  */
int fp8q_ckpt_match_index(struct fp8q_opening *o);

#endif
