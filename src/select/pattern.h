/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern.h - the patterns of --ignore and --include, matched against module names.
 *
 *   visual, mlp.gate     a run of whole dot-separated components anywhere in the name
 *   *.layers.?.mlp*      with * ? or [: a glob over the whole name
 *   re:.*visual.*        a regular expression, anchored at the start only (Python's re.match)
 */
#ifndef FP8Q_PATTERN_H
#define FP8Q_PATTERN_H

#include "base/error.h"

struct fp8q_pattern; /* compiled; holds the data of its last match, so it belongs to one thread */

int fp8q_pattern_compile(const char *text, struct fp8q_pattern **pattern_out,
                         struct fp8q_error *err);
void fp8q_pattern_free(struct fp8q_pattern *pattern);
const char *fp8q_pattern_text(const struct fp8q_pattern *pattern);
bool fp8q_pattern_is_regex(const struct fp8q_pattern *pattern);

/* Whether @module matches.  A regular expression that runs into PCRE2's limits is FP8Q_E_ARG.  */
int fp8q_pattern_match(const struct fp8q_pattern *pattern, const char *module, bool *matches_out,
                       struct fp8q_error *err);

/* True if @run is a run of whole dot-separated components of @name: "layers.1" is not in
 * "layers.10".  */
bool fp8q_has_components(const char *name, const char *run);
/* Same for any of the space-separated runs of @list; the one found is returned (its start in
 * @list), else NULL.  */
const char *fp8q_has_any_components(const char *name, const char *list, size_t *len_out);

/* Length of the module's part of a tensor name: without ".weight" or ".bias".  */
size_t fp8q_module_len(const char *tensor_name);

/* Edits (insert, delete, replace one byte) from @a to @b, at most @limit + 1.  */
size_t fp8q_edit_distance(const char *a, const char *b, size_t limit);

#endif
