/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h - how the library says what went wrong.
 *
 * A message says where, what was expected and what was found.  Text from a file (tensor names,
 * shard names, JSON strings) reaches a message only through fp8q_show().
 */
#ifndef FP8Q_ERROR_H
#define FP8Q_ERROR_H

#include <stdarg.h>

#include "fp8q.h"

#if defined(__GNUC__)
#define FP8Q_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define FP8Q_PRINTF(fmt, args)
#endif

/* Propagates a failure; only for functions that own nothing at that point.  */
#define FP8Q_TRY(expr)                                                                             \
    do {                                                                                           \
        int try_status_ = (expr);                                                                  \
        if (try_status_ != FP8Q_OK)                                                                \
            return try_status_;                                                                    \
    } while (0)

/* Fills @err (NULL allowed) and returns @status, so that `return fp8q_fail(...)` reads well.  */
int fp8q_fail(struct fp8q_error *err, enum fp8q_status status, const char *id, const char *fmt, ...)
    FP8Q_PRINTF(4, 5);

/* FP8Q_E_IO with the text of @errnum: "<what>: <strerror>".  ENOMEM becomes FP8Q_E_NOMEM.  */
int fp8q_fail_errno(struct fp8q_error *err, int errnum, const char *fmt, ...) FP8Q_PRINTF(3, 4);

int fp8q_fail_nomem(struct fp8q_error *err);

/* Fails as @why says: for a caller that looked at a failure first and could not make it good.  */
int fp8q_fail_as(struct fp8q_error *err, const struct fp8q_error *why);

/* What the analyzer cannot see, since it reads one file at a time: these never return 0.  */
#ifdef __clang_analyzer__
#define fp8q_fail(err, status, ...) (fp8q_fail(err, status, __VA_ARGS__), (int)(status))
#define fp8q_fail_errno(...) (fp8q_fail_errno(__VA_ARGS__), (int)FP8Q_E_IO)
#define fp8q_fail_nomem(err) (fp8q_fail_nomem(err), (int)FP8Q_E_NOMEM)
#define fp8q_fail_as(err, why) (fp8q_fail_as(err, why), (int)FP8Q_E_IO)
#endif

/* Appends to @warnings (NULL allowed).  A warning that cannot be stored is FP8Q_E_NOMEM.  */
int fp8q_warn(struct fp8q_warnings *warnings, struct fp8q_error *err, const char *id,
              const char *fmt, ...) FP8Q_PRINTF(4, 5);

/* Text that is safe on a terminal: control bytes, quotes, backslashes, DEL and bytes that are no
 * UTF-8 become \xNN, bidirectional controls \u{...}, long text is cut with "...".  Valid for as
 * long as @buf.  */
struct fp8q_shown {
    char text[256];
};
const char *fp8q_show_n(struct fp8q_shown *buf, const char *text, size_t len);
const char *fp8q_show(struct fp8q_shown *buf, const char *text);

#endif
