/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_avx512.c - 14 x 32 tiles: 28 accumulators, two vectors of B, the elements of A as broadcast
 * operands.  28 of 32 registers hide the latency of the two multiply-add units.
 */
#include <immintrin.h>

#include "kernel/rowmath.h"

extern const struct fp8q_gemm fp8q_gemm_avx512;

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
    ROWS(DECLARE)
    if (add) {
        ROWS(LOAD)
    }
    for (size_t k = 0; k < n_k; k++, a += MR, b += NR) {
        __m512 b_lo = _mm512_loadu_ps(b), b_hi = _mm512_loadu_ps(b + 16), x;
        _mm_prefetch((const char *)(b + 16 * NR), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + 16 * NR + 16), _MM_HINT_T0);
        ROWS(STEP)
    }
    ROWS(STORE)
}

const struct fp8q_gemm fp8q_gemm_avx512 = {
    .name = "avx512", .usable = usable, .mr = MR, .nr = NR, .micro = micro, ROWMATH};
