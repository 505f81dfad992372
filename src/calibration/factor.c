/* SPDX-License-Identifier: Apache-2.0
 *
 * factor.c - order, damping, and a Cholesky factorization by blocks.
 *
 * How it works.  One block of 128 columns after another, from the left: what earlier columns say is
 * taken off by a product of matrices (F32, sums in a fixed order), the block on the diagonal is
 * factored and inverted in F64, and the blocks below it are multiplied with that inverse.
 */
#include "calibration/factor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"

#define DAMPING 0.01 /* of the mean second moment, added to the diagonal */
/* Moments between channels are trusted a little less than those of a channel with itself: text of
 * another kind has the latter alike and the former not.  */
#define SHRINKAGE 0.2
#define MOST_TRIES 5 /* each with ten times the damping */
#define TILE ((size_t)FP8Q_BLOCK * FP8Q_BLOCK)

struct making {
    struct fp8q_factor *factor;
    const struct fp8q_moments *moments;
    const struct fp8q_forward *fw;
    bool all;
    double damping; /* as it is added */
    size_t block;   /* at hand */
    float *rows;    /* its rows, packed as the right operand */
    float *inverse; /* of its factor, packed as the right operand */
    float *scratch; /* a worker's: packed rows, and a product */
    size_t scratch_floats;
    double *diagonal; /* the block in F64, and its inverse */
};

/* ---- the matrix ------------------------------------------------------------------------------ */

static double moment(const struct making *m, size_t i, size_t j)
{
    size_t at = i * m->factor->n + j;
    const float *const *sums = (const float *const *)m->moments->sums;
    return (double)sums[FP8Q_FIT][at] + (m->all ? (double)sums[FP8Q_HELD][at] : 0.0);
}

struct ranked {
    double moment;
    uint32_t channel;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->moment != y->moment)
        return x->moment < y->moment ? -1 : 1;
    /* Equal ones, as dead channels are, in the order of the first rule: the lower is rounded first,
     * and so stands behind.  */
    return x->channel > y->channel ? -1 : 1;
}

static int choose_order(struct making *m, double *mean_out, struct fp8q_error *err)
{
    size_t n = m->factor->n;
    struct ranked *ranked = fp8q_array(n, sizeof(*ranked));
    *mean_out = 0;
    if (!ranked)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < n; i++) {
        ranked[i] = (struct ranked){moment(m, i, i), (uint32_t)i};
        *mean_out += ranked[i].moment / (double)n;
    }
    qsort(ranked, n, sizeof(*ranked), compare_ranked);
    for (size_t i = 0; i < n; i++)
        m->factor->order[i] = ranked[i].channel;
    free(ranked);
    return FP8Q_OK;
}

static int fill_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct making *m = ctx;
    const uint32_t *order = m->factor->order;
    size_t i = (size_t)task;
    float *row = m->factor->l + i * m->factor->n;
    (void)worker;
    (void)err;

    /* The lower half is all that is read.  */
    for (size_t j = 0; j < i; j++)
        row[j] = (float)(moment(m, order[i], order[j]) * (1.0 - SHRINKAGE));
    row[i] = (float)(moment(m, order[i], order[i]) + m->damping);
    return FP8Q_OK;
}

/* ---- the factorization ----------------------------------------------------------------------- */

static size_t size_of(const struct making *m, size_t block)
{
    return fp8q_min_size(m->factor->n - block * FP8Q_BLOCK, FP8Q_BLOCK);
}

static float *block_at(const struct making *m, size_t i, size_t j)
{
    return m->factor->l + i * FP8Q_BLOCK * m->factor->n + j * FP8Q_BLOCK;
}

/* Takes the columns before the block at hand off the rows of block @i in it.  */
static void take_off(const struct making *m, size_t i, float *scratch)
{
    const struct fp8q_gemm *g = m->fw->gemm;
    size_t n = m->factor->n, done = m->block * FP8Q_BLOCK;
    size_t n_i = size_of(m, i), n_j = size_of(m, m->block);
    float *at = block_at(m, i, m->block), *product = scratch, *packed = scratch + TILE;
    if (done == 0)
        return;

    fp8q_pack_a(g, (struct fp8q_strided){block_at(m, i, 0), n, 1}, n_i, done, packed);
    fp8q_gemm_packed(g, n_i, n_j, done, packed, m->rows, product, FP8Q_BLOCK);
    for (size_t r = 0; r < n_i; r++)
        for (size_t c = 0; c < n_j; c++)
            at[r * n + c] -= product[r * FP8Q_BLOCK + c];
}

/* In place: @a [n][n], of which the lower half counts -> its factor.  False if it is not positive
 * definite.  */
static bool factor_small(double *a, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double d = a[j * n + j];
        for (size_t k = 0; k < j; k++)
            d -= a[j * n + k] * a[j * n + k];
        /* Put so that NaN is refused, too.  */
        if (!(d > 0) || !isfinite(d))
            return false;
        d = sqrt(d);
        a[j * n + j] = d;

        for (size_t i = j + 1; i < n; i++) {
            double sum = a[i * n + j];
            for (size_t k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = sum / d;
        }
    }
    return true;
}

/* Inverse of a lower triangle, row by row; zero above the diagonal.  */
static void invert_small(const double *l, size_t n, double *inverse)
{
    memset(inverse, 0, n * n * sizeof(*inverse));
    for (size_t i = 0; i < n; i++) {
        inverse[i * n + i] = 1.0 / l[i * n + i];
        for (size_t j = 0; j < i; j++) {
            double sum = 0;
            for (size_t k = j; k < i; k++)
                sum -= l[i * n + k] * inverse[k * n + j];
            inverse[i * n + j] = sum / l[i * n + i];
        }
    }
}

static bool factor_diagonal(struct making *m, float *scratch)
{
    size_t n = m->factor->n, size = size_of(m, m->block);
    float *at = block_at(m, m->block, m->block), *narrow = scratch;
    double *a = m->diagonal, *inverse = a + TILE;
    take_off(m, m->block, scratch);

    /* 128 columns are little work, and what all blocks below are divided by deserves F64.  */
    for (size_t i = 0; i < size; i++)
        for (size_t j = 0; j <= i; j++)
            a[i * size + j] = (double)at[i * n + j];
    if (!factor_small(a, size))
        return false;
    invert_small(a, size, inverse);

    for (size_t i = 0; i < size; i++)
        for (size_t j = 0; j < size; j++) {
            if (j <= i)
                at[i * n + j] = (float)a[i * size + j];
            narrow[i * size + j] = (float)inverse[i * size + j];
        }
    fp8q_pack_b(m->fw->gemm, (struct fp8q_strided){narrow, size, 1}, size, size, m->inverse);
    return true;
}

static int below_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct making *m = ctx;
    const struct fp8q_gemm *g = m->fw->gemm;
    size_t i = m->block + 1 + (size_t)task, n = m->factor->n;
    size_t n_i = size_of(m, i), n_j = size_of(m, m->block);
    float *scratch = m->scratch + worker * m->scratch_floats, *packed = scratch + TILE;
    float *at = block_at(m, i, m->block);
    (void)err;

    /* Packed before it is written, so that the product may go where its operand was.  */
    take_off(m, i, scratch);
    fp8q_pack_a(g, (struct fp8q_strided){at, n, 1}, n_i, n_j, packed);
    fp8q_gemm_packed(g, n_i, n_j, n_j, packed, m->inverse, at, n);
    return FP8Q_OK;
}

/* *@done_out is false if the matrix is not positive definite.  */
static int factorize(struct making *m, bool *done_out, struct fp8q_error *err)
{
    size_t n_blocks = (size_t)fp8q_ceil_div(m->factor->n, FP8Q_BLOCK);

    *done_out = false;
    for (m->block = 0; m->block < n_blocks; m->block++) {
        const struct fp8q_strided rows = {block_at(m, m->block, 0), m->factor->n, 1};
        fp8q_pack_b(m->fw->gemm, rows, size_of(m, m->block), m->block * FP8Q_BLOCK, m->rows);
        /* On this thread: all blocks below wait for it.  */
        if (!factor_diagonal(m, m->scratch))
            return FP8Q_OK;
        FP8Q_TRY(fp8q_pool_run(m->fw->watch, m->fw->n_threads, n_blocks - m->block - 1, below_task,
                               m, err));
    }
    *done_out = true;
    return FP8Q_OK;
}

/* Columns divided by their diagonal, as rounding wants them.  */
static int divide_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct making *m = ctx;
    size_t i = (size_t)task, n = m->factor->n;
    float *row = m->factor->l + i * n;
    (void)worker;
    (void)err;

    for (size_t j = 0; j < i; j++)
        row[j] /= m->rows[j];
    return FP8Q_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int make(struct making *m, struct fp8q_error *err)
{
    const struct fp8q_forward *fw = m->fw;
    size_t n = m->factor->n;
    double mean;

    m->rows = fp8q_array(fp8q_packed_b(fw->gemm, FP8Q_BLOCK, n), sizeof(float));
    m->inverse = fp8q_array(fp8q_packed_b(fw->gemm, FP8Q_BLOCK, FP8Q_BLOCK), sizeof(float));
    m->scratch_floats = TILE + fp8q_packed_a(fw->gemm, FP8Q_BLOCK, fp8q_max_size(n, FP8Q_BLOCK));
    m->scratch = fp8q_array((uint64_t)fw->n_threads * m->scratch_floats, sizeof(float));
    m->diagonal = fp8q_array(2 * TILE, sizeof(double));
    if (!m->rows || !m->inverse || !m->scratch || !m->diagonal)
        return fp8q_fail_nomem(err);

    FP8Q_TRY(choose_order(m, &mean, err));
    m->factor->usable = false;

    /* More damping where rounding of the sums has left the matrix indefinite.  */
    m->damping = DAMPING * mean;
    for (int i = 0; mean > 0 && !m->factor->usable && i < MOST_TRIES; i++) {
        FP8Q_TRY(fp8q_pool_run(fw->watch, fw->n_threads, n, fill_task, m, err));
        FP8Q_TRY(factorize(m, &m->factor->usable, err));
        m->damping *= 10;
    }
    if (!m->factor->usable)
        return FP8Q_OK;

    /* The diagonal side by side, where the packed rows are no longer needed.  */
    for (size_t i = 0; i < n; i++)
        m->rows[i] = m->factor->l[i * n + i];
    return fp8q_pool_run(fw->watch, fw->n_threads, n, divide_task, m, err);
}

int fp8q_factor_make(struct fp8q_factor *factor, const struct fp8q_moments *moments, bool all,
                     const struct fp8q_forward *fw, struct fp8q_error *err)
{
    struct making m = {.factor = factor, .moments = moments, .fw = fw, .all = all};
    int status = make(&m, err);
    free(m.rows);
    free(m.inverse);
    free(m.scratch);
    free(m.diagonal);
    return status;
}

int fp8q_factor_open(size_t n, struct fp8q_factor *factor, struct fp8q_error *err)
{
    *factor = (struct fp8q_factor){.n = n};
    factor->order = fp8q_array(n, sizeof(*factor->order));
    factor->l = fp8q_array((uint64_t)n * n, sizeof(*factor->l));
    if (factor->order && factor->l)
        return FP8Q_OK;
    fp8q_factor_reset(factor);
    return fp8q_fail_nomem(err);
}

void fp8q_factor_reset(struct fp8q_factor *factor)
{
    free(factor->order);
    free(factor->l);
    *factor = (struct fp8q_factor){.n = 0};
}
