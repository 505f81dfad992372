/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_avx2.c - 6 x 16 tiles: 12 accumulators, two vectors of B, one broadcast of A.
 */
#include <immintrin.h>

#include "kernel/rowmath.h"

extern const struct fp8q_gemm fp8q_gemm_avx2;

#define MR 6
#define NR 16
#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)

static bool usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static void micro(size_t n_k, const float *a, const float *b, float *c, size_t ldc, bool add)
{
#define DECLARE(i) __m256 lo##i = _mm256_setzero_ps(), hi##i = _mm256_setzero_ps();
#define LOAD(i) lo##i = _mm256_loadu_ps(c + i * ldc), hi##i = _mm256_loadu_ps(c + i * ldc + 8);
#define STEP(i)                                                                                    \
    x = _mm256_broadcast_ss(a + i);                                                                \
    lo##i = _mm256_fmadd_ps(x, b_lo, lo##i);                                                       \
    hi##i = _mm256_fmadd_ps(x, b_hi, hi##i);
#define STORE(i) _mm256_storeu_ps(c + i * ldc, lo##i), _mm256_storeu_ps(c + i * ldc + 8, hi##i);
#define MULTIPLY                                                                                   \
    for (size_t k = 0; k < n_k; k++, a += MR, b += NR) {                                           \
        __m256 b_lo = _mm256_loadu_ps(b), b_hi = _mm256_loadu_ps(b + 8), x;                        \
        _mm_prefetch((const char *)(b + 16 * NR), _MM_HINT_T0);                                    \
        ROWS(STEP)                                                                                 \
    }
    ROWS(DECLARE)
    if (add) {
        ROWS(LOAD)
    }
    MULTIPLY
    ROWS(STORE)
}

static inline void add_scaled(float *c, __m256 sum, __m256 scale)
{
    _mm256_storeu_ps(c, _mm256_add_ps(_mm256_loadu_ps(c), _mm256_mul_ps(sum, scale)));
}

#define ADD_SCALED(i)                                                                              \
    add_scaled(c + i * ldc, lo##i, _mm256_mul_ps(_mm256_set1_ps(a_scale[i]), s_lo));               \
    add_scaled(c + i * ldc + 8, hi##i, _mm256_mul_ps(_mm256_set1_ps(a_scale[i]), s_hi));
#define SCALE_AND_ADD                                                                              \
    __m256 s_lo = _mm256_loadu_ps(b_scale), s_hi = _mm256_loadu_ps(b_scale + 8);                   \
    ROWS(ADD_SCALED)

static void micro_fp8(size_t n_k, const void *a_values, const void *b_values, const float *a_scale,
                      const float *b_scale, float *c, size_t ldc)
{
    const float *a = a_values, *b = b_values;
    ROWS(DECLARE)
    MULTIPLY
    SCALE_AND_ADD
}

const struct fp8q_gemm fp8q_gemm_avx2 = {.name = "avx2",
                                         .usable = usable,
                                         .mr = MR,
                                         .nr = NR,
                                         .micro = micro,
                                         .micro_fp8 = micro_fp8,
                                         ROWMATH};
