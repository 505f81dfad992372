/* SPDX-License-Identifier: Apache-2.0
 *
 * plots.c - which figures stand on which axes.
 */
#include "report/plots.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "report/internal.h"
#include "report/markup.h"
#include "report/svg.h"

/* Colours of series: classes c0, c1, ... of the style sheet.  */
enum { SERIES = 8 };

/* An axis from nothing: raise_axis() widens it to what it has to show.  */
static struct fp8q_axis empty_axis(const char *label, bool log)
{
    return (struct fp8q_axis){label, INFINITY, -INFINITY, log, FP8Q_TICKS_PLAIN};
}

static void raise_axis(struct fp8q_axis *a, double value)
{
    if (!isfinite(value) || (a->log && value <= 0))
        return;
    a->low = fmin(a->low, value);
    a->high = fmax(a->high, value);
}

/* "2" and a raised number.  */
struct power {
    char text[40];
};
static const char *power_of_two(struct power *buf, int exponent)
{
    static const char *const raised[] = {
        "\xE2\x81\xB0", "\xC2\xB9",     "\xC2\xB2",     "\xC2\xB3",     "\xE2\x81\xB4",
        "\xE2\x81\xB5", "\xE2\x81\xB6", "\xE2\x81\xB7", "\xE2\x81\xB8", "\xE2\x81\xB9"};
    int size = abs(exponent);
    snprintf(buf->text, sizeof(buf->text), "2%s%s%s", exponent < 0 ? "\xE2\x81\xBB" : "",
             size > 9 ? raised[size / 10 % 10] : "", raised[size % 10]);
    return buf->text;
}

/* Few bars do not become walls.  */
static double room_of(size_t n_bars)
{
    return fmax((double)n_bars, 6);
}

/* Bars of one series, side by side from 0 on.  */
static void draw_bar(const struct fp8q_plot *p, size_t i, double value, const char *tip)
{
    const double x[2] = {(double)i + 0.1, (double)i + 0.9}, y[2] = {p->y.low, value};
    fp8q_plot_box(p, x, y, "bar", tip);
}

/* ---- KLD ------------------------------------------------------------------------------------- */

/* One comparison: a line from the median to the maximum, with marks where the quantiles are.  */
static void draw_quantiles(const struct fp8q_plot *p, const struct fp8q_result_row *r, double at)
{
    const double values[] = {r->median, r->p95, r->p99, r->p999, r->max};
    static const char *const names[] = {"median", "95 %", "99 %", "99.9 %", "largest"};
    const double y[2] = {at, at}, line[2] = {r->median, r->max};
    const double error[2] = {r->mean - FP8Q_95 * r->se, r->mean + FP8Q_95 * r->se};
    char tip[80];

    if (isfinite(line[0]) && isfinite(line[1]))
        fp8q_plot_rule(p, line, y, "rule");
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        snprintf(tip, sizeof(tip), "%s: %.4g nats", names[i], values[i]);
        fp8q_plot_dot(p, values[i], at, "dot0", tip);
    }

    if (isfinite(error[0]))
        fp8q_plot_rule(p, error, y, "wide");
    snprintf(tip, sizeof(tip), "mean: %.4g nats", r->mean);
    fp8q_plot_dot(p, r->mean, at, "dot1", tip);
}

void fp8q_plot_quantiles(const struct fp8q_result_eval *e, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "KL divergence a token: mean with its 95 % interval (full), and "
                                   "median, 95, 99, 99.9 % and largest (rings)",
                          .x = empty_axis("nats, logarithmic", true),
                          .y = {NULL, 0, 0, false, FP8Q_TICKS_NONE},
                          .left = 130};
    static const char *const labels[] = {"as served", "activations only", "weights only",
                                         "power-of-two scales"};
    if (!e->there)
        return;

    for (size_t i = 0; i < FP8Q_RESULT_ROWS; i++) {
        const struct fp8q_result_row *r = &e->rows[i];
        const double values[] = {r->mean, r->median, r->max, r->mean - FP8Q_95 * r->se};
        for (size_t k = 0; r->there && k < sizeof(values) / sizeof(*values); k++)
            raise_axis(&p.x, values[k]);
        p.y.high += r->there;
    }

    double at = p.y.high;
    p.height = 80 + 36 * at;
    fp8q_plot_open(&p);
    for (size_t i = 0; i < FP8Q_RESULT_ROWS; i++)
        if (e->rows[i].there) {
            at -= 1;
            fp8q_plot_label_y(&p, at + 0.5, labels[i]);
            draw_quantiles(&p, &e->rows[i], at + 0.5);
        }
    fp8q_plot_close(&p);
}

void fp8q_plot_positions(const struct fp8q_result_eval *e, struct fp8q_text *t)
{
    const struct fp8q_result_parts *parts = &e->positions;
    struct fp8q_plot p = {
        .t = t,
        .title = "KL divergence by position in the sample",
        .x = {"first position of the range", 0, room_of(parts->count), false, FP8Q_TICKS_NONE},
        .y = {"nats", 0, 0, false, FP8Q_TICKS_PLAIN}};
    char text[80];
    if (parts->count < 2)
        return;

    for (size_t i = 0; i < parts->count; i++)
        raise_axis(&p.y, parts->items[i].kld);

    fp8q_plot_open(&p);
    for (size_t i = 0; i < parts->count; i++) {
        const struct fp8q_result_part *part = &parts->items[i];
        snprintf(text, sizeof(text), "from %llu: %.4g nats, %llu token%s",
                 (unsigned long long)part->key, part->kld, (unsigned long long)part->tokens,
                 fp8q_plural(part->tokens));
        draw_bar(&p, i, part->kld, text);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)part->key);
        fp8q_plot_label_x(&p, (double)i + 0.5, text);
    }
    fp8q_plot_close(&p);
}

static int compare_kld(const void *a, const void *b)
{
    double x = (*(const struct fp8q_result_part *const *)a)->kld;
    double y = (*(const struct fp8q_result_part *const *)b)->kld;
    return (x < y) - (x > y);
}

void fp8q_plot_samples(const struct fp8q_result_eval *e, struct fp8q_text *t)
{
    enum { MOST = 200 }; /* bars that a phone can tell apart, and more */
    const struct fp8q_result_parts *parts = &e->samples;
    size_t n = fp8q_min_size(parts->count, MOST);
    struct fp8q_plot p = {.t = t,
                          .title = "KL divergence by sample, the worst first",
                          .x = {parts->count > MOST ? "the 200 worst samples" : "samples", 0,
                                room_of(n), false, FP8Q_TICKS_NONE},
                          .y = {"nats", 0, 0, false, FP8Q_TICKS_PLAIN}};
    char text[80];
    if (parts->count < 2)
        return;

    const struct fp8q_result_part **order = fp8q_array(parts->count, sizeof(*order));
    t->failed = t->failed || !order;
    for (size_t i = 0; order && i < parts->count; i++)
        order[i] = &parts->items[i];
    if (order)
        qsort(order, parts->count, sizeof(*order), compare_kld);
    raise_axis(&p.y, order ? order[0]->kld : 1);

    fp8q_plot_open(&p);
    for (size_t i = 0; order && i < n; i++) {
        snprintf(text, sizeof(text), "sample %llu: %.4g nats", (unsigned long long)order[i]->key,
                 order[i]->kld);
        draw_bar(&p, i, order[i]->kld, text);
    }
    fp8q_plot_close(&p);
    free(order);
}

void fp8q_plot_layers(const struct fp8q_result_eval *e, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "Relative error of the hidden state after each layer",
                          .x = {"layer", 0, (double)e->n_layers - 1, false, FP8Q_TICKS_WHOLE},
                          .y = {NULL, 0, 0, false, FP8Q_TICKS_PLAIN}};
    struct fp8q_line line = {0};
    if (e->n_layers < 2)
        return;

    for (size_t i = 0; i < e->n_layers; i++)
        raise_axis(&p.y, e->layer_error[i]);

    fp8q_plot_open(&p);
    for (size_t i = 0; i < e->n_layers; i++)
        fp8q_line_to(&p, &line, (double)i, e->layer_error[i], "line c0");
    fp8q_line_end(&p, &line);
    fp8q_plot_close(&p);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Kinds of weights ("q_proj"), in the order of their names in a layer.  */
struct kinds {
    const struct fp8q_facts_tensor *first[SERIES];
    size_t count;
};

static bool same_kind(const struct fp8q_facts_tensor *a, const struct fp8q_facts_tensor *b)
{
    return a->kind_len == b->kind_len && memcmp(a->kind, b->kind, a->kind_len) == 0;
}

static bool has_noise(const struct fp8q_facts_tensor *t)
{
    return isfinite(t->sqnr) && t->layer != UINT64_MAX;
}

/* Beyond the colours there are, kinds share the last one.  */
static size_t kind_of(struct kinds *kinds, const struct fp8q_facts_tensor *t)
{
    for (size_t i = 0; i < kinds->count; i++)
        if (same_kind(kinds->first[i], t))
            return i;
    if (kinds->count == SERIES)
        return SERIES - 1;

    kinds->first[kinds->count] = t;
    return kinds->count++;
}

static void draw_kinds(const struct kinds *kinds, struct fp8q_text *t)
{
    fp8q_text_puts(t, "<p class=\"keys\">");
    for (size_t i = 0; i < kinds->count; i++) {
        char *name = strndup(kinds->first[i]->kind, kinds->first[i]->kind_len);
        t->failed = t->failed || !name;
        fp8q_text_printf(t, "<span class=\"key k%zu\">", i);
        fp8q_put_html(t, name ? name : "");
        fp8q_text_puts(t, "</span> ");
        free(name);
    }
    fp8q_text_puts(t, "</p>\n");
}

/* Few dots are marks of their own, with the names of their tensors; thousands are one path a kind,
 * at a tenth of the bytes.  */
enum { NAMED_DOTS = 500 };

static void draw_named(const struct fp8q_facts *f, const struct fp8q_plot *p, struct kinds *kinds)
{
    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct fp8q_facts_tensor *t = &f->tensors[i];
        char style[16];
        if (!has_noise(t))
            continue;

        snprintf(style, sizeof(style), "point c%zu", kind_of(kinds, t));
        fp8q_plot_dot(p, (double)t->layer, t->sqnr, style, t->tensor->name);
    }
}

static void draw_dots(const struct fp8q_facts *f, const struct fp8q_plot *p, struct kinds *kinds)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (has_noise(&f->tensors[i]))
            (void)kind_of(kinds, &f->tensors[i]);

    for (size_t kind = 0; kind < kinds->count; kind++) {
        fp8q_text_printf(p->t, "<path class=\"dots c%zu\" d=\"", kind);
        for (size_t i = 0; i < f->n_tensors; i++) {
            const struct fp8q_facts_tensor *t = &f->tensors[i];
            /* A line of no length, whose ends are round.  */
            if (has_noise(t) && kind_of(kinds, t) == kind)
                fp8q_text_printf(p->t, "M%.1f %.1fh0", fp8q_plot_x(p, (double)t->layer),
                                 fp8q_plot_y(p, t->sqnr));
        }
        fp8q_text_puts(p->t, "\"/>");
    }
}

void fp8q_plot_noise(const struct fp8q_facts *f, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "Signal to quantization noise over depth, by kind of weight",
                          .x = empty_axis("layer", false),
                          .y = empty_axis("dB", false)};
    struct kinds kinds = {0};

    for (size_t i = 0; i < f->n_tensors; i++)
        if (has_noise(&f->tensors[i])) {
            raise_axis(&p.x, (double)f->tensors[i].layer);
            raise_axis(&p.y, f->tensors[i].sqnr);
        }
    if (!isfinite(p.x.low))
        return;

    /* Dots are not to lie on the frame.  */
    double margin = fmax(0.06 * (p.y.high - p.y.low), 0.02);
    p.y.low -= margin;
    p.y.high += 3 * margin;
    p.x.low -= 0.5;
    p.x.high += 0.5;
    p.x.ticks = FP8Q_TICKS_WHOLE;

    fp8q_plot_open(&p);
    if (f->n_quantized <= NAMED_DOTS)
        draw_named(f, &p, &kinds);
    else
        draw_dots(f, &p, &kinds);
    fp8q_text_puts(t, "</svg>\n");
    draw_kinds(&kinds, t);
    fp8q_text_puts(t, "</figure>\n");
}

void fp8q_plot_exponents(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_value_figures *v = &f->values.total;
    struct fp8q_plot p = {
        .t = t,
        .title = "FP8 values by magnitude: how much of the grid is used",
        .x = {"magnitude as stored, before its scale", 0, FP8Q_CODE_BINS, false, FP8Q_TICKS_NONE},
        .y = {"share of values, %", 0, 0, false, FP8Q_TICKS_PLAIN}};
    struct power power;
    char tip[80], label[40];
    if (v->n_values == 0)
        return;

    for (size_t i = 0; i < FP8Q_CODE_BINS; i++)
        raise_axis(&p.y, 100 * (double)v->by_exponent[i] / (double)v->n_values);

    fp8q_plot_open(&p);
    for (size_t i = 0; i < FP8Q_CODE_BINS; i++) {
        double percent = 100 * (double)v->by_exponent[i] / (double)v->n_values;
        if (i < 2)
            snprintf(label, sizeof(label), "%s", i ? "sub" : "0");
        else
            snprintf(label, sizeof(label), "%s", power_of_two(&power, (int)i - 8));

        snprintf(tip, sizeof(tip), "%s%s: %.4g %%", i > 1 ? "from " : "",
                 i == 1 ? "subnormal" : label, percent);
        draw_bar(&p, i, percent, tip);
        /* Labels of all would run into each other.  */
        if (i == 0 || i % 3 == 2)
            fp8q_plot_label_x(&p, (double)i + 0.5, label);
    }
    fp8q_plot_close(&p);
}

/* Bars of a histogram over powers of two; @low is the power of the first bin.  */
static void draw_powers(struct fp8q_plot *p, const uint64_t *bins, size_t n, int low)
{
    size_t first = 0, end = n;
    struct power power;
    char tip[80];

    while (first < n && bins[first] == 0)
        first++;
    while (end > first && bins[end - 1] == 0)
        end--;
    if (first == end)
        return;

    p->x = (struct fp8q_axis){p->x.label, 0, room_of(end - first), false, FP8Q_TICKS_NONE};
    for (size_t i = first; i < end; i++)
        raise_axis(&p->y, (double)bins[i]);

    fp8q_plot_open(p);
    for (size_t i = first; i < end; i++) {
        const char *label = power_of_two(&power, (int)i + low);
        snprintf(tip, sizeof(tip), "from %s: %llu", label, (unsigned long long)bins[i]);
        draw_bar(p, i - first, (double)bins[i], tip);
        if ((i - first) % ((end - first) / 8 + 1) == 0)
            fp8q_plot_label_x(p, (double)(i - first) + 0.5, label);
    }
    fp8q_plot_close(p);
}

void fp8q_plot_scales(const struct fp8q_facts *f, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "Scales by size",
                          .x = {.label = "scale"},
                          .y = {"number", 0, 0, false, FP8Q_TICKS_WHOLE}};
    draw_powers(&p, f->values.by_scale, FP8Q_SCALE_BINS, -FP8Q_SCALE_BINS_LOW);
}

enum { SHADES = 12, SHADE_INFINITE = SHADES };

static int shade_of(const struct fp8q_amax_map *m, float amax)
{
    if (isinf(amax))
        return SHADE_INFINITE;

    double share = 0;
    if (amax > 0 && m->high > m->low)
        share = log((double)(amax / m->low)) / log((double)(m->high / m->low));
    return (int)fmin(share * SHADES, SHADES - 1);
}

/* One path a shade, so that a cell costs a few bytes.  */
static void draw_cells(const struct fp8q_amax_map *m, double size, struct fp8q_text *t)
{
    for (int shade = 0; shade <= SHADE_INFINITE; shade++) {
        bool any = false;
        for (uint64_t i = 0; i < m->rows * m->cols; i++) {
            uint64_t row = i / m->cols, col = i % m->cols;
            if (shade_of(m, fp8q_amax_map_cell(m, row, col)) != shade)
                continue;

            if (!any)
                fp8q_text_printf(t, "<path class=\"h%d\" d=\"", shade);
            any = true;
            fp8q_text_printf(t, "M%.4g %.4gh%.4gv%.4gh-%.4gz", (double)col * size,
                             (double)row * size, size, size, size);
        }
        fp8q_text_puts(t, any ? "\"/>" : "");
    }
}

static void write_ramp(const struct fp8q_statistics *s, const struct fp8q_amax_map *m,
                       struct fp8q_text *t)
{
    fp8q_text_printf(
        t,
        "<p class=\"keys\">%.3g <span class=\"ramp\"></span> %.3g, logarithmic; %llu by "
        "%llu blocks of 128 by 128, rows down, columns across",
        (double)m->low, (double)m->high, (unsigned long long)s->grid_rows,
        (unsigned long long)s->grid_cols);

    if (m->rows < s->grid_rows || m->cols < s->grid_cols)
        fp8q_text_puts(t, "; several share a cell, the largest shows");
    if (s->n_nonfinite)
        fp8q_text_printf(t, "; NaN or infinite: %llu values, and red where a block has an infinity",
                         (unsigned long long)s->n_nonfinite);
    fp8q_text_puts(t, "</p>");
}

void fp8q_plot_blocks(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_statistics *s = &f->looked_at;
    struct fp8q_amax_map m = fp8q_amax_map_of(s, FP8Q_MAP_MOST, FP8Q_MAP_MOST);
    if (!f->map_tensor)
        return;

    /* As large as the drawing allows, without making a few blocks into a wall.  */
    double size = fmin(460.0 / (double)m.cols, 46);
    fp8q_text_puts(t,
                   "<figure class=\"plot\"><figcaption>Largest magnitude of each block of <code>");
    fp8q_put_html(t, f->map_tensor);
    fp8q_text_puts(t, "</code></figcaption>\n");
    fp8q_text_printf(t,
                     "<svg class=\"heat\" viewBox=\"0 0 460 %.1f\" role=\"img\" aria-label=\"Heat "
                     "map of %llu by %llu blocks, from %.4g to %.4g\">",
                     size * (double)m.rows + 4, (unsigned long long)s->grid_rows,
                     (unsigned long long)s->grid_cols, (double)m.low, (double)m.high);

    draw_cells(&m, size, t);
    fp8q_text_puts(t, "</svg>\n");
    write_ramp(s, &m, t);
    fp8q_text_puts(t, "</figure>\n");
}

/* ---- sweep, compare, gate, drift, calibration ------------------------------------------------ */

void fp8q_plot_front(const struct fp8q_result_sweep *s, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "What a byte buys: splits from all quantized to none",
                          .x = empty_axis("size of all tensors", false),
                          .y = {"KL divergence, nats", 0, 0, false, FP8Q_TICKS_PLAIN}};
    struct fp8q_line line = {0};
    char tip[160];
    if (!s->there || s->n_splits < 2)
        return;

    p.x.ticks = FP8Q_TICKS_BYTES;
    for (size_t i = 0; i < s->n_splits; i++) {
        raise_axis(&p.x, (double)s->splits[i].bytes);
        raise_axis(&p.y, s->splits[i].kld);
    }
    raise_axis(&p.y, s->all_measured);

    fp8q_plot_open(&p);
    for (size_t i = 0; i < s->n_splits; i++)
        fp8q_line_to(&p, &line, (double)s->splits[i].bytes, s->splits[i].kld, "line c0");
    fp8q_line_end(&p, &line);

    for (size_t i = 0; i < s->n_splits && s->n_splits <= 200; i++) {
        snprintf(tip, sizeof(tip), "%llu kept%s%.64s: %.4g nats",
                 (unsigned long long)s->splits[i].kept, s->splits[i].last_kept ? ", last " : "",
                 s->splits[i].last_kept ? s->splits[i].last_kept : "", s->splits[i].kld);
        fp8q_plot_dot(&p, (double)s->splits[i].bytes, s->splits[i].kld, "dot0", tip);
    }

    snprintf(tip, sizeof(tip), "measured: %.4g nats",
             s->has_budget ? s->chosen_measured : s->all_measured);
    fp8q_plot_dot(&p, (double)s->chosen_bytes, s->has_budget ? s->chosen_measured : s->all_measured,
                  "dot1", tip);
    fp8q_plot_close(&p);
}

void fp8q_plot_formats(const struct fp8q_result_compare *c, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "Signal to noise of the same weights in other formats",
                          .x = {"dB", 0, 0, false, FP8Q_TICKS_PLAIN},
                          .y = {NULL, 0, (double)c->count, false, FP8Q_TICKS_NONE},
                          .left = 158,
                          .height = 74 + 20 * (double)c->count};
    char label[64];
    if (!c->there || c->count == 0)
        return;

    for (size_t i = 0; i < c->count; i++)
        raise_axis(&p.x, c->rows[i].sqnr);

    fp8q_plot_open(&p);
    for (size_t i = 0; i < c->count; i++) {
        double at = (double)(c->count - i) - 0.5;
        const double x[2] = {0, c->rows[i].sqnr}, y[2] = {at - 0.36, at + 0.36};
        bool fp8 = strncmp(c->rows[i].format, "FP8", 3) == 0;

        snprintf(label, sizeof(label), "%.24s, %.24s", c->rows[i].format, c->rows[i].granularity);
        fp8q_plot_label_y(&p, at, label);
        snprintf(label, sizeof(label), "%.2f dB", c->rows[i].sqnr);
        if (isfinite(x[1]))
            fp8q_plot_box(&p, x, y, fp8 ? "bar" : "bar c7", label);
    }
    fp8q_plot_close(&p);
}

/* Observed value and interval as shares of the limit, so that all checks stand on one axis.  */
static bool is_on_axis(const struct fp8q_result_check *c)
{
    return isfinite(c->observed) && isfinite(c->limit) && c->limit > 0;
}

void fp8q_plot_gate(const struct fp8q_result_gate *g, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "Checks of the gate as shares of their limits, with intervals",
                          .x = {"limit = 1", 0, 1.2, false, FP8Q_TICKS_PLAIN},
                          .y = {NULL, 0, 0, false, FP8Q_TICKS_NONE},
                          .left = 170};
    const double limit[2] = {1, 1};
    double at = 0;

    for (size_t i = 0; i < g->count; i++)
        if (is_on_axis(&g->checks[i])) {
            raise_axis(&p.x, fmin(g->checks[i].high / g->checks[i].limit, 3));
            raise_axis(&p.x, fmax(fmin(g->checks[i].observed / g->checks[i].limit, 3), -1));
            raise_axis(&p.x, fmax(g->checks[i].low / g->checks[i].limit, -1));
            at += 1;
        }
    if (at == 0)
        return;

    p.y.high = at;
    p.height = 74 + 30 * at;
    fp8q_plot_open(&p);
    fp8q_plot_rule(&p, limit, (const double[2]){0, at}, "limit");

    for (size_t i = 0; i < g->count; i++) {
        const struct fp8q_result_check *c = &g->checks[i];
        if (!is_on_axis(c))
            continue;
        at -= 1;
        const double x[2] = {c->low / c->limit, c->high / c->limit}, y[2] = {at + 0.5, at + 0.5};
        bool passes = strcmp(c->status, "pass") == 0;

        fp8q_plot_label_y(&p, at + 0.5, c->id);
        if (isfinite(x[0]) && isfinite(x[1]))
            fp8q_plot_rule(&p, x, y, passes ? "wide" : "wide bad");
        fp8q_plot_dot(&p, c->observed / c->limit, at + 0.5, passes ? "dot1" : "dot1 bad",
                      c->message);
    }
    fp8q_plot_close(&p);
}

void fp8q_plot_drift(const struct fp8q_result_drift *d, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "Change of each linear input: its RMS, in powers of two",
                          .x = {"linear inputs in the order of their names", 0, (double)d->count,
                                false, FP8Q_TICKS_NONE},
                          .y = {"log2 of the ratio", 0, 0, false, FP8Q_TICKS_PLAIN}};
    if (!d->there || d->count < 2)
        return;

    for (size_t i = 0; i < d->count; i++)
        raise_axis(&p.y, d->sites[i].rms);

    fp8q_plot_open(&p);
    for (size_t i = 0; i < d->count; i++)
        fp8q_plot_dot(&p, (double)i + 0.5, d->sites[i].rms,
                      d->sites[i].moved ? "point bad" : "point c0",
                      d->count <= 1000 ? d->sites[i].name : NULL);
    fp8q_plot_close(&p);
}

void fp8q_plot_inputs(const struct fp8q_measurements *r, struct fp8q_text *t)
{
    struct fp8q_plot p = {.t = t,
                          .title = "Largest magnitudes of the inputs, over 128 channels of a token",
                          .x = {.label = "largest magnitude"},
                          .y = {"number", 0, 0, false, FP8Q_TICKS_WHOLE}};
    uint64_t bins[FP8Q_HIST_BINS] = {0};

    for (size_t i = 0; r->has_calibration && i < r->calibration.n_sites; i++)
        for (size_t k = 0; r->calibration.sites[i].has_hist && k < FP8Q_HIST_BINS; k++)
            bins[k] += (uint64_t)r->calibration.sites[i].hist[k];
    draw_powers(&p, bins, FP8Q_HIST_BINS, -40);
}
