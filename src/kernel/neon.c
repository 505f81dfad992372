/* SPDX-License-Identifier: Apache-2.0
 *
 * neon.c - the row operations for 64-bit ARM, whose base instruction set has all that is needed.
 * Results are those of scalar.c, which also takes the elements after the last full vector.
 */
#include "kernel/kernel.h"

#include <arm_neon.h>

#include "kernel/variants.h"

#define INLINE static inline __attribute__((always_inline))

/* Loads and stores of bytes, as a row need not be aligned to its elements.  */
INLINE uint8x16_t load_bytes(const void *src, size_t offset)
{
    return vld1q_u8((const uint8_t *)src + offset);
}

/* Four F16 patterns as F32.  */
INLINE float32x4_t widen_f16(uint16x4_t half)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(half));
}

struct four {
    float32x4_t part[4];
};

/* Elements i .. i+15 as F32.  */
INLINE struct four load16(enum fp8q_float from, const void *src, size_t i)
{
    struct four x;
    if (from == FP8Q_FLOAT_F32) {
        for (size_t j = 0; j < 4; j++)
            x.part[j] = vreinterpretq_f32_u8(load_bytes(src, 4 * i + 16 * j));
        return x;
    }
    for (size_t j = 0; j < 2; j++) {
        uint16x8_t half = vreinterpretq_u16_u8(load_bytes(src, 2 * i + 16 * j));
        uint16x4_t lo = vget_low_u16(half), hi = vget_high_u16(half);
        bool bf16 = from == FP8Q_FLOAT_BF16;
        x.part[2 * j] = bf16 ? vreinterpretq_f32_u32(vshll_n_u16(lo, 16)) : widen_f16(lo);
        x.part[2 * j + 1] = bf16 ? vreinterpretq_f32_u32(vshll_n_u16(hi, 16)) : widen_f16(hi);
    }
    return x;
}

/* E4M3 codes of quotients, in the low byte of each result; avx512.c derives it.  */
#define MIN_EXPONENT 121
#define MAGIC (20 << 23 | 152)
INLINE uint32x4_t encode4(float32x4_t q)
{
    float32x4_t magnitude = vminq_f32(vabsq_f32(q), vdupq_n_f32(448.0f));
    uint32x4_t exponent =
        vmaxq_u32(vandq_u32(vreinterpretq_u32_f32(magnitude), vdupq_n_u32(0x7F800000)),
                  vdupq_n_u32(MIN_EXPONENT << 23));
    uint32x4_t magic = vaddq_u32(exponent, vdupq_n_u32(MAGIC));
    uint32x4_t sum = vreinterpretq_u32_f32(vaddq_f32(magnitude, vreinterpretq_f32_u32(magic)));
    uint32x4_t code = vsraq_n_u32(sum, sum, 20);
    uint32x4_t sign = vshrq_n_u32(vreinterpretq_u32_f32(q), 24);
    return vbslq_u32(vdupq_n_u32(0x80), sign, code);
}

INLINE uint16x8_t narrow(uint32x4_t lo, uint32x4_t hi)
{
    return vcombine_u16(vmovn_u32(lo), vmovn_u32(hi));
}

INLINE void encode(enum fp8q_float from, uint8_t *dst, const void *src, size_t n, float scale)
{
    const size_t size = from == FP8Q_FLOAT_F32 ? 4 : 2;
    const float32x4_t divisor = vdupq_n_f32(scale);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        struct four x = load16(from, src, i);
        uint32x4_t code[4];
        for (int j = 0; j < 4; j++)
            code[j] = encode4(vdivq_f32(x.part[j], divisor));
        uint16x8_t lo = narrow(code[0], code[1]), hi = narrow(code[2], code[3]);
        vst1q_u8(dst + i, vcombine_u8(vmovn_u16(lo), vmovn_u16(hi)));
    }
    if (i < n)
        fp8q_kernel_scalar.encode[from](dst + i, (const char *)src + size * i, n - i, scale);
}

/* 8 codes as F16 patterns of value * 2^-8; avx2.c shows the bits.  */
INLINE uint16x8_t codes_f16(uint8x8_t codes)
{
    int16x8_t high = vreinterpretq_s16_u16(vshll_n_u8(codes, 8));
    uint16x8_t half = vandq_u16(vreinterpretq_u16_s16(vshrq_n_s16(high, 1)), vdupq_n_u16(0xBFFF));
    const uint16x8_t nan = vdupq_n_u16(0x3F80);
    uint16x8_t is_nan = vceqq_u16(vandq_u16(half, nan), nan);
    return veorq_u16(half, vandq_u16(is_nan, vdupq_n_u16(0x3F80 ^ 0x7E00)));
}

/* 16 values of codes, too small by 2^8.  */
INLINE struct four small_values16(const uint8_t *src)
{
    uint8x16_t codes = vld1q_u8(src);
    uint16x8_t lo = codes_f16(vget_low_u8(codes)), hi = codes_f16(vget_high_u8(codes));
    return (struct four){{widen_f16(vget_low_u16(lo)), widen_f16(vget_high_u16(lo)),
                          widen_f16(vget_low_u16(hi)), widen_f16(vget_high_u16(hi))}};
}

/* To BF16, nearest even; the NaN of a code has no low bits that could carry.  */
INLINE uint16x4_t narrow_bf16(float32x4_t x)
{
    uint32x4_t bits = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vshrn_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd), 16);
}

INLINE uint16x4_t narrow_half(enum fp8q_float to, float32x4_t x)
{
    return to == FP8Q_FLOAT_BF16 ? narrow_bf16(x) : vreinterpret_u16_f16(vcvt_f16_f32(x));
}

INLINE void store16(enum fp8q_float to, void *dst, size_t i, const struct four *x)
{
    if (to == FP8Q_FLOAT_F32) {
        for (size_t j = 0; j < 4; j++)
            vst1q_u8((uint8_t *)dst + 4 * i + 16 * j, vreinterpretq_u8_f32(x->part[j]));
        return;
    }
    for (size_t j = 0; j < 2; j++) {
        uint16x4_t lo = narrow_half(to, x->part[2 * j]), hi = narrow_half(to, x->part[2 * j + 1]);
        vst1q_u8((uint8_t *)dst + 2 * i + 16 * j, vreinterpretq_u8_u16(vcombine_u16(lo, hi)));
    }
}

INLINE void decode(enum fp8q_float to, void *dst, const uint8_t *src, size_t n, float scale)
{
    const size_t size = to == FP8Q_FLOAT_F32 ? 4 : 2;
    const float32x4_t factor = vdupq_n_f32(scale), bias = vdupq_n_f32(256.0f);
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        struct four x = small_values16(src + i);
        for (int j = 0; j < 4; j++)
            x.part[j] = vmulq_f32(vmulq_f32(x.part[j], bias), factor);
        store16(to, dst, i, &x);
    }
    if (i < n)
        fp8q_kernel_scalar.decode[to]((char *)dst + size * i, src + i, n - i, scale);
}

/* Magnitudes as bits.  */
INLINE uint16x8_t magnitudes_half(const char *p)
{
    return vandq_u16(vreinterpretq_u16_u8(load_bytes(p, 0)), vdupq_n_u16(0x7FFF));
}

INLINE uint32x4_t magnitudes_f32(const char *p)
{
    return vandq_u32(vreinterpretq_u32_u8(load_bytes(p, 0)), vdupq_n_u32(0x7FFFFFFF));
}

#define larger_half vmaxq_u16
#define larger_f32 vmaxq_u32
#define largest_half vmaxvq_u16
#define largest_f32 vmaxvq_u32
FP8Q_AMAX(BF16, half, 2, uint16x8_t)
FP8Q_AMAX(F32, f32, 4, uint32x4_t)

INLINE void widen(enum fp8q_float from, float *dst, const void *src, size_t n)
{
    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        struct four x = load16(from, src, i);
        store16(FP8Q_FLOAT_F32, dst, i, &x);
    }
    if (i < n)
        fp8q_kernel_scalar.to_f32[from](dst + i, (const char *)src + 2 * i, n - i);
}

FP8Q_WIDEN_INSTANCES

static size_t scan_codes(const uint8_t *src, size_t n, unsigned *max_out)
{
    const uint8x16_t nan = vdupq_n_u8(0x7F), one = vdupq_n_u8(1);
    uint8x16_t max = vdupq_n_u8(0);
    size_t i = 0, nans = 0;
    for (; n - i >= 16; i += 16) {
        uint8x16_t codes = vandq_u8(vld1q_u8(src + i), nan);
        max = vmaxq_u8(max, codes);
        nans += vaddvq_u8(vandq_u8(vceqq_u8(codes, nan), one));
    }
    unsigned rest = 0, vector_max = vmaxvq_u8(max);
    nans += fp8q_kernel_scalar.scan_codes(src + i, n - i, &rest);
    *max_out = vector_max > rest ? vector_max : rest;
    return nans;
}

struct check_state {
    float64x2_t scale, relative, absolute;
    float64x2_t w2[8], d2[8];
    uint64x2_t broken;
};

/* Two elements of lanes 2*part and 2*part + 1; scalar.c says why F64 is exact enough.  */
INLINE void check2(struct check_state *s, int part, float64x2_t w, float64x2_t q)
{
    float64x2_t d = vsubq_f64(w, vmulq_f64(q, s->scale));
    float64x2_t limit = vmaxq_f64(vmulq_f64(vabsq_f64(w), s->relative), s->absolute);
    uint64x2_t holds = vcleq_f64(vabsq_f64(d), limit); /* all ones, -1, where it does */
    s->w2[part] = vaddq_f64(s->w2[part], vmulq_f64(w, w));
    s->d2[part] = vaddq_f64(s->d2[part], vmulq_f64(d, d));
    s->broken = vaddq_u64(s->broken, vaddq_u64(holds, vdupq_n_u64(1)));
}

INLINE struct check_state check_begin(float scale, float factor, const struct fp8q_error_sums *sums)
{
    struct check_bound bound = check_bound(scale, factor);
    struct check_state s = {
        .scale = vdupq_n_f64((double)scale * 256.0), /* for values that are too small by 2^8 */
        .relative = vdupq_n_f64(bound.relative),
        .absolute = vdupq_n_f64(bound.absolute),
        .broken = vdupq_n_u64(0),
    };
    for (int part = 0; part < 8; part++) {
        s.w2[part] = vld1q_f64(sums->w2 + 2 * part);
        s.d2[part] = vld1q_f64(sums->d2 + 2 * part);
    }
    return s;
}

INLINE size_t check(enum fp8q_float from, const void *src, const uint8_t *codes, size_t n,
                    float scale, float factor, struct fp8q_error_sums *sums)
{
    const size_t size = from == FP8Q_FLOAT_F32 ? 4 : 2;
    struct check_state s = check_begin(scale, factor, sums);

    size_t i = 0;
    for (; n - i >= 16; i += 16) {
        struct four w = load16(from, src, i), q = small_values16(codes + i);
        for (int j = 0; j < 4; j++) {
            check2(&s, 2 * j, vcvt_f64_f32(vget_low_f32(w.part[j])),
                   vcvt_f64_f32(vget_low_f32(q.part[j])));
            check2(&s, 2 * j + 1, vcvt_high_f64_f32(w.part[j]), vcvt_high_f64_f32(q.part[j]));
        }
    }

    /* Back to the lanes, which the scalar rest below goes on with.  */
    for (int part = 0; part < 8; part++) {
        vst1q_f64(sums->w2 + 2 * part, s.w2[part]);
        vst1q_f64(sums->d2 + 2 * part, s.d2[part]);
    }

    size_t broken = (size_t)vaddvq_u64(s.broken);
    if (i < n)
        broken += fp8q_kernel_scalar.check[from]((const char *)src + size * i, codes + i, n - i,
                                                 scale, factor, sums);

    return broken;
}

FP8Q_INSTANCES(BF16, bf16)
FP8Q_INSTANCES(F16, f16)
FP8Q_INSTANCES(F32, f32)
FP8Q_PLAIN_ROWS

static void noise_run(enum fp8q_float from, const void *src, const uint8_t *codes, size_t n,
                      const struct noise_unit *u, struct fp8q_error_sums *sums)
{
    noise_run_plain(&fp8q_kernel_neon, from, src, codes, n, u, sums);
}

static bool usable(void)
{
    return true;
}

FP8Q_VARIANT(neon)
