/* SPDX-License-Identifier: Apache-2.0
 *
 * select.h - stage 2, first half: what happens to each tensor, and by which rule.
 *
 * By name and family, never by shape alone; shapes only veto.  A fused group is quantized whole or
 * not at all.  Nothing here reads payload or lays out files.
 */
#ifndef FP8Q_SELECT_H
#define FP8Q_SELECT_H

#include "kernel/block.h"
#include "checkpoint/checkpoint.h"
#include "select/families.h"
#include "select/pattern.h"

enum fp8q_reason {
    /* kept */
    FP8Q_WHY_NORM,
    FP8Q_WHY_BIAS,
    FP8Q_WHY_EMBEDDING,
    FP8Q_WHY_LM_HEAD,
    FP8Q_WHY_VISION,
    FP8Q_WHY_PROJECTOR,
    FP8Q_WHY_ACTION,
    FP8Q_WHY_ROUTER,
    FP8Q_WHY_CONV,
    FP8Q_WHY_LINEAR_ATTENTION,
    FP8Q_WHY_MTP,
    FP8Q_WHY_SMALL,
    FP8Q_WHY_RAGGED,
    FP8Q_WHY_RAGGED_GROUP,
    FP8Q_WHY_EXPERTS_UNSUPPORTED,
    FP8Q_WHY_NOT_FLOAT,
    FP8Q_WHY_UNCLASSIFIED,
    FP8Q_WHY_ALREADY_FP8,
    FP8Q_WHY_SCALE,
    FP8Q_WHY_IGNORED,
    FP8Q_WHY_IGNORED_GROUP,
    FP8Q_WHY_NOT_LIKE,
    /* quantized */
    FP8Q_WHY_BACKBONE,
    FP8Q_WHY_EXPERT,
    FP8Q_WHY_EXPERT_STACKED,
    FP8Q_WHY_EXPERT_SPLIT,
    FP8Q_WHY_INCLUDED,
    FP8Q_WHY_LIKE,
    FP8Q_N_REASONS
};
const char *fp8q_reason_name(enum fp8q_reason reason); /* "ragged-group" */

struct fp8q_select_options {
    const char *const *ignore, *const *include; /* patterns */
    size_t n_ignore, n_include;
    bool no_default_ignore; /* only what cannot be quantized is kept by itself */
    bool allow_unmatched, allow_tower, strict;
    bool requantize; /* already quantized tensors may be taken again */
    enum fp8q_scheme scheme;
    enum fp8q_ragged ragged;
    const struct fp8q_ckpt *like; /* NULL, or take exactly the names that are F8_E4M3 there */
};

struct fp8q_decision {
    bool quantize;
    enum fp8q_reason reason;
    enum fp8q_scheme scheme; /* of this tensor, when quantized */
    bool tower;              /* under a vision or audio root */
    bool linear; /* a linear of the family's decoder, whether or not it can be quantized */
    struct fp8q_linear_place group; /* @linear: where it stands */
};

struct fp8q_selection {
    struct fp8q_decision *decisions; /* one for each tensor of the checkpoint, same order */
    const struct fp8q_family *family;
    const char *model_type; /* borrowed from the config; NULL without one */
    bool known_family;
    size_t n_quantize;
};

/* Decides for every tensor of @ckpt.  Errors: FP8Q_E_ARG (bad pattern, pattern without a match),
 * FP8Q_E_MISMATCH (a split group with --strict, a name that --like has and the source lacks),
 * FP8Q_E_POLICY (a tower reached without --allow-tower).  Release with fp8q_selection_reset().  */
int fp8q_select(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                struct fp8q_selection *selection_out, struct fp8q_warnings *warnings,
                struct fp8q_error *err);
void fp8q_selection_reset(struct fp8q_selection *selection);

/* The last step of fp8q_select(): a group of which one member must stay is kept whole, with a
 * warning for each kind of group (FP8Q_E_MISMATCH with @options->strict).  groups.c  */
int fp8q_groups_settle(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                       struct fp8q_selection *selection, struct fp8q_warnings *warnings,
                       struct fp8q_error *err);

/* The weight that a scale tensor's name belongs to: "X.weight" for "X.weight_scale_inv" or
 * "X.weight_scale", "X" for "X_scale_inv"; also "X.weight" for the activation scales
 * "X.input_scale" and "X.activation_scale", which mean nothing once the weight is no FP8 any more.
 * NULL if @name is no scale name or the weight is not there or not F8.  */
const struct fp8q_tensor *fp8q_scale_owner(const struct fp8q_ckpt *ckpt, const char *name);

/* Largest power of two up to 64 at which every quantized matrix can be cut for tensor parallelism
 * so that all parts are multiples of 128; *@name_out is a tensor that stops the next one (NULL at
 * 64).  */
unsigned fp8q_largest_tp(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *selection,
                         const char **name_out);

/* A quantized tensor that @tp-way tensor parallelism cannot cut into multiples of 128, or NULL.  */
const char *fp8q_tp_misfit(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *selection,
                           unsigned tp);

/* True for quantization_config in config.json (top level, text_config, compression_config) or
 * FP8/packed weights; *@what_out says which: "fp8", "compressed-tensors", "gptq", ...  */
bool fp8q_already_quantized(const struct fp8q_ckpt *ckpt, const char **what_out);

#endif
