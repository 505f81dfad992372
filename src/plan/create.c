/* SPDX-License-Identifier: Apache-2.0
 *
 * create.c - makes a plan: select, pieces, lists and texts, layout, memory.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "format/names.h"
#include "plan/internal.h"
#include "select/scheme.h"
#include "select/select.h"
#include "checkpoint/scales.h"
#include "checkpoint/packed.h"

/* ---- options --------------------------------------------------------------------------------- */

/* A LeRobot policy is loaded by its name model.safetensors, with missing and surplus names let
 * pass: FP8 values under that name would be taken for weights.  */
static int check_policy(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    const struct fp8q_json *config = plan->ckpt->config;
    bool is_policy = fp8q_json_string(fp8q_json_get(config, "type"), NULL) &&
                     !fp8q_json_string(fp8q_json_get(config, "model_type"), NULL);
    if (!is_policy || plan->options.scales != FP8Q_SCALES_INLINE)
        return FP8Q_OK;

    return fp8q_fail(err, FP8Q_E_ARG, "policy-inline",
                     "--scales inline: LeRobot would load the FP8 values of this policy as "
                     "weights, without an error; leave the scales in their own file");
}

/* What a format cannot say.  */
static int check_format(const struct fp8q_plan_options *o, struct fp8q_error *err)
{
    const struct fp8q_select_options *s = &o->select;
    bool is_static = fp8q_asks_for_scheme(s, FP8Q_SCHEME_STATIC);
    bool modelopt = o->format == FP8Q_FORMAT_MODELOPT, fp8 = o->format == FP8Q_FORMAT_FP8;

    if ((modelopt && !is_static) || (is_static && fp8))
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-format",
                         "the modelopt format and --scheme FP8_STATIC: static input scales are "
                         "written with --format compressed-tensors or modelopt, and modelopt for "
                         "them only");
    if (fp8 &&
        (fp8q_asks_for_scheme(s, FP8Q_SCHEME_CHANNEL) || s->unaligned == FP8Q_UNALIGNED_CHANNEL))
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-format",
                         "per-channel scales cannot be said in the fp8 format: use --format "
                         "compressed-tensors");
    if ((fp8 || modelopt) && fp8q_asks_for_schemes(s))
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-format",
                         "the %s format has one scheme for the whole checkpoint: --scheme PAT=NAME "
                         "is written with --format compressed-tensors",
                         fp8 ? "fp8" : "modelopt");
    return FP8Q_OK;
}

/* What a scheme cannot do, or not without more.  */
static int check_schemes(const struct fp8q_plan_options *o, struct fp8q_error *err)
{
    const struct fp8q_select_options *s = &o->select;
    bool blocks = fp8q_asks_for_scheme(s, FP8Q_SCHEME_BLOCK);
    bool others = fp8q_asks_for_schemes(s) || s->unaligned == FP8Q_UNALIGNED_CHANNEL;
    bool has_static = o->static_inputs || fp8q_asks_for_scheme(s, FP8Q_SCHEME_STATIC);

    if (o->fp8_cache && !o->data)
        return fp8q_fail(
            err, FP8Q_E_ARG, "static-calibration",
            "--kv-cache fp8 needs --calibration FILE: the statistics by which keys and "
            "values are scaled (`fp8q calibrate`)");
    if (has_static && !o->data)
        return fp8q_fail(err, FP8Q_E_ARG, "static-calibration",
                         "--scheme FP8_STATIC needs --calibration FILE: the statistics by which "
                         "inputs are scaled (`fp8q calibrate`)");

    if (fp8q_asks_for_scheme(s, FP8Q_SCHEME_GROUP) && !blocks &&
        s->unaligned != FP8Q_UNALIGNED_KEEP)
        return fp8q_fail(
            err, FP8Q_E_ARG, "scheme-unaligned",
            "--unaligned says what becomes of sizes that blocks of 128x128 do not fit; "
            "--scheme MXFP8 takes all whose columns are a multiple of 32");
    if (o->scale_fmt == FP8Q_SCALE_UE8M0 && (!blocks || others))
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-scale-fmt",
                         "--scale-fmt ue8m0 is defined for blocks only");
    return FP8Q_OK;
}

/* Options that exclude each other, or what the source is.  */
static int check_options(const struct fp8q_plan *plan, struct fp8q_warnings *warnings,
                         struct fp8q_error *err)
{
    const struct fp8q_plan_options *o = &plan->options;
    FP8Q_TRY(check_format(o, err));
    FP8Q_TRY(check_schemes(o, err));
    if (o->max_shard_size && !plan->ckpt->is_dir)
        return fp8q_fail(err, FP8Q_E_ARG, "max-shard-size",
                         "--max-shard-size: the source is one file, and so is its output");
    if (o->dequantize)
        return FP8Q_OK;
    FP8Q_TRY(check_policy(plan, err));

    if (o->select.scheme == FP8Q_SCHEME_GROUP && o->format == FP8Q_FORMAT_FP8)
        return fp8q_warn(warnings, err, "scheme-format-name",
                         "MXFP8 scales in the fp8 format (quant_method mxfp8) are called "
                         "weight_scale_inv, as SGLang reads them; vLLM and transformers read "
                         "--format compressed-tensors");
    if (o->select.scheme == FP8Q_SCHEME_TENSOR && o->format == FP8Q_FORMAT_FP8)
        return fp8q_warn(
            warnings, err, "scheme-format-name",
            "per-tensor scales in the fp8 format are called weight_scale, as vLLM and "
            "SGLang read them; transformers looks for another name and takes the bare "
            "FP8 values for weights. --format compressed-tensors is read by all three");
    return FP8Q_OK;
}

static void select_floats(struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        struct fp8q_decision *d = &plan->selection.decisions[i];

        const struct fp8q_tensor *t = &plan->ckpt->tensors[i];

        /* Nothing is selected when dequantizing; the reasons are for the report.  */
        if (fp8q_scale_owner(plan->ckpt, t->name))
            d->reason = FP8Q_WHY_SCALE;
        else if (fp8q_is_leftover_scale(plan->ckpt, t->name))
            d->reason = FP8Q_WHY_STALE_SCALE;
        else
            d->reason = fp8q_is_fp8(t->dtype) ? FP8Q_WHY_ALREADY_FP8 : FP8Q_WHY_NOT_FLOAT;
    }
}

/* The files are the truth: nothing is added or removed, but a head that contradicts the config is
 * said.  */
static int warn_about_head(const struct fp8q_plan *plan, struct fp8q_warnings *warnings,
                           struct fp8q_error *err)
{
    const struct fp8q_json *config = plan->ckpt->config;
    const struct fp8q_json *tie = fp8q_json_get(config, "tie_word_embeddings");
    if (!tie)
        tie = fp8q_json_get(fp8q_language_config(config), "tie_word_embeddings");

    /* Only names that every such model has: a head elsewhere is none of this rule.  */
    const struct fp8q_tensor *head = fp8q_ckpt_find(plan->ckpt, "lm_head.weight");
    bool has_head = head != NULL, tied = tie && fp8q_json_bool(tie, false);
    if (tied && has_head && fp8q_plan_quantizes(plan, (size_t)(head - plan->ckpt->tensors)))
        return fp8q_fail(err, FP8Q_E_ARG, "tied-head-quantized",
                         "lm_head would be quantized, but config.json ties it to the word "
                         "embeddings: engines take those in its place, or fail; --ignore lm_head "
                         "leaves it");
    if (tied && has_head)
        return fp8q_warn(
            warnings, err, "tied-head",
            "config.json ties the word embeddings, yet lm_head.weight is there too: both "
            "are left as they are");
    if (tie && !fp8q_json_bool(tie, true) && !has_head &&
        fp8q_ckpt_find(plan->ckpt, "model.embed_tokens.weight"))
        return fp8q_warn(warnings, err, "missing-head",
                         "config.json says that the word embeddings are not tied, yet there is no "
                         "lm_head.weight");
    return FP8Q_OK;
}

/* Engines and fp8q's own verify go by config.json; a directory without one is half a checkpoint.
 */
static int warn_about_config(const struct fp8q_plan *plan, struct fp8q_warnings *warnings,
                             struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = plan->ckpt;
    struct fp8q_shown shown;

    /* A model of one file alone is a checkpoint; a shard is a piece, whose result nothing loads.  */
    if (!ckpt->is_dir && fp8q_shards_of_name(ckpt->shards[0].name) > 1)
        return fp8q_warn(warnings, err, "one-shard",
                         "%s is one shard of a model, and the others stay as they are; name its "
                         "folder to convert the model",
                         fp8q_show(&shown, ckpt->shards[0].name));
    if (!ckpt->is_dir || ckpt->config_text)
        return FP8Q_OK;

    return fp8q_warn(warnings, err, "config-absent",
                     "there is no config.json: no engine loads this checkpoint, and none will be "
                     "told that it is quantized");
}

/* ---- all ------------------------------------------------------------------------------------- */

static int decide(struct fp8q_plan *plan, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    /* Only quantizing needs rules: what becomes floats again is seen by its dtype.  */
    if (!plan->options.dequantize)
        return fp8q_select(plan->ckpt, &plan->options.select, &plan->selection, warnings, err);

    struct fp8q_selection *s = &plan->selection;
    s->family = fp8q_family_of(plan->ckpt->config);
    s->decisions = fp8q_array(plan->ckpt->n_tensors, sizeof(*s->decisions));
    if (!s->decisions)
        return fp8q_fail_nomem(err);
    select_floats(plan);
    return FP8Q_OK;
}

static int build(struct fp8q_plan *plan, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    /* Options first: they can be refused without a look at the tensors.  */
    FP8Q_TRY(check_options(plan, warnings, err));
    FP8Q_TRY(decide(plan, warnings, err));
    FP8Q_TRY(fp8q_plan_pieces(plan, err));
    fp8q_plan_count(plan);

    if (!plan->options.dequantize) {
        /* What is said about the output needs the decisions, not the files.  */
        struct fp8q_tp tp = fp8q_plan_tp(plan);
        plan->largest_tp = fp8q_largest_tp(&tp, &plan->tp_limit);
        FP8Q_TRY(fp8q_exclude(plan, warnings, err));
        FP8Q_TRY(warn_about_head(plan, warnings, err));
        FP8Q_TRY(warn_about_config(plan, warnings, err));
    }

    /* Headers and sizes come last: the texts may still refuse.  */
    FP8Q_TRY(fp8q_config_texts(plan, err));
    FP8Q_TRY(fp8q_layout(plan, err));
    return fp8q_plan_memory(plan, err);
}

int fp8q_plan_create(const struct fp8q_ckpt *ckpt, const struct fp8q_plan_options *options,
                     struct fp8q_plan **plan_out, struct fp8q_warnings *warnings,
                     struct fp8q_error *err)
{
    *plan_out = NULL;
    FP8Q_TRY(fp8q_refuse_packed(ckpt, err));
    struct fp8q_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return fp8q_fail_nomem(err);

    /* The checkpoint stays the caller's and must outlive the plan, which borrows its names.  */
    plan->ckpt = ckpt;
    plan->options = *options;
    plan->options.format = fp8q_format_of(options->format, &options->select);

    /* No shard yet: 0 would be the first one.  */
    plan->sidecar = SIZE_MAX;
    int status = build(plan, warnings, err);
    if (status != FP8Q_OK) {
        fp8q_plan_destroy(plan);
        return status;
    }
    *plan_out = plan;
    return FP8Q_OK;
}
