/* SPDX-License-Identifier: Apache-2.0
 *
 * variants.h - what the kernel variants share among themselves.  Users of kernels need kernel.h
 * only.
 */
#ifndef FP8Q_KERNEL_VARIANTS_H
#define FP8Q_KERNEL_VARIANTS_H

#include <string.h>

#include "base/float_env.h"
#include "kernel/e8m0.h"
#include "kernel/kernel.h"

extern const struct fp8q_kernel fp8q_kernel_scalar, fp8q_kernel_avx2, fp8q_kernel_avx512,
    fp8q_kernel_neon;

/* Both terms of the bound of check(), each exact in F64.  */
struct check_bound {
    double relative, absolute;
};

static inline struct check_bound check_bound(float scale, float factor)
{
    double slack = (double)factor * (1 + 0x1p-20);
    return (struct check_bound){slack / 16, slack * 0x1p-10 * (double)scale};
}

#define FP8Q_NOINLINE __attribute__((noinline))

/* A variant writes encode(), decode() and check() once, as inline functions whose first argument is
 * the format; these are the functions of one format.  They compute in the default floating-point
 * mode, whatever that of the caller.  */
#define FP8Q_INSTANCES(FORMAT, format)                                                             \
    static FP8Q_NOINLINE void encode_##format##_here(uint8_t *dst, const void *src, size_t n,      \
                                                     float scale)                                  \
    {                                                                                              \
        encode(FP8Q_FLOAT_##FORMAT, dst, src, n, scale);                                           \
    }                                                                                              \
    static void encode_##format(uint8_t *dst, const void *src, size_t n, float scale)              \
    {                                                                                              \
        uint64_t mode = fp8q_float_env_enter();                                                    \
        encode_##format##_here(dst, src, n, scale);                                                \
        fp8q_float_env_leave(mode);                                                                \
    }                                                                                              \
    static FP8Q_NOINLINE void decode_##format##_here(void *dst, const uint8_t *src, size_t n,      \
                                                     float scale)                                  \
    {                                                                                              \
        decode(FP8Q_FLOAT_##FORMAT, dst, src, n, scale);                                           \
    }                                                                                              \
    static void decode_##format(void *dst, const uint8_t *src, size_t n, float scale)              \
    {                                                                                              \
        uint64_t mode = fp8q_float_env_enter();                                                    \
        decode_##format##_here(dst, src, n, scale);                                                \
        fp8q_float_env_leave(mode);                                                                \
    }                                                                                              \
    static FP8Q_NOINLINE size_t check_##format##_here(const void *src, const uint8_t *codes,       \
                                                      size_t n, float scale, float factor,         \
                                                      struct fp8q_error_sums *sums)                \
    {                                                                                              \
        return check(FP8Q_FLOAT_##FORMAT, src, codes, n, scale, factor, sums);                     \
    }                                                                                              \
    static size_t check_##format(const void *src, const uint8_t *codes, size_t n, float scale,     \
                                 float factor, struct fp8q_error_sums *sums)                       \
    {                                                                                              \
        uint64_t mode = fp8q_float_env_enter();                                                    \
        size_t broken = check_##format##_here(src, codes, n, scale, factor, sums);                 \
        fp8q_float_env_leave(mode);                                                                \
        return broken;                                                                             \
    }

/* F32 bits of an amax in another format.  */
static inline uint32_t amax_as_f32(enum fp8q_float from, uint32_t bits)
{
    if (from == FP8Q_FLOAT_F32)
        return bits;
    if (from == FP8Q_FLOAT_BF16)
        return bits << 16;

    float value = fp8q_f16_value((uint16_t)bits);
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* encode_groups() of one format from the variant's own amax and encode(), which become one body: a
 * call for every 32 elements would cost more than the work.  */
#define FP8Q_GROUP_INSTANCES(FORMAT, format, amax, size)                                           \
    static inline uint32_t encode_group_##format(uint8_t *dst, uint8_t *exponent, const void *src, \
                                                 size_t n)                                         \
    {                                                                                              \
        uint32_t bits = amax(src, n);                                                              \
        *exponent = fp8q_e8m0_of_amax(amax_as_f32(FP8Q_FLOAT_##FORMAT, bits));                     \
        encode(FP8Q_FLOAT_##FORMAT, dst, src, n, fp8q_e8m0_value(*exponent));                      \
        return bits;                                                                               \
    }                                                                                              \
    static FP8Q_NOINLINE uint32_t encode_groups_##format##_here(uint8_t *dst, uint8_t *exponents,  \
                                                                const char *src, size_t n)         \
    {                                                                                              \
        uint32_t most = 0, bits = 0;                                                               \
        size_t i = 0;                                                                              \
        for (; n - i >= FP8Q_GROUP; i += FP8Q_GROUP) {                                             \
            bits = encode_group_##format(dst + i, exponents++, src + i * (size), FP8Q_GROUP);      \
            most = bits > most ? bits : most;                                                      \
        }                                                                                          \
        if (i < n)                                                                                 \
            bits = encode_group_##format(dst + i, exponents, src + i * (size), n - i);             \
        return bits > most ? bits : most;                                                          \
    }                                                                                              \
    static uint32_t encode_groups_##format(uint8_t *dst, uint8_t *exponents, const void *src,      \
                                           size_t n)                                               \
    {                                                                                              \
        uint64_t mode = fp8q_float_env_enter();                                                    \
        uint32_t most = encode_groups_##format##_here(dst, exponents, src, n);                     \
        fp8q_float_env_leave(mode);                                                                \
        return most;                                                                               \
    }

/* Weights are taken in units of the power of two in the scale, in which their squares stay far from
 * both ends of F32.  */
struct noise_unit {
    float to_unit, scale; /* the scale in that unit: 0.5 to 1 unless it is subnormal or huge */
    double square;        /* of the unit */
};

static inline struct noise_unit noise_unit(float scale)
{
    uint32_t bits, exponent, unit_bits;
    uint64_t square_bits;
    struct noise_unit u;
    memcpy(&bits, &scale, sizeof(bits));
    exponent = bits >> 23;
    exponent = exponent < 1 ? 1 : exponent > 252 ? 252 : exponent;

    unit_bits = (253 - exponent) << 23; /* 2^(126 - exponent) */
    square_bits = (uint64_t)(1023 - 252 + 2 * exponent) << 52;
    memcpy(&u.to_unit, &unit_bits, sizeof(u.to_unit));
    memcpy(&u.square, &square_bits, sizeof(u.square));
    u.scale = scale * u.to_unit;
    return u;
}

/* Adds a run of up to 128 elements to the lanes, element i to lane i % 16: in F32 within the run, in F64
 * from run to run.  This defines the sums; a variant may have the F32 lanes in registers.  */
static inline void noise_run_plain(const struct fp8q_kernel *k, enum fp8q_float from,
                                   const void *src, const uint8_t *codes, size_t n,
                                   const struct noise_unit *u, struct fp8q_error_sums *sums)
{
    float w[128], q[128], w2[16] = {0}, d2[16] = {0};
    k->to_f32[from](w, src, n);
    k->decode[FP8Q_FLOAT_F32](q, codes, n, u->scale);

    for (size_t i = 0; i < n; i++) {
        float x = w[i] * u->to_unit, d = x - q[i];
        w2[i % 16] += x * x;
        d2[i % 16] += d * d;
    }
    for (size_t l = 0; l < 16; l++) {
        sums->w2[l] += (double)w2[l] * u->square;
        sums->d2[l] += (double)d2[l] * u->square;
    }
}

static inline void noise_end(const struct fp8q_error_sums *sums, struct fp8q_noise *noise)
{
    noise->w2 += fp8q_error_total(sums->w2);
    noise->d2 += fp8q_error_total(sums->d2);
}

/* add_noise_rows() and add_noise_groups() of one format around noise_run(), which a variant writes
 * once.  */
#define FP8Q_ADD_NOISE(FORMAT, format, size)                                                       \
    FP8Q_NOINLINE static void noise_rows_##format##_here(                                          \
        const char *src, const uint8_t *codes, size_t n_rows, size_t n, size_t step,               \
        const struct noise_unit *u, struct fp8q_error_sums *sums)                                  \
    {                                                                                              \
        for (size_t r = 0; r < n_rows; r++, src += step * (size), codes += step)                   \
            for (size_t i = 0, m; i < n; i += m) {                                                 \
                m = n - i < 128 ? n - i : 128;                                                     \
                noise_run(FP8Q_FLOAT_##FORMAT, src + i * (size), codes + i, m, u, sums);           \
            }                                                                                      \
    }                                                                                              \
    static void add_noise_rows_##format(const void *src, const uint8_t *codes, size_t n_rows,      \
                                        size_t n, size_t step, float scale,                        \
                                        struct fp8q_noise *noise)                                  \
    {                                                                                              \
        uint64_t mode = fp8q_float_env_enter();                                                    \
        const struct noise_unit u = noise_unit(scale);                                             \
        struct fp8q_error_sums sums = {{0}, {0}};                                                  \
        noise_rows_##format##_here(src, codes, n_rows, n, step, &u, &sums);                        \
        noise_end(&sums, noise);                                                                   \
        fp8q_float_env_leave(mode);                                                                \
    }                                                                                              \
    FP8Q_NOINLINE static void noise_groups_##format##_here(const char *src, const uint8_t *codes,  \
                                                           const float *scales, size_t n,          \
                                                           struct fp8q_error_sums *sums)           \
    {                                                                                              \
        for (size_t i = 0, m; i < n; i += m) {                                                     \
            const struct noise_unit u = noise_unit(*scales++);                                     \
            m = n - i < FP8Q_GROUP ? n - i : FP8Q_GROUP;                                           \
            noise_run(FP8Q_FLOAT_##FORMAT, src + i * (size), codes + i, m, &u, sums);              \
        }                                                                                          \
    }                                                                                              \
    static void add_noise_groups_##format(const void *src, const uint8_t *codes,                   \
                                          const float *scales, size_t n, struct fp8q_noise *noise) \
    {                                                                                              \
        uint64_t mode = fp8q_float_env_enter();                                                    \
        struct fp8q_error_sums sums = {{0}, {0}};                                                  \
        noise_groups_##format##_here(src, codes, scales, n, &sums);                                \
        noise_end(&sums, noise);                                                                   \
        fp8q_float_env_leave(mode);                                                                \
    }
#define FP8Q_NOISE_INSTANCES                                                                       \
    FP8Q_ADD_NOISE(BF16, bf16, 2)                                                                  \
    FP8Q_ADD_NOISE(F16, f16, 2)                                                                    \
    FP8Q_ADD_NOISE(F32, f32, 4)

/* Two vectors of magnitudes a step, and the scalar kernel for the rest.  A variant has, for the
 * vectors of each format, magnitudes_FORMAT(pointer), larger_FORMAT(a, b) and largest_FORMAT(v).  */
#define FP8Q_AMAX(FORMAT, format, size, vector)                                                    \
    static uint32_t amax_##format(const void *src, size_t n)                                       \
    {                                                                                              \
        const char *p = src;                                                                       \
        const size_t step = 2 * sizeof(vector) / (size);                                           \
        vector a = {0}, b = a;                                                                     \
        size_t i = 0;                                                                              \
        for (; n - i >= step; i += step) {                                                         \
            a = larger_##format(a, magnitudes_##format(p + (size)*i));                             \
            b = larger_##format(b, magnitudes_##format(p + (size)*i + sizeof(vector)));            \
        }                                                                                          \
        uint32_t max = largest_##format(larger_##format(a, b));                                    \
        uint32_t rest = fp8q_kernel_scalar.amax_bits[FP8Q_FLOAT_##FORMAT](p + (size)*i, n - i);    \
        return rest > max ? rest : max;                                                            \
    }

/* to_f32() of each format around widen(), which a variant writes once.  */
#define FP8Q_WIDEN_INSTANCES                                                                       \
    static void bf16_to_f32(float *dst, const void *src, size_t n)                                 \
    {                                                                                              \
        widen(FP8Q_FLOAT_BF16, dst, src, n);                                                       \
    }                                                                                              \
    static void f16_to_f32(float *dst, const void *src, size_t n)                                  \
    {                                                                                              \
        widen(FP8Q_FLOAT_F16, dst, src, n);                                                        \
    }                                                                                              \
    static void f32_to_f32(float *dst, const void *src, size_t n)                                  \
    {                                                                                              \
        fp8q_kernel_scalar.to_f32[FP8Q_FLOAT_F32](dst, src, n);                                    \
    }

/* Row by row, for variants that have nothing better for one format.  */
#define FP8Q_AMAX_ROWS(format, amax, size)                                                         \
    static uint32_t amax_rows_##format(const void *src, size_t n_rows, size_t n, size_t step)      \
    {                                                                                              \
        uint32_t max = 0;                                                                          \
        for (size_t r = 0; r < n_rows; r++) {                                                      \
            uint32_t bits = amax((const char *)src + r * step * (size), n);                        \
            max = bits > max ? bits : max;                                                         \
        }                                                                                          \
        return max;                                                                                \
    }
#define FP8Q_ENCODE_ROWS(format, size)                                                             \
    static void encode_rows_##format(uint8_t *dst, const void *src, size_t n_rows, size_t n,       \
                                     size_t step, float scale)                                     \
    {                                                                                              \
        for (size_t r = 0; r < n_rows; r++)                                                        \
            encode_##format(dst + r * step, (const char *)src + r * step * (size), n, scale);      \
    }

/* The same, of every format.  */
#define FP8Q_PLAIN_ROWS                                                                            \
    FP8Q_AMAX_ROWS(half, amax_half, 2)                                                             \
    FP8Q_AMAX_ROWS(f32, amax_f32, 4)                                                               \
    FP8Q_ENCODE_ROWS(bf16, 2)                                                                      \
    FP8Q_ENCODE_ROWS(f16, 2)                                                                       \
    FP8Q_ENCODE_ROWS(f32, 4)

/* The table of a variant, last in its file: its functions are called as the members are.  The
 * magnitudes of both formats of 16 bits are compared alike.  */
#define FP8Q_VARIANT(variant)                                                                      \
    FP8Q_GROUP_INSTANCES(BF16, bf16, amax_half, 2)                                                 \
    FP8Q_GROUP_INSTANCES(F16, f16, amax_half, 2)                                                   \
    FP8Q_GROUP_INSTANCES(F32, f32, amax_f32, 4)                                                    \
    FP8Q_NOISE_INSTANCES                                                                           \
    const struct fp8q_kernel fp8q_kernel_##variant = {                                             \
        .name = #variant,                                                                          \
        .usable = usable,                                                                          \
        .amax_bits = {amax_half, amax_half, amax_f32},                                             \
        .encode = {encode_bf16, encode_f16, encode_f32},                                           \
        .amax_rows = {amax_rows_half, amax_rows_half, amax_rows_f32},                              \
        .encode_rows = {encode_rows_bf16, encode_rows_f16, encode_rows_f32},                       \
        .encode_groups = {encode_groups_bf16, encode_groups_f16, encode_groups_f32},               \
        .decode = {decode_bf16, decode_f16, decode_f32},                                           \
        .to_f32 = {bf16_to_f32, f16_to_f32, f32_to_f32},                                           \
        .scan_codes = scan_codes,                                                                  \
        .check = {check_bf16, check_f16, check_f32},                                               \
        .add_noise_rows = {add_noise_rows_bf16, add_noise_rows_f16, add_noise_rows_f32},           \
        .add_noise_groups = {add_noise_groups_bf16, add_noise_groups_f16, add_noise_groups_f32},   \
    };

#endif
