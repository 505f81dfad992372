/* SPDX-License-Identifier: Apache-2.0
 *
 * packed.h - recognises checkpoints whose weights are quantized, but not to FP8.
 *
 * Their bytes are no values by themselves: a command that reads weights asks here first, and refuses
 * them by name.
 */
#ifndef FP8Q_PACKED_H
#define FP8Q_PACKED_H

#include "checkpoint/checkpoint.h"

/* The format by the tensors that only it has: "GPTQ (packed integers)", "NVFP4 (...)"; NULL if there
 * is none.  *@tensor_out is the first such tensor.  */
const char *fp8q_packed_format(const struct fp8q_ckpt *ckpt, const char **tensor_out);

/* FP8Q_E_UNSUPPORTED "packed-format" if there is one.  */
int fp8q_refuse_packed(const struct fp8q_ckpt *ckpt, struct fp8q_error *err);

#endif
