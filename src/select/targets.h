/* SPDX-License-Identifier: Apache-2.0
 *
 * targets.h - which config group of compressed-tensors a module falls under.
 *
 * As its readers do: a target that is the module's name, or an expression "re:..." that matches from
 * its beginning, goes before one that is the class of linears.
 */
#ifndef FP8Q_SELECT_TARGETS_H
#define FP8Q_SELECT_TARGETS_H

#include "checkpoint/scales.h"
#include "format/json.h"

struct fp8q_targets; /* compiled; belongs to one thread */

/* Those of a quantization_config, which must outlive them; none without config_groups.  */
int fp8q_targets_open(const struct fp8q_json *quantization, struct fp8q_targets **targets_out,
                      struct fp8q_error *err);
void fp8q_targets_close(struct fp8q_targets *targets);

/* The group of @module, a name without ".weight"; NULL: it falls under none.  *@several_out (NULL
 * allowed): targets of another group name it too, and readers may take the other.  */
int fp8q_targets_find(const struct fp8q_targets *targets, const char *module,
                      const struct fp8q_json **group_out, bool *several_out,
                      struct fp8q_error *err);

/* How compressed-tensors calls scales that lie so: "block", "channel", "tensor" or "group".  */
const char *fp8q_strategy_of(enum fp8q_scaling scaling);
/* Whether @group says of weights what @scale is.  Of one scale nobody can say what it is of.  */
bool fp8q_group_says(const struct fp8q_json *group, const struct fp8q_tensor *scale,
                     enum fp8q_scaling scaling);
/* Whether @group says that inputs have a scale of their own, on disk.  */
bool fp8q_group_is_static(const struct fp8q_json *group);

#endif
