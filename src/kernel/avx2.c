/* SPDX-License-Identifier: Apache-2.0
 *
 * avx2.c - the row operations for x86-64 with AVX2 and F16C.  Results are those of scalar.c, which
 * also takes the elements after the last full vector.
 */
#include "kernel/kernel.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "kernel/variants.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Elements i .. i+7 as F32.  */
INLINE __m256 load8(enum fp8q_float from, const void *src, size_t i)
{
    if (from == FP8Q_FLOAT_F32)
        return _mm256_castsi256_ps(load_bytes((const char *)src + 4 * i));
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)((const char *)src + 2 * i));
    if (from == FP8Q_FLOAT_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

#define MIN_EXPONENT 121 /* of 2^-6, the smallest normal of E4M3, as F32 has it */

/* E4M3 codes of quotients, in 32 bits each, too large by CODE_OFFSET.  With e the exponent of |q|,
 * but 2^-6 at least, codes count steps of 2^(e-3) from a start of 8*(e+6):
 *
 *     code = 8*(e+6) + rne(|q| / 2^(e-3))         (8..16 steps if normal, 0..8 below)
 *
 * |q| + 2^(e+20) has exactly that step as its last bit: the addition rounds, and the difference of
 * the bit patterns is the count.  16 steps reach the first code of the next exponent by themselves.
 * The exponent field of 2^e, shifted down by 20, is 8*(e+127).  */
#define CODE_OFFSET (8 * MIN_EXPONENT)
INLINE __m256i encode8(__m256 q)
{
    const __m256 sign_bit = _mm256_set1_ps(-0.0f);
    __m256 magnitude = _mm256_min_ps(_mm256_andnot_ps(sign_bit, q), _mm256_set1_ps(448.0f));
    __m256i exponent = _mm256_max_epi32(
        _mm256_and_si256(_mm256_castps_si256(magnitude), _mm256_set1_epi32(0x7F800000)),
        _mm256_set1_epi32(MIN_EXPONENT << 23));
    __m256i magic = _mm256_add_epi32(exponent, _mm256_set1_epi32(20 << 23));
    __m256 sum = _mm256_add_ps(magnitude, _mm256_castsi256_ps(magic));
    __m256i steps = _mm256_sub_epi32(_mm256_castps_si256(sum), magic);
    return _mm256_add_epi32(steps, _mm256_srli_epi32(exponent, 20));
}

/* Packing interleaves the 128-bit halves; this undoes it for 32 bytes of four vectors.  */
INLINE __m256i in_order(__m256i packed)
{
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* 32 codes of four vectors, without signs and as packing leaves them.  */
INLINE __m256i pack_codes(__m256i a, __m256i b, __m256i c, __m256i d)
{
    const __m256i offset = _mm256_set1_epi16(CODE_OFFSET);
    __m256i ab = _mm256_sub_epi16(_mm256_packus_epi32(a, b), offset);
    __m256i cd = _mm256_sub_epi16(_mm256_packus_epi32(c, d), offset);
    return _mm256_packus_epi16(ab, cd);
}

/* 0x80 for each negative number, in the same order: packing with signed saturation keeps signs.  */
INLINE __m256i pack_signs(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256i ab = _mm256_packs_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b));
    __m256i cd = _mm256_packs_epi32(_mm256_castps_si256(c), _mm256_castps_si256(d));
    return _mm256_and_si256(_mm256_packs_epi16(ab, cd), _mm256_set1_epi8((char)0x80));
}

INLINE void encode32(enum fp8q_float from, uint8_t *dst, const void *src, size_t i, __m256 divisor)
{
    __m256 w0 = load8(from, src, i), w1 = load8(from, src, i + 8);
    __m256 w2 = load8(from, src, i + 16), w3 = load8(from, src, i + 24);
    __m256i a = encode8(_mm256_div_ps(w0, divisor)), b = encode8(_mm256_div_ps(w1, divisor));
    __m256i c = encode8(_mm256_div_ps(w2, divisor)), d = encode8(_mm256_div_ps(w3, divisor));
    __m256i codes = _mm256_or_si256(pack_codes(a, b, c, d), pack_signs(w0, w1, w2, w3));
    _mm256_storeu_si256((__m256i *)(void *)(dst + i), in_order(codes));
}

INLINE void encode(enum fp8q_float from, uint8_t *dst, const void *src, size_t n, float scale)
{
    const size_t size = from == FP8Q_FLOAT_F32 ? 4 : 2;
    const __m256 divisor = _mm256_set1_ps(scale);

    size_t i = 0;
    for (; n - i >= 32; i += 32)
        encode32(from, dst, src, i, divisor);

    if (i < n)
        fp8q_kernel_scalar.encode[from](dst + i, (const char *)src + size * i, n - i, scale);
}

/* ---- BF16 by table ----------------------------------------------------------------------------
 *
 * For one scale the code is a step function of the 15 bits of |w|.  From code 9 on, twice the weight
 * is the same step of the next eight codes, so eight thresholds say all: T[j], the first magnitude
 * whose code is 9 + j.  (Code 8 begins in the middle between two steps of equal width, code 16
 * between two of which one is twice the other.)  With u = |w| - T[0],
 *
 *     code = 9 + 8*(u >> 7) + number of T[j] - T[0], j > 0, that are <= (u & 127)
 *
 * Steps are at least 8 magnitudes wide, so each of 16 buckets of 8 positions holds at most one
 * threshold, and two look-ups of 16 bytes count them: those in the buckets before, and the one in
 * its own.  Weights below code 9 (of normal ones one in ten thousand, and zeros) go the other way,
 * 32 at a time.  The thresholds come from the same division and rounding as the codes.  */
struct bf16_steps {
    uint16_t first, most;  /* T[0]; u of the first magnitude with code 126 */
    uint8_t before[16];    /* 9 + thresholds in the buckets before */
    int8_t last_below[16]; /* position before the threshold in this bucket; 127: none */
};

/* False if the scale leaves the range in which doubling is exact.  */
static bool find_steps(float scale, struct bf16_steps *steps)
{
    if (!(scale >= 0x1p-64f && scale <= 0x1p64f))
        return false;

    /* The middle below code 9 + j; it rounds up itself if that code is even.  */
    const __m256 divisor = _mm256_set1_ps(scale);
    const __m256 middle =
        _mm256_mul_ps(_mm256_setr_ps(8.5f, 9.5f, 10.5f, 11.5f, 12.5f, 13.5f, 14.5f, 15.5f),
                      _mm256_set1_ps(0x1p-9f));
    const __m256 even = _mm256_castsi256_ps(_mm256_setr_epi32(0, -1, 0, -1, 0, -1, 0, -1));
    /* The magnitude at or right below middle * scale, then those that are still too small.  */
    __m256i bits = _mm256_srli_epi32(_mm256_castps_si256(_mm256_mul_ps(middle, divisor)), 16);
    __m256i found = bits;
    for (int k = 0; k < 2; k++) {
        __m256i wide = _mm256_slli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(k)), 16);
        __m256 q = _mm256_div_ps(_mm256_castsi256_ps(wide), divisor);
        __m256 reaches = _mm256_or_ps(_mm256_cmp_ps(q, middle, _CMP_GT_OQ),
                                      _mm256_and_ps(_mm256_cmp_ps(q, middle, _CMP_EQ_OQ), even));
        found = _mm256_add_epi32(
            found, _mm256_andnot_si256(_mm256_castps_si256(reaches), _mm256_set1_epi32(1)));
    }

    uint32_t t[8];
    _mm256_storeu_si256((__m256i *)(void *)t, found);
    memset(steps->last_below, 127, sizeof(steps->last_below));
    for (int j = 1; j < 8; j++) {
        uint32_t position = t[j] - t[0];
        if (position >= 128 || steps->last_below[position / 8] != 127)
            return false;
        steps->last_below[position / 8] = (int8_t)(position - 1);
    }
    uint8_t n = 9;
    for (int b = 0; b < 16; b++) {
        steps->before[b] = n;
        n = (uint8_t)(n + (steps->last_below[b] != 127));
    }
    steps->first = (uint16_t)t[0];
    steps->most = (uint16_t)(14 * 128 + t[5] - t[0]);
    return true;
}

/* Rare, so out of the way: the registers belong to the steps.  */
__attribute__((noinline)) static void encode32_bf16(uint8_t *dst, const char *src, float scale)
{
    encode32(FP8Q_FLOAT_BF16, dst, src, 0, _mm256_set1_ps(scale));
}

INLINE __m256i load16_bytes(const void *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}

/* 32 elements a step; returns how many were encoded.  */
INLINE size_t encode_by_steps(uint8_t *dst, const char *src, size_t n,
                              const struct bf16_steps *steps, float scale)
{
    const __m256i before = load16_bytes(steps->before), below = load16_bytes(steps->last_below);
    const __m256i first = _mm256_set1_epi16((short)steps->first);
    const __m256i most = _mm256_set1_epi16((short)steps->most);
    const __m256i magnitude = _mm256_set1_epi16(0x7FFF), position = _mm256_set1_epi16(127);

    size_t i = 0;
    for (; n - i >= 32; i += 32) {
        __m256i w0 = load_bytes(src + 2 * i), w1 = load_bytes(src + 2 * i + 32);
        __m256i m0 = _mm256_and_si256(w0, magnitude), m1 = _mm256_and_si256(w1, magnitude);
        __m256i small =
            _mm256_or_si256(_mm256_cmpgt_epi16(first, m0), _mm256_cmpgt_epi16(first, m1));
        if (!_mm256_testz_si256(small, small)) {
            encode32_bf16(dst + i, src + 2 * i, scale);
            continue;
        }

        __m256i u0 = _mm256_min_epu16(_mm256_sub_epi16(m0, first), most);
        __m256i u1 = _mm256_min_epu16(_mm256_sub_epi16(m1, first), most);
        __m256i at =
            _mm256_packus_epi16(_mm256_and_si256(u0, position), _mm256_and_si256(u1, position));
        __m256i eights = _mm256_and_si256(
            _mm256_packus_epi16(_mm256_srli_epi16(u0, 4), _mm256_srli_epi16(u1, 4)),
            _mm256_set1_epi8((char)0xF8));
        __m256i bucket = _mm256_and_si256(_mm256_srli_epi16(at, 3), _mm256_set1_epi8(15));
        __m256i reached = _mm256_cmpgt_epi8(at, _mm256_shuffle_epi8(below, bucket));
        __m256i code =
            _mm256_sub_epi8(_mm256_add_epi8(eights, _mm256_shuffle_epi8(before, bucket)), reached);
        __m256i sign = _mm256_and_si256(_mm256_packs_epi16(w0, w1), _mm256_set1_epi8((char)0x80));
        code = _mm256_permute4x64_epi64(_mm256_or_si256(code, sign), 0xD8);
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), code);
    }
    return i;
}

/* 16 codes as F16 bits of value * 2^-8: the exponent field keeps its number under a bias that is
 * larger by 8, and subnormals stay subnormals.
 *
 *     E4M3 in the upper byte  s eeee mmm 0000000 0
 *     after an arithmetic >>1 s s eeee mmm 0000000    the second s goes
 *
 * NaN codes would be the number 0x3F80; the XOR makes them the NaN 0x7E00.  */
INLINE __m256i codes_f16(const uint8_t *src)
{
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)src);
    __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    __m256i half = _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16((short)0xBFFF));
    const __m256i nan = _mm256_set1_epi16(0x3F80);
    __m256i is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(half, nan), nan);
    return _mm256_xor_si256(half, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x3F80 ^ 0x7E00)));
}

/* Exact: no value of E4M3 is subnormal in F32, even with 2^-8.  */
INLINE __m256 value8(__m128i half)
{
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
}

/* To BF16, nearest even, in the lower 16 bits.  A NaN of value8() has no low bits that could carry.
 */
INLINE __m256i bf16_8(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_srli_epi32(sum, 16);
}

INLINE void store16(enum fp8q_float to, void *dst, size_t i, __m256 lo, __m256 hi)
{
    if (to == FP8Q_FLOAT_F32) {
        float *out = (float *)dst;
        _mm256_storeu_ps(out + i, lo);
        _mm256_storeu_ps(out + i + 8, hi);
        return;
    }
    __m256i halves;
    if (to == FP8Q_FLOAT_BF16)
        halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(bf16_8(lo), bf16_8(hi)), 0xD8);
    else
        halves = _mm256_set_m128i(_mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT),
                                  _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT));
    _mm256_storeu_si256((__m256i *)(void *)((char *)dst + 2 * i), halves);
}

INLINE void decode(enum fp8q_float to, void *dst, const uint8_t *src, size_t n, float scale)
{
    const size_t size = to == FP8Q_FLOAT_F32 ? 4 : 2;
    const __m256 factor = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m256i half = codes_f16(src + i);
        __m256 lo = _mm256_mul_ps(value8(_mm256_castsi256_si128(half)), factor);
        __m256 hi = _mm256_mul_ps(value8(_mm256_extracti128_si256(half, 1)), factor);
        store16(to, dst, i, lo, hi);
    }
    if (i < n)
        fp8q_kernel_scalar.decode[to]((char *)dst + size * i, src + i, n - i, scale);
}

INLINE uint32_t largest_f32(__m256i v)
{
    __m128i max = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    max = _mm_max_epu32(max, _mm_shuffle_epi32(max, 0x4E));
    max = _mm_max_epu32(max, _mm_shuffle_epi32(max, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(max);
}

/* The maximum of both 16-bit halves of each element of 32.  */
INLINE uint32_t largest_half(__m256i v)
{
    return largest_f32(
        _mm256_max_epu16(_mm256_srli_epi32(v, 16), _mm256_and_si256(v, _mm256_set1_epi32(0xFFFF))));
}

/* Magnitudes as bits: 16 of 16 bits, or 8 of 32.  */
INLINE __m256i magnitudes_half(const void *p)
{
    return _mm256_and_si256(load_bytes(p), _mm256_set1_epi16(0x7FFF));
}

INLINE __m256i magnitudes_f32(const void *p)
{
    return _mm256_and_si256(load_bytes(p), _mm256_set1_epi32(0x7FFFFFFF));
}

INLINE __m256i larger_half(__m256i a, __m256i b)
{
    return _mm256_max_epu16(a, b);
}

INLINE __m256i larger_f32(__m256i a, __m256i b)
{
    return _mm256_max_epu32(a, b);
}

FP8Q_AMAX(BF16, half, 2, __m256i)
FP8Q_AMAX(F32, f32, 4, __m256i)

INLINE void widen(enum fp8q_float from, float *dst, const void *src, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(dst + i, load8(from, src, i));
    if (i < n)
        fp8q_kernel_scalar.to_f32[from](dst + i, (const char *)src + 2 * i, n - i);
}

FP8Q_WIDEN_INSTANCES

/* The sum of 32 bytes.  */
INLINE size_t sum_bytes(__m256i v)
{
    __m256i sums = _mm256_sad_epu8(v, _mm256_setzero_si256());
    __m128i pair = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return (size_t)_mm_cvtsi128_si64(_mm_add_epi64(pair, _mm_unpackhi_epi64(pair, pair)));
}

static size_t scan_codes(const uint8_t *src, size_t n, unsigned *max_out)
{
    const __m256i nan = _mm256_set1_epi8(0x7F);
    __m256i max = _mm256_setzero_si256();
    size_t i = 0, nans = 0;
    while (n - i >= 32) {
        /* A byte counts to 255.  */
        size_t vectors = (n - i) / 32 < 255 ? (n - i) / 32 : 255;
        __m256i count = _mm256_setzero_si256();
        for (size_t v = 0; v < vectors; v++, i += 32) {
            __m256i codes = _mm256_and_si256(load_bytes(src + i), nan);
            max = _mm256_max_epu8(max, codes);
            count = _mm256_sub_epi8(count, _mm256_cmpeq_epi8(codes, nan));
        }
        nans += sum_bytes(count);
    }
    unsigned rest = 0;
    nans += fp8q_kernel_scalar.scan_codes(src + i, n - i, &rest);
    __m256i pairs = _mm256_max_epu8(max, _mm256_srli_epi16(max, 8));
    unsigned vector_max = largest_half(_mm256_and_si256(pairs, _mm256_set1_epi16(0xFF)));
    *max_out = vector_max > rest ? vector_max : rest;
    return nans;
}

struct check_state {
    __m256d scale, relative, absolute;
    __m256d w2[4], d2[4];
    __m256i broken;
};

/* Four elements of lanes 4*part and up; scalar.c says why F64 is exact enough.  */
INLINE void check4(struct check_state *s, int part, __m128 w4, __m128 q4)
{
    const __m256d sign_bit = _mm256_set1_pd(-0.0);
    __m256d w = _mm256_cvtps_pd(w4);
    __m256d d = _mm256_sub_pd(w, _mm256_mul_pd(_mm256_cvtps_pd(q4), s->scale));
    __m256d limit =
        _mm256_max_pd(_mm256_mul_pd(_mm256_andnot_pd(sign_bit, w), s->relative), s->absolute);
    __m256d over = _mm256_cmp_pd(_mm256_andnot_pd(sign_bit, d), limit, _CMP_NLE_UQ);
    s->w2[part] = _mm256_add_pd(s->w2[part], _mm256_mul_pd(w, w));
    s->d2[part] = _mm256_add_pd(s->d2[part], _mm256_mul_pd(d, d));
    s->broken = _mm256_sub_epi64(s->broken, _mm256_castpd_si256(over));
}

INLINE void check8(struct check_state *s, int part, __m256 w, __m256 q)
{
    check4(s, part, _mm256_castps256_ps128(w), _mm256_castps256_ps128(q));
    check4(s, part + 1, _mm256_extractf128_ps(w, 1), _mm256_extractf128_ps(q, 1));
}

INLINE struct check_state check_begin(float scale, float factor, const struct fp8q_error_sums *sums)
{
    struct check_bound bound = check_bound(scale, factor);
    struct check_state s = {
        .scale =
            _mm256_set1_pd((double)scale * 256.0), /* for F16 values that are too small by 2^8 */
        .relative = _mm256_set1_pd(bound.relative),
        .absolute = _mm256_set1_pd(bound.absolute),
        .broken = _mm256_setzero_si256(),
    };
    for (int part = 0; part < 4; part++) {
        s.w2[part] = _mm256_loadu_pd(sums->w2 + 4 * part);
        s.d2[part] = _mm256_loadu_pd(sums->d2 + 4 * part);
    }
    return s;
}

INLINE size_t check_end(const struct check_state *s, struct fp8q_error_sums *sums)
{
    for (int part = 0; part < 4; part++) {
        _mm256_storeu_pd(sums->w2 + 4 * part, s->w2[part]);
        _mm256_storeu_pd(sums->d2 + 4 * part, s->d2[part]);
    }
    __m128i pair =
        _mm_add_epi64(_mm256_castsi256_si128(s->broken), _mm256_extracti128_si256(s->broken, 1));
    return (size_t)_mm_cvtsi128_si64(_mm_add_epi64(pair, _mm_unpackhi_epi64(pair, pair)));
}

INLINE size_t check(enum fp8q_float from, const void *src, const uint8_t *codes, size_t n,
                    float scale, float factor, struct fp8q_error_sums *sums)
{
    const size_t size = from == FP8Q_FLOAT_F32 ? 4 : 2;
    struct check_state s = check_begin(scale, factor, sums);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        __m256i half = codes_f16(codes + i);
        check8(&s, 0, load8(from, src, i), _mm256_cvtph_ps(_mm256_castsi256_si128(half)));
        check8(&s, 2, load8(from, src, i + 8), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)));
    }
    size_t broken = check_end(&s, sums);
    if (i < n)
        broken += fp8q_kernel_scalar.check[from]((const char *)src + size * i, codes + i, n - i,
                                                 scale, factor, sums);
    return broken;
}

FP8Q_INSTANCES(BF16, bf16)
FP8Q_INSTANCES(F16, f16)
FP8Q_INSTANCES(F32, f32)

/* ---- noise ------------------------------------------------------------------------------------- */

INLINE void add_lanes(double lanes[16], const __m256 sums[2], double square)
{
    const __m256d factor = _mm256_set1_pd(square);
    for (int j = 0; j < 4; j++) {
        __m128 four =
            j % 2 ? _mm256_extractf128_ps(sums[j / 2], 1) : _mm256_castps256_ps128(sums[j / 2]);
        double *at = lanes + 4 * j;
        _mm256_storeu_pd(
            at, _mm256_add_pd(_mm256_loadu_pd(at), _mm256_mul_pd(_mm256_cvtps_pd(four), factor)));
    }
}

INLINE void noise_run(enum fp8q_float from, const void *src, const uint8_t *codes, size_t n,
                      const struct noise_unit *u, struct fp8q_error_sums *sums)
{
    const __m256 to_unit = _mm256_set1_ps(u->to_unit), scale = _mm256_set1_ps(u->scale);
    __m256 w2[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, d2[2] = {w2[0], w2[0]};
    if (n % 16) {
        noise_run_plain(&fp8q_kernel_scalar, from, src, codes, n, u, sums);
        return;
    }

    for (size_t i = 0; i < n; i += 16) {
        __m256i half = codes_f16(codes + i);
        __m256 value[2] = {value8(_mm256_castsi256_si128(half)),
                           value8(_mm256_extracti128_si256(half, 1))};
        for (int j = 0; j < 2; j++) {
            __m256 w = _mm256_mul_ps(load8(from, src, i + 8 * (size_t)j), to_unit);
            __m256 d = _mm256_sub_ps(w, _mm256_mul_ps(value[j], scale));
            w2[j] = _mm256_add_ps(w2[j], _mm256_mul_ps(w, w));
            d2[j] = _mm256_add_ps(d2[j], _mm256_mul_ps(d, d));
        }
    }
    add_lanes(sums->w2, w2, u->square);
    add_lanes(sums->d2, d2, u->square);
}
FP8Q_ENCODE_ROWS(f16, 2)
FP8Q_ENCODE_ROWS(f32, 4)

static FP8Q_NOINLINE void encode_rows_here(uint8_t *dst, const void *src, size_t n_rows, size_t n,
                                           size_t step, float scale)
{
    enum { WORTH_IT = 1024 }; /* elements: finding the steps takes as long as 300 of them */
    struct bf16_steps steps;
    bool by_steps = n_rows * n >= WORTH_IT && find_steps(scale, &steps);

    for (size_t r = 0; r < n_rows; r++) {
        const char *row = (const char *)src + 2 * r * step;
        uint8_t *codes = dst + r * step;
        size_t done = by_steps ? encode_by_steps(codes, row, n, &steps, scale) : 0;
        if (done < n)
            encode_bf16(codes + done, row + 2 * done, n - done, scale);
    }
}

static void encode_rows_bf16(uint8_t *dst, const void *src, size_t n_rows, size_t n, size_t step,
                             float scale)
{
    uint64_t mode = fp8q_float_env_enter();

    encode_rows_here(dst, src, n_rows, n, step, scale);
    fp8q_float_env_leave(mode);
}

/* ---- amax of a block ---------------------------------------------------------------------------
 */

/* A row of 128 fits the registers that hold the maxima, so that they are folded once a block.  */
INLINE uint32_t amax_block(bool half, const char *src, size_t n_rows, size_t step)
{
    enum { VECTORS = 4 };
    const size_t row_bytes = half ? 256 : 512;
    const __m256i mask = half ? _mm256_set1_epi16(0x7FFF) : _mm256_set1_epi32(0x7FFFFFFF);
    __m256i max[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        max[v] = _mm256_setzero_si256();

    for (size_t r = 0; r < n_rows; r++, src += step)
        for (size_t i = 0; i < row_bytes; i += 32 * VECTORS)
            for (int v = 0; v < VECTORS; v++) {
                __m256i x = _mm256_and_si256(load_bytes(src + i + 32 * (size_t)v), mask);
                max[v] = half ? _mm256_max_epu16(max[v], x) : _mm256_max_epu32(max[v], x);
            }

    for (int v = 1; v < VECTORS; v++)
        max[0] = half ? _mm256_max_epu16(max[0], max[v]) : _mm256_max_epu32(max[0], max[v]);
    return half ? largest_half(max[0]) : largest_f32(max[0]);
}

FP8Q_AMAX_ROWS(any_half, amax_half, 2)
FP8Q_AMAX_ROWS(any_f32, amax_f32, 4)

static uint32_t amax_rows_half(const void *src, size_t n_rows, size_t n, size_t step)
{
    return n == 128 ? amax_block(true, src, n_rows, 2 * step)
                    : amax_rows_any_half(src, n_rows, n, step);
}

static uint32_t amax_rows_f32(const void *src, size_t n_rows, size_t n, size_t step)
{
    return n == 128 ? amax_block(false, src, n_rows, 4 * step)
                    : amax_rows_any_f32(src, n_rows, n, step);
}

/* The compiler's own test asks the operating system too; it does not know F16C by name everywhere.
 */
static bool usable(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

FP8Q_VARIANT(avx2)
