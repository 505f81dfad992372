/* SPDX-License-Identifier: Apache-2.0
 *
 * served.c - what an engine does with the inputs of a quantized linear, by the checkpoint's own
 * config.json and tensors.
 *
 * | config.json                                    | weight scales | inputs                       |
 * |------------------------------------------------|---------------|------------------------------|
 * | nothing of activations, or dynamic             | 128x128 block | per token and 128 channels   |
 * | the same with "scale_fmt": "ue8m0"             | 128x128 block | the same, powers of two      |
 * | nothing of activations, or dynamic             | row, tensor   | per token                    |
 * | nothing of activations, or dynamic             | MXFP8         | per token and 32, powers of 2|
 * | "activation_scheme": "static", dynamic false   | any           | `X.input_scale`, saturating  |
 * | compressed-tensors with input_activations null | any           | left as they are             |
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/internal.h"

static const struct fp8q_json *quantization(const struct fp8q_ckpt *ckpt)
{
    const struct fp8q_json *q = fp8q_json_get(ckpt->config, "quantization_config");
    if (!fp8q_json_is_object(q))
        q = fp8q_json_get(ckpt->config, "compression_config"); /* older compressed-tensors */
    return q;
}

/* The scheme of compressed-tensors whose weights are scaled as @scaling says; NULL: none.  */
static const struct fp8q_json *scheme_of(const struct fp8q_json *q, enum fp8q_scaling scaling)
{
    static const char *const strategies[] = {"", "block", "channel", "tensor", "group"};
    const struct fp8q_json *groups = fp8q_json_get(q, "config_groups");
    for (const struct fp8q_json *g = fp8q_json_first(groups); g; g = fp8q_json_next(g)) {
        const char *strategy = fp8q_json_string(fp8q_json_path(g, "weights.strategy"), "");
        if (strcmp(strategy, strategies[scaling]) == 0)
            return g;
    }
    return fp8q_json_count(groups) == 1 ? fp8q_json_first(groups) : NULL;
}

struct fp8q_served fp8q_served_read(const struct fp8q_ckpt *ckpt, enum fp8q_scaling scaling)
{
    const struct fp8q_json *q = quantization(ckpt);
    struct fp8q_served served = {0};
    served.is_static =
        strcmp(fp8q_json_string(fp8q_json_get(q, "activation_scheme"), ""), "static") == 0 ||
        strcmp(fp8q_json_string(fp8q_json_get(q, "quant_algo"), ""), "FP8") == 0; /* ModelOpt */
    served.pow2 = scaling == FP8Q_SCALING_BLOCK &&
                  strcmp(fp8q_json_string(fp8q_json_get(q, "scale_fmt"), ""), "ue8m0") == 0;

    /* compressed-tensors says it for each group of weights, and says it of nothing by null.  */
    const struct fp8q_json *scheme = scheme_of(q, scaling);
    const struct fp8q_json *inputs = fp8q_json_get(scheme, "input_activations");
    if (scheme) {
        served.none = !inputs || fp8q_json_is_null(inputs);
        served.is_static = !served.none && !fp8q_json_bool(fp8q_json_get(inputs, "dynamic"), false);
    }
    return served;
}

/* `X.input_scale` of weight `X.weight`: one value, as the engines' static scheme has it.  */
static int read_static(const struct fp8q_ckpt *ckpt, const char *name, float *out,
                       struct fp8q_error *err)
{
    char scale_name[200];
    struct fp8q_shown shown;
    size_t stem = strlen(name);
    if (stem > 7 && strcmp(name + stem - 7, ".weight") == 0)
        stem -= 7;
    snprintf(scale_name, sizeof(scale_name), "%.*s.input_scale", (int)stem, name);

    const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, scale_name);
    if (!t)
        return fp8q_fail(err, FP8Q_E_FORMAT, "input-scale",
                         "config.json says that activations have static scales, but there is no "
                         "tensor \"%s\"",
                         fp8q_show(&shown, scale_name));
    if (t->n_elems != 1)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "input-scale",
                         "tensor \"%s\": expected one scale, found %llu",
                         fp8q_show(&shown, t->name), (unsigned long long)t->n_elems);

    FP8Q_TRY(fp8q_read_floats(ckpt, t, fp8q_kernel_select("scalar"), out, err));
    if (!(*out > 0) || isinf(*out))
        return fp8q_fail(err, FP8Q_E_FORMAT, "input-scale",
                         "tensor \"%s\": the scale is %g, expected a finite value above 0",
                         fp8q_show(&shown, t->name), (double)*out);
    return FP8Q_OK;
}

int fp8q_served_acts(const struct fp8q_ckpt *ckpt, const char *name, enum fp8q_scaling scaling,
                     uint8_t *acts_out, float *static_scale_out, struct fp8q_error *err)
{
    struct fp8q_served served = fp8q_served_read(ckpt, scaling);
    static const enum fp8q_acts dynamic[] = {FP8Q_ACTS_NONE, FP8Q_ACTS_BLOCK, FP8Q_ACTS_TOKEN,
                                             FP8Q_ACTS_TOKEN, FP8Q_ACTS_GROUP};
    enum fp8q_acts acts = dynamic[scaling];
    if (scaling == FP8Q_SCALING_NONE || served.none)
        acts = FP8Q_ACTS_NONE;
    else if (served.is_static)
        acts = FP8Q_ACTS_STATIC;
    else if (served.pow2)
        acts = FP8Q_ACTS_BLOCK_POW2;

    *acts_out = (uint8_t)acts;
    return acts == FP8Q_ACTS_STATIC ? read_static(ckpt, name, static_scale_out, err) : FP8Q_OK;
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* "A.k_proj.k_scale" or "A.k_scale" of attention A, or NULL.  */
static const struct fp8q_tensor *cache_scale(const struct fp8q_ckpt *ckpt, const char *attention,
                                             char half)
{
    char name[200];

    snprintf(name, sizeof(name), "%s.%c_proj.%c_scale", attention, half, half);
    const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, name);
    if (t)
        return t;
    snprintf(name, sizeof(name), "%s.%c_scale", attention, half);
    return fp8q_ckpt_find(ckpt, name);
}

static int read_cache_scale(const struct fp8q_ckpt *ckpt, const char *attention, char half,
                            float *out, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = cache_scale(ckpt, attention, half);
    struct fp8q_shown shown;

    /* Engines take 1 where the checkpoint says nothing.  */
    *out = 1.0f;
    if (!t)
        return FP8Q_OK;
    if (t->n_elems == 1)
        FP8Q_TRY(fp8q_read_floats(ckpt, t, fp8q_kernel_select("scalar"), out, err));
    if (t->n_elems == 1 && *out > 0 && isfinite(*out))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_FORMAT, "cache-scale",
                     "tensor \"%s\": expected one finite scale above 0",
                     fp8q_show(&shown, t->name));
}

int fp8q_cache_scales_read(const struct fp8q_model *m, float (*scales_out)[2],
                           struct fp8q_error *err)
{
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        struct fp8q_name name;
        fp8q_linear_name(m, layer, FP8Q_K_PROJ, "", &name);
        char *last = strrchr(name.text, '.');
        if (last)
            *last = '\0';
        FP8Q_TRY(read_cache_scale(m->ckpt, name.text, 'k', &scales_out[layer][0], err));
        FP8Q_TRY(read_cache_scale(m->ckpt, name.text, 'v', &scales_out[layer][1], err));
    }
    return FP8Q_OK;
}
