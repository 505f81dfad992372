/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - the steps of planning, in their order, for this room only.
 */
#ifndef FP8Q_PLAN_INTERNAL_H
#define FP8Q_PLAN_INTERNAL_H

#include "base/text.h"
#include "engines/tp.h"
#include "plan/plan.h"
#include "plan/spellings.h"

/* Fills plan->tensors and plan->pieces in the order in which the sources lie on disk, so that
 * reading is sequential; tensors[].shard is the source's.  pieces.c  */
int fp8q_plan_pieces(struct fp8q_plan *plan, struct fp8q_error *err);

/* Counts tensors and bytes by reason.  limits.c  */
void fp8q_plan_count(struct fp8q_plan *plan);

/* What tensor parallelism has to cut of the output.  limits.c  */
struct fp8q_tp fp8q_plan_tp(const struct fp8q_plan *plan);

/* Fills plan->exclusions: every module that stays, in the spellings that engines ask for
 * (docs/reference/format.md "exclusion list"), sorted.  */
int fp8q_exclude(struct fp8q_plan *plan, struct fp8q_warnings *warnings, struct fp8q_error *err);
/* Narrows the list and proves it: the second half of fp8q_exclude().  narrow.c  */
int fp8q_exclude_narrow(struct fp8q_plan *plan, struct fp8q_spellings *list,
                        struct fp8q_spellings *not_converted, struct fp8q_warnings *warnings,
                        struct fp8q_error *err);
/* Whether a tensor of the source is quantized; @plan is a struct fp8q_plan.  exclude.c  */
bool fp8q_plan_quantizes(const void *plan, size_t tensor);
/* Whether an lm_head is quantized.  exclude.c  */
bool fp8q_head_is_quantized(const struct fp8q_plan *plan);
/* Whether there are layers of a draft root `mtp.`, whose numbers are those of the main ones.  */
bool fp8q_plan_has_draft(const struct fp8q_plan *plan);
/* Appends @n characters of a module name as an expression, from its `layers.` on, so that any
 * prefix will do.  config.c  */
void fp8q_write_stem(struct fp8q_text *t, const char *module, size_t n, bool has_draft);

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
