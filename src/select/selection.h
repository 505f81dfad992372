/* SPDX-License-Identifier: Apache-2.0
 *
 * selection.h - what is asked of a selection, and what it answers: a decision for each tensor.
 */
#ifndef FP8Q_SELECTION_H
#define FP8Q_SELECTION_H

#include "checkpoint/checkpoint.h"
#include "kernel/block.h"
#include "select/families.h"
#include "select/reason.h"

enum { FP8Q_N_SCHEMES = FP8Q_SCHEME_STATIC + 1 };

struct fp8q_select_options {
    const char *const *ignore, *const *include; /* patterns */
    const char *const *schemes;                 /* "PAT=NAME" (scheme.h) */
    size_t n_ignore, n_include, n_schemes;
    bool no_default_ignore; /* only what cannot be quantized is kept by itself */
    bool allow_unmatched, allow_tower, strict;
    bool requantize;         /* already quantized tensors may be taken again */
    enum fp8q_scheme scheme; /* of what no item of @schemes matches */
    enum fp8q_unaligned unaligned;
    const struct fp8q_ckpt *like; /* NULL, or take exactly the names that are F8_E4M3 there */
};

struct fp8q_decision {
    bool quantize;
    enum fp8q_reason reason;
    enum fp8q_scheme scheme; /* of this tensor, when quantized */
    bool tower;              /* under a vision or audio root */
    bool linear; /* a linear of the family's decoder, whether or not it can be quantized */
    struct fp8q_linear_place group; /* @linear: where it stands */
};

struct fp8q_selection {
    struct fp8q_decision *decisions; /* one for each tensor of the checkpoint, same order */
    struct fp8q_family family;       /* borrows from the config */
    size_t n_quantize;
};

/* Frees what the selection owns, and zeroes it.  */
void fp8q_selection_reset(struct fp8q_selection *selection);

#endif
