/* SPDX-License-Identifier: Apache-2.0
 *
 * pretokenize.c - cuts text into pieces, through PCRE2.
 *
 * How it works.  A pre-tokenizer is a list of steps, each applied to the pieces of the one before:
 *
 *     Split       as written (regex.c), with its behaviour towards matches and gaps
 *     Digits      \p{N} or \p{N}+
 *     ByteLevel   GPT-2's expression unless "use_regex" is false; the model then works on bytes
 *     Metaspace   spaces become U+2581, one more goes in front, and pieces begin at each
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenize.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tokenizer/regex.h"

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- reading tokenizer.json ---------------------------------------------------------------- */

static int unsupported(const char *what, const char *kind, const char *found,
                       struct fp8q_error *err)
{
    struct fp8q_shown shown;
    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                     "%s: %s \"%s\" is not supported; supported are BPE tokenizers as of Qwen2, "
                     "Llama, SmolLM2, Mistral, Gemma and Phi-3",
                     what, kind, fp8q_show(&shown, found));
}

static int add_split(struct fp8q_pretokenizer *pre, const char *pattern, bool literal,
                     const char *what, struct fp8q_error *err)
{
    if (pre->n_splits == FP8Q_MAX_SPLITS)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                         "%s: more than %d pre-tokenizers in sequence", what, FP8Q_MAX_SPLITS);
    FP8Q_TRY(fp8q_regex_compile(pattern, literal, what, &pre->splits[pre->n_splits].code, err));
    pre->n_splits++;
    return FP8Q_OK;
}

static int add_split_step(struct fp8q_pretokenizer *pre, const struct fp8q_json *step,
                          const char *what, struct fp8q_error *err)
{
    static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"};
    const struct fp8q_json *pattern = fp8q_json_get(step, "pattern");
    const char *regex = fp8q_json_string(fp8q_json_get(pattern, "Regex"), NULL);
    const char *literal = fp8q_json_string(fp8q_json_get(pattern, "String"), NULL);
    const char *behavior = fp8q_json_string(fp8q_json_get(step, "behavior"), "");
    if (!regex && !literal)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-pattern",
                         "%s: a Split pre-tokenizer has neither \"Regex\" nor \"String\"", what);

    size_t b = 0;
    /* In the order of the enum.  */
    while (b < FP8Q_N_BEHAVIORS && strcmp(behavior, behaviors[b]) != 0)
        b++;
    if (b == FP8Q_N_BEHAVIORS)
        return unsupported(what, "Split behavior", behavior, err);

    FP8Q_TRY(add_split(pre, regex ? regex : literal, !regex, what, err));
    pre->splits[pre->n_splits - 1].behavior = (enum fp8q_behavior)b;
    pre->splits[pre->n_splits - 1].invert = fp8q_json_bool(fp8q_json_get(step, "invert"), false);
    return FP8Q_OK;
}

static int add_byte_level(struct fp8q_pretokenizer *pre, const struct fp8q_json *step, bool is_last,
                          const char *what, struct fp8q_error *err)
{
    if (!is_last)
        return unsupported(what, "pre-tokenizer after", "ByteLevel", err);
    if (fp8q_json_bool(fp8q_json_get(step, "add_prefix_space"), true))
        return unsupported(what, "ByteLevel setting", "add_prefix_space", err);
    pre->byte_level = true;
    if (!fp8q_json_bool(fp8q_json_get(step, "use_regex"), true))
        return FP8Q_OK;
    return add_split(pre, GPT2_PATTERN, false, what, err);
}

/* "add_prefix_space" is what files had before "prepend_scheme".  */
static int add_metaspace(struct fp8q_pretokenizer *pre, const struct fp8q_json *step,
                         const char *what, struct fp8q_error *err)
{
    static const char *const schemes[] = {"never", "first", "always"};
    const char *mark = fp8q_json_string(fp8q_json_get(step, "replacement"), FP8Q_METASPACE);
    bool prefix = fp8q_json_bool(fp8q_json_get(step, "add_prefix_space"), true);
    const char *scheme =
        fp8q_json_string(fp8q_json_get(step, "prepend_scheme"), prefix ? "always" : "never");
    /* Any other mark would have to be looked for in added tokens too.  */
    if (strcmp(mark, FP8Q_METASPACE) != 0)
        return unsupported(what, "Metaspace replacement", mark, err);

    size_t s = 0;
    while (s < 3 && strcmp(scheme, schemes[s]) != 0)
        s++;
    if (s == 3)
        return unsupported(what, "Metaspace prepend_scheme", scheme, err);

    FP8Q_TRY(add_split(pre, FP8Q_METASPACE, true, what, err));
    struct fp8q_split *split = &pre->splits[pre->n_splits - 1];
    split->metaspace = true;
    split->prepend = (enum fp8q_prepend)s;
    split->whole = !fp8q_json_bool(fp8q_json_get(step, "split"), true);
    split->behavior = FP8Q_MERGED_WITH_NEXT;
    return FP8Q_OK;
}

static int add_step(struct fp8q_pretokenizer *pre, const struct fp8q_json *step, bool is_last,
                    const char *what, struct fp8q_error *err)
{
    const char *type = fp8q_json_string(fp8q_json_get(step, "type"), "");
    bool single = fp8q_json_bool(fp8q_json_get(step, "individual_digits"), false);
    if (strcmp(type, "ByteLevel") == 0)
        return add_byte_level(pre, step, is_last, what, err);
    if (strcmp(type, "Metaspace") == 0)
        return add_metaspace(pre, step, what, err);
    if (strcmp(type, "Split") == 0)
        return add_split_step(pre, step, what, err);
    if (strcmp(type, "Digits") == 0)
        return add_split(pre, single ? "\\p{N}" : "\\p{N}+", false, what, err);
    return unsupported(what, "pre-tokenizer", *type ? type : "(no type)", err);
}

static int read_pre_tokenizer(struct fp8q_pretokenizer *pre, const struct fp8q_json *root,
                              const char *what, struct fp8q_error *err)
{
    /* A list may hold lists nowhere: one level is all that the format has.  */
    const struct fp8q_json *value = fp8q_json_get(root, "pre_tokenizer");
    if (!value || fp8q_json_is_null(value)) /* the text is one piece, as SentencePiece has it */
        return FP8Q_OK;
    if (strcmp(fp8q_json_string(fp8q_json_get(value, "type"), ""), "Sequence") != 0)
        return add_step(pre, value, true, what, err);

    const struct fp8q_json *step = fp8q_json_first(fp8q_json_get(value, "pretokenizers"));
    if (!step)
        return unsupported(what, "pre-tokenizer", "empty Sequence", err);
    for (; step; step = fp8q_json_next(step))
        FP8Q_TRY(add_step(pre, step, !fp8q_json_next(step), what, err));
    return FP8Q_OK;
}

int fp8q_pretokenizer_init(struct fp8q_pretokenizer *pre, const struct fp8q_json *root,
                           const char *what, struct fp8q_error *err)
{
    *pre = (struct fp8q_pretokenizer){0};
    int status = read_pre_tokenizer(pre, root, what, err);
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

/* ---- splitting ----------------------------------------------------------------------------- */

int fp8q_splitter_init(struct fp8q_splitter *splitter, const struct fp8q_pretokenizer *pre,
                       struct fp8q_error *err)
{
    *splitter = (struct fp8q_splitter){.pre = pre, .context = pcre2_match_context_create(NULL)};
    /* One match block for each step: recursion has several in use at once.  */
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
    const char *start; /* of the whole text, where it is that of the input; NULL: it is not */
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
    /* The heap limit is ours: a pattern that wants more is no tokenizer's.  */
    if (n == PCRE2_ERROR_NOMEMORY)
        return fp8q_fail_nomem(err);

    PCRE2_UCHAR reason[128];
    pcre2_get_error_message(n, reason, sizeof(reason));
    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-pattern",
                     "text: the tokenizer's pre-tokenizer pattern fails at byte %zu: %s", from,
                     (const char *)reason);
}

static int split(const struct split_run *run, size_t step, const char *text, size_t len,
                 struct fp8q_error *err);

/* A piece that is still growing: what follows may be merged into it.  */
struct growing {
    size_t begin, end;
    bool any, is_match;
};

static int flush(const struct split_run *run, size_t step, const char *text, struct growing *g,
                 struct fp8q_error *err)
{
    if (!g->any)
        return FP8Q_OK;
    g->any = false;
    return split(run, step + 1, text + g->begin, g->end - g->begin, err);
}

/* Takes the next stretch of the text, which is a match or a gap, as the library's behaviours have
 * it: a match goes to the gap before or behind it, but never to another match.  */
static int take(const struct split_run *run, size_t step, const char *text, struct growing *g,
                struct growing next, struct fp8q_error *err)
{
    const struct fp8q_split *s = &run->splitter->pre->splits[step];
    bool join = false;
    /* Empty matches cut, but are no pieces.  */
    if (next.begin == next.end)
        return FP8Q_OK;
    if (s->behavior == FP8Q_REMOVED && next.is_match)
        return FP8Q_OK;
    if (g->any && s->behavior == FP8Q_CONTIGUOUS)
        join = g->is_match == next.is_match;
    if (g->any && s->behavior == FP8Q_MERGED_WITH_PREVIOUS)
        join = next.is_match && !g->is_match;
    if (g->any && s->behavior == FP8Q_MERGED_WITH_NEXT)
        join = g->is_match && !next.is_match;

    if (!join) {
        FP8Q_TRY(flush(run, step, text, g, err));
        *g = next;
    }
    g->any = true;
    g->end = next.end;
    g->is_match = next.is_match;
    return FP8Q_OK;
}

static int cut(const struct split_run *run, size_t step, const char *text, size_t len,
               struct fp8q_error *err)
{
    const struct fp8q_split *s = &run->splitter->pre->splits[step];
    const size_t *span = pcre2_get_ovector_pointer(run->splitter->match[step]);
    struct growing g = {0};
    size_t done = 0, from = 0;
    while (from <= len) {
        bool found;
        FP8Q_TRY(next_match(run->splitter, step, text, len, from, &found, err));
        if (!found)
            break;

        size_t begin = span[0], end = span[1];
        if (begin < done || end < begin) /* \K in the pattern */
            return unsupported("text", "pattern", "with \\K", err);
        FP8Q_TRY(take(run, step, text, &g,
                      (struct growing){.begin = done, .end = begin, .is_match = s->invert}, err));
        FP8Q_TRY(take(run, step, text, &g,
                      (struct growing){.begin = begin, .end = end, .is_match = !s->invert}, err));

        done = from = end;
        if (begin == end) /* an empty match: look on behind the next character */
            while (++from < len && ((unsigned char)text[from] & 0xC0) == 0x80)
                ;
    }
    FP8Q_TRY(take(run, step, text, &g,
                  (struct growing){.begin = done, .end = len, .is_match = s->invert}, err));
    return flush(run, step, text, &g, err);
}

/* The marked text, cut at its marks or whole.  */
static int hand_on(const struct split_run *run, size_t step, const struct fp8q_text *text,
                   struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_text_status(text, err));
    if (run->splitter->pre->splits[step].whole)
        return split(run, step + 1, text->data, text->len, err);
    return cut(run, step, text->data, text->len, err);
}

/* Spaces become marks, and the text begins with one: always, or where the input begins.  */
static int metaspace(const struct split_run *run, size_t step, const char *text, size_t len,
                     struct fp8q_error *err)
{
    const struct fp8q_split *s = &run->splitter->pre->splits[step];
    const size_t mark = strlen(FP8Q_METASPACE);
    struct fp8q_text out = {0};
    bool marked = text[0] == ' ' || (len >= mark && memcmp(text, FP8Q_METASPACE, mark) == 0);
    bool wanted = s->prepend == FP8Q_PREPEND_ALWAYS ||
                  (s->prepend == FP8Q_PREPEND_FIRST && text == run->start);
    if (wanted && !marked)
        fp8q_text_puts(&out, FP8Q_METASPACE);

    for (size_t i = 0; i < len; i++)
        if (text[i] == ' ')
            fp8q_text_puts(&out, FP8Q_METASPACE);
        else
            fp8q_text_add(&out, text + i, 1);

    int status = hand_on(run, step, &out, err);
    fp8q_text_reset(&out);
    return status;
}

static int split(const struct split_run *run, size_t step, const char *text, size_t len,
                 struct fp8q_error *err)
{
    const struct fp8q_pretokenizer *pre = run->splitter->pre;
    if (len == 0)
        return FP8Q_OK;
    if (step == pre->n_splits)
        return run->piece(run->ctx, text, len, err);
    if (pre->splits[step].metaspace)
        return metaspace(run, step, text, len, err);
    return cut(run, step, text, len, err);
}

int fp8q_splitter_run(struct fp8q_splitter *splitter, const struct fp8q_stretch *stretch,
                      fp8q_piece_fn *piece, void *ctx, struct fp8q_error *err)
{
    const char *text = stretch->text;
    size_t len = stretch->len;
    const struct split_run run = {splitter, stretch->first ? text : NULL, piece, ctx};
    /* One step for each character of a run is normal; a pattern that needs more explodes.  */
    uint64_t limit = 10000000 + 8 * (uint64_t)len;
    pcre2_set_match_limit(splitter->context, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    return split(&run, 0, text, len, err);
}
