/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h - the statistics behind gate: exact binomial bounds, paired comparison, seeded bootstrap.
 *
 * Pure functions of their arguments; the same input gives the same bits everywhere.  docs/reference/policy.md
 * says which method decides what, and why.  `tail` is the error allowed on one side: 0.05 gives a
 * one-sided 95 % bound.
 */
#ifndef FP8Q_STATS_H
#define FP8Q_STATS_H

#include "base/error.h"

struct fp8q_interval {
    double estimate, low, high;
};

double fp8q_normal_cdf(double z);
double fp8q_normal_quantile(double p); /* 0 < p < 1 */
/* The value that Student's t with @df > 0 degrees of freedom exceeds with probability @tail <= 0.5.
 */
double fp8q_t_bound(double tail, double df);
/* Regularised incomplete beta function I_x(a, b), a and b positive, and its inverse in x.  */
double fp8q_beta_cdf(double x, double a, double b);
double fp8q_beta_quantile(double p, double a, double b);
/* P(X <= k) for X ~ Binomial(n, p).  */
double fp8q_binomial_cdf(uint64_t k, uint64_t n, double p);

/* Clopper-Pearson bounds of a proportion, each exceeded with probability at most @tail.  n > 0.  */
struct fp8q_interval fp8q_proportion(uint64_t k, uint64_t n, double tail);

/* Exact two-sided McNemar test of @a against @b discordant pairs.  */
double fp8q_mcnemar(uint64_t a, uint64_t b);

/* Difference (base - quant) of two success rates over @n paired items, of which only base solved
 * @base_only and only quant @quant_only.  Each bound holds with at least 1 - @tail at any n: exact
 * probabilities, at the worst share of discordant pairs (Berger and Boos; a tenth of @tail goes to
 * the interval of that share).  Time grows with the square root of n: 4 ms at
 * 100 items, 0.4 s at 100,000; beyond, the normal distribution stands in for the binomial.  */
struct fp8q_interval fp8q_paired_binary(uint64_t n, uint64_t base_only, uint64_t quant_only,
                                        double tail);
/* The same for two separate runs: k of n successes each.  Clopper-Pearson bounds of both rates,
 * combined by squares (MOVER).  */
struct fp8q_interval fp8q_unpaired_binary(uint64_t base_k, uint64_t base_n, uint64_t quant_k,
                                          uint64_t quant_n, double tail);
/* Values of which those of one cluster stay together.  */
struct fp8q_clustered {
    const double *values;
    const uint64_t *clusters; /* any numbers, equal ones form a cluster; NULL: each its own */
    size_t n;                 /* > 0 */
};
struct fp8q_bootstrap {
    uint64_t seed;
    uint32_t resamples; /* more than 10^9 draws become fewer, but at least 1,000 */
    double tail;
};

/* Mean of values whose clusters are drawn with replacement: percentile interval of the resampled
 * means, by a generator started with the seed.  */
int fp8q_bootstrap_mean(const struct fp8q_clustered *values, const struct fp8q_bootstrap *how,
                        struct fp8q_interval *interval_out, size_t *n_clusters_out,
                        struct fp8q_error *err);

/* Bounds of a mean that hold with few clusters too: the wider of the bootstrap's and of a t interval
 * over the clusters and one more that shows the worst, a mean of @range (-@range for the lower
 * bound).  Without that one, twenty items that all came out equal would bound a loss that one item
 * in twenty shows at nothing.  NAN bounds for fewer than two clusters.  */
int fp8q_mean_bounds(const struct fp8q_clustered *values, const struct fp8q_bootstrap *how,
                     double range, struct fp8q_interval *interval_out, size_t *n_clusters_out,
                     struct fp8q_error *err);

/* sum(a)/sum(b) over @n samples and its standard error over samples (delta method); NAN for n < 2.
 */
double fp8q_ratio(const double *a, const double *b, size_t n, double *se_out);

/* How many items would bring @high (or @low) of an interval measured on @n to @limit, if the
 * estimate stays and the width shrinks with the square root of n; 0: none would.  */
uint64_t fp8q_items_needed(struct fp8q_interval interval, uint64_t n, double limit);
/* The same for fp8q_paired_binary(), whose bounds tighten faster than that at small n: the least
 * number of items, to 1 %, at which these shares of discordant pairs would decide.  */
uint64_t fp8q_pairs_needed(uint64_t n, uint64_t base_only, uint64_t quant_only, double tail,
                           double limit);

#endif
