/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h - what the values of one tensor are: their range, and block by block how much of the
 * range of FP8 they use.
 */
#ifndef FP8Q_VALUES_H
#define FP8Q_VALUES_H

#include "checkpoint/weights.h"

/* Reads tensor @name whole, a stripe of blocks at a time, and fills @statistics, which
 * fp8q_statistics_reset() releases.  FP8 values count with their scales.  Fails as
 * fp8q_weights_open() does.  */
int fp8q_look_at_values(const struct fp8q_ckpt *ckpt, const char *name,
                        const struct fp8q_kernel *kernel, struct fp8q_statistics *statistics,
                        struct fp8q_error *err);

#endif
