/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.c - frames, axes and marks.
 */
#include "report/svg.h"

#include <math.h>
#include <stdio.h>

#include "report/markup.h"

/* The drawing: its size, and the frame in it.  */
enum { WIDTH = 460, HEIGHT = 260, LEFT = 52, RIGHT = 14, TOP = 26, BOTTOM = 42 };

static double left_of(const struct fp8q_plot *p)
{
    return p->left > 0 ? p->left : LEFT;
}

static double height_of(const struct fp8q_plot *p)
{
    return p->height > 0 ? p->height : HEIGHT;
}

/* Where @v lies between the ends of an axis, from 0 to 1.  */
static double place(const struct fp8q_axis *a, double v)
{
    double share;

    if (a->log)
        share = v > 0 ? log(v / a->low) / log(a->high / a->low) : 0;
    else
        share = (v - a->low) / (a->high - a->low);
    return fmin(fmax(share, 0), 1);
}

double fp8q_plot_x(const struct fp8q_plot *p, double x)
{
    return left_of(p) + place(&p->x, x) * (WIDTH - RIGHT - left_of(p));
}

double fp8q_plot_y(const struct fp8q_plot *p, double y)
{
    return height_of(p) - BOTTOM - place(&p->y, y) * (height_of(p) - BOTTOM - TOP);
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* What comes from files may be one value, or none: an axis needs two ends.  */
static void widen(struct fp8q_axis *a)
{
    if (!isfinite(a->low) || !isfinite(a->high)) {
        a->low = a->log ? 0.1 : 0;
        a->high = 1;
    }

    if (a->log) {
        a->low = fmax(a->low, 1e-30);
        if (!(a->high > a->low * 1.5)) {
            a->high = fmax(a->high, a->low) * 2;
            a->low /= 2;
        }
    } else if (!(a->high - a->low > 1e-12 * fmax(fabs(a->low), fabs(a->high)))) {
        a->high = a->low + fmax(fabs(a->low), 1);
    }
}

static void put_tick(const struct fp8q_plot *p, enum fp8q_ticks ticks, double value)
{
    if (ticks == FP8Q_TICKS_BYTES)
        fp8q_put_bytes(p->t, (uint64_t)fmax(value, 0));
    else if (ticks == FP8Q_TICKS_WHOLE && value >= 0)
        fp8q_put_count(p->t, (uint64_t)(value + 0.5));
    else
        fp8q_text_printf(p->t, "%.3g", fabs(value) < 1e-12 ? 0 : value);
}

/* One grid line across the other axis, and its number.  */
static void draw_tick(const struct fp8q_plot *p, bool is_x, double value)
{
    enum fp8q_ticks ticks = is_x ? p->x.ticks : p->y.ticks;
    double at = is_x ? fp8q_plot_x(p, value) : fp8q_plot_y(p, value);
    double bottom = height_of(p) - BOTTOM;

    if (is_x)
        fp8q_text_printf(p->t, "<path class=\"grid\" d=\"M%.1f %dV%.1f\"/>", at, TOP, bottom);
    else
        fp8q_text_printf(p->t, "<path class=\"grid\" d=\"M%.1f %.1fH%d\"/>", left_of(p), at,
                         WIDTH - RIGHT);

    if (is_x)
        fp8q_text_printf(p->t, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid\">", at, bottom + 16);
    else
        fp8q_text_printf(p->t, "<text x=\"%.1f\" y=\"%.1f\" class=\"end\">", left_of(p) - 6,
                         at + 4);
    put_tick(p, ticks, value);
    fp8q_text_puts(p->t, "</text>");
}

/* 1, 2 or 5 times a power of ten, so that about four of them fit.  */
static void draw_plain_ticks(const struct fp8q_plot *p, bool is_x)
{
    const struct fp8q_axis *a = is_x ? &p->x : &p->y;
    double raw = (a->high - a->low) / 4, power = pow(10, floor(log10(raw)));
    double step = power;

    if (raw / power > 5)
        step = 10 * power;
    else if (raw / power > 2)
        step = 5 * power;
    else if (raw / power > 1)
        step = 2 * power;
    if (a->ticks == FP8Q_TICKS_WHOLE)
        step = fmax(step, 1);

    double first = ceil(a->low / step - 1e-9);
    for (int i = 0; i < 12 && (first + i) * step <= a->high + 1e-9 * step; i++)
        draw_tick(p, is_x, (first + i) * step);
}

/* Powers of ten; of few of them also twice and five times as much, of many every other.  */
static void draw_log_ticks(const struct fp8q_plot *p, bool is_x)
{
    static const double within[] = {1, 2, 5};
    const struct fp8q_axis *a = is_x ? &p->x : &p->y;
    int first = (int)floor(log10(a->low)), last = (int)ceil(log10(a->high));
    int step = last - first > 6 ? (last - first + 5) / 6 : 1;
    size_t n = last - first <= 2 ? 3 : 1;

    for (int e = first; e <= last; e += step)
        for (size_t i = 0; i < n; i++) {
            double value = within[i] * pow(10, e);
            if (value >= a->low * 0.999 && value <= a->high * 1.001)
                draw_tick(p, is_x, value);
        }
}

static void draw_axis(const struct fp8q_plot *p, bool is_x)
{
    const struct fp8q_axis *a = is_x ? &p->x : &p->y;
    if (a->ticks == FP8Q_TICKS_NONE)
        return;
    if (a->log)
        draw_log_ticks(p, is_x);
    else
        draw_plain_ticks(p, is_x);
}

static void draw_labels(const struct fp8q_plot *p)
{
    double middle = (left_of(p) + WIDTH - RIGHT) / 2, bottom = height_of(p);

    if (p->x.label)
        fp8q_text_printf(p->t, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid ax\">%s</text>", middle,
                         bottom - 8, p->x.label);
    /* Upright, above its axis: text that stands on its side is hard to read.  */
    if (p->y.label)
        fp8q_text_printf(p->t, "<text x=\"4\" y=\"%d\" class=\"ax\">%s</text>", TOP - 13,
                         p->y.label);
}

void fp8q_plot_open(struct fp8q_plot *p)
{
    widen(&p->x);
    widen(&p->y);

    fp8q_text_puts(p->t, "<figure class=\"plot\"><figcaption>");
    fp8q_put_html(p->t, p->title);
    fp8q_text_puts(p->t, "</figcaption>\n");
    fp8q_text_printf(p->t, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", WIDTH,
                     height_of(p));
    fp8q_put_html(p->t, p->title);
    if (p->summary) {
        fp8q_text_puts(p->t, ": ");
        fp8q_put_html(p->t, p->summary);
    }
    fp8q_text_puts(p->t, "\">");

    draw_axis(p, false);
    draw_axis(p, true);
    fp8q_text_printf(p->t, "<path class=\"axis\" d=\"M%.1f %dV%.1fH%d\"/>", left_of(p), TOP,
                     height_of(p) - BOTTOM, WIDTH - RIGHT);
    draw_labels(p);
}

void fp8q_plot_close(struct fp8q_plot *p)
{
    fp8q_text_puts(p->t, "</svg></figure>\n");
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void end_mark(const struct fp8q_plot *p, const char *element, const char *tip)
{
    if (!tip) {
        fp8q_text_puts(p->t, "/>");
        return;
    }
    fp8q_text_puts(p->t, "><title>");
    fp8q_put_html(p->t, tip);
    fp8q_text_printf(p->t, "</title></%s>", element);
}

void fp8q_plot_box(const struct fp8q_plot *p, const double x[2], const double y[2],
                   const char *style, const char *tip)
{
    double x0 = fp8q_plot_x(p, x[0]), x1 = fp8q_plot_x(p, x[1]);
    double y0 = fp8q_plot_y(p, y[0]), y1 = fp8q_plot_y(p, y[1]);

    fp8q_text_printf(p->t,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"",
                     fmin(x0, x1), fmin(y0, y1), fabs(x1 - x0), fabs(y1 - y0), style);
    end_mark(p, "rect", tip);
}

void fp8q_plot_dot(const struct fp8q_plot *p, double x, double y, const char *style,
                   const char *tip)
{
    if (!isfinite(x) || !isfinite(y))
        return;
    fp8q_text_printf(p->t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" class=\"%s\"",
                     fp8q_plot_x(p, x), fp8q_plot_y(p, y), style);
    end_mark(p, "circle", tip);
}

void fp8q_plot_rule(const struct fp8q_plot *p, const double x[2], const double y[2],
                    const char *style)
{
    fp8q_text_printf(p->t, "<path d=\"M%.1f %.1fL%.1f %.1f\" class=\"%s\"/>", fp8q_plot_x(p, x[0]),
                     fp8q_plot_y(p, y[0]), fp8q_plot_x(p, x[1]), fp8q_plot_y(p, y[1]), style);
}

void fp8q_plot_label_x(const struct fp8q_plot *p, double x, const char *text)
{
    fp8q_text_printf(p->t, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid\">", fp8q_plot_x(p, x),
                     height_of(p) - BOTTOM + 16);
    fp8q_put_html(p->t, text);
    fp8q_text_puts(p->t, "</text>");
}

void fp8q_plot_label_y(const struct fp8q_plot *p, double y, const char *text)
{
    fp8q_text_printf(p->t, "<text x=\"%.1f\" y=\"%.1f\" class=\"end\">", left_of(p) - 6,
                     fp8q_plot_y(p, y) + 4);
    fp8q_put_html(p->t, text);
    fp8q_text_puts(p->t, "</text>");
}

void fp8q_line_to(const struct fp8q_plot *p, struct fp8q_line *line, double x, double y,
                  const char *style)
{
    if (!isfinite(x) || !isfinite(y)) {
        line->is_drawn = false;
        return;
    }

    if (!line->is_open)
        fp8q_text_printf(p->t, "<path class=\"%s\" d=\"", style);
    fp8q_text_printf(p->t, "%s%.1f %.1f", line->is_drawn ? "L" : "M", fp8q_plot_x(p, x),
                     fp8q_plot_y(p, y));
    line->is_open = line->is_drawn = true;
}

void fp8q_line_end(const struct fp8q_plot *p, struct fp8q_line *line)
{
    if (line->is_open)
        fp8q_text_puts(p->t, "\"/>");
    *line = (struct fp8q_line){0};
}
