/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h - model.safetensors.index.json: text -> which shard holds which tensor.  Touches no file.
 */
#ifndef FP8Q_INDEX_H
#define FP8Q_INDEX_H

#include "base/text.h"

struct fp8q_index_entry {
    const char *tensor;
    uint32_t shard; /* place in @shards */
};

struct fp8q_index {
    struct fp8q_index_entry *entries; /* sorted by tensor name (bytes) */
    size_t n_entries;
    const char **shards; /* distinct, sorted (bytes), without "./" and "//" */
    size_t n_shards;
    const char *respelled; /* a shard name that had such parts, as it is now; NULL without one */
    bool has_metadata;     /* it is an object */
    bool has_total_size;   /* its total_size is there, whatever it is */
    bool total_size_ok;    /* and an integer */
    uint64_t total_size;
    char *arena; /* owned: all names */
};

/* What makes a shard name unsafe or no shard name ("an absolute path"), NULL if nothing does.  */
const char *fp8q_index_bad_name(const char *name);

/* Strict JSON, then the table.  FP8Q_E_FORMAT for anything but an object with a weight_map of
 * strings that are safe relative paths.  On failure *@index_out is zeroed; else reset it at the
 * end.  */
int fp8q_index_parse(const char *text, size_t len, const char *what, struct fp8q_index *index_out,
                     struct fp8q_error *err);
void fp8q_index_reset(struct fp8q_index *index);

#endif
