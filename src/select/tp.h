/* SPDX-License-Identifier: Apache-2.0
 *
 * tp.h - how far tensor parallelism can cut the quantized matrices.
 */
#ifndef FP8Q_TP_H
#define FP8Q_TP_H

#include "select/selection.h"

/* Largest power of two up to 64 at which every quantized matrix can be cut for tensor parallelism
 * so that all parts are multiples of 128; *@name_out is a tensor that stops the next one (NULL at
 * 64).  */
unsigned fp8q_largest_tp(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *selection,
                         const char **name_out);

/* A quantized tensor that @tp-way tensor parallelism cannot cut into multiples of 128, or NULL.  */
const char *fp8q_tp_misfit(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *selection,
                           unsigned tp);

#endif
