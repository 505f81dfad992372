/* SPDX-License-Identifier: Apache-2.0
 *
 * jsonw.c - the JSON writer.
 */
#include "format/jsonw.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

static void new_line(struct fp8q_jsonw *w)
{
    if (w->indent == 0)
        return;

    fp8q_text_add(&w->text, "\n", 1);
    for (unsigned i = 0; i < w->depth * w->indent; i++)
        fp8q_text_add(&w->text, " ", 1);
}

static void begin_value(struct fp8q_jsonw *w, const char *key)
{
    if (w->after_value)
        fp8q_text_puts(&w->text, w->indent ? "," : ", ");
    if (w->depth > 0)
        new_line(w);

    if (key) {
        fp8q_text_json_string(&w->text, key, strlen(key));
        fp8q_text_puts(&w->text, ": ");
    }
    w->after_value = true;
}

void fp8q_jsonw_open(struct fp8q_jsonw *w, const char *key, char bracket)
{
    begin_value(w, key);
    fp8q_text_add(&w->text, &bracket, 1);

    /* Nothing that fp8q writes is nested 64 deep.  */
    uint64_t bit = w->depth < 64 ? (uint64_t)1 << w->depth : 0;
    w->objects = bracket == '{' ? w->objects | bit : w->objects & ~bit;
    w->depth++;
    w->after_value = false;
}

void fp8q_jsonw_close(struct fp8q_jsonw *w, char bracket)
{
    w->depth--;
    if (w->after_value) /* an empty object or array stays on its line */
        new_line(w);
    fp8q_text_add(&w->text, &bracket, 1);
    w->after_value = true;
}

void fp8q_jsonw_close_to(struct fp8q_jsonw *w, unsigned depth)
{
    while (w->depth > depth)
        fp8q_jsonw_close(w, w->objects >> (w->depth - 1) & 1 ? '}' : ']');
}

void fp8q_jsonw_string(struct fp8q_jsonw *w, const char *key, const char *value)
{
    begin_value(w, key);
    if (value)
        fp8q_text_json_string(&w->text, value, strlen(value));
    else
        fp8q_text_puts(&w->text, "null");
}

void fp8q_jsonw_uint(struct fp8q_jsonw *w, const char *key, uint64_t value)
{
    begin_value(w, key);
    fp8q_text_printf(&w->text, "%llu", (unsigned long long)value);
}

void fp8q_jsonw_number(struct fp8q_jsonw *w, const char *key, double value)
{
    char digits[40];

    begin_value(w, key);
    /* JSON has no NaN and no infinities.  */
    if (!isfinite(value)) {
        fp8q_text_puts(&w->text, "null");
        return;
    }

    /* The shortest text that reads back to the same number.  */
    for (int precision = 6; precision <= 17; precision++) {
        fp8q_number_print(digits, sizeof(digits), precision, value);
        if (fp8q_number_parse(digits, NULL) == value)
            break;
    }
    fp8q_text_puts(&w->text, digits);
}

void fp8q_jsonw_bool(struct fp8q_jsonw *w, const char *key, bool value)
{
    fp8q_jsonw_raw(w, key, value ? "true" : "false");
}

void fp8q_jsonw_raw(struct fp8q_jsonw *w, const char *key, const char *json)
{
    begin_value(w, key);
    fp8q_text_puts(&w->text, json);
}
