/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c - growing text buffer and UTF-8.
 */
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t fp8q_utf8_decode(const char *text, size_t len, uint32_t *cp_out)
{
    const unsigned char *s = (const unsigned char *)text;
    /* Smallest value that needs this many bytes: anything below is an overlong form.  */
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (len == 0)
        return 0;
    size_t n = s[0] < 0x80             ? 1
               : (s[0] & 0xE0) == 0xC0 ? 2
               : (s[0] & 0xF0) == 0xE0 ? 3
               : (s[0] & 0xF8) == 0xF0 ? 4
                                       : 0;
    if (n == 0 || n > len)
        return 0;
    uint32_t cp = n == 1 ? s[0] : s[0] & (0x7FU >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        cp = cp << 6 | (s[i] & 0x3FU);
    }
    if (cp < smallest[n] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        return 0;
    *cp_out = cp;
    return n;
}

size_t fp8q_utf8_encode(char dst[4], uint32_t cp)
{
    if (cp < 0x80) {
        dst[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        dst[i] = (char)(0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    dst[0] = (char)(0xF00U >> n | cp); /* 0xC0, 0xE0, 0xF0 in the low byte for 2, 3, 4 */
    return n;
}

bool fp8q_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

int fp8q_compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool reserve(struct fp8q_text *t, size_t extra)
{
    if (t->failed)
        return false;
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
