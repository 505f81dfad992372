/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of api/ share: a caller's struct fp8q_run, looked up once.
 */
#ifndef FP8Q_API_INTERNAL_H
#define FP8Q_API_INTERNAL_H

#include "base/watch.h"
#include "kernel/kernel.h"

/* How a handle works, after its caller's run was checked.  Holds no pointer into itself.  */
struct fp8q_manner {
    const struct fp8q_kernel *kernel;
    unsigned threads; /* 1..1024 */
    uint64_t max_memory;
    bool overwrite, resume;
    struct fp8q_watch watch;
};

/* @run NULL: all defaults.  FP8Q_E_ARG for a struct that was not initialised or a kernel that this
 * CPU does not have.  */
int fp8q_manner_of(const struct fp8q_run *run, struct fp8q_manner *manner_out,
                   struct fp8q_error *err);

/* FP8Q_E_ARG "null-argument" if @pointer is NULL.  */
int fp8q_require(const void *pointer, const char *name, struct fp8q_error *err);

#endif
