/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h - the lock file: which tensors may be quantized, so that the set never grows unnoticed.
 *
 * {"schema": "fp8q-lock/1", "scheme": "FP8_BLOCK", "tensors": {"NAME": [rows, cols], ...}}
 */
#ifndef FP8Q_LOCK_H
#define FP8Q_LOCK_H

#include "plan/plan.h"

/* Text of the lock of a plan.  */
int fp8q_lock_text(const struct fp8q_plan *plan, struct fp8q_text *out, struct fp8q_error *err);

/* What an output quantized beyond its lock, and what it no longer does.  */
struct fp8q_lock_result {
    size_t n_added, n_missing;
    char first_added[256], first_missing[256];
};
/* FP8Q_E_EVIDENCE if the lock file is not there, FP8Q_E_FORMAT if it is no lock of this version. */
int fp8q_lock_compare(const char *path, const struct fp8q_ckpt *ckpt,
                      struct fp8q_lock_result *result_out, struct fp8q_error *err);

#endif
