/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h - which engine loads a checkpoint as it lies on disk, and what would have to change.
 *
 * Goes by headers, config and the tables of engines.h, for outputs of fp8q and of other tools.
 * Whether an engine knows the architecture is not asked.
 */
#ifndef FP8Q_ENGINES_CHECK_H
#define FP8Q_ENGINES_CHECK_H

#include "checkpoint/checkpoint.h"
#include "engines/engines.h"

enum fp8q_weight_of {              /* how much a finding weighs, the heaviest last */
                      FP8Q_NOTE,   /* it loads; good to know */
                      FP8Q_UNSURE, /* the tables do not tell */
                      FP8Q_STOPS   /* it does not load, or loads something else */
};

struct fp8q_judged {
    const char *id; /* static */
    enum fp8q_weight_of weight;
    char *message, *change; /* owned; @change is NULL for a note */
};

/* What was found for one engine.  It loads the checkpoint if nothing weighs more than a note.  */
struct fp8q_judgement {
    const struct fp8q_reading *reading; /* NULL: it does not read this format */
    enum fp8q_weight_of worst;
    struct fp8q_judged *items;
    size_t count, cap;
};

struct fp8q_engines_report {
    struct fp8q_judgement engines[FP8Q_N_ENGINES];
    unsigned largest_tp;  /* of the engines that cut; FP8Q_MOST_TP: and more */
    const char *tp_limit; /* tensor that stops a larger one, or NULL; borrowed */
    bool has_groups;      /* MXFP8, which runs on other GPUs */
};

/* Judges @ckpt for every engine.  @warnings are what opening it said; @ways is 0 or how many ways
 * tensor parallelism must fit.  FP8Q_E_ARG "nothing-to-check" if it holds no FP8 weights,
 * FP8Q_E_UNSUPPORTED "packed-format".  Release with fp8q_engines_reset(), also after a
 * failure.  */
int fp8q_engines_check(const struct fp8q_ckpt *ckpt, const struct fp8q_warnings *warnings,
                       unsigned ways, struct fp8q_engines_report *report_out,
                       struct fp8q_error *err);
void fp8q_engines_reset(struct fp8q_engines_report *report);

#endif
