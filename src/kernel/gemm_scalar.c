/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_scalar.c - matrix products without vector instructions.  Slow where the processor has no
 * fused multiply-add, since the exact result is then put together from F64 operations.
 */
#include "kernel/rowmath.h"

#define MR 4
#define NR 8

static bool always(void)
{
    return true;
}

/* a*b + c rounded once.  The F64 product is exact; the F64 sum is rounded to odd (the low bit set
 * when anything was lost), so that rounding it to F32 equals rounding the exact sum.  */
static inline float fused(float a, float b, float c)
{
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    double p = (double)a * (double)b, d = (double)c, sum = p + d;
    double part = sum - p;
    double lost = (p - (sum - part)) + (d - part);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    /* Towards the lost part: away from zero if it has the sum's sign, else back by one and odd.  */
    bool odd = bits & 1, same = (lost > 0) == (sum > 0);
    if (lost != 0 && !odd && isfinite(sum))
        bits = same ? bits + 1 : bits - 1;
    memcpy(&sum, &bits, sizeof(sum));
    return (float)sum;
#endif
}

static void micro(size_t n_k, const float *a, const float *b, float *c, size_t ldc, bool add)
{
    float acc[MR][NR] = {{0}};
    if (add)
        for (int i = 0; i < MR; i++)
            memcpy(acc[i], c + (size_t)i * ldc, sizeof(acc[i]));
    for (size_t k = 0; k < n_k; k++, a += MR, b += NR)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++)
                acc[i][j] = fused(a[i], b[j], acc[i][j]);
    for (int i = 0; i < MR; i++)
        memcpy(c + (size_t)i * ldc, acc[i], sizeof(acc[i]));
}

static void micro_fp8(size_t n_k, const void *a, const void *b, const float *a_scale,
                      const float *b_scale, float *c, size_t ldc)
{
    float tile[MR * NR];
    micro(n_k, a, b, tile, NR, false);
    for (size_t i = 0; i < MR; i++)
        for (size_t j = 0; j < NR; j++)
            c[i * ldc + j] += tile[i * NR + j] * (a_scale[i] * b_scale[j]);
}

const struct fp8q_gemm fp8q_gemm_scalar = {.name = "scalar",
                                           .usable = always,
                                           .mr = MR,
                                           .nr = NR,
                                           .micro = micro,
                                           .micro_fp8 = micro_fp8,
                                           ROWMATH};
