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

/* FP8Q_E_IO "source-changed" if another file stands under the shard's path by now.  */
int fp8q_shard_in_place(const struct fp8q_shard *shard, struct fp8q_error *err);

/* No shard open.  */
int fp8q_reading_create(struct fp8q_reading **reading_out, struct fp8q_error *err);
void fp8q_reading_close(struct fp8q_reading *reading);

/* The directory has a file of this name.  */
bool fp8q_ckpt_dir_has(const struct fp8q_opening *o, const char *name);
/* The shards by name, none of them read yet.  */
int fp8q_ckpt_set_shards(struct fp8q_opening *o, const char *const *names, size_t count);
/* The shards of a directory: those of its index, which is read, or its only file.  */
int fp8q_ckpt_find_files(struct fp8q_opening *o);

/* Every shard file exists; two names of one file become one shard.  Reads nothing.  */
int fp8q_ckpt_check_shards(struct fp8q_opening *o);

/* Nothing is at @path: fails, and says what was probably meant.  */
int fp8q_fail_absent(const char *path, struct fp8q_error *err);
/* The same as the end of a message, "" if nothing comes to mind: of a folder that holds no weights, and of a
 * shard of @dir that is not there.  */
struct fp8q_hint {
    char text[400];
};
const char *fp8q_hint_below(struct fp8q_hint *hint, const char *dir);
const char *fp8q_hint_shard(struct fp8q_hint *hint, const char *dir, const char *path);

/* Reduces the table of all tensors, sorted by (name, shard), to one of each name as the index says;
 * gives the index's warnings.  */
int fp8q_ckpt_match_index(struct fp8q_opening *o);

#endif
