#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/unit/stats_figures.h: what scipy and statsmodels say, for tests/unit/test_gate_stats.c.

    stats_figures.py > tests/unit/stats_figures.h
"""
import numpy as np
import scipy
import statsmodels
from scipy import stats
from scipy.optimize import brentq
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint


def table(name, kind, rows):
    print(f"static const struct {{ {kind} }} {name}[] = {{")
    for row in rows:
        print("    {" + ", ".join(repr(float(x)) if isinstance(x, float) else str(x) for x in row) + "},")
    print("};")


def proportion(k, n, tail):
    ci = stats.binomtest(k, n).proportion_ci(1 - 2 * tail, method="exact")
    other = proportion_confint(k, n, 2 * tail, method="beta")
    assert np.allclose((ci.low, ci.high), other, atol=1e-9)  # binomtest finds its bounds to 1e-12, absolute
    return float(other[0]), float(other[1])


def split_tail(n, seen, share, difference):
    d = np.arange(n + 1)
    k = np.floor((seen + d) / 2)
    p = min(1.0, (share + difference) / (2 * share)) if share > 0 else 0.5
    return float((stats.binom.pmf(d, n, share) * stats.binom.cdf(k, d, p)).sum())


def p_value(n, b, q, tail, difference, steps=8):
    missed = tail / 10
    low, high = proportion(b + q, n, missed / 2)
    low = max(low, abs(difference))
    shares = [low + (high - low) * i / steps for i in range(steps + 1)] if low <= high else []
    return max([split_tail(n, b - q, s, difference) for s in shares], default=0) + missed


def upper(n, b, q, tail):
    low, high = (b - q) / n, 1.0
    if p_value(n, b, q, tail, high) > tail:
        return 1.0
    bound = brentq(lambda m: p_value(n, b, q, tail, m) - tail, low, high, xtol=1e-10)
    # The maximum over the grid of shares is the maximum over a fine one, up to rounding.
    fine = p_value(n, b, q, tail, bound, 400)
    assert abs(fine - p_value(n, b, q, tail, bound)) < 2e-4, (n, b, q, fine, p_value(n, b, q, tail, bound))
    return bound


def paired(n, b, q, tail):
    """The bound of stats.h, from scipy's binomial distribution and Clopper-Pearson interval."""
    return -upper(n, q, b, tail), upper(n, b, q, tail)


def unpaired(bk, bn, qk, qn, tail):
    b, q = proportion(bk, bn, tail), proportion(qk, qn, tail)
    pb, pq = bk / bn, qk / qn
    return (pb - pq - np.hypot(pb - b[0], q[1] - pq), pb - pq + np.hypot(b[1] - pb, pq - q[0]))


def main():
    print("/* SPDX-License-Identifier: Apache-2.0\n *\n * stats_figures.h - made by tests/reference/stats_figures.py "
          f"(scipy {scipy.__version__}, statsmodels {statsmodels.__version__}).\n */")
    table("normal_figures", "double p, z;", [(p, float(stats.norm.ppf(p))) for p in
          (1e-12, 1e-6, 0.001, 0.01, 0.025, 0.05, 0.2, 0.5, 0.6, 0.9, 0.95, 0.975, 0.999, 1 - 1e-9)])
    table("beta_figures", "double x, a, b, cdf;", [(x, a, b, float(stats.beta.cdf(x, a, b))) for x, a, b in
          ((0.5, 1.0, 1.0), (0.1, 2.0, 30.0), (0.9, 0.5, 0.5), (0.01, 1.0, 300.0), (0.66, 9267.0, 4776.0),
           (0.5, 33.0, 34.0), (0.001, 0.1, 7.0), (0.75, 990.0, 331.0), (0.05, 70000.0, 1330001.0))])
    table("quantile_figures", "double p, a, b, x;", [(p, a, b, float(stats.beta.ppf(p, a, b))) for p, a, b in
          ((0.05, 1.0, 1.0), (0.025, 2.0, 30.0), (0.95, 34.0, 33.0), (0.01, 1.0, 300.0), (0.99, 9267.0, 4776.0),
           (0.5, 0.3, 0.4), (0.0001, 50.0, 1.0))])
    table("proportion_figures", "uint64_t k, n; double tail, low, high;", [(k, n, t, *proportion(k, n, t)) for k, n, t in
          ((0, 10, 0.05), (10, 10, 0.05), (1, 1, 0.025), (95, 100, 0.05), (989, 1319, 0.025), (9268, 14042, 0.05),
           (33, 66, 0.04), (66, 1319, 0.01), (0, 1000000, 0.05), (250000, 1000000, 0.025))])
    table("mcnemar_figures", "uint64_t a, b; double p;", [(a, b, float(mcnemar([[10, a], [b, 10]], exact=True).pvalue))
          for a, b in ((0, 0), (1, 0), (0, 5), (10, 2), (33, 33), (40, 26), (700, 650), (3, 30))])
    table("paired_figures", "uint64_t n, base_only, quant_only; double tail, low, high;", [(n, b, q, t, *paired(n, b, q, t))
          for n, b, q, t in ((100, 0, 0, 0.05), (100, 3, 2, 0.05), (500, 12, 13, 0.05), (1319, 33, 33, 0.05),
                             (1319, 60, 20, 0.05), (14042, 350, 300, 0.05), (14042, 300, 350, 0.025), (1, 1, 0, 0.05),
                             (20, 20, 0, 0.05), (20, 0, 20, 0.05))])
    table("unpaired_figures", "uint64_t base_k, base_n, quant_k, quant_n; double tail, low, high;",
          [(*a, 0.05, *map(float, unpaired(*a, 0.05))) for a in
           ((989, 1319, 980, 1319), (95, 100, 90, 100), (0, 50, 0, 50), (50, 50, 40, 60), (9268, 14042, 9200, 14042))])
    a = np.array([.0071, .0094, .0052, .0083, .0101, .0066, .0079, .0058])
    b = np.array([.0028, .0035, .0021, .0033, .0037, .0026, .0030, .0024])
    r = a.sum() / b.sum()
    se = np.sqrt(((a - r * b) ** 2).sum() * len(a) / (len(a) - 1)) / b.sum()
    table("ratio_figures", "double ratio, se;", [(float(r), float(se))])
    # Bootstrap: scipy's percentile interval of a mean, with so many resamples that it is exact to 1 %.
    rng = np.random.default_rng(5)
    x = rng.gamma(2.0, 0.01, 400) - 0.018
    table("bootstrap_values", "double x;", [(float(v),) for v in x])
    ci = stats.bootstrap((x,), np.mean, confidence_level=0.9, n_resamples=200000, method="percentile",
                         rng=np.random.default_rng(1)).confidence_interval
    table("bootstrap_figures", "double low, high;", [(float(ci.low), float(ci.high))])
    groups = x.reshape(40, 10).mean(1)  # clusters of ten
    ci = stats.bootstrap((groups,), np.mean, confidence_level=0.9, n_resamples=200000, method="percentile",
                         rng=np.random.default_rng(1)).confidence_interval
    table("cluster_figures", "double low, high;", [(float(ci.low), float(ci.high))])


if __name__ == "__main__":
    main()
