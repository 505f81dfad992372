/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c - tables of the page.
 *
 * End tags of rows and cells are left out, as HTML allows: of ten thousand rows they would be a
 * fifth of the page.
 */
#include "report/table.h"

#include <math.h>
#include <string.h>

#include "report/markup.h"

void fp8q_table_open(struct fp8q_text *t, const char *caption, const char *headings)
{
    /* A region that scrolls must be reachable with the keyboard, and have a name.  */
    fp8q_text_printf(t,
                     "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"%s\">"
                     "<table><caption>%s</caption>\n<thead><tr>",
                     caption, caption);

    while (*headings) {
        size_t len = strcspn(headings, "|");
        bool number = *headings == '#';
        fp8q_text_puts(t, number ? "<th scope=\"col\" class=\"n\">" : "<th scope=\"col\">");
        fp8q_text_add(t, headings + number, len - number);
        fp8q_text_puts(t, "</th>");
        headings += len + (headings[len] == '|');
    }
    fp8q_text_puts(t, "</tr></thead>\n<tbody>");
}

void fp8q_table_close(struct fp8q_text *t)
{
    fp8q_text_puts(t, "</tbody></table></div>\n");
}

void fp8q_row_text(struct fp8q_text *t, const char *text)
{
    fp8q_text_puts(t, "\n<tr><th scope=\"row\">");
    fp8q_put_html(t, text);
}

void fp8q_row_code(struct fp8q_text *t, const char *text)
{
    fp8q_text_puts(t, "\n<tr><th scope=\"row\"><code>");
    fp8q_put_html(t, text);
    fp8q_text_puts(t, "</code>");
}

void fp8q_cell_text(struct fp8q_text *t, const char *text)
{
    fp8q_text_puts(t, "<td>");
    fp8q_put_html(t, text);
}

void fp8q_cell_prose(struct fp8q_text *t, const char *text)
{
    fp8q_text_puts(t, "<td class=w>");
    fp8q_put_html(t, text);
}

void fp8q_cell_code(struct fp8q_text *t, const char *text)
{
    fp8q_text_puts(t, "<td><code>");
    fp8q_put_html(t, text);
    fp8q_text_puts(t, "</code>");
}

void fp8q_cell_count(struct fp8q_text *t, uint64_t count)
{
    fp8q_text_puts(t, "<td class=n>");
    fp8q_put_count(t, count);
}

void fp8q_cell_bytes(struct fp8q_text *t, uint64_t bytes)
{
    fp8q_text_printf(t, "<td class=n data-v=%llu>", (unsigned long long)bytes);
    fp8q_put_bytes(t, bytes);
}

/* Opens a cell that sorts by @value; one without a value sorts behind all others.  */
static void open_number(struct fp8q_text *t, double value)
{
    if (isfinite(value))
        fp8q_text_printf(t, "<td class=n data-v=%.6g>", value);
    else
        fp8q_text_puts(t, "<td class=n>");
}

void fp8q_cell_number(struct fp8q_text *t, int digits, double value)
{
    fp8q_text_puts(t, "<td class=n>");
    fp8q_put_number(t, digits, value);
}

void fp8q_cell_decibels(struct fp8q_text *t, double decibels)
{
    fp8q_text_puts(t, "<td class=n>");
    if (isfinite(decibels))
        fp8q_text_printf(t, "%.2f", decibels);
    else
        fp8q_put_number(t, 1, decibels);
}

void fp8q_cell_share(struct fp8q_text *t, double share)
{
    open_number(t, share);
    fp8q_put_share(t, share);
}

void fp8q_cell_interval(struct fp8q_text *t, double mean, double se)
{
    open_number(t, mean);
    fp8q_put_interval(t, mean, se);
}

void fp8q_cell_shape(struct fp8q_text *t, const uint64_t *shape, uint32_t ndim)
{
    double elements = 1;
    for (uint32_t i = 0; i < ndim; i++)
        elements *= (double)shape[i];

    open_number(t, elements);
    fp8q_put_shape(t, shape, ndim);
}

void fp8q_cell_status(struct fp8q_text *t, const char *status)
{
    bool good = strcmp(status, "pass") == 0 || strcmp(status, "yes") == 0;
    bool bad = strcmp(status, "fail") == 0 || strcmp(status, "widened") == 0;
    const char *style = good ? "good" : "warn";
    if (bad)
        style = "bad";
    if (strcmp(status, "skipped") == 0)
        style = "dim";

    fp8q_text_printf(t, "<td><span class=\"mark %s\">", style);
    fp8q_put_html(t, status);
    fp8q_text_puts(t, "</span>");
}
