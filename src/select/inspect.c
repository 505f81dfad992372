/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - groups tensors by kind and recognises quantization formats.
 */
#include "select/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/names.h"
#include "checkpoint/packed.h"
#include "checkpoint/weights.h"
#include "select/pattern.h"
#include "select/quantized.h"
#include "select/role.h"

/* ---- kinds ----------------------------------------------------------------------------------- */

/* Components that are numbers become N.  */
static char *pattern_of(const char *name)
{
    char *pattern = strdup(name), *out = pattern;

    /* The copy has room: a number never becomes longer by it.  */
    for (const char *at = name; pattern && *at;) {
        size_t len = strcspn(at, "."), digits = strspn(at, "0123456789");

        /* Layers and experts differ by their numbers alone.  */
        if (digits == len && len > 0)
            *out++ = 'N';
        else {
            memmove(out, at, len);
            out += len;
        }
        at += len;
        if (*at == '.')
            *out++ = *at++;
    }
    if (pattern)
        *out = '\0';
    return pattern;
}

static int compare_kinds(const void *a, const void *b)
{
    const struct fp8q_tensor_kind *x = a, *y = b;
    int order = strcmp(x->pattern, y->pattern);
    if (order)
        return order;
    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    if (x->ndim != y->ndim)
        return x->ndim < y->ndim ? -1 : 1;
    for (uint32_t i = 0; i < x->ndim; i++)
        if (x->shape[i] != y->shape[i])
            return x->shape[i] < y->shape[i] ? -1 : 1;
    return 0;
}

static int list_kinds(const struct fp8q_ckpt *ckpt, struct fp8q_inspection *in,
                      struct fp8q_error *err)
{
    in->kinds = fp8q_array(ckpt->n_tensors, sizeof(*in->kinds));
    if (!in->kinds)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        struct fp8q_tensor_kind *k = &in->kinds[in->n_kinds++];
        *k = (struct fp8q_tensor_kind){.pattern = pattern_of(t->name),
                                       .dtype = t->dtype,
                                       .shape = t->shape,
                                       .ndim = t->ndim,
                                       .count = 1,
                                       .size_bytes = t->size_bytes,
                                       .n_elems = t->n_elems};
        if (!k->pattern)
            return fp8q_fail_nomem(err);
    }
    if (in->n_kinds)
        qsort(in->kinds, in->n_kinds, sizeof(*in->kinds), compare_kinds);

    /* Equal kinds lie side by side now: they become one.  */
    size_t n = in->n_kinds ? 1 : 0;
    for (size_t i = 1; i < in->n_kinds; i++) {
        struct fp8q_tensor_kind *last = &in->kinds[n - 1], *k = &in->kinds[i];
        if (compare_kinds(last, k) == 0) {
            last->count++;
            last->size_bytes += k->size_bytes;
            last->n_elems += k->n_elems;
            free(k->pattern);
        } else {
            in->kinds[n++] = *k;
        }
    }

    in->n_kinds = n;
    return FP8Q_OK;
}

/* ---- quantization ---------------------------------------------------------------------------- */

static const struct fp8q_tensor *find_fp8(const struct fp8q_ckpt *ckpt)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (fp8q_is_fp8(ckpt->tensors[i].dtype) && ckpt->tensors[i].ndim >= 2)
            return &ckpt->tensors[i];
    return NULL;
}

/* How many FP8 weights have scales of each kind, and the first of each.  */
struct kinds_of_scales {
    size_t n[FP8Q_SCALING_GROUP + 1];
    const struct fp8q_tensor *weight[FP8Q_SCALING_GROUP + 1];
    struct fp8q_scale_layout layout[FP8Q_SCALING_GROUP + 1];
    unsigned n_kinds;
};

static void count_scales(const struct fp8q_ckpt *ckpt, struct kinds_of_scales *kinds)
{
    *kinds = (struct kinds_of_scales){.n_kinds = 0};
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i], *scale;
        struct fp8q_scale_layout layout;
        bool is_weight = fp8q_is_fp8(t->dtype) && t->ndim >= 2;
        if (!is_weight || fp8q_find_scales(ckpt, t, &scale, NULL) != FP8Q_OK ||
            fp8q_find_layout(ckpt, t, scale, &layout, NULL) != FP8Q_OK)
            continue;

        if (kinds->n[layout.scaling]++ == 0) {
            kinds->weight[layout.scaling] = t;
            kinds->layout[layout.scaling] = layout;
            kinds->n_kinds++;
        }
    }
}

/* "mixed: block FP8 (one scale for 128x128) 11, ...", each kind with its number of weights.  */
static void describe_mix(const struct kinds_of_scales *kinds, const char *method, char *out,
                         size_t cap)
{
    char scaling[64];
    size_t used = (size_t)snprintf(out, cap, "mixed: ");

    for (unsigned k = 0; k <= FP8Q_SCALING_GROUP; k++)
        if (kinds->n[k] && used < cap)
            used += (size_t)snprintf(out + used, cap - used, "%s %zu, ",
                                     fp8q_scaling_text(&kinds->layout[k], kinds->weight[k]->dtype,
                                                       scaling, sizeof(scaling)),
                                     kinds->n[k]);
    if (used < cap)
        snprintf(out + used, cap - used, "%s dialect", method);
}

static int describe_fp8(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *t,
                        const char *method, char *out, size_t cap, struct fp8q_error *err)
{
    struct fp8q_weights w;
    struct kinds_of_scales kinds;
    char scaling[64];
    struct fp8q_error why = {0};

    /* Some scales may be of one element in a checkpoint of blocks: only config groups mix them.  */
    count_scales(ckpt, &kinds);
    if (kinds.n_kinds > 1 && strcmp(method, "compressed-tensors") == 0) {
        describe_mix(&kinds, method, out, cap);
        return FP8Q_OK;
    }

    int status = fp8q_weights_open(ckpt, t->name, &w, &why);
    if (status == FP8Q_E_IO || status == FP8Q_E_NOMEM) /* of the machine, not of the checkpoint */
        return fp8q_fail_as(err, &why);
    if (status != FP8Q_OK) {
        snprintf(out, cap, "FP8 weights, scales not understood (%.150s)", why.message);
        return FP8Q_OK;
    }

    snprintf(out, cap, "%s, %s scales, %s dialect",
             fp8q_scaling_text(&w.layout, t->dtype, scaling, sizeof(scaling)),
             fp8q_dtype_name(w.scale_from->dtype),
             *method                                      ? method
             : fp8q_ends_with(w.scale_from->name, "_inv") ? "fp8 (by its names)"
                                                          : "compressed-tensors (by its names)");
    fp8q_weights_reset(&w);
    return FP8Q_OK;
}

static int describe(const struct fp8q_ckpt *ckpt, char *out, size_t cap, struct fp8q_error *err)
{
    const struct fp8q_json *q = fp8q_json_get(ckpt->config, "quantization_config");
    const char *method = fp8q_json_string(fp8q_json_get(q, "quant_method"), "");
    const struct fp8q_tensor *fp8 = find_fp8(ckpt);
    const char *tensor, *packed = fp8q_packed_format(ckpt, &tensor);
    uint64_t bits = 0;

    /* What the tensors say goes before what the config says.  */
    if (packed)
        snprintf(out, cap, "%s%s", packed, fp8 ? ", beside FP8" : "");
    else if (fp8)
        return describe_fp8(ckpt, fp8, method, out, cap, err);
    else if (*method && fp8q_json_uint(fp8q_json_get(q, "bits"), &bits))
        snprintf(out, cap, "%.60s, %llu bits (by config.json)", method, (unsigned long long)bits);
    else if (*method)
        snprintf(out, cap, "%.60s (by config.json)", method);
    else
        snprintf(out, cap, "none");
    return FP8Q_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* What the name alone says, or NULL.  */
static const char *role_of_name(const struct fp8q_ckpt *ckpt, const struct fp8q_family *family,
                                const struct fp8q_tensor *t)
{
    enum fp8q_reason reason;
    bool tower, gate_up;
    if (fp8q_scale_owner(ckpt, t->name))
        return "scale";
    if (fp8q_role(family, t->name, t->ndim, &reason, &tower))
        return fp8q_reason_name(reason);
    return t->ndim == 3 && fp8q_family_stacked_experts(family, t->name, &gate_up) ? "expert" : NULL;
}

int fp8q_tensor_role(const struct fp8q_ckpt *ckpt, const struct fp8q_family *family,
                     const struct fp8q_tensor *t, const char **role_out, struct fp8q_error *err)
{
    struct fp8q_linear_place linear;
    *role_out = role_of_name(ckpt, family, t);
    if (*role_out)
        return FP8Q_OK;

    /* Now the tables of the architecture.  */
    char *module = strndup(t->name, fp8q_module_len(t->name));
    if (!module)
        return fp8q_fail_nomem(err);
    bool found = fp8q_family_linear(family, module, &linear);
    free(module);
    *role_out = "unclassified";
    if (found)
        *role_out = linear.expert ? "expert" : "backbone";
    return FP8Q_OK;
}

int fp8q_inspect(const struct fp8q_ckpt *ckpt, struct fp8q_inspection *in, struct fp8q_error *err)
{
    *in = (struct fp8q_inspection){.family = fp8q_family_of(ckpt->config)};
    in->model_type = in->family.model_type;
    int status = describe(ckpt, in->quantization, sizeof(in->quantization), err);
    if (status == FP8Q_OK)
        status = list_kinds(ckpt, in, err);
    if (status != FP8Q_OK) {
        fp8q_inspection_reset(in);
        return status;
    }

    /* Scales count as bytes and not as weights: they are what a weight costs beyond its own
     * bits.  */
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (ckpt->tensors[i].ndim >= 2 && !fp8q_scale_owner(ckpt, ckpt->tensors[i].name))
            in->n_weights += ckpt->tensors[i].n_elems;
    in->bits_per_weight =
        in->n_weights ? 8.0 * (double)ckpt->data_bytes / (double)in->n_weights : 0;
    return FP8Q_OK;
}

void fp8q_inspection_reset(struct fp8q_inspection *in)
{
    for (size_t i = 0; i < in->n_kinds; i++)
        free(in->kinds[i].pattern);
    free(in->kinds);
    *in = (struct fp8q_inspection){0};
}
