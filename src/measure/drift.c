/* SPDX-License-Identifier: Apache-2.0
 *
 * drift.c - compares statistics site by site.
 */
#include "measure/drift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calibration/gptq.h"
#include "base/mem.h"
#include "base/pool.h"

const struct fp8q_drift_limits fp8q_drift_defaults = {
    .rms = 1.0,
    .absmax = 1.0,
    .overlap = 0.5,
    .hist = 0.5,
    .channels = 0.5,
    .mix = 0.2,
    .sites = 0.05,
};

/* ---- statistics of one site ------------------------------------------------------------------ */

/* Sums over modalities, by channel.  */
static int channel_sums(const struct fp8q_calib *c, const struct fp8q_calib_site *s,
                        enum fp8q_calib_array array, double *out, struct fp8q_error *err)
{
    float *values = fp8q_array(fp8q_calib_floats(s, array), sizeof(*values));
    if (!values)
        return fp8q_fail_nomem(err);
    int status = fp8q_calib_read(c, s, array, values, err);
    for (uint64_t k = 0; k < s->width && status == FP8Q_OK; k++) {
        /* Both, then one of them: gcc 12 for aarch64 cannot compile the choice within the loop.  */
        double sum = 0, largest = 0;
        for (uint32_t g = 0; g < s->n_groups; g++) {
            double v = (double)values[g * s->width + k];
            sum += v;
            largest = fmax(largest, v);
        }
        out[k] = array == FP8Q_CALIB_ABSMAX ? largest : sum;
    }
    free(values);
    return status;
}

static double tokens(const struct fp8q_calib_site *s)
{
    double n = 0;
    for (uint32_t g = 0; g < s->n_groups; g++)
        n += (double)s->count[g];
    return n;
}

static double sum_of(const double *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static double max_of(const double *x, uint64_t n)
{
    double max = 0;
    for (uint64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static double log2_ratio(double a, double b)
{
    if (a == b)
        return 0;
    return a > 0 && b > 0 ? log2(a / b) : (a > b ? INFINITY : -INFINITY);
}

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Value that the @top largest reach.  */
static double threshold(const double *x, uint64_t n, uint64_t top, double *work)
{
    memcpy(work, x, (size_t)n * sizeof(*x));
    qsort(work, (size_t)n, sizeof(*work), falling);
    return work[top - 1];
}

/* Share of the top channels of @a (1 %, at least 4) that are near the top of @b (4 %).  The margin
 * is for channels of about equal energy, whose ranks change with every text.  */
static double stay_on_top(const double *a, const double *b, uint64_t n, double *work)
{
    uint64_t top = n / 100 > 4 ? n / 100 : n < 4 ? n : 4, near = 4 * top < n ? 4 * top : n;
    uint64_t in_top = 0, stay = 0;
    double limit_a = threshold(a, n, top, work), limit_b = threshold(b, n, near, work);
    for (uint64_t i = 0; i < n; i++)
        if (a[i] >= limit_a) {
            in_top++;
            stay += b[i] >= limit_b;
        }
    return (double)stay / (double)in_top;
}

static double top_overlap(const double *a, const double *b, uint64_t n, double *work)
{
    return fmin(stay_on_top(a, b, n, work), stay_on_top(b, a, n, work));
}

static double channel_change(const double *a, double n_a, const double *b, double n_b, uint64_t n)
{
    double total = sum_of(a, n) / n_a, sum = 0;
    for (uint64_t i = 0; i < n; i++)
        if (a[i] > 0 && b[i] > 0)
            sum += a[i] / n_a * fabs(0.5 * log2((b[i] / n_b) / (a[i] / n_a)));
    return total > 0 ? sum / total : 0;
}

/* Earth mover's distance in bins: the area between the cumulated histograms.  */
static double hist_shift(const int64_t *a, const int64_t *b)
{
    double sum_a = 0, sum_b = 0, shift = 0, at_a = 0, at_b = 0;
    for (int i = 0; i < FP8Q_HIST_BINS; i++) {
        sum_a += (double)a[i];
        sum_b += (double)b[i];
    }
    if (sum_a == 0 || sum_b == 0)
        return NAN;
    for (int i = 0; i < FP8Q_HIST_BINS; i++) {
        at_a += (double)a[i] / sum_a;
        at_b += (double)b[i] / sum_b;
        shift += fabs(at_a - at_b);
    }
    return shift;
}

static int compare_site(const struct fp8q_calib *old_calib, const struct fp8q_calib *new_calib,
                        const struct fp8q_calib_site *a, const struct fp8q_calib_site *b,
                        const struct fp8q_drift_limits *limits, struct fp8q_drift_site *out,
                        struct fp8q_error *err)
{
    uint64_t n = a->width;
    double *work = fp8q_array(3 * n, sizeof(*work)), *x = work + n, *y = work + 2 * n;
    *out =
        (struct fp8q_drift_site){.name = a->name, .absmax = NAN, .hist = NAN, .codes_changed = NAN};
    if (!work)
        return fp8q_fail_nomem(err);
    int status = channel_sums(old_calib, a, FP8Q_CALIB_SUMSQ, x, err);
    if (status == FP8Q_OK)
        status = channel_sums(new_calib, b, FP8Q_CALIB_SUMSQ, y, err);
    if (status == FP8Q_OK) {
        double n_a = tokens(a), n_b = tokens(b);
        out->rms = 0.5 * log2_ratio(sum_of(y, n) / n_b, sum_of(x, n) / n_a);
        out->overlap = top_overlap(x, y, n, work);
        out->channels = channel_change(x, n_a, y, n_b, n);
    }
    if (status == FP8Q_OK && a->has[FP8Q_CALIB_ABSMAX] && b->has[FP8Q_CALIB_ABSMAX]) {
        status = channel_sums(old_calib, a, FP8Q_CALIB_ABSMAX, x, err);
        if (status == FP8Q_OK)
            status = channel_sums(new_calib, b, FP8Q_CALIB_ABSMAX, y, err);
        out->absmax = log2_ratio(max_of(y, n), max_of(x, n));
    }
    if (a->has_hist && b->has_hist)
        out->hist = hist_shift(a->hist, b->hist);
    out->moved = fabs(out->rms) > limits->rms || out->absmax > limits->absmax ||
                 out->overlap < limits->overlap || out->hist > limits->hist ||
                 out->channels > limits->channels;
    free(work);
    return status;
}

/* ---- codes that would change ----------------------------------------------------------------- */

struct codes_job {
    const struct fp8q_hessian *before, *after;
    const struct fp8q_weights *weights;
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    enum fp8q_scale_fmt fmt;
    uint8_t *areas;
    size_t area_size;
    uint64_t *changed; /* by stripe */
};

static int codes_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct codes_job *job = ctx;
    const struct fp8q_weights *w = job->weights;
    uint64_t row = task * FP8Q_BLOCK, n_cols = w->n_cols,
             n_blocks = fp8q_ceil_div(n_cols, FP8Q_BLOCK);
    uint32_t n_rows = (uint32_t)(w->n_rows - row < FP8Q_BLOCK ? w->n_rows - row : FP8Q_BLOCK);
    uint8_t *scratch = job->areas + worker * job->area_size;
    float *values = (float *)(void *)(scratch + (fp8q_gptq_scratch() + 63) / 64 * 64);
    float *raw = values + FP8Q_BLOCK * n_cols, *scales = raw + FP8Q_BLOCK * n_cols;
    uint32_t *amax = (uint32_t *)(void *)(scales + n_blocks);
    uint8_t *before = (uint8_t *)raw, *after = before + FP8Q_BLOCK * n_cols;
    FP8Q_TRY(fp8q_weights_read(w, job->kernel, row, n_rows, raw, values, err));
    struct fp8q_stripe s = {
        .src = values, .from = FP8Q_FLOAT_F32, .n_rows = n_rows, .n_cols = n_cols};
    fp8q_stripe_amax(job->kernel, &s, amax);
    if (!fp8q_block_scales(FP8Q_FLOAT_F32, amax, (size_t)n_blocks, job->fmt, scales))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "tensor \"%s\" holds NaN or Inf",
                         w->tensor->name);
    struct fp8q_gptq_stripe stripe = {job->before, job->kernel, job->gemm, values,
                                      n_rows,      n_cols,      scales,    scratch};
    FP8Q_TRY(fp8q_gptq_encode(&stripe, before, err));
    stripe.hessian = job->after;
    FP8Q_TRY(fp8q_gptq_encode(&stripe, after, err));
    for (uint64_t i = 0; i < n_rows * n_cols; i++)
        job->changed[task] += before[i] != after[i];
    return FP8Q_OK;
}

static int tensor_codes(struct codes_job *job, const struct fp8q_ckpt *ckpt, const char *tensor,
                        unsigned n_threads, struct fp8q_drift_site *out, struct fp8q_error *err)
{
    struct fp8q_weights weights;
    FP8Q_TRY(fp8q_weights_open(ckpt, tensor, &weights, err));
    uint64_t stripes = fp8q_ceil_div(weights.n_rows, FP8Q_BLOCK);
    job->weights = &weights;
    job->area_size =
        (fp8q_gptq_scratch() + 63) / 64 * 64 +
        (2 * FP8Q_BLOCK * (size_t)weights.n_cols + 2 * (size_t)weights.n_cols) * sizeof(float);
    job->area_size = (job->area_size + 63) / 64 * 64;
    job->areas = fp8q_array(n_threads, job->area_size);
    job->changed = fp8q_array(stripes, sizeof(*job->changed));
    int status = job->areas && job->changed ? FP8Q_OK : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = fp8q_pool_run(NULL, n_threads, stripes, codes_task, job, err);
    for (uint64_t i = 0; i < stripes && status == FP8Q_OK; i++)
        out->codes_changed += (double)job->changed[i];
    out->n_codes += weights.tensor->n_elems;
    free(job->areas);
    free(job->changed);
    fp8q_weights_reset(&weights);
    job->weights = NULL;
    return status;
}

/* Over all tensors that the site feeds.  */
static int site_codes(const struct fp8q_calib *old_calib, const struct fp8q_calib *new_calib,
                      const struct fp8q_ckpt *ckpt, struct codes_job *job, unsigned n_threads,
                      struct fp8q_drift_site *out, struct fp8q_error *err)
{
    struct fp8q_hessian *before = NULL, *after = NULL;
    uint64_t width = fp8q_calib_find(old_calib, out->name)->width;
    int status = fp8q_hessian_create(old_calib, out->name, width, n_threads, &before, err);
    if (status == FP8Q_OK)
        status = fp8q_hessian_create(new_calib, out->name, width, n_threads, &after, err);
    job->before = before;
    job->after = after;
    bool both = before && after;
    if (both)
        out->codes_changed = 0;
    for (size_t i = 0; i < ckpt->n_tensors && both && status == FP8Q_OK; i++) {
        struct fp8q_name name;
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        if (t->ndim == 2 && t->shape[1] == width && strstr(t->name, ".weight") &&
            strcmp(fp8q_calib_site_of(t->name, &name), out->name) == 0)
            status = tensor_codes(job, ckpt, t->name, n_threads, out, err);
    }
    if (both)
        out->codes_changed = out->n_codes ? out->codes_changed / (double)out->n_codes : NAN;
    fp8q_hessian_destroy(before);
    fp8q_hessian_destroy(after);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Largest change of a modality's share of the tokens, by the first site.  */
static double mix_change(const struct fp8q_calib_site *a, const struct fp8q_calib_site *b)
{
    double max = 0, n_a = tokens(a), n_b = tokens(b);
    for (uint32_t g = 0; g < FP8Q_MODALITIES; g++) {
        double share_a = g < a->n_groups ? (double)a->count[g] / n_a : 0;
        double share_b = g < b->n_groups ? (double)b->count[g] / n_b : 0;
        max = fmax(max, fabs(share_a - share_b));
    }
    return max;
}

static int check_pair(const struct fp8q_calib *a, const struct fp8q_calib *b,
                      struct fp8q_error *err)
{
    /* Statistics of llama.cpp do not know the weights' fingerprint.  */
    if (a->meta.source_fingerprint[0] && b->meta.source_fingerprint[0] &&
        strcmp(a->meta.source_fingerprint, b->meta.source_fingerprint) != 0)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-foreign",
                         "%s and %s are statistics of different weights", a->file->path,
                         b->file->path);
    for (size_t i = 0; i < a->n_sites; i++) {
        const struct fp8q_calib_site *other = fp8q_calib_find(b, a->sites[i].name);
        if (a->n_sites != b->n_sites || !other || other->width != a->sites[i].width)
            return fp8q_fail(err, FP8Q_E_ARG, "calibration",
                             "%s and %s do not have the same sites (\"%s\")", a->file->path,
                             b->file->path, a->sites[i].name);
    }
    return FP8Q_OK;
}

static int run_codes(const struct fp8q_calib *old_calib, const struct fp8q_calib *new_calib,
                     const struct fp8q_ckpt *ckpt, struct codes_job *job, unsigned n_threads,
                     const struct fp8q_watch *watch, struct fp8q_drift *d, struct fp8q_error *err)
{
    double changed = 0, total = 0;
    for (size_t i = 0; i < d->n_sites; i++) {
        FP8Q_TRY(fp8q_watch_check(watch, err));
        FP8Q_TRY(site_codes(old_calib, new_calib, ckpt, job, n_threads, &d->sites[i], err));
        if (!isnan(d->sites[i].codes_changed)) {
            changed += d->sites[i].codes_changed * (double)d->sites[i].n_codes;
            total += (double)d->sites[i].n_codes;
        }
        fp8q_watch_report(watch, "drift", i + 1, d->n_sites, FP8Q_UNIT_STEPS);
    }
    d->codes_changed = total > 0 ? changed / total : NAN;
    return FP8Q_OK;
}

static int run(const struct fp8q_calib *old_calib, const struct fp8q_calib *new_calib,
               const struct fp8q_drift_limits *limits, struct fp8q_drift *d, struct fp8q_error *err)
{
    FP8Q_TRY(check_pair(old_calib, new_calib, err));
    d->n_sites = old_calib->n_sites;
    d->codes_changed = NAN;
    d->sites = fp8q_array(d->n_sites, sizeof(*d->sites));
    if (!d->sites)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < d->n_sites; i++) {
        const struct fp8q_calib_site *a = &old_calib->sites[i];
        FP8Q_TRY(compare_site(old_calib, new_calib, a, fp8q_calib_find(new_calib, a->name), limits,
                              &d->sites[i], err));
        d->n_moved += d->sites[i].moved;
    }
    d->mix = mix_change(&old_calib->sites[0], fp8q_calib_find(new_calib, old_calib->sites[0].name));
    d->stale = (double)d->n_moved > limits->sites * (double)d->n_sites || d->mix > limits->mix;
    return FP8Q_OK;
}

int fp8q_drift_run(const struct fp8q_calib *old_calib, const struct fp8q_calib *new_calib,
                   const struct fp8q_drift_limits *limits, const struct fp8q_ckpt *ckpt,
                   enum fp8q_scale_fmt fmt, const char *kernel, unsigned n_threads,
                   const struct fp8q_watch *watch, struct fp8q_drift *drift_out,
                   struct fp8q_error *err)
{
    *drift_out = (struct fp8q_drift){0};
    struct codes_job job = {.kernel = fp8q_kernel_select(kernel), .fmt = fmt};
    n_threads = n_threads ? n_threads : 1;
    int status = run(old_calib, new_calib, limits, drift_out, err);
    if (status == FP8Q_OK && !job.kernel)
        status = fp8q_fail(err, FP8Q_E_ARG, "kernel", "kernel \"%s\" is unknown or not usable here",
                           kernel);
    if (status == FP8Q_OK && ckpt) {
        job.gemm = fp8q_gemm_select(kernel ? job.kernel->name : NULL);
        status = run_codes(old_calib, new_calib, ckpt, &job, n_threads, watch, drift_out, err);
    }
    if (status != FP8Q_OK)
        fp8q_drift_reset(drift_out);
    return status;
}

void fp8q_drift_reset(struct fp8q_drift *drift)
{
    free(drift->sites);
    *drift = (struct fp8q_drift){0};
}

void fp8q_drift_json(const struct fp8q_drift *d, const struct fp8q_drift_limits *l,
                     struct fp8q_jsonw *w)
{
    fp8q_jsonw_bool(w, "stale", d->stale);
    fp8q_jsonw_uint(w, "moved", d->n_moved);
    fp8q_jsonw_number(w, "mix", d->mix);
    fp8q_jsonw_number(w, "codes_changed", d->codes_changed);
    fp8q_jsonw_open(w, "limits", '{');
    fp8q_jsonw_number(w, "rms", l->rms);
    fp8q_jsonw_number(w, "absmax", l->absmax);
    fp8q_jsonw_number(w, "overlap", l->overlap);
    fp8q_jsonw_number(w, "hist", l->hist);
    fp8q_jsonw_number(w, "channels", l->channels);
    fp8q_jsonw_number(w, "mix", l->mix);
    fp8q_jsonw_number(w, "sites", l->sites);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_open(w, "sites", '[');
    for (size_t i = 0; i < d->n_sites; i++) {
        const struct fp8q_drift_site *s = &d->sites[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", s->name);
        fp8q_jsonw_bool(w, "moved", s->moved);
        fp8q_jsonw_number(w, "rms", s->rms);
        fp8q_jsonw_number(w, "absmax", s->absmax);
        fp8q_jsonw_number(w, "overlap", s->overlap);
        fp8q_jsonw_number(w, "hist", s->hist);
        fp8q_jsonw_number(w, "channels", s->channels);
        fp8q_jsonw_number(w, "codes_changed", s->codes_changed);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}
