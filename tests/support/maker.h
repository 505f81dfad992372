/* SPDX-License-Identifier: Apache-2.0
 *
 * maker.h - makes checkpoints: named tensors in shards, an index, a config, side files.
 *
 * The one writer of test checkpoints in C; what differs is which tensors there are and what fills
 * them.  Whatever fails ends the program with a message: these are tests and tools.
 */
#ifndef FP8Q_TESTS_MAKER_H
#define FP8Q_TESTS_MAKER_H

#include "format/safetensors.h"

enum { MAKER_DIMS = 8 };

struct maker_tensor {
    char *name; /* owned */
    uint64_t shape[MAKER_DIMS];
    uint32_t ndim;
    enum fp8q_dtype dtype;
    size_t shard;
    const void *data; /* borrowed; NULL: maker's fill, or zeros */
    bool unlisted;    /* the index does not name it */
};

struct maker {
    struct maker_tensor *tensors;
    size_t n, cap, n_shards; /* shards: the highest number given, plus one */
    bool sparse;             /* no data: files of the right size that read as zeros */
    /* Gives @len bytes of tensor @t from byte @from on; called in rising order, from 0 for each.  */
    void (*fill)(void *ctx, const struct maker_tensor *t, uint64_t from, void *out, size_t len);
    void *ctx;
    const struct fp8q_st_pair *metadata; /* of every shard; NULL: {"format": "pt"} */
    size_t n_metadata;
};

/* Appends a tensor to shard @shard; the pointer is valid until the next call.  */
struct maker_tensor *maker_add(struct maker *m, const char *name, enum fp8q_dtype dtype,
                               uint32_t ndim, const uint64_t *shape, size_t shard);
uint64_t maker_bytes(const struct maker_tensor *t);
void maker_free(struct maker *m);

/* Writes the tensors of one shard as a new file.  */
void maker_write_shard(const struct maker *m, size_t shard, const char *path);
/* "model.safetensors", or "model-00001-of-00002.safetensors" for shard 0 of 2.  */
void maker_shard_name(char *name, size_t cap, size_t shard, size_t n_shards);
/* model.safetensors.index.json in @dir.  */
void maker_write_index(const struct maker *m, const char *dir);
/* A file @name, which may lie in new sub-directories, in @dir.  */
void maker_write_text(const char *dir, const char *name, const char *text);
/* The new directory @dir: shards, an index if there is more than one, config.json (NULL: none).  */
void maker_write(const struct maker *m, const char *dir, const char *config);

#endif
