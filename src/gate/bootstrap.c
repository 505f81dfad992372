/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap.c - the interval of a mean of clustered values, by drawing clusters again and again.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gate/stats.h"

#define MAX_DRAWS UINT64_C(1000000000) /* some seconds */

struct cluster {
    uint64_t key;
    double sum;
    uint64_t count;
    size_t index; /* of its first value: keeps the order of additions the same everywhere */
};

static int compare_clusters(const void *a, const void *b)
{
    const struct cluster *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Adds values of equal keys up.  */
static size_t make_clusters(struct cluster *items, const double *values, const uint64_t *clusters,
                            size_t n)
{
    for (size_t i = 0; i < n; i++)
        items[i] = (struct cluster){clusters ? clusters[i] : i, values[i], 1, i};
    if (!clusters)
        return n;
    qsort(items, n, sizeof(*items), compare_clusters);
    size_t kept = 0;
    for (size_t i = 1; i < n; i++)
        if (items[i].key == items[kept].key) {
            items[kept].sum += items[i].sum;
            items[kept].count++;
        } else {
            items[++kept] = items[i];
        }
    return kept + 1;
}

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

/* 0..n-1 for n below 2^32; the bias is below n/2^32.  */
static size_t random_below(uint64_t *state, size_t n)
{
    return (size_t)((next_random(state) >> 32) * (uint64_t)n >> 32);
}

static double resampled_mean(const struct cluster *clusters, size_t n, uint64_t *state)
{
    double sum = 0;
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct cluster *c = &clusters[random_below(state, n)];
        sum += c->sum;
        count += c->count;
    }
    return sum / (double)count;
}

/* Linear interpolation between order statistics, as numpy.percentile does.  */
static double quantile_of_sorted(const double *sorted, size_t n, double p)
{
    double at = p * (double)(n - 1);
    size_t i = (size_t)at;
    double next = i + 1 < n ? sorted[i + 1] : sorted[i];
    return sorted[i] + (next - sorted[i]) * (at - (double)i);
}

static void bootstrap(const struct cluster *items, size_t count, const struct fp8q_bootstrap *how,
                      double *means, struct fp8q_interval *interval_out)
{
    uint32_t resamples = how->resamples;
    uint64_t seed = how->seed;

    /* Many clusters need fewer resamples: time is bounded, and 1000 are always drawn.  */
    if (resamples > 1000 && (uint64_t)resamples * count > MAX_DRAWS)
        resamples = MAX_DRAWS / count > 1000 ? (uint32_t)(MAX_DRAWS / count) : 1000;
    for (uint32_t i = 0; i < resamples; i++)
        means[i] = resampled_mean(items, count, &seed);

    qsort(means, resamples, sizeof(*means), compare_doubles);
    interval_out->low = quantile_of_sorted(means, resamples, how->tail);
    interval_out->high = quantile_of_sorted(means, resamples, 1 - how->tail);
}

/* Upper bound of the mean with one more cluster of average size whose mean is @worst: linearized
 * (delta method), since clusters differ in size.  */
static double t_upper(const struct cluster *items, size_t count, double worst, double tail)
{
    double n = (double)count, sum = 0, size = 0, squares = 0;

    for (size_t i = 0; i < count; i++) {
        sum += items[i].sum;
        size += (double)items[i].count;
    }
    double extra = size / n, total = size + extra, mean = (sum + worst * extra) / total;

    for (size_t i = 0; i < count; i++) {
        double residual = items[i].sum - mean * (double)items[i].count;
        squares += residual * residual;
    }
    squares += (worst - mean) * extra * (worst - mean) * extra;

    return mean + fp8q_t_bound(tail, n - 1) * sqrt(squares * (n + 1) / n) / total;
}

static void negate(struct cluster *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        items[i].sum = -items[i].sum;
}

/* @range NAN: the bootstrap alone.  */
static int mean_interval(const struct fp8q_clustered *s, const struct fp8q_bootstrap *how,
                         double range, struct fp8q_interval *interval_out, size_t *n_clusters_out,
                         struct fp8q_error *err)
{
    struct cluster *items = fp8q_array(s->n, sizeof(*items));
    double *means = fp8q_array(how->resamples, sizeof(*means)), sum = 0;
    if (!items || !means) {
        free(items);
        free(means);
        return fp8q_fail_nomem(err);
    }

    for (size_t i = 0; i < s->n; i++)
        sum += s->values[i];
    size_t count = make_clusters(items, s->values, s->clusters, s->n);
    interval_out->estimate = sum / (double)s->n;
    *n_clusters_out = count;

    /* One cluster drawn again and again is always the same: no interval at all.  */
    if (isnan(range) || count > 1)
        bootstrap(items, count, how, means, interval_out);
    else
        interval_out->low = interval_out->high = (double)NAN;
    /* The bootstrap is too narrow for few clusters, t with one bad cluster more is not: the wider
     * counts.  */
    if (!isnan(range) && count > 1) {
        interval_out->high = fmax(interval_out->high, t_upper(items, count, range, how->tail));
        negate(items, count);
        interval_out->low = fmin(interval_out->low, -t_upper(items, count, range, how->tail));
    }

    free(items);
    free(means);
    return FP8Q_OK;
}

int fp8q_bootstrap_mean(const struct fp8q_clustered *values, const struct fp8q_bootstrap *how,
                        struct fp8q_interval *interval_out, size_t *n_clusters_out,
                        struct fp8q_error *err)
{
    *interval_out = (struct fp8q_interval){0};
    *n_clusters_out = 0;
    return mean_interval(values, how, (double)NAN, interval_out, n_clusters_out, err);
}

int fp8q_mean_bounds(const struct fp8q_clustered *values, const struct fp8q_bootstrap *how,
                     double range, struct fp8q_interval *interval_out, size_t *n_clusters_out,
                     struct fp8q_error *err)
{
    *interval_out = (struct fp8q_interval){0};
    *n_clusters_out = 0;
    return mean_interval(values, how, range, interval_out, n_clusters_out, err);
}
