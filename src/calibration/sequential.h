/* SPDX-License-Identifier: Apache-2.0
 *
 * sequential.h - GPTQ in one pass: a model's layers are rounded one after another, each by what the
 * rounded layers before it make of the samples.
 *
 * Within a layer the inputs of its linears (q/k/v; o; gate/up; down, and those of each expert) come
 * one after another, too: all samples are brought to an input, its second moments are taken in
 * full, its weights are rounded (spread.h), and the samples go on through the rounded weights.
 *
 * Memory: the hidden states of all samples, the buffers of a forward pass, and for one input three
 * matrices of columns^2 floats (for a mixture two more for each expert of the layer).
 */
#ifndef FP8Q_SEQUENTIAL_H
#define FP8Q_SEQUENTIAL_H

#include "calibration/codes.h"

#define FP8Q_NAMED_EXPERTS 4 /* of those that no token came to */

struct fp8q_sequential_job {
    struct fp8q_codes *codes; /* of the plan; receives the values */
    const char *inputs;       /* path of the samples */
    const struct fp8q_watch *watch;
};

struct fp8q_sequential {
    char **names; /* linear inputs whose errors were spread, as calib.h calls them; owned */
    size_t n_names, cap_names;
    size_t n_spread, n_plain;   /* inputs with GPTQ, and with plain rounding */
    size_t n_unheld;            /* of the latter: no token was held out */
    size_t n_unreached;         /* experts that no token came to */
    struct fp8q_text unreached; /* the first of them, by name */
    bool noise; /* the model finds the samples no likelier than chance: all is plain */
    uint32_t inputs_fingerprint;
};

/* Runs the plan's source.  fp8q_sequential_reset() in every case.  */
int fp8q_sequential_run(const struct fp8q_sequential_job *job, struct fp8q_sequential *result_out,
                        struct fp8q_warnings *warnings, struct fp8q_error *err);
void fp8q_sequential_reset(struct fp8q_sequential *result);

/* The manifest's "rounding": method, inputs, and the names of inputs with GPTQ.  */
int fp8q_sequential_json(const struct fp8q_sequential *result, const char *inputs,
                         struct fp8q_text *out, struct fp8q_error *err);

#endif
