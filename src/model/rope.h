/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.h - rotary embeddings: from config.json to frequencies.
 */
#ifndef FP8Q_ROPE_H
#define FP8Q_ROPE_H

#include "model/model.h"

/* Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before).  @theta:
 * the family's base when neither names one.  @mrope: the family has three rows of positions.
 * FP8Q_E_UNSUPPORTED for a type that is not computed here, by name.  */
int fp8q_rope_read(struct fp8q_rope *rope_out, const struct fp8q_json *config, uint32_t head_dim,
                   double theta, bool mrope, struct fp8q_error *err);

/* cos and sin for positions @positions[row][t] (@n_rows 1 or 3, row stride @stride):
 * [t][head_dim/2].  */
void fp8q_rope_table(const struct fp8q_model *model, const float *inv_freq,
                     const int64_t *positions, unsigned n_rows, size_t stride, size_t n_tokens,
                     float *cos_out, float *sin_out);

#endif
