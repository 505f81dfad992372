/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - part of planning: pieces, and the shards that they fill, with offsets and headers.
 */
#ifndef FP8Q_LAYOUT_H
#define FP8Q_LAYOUT_H

#include "plan/plan.h"

/* Fills plan->tensors and plan->pieces in the order in which the sources lie on disk, so that
 * reading is sequential; tensors[].shard is the source's.  pieces.c  */
int fp8q_plan_pieces(struct fp8q_plan *plan, struct fp8q_error *err);

/* Names the output shards, sorts tensors into them as the official writer does, assigns offsets,
 * emits headers and the index.  Expects plan->tensors and plan->pieces in source order with
 * tensors[].shard = shard of the source.  */
int fp8q_layout(struct fp8q_plan *plan, struct fp8q_error *err);

/* Header entries of one output shard, in its order; free with free().  NULL without memory.  */
struct fp8q_st_tensor *fp8q_shard_entries(const struct fp8q_plan *plan, size_t shard);

#endif
