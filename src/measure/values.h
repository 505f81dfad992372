/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h - what the FP8 values and scales of a checkpoint look like, weight by weight.
 *
 * How well the E4M3 grid is used: how many values stand at its upper end, how many became zero, how
 * the rest spreads over its exponents, and how far the scales of one weight lie apart.
 */
#ifndef FP8Q_MEASURE_VALUES_H
#define FP8Q_MEASURE_VALUES_H

#include "checkpoint/checkpoint.h"

enum {
    FP8Q_CODE_BINS = 17,  /* zero, subnormal, then 2^-6 to 2^8 */
    FP8Q_SCALE_BINS = 64, /* scales by floor(log2) + FP8Q_SCALE_BINS_LOW, clamped at both ends */
    FP8Q_SCALE_BINS_LOW = 48
};

struct fp8q_value_figures {
    uint64_t n_values; /* 0: no E4M3 weight */
    uint64_t by_exponent[FP8Q_CODE_BINS];
    uint64_t saturated;   /* at +-448, the end of the grid: one in each block at least */
    uint64_t n_compared;  /* with a source of the same name and size */
    uint64_t underflowed; /* of these: zero here, and not zero there */
    uint64_t n_scales;
    double scale_min, scale_max;
};

struct fp8q_values {
    struct fp8q_value_figures *tensors; /* by index in ckpt->tensors; owned */
    size_t n_tensors;
    struct fp8q_value_figures total;
    uint64_t by_scale[FP8Q_SCALE_BINS];
};

struct fp8q_values_options {
    const struct fp8q_ckpt *source; /* NULL: underflow is not known */
    unsigned threads;
    const struct fp8q_watch *watch; /* NULL allowed */
};

/* Reads every E4M3 weight of @ckpt once.  Weights whose scales are not understood are left out.  On
 * failure *@values_out is zeroed; else fp8q_values_reset() it.  */
int fp8q_values_measure(const struct fp8q_ckpt *ckpt, const struct fp8q_values_options *options,
                        struct fp8q_values *values_out, struct fp8q_error *err);
void fp8q_values_reset(struct fp8q_values *values);

#endif
