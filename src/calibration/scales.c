/* SPDX-License-Identifier: Apache-2.0
 *
 * scales.c - static input scales from the statistics of a calibration file.
 *
 * A static scale is range / 448, where the range is the largest magnitude that is to be kept; what
 * is beyond saturates.  How the range is chosen:
 *
 *     absmax   the largest magnitude seen: nothing of the calibration inputs is clipped
 *     p99.99   the end of the bin below which that share of the values lies; p99.9 alike
 *     mse      the end of a bin for which the sum of squared errors of E4M3 is least
 *
 * None goes beyond absmax.  Linears that share an input share its scale, so engines that fuse them
 * have nothing to requantize.
 */
#include "calibration/scales.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

/* ---- statistics of a site -------------------------------------------------------------------- */

static float largest_of(const float *x, uint64_t n)
{
    float most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

int fp8q_site_absmax(const struct fp8q_calib *calib, const struct fp8q_calib_site *site,
                     float *absmax_out, struct fp8q_error *err)
{
    uint64_t n = fp8q_calib_floats(site, FP8Q_CALIB_ABSMAX);
    float *values = fp8q_array(n, sizeof(*values));
    *absmax_out = 0;
    if (!values)
        return fp8q_fail_nomem(err);

    int status = fp8q_calib_read(calib, site, FP8Q_CALIB_ABSMAX, values, err);
    if (status == FP8Q_OK)
        *absmax_out = largest_of(values, n);
    free(values);
    return status;
}

static double total_of(const struct fp8q_calib_site *s, unsigned from)
{
    double n = 0;
    for (unsigned i = from; i < FP8Q_VALUE_BINS; i++)
        n += (double)s->values[i];
    return n;
}

double fp8q_clipped_share(const struct fp8q_calib_site *s, float range)
{
    double all = total_of(s, 0);
    unsigned bin = fp8q_value_bin(range);

    /* The last bin has no end.  */
    if (!s->has_values || all == 0)
        return (double)NAN;
    return bin + 1 < FP8Q_VALUE_BINS ? total_of(s, bin + 1) / all : 0;
}

/* ---- the range ------------------------------------------------------------------------------- */

/* The end of the first bin up to which @share of all values lie.  */
static float quantile(const struct fp8q_calib_site *s, double share)
{
    double wanted = share * total_of(s, 0), seen = 0;
    unsigned bin = 0;
    for (; bin + 1 < FP8Q_VALUE_BINS; bin++) {
        seen += (double)s->values[bin];
        if (seen >= wanted)
            break;
    }
    return fp8q_value_edge(bin + 1);
}

/* Sum of squared errors of the site's values with this range, each bin taken at four places.  */
static double error_of(const struct fp8q_calib_site *s, float range)
{
    enum { PLACES = 4 };
    float scale = fp8q_scale(range, FP8Q_SCALE_F32);
    double sum = 0;

    for (unsigned bin = 0; bin < FP8Q_VALUE_BINS; bin++) {
        float low = bin ? fp8q_value_edge(bin) : 0, width = fp8q_value_edge(bin + 1) - low;
        for (int k = 0; k < PLACES && s->values[bin]; k++) {
            float x = low + width * ((float)k + 0.5f) / PLACES;
            double d = (double)x - (double)(fp8q_e4m3_value[fp8q_e4m3_from_f32(x / scale)] * scale);
            sum += (double)s->values[bin] / PLACES * d * d;
        }
    }
    return sum;
}

/* Ends of bins from absmax down to a sixteenth of it; of equals the widest.  */
static float least_error(const struct fp8q_calib_site *s, float absmax)
{
    unsigned top = fp8q_value_bin(absmax), bottom = top > 64 ? top - 64 : 0;
    double least = error_of(s, absmax);
    float best = absmax;

    for (unsigned bin = top; bin > bottom; bin--) {
        double error = error_of(s, fp8q_value_edge(bin));
        if (error < least) {
            least = error;
            best = fp8q_value_edge(bin);
        }
    }
    return best;
}

static int choose(const struct fp8q_calib *calib, const struct fp8q_calib_site *s,
                  enum fp8q_input_range how, float *range_out, struct fp8q_error *err)
{
    bool has = s->has[FP8Q_CALIB_ABSMAX] && (how == FP8Q_RANGE_ABSMAX || s->has_values);
    float absmax, range;
    struct fp8q_shown shown;

    if (!has)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-range",
                         "%s: \"%s\" lacks the statistics that a static scale needs; calibrate "
                         "again with this version",
                         calib->file->path, fp8q_show(&shown, s->name));
    FP8Q_TRY(fp8q_site_absmax(calib, s, &absmax, err));

    range = absmax;
    if (how == FP8Q_RANGE_P9999 || how == FP8Q_RANGE_P999)
        range = quantile(s, how == FP8Q_RANGE_P999 ? 0.999 : 0.9999);
    else if (how == FP8Q_RANGE_MSE)
        range = least_error(s, absmax);
    *range_out = range < absmax ? range : absmax;
    return FP8Q_OK;
}

/* ---- what a plan asks ------------------------------------------------------------------------ */

/* Experts of one layer have names that differ in their number alone.  */
static bool is_sibling(const char *a, const char *b)
{
    const char *end = strstr(a, ".experts.");
    size_t head = end ? (size_t)(end - a) + 9 : 0;
    if (!fp8q_calib_is_expert(a) || strncmp(a, b, head) != 0)
        return false;
    return strcmp(a + head + strspn(a + head, "0123456789"),
                  b + head + strspn(b + head, "0123456789")) == 0;
}

/* Of an expert that no token reached: the widest range of the layer's others, which is what engines
 * give all of them.  NULL if there is none.  */
static const float *range_of_siblings(const struct fp8q_data_scales_of *s, const char *name)
{
    const float *widest = NULL;
    for (size_t i = 0; i < s->calib.n_sites; i++)
        if (is_sibling(name, s->calib.sites[i].name) && (!widest || s->ranges[i] > *widest))
            widest = &s->ranges[i];
    return widest;
}

/* The scale of the inputs of @weight.  */
static int input_scale(const void *ctx, const char *weight, float *scale_out,
                       struct fp8q_error *err)
{
    const struct fp8q_data_scales_of *s = ctx;
    struct fp8q_name buf;
    struct fp8q_shown shown;
    const struct fp8q_calib_site *site =
        fp8q_calib_find(&s->calib, fp8q_calib_site_of(weight, &buf));
    const float *range = site ? &s->ranges[site - s->calib.sites] : range_of_siblings(s, buf.text);

    *scale_out = 0;
    if (!range)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-site",
                         "%s: holds no statistics of the inputs of \"%s\", which therefore can "
                         "have no static scale; --ignore leaves it unquantized",
                         s->calib.file->path, fp8q_show(&shown, weight));
    *scale_out = fp8q_scale(*range, FP8Q_SCALE_F32);
    return FP8Q_OK;
}

/* The largest of all heads: engines take one scale for a layer.  */
static int cache_scale(const void *ctx, const char *attention, bool values, float *scale_out,
                       struct fp8q_error *err)
{
    const struct fp8q_data_scales_of *s = ctx;
    struct fp8q_shown shown;
    const struct fp8q_calib_cache *cache = fp8q_calib_find_cache(&s->calib, attention);

    *scale_out = 0;
    if (!cache)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-cache",
                         "%s: holds no statistics of the keys and values of \"%s\"; calibrate "
                         "again with this version",
                         s->calib.file->path, fp8q_show(&shown, attention));
    *scale_out = fp8q_scale(largest_of(cache->absmax[values], cache->n_heads), FP8Q_SCALE_F32);
    return FP8Q_OK;
}

static int open_ranges(struct fp8q_data_scales_of *s, enum fp8q_input_range range,
                       struct fp8q_error *err)
{
    s->ranges = fp8q_array(s->calib.n_sites, sizeof(*s->ranges));
    if (!s->ranges)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < s->calib.n_sites; i++)
        FP8Q_TRY(choose(&s->calib, &s->calib.sites[i], range, &s->ranges[i], err));
    return FP8Q_OK;
}

int fp8q_data_scales_open(const char *path, enum fp8q_input_range range,
                          struct fp8q_data_scales_of *s, struct fp8q_error *err)
{
    *s = (struct fp8q_data_scales_of){.ranges = NULL};
    FP8Q_TRY(fp8q_calib_open(path, &s->calib, err));

    s->scales = (struct fp8q_data_scales){.ctx = s,
                                          .input = input_scale,
                                          .cache = cache_scale,
                                          .source_fingerprint = s->calib.meta.source_fingerprint};
    int status = open_ranges(s, range, err);
    if (status != FP8Q_OK)
        fp8q_data_scales_close(s);
    return status;
}

void fp8q_data_scales_close(struct fp8q_data_scales_of *s)
{
    if (s->calib.file)
        fp8q_calib_close(&s->calib);
    free(s->ranges);
    *s = (struct fp8q_data_scales_of){.ranges = NULL};
}
