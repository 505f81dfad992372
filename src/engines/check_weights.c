/* SPDX-License-Identifier: Apache-2.0
 *
 * check_weights.c - whether an engine reads each FP8 weight and its scales as they lie on disk.
 */
#include "engines/internal.h"

#include <stdio.h>
#include <string.h>

#include "format/names.h"
#include "kernel/block.h"
#include "select/fused.h"
#include "select/parts.h"
#include "select/pattern.h"
#include "select/targets.h"

/* What can be wrong with one weight, in the order in which it is asked.  */
enum flaw {
    FLAW_NONE,
    FLAW_DTYPE,
    FLAW_SCALES,
    FLAW_SCALING,
    FLAW_NAME,
    FLAW_RARE_NAME,
    FLAW_INPUTS,
    FLAW_BYTES,
    FLAW_BLOCKS,
    FLAW_STACK,
    FLAW_EXPERT,
    FLAW_HEAD,
    FLAW_EXPERTS,
    FLAW_FUSED,
    FLAW_COLUMNS,
    FLAW_ROWS,
    FLAW_ROWS_IN_FLOAT,
    N_FLAWS
};

static const struct {
    const char *id;
    enum fp8q_weight_of weight;
    const char *text; /* "N of M weights ..." */
    const char *change;
} flaws[N_FLAWS] = {
    [FLAW_DTYPE] = {"weight-dtype", FP8Q_STOPS, "are of a type other than F8_E4M3",
                    "write it again: fp8q quantize --requantize"},
    [FLAW_SCALES] = {"scales", FP8Q_STOPS, "have no scales that can be read", "see `fp8q verify`"},
    [FLAW_SCALING] = {"scheme", FP8Q_STOPS, "have a kind of scales that it does not read",
                      "quantize in blocks (--scheme FP8_BLOCK), or for scales a row or a tensor "
                      "with --format compressed-tensors"},
    [FLAW_NAME] = {"scale-name", FP8Q_STOPS,
                   "have scales of another name than it looks for, so that bare FP8 values would "
                   "be taken for weights",
                   "write it again: fp8q quantize --requantize --format compressed-tensors"},
    [FLAW_RARE_NAME] = {"scale-name", FP8Q_UNSURE,
                        "have scales of a name that only loaders of single models know",
                        "write it again: fp8q quantize --requantize"},
    [FLAW_INPUTS] = {"input-scales", FP8Q_STOPS,
                     "have no scale of their inputs, which the description promises",
                     "quantize with --scheme FP8_STATIC --calibration FILE"},
    [FLAW_BYTES] = {"scale-dtype", FP8Q_STOPS, "have scales in E8M0 stored as U8",
                    "write it again: fp8q quantize --requantize"},
    [FLAW_BLOCKS] = {"block-size", FP8Q_STOPS, "are in blocks other than 128x128",
                     "write it again: fp8q quantize --requantize"},
    [FLAW_STACK] = {"stacked-experts", FP8Q_STOPS, "are stacks of experts",
                    "quantize with --ignore experts, or serve with vLLM"},
    [FLAW_EXPERT] = {"expert-blocks", FP8Q_STOPS,
                     "are matrices of experts in blocks, whose scales it does not spread",
                     "quantize with --format fp8, or --scheme FP8_DYNAMIC"},
    [FLAW_HEAD] = {"lm-head", FP8Q_STOPS, "are an output head, which it keeps in high precision",
                   "quantize without --include lm_head"},
    [FLAW_EXPERTS] = {"experts-scheme", FP8Q_STOPS,
                      "are experts with one scale a tensor whose inputs have none",
                      "quantize experts with --scheme experts=FP8_DYNAMIC or FP8_BLOCK"},
    [FLAW_FUSED] = {"fused-group", FP8Q_STOPS,
                    "are merged with matrices that are quantized otherwise, or not at all",
                    "quantize or --ignore the group as a whole"},
    [FLAW_COLUMNS] = {"unaligned", FP8Q_STOPS,
                      "have blocks, and columns that are no multiple of 128",
                      "quantize without --unaligned, or with --unaligned per-channel"},
    [FLAW_ROWS] = {"unaligned", FP8Q_STOPS, "have blocks, and rows that are no multiple of 128",
                   "quantize without --unaligned, or with --unaligned per-channel"},
    [FLAW_ROWS_IN_FLOAT] =
        {"unaligned", FP8Q_NOTE,
         "have blocks, and rows that are no multiple of 128, so that turning FP8 "
         "into BF16 fails",
         NULL},
};

/* ---- one weight ------------------------------------------------------------------------------ */

static bool is_block(const struct fp8q_disk_weight *w)
{
    return w->layout.scaling == FP8Q_SCALING_BLOCK;
}

/* The other parts are on disk, in FP8 with the same kind of scales, or they are not there.  */
static bool is_alike(const struct fp8q_on_disk *facts, const struct fp8q_disk_weight *w)
{
    size_t parent = 0;
    const struct fp8q_fused *f = fp8q_fused_of_weight(w->weight->name, &parent);

    for (size_t i = 0; f && f->parts[i]; i++) {
        char ending[96];
        snprintf(ending, sizeof(ending), "%s" FP8Q_WEIGHT_ENDING, f->parts[i]);
        const struct fp8q_tensor *t =
            fp8q_ckpt_find_joined(facts->ckpt, w->weight->name, parent, ending);
        const struct fp8q_disk_weight *other = t ? fp8q_disk_weight_of(facts, t) : NULL;
        if (t && (!other || other->layout.scaling != w->layout.scaling))
            return false;
    }

    return true;
}

static bool is_expert(const char *name)
{
    return strstr(name, ".experts.") != NULL;
}

/* The last part of a merged matrix: nothing stands behind it that its end would move.  */
static bool is_last_part(const struct fp8q_fused *f, const char *name)
{
    size_t n = 0;
    while (f->parts[n])
        n++;

    return fp8q_has_components(name, f->parts[n - 1]);
}

/* Whether the rows of a part of what is merged are whole blocks, as far as they must be.  */
static bool part_fits(const struct fp8q_judge *j, const struct fp8q_parts_config *sizes,
                      const struct fp8q_disk_weight *w)
{
    const char *name = w->weight->name;
    uint64_t rows = w->layout.matrix_rows, parts[3];
    size_t parent = 0, len;
    const struct fp8q_fused *f = fp8q_fused_of_weight(name, &parent);
    bool is_whole = fp8q_has_any_components(name, fp8q_cutting.whole, &len) != NULL;

    /* Fused on disk it is cut into its parts; a matrix by itself ends as it likes.  */
    if (!f && !is_expert(name))
        return fp8q_parts(sizes, name, rows, parts) == 1 || fp8q_parts_aligned(sizes, name, rows);
    if (rows % FP8Q_BLOCK == 0)
        return true;
    return f && !is_expert(name) && (is_whole || (j->demands & FP8Q_ALL_BUT_LAST)) &&
           is_last_part(f, name);
}

static enum flaw find_size_flaw(const struct fp8q_judge *j, const struct fp8q_parts_config *sizes,
                                const struct fp8q_disk_weight *w)
{
    const struct fp8q_tensor *t = w->weight;
    bool columns_fit = w->layout.n_cols % FP8Q_BLOCK == 0;
    bool rows_fit = w->layout.matrix_rows % FP8Q_BLOCK == 0;

    if ((j->demands & FP8Q_COLUMNS_ALIGNED) && !columns_fit)
        return FLAW_COLUMNS;
    if (!rows_fit && (j->demands & FP8Q_ROWS_ALIGNED))
        return FLAW_ROWS;
    if (!rows_fit && (j->demands & FP8Q_ROWS_IN_FLOAT))
        return FLAW_ROWS_IN_FLOAT;

    if (!(j->demands & FP8Q_PARTS_ALIGNED))
        return FLAW_NONE;
    /* In a stack gate and up lie along either size.  */
    bool fits = t->ndim == 3 ? fp8q_stack_aligned(j->facts->family.experts, t->name, t->shape)
                             : part_fits(j, sizes, w);
    return fits ? FLAW_NONE : FLAW_ROWS;
}

/* Whether the scales are called what the engine looks for.  */
static enum flaw find_name_flaw(const struct fp8q_judge *j, const struct fp8q_disk_weight *w)
{
    const struct fp8q_reading *r = j->judgement->reading;
    const char *wanted = is_block(w) ? r->block_scale : r->other_scale, *alias = NULL;
    if (w->layout.scaling == FP8Q_SCALING_GROUP) {
        wanted = r->group_scale;
        alias = r->group_alias;
    }
    size_t len = strlen(w->weight->name);
    if (strncmp(w->scale->name, w->weight->name, len) != 0)
        return FLAW_RARE_NAME;

    const char *ending = w->scale->name + len;
    bool fits = strcmp(ending, wanted) == 0 || (alias && strcmp(ending, alias) == 0);
    return fits ? FLAW_NONE : FLAW_NAME;
}

static bool is_head(const char *name)
{
    return fp8q_has_components(name, "lm_head");
}

/* In the fp8 format the method tells MXFP8 from other scales; transformers sees it by their type. */
static bool is_said(const struct fp8q_judge *j, const struct fp8q_disk_weight *w)
{
    bool groups = w->layout.scaling == FP8Q_SCALING_GROUP;
    bool sees = groups && j->engine == FP8Q_TRANSFORMERS;

    return j->facts->format != FP8Q_FORMAT_FP8 || j->facts->says_groups == groups || sees;
}

/* ModelOpt's FP8 has no other inputs; in compressed-tensors the weight's group says so.  */
static bool says_static(const struct fp8q_judge *j, const struct fp8q_disk_weight *w)
{
    return j->facts->format == FP8Q_FORMAT_MODELOPT ||
           !fp8q_json_bool(fp8q_json_path(w->group, "input_activations.dynamic"), true);
}

static bool has_input_scale(const struct fp8q_judge *j, const struct fp8q_disk_weight *w)
{
    const char *name = w->weight->name;
    return fp8q_ckpt_find_joined(j->facts->ckpt, name, fp8q_weight_stem(name), ".input_scale");
}

/* What stands in the way by the scales alone.  */
static enum flaw find_scale_flaw(const struct fp8q_judge *j, const struct fp8q_disk_weight *w)
{
    bool other_blocks = w->layout.block_rows != FP8Q_BLOCK || w->layout.block_cols != FP8Q_BLOCK;

    if (w->weight->dtype != FP8Q_F8_E4M3)
        return FLAW_DTYPE;
    if (!w->scale)
        return FLAW_SCALES;
    if (!(j->judgement->reading->scalings & 1U << w->layout.scaling) || !is_said(j, w))
        return FLAW_SCALING;

    if (says_static(j, w) && !has_input_scale(j, w))
        return FLAW_INPUTS;
    if (is_block(w) && w->scale->dtype == FP8Q_U8 && (j->demands & FP8Q_NO_BYTE_SCALES))
        return FLAW_BYTES;
    if (is_block(w) && other_blocks && (j->demands & FP8Q_BLOCKS_OF_128))
        return FLAW_BLOCKS;
    return find_name_flaw(j, w);
}

static bool is_dynamic_expert(const struct fp8q_disk_weight *w)
{
    return is_expert(w->weight->name) && w->layout.scaling == FP8Q_SCALING_TENSOR &&
           !fp8q_group_is_static(w->group);
}

static enum flaw find_flaw(const struct fp8q_judge *j, const struct fp8q_parts_config *sizes,
                           const struct fp8q_disk_weight *w)
{
    enum flaw flaw = find_scale_flaw(j, w);
    if (flaw)
        return flaw;

    if (w->weight->ndim > 2 && (j->demands & FP8Q_NO_STACKS))
        return FLAW_STACK;
    if ((j->demands & FP8Q_NO_BLOCK_EXPERTS) && is_expert(w->weight->name) &&
        w->layout.scaling != FP8Q_SCALING_ROW && w->layout.scaling != FP8Q_SCALING_TENSOR)
        return FLAW_EXPERT;
    if (is_head(w->weight->name) &&
        ((j->demands & FP8Q_HEAD_FLOAT) || ((j->demands & FP8Q_HEAD_NO_BLOCKS) && is_block(w))))
        return FLAW_HEAD;
    if ((j->demands & FP8Q_EXPERTS_STATIC) && is_dynamic_expert(w))
        return FLAW_EXPERTS;
    if ((j->demands & FP8Q_FUSED_ALIKE) && !is_alike(j->facts, w))
        return FLAW_FUSED;
    if (!is_block(w))
        return FLAW_NONE; /* the rest is about blocks */

    return find_size_flaw(j, sizes, w);
}

/* ---- all weights ----------------------------------------------------------------------------- */

static int say_flaw(struct fp8q_judge *j, enum flaw flaw, size_t count,
                    const struct fp8q_disk_weight *first)
{
    struct fp8q_shown shown;
    const char *why = first->trouble ? first->trouble : "";

    return fp8q_judge_say(j, flaws[flaw].weight, flaws[flaw].id, flaws[flaw].change,
                          "%zu of %zu weights %s, first \"%s\"%s%s", count, j->facts->n_weights,
                          flaws[flaw].text, fp8q_show(&shown, first->weight->name),
                          *why ? ": " : "", why);
}

int fp8q_judge_weights(struct fp8q_judge *j)
{
    const struct fp8q_on_disk *f = j->facts;
    struct fp8q_parts_config sizes = fp8q_parts_config_of(f->ckpt->config);
    size_t counts[N_FLAWS] = {0};
    const struct fp8q_disk_weight *first[N_FLAWS] = {NULL};

    for (size_t i = 0; i < f->n_weights; i++) {
        enum flaw flaw = find_flaw(j, &sizes, &f->weights[i]);
        if (counts[flaw]++ == 0)
            first[flaw] = &f->weights[i];
    }

    /* One finding for each kind, with its first weight.  */
    for (enum flaw flaw = FLAW_NONE + 1; flaw < N_FLAWS; flaw++)
        if (counts[flaw])
            FP8Q_TRY(say_flaw(j, flaw, counts[flaw], first[flaw]));

    return FP8Q_OK;
}
