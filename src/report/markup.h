/* SPDX-License-Identifier: Apache-2.0
 *
 * markup.h - text of files inside HTML, SVG, Markdown, YAML and scripts, and figures as people read
 * them.
 *
 * Names of tensors, paths and what other tools wrote may hold anything.  Nothing of it reaches a
 * report but through these functions.
 */
#ifndef FP8Q_REPORT_MARKUP_H
#define FP8Q_REPORT_MARKUP_H

#include "base/text.h"

/* New memory: UTF-8 without control characters, bidirectional controls and noncharacters, which
 * become U+FFFD.  NULL without memory or for NULL.  */
char *fp8q_clean(const char *text);

/* Text of an element or of a quoted attribute, in HTML and SVG.  */
void fp8q_put_html(struct fp8q_text *t, const char *text);
/* Text of a Markdown paragraph or table cell that is nothing but text, and the same as code.  */
void fp8q_put_markdown(struct fp8q_text *t, const char *text);
void fp8q_put_code(struct fp8q_text *t, const char *text);
/* A double-quoted scalar.  */
void fp8q_put_yaml(struct fp8q_text *t, const char *text);
/* JSON text between the tags of a script: no "<" of it can end the script or begin a comment.  */
void fp8q_put_script(struct fp8q_text *t, const char *json, size_t len);
/* One word of a POSIX shell, quoted where that is needed.  */
void fp8q_put_shell(struct fp8q_text *t, const char *word);

/* "3.35 GB"; "1,234,567"; "[128, 256]"; a number with @digits significant digits, "-" for NaN.  */
void fp8q_put_bytes(struct fp8q_text *t, uint64_t bytes);
void fp8q_put_count(struct fp8q_text *t, uint64_t count);
void fp8q_put_shape(struct fp8q_text *t, const uint64_t *shape, uint32_t ndim);
void fp8q_put_number(struct fp8q_text *t, int digits, double value);
/* A share from 0 to 1 in per cent.  */
void fp8q_put_share(struct fp8q_text *t, double share);
/* "0.0123 +- 0.0004": a mean and the half-width of its 95 % interval, as far as @se is known.  */
void fp8q_put_interval(struct fp8q_text *t, double mean, double se);
#define FP8Q_95 1.96 /* standard errors to either side */

#endif
