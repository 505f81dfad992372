/* SPDX-License-Identifier: Apache-2.0
 *
 * reason.h - why a tensor is quantized or left as it is: one word each.
 */
#ifndef FP8Q_REASON_H
#define FP8Q_REASON_H

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
    FP8Q_WHY_STALE_SCALE, /* of no FP8 weight: not carried over */
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

/* The word of the reports and of --json: "ragged-group".  Stable, and never NULL.  */
const char *fp8q_reason_name(enum fp8q_reason reason);

#endif
