/* SPDX-License-Identifier: Apache-2.0
 *
 * drift.c - compares statistics site by site.
 *
 * How it works.  A site is the input of linears that engines fuse.  Five figures say how its inputs
 * moved from the old file to the new one, and a site has moved if one of them is beyond its limit:
 *
 *     rms        log2 of the ratio of the RMS            louder or quieter as a whole
 *     absmax     log2 of the growth of the largest       new outliers
 *     overlap    top channels that stay on top           other outlier channels
 *     hist       earth mover's distance of the tiles     dynamic scales of another size
 *     clipped    share beyond the range of a static scale     a checkpoint's own scales, if one
 *     unused     of that range, in powers of two             is given, against the new file
 *     channels   mean |log2| of the channels' RMS ratio  another profile at the same loudness
 *
 * Evidence is stale once more than a share of the sites has moved, or the mix of modalities has.
 * Statistics that a file lacks give NaN, which no limit is held against.
 */
#include "measure/drift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calibration/scales.h"
#include "checkpoint/weights.h"
#include "measure/internal.h"

const struct fp8q_drift_limits fp8q_drift_defaults = {
    .rms = 1.0,
    .absmax = 1.0,
    .overlap = 0.5,
    .hist = 0.5,
    .channels = 0.5,
    .clipped = 0.001,
    .unused = 4.0,
    .mix = 0.2,
    .sites = 0.05,
};

/* ---- statistics of one site ------------------------------------------------------------------ */

/* Over modalities, by channel: the largest of FP8Q_CALIB_ABSMAX, the sum of all else.  */
static void add_groups(const struct fp8q_calib_site *s, bool largest, const float *values,
                       double *out)
{
    for (uint64_t k = 0; k < s->width; k++) {
        /* Both, then one of them: gcc 12 for aarch64 cannot compile the choice within the loop.  */
        double sum = 0, max = 0;
        for (uint32_t g = 0; g < s->n_groups; g++) {
            double v = (double)values[g * s->width + k];
            sum += v;
            max = fmax(max, v);
        }
        out[k] = largest ? max : sum;
    }
}

static int channel_sums(const struct fp8q_calib *c, const struct fp8q_calib_site *s,
                        enum fp8q_calib_array array, double *out, struct fp8q_error *err)
{
    float *values = fp8q_array(fp8q_calib_floats(s, array), sizeof(*values));
    if (!values)
        return fp8q_fail_nomem(err);

    int status = fp8q_calib_read(c, s, array, values, err);
    if (status == FP8Q_OK)
        add_groups(s, array == FP8Q_CALIB_ABSMAX, values, out);
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
        max = fmax(max, x[i]);
    return max;
}

static double log2_ratio(double a, double b)
{
    if (a == b)
        return 0;
    if (a > 0 && b > 0)
        return log2(a / b);

    /* From or to silence: infinite, which is beyond any limit.  */
    return a > b ? (double)INFINITY : (double)-INFINITY;
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
    uint64_t top = fp8q_min_u64(fp8q_max_u64(n / 100, 4), n), near = fp8q_min_u64(4 * top, n);
    uint64_t in_top = 0, stay = 0;

    /* Ties count as top, hence in_top and not top below.  */
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
    /* Both ways: a new outlier is on top of the new file alone, one that is gone of the old.  */
    return fmin(stay_on_top(a, b, n, work), stay_on_top(b, a, n, work));
}

static double channel_change(const double *a, double n_a, const double *b, double n_b, uint64_t n)
{
    double total = sum_of(a, n) / n_a, sum = 0;

    /* Weighted by the old energy: ratios of channels near zero are noise.  */
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
    /* Files of different length are compared by shares; of no tiles there are none.  */
    if (sum_a == 0 || sum_b == 0)
        return (double)NAN;

    for (int i = 0; i < FP8Q_HIST_BINS; i++) {
        at_a += (double)a[i] / sum_a;
        at_b += (double)b[i] / sum_b;
        shift += fabs(at_a - at_b);
    }
    return shift;
}

/* @x, @y and @work: room for a value of each channel.  */
static int compare_energy(const struct fp8q_drift_pair *pair, const struct fp8q_calib_site *a,
                          const struct fp8q_calib_site *b, double *work,
                          struct fp8q_drift_site *out, struct fp8q_error *err)
{
    uint64_t n = a->width;
    double *x = work + n, *y = work + 2 * n, n_a = tokens(a), n_b = tokens(b);

    FP8Q_TRY(channel_sums(pair->before, a, FP8Q_CALIB_SUMSQ, x, err));
    FP8Q_TRY(channel_sums(pair->after, b, FP8Q_CALIB_SUMSQ, y, err));
    /* Sums of squares by token; half of the log2 is that of the root.  */
    out->rms = 0.5 * log2_ratio(sum_of(y, n) / n_b, sum_of(x, n) / n_a);
    out->overlap = top_overlap(x, y, n, work);
    out->channels = channel_change(x, n_a, y, n_b, n);

    if (a->has[FP8Q_CALIB_ABSMAX] && b->has[FP8Q_CALIB_ABSMAX]) {
        FP8Q_TRY(channel_sums(pair->before, a, FP8Q_CALIB_ABSMAX, x, err));
        FP8Q_TRY(channel_sums(pair->after, b, FP8Q_CALIB_ABSMAX, y, err));
        out->absmax = log2_ratio(max_of(y, n), max_of(x, n));
    }
    return FP8Q_OK;
}

/* The static scale of a site's inputs, by its first linear: those that share an input share it.
 * *@scale_out is 0 where the checkpoint leaves that linear unquantized.  */
static int static_scale(const struct fp8q_ckpt *ckpt, const char *site, float *scale_out,
                        struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const struct fp8q_tensor *t = fp8q_ckpt_find_joined(ckpt, site, strlen(site), ".input_scale");

    *scale_out = 0;
    if (!t)
        return FP8Q_OK;
    if (t->n_elems == 1)
        FP8Q_TRY(fp8q_read_floats(ckpt, t, fp8q_kernel_select("scalar"), scale_out, err));
    if (t->n_elems == 1 && *scale_out > 0 && isfinite(*scale_out))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_FORMAT, "input-scale",
                     "tensor \"%s\": expected one finite scale above 0",
                     fp8q_show(&shown, t->name));
}

/* What the new inputs make of a scale that was chosen by older ones.  */
static int compare_static(const struct fp8q_drift_pair *pair, const struct fp8q_calib_site *b,
                          struct fp8q_drift_site *out, struct fp8q_error *err)
{
    float scale, absmax;
    FP8Q_TRY(static_scale(pair->options->statics, b->name, &scale, err));
    if (scale == 0)
        return FP8Q_OK;
    if (!b->has[FP8Q_CALIB_ABSMAX] || !b->has_values)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-range",
                         "%s: \"%s\" lacks the histogram by which clipping is told; calibrate "
                         "again with this version",
                         pair->after->file->path, b->name);

    FP8Q_TRY(fp8q_site_absmax(pair->after, b, &absmax, err));
    out->clipped = fp8q_clipped_share(b, scale * FP8Q_E4M3_MAX);
    out->unused = absmax > 0 ? fmax(log2((double)(scale * FP8Q_E4M3_MAX / absmax)), 0) : 0;
    return FP8Q_OK;
}

static int compare_site(const struct fp8q_drift_pair *pair, const struct fp8q_calib_site *a,
                        struct fp8q_drift_site *out, struct fp8q_error *err)
{
    const struct fp8q_drift_limits *limits = &pair->options->limits;
    const struct fp8q_calib_site *b = fp8q_calib_find(pair->after, a->name);
    const double none = (double)NAN;

    /* check_pair() has seen that the other file has this site, as wide.  */
    *out = (struct fp8q_drift_site){.name = a->name,
                                    .absmax = none,
                                    .hist = none,
                                    .clipped = none,
                                    .unused = none,
                                    .codes_changed = none};
    double *work = fp8q_array(3 * a->width, sizeof(*work));
    if (!work)
        return fp8q_fail_nomem(err);
    int status = compare_energy(pair, a, b, work, out, err);
    free(work);
    FP8Q_TRY(status);

    if (pair->options->statics)
        FP8Q_TRY(compare_static(pair, b, out, err));

    /* A comparison with NaN is false: what was not measured has not moved.  */
    if (a->has_hist && b->has_hist)
        out->hist = hist_shift(a->hist, b->hist);
    out->moved = fabs(out->rms) > limits->rms || out->absmax > limits->absmax ||
                 out->overlap < limits->overlap || out->hist > limits->hist ||
                 out->channels > limits->channels || out->clipped > limits->clipped ||
                 out->unused > limits->unused;
    return FP8Q_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Largest change of a modality's share of the tokens, by the first site.  */
static double mix_change(const struct fp8q_calib_site *a, const struct fp8q_calib_site *b)
{
    double max = 0, n_a = tokens(a), n_b = tokens(b);

    for (uint32_t g = 0; g < FP8Q_MODALITIES; g++) {
        /* A file has only as many groups as it met; the others had no tokens.  */
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

/* NaN would switch a limit off without a word.  */
static int check_limits(const struct fp8q_drift_limits *l, struct fp8q_error *err)
{
    const struct {
        const char *name;
        double value;
    } limits[] = {{"rms", l->rms},       {"absmax", l->absmax},     {"overlap", l->overlap},
                  {"hist", l->hist},     {"channels", l->channels}, {"clipped", l->clipped},
                  {"unused", l->unused}, {"mix", l->mix},           {"share of sites", l->sites}};

    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
        if (!(limits[i].value >= 0) || !isfinite(limits[i].value))
            return fp8q_fail(err, FP8Q_E_ARG, "drift-limit",
                             "limit of %s: expected a number from 0 on, found %g", limits[i].name,
                             limits[i].value);
    return FP8Q_OK;
}

static int compare_sites(const struct fp8q_drift_pair *pair, struct fp8q_drift *d,
                         struct fp8q_error *err)
{
    const struct fp8q_calib_site *first = &pair->before->sites[0];
    const struct fp8q_drift_limits *limits = &pair->options->limits;

    d->n_sites = pair->before->n_sites;
    /* Known only once weights are rounded again, which needs the checkpoint.  */
    d->codes_changed = (double)NAN;
    d->sites = fp8q_array(d->n_sites, sizeof(*d->sites));
    if (!d->sites)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < d->n_sites; i++) {
        FP8Q_TRY(fp8q_watch_check(pair->options->watch, err));
        FP8Q_TRY(compare_site(pair, &pair->before->sites[i], &d->sites[i], err));
        d->n_moved += d->sites[i].moved;
    }

    /* All sites see the same tokens, so that one tells the mix.  */
    d->mix = mix_change(first, fp8q_calib_find(pair->after, first->name));
    d->stale = (double)d->n_moved > limits->sites * (double)d->n_sites || d->mix > limits->mix;

    /* A scale that no longer fits is stale by itself: one layer that clips spoils all behind it.  */
    for (size_t i = 0; i < d->n_sites; i++)
        d->stale |= d->sites[i].clipped > limits->clipped || d->sites[i].unused > limits->unused;
    return FP8Q_OK;
}

static int run(const struct fp8q_drift_pair *pair, struct fp8q_drift *d, struct fp8q_error *err)
{
    const struct fp8q_drift_options *o = pair->options;
    const struct fp8q_kernel *kernel = fp8q_kernel_select(o->kernel);

    if (!kernel)
        return fp8q_fail(err, FP8Q_E_ARG, "kernel", "kernel \"%s\" is unknown or not usable here",
                         o->kernel);
    /* The cheap refusals first: to round all weights again takes long.  */
    FP8Q_TRY(check_limits(&o->limits, err));
    FP8Q_TRY(check_pair(pair->before, pair->after, err));
    FP8Q_TRY(compare_sites(pair, d, err));
    return o->ckpt ? fp8q_drift_codes(pair, kernel, d, err) : FP8Q_OK;
}

int fp8q_drift_run(const struct fp8q_calib *old_calib, const struct fp8q_calib *new_calib,
                   const struct fp8q_drift_options *options, struct fp8q_drift *drift_out,
                   struct fp8q_error *err)
{
    const struct fp8q_drift_pair pair = {old_calib, new_calib, options};
    *drift_out = (struct fp8q_drift){0};

    int status = run(&pair, drift_out, err);
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
    fp8q_jsonw_number(w, "clipped", l->clipped);
    fp8q_jsonw_number(w, "unused", l->unused);
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
        fp8q_jsonw_number(w, "clipped", s->clipped);
        fp8q_jsonw_number(w, "unused", s->unused);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}
