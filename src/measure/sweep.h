/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep.h - what each module costs: the KL divergence that quantizing it alone adds, and the bytes
 * that it saves.
 *
 * A unit is what is quantized whole or not at all: q/k/v of a layer, o, gate/up, down (or a whole
 * layer, or one kind in all layers).  Costs are measured one unit at a time from the layer where it
 * first acts: the layers before it give what the source gives.  Costs add up to a good
 * approximation, so splits are chosen by cost for each byte saved, and the chosen one is then
 * measured as a whole.
 */
#ifndef FP8Q_SWEEP_H
#define FP8Q_SWEEP_H

#include <math.h>

#include "measure/eval.h"

enum fp8q_sweep_by { FP8Q_SWEEP_SITE, FP8Q_SWEEP_LAYER, FP8Q_SWEEP_KIND };

#define FP8Q_SWEEP_NO_BUDGET ((double)-INFINITY)

struct fp8q_sweep_options {
    enum fp8q_sweep_by by;
    enum fp8q_acts acts;
    enum fp8q_scale_fmt fmt;
    bool unaligned;        /* also weights whose sizes are no multiples of 128 */
    double budget_kld;     /* largest KLD allowed, from 0 on; FP8Q_SWEEP_NO_BUDGET: none */
    uint64_t budget_bytes; /* largest size of all tensors; 0: none */
    unsigned n_threads;
    const char *kernel;
    uint64_t buffer_bytes;
    const struct fp8q_watch *watch;
};

struct fp8q_sweep_unit {
    char name[64]; /* "layers.3 gate/up" */
    uint32_t first_layer, last_layer;
    uint16_t linears;     /* bit for each enum fp8q_linear */
    uint64_t bytes_saved; /* by quantizing it, scales counted */
    double kld, kld_se;   /* added by quantizing it alone */
    bool quantized;       /* in the chosen split */
};

struct fp8q_sweep {
    struct fp8q_sweep_unit *units; /* in the order of the network; owned */
    size_t *order;                 /* units by falling cost for a byte: what to keep first; owned */
    size_t n_units;
    uint64_t source_bytes;  /* all tensors */
    double sum_kld;         /* all units: what the additive model predicts for "all" */
    double all_kld, all_se; /* measured */
    size_t n_kept;          /* first of @order that the chosen split keeps in high precision */
    double chosen_predicted, chosen_kld; /* equal to "all" without a budget */
    uint64_t chosen_bytes;
    uint64_t tokens;
    bool met; /* the chosen split keeps its budget, measured */
};

/* FP8Q_E_ARG if nothing can be quantized, or the budget is no number from 0 on.  A budget that cannot be met gives `met` false and the
 * closest split.  */
int fp8q_sweep_run(const struct fp8q_model *model, const struct fp8q_inputs *inputs,
                   const struct fp8q_sweep_options *options, struct fp8q_sweep *sweep_out,
                   struct fp8q_error *err);
void fp8q_sweep_reset(struct fp8q_sweep *sweep);

/* Bytes and predicted KLD of the split that keeps the first @n_kept of the order.  */
void fp8q_sweep_split(const struct fp8q_sweep *sweep, size_t n_kept, uint64_t *bytes_out,
                      double *kld_out);

/* Names of the modules that the chosen split keeps, one a line: patterns for --ignore.  */
int fp8q_sweep_ignore(const struct fp8q_sweep *sweep, const struct fp8q_model *model,
                      struct fp8q_text *out, struct fp8q_error *err);
void fp8q_sweep_json(const struct fp8q_sweep *sweep, const struct fp8q_model *model,
                     struct fp8q_jsonw *w);

#endif
