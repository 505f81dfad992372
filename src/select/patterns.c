/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns.c - applies and lints --ignore, --include and the patterns of --scheme.
 */
#include "select/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/names.h"
#include "base/mem.h"
#include "select/pattern.h"
#include "select/scheme.h"

/* In the order in which they are reported.  */
enum kind { IGNORE, INCLUDE, SCHEME };
static const char *const option_of[] = {"--ignore", "--include", "--scheme"};

struct entry {
    struct fp8q_pattern *pattern;
    enum kind kind;
    enum fp8q_scheme scheme; /* SCHEME */
    size_t n_matches;        /* tensors */
    size_t n_changing;       /* of these, tensors whose default the pattern changes */
    size_t n_quantized;      /* of these, tensors that are quantized by default */
};

struct fp8q_pattern_set {
    struct entry *entries;
    size_t count;
    bool has_schemes;
};

static int add_entry(struct fp8q_pattern_set *set, enum kind kind, const char *pattern,
                     struct fp8q_error *err)
{
    struct entry *e = &set->entries[set->count];
    e->kind = kind;
    FP8Q_TRY(fp8q_pattern_compile(pattern, &e->pattern, err));

    set->count++;
    return FP8Q_OK;
}

static int add_scheme(struct fp8q_pattern_set *set, const char *item, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct entry *e = &set->entries[set->count];
    size_t len = fp8q_scheme_item(item, &e->scheme);
    if (!len)
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-item",
                         "--scheme: expected PAT=NAME with the name of a scheme, found \"%s\"",
                         fp8q_show(&shown, item));

    char *pattern = strndup(item, len);
    if (!pattern)
        return fp8q_fail_nomem(err);
    int status = add_entry(set, SCHEME, pattern, err);
    free(pattern);
    return status;
}

int fp8q_pattern_set_create(const struct fp8q_select_options *o, struct fp8q_pattern_set **set_out,
                            struct fp8q_error *err)
{
    struct fp8q_pattern_set *set = calloc(1, sizeof(*set));
    *set_out = set;
    if (!set || !(set->entries =
                      fp8q_array(o->n_ignore + o->n_include + o->n_schemes, sizeof(*set->entries))))
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < o->n_ignore; i++)
        FP8Q_TRY(add_entry(set, IGNORE, o->ignore[i], err));
    for (size_t i = 0; i < o->n_include; i++)
        FP8Q_TRY(add_entry(set, INCLUDE, o->include[i], err));
    for (size_t i = 0; i < o->n_schemes; i++)
        FP8Q_TRY(add_scheme(set, o->schemes[i], err));
    set->has_schemes = o->n_schemes > 0;
    return FP8Q_OK;
}

void fp8q_pattern_set_free(struct fp8q_pattern_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->count; i++)
        fp8q_pattern_free(set->entries[i].pattern);
    free(set->entries);
    free(set);
}

/* All of them, also after a match: each has to show that it does something.  */
static int match_module(struct fp8q_pattern_set *set, const char *module,
                        const struct fp8q_decision *d, bool *ignored, bool *included,
                        struct fp8q_error *err)
{
    for (size_t i = 0; i < set->count; i++) {
        struct entry *e = &set->entries[i];
        bool matches;
        FP8Q_TRY(fp8q_pattern_match(e->pattern, module, &matches, err));
        if (!matches)
            continue;

        /* A pattern that only repeats the default is worth a word.  */
        e->n_matches++;
        e->n_changing += d->quantize != (e->kind == INCLUDE);
        *ignored |= e->kind == IGNORE;
        *included |= e->kind == INCLUDE || (e->kind == SCHEME && !e->n_quantized);
    }
    return FP8Q_OK;
}

/* ---- schemes --------------------------------------------------------------------------------- */

/* The entries of --scheme that match @module: the scheme of the last of them, or what the defaults
 * do with the tensor, noted in all of them.  */
static int ask_schemes(struct fp8q_pattern_set *set, const char *module,
                       enum fp8q_scheme *scheme_out, const bool *quantized, struct fp8q_error *err)
{
    for (size_t i = 0; i < set->count; i++) {
        struct entry *e = &set->entries[i];
        bool matches = false;
        if (e->kind == SCHEME)
            FP8Q_TRY(fp8q_pattern_match(e->pattern, module, &matches, err));
        if (matches && scheme_out)
            *scheme_out = e->scheme;
        if (matches && quantized)
            e->n_quantized += *quantized;
    }
    return FP8Q_OK;
}

static int ask_schemes_of(struct fp8q_pattern_set *set, const char *tensor_name,
                          enum fp8q_scheme *scheme_out, const bool *quantized,
                          struct fp8q_error *err)
{
    if (!set->has_schemes)
        return FP8Q_OK;
    char *module = strndup(tensor_name, fp8q_module_len(tensor_name));
    if (!module)
        return fp8q_fail_nomem(err);

    int status = ask_schemes(set, module, scheme_out, quantized, err);
    free(module);
    return status;
}

int fp8q_pattern_set_scheme(struct fp8q_pattern_set *set, const char *tensor_name,
                            enum fp8q_scheme *scheme_out, struct fp8q_error *err)
{
    return ask_schemes_of(set, tensor_name, scheme_out, NULL, err);
}

int fp8q_pattern_set_note(struct fp8q_pattern_set *set, const char *tensor_name, bool quantized,
                          struct fp8q_error *err)
{
    return ask_schemes_of(set, tensor_name, NULL, &quantized, err);
}

/* ---- lists ----------------------------------------------------------------------------------- */

int fp8q_pattern_set_match(struct fp8q_pattern_set *set, const char *tensor_name,
                           const struct fp8q_decision *d, bool *ignored_out, bool *included_out,
                           struct fp8q_error *err)
{
    *ignored_out = *included_out = false;
    if (set->count == 0)
        return FP8Q_OK;

    char *module = strndup(tensor_name, fp8q_module_len(tensor_name));
    if (!module)
        return fp8q_fail_nomem(err);

    int status = match_module(set, module, d, ignored_out, included_out, err);
    free(module);
    return status;
}

/* ---- lint ------------------------------------------------------------------------------------ */

enum { NEAR_NAMES = 3 };

struct near {
    char names[NEAR_NAMES][128];
    size_t distance[NEAR_NAMES];
    size_t count;
};

static void offer(struct near *near, const char *pattern, const char *name, size_t len)
{
    char word[128];
    if (len == 0 || len >= sizeof(word))
        return;

    memcpy(word, name, len);
    word[len] = '\0';

    /* Half of it may differ; a word that holds the other counts as one edit.  */
    size_t limit = strlen(pattern) / 2 + 1;
    size_t distance = strstr(word, pattern) || strstr(pattern, word)
                          ? 1
                          : fp8q_edit_distance(pattern, word, limit);
    if (distance > limit)
        return;

    for (size_t i = 0; i < near->count; i++)
        if (strcmp(near->names[i], word) == 0)
            return;

    /* Insertion into the short sorted list; the farthest falls off its end.  */
    size_t at = near->count < NEAR_NAMES ? near->count++ : NEAR_NAMES;
    for (; at > 0 && near->distance[at - 1] > distance; at--)
        if (at < NEAR_NAMES) {
            strcpy(near->names[at], near->names[at - 1]);
            near->distance[at] = near->distance[at - 1];
        }
    if (at < NEAR_NAMES) {
        strcpy(near->names[at], word);
        near->distance[at] = distance;
    }
}

/* Candidates are single components and runs of two, of every module.  */
static void find_near(const struct fp8q_ckpt *ckpt, const char *pattern, struct near *near)
{
    char plain[128];
    size_t len = 0;
    if (strncmp(pattern, "re:", 3) == 0)
        pattern += 3;

    /* What the characters of globs and expressions leave.  */
    for (; *pattern && len + 1 < sizeof(plain); pattern++)
        if (!strchr("*?[]^$\\()+|", *pattern))
            plain[len++] = *pattern;
    while (len && plain[len - 1] == '.')
        len--;
    plain[len] = '\0';

    const char *word = plain + strspn(plain, ".");
    for (size_t i = 0; i < ckpt->n_tensors && *word; i++) {
        const char *name = ckpt->tensors[i].name, *end = name + fp8q_module_len(name);
        for (const char *at = name; at < end;) {
            size_t one = strcspn(at, ".");
            if (at + one > end)
                one = (size_t)(end - at);

            if (strspn(at, "0123456789") != one)
                offer(near, word, at, one);
            if (at + one < end) {
                size_t two = one + 1 + strcspn(at + one + 1, ".");
                offer(near, word, at, at + two > end ? (size_t)(end - at) : two);
            }
            at += one + 1;
        }
    }
}

/* What the user of @pattern may have meant.  */
static void put_hint(struct fp8q_text *hint, const struct fp8q_ckpt *ckpt, const char *pattern)
{
    struct near near = {.count = 0};
    struct fp8q_shown shown;

    find_near(ckpt, pattern, &near);
    for (size_t i = 0; i < near.count; i++) {
        fp8q_text_puts(hint, i ? ", \"" : "; near: \"");
        fp8q_text_puts(hint, fp8q_show(&shown, near.names[i]));
        fp8q_text_puts(hint, "\"");
    }

    if (fp8q_is_weight_name(pattern))
        fp8q_text_puts(hint, "; patterns match module names, without \".weight\"");
}

static int fail_or_warn(const struct fp8q_text *text, bool allowed, struct fp8q_warnings *warnings,
                        struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_text_status(text, err));
    if (allowed)
        return fp8q_warn(warnings, err, "pattern-unmatched", "%s", text->data);
    return fp8q_fail(err, FP8Q_E_ARG, "pattern-unmatched", "%s", text->data);
}

static int report_unmatched(const struct entry *e, const struct fp8q_ckpt *ckpt, bool allowed,
                            struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_text text = {0};
    struct fp8q_shown shown;
    const char *pattern = fp8q_pattern_text(e->pattern);

    fp8q_text_printf(&text, "%s \"%s\" matches nothing", option_of[e->kind],
                     fp8q_show(&shown, pattern));
    put_hint(&text, ckpt, pattern);

    int status = fail_or_warn(&text, allowed, warnings, err);
    fp8q_text_reset(&text);
    return status;
}

/* Warns of the first module of a tower that @unanchored reaches and the pattern itself does not.  */
static int compare_reach(const struct entry *e, const struct fp8q_pattern *unanchored,
                         const struct fp8q_ckpt *ckpt, const struct fp8q_selection *s,
                         struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    const char *text = fp8q_pattern_text(e->pattern);
    struct fp8q_shown a, b;

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const char *name = ckpt->tensors[i].name;
        bool now, then;

        /* Elsewhere a pattern may be meant as it is written.  */
        if (!s->decisions[i].tower)
            continue;
        FP8Q_TRY(fp8q_pattern_match(e->pattern, name, &now, err));
        FP8Q_TRY(fp8q_pattern_match(unanchored, name, &then, err));
        if (then && !now)
            return fp8q_warn(
                warnings, err, "pattern-anchored",
                "--ignore \"%s\" is anchored at the start (Python's re.match) and misses "
                "\"%s\"; write re:.*%s to reach it",
                fp8q_show(&a, text), fp8q_show(&b, name), text + 3);
    }
    return FP8Q_OK;
}

/* `re:visual.*` does not reach `model.visual`: re.match anchors at the start.  */
static int lint_anchor(const struct entry *e, const struct fp8q_ckpt *ckpt,
                       const struct fp8q_selection *s, struct fp8q_warnings *warnings,
                       struct fp8q_error *err)
{
    const char *text = fp8q_pattern_text(e->pattern);
    struct fp8q_pattern *unanchored;
    if (!fp8q_pattern_is_regex(e->pattern) || e->kind != IGNORE || strncmp(text + 3, ".*", 2) == 0)
        return FP8Q_OK;

    char *longer = malloc(strlen(text) + 8);
    if (!longer)
        return fp8q_fail_nomem(err);
    /* (?: ) keeps alternatives together.  */
    sprintf(longer, "re:.*(?:%s)", text + 3);
    int status = fp8q_pattern_compile(longer, &unanchored, NULL);
    free(longer);
    if (status != FP8Q_OK)
        return FP8Q_OK; /* the lengthened expression has no meaning: nothing to compare with */

    status = compare_reach(e, unanchored, ckpt, s, warnings, err);
    fp8q_pattern_free(unanchored);
    return status;
}

/* A scheme of nothing that is quantized.  */
static int lint_scheme(const struct entry *e, const struct fp8q_ckpt *ckpt,
                       const struct fp8q_selection *s, struct fp8q_warnings *warnings,
                       struct fp8q_error *err)
{
    struct fp8q_shown shown;
    size_t n_quantized = 0;

    for (size_t i = 0; i < ckpt->n_tensors && !n_quantized; i++) {
        const char *name = ckpt->tensors[i].name;
        bool matches = false;
        char *module = s->decisions[i].quantize ? strndup(name, fp8q_module_len(name)) : NULL;
        if (!s->decisions[i].quantize)
            continue;
        if (!module)
            return fp8q_fail_nomem(err);
        int status = fp8q_pattern_match(e->pattern, module, &matches, err);
        free(module);
        FP8Q_TRY(status);
        n_quantized += matches;
    }
    if (n_quantized || !e->n_matches)
        return FP8Q_OK;

    return fp8q_warn(warnings, err, "pattern-redundant",
                     "--scheme \"%s=%s\" changes nothing: of what it matches (%zu tensor%s) none "
                     "is quantized",
                     fp8q_show(&shown, fp8q_pattern_text(e->pattern)), fp8q_scheme_names[e->scheme],
                     e->n_matches, fp8q_plural(e->n_matches));
}

static int lint_entry(const struct entry *e, const struct fp8q_ckpt *ckpt,
                      const struct fp8q_selection *s, struct fp8q_warnings *warnings,
                      struct fp8q_error *err)
{
    struct fp8q_shown shown;
    fp8q_show(&shown, fp8q_pattern_text(e->pattern));
    if (e->kind == SCHEME)
        return lint_scheme(e, ckpt, s, warnings, err);
    if (e->n_matches && !e->n_changing)
        FP8Q_TRY(fp8q_warn(warnings, err, "pattern-redundant",
                           "%s \"%s\" changes nothing: all %zu tensors that it matches are %s by "
                           "default",
                           option_of[e->kind], shown.text, e->n_matches,
                           e->kind == INCLUDE ? "quantized or cannot be" : "kept"));
    return lint_anchor(e, ckpt, s, warnings, err);
}

static int lint_head(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *s,
                     struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (s->decisions[i].quantize && fp8q_has_components(ckpt->tensors[i].name, "lm_head")) {
            struct fp8q_shown shown;
            return fp8q_warn(warnings, err, "lm-head-included",
                             "\"%s\" would be quantized: vLLM and SGLang load an FP8 lm_head in "
                             "compressed-tensors only, best with scales a row, and it costs more "
                             "accuracy than any other module",
                             fp8q_show(&shown, ckpt->tensors[i].name));
        }
    return FP8Q_OK;
}

/* Whether --ignore names the head of a model that has none of its own: recipes name it for every model, and
 * where it is tied to the embeddings, or missing, nothing is quantized by leaving the pattern out.  */
static int names_absent_head(const struct entry *e, bool *names_out, struct fp8q_error *err)
{
    *names_out = false;
    if (e->kind != IGNORE)
        return FP8Q_OK;
    return fp8q_pattern_match(e->pattern, "lm_head", names_out, err);
}

static int lint_unmatched(const struct entry *e, const struct fp8q_ckpt *ckpt, bool allowed,
                          struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    bool absent_head;
    if (e->n_matches)
        return FP8Q_OK;

    FP8Q_TRY(names_absent_head(e, &absent_head, err));
    return absent_head ? FP8Q_OK : report_unmatched(e, ckpt, allowed, warnings, err);
}

int fp8q_pattern_set_lint(const struct fp8q_pattern_set *set, const struct fp8q_ckpt *ckpt,
                          const struct fp8q_selection *selection,
                          const struct fp8q_select_options *options, struct fp8q_warnings *warnings,
                          struct fp8q_error *err)
{
    /* Warnings first, so that they are seen even if an unmatched pattern ends the run.  */
    for (size_t i = 0; i < set->count; i++)
        FP8Q_TRY(lint_entry(&set->entries[i], ckpt, selection, warnings, err));
    for (size_t i = 0; i < set->count; i++)
        FP8Q_TRY(lint_unmatched(&set->entries[i], ckpt, options->allow_unmatched, warnings, err));
    return lint_head(ckpt, selection, warnings, err);
}
