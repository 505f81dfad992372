/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.h - plots as inline SVG: a frame with axes, and marks in the units of the axes.
 *
 * Colours and fonts are classes of the page's style sheet, so that a plot follows light, dark and
 * print.  The drawing is small and narrow on purpose: a phone shows it at its own size, a desktop
 * two beside each other.
 */
#ifndef FP8Q_REPORT_SVG_H
#define FP8Q_REPORT_SVG_H

#include "base/text.h"

enum fp8q_ticks {
    FP8Q_TICKS_NONE,  /* the plot labels its own */
    FP8Q_TICKS_PLAIN, /* 0.5, 20 */
    FP8Q_TICKS_WHOLE, /* 5, 2,000 */
    FP8Q_TICKS_BYTES  /* 1.5 GB */
};

struct fp8q_axis {
    const char *label; /* static; NULL: none */
    double low, high;
    bool log;
    enum fp8q_ticks ticks;
};

struct fp8q_plot {
    struct fp8q_text *t;
    const char *title;   /* static */
    const char *summary; /* what there is to see, for those who cannot; may be NULL */
    struct fp8q_axis x, y;
    double left;   /* room for labels of the y axis; 0: enough for numbers */
    double height; /* 0: the usual */
};

/* Writes the frame: caption, grid, ticks, labels.  An axis without extent gets one.  */
void fp8q_plot_open(struct fp8q_plot *plot);
void fp8q_plot_close(struct fp8q_plot *plot);

/* In the drawing's own units, clamped to the frame.  */
double fp8q_plot_x(const struct fp8q_plot *plot, double x);
double fp8q_plot_y(const struct fp8q_plot *plot, double y);

/* @style: classes.  @tip (NULL allowed): what a pointer shows; any text.  */
void fp8q_plot_box(const struct fp8q_plot *plot, const double x[2], const double y[2],
                   const char *style, const char *tip);
void fp8q_plot_dot(const struct fp8q_plot *plot, double x, double y, const char *style,
                   const char *tip);
void fp8q_plot_rule(const struct fp8q_plot *plot, const double x[2], const double y[2],
                    const char *style);
/* Text below the frame at @x, and left of it at @y.  */
void fp8q_plot_label_x(const struct fp8q_plot *plot, double x, const char *text);
void fp8q_plot_label_y(const struct fp8q_plot *plot, double y, const char *text);

/* A line through points: points that are not finite interrupt it.  */
struct fp8q_line {
    bool is_open, is_drawn;
};
void fp8q_line_to(const struct fp8q_plot *plot, struct fp8q_line *line, double x, double y,
                  const char *style);
void fp8q_line_end(const struct fp8q_plot *plot, struct fp8q_line *line);

#endif
