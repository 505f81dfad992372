/* SPDX-License-Identifier: Apache-2.0
 *
 * static.c - scales that data decided: derived again from a calibration file, or taken as stored.
 */
#include <stdio.h>
#include <string.h>

#include "format/names.h"
#include "verify/internal.h"

/* ---- for the plan ---------------------------------------------------------------------------- */

static int read_one(const struct fp8q_ckpt *ckpt, const char *name, float *out,
                    struct fp8q_error *err)
{
    const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, name);
    *out = 0;

    /* What is missing, or of another shape, is said when tensors are matched.  */
    if (!t || t->n_elems != 1)
        return FP8Q_OK;
    return fp8q_read_floats(ckpt, t, fp8q_kernel_select("scalar"), out, err);
}

/* The scale as the output has it.  */
static int stored_input(const void *ctx, const char *weight, float *scale_out,
                        struct fp8q_error *err)
{
    struct fp8q_name name;
    size_t stem = fp8q_weight_stem(weight);

    *scale_out = 0;
    if (stem + sizeof(".input_scale") > sizeof(name.text))
        return FP8Q_OK;
    snprintf(name.text, sizeof(name.text), "%.*s.input_scale", (int)stem, weight);
    return read_one(ctx, name.text, scale_out, err);
}

/* The same of a cache: below the projection, or below the attention.  */
static int stored_cache(const void *ctx, const char *attention, bool values, float *scale_out,
                        struct fp8q_error *err)
{
    struct fp8q_name name;
    char half = values ? 'v' : 'k';

    *scale_out = 0;
    if (strlen(attention) + 32 > sizeof(name.text))
        return FP8Q_OK;
    snprintf(name.text, sizeof(name.text), "%s.%c_proj.%c_scale", attention, half, half);
    if (!fp8q_ckpt_find(ctx, name.text))
        snprintf(name.text, sizeof(name.text), "%s.%c_scale", attention, half);
    return read_one(ctx, name.text, scale_out, err);
}

/* Another tool's output says by its tensors that inputs are static.  */
static bool has_input_scales(const struct fp8q_ckpt *ckpt)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (fp8q_ends_with(ckpt->tensors[i].name, ".input_scale"))
            return true;
    return false;
}

int fp8q_verify_data_open(const struct fp8q_report *report,
                          const struct fp8q_verify_options *options,
                          struct fp8q_plan_options *plan_options, struct fp8q_data_scales *stored,
                          struct fp8q_data_scales_of *derived, struct fp8q_error *err)
{
    *derived = (struct fp8q_data_scales_of){.ranges = NULL};
    *stored = (struct fp8q_data_scales){
        .ctx = report->ckpt, .input = stored_input, .cache = stored_cache};

    if (!report->ours && plan_options->format != FP8Q_FORMAT_FP8)
        plan_options->static_inputs = has_input_scales(report->ckpt);
    if (!fp8q_plan_takes_data(plan_options))
        return FP8Q_OK;

    plan_options->data = stored;
    if (!report->ours || !options->calibration)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_data_scales_open(options->calibration, report->manifest.request.input_range,
                                   derived, err));
    plan_options->data = &derived->scales;
    return FP8Q_OK;
}

/* ---- the check ------------------------------------------------------------------------------- */

static int check_each(struct fp8q_report *report, struct fp8q_findings *f, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = report->plan;

    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[i];
        float stored;
        if (t->kind != FP8Q_OUT_CONSTANT)
            continue;

        f->n_looked_at++;
        FP8Q_TRY(read_one(report->ckpt, t->name, &stored, err));
        if (stored != t->value)
            fp8q_findings_add(f, i, t->name, "is %.9g, the calibration gives %.9g", (double)stored,
                              (double)t->value);
    }
    return FP8Q_OK;
}

int fp8q_verify_data_check(struct fp8q_report *report, const struct fp8q_verify_options *options,
                           struct fp8q_error *err)
{
    struct fp8q_findings f = {.id = "data-scales",
                              .status = FP8Q_CHECK_FAIL,
                              .limit = "static scales as the calibration gives them"};
    bool derived =
        report->ours && fp8q_plan_takes_data(&report->plan->options) && options->calibration;

    if (!derived)
        return FP8Q_OK;
    int status = check_each(report, &f, err);
    struct fp8q_findings *all[] = {&f};
    return fp8q_report_add_all(report, status, all, 1, err);
}
