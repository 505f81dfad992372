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

/* True for quantization_config in config.json (top level, text_config, compression_config) or
 * FP8/packed weights; *@what_out says which: "fp8", "compressed-tensors", "gptq", ...  */
bool fp8q_already_quantized(const struct fp8q_ckpt *ckpt, const char **what_out);

#endif
