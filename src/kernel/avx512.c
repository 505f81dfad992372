/* SPDX-License-Identifier: Apache-2.0
 *
 * avx512.c - the row operations for x86-64 with AVX-512 F, BW, VL and DQ (no later extension).
 * Results are those of scalar.c, which also takes the elements after the last full vector.
 */
#include "kernel/kernel.h"

#include <immintrin.h>

#include "kernel/variants.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load_half16(const void *src, size_t i)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)((const char *)src + 2 * i));
}

/* Elements i .. i+15 as F32.  */
INLINE __m512 load16(enum fp8q_float from, const void *src, size_t i)
{
    if (from == FP8Q_FLOAT_F32)
        return _mm512_castsi512_ps(_mm512_loadu_si512((const char *)src + 4 * i));
    if (from == FP8Q_FLOAT_F16)
        return _mm512_cvtph_ps(load_half16(src, i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_half16(src, i)), 16));
}

/* E4M3 codes of quotients.  As in avx2.c: with e the exponent of |q|, but 2^-6 at least, and E = e
 * + 127 its field, the last bit of |q| + 2^(e+20) is the step between codes:
 *
 *     code = 8*(E - 121) + steps        sum = (E + 20) << 23 | steps
 *
 * Here the code is the low byte of a 32-bit sum, so that only values modulo 256 count.  The low
 * byte of the sum's pattern is the steps, and sum >> 20 is 8*(E + 20) = 8*(E - 121) + 104 modulo
 * 256. 152 = 256 - 104 more steps in the addend cancel that; 152 is even, so ties stay where they
 * were.  */
#define MIN_EXPONENT 121
#define MAGIC (20 << 23 | 152)
INLINE __m128i encode16(__m512 q)
{
    __m512i bits = _mm512_castps_si512(q);
    __m512 magnitude = _mm512_min_ps(_mm512_abs_ps(q), _mm512_set1_ps(448.0f));
    __m512i exponent = _mm512_max_epi32(
        _mm512_and_si512(_mm512_castps_si512(magnitude), _mm512_set1_epi32(0x7F800000)),
        _mm512_set1_epi32(MIN_EXPONENT << 23));
    __m512i magic = _mm512_add_epi32(exponent, _mm512_set1_epi32(MAGIC));
    __m512i sum = _mm512_castps_si512(_mm512_add_ps(magnitude, _mm512_castsi512_ps(magic)));
    __m512i code = _mm512_add_epi32(sum, _mm512_srli_epi32(sum, 20));
    __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    return _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign));
}

INLINE void encode(enum fp8q_float from, uint8_t *dst, const void *src, size_t n, float scale)
{
    const size_t size = from == FP8Q_FLOAT_F32 ? 4 : 2;
    const __m512 divisor = _mm512_set1_ps(scale);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m128i codes = encode16(_mm512_div_ps(load16(from, src, i), divisor));
        _mm_storeu_si128((__m128i *)(void *)(dst + i), codes);
    }
    if (i < n)
        fp8q_kernel_scalar.encode[from](dst + i, (const char *)src + size * i, n - i, scale);
}

/* 16 codes as F16 patterns of value * 2^-8, widened; avx2.c shows the bits.  */
INLINE __m512 small_values16(const uint8_t *src)
{
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)src);
    __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    __m256i half = _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16((short)0xBFFF));
    const __m256i nan = _mm256_set1_epi16(0x3F80);
    __mmask16 is_nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(half, nan), nan);
    half = _mm256_xor_si256(half, _mm256_maskz_set1_epi16(is_nan, 0x3F80 ^ 0x7E00));
    return _mm512_cvtph_ps(half);
}

INLINE void store16(enum fp8q_float to, void *dst, size_t i, __m512 x)
{
    if (to == FP8Q_FLOAT_F32) {
        _mm512_storeu_ps((char *)dst + 4 * i, x);
        return;
    }
    __m256i halves;
    if (to == FP8Q_FLOAT_BF16) {
        /* Nearest even; the NaN of a code has no low bits that could carry.  */
        __m512i bits = _mm512_castps_si512(x);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
        halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
    } else /* the form without a mask warns in GCC's header */
        halves = _mm512_maskz_cvtps_ph((__mmask16)0xFFFF, x, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((__m256i *)(void *)((char *)dst + 2 * i), halves);
}

INLINE void decode(enum fp8q_float to, void *dst, const uint8_t *src, size_t n, float scale)
{
    const size_t size = to == FP8Q_FLOAT_F32 ? 4 : 2;
    const __m512 factor = _mm512_set1_ps(scale), bias = _mm512_set1_ps(256.0f);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512 value = _mm512_mul_ps(small_values16(src + i), bias);
        store16(to, dst, i, _mm512_mul_ps(value, factor));
    }
    if (i < n)
        fp8q_kernel_scalar.decode[to]((char *)dst + size * i, src + i, n - i, scale);
}

/* Magnitudes as bits: 32 of 16 bits, or 16 of 32.  */
INLINE __m512i magnitudes_half(const void *p)
{
    return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi16(0x7FFF));
}

INLINE __m512i magnitudes_f32(const void *p)
{
    return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(0x7FFFFFFF));
}

INLINE __m512i larger_half(__m512i a, __m512i b)
{
    return _mm512_max_epu16(a, b);
}

INLINE __m512i larger_f32(__m512i a, __m512i b)
{
    return _mm512_max_epu32(a, b);
}

INLINE uint32_t largest_f32(__m512i v)
{
    return _mm512_reduce_max_epu32(v);
}

/* Of both 16-bit halves of each element of 32.  */
INLINE uint32_t largest_half(__m512i v)
{
    const __m512i low = _mm512_set1_epi32(0xFFFF);
    return largest_f32(larger_half(_mm512_srli_epi32(v, 16), _mm512_and_si512(v, low)));
}

FP8Q_AMAX(BF16, half, 2, __m512i)
FP8Q_AMAX(F32, f32, 4, __m512i)

INLINE void widen(enum fp8q_float from, float *dst, const void *src, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16)
        _mm512_storeu_ps(dst + i, load16(from, src, i));
    if (i < n)
        fp8q_kernel_scalar.to_f32[from](dst + i, (const char *)src + 2 * i, n - i);
}

FP8Q_WIDEN_INSTANCES

static size_t scan_codes(const uint8_t *src, size_t n, unsigned *max_out)
{
    const __m512i nan = _mm512_set1_epi8(0x7F);
    __m512i max = _mm512_setzero_si512();
    size_t i = 0, nans = 0;
    for (; n - i >= 64; i += 64) {
        __m512i codes = _mm512_and_si512(_mm512_loadu_si512(src + i), nan);
        max = _mm512_max_epu8(max, codes);
        nans += (size_t)__builtin_popcountll(_mm512_cmpeq_epi8_mask(codes, nan));
    }
    if (i < n) {
        __m512i codes = _mm512_maskz_loadu_epi8(UINT64_MAX >> (64 - (n - i)), src + i);
        codes = _mm512_and_si512(codes, nan);
        max = _mm512_max_epu8(max, codes);
        nans += (size_t)__builtin_popcountll(_mm512_cmpeq_epi8_mask(codes, nan));
    }
    max = _mm512_max_epu8(max, _mm512_srli_epi32(max, 16));
    max = _mm512_max_epu8(max, _mm512_srli_epi32(max, 8));
    *max_out = _mm512_reduce_max_epu32(_mm512_and_si512(max, _mm512_set1_epi32(0xFF)));
    return nans;
}

struct check_state {
    __m512d scale, relative, absolute;
    __m512d w2[2], d2[2];
    size_t broken;
};

/* Eight elements of lanes 8*part and up; scalar.c says why F64 is exact enough.  */
INLINE void check8(struct check_state *s, int part, __m256 w8, __m256 q8)
{
    __m512d w = _mm512_cvtps_pd(w8);
    __m512d d = _mm512_sub_pd(w, _mm512_mul_pd(_mm512_cvtps_pd(q8), s->scale));
    __m512d limit = _mm512_max_pd(_mm512_mul_pd(_mm512_abs_pd(w), s->relative), s->absolute);
    __mmask8 over = _mm512_cmp_pd_mask(_mm512_abs_pd(d), limit, _CMP_NLE_UQ);
    s->w2[part] = _mm512_add_pd(s->w2[part], _mm512_mul_pd(w, w));
    s->d2[part] = _mm512_add_pd(s->d2[part], _mm512_mul_pd(d, d));
    s->broken += (size_t)__builtin_popcount(over);
}

INLINE struct check_state check_begin(float scale, float factor, const struct fp8q_error_sums *sums)
{
    struct check_bound bound = check_bound(scale, factor);
    return (struct check_state){
        .scale = _mm512_set1_pd((double)scale * 256.0), /* for values that are too small by 2^8 */
        .relative = _mm512_set1_pd(bound.relative),
        .absolute = _mm512_set1_pd(bound.absolute),
        .w2 = {_mm512_loadu_pd(sums->w2), _mm512_loadu_pd(sums->w2 + 8)},
        .d2 = {_mm512_loadu_pd(sums->d2), _mm512_loadu_pd(sums->d2 + 8)},
    };
}

INLINE size_t check(enum fp8q_float from, const void *src, const uint8_t *codes, size_t n,
                    float scale, float factor, struct fp8q_error_sums *sums)
{
    const size_t size = from == FP8Q_FLOAT_F32 ? 4 : 2;
    struct check_state s = check_begin(scale, factor, sums);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m512 w = load16(from, src, i), q = small_values16(codes + i);
        check8(&s, 0, _mm512_castps512_ps256(w), _mm512_castps512_ps256(q));
        check8(&s, 1, _mm512_extractf32x8_ps(w, 1), _mm512_extractf32x8_ps(q, 1));
    }
    for (int part = 0; part < 2; part++) {
        _mm512_storeu_pd(sums->w2 + 8 * part, s.w2[part]);
        _mm512_storeu_pd(sums->d2 + 8 * part, s.d2[part]);
    }
    if (i < n)
        s.broken += fp8q_kernel_scalar.check[from]((const char *)src + size * i, codes + i, n - i,
                                                   scale, factor, sums);
    return s.broken;
}

FP8Q_INSTANCES(BF16, bf16)
FP8Q_INSTANCES(F16, f16)
FP8Q_INSTANCES(F32, f32)
FP8Q_ENCODE_ROWS(f16, 2)
FP8Q_ENCODE_ROWS(f32, 4)

/* Bound by memory in 32 bytes a step already; what has AVX-512 has AVX2 and FMA.  */
static uint32_t amax_rows_half(const void *src, size_t n_rows, size_t n, size_t step)
{
    return fp8q_kernel_avx2.amax_rows[FP8Q_FLOAT_BF16](src, n_rows, n, step);
}

static uint32_t amax_rows_f32(const void *src, size_t n_rows, size_t n, size_t step)
{
    return fp8q_kernel_avx2.amax_rows[FP8Q_FLOAT_F32](src, n_rows, n, step);
}

static void encode_rows_bf16(uint8_t *dst, const void *src, size_t n_rows, size_t n, size_t step,
                             float scale)
{
    fp8q_kernel_avx2.encode_rows[FP8Q_FLOAT_BF16](dst, src, n_rows, n, step, scale);
}

INLINE void add_lanes(double lanes[16], __m512 sums, double square)
{
    const __m512d factor = _mm512_set1_pd(square);
    __m512d low = _mm512_mul_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(sums)), factor);
    __m512d high = _mm512_mul_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(sums, 1)), factor);
    _mm512_storeu_pd(lanes, _mm512_add_pd(_mm512_loadu_pd(lanes), low));
    _mm512_storeu_pd(lanes + 8, _mm512_add_pd(_mm512_loadu_pd(lanes + 8), high));
}

INLINE void noise_run(enum fp8q_float from, const void *src, const uint8_t *codes, size_t n,
                      const struct noise_unit *u, struct fp8q_error_sums *sums)
{
    /* The values come 2^8 too small; a power of two changes no rounding.  */
    const __m512 to_unit = _mm512_set1_ps(u->to_unit), scale = _mm512_set1_ps(u->scale * 256.0f);
    __m512 w2 = _mm512_setzero_ps(), d2 = w2;
    if (n % 16) {
        noise_run_plain(&fp8q_kernel_scalar, from, src, codes, n, u, sums);
        return;
    }

    for (size_t i = 0; i < n; i += 16) {
        __m512 w = _mm512_mul_ps(load16(from, src, i), to_unit);
        __m512 d = _mm512_sub_ps(w, _mm512_mul_ps(small_values16(codes + i), scale));
        w2 = _mm512_add_ps(w2, _mm512_mul_ps(w, w));
        d2 = _mm512_add_ps(d2, _mm512_mul_ps(d, d));
    }
    add_lanes(sums->w2, w2, u->square);
    add_lanes(sums->d2, d2, u->square);
}

/* The compiler's own test asks the operating system too.  */
static bool usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

FP8Q_VARIANT(avx512)
