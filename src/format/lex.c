/* SPDX-License-Identifier: Apache-2.0
 *
 * lex.c - the JSON lexer behind tensor headers, indexes and the gate of json.c.
 */
#include "format/lex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { DEEPEST = 128 };

/* ---- messages ------------------------------------------------------------------------------ */

static void describe_place(const struct fp8q_lex *lex, size_t pos, char *buf, size_t cap)
{
    size_t line = 1, start = 0;

    if (lex->header) {
        snprintf(buf, cap, "header byte %zu", pos);
        return;
    }

    /* Counted only now, since nearly no text is wrong.  */
    for (size_t i = 0; i < pos && i < lex->len; i++) {
        if (lex->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    }

    snprintf(buf, cap, "line %zu, column %zu", line, pos - start + 1);
}

int fp8q_lex_fail(const struct fp8q_lex *lex, size_t pos, const char *id, const char *fmt, ...)
{
    char text[1200], place[64];
    struct fp8q_shown shown;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    describe_place(lex, pos, place, sizeof(place));
    return fp8q_fail(lex->err, FP8Q_E_FORMAT, id, "%s: %s: %s", fp8q_show(&shown, lex->what), place,
                     text);
}

static bool starts_with(const struct fp8q_lex *lex, size_t pos, const char *word)
{
    size_t n = strlen(word);
    return lex->len - pos >= n && memcmp(lex->text + pos, word, n) == 0;
}

int fp8q_lex_unexpected(const struct fp8q_lex *lex, size_t pos, const char *expected)
{
    struct fp8q_shown shown;

    if (pos >= lex->len)
        return fp8q_lex_fail(lex, pos, "json", "expected %s, found the end of the text", expected);

    if (starts_with(lex, pos, "<<<<<<<") || starts_with(lex, pos, "=======") ||
        starts_with(lex, pos, ">>>>>>>"))
        return fp8q_lex_fail(lex, pos, "json",
                             "expected %s, found the marker of an unresolved merge conflict",
                             expected);

    if (starts_with(lex, pos, "\xEF\xBB\xBF"))
        return fp8q_lex_fail(lex, pos, "json", "expected %s, found a byte order mark", expected);

    /* A whole character, so that the message stays UTF-8.  */
    uint32_t cp;
    size_t n = fp8q_utf8_decode(lex->text + pos, lex->len - pos, &cp);
    return fp8q_lex_fail(lex, pos, "json", "expected %s, found '%s'", expected,
                         fp8q_show_n(&shown, lex->text + pos, n ? n : 1));
}

const char *fp8q_lex_found(struct fp8q_lex *lex, struct fp8q_shown *buf)
{
    size_t n = 0;

    if (fp8q_lex_peek(lex) < 0)
        return "the end of the text";

    /* Enough to recognise the value by; it may be megabytes long.  */
    while (n < 40 && lex->pos + n < lex->len && !strchr(",]}\t\r\n ", lex->text[lex->pos + n]))
        n++;
    return fp8q_show_n(buf, lex->text + lex->pos, n ? n : 1);
}

/* ---- characters ---------------------------------------------------------------------------- */

int fp8q_lex_utf8(struct fp8q_lex *lex)
{
    size_t i = 0;

    while (i < lex->len) {
        uint64_t word;
        uint32_t cp;
        /* Eight bytes at a time while all are ASCII, as in nearly every name.  */
        if (lex->len - i >= sizeof(word)) {
            memcpy(&word, lex->text + i, sizeof(word));
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                i += sizeof(word);
                continue;
            }
        }

        size_t n = fp8q_utf8_decode(lex->text + i, lex->len - i, &cp);
        if (n == 0)
            return fp8q_lex_fail(lex, i, "utf8", "invalid UTF-8 (byte 0x%02x)",
                                 (unsigned char)lex->text[i]);
        i += n;
    }
    return FP8Q_OK;
}

int fp8q_lex_peek(struct fp8q_lex *lex)
{
    while (lex->pos < lex->len) {
        unsigned char c = (unsigned char)lex->text[lex->pos];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return c;
        lex->pos++;
    }
    return -1;
}

bool fp8q_lex_take(struct fp8q_lex *lex, char c)
{
    if (fp8q_lex_peek(lex) != (unsigned char)c)
        return false;
    lex->pos++;
    return true;
}

int fp8q_lex_end(struct fp8q_lex *lex)
{
    int c = fp8q_lex_peek(lex);
    if (c < 0)
        return FP8Q_OK;
    /* Some writers pad the header with NUL; the format asks for spaces.  */
    if (c == 0)
        return fp8q_lex_fail(lex, lex->pos, lex->header ? "nul-padding" : "json",
                             "NUL after the JSON value (padding must be spaces)");
    return fp8q_lex_unexpected(lex, lex->pos, "nothing but white space after the JSON value");
}

/* ---- strings ------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The unit of \uXXXX at @pos (of its backslash); -1 if there is no such escape.  */
static int32_t escaped_unit(const struct fp8q_lex *lex, size_t pos)
{
    int32_t unit = 0;

    if (lex->len - pos < 6 || lex->text[pos] != '\\' || lex->text[pos + 1] != 'u')
        return -1;

    for (size_t i = 2; i < 6; i++) {
        int digit = hex_digit(lex->text[pos + i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Checks the escape whose backslash is at @pos; its length in bytes, 0 if it is none.  */
static size_t check_escape(const struct fp8q_lex *lex, size_t pos, bool *nul)
{
    if (lex->len - pos < 2)
        return 0;

    if (lex->text[pos + 1] != 'u')
        return lex->text[pos + 1] != '\0' && strchr("\"\\/bfnrt", lex->text[pos + 1]) ? 2 : 0;

    int32_t unit = escaped_unit(lex, pos);
    if (unit < 0 || (unit >= 0xDC00 && unit <= 0xDFFF))
        return 0;
    /* A high surrogate stands only before a low one.  */
    if (unit >= 0xD800 && unit <= 0xDBFF) {
        int32_t low = escaped_unit(lex, pos + 6);
        return low >= 0xDC00 && low <= 0xDFFF ? 12 : 0;
    }

    if (unit == 0)
        *nul = true;
    return 6;
}

int fp8q_lex_string(struct fp8q_lex *lex, struct fp8q_lex_str *str_out)
{
    if (!fp8q_lex_take(lex, '"'))
        return fp8q_lex_unexpected(lex, lex->pos, "a string");

    struct fp8q_lex_str str = {.begin = lex->pos};
    size_t pos = lex->pos;

    for (;;) {
        if (pos >= lex->len)
            return fp8q_lex_fail(lex, str.begin - 1, "json", "this string does not end");
        unsigned char c = (unsigned char)lex->text[pos];
        if (c == '"')
            break;
        if (c < 0x20)
            return fp8q_lex_fail(lex, pos, "json", "control byte 0x%02x in a string", c);

        if (c == '\\') {
            size_t n = check_escape(lex, pos, &str.has_nul);
            if (n == 0)
                return fp8q_lex_fail(lex, pos, "json",
                                     "this escape is invalid or half of a surrogate pair");
            /* Decoded only when it is needed: most strings have no escape, and many are skipped.  */
            str.escaped = true;
            pos += n;
        } else {
            pos++;
        }
    }

    str.len = pos - str.begin;
    lex->pos = pos + 1;
    *str_out = str;
    return FP8Q_OK;
}

/* Decodes the character at @pos of a checked string; returns its length in the text.  */
static size_t decode_char(const struct fp8q_lex *lex, size_t pos, char dst[4], size_t *n_out)
{
    static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";

    if (lex->text[pos] != '\\') {
        dst[0] = lex->text[pos];
        *n_out = 1;
        return 1;
    }

    char c = lex->text[pos + 1];
    if (c != 'u') {
        /* What is not in the table, quotes and slashes, stands for itself.  */
        const char *name = strchr(names, c);
        dst[0] = name ? values[name - names] : c;
        *n_out = 1;
        return 2;
    }

    uint32_t cp = (uint32_t)escaped_unit(lex, pos);
    size_t len = 6;

    if (cp >= 0xD800 && cp <= 0xDBFF) {
        /* That a low surrogate follows was seen when the string was read.  */
        uint32_t low = (uint32_t)escaped_unit(lex, pos + 6);
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        len = 12;
    }

    *n_out = fp8q_utf8_encode(dst, cp);
    return len;
}

size_t fp8q_lex_decode(const struct fp8q_lex *lex, struct fp8q_lex_str str, char *dst)
{
    size_t used = 0, n;

    if (!str.escaped) {
        memcpy(dst, lex->text + str.begin, str.len);
        return str.len;
    }

    for (size_t pos = str.begin; pos < str.begin + str.len;) {
        char bytes[4];
        pos += decode_char(lex, pos, bytes, &n);
        memcpy(dst + used, bytes, n);
        used += n;
    }
    return used;
}

bool fp8q_lex_is(const struct fp8q_lex *lex, struct fp8q_lex_str str, const char *literal)
{
    size_t len = strlen(literal), used = 0, n;

    if (!str.escaped)
        return str.len == len && memcmp(lex->text + str.begin, literal, len) == 0;

    for (size_t pos = str.begin; pos < str.begin + str.len; used += n) {
        char bytes[4];
        pos += decode_char(lex, pos, bytes, &n);
        if (len - used < n || memcmp(literal + used, bytes, n) != 0)
            return false;
    }
    return used == len;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static bool is_digit(const struct fp8q_lex *lex, size_t pos)
{
    return pos < lex->len && lex->text[pos] >= '0' && lex->text[pos] <= '9';
}

static size_t skip_digits(const struct fp8q_lex *lex, size_t pos)
{
    while (is_digit(lex, pos))
        pos++;
    return pos;
}

/* End of the number at @pos by the grammar of RFC 8259, 0 if there is none.  */
static size_t number_end(const struct fp8q_lex *lex, size_t pos)
{
    if (pos < lex->len && lex->text[pos] == '-')
        pos++;

    if (!is_digit(lex, pos))
        return 0;
    /* A leading zero stands alone: 01 is no number.  */
    pos = lex->text[pos] == '0' ? pos + 1 : skip_digits(lex, pos);

    if (pos < lex->len && lex->text[pos] == '.') {
        if (!is_digit(lex, pos + 1))
            return 0;
        pos = skip_digits(lex, pos + 1);
    }

    if (pos < lex->len && (lex->text[pos] == 'e' || lex->text[pos] == 'E')) {
        pos++;
        if (pos < lex->len && (lex->text[pos] == '+' || lex->text[pos] == '-'))
            pos++;
        if (!is_digit(lex, pos))
            return 0;
        pos = skip_digits(lex, pos);
    }
    return pos;
}

enum fp8q_lex_number fp8q_lex_u64(struct fp8q_lex *lex, uint64_t *value_out)
{
    uint64_t value = 0;

    (void)fp8q_lex_peek(lex);
    size_t pos = lex->pos;

    if (!is_digit(lex, pos))
        return FP8Q_LEX_NOT_U64;
    /* Octal to some and decimal to others; no JSON number at all.  */
    if (lex->text[pos] == '0' && is_digit(lex, pos + 1))
        return FP8Q_LEX_NOT_U64;

    for (; is_digit(lex, pos); pos++) {
        if (!fp8q_mul_u64(value, 10, &value) ||
            !fp8q_add_u64(value, (uint64_t)(lex->text[pos] - '0'), &value))
            return FP8Q_LEX_TOO_LARGE;
    }

    /* 1.0 and 1e3 are integers to some, but no reader of the format takes them for sizes.  */
    if (pos < lex->len && strchr(".eE", lex->text[pos]) && lex->text[pos] != '\0')
        return FP8Q_LEX_NOT_U64;

    lex->pos = pos;
    *value_out = value;
    return FP8Q_LEX_U64;
}

/* ---- values -------------------------------------------------------------------------------- */

static int lex_word_or_number(struct fp8q_lex *lex)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    size_t n_words = lex->python ? 6 : 3;

    for (size_t i = 0; i < n_words; i++) {
        if (starts_with(lex, lex->pos, words[i])) {
            lex->pos += strlen(words[i]);
            return FP8Q_OK;
        }
    }

    size_t end = number_end(lex, lex->pos);
    if (end == 0)
        return fp8q_lex_unexpected(lex, lex->pos, "a JSON value");
    lex->pos = end;
    return FP8Q_OK;
}

static int next_in(struct fp8q_lex *lex, bool *first, char closer, const char *expected)
{
    bool was_first = *first;

    *first = false;
    if (fp8q_lex_take(lex, closer))
        return 0;
    /* What follows a comma must be a value, so that a trailing comma fails there.  */
    if (was_first || fp8q_lex_take(lex, ','))
        return 1;
    return fp8q_lex_unexpected(lex, lex->pos, expected);
}

int fp8q_lex_member(struct fp8q_lex *lex, bool *first, struct fp8q_lex_str *key_out)
{
    int more = next_in(lex, first, '}', "',' or '}'");
    if (more <= 0)
        return more;
    FP8Q_TRY(fp8q_lex_string(lex, key_out));
    if (!fp8q_lex_take(lex, ':'))
        return fp8q_lex_unexpected(lex, lex->pos, "':'");
    return 1;
}

int fp8q_lex_item(struct fp8q_lex *lex, bool *first)
{
    return next_in(lex, first, ']', "',' or ']'");
}

static int refuse_nul(const struct fp8q_lex *lex, const struct fp8q_lex_str *str)
{
    if (lex->no_nul && str->has_nul)
        return fp8q_lex_fail(lex, str->begin, "nul", "U+0000 in a string");
    return FP8Q_OK;
}

struct level {
    bool object, first;
    size_t keys_from;
};

/* Enters the object or array whose bracket is next.  */
static int open_level(struct fp8q_lex *lex, struct level *levels, unsigned *n_levels,
                      unsigned depth, size_t n_keys)
{
    /* @levels has room for DEEPEST, whatever the caller allows.  */
    if (depth + *n_levels >= lex->max_depth || *n_levels >= DEEPEST)
        return fp8q_lex_fail(lex, lex->pos, "depth", "nested more than %u levels deep",
                             lex->max_depth);

    levels[(*n_levels)++] = (struct level){lex->text[lex->pos] == '{', true, n_keys};
    lex->pos++;
    return FP8Q_OK;
}

/* Steps to the next value inside the open levels, closing those that end.  */
static int next_value(struct fp8q_lex *lex, struct level *levels, unsigned *n_levels,
                      struct fp8q_lex_keys *stack, bool unique_keys)
{
    while (*n_levels > 0) {
        struct level *level = &levels[*n_levels - 1];
        struct fp8q_lex_str key = {0};
        int more = level->object ? fp8q_lex_member(lex, &level->first, &key)
                                 : fp8q_lex_item(lex, &level->first);

        if (more < 0)
            return more;
        /* An object or array that ends is a value that ends, in the level above.  */
        if (more == 0) {
            if (level->object && unique_keys)
                FP8Q_TRY(fp8q_lex_check_keys(lex, stack, level->keys_from));
            (*n_levels)--;
            continue;
        }
        if (level->object) {
            FP8Q_TRY(refuse_nul(lex, &key));
            if (unique_keys) {
                FP8Q_TRY(fp8q_grow(&stack->keys, stack->count, &stack->cap, sizeof(*stack->keys),
                                   lex->err));
                stack->keys[stack->count++] = key;
            }
        }

        return FP8Q_OK;
    }
    return FP8Q_OK;
}

static int lex_text(struct fp8q_lex *lex)
{
    struct fp8q_lex_str str = {0};
    FP8Q_TRY(fp8q_lex_string(lex, &str));
    return refuse_nul(lex, &str);
}

/* A list of open levels, no recursion: a text must not decide how deep the stack grows.  */
static int lex_levels(struct fp8q_lex *lex, unsigned depth, struct fp8q_lex_keys *stack,
                      bool unique_keys)
{
    struct level levels[DEEPEST];
    unsigned n_levels = 0;

    do {
        int c = fp8q_lex_peek(lex);
        if (c == '{' || c == '[')
            FP8Q_TRY(open_level(lex, levels, &n_levels, depth, stack->count));
        else if (c == '"')
            FP8Q_TRY(lex_text(lex));
        else
            FP8Q_TRY(lex_word_or_number(lex));

        /* A value or its bracket is read: the next one may lie on another level.  */
        FP8Q_TRY(next_value(lex, levels, &n_levels, stack, unique_keys));
    } while (n_levels > 0);
    return FP8Q_OK;
}

int fp8q_lex_value(struct fp8q_lex *lex, unsigned depth, bool unique_keys)
{
    struct fp8q_lex_keys stack = {0};
    int status = lex_levels(lex, depth, &stack, unique_keys);
    free(stack.keys);
    return status;
}
