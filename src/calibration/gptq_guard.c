/* SPDX-License-Identifier: Apache-2.0
 *
 * gptq_guard.c - the guard over all tensors of one linear input, stripe by stripe from disk.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "base/pool.h"
#include "calibration/gptq.h"

struct run {
    const struct fp8q_gptq_guard_job *job;
    struct fp8q_weights *weights;
    size_t n_weights;
    uint8_t *areas; /* a worker's: scratch, F32 rows, raw rows, scales, amax */
    size_t area_size;
    struct fp8q_gptq_error *sums; /* by stripe: added in order afterwards, whoever made them */
};

static int guard_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct run *run = ctx;
    const struct fp8q_gptq_guard_job *job = run->job;
    const struct fp8q_hessian *hessian = job->hessian;

    /* Stripes are numbered through all tensors.  */
    const struct fp8q_weights *w = run->weights;
    uint64_t stripe = task;
    for (; stripe >= fp8q_ceil_div(w->n_rows, FP8Q_BLOCK); w++)
        stripe -= fp8q_ceil_div(w->n_rows, FP8Q_BLOCK);
    uint64_t row = stripe * FP8Q_BLOCK, n_cols = hessian->n_cols;
    uint32_t n_rows = (uint32_t)fp8q_min_u64(w->n_rows - row, FP8Q_BLOCK);

    uint8_t *scratch = run->areas + worker * run->area_size;
    float *values = (float *)(void *)(scratch + fp8q_gptq_scratch());
    float *raw = values + FP8Q_BLOCK * n_cols, *scales = raw + FP8Q_BLOCK * n_cols;
    uint32_t *amax = (uint32_t *)(void *)(scales + hessian->n_blocks);

    FP8Q_TRY(fp8q_weights_read(w, job->kernel, row, n_rows, raw, values, err));
    struct fp8q_stripe s = {
        .src = values, .from = FP8Q_FLOAT_F32, .n_rows = n_rows, .n_cols = n_cols};
    struct fp8q_shown shown;
    fp8q_stripe_amax(job->kernel, &s, amax);
    if (!fp8q_block_scales(FP8Q_FLOAT_F32, amax, hessian->n_blocks, job->fmt, scales))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "tensor \"%s\" holds NaN or Inf",
                         fp8q_show(&shown, w->tensor->name));

    struct fp8q_gptq_stripe of_values = {hessian, job->kernel, job->gemm, values,
                                         n_rows,  n_cols,      scales,    scratch};
    return fp8q_gptq_guard(&of_values, &run->sums[task], err);
}

static int open_weights(struct run *run, uint64_t *stripes_out, struct fp8q_error *err)
{
    const struct fp8q_gptq_guard_job *job = run->job;
    struct fp8q_shown shown;
    *stripes_out = 0;
    for (; run->n_weights < job->n_names; run->n_weights++) {
        struct fp8q_weights *w = &run->weights[run->n_weights];
        FP8Q_TRY(fp8q_weights_open(job->ckpt, job->names[run->n_weights], w, err));

        /* The linear inputs of a file are matched by name, so widths may disagree.  */
        if (w->n_cols != job->hessian->n_cols || w->tensor->ndim != 2)
            return fp8q_fail(err, FP8Q_E_ARG, "calibration-shape",
                             "tensor \"%s\" has %u dimensions and rows of %llu for statistics of "
                             "%llu channels",
                             fp8q_show(&shown, w->tensor->name), w->tensor->ndim,
                             (unsigned long long)w->n_cols,
                             (unsigned long long)job->hessian->n_cols);
        *stripes_out += fp8q_ceil_div(w->n_rows, FP8Q_BLOCK);
    }
    return FP8Q_OK;
}

static int guard_all(struct run *run, struct fp8q_gptq_error *sums_out, struct fp8q_error *err)
{
    const struct fp8q_hessian *hessian = run->job->hessian;
    unsigned n_threads = run->job->n_threads ? run->job->n_threads : 1;
    uint64_t stripes;

    run->weights = fp8q_array(run->job->n_names, sizeof(*run->weights));
    if (!run->weights)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(open_weights(run, &stripes, err));

    run->area_size = fp8q_gptq_scratch() +
                     2 * FP8Q_BLOCK * (size_t)hessian->n_cols * sizeof(float) +
                     2 * hessian->n_blocks * sizeof(float);
    run->area_size = (run->area_size + 63) / 64 * 64;
    /* A worker keeps one area for all its stripes.  */
    run->areas = fp8q_array(n_threads, run->area_size);
    run->sums = fp8q_array(stripes, sizeof(*run->sums));
    if (!run->areas || !run->sums)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(fp8q_pool_run(run->job->watch, n_threads, stripes, guard_task, run, err));

    for (uint64_t i = 0; i < stripes; i++) {
        sums_out->plain += run->sums[i].plain;
        sums_out->compensated += run->sums[i].compensated;
    }
    return FP8Q_OK;
}

int fp8q_gptq_guard_run(const struct fp8q_gptq_guard_job *job, struct fp8q_gptq_error *sums_out,
                        struct fp8q_error *err)
{
    struct run run = {.job = job};
    *sums_out = (struct fp8q_gptq_error){0};
    int status = guard_all(&run, sums_out, err);

    for (size_t i = 0; i < run.n_weights; i++)
        fp8q_weights_reset(&run.weights[i]);
    free(run.weights);
    free(run.areas);
    free(run.sums);
    return status;
}
