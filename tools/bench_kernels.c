/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_kernels.c - speed of each kernel operation on one core: GB/s of source bytes and millions
 * of elements per second, the best of several runs.  The buffers are small enough for the
 * second-level cache, so that it measures the kernels and not the memory; an argument gives another
 * number of elements.  It says nothing about files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "block.h"
#include "kernel/kernel.h"

struct buffers {
    size_t n;
    void *weights[FP8Q_N_FLOATS];
    uint8_t *codes;
    float *wide;
};

enum op { AMAX, ENCODE, DECODE, TO_F32, SCAN, CHECK, STRIPE_AMAX, STRIPE_ENCODE, N_OPS };
static const char *const op_names[N_OPS] = {"amax", "encode", "decode",      "to_f32",
                                            "scan", "check",  "stripe amax", "stripe encode"};
static const char *const float_names[FP8Q_N_FLOATS] = {"BF16", "F16", "F32"};
static const size_t float_sizes[FP8Q_N_FLOATS] = {2, 2, 4};

static volatile uint64_t sink;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A stripe of 128 rows, or all that there is.  */
static void run_stripe(const struct fp8q_kernel *k, enum op op, enum fp8q_float f,
                       struct buffers *b)
{
    static uint32_t amax[1 << 16];
    static float scales[1 << 16];
    uint64_t cols = b->n / FP8Q_BLOCK;
    struct fp8q_stripe stripe = {b->weights[f], f, FP8Q_BLOCK, cols};
    if (op == STRIPE_AMAX) {
        fp8q_stripe_amax(k, &stripe, amax);
        sink += amax[0];
        return;
    }
    for (size_t i = 0; i <= cols / FP8Q_BLOCK; i++)
        scales[i] = 0.01f;
    fp8q_stripe_encode(k, &stripe, scales, b->codes);
}

static void run(const struct fp8q_kernel *k, enum op op, enum fp8q_float f, struct buffers *b)
{
    static struct fp8q_error_sums sums;
    unsigned max;
    switch (op) {
    case AMAX:
        sink += k->amax_bits[f](b->weights[f], b->n);
        break;
    case ENCODE:
        k->encode[f](b->codes, b->weights[f], b->n, 0.01f);
        break;
    case DECODE:
        k->decode[f](b->wide, b->codes, b->n, 0.01f);
        break;
    case TO_F32:
        k->to_f32[f](b->wide, b->weights[f], b->n);
        break;
    case SCAN:
        sink += k->scan_codes(b->codes, b->n, &max);
        break;
    case CHECK:
        sink += k->check[f](b->weights[f], b->codes, b->n, 0.01f, 1.0f, &sums);
        break;
    default:
        run_stripe(k, op, f, b);
    }
}

static void report(const struct fp8q_kernel *k, enum op op, enum fp8q_float f, struct buffers *b)
{
    double best = 1e9;
    for (int round = 0; round < 8; round++) {
        int calls = 0;
        double start = now(), used;
        do {
            run(k, op, f, b);
            calls++;
            used = now() - start;
        } while (used < 0.01);
        best = used / calls < best ? used / calls : best;
    }
    size_t bytes = op == DECODE || op == SCAN ? b->n : b->n * float_sizes[f];
    printf("%-8s %-14s %-5s %8.2f GB/s %8.0f Melem/s\n", k->name, op_names[op],
           op == SCAN ? "E4M3" : float_names[f], (double)bytes / best / 1e9,
           (double)b->n / best / 1e6);
}

static void *checked_alloc(size_t size)
{
    void *p = malloc(size);
    if (!p) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        exit(1);
    }
    return p;
}

/* Weights of about normal distribution, sd 1: sums of four uniform numbers.  */
static void fill(struct buffers *b)
{
    uint32_t state = 1;
    for (size_t i = 0; i < b->n; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++) {
            state = state * 1664525 + 1013904223;
            sum += (float)(state >> 8) * 0x1p-24f - 0.5f;
        }
        sum *= 1.73f;
        ((float *)b->weights[FP8Q_FLOAT_F32])[i] = sum;
        ((uint16_t *)b->weights[FP8Q_FLOAT_BF16])[i] = fp8q_bf16_from_f32(sum);
        ((uint16_t *)b->weights[FP8Q_FLOAT_F16])[i] = fp8q_f16_from_f32(sum);
        b->codes[i] = fp8q_e4m3_from_f32(sum / 0.01f);
    }
}

int main(int argc, char **argv)
{
    struct buffers b = {.n = argc > 1 ? strtoul(argv[1], NULL, 0) : 128 * 1024};
    if (b.n < FP8Q_BLOCK || b.n / FP8Q_BLOCK / FP8Q_BLOCK >= (1 << 16) - 1) {
        fprintf(stderr, "usage: bench_kernels [ELEMENTS]\n");
        return 1;
    }
    for (int f = 0; f < FP8Q_N_FLOATS; f++)
        b.weights[f] = checked_alloc(b.n * float_sizes[f]);
    b.codes = checked_alloc(b.n);
    b.wide = checked_alloc(b.n * sizeof(float));
    fill(&b);
    for (size_t i = 0; fp8q_kernels[i]; i++) {
        if (!fp8q_kernels[i]->usable())
            continue;
        for (int op = 0; op < N_OPS; op++)
            for (int f = 0; f < (op == SCAN ? 1 : FP8Q_N_FLOATS); f++)
                report(fp8q_kernels[i], (enum op)op, (enum fp8q_float)f, &b);
    }
    for (int f = 0; f < FP8Q_N_FLOATS; f++)
        free(b.weights[f]);
    free(b.codes);
    free(b.wide);
    return 0;
}
