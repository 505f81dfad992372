/* SPDX-License-Identifier: Apache-2.0
 *
 * markup.c - escapes, one function a language.
 *
 * All of them walk over the text a character at a time and drop what is no character for people
 * first, so that the languages need to care for their own syntax only.
 */
#include "report/markup.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* ---- characters ------------------------------------------------------------------------------ */

static bool is_shown(uint32_t cp)
{
    /* Controls; marks and overrides of direction, by which a name reads as another one; and what is
     * no character, which YAML and HTML refuse.  */
    if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x2028 || cp == 0x2029 || cp == 0xFEFF)
        return false;
    if (cp == 0x061C || cp == 0x200E || cp == 0x200F || (cp >= 0x202A && cp <= 0x202E) ||
        (cp >= 0x2066 && cp <= 0x2069))
        return false;
    return (cp & 0xFFFE) != 0xFFFE && !(cp >= 0xFDD0 && cp <= 0xFDEF);
}

/* The next character of *@text as UTF-8, moved over; 0 at the end.  What is not shown, or is no
 * UTF-8, is U+FFFD.  */
static size_t next_character(const char **text, char out[4])
{
    uint32_t cp = (unsigned char)**text;
    size_t n = 1;
    if (cp == 0)
        return 0;

    if (cp >= 0x80)
        n = fp8q_utf8_decode(*text, strnlen(*text, 4), &cp);
    if (n == 0 || !is_shown(cp))
        cp = 0xFFFD;

    *text += n ? n : 1;
    return fp8q_utf8_encode(out, cp);
}

char *fp8q_clean(const char *text)
{
    struct fp8q_text t = {0};
    char c[4];
    if (!text)
        return NULL;

    fp8q_text_puts(&t, "");
    for (size_t n; (n = next_character(&text, c)) != 0;)
        fp8q_text_add(&t, c, n);

    if (fp8q_text_status(&t, NULL) != FP8Q_OK)
        fp8q_text_reset(&t);
    return t.data;
}

/* ---- languages ------------------------------------------------------------------------------- */

/* The character reference of what has a meaning in HTML, or NULL.  */
static const char *reference_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void fp8q_put_html(struct fp8q_text *t, const char *text)
{
    char c[4];

    for (size_t n; (n = next_character(&text, c)) != 0;) {
        const char *reference = n == 1 ? reference_of(c[0]) : NULL;
        if (reference)
            fp8q_text_puts(t, reference);
        else
            fp8q_text_add(t, c, n);
    }
}

/* Whether the character at @at, behind @before, would begin or end something in Markdown.  A "_"
 * inside of a word does not.  */
static bool is_special(const char *at, char before)
{
    bool in_word = isalnum((unsigned char)before) && isalnum((unsigned char)at[1]);

    /* Links that are made of bare addresses.  */
    if (*at == ':')
        return at[1] == '/';
    if (*at == '.')
        return before == 'w' || before == 'W';
    return strchr("\\`*[]|~$", *at) || (*at == '_' && !in_word);
}

void fp8q_put_markdown(struct fp8q_text *t, const char *text)
{
    char c[4], before = ' ';

    for (size_t n; *text; before = c[n - 1]) {
        const char *at = text;
        n = next_character(&text, c);
        const char *reference = n == 1 ? reference_of(c[0]) : NULL;
        if (n == 1 && is_special(at, before))
            fp8q_text_puts(t, "\\");

        if (reference)
            fp8q_text_puts(t, reference);
        else
            fp8q_text_add(t, c, n);
        /* Names of people and numbers of issues are looked for behind Markdown, so that no escape
         * helps: a word joiner does.  */
        if (n == 1 && (c[0] == '@' || c[0] == '#'))
            fp8q_text_puts(t, "\xE2\x81\xA0");
    }
}

void fp8q_put_code(struct fp8q_text *t, const char *text)
{
    char *clean = fp8q_clean(text);

    /* A backtick would end the span, a bar the cell, and a span of nothing is none.  */
    if (!clean)
        t->failed = true;
    else if (!*clean || strpbrk(clean, "`|\\") || clean[0] == ' ')
        fp8q_put_markdown(t, clean);
    else
        fp8q_text_printf(t, "`%s`", clean);

    free(clean);
}

void fp8q_put_yaml(struct fp8q_text *t, const char *text)
{
    char *clean = fp8q_clean(text);

    /* A JSON string is a YAML scalar once it holds printable characters only.  */
    if (clean)
        fp8q_text_json_string(t, clean, strlen(clean));
    else
        t->failed = true;
    free(clean);
}

void fp8q_put_script(struct fp8q_text *t, const char *json, size_t len)
{
    /* In JSON these stand in strings only, where an escape means the same.  */
    for (size_t from = 0, i = 0; i <= len; i++) {
        bool escape = i < len && strchr("<>&", json[i]);
        if (i < len && !escape)
            continue;
        fp8q_text_add(t, json + from, i - from);
        if (escape)
            fp8q_text_printf(t, "\\u%04x", (unsigned char)json[i]);
        from = i + 1;
    }
}

void fp8q_put_shell(struct fp8q_text *t, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:,=+%@";

    if (*word && strspn(word, plain) == strlen(word)) {
        fp8q_text_puts(t, word);
        return;
    }

    /* Within single quotes everything is itself, but for the quote.  */
    fp8q_text_puts(t, "'");
    for (; *word; word++)
        fp8q_text_add(t, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
    fp8q_text_puts(t, "'");
}

/* ---- figures --------------------------------------------------------------------------------- */

void fp8q_put_bytes(struct fp8q_text *t, uint64_t bytes)
{
    char text[32];
    fp8q_text_puts(t, fp8q_show_bytes(text, bytes));
}

void fp8q_put_count(struct fp8q_text *t, uint64_t count)
{
    if (count >= 1000) {
        fp8q_put_count(t, count / 1000);
        fp8q_text_printf(t, ",%03u", (unsigned)(count % 1000));
    } else {
        fp8q_text_printf(t, "%u", (unsigned)count);
    }
}

void fp8q_put_shape(struct fp8q_text *t, const uint64_t *shape, uint32_t ndim)
{
    fp8q_text_puts(t, "[");
    for (uint32_t i = 0; i < ndim; i++)
        fp8q_text_printf(t, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    fp8q_text_puts(t, "]");
}

void fp8q_put_number(struct fp8q_text *t, int digits, double value)
{
    if (isnan(value))
        fp8q_text_puts(t, "-");
    else if (isinf(value))
        fp8q_text_puts(t, value > 0 ? "exact" : "-");
    else
        fp8q_text_printf(t, "%.*g", digits, value);
}

void fp8q_put_share(struct fp8q_text *t, double share)
{
    double percent = 100 * share;

    if (isnan(share))
        fp8q_text_puts(t, "-");
    else if (percent != 0 && percent < 0.01)
        fp8q_text_printf(t, "%.2g %%", percent);
    else
        fp8q_text_printf(t, "%.*f %%", percent < 10 ? 2 : 1, percent);
}

void fp8q_put_interval(struct fp8q_text *t, double mean, double se)
{
    fp8q_put_number(t, 4, mean);
    if (isfinite(se)) {
        fp8q_text_puts(t, " \xC2\xB1 ");
        fp8q_put_number(t, 2, FP8Q_95 * se);
    }
}
