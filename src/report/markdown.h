/* SPDX-License-Identifier: Apache-2.0
 *
 * markdown.h - the report as text: a model card for the hub, and a short form for a pull request.
 */
#ifndef FP8Q_REPORT_MARKDOWN_H
#define FP8Q_REPORT_MARKDOWN_H

#include "report/facts.h"

/* Both append.  Ask fp8q_text_status() at the end.  */
void fp8q_facts_card(const struct fp8q_facts *facts, struct fp8q_text *out);
void fp8q_facts_comment(const struct fp8q_facts *facts, struct fp8q_text *out);

#endif
