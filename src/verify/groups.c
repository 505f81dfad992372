/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.c - the config groups of compressed-tensors against the scales that lie on disk.
 *
 * Readers take from the group of a module what its scales are, and whether its inputs have one.
 */
#include "verify/internal.h"

#include <stdlib.h>

#include "format/names.h"
#include "select/targets.h"

/* One weight and its group.  What its scales lack is the finding of another check.  */
static void check_weight(const struct fp8q_ckpt *ckpt, size_t i, const struct fp8q_json *group,
                         struct fp8q_findings *f)
{
    const struct fp8q_tensor *t = &ckpt->tensors[i], *scale;
    const char *strategy = fp8q_json_string(fp8q_json_path(group, "weights.strategy"), "tensor");
    struct fp8q_scale_layout layout;
    struct fp8q_shown shown;

    if (fp8q_find_scales(ckpt, t, &scale, NULL) != FP8Q_OK ||
        fp8q_find_layout(ckpt, t, scale, &layout, NULL) != FP8Q_OK)
        return;
    if (!fp8q_group_says(group, scale, layout.scaling))
        fp8q_findings_add(f, i + 1, t->name,
                          "has scales of strategy \"%s\", its group says \"%.40s\"",
                          fp8q_strategy_of(layout.scaling), fp8q_show(&shown, strategy));
    else if (fp8q_group_is_static(group))
        fp8q_verify_static(ckpt, i, f);
}

static int check_weights(const struct fp8q_ckpt *ckpt, const struct fp8q_targets *targets,
                         struct fp8q_findings *f, struct fp8q_error *err)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        const struct fp8q_json *group;
        bool several;
        if (!fp8q_is_fp8(t->dtype) || t->ndim < 2 || t->n_elems == 0)
            continue;

        char *module = strndup(t->name, fp8q_weight_stem(t->name));
        int status = module ? fp8q_targets_find(targets, module, &group, &several, err)
                            : fp8q_fail_nomem(err);
        free(module);
        FP8Q_TRY(status);

        f->n_looked_at++;
        if (!group)
            fp8q_findings_add(f, i + 1, t->name, "falls under no config group");
        else if (several)
            fp8q_findings_add(f, i + 1, t->name, "is named by the targets of two config groups");
        else
            check_weight(ckpt, i, group, f);
    }
    return FP8Q_OK;
}

int fp8q_verify_groups(struct fp8q_report *report, const struct fp8q_json *q,
                       struct fp8q_error *err)
{
    struct fp8q_findings f = {.id = "config-groups",
                              .status = report->ours ? FP8Q_CHECK_FAIL : FP8Q_CHECK_WARN,
                              .limit = "each FP8 weight scaled as its config group says"};
    struct fp8q_findings *const all[] = {&f};
    struct fp8q_targets *targets;
    if (!fp8q_json_is_object(fp8q_json_get(q, "config_groups")))
        return FP8Q_OK;

    FP8Q_TRY(fp8q_targets_open(q, &targets, err));
    int status = check_weights(report->ckpt, targets, &f, err);
    fp8q_targets_close(targets);
    return fp8q_report_add_all(report, status, all, 1, err);
}
