/* SPDX-License-Identifier: Apache-2.0
 *
 * page_weights.c - what the FP8 weights look like: noise, use of the grid, scales, blocks.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "report/internal.h"
#include "report/markup.h"
#include "report/plots.h"
#include "report/table.h"

static void write_sentence(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_value_figures *v = &f->values.total;

    fp8q_text_puts(t, "<p>");
    fp8q_put_count(t, v->n_values);
    fp8q_text_puts(t, " FP8 values and ");
    fp8q_put_count(t, v->n_scales);
    fp8q_text_puts(t, " scales. <strong>");
    fp8q_put_share(t, fp8q_share(v->saturated, v->n_values));
    fp8q_text_puts(t, "</strong> stand at the end of the grid, \xC2\xB1"
                      "448: one in each block at least, since that is where its scale comes from.");
    if (v->n_compared) {
        fp8q_text_puts(t, " <strong>");
        fp8q_put_share(t, fp8q_share(v->underflowed, v->n_compared));
        fp8q_text_puts(t, "</strong> became zero and were not zero in the source.");
    }
    if (f->proof.n_sqnr && isfinite(f->proof.sqnr_mean))
        fp8q_text_printf(t,
                         " Signal to noise: <strong>%.2f dB</strong> in the mean of %zu tensor%s.",
                         f->proof.sqnr_mean, f->proof.n_sqnr, fp8q_plural(f->proof.n_sqnr));
    fp8q_text_puts(t, "</p>\n");
}

/* ---- tables of weights ----------------------------------------------------------------------- */

static void write_weight(const struct fp8q_facts_tensor *w, struct fp8q_text *t)
{
    const struct fp8q_value_figures *v = w->values;
    fp8q_row_code(t, w->tensor->name);
    fp8q_cell_shape(t, w->tensor->shape, w->tensor->ndim);
    fp8q_cell_decibels(t, w->sqnr);

    if (!v) /* its scales were not understood */
        return;
    fp8q_cell_share(t, fp8q_share(v->saturated, v->n_values));
    fp8q_cell_share(t, fp8q_share(v->underflowed, v->n_compared));
    fp8q_cell_number(t, 3, v->scale_min);
    fp8q_cell_number(t, 3, v->scale_max);
}

#define WEIGHT_HEADINGS                                                                            \
    "weight|#shape|#SQNR, dB|#at \xC2\xB1"                                                         \
    "448|#became zero|#least scale|#largest scale"

static int compare_noise(const void *a, const void *b)
{
    const struct fp8q_facts_tensor *x = *(const struct fp8q_facts_tensor *const *)a;
    const struct fp8q_facts_tensor *y = *(const struct fp8q_facts_tensor *const *)b;

    /* Unknown noise goes to the end; the order of names settles the rest.  */
    if (isnan(x->sqnr) != isnan(y->sqnr))
        return isnan(x->sqnr) ? 1 : -1;
    if (x->sqnr != y->sqnr && !isnan(x->sqnr))
        return x->sqnr < y->sqnr ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* FP8 weights, the noisiest first.  NULL without memory.  */
static const struct fp8q_facts_tensor **sorted_weights(const struct fp8q_facts *f)
{
    const struct fp8q_facts_tensor **order = fp8q_array(f->n_quantized, sizeof(*order));
    size_t n = 0;

    for (size_t i = 0; order && i < f->n_tensors; i++)
        if (!f->tensors[i].reason)
            order[n++] = &f->tensors[i];
    if (order && n)
        qsort(order, n, sizeof(*order), compare_noise);
    return order;
}

static void write_weights(const struct fp8q_facts *f, const struct fp8q_facts_tensor **order,
                          struct fp8q_text *t)
{
    enum { WORST = 10, MOST = 10000 };
    size_t worst = fp8q_min_size(f->n_quantized, WORST);

    fp8q_table_open(t, f->proof.n_sqnr ? "Noisiest FP8 weights" : "First FP8 weights",
                    WEIGHT_HEADINGS);
    for (size_t i = 0; i < worst; i++)
        write_weight(order[i], t);
    fp8q_table_close(t);
    if (f->n_quantized <= WORST)
        return;

    /* Closed, so that a browser lays out ten thousand rows only for those who ask.  */
    fp8q_text_puts(t, "<details><summary>All ");
    fp8q_put_count(t, f->n_quantized);
    fp8q_text_puts(t, " FP8 weights");
    if (f->n_quantized > MOST)
        fp8q_text_puts(t, " (the 10,000 noisiest)");
    fp8q_text_puts(t, "</summary>\n");
    fp8q_table_open(t, "All FP8 weights", WEIGHT_HEADINGS);
    for (size_t i = 0; i < f->n_quantized && i < MOST; i++)
        write_weight(order[i], t);
    fp8q_table_close(t);
    fp8q_text_puts(t, "</details>\n");
}

void fp8q_page_weights(const struct fp8q_facts *f, struct fp8q_text *t)
{
    if (f->n_quantized == 0)
        return;

    const struct fp8q_facts_tensor **order = sorted_weights(f);
    t->failed = t->failed || !order;
    fp8q_section_open(t, "weights", "Weights");
    write_sentence(f, t);

    fp8q_text_puts(t, "<div class=\"plots\">\n");
    fp8q_plot_noise(f, t);
    fp8q_plot_exponents(f, t);
    fp8q_plot_scales(f, t);
    fp8q_plot_blocks(f, t);
    fp8q_text_puts(t, "</div>\n");
    if (!f->request.source)
        fp8q_text_puts(t,
                       "<p class=\"note\">Noise and underflow need the source: <code>fp8q report "
                       "DST --source SRC</code>.</p>\n");

    if (order)
        write_weights(f, order, t);
    else
        t->failed = true;
    fp8q_section_close(t);
    free(order);
}

/* ---- the rest -------------------------------------------------------------------------------- */

void fp8q_page_tensors(const struct fp8q_facts *f, struct fp8q_text *t)
{
    enum { MOST = 5000 };
    size_t n = 0, total = f->n_tensors - f->n_quantized;
    if (total == 0)
        return;

    fp8q_text_puts(t, "<details><summary>All ");
    fp8q_put_count(t, total);
    fp8q_text_puts(t, " tensors that are not FP8");
    if (total > MOST)
        fp8q_text_puts(t, " (the first 5,000)");
    fp8q_text_puts(t, "</summary>\n");

    fp8q_table_open(t, "Tensors that are not FP8", "tensor|type|#shape|#size|reason");
    for (size_t i = 0; i < f->n_tensors && n < MOST; i++) {
        const struct fp8q_facts_tensor *x = &f->tensors[i];
        if (!x->reason)
            continue;
        n++;
        fp8q_row_code(t, x->tensor->name);
        fp8q_cell_text(t, fp8q_dtype_name(x->tensor->dtype));
        fp8q_cell_shape(t, x->tensor->shape, x->tensor->ndim);
        fp8q_cell_bytes(t, x->tensor->size_bytes);
        fp8q_cell_text(t, x->reason);
    }
    fp8q_table_close(t);
    fp8q_text_puts(t, "</details>\n");
}
