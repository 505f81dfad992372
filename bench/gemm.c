/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c - speed of the evaluation's matrix products: bench_gemm [THREADS [KERNEL]].
 *
 * Prints GFLOPS by shape, packing included, best of 7.  bench/gemm.py sets them beside
 * numpy's BLAS.
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
    const float *a, *b;
    float *c, *packed_a, *packed_b; /* a stripe for each thread */
    size_t stripe_floats;
};

static int pack_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *j = ctx;
    size_t row = (size_t)task * j->step, n = j->m - row < j->step ? j->m - row : j->step;
    (void)worker, (void)err;
    fp8q_pack_a(j->g, (struct fp8q_strided){j->a + row * j->k, j->k, 1}, n, j->k,
                j->packed_a + row * j->k);
    return FP8Q_OK;
}

static int stripe_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *j = ctx;
    size_t row = (size_t)task * STRIPE, n = j->n - row < STRIPE ? j->n - row : STRIPE;
    float *packed = j->packed_b + worker * j->stripe_floats;
    (void)err;
    fp8q_pack_b(j->g, (struct fp8q_strided){j->b + row * j->k, j->k, 1}, n, j->k, packed);
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

static int bench(const struct fp8q_gemm *g, unsigned n_threads, size_t m, size_t n, size_t k)
{
    struct job j = {.g = g, .m = m, .n = n, .k = k, .step = g->mr * 8u};
    float *a = filled(m * k), *b = filled(n * k);
    j.a = a;
    j.b = b;
    j.stripe_floats = fp8q_packed_b(g, STRIPE, k);
    j.c = malloc(m * n * sizeof(float));
    j.packed_a = malloc(fp8q_packed_a(g, m, k) * sizeof(float));
    j.packed_b = malloc(n_threads * j.stripe_floats * sizeof(float));
    double best = 1e9;
    int status = a && b && j.c && j.packed_a && j.packed_b ? 0 : 1;
    for (int i = 0; i < 7 && status == 0; i++) {
        double t = now();
        status = fp8q_pool_run(NULL, n_threads, (m + j.step - 1) / j.step, pack_task, &j, NULL) ||
                 fp8q_pool_run(NULL, n_threads, (n + STRIPE - 1) / STRIPE, stripe_task, &j, NULL);
        t = now() - t;
        best = t < best ? t : best;
    }
    printf("%zu %zu %zu %.1f\n", m, n, k, 2e-9 * (double)m * (double)n * (double)k / best);
    free(a);
    free(b);
    free(j.c);
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
    fprintf(stderr, "%s, %u threads: rows, columns, depth, GFLOPS\n", g->name, n_threads);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        status |= bench(g, n_threads ? n_threads : 1, shapes[i][0], shapes[i][1], shapes[i][2]);
    return status;
}
