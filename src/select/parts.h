/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h - logical parts of fused and stacked weights.
 *
 * Fused on disk (qkv_proj, gate_up_proj, wqkv) and stacked experts.  Sizes come from config.json;
 * what it leaves open counts as not aligned.
 */
#ifndef FP8Q_SELECT_PARTS_H
#define FP8Q_SELECT_PARTS_H

#include "checkpoint/checkpoint.h"
#include "select/families.h"

/* Sizes of the language model; 0 where config.json does not say.  */
struct fp8q_parts_config {
    uint64_t hidden, heads, kv_heads, head_dim, moe_intermediate;
};
struct fp8q_parts_config fp8q_parts_config_of(const struct fp8q_json *config);

/* Row counts of the logical parts of a weight of @n_rows by its name; 1 part for ordinary weights,
 * 0 if unknown.  At most 3.  */
unsigned fp8q_parts(const struct fp8q_parts_config *config, const char *name, uint64_t n_rows,
                    uint64_t sizes_out[3]);
/* All parts multiples of 128.  */
bool fp8q_parts_aligned(const struct fp8q_parts_config *config, const char *name, uint64_t n_rows);

/* Whether a stacked tensor's shape is the layout that its family has on the hub, without doubt.  */
bool fp8q_stack_layout_fits(const struct fp8q_parts_config *config, enum fp8q_experts experts,
                            bool gate_up, const uint64_t shape[3]);
bool fp8q_stack_aligned(enum fp8q_experts experts, const char *name, const uint64_t shape[3]);

/* The stacked tensor that a per-expert name "....experts.3.gate_proj.weight" was split from, or
 * NULL.  */
const struct fp8q_tensor *fp8q_split_source(const struct fp8q_ckpt *ckpt, const char *name);
/* Whether @ckpt holds the per-expert FP8 weights that stacked @name splits into.  */
bool fp8q_split_in(const struct fp8q_ckpt *ckpt, const char *name);

#endif
