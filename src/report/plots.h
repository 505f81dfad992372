/* SPDX-License-Identifier: Apache-2.0
 *
 * plots.h - the plots of a report, each a figure of the page.
 *
 * Each writes nothing where its figures are not there.
 */
#ifndef FP8Q_REPORT_PLOTS_H
#define FP8Q_REPORT_PLOTS_H

#include "report/facts.h"

/* KLD: quantiles of each comparison, by position, by sample; error of the hidden state by depth.  */
void fp8q_plot_quantiles(const struct fp8q_result_eval *eval, struct fp8q_text *t);
void fp8q_plot_positions(const struct fp8q_result_eval *eval, struct fp8q_text *t);
void fp8q_plot_samples(const struct fp8q_result_eval *eval, struct fp8q_text *t);
void fp8q_plot_layers(const struct fp8q_result_eval *eval, struct fp8q_text *t);

/* Weights: noise over depth by kind, use of the grid, scales, blocks of one weight.  */
void fp8q_plot_noise(const struct fp8q_facts *facts, struct fp8q_text *t);
void fp8q_plot_exponents(const struct fp8q_facts *facts, struct fp8q_text *t);
void fp8q_plot_scales(const struct fp8q_facts *facts, struct fp8q_text *t);
void fp8q_plot_blocks(const struct fp8q_facts *facts, struct fp8q_text *t);

void fp8q_plot_front(const struct fp8q_result_sweep *sweep, struct fp8q_text *t);
void fp8q_plot_formats(const struct fp8q_result_compare *compare, struct fp8q_text *t);
void fp8q_plot_gate(const struct fp8q_result_gate *gate, struct fp8q_text *t);
void fp8q_plot_drift(const struct fp8q_result_drift *drift, struct fp8q_text *t);
void fp8q_plot_inputs(const struct fp8q_measurements *results, struct fp8q_text *t);

#endif
