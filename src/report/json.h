/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h - the figures of a report for machines: what --json prints, and what the page carries.
 */
#ifndef FP8Q_REPORT_JSON_H
#define FP8Q_REPORT_JSON_H

#include "report/facts.h"

/* Members of the open object of @w.  */
void fp8q_facts_json(const struct fp8q_facts *facts, struct fp8q_jsonw *w);

#endif
