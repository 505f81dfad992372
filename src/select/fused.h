/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.h - which matrices engines load as one, by the last component of their names.
 */
#ifndef FP8Q_FUSED_H
#define FP8Q_FUSED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { FP8Q_MOST_PARTS = 3 };

struct fp8q_fused {
    const char *parts[FP8Q_MOST_PARTS + 1]; /* NULL behind the last */
    const char *name;                       /* what engines call the whole; NULL: by its parts */
    const char *file_name;  /* a name that only checkpoints have for the whole, or NULL */
    bool on_disk;           /* some checkpoints hold the whole in one matrix */
    const char *in_targets; /* the whole in targets of compressed-tensors, an expression: vLLM asks
                             * for a merged module by the name of the whole, then by its class */
};

/* The row in which @component is a part, or NULL.  */
const struct fp8q_fused *fp8q_fused_of_part(const char *component);
/* The row whose whole is called @component in checkpoints, or NULL.  */
const struct fp8q_fused *fp8q_fused_of_whole(const char *component);
/* The row in which weight @name ("....q_proj.weight") is a part, or NULL; @parent_len_out: the
 * leading bytes of its name that all parts share.  */
const struct fp8q_fused *fp8q_fused_of_weight(const char *name, size_t *parent_len_out);

/* Numbers @n weights from 0 on, such that those which engines load as one matrix, and only those,
 * have the same number.  Depends on the names alone, not on their order.  */
int fp8q_fused_number(const char *const *names, size_t n, size_t *numbers_out,
                      struct fp8q_error *err);

#endif
