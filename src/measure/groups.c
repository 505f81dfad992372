/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.c - the loop that eval, sweep and calibrate share.
 */
#include "base/mem.h"
#include "measure/internal.h"

size_t fp8q_longest_sample(const struct fp8q_inputs *inputs)
{
    size_t longest = 0;
    for (size_t i = 0; i < inputs->n_samples; i++)
        longest = fp8q_max_size(longest, inputs->samples[i].n_tokens);
    return longest;
}

static int run_group(const struct fp8q_groups *groups, struct fp8q_group *group, size_t first,
                     fp8q_group_fn *run, void *ctx, struct fp8q_error *err)
{
    for (unsigned i = 0; i < groups->n_others; i++)
        FP8Q_TRY(fp8q_group_add(group, groups->others[i], err));
    return run(ctx, group, first, err);
}

int fp8q_groups_run(const struct fp8q_groups *groups, fp8q_group_fn *run, void *ctx,
                    struct fp8q_error *err)
{
    const struct fp8q_inputs *inputs = groups->inputs;
    for (size_t i = 0, n; i < inputs->n_samples; i += n) {
        struct fp8q_group group;
        /* At least one sample, however long: the loop goes on.  */
        n = fp8q_group_size(inputs, i, groups->max_tokens);
        FP8Q_TRY(fp8q_group_open(&group, groups->model, inputs->samples + i, n, err));

        int status = run_group(groups, &group, i, run, ctx, err);
        fp8q_group_close(&group);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}
