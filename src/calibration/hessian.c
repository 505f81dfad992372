/* SPDX-License-Identifier: Apache-2.0
 *
 * hessian.c - from second moments to the factors of GPTQ, in F64, one block at a time.
 *
 * GPTQ needs the upper factor U of the inverse, inv(H) = U^T U.  Splitting H = R R^T with R upper
 * triangular (a Cholesky from the last row up) gives U = inv(R) without inverting H.
 */
#include "calibration/hessian.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"

#define DAMPING 0.01 /* of the mean second moment, added to the diagonal */
/* Moments between channels are trusted a little less than those of a channel with itself: text of
 * another kind has the latter alike and the former not.  Measured on SmolLM2: log lines as
 * calibration give 0.94 x the KLD of plain rounding instead of 1.10 x, and text like the
 * evaluation's is no worse.  */
#define SHRINKAGE 0.2

/* Channels by falling moment; equal ones (dead channels) keep their places.  */
static void choose_order(const float *h, size_t n, uint8_t *order)
{
    for (size_t i = 0; i < n; i++) {
        /* Insertion: at most 128, and stable.  */
        size_t at = i;
        for (; at > 0 && h[order[at - 1] * FP8Q_BLOCK + order[at - 1]] < h[i * FP8Q_BLOCK + i];
             at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)i;
    }
}

/* In place: @a [n][n] symmetric -> R with a = R R^T, R upper.  False if @a is not positive
 * definite.  */
static bool factor_from_below(double *a, size_t n)
{
    for (size_t j = n; j-- > 0;) {
        double d = a[j * n + j];
        for (size_t k = j + 1; k < n; k++)
            d -= a[j * n + k] * a[j * n + k];
        /* Dead channels that damping could not help.  */
        if (!(d > 0) || !isfinite(d))
            return false;
        d = sqrt(d);
        a[j * n + j] = d;
        for (size_t i = 0; i < j; i++) {
            double sum = a[i * n + j];
            for (size_t k = j + 1; k < n; k++)
                sum -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = sum / d;
        }
    }
    return true;
}

/* Row i of inv(R) divided by its diagonal -> factors[i][j], j > i.  */
static void invert_rows(const double *r, size_t n, double *u, float *factors)
{
    for (size_t i = 0; i < n; i++) {
        u[i] = 1.0 / r[i * n + i];
        for (size_t j = i + 1; j < n; j++) {
            double sum = 0;
            for (size_t k = i; k < j; k++)
                sum -= u[k] * r[k * n + j];
            u[j] = sum / r[j * n + j];
        }
        for (size_t j = i + 1; j < n; j++)
            factors[i * FP8Q_BLOCK + j] = (float)(u[j] / u[i]);
    }
}

/* No usable moments (no tokens, all channels dead): factors of 0, which is plain rounding.  */
static void prepare(const float *h, size_t n, uint8_t *order, float *factors, double *work)
{
    double mean = 0, *u = work + n * n;

    choose_order(h, n, order);

    /* A mean of the diagonal, so that damping fits inputs of any size.  */
    for (size_t i = 0; i < n; i++)
        mean += (double)h[i * FP8Q_BLOCK + i] / (double)n;

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            work[i * n + j] =
                (double)h[order[i] * FP8Q_BLOCK + order[j]] * (i == j ? 1.0 : 1.0 - SHRINKAGE) +
                (i == j ? DAMPING * mean : 0.0);

    /* Zero first: without usable moments this is what remains, and it is plain rounding.  */
    memset(factors, 0, FP8Q_MOMENTS * sizeof(*factors));
    /* Without factors the block is rounded plainly.  */
    if (mean > 0 && factor_from_below(work, n))
        invert_rows(work, n, u, factors);
}

struct job {
    struct fp8q_hessian *hessian;
    float *fit;
    double *work; /* a worker's */
};

#define WORK_DOUBLES (FP8Q_MOMENTS + FP8Q_BLOCK)

static int block_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *job = ctx;
    struct fp8q_hessian_block *block = &job->hessian->blocks[task];
    double *work = job->work + worker * WORK_DOUBLES;
    float *fit = job->fit + task * FP8Q_MOMENTS;
    size_t n = (size_t)(job->hessian->n_cols - task * FP8Q_BLOCK);
    (void)err;

    n = n < FP8Q_BLOCK ? n : FP8Q_BLOCK;
    prepare(fit, n, block->order_fit, block->factors_fit, work);

    /* The factors with which the output is written use what was held out too.  */
    for (size_t i = 0; i < FP8Q_MOMENTS; i++)
        fit[i] += block->held[i];
    prepare(fit, n, block->order, block->factors, work);
    return FP8Q_OK;
}

static int read_moments(const struct fp8q_calib *calib, const struct fp8q_calib_site *stats,
                        struct job *job, struct fp8q_error *err)
{
    size_t n = job->hessian->n_blocks;
    FP8Q_TRY(fp8q_calib_read(calib, stats, FP8Q_CALIB_HBLK, job->fit, err));
    float *held = fp8q_array(n * FP8Q_MOMENTS, sizeof(*held));
    if (!held)
        return fp8q_fail_nomem(err);

    /* In the file they are one array, here each block has its own beside the factors.  */
    int status = fp8q_calib_read(calib, stats, FP8Q_CALIB_HELD, held, err);
    for (size_t b = 0; b < n; b++)
        memcpy(job->hessian->blocks[b].held, held + b * FP8Q_MOMENTS, FP8Q_MOMENTS * sizeof(*held));
    free(held);
    return status;
}

static int prepare_all(const struct fp8q_calib *calib, const struct fp8q_calib_site *stats,
                       unsigned n_threads, struct job *job, struct fp8q_error *err)
{
    struct fp8q_hessian *hessian = job->hessian;
    hessian->blocks = fp8q_array(hessian->n_blocks, sizeof(*hessian->blocks));
    job->fit = fp8q_array(hessian->n_blocks * FP8Q_MOMENTS, sizeof(*job->fit));
    job->work = fp8q_array(n_threads * WORK_DOUBLES, sizeof(*job->work));
    if (!hessian->blocks || !job->fit || !job->work)
        return fp8q_fail_nomem(err);

    FP8Q_TRY(read_moments(calib, stats, job, err));
    return fp8q_pool_run(NULL, n_threads, hessian->n_blocks, block_task, job, err);
}

int fp8q_hessian_create(const struct fp8q_calib *calib, const char *tensor_name, uint64_t n_cols,
                        unsigned n_threads, struct fp8q_hessian **hessian_out,
                        struct fp8q_error *err)
{
    struct fp8q_name name;
    const struct fp8q_calib_site *stats =
        fp8q_calib_find(calib, fp8q_calib_site_of(tensor_name, &name));
    *hessian_out = NULL;
    if (!stats || !stats->has[FP8Q_CALIB_HBLK] || fp8q_calib_is_few(stats) ||
        fp8q_calib_is_noise(calib))
        return FP8Q_OK;
    if (stats->width != n_cols)
        return fp8q_fail(
            err, FP8Q_E_EVIDENCE, "calibration-shape",
            "%s: \"%s\" holds statistics of %llu channels, the weight has %llu columns",
            calib->file->path, name.text, (unsigned long long)stats->width,
            (unsigned long long)n_cols);

    struct fp8q_hessian *hessian = calloc(1, sizeof(*hessian));
    if (!hessian)
        return fp8q_fail_nomem(err);
    hessian->n_cols = n_cols;
    hessian->n_blocks = (size_t)fp8q_ceil_div(n_cols, FP8Q_BLOCK);

    struct job job = {.hessian = hessian};
    int status = prepare_all(calib, stats, n_threads ? n_threads : 1, &job, err);
    free(job.fit);
    free(job.work);
    if (status != FP8Q_OK) {
        fp8q_hessian_destroy(hessian);
        return status;
    }
    *hessian_out = hessian;
    return FP8Q_OK;
}

void fp8q_hessian_destroy(struct fp8q_hessian *hessian)
{
    if (hessian)
        free(hessian->blocks);
    free(hessian);
}
