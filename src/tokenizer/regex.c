/* SPDX-License-Identifier: Apache-2.0
 *
 * regex.c - from Oniguruma's expressions to PCRE2's.
 *
 * How it works.  Only what is known to mean the same, or to have an equal, gets through; everything
 * else is refused by name, so that an unknown tokenizer is an error and never other ids:
 *
 *     literals, alternatives, groups, lookahead, lookbehind, (?i:...)   as they are
 *     ? * + with lazy ? and possessive +, {n} {n,} {n,m}                as they are
 *     {n,m}+    possessive in PCRE2, in Ruby a quantifier of a quantifier: (?:...{n,m})+
 *     \s \S     White_Space spelled out: PCRE2 has U+180E too
 *     \d        \p{Nd}
 *     \p{Han}   \p{sc:Han}: PCRE2 means the script with its extensions
 *     .         [^\n]
 *     ^ $ \h \w \b \X, [[:alpha:]], && and [ inside classes, (?i) and (?m) without a group,
 *     \S inside a class, {,n}, {n}?, back references, named groups      refused
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Unicode White_Space.  */
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define MAX_DEPTH 64

struct translation {
    const char *pattern, *what;
    size_t len, at; /* @at: the next byte */
    struct fp8q_text *out;
    size_t atom;              /* where the last thing begins in @out that a quantifier may follow */
    size_t groups[MAX_DEPTH]; /* where the open groups begin in @out */
    size_t depth;
    struct fp8q_error *err;
};
#define NO_ATOM SIZE_MAX

static int refuse(struct translation *t, const char *part)
{
    struct fp8q_shown shown, shown_part;
    return fp8q_fail(t->err, FP8Q_E_UNSUPPORTED, "tokenizer-pattern",
                     "%s: pre-tokenizer pattern \"%s\": \"%s\" is not supported", t->what,
                     fp8q_show(&shown, t->pattern), fp8q_show(&shown_part, part));
}

static bool starts(const struct translation *t, const char *with)
{
    return strncmp(t->pattern + t->at, with, strlen(with)) == 0;
}

/* ---- escapes --------------------------------------------------------------------------------- */

static bool is_category(const char *name, size_t len)
{
    static const char all[] = " C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe "
                              "Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs ";
    char word[8];
    snprintf(word, sizeof(word), " %.*s ", (int)(len < 3 ? len : 3), name);
    return len > 0 && len < 3 && strstr(all, word);
}

static bool is_script(const char *name, size_t len)
{
    static const char *const all[] = {"Han",    "Hiragana", "Katakana",  "Hangul",
                                      "Latin",  "Greek",    "Cyrillic",  "Arabic",
                                      "Hebrew", "Thai",     "Devanagari"};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (strlen(all[i]) == len && memcmp(all[i], name, len) == 0)
            return true;
    return false;
}

/* \p{...} or \P{...}; @at stands behind the letter.  */
static int property(struct translation *t, char letter)
{
    const char *name = t->pattern + t->at + 1, *close = strchr(t->pattern + t->at, '}');
    if (t->pattern[t->at] != '{' || !close)
        return refuse(t, "\\p");

    size_t len = (size_t)(close - name);
    if (!is_category(name, len) && !is_script(name, len))
        return refuse(t, name - 3);
    fp8q_text_printf(t->out, "\\%c{%s%.*s}", letter, is_script(name, len) ? "sc:" : "", (int)len,
                     name);
    t->at += len + 2;
    return FP8Q_OK;
}

/* \uHHHH and \x{H...}; @at stands behind the letter.  */
static int code_point(struct translation *t, char letter)
{
    size_t begin = t->at + (letter == 'x'), n = 0;
    while (n < 6 && t->pattern[begin + n] &&
           strchr("0123456789abcdefABCDEF", t->pattern[begin + n]))
        n++;
    bool braces = t->pattern[t->at] == '{' && n > 0 && t->pattern[begin + n] == '}';
    if (letter == 'x' ? !braces : n < 4)
        return refuse(t, letter == 'x' ? "\\x" : "\\u");

    /* \u has four digits whatever follows, \x as many as stand between its braces.  */
    n = letter == 'u' ? 4 : n;
    fp8q_text_printf(t->out, "\\x{%.*s}", (int)n, t->pattern + begin);
    t->at = begin + n + (letter == 'x');
    return FP8Q_OK;
}

/* A backslash and what belongs to it; @at stands on the backslash.  */
static int escape(struct translation *t, bool in_class)
{
    char c = t->pattern[t->at + 1], part[3] = {'\\', c, 0};
    t->at += 2;
    switch (c) {
    case 's':
        /* Inside a class the ranges stand for themselves.  */
        fp8q_text_puts(t->out, in_class ? SPACES : "[" SPACES "]");
        return FP8Q_OK;
    case 'S':
        if (in_class)
            return refuse(t, "\\S inside a class");
        fp8q_text_puts(t->out, "[^" SPACES "]");
        return FP8Q_OK;
    case 'd':
        fp8q_text_puts(t->out, "\\p{Nd}");
        return FP8Q_OK;
    case 'D':
        fp8q_text_puts(t->out, "\\P{Nd}");
        return FP8Q_OK;
    case 'v': /* a whole class in PCRE2 */
        fp8q_text_puts(t->out, "\\x{b}");
        return FP8Q_OK;
    case 'p':
    case 'P':
        return property(t, c);
    case 'u':
    case 'x':
        return code_point(t, c);
    default:
        break;
    }

    bool punctuation = c > ' ' && c < 0x7F && !strchr("\"%,<>@_`", c) && !(c >= '0' && c <= '9') &&
                       !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
    if (!punctuation && (c == 0 || !strchr("trnfea\"%,<>@_` ", c)))
        return refuse(t, c ? part : "\\");
    fp8q_text_add(t->out, part, 2);
    return FP8Q_OK;
}

/* ---- classes --------------------------------------------------------------------------------- */

static int class_of(struct translation *t)
{
    fp8q_text_add(t->out, "[", 1);
    t->at++;
    if (t->pattern[t->at] == '^') {
        fp8q_text_add(t->out, "^", 1);
        t->at++;
    }
    /* Oniguruma takes it for a literal with a warning, PCRE2 without: not worth the doubt.  */
    if (t->pattern[t->at] == ']')
        return refuse(t, "[]");

    while (t->at < t->len && t->pattern[t->at] != ']') {
        if (t->pattern[t->at] == '[')
            return refuse(t, "[ inside a class");
        if (starts(t, "&&"))
            return refuse(t, "&&");
        if (t->pattern[t->at] == '\\')
            FP8Q_TRY(escape(t, true));
        else
            fp8q_text_add(t->out, t->pattern + t->at++, 1);
    }
    /* Oniguruma and PCRE2 disagree about what an open class is.  */
    if (t->at == t->len)
        return refuse(t, "[ without ]");
    fp8q_text_add(t->out, "]", 1);
    t->at++;
    return FP8Q_OK;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int open_group(struct translation *t)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    /* No tokenizer nests that deep.  */
    if (t->depth == MAX_DEPTH)
        return refuse(t, "(");
    t->groups[t->depth++] = t->out->len;
    t->atom = NO_ATOM;

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (starts(t, known[i])) {
            fp8q_text_puts(t->out, known[i]);
            t->at += strlen(known[i]);
            return FP8Q_OK;
        }
    if (starts(t, "(?") || starts(t, "(*"))
        return refuse(t, t->pattern + t->at);
    fp8q_text_puts(t->out, "(?:"); /* what a group captures is of no use here */
    t->at++;
    return FP8Q_OK;
}

static int close_group(struct translation *t)
{
    if (t->depth == 0)
        return refuse(t, ")");
    t->atom = t->groups[--t->depth];
    fp8q_text_add(t->out, ")", 1);
    t->at++;
    return FP8Q_OK;
}

/* ---- quantifiers ------------------------------------------------------------------------------ */

/* Puts "(?:" before the last atom and "suffix)" behind it.  */
static int wrap_atom(struct translation *t, const char *suffix, size_t len)
{
    struct fp8q_text atom = {0};
    fp8q_text_add(&atom, t->out->data + t->atom, t->out->len - t->atom);
    t->out->len = t->atom;
    fp8q_text_puts(t->out, "(?:");
    fp8q_text_add(t->out, atom.data, atom.len);
    fp8q_text_add(t->out, suffix, len);
    fp8q_text_add(t->out, ")", 1);
    int status = fp8q_text_status(&atom, t->err);
    fp8q_text_reset(&atom);
    return status;
}

/* Length of "{n}", "{n,}" or "{n,m}" at @p; 0 for anything else.  */
static size_t interval(const char *p, bool *exact_out)
{
    size_t n = 1;
    while (p[n] >= '0' && p[n] <= '9')
        n++;
    *exact_out = p[n] == '}';
    /* Without a lower bound the two read it in two ways.  */
    if (n == 1)
        return 0;
    if (p[n] == ',')
        n++;
    while (p[n] >= '0' && p[n] <= '9')
        n++;
    return p[n] == '}' ? n + 1 : 0;
}

static int quantify(struct translation *t)
{
    const char *p = t->pattern + t->at;
    size_t n = 1;
    bool exact = false;
    FP8Q_TRY(fp8q_text_status(t->out, t->err)); /* below, what was written is read again */
    if (t->atom == NO_ATOM)
        return refuse(t, p);

    if (*p == '{') {
        n = interval(p, &exact);
        if (n == 0 || (exact && p[n] == '?'))
            return refuse(t, p);
        if (p[n] == '+') {
            FP8Q_TRY(wrap_atom(t, p, n));
            t->at += n;
            p += n;
            n = 1;
        }
    }
    fp8q_text_add(t->out, p, n);
    t->at += n;
    if (*p != '{' && t->pattern[t->at] == '+') { /* possessive in both */
        fp8q_text_add(t->out, "+", 1);
        t->at++;
    } else if (t->pattern[t->at] == '?') {
        fp8q_text_add(t->out, "?", 1);
        t->at++;
    }
    t->atom = NO_ATOM; /* a further quantifier is another thing in each of the two */
    return FP8Q_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static int literal(struct translation *t)
{
    uint32_t cp;
    size_t n = fp8q_utf8_decode(t->pattern + t->at, t->len - t->at, &cp);
    n = n ? n : 1;
    fp8q_text_add(t->out, t->pattern + t->at, n);
    t->at += n;
    return FP8Q_OK;
}

static int step(struct translation *t)
{
    char c = t->pattern[t->at];
    if (c == '*' || c == '+' || c == '?' || c == '{')
        return quantify(t);
    if (c == '(')
        return open_group(t);
    if (c == ')')
        return close_group(t);
    if (c == '^' || c == '$')
        return refuse(t, c == '^' ? "^" : "$");

    t->atom = t->out->len;
    switch (c) {
    case '|':
        t->atom = NO_ATOM;
        fp8q_text_add(t->out, "|", 1);
        t->at++;
        return FP8Q_OK;
    case '.':
        fp8q_text_puts(t->out, "[^\\n]");
        t->at++;
        return FP8Q_OK;
    case '\\':
        return escape(t, false);
    case '[':
        return class_of(t);
    default:
        return literal(t);
    }
}

int fp8q_regex_translate(const char *pattern, const char *what, struct fp8q_text *out,
                         struct fp8q_error *err)
{
    struct translation t = {.pattern = pattern,
                            .what = what,
                            .len = strlen(pattern),
                            .out = out,
                            .atom = NO_ATOM,
                            .err = err};
    while (t.at < t.len)
        FP8Q_TRY(step(&t));
    if (t.depth > 0)
        return refuse(&t, "(");
    return fp8q_text_status(out, err);
}

int fp8q_regex_compile(const char *pattern, bool is_literal, const char *what, void **code_out,
                       struct fp8q_error *err)
{
    struct fp8q_text text = {0};
    struct fp8q_shown shown;
    int error, status;
    size_t at;
    if (is_literal) {
        fp8q_text_puts(&text, pattern);
        status = fp8q_text_status(&text, err);
    } else {
        status = fp8q_regex_translate(pattern, what, &text, err);
    }
    if (status != FP8Q_OK) {
        fp8q_text_reset(&text);
        return status;
    }

    uint32_t flags = is_literal ? PCRE2_LITERAL | PCRE2_UTF : PCRE2_UTF | PCRE2_UCP;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len, flags, &error, &at, NULL);
    fp8q_text_reset(&text);
    if (!code) {
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(error, reason, sizeof(reason));
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-pattern",
                         "%s: pre-tokenizer pattern \"%s\": %s", what, fp8q_show(&shown, pattern),
                         (const char *)reason);
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without it matching is slower, not different */
    *code_out = code;
    return FP8Q_OK;
}
