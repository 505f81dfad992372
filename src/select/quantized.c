/* SPDX-License-Identifier: Apache-2.0
 *
 * quantized.c - recognises what is quantized already: scales and their weights, packed formats,
 * configs.
 */
#include "select/quantized.h"

#include <stdlib.h>
#include <string.h>

#include "format/names.h"

const struct fp8q_tensor *fp8q_scale_owner(const struct fp8q_ckpt *ckpt, const char *name)
{
    for (size_t i = 0; i < fp8q_n_companions; i++) {
        const struct fp8q_companion *kind = &fp8q_companions[i];
        size_t stem = fp8q_stem_len(name, kind->ending);
        if (!stem)
            continue;
        const struct fp8q_tensor *t = fp8q_ckpt_find_joined(ckpt, name, stem, kind->owner);
        if (t && t->dtype == FP8Q_F8_E4M3)
            return t;
    }
    return NULL;
}

bool fp8q_already_quantized(const struct fp8q_ckpt *ckpt, const char **what_out)
{
    static const char *const places[] = {"quantization_config", "text_config.quantization_config",
                                         "compression_config"};
    *what_out = NULL;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        const struct fp8q_json *q = fp8q_json_path(ckpt->config, places[i]);
        if (fp8q_json_is_object(q)) {
            *what_out = fp8q_json_string(fp8q_json_get(q, "quant_method"), "quantized");
            return true;
        }
    }
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        const char *n = t->name;
        if (t->dtype == FP8Q_F8_E4M3 && t->n_elems > 0)
            *what_out = "F8_E4M3 weights";
        else if (fp8q_stem_len(n, ".qweight"))
            *what_out = "packed integer weights";
        else if (fp8q_stem_len(n, ".weight_packed"))
            *what_out = "packed weights";
        else if (fp8q_stem_len(n, "_blocks") && t->dtype == FP8Q_U8)
            *what_out = "MXFP4 blocks";
        else if (strstr(n, ".weight.absmax") || strstr(n, ".weight.quant_state"))
            *what_out = "bitsandbytes weights";
        if (*what_out)
            return true;
    }
    return false;
}
