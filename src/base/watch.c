/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.c - progress to the listener, and the question whether to stop.
 */
#include "base/watch.h"

#include <stdatomic.h>

/* A signal handler writes the token and any thread reads it, so the access must need no lock.  */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler must not take a lock");

void fp8q_cancel(struct fp8q_cancel *token)
{
    if (token)
        __atomic_store_n(&token->requested, 1, __ATOMIC_RELEASE);
}

void fp8q_watch_report(const struct fp8q_watch *watch, const char *stage, uint64_t done,
                       uint64_t total, enum fp8q_unit unit)
{
    if (watch && watch->progress && watch->progress->update)
        watch->progress->update(watch->progress->ctx, stage, done, total, unit);
}

int fp8q_watch_check(const struct fp8q_watch *watch, struct fp8q_error *err)
{
    if (watch && watch->cancel && __atomic_load_n(&watch->cancel->requested, __ATOMIC_ACQUIRE))
        return fp8q_fail(err, FP8Q_E_CANCELLED, "cancelled", "cancelled");
    return FP8Q_OK;
}
