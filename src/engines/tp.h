/* SPDX-License-Identifier: Apache-2.0
 *
 * tp.h - how far tensor parallelism can cut the matrices that have block scales.
 */
#ifndef FP8Q_ENGINES_TP_H
#define FP8Q_ENGINES_TP_H

#include "checkpoint/checkpoint.h"
#include "kernel/block.h"
#include "select/families.h"

enum { FP8Q_MOST_TP = 64 };

/* What is to be cut.  @in_blocks says of a tensor whether it is FP8 with scales of blocks (or of
 * groups of a row), or will be, and of which sizes.  */
struct fp8q_tp {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_family *family;
    bool (*in_blocks)(const void *context, size_t tensor, struct fp8q_grid *grid_out);
    const void *context;
};

/* A matrix that @ways-way tensor parallelism cannot cut into whole blocks, or NULL.  */
const char *fp8q_tp_misfit(const struct fp8q_tp *tp, unsigned ways);

/* Largest power of two up to FP8Q_MOST_TP at which every matrix can be cut; *@name_out is a tensor
 * that stops the next one (NULL at FP8Q_MOST_TP).  */
unsigned fp8q_largest_tp(const struct fp8q_tp *tp, const char **name_out);

#endif
