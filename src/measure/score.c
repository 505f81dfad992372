/* SPDX-License-Identifier: Apache-2.0
 *
 * score.c - statistics of token scores.
 */
#include "measure/score.h"

#include <math.h>
#include <stdlib.h>

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
    /* Tokens of one sample are not independent; a single one tells nothing of the spread.  */
    if (units < 2)
        return NAN;

    /* Residuals of the ratio stand for those of the mean: the linearized (delta method) variance.
     */
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

static bool counts(const struct fp8q_scores *s, size_t token)
{
    return !s->part || s->part[token] == s->which;
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

    /* A choice that the source made by more than 1 nat is no toss-up.  */
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

static void kld_figures(double *klds, size_t n, struct fp8q_eval_figures *f)
{
    double squares = 0;

    /* As if tokens were independent: shown beside the error by sample, and usually too small.  */
    for (size_t i = 0; i < n; i++)
        squares += (klds[i] - f->kld) * (klds[i] - f->kld);
    f->kld_se_by_token = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : NAN;

    /* The mean is done: from here on the order of tokens is of no use.  */
    qsort(klds, n, sizeof(*klds), compare_doubles);
    f->kld_median = quantile(klds, n, 0.5);
    f->kld_p95 = quantile(klds, n, 0.95);
    f->kld_p99 = quantile(klds, n, 0.99);
    f->kld_p999 = quantile(klds, n, 0.999);
    f->kld_max = klds[n - 1];
}

/* @by has room for 5 values a sample, @klds for one a token.  */
static void add_up(const struct fp8q_scores *s, double *by, double *klds,
                   struct fp8q_eval_figures *f)
{
    size_t n = 0, m = s->n_samples;
    struct sums sums = {by, by + m, by + 2 * m, by + 3 * m, by + 4 * m};
    double nll_source = 0;

    for (size_t i = 0; i < s->n_tokens; i++) {
        if (!counts(s, i))
            continue;
        add_token(s, &sums, i, f, &nll_source);
        klds[n++] = s->output[i].kld;
    }
    for (size_t i = 0; i < m; i++)
        f->samples += sums.tokens[i] > 0;

    /* Sums by sample first, since the samples are the units of every error.  */
    f->kld = sum_of(sums.kld, m) / (double)n;
    f->kld_se = fp8q_ratio_se(sums.kld, sums.tokens, m);
    kld_figures(klds, n, f);
    f->top1 = sum_of(sums.same, m) / (double)n;
    f->top1_se = fp8q_ratio_se(sums.same, sums.tokens, m);

    /* Captured embeddings have no targets, and then no likelihood.  */
    f->dlnppl = f->dlnppl_se = f->ppl_source = f->ppl_output = NAN;
    if (f->nll_tokens > 0) {
        double tokens = (double)f->nll_tokens;
        f->dlnppl = sum_of(sums.nll, m) / tokens;
        f->dlnppl_se = fp8q_ratio_se(sums.nll, sums.nll_tokens, m);
        f->ppl_source = exp(nll_source / tokens);
        f->ppl_output = exp(nll_source / tokens + f->dlnppl);
    }
}

int fp8q_scores_figures(const struct fp8q_scores *s, struct fp8q_eval_figures *figures_out,
                        struct fp8q_error *err)
{
    const double none = (double)NAN;
    *figures_out = (struct fp8q_eval_figures){.kld = none,
                                              .kld_se = none,
                                              .kld_se_by_token = none,
                                              .kld_median = none,
                                              .kld_p95 = none,
                                              .kld_p99 = none,
                                              .kld_p999 = none,
                                              .kld_max = none,
                                              .top1 = none,
                                              .top1_se = none,
                                              .ppl_source = none,
                                              .ppl_output = none,
                                              .dlnppl = none,
                                              .dlnppl_se = none};
    for (size_t i = 0; i < s->n_tokens; i++)
        figures_out->tokens += counts(s, i);
    if (figures_out->tokens == 0)
        return FP8Q_OK;

    double *klds = fp8q_array(s->n_tokens, sizeof(*klds));
    double *by = fp8q_array(5 * (uint64_t)s->n_samples, sizeof(*by));
    int status = klds && by ? FP8Q_OK : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        add_up(s, by, klds, figures_out);

    free(klds);
    free(by);
    return status;
}
