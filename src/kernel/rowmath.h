/* SPDX-License-Identifier: Apache-2.0
 *
 * rowmath.h - the row functions of gemm.h, once, in plain C: each gemm_*.c includes it and compiles
 * it for its instruction set.
 *
 * Loops over 16 independent lanes, without fused operations (the project is built with
 * -ffp-contract=off), become vector code of any width with the same bits.
 */
#ifndef FP8Q_KERNEL_ROWMATH_H
#define FP8Q_KERNEL_ROWMATH_H

#include <math.h>
#include <string.h>

#include "kernel/gemm.h"

#define LANES 16

/* y[l] = e^x[l] to about one unit in the last place; 0 below -87, and above 88 as for 88.
 * x = n ln 2 + r with |r| <= ln(2)/2; adding 1.5 * 2^23 rounds to an integer that then stands in
 * the low bits; n * LN2_HI is exact since LN2_HI has 9 significant bits.  Polynomial: Cephes expf.
 */
static inline void exp_lanes(float *restrict y, const float *restrict x)
{
    const float LN2_HI = 0.693359375f, LN2_LO = -2.12194440e-4f, MAGIC = 12582912.0f;
    for (int l = 0; l < LANES; l++) {
        float v = x[l] > 88.0f ? 88.0f : x[l];
        float low = v < -87.0f ? 0.0f : 1.0f; /* also keeps NaN: the comparison is false */
        v = v < -87.0f ? -87.0f : v;
        float shifted = v * 1.44269504f + MAGIC;
        float n = shifted - MAGIC;
        float r = (v - n * LN2_HI) - n * LN2_LO;
        float p = 1.9875691500e-4f;
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        p = (p * r) * r + r + 1.0f;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof(bits));
        bits = (bits - 0x4B400000u + 127u) << 23; /* 2^n */
        float scale;
        memcpy(&scale, &bits, sizeof(scale));
        y[l] = p * scale * low;
    }
}

static inline double fold_lanes(const double *lanes)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

/* The last, short group of a row, filled up with @pad.  */
static inline const float *short_lanes(float *restrict buf, const float *restrict x, size_t n,
                                       float pad)
{
    for (size_t l = 0; l < LANES; l++)
        buf[l] = l < n ? x[l] : pad;
    return buf;
}

static float row_max(const float *x, size_t n)
{
    float lanes[LANES], tail[LANES], best = -INFINITY;
    for (int l = 0; l < LANES; l++)
        lanes[l] = -INFINITY;
    for (size_t i = 0; i < n; i += LANES) {
        const float *v = n - i < LANES ? short_lanes(tail, x + i, n - i, -INFINITY) : x + i;
        for (int l = 0; l < LANES; l++)
            lanes[l] = v[l] > lanes[l] ? v[l] : lanes[l];
    }
    for (int l = 0; l < LANES; l++)
        best = lanes[l] > best ? lanes[l] : best;
    return best;
}

static double row_dot(const float *x, const float *y, size_t n)
{
    double lanes[LANES] = {0};
    float tail_x[LANES], tail_y[LANES];
    for (size_t i = 0; i < n; i += LANES) {
        const float *v = x + i, *w = y + i;
        if (n - i < LANES) {
            v = short_lanes(tail_x, v, n - i, 0);
            w = short_lanes(tail_y, w, n - i, 0);
        }
        for (int l = 0; l < LANES; l++)
            lanes[l] += (double)(v[l] * w[l]);
    }
    return fold_lanes(lanes);
}

static double row_exp_sum(float *dst, const float *src, size_t n, float shift)
{
    double lanes[LANES] = {0};
    float x[LANES], y[LANES];
    for (size_t i = 0; i < n; i += LANES) {
        size_t m = n - i < LANES ? n - i : LANES;
        for (size_t l = 0; l < LANES; l++)
            x[l] = l < m ? src[i + l] - shift : -INFINITY;
        exp_lanes(y, x);
        for (int l = 0; l < LANES; l++)
            lanes[l] += (double)y[l];
        memcpy(dst + i, y, m * sizeof(*dst));
    }
    return fold_lanes(lanes);
}

static void row_kl_sums(const float *p, const float *q, size_t n, float shift_p, float shift_q,
                        double sums[3])
{
    double e_p[LANES] = {0}, e_d[LANES] = {0}, e_q[LANES] = {0};
    float tail_p[LANES], tail_q[LANES], x[LANES], y[LANES];
    for (size_t i = 0; i < n; i += LANES) {
        const float *v = p + i, *w = q + i;
        if (n - i < LANES) { /* so low that their exponentials are 0 */
            v = short_lanes(tail_p, v, n - i, shift_p - 1000.0f);
            w = short_lanes(tail_q, w, n - i, shift_q - 1000.0f);
        }
        for (int l = 0; l < LANES; l++)
            x[l] = v[l] - shift_p;
        exp_lanes(y, x);
        for (int l = 0; l < LANES; l++) {
            e_p[l] += (double)y[l];
            e_d[l] += (double)y[l] * (double)(v[l] - w[l]);
            x[l] = w[l] - shift_q;
        }
        exp_lanes(y, x);
        for (int l = 0; l < LANES; l++)
            e_q[l] += (double)y[l];
    }
    sums[0] += fold_lanes(e_p);
    sums[1] += fold_lanes(e_d);
    sums[2] += fold_lanes(e_q);
}

static void row_silu_mul(float *gate, const float *up, size_t n)
{
    float x[LANES], y[LANES], tail_g[LANES], tail_u[LANES];
    for (size_t i = 0; i < n; i += LANES) {
        size_t m = n - i < LANES ? n - i : LANES;
        const float *g = gate + i, *u = up + i;
        if (m < LANES) {
            g = short_lanes(tail_g, g, m, 0);
            u = short_lanes(tail_u, u, m, 0);
        }
        for (int l = 0; l < LANES; l++)
            x[l] = -g[l];
        exp_lanes(y, x);
        for (int l = 0; l < LANES; l++)
            y[l] = g[l] / (1.0f + y[l]) * u[l];
        memcpy(gate + i, y, m * sizeof(*gate));
    }
}

/* (1 + tanh(u)) / 2 = 1 / (1 + e^-2u).  */
static void row_gelu_mul(float *gate, const float *up, size_t n)
{
    const float TWICE_ROOT = 1.59576912f; /* 2 sqrt(2/pi) */
    float x[LANES], y[LANES], tail_g[LANES], tail_u[LANES];
    for (size_t i = 0; i < n; i += LANES) {
        size_t m = n - i < LANES ? n - i : LANES;
        const float *g = gate + i, *u = up + i;
        if (m < LANES) {
            g = short_lanes(tail_g, g, m, 0);
            u = short_lanes(tail_u, u, m, 0);
        }
        for (int l = 0; l < LANES; l++)
            x[l] = -TWICE_ROOT * (g[l] + 0.044715f * (g[l] * g[l] * g[l]));
        exp_lanes(y, x);
        for (int l = 0; l < LANES; l++)
            y[l] = g[l] / (1.0f + y[l]) * u[l];
        memcpy(gate + i, y, m * sizeof(*gate));
    }
}

/* tanh(u) = 1 - 2 / (1 + e^2u).  */
static void row_soft_cap(float *data, size_t n, float cap)
{
    float x[LANES], y[LANES], tail[LANES];
    for (size_t i = 0; i < n; i += LANES) {
        size_t m = n - i < LANES ? n - i : LANES;
        const float *v = m < LANES ? short_lanes(tail, data + i, m, 0) : data + i;
        for (int l = 0; l < LANES; l++)
            x[l] = 2.0f * (v[l] / cap);
        exp_lanes(y, x);
        for (int l = 0; l < LANES; l++)
            y[l] = cap * (1.0f - 2.0f / (1.0f + y[l]));
        memcpy(data + i, y, m * sizeof(*data));
    }
}

static void row_subtract_outer(float *y, size_t stride, const float *a, size_t n_rows,
                               const float *x, size_t n)
{
    for (size_t r = 0; r < n_rows; r++) {
        float *restrict row = y + r * stride;
        float factor = a[r];
        for (size_t i = 0; i < n; i++)
            row[i] -= factor * x[i];
    }
}

#define ROWMATH                                                                                    \
    .max = row_max, .dot = row_dot, .exp_sum = row_exp_sum, .kl_sums = row_kl_sums,                \
    .silu_mul = row_silu_mul, .gelu_mul = row_gelu_mul, .soft_cap = row_soft_cap,                  \
    .subtract_outer = row_subtract_outer

#endif
