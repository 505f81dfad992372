/* SPDX-License-Identifier: Apache-2.0
 *
 * scheme.h - the schemes by name, and which of them are asked for.
 *
 * One plain scheme holds for all tensors; items "PAT=NAME" name another for what their pattern
 * (pattern.h) matches.
 */
#ifndef FP8Q_SELECT_SCHEME_H
#define FP8Q_SELECT_SCHEME_H

#include "select/selection.h"

/* "FP8_BLOCK" and so on, in the order of enum fp8q_scheme, NULL behind the last.  */
extern const char *const fp8q_scheme_names[];

/* "PAT=NAME", cut at its last "=", as a regular expression may hold others.  The length of PAT, or 0
 * if @item is not of this form.  */
size_t fp8q_scheme_item(const char *item, enum fp8q_scheme *scheme_out);

/* The scheme of the weights alone: what is static is a matter of inputs.  */
enum fp8q_scheme fp8q_scheme_of_weights(enum fp8q_scheme scheme);

/* Whether the plain scheme or one of an item is @scheme.  */
bool fp8q_asks_for_scheme(const struct fp8q_select_options *options, enum fp8q_scheme scheme);
/* Whether any item names another scheme than the plain one.  */
bool fp8q_asks_for_schemes(const struct fp8q_select_options *options);

#endif
