/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern.c - compiles and matches module name patterns.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "select/pattern.h"

#include <fnmatch.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "format/names.h"

/* Of a regular expression on one name.  verify reads expressions from the config of a checkpoint
 * that anyone may have made, and asks them for every tensor; PCRE2 itself would take a hundred
 * times as many.  */
#define MOST_STEPS 100000

enum kind { COMPONENTS, GLOB, REGEX };

struct fp8q_pattern {
    enum kind kind;
    char *text;
    pcre2_code *code;
    pcre2_match_data *data; /* of the last match: so a pattern belongs to one thread */
    pcre2_match_context *limits;
};

static int compile_regex(struct fp8q_pattern *p, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    int code;
    PCRE2_SIZE at;
    p->code = pcre2_compile((PCRE2_SPTR)p->text + 3, PCRE2_ZERO_TERMINATED,
                            PCRE2_ANCHORED | PCRE2_UTF, &code, &at, NULL);
    if (!p->code) {
        PCRE2_UCHAR reason[200];
        pcre2_get_error_message(code, reason, sizeof(reason));
        return fp8q_fail(err, FP8Q_E_ARG, "pattern-syntax",
                         "pattern \"%s\": %s at character %zu of the expression",
                         fp8q_show(&shown, p->text), (const char *)reason, (size_t)at);
    }

    /* Made once: a pattern is asked about every tensor of a checkpoint.  */
    p->data = pcre2_match_data_create_from_pattern(p->code, NULL);
    p->limits = pcre2_match_context_create(NULL);
    if (!p->data || !p->limits)
        return fp8q_fail_nomem(err);
    pcre2_set_match_limit(p->limits, MOST_STEPS);
    return FP8Q_OK;
}

int fp8q_pattern_compile(const char *text, struct fp8q_pattern **pattern_out,
                         struct fp8q_error *err)
{
    *pattern_out = NULL;
    if (!*text)
        return fp8q_fail(err, FP8Q_E_ARG, "pattern-empty", "a pattern is empty");

    struct fp8q_pattern *p = calloc(1, sizeof(*p));
    if (!p || !(p->text = strdup(text))) {
        free(p);
        return fp8q_fail_nomem(err);
    }

    /* An expression may hold the characters of globs, so its prefix is looked at last.  */
    p->kind = strpbrk(text, "*?[") ? GLOB : COMPONENTS;
    if (strncmp(text, "re:", 3) == 0)
        p->kind = REGEX;
    int status = p->kind == REGEX ? compile_regex(p, err) : FP8Q_OK;
    if (status != FP8Q_OK) {
        fp8q_pattern_free(p);
        return status;
    }

    *pattern_out = p;
    return FP8Q_OK;
}

void fp8q_pattern_free(struct fp8q_pattern *p)
{
    if (!p)
        return;

    pcre2_match_context_free(p->limits);
    pcre2_match_data_free(p->data);
    pcre2_code_free(p->code);
    free(p->text);
    free(p);
}

const char *fp8q_pattern_text(const struct fp8q_pattern *p)
{
    return p->text;
}

bool fp8q_pattern_is_regex(const struct fp8q_pattern *p)
{
    return p->kind == REGEX;
}

int fp8q_pattern_match(const struct fp8q_pattern *p, const char *module, bool *matches_out,
                       struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    *matches_out = false;

    if (p->kind == COMPONENTS) {
        *matches_out = fp8q_has_components(module, p->text);
        return FP8Q_OK;
    }
    if (p->kind == GLOB) {
        *matches_out = fnmatch(p->text, module, FNM_NOESCAPE) == 0;
        return FP8Q_OK;
    }

    int n = pcre2_match(p->code, (PCRE2_SPTR)module, strlen(module), 0, 0, p->data, p->limits);
    if (n == PCRE2_ERROR_NOMEMORY)
        return fp8q_fail_nomem(err);
    if (n < 0 && n != PCRE2_ERROR_NOMATCH)
        return fp8q_fail(err, FP8Q_E_ARG, "pattern-limit",
                         "pattern \"%s\": too much backtracking on \"%s\"", fp8q_show(&a, p->text),
                         fp8q_show(&b, module));
    *matches_out = n >= 0;
    return FP8Q_OK;
}

/* ---- names --------------------------------------------------------------------------------- */

static bool has_run(const char *name, const char *run, size_t len)
{
    for (const char *at = name;; at++) {
        if (strncmp(at, run, len) == 0 && (at[len] == '\0' || at[len] == '.'))
            return true;

        /* On to the next component: a run begins at one and ends with one.  */
        at = strchr(at, '.');
        if (!at)
            return false;
    }
}

bool fp8q_has_components(const char *name, const char *run)
{
    return has_run(name, run, strlen(run));
}

const char *fp8q_has_any_components(const char *name, const char *list, size_t *len_out)
{
    while (list && *list) {
        size_t len = strcspn(list, " ");
        if (len && has_run(name, list, len)) {
            *len_out = len;
            return list;
        }
        list += len + strspn(list + len, " ");
    }
    return NULL;
}

size_t fp8q_module_len(const char *tensor_name)
{
    size_t bias = fp8q_stem_len(tensor_name, ".bias");

    return bias ? bias : fp8q_weight_stem(tensor_name);
}

size_t fp8q_edit_distance(const char *a, const char *b, size_t limit)
{
    enum { LONGEST = 128 };
    size_t row[LONGEST + 1];
    size_t na = strlen(a), nb = strlen(b);

    /* The difference in length is the least distance: no table is needed to see that it is too
     * far.  */
    if (na > LONGEST || nb > LONGEST || (na > nb ? na - nb : nb - na) > limit)
        return limit + 1;

    for (size_t j = 0; j <= nb; j++)
        row[j] = j;

    /* Row i of the table of distances between beginnings of @a and @b, over row i - 1.  */
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);
            size_t insert = row[j] + 1, remove = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = replace < insert ? replace : insert;
            if (remove < row[j])
                row[j] = remove;
        }
    }

    return row[nb] <= limit ? row[nb] : limit + 1;
}
