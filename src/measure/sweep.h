/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep.h - what each module costs in each scheme: the KL divergence that quantizing it alone adds,
 * and the bytes that it saves.
 *
 * A unit is what is quantized whole or not at all: q/k/v of a layer, o, gate/up, down (or a whole
 * layer, or one kind in all layers).  Costs are measured one unit at a time from the layer where it
 * first acts: the layers before it give what the source gives.  Costs add up to a good
 * approximation, so splits are chosen by cost for each byte saved, and the chosen one is then
 * measured as a whole.
 *
 * With more than one scheme each unit has a path, from the choice that saves most to none at all: the
 * lower convex hull of its choices.  A split is how far each unit has gone, and splits are made by the
 * steps of all paths, those first that take most KLD for a byte: the Pareto front of the sums.
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
    unsigned schemes;      /* to try, as bits 1 << enum fp8q_scheme; 0: blocks */
    bool unaligned;        /* also weights whose sizes are no multiples of 128 */
    double budget_kld;     /* largest KLD allowed, from 0 on; FP8Q_SWEEP_NO_BUDGET: none */
    uint64_t budget_bytes; /* largest size of all tensors; 0: none */
    unsigned n_threads;
    const char *kernel;
    uint64_t buffer_bytes;
    const struct fp8q_watch *watch;
};

/* Schemes that need no data and no second reading: FP8_BLOCK, FP8_DYNAMIC, MXFP8.  */
enum { FP8Q_SWEEP_CHOICES = 3 };

struct fp8q_sweep_choice {
    enum fp8q_scheme scheme;
    uint16_t
        linears; /* parts that it can quantize: a bit for each enum fp8q_linear, and more for mixtures */
    uint64_t bytes_saved; /* scales counted */
    double kld, kld_se;   /* added by quantizing the unit alone */
};

struct fp8q_sweep_unit {
    char name[64]; /* "layers.3 gate/up" */
    uint32_t first_layer, last_layer;
    struct fp8q_sweep_choice choices[FP8Q_SWEEP_CHOICES];
    unsigned n_choices;
    uint8_t path[FP8Q_SWEEP_CHOICES]; /* of @choices, from what saves most on */
    unsigned n_path;
};

/* A unit goes on to a place of its path; behind the last it is left unquantized.  */
struct fp8q_sweep_step {
    size_t unit;
    unsigned to;
    double cost; /* KLD for a byte */
};

struct fp8q_sweep {
    struct fp8q_sweep_unit *units; /* in the order of the network; owned */
    struct fp8q_sweep_step *steps; /* by falling cost; owned */
    size_t n_units, n_steps;
    uint64_t source_bytes;               /* all tensors */
    double sum_kld;                      /* all units: what the additive model predicts for "all" */
    double all_kld, all_se;              /* measured */
    size_t n_taken;                      /* first of @steps that the chosen split takes */
    size_t n_kept;                       /* units that it leaves unquantized */
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

/* The choice of unit @unit once the first @n_taken steps are taken; NULL: left unquantized.  */
const struct fp8q_sweep_choice *fp8q_sweep_choice_of(const struct fp8q_sweep *sweep, size_t unit,
                                                     size_t n_taken);

/* Of the split that takes the first @n_taken steps: bytes, predicted KLD, units left unquantized.  */
struct fp8q_sweep_sum {
    uint64_t bytes;
    double kld;
    size_t n_kept;
};
struct fp8q_sweep_sum fp8q_sweep_split(const struct fp8q_sweep *sweep, size_t n_taken);

/* Options of `quantize` that give the chosen split, one word after the other: schemes, and what
 * stays.  */
int fp8q_sweep_words(const struct fp8q_sweep *sweep, const struct fp8q_model *model,
                     int (*add)(void *ctx, const char *word, struct fp8q_error *err), void *ctx,
                     struct fp8q_error *err);
/* Names of the modules that the chosen split keeps, one a line: patterns for --ignore.  */
int fp8q_sweep_ignore(const struct fp8q_sweep *sweep, const struct fp8q_model *model,
                      struct fp8q_text *out, struct fp8q_error *err);
int fp8q_sweep_json(const struct fp8q_sweep *sweep, const struct fp8q_model *model,
                    struct fp8q_jsonw *w, struct fp8q_error *err);

#endif
