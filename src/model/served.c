/* SPDX-License-Identifier: Apache-2.0
 *
 * served.c - what an engine does with the inputs of a quantized linear, by the checkpoint's own
 * config.json and tensors.  Of compressed-tensors it is the group that the linear falls under.
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
#include <stdlib.h>
#include <string.h>

#include "model/internal.h"
#include "select/pattern.h"
#include "select/targets.h"

static const struct fp8q_json *quantization(const struct fp8q_ckpt *ckpt)
{
    const struct fp8q_json *q = fp8q_json_get(ckpt->config, "quantization_config");
    if (!fp8q_json_is_object(q))
        q = fp8q_json_get(ckpt->config, "compression_config"); /* older compressed-tensors */
    return q;
}

int fp8q_served_open(struct fp8q_model *m, struct fp8q_error *err)
{
    return fp8q_targets_open(quantization(m->ckpt), &m->targets, err);
}

/* The config group of compressed-tensors that a weight falls under; NULL: none.  Where targets name
 * modules of another tree, the first whose strategy is that of its scales.  */
static int find_group(const struct fp8q_model *m, const char *name, enum fp8q_scaling scaling,
                      const struct fp8q_json **group_out, struct fp8q_error *err)
{
    char *module = strndup(name, fp8q_module_len(name));
    int status =
        module ? fp8q_targets_find(m->targets, module, group_out, NULL, err) : fp8q_fail_nomem(err);
    free(module);
    FP8Q_TRY(status);
    if (*group_out)
        return FP8Q_OK;

    const struct fp8q_json *groups = fp8q_json_get(quantization(m->ckpt), "config_groups");
    for (const struct fp8q_json *g = fp8q_json_first(groups); g && !*group_out;
         g = fp8q_json_next(g)) {
        const char *strategy = fp8q_json_string(fp8q_json_path(g, "weights.strategy"), "");
        if (strcmp(strategy, fp8q_strategy_of(scaling)) == 0)
            *group_out = g;
    }
    if (!*group_out && fp8q_json_count(groups) == 1)
        *group_out = fp8q_json_first(groups);
    return FP8Q_OK;
}

/* What config.json says of the inputs of a linear that is quantized.  */
struct served {
    bool none, is_static, pow2;
};

static int read_served(const struct fp8q_model *m, const char *name, enum fp8q_scaling scaling,
                       struct served *served, struct fp8q_error *err)
{
    const struct fp8q_json *q = quantization(m->ckpt), *group;
    *served = (struct served){.pow2 = false};
    served->is_static =
        strcmp(fp8q_json_string(fp8q_json_get(q, "activation_scheme"), ""), "static") == 0 ||
        strcmp(fp8q_json_string(fp8q_json_get(q, "quant_algo"), ""), "FP8") == 0; /* ModelOpt */
    served->pow2 = scaling == FP8Q_SCALING_BLOCK &&
                   strcmp(fp8q_json_string(fp8q_json_get(q, "scale_fmt"), ""), "ue8m0") == 0;

    /* compressed-tensors says it for each group of weights, and says it of nothing by null.  */
    FP8Q_TRY(find_group(m, name, scaling, &group, err));
    if (group) {
        served->none = !fp8q_json_is_object(fp8q_json_get(group, "input_activations"));
        served->is_static = fp8q_group_is_static(group);
    }
    return FP8Q_OK;
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

int fp8q_served_acts(const struct fp8q_model *m, const char *name, enum fp8q_scaling scaling,
                     uint8_t *acts_out, float *static_scale_out, struct fp8q_error *err)
{
    struct served served;
    *acts_out = FP8Q_ACTS_NONE;
    if (scaling == FP8Q_SCALING_NONE)
        return FP8Q_OK;
    FP8Q_TRY(read_served(m, name, scaling, &served, err));
    static const enum fp8q_acts dynamic[] = {FP8Q_ACTS_NONE, FP8Q_ACTS_BLOCK, FP8Q_ACTS_TOKEN,
                                             FP8Q_ACTS_TOKEN, FP8Q_ACTS_GROUP};
    enum fp8q_acts acts = dynamic[scaling];
    if (served.none)
        acts = FP8Q_ACTS_NONE;
    else if (served.is_static)
        acts = FP8Q_ACTS_STATIC;
    else if (served.pow2)
        acts = FP8Q_ACTS_BLOCK_POW2;

    *acts_out = (uint8_t)acts;
    return acts == FP8Q_ACTS_STATIC ? read_static(m->ckpt, name, static_scale_out, err) : FP8Q_OK;
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
