/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_kernels.c - speed of the kernels, of the checksum and of memory.  Knows no files.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "kernel/block.h"
#include "base/crc.h"
#include "base/mem.h"
#include "base/pool.h"

const char *const fp8q_bench_ops[FP8Q_BENCH_N_OPS] = {
    "amax", "encode", "decode", "to_f32", "scan", "check", "stripe amax", "stripe encode"};

/* Results go here, so that no call is left out by the compiler.  */
static volatile uint64_t sink;

double fp8q_bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sums of four uniform numbers are near enough to normal ones.  */
static void fill(struct fp8q_bench_data *d)
{
    /* The same numbers in every run and on every machine.  */
    uint32_t state = 1;
    for (size_t i = 0; i < d->n_elems; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++) {
            state = state * 1664525 + 1013904223;
            sum += (float)(state >> 8) * 0x1p-24f - 0.5f;
        }

        /* Four of them have a variance of 1/3: times the root of 3 it is 1.  */
        sum *= 1.73f;
        ((float *)d->weights[FP8Q_FLOAT_F32])[i] = sum;
        ((uint16_t *)d->weights[FP8Q_FLOAT_BF16])[i] = fp8q_bf16_from_f32(sum);
        ((uint16_t *)d->weights[FP8Q_FLOAT_F16])[i] = fp8q_f16_from_f32(sum);
        d->codes[i] = fp8q_e4m3_from_f32(sum / 0.01f);
    }
}

int fp8q_bench_data_create(size_t n_elems, struct fp8q_bench_data *d, struct fp8q_error *err)
{
    bool all = true;
    *d = (struct fp8q_bench_data){.n_elems = n_elems};
    for (int f = 0; f < FP8Q_N_FLOATS; f++) {
        d->weights[f] = fp8q_array(n_elems, f == FP8Q_FLOAT_F32 ? 4 : 2);
        all = all && d->weights[f];
    }

    d->codes = fp8q_array(n_elems, 1);
    d->wide = fp8q_array(n_elems, sizeof(float));
    d->other = fp8q_array(n_elems, sizeof(float));
    if (!all || !d->codes || !d->wide || !d->other) {
        fp8q_bench_data_reset(d);
        return fp8q_fail_nomem(err);
    }

    fill(d);
    return FP8Q_OK;
}

void fp8q_bench_data_reset(struct fp8q_bench_data *d)
{
    for (int f = 0; f < FP8Q_N_FLOATS; f++)
        free(d->weights[f]);
    free(d->codes);
    free(d->wide);
    free(d->other);
    *d = (struct fp8q_bench_data){0};
}

/* ---- one operation --------------------------------------------------------------------------- */

struct call {
    const struct fp8q_kernel *kernel;
    enum fp8q_bench_op op;
    enum fp8q_float from;
    struct fp8q_bench_data *data;
    uint32_t *amax;
    float *scales;
};

static void run_op(const struct call *c)
{
    static struct fp8q_error_sums sums;
    const struct fp8q_kernel *k = c->kernel;
    struct fp8q_bench_data *d = c->data;
    enum fp8q_float f = c->from;
    /* The same elements as one stripe, for the operations that take blocks.  */
    struct fp8q_stripe stripe = {d->weights[f], f, FP8Q_BLOCK, d->n_elems / FP8Q_BLOCK};
    unsigned max;

    switch (c->op) {
    case FP8Q_BENCH_AMAX:
        sink += k->amax_bits[f](d->weights[f], d->n_elems);
        break;
    case FP8Q_BENCH_ENCODE:
        k->encode[f](d->codes, d->weights[f], d->n_elems, 0.01f);
        break;
    case FP8Q_BENCH_DECODE:
        k->decode[f](d->wide, d->codes, d->n_elems, 0.01f);
        break;
    case FP8Q_BENCH_TO_F32:
        k->to_f32[f](d->wide, d->weights[f], d->n_elems);
        break;
    case FP8Q_BENCH_SCAN:
        sink += k->scan_codes(d->codes, d->n_elems, &max);
        break;
    case FP8Q_BENCH_CHECK:
        sink += k->check[f](d->weights[f], d->codes, d->n_elems, 0.01f, 1.0f, &sums);
        break;
    case FP8Q_BENCH_STRIPE_AMAX:
        fp8q_stripe_amax(k, &stripe, c->amax);
        sink += c->amax[0];
        break;
    default:
        fp8q_stripe_encode(k, &stripe, c->scales, d->codes);
    }
}

static void run_crc(const struct call *c)
{
    sink += fp8q_crc32(0, c->data->weights[FP8Q_FLOAT_F32], c->data->n_elems * sizeof(float));
}

/* Seconds a call, the best of several rounds.  */
static double best_time(void (*run)(const struct call *), const struct call *c)
{
    double best = 1e9;
    for (int round = 0; round < 8; round++) {
        int calls = 0;
        double start = fp8q_bench_now(), used;

        /* Long enough for the clock, short enough not to be interrupted in every round.  */
        do {
            run(c);
            calls++;
            used = fp8q_bench_now() - start;
        } while (used < 0.005);
        /* The best, as whatever disturbs a call only makes it slower.  */
        if (used / calls < best)
            best = used / calls;
    }
    return best;
}

struct fp8q_bench_rate fp8q_bench_kernel(const struct fp8q_kernel *kernel, enum fp8q_bench_op op,
                                         enum fp8q_float from, struct fp8q_bench_data *data)
{
    enum { MOST_BLOCKS = 64 };
    uint32_t amax[MOST_BLOCKS];
    float scales[MOST_BLOCKS];
    for (size_t i = 0; i < MOST_BLOCKS; i++)
        scales[i] = 0.01f;

    /* More blocks in a row than that do not fit; nobody asks for them.  */
    if (data->n_elems / FP8Q_BLOCK / FP8Q_BLOCK > MOST_BLOCKS)
        return (struct fp8q_bench_rate){0, 0};

    struct call c = {kernel, op, from, data, amax, scales};
    double seconds = best_time(run_op, &c), n = (double)data->n_elems;
    bool of_codes = op == FP8Q_BENCH_DECODE || op == FP8Q_BENCH_SCAN;
    double bytes = of_codes ? n : n * (from == FP8Q_FLOAT_F32 ? 4 : 2);
    return (struct fp8q_bench_rate){bytes / seconds, n / seconds};
}

struct fp8q_bench_rate fp8q_bench_crc(struct fp8q_bench_data *data)
{
    struct call c = {.data = data};
    double seconds = best_time(run_crc, &c), n = (double)data->n_elems;
    return (struct fp8q_bench_rate){n * sizeof(float) / seconds, n / seconds};
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct copy {
    char *from, *to;
    size_t part;
};

static int copy_part(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct copy *c = ctx;
    (void)worker;
    (void)err;
    memcpy(c->to + task * c->part, c->from + task * c->part, c->part);
    return FP8Q_OK;
}

/* Seconds for all of it, the best of several rounds.  */
static int time_memory(struct copy *c, uint64_t n, unsigned threads, double *best_out,
                       struct fp8q_error *err)
{
    *best_out = 1e9;
    memset(c->from, 1, n * c->part); /* fresh pages are all the same one until written to */
    for (int round = 0; round < 4; round++) {
        double start = fp8q_bench_now();
        FP8Q_TRY(fp8q_pool_run(NULL, threads, n, copy_part, c, err));
        double used = fp8q_bench_now() - start;

        if (round > 0 && used < *best_out) /* the first one makes the pages */
            *best_out = used;
    }
    return FP8Q_OK;
}

int fp8q_bench_memory(uint64_t size_bytes, unsigned threads, double *bytes_per_s_out,
                      struct fp8q_error *err)
{
    struct copy c = {.part = (size_t)1 << 20};
    uint64_t n = size_bytes / c.part + 1;
    double seconds = 0;
    c.from = fp8q_array(n, c.part);
    c.to = fp8q_array(n, c.part);

    int status = c.from && c.to ? time_memory(&c, n, threads, &seconds, err) : fp8q_fail_nomem(err);
    *bytes_per_s_out = status != FP8Q_OK ? 0 : (double)n * (double)c.part / seconds;

    free(c.from);
    free(c.to);
    return status;
}
