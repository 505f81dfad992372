/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h - what rounding weights to FP8, INT8 and INT4 costs, measured on the weights
 * themselves.
 *
 * Answers which format and granularity loses how much, in RMSE and bytes.  It does not answer what
 * the model loses: that is eval's and gate's work (docs/results/accuracy.md).
 */
#ifndef FP8Q_COMPARE_H
#define FP8Q_COMPARE_H

#include "checkpoint/checkpoint.h"
#include "measure/compare_stripe.h"

/* Names of a row of the table.  */
const char *fp8q_compare_format(unsigned row);      /* "FP8-E4M3", "INT8", "INT4" */
const char *fp8q_compare_granularity(unsigned row); /* "tensor", "channel", "block", ... */

/* Sums over a set of tensors.  */
struct fp8q_compare_sums {
    char *name; /* owned: "q_proj"; NULL for the total */
    uint64_t n_tensors, n_elems, source_bytes;
    double w2;                     /* sum of squared weights */
    double d2[FP8Q_CMP_ROWS];      /* sum of squared errors */
    uint64_t bytes[FP8Q_CMP_ROWS]; /* values and F32 scales */
};
double fp8q_compare_rmse(const struct fp8q_compare_sums *sums, unsigned row);
double fp8q_compare_relative(const struct fp8q_compare_sums *sums, unsigned row);
double fp8q_compare_sqnr_db(const struct fp8q_compare_sums *sums, unsigned row);

struct fp8q_compare {
    struct fp8q_compare_sums total;
    struct fp8q_compare_sums *groups; /* by the module's last name, sorted */
    size_t n_groups, groups_cap;
    const char *selection; /* what was taken, for people; static */
};

struct fp8q_compare_options {
    const struct fp8q_kernel *kernel;
    unsigned threads;
    const char *const *names; /* exactly these tensors, if @n_names is not 0 */
    size_t n_names;
    /* Else those for which this says true; NULL: 2-D float "*.weight" below "layers.N.", or, where
     * there are none, every 2-D float tensor.  Only 2-D float tensors are asked about.  */
    bool (*take)(void *ctx, const struct fp8q_tensor *tensor);
    void *take_ctx;
    const struct fp8q_watch *watch; /* NULL allowed */
};

/* Reads each tensor twice (the scale of a whole tensor is known only after the first time), in
 * stripes of 128 rows on @threads threads; the sums do not depend on the number of threads.
 * FP8Q_E_ARG: an unknown name; FP8Q_E_UNSUPPORTED: a named tensor that is not 2-D float;
 * FP8Q_E_MISMATCH: nothing to compare; FP8Q_E_FORMAT: NaN or Inf, with tensor and index.
 * On failure *@result_out is zeroed; else free with fp8q_compare_reset().  */
int fp8q_compare(const struct fp8q_ckpt *ckpt, const struct fp8q_compare_options *options,
                 struct fp8q_compare *result_out, struct fp8q_error *err);
void fp8q_compare_reset(struct fp8q_compare *result);

#endif
