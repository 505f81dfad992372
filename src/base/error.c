/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c - formats errors and warnings.  Leaves printing to the command line.
 */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#ifdef __clang_analyzer__ /* defined here */
#undef fp8q_fail
#undef fp8q_fail_errno
#undef fp8q_fail_nomem
#undef fp8q_fail_as
#endif

static void fill(struct fp8q_error *err, enum fp8q_status status, const char *id, const char *fmt,
                 va_list args)
{
    if (!err)
        return;

    err->status = status;
    snprintf(err->id, sizeof(err->id), "%s", id);
    vsnprintf(err->message, sizeof(err->message), fmt, args);
}

int fp8q_fail(struct fp8q_error *err, enum fp8q_status status, const char *id, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fill(err, status, id, fmt, args);
    va_end(args);

    return status;
}

static const char *reason_of_posix(int result, const char *buf)
{
    return result == 0 ? buf : "unknown error";
}

static const char *reason_of_gnu(const char *result, const char *buf)
{
    (void)buf; /* may have been left unused */
    return result;
}

/* strerror_r returns int by POSIX and char * in glibc with _GNU_SOURCE.  */
#define STRERROR_R(errnum, buf, size)                                                              \
    _Generic(strerror_r(errnum, buf, size), int                                                    \
             : reason_of_posix, default                                                            \
             : reason_of_gnu)(strerror_r(errnum, buf, size), buf)

int fp8q_fail_errno(struct fp8q_error *err, int errnum, const char *fmt, ...)
{
    enum fp8q_status status = errnum == ENOMEM ? FP8Q_E_NOMEM : FP8Q_E_IO;
    va_list args;

    va_start(args, fmt);
    fill(err, status, errnum == ENOSPC || errnum == EDQUOT ? "no-space" : "io", fmt, args);
    va_end(args);

    if (err) {
        size_t len = strlen(err->message);
        char reason[128] = "";
        snprintf(err->message + len, sizeof(err->message) - len, ": %s",
                 STRERROR_R(errnum, reason, sizeof(reason)));
    }

    return status;
}

int fp8q_fail_nomem(struct fp8q_error *err)
{
    return fp8q_fail(err, FP8Q_E_NOMEM, "no-memory", "out of memory");
}

int fp8q_fail_as(struct fp8q_error *err, const struct fp8q_error *why)
{
    if (err)
        *err = *why;
    return why->status;
}

int fp8q_warn(struct fp8q_warnings *warnings, struct fp8q_error *err, const char *id,
              const char *fmt, ...)
{
    /* A caller without a list wants to hear none.  */
    if (!warnings)
        return FP8Q_OK;

    char text[2000];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    struct fp8q_warning *items =
        realloc(warnings->items, (warnings->count + 1) * sizeof(*warnings->items));
    if (!items)
        return fp8q_fail_nomem(err);
    warnings->items = items;
    struct fp8q_warning *w = &items[warnings->count];
    snprintf(w->id, sizeof(w->id), "%s", id);
    w->message = strdup(text);
    if (!w->message)
        return fp8q_fail_nomem(err);
    /* Counted last: a failure leaves the list whole.  */
    warnings->count++;
    return FP8Q_OK;
}

void fp8q_warnings_reset(struct fp8q_warnings *warnings)
{
    for (size_t i = 0; i < warnings->count; i++)
        free(warnings->items[i].message);

    free(warnings->items);
    *warnings = (struct fp8q_warnings){0};
}

/* Directional overrides and isolates can make a name read as another one on a terminal.  */
static bool is_bidi_control(uint32_t cp)
{
    return cp == 0x061C || cp == 0x200E || cp == 0x200F || (cp >= 0x202A && cp <= 0x202E) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

const char *fp8q_show_n(struct fp8q_shown *buf, const char *text, size_t len)
{
    enum { TAIL = 4, LONGEST = 12 }; /* "..." and NUL; one escaped character */
    size_t used = 0;

    for (size_t i = 0; i < len;) {
        if (used + LONGEST + TAIL > sizeof(buf->text)) {
            memcpy(buf->text + used, "...", TAIL);
            return buf->text;
        }

        unsigned char c = (unsigned char)text[i];
        uint32_t cp = 0;
        size_t n = c < 0x80 ? 1 : fp8q_utf8_decode(text + i, len - i, &cp);

        if (n > 1 && cp >= 0xA0 && !is_bidi_control(cp)) {
            memcpy(buf->text + used, text + i, n);
            used += n;
        } else if (n > 1) {
            used += (size_t)snprintf(buf->text + used, LONGEST, "\\u{%x}", (unsigned)cp);
        } else if (n == 0 || c < 0x20 || c == 0x7F || c == '"' || c == '\\') {
            used += (size_t)snprintf(buf->text + used, LONGEST, "\\x%02x", c);
            n = 1;
        } else {
            buf->text[used++] = (char)c;
        }

        i += n;
    }

    buf->text[used] = '\0';
    return buf->text;
}

const char *fp8q_show(struct fp8q_shown *buf, const char *text)
{
    return fp8q_show_n(buf, text, strlen(text));
}
