/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c - figures of some of the tokens of an evaluation: of a modality, of a category of
 * samples, of a range of positions.  A mean over all hides that what follows an image may suffer
 * more than text.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "measure/internal.h"

enum { MAX_CATEGORIES = 255 }; /* numbered in a byte */

/* Figures of parts 0 to @n-1 of @scores into @out, but for those without tokens.  */
static int add_parts(struct fp8q_scores scores, const uint8_t *part, unsigned n,
                     struct fp8q_eval_parts *out, struct fp8q_error *err)
{
    out->items = fp8q_array(n, sizeof(*out->items));
    if (!out->items)
        return fp8q_fail_nomem(err);
    scores.part = part;

    for (unsigned i = 0; i < n; i++) {
        struct fp8q_eval_part *p = &out->items[out->n];
        scores.which = (uint8_t)i;
        FP8Q_TRY(fp8q_scores_figures(&scores, &p->figures, err));
        p->key = i;
        out->n += p->figures.tokens > 0;
    }
    return FP8Q_OK;
}

int fp8q_parts_modalities(const struct fp8q_scores *scores, const uint8_t *modality,
                          struct fp8q_eval_parts *out, struct fp8q_error *err)
{
    bool any = false;
    for (size_t i = 0; i < scores->n_tokens; i++)
        any |= modality[i] != 0;
    if (!any)
        return FP8Q_OK;

    FP8Q_TRY(add_parts(*scores, modality, FP8Q_MODALITIES, out, err));
    for (size_t i = 0; i < out->n; i++)
        snprintf(out->items[i].name, sizeof(out->items[i].name), "%s",
                 fp8q_modality_names[out->items[i].key]);
    return FP8Q_OK;
}

int fp8q_parts_positions(const struct fp8q_scores *scores, const uint8_t *range,
                         struct fp8q_eval_parts *out, struct fp8q_error *err)
{
    FP8Q_TRY(add_parts(*scores, range, FP8Q_EVAL_POSITIONS, out, err));
    for (size_t i = 0; i < out->n; i++) {
        uint64_t k = out->items[i].key;
        out->items[i].key = k ? (uint64_t)FP8Q_EVAL_FIRST_POSITIONS << (k - 1) : 0;
    }
    return FP8Q_OK;
}

/* ---- categories ---------------------------------------------------------------------------- */

/* The category of each sample as a number, in the order in which they come; @first[k] is the first
 * sample of category k.  */
static int number_categories(const struct fp8q_inputs *inputs, uint8_t *of_sample, size_t *first,
                             unsigned *n_out, struct fp8q_error *err)
{
    unsigned n = 0;

    for (size_t i = 0; i < inputs->n_samples; i++) {
        unsigned k = 0;
        while (k < n &&
               strcmp(inputs->samples[first[k]].category, inputs->samples[i].category) != 0)
            k++;
        if (k == MAX_CATEGORIES)
            return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                             "sample %zu: more than %d categories, too many for a table", i,
                             MAX_CATEGORIES);
        if (k == n)
            first[n++] = i;
        of_sample[i] = (uint8_t)k;
    }
    *n_out = n;
    return FP8Q_OK;
}

/* @part has room for a byte a token.  */
static int add_categories(const struct fp8q_scores *scores, const struct fp8q_inputs *inputs,
                          uint8_t *of_sample, uint8_t *part, struct fp8q_eval_parts *out,
                          struct fp8q_error *err)
{
    size_t first[MAX_CATEGORIES];
    unsigned n = 0;
    FP8Q_TRY(number_categories(inputs, of_sample, first, &n, err));

    for (size_t i = 0; i < scores->n_tokens; i++)
        part[i] = of_sample[scores->sample[i]];
    FP8Q_TRY(add_parts(*scores, part, n, out, err));

    /* Samples without one are a category of no name.  */
    for (size_t i = 0; i < out->n; i++)
        memcpy(out->items[i].name, inputs->samples[first[out->items[i].key]].category,
               sizeof(out->items[i].name));
    return FP8Q_OK;
}

int fp8q_parts_categories(const struct fp8q_scores *scores, const struct fp8q_inputs *inputs,
                          struct fp8q_eval_parts *out, struct fp8q_error *err)
{
    bool any = false;
    for (size_t i = 0; i < inputs->n_samples; i++)
        any |= inputs->samples[i].category[0] != 0;
    if (!any)
        return FP8Q_OK;

    uint8_t *of_sample = fp8q_array(inputs->n_samples, 1);
    uint8_t *part = fp8q_array(scores->n_tokens, 1);
    int status = of_sample && part ? add_categories(scores, inputs, of_sample, part, out, err)
                                   : fp8q_fail_nomem(err);
    free(of_sample);
    free(part);
    return status;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void part_json(const struct fp8q_eval_part *p, const char *key, struct fp8q_jsonw *w)
{
    const struct fp8q_eval_figures *f = &p->figures;
    fp8q_jsonw_open(w, NULL, '{');

    /* A category is its name; of the others the number counts.  */
    if (key)
        fp8q_jsonw_uint(w, key, p->key);
    if (!key || p->name[0])
        fp8q_jsonw_string(w, "name", p->name);
    fp8q_jsonw_uint(w, "tokens", f->tokens);
    fp8q_jsonw_uint(w, "samples", f->samples);

    fp8q_jsonw_number(w, "kld", f->kld);
    fp8q_jsonw_number(w, "kld_se", f->kld_se);
    fp8q_jsonw_number(w, "kld_p99", f->kld_p99);
    fp8q_jsonw_number(w, "kld_max", f->kld_max);
    fp8q_jsonw_number(w, "top1", f->top1);
    fp8q_jsonw_number(w, "top1_se", f->top1_se);
    fp8q_jsonw_number(w, "nll_source", log(f->ppl_source));
    fp8q_jsonw_number(w, "nll_output", log(f->ppl_output));
    fp8q_jsonw_close(w, '}');
}

void fp8q_parts_json(const struct fp8q_eval_parts *parts, const char *list, const char *key,
                     struct fp8q_jsonw *w)
{
    if (parts->n == 0)
        return;
    fp8q_jsonw_open(w, list, '[');
    for (size_t i = 0; i < parts->n; i++)
        part_json(&parts->items[i], key, w);
    fp8q_jsonw_close(w, ']');
}
