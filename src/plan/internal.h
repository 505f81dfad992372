/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - the steps of planning, in their order, for this room only.
 */
#ifndef FP8Q_PLAN_INTERNAL_H
#define FP8Q_PLAN_INTERNAL_H

#include "plan/plan.h"

/* Fills plan->tensors and plan->pieces in the order in which the sources lie on disk, so that
 * reading is sequential; tensors[].shard is the source's.  pieces.c  */
int fp8q_plan_pieces(struct fp8q_plan *plan, struct fp8q_error *err);

/* Counts tensors and bytes by reason.  limits.c  */
void fp8q_plan_count(struct fp8q_plan *plan);

/* Fills plan->exclusions: every module that stays, in the spellings that engines ask for
 * (docs/reference/format.md "exclusion list"), sorted.  */
int fp8q_exclude(struct fp8q_plan *plan, struct fp8q_error *err);

/* Fills plan->quant_config and plan->config_text (the source's config.json with quantization_config
 * put in, or taken out when dequantizing).  */
int fp8q_config_texts(struct fp8q_plan *plan, struct fp8q_error *err);

/* Names the output shards, sorts tensors into them as the official writer does, assigns offsets,
 * emits headers and the index.  Expects plan->tensors and plan->pieces in source order with
 * tensors[].shard = shard of the source.  */
int fp8q_layout(struct fp8q_plan *plan, struct fp8q_error *err);

/* Header entries of one output shard, in its order; free with free().  NULL without memory.  */
struct fp8q_st_tensor *fp8q_shard_entries(const struct fp8q_plan *plan, size_t shard);

/* Threads, stripe and peak within the limit of memory.  limits.c  */
int fp8q_plan_memory(struct fp8q_plan *plan, struct fp8q_error *err);

#endif
