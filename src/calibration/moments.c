/* SPDX-License-Identifier: Apache-2.0
 *
 * moments.c - second moments as products of packed matrices.
 *
 * How it works.  Channels are cut into blocks of 128.  Each block is scaled and packed once for all
 * runs, as left and as right operand; then a task is one pair of blocks, of which the upper half is
 * computed: a product for each run, added to the sums.
 */
#include "calibration/moments.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pool.h"

#define TILE ((size_t)FP8Q_BLOCK * FP8Q_BLOCK)

struct adding {
    struct fp8q_moments *moments;
    const struct fp8q_forward *fw;
    const float *x;
    const struct fp8q_token_run *runs;
    size_t n_runs, n_rows, longest, n_blocks;
    float *inverse; /* of each row's length */
    float *left;    /* [block][run], packed */
    float *right;   /* the same */
    float *scratch; /* a worker's: rows of one run and block, or a product */
    size_t scratch_floats, left_rows, right_rows;
};

static size_t columns_of(const struct adding *a, size_t block)
{
    return fp8q_min_size(a->moments->width - block * FP8Q_BLOCK, FP8Q_BLOCK);
}

#define ROWS_A_TASK 64

static int length_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct adding *a = ctx;
    size_t first = (size_t)task * ROWS_A_TASK, width = a->moments->width;
    size_t end = fp8q_min_size(first + ROWS_A_TASK, a->n_rows);
    (void)worker;

    for (size_t t = first; t < end; t++) {
        /* Of the whole vector: its parts in the blocks keep their weights among themselves.  */
        double square = a->fw->gemm->dot(a->x + t * width, a->x + t * width, width);
        if (!isfinite(square))
            return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "an activation is NaN or infinite");
        a->inverse[t] = square > 0 ? (float)(1.0 / sqrt(square)) : 0.0f;
    }
    return FP8Q_OK;
}

static int pack_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct adding *a = ctx;
    const struct fp8q_gemm *g = a->fw->gemm;
    size_t block = (size_t)task, n = columns_of(a, block), width = a->moments->width;
    float *rows = a->scratch + worker * a->scratch_floats;
    (void)err;

    for (size_t r = 0; r < a->n_runs; r++) {
        const struct fp8q_token_run *run = &a->runs[r];
        for (size_t t = 0; t < run->n; t++) {
            const float *x = a->x + (run->first + t) * width + block * FP8Q_BLOCK;
            float factor = a->inverse[run->first + t];
            for (size_t i = 0; i < n; i++)
                rows[t * n + i] = x[i] * factor;
        }

        /* Channels are the rows of both operands, tokens what is summed over.  */
        struct fp8q_strided columns = {rows, 1, n};
        fp8q_pack_a(g, columns, n, run->n,
                    a->left + (block * a->n_rows + run->first) * a->left_rows);
        fp8q_pack_b(g, columns, n, run->n,
                    a->right + (block * a->n_rows + run->first) * a->right_rows);
    }
    return FP8Q_OK;
}

/* Pairs are numbered row by row through the upper half.  */
static void find_pair(size_t n_blocks, uint64_t task, size_t *i_out, size_t *j_out)
{
    size_t i = 0;
    for (; task >= n_blocks - i; i++)
        task -= n_blocks - i;
    *i_out = i;
    *j_out = i + (size_t)task;
}

static int pair_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct adding *a = ctx;
    size_t bi, bj, width = a->moments->width;
    find_pair(a->n_blocks, task, &bi, &bj);
    size_t n_i = columns_of(a, bi), n_j = columns_of(a, bj);
    float *product = a->scratch + worker * a->scratch_floats;
    (void)err;

    /* All runs of a pair in one task, in their order: nobody else adds to these sums.  */
    for (size_t r = 0; r < a->n_runs; r++) {
        const struct fp8q_token_run *run = &a->runs[r];
        float *sums = a->moments->sums[run->share] + bi * FP8Q_BLOCK * width + bj * FP8Q_BLOCK;
        fp8q_gemm_packed(
            a->fw->gemm, n_i, n_j, run->n, a->left + (bi * a->n_rows + run->first) * a->left_rows,
            a->right + (bj * a->n_rows + run->first) * a->right_rows, product, FP8Q_BLOCK);
        for (size_t i = 0; i < n_i; i++)
            for (size_t j = 0; j < n_j; j++)
                sums[i * width + j] += product[i * FP8Q_BLOCK + j];
    }
    return FP8Q_OK;
}

static int add_all(struct adding *a, struct fp8q_error *err)
{
    const struct fp8q_forward *fw = a->fw;
    /* Rows of a block, filled up to whole tiles.  */
    a->left_rows = fp8q_packed_a(fw->gemm, FP8Q_BLOCK, 1);
    a->right_rows = fp8q_packed_b(fw->gemm, FP8Q_BLOCK, 1);
    a->scratch_floats = fp8q_max_size(a->longest * FP8Q_BLOCK, TILE);

    a->inverse = fp8q_array(a->n_rows, sizeof(float));
    a->left = fp8q_array((uint64_t)a->n_blocks * a->n_rows * a->left_rows, sizeof(float));
    a->right = fp8q_array((uint64_t)a->n_blocks * a->n_rows * a->right_rows, sizeof(float));
    a->scratch = fp8q_array((uint64_t)fw->n_threads * a->scratch_floats, sizeof(float));
    if (!a->inverse || !a->left || !a->right || !a->scratch)
        return fp8q_fail_nomem(err);

    /* One after another: each pass needs all of what the one before it made.  */
    FP8Q_TRY(fp8q_pool_run(fw->watch, fw->n_threads, fp8q_ceil_div(a->n_rows, ROWS_A_TASK),
                           length_task, a, err));
    FP8Q_TRY(fp8q_pool_run(fw->watch, fw->n_threads, a->n_blocks, pack_task, a, err));
    return fp8q_pool_run(fw->watch, fw->n_threads, a->n_blocks * (a->n_blocks + 1) / 2, pair_task,
                         a, err);
}

int fp8q_moments_add(struct fp8q_moments *moments, const struct fp8q_forward *fw, const float *x,
                     const struct fp8q_token_run *runs, size_t n_runs, struct fp8q_error *err)
{
    struct adding a = {.moments = moments,
                       .fw = fw,
                       .x = x,
                       .runs = runs,
                       .n_runs = n_runs,
                       .n_blocks = (size_t)fp8q_ceil_div(moments->width, FP8Q_BLOCK)};
    for (size_t i = 0; i < n_runs; i++) {
        a.n_rows += runs[i].n;
        a.longest = fp8q_max_size(a.longest, runs[i].n);
    }

    int status = add_all(&a, err);
    /* Counted beside the tasks, each of which sees every token.  */
    for (size_t i = 0; status == FP8Q_OK && i < n_runs; i++)
        moments->n_tokens[runs[i].share] += runs[i].n;
    free(a.inverse);
    free(a.left);
    free(a.right);
    free(a.scratch);
    return status;
}

/* ---- open, mirror, reset --------------------------------------------------------------------- */

struct mirroring {
    struct fp8q_moments *moments;
    size_t n_blocks;
};

static int mirror_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct mirroring *m = ctx;
    size_t width = m->moments->width, first = (size_t)task * FP8Q_BLOCK;
    size_t end = fp8q_min_size(first + FP8Q_BLOCK, width);
    (void)worker;
    (void)err;

    /* Rows of this block below the diagonal, from the columns above it.  */
    for (int share = 0; share < FP8Q_N_SHARES; share++) {
        float *h = m->moments->sums[share];
        for (size_t i = first; i < end; i++)
            for (size_t j = 0; j < first; j++)
                h[i * width + j] = h[j * width + i];
    }
    return FP8Q_OK;
}

int fp8q_moments_mirror(struct fp8q_moments *moments, const struct fp8q_forward *fw,
                        struct fp8q_error *err)
{
    struct mirroring m = {moments, (size_t)fp8q_ceil_div(moments->width, FP8Q_BLOCK)};
    return fp8q_pool_run(fw->watch, fw->n_threads, m.n_blocks, mirror_task, &m, err);
}

int fp8q_moments_open(size_t width, struct fp8q_moments *moments, struct fp8q_error *err)
{
    *moments = (struct fp8q_moments){.width = width};
    for (int share = 0; share < FP8Q_N_SHARES; share++) {
        moments->sums[share] = fp8q_array((uint64_t)width * width, sizeof(float));
        if (!moments->sums[share]) {
            fp8q_moments_reset(moments);
            return fp8q_fail_nomem(err);
        }
    }
    return FP8Q_OK;
}

void fp8q_moments_reset(struct fp8q_moments *moments)
{
    for (int share = 0; share < FP8Q_N_SHARES; share++)
        free(moments->sums[share]);
    *moments = (struct fp8q_moments){.width = 0};
}
