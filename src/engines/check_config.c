/* SPDX-License-Identifier: Apache-2.0
 *
 * check_config.c - whether an engine finds and understands the description of the quantization.
 */
#include "engines/internal.h"

#include <string.h>

#include "format/names.h"
#include "kernel/block.h"
#include "select/fused.h"
#include "select/targets.h"

static const char requantize[] = "write it again: fp8q quantize --requantize";

static bool has_scaling(const struct fp8q_on_disk *f, enum fp8q_scaling scaling)
{
    for (size_t i = 0; i < f->n_weights; i++)
        if (f->weights[i].scale && f->weights[i].layout.scaling == scaling)
            return true;

    return false;
}

/* [128, 128], or another pair; false for what is no pair.  */
static bool read_pair(const struct fp8q_json *list, uint64_t pair[2])
{
    const struct fp8q_json *first = fp8q_json_first(list);
    return fp8q_json_count(list) == 2 && fp8q_json_uint(first, &pair[0]) &&
           fp8q_json_uint(fp8q_json_next(first), &pair[1]);
}

/* ---- the fp8 format -------------------------------------------------------------------------- */

static int judge_scheme(struct fp8q_judge *j)
{
    const struct fp8q_json *scheme = fp8q_json_get(j->facts->config, "activation_scheme");
    bool blocks = has_scaling(j->facts, FP8Q_SCALING_BLOCK);
    if (!(j->demands & FP8Q_SAYS_SCHEME))
        return FP8Q_OK;

    if (!fp8q_json_string(scheme, NULL))
        return fp8q_judge_say(j, FP8Q_STOPS, "activation-scheme",
                              "add \"activation_scheme\": \"dynamic\" to quantization_config",
                              "it needs activation_scheme in quantization_config");
    if (blocks && strcmp(fp8q_json_string(scheme, ""), "dynamic") != 0)
        return fp8q_judge_say(j, FP8Q_STOPS, "activation-scheme",
                              "set activation_scheme to \"dynamic\"",
                              "with block scales it takes no other activation_scheme than "
                              "\"dynamic\"");
    return FP8Q_OK;
}

/* Without a size lmdeploy takes blocks of 128x128, but one scale a tensor if inputs are static.  */
static bool assumes_blocks(const struct fp8q_judge *j)
{
    const struct fp8q_json *scheme = fp8q_json_get(j->facts->config, "activation_scheme");
    return (j->demands & FP8Q_ASSUMES_BLOCKS) &&
           strcmp(fp8q_json_string(scheme, ""), "static") != 0;
}

static int judge_block_size(struct fp8q_judge *j)
{
    const struct fp8q_json *said = fp8q_json_get(j->facts->config, "weight_block_size");
    bool blocks = has_scaling(j->facts, FP8Q_SCALING_BLOCK), is_said = !fp8q_json_is_null(said);
    uint64_t pair[2];

    if (blocks && (!said || !is_said) && assumes_blocks(j))
        return FP8Q_OK;
    if (blocks && (!said || !is_said))
        return fp8q_judge_say(j, FP8Q_STOPS, "block-size",
                              "add \"weight_block_size\": [128, 128] to quantization_config",
                              "without weight_block_size it takes scales for those of whole "
                              "tensors");
    if (!blocks && said && is_said)
        return fp8q_judge_say(j, FP8Q_STOPS, "block-size",
                              "take weight_block_size out of quantization_config",
                              "weight_block_size says blocks, and no weight has block scales");
    if (blocks && !read_pair(said, pair))
        return fp8q_judge_say(j, FP8Q_STOPS, "block-size", "set weight_block_size to [128, 128]",
                              "weight_block_size is no pair of sizes");
    return FP8Q_OK;
}

/* ---- compressed-tensors ---------------------------------------------------------------------- */

/* Each weight needs a group that says what its scales are.  */
static int judge_groups(struct fp8q_judge *j)
{
    const struct fp8q_on_disk *f = j->facts;
    const struct fp8q_disk_weight *unsaid = NULL;
    const char *inputs = NULL;
    struct fp8q_shown shown;
    size_t n = 0;

    for (size_t i = 0; i < f->n_weights; i++) {
        const struct fp8q_disk_weight *w = &f->weights[i];
        if (!w->scale)
            continue;
        bool says = w->group && fp8q_group_says(w->group, w->scale, w->layout.scaling);
        if (!says && n++ == 0)
            unsaid = w;

        const char *strategy =
            fp8q_json_string(fp8q_json_path(w->group, "input_activations.strategy"), "none");
        bool grouped = strcmp(strategy, "group") == 0;
        if (says && w->layout.scaling == FP8Q_SCALING_BLOCK && !grouped)
            inputs = strategy;
    }

    if (unsaid)
        FP8Q_TRY(fp8q_judge_say(
            j, FP8Q_STOPS, "config-groups", requantize,
            "%zu weights have scales of strategy \"%s\", and no config group says so of them, "
            "first \"%s\"",
            n, fp8q_strategy_of(unsaid->layout.scaling), fp8q_show(&shown, unsaid->weight->name)));
    if (inputs && (j->demands & FP8Q_INPUTS_GROUPED))
        FP8Q_TRY(fp8q_judge_say(j, FP8Q_STOPS, "config-groups",
                                "set input_activations to strategy \"group\", group_size 128",
                                "with block weights it wants inputs of strategy \"group\", found "
                                "\"%.40s\"",
                                inputs));
    return FP8Q_OK;
}

static bool targets_linear(const struct fp8q_json *group)
{
    const struct fp8q_json *t = fp8q_json_first(fp8q_json_get(group, "targets"));
    while (t && strcmp(fp8q_json_string(t, ""), "Linear") != 0)
        t = fp8q_json_next(t);
    return t != NULL;
}

/* SGLang takes the size of blocks from the group of "Linear", and asks for it where matrices are
 * merged.  */
static int judge_linear_blocks(struct fp8q_judge *j)
{
    const struct fp8q_on_disk *f = j->facts;
    struct fp8q_shown shown;
    size_t parent;
    if (!(j->demands & FP8Q_LINEAR_BLOCKS))
        return FP8Q_OK;

    for (size_t i = 0; i < f->n_weights; i++) {
        const struct fp8q_disk_weight *w = &f->weights[i];
        bool merged = fp8q_fused_of_weight(w->weight->name, &parent) && w->weight->ndim == 2 &&
                      !strstr(w->weight->name, ".experts.");
        if (merged && w->group && w->layout.scaling == FP8Q_SCALING_BLOCK &&
            !targets_linear(w->group))
            return fp8q_judge_say(j, FP8Q_STOPS, "config-groups",
                                  "quantize with blocks for all weights that --scheme PATTERN=... "
                                  "does not name",
                                  "it merges matrices in blocks only if the group of target "
                                  "\"Linear\" has these, and \"%s\" is in another",
                                  fp8q_show(&shown, w->weight->name));
    }

    return FP8Q_OK;
}

static bool is_known_format(const char *format)
{
    static const char *const known[] = {"float-quantized", "naive-quantized", "mxfp8-quantized"};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strcmp(format, known[i]) == 0)
            return true;

    return false;
}

/* Where the format is mixed, each group has its own.  The first that is not known, or NULL.  */
static const char *unknown_format(const struct fp8q_json *q)
{
    const char *format = fp8q_json_string(fp8q_json_get(q, "format"), "none");
    const struct fp8q_json *groups = fp8q_json_get(q, "config_groups");
    if (strcmp(format, "mixed-precision") != 0)
        return is_known_format(format) ? NULL : format;

    for (const struct fp8q_json *g = fp8q_json_first(groups); g; g = fp8q_json_next(g)) {
        format = fp8q_json_string(fp8q_json_get(g, "format"), "mixed-precision");
        if (!is_known_format(format))
            return format;
    }
    return NULL;
}

static int judge_compressed(struct fp8q_judge *j)
{
    const struct fp8q_json *q = j->facts->config, *groups = fp8q_json_get(q, "config_groups");
    const char *format = unknown_format(q);
    struct fp8q_shown shown;

    if (!fp8q_json_is_object(groups) || fp8q_json_count(groups) == 0)
        return fp8q_judge_say(j, FP8Q_STOPS, "config-groups", requantize,
                              "config_groups is missing in quantization_config");
    if (format)
        return fp8q_judge_say(j, FP8Q_UNSURE, "config-format", NULL,
                              "\"format\" is \"%.60s\", which the tables do not describe",
                              fp8q_show(&shown, format));

    if (fp8q_json_count(groups) > 1 && (j->demands & FP8Q_ONE_GROUP))
        FP8Q_TRY(fp8q_judge_say(j, FP8Q_STOPS, "config-groups",
                                "quantize with one kind of scales (without --scheme PAT=NAME and "
                                "--unaligned per-channel, or with --scheme FP8_DYNAMIC)",
                                "it reads one config group, and there are %zu",
                                fp8q_json_count(groups)));
    FP8Q_TRY(judge_groups(j));
    return judge_linear_blocks(j);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int judge_absence(struct fp8q_judge *j)
{
    const struct fp8q_ckpt *ckpt = j->facts->ckpt;
    if (!ckpt->config)
        return fp8q_judge_say(j, FP8Q_STOPS, "config", "quantize the directory of the checkpoint",
                              "there is no " FP8Q_CONFIG_NAME " beside the weights");

    /* ModelOpt keeps its description in a file of its own, which some engines read.  */
    for (size_t i = 0; i < ckpt->n_other_files; i++)
        if (strcmp(ckpt->other_files[i], "hf_quant_config.json") == 0 &&
            fp8q_reads_otherwise(j->engine, "modelopt"))
            return fp8q_judge_say(j, FP8Q_UNSURE, "config", requantize,
                                  "only hf_quant_config.json says how it is quantized, which the "
                                  "tables do not describe");
    return fp8q_judge_say(j, FP8Q_STOPS, "config", requantize,
                          FP8Q_CONFIG_NAME " has no quantization_config, so bare FP8 values would "
                                           "be taken for weights");
}

static int judge_method(struct fp8q_judge *j)
{
    struct fp8q_shown shown;
    const char *method = fp8q_show(&shown, j->facts->method);

    if (fp8q_reads_otherwise(j->engine, j->facts->method))
        return fp8q_judge_say(j, FP8Q_UNSURE, "quant-method", requantize,
                              "it has a reader of its own for quant_method \"%.60s\", which the "
                              "tables do not describe",
                              method);
    return fp8q_judge_say(
        j, FP8Q_STOPS, "quant-method",
        "quantize with --scheme FP8_BLOCK --format fp8 (from FP8: add --requantize)",
        "it does not read FP8 of quant_method \"%.60s\"", method);
}

int fp8q_judge_config(struct fp8q_judge *j)
{
    const struct fp8q_on_disk *f = j->facts;
    if (!f->config)
        return judge_absence(j);
    if (!(f->place->engines & 1U << j->engine))
        FP8Q_TRY(fp8q_judge_say(j, FP8Q_STOPS, "config", "move it to the top level",
                                "it does not look for the description at %s", f->place->path));
    if (!j->judgement->reading)
        return judge_method(j);

    if (f->format == FP8Q_FORMAT_MODELOPT)
        return FP8Q_OK; /* by its quant_algo there is one scheme */
    if (f->format == FP8Q_FORMAT_COMPRESSED_TENSORS)
        return judge_compressed(j);
    FP8Q_TRY(judge_scheme(j));

    /* The size of MXFP8's groups is that of the method.  */
    return f->says_groups ? FP8Q_OK : judge_block_size(j);
}
