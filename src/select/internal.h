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

/* The scheme that --scheme patterns name for the tensor: of several the last; *@scheme_out is left
 * alone without one.  */
int fp8q_pattern_set_scheme(struct fp8q_pattern_set *set, const char *tensor_name,
                            enum fp8q_scheme *scheme_out, struct fp8q_error *err);
/* Notes whether the defaults quantize the tensor.  A --scheme pattern that reaches none of those
 * asks for what it names, as --include does.  */
int fp8q_pattern_set_note(struct fp8q_pattern_set *set, const char *tensor_name, bool quantized,
                          struct fp8q_error *err);

/* After all tensors: a pattern without a match is FP8Q_E_ARG with near names (a warning with
 * @options->allow_unmatched).  Warns of patterns that change nothing, of a regular expression that
 * a leading `.*` would make match a tower, and of an lm_head that would be quantized.  */
int fp8q_pattern_set_lint(const struct fp8q_pattern_set *set, const struct fp8q_ckpt *ckpt,
                          const struct fp8q_selection *selection,
                          const struct fp8q_select_options *options, struct fp8q_warnings *warnings,
                          struct fp8q_error *err);

/* ---- groups.c ------------------------------------------------------------------------------- */

/* The last step of fp8q_select(): a group of which one member must stay is kept whole, with a
 * warning for each kind of group (FP8Q_E_MISMATCH with @options->strict).  */
int fp8q_groups_settle(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                       struct fp8q_selection *selection, struct fp8q_warnings *warnings,
                       struct fp8q_error *err);

#endif
