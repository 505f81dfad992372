/* SPDX-License-Identifier: Apache-2.0
 *
 * pretokenize.c - NFC through utf8proc, splitting through PCRE2.
 *
 * Every supported pre-tokenizer is a sequence of regular expressions: Split as written, Digits as
 * \p{N}, ByteLevel as GPT-2's expression (unless "use_regex" is false).  The `tokenizers` library
 * runs them in Oniguruma; where PCRE2 reads the same text otherwise (\s, see rewrite_spaces()), it
 * is rewritten.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenize.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- patterns ------------------------------------------------------------------------------ */

/* Unicode White_Space.  PCRE2's \s has U+180E too, which is no white space since Unicode 6.3.  */
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"

static void rewrite_spaces(const char *pattern, size_t len, struct fp8q_text *out)
{
    bool in_class = false;
    for (size_t i = 0; i < len; i++) {
        if (pattern[i] == '\\' && i + 1 < len) {
            char c = pattern[++i];
            if (c == 's')
                fp8q_text_puts(out, in_class ? SPACES : "[" SPACES "]");
            else if (c == 'S' && !in_class)
                fp8q_text_puts(out, "[^" SPACES "]");
            else
                fp8q_text_add(out, pattern + i - 1, 2);
            continue;
        }

        if (pattern[i] == '[')
            in_class = true;
        else if (pattern[i] == ']')
            in_class = false;
        fp8q_text_add(out, pattern + i, 1);
    }
}

static int compile(const char *pattern, uint32_t flags, const char *what, void **code_out,
                   struct fp8q_error *err)
{
    struct fp8q_text text = {0};
    struct fp8q_shown shown;
    int error;
    size_t at;

    if (flags & PCRE2_LITERAL)
        fp8q_text_puts(&text, pattern);
    else
        rewrite_spaces(pattern, strlen(pattern), &text);

    int status = fp8q_text_status(&text, err);
    if (status != FP8Q_OK) {
        fp8q_text_reset(&text);
        return status;
    }

    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len,
                      flags | PCRE2_UTF | (flags ? 0 : PCRE2_UCP), &error, &at, NULL);
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

static int add_split(struct fp8q_pretokenizer *pre, const char *pattern, uint32_t flags,
                     const char *what, struct fp8q_error *err)
{
    if (pre->n_splits == FP8Q_MAX_SPLITS)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                         "%s: more than %d pre-tokenizers in sequence", what, FP8Q_MAX_SPLITS);

    FP8Q_TRY(compile(pattern, flags, what, &pre->splits[pre->n_splits].code, err));
    pre->n_splits++;
    return FP8Q_OK;
}

static int unsupported(const char *what, const char *kind, const char *found,
                       struct fp8q_error *err)
{
    struct fp8q_shown shown;
    return fp8q_fail(
        err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
        "%s: %s \"%s\" is not supported; supported are byte-level BPE tokenizers as of "
        "Qwen2, Llama-3 and SmolLM2",
        what, kind, fp8q_show(&shown, found));
}

/* ---- reading tokenizer.json ---------------------------------------------------------------- */

static int add_split_step(struct fp8q_pretokenizer *pre, const struct fp8q_json *step,
                          const char *what, struct fp8q_error *err)
{
    const struct fp8q_json *pattern = fp8q_json_get(step, "pattern");
    const char *regex = fp8q_json_string(fp8q_json_get(pattern, "Regex"), NULL);
    const char *literal = fp8q_json_string(fp8q_json_get(pattern, "String"), NULL);
    const char *behavior = fp8q_json_string(fp8q_json_get(step, "behavior"), "");

    bool invert = fp8q_json_bool(fp8q_json_get(step, "invert"), false);
    bool removed = strcmp(behavior, "Removed") == 0;

    if (!regex && !literal)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-pattern",
                         "%s: a Split pre-tokenizer has neither \"Regex\" nor \"String\"", what);

    if (!removed && strcmp(behavior, "Isolated") != 0)
        return unsupported(what, "Split behavior", behavior, err);

    FP8Q_TRY(add_split(pre, regex ? regex : literal, regex ? 0 : PCRE2_LITERAL, what, err));
    pre->splits[pre->n_splits - 1].drop_matches = removed && !invert;
    pre->splits[pre->n_splits - 1].drop_gaps = removed && invert;
    return FP8Q_OK;
}

static int add_step(struct fp8q_pretokenizer *pre, const struct fp8q_json *step, bool is_last,
                    const char *what, struct fp8q_error *err)
{
    const char *type = fp8q_json_string(fp8q_json_get(step, "type"), "");
    if (strcmp(type, "ByteLevel") == 0) {
        if (!is_last)
            return unsupported(what, "pre-tokenizer after", type, err);
        if (fp8q_json_bool(fp8q_json_get(step, "add_prefix_space"), true))
            return unsupported(what, "ByteLevel setting", "add_prefix_space", err);
        if (!fp8q_json_bool(fp8q_json_get(step, "use_regex"), true))
            return FP8Q_OK;
        return add_split(pre, GPT2_PATTERN, 0, what, err);
    }
    if (is_last)
        return unsupported(what, "pre-tokenizer", *type ? type : "none", err);
    if (strcmp(type, "Split") == 0)
        return add_split_step(pre, step, what, err);
    if (strcmp(type, "Digits") == 0)
        return add_split(
            pre,
            fp8q_json_bool(fp8q_json_get(step, "individual_digits"), false) ? "\\p{N}" : "\\p{N}+",
            0, what, err);
    return unsupported(what, "pre-tokenizer", type, err);
}

static int read_pre_tokenizer(struct fp8q_pretokenizer *pre, const struct fp8q_json *root,
                              const char *what, struct fp8q_error *err)
{
    const struct fp8q_json *value = fp8q_json_get(root, "pre_tokenizer");
    if (strcmp(fp8q_json_string(fp8q_json_get(value, "type"), ""), "Sequence") != 0)
        return add_step(pre, value, true, what, err);

    const struct fp8q_json *step = fp8q_json_first(fp8q_json_get(value, "pretokenizers"));
    if (!step)
        return unsupported(what, "pre-tokenizer", "empty Sequence", err);
    for (; step; step = fp8q_json_next(step))
        FP8Q_TRY(add_step(pre, step, !fp8q_json_next(step), what, err));
    return FP8Q_OK;
}

static int add_normalizer(struct fp8q_pretokenizer *pre, const struct fp8q_json *value,
                          const char *what, struct fp8q_error *err)
{
    const char *type = fp8q_json_string(fp8q_json_get(value, "type"), "");
    if (strcmp(type, "NFC") != 0)
        return unsupported(what, "normalizer", type, err);
    pre->nfc = true;
    return FP8Q_OK;
}

static int read_normalizer(struct fp8q_pretokenizer *pre, const struct fp8q_json *root,
                           const char *what, struct fp8q_error *err)
{
    const struct fp8q_json *value = fp8q_json_get(root, "normalizer");
    if (!value || fp8q_json_is_null(value))
        return FP8Q_OK;
    if (strcmp(fp8q_json_string(fp8q_json_get(value, "type"), ""), "Sequence") != 0)
        return add_normalizer(pre, value, what, err);

    const struct fp8q_json *item = fp8q_json_first(fp8q_json_get(value, "normalizers"));
    for (; item; item = fp8q_json_next(item))
        FP8Q_TRY(add_normalizer(pre, item, what, err));
    return FP8Q_OK;
}

int fp8q_pretokenizer_init(struct fp8q_pretokenizer *pre, const struct fp8q_json *root,
                           const char *what, struct fp8q_error *err)
{

    *pre = (struct fp8q_pretokenizer){0};
    int status = read_normalizer(pre, root, what, err);
    if (status == FP8Q_OK)
        status = read_pre_tokenizer(pre, root, what, err);

    if (status != FP8Q_OK)
        fp8q_pretokenizer_reset(pre);
    return status;
}

void fp8q_pretokenizer_reset(struct fp8q_pretokenizer *pre)
{
    for (size_t i = 0; i < pre->n_splits; i++)
        pcre2_code_free(pre->splits[i].code);
    *pre = (struct fp8q_pretokenizer){0};
}

/* ---- NFC ----------------------------------------------------------------------------------- */

/* Text whose characters all lie below U+0300 is in NFC: no combining mark, no decomposition to
 * undo.  */
static bool is_plainly_nfc(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0xCC)
            return false;
    return true;
}

int fp8q_normalize(const struct fp8q_pretokenizer *pre, const char *text, size_t len,
                   const char **text_out, size_t *len_out, char **owned_out, struct fp8q_error *err)
{
    utf8proc_uint8_t *result = NULL;

    *text_out = text;
    *len_out = len;
    *owned_out = NULL;
    if (!pre->nfc || is_plainly_nfc(text, len))
        return FP8Q_OK;

    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len,
                                      &result, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n == UTF8PROC_ERROR_NOMEM)
        return fp8q_fail_nomem(err);
    if (n < 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "text-nfc", "text: normalisation failed: %s",
                         utf8proc_errmsg(n));

    *text_out = *owned_out = (char *)result;
    *len_out = (size_t)n;
    return FP8Q_OK;
}

/* ---- splitting ----------------------------------------------------------------------------- */

int fp8q_splitter_init(struct fp8q_splitter *splitter, const struct fp8q_pretokenizer *pre,
                       struct fp8q_error *err)
{
    *splitter = (struct fp8q_splitter){.pre = pre, .context = pcre2_match_context_create(NULL)};
    bool failed = !splitter->context;

    for (size_t i = 0; i < pre->n_splits; i++) {
        splitter->match[i] = pcre2_match_data_create(1, NULL);
        failed = failed || !splitter->match[i];
    }

    if (failed) {
        fp8q_splitter_reset(splitter);
        return fp8q_fail_nomem(err);
    }

    pcre2_set_heap_limit(splitter->context, 256 * 1024); /* KiB */
    return FP8Q_OK;
}

void fp8q_splitter_reset(struct fp8q_splitter *splitter)
{
    for (size_t i = 0; i < FP8Q_MAX_SPLITS; i++)
        pcre2_match_data_free(splitter->match[i]);
    pcre2_match_context_free(splitter->context);
    *splitter = (struct fp8q_splitter){0};
}

struct split_run {
    struct fp8q_splitter *splitter;
    fp8q_piece_fn *piece;
    void *ctx;
};

/* Next match at or after @from; false at the end.  */
static int next_match(struct fp8q_splitter *s, size_t step, const char *text, size_t len,
                      size_t from, bool *found_out, struct fp8q_error *err)
{
    const pcre2_code *code = s->pre->splits[step].code;
    PCRE2_SPTR subject = (PCRE2_SPTR)text;

    int n = pcre2_match(code, subject, len, from, PCRE2_NO_UTF_CHECK, s->match[step], s->context);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT) /* a run too long for the machine stack */
        n = pcre2_match(code, subject, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match[step],
                        s->context);

    *found_out = n >= 0;
    if (n >= 0 || n == PCRE2_ERROR_NOMATCH)
        return FP8Q_OK;
    if (n == PCRE2_ERROR_NOMEMORY)
        return fp8q_fail_nomem(err);

    PCRE2_UCHAR reason[128];
    pcre2_get_error_message(n, reason, sizeof(reason));
    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-pattern",
                     "text: the tokenizer's pre-tokenizer pattern fails at byte %zu: %s", from,
                     (const char *)reason);
}

static int split(const struct split_run *run, size_t step, const char *text, size_t len,
                 struct fp8q_error *err)
{
    const struct fp8q_pretokenizer *pre = run->splitter->pre;
    if (len == 0)
        return FP8Q_OK;

    if (step == pre->n_splits)
        return run->piece(run->ctx, text, len, err);

    const size_t *span = pcre2_get_ovector_pointer(run->splitter->match[step]);
    size_t done = 0, from = 0;

    while (from <= len) {
        bool found;
        FP8Q_TRY(next_match(run->splitter, step, text, len, from, &found, err));
        if (!found)
            break;

        size_t begin = span[0], end = span[1];
        if (begin < done || end < begin) /* \K in the pattern */
            return unsupported("text", "pattern", "with \\K", err);

        if (!pre->splits[step].drop_gaps)
            FP8Q_TRY(split(run, step + 1, text + done, begin - done, err));
        if (!pre->splits[step].drop_matches)
            FP8Q_TRY(split(run, step + 1, text + begin, end - begin, err));

        done = from = end;
        if (begin == end) /* an empty match: look on behind the next character */
            while (++from < len && ((unsigned char)text[from] & 0xC0) == 0x80)
                ;
    }

    if (pre->splits[step].drop_gaps)
        return FP8Q_OK;
    return split(run, step + 1, text + done, len - done, err);
}

int fp8q_splitter_run(struct fp8q_splitter *splitter, const char *text, size_t len,
                      fp8q_piece_fn *piece, void *ctx, struct fp8q_error *err)
{
    const struct split_run run = {splitter, piece, ctx};
    /* One step for each character of a run is normal; a pattern that needs more explodes.  */
    uint64_t limit = 10000000 + 8 * (uint64_t)len;
    pcre2_set_match_limit(splitter->context, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    return split(&run, 0, text, len, err);
}
