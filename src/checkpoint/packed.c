/* SPDX-License-Identifier: Apache-2.0
 *
 * packed.c - one table of formats, by the tensors that only they have.
 */
#include "checkpoint/packed.h"

#include <string.h>

#include "base/text.h"
#include "checkpoint/scales.h"
#include "format/names.h"
#include "kernel/block.h"

/* The first row whose marks are there decides.  */
static const struct {
    const char *ending; /* of a tensor's name */
    const char *also;   /* a second mark that the format needs, or NULL */
    const char *method; /* config.json's quant_method, which does for @also; or NULL */
    const char *name;
} formats[] = {
    {".qweight", ".g_idx", "gptq", "GPTQ (packed integers)"},
    {".qweight", NULL, NULL, "AWQ (packed integers)"},
    {".weight_scale_2", NULL, NULL, "NVFP4 (packed 4-bit floats, scales of 16 in E4M3)"},
    {".weight_packed", ".weight_global_scale", NULL,
     "NVFP4 (packed 4-bit floats, scales of 16 in E4M3)"},
    {".weight_packed", NULL, NULL, "compressed-tensors (packed)"},
    {"__nf4", NULL, NULL, "bitsandbytes NF4"},
    {"__fp4", NULL, NULL, "bitsandbytes 4-bit"},
    {".absmax", NULL, NULL, "bitsandbytes 4-bit"},
    {".SCB", NULL, NULL, "bitsandbytes INT8"},
    {".q_weight", ".q_scale", NULL, "EXL2 (packed integers)"},
    {".trellis", NULL, NULL, "EXL3 (packed integers)"},
    {".W_q", NULL, NULL, "HQQ (packed integers)"},
    {".codebooks", ".codes", NULL, "AQLM (codebooks)"},
    {".Qidxs", NULL, NULL, "QuIP# (codebooks)"},
};

/* First tensor with this ending.  What is packed is no float: a layer of somebody's network may have
 * any name.  Scales are floats.  */
static const struct fp8q_tensor *find_ending(const struct fp8q_ckpt *ckpt, const char *ending)
{
    bool scales = strcmp(ending, ".weight_scale_2") == 0 || strcmp(ending, ".absmax") == 0 ||
                  strcmp(ending, ".SCB") == 0 || strcmp(ending, ".codebooks") == 0 ||
                  strcmp(ending, ".weight_global_scale") == 0 || strcmp(ending, ".q_scale") == 0;
    enum fp8q_float from;

    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (fp8q_stem_len(ckpt->tensors[i].name, ending) &&
            (scales || !fp8q_float_of(ckpt->tensors[i].dtype, &from)))
            return &ckpt->tensors[i];
    return NULL;
}

static const struct fp8q_tensor *find_blocks(const struct fp8q_ckpt *ckpt)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        /* As in gpt-oss: "..._blocks" of bytes beside "..._scales".  */
        if (ckpt->tensors[i].dtype == FP8Q_U8 && fp8q_stem_len(ckpt->tensors[i].name, "_blocks"))
            return &ckpt->tensors[i];
    return NULL;
}

static bool is_integer(enum fp8q_dtype dtype)
{
    /* Floats of less than a byte count as well: they are packed just the same.  */
    return dtype == FP8Q_I8 || dtype == FP8Q_U8 || dtype == FP8Q_I32 || dtype == FP8Q_U32 ||
           dtype == FP8Q_F4 || dtype == FP8Q_F6_E2M3 || dtype == FP8Q_F6_E3M2;
}

/* The weight that a companion's name belongs to, whatever its type.  */
static const struct fp8q_tensor *owner_of(const struct fp8q_ckpt *ckpt, const char *name)
{
    for (size_t i = 0; i < fp8q_n_companions; i++) {
        size_t stem = fp8q_stem_len(name, fp8q_companions[i].ending);
        const struct fp8q_tensor *t =
            stem ? fp8q_ckpt_find_joined(ckpt, name, stem, fp8q_companions[i].owner) : NULL;
        if (t)
            return t;
    }

    /* MLX keeps "X.scales" and "X.biases" beside a U32 "X.weight".  */
    size_t stem = fp8q_stem_len(name, ".scales");
    return stem ? fp8q_ckpt_find_joined(ckpt, name, stem, FP8Q_WEIGHT_ENDING) : NULL;
}

/* Integers in place of a weight's values, known by the scales beside them.  */
static const struct fp8q_tensor *find_integer_weight(const struct fp8q_ckpt *ckpt)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *owner = owner_of(ckpt, ckpt->tensors[i].name);
        if (owner && owner->ndim >= 2 && is_integer(owner->dtype))
            return owner;
    }
    return NULL;
}

const char *fp8q_packed_format(const struct fp8q_ckpt *ckpt, const char **tensor_out)
{
    const struct fp8q_json *q = fp8q_json_find(ckpt->config, "quantization_config", NULL);
    const char *method = fp8q_json_string(fp8q_json_get(q, "quant_method"), "");

    *tensor_out = NULL;
    /* Names first, as they tell the formats apart; the two general signs come after them.  */
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        const struct fp8q_tensor *t = find_ending(ckpt, formats[i].ending);
        bool said = formats[i].method && strcmp(method, formats[i].method) == 0;
        if (!t || (formats[i].also && !said && !find_ending(ckpt, formats[i].also)))
            continue;
        *tensor_out = t->name;
        return formats[i].name;
    }

    const struct fp8q_tensor *blocks = find_blocks(ckpt), *integers = find_integer_weight(ckpt);
    if (blocks) {
        *tensor_out = blocks->name;
        return "MXFP4 (blocks of 32 with E8M0 scales)";
    }
    if (integers) {
        *tensor_out = integers->name;
        return "packed FP4, INT4 or INT8 weights";
    }
    return NULL;
}

int fp8q_refuse_packed(const struct fp8q_ckpt *ckpt, struct fp8q_error *err)
{
    struct fp8q_shown path, name;
    const char *tensor, *format = fp8q_packed_format(ckpt, &tensor);

    if (!format)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "packed-format",
                     "%s: holds %s, first \"%s\": that is not FP8, and not read; start from the "
                     "checkpoint in BF16 or F16 that it was made from",
                     fp8q_show(&path, ckpt->path), format, fp8q_show(&name, tensor));
}
