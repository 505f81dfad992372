/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h - a growing text buffer, used by whatever reads or writes text.
 */
#ifndef FP8Q_TEXT_H
#define FP8Q_TEXT_H

#include <locale.h>

#include "base/error.h"

bool fp8q_starts_with(const char *text, const char *start);
bool fp8q_ends_with(const char *text, const char *end);
/* Length of @text without @end; 0 if it does not end so, or if nothing stands before it.  */
size_t fp8q_stem_len(const char *text, const char *end);
/* For qsort() and bsearch() over char *, by bytes.  */
int fp8q_compare_strings(const void *a, const void *b);

/* Ends the name of @n things: "s", or "" for one.  */
const char *fp8q_plural(uint64_t n);

/* "3.35 GB": decimal, as the hub counts.  @buf has room for 32 bytes.  */
const char *fp8q_show_bytes(char *buf, uint64_t bytes);

/* Growing buffer.  Zero it to start; appends after a failed allocation do nothing, and
 * fp8q_text_status() says so once at the end.  @data is NUL-terminated once anything was appended.
 */
struct fp8q_text {
    char *data;
    size_t len, cap;
    bool failed;
};
void fp8q_text_add(struct fp8q_text *t, const char *bytes, size_t len);
void fp8q_text_puts(struct fp8q_text *t, const char *s);
void fp8q_text_printf(struct fp8q_text *t, const char *fmt, ...) FP8Q_PRINTF(2, 3);
/* A JSON string with its quotes, escaped as serde_json does (the official safetensors writer).  */
void fp8q_text_json_string(struct fp8q_text *t, const char *s, size_t len);
int fp8q_text_status(const struct fp8q_text *t, struct fp8q_error *err);
void fp8q_text_reset(struct fp8q_text *t);

/* ---- numbers, with a point whatever the locale of the host program ---------------------------- */

/* Puts this thread into the C locale until the other one is called with what this one gave.  */
locale_t fp8q_c_locale_enter(void);
void fp8q_c_locale_leave(locale_t before);

/* strtod() and "%.*g" of the C locale.  */
double fp8q_number_parse(const char *text, char **end_out);
void fp8q_number_print(char *buf, size_t cap, int precision, double value);

#endif
