/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c - names of files and of companions.
 */
#include "format/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

const struct fp8q_companion fp8q_companions[] = {
    {FP8Q_SCALE_INV_ENDING, "", true},
    {FP8Q_SCALE_ENDING, "", true},
    {".scale", FP8Q_WEIGHT_ENDING, true},
    {".qscale_weight", FP8Q_WEIGHT_ENDING, true},
    {".scale_weight", FP8Q_WEIGHT_ENDING, true},
    {".input_scale", FP8Q_WEIGHT_ENDING, false},
    {".activation_scale", FP8Q_WEIGHT_ENDING, false},
    {".qscale_act", FP8Q_WEIGHT_ENDING, false},
    {".scale_input", FP8Q_WEIGHT_ENDING, false},
    {".output_scale", FP8Q_WEIGHT_ENDING, false},
    {".input_zero_point", FP8Q_WEIGHT_ENDING, false},
    {"_zero_point", "", false},
    {"_input_scale", "", false},
    {"_activation_scale", "", false},
};
const size_t fp8q_n_companions = sizeof(fp8q_companions) / sizeof(*fp8q_companions);

static size_t without(const char *text, const char *ending)
{
    size_t stem = fp8q_stem_len(text, ending);

    return stem ? stem : strlen(text);
}

size_t fp8q_weights_stem(const char *path)
{
    return without(path, FP8Q_WEIGHTS_ENDING);
}

bool fp8q_is_scales_file(const char *name)
{
    return fp8q_stem_len(name, FP8Q_SCALES_ENDING) > 0;
}

bool fp8q_is_policy_file(const char *name)
{
    return fp8q_starts_with(name, "policy_preprocessor") ||
           fp8q_starts_with(name, "policy_postprocessor");
}

bool fp8q_is_cache_scale(const char *tensor)
{
    static const char *const endings[] = {".k_scale",  ".v_scale",    ".q_scale",
                                          ".kv_scale", ".prob_scale", ".output_scale"};

    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
        if (fp8q_stem_len(tensor, endings[i]))
            return true;
    return false;
}

bool fp8q_is_quantization_marker(const char *tensor)
{
    return fp8q_stem_len(tensor, ".comfy_quant") > 0 || strcmp(tensor, "scaled_fp8") == 0 ||
           fp8q_stem_len(tensor, ".scaled_fp8") > 0;
}

bool fp8q_is_weight_name(const char *tensor)
{
    return fp8q_stem_len(tensor, FP8Q_WEIGHT_ENDING) > 0;
}

size_t fp8q_weight_stem(const char *tensor)
{
    return without(tensor, FP8Q_WEIGHT_ENDING);
}

unsigned long fp8q_shards_of_name(const char *name)
{
    size_t len = fp8q_stem_len(name, FP8Q_WEIGHTS_ENDING), i = len;

    while (i > 0 && name[i - 1] >= '0' && name[i - 1] <= '9')
        i--;
    if (i == len || i < 4 || memcmp(name + i - 4, "-of-", 4) != 0)
        return 0;
    return strtoul(name + i, NULL, 10);
}
