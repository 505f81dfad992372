/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.h - what a checkpoint holds, and how it is quantized, from headers and config alone.
 */
#ifndef FP8Q_INSPECT_H
#define FP8Q_INSPECT_H

#include "checkpoint/checkpoint.h"
#include "select/families.h"

/* Kinds of tensors: names with their numbers taken out ("model.layers.N.mlp.up_proj.weight"), with
 * dtype and shape.  */
struct fp8q_tensor_kind {
    char *pattern; /* owned */
    enum fp8q_dtype dtype;
    const uint64_t *shape; /* of the first; borrowed */
    uint32_t ndim;
    size_t count;
    uint64_t size_bytes, n_elems;
};

struct fp8q_inspection {
    struct fp8q_tensor_kind *kinds; /* sorted by pattern */
    size_t n_kinds;
    struct fp8q_family family;
    const char *model_type; /* borrowed from the config, or NULL */
    char quantization[256]; /* "none", "block FP8, fp8 dialect, F32 scales 128x128", ... */
    uint64_t n_weights; /* elements of tensors of two and more dimensions, scales and packed ones
                           aside */
    double bits_per_weight; /* stored bytes of everything over that, times 8 */
};

int fp8q_inspect(const struct fp8q_ckpt *ckpt, struct fp8q_inspection *inspection_out,
                 struct fp8q_error *err);
void fp8q_inspection_reset(struct fp8q_inspection *inspection);

/* Role of a tensor for people: "backbone", "vision", "norm", ...; quantized or not.  Static text.  */
int fp8q_tensor_role(const struct fp8q_ckpt *ckpt, const struct fp8q_family *family,
                     const struct fp8q_tensor *tensor, const char **role_out,
                     struct fp8q_error *err);

#endif
