/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.c - distributions and the intervals made of them; bootstrap.c has those made by drawing.
 *
 * Quantiles are found by bisection on the distribution function: slower than a series, but there is
 * nothing to get wrong, and it ends on the nearest double.
 */
#include "gate/stats.h"

#include <math.h>

/* ---- distributions ------------------------------------------------------------------------- */

double fp8q_normal_cdf(double z)
{
    return 0.5 * erfc(-z / sqrt(2.0));
}

double fp8q_normal_quantile(double p)
{
    if (p > 0.5) /* the lower tail keeps its digits */
        return -fp8q_normal_quantile(1 - p);
    /* No probability that a double holds lies beyond 40; 120 halvings reach the last digit.  */
    double low = -40, high = 0;
    for (int i = 0; i < 120; i++) {
        double mid = 0.5 * (low + high);
        if (fp8q_normal_cdf(mid) < p)
            low = mid;
        else
            high = mid;
    }
    return 0.5 * (low + high);
}

/* Continued fraction of the incomplete beta function (Numerical Analysis: DLMF 8.17.22), evaluated
 * by Lentz's method.  Converges within O(sqrt(max(a, b))) steps for x < (a + 1)/(a + b + 2).  */
static double beta_fraction(double x, double a, double b)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);

    d = 1 / (fabs(d) < tiny ? tiny : d);
    double f = d;
    for (int m = 1; m < 100000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 + even * d;
        c = 1 + even / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        f *= d * c;

        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 + odd * d;
        c = 1 + odd / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;

        double step = d * c;
        f *= step;
        if (fabs(step - 1) < 1e-15)
            break;
    }
    return f;
}

static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

double fp8q_beta_cdf(double x, double a, double b)
{
    if (!(x > 0))
        return 0;
    if (x >= 1)
        return 1;
    double front = exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * log(x) + b * log1p(-x));

    /* Where the fraction would converge slowly, the other tail's converges fast.  */
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(1 - x, b, a) / b;
}

double fp8q_beta_quantile(double p, double a, double b)
{
    double low = 0, high = 1;
    for (int i = 0; i < 200 && low < high; i++) {
        double mid = 0.5 * (low + high);
        /* Neighbouring doubles: there is nothing between them.  */
        if (mid == low || mid == high)
            break;
        if (fp8q_beta_cdf(mid, a, b) < p)
            low = mid;
        else
            high = mid;
    }
    return 0.5 * (low + high);
}

double fp8q_binomial_cdf(uint64_t k, uint64_t n, double p)
{
    return k >= n ? 1 : fp8q_beta_cdf(1 - p, (double)(n - k), (double)k + 1);
}

double fp8q_t_bound(double tail, double df)
{
    if (df > 1e7) /* the beta function loses digits, and there is no difference */
        return -fp8q_normal_quantile(tail);

    double x = fp8q_beta_quantile(2 * tail, df / 2, 0.5);
    return sqrt(df * (1 - x) / x);
}

/* ---- proportions --------------------------------------------------------------------------- */

struct fp8q_interval fp8q_proportion(uint64_t k, uint64_t n, double tail)
{
    double successes = (double)k, failures = (double)(n - k);

    /* Clopper and Pearson: bounds that hold exactly, as the beta distribution gives them.  */
    return (struct fp8q_interval){
        successes / (double)n,
        k == 0 ? 0 : fp8q_beta_quantile(tail, successes, failures + 1),
        k == n ? 1 : 1 - fp8q_beta_quantile(tail, failures, successes + 1),
    };
}

double fp8q_mcnemar(uint64_t a, uint64_t b)
{
    double p = 2 * fp8q_binomial_cdf(a < b ? a : b, a + b, 0.5);
    return a + b == 0 || p > 1 ? 1 : p;
}

/* P(X - Y <= @seen) where of @n pairs X fall to base only and Y to quant only, with probabilities
 * whose sum is @share and whose difference is @difference: over all numbers of discordant pairs
 * within 9 standard deviations, which leaves less than 1e-15 out.  */
static double split_tail(uint64_t n, double seen, double share, double difference)
{
    double total = (double)n, mean = total * share, sd = sqrt(total * share * (1 - share));
    double p = share > 0 ? (share + difference) / (2 * share) : 0.5, sum = 0;
    double first = floor(mean - 9 * sd - 3), last = ceil(mean + 9 * sd + 3);
    for (uint64_t i = first > 0 ? (uint64_t)first : 0; i <= n && (double)i <= last; i++) {
        double d = (double)i;
        double k = floor((seen + d) / 2);
        /* By logarithms, since factorials of more than 170 overflow.  */
        double log_mass = log_gamma(total + 1) - log_gamma(d + 1) - log_gamma(total - d + 1);
        log_mass += (d > 0 ? d * log(share) : 0) + (d < total ? (total - d) * log1p(-share) : 0);
        if (k >= 0)
            sum += exp(log_mass) * fp8q_binomial_cdf((uint64_t)k, (uint64_t)d, p > 1 ? 1 : p);
    }
    return sum;
}

/* p-value of "the true difference is at least @difference" (Berger and Boos 1994): the worst over
 * the shares of discordant pairs within their own interval, plus what that interval may miss.  */
static double difference_p_value(uint64_t n, uint64_t base_only, uint64_t quant_only, double tail,
                                 double difference)
{
    enum { STEPS = 8 };
    double missed = tail / 10, worst = 0;
    struct fp8q_interval share = fp8q_proportion(base_only + quant_only, n, missed / 2);
    /* Fewer discordant pairs than the difference itself cannot be.  */
    double low = share.low > fabs(difference) ? share.low : fabs(difference);
    double seen = (double)base_only - (double)quant_only;
    for (int i = 0; i <= STEPS && low <= share.high; i++) {
        double p = split_tail(n, seen, low + (share.high - low) * i / STEPS, difference);
        worst = p > worst ? p : worst;
    }
    return worst + missed;
}

enum { EXACT_PAIRS = 100000 };

static double paired_upper(uint64_t n, uint64_t base_only, uint64_t quant_only, double tail)
{
    double low = ((double)base_only - (double)quant_only) / (double)n, high = 1;
    if (n > EXACT_PAIRS) {
        /* Sums over all pairs would take too long; so many are nearly normal.  */
        double share = fp8q_proportion(base_only + quant_only, n, tail / 20).high;
        high = low - fp8q_normal_quantile(tail * 9 / 10) * sqrt((share - low * low) / (double)n);
        return high < 1 ? high : 1;
    }
    if (difference_p_value(n, base_only, quant_only, tail, high) > tail)
        return high;

    /* The p-value falls as the difference grows: the bound is where it passes the tail.  */
    while (high - low > 1e-9) {
        double mid = 0.5 * (low + high);
        if (difference_p_value(n, base_only, quant_only, tail, mid) > tail)
            low = mid;
        else
            high = mid;
    }
    return high;
}

struct fp8q_interval fp8q_paired_binary(uint64_t n, uint64_t base_only, uint64_t quant_only,
                                        double tail)
{
    return (struct fp8q_interval){
        ((double)base_only - (double)quant_only) / (double)n,
        -paired_upper(n, quant_only, base_only, tail),
        paired_upper(n, base_only, quant_only, tail),
    };
}

struct fp8q_interval fp8q_unpaired_binary(uint64_t base_k, uint64_t base_n, uint64_t quant_k,
                                          uint64_t quant_n, double tail)
{
    struct fp8q_interval b = fp8q_proportion(base_k, base_n, tail);
    struct fp8q_interval q = fp8q_proportion(quant_k, quant_n, tail);
    double difference = b.estimate - q.estimate;
    return (struct fp8q_interval){
        difference,
        difference - hypot(b.estimate - b.low, q.high - q.estimate),
        difference + hypot(b.high - b.estimate, q.estimate - q.low),
    };
}

/* ---- ratio and sample size ----------------------------------------------------------------- */

double fp8q_ratio(const double *a, const double *b, size_t n, double *se_out)
{
    double sum_a = 0, sum_b = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum_a += a[i];
        sum_b += b[i];
    }
    double ratio = sum_a / sum_b;
    for (size_t i = 0; i < n; i++)
        squares += (a[i] - ratio * b[i]) * (a[i] - ratio * b[i]);
    *se_out = n < 2 ? (double)NAN : sqrt(squares * (double)n / (double)(n - 1)) / fabs(sum_b);
    return ratio;
}

uint64_t fp8q_items_needed(struct fp8q_interval interval, uint64_t n, double limit)
{
    double room = limit - interval.estimate;
    double half = room > 0 ? interval.high - interval.estimate : interval.estimate - interval.low;
    if (!(half > 0) || room == 0)
        return 0;
    /* Intervals shrink with the root of the number of items.  */
    double items = ceil((double)n * (half / room) * (half / room));
    return items < 1e18 ? (uint64_t)items : 0;
}

enum { MAX_PAIRS = 1000000 }; /* sums over pairs take time; beyond any benchmark */

/* Whether the same shares among @items items lie on one side of the limit.  */
static bool pairs_decide(uint64_t items, double base_share, double quant_share, double tail,
                         double limit)
{
    uint64_t base_only = (uint64_t)llround(base_share * (double)items);
    uint64_t quant_only = (uint64_t)llround(quant_share * (double)items);
    if (base_only + quant_only > items)
        quant_only = items - base_only;
    return difference_p_value(items, base_only, quant_only, tail, limit) <= tail ||
           difference_p_value(items, quant_only, base_only, tail, -limit) <= tail;
}

uint64_t fp8q_pairs_needed(uint64_t n, uint64_t base_only, uint64_t quant_only, double tail,
                           double limit)
{
    double b = (double)base_only / (double)n, q = (double)quant_only / (double)n;
    uint64_t low = n, high = n;
    /* Doubling finds the range, halving the number, to one per cent: it is a hint for people.  */
    while (!pairs_decide(high, b, q, tail, limit)) {
        low = high;
        high *= 2;
        if (high > MAX_PAIRS)
            return 0;
    }
    while (high - low > 1 + high / 100) {
        uint64_t mid = low + (high - low) / 2;
        if (pairs_decide(mid, b, q, tail, limit))
            high = mid;
        else
            low = mid;
    }
    return high;
}
