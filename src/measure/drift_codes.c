/* SPDX-License-Identifier: Apache-2.0
 *
 * drift_codes.c - how many FP8 values GPTQ would round differently with the new statistics: each
 * weight is rounded twice, with the Hessian of the old file and with that of the new one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "calibration/gptq.h"
#include "calibration/hessian.h"
#include "checkpoint/weights.h"
#include "format/names.h"
#include "measure/internal.h"

struct codes_job {
    struct fp8q_hessian *before, *after;
    const struct fp8q_weights *weights;
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    enum fp8q_scale_fmt fmt;
    unsigned n_threads;
    const struct fp8q_watch *watch;
    uint8_t *areas; /* of a worker: see area_layout() */
    size_t area_size;
    uint64_t *changed; /* by stripe */
};

/* Where a worker keeps what; @values stays, @raw is read into and then holds the FP8 values.  */
struct area {
    void *scratch;
    float *values, *raw, *scales;
    uint32_t *amax;
};

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t area_layout(uint8_t *at, uint64_t n_cols, struct area *area_out)
{
    size_t cols = (size_t)n_cols, blocks = (size_t)fp8q_ceil_div(n_cols, FP8Q_BLOCK);
    size_t scratch = aligned(fp8q_gptq_scratch());
    float *floats = (float *)(void *)(at + scratch);

    /* Without @area_out the size alone is asked for, and @at is NULL.  */
    if (area_out) {
        area_out->scratch = at;
        area_out->values = floats;
        area_out->raw = floats + FP8Q_BLOCK * cols;
        area_out->scales = area_out->raw + FP8Q_BLOCK * cols;
        area_out->amax = (uint32_t *)(void *)(area_out->scales + blocks);
    }
    return scratch + aligned((2 * FP8Q_BLOCK * cols + 2 * blocks) * sizeof(float));
}

static int block_scales(const struct codes_job *job, const struct area *a, uint32_t n_rows,
                        struct fp8q_error *err)
{
    const struct fp8q_weights *w = job->weights;
    const struct fp8q_stripe s = {
        .src = a->values, .from = FP8Q_FLOAT_F32, .n_rows = n_rows, .n_cols = w->n_cols};
    size_t n_blocks = (size_t)fp8q_ceil_div(w->n_cols, FP8Q_BLOCK);
    struct fp8q_shown shown;

    fp8q_stripe_amax(job->kernel, &s, a->amax);
    if (!fp8q_block_scales(FP8Q_FLOAT_F32, a->amax, n_blocks, job->fmt, a->scales))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "tensor \"%s\" holds NaN or Inf",
                         fp8q_show(&shown, w->tensor->name));
    return FP8Q_OK;
}

static int codes_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct codes_job *job = ctx;
    const struct fp8q_weights *w = job->weights;
    uint64_t row = task * FP8Q_BLOCK, n_cols = w->n_cols;
    uint32_t n_rows = (uint32_t)fp8q_min_u64(w->n_rows - row, FP8Q_BLOCK);
    struct area a = {0};

    area_layout(job->areas + worker * job->area_size, n_cols, &a);
    FP8Q_TRY(fp8q_weights_read(w, job->kernel, row, n_rows, a.raw, a.values, err));
    FP8Q_TRY(block_scales(job, &a, n_rows, err));

    /* Both fit where the source was read: a value is one byte there, not four.  Scales come from
     * the weights alone, so the two roundings share them.  */
    uint8_t *before = (uint8_t *)a.raw, *after = before + FP8Q_BLOCK * n_cols;
    struct fp8q_gptq_stripe stripe = {.hessian = job->before,
                                      .kernel = job->kernel,
                                      .gemm = job->gemm,
                                      .w = a.values,
                                      .n_rows = n_rows,
                                      .n_cols = n_cols,
                                      .scales = a.scales,
                                      .scratch = a.scratch};
    FP8Q_TRY(fp8q_gptq_encode(&stripe, before, err));
    stripe.hessian = job->after;
    FP8Q_TRY(fp8q_gptq_encode(&stripe, after, err));

    /* A stripe has its own counter: no worker waits for another.  */
    for (uint64_t i = 0; i < n_rows * n_cols; i++)
        job->changed[task] += before[i] != after[i];
    return FP8Q_OK;
}

static int run_tensor(struct codes_job *job, const struct fp8q_weights *weights,
                      uint64_t *changed_out, struct fp8q_error *err)
{
    uint64_t stripes = fp8q_ceil_div(weights->n_rows, FP8Q_BLOCK);

    job->weights = weights;
    job->area_size = area_layout(NULL, weights->n_cols, NULL);
    job->areas = fp8q_array(job->n_threads, job->area_size);
    job->changed = fp8q_array(stripes, sizeof(*job->changed));
    if (!job->areas || !job->changed)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(fp8q_pool_run(job->watch, job->n_threads, stripes, codes_task, job, err));

    for (uint64_t i = 0; i < stripes; i++)
        *changed_out += job->changed[i];
    return FP8Q_OK;
}

static int tensor_codes(struct codes_job *job, const struct fp8q_ckpt *ckpt, const char *tensor,
                        uint64_t *changed, uint64_t *total, struct fp8q_error *err)
{
    struct fp8q_weights weights;
    FP8Q_TRY(fp8q_weights_open(ckpt, tensor, &weights, err));

    int status = run_tensor(job, &weights, changed, err);
    *total += weights.tensor->n_elems;
    /* The job lives on: the next tensor of the site has another size.  */
    free(job->areas);
    free(job->changed);
    job->areas = NULL;
    job->changed = NULL;
    job->weights = NULL;
    fp8q_weights_reset(&weights);
    return status;
}

/* Over all tensors that the site feeds.  */
static int all_tensors(struct codes_job *job, const struct fp8q_ckpt *ckpt, uint64_t width,
                       struct fp8q_drift_site *out, struct fp8q_error *err)
{
    uint64_t changed = 0, total = 0;

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        struct fp8q_name name;
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        /* The width as well: the Hessians are of so many channels.  */
        if (t->ndim == 2 && t->shape[1] == width && fp8q_ends_with(t->name, FP8Q_WEIGHT_ENDING) &&
            strcmp(fp8q_calib_site_of(t->name, &name), out->name) == 0)
            FP8Q_TRY(tensor_codes(job, ckpt, t->name, &changed, &total, err));
    }

    out->n_codes = total;
    out->codes_changed = total ? (double)changed / (double)total : (double)NAN;
    return FP8Q_OK;
}

static int with_hessians(struct codes_job *job, const struct fp8q_drift_pair *pair,
                         struct fp8q_drift_site *out, struct fp8q_error *err)
{
    uint64_t width = fp8q_calib_find(pair->before, out->name)->width;
    unsigned n = job->n_threads;
    FP8Q_TRY(fp8q_hessian_create(pair->before, out->name, width, n, &job->before, err));
    FP8Q_TRY(fp8q_hessian_create(pair->after, out->name, width, n, &job->after, err));

    /* A file without Hessians (--no-moments) has nothing to re-round with.  */
    if (!job->before || !job->after)
        return FP8Q_OK;
    return all_tensors(job, pair->options->ckpt, width, out, err);
}

static int site_codes(struct codes_job *job, const struct fp8q_drift_pair *pair,
                      struct fp8q_drift_site *out, struct fp8q_error *err)
{
    job->before = job->after = NULL;
    int status = with_hessians(job, pair, out, err);

    fp8q_hessian_destroy(job->before);
    fp8q_hessian_destroy(job->after);
    return status;
}

int fp8q_drift_codes(const struct fp8q_drift_pair *pair, const struct fp8q_kernel *kernel,
                     struct fp8q_drift *d, struct fp8q_error *err)
{
    const struct fp8q_drift_options *o = pair->options;
    struct codes_job job = {.kernel = kernel,
                            .gemm = fp8q_gemm_select(o->kernel ? kernel->name : NULL),
                            .fmt = o->fmt,
                            .n_threads = o->n_threads ? o->n_threads : 1,
                            .watch = o->watch};
    double changed = 0, total = 0;

    for (size_t i = 0; i < d->n_sites; i++) {
        struct fp8q_drift_site *s = &d->sites[i];

        /* The Hessians of a site take long, before its first stripe.  */
        FP8Q_TRY(fp8q_watch_check(o->watch, err));
        FP8Q_TRY(site_codes(&job, pair, s, err));

        /* By number of values, so that a small linear counts for little.  */
        if (!isnan(s->codes_changed)) {
            changed += s->codes_changed * (double)s->n_codes;
            total += (double)s->n_codes;
        }
        fp8q_watch_report(o->watch, "drift", i + 1, d->n_sites, FP8Q_UNIT_STEPS);
    }

    d->codes_changed = total > 0 ? changed / total : (double)NAN;
    return FP8Q_OK;
}
