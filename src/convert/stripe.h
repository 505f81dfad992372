/* SPDX-License-Identifier: Apache-2.0
 *
 * stripe.h - one stripe: 128 rows through read, amax, scale, encode, write.
 *
 * A stripe that does not fit the worker's memory is taken in panels of columns; bits and checksums
 * are the same.  One that fits leaves its bytes in the job, and fp8q_stripe_write() writes them
 * when the output file is free: a file takes one writer at a time, and a worker has better things
 * to do than to wait.  No allocation here.
 */
#ifndef FP8Q_STRIPE_H
#define FP8Q_STRIPE_H

#include "plan/plan.h"
#include "calibration/codes.h"
#include "calibration/rounding.h"
#include "checkpoint/weights.h"

/* Where a stripe comes from and goes to.  */
struct fp8q_stripe_job {
    const struct fp8q_plan *plan;
    const struct fp8q_piece *piece;
    uint64_t stripe; /* within the piece */
    const struct fp8q_kernel *kernel;
    int src_fd, dst_fd;
    const char *src_path, *dst_path;
    const struct fp8q_weights *weights; /* FP8 sources: how codes become values */
    float *scales;                      /* the piece's scales; this stripe fills its rows */
    const struct fp8q_codes *codes;     /* NULL, or where the FP8 values are already */
    const struct fp8q_hessian *site;    /* NULL, or GPTQ with it */
    const struct fp8q_gemm *gemm;       /* with a site */
    void *compensation;                 /* fp8q_gptq_scratch() bytes, with a site */
    float tensor_scale;                 /* FP8Q_SCHEME_TENSOR */
    char *memory;                       /* fp8q_stripe_need() bytes, or plan->stripe_bytes */
    size_t memory_size;
    /* Results: checksums of the stripe's bytes; and these bytes, at the end of @memory, where they
     * stay until they are written (@out_len is 0 if they are already).  */
    uint32_t source_crc, output_crc;
    const char *out;
    size_t out_len;
    uint64_t out_offset;
};

/* Memory with which a stripe of this piece is one panel; @compensated if it may have a site.  */
uint64_t fp8q_stripe_need(const struct fp8q_plan *plan, const struct fp8q_piece *piece,
                          bool compensated);

int fp8q_stripe_copy(struct fp8q_stripe_job *job, struct fp8q_error *err);
int fp8q_stripe_quantize(struct fp8q_stripe_job *job, struct fp8q_error *err);
int fp8q_stripe_float(struct fp8q_stripe_job *job, struct fp8q_error *err);
/* Writes what the stripe left in the job.  */
int fp8q_stripe_write(struct fp8q_stripe_job *job, struct fp8q_error *err);
/* Reads only: the largest magnitude, as F32, for per-tensor scales.  */
int fp8q_stripe_amax_only(struct fp8q_stripe_job *job, float *amax_out, struct fp8q_error *err);

#endif
