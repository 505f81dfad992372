/* SPDX-License-Identifier: Apache-2.0
 *
 * split.c - which units to leave unquantized.
 *
 * Units stand in one order, by falling KLD for each byte saved, and a split leaves the first of
 * them unquantized.  So there are as many splits as units, and the sum of the costs predicts the KLD
 * of each.  The prediction is off by some per cent, since costs do not quite add up; that is why a
 * chosen split is run as a whole, and more units are kept until the measurement is within the
 * budget.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "measure/internal.h"

/* ---- the order ------------------------------------------------------------------------------- */

static double cost_of_byte(const struct fp8q_sweep_unit *u)
{
    /* A unit of tiny weights may save nothing, hence the 1.  */
    return u->kld / ((double)u->bytes_saved + 1);
}

/* By insertion: equal costs stay in the order of the network, on every machine.  */
static void sort_units(struct fp8q_sweep *s)
{
    for (size_t i = 0; i < s->n_units; i++) {
        double cost = cost_of_byte(&s->units[i]);
        size_t at = i;

        for (; at > 0 && cost_of_byte(&s->units[s->order[at - 1]]) < cost; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

void fp8q_sweep_split(const struct fp8q_sweep *s, size_t n_kept, uint64_t *bytes_out,
                      double *kld_out)
{
    uint64_t bytes = s->source_bytes;
    double kld = 0;

    for (size_t i = n_kept; i < s->n_units; i++) {
        bytes -= s->units[s->order[i]].bytes_saved;
        kld += s->units[s->order[i]].kld;
    }

    *bytes_out = bytes;
    *kld_out = kld;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* The split that keeps the first @n_kept, run as a whole; *@se_out may be NULL.  */
static int measure_split(const struct fp8q_sweep_job *job, size_t n_kept, double *kld_out,
                         double *se_out, struct fp8q_error *err)
{
    struct fp8q_sweep *s = job->sweep;
    bool *flags = fp8q_array((uint64_t)job->model->n_layers * FP8Q_N_LINEARS, sizeof(*flags));
    if (!flags)
        return fp8q_fail_nomem(err);
    /* Flags begin as false, which is "keep".  */
    for (size_t i = n_kept; i < s->n_units; i++)
        fp8q_sweep_flags(&s->units[s->order[i]], flags);

    /* Both sides of the evaluation are the source; one rounds the flagged weights as it reads.  */
    struct fp8q_eval_options options = {.acts = job->options->acts,
                                        .round = flags,
                                        .round_fmt = job->options->fmt,
                                        .n_threads = job->options->n_threads,
                                        .kernel = job->options->kernel,
                                        .watch = job->options->watch};
    struct fp8q_eval e;
    int status = fp8q_eval_run(job->model, job->model, job->inputs, &options, &e, err);
    free(flags);
    FP8Q_TRY(status);

    *kld_out = e.rows[FP8Q_EVAL_OUTPUT].kld;
    if (se_out)
        *se_out = e.rows[FP8Q_EVAL_OUTPUT].kld_se;
    s->tokens = e.rows[FP8Q_EVAL_OUTPUT].tokens;
    fp8q_eval_reset(&e);
    return FP8Q_OK;
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* Fewest units to keep so that the prediction times @correction is within the KLD budget, and at
 * least @from.  */
static size_t choose(const struct fp8q_sweep *s, double budget, double correction, size_t from)
{
    for (size_t n = from; n < s->n_units; n++) {
        uint64_t bytes;
        double kld;

        fp8q_sweep_split(s, n, &bytes, &kld);
        if (kld * correction <= budget)
            return n;
    }
    /* Everything kept is the source itself, whose KLD is 0.  */
    return s->n_units;
}

/* The KLD budget: predict, measure, and keep more as long as the measurement is beyond it.  */
static int choose_by_kld(const struct fp8q_sweep_job *job, struct fp8q_error *err)
{
    struct fp8q_sweep *s = job->sweep;
    double budget = job->options->budget_kld;
    double correction = s->sum_kld > 0 ? s->all_kld / s->sum_kld : 1;

    for (size_t from = 0;;) {
        s->n_kept = choose(s, budget, correction, from);
        fp8q_sweep_split(s, s->n_kept, &s->chosen_bytes, &s->chosen_predicted);
        /* Nothing kept is "all", which was measured before any budget was looked at.  */
        if (s->n_kept == 0)
            s->chosen_kld = s->all_kld;
        else
            FP8Q_TRY(measure_split(job, s->n_kept, &s->chosen_kld, NULL, err));

        s->met = s->chosen_kld <= budget;
        if (s->met || s->n_kept == s->n_units)
            return FP8Q_OK;

        /* Learn from the miss, so that the next step need not be a single unit.  */
        from = s->n_kept + 1;
        correction = fmax(correction, s->chosen_kld / s->chosen_predicted);
    }
}

/* The size budget: keep as much as fits; "all" where nothing does.  */
static int choose_by_bytes(const struct fp8q_sweep_job *job, struct fp8q_error *err)
{
    struct fp8q_sweep *s = job->sweep;

    for (size_t n = 1; n <= s->n_units; n++) {
        uint64_t bytes;
        double kld;

        fp8q_sweep_split(s, n, &bytes, &kld);
        /* Sizes only grow with @n: what comes after does not fit either.  */
        if (bytes > job->options->budget_bytes)
            break;
        s->n_kept = n;
    }

    fp8q_sweep_split(s, s->n_kept, &s->chosen_bytes, &s->chosen_predicted);
    s->met = s->chosen_bytes <= job->options->budget_bytes;

    /* With nothing kept the KLD stays that of "all", set by fp8q_split_choose().  */
    return s->n_kept ? measure_split(job, s->n_kept, &s->chosen_kld, NULL, err) : FP8Q_OK;
}

int fp8q_split_choose(const struct fp8q_sweep_job *job, struct fp8q_error *err)
{
    struct fp8q_sweep *s = job->sweep;

    /* Without a budget "all quantized" is the choice.  */
    sort_units(s);
    FP8Q_TRY(measure_split(job, 0, &s->all_kld, &s->all_se, err));
    fp8q_sweep_split(s, 0, &s->chosen_bytes, &s->chosen_predicted);
    s->chosen_kld = s->all_kld;
    s->met = true;

    if (job->options->budget_kld >= 0)
        FP8Q_TRY(choose_by_kld(job, err));
    else if (job->options->budget_bytes > 0)
        FP8Q_TRY(choose_by_bytes(job, err));

    for (size_t i = s->n_kept; i < s->n_units; i++)
        s->units[s->order[i]].quantized = true;
    return FP8Q_OK;
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Calls @each with the name of every module that the chosen split keeps.  */
static void each_kept(const struct fp8q_sweep *s, const struct fp8q_model *model,
                      void (*each)(void *ctx, const char *name), void *ctx)
{
    for (size_t u = 0; u < s->n_units; u++) {
        const struct fp8q_sweep_unit *unit = &s->units[u];
        if (unit->quantized)
            continue;

        for (uint32_t layer = unit->first_layer; layer <= unit->last_layer; layer++)
            for (int i = 0; i < FP8Q_N_LINEARS; i++) {
                struct fp8q_name name;
                enum fp8q_linear linear = (enum fp8q_linear)i;
                /* Parts of a fused weight are one module on disk, named once.  */
                if (unit->linears >> i & 1 && !fp8q_linear_is_rest(model, linear) &&
                    fp8q_linear_exists(model, layer, linear))
                    each(ctx, fp8q_linear_name(model, layer, linear, "", &name));
            }
    }
}

static void add_line(void *ctx, const char *name)
{
    fp8q_text_printf(ctx, "%s\n", name);
}

static void add_item(void *ctx, const char *name)
{
    fp8q_jsonw_string(ctx, NULL, name);
}

int fp8q_sweep_ignore(const struct fp8q_sweep *s, const struct fp8q_model *model,
                      struct fp8q_text *out, struct fp8q_error *err)
{
    each_kept(s, model, add_line, out);
    return fp8q_text_status(out, err);
}

static void unit_json(const struct fp8q_sweep_unit *u, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", u->name);
    fp8q_jsonw_number(w, "kld", u->kld);
    fp8q_jsonw_number(w, "kld_se", u->kld_se);
    fp8q_jsonw_uint(w, "bytes_saved", u->bytes_saved);
    fp8q_jsonw_bool(w, "quantized", u->quantized);
    fp8q_jsonw_close(w, '}');
}

static void split_json(const struct fp8q_sweep *s, size_t n_kept, struct fp8q_jsonw *w)
{
    uint64_t bytes;
    double kld;
    fp8q_sweep_split(s, n_kept, &bytes, &kld);

    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_uint(w, "kept", n_kept);
    fp8q_jsonw_string(w, "last_kept", n_kept ? s->units[s->order[n_kept - 1]].name : NULL);
    fp8q_jsonw_uint(w, "bytes", bytes);
    fp8q_jsonw_number(w, "kld", kld);
    fp8q_jsonw_close(w, '}');
}

void fp8q_sweep_json(const struct fp8q_sweep *s, const struct fp8q_model *model,
                     struct fp8q_jsonw *w)
{
    fp8q_jsonw_uint(w, "tokens", s->tokens);
    fp8q_jsonw_uint(w, "source_bytes", s->source_bytes);

    fp8q_jsonw_open(w, "units", '[');
    for (size_t i = 0; i < s->n_units; i++)
        unit_json(&s->units[i], w);
    fp8q_jsonw_close(w, ']');

    fp8q_jsonw_open(w, "splits", '[');
    for (size_t n = 0; n <= s->n_units; n++)
        split_json(s, n, w);
    fp8q_jsonw_close(w, ']');

    fp8q_jsonw_open(w, "all", '{');
    fp8q_jsonw_number(w, "predicted", s->sum_kld);
    fp8q_jsonw_number(w, "measured", s->all_kld);
    fp8q_jsonw_number(w, "se", s->all_se);
    fp8q_jsonw_close(w, '}');

    fp8q_jsonw_open(w, "chosen", '{');
    fp8q_jsonw_uint(w, "kept", s->n_kept);
    fp8q_jsonw_uint(w, "bytes", s->chosen_bytes);
    fp8q_jsonw_number(w, "predicted", s->chosen_predicted);
    fp8q_jsonw_number(w, "measured", s->chosen_kld);
    fp8q_jsonw_bool(w, "met", s->met);
    fp8q_jsonw_open(w, "ignore", '[');
    each_kept(s, model, add_item, w);
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}
