/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep_report.c - a sweep for machines: JSON, the modules that stay, and the options of `quantize`
 * that give the chosen split.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "measure/internal.h"
#include "select/scheme.h"

/* ---- what becomes of each linear -------------------------------------------------------------- */

/* By layer and linear: no part of a sweep, left, or quantized with a scheme.  */
enum { OUTSIDE, LEFT, WITH /* + enum fp8q_scheme */ };

struct fates {
    const struct fp8q_model *model;
    uint8_t *of; /* [layer][part]; owned */
};

static uint8_t *fate(const struct fates *f, uint32_t layer, int linear)
{
    return &f->of[(size_t)layer * FP8Q_N_PARTS + (size_t)linear];
}

static uint16_t all_linears(const struct fp8q_sweep_unit *u)
{
    uint16_t linears = 0;
    for (unsigned c = 0; c < u->n_choices; c++)
        linears |= u->choices[c].linears;
    return linears;
}

static int fates_open(const struct fp8q_sweep *s, const struct fp8q_model *m, struct fates *f,
                      struct fp8q_error *err)
{
    *f = (struct fates){.model = m};
    f->of = fp8q_array((uint64_t)m->n_layers * FP8Q_N_PARTS, sizeof(*f->of));
    if (!f->of)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < s->n_units; i++) {
        const struct fp8q_sweep_unit *u = &s->units[i];
        const struct fp8q_sweep_choice *c = fp8q_sweep_choice_of(s, i, s->n_taken);
        for (uint32_t layer = u->first_layer; layer <= u->last_layer; layer++)
            for (int k = 0; k < FP8Q_N_PARTS; k++) {
                /* Parts of a fused weight are one module on disk, named once.  */
                bool rest = k < FP8Q_N_LINEARS && fp8q_linear_is_rest(m, (enum fp8q_linear)k);
                bool is_module = all_linears(u) >> k & 1 && fp8q_part_exists(m, layer, k) && !rest;
                if (is_module)
                    *fate(f, layer, k) =
                        (uint8_t)(c && c->linears >> k & 1 ? WITH + (int)c->scheme : LEFT);
            }
    }
    return FP8Q_OK;
}

/* Calls @each with the name of every module that the chosen split leaves.  */
static int each_left(const struct fp8q_sweep *s, const struct fp8q_model *m,
                     void (*each)(void *ctx, const char *name), void *ctx, struct fp8q_error *err)
{
    struct fates f;
    FP8Q_TRY(fates_open(s, m, &f, err));

    for (uint32_t layer = 0; layer < m->n_layers; layer++)
        for (int k = 0; k < FP8Q_N_PARTS; k++) {
            struct fp8q_name name;
            if (*fate(&f, layer, k) == LEFT)
                each(ctx, fp8q_part_name(m, layer, k, &name));
        }
    free(f.of);
    return FP8Q_OK;
}

static void add_line(void *ctx, const char *name)
{
    fp8q_text_printf(ctx, "%s\n", name);
}

int fp8q_sweep_ignore(const struct fp8q_sweep *s, const struct fp8q_model *model,
                      struct fp8q_text *out, struct fp8q_error *err)
{
    FP8Q_TRY(each_left(s, model, add_line, out, err));
    return fp8q_text_status(out, err);
}

/* ---- options of quantize ---------------------------------------------------------------------- */

/* The scheme that most modules have: the plain one of the command.  */
static enum fp8q_scheme most_common(const struct fates *f)
{
    size_t n[WITH + FP8Q_N_SCHEMES] = {0};
    unsigned most = WITH;
    for (uint32_t layer = 0; layer < f->model->n_layers; layer++)
        for (int k = 0; k < FP8Q_N_PARTS; k++)
            n[*fate(f, layer, k)]++;

    for (unsigned i = WITH; i < WITH + FP8Q_N_SCHEMES; i++)
        if (n[i] > n[most])
            most = i;
    return (enum fp8q_scheme)(most - WITH);
}

static void put_escaped(struct fp8q_text *t, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fp8q_text_printf(t, strchr(".+*?()[]{}|^$\\", name[i]) ? "\\%c" : "%c", name[i]);
}

/* "(?:0|3)", of @n layers.  */
static void put_numbers(struct fp8q_text *t, const struct fates *f, int k, uint8_t wanted, size_t n)
{
    const char *before = n > 1 ? "(?:" : "";

    for (uint32_t layer = 0; layer < f->model->n_layers; layer++)
        if (*fate(f, layer, k) == wanted) {
            fp8q_text_printf(t, "%s%u", before, layer);
            before = "|";
        }
    fp8q_text_puts(t, n > 1 ? ")" : "");
}

/* "re:model\.layers\.(?:0|3)\.mlp\.down_proj": linear @k where its fate is @wanted; nothing if there
 * is none.  */
static void put_pattern(struct fp8q_text *t, const struct fates *f, int k, uint8_t wanted)
{
    const struct fp8q_model *m = f->model;
    struct fp8q_name name;
    size_t n = 0, n_all = 0;
    uint32_t first = 0;

    for (uint32_t layer = m->n_layers; layer-- > 0;) {
        n_all += *fate(f, layer, k) != OUTSIDE;
        n += *fate(f, layer, k) == wanted;
        if (*fate(f, layer, k) == wanted)
            first = layer;
    }
    if (n == 0)
        return;

    /* The number stands between "layers." and the next dot.  */
    fp8q_part_name(m, first, k, &name);
    const char *number = name.text + strlen(m->prefix);
    number += strcspn(number, "0123456789");
    const char *rest = number + strspn(number, "0123456789");

    fp8q_text_puts(t, "re:");
    put_escaped(t, name.text, (size_t)(number - name.text));
    if (n == n_all)
        fp8q_text_puts(t, "\\d+");
    else
        put_numbers(t, f, k, wanted, n);
    put_escaped(t, rest, strlen(rest));
    /* Experts have modules below this name.  */
    fp8q_text_puts(t, k == FP8Q_PART_EXPERTS ? "\\." : "$");
}

struct words {
    int (*add)(void *ctx, const char *word, struct fp8q_error *err);
    void *ctx;
    struct fp8q_error *err;
};

/* "--scheme PATTERN=NAME" or "--ignore PATTERN" for each linear that has this fate somewhere.  */
static int add_patterns(const struct words *w, const struct fates *f, uint8_t wanted)
{
    for (int k = 0; k < FP8Q_N_PARTS; k++) {
        struct fp8q_text t = {0};
        put_pattern(&t, f, k, wanted);
        bool any = t.len > 0;
        if (any && wanted >= WITH)
            fp8q_text_printf(&t, "=%s", fp8q_scheme_names[wanted - WITH]);

        int status = fp8q_text_status(&t, w->err);
        if (status == FP8Q_OK && any)
            status = w->add(w->ctx, wanted == LEFT ? "--ignore" : "--scheme", w->err);
        if (status == FP8Q_OK && any)
            status = w->add(w->ctx, t.data, w->err);
        fp8q_text_reset(&t);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

static int add_words(const struct words *w, const struct fates *f)
{
    enum fp8q_scheme plain = most_common(f);
    if (plain != FP8Q_SCHEME_BLOCK) {
        FP8Q_TRY(w->add(w->ctx, "--scheme", w->err));
        FP8Q_TRY(w->add(w->ctx, fp8q_scheme_names[plain], w->err));
    }

    for (unsigned s = 0; s < FP8Q_N_SCHEMES; s++)
        if (s != (unsigned)plain)
            FP8Q_TRY(add_patterns(w, f, (uint8_t)(WITH + s)));
    return add_patterns(w, f, LEFT);
}

int fp8q_sweep_words(const struct fp8q_sweep *s, const struct fp8q_model *model,
                     int (*add)(void *ctx, const char *word, struct fp8q_error *err), void *ctx,
                     struct fp8q_error *err)
{
    const struct words w = {add, ctx, err};
    struct fates f;
    FP8Q_TRY(fates_open(s, model, &f, err));
    int status = add_words(&w, &f);
    free(f.of);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------- */

static void add_item(void *ctx, const char *name)
{
    fp8q_jsonw_string(ctx, NULL, name);
}

static int add_word(void *ctx, const char *word, struct fp8q_error *err)
{
    (void)err;
    fp8q_jsonw_string(ctx, NULL, word);
    return FP8Q_OK;
}

static void choice_json(const struct fp8q_sweep_choice *c, struct fp8q_jsonw *w)
{
    fp8q_jsonw_number(w, "kld", c->kld);
    fp8q_jsonw_number(w, "kld_se", c->kld_se);
    fp8q_jsonw_uint(w, "bytes_saved", c->bytes_saved);
}

/* Its figures are those of the choice that saves most.  */
static void unit_json(const struct fp8q_sweep *s, size_t i, struct fp8q_jsonw *w)
{
    const struct fp8q_sweep_unit *u = &s->units[i];
    const struct fp8q_sweep_choice *chosen = fp8q_sweep_choice_of(s, i, s->n_taken);

    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", u->name);
    choice_json(&u->choices[u->path[0]], w);
    fp8q_jsonw_bool(w, "quantized", chosen != NULL);
    fp8q_jsonw_string(w, "scheme", chosen ? fp8q_scheme_names[chosen->scheme] : NULL);

    fp8q_jsonw_open(w, "schemes", '[');
    for (unsigned c = 0; c < u->n_choices; c++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "scheme", fp8q_scheme_names[u->choices[c].scheme]);
        choice_json(&u->choices[c], w);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

/* "last_kept" is the unit of the last step, and "scheme" what it went on to.  */
static void split_json(const struct fp8q_sweep *s, size_t n_taken, struct fp8q_jsonw *w)
{
    struct fp8q_sweep_sum sum = fp8q_sweep_split(s, n_taken);
    const struct fp8q_sweep_step *step = n_taken ? &s->steps[n_taken - 1] : NULL;
    const struct fp8q_sweep_choice *c = step ? fp8q_sweep_choice_of(s, step->unit, n_taken) : NULL;

    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_uint(w, "kept", sum.n_kept);
    fp8q_jsonw_string(w, "last_kept", step ? s->units[step->unit].name : NULL);
    fp8q_jsonw_string(w, "scheme", c ? fp8q_scheme_names[c->scheme] : NULL);
    fp8q_jsonw_uint(w, "bytes", sum.bytes);
    fp8q_jsonw_number(w, "kld", sum.kld);
    fp8q_jsonw_close(w, '}');
}

static int chosen_json(const struct fp8q_sweep *s, const struct fp8q_model *model,
                       struct fp8q_jsonw *w, struct fp8q_error *err)
{
    fp8q_jsonw_open(w, "chosen", '{');
    fp8q_jsonw_uint(w, "kept", s->n_kept);
    fp8q_jsonw_uint(w, "bytes", s->chosen_bytes);
    fp8q_jsonw_number(w, "predicted", s->chosen_predicted);
    fp8q_jsonw_number(w, "measured", s->chosen_kld);
    fp8q_jsonw_bool(w, "met", s->met);

    fp8q_jsonw_open(w, "ignore", '[');
    FP8Q_TRY(each_left(s, model, add_item, w, err));
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_open(w, "quantize", '[');
    FP8Q_TRY(fp8q_sweep_words(s, model, add_word, w, err));
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
    return FP8Q_OK;
}

int fp8q_sweep_json(const struct fp8q_sweep *s, const struct fp8q_model *model,
                    struct fp8q_jsonw *w, struct fp8q_error *err)
{
    fp8q_jsonw_uint(w, "tokens", s->tokens);
    fp8q_jsonw_uint(w, "source_bytes", s->source_bytes);

    fp8q_jsonw_open(w, "units", '[');
    for (size_t i = 0; i < s->n_units; i++)
        unit_json(s, i, w);
    fp8q_jsonw_close(w, ']');

    fp8q_jsonw_open(w, "splits", '[');
    for (size_t n = 0; n <= s->n_steps; n++)
        split_json(s, n, w);
    fp8q_jsonw_close(w, ']');

    fp8q_jsonw_open(w, "all", '{');
    fp8q_jsonw_number(w, "predicted", s->sum_kld);
    fp8q_jsonw_number(w, "measured", s->all_kld);
    fp8q_jsonw_number(w, "se", s->all_se);
    fp8q_jsonw_close(w, '}');
    return chosen_json(s, model, w, err);
}
