/* SPDX-License-Identifier: Apache-2.0
 *
 * html.h - the report as one page that needs nothing beside itself.
 */
#ifndef FP8Q_REPORT_HTML_H
#define FP8Q_REPORT_HTML_H

#include "report/facts.h"

/* Appends the page.  Ask fp8q_text_status() at the end.  */
void fp8q_facts_html(const struct fp8q_facts *facts, struct fp8q_text *out);

#endif
