/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h - stage 1, open: a file or a directory becomes a table of shards and tensors.
 *
 * Reads headers, index and config only; the payload is read later through fp8q_files.  Everything
 * that a file states is checked here once, so later stages can rely on it.
 */
#ifndef FP8Q_CHECKPOINT_H
#define FP8Q_CHECKPOINT_H

#include <sys/stat.h>

#include "base/watch.h"
#include "format/json.h"
#include "format/safetensors.h"

/* Bytes of a config.json that is read.  */
#define FP8Q_MOST_CONFIG ((uint64_t)16 << 20)

struct fp8q_shard {
    char *name; /* path relative to the checkpoint, as the index spells it but without "./" and "//"
                 */
    char *path; /* path to open */
    struct stat stat; /* when the header was read: size, mtime, dev and ino are compared later */
    struct fp8q_st_header header;
};

struct fp8q_tensor {
    const char *name; /* borrowed from the shard's header */
    const uint64_t *shape;
    uint64_t n_elems, size_bytes;
    uint64_t offset; /* from the start of the shard file, in bytes */
    uint32_t ndim, shard;
    enum fp8q_dtype dtype;
};

struct fp8q_ckpt {
    char *path;  /* as given */
    char *dir;   /* where the files lie: @path, or the directory of the one file */
    bool is_dir; /* false: one .safetensors file, without index and config */

    struct fp8q_shard *shards; /* in the order of their names */
    size_t n_shards;
    struct fp8q_tensor *tensors; /* sorted by name (bytes) */
    size_t n_tensors;
    uint64_t data_bytes; /* sum of size_bytes */

    bool has_index;
    char *index_text; /* NULL without an index */
    size_t index_len;
    uint64_t index_total_size,
        index_total_parameters; /* of its metadata, 0 if absent or no integer */

    char *config_text; /* NULL without config.json */
    size_t config_len;
    struct fp8q_json *config; /* NULL without config.json */
    /* Rows and columns of one scale as config.json says ("weight_block_size", or "block_structure"
     * of compressed-tensors), 0 if it says none.  */
    uint64_t block_rows, block_cols;

    /* Names in @dir (not recursive; directories too) that are neither shards nor index, sorted.  A
     * directory may hold shards of its own (an index may name "sub/x.safetensors").  */
    char **other_files;
    size_t n_other_files;

    struct fp8q_reading *reading; /* shards that fp8q_ckpt_read() keeps open; NULL: none */
};

/* Opens @path: a .safetensors file, or a directory with model.safetensors.index.json and its shards
 * or one model.safetensors (or one other single .safetensors file).  With an index only the named
 * shards are read; a tensor in two shards is taken from the one that the index names.
 *
 * Errors: FP8Q_E_IO ("shard-missing" with how many tensors it should hold, "no-index",
 * "no-safetensors", and what the system says), FP8Q_E_FORMAT (header, index or config break their
 * format, an index name leaves the directory, "index-tensor", a tensor in two shards that the index
 * does not name), FP8Q_E_ARG (an index given as the file).
 *
 * Warnings, at most one of each kind but for files: "index-total-size", "index-no-metadata",
 * "unindexed-tensor" (carried along, as loaders do), "tensor-in-two-shards", "shard-alias",
 * "unindexed-file", "index-beside-model", "foreign-scales", "no-tensors".
 * On failure *@ckpt_out is NULL; else free with fp8q_ckpt_close().  */
int fp8q_ckpt_open(const char *path, struct fp8q_ckpt **ckpt_out, struct fp8q_warnings *warnings,
                   struct fp8q_error *err);
/* The same, with somebody who may stop it between the headers of two shards.  */
int fp8q_ckpt_open_watched(const char *path, const struct fp8q_watch *watch,
                           struct fp8q_ckpt **ckpt_out, struct fp8q_warnings *warnings,
                           struct fp8q_error *err);
void fp8q_ckpt_close(struct fp8q_ckpt *ckpt);
/* Frees what one shard owns, not the struct.  */
void fp8q_shard_free(struct fp8q_shard *shard);

/* Binary search; NULL if there is none.  */
const struct fp8q_tensor *fp8q_ckpt_find(const struct fp8q_ckpt *ckpt, const char *name);
/* The tensor called @head (its first @head_len bytes) followed by @tail.  Needs no memory, so that
 * no decision depends on whether there is some.  */
const struct fp8q_tensor *fp8q_ckpt_find_joined(const struct fp8q_ckpt *ckpt, const char *head,
                                                size_t head_len, const char *tail);

/* Reads @len bytes of a tensor from byte @offset of it on, from any thread.  Keeps the few shards
 * that were read last open until the checkpoint is closed: for scales and small tensors; the stream
 * loop has descriptors of its own (files.h).  */
int fp8q_ckpt_read(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor, uint64_t offset,
                   void *buf, size_t len, struct fp8q_error *err);

/* FP8Q_E_IO "source-changed" if a shard's size, mtime, device or inode differ from those at open.
 */
int fp8q_ckpt_unchanged(const struct fp8q_ckpt *ckpt, struct fp8q_error *err);
/* The same for one shard, which is open as @fd.  */
int fp8q_shard_unchanged(const struct fp8q_shard *shard, int fd, struct fp8q_error *err);

#endif
