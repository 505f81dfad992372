/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c - endings, a growing text buffer, numbers as text.
 */
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fp8q_starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool fp8q_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

size_t fp8q_stem_len(const char *text, const char *end)
{
    return fp8q_ends_with(text, end) ? strlen(text) - strlen(end) : 0;
}

int fp8q_compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *fp8q_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

const char *fp8q_show_bytes(char *buf, uint64_t bytes)
{
    /* kB, not KiB: powers of 1000.  */
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(*units)) {
        value /= 1000;
        unit++;
    }

    snprintf(buf, 32, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return buf;
}

static bool reserve(struct fp8q_text *t, size_t extra)
{
    if (t->failed)
        return false;
    /* Less, not equal: the NUL behind the text needs a byte as well.  */
    if (extra < t->cap - t->len)
        return true;

    size_t cap = t->cap ? t->cap : 256;
    while (cap - t->len <= extra) {
        if (cap > SIZE_MAX / 2) {
            t->failed = true;
            return false;
        }
        cap *= 2;
    }

    char *data = realloc(t->data, cap);
    if (!data) {
        t->failed = true;
        return false;
    }

    t->data = data;
    t->cap = cap;
    return true;
}

void fp8q_text_add(struct fp8q_text *t, const char *bytes, size_t len)
{
    if (!reserve(t, len))
        return;

    if (len)
        memcpy(t->data + t->len, bytes, len);
    t->len += len;
    t->data[t->len] = '\0';
}

void fp8q_text_puts(struct fp8q_text *t, const char *s)
{
    fp8q_text_add(t, s, strlen(s));
}

void fp8q_text_printf(struct fp8q_text *t, const char *fmt, ...)
{
    va_list args, again;

    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);

    va_end(args);
    if (n < 0)
        t->failed = true;
    else if (reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->len, (size_t)n + 1, fmt, again);
        t->len += (size_t)n;
    }

    va_end(again);
}

void fp8q_text_json_string(struct fp8q_text *t, const char *s, size_t len)
{
    static const char short_escape[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};

    fp8q_text_add(t, "\"", 1);
    size_t plain = 0; /* start of the run that needs no escape */

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;

        fp8q_text_add(t, s + plain, i - plain);
        plain = i + 1;

        if (c == '"' || c == '\\')
            fp8q_text_printf(t, "\\%c", c);
        else if (short_escape[c])
            fp8q_text_printf(t, "\\%c", short_escape[c]);
        else
            fp8q_text_printf(t, "\\u%04x", c);
    }

    fp8q_text_add(t, s + plain, len - plain);
    fp8q_text_add(t, "\"", 1);
}

int fp8q_text_status(const struct fp8q_text *t, struct fp8q_error *err)
{
    return t->failed ? fp8q_fail_nomem(err) : FP8Q_OK;
}

void fp8q_text_reset(struct fp8q_text *t)
{
    free(t->data);
    *t = (struct fp8q_text){0};
}

/* ---- numbers --------------------------------------------------------------------------------- */

locale_t fp8q_c_locale_enter(void)
{
    /* Of the C locale there is one object, which is neither made nor freed.  */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);

    return c ? uselocale(c) : (locale_t)0;
}

void fp8q_c_locale_leave(locale_t before)
{
    if (before)
        (void)uselocale(before);
}

double fp8q_number_parse(const char *text, char **end_out)
{
    locale_t before = fp8q_c_locale_enter();
    double value = strtod(text, end_out);

    fp8q_c_locale_leave(before);
    return value;
}

void fp8q_number_print(char *buf, size_t cap, int precision, double value)
{
    locale_t before = fp8q_c_locale_enter();

    snprintf(buf, cap, "%.*g", precision, value);
    fp8q_c_locale_leave(before);
}
