/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_avx512.c - 14 x 32 tiles: 28 accumulators, two vectors of B, the elements of A as broadcast
 * operands.  28 of 32 registers hide the latency of the two multiply-add units.
 */
#include <immintrin.h>

#include "kernel/rowmath.h"

extern const struct fp8q_gemm fp8q_gemm_avx512, fp8q_gemm_avx512_bf16;

#define MR 14
#define NR 32
#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static void micro(size_t n_k, const float *a, const float *b, float *c, size_t ldc, bool add)
{
#define DECLARE(i) __m512 lo##i = _mm512_setzero_ps(), hi##i = _mm512_setzero_ps();
#define LOAD(i) lo##i = _mm512_loadu_ps(c + i * ldc), hi##i = _mm512_loadu_ps(c + i * ldc + 16);
#define STEP(i)                                                                                    \
    x = _mm512_set1_ps(a[i]);                                                                      \
    lo##i = _mm512_fmadd_ps(x, b_lo, lo##i);                                                       \
    hi##i = _mm512_fmadd_ps(x, b_hi, hi##i);
#define STORE(i) _mm512_storeu_ps(c + i * ldc, lo##i), _mm512_storeu_ps(c + i * ldc + 16, hi##i);
#define MULTIPLY                                                                                   \
    for (size_t k = 0; k < n_k; k++, a += MR, b += NR) {                                           \
        __m512 b_lo = _mm512_loadu_ps(b), b_hi = _mm512_loadu_ps(b + 16), x;                       \
        _mm_prefetch((const char *)(b + 16 * NR), _MM_HINT_T0);                                    \
        _mm_prefetch((const char *)(b + 16 * NR + 16), _MM_HINT_T0);                               \
        ROWS(STEP)                                                                                 \
    }
    ROWS(DECLARE)
    if (add) {
        ROWS(LOAD)
    }
    MULTIPLY
    ROWS(STORE)
}

static inline void add_scaled(float *c, __m512 sum, __m512 scale)
{
    _mm512_storeu_ps(c, _mm512_add_ps(_mm512_loadu_ps(c), _mm512_mul_ps(sum, scale)));
}

#define ADD_SCALED(i)                                                                              \
    add_scaled(c + i * ldc, lo##i, _mm512_mul_ps(_mm512_set1_ps(a_scale[i]), s_lo));               \
    add_scaled(c + i * ldc + 16, hi##i, _mm512_mul_ps(_mm512_set1_ps(a_scale[i]), s_hi));
#define SCALE_AND_ADD                                                                              \
    __m512 s_lo = _mm512_loadu_ps(b_scale), s_hi = _mm512_loadu_ps(b_scale + 16);                  \
    ROWS(ADD_SCALED)

static void micro_fp8(size_t n_k, const void *a_values, const void *b_values, const float *a_scale,
                      const float *b_scale, float *c, size_t ldc)
{
    const float *a = a_values, *b = b_values;
    ROWS(DECLARE)
    MULTIPLY
    SCALE_AND_ADD
}

/* ---- with AVX512-BF16 -------------------------------------------------------------------------- */

#define BF16 __attribute__((target("avx512bf16")))

/* VDPBF16PS adds the product of the upper halves to the sum, rounds as a fused multiply-add does, and
 * then that of the lower halves: with the pairs as packed, the chain of micro().  It takes subnormal
 * numbers for zero, which E4M3 values and their sums never are.  */
BF16 static void micro_pairs(size_t n_k, const void *a_pairs, const void *b_pairs,
                             const float *a_scale, const float *b_scale, float *c, size_t ldc)
{
    const uint32_t *a = a_pairs, *b = b_pairs;
#define STEP_PAIRS(i)                                                                              \
    x = (__m512bh)_mm512_set1_epi32((int)a[i]);                                                    \
    lo##i = _mm512_dpbf16_ps(lo##i, x, (__m512bh)b_lo);                                            \
    hi##i = _mm512_dpbf16_ps(hi##i, x, (__m512bh)b_hi);
    ROWS(DECLARE)
    for (size_t k = 0; k < n_k; k += 2, a += MR, b += NR) {
        __m512i b_lo = _mm512_loadu_si512(b), b_hi = _mm512_loadu_si512(b + 16);
        __m512bh x;
        ROWS(STEP_PAIRS)
    }
    SCALE_AND_ADD
}

static bool usable_bf16(void)
{
    return usable() && __builtin_cpu_supports("avx512bf16");
}

const struct fp8q_gemm fp8q_gemm_avx512_bf16 = {.name = "avx512",
                                                .usable = usable_bf16,
                                                .mr = MR,
                                                .nr = NR,
                                                .micro = micro,
                                                .micro_fp8 = micro_pairs,
                                                .pairs = true,
                                                ROWMATH};
const struct fp8q_gemm fp8q_gemm_avx512 = {.name = "avx512",
                                           .usable = usable,
                                           .mr = MR,
                                           .nr = NR,
                                           .micro = micro,
                                           .micro_fp8 = micro_fp8,
                                           ROWMATH};
