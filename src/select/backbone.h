/* SPDX-License-Identifier: Apache-2.0
 *
 * backbone.h - the language model inside a checkpoint: its table of tokens and its output head, and
 * its config where the checkpoint is a policy whose config.json does not describe it.
 */
#ifndef FP8Q_BACKBONE_H
#define FP8Q_BACKBONE_H

#include "checkpoint/checkpoint.h"

/* Of the layers under @prefix ("...model."); NULL if there is none.  The head is the nearest: that of
 * the language model stands before that of what is around it.  */
const struct fp8q_tensor *fp8q_backbone_table(const struct fp8q_ckpt *ckpt, const char *prefix);
const struct fp8q_tensor *fp8q_backbone_head(const struct fp8q_ckpt *ckpt, const char *prefix);

/* Whether @config (NULL allowed) is that of such a policy: pi0, pi0.5, pi0-FAST and SmolVLA of
 * LeRobot, GR00T.  */
bool fp8q_backbone_of_policy(const struct fp8q_json *config);

/* What a config.json would say of the policy's language model: sizes by the shapes of its tensors,
 * the rest by the type of the policy.  Free it by fp8q_json_free().  FP8Q_E_FORMAT if a matrix is
 * missing, or shapes do not fit together.  */
int fp8q_backbone_config(const struct fp8q_ckpt *ckpt, const char *prefix,
                         struct fp8q_json **config_out, struct fp8q_error *err);

#endif
