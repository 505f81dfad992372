/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8_checkpoint.h - small checkpoints for tests of what reads them.
 */
#ifndef FP8Q_TESTS_FP8_CHECKPOINT_H
#define FP8Q_TESTS_FP8_CHECKPOINT_H

#include "kernel/block.h"
#include "checkpoint/checkpoint.h"

/* A directory @dst that is checkpoint @src with another config.json (NULL: the same): links to its
 * files.  */
void link_checkpoint(const char *src, const char *dst, const char *config);

/* A directory @dst with the decoder's linears of @src as FP8 blocks (scalar kernel, plain rounding)
 * in one model.safetensors, everything else as it is, and @src's config.json.  */
void write_fp8_checkpoint(const struct fp8q_ckpt *src, const char *dst, enum fp8q_scale_fmt fmt);

/* The same with error-compensated rounding where the guard lets it; counts sites.  @use_guard
 * false: everywhere.  */
struct compensated_counts {
    unsigned sites, kept_plain;
};
void write_compensated_checkpoint(const struct fp8q_ckpt *src, const char *dst,
                                  enum fp8q_scale_fmt fmt, const char *calibration, bool use_guard,
                                  unsigned n_threads, struct compensated_counts *counts_out);

/* One safetensors file from tensors in memory.  */
struct memory_tensor {
    const char *name;
    enum fp8q_dtype dtype;
    uint64_t shape[3];
    uint32_t ndim;
    const void *data;
};
void write_tensors(const char *path, const struct memory_tensor *tensors, size_t n);
void write_tensors_with(const char *path, const struct memory_tensor *tensors, size_t n,
                        const struct fp8q_st_pair *metadata, size_t n_metadata);

#endif
