/* SPDX-License-Identifier: Apache-2.0
 *
 * rounding.h - GPTQ for a whole plan: which tensors, and the Hessian of each while it
 * streams.
 *
 * Sites that share an input are decided together by the guard (gptq.h), before the first code
 * is written.
 */
#ifndef FP8Q_ROUNDING_H
#define FP8Q_ROUNDING_H

#include <pthread.h>

#include "calibration/gptq.h"
#include "plan/plan.h"

/* Site of some tensors, loaded while stripes of them are under way.  */
struct fp8q_rounding_site {
    char name[160];
    struct fp8q_hessian *hessian; /* NULL: not loaded */
    unsigned users;
    uint64_t n_cols;
    bool compensated; /* the guard's word */
    struct fp8q_gptq_error guard;
};

struct fp8q_rounding {
    const struct fp8q_plan *plan;
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    const char *path;
    struct fp8q_calib calib;
    struct fp8q_rounding_site *sites;
    size_t n_sites, n_compensated, n_plain, n_without;
    size_t *site_of; /* by source tensor: index in @sites, or SIZE_MAX */
    uint32_t source_fingerprint;
    pthread_mutex_t lock; /* guards hessian and users of @sites */
};

/* Opens the calibration file, checks that it is of the plan's source (FP8Q_E_EVIDENCE
 * "calibration-foreign"), and lets the guard decide each site, unless @decided says which are
 * compensated (names, sorted by caller; verify).  Only 2-D block-quantized tensors take part.
 * Release with fp8q_rounding_close() in every case.  */
int fp8q_rounding_open(const struct fp8q_plan *plan, const char *path,
                       const struct fp8q_kernel *kernel, const struct fp8q_json *decided,
                       const struct fp8q_watch *watch, struct fp8q_rounding *rounding_out,
                       struct fp8q_error *err);
void fp8q_rounding_close(struct fp8q_rounding *rounding);

/* The Hessian that compensates source tensor @source, or NULL for plain rounding.  Pairs with
 * _release().  */
int fp8q_rounding_acquire(struct fp8q_rounding *rounding, size_t source,
                          const struct fp8q_hessian **hessian_out, struct fp8q_error *err);
void fp8q_rounding_release(struct fp8q_rounding *rounding, size_t source);

/* The manifest's "rounding": method, calibration file, and the names of compensated sites.  */
int fp8q_rounding_json(const struct fp8q_rounding *rounding, struct fp8q_text *out,
                       struct fp8q_error *err);

#endif
