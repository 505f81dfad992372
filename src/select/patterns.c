/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns.c - applies and lints --ignore and --include.
 */
#include "select/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/names.h"
#include "base/mem.h"
#include "select/pattern.h"

struct entry {
    struct fp8q_pattern *pattern;
    bool is_include;
    size_t n_matches;  /* tensors */
    size_t n_changing; /* of these, tensors whose default the pattern changes */
};

struct fp8q_pattern_set {
    struct entry *entries;
    size_t count;
};

int fp8q_pattern_set_create(const struct fp8q_select_options *options,
                            struct fp8q_pattern_set **set_out, struct fp8q_error *err)
{
    struct fp8q_pattern_set *set = calloc(1, sizeof(*set));
    *set_out = set;
    if (!set ||
        !(set->entries = fp8q_array(options->n_ignore + options->n_include, sizeof(*set->entries))))
        return fp8q_fail_nomem(err);

    /* --ignore first, then --include: the order in which they are reported.  */
    for (size_t i = 0; i < options->n_ignore + options->n_include; i++) {
        struct entry *e = &set->entries[set->count];
        e->is_include = i >= options->n_ignore;
        FP8Q_TRY(fp8q_pattern_compile(e->is_include ? options->include[i - options->n_ignore]
                                                    : options->ignore[i],
                                      &e->pattern, err));
        set->count++;
    }
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
        e->n_changing += d->quantize != e->is_include;
        *(e->is_include ? included : ignored) = true;
    }
    return FP8Q_OK;
}

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

    fp8q_text_printf(&text, "%s \"%s\" matches nothing", e->is_include ? "--include" : "--ignore",
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
    if (!fp8q_pattern_is_regex(e->pattern) || e->is_include || strncmp(text + 3, ".*", 2) == 0)
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

static int lint_entry(const struct entry *e, const struct fp8q_ckpt *ckpt,
                      const struct fp8q_selection *s, struct fp8q_warnings *warnings,
                      struct fp8q_error *err)
{
    struct fp8q_shown shown;
    fp8q_show(&shown, fp8q_pattern_text(e->pattern));
    if (e->n_matches && !e->n_changing)
        FP8Q_TRY(fp8q_warn(warnings, err, "pattern-redundant",
                           "%s \"%s\" changes nothing: all %zu tensors that it matches are %s by "
                           "default",
                           e->is_include ? "--include" : "--ignore", shown.text, e->n_matches,
                           e->is_include ? "quantized or cannot be" : "kept"));
    return lint_anchor(e, ckpt, s, warnings, err);
}

static int lint_head(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *s,
                     struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (s->decisions[i].quantize && fp8q_has_components(ckpt->tensors[i].name, "lm_head")) {
            struct fp8q_shown shown;
            return fp8q_warn(warnings, err, "lm-head-included",
                             "\"%s\" would be quantized: vLLM loads no FP8 lm_head in the fp8 "
                             "dialect, and it costs more accuracy than any other module",
                             fp8q_show(&shown, ckpt->tensors[i].name));
        }
    return FP8Q_OK;
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
        if (set->entries[i].n_matches == 0)
            FP8Q_TRY(
                report_unmatched(&set->entries[i], ckpt, options->allow_unmatched, warnings, err));
    return lint_head(ckpt, selection, warnings, err);
}
