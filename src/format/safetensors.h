/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.h - the container: header bytes <-> tensor table.  No policy, no payload I/O.
 * The rules are those of docs/reference/format.md; where they differ from the official reader it says so.
 */
#ifndef FP8Q_SAFETENSORS_H
#define FP8Q_SAFETENSORS_H

#include "base/text.h"

unsigned fp8q_dtype_bits(enum fp8q_dtype dtype);
bool fp8q_dtype_parse(const char *name, size_t len, enum fp8q_dtype *dtype_out);

/* Elements of a shape (1 for a scalar); false if the product leaves uint64_t.  */
bool fp8q_shape_count(const uint64_t *shape, uint32_t ndim, uint64_t *count_out);

struct fp8q_st_tensor {
    const char *name;      /* UTF-8 without NUL, in the header's arena */
    const uint64_t *shape; /* @ndim sizes, in the header's arena */
    uint64_t begin, end;   /* bytes from the start of the data section */
    uint32_t ndim;
    enum fp8q_dtype dtype;
};

struct fp8q_st_pair {
    const char *key, *value; /* NUL-terminated; the lengths tell if there is a NUL inside too */
    size_t key_len, value_len;
};

/* A parsed header: sorted by (begin, end), contiguous from 0, sizes equal to shape x dtype, names
 * unique, the last end equal to the size of the data section.  */
struct fp8q_st_header {
    struct fp8q_st_tensor *tensors;
    size_t n_tensors;
    struct fp8q_st_pair *metadata; /* file order; of equal keys only the last is kept */
    size_t n_metadata;
    uint64_t data_start;   /* file offset of the data section: 8 + length of the JSON text */
    uint32_t crc32;        /* of the first @data_start bytes of the file */
    char *names_arena;     /* owned */
    uint64_t *shape_arena; /* owned */
};

#define FP8Q_ST_MAX_HEADER 100000000u /* the format's own limit, in bytes */
#define FP8Q_ST_MAX_TENSORS 4000000u
#define FP8Q_ST_MAX_RANK 65535u
#define FP8Q_ST_MAX_DEPTH 127u /* levels; the official reader stops at the 128th */

/* Parses the JSON text of a header (@len bytes, without the 8 of the length) of a file whose data
 * section holds @data_size bytes.  @what names the file in messages.  This is the fuzz target.
 * On failure *@header_out is zeroed.  Memory: that of the decoded names, 40 to 80 bytes a tensor
 * and 8 a dimension; while names are compared, 64 more a tensor.  */
int fp8q_st_parse(const char *text, size_t len, uint64_t data_size, const char *what,
                  struct fp8q_st_header *header_out, struct fp8q_error *err);

/* Reads and parses the header of an open file of @file_size bytes.  Names what a file that is no
 * safetensors file seems to be (Git LFS pointer, pickle, ZIP, GGUF, HTML), but only once its length
 * field has proved impossible.  */
int fp8q_st_read(int fd, uint64_t file_size, const char *path, struct fp8q_st_header *header_out,
                 struct fp8q_error *err);
void fp8q_st_reset(struct fp8q_st_header *header);

/* Emits the length field and the JSON text for @tensors in the given order, as the official writer
 * does: compact, `__metadata__` first (left out when @n_metadata is 0), keys in the given order,
 * padded with spaces to a multiple of 8 and to at least @min_size bytes in all (0: no minimum).
 * Refuses duplicate or reserved names, sizes that disagree with shape and dtype, and offsets that
 * are not contiguous.  Appends to @out.  */
int fp8q_st_emit(const struct fp8q_st_tensor *tensors, size_t n_tensors,
                 const struct fp8q_st_pair *metadata, size_t n_metadata, uint64_t min_size,
                 struct fp8q_text *out, struct fp8q_error *err);

#endif
