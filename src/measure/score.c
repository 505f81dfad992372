/* SPDX-License-Identifier: Apache-2.0
 *
 * score.c - statistics of token scores.
 */
#include "measure/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

double fp8q_ratio_se(const double *x, const double *n, size_t count)
{
    double sum_x = 0, sum_n = 0, squares = 0;
    size_t units = 0;
    for (size_t i = 0; i < count; i++) {
        sum_x += x[i];
        sum_n += n[i];
        units += n[i] > 0;
    }
    if (units < 2)
        return NAN;
    for (size_t i = 0; i < count; i++) {
        double r = x[i] - sum_x / sum_n * n[i];
        squares += r * r;
    }
    return sqrt(squares * (double)units / (double)(units - 1)) / sum_n;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Linear between order statistics, as numpy's default.  @sorted has at least one value.  */
static double quantile(const double *sorted, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n)
        return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

struct sums {
    double *kld, *same, *nll, *tokens, *nll_tokens; /* by sample */
};

static void add_token(const struct fp8q_scores *s, const struct sums *by, size_t i,
                      struct fp8q_eval_figures *f, double *nll_source)
{
    const struct fp8q_token_score *a = &s->source[i], *b = &s->output[i];
    uint32_t k = s->sample[i];
    by->kld[k] += b->kld;
    by->same[k] += a->top == b->top;
    by->tokens[k] += 1;
    f->flips += a->top != b->top && a->margin > 1;
    if (s->has_target[i]) {
        by->nll[k] += b->nll - a->nll;
        by->nll_tokens[k] += 1;
        *nll_source += a->nll;
        f->nll_tokens++;
    }
}

static double sum_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

int fp8q_scores_figures(const struct fp8q_scores *s, struct fp8q_eval_figures *figures_out,
                        struct fp8q_error *err)
{
    struct fp8q_eval_figures *f = figures_out;
    size_t n = s->n_tokens, m = s->n_samples;
    *f = (struct fp8q_eval_figures){.tokens = n};
    double *klds = fp8q_array(n, sizeof(*klds)), *by = fp8q_array(5 * (uint64_t)m, sizeof(*by));
    if (!klds || !by || n == 0) {
        free(klds);
        free(by);
        return n == 0 ? FP8Q_OK : fp8q_fail_nomem(err);
    }
    struct sums sums = {by, by + m, by + 2 * m, by + 3 * m, by + 4 * m};
    double nll_source = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        add_token(s, &sums, i, f, &nll_source);
        klds[i] = s->output[i].kld;
    }
    f->kld = sum_of(sums.kld, m) / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (klds[i] - f->kld) * (klds[i] - f->kld);
    f->kld_se_by_token = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : NAN;
    f->kld_se = fp8q_ratio_se(sums.kld, sums.tokens, m);
    qsort(klds, n, sizeof(*klds), compare_doubles);
    f->kld_median = quantile(klds, n, 0.5);
    f->kld_p99 = quantile(klds, n, 0.99);
    f->kld_max = klds[n - 1];
    f->top1 = sum_of(sums.same, m) / (double)n;
    f->top1_se = fp8q_ratio_se(sums.same, sums.tokens, m);
    double with_target = (double)f->nll_tokens;
    f->dlnppl = f->nll_tokens ? sum_of(sums.nll, m) / with_target : NAN;
    f->dlnppl_se = f->nll_tokens ? fp8q_ratio_se(sums.nll, sums.nll_tokens, m) : NAN;
    f->ppl_source = f->nll_tokens ? exp(nll_source / with_target) : NAN;
    f->ppl_output = f->nll_tokens ? exp(nll_source / with_target + f->dlnppl) : NAN;
    free(klds);
    free(by);
    return FP8Q_OK;
}
