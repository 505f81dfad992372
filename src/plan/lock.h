/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h - the lock file: what may be quantized, and how, so that neither changes unnoticed.
 *
 *     {"schema": "fp8q-lock/1", "scheme": "FP8_BLOCK",
 *      "tensors": {"NAME": [rows, cols], ...},
 *      "schemes": {"NAME": "FP8_DYNAMIC", ...}}      of tensors with another scheme; may be absent
 */
#ifndef FP8Q_LOCK_H
#define FP8Q_LOCK_H

#include "plan/plan.h"

/* Text of the lock of a plan.  */
int fp8q_lock_text(const struct fp8q_plan *plan, struct fp8q_text *out, struct fp8q_error *err);

enum fp8q_lock_kind {
    FP8Q_LOCK_ADDED,   /* quantized, and not in the lock */
    FP8Q_LOCK_SCHEME,  /* scaled in another way than the lock says */
    FP8Q_LOCK_SHAPE,   /* of another shape */
    FP8Q_LOCK_MISSING, /* in the lock, and not quantized */
    FP8Q_LOCK_KINDS
};

struct fp8q_lock_difference {
    enum fp8q_lock_kind kind;
    char *name;         /* owned */
    char observed[160]; /* safe to print */
};

/* How an output differs from its lock: first all that goes beyond it, then what is missing, each
 * sorted by name.  */
struct fp8q_lock_result {
    struct fp8q_lock_difference *items;
    size_t n_items, cap;
    size_t n_of[FP8Q_LOCK_KINDS];
    size_t n_beyond; /* added, or with another scheme or shape: what the lock does not allow */
};

/* Reads the lock @path and compares @ckpt with it.  FP8Q_E_EVIDENCE if there is no such file,
 * FP8Q_E_FORMAT if it is no lock of this version, FP8Q_E_IO if scales cannot be read.  Release with
 * fp8q_lock_result_reset() in every case.  */
int fp8q_lock_compare(const char *path, const struct fp8q_ckpt *ckpt,
                      struct fp8q_lock_result *result_out, struct fp8q_error *err);
void fp8q_lock_result_reset(struct fp8q_lock_result *result);

#endif
