/* SPDX-License-Identifier: Apache-2.0
 *
 * reason.c - the words of the reasons.
 */
#include "select/reason.h"

const char *fp8q_reason_name(enum fp8q_reason reason)
{
    /* By index: a reason that is added among them cannot shift the words of others.  */
    static const char *const names[FP8Q_N_REASONS] = {
        [FP8Q_WHY_NORM] = "norm",
        [FP8Q_WHY_BIAS] = "bias",
        [FP8Q_WHY_EMBEDDING] = "embedding",
        [FP8Q_WHY_LM_HEAD] = "lm_head",
        [FP8Q_WHY_VISION] = "vision",
        [FP8Q_WHY_PROJECTOR] = "projector",
        [FP8Q_WHY_ACTION] = "action",
        [FP8Q_WHY_ROUTER] = "router",
        [FP8Q_WHY_CONV] = "conv",
        [FP8Q_WHY_LINEAR_ATTENTION] = "linear-attention",
        [FP8Q_WHY_MTP] = "mtp",
        [FP8Q_WHY_SMALL] = "small",
        [FP8Q_WHY_RAGGED] = "ragged",
        [FP8Q_WHY_RAGGED_GROUP] = "ragged-group",
        [FP8Q_WHY_EXPERTS_UNSUPPORTED] = "experts-unsupported",
        [FP8Q_WHY_NOT_FLOAT] = "not-float",
        [FP8Q_WHY_UNCLASSIFIED] = "unclassified",
        [FP8Q_WHY_ALREADY_FP8] = "already-fp8",
        [FP8Q_WHY_SCALE] = "scale",
        [FP8Q_WHY_STALE_SCALE] = "stale-scale",
        [FP8Q_WHY_IGNORED] = "ignored",
        [FP8Q_WHY_IGNORED_GROUP] = "ignored-group",
        [FP8Q_WHY_NOT_LIKE] = "not-in-like",
        [FP8Q_WHY_BACKBONE] = "backbone",
        [FP8Q_WHY_EXPERT] = "expert",
        [FP8Q_WHY_EXPERT_STACKED] = "expert-stacked",
        [FP8Q_WHY_EXPERT_SPLIT] = "expert-split",
        [FP8Q_WHY_INCLUDED] = "included",
        [FP8Q_WHY_LIKE] = "like"};
    return names[reason];
}
