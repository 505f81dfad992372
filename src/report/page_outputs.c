/* SPDX-License-Identifier: Apache-2.0
 *
 * page_outputs.c - what the outputs lose, what leaving modules unquantized would buy, and what the
 * gate decided.
 */
#include <math.h>
#include <stdio.h>

#include "report/internal.h"
#include "report/markup.h"
#include "report/plots.h"
#include "report/table.h"

/* ---- eval ------------------------------------------------------------------------------------ */

static void write_rows(const struct fp8q_result_eval *e, struct fp8q_text *t)
{
    fp8q_table_open(t, "KL divergence from the source, in nats a token (\xC2\xB1 95 %)",
                    "comparison|#mean|#median|#95 %|#99 %|#99.9 %|#largest");
    for (size_t i = 0; i < FP8Q_RESULT_ROWS; i++) {
        const struct fp8q_result_row *r = &e->rows[i];
        if (!r->there)
            continue;
        fp8q_row_text(t, r->name);
        fp8q_cell_interval(t, r->mean, r->se);
        fp8q_cell_number(t, 4, r->median);
        fp8q_cell_number(t, 4, r->p95);
        fp8q_cell_number(t, 4, r->p99);
        fp8q_cell_number(t, 4, r->p999);
        fp8q_cell_number(t, 4, r->max);
    }
    fp8q_table_close(t);

    fp8q_table_open(t, "Choices and likelihood",
                    "comparison|#same first choice, %|#clear choices changed|#perplexity of the "
                    "source|#of the output|#change of ln(perplexity)");
    for (size_t i = 0; i < FP8Q_RESULT_ROWS; i++) {
        const struct fp8q_result_row *r = &e->rows[i];
        if (!r->there)
            continue;
        fp8q_row_text(t, r->name);
        fp8q_cell_interval(t, 100 * r->top1, 100 * r->top1_se);
        fp8q_cell_count(t, r->flips);
        fp8q_cell_number(t, 5, r->ppl_source);
        fp8q_cell_number(t, 5, r->ppl_output);
        fp8q_cell_interval(t, r->dln, r->dln_se);
    }
    fp8q_table_close(t);
}

enum { MOST_PARTS = 5000 };

static void write_parts(const struct fp8q_result_parts *parts, const char *caption,
                        const char *headings, struct fp8q_text *t)
{
    if (parts->count == 0)
        return;

    fp8q_table_open(t, caption, headings);
    for (size_t i = 0; i < parts->count && i < MOST_PARTS; i++) {
        const struct fp8q_result_part *p = &parts->items[i];
        fp8q_text_printf(t, "\n<tr><th scope=\"row\">%llu", (unsigned long long)p->key);
        fp8q_cell_count(t, p->tokens);
        fp8q_cell_number(t, 4, p->kld);
        fp8q_cell_share(t, p->top1);
    }
    fp8q_table_close(t);
}

/* Kinds of tokens and of samples: few, each with its number of samples and its interval.  */
static void write_kinds(const struct fp8q_result_parts *parts, bool modality, struct fp8q_text *t)
{
    if (parts->count == 0)
        return;

    fp8q_table_open(
        t, modality ? "By kind of token" : "By category of sample",
        modality ? "tokens of|#samples|#tokens|#KLD, nats (\xC2\xB1 95 %)|#same first choice"
                 : "category|#samples|#tokens|#KLD, nats (\xC2\xB1 95 %)|#same first choice");
    for (size_t i = 0; i < parts->count && i < MOST_PARTS; i++) {
        const struct fp8q_result_part *p = &parts->items[i];
        const char *unnamed = modality ? fp8q_modality_name(p->key) : "(none)";
        fp8q_row_text(t, *p->name ? p->name : unnamed);
        fp8q_cell_count(t, p->samples);
        fp8q_cell_count(t, p->tokens);
        fp8q_cell_interval(t, p->kld, p->kld_se);
        fp8q_cell_share(t, p->top1);
    }
    fp8q_table_close(t);
}

/* Inputs of a policy's backbone, which predict nothing: what its layers leave is all there is.  */
static void write_states(const struct fp8q_result_eval *e, struct fp8q_text *t)
{
    fp8q_text_puts(t, "<p class=\"note\">The inputs predict no token, as those of a policy's "
                      "backbone: what was measured is how far the states of its layers are "
                      "off.</p>\n<div class=\"plots\">\n");
    fp8q_plot_layers(e, t);
    fp8q_text_puts(t, "</div>\n");
}

static void write_eval(const struct fp8q_result_eval *e, struct fp8q_text *t)
{
    if (e->tokens == 0) {
        write_states(e, t);
        return;
    }

    fp8q_text_puts(t, "<p>");
    fp8q_put_count(t, e->tokens);
    fp8q_text_puts(t, " tokens scored");
    if (*e->dataset) {
        fp8q_text_puts(t, " of <strong>");
        fp8q_put_html(t, e->dataset);
        fp8q_text_puts(t, "</strong>");
    }
    fp8q_text_puts(t, ", activations ");
    fp8q_put_html(t, e->acts);
    if (*e->stack) {
        fp8q_text_puts(t, ", stack ");
        fp8q_put_html(t, e->stack);
    }
    fp8q_text_puts(t, ". The floor is what quantizing activations alone costs: no choice of "
                      "weights can go below it.</p>\n");
    if (*e->differences) {
        fp8q_text_puts(t, "<p class=\"note\">The two networks differ by their config.json: ");
        fp8q_put_html(t, e->differences);
        fp8q_text_puts(t, "</p>\n");
    }

    fp8q_text_puts(t, "<div class=\"plots\">\n");
    fp8q_plot_quantiles(e, t);
    fp8q_plot_positions(e, t);
    fp8q_plot_samples(e, t);
    fp8q_plot_layers(e, t);
    fp8q_text_puts(t, "</div>\n");

    write_rows(e, t);
    write_kinds(&e->modalities, true, t);
    write_kinds(&e->categories, false, t);
    fp8q_text_puts(t,
                   "<details><summary>By position and by sample</summary>\n<div class=\"pair\">");
    write_parts(&e->positions, "By position in the sample",
                "#from position|#tokens|#KLD, nats|#same first choice", t);
    write_parts(&e->samples, "By sample", "#sample|#tokens|#KLD, nats|#same first choice", t);
    fp8q_text_puts(t, "</div></details>\n");
}

void fp8q_page_outputs(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_section_open(t, "outputs", "What the outputs lose");
    if (f->results.eval.there)
        write_eval(&f->results.eval, t);
    else
        fp8q_text_puts(t, "<p class=\"note\">Not measured. <code>fp8q eval SRC DST --text FILE "
                          "--decompose -o eval.json</code>, then <code>fp8q report DST --eval "
                          "eval.json</code>.</p>\n");
    fp8q_section_close(t);
}

/* ---- sweep, compare, drift, calibration ------------------------------------------------------ */

static void write_sweep(const struct fp8q_result_sweep *s, struct fp8q_text *t)
{
    fp8q_table_open(t, "What each module costs",
                    "module|#its KLD, nats|#saves|in the chosen split");
    for (size_t i = 0; i < s->n_units; i++) {
        fp8q_row_text(t, s->units[i].name);
        fp8q_cell_interval(t, s->units[i].kld, s->units[i].kld_se);
        fp8q_cell_bytes(t, s->units[i].bytes_saved);
        fp8q_cell_text(t, s->units[i].quantized ? "FP8" : "kept");
    }
    fp8q_table_close(t);
}

static void write_compare(const struct fp8q_result_compare *c, struct fp8q_text *t)
{
    fp8q_table_open(
        t, "The same weights in other formats",
        "format|one scale for each|#SQNR, dB|#relative error|#RMSE|#size|#of the source");
    for (size_t i = 0; i < c->count; i++) {
        const struct fp8q_result_format *r = &c->rows[i];
        fp8q_row_text(t, r->format);
        fp8q_cell_text(t, r->granularity);
        fp8q_cell_decibels(t, r->sqnr);
        fp8q_cell_share(t, r->relative);
        fp8q_cell_number(t, 4, r->rmse);
        fp8q_cell_bytes(t, r->bytes);
        fp8q_cell_share(t, fp8q_share(r->bytes, c->source_bytes));
    }
    fp8q_table_close(t);
    fp8q_text_puts(t,
                   "<p class=\"small\">Error of weights alone: it ranks recipes for what a model "
                   "loses wrongly, and is here for comparison of formats.</p>\n");
}

static void write_drift(const struct fp8q_result_drift *d, struct fp8q_text *t)
{
    fp8q_text_printf(t, "<p>%s: ",
                     d->stale ? "<span class=\"mark bad\">stale</span> The inputs have moved"
                              : "<span class=\"mark good\">not stale</span>");
    fp8q_put_count(t, d->n_moved);
    fp8q_text_puts(t, " of ");
    fp8q_put_count(t, d->count);
    fp8q_text_puts(t, " linear inputs beyond the limits");
    if (isfinite(d->mix))
        fp8q_text_printf(t, ", mix of tokens by %.2f", d->mix);
    fp8q_text_puts(t, ".</p>\n");

    fp8q_text_puts(t, "<details><summary>Every linear input</summary>\n");
    fp8q_table_open(t, "Change of inputs",
                    "linear input|#log2 RMS|#log2 largest|#overlap of top channels|#shift of tile "
                    "maxima|#channels|moved");
    for (size_t i = 0; i < d->count; i++) {
        const struct fp8q_result_site *s = &d->sites[i];
        fp8q_row_code(t, s->name);
        fp8q_cell_number(t, 3, s->rms);
        fp8q_cell_number(t, 3, s->absmax);
        fp8q_cell_number(t, 3, s->overlap);
        fp8q_cell_number(t, 3, s->hist);
        fp8q_cell_number(t, 3, s->channels);
        fp8q_cell_text(t, s->moved ? "moved" : "");
    }
    fp8q_table_close(t);
    fp8q_text_puts(t, "</details>\n");
}

static void write_calibration(const struct fp8q_calib *c, struct fp8q_text *t)
{
    fp8q_text_puts(t, "<p>Calibration: ");
    fp8q_put_count(t, c->meta.n_tokens);
    fp8q_text_puts(t, " tokens of ");
    fp8q_put_count(t, c->meta.n_samples);
    fp8q_text_puts(t, " samples");
    if (c->meta.dataset[0]) {
        fp8q_text_puts(t, " of ");
        fp8q_put_html(t, c->meta.dataset);
    }
    fp8q_text_puts(t, " at ");
    fp8q_put_count(t, c->n_sites);
    fp8q_text_puts(t, " linear inputs.</p>\n");
}

void fp8q_page_choices(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_measurements *r = &f->results;

    if (r->sweep.there) {
        fp8q_section_open(t, "sweep", "What leaving modules unquantized would buy");
        fp8q_text_puts(t, "<div class=\"pair\">\n");
        fp8q_plot_front(&r->sweep, t);
        write_sweep(&r->sweep, t);
        fp8q_text_puts(t, "</div>\n");
        fp8q_section_close(t);
    }

    if (r->compare.there) {
        fp8q_section_open(t, "formats", "FP8, INT8 and INT4");
        fp8q_text_puts(t, "<div class=\"plots\">\n");
        fp8q_plot_formats(&r->compare, t);
        fp8q_text_puts(t, "</div>\n");
        write_compare(&r->compare, t);
        fp8q_section_close(t);
    }

    if (r->drift.there || r->has_calibration) {
        fp8q_section_open(t, "inputs", "Inputs");
        fp8q_text_puts(t, "<div class=\"plots\">\n");
        fp8q_plot_inputs(r, t);
        fp8q_plot_drift(&r->drift, t);
        fp8q_text_puts(t, "</div>\n");
        if (r->has_calibration)
            write_calibration(&r->calibration, t);
        if (r->drift.there)
            write_drift(&r->drift, t);
        fp8q_section_close(t);
    }
}

/* ---- gate ------------------------------------------------------------------------------------ */

void fp8q_page_gate(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_result_gate *g = &f->results.gate;
    if (!g->there)
        return;

    fp8q_section_open(t, "gate", "Gate");
    fp8q_text_puts(t, "<div class=\"plots\">\n");
    fp8q_plot_gate(g, t);
    fp8q_text_puts(t, "</div>\n");

    fp8q_table_open(t, "Checks of the gate",
                    "check|verdict|what it found|#observed|#low|#high|#limit|#items");
    for (size_t i = 0; i < g->count; i++) {
        const struct fp8q_result_check *c = &g->checks[i];
        fp8q_row_text(t, c->id);
        fp8q_cell_status(t, c->status);
        fp8q_cell_prose(t, c->message);
        fp8q_cell_number(t, 4, c->observed);
        fp8q_cell_number(t, 4, c->low);
        fp8q_cell_number(t, 4, c->high);
        fp8q_cell_number(t, 4, c->limit);
        if (c->n)
            fp8q_cell_count(t, c->n);
        else
            fp8q_cell_text(t, "");
    }
    fp8q_table_close(t);
    fp8q_section_close(t);
}
