/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of measure/ share: the loop over groups of samples, and what sweep.c
 * and split.c, and drift.c and drift_codes.c, tell each other.
 */
#ifndef FP8Q_MEASURE_INTERNAL_H
#define FP8Q_MEASURE_INTERNAL_H

#include "measure/drift.h"
#include "measure/sweep.h"

/* Tokens of the longest sample.  */
size_t fp8q_longest_sample(const struct fp8q_inputs *inputs);

/* Calls @run for groups of samples of about @max_tokens tokens each, in order, made for runs of
 * @model and (unless NULL) @other; @first_sample is the index of the group's first one.  Stops at
 * the first failure.  */
typedef int fp8q_group_fn(void *ctx, const struct fp8q_group *group, size_t first_sample,
                          struct fp8q_error *err);
int fp8q_groups_run(const struct fp8q_model *model, const struct fp8q_model *other,
                    const struct fp8q_inputs *inputs, size_t max_tokens, fp8q_group_fn *run,
                    void *ctx, struct fp8q_error *err);

/* ---- sweep ----------------------------------------------------------------------------------- */

struct fp8q_sweep_job {
    const struct fp8q_model *model;
    const struct fp8q_inputs *inputs;
    const struct fp8q_sweep_options *options;
    struct fp8q_sweep *sweep;
};

/* Sets the flag of each linear of @unit; @flags is [layer][linear].  */
void fp8q_sweep_flags(const struct fp8q_sweep_unit *unit, bool *flags);

/* With the costs of all units known: sorts them, measures "all", and chooses and measures the split
 * that keeps the budget.  */
int fp8q_split_choose(const struct fp8q_sweep_job *job, struct fp8q_error *err);

/* ---- drift ----------------------------------------------------------------------------------- */

struct fp8q_drift_pair {
    const struct fp8q_calib *before, *after;
    const struct fp8q_drift_options *options;
};

/* Fills in what re-rounding the weights of options->ckpt would change, site by site.  */
int fp8q_drift_codes(const struct fp8q_drift_pair *pair, const struct fp8q_kernel *kernel,
                     struct fp8q_drift *drift, struct fp8q_error *err);

#endif
