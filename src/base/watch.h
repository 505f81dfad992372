/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.h - who looks on while a call works: one who hears of its progress, and one who may stop
 * it.
 *
 * Handed down by pointer, like the kernel; NULL means that nobody does.  There is no watch of the
 * process, so that two calls in one program do not stop each other.
 */
#ifndef FP8Q_WATCH_H
#define FP8Q_WATCH_H

#include "base/error.h"

struct fp8q_watch {
    const struct fp8q_progress *progress; /* NULL: nobody listens */
    const struct fp8q_cancel *cancel;     /* NULL: nobody stops it */
};

/* Tells that @done of @total are done.  @stage is a static string.  Callable from any thread.  */
void fp8q_watch_report(const struct fp8q_watch *watch, const char *stage, uint64_t done,
                       uint64_t total, enum fp8q_unit unit);

/* FP8Q_E_CANCELLED once the token was cancelled, else 0.  Long loops ask between their steps.  */
int fp8q_watch_check(const struct fp8q_watch *watch, struct fp8q_error *err);

#endif
