/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gate_stats.c - against stored figures of scipy and statsmodels, and the coverage of the
 * paired bound.
 */
#include "support/support.h"

#include <math.h>

#include "gate/stats.h"
#include "unit/stats_figures.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

static void assert_near(double found, double expected, double relative)
{
    if (!(fabs(found - expected) <= relative * fabs(expected) + 1e-14))
        fail_msg("found %.17g, expected %.17g", found, expected);
}

static void distributions_equal_scipy(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(normal_figures); i++) {
        assert_near(fp8q_normal_quantile(normal_figures[i].p), normal_figures[i].z, 1e-7);
        assert_near(fp8q_normal_cdf(normal_figures[i].z), normal_figures[i].p, 1e-10);
    }
    for (size_t i = 0; i < COUNT(beta_figures); i++)
        assert_near(fp8q_beta_cdf(beta_figures[i].x, beta_figures[i].a, beta_figures[i].b),
                    beta_figures[i].cdf, 1e-8);
    for (size_t i = 0; i < COUNT(quantile_figures); i++)
        assert_near(
            fp8q_beta_quantile(quantile_figures[i].p, quantile_figures[i].a, quantile_figures[i].b),
            quantile_figures[i].x, 1e-8);
    assert_near(fp8q_binomial_cdf(0, 3, 0.5), 0.125, 1e-12);
    assert_near(fp8q_binomial_cdf(3, 3, 0.5), 1, 0);
}

static void intervals_equal_scipy_and_statsmodels(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(proportion_figures); i++) {
        struct fp8q_interval r = fp8q_proportion(proportion_figures[i].k, proportion_figures[i].n,
                                                 proportion_figures[i].tail);
        assert_near(r.low, proportion_figures[i].low, 1e-8);
        assert_near(r.high, proportion_figures[i].high, 1e-8);
    }
    for (size_t i = 0; i < COUNT(mcnemar_figures); i++)
        assert_near(fp8q_mcnemar(mcnemar_figures[i].a, mcnemar_figures[i].b), mcnemar_figures[i].p,
                    1e-8);
    for (size_t i = 0; i < COUNT(paired_figures); i++) {
        struct fp8q_interval r =
            fp8q_paired_binary(paired_figures[i].n, paired_figures[i].base_only,
                               paired_figures[i].quant_only, paired_figures[i].tail);
        assert_true(fabs(r.low - paired_figures[i].low) < 3e-9);
        assert_true(fabs(r.high - paired_figures[i].high) < 3e-9);
        assert_true(r.low <= r.estimate && r.estimate <= r.high);
    }
    for (size_t i = 0; i < COUNT(unpaired_figures); i++) {
        struct fp8q_interval r = fp8q_unpaired_binary(
            unpaired_figures[i].base_k, unpaired_figures[i].base_n, unpaired_figures[i].quant_k,
            unpaired_figures[i].quant_n, unpaired_figures[i].tail);
        assert_near(r.low, unpaired_figures[i].low, 1e-7);
        assert_near(r.high, unpaired_figures[i].high, 1e-7);
    }
}

/* P(upper bound < true difference) by summing over all outcomes of a trinomial with n = 24.  */
static void the_paired_bound_holds_what_it_promises(void **state)
{
    (void)state;
    static const double shares[][2] = {
        {0.02, 0.02}, {0.1, 0.02}, {0.2, 0.2}, {0.03, 0}, {0.5, 0.1}};
    enum { n = 24 };
    double high[n + 1][n + 1];
    for (int b = 0; b <= n; b++)
        for (int c = 0; b + c <= n; c++)
            high[b][c] = fp8q_paired_binary(n, (uint64_t)b, (uint64_t)c, 0.05).high;
    for (size_t s = 0; s < COUNT(shares); s++) {
        double p = shares[s][0], q = shares[s][1], missed = 0;
        for (int b = 0; b <= n; b++)
            for (int c = 0; b + c <= n; c++) {
                double log_mass = lgamma(n + 1) - lgamma(b + 1) - lgamma(c + 1) -
                                  lgamma(n - b - c + 1) + (n - b - c) * log(1 - p - q);
                log_mass += (b ? b * log(p) : 0) + (c ? c * log(q) : 0);
                if (c > 0 && q == 0)
                    continue;
                missed += high[b][c] < p - q ? exp(log_mass) : 0;
            }
        if (missed > 0.05)
            fail_msg("shares %g and %g: missed with probability %g", p, q, missed);
    }
}

/* Where the normal distribution takes over, it gives what the sums gave.  */
static void exact_and_normal_bounds_meet(void **state)
{
    (void)state;
    struct fp8q_interval exact = fp8q_paired_binary(100000, 2600, 2400, 0.05);
    struct fp8q_interval normal = fp8q_paired_binary(100001, 2600, 2400, 0.05);
    assert_true(fabs(normal.high - exact.high) < 0.01 * (exact.high - exact.estimate));
    assert_true(fabs(normal.low - exact.low) < 0.01 * (exact.estimate - exact.low));
}

static void bootstrap_is_seeded_and_near_scipy(void **state)
{
    (void)state;
    size_t n = COUNT(bootstrap_values), clusters_found;
    double values[COUNT(bootstrap_values)];
    uint64_t clusters[COUNT(bootstrap_values)];
    struct fp8q_interval a, b;
    struct fp8q_error err = {0};
    for (size_t i = 0; i < n; i++) {
        values[i] = bootstrap_values[i].x;
        clusters[i] = i / 10 * 977;
    }
    const struct fp8q_bootstrap how = {.seed = 1, .resamples = 10000, .tail = 0.05};
    struct fp8q_clustered sample = {values, NULL, n};
    assert_ok(fp8q_bootstrap_mean(&sample, &how, &a, &clusters_found, &err), &err);
    assert_ok(fp8q_bootstrap_mean(&sample, &how, &b, &clusters_found, &err), &err);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(clusters_found, n);
    double width = bootstrap_figures[0].high - bootstrap_figures[0].low;
    assert_true(fabs(a.low - bootstrap_figures[0].low) < 0.03 * width);
    assert_true(fabs(a.high - bootstrap_figures[0].high) < 0.03 * width);
    sample.clusters = clusters;
    assert_ok(fp8q_bootstrap_mean(&sample, &how, &a, &clusters_found, &err), &err);
    assert_int_equal(clusters_found, 40);
    width = cluster_figures[0].high - cluster_figures[0].low;
    assert_true(fabs(a.low - cluster_figures[0].low) < 0.03 * width);
    assert_true(fabs(a.high - cluster_figures[0].high) < 0.03 * width);
}

static void t_bounds_equal_scipy(void **state)
{
    (void)state;
    static const struct {
        double tail, df, t;
    } rows[] = {{0.05, 1, 6.313751514675},
                {0.05, 2, 2.919985580354},
                {0.05, 7, 1.894578605061},
                {0.05, 29, 1.699127026533},
                {0.01, 5, 3.364929998907},
                {0.05, 1e9, 1.644853626951},
                {0.5, 3, 0}};
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_near(fp8q_t_bound(rows[i].tail, rows[i].df), rows[i].t, 1e-8);
}

static uint64_t random_of(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* How often @n items (in clusters of @each) pass a margin that is half of the loss that one item in
 * @one_in shows, out of 1000 tries.  */
static unsigned passes(size_t n, size_t each, uint64_t one_in, double half_point, uint64_t *seed)
{
    const struct fp8q_bootstrap how = {.seed = 1, .resamples = 200, .tail = 0.05};
    double losses[600];
    uint64_t clusters[600];
    unsigned passed = 0;
    for (unsigned try = 0; try < 1000; try++) {
        struct fp8q_error err = {0};
        struct fp8q_interval i;
        size_t found;
        for (size_t k = 0; k < n * each; k++) {
            losses[k] = k % each ? losses[k - 1] : random_of(seed) % one_in == 0;
            clusters[k] = k / each;
        }
        losses[0] += half_point; /* so that not all are 0 or 1 */
        const struct fp8q_clustered sample = {losses, clusters, n * each};
        assert_ok(fp8q_mean_bounds(&sample, &how, 1, &i, &found, &err), &err);
        assert_int_equal(found, n);
        passed += i.high <= 0.5 / (double)one_in;
    }
    return passed;
}

/* A loss of 0.1 (one item in ten fails) and a margin of 0.05: the nominal level is 5 %.  */
static void few_items_do_not_hide_a_loss(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 5, 10, 20, 30, 50, 60, 100};
    uint64_t seed = 7;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_true(passes(sizes[i], 1, 10, 0.001, &seed) <= 50);
        assert_true(passes(sizes[i], 5, 10, 0.001, &seed) <= 50);
    }
}

/* At the margin itself the bound may be missed 5 % of the time; 8 % is what is left of the
 * approximation at any size.  And it must be possible to pass: enough items without a loss do.  */
static void the_bound_of_a_mean_covers(void **state)
{
    (void)state;
    static const size_t sizes[] = {20, 60, 100, 200, 400};
    const struct fp8q_bootstrap how = {.seed = 1, .resamples = 200, .tail = 0.05};
    uint64_t seed = 11;
    for (size_t s = 0; s < COUNT(sizes); s++) {
        unsigned missed = 0;
        for (unsigned try = 0; try < 1000; try++) {
            double losses[400];
            struct fp8q_error err = {0};
            struct fp8q_interval i;
            size_t found;
            for (size_t k = 0; k < sizes[s]; k++)
                losses[k] = random_of(&seed) % 20 == 0;
            const struct fp8q_clustered sample = {losses, NULL, sizes[s]};
            assert_ok(fp8q_mean_bounds(&sample, &how, 1, &i, &found, &err), &err);
            missed += i.high <= 0.05;
        }
        assert_true(missed <= 80);
    }
    const double none[200] = {0};
    const struct fp8q_clustered sample = {none, NULL, 200};
    struct fp8q_error err = {0};
    struct fp8q_interval i;
    size_t found;
    assert_ok(fp8q_mean_bounds(&sample, &how, 1, &i, &found, &err), &err);
    assert_true(i.estimate == 0 && i.high < 0.015 && i.low > -0.015);
}

static void ratio_and_sample_size(void **state)
{
    (void)state;
    static const double a[] = {.0071, .0094, .0052, .0083, .0101, .0066, .0079, .0058};
    static const double b[] = {.0028, .0035, .0021, .0033, .0037, .0026, .0030, .0024};
    double se;
    assert_near(fp8q_ratio(a, b, 8, &se), ratio_figures[0].ratio, 1e-12);
    assert_near(se, ratio_figures[0].se, 1e-10);
    assert_near(fp8q_ratio(a, b, 1, &se), .0071 / .0028, 1e-12);
    assert_true(isnan(se));
    /* Half-width 0.02 at 100 items, 0.01 of room: four times as many.  */
    assert_int_equal(fp8q_items_needed((struct fp8q_interval){0, -0.02, 0.02}, 100, 0.01), 400);
    assert_int_equal(fp8q_items_needed((struct fp8q_interval){0.03, 0.01, 0.05}, 100, 0.02), 400);
    assert_int_equal(fp8q_items_needed((struct fp8q_interval){0.02, 0, 0.04}, 100, 0.02), 0);
    /* What is said to decide does, and 3 % fewer do not.  */
    uint64_t n = fp8q_pairs_needed(100, 2, 2, 0.05, 0.02), less = n * 97 / 100;
    uint64_t each = (uint64_t)llround(0.02 * (double)n),
             fewer = (uint64_t)llround(0.02 * (double)less);
    assert_true(fp8q_paired_binary(n, each, each, 0.05).high <= 0.02);
    assert_true(fp8q_paired_binary(less, fewer, fewer, 0.05).high > 0.02);
    assert_int_equal(fp8q_pairs_needed(100, 2, 0, 0.05, 0.02), 0); /* the estimate is the limit */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions_equal_scipy),
        cmocka_unit_test(intervals_equal_scipy_and_statsmodels),
        cmocka_unit_test(the_paired_bound_holds_what_it_promises),
        cmocka_unit_test(exact_and_normal_bounds_meet),
        cmocka_unit_test(bootstrap_is_seeded_and_near_scipy),
        cmocka_unit_test(t_bounds_equal_scipy),
        cmocka_unit_test(few_items_do_not_hide_a_loss),
        cmocka_unit_test(the_bound_of_a_mean_covers),
        cmocka_unit_test(ratio_and_sample_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
