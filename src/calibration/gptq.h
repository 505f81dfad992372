/* SPDX-License-Identifier: Apache-2.0
 *
 * gptq.h - GPTQ on the E4M3 grid, within blocks of 128 columns.
 *
 * The scales are those of plain rounding.  Within each block of 128 columns, columns are rounded
 * one after another by falling second moment, and the error of each is made up for by the ones that
 * follow, as the Hessian of the linear's input tells (calib.h: unit-normalised token vectors,
 * damped by 1 % of their mean, shrunk by a fifth off the diagonal).  The codes depend on the
 * weights, the scales and the calibration file only: not on threads, nor on the instruction set
 * (F64 preparation and F32 operations in a fixed order, none of them fused).
 *
 * The guard: a quarter of the tokens was held out of the Hessian.  If codes made with the other
 * three quarters do not lower the output error on the held-out ones, the tensors of the input keep
 * plain rounding.  Where they do, the final codes use all tokens.
 *
 * Use, for each linear input (its tensors share it, fp8q_calib_site_of()):
 *
 *     fp8q_hessian_create(...);
 *     for every stripe of every tensor: fp8q_gptq_guard() -> sums, added in a fixed order;
 *     if (fp8q_gptq_helps(&sums)) then for every stripe: fp8q_gptq_encode();
 *     fp8q_hessian_destroy(...);
 *
 * fp8q_gptq_guard_run() does the second step for weights on disk.
 */
#ifndef FP8Q_GPTQ_H
#define FP8Q_GPTQ_H

#include "calibration/hessian.h"
#include "kernel/gemm.h"

/* Bytes of scratch for one call below, whatever the width.  Align it as malloc() does.  */
size_t fp8q_gptq_scratch(void);

/* What one call works on; everything is borrowed.  */
struct fp8q_gptq_stripe {
    const struct fp8q_hessian *hessian;
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    const float *w; /* [n_rows][n_cols], finite, at most 128 rows */
    uint32_t n_rows;
    uint64_t n_cols;     /* the Hessian's, else FP8Q_E_ARG "calibration-shape" */
    const float *scales; /* one per 128 columns */
    void *scratch;
};

/* FP8 values of one stripe, [n_rows][n_cols].  */
int fp8q_gptq_encode(const struct fp8q_gptq_stripe *stripe, uint8_t *codes_out,
                     struct fp8q_error *err);

/* Output error on held-out tokens: sum over rows of d H d^T, d = w - code * scale.  */
struct fp8q_gptq_error {
    double plain, compensated;
};
int fp8q_gptq_guard(const struct fp8q_gptq_stripe *stripe, struct fp8q_gptq_error *sums_out,
                    struct fp8q_error *err);
/* False without held-out tokens too: what cannot be shown is not done.  */
bool fp8q_gptq_helps(const struct fp8q_gptq_error *sums);

/* The guard over all stripes of the tensors that share one input, read from disk.  */
struct fp8q_gptq_guard_job {
    const struct fp8q_hessian *hessian;
    const struct fp8q_ckpt *ckpt;
    const char *const *names; /* of weights [N,K], K the Hessian's width */
    size_t n_names;
    enum fp8q_scale_fmt fmt; /* of the block scales that they will get */
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    unsigned n_threads;
    const struct fp8q_watch *watch; /* asked between stripes; NULL: nobody stops it */
};
int fp8q_gptq_guard_run(const struct fp8q_gptq_guard_job *job, struct fp8q_gptq_error *sums_out,
                        struct fp8q_error *err);

#endif
