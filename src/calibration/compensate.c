/* SPDX-License-Identifier: Apache-2.0
 *
 * compensate.c - rounding a stripe with a prepared site, and the guard.
 */
#include "calibration/compensate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "calibration/site.h"

/* One call's working memory: the block transposed, what it became, a product.  */
struct scratch {
    float columns[FP8Q_MOMENTS]; /* [column in order][row]: values still to round */
    float deltas[FP8Q_MOMENTS];  /* [row][column] */
    float product[FP8Q_MOMENTS];
    float packed_a[(FP8Q_BLOCK + 16) * FP8Q_BLOCK], packed_b[(FP8Q_BLOCK + 32) * FP8Q_BLOCK];
    float rounded[FP8Q_BLOCK], error[FP8Q_BLOCK];
    uint8_t codes[FP8Q_MOMENTS]; /* [column in order][row] */
};

size_t fp8q_compensate_scratch(void)
{
    return sizeof(struct scratch);
}

/* Codes of one block with @factors; the columns' values are consumed.  After column i is rounded
 * with error e, the columns j > i take -e * factors[i][j]: the step of GPTQ, with the division
 * folded into the factors.  */
static void round_block(const struct fp8q_kernel *kernel, const struct fp8q_gemm *gemm,
                        const float *factors, struct scratch *s, uint32_t n_rows, size_t n,
                        float scale)
{
    for (size_t i = 0; i < n; i++) {
        float *column = s->columns + i * n_rows;
        uint8_t *codes = s->codes + i * n_rows;
        kernel->encode[FP8Q_FLOAT_F32](codes, column, n_rows, scale);
        kernel->decode[FP8Q_FLOAT_F32](s->rounded, codes, n_rows, scale);
        for (uint32_t r = 0; r < n_rows; r++)
            s->error[r] = column[r] - s->rounded[r];
        gemm->subtract_outer(column + n_rows, n_rows, factors + i * FP8Q_BLOCK + i + 1, n - i - 1,
                             s->error, n_rows);
    }
}

static void take_block(struct scratch *s, const uint8_t *order, const float *w, uint32_t n_rows,
                       uint64_t n_cols, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < n_rows; r++)
            s->columns[i * n_rows + r] = w[r * n_cols + order[i]];
}

static int check_call(const struct fp8q_site *site, uint32_t n_rows, uint64_t n_cols,
                      struct fp8q_error *err)
{
    if (n_cols == site->n_cols && n_rows <= FP8Q_BLOCK)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "calibration-shape",
                     "a stripe of %u x %llu for statistics of %llu channels", n_rows,
                     (unsigned long long)n_cols, (unsigned long long)site->n_cols);
}

int fp8q_compensate_stripe(const struct fp8q_site *site, const struct fp8q_kernel *kernel,
                           const struct fp8q_gemm *gemm, const float *w, uint32_t n_rows,
                           uint64_t n_cols, const float *scales, uint8_t *codes_out, void *scratch,
                           struct fp8q_error *err)
{
    struct scratch *s = scratch;
    FP8Q_TRY(check_call(site, n_rows, n_cols, err));
    for (size_t b = 0; b < site->n_blocks; b++) {
        const struct fp8q_site_block *block = &site->blocks[b];
        size_t at = b * FP8Q_BLOCK,
               n = (size_t)n_cols - at < FP8Q_BLOCK ? (size_t)n_cols - at : FP8Q_BLOCK;
        take_block(s, block->order, w + at, n_rows, n_cols, n);
        round_block(kernel, gemm, block->factors, s, n_rows, n, scales[b]);
        for (size_t i = 0; i < n; i++)
            for (uint32_t r = 0; r < n_rows; r++)
                codes_out[r * n_cols + at + block->order[i]] = s->codes[i * n_rows + r];
    }
    return FP8Q_OK;
}

/* ---- guard ----------------------------------------------------------------------------------- */

/* sum over rows of d H d^T for the codes in @s; @order as they stand (NULL: natural).  */
static double held_error(const struct fp8q_kernel *kernel, const struct fp8q_gemm *g,
                         struct scratch *s, const uint8_t *order, const float *w, uint32_t n_rows,
                         uint64_t n_cols, size_t n, float scale, const float *moments)
{
    for (size_t i = 0; i < n; i++) {
        size_t column = order ? order[i] : i;
        kernel->decode[FP8Q_FLOAT_F32](s->rounded, s->codes + i * n_rows, n_rows, scale);
        for (uint32_t r = 0; r < n_rows; r++)
            s->deltas[r * n + column] = w[r * n_cols + column] - s->rounded[r];
    }
    fp8q_pack_a(g, (struct fp8q_strided){s->deltas, n, 1}, n_rows, n, s->packed_a);
    fp8q_pack_b(g, (struct fp8q_strided){moments, FP8Q_BLOCK, 1}, n, n, s->packed_b);
    fp8q_gemm_packed(g, n_rows, n, n, s->packed_a, s->packed_b, s->product, n);
    return g->dot(s->product, s->deltas, n_rows * n);
}

int fp8q_guard_stripe(const struct fp8q_site *site, const struct fp8q_kernel *kernel,
                      const struct fp8q_gemm *gemm, const float *w, uint32_t n_rows,
                      uint64_t n_cols, const float *scales, void *scratch,
                      struct fp8q_guard *sums_out, struct fp8q_error *err)
{
    struct scratch *s = scratch;
    *sums_out = (struct fp8q_guard){0};
    FP8Q_TRY(check_call(site, n_rows, n_cols, err));
    for (size_t b = 0; b < site->n_blocks; b++) {
        const struct fp8q_site_block *block = &site->blocks[b];
        size_t at = b * FP8Q_BLOCK,
               n = (size_t)n_cols - at < FP8Q_BLOCK ? (size_t)n_cols - at : FP8Q_BLOCK;
        take_block(s, block->order, w + at, n_rows, n_cols, n);
        kernel->encode[FP8Q_FLOAT_F32](s->codes, s->columns, n * n_rows, scales[b]);
        sums_out->plain += held_error(kernel, gemm, s, block->order, w + at, n_rows, n_cols, n,
                                      scales[b], block->held);
        take_block(s, block->order_fit, w + at, n_rows, n_cols, n);
        round_block(kernel, gemm, block->factors_fit, s, n_rows, n, scales[b]);
        sums_out->compensated += held_error(kernel, gemm, s, block->order_fit, w + at, n_rows,
                                            n_cols, n, scales[b], block->held);
    }
    return FP8Q_OK;
}

bool fp8q_guard_helps(const struct fp8q_guard *sums)
{
    return sums->compensated < sums->plain;
}

/* ---- guard over tensors on disk -------------------------------------------------------------- */

struct guard_job {
    const struct fp8q_site *site;
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    struct fp8q_weights *weights;
    size_t n_weights;
    enum fp8q_scale_fmt fmt;
    uint8_t *areas; /* a worker's: raw and F32 rows, scales, amax, scratch */
    size_t area_size;
    struct fp8q_guard *sums; /* by stripe */
};

static int guard_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct guard_job *job = ctx;
    const struct fp8q_weights *w = job->weights;
    uint64_t stripe = task, n_cols = job->site->n_cols;
    for (; stripe >= fp8q_ceil_div(w->n_rows, FP8Q_BLOCK); w++)
        stripe -= fp8q_ceil_div(w->n_rows, FP8Q_BLOCK);
    uint64_t row = stripe * FP8Q_BLOCK;
    uint32_t n_rows = (uint32_t)(w->n_rows - row < FP8Q_BLOCK ? w->n_rows - row : FP8Q_BLOCK);
    struct scratch *scratch = (struct scratch *)(void *)(job->areas + worker * job->area_size);
    float *values = (float *)(void *)(scratch + 1), *raw = values + FP8Q_BLOCK * n_cols;
    float *scales = raw + FP8Q_BLOCK * n_cols;
    uint32_t *amax = (uint32_t *)(void *)(scales + job->site->n_blocks);
    FP8Q_TRY(fp8q_weights_read(w, job->kernel, row, n_rows, raw, values, err));
    struct fp8q_stripe s = {
        .src = values, .from = FP8Q_FLOAT_F32, .n_rows = n_rows, .n_cols = n_cols};
    fp8q_stripe_amax(job->kernel, &s, amax);
    for (size_t b = 0; b < job->site->n_blocks; b++) {
        float value;
        struct fp8q_shown shown;
        if (!fp8q_amax_value(FP8Q_FLOAT_F32, amax[b], &value))
            return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "tensor \"%s\" holds NaN or Inf",
                             fp8q_show(&shown, w->tensor->name));
        scales[b] = fp8q_scale(value, job->fmt);
    }
    return fp8q_guard_stripe(job->site, job->kernel, job->gemm, values, n_rows, n_cols, scales,
                             scratch, &job->sums[task], err);
}

int fp8q_guard_run(const struct fp8q_site *site, const struct fp8q_ckpt *ckpt,
                   const char *const *names, size_t n_names, enum fp8q_scale_fmt fmt,
                   const struct fp8q_kernel *kernel, const struct fp8q_gemm *gemm,
                   unsigned n_threads, struct fp8q_guard *sums_out, struct fp8q_error *err)
{
    struct guard_job job = {.site = site, .kernel = kernel, .gemm = gemm, .fmt = fmt};
    uint64_t stripes = 0;
    int status = FP8Q_OK;
    *sums_out = (struct fp8q_guard){0};
    n_threads = n_threads ? n_threads : 1;
    job.area_size = sizeof(struct scratch) + 2 * FP8Q_BLOCK * (size_t)site->n_cols * sizeof(float) +
                    2 * site->n_blocks * sizeof(float);
    job.area_size = (job.area_size + 63) / 64 * 64;
    job.weights = fp8q_array(n_names, sizeof(*job.weights));
    job.areas = fp8q_array(n_threads, job.area_size);
    if (!job.weights || !job.areas)
        status = fp8q_fail_nomem(err);
    for (; job.n_weights < n_names && status == FP8Q_OK; job.n_weights++) {
        struct fp8q_weights *w = &job.weights[job.n_weights];
        status = fp8q_weights_open(ckpt, names[job.n_weights], w, err);
        if (status == FP8Q_OK && (w->n_cols != site->n_cols || w->tensor->ndim != 2))
            status = check_call(site, 0, w->n_cols + (w->tensor->ndim != 2), err);
        stripes += fp8q_ceil_div(w->n_rows, FP8Q_BLOCK);
    }
    job.sums = fp8q_array(stripes, sizeof(*job.sums));
    if (status == FP8Q_OK && !job.sums)
        status = fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = fp8q_pool_run(NULL, n_threads, stripes, guard_task, &job, err);
    for (uint64_t i = 0; i < stripes && status == FP8Q_OK; i++) {
        sums_out->plain += job.sums[i].plain;
        sums_out->compensated += job.sums[i].compensated;
    }
    for (size_t i = 0; i < job.n_weights; i++)
        fp8q_weights_reset(&job.weights[i]);
    free(job.weights);
    free(job.areas);
    free(job.sums);
    return status;
}
