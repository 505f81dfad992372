/* SPDX-License-Identifier: Apache-2.0
 *
 * scalar.c - the row operations in plain C.  This file defines the result bits: the other variants
 * reproduce it, and call it for the few elements that do not fill a vector.  Conversions between
 * formats are integer arithmetic on bit patterns; it leaves speed to the other files.
 *
 *     F32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm   bias 127
 *     BF16  s eeeeeeee mmmmmmm                   bias 127, the upper half of an F32
 *     F16   s eeeee mmmmmmmmmm                   bias 15
 *     E4M3  s eeee mmm                           bias 7, no infinities, s.1111.111 is NaN
 */
#include "kernel/kernel.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernel/variants.h"

#if FLT_EVAL_METHOD != 0
#error "float arithmetic must round to float; for 32-bit x86: -msse2 -mfpmath=sse"
#endif
#ifdef __FAST_MATH__
#error "-ffast-math changes the result bits"
#endif

/* Eight codes of one exponent, (8 + m) * step; the first row holds the subnormals, m * step.  */
#define SUBNORMALS(step)                                                                           \
    0 * (step), 1 * (step), 2 * (step), 3 * (step), 4 * (step), 5 * (step), 6 * (step), 7 * (step)
#define SEVEN(step)                                                                                \
    8 * (step), 9 * (step), 10 * (step), 11 * (step), 12 * (step), 13 * (step), 14 * (step)
#define EIGHT(step) SEVEN(step), 15 * (step)
#define HALF_TABLE(sign)                                                                           \
    SUBNORMALS(sign 0x1p-9f), EIGHT(sign 0x1p-9f), EIGHT(sign 0x1p-8f), EIGHT(sign 0x1p-7f),       \
        EIGHT(sign 0x1p-6f), EIGHT(sign 0x1p-5f), EIGHT(sign 0x1p-4f), EIGHT(sign 0x1p-3f),        \
        EIGHT(sign 0x1p-2f), EIGHT(sign 0x1p-1f), EIGHT(sign 0x1p0f), EIGHT(sign 0x1p1f),          \
        EIGHT(sign 0x1p2f), EIGHT(sign 0x1p3f), EIGHT(sign 0x1p4f), SEVEN(sign 0x1p5f), sign NAN

const float fp8q_e4m3_value[256] = {HALF_TABLE(+), HALF_TABLE(-)};

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* bits / 2^shift to nearest even; shift is 1..31 and the sum does not wrap.  */
static uint32_t shift_nearest_even(uint32_t bits, unsigned shift)
{
    uint32_t half = (uint32_t)1 << (shift - 1);
    return (bits + half - 1 + (bits >> shift & 1)) >> shift;
}

/* From 2^-6 up, code and F32 bits differ by the bias and by 20 bits of mantissa, and a carry out of
 * the mantissa is the next exponent, as it must be.  Below, the code counts steps of 2^-9: with
 * x = m * 2^(e - 150), x / 2^-9 = m * 2^-(141 - e).  From a shift of 25 on that is below 1/2.  */
uint8_t fp8q_e4m3_from_f32(float x)
{
    uint32_t bits = bits_of(x), magnitude = bits & 0x7FFFFFFF, exponent = magnitude >> 23;
    uint32_t code = 0;

    if (magnitude > 0x7F800000)
        code = 0x7F;
    else if (exponent >= 121) {
        code = shift_nearest_even(magnitude, 20) - ((127 - 7) << 3);
        /* What is too large, infinity too, becomes 448: the next pattern is NaN.  */
        code = code > 0x7E ? 0x7E : code;
    } else if (exponent >= 117)
        code = shift_nearest_even((magnitude & 0x7FFFFF) | 0x800000, 141 - exponent);

    return (uint8_t)(bits >> 31 << 7 | code);
}

float fp8q_bf16_value(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

/* A subnormal is the integer m times 2^-24, exact in F32.  NaN becomes quiet, as instructions do.
 */
float fp8q_f16_value(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, mantissa = bits & 0x3FF;
    uint32_t exponent = bits >> 10 & 0x1F;

    if (exponent == 0)
        return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
    if (exponent == 31)
        return float_of(sign | 0x7F800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    return float_of(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

uint16_t fp8q_bf16_from_f32(float x)
{
    uint32_t bits = bits_of(x);

    /* Rounding could make a NaN infinite or, by a carry, zero: it is cut and made quiet instead.  */
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_nearest_even(bits, 16);
}

/* As for E4M3: from 2^-14 up 13 bits of mantissa go; below, steps of 2^-24, a shift of 126 - e.
 * A carry out of the largest exponent is the pattern of infinity.  */
uint16_t fp8q_f16_from_f32(float x)
{
    uint32_t bits = bits_of(x), magnitude = bits & 0x7FFFFFFF, exponent = magnitude >> 23;
    uint32_t half = 0;

    if (magnitude > 0x7F800000)
        half = 0x7E00 | (magnitude >> 13 & 0x3FF);
    else if (exponent >= 127 + 16)
        half = 0x7C00;
    else if (exponent >= 113)
        half = shift_nearest_even(magnitude, 13) - ((127 - 15) << 10);
    else if (exponent >= 102)
        half = shift_nearest_even((magnitude & 0x7FFFFF) | 0x800000, 126 - exponent);

    return (uint16_t)(bits >> 31 << 15 | half);
}

/* Element i of a row that need not be aligned.  */
static inline uint16_t half_at(const void *src, size_t i)
{
    uint16_t bits;
    memcpy(&bits, (const char *)src + 2 * i, sizeof(bits));
    return bits;
}

static inline float value_at(enum fp8q_float from, const void *src, size_t i)
{
    float x;
    if (from == FP8Q_FLOAT_BF16)
        return fp8q_bf16_value(half_at(src, i));
    if (from == FP8Q_FLOAT_F16)
        return fp8q_f16_value(half_at(src, i));
    memcpy(&x, (const char *)src + 4 * i, sizeof(x));
    return x;
}

static inline void put_value(enum fp8q_float to, void *dst, size_t i, float x)
{
    if (to == FP8Q_FLOAT_F32) {
        memcpy((char *)dst + 4 * i, &x, sizeof(x));
        return;
    }

    uint16_t bits = to == FP8Q_FLOAT_BF16 ? fp8q_bf16_from_f32(x) : fp8q_f16_from_f32(x);
    memcpy((char *)dst + 2 * i, &bits, sizeof(bits));
}

static uint32_t amax_half(const void *src, size_t n)
{
    /* Without the sign, patterns order as magnitudes do, with infinity and NaN above all; so
     * callers find them.  */
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = half_at(src, i) & 0x7FFF;
        max = bits > max ? bits : max;
    }
    return max;
}

static uint32_t amax_f32(const void *src, size_t n)
{
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)src + 4 * i, sizeof(bits));
        bits &= 0x7FFFFFFF;
        max = bits > max ? bits : max;
    }
    return max;
}

static inline void encode(enum fp8q_float from, uint8_t *dst, const void *src, size_t n,
                          float scale)
{
    /* Divided, since a product with 1 / scale would be rounded twice.  */
    for (size_t i = 0; i < n; i++)
        dst[i] = fp8q_e4m3_from_f32(value_at(from, src, i) / scale);
}

static inline void decode(enum fp8q_float to, void *dst, const uint8_t *src, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        put_value(to, dst, i, fp8q_e4m3_value[src[i]] * scale);
}

/* Moves bits, not values, so that a signalling NaN of BF16 or F32 stays what it is.  */
static void bf16_to_f32(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)half_at(src, i) << 16;
        memcpy((char *)dst + 4 * i, &bits, sizeof(bits));
    }
}

static void f16_to_f32(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_value(FP8Q_FLOAT_F32, dst, i, fp8q_f16_value(half_at(src, i)));
}

static void f32_to_f32(float *dst, const void *src, size_t n)
{
    /* The pointers of an empty row may be NULL, which memcpy() must not get.  */
    if (n)
        memcpy(dst, src, 4 * n);
}

static size_t scan_codes(const uint8_t *src, size_t n, unsigned *max_out)
{
    size_t nans = 0;
    unsigned max = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned code = src[i] & 0x7F;
        nans += code == 0x7F;
        max = code > max ? code : max;
    }

    *max_out = max;
    return nans;
}

/* F64 decides as exact arithmetic does.  code*scale has 4 + 24 bits, either side of the maximum
 * 24 + 21: exact.  The difference is exact too unless one term is below 2^-25 of the other, and
 * then it lies far from the bound on either side.  */
static inline size_t check(enum fp8q_float from, const void *src, const uint8_t *codes, size_t n,
                           float scale, float factor, struct fp8q_error_sums *sums)
{
    struct check_bound bound = check_bound(scale, factor);
    size_t broken = 0;

    for (size_t i = 0; i < n; i++) {
        double w = (double)value_at(from, src, i);
        double d = w - (double)fp8q_e4m3_value[codes[i]] * (double)scale;
        double relative = fabs(w) * bound.relative;
        double limit = relative > bound.absolute ? relative : bound.absolute;

        /* Sixteen lanes in every variant: the order of additions is part of the result.  */
        sums->w2[i % 16] += w * w;
        sums->d2[i % 16] += d * d;
        /* Written so that a NaN is broken.  */
        broken += !(fabs(d) <= limit);
    }
    return broken;
}

FP8Q_INSTANCES(BF16, bf16)
FP8Q_INSTANCES(F16, f16)
FP8Q_INSTANCES(F32, f32)
FP8Q_PLAIN_ROWS

static void noise_run(enum fp8q_float from, const void *src, const uint8_t *codes, size_t n,
                      const struct noise_unit *u, struct fp8q_error_sums *sums)
{
    noise_run_plain(&fp8q_kernel_scalar, from, src, codes, n, u, sums);
}

static bool usable(void)
{
    return true;
}

FP8Q_VARIANT(scalar)
