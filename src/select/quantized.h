/* SPDX-License-Identifier: Apache-2.0
 *
 * quantized.h - what of a checkpoint is quantized already.
 */
#ifndef FP8Q_QUANTIZED_H
#define FP8Q_QUANTIZED_H

#include "checkpoint/checkpoint.h"

/* The weight that a scale tensor's name belongs to: "X.weight" for "X.weight_scale_inv" or
 * "X.weight_scale", "X" for "X_scale_inv"; also "X.weight" for the activation scales
 * "X.input_scale" and "X.activation_scale", which mean nothing once the weight is no FP8 any more.
 * NULL if @name is no scale name or the weight is not there or not F8.  */
const struct fp8q_tensor *fp8q_scale_owner(const struct fp8q_ckpt *ckpt, const char *name);

/* The same for a scale whose weight is there but in high precision: what an earlier quantization
 * left behind.  */
const struct fp8q_tensor *fp8q_stale_owner(const struct fp8q_ckpt *ckpt, const char *name);

/* What an earlier quantization left behind: "X.weight_scale" or "X.weight_scale_inv" whose weight is
 * not FP8, empty, or not there; "X_scale_inv" beside an X that is not FP8.  No network has such a
 * parameter, and engines refuse names that they do not expect.  */
bool fp8q_is_leftover_scale(const struct fp8q_ckpt *ckpt, const char *name);

/* True for a quantization_config anywhere in config.json, or FP8 or packed weights; *@what_out says
 * which: "fp8", "compressed-tensors", "gptq", ...  */
bool fp8q_already_quantized(const struct fp8q_ckpt *ckpt, const char **what_out);

/* Whether a config's "torch_dtype" or "dtype" says FP8: by it a loader would cast floats to bare FP8
 * values.  */
bool fp8q_is_fp8_dtype(const struct fp8q_json *value);

/* Paths of the quantization_config and compression_config members of nested objects
 * ("text_config.quantization_config"), and of dtypes that say FP8, a NULL behind the last.  Free with
 * fp8q_free_paths(); NULL without memory.  */
char **fp8q_nested_quantization(const struct fp8q_json *config);
void fp8q_free_paths(char **paths);

#endif
