/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c - speed of the evaluation's matrix products: bench_gemm [THREADS [KERNEL]].
 *
 * Prints GFLOPS by shape, of F32 and of FP8 values on both sides, packing included, best of 7.
 * bench/gemm.py sets them beside numpy's BLAS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernel/gemm.h"
#include "base/pool.h"

#define STRIPE 128

struct job {
    const struct fp8q_gemm *g;
    size_t m, n, k, step;
    bool fp8;
    const void *a, *b;                       /* F32 or FP8 */
    float *c, *scales, *packed_a, *packed_b; /* a stripe for each thread */
    size_t stripe_floats;
};

/* Rows [first, first + n) of an operand in groups of @group.  */
static void pack_rows(const struct job *j, size_t group, const void *x, size_t first, size_t n,
                      float *out)
{
    const float *rows = (const float *)x + first * j->k;
    if (j->fp8)
        fp8q_pack_fp8(j->g, group, (const uint8_t *)x + first * j->k, n, j->k, out);
    else if (group == j->g->mr)
        fp8q_pack_a(j->g, (struct fp8q_strided){rows, j->k, 1}, n, j->k, out);
    else
        fp8q_pack_b(j->g, (struct fp8q_strided){rows, j->k, 1}, n, j->k, out);
}

static int pack_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *j = ctx;
    size_t row = (size_t)task * j->step, n = j->m - row < j->step ? j->m - row : j->step;
    size_t words = j->fp8 ? fp8q_fp8_words(j->g, j->k) : j->k;
    (void)worker, (void)err;
    pack_rows(j, j->g->mr, j->a, row, n, j->packed_a + row * words);
    return FP8Q_OK;
}

static int stripe_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *j = ctx;
    size_t row = (size_t)task * STRIPE, n = j->n - row < STRIPE ? j->n - row : STRIPE;
    float *packed = j->packed_b + worker * j->stripe_floats;
    const struct fp8q_fp8_shape shape = {j->m, n, j->k, 128};
    const struct fp8q_fp8_operand a = {j->packed_a, j->scales}, b = {packed, j->scales};
    (void)err;

    pack_rows(j, j->g->nr, j->b, row, n, packed);
    if (j->fp8)
        fp8q_gemm_fp8(j->g, &shape, &a, &b, j->c + row, j->n);
    else
        fp8q_gemm_packed(j->g, j->m, n, j->k, j->packed_a, packed, j->c + row, j->n);
    return FP8Q_OK;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float *filled(size_t n)
{
    float *x = malloc(n * sizeof(*x));
    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
    return x;
}

/* FP8 values are whatever the bytes of the floats are, but for NaN.  */
static void make_codes(void *x, size_t n)
{
    uint8_t *codes = x;
    for (size_t i = 0; i < n; i++)
        codes[i] &= 0xBF;
}

static int run_once(struct job *j, unsigned n_threads)
{
    return fp8q_pool_run(NULL, n_threads, (j->m + j->step - 1) / j->step, pack_task, j, NULL) ||
           fp8q_pool_run(NULL, n_threads, (j->n + STRIPE - 1) / STRIPE, stripe_task, j, NULL);
}

static int measure(struct job *j, unsigned n_threads)
{
    double best = 1e9;
    for (int i = 0; i < 7; i++) {
        double t = now();
        if (run_once(j, n_threads) != 0)
            return 1;
        t = now() - t;
        best = t < best ? t : best;
    }
    printf(" %.1f", 2e-9 * (double)j->m * (double)j->n * (double)j->k / best);
    return 0;
}

static int bench(const struct fp8q_gemm *g, unsigned n_threads, size_t m, size_t n, size_t k)
{
    float *a = filled(m * k), *b = filled(n * k);
    struct job j = {.g = g, .m = m, .n = n, .k = k, .step = g->mr * 8u, .a = a, .b = b};
    j.stripe_floats = fp8q_packed_b(g, STRIPE, k);
    j.c = malloc(m * n * sizeof(float));
    j.scales = filled((k / 128 + 1) * (m > STRIPE ? m : STRIPE));
    j.packed_a = malloc(fp8q_packed_a(g, m, k) * sizeof(float));
    j.packed_b = malloc(n_threads * j.stripe_floats * sizeof(float));
    int status = a && b && j.c && j.scales && j.packed_a && j.packed_b ? 0 : 1;

    printf("%zu %zu %zu", m, n, k);
    status = status || measure(&j, n_threads);
    if (status == 0) {
        make_codes(a, m * k);
        make_codes(b, n * k);
        j.fp8 = true;
        status = measure(&j, n_threads);
    }
    printf("\n");
    free(a);
    free(b);
    free(j.c);
    free(j.scales);
    free(j.packed_a);
    free(j.packed_b);
    return status;
}

int main(int argc, char **argv)
{
    static const size_t shapes[][3] = {{2048, 896, 896},
                                       {2048, 4864, 896},
                                       {2048, 896, 4864},
                                       {2048, 2048, 2048},
                                       {2048, 8192, 896}};
    unsigned n_threads = argc > 1 ? (unsigned)atoi(argv[1]) : fp8q_cpu_count();
    const struct fp8q_gemm *g = fp8q_gemm_select(argc > 2 ? argv[2] : NULL);
    int status = 0;
    fprintf(stderr, "%s, %u threads: rows, columns, depth, GFLOPS of F32, of FP8\n", g->name,
            n_threads);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        status |= bench(g, n_threads ? n_threads : 1, shapes[i][0], shapes[i][1], shapes[i][2]);
    return status;
}
