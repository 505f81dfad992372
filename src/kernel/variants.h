/* SPDX-License-Identifier: Apache-2.0
 *
 * variants.h - what the kernel variants share among themselves.  Users of kernels need kernel.h
 * only.
 */
#ifndef FP8Q_KERNEL_VARIANTS_H
#define FP8Q_KERNEL_VARIANTS_H

#include "base/float_env.h"
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

#endif
