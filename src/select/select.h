/* SPDX-License-Identifier: Apache-2.0
 *
 * select.h - stage 2, first half: what happens to each tensor, and by which rule.
 *
 * By name and architecture, never by shape alone; shapes only veto.  A fused group is quantized
 * whole or not at all.  Nothing here reads payload or lays out files.
 */
#ifndef FP8Q_SELECT_H
#define FP8Q_SELECT_H

#include "select/pattern.h"
#include "select/quantized.h"
#include "select/selection.h"

/* Decides for every tensor of @ckpt.  Errors: FP8Q_E_ARG (bad pattern, pattern without a match),
 * FP8Q_E_MISMATCH (a split group with --strict, a name that --like has and the source lacks),
 * FP8Q_E_POLICY (a tower reached without --allow-tower).  Release with fp8q_selection_reset().  */
int fp8q_select(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                struct fp8q_selection *selection_out, struct fp8q_warnings *warnings,
                struct fp8q_error *err);

#endif
