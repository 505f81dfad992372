/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - the steps of a selection, for this room only.
 */
#ifndef FP8Q_SELECT_INTERNAL_H
#define FP8Q_SELECT_INTERNAL_H

#include "select/selection.h"

/* ---- patterns.c: the user's patterns as a whole -------------------------------------------- */

struct fp8q_pattern_set;

int fp8q_pattern_set_create(const struct fp8q_select_options *options,
                            struct fp8q_pattern_set **set_out, struct fp8q_error *err);
void fp8q_pattern_set_free(struct fp8q_pattern_set *set);

/* Whether any --ignore or --include pattern matches the tensor's module.  Counts matches for the
 * lint; @d is the decision before patterns.  */
int fp8q_pattern_set_match(struct fp8q_pattern_set *set, const char *tensor_name,
                           const struct fp8q_decision *d, bool *ignored_out, bool *included_out,
                           struct fp8q_error *err);

/* After all tensors: a pattern without a match is FP8Q_E_ARG with near names (a warning with
 * @options->allow_unmatched).  Warns of patterns that change nothing, of a regular expression that
 * a leading `.*` would make match a tower, and of an lm_head that would be quantized.  */
int fp8q_pattern_set_lint(const struct fp8q_pattern_set *set, const struct fp8q_ckpt *ckpt,
                          const struct fp8q_selection *selection,
                          const struct fp8q_select_options *options, struct fp8q_warnings *warnings,
                          struct fp8q_error *err);

/* ---- parts.c: weights that hold several logical matrices ------------------------------------
 *
 * Fused on disk (qkv_proj, gate_up_proj, wqkv) and stacked experts.  Sizes come from config.json;
 * what it leaves open counts as not aligned.  */

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

/* ---- groups.c ------------------------------------------------------------------------------- */

/* The last step of fp8q_select(): a group of which one member must stay is kept whole, with a
 * warning for each kind of group (FP8Q_E_MISMATCH with @options->strict).  */
int fp8q_groups_settle(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                       struct fp8q_selection *selection, struct fp8q_warnings *warnings,
                       struct fp8q_error *err);

#endif
