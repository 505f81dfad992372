/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_view.c - the plan of a conversion as its caller sees it.
 *
 * Everything is laid out once after planning, so that pointers into it stay good as long as the
 * handle: about 150 bytes for each tensor.
 */
#include <stdio.h>
#include <string.h>

#include "api/conversion.h"
#include "base/mem.h"
#include "base/path.h"
#include "format/names.h"
#include "select/scheme.h"

static void describe_tensors(struct fp8q_conversion *c)
{
    for (size_t i = 0; i < c->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &c->ckpt->tensors[i];
        const struct fp8q_decision *d = &c->plan->selection.decisions[i];
        c->tensors[i] = (struct fp8q_planned_tensor){
            .name = t->name,
            .dtype = t->dtype,
            .ndim = t->ndim,
            .shape = t->shape,
            .bytes = t->size_bytes,
            .shard = c->ckpt->shards[t->shard].name,
            .quantize = d->quantize,
            .reason = fp8q_reason_name(d->reason),
            .scheme = d->quantize ? fp8q_scheme_names[d->scheme] : NULL};
    }
}

static void describe_outputs(struct fp8q_conversion *c)
{
    for (size_t i = 0; i < c->plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &c->plan->tensors[i];
        c->outputs[i] = (struct fp8q_output_tensor){.name = t->name,
                                                    .dtype = t->dtype,
                                                    .ndim = t->ndim,
                                                    .shape = t->shape,
                                                    .bytes = t->end - t->begin,
                                                    .shard = t->shard,
                                                    .source = t->source,
                                                    .is_scale = fp8q_is_with_scales(t)};
    }
}

/* Reasons for leaving come before reasons for quantizing in the enum, and so do they here.  */
static void describe_reasons(struct fp8q_conversion *c)
{
    for (unsigned i = 0; i < FP8Q_N_REASONS * FP8Q_N_SCHEMES; i++) {
        unsigned r = i / FP8Q_N_SCHEMES, s = i % FP8Q_N_SCHEMES;
        const struct fp8q_count *count = &c->plan->by_scheme[r][s];
        bool quantized = r >= FP8Q_WHY_BACKBONE;
        if (count->tensors == 0)
            continue;

        c->reasons[c->n_reasons++] =
            (struct fp8q_reason_count){.reason = fp8q_reason_name((enum fp8q_reason)r),
                                       .quantized = quantized,
                                       .tensors = count->tensors,
                                       .source_bytes = count->source_bytes,
                                       .output_bytes = count->output_bytes,
                                       .scheme = quantized ? fp8q_scheme_names[s] : NULL};
    }
}

static void describe_plan(struct fp8q_conversion *c)
{
    const struct fp8q_plan *p = c->plan;
    const struct fp8q_family *family = &p->selection.family;
    bool quantizes = !p->options.dequantize;

    c->info = (struct fp8q_plan_info){.n_tensors = c->ckpt->n_tensors,
                                      .n_quantized = p->selection.n_quantize,
                                      .n_outputs = p->n_tensors,
                                      .source_bytes = p->source_bytes,
                                      .output_bytes = p->output_bytes,
                                      .peak_memory = p->peak_memory,
                                      .threads = p->threads,
                                      .architecture = family->name,
                                      .model_type = family->model_type,
                                      .note = family->note,
                                      .custom_runtime = family->lerobot,
                                      .dequantizes = !quantizes,
                                      .double_rounding = quantizes &&
                                                         p->options.scale_fmt == FP8Q_SCALE_F32 &&
                                                         fp8q_plan_has_scheme(p, FP8Q_SCHEME_BLOCK),
                                      .largest_tp = p->largest_tp,
                                      .tp_limit = p->tp_limit,
                                      .exclusions = (const char *const *)p->exclusions,
                                      .n_exclusions = p->n_exclusions,
                                      .default_destination = c->default_destination,
                                      .n_parts = c->n_parts,
                                      .bytes_read_twice = p->bytes_read_twice};
}

int fp8q_conversion_describe(struct fp8q_conversion *c, struct fp8q_error *err)
{
    c->tensors = fp8q_array(c->ckpt->n_tensors, sizeof(*c->tensors));
    c->outputs = fp8q_array(c->plan->n_tensors, sizeof(*c->outputs));
    if (!c->tensors || !c->outputs)
        return fp8q_fail_nomem(err);

    describe_tensors(c);
    describe_outputs(c);
    describe_reasons(c);
    describe_plan(c);
    return FP8Q_OK;
}

/* ---- looking --------------------------------------------------------------------------------- */

const struct fp8q_plan_info *fp8q_conversion_plan(const struct fp8q_conversion *c)
{
    return &c->info;
}

const struct fp8q_planned_tensor *fp8q_conversion_tensor(const struct fp8q_conversion *c,
                                                         size_t index)
{
    return index < c->info.n_tensors ? &c->tensors[index] : NULL;
}

const struct fp8q_output_tensor *fp8q_conversion_output(const struct fp8q_conversion *c,
                                                        size_t index)
{
    return index < c->info.n_outputs ? &c->outputs[index] : NULL;
}

const struct fp8q_reason_count *fp8q_conversion_reason(const struct fp8q_conversion *c,
                                                       size_t index)
{
    return index < c->n_reasons ? &c->reasons[index] : NULL;
}

bool fp8q_conversion_shard(const struct fp8q_conversion *c, size_t index, const char *destination,
                           char *name, size_t cap, bool *is_sidecar_out)
{
    if (cap)
        name[0] = '\0';
    if (index >= c->plan->n_shards)
        return false;

    bool is_sidecar = index == c->plan->sidecar;
    if (is_sidecar_out)
        *is_sidecar_out = is_sidecar;

    /* A file becomes a file of the name that the caller chose, with its scales beside it.  */
    const char *file = fp8q_basename(destination ? destination : c->default_destination);
    if (c->ckpt->is_dir)
        snprintf(name, cap, "%s", c->plan->shards[index].name);
    else if (is_sidecar)
        snprintf(name, cap, "%.*s%s", (int)fp8q_weights_stem(file), file, FP8Q_SCALES_ENDING);
    else
        snprintf(name, cap, "%s", file);
    return true;
}

bool fp8q_conversion_origin(struct fp8q_conversion *c, const char **path_out,
                            const char **fingerprint_out)
{
    *path_out = *fingerprint_out = NULL;
    if (!c->origin_was_read) {
        c->origin_was_read = true;
        /* What cannot be read names no origin, which is no reason to fail.  */
        if (fp8q_manifest_read(c->ckpt, &c->origin, &c->has_origin, NULL) != FP8Q_OK)
            c->has_origin = false;
    }
    if (!c->has_origin)
        return false;

    *path_out = fp8q_json_string(fp8q_json_path(c->origin.json, "source.path"), "");
    *fingerprint_out = fp8q_json_string(fp8q_json_path(c->origin.json, "source.fingerprint"), "");
    return true;
}
