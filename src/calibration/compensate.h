/* SPDX-License-Identifier: Apache-2.0
 *
 * compensate.h - error-compensated rounding on the E4M3 grid (GPTQ within blocks of 128 columns).
 *
 * The scales are those of plain rounding.  Within each block of 128 columns, columns are rounded
 * one after another by falling second moment, and the error of each is made up for by the ones that
 * follow, as the second moments of the site's inputs (calib.h: unit-normalised token vectors,
 * damped by 1 % of their mean, shrunk by a fifth off the diagonal) tell.  The codes depend on the
 * weights, the scales and the calibration file only: not on threads, nor on the instruction set
 * (F64 preparation and F32 operations in a fixed order, none of them fused).
 *
 * The guard: a quarter of the tokens was held out of the moments.  If codes made with the other
 * three quarters do not lower the output error on the held-out ones, the tensors of the site keep
 * plain rounding.  Where they do, the final codes use all tokens.
 *
 * Use, for each site (tensors that share their input, fp8q_calib_site_of()):
 *     fp8q_site_create(...);
 *     for every stripe of every tensor of the site: fp8q_guard_stripe() -> sums, added in a fixed
 * order; if (fp8q_guard_helps(&sums)) then for every stripe: fp8q_compensate_stripe();
 *     fp8q_site_destroy(...);
 * fp8q_guard_run() does the second step for weights on disk.
 */
#ifndef FP8Q_COMPENSATE_H
#define FP8Q_COMPENSATE_H

#include "calibration/calib.h"
#include "kernel/gemm.h"

/* Prepared matrices of one site; immutable once created, may be shared by threads.  */
struct fp8q_site;

/* *@site_out is NULL (and the result 0) if the file has no second moments for the site of
 * @tensor_name: plain rounding.  FP8Q_E_EVIDENCE "calibration-shape" if it has them for another
 * width. Memory: 3 x 64 KiB for each 128 columns.  */
int fp8q_site_create(const struct fp8q_calib *calib, const char *tensor_name, uint64_t n_cols,
                     unsigned n_threads, struct fp8q_site **site_out, struct fp8q_error *err);
void fp8q_site_destroy(struct fp8q_site *site);

/* Bytes of scratch for one call below, whatever the site.  Align it as malloc() does.  */
size_t fp8q_compensate_scratch(void);

/* Codes of one stripe: @w [n_rows][n_cols] (at most 128 rows, finite), @scales one per 128 columns,
 * @codes_out [n_rows][n_cols].  @n_cols must be the site's.  */
int fp8q_compensate_stripe(const struct fp8q_site *site, const struct fp8q_kernel *kernel,
                           const struct fp8q_gemm *gemm, const float *w, uint32_t n_rows,
                           uint64_t n_cols, const float *scales, uint8_t *codes_out, void *scratch,
                           struct fp8q_error *err);

/* Output error on held-out tokens: sum over rows of d H d^T, d = w - code * scale.  */
struct fp8q_guard {
    double plain, compensated;
};
int fp8q_guard_stripe(const struct fp8q_site *site, const struct fp8q_kernel *kernel,
                      const struct fp8q_gemm *gemm, const float *w, uint32_t n_rows,
                      uint64_t n_cols, const float *scales, void *scratch,
                      struct fp8q_guard *sums_out, struct fp8q_error *err);
/* False without held-out tokens too: what cannot be shown is not done.  */
bool fp8q_guard_helps(const struct fp8q_guard *sums);

/* The guard over all stripes of tensors @names of @ckpt (one site's), read from disk with block
 * scales of @fmt.  */
int fp8q_guard_run(const struct fp8q_site *site, const struct fp8q_ckpt *ckpt,
                   const char *const *names, size_t n_names, enum fp8q_scale_fmt fmt,
                   const struct fp8q_kernel *kernel, const struct fp8q_gemm *gemm,
                   unsigned n_threads, struct fp8q_guard *sums_out, struct fp8q_error *err);

#endif
