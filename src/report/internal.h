/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of report/ share: names, words, plots, and the parts of the page.
 */
#ifndef FP8Q_REPORT_INTERNAL_H
#define FP8Q_REPORT_INTERNAL_H

#include "report/facts.h"

/* Cells of the map of blocks, on a side.  */
enum { FP8Q_MAP_MOST = 64 };

/* ---- origin.c -------------------------------------------------------------------------------- */

/* Fills the names: of the output, its source, the model on the hub, the options.  */
int fp8q_facts_name(struct fp8q_facts *facts, struct fp8q_error *err);

/* "ORG/NAME", as the hub calls models: one slash, and letters that it allows.  */
bool fp8q_is_hub_id(const char *text);

/* ---- words.c --------------------------------------------------------------------------------- */

/* Why a tensor of this reason is left as it is, in a sentence.  */
const char *fp8q_reason_sentence(const char *reason);
/* What a modality of an eval is.  */
const char *fp8q_modality_name(uint64_t modality);

/* Lines for a shell, each behind @indent: those that make @output of @source (NULL: not known) and
 * prove it, and those that serve it, one for each engine that reads it.  */
void fp8q_put_making(const struct fp8q_facts *facts, const char *source, const char *output,
                     const char *indent, struct fp8q_text *t);
void fp8q_put_serving(const struct fp8q_facts *facts, const char *output, const char *indent,
                      struct fp8q_text *t);

/* ---- readers.c ------------------------------------------------------------------------------- */

/* Fills in what each engine makes of the output.  */
int fp8q_facts_ask_engines(struct fp8q_facts *facts, struct fp8q_error *err);

/* ---- the page: html.c puts these together ---------------------------------------------------- */

/* A section with its heading, and what is said where nothing was measured.  @id is its anchor.  */
void fp8q_section_open(struct fp8q_text *t, const char *id, const char *heading);
void fp8q_section_close(struct fp8q_text *t);
/* Share of @part; NaN of nothing.  */
double fp8q_share(uint64_t part, uint64_t whole);

/* page_checkpoint.c: what is in it, what was left and why, how far it can be cut.  */
void fp8q_page_precision(const struct fp8q_facts *facts, struct fp8q_text *t);
void fp8q_page_left(const struct fp8q_facts *facts, struct fp8q_text *t);
/* page_outputs.c: what the outputs lose, and what was decided.  */
void fp8q_page_outputs(const struct fp8q_facts *facts, struct fp8q_text *t);
void fp8q_page_choices(const struct fp8q_facts *facts, struct fp8q_text *t);
void fp8q_page_gate(const struct fp8q_facts *facts, struct fp8q_text *t);
/* page_weights.c: noise, grid, scales, blocks, and all tensors.  */
void fp8q_page_weights(const struct fp8q_facts *facts, struct fp8q_text *t);
void fp8q_page_tensors(const struct fp8q_facts *facts, struct fp8q_text *t);

/* style.c: parts of the style sheet and of the script, each ended by NULL.  */
extern const char *const fp8q_page_style[], *const fp8q_page_script[];

#endif
