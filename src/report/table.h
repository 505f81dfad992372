/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h - tables of the page, which sort when their headings are pressed.
 */
#ifndef FP8Q_REPORT_TABLE_H
#define FP8Q_REPORT_TABLE_H

#include "base/text.h"

/* @headings: separated by "|"; one that begins with "#" is of numbers.  All static.  */
void fp8q_table_open(struct fp8q_text *t, const char *caption, const char *headings);
void fp8q_table_close(struct fp8q_text *t);

/* Begins a row with the cell that names it.  */
void fp8q_row_text(struct fp8q_text *t, const char *text);
void fp8q_row_code(struct fp8q_text *t, const char *text);

/* Cells.  What is shown of a number is rounded; tables sort by what it is.  */
void fp8q_cell_text(struct fp8q_text *t, const char *text);
/* Sentences: a cell that is not pressed into a narrow column.  */
void fp8q_cell_prose(struct fp8q_text *t, const char *text);
void fp8q_cell_code(struct fp8q_text *t, const char *text);
void fp8q_cell_count(struct fp8q_text *t, uint64_t count);
void fp8q_cell_bytes(struct fp8q_text *t, uint64_t bytes);
void fp8q_cell_number(struct fp8q_text *t, int digits, double value);
void fp8q_cell_decibels(struct fp8q_text *t, double decibels);
void fp8q_cell_share(struct fp8q_text *t, double share);
void fp8q_cell_interval(struct fp8q_text *t, double mean, double se);
void fp8q_cell_shape(struct fp8q_text *t, const uint64_t *shape, uint32_t ndim);
/* "pass", "fail", "yes", ...: with the colour of what it means.  */
void fp8q_cell_status(struct fp8q_text *t, const char *status);

#endif
