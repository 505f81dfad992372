/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.h - row operations, one set per instruction set.
 *
 * scalar.c defines the result bits; every other variant reproduces them exactly, for any n (0
 * included) and any alignment, without reading or writing past the end.  n counts elements; dst and
 * src must not overlap.  Nothing here knows of blocks, tensors or files.  Results do not depend on
 * the rounding or flush-to-zero mode of the caller, which is left as it was.
 */
#ifndef FP8Q_KERNEL_H
#define FP8Q_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp8q.h"

#define FP8Q_GROUP 32 /* elements of a row that share a scale in MXFP8 */

/* Float formats of weights.  */
enum fp8q_float { FP8Q_FLOAT_BF16, FP8Q_FLOAT_F16, FP8Q_FLOAT_F32, FP8Q_N_FLOATS };

/* Sums of squares of elements w (source) and of errors d = w - code*scale, all in F64 (the squares
 * of large and of tiny weights leave F32).  Lane i % 16 takes element i of every call, in order, so
 * that the sums do not depend on the variant.  fp8q_error_total() folds the lanes in a fixed order.
 */
struct fp8q_error_sums {
    double w2[16], d2[16];
};
double fp8q_error_total(const double lanes[16]);

/* The same two sums in all, of single precision within 128 elements: for a figure in decibels, at a
 * fifth of the cost.  */
struct fp8q_noise {
    double w2, d2;
};

struct fp8q_kernel {
    const char *name;     /* "scalar", "avx2", ...: for tests and --kernel */
    bool (*usable)(void); /* both the CPU and the operating system support it */

    /* Largest magnitude as bits with the sign cleared, in the source's own format (16 bits for
     * BF16 and F16).  Integer order is magnitude order, and Inf and NaN are the largest, so one
     * comparison of the result finds them.  */
    uint32_t (*amax_bits[FP8Q_N_FLOATS])(const void *src, size_t n);

    /* dst[i] = E4M3(F32(src[i]) / scale): true division rounded to F32, then nearest even,
     * saturating; the sign of zero stays.  src holds finite values, scale is positive and finite.
     */
    void (*encode[FP8Q_N_FLOATS])(uint8_t *dst, const void *src, size_t n, float scale);

    /* The same for @n_rows rows of @n elements that begin @step elements apart: what the blocks of a
     * matrix are made of.  Many elements with one scale are worth a preparation.  */
    uint32_t (*amax_rows[FP8Q_N_FLOATS])(const void *src, size_t n_rows, size_t n, size_t step);
    void (*encode_rows[FP8Q_N_FLOATS])(uint8_t *dst, const void *src, size_t n_rows, size_t n,
                                       size_t step, float scale);

    /* One row of MXFP8: each FP8Q_GROUP elements (the last group may be shorter) with the power of
     * two of their own amax (e8m0.h), whose exponent goes to @exponents.  Returns the amax bits of
     * the row, by which a NaN or Inf is found: then what was written means nothing.  */
    uint32_t (*encode_groups[FP8Q_N_FLOATS])(uint8_t *dst, uint8_t *exponents, const void *src,
                                             size_t n);

    /* dst[i] = F32(code) * scale, rounded to F32 and then once more to the output format, nearest
     * even.  Codes 0x7F and 0xFF give NaN.  F16 beyond 65504 gives infinity: the caller checks amax
     * first.  */
    void (*decode[FP8Q_N_FLOATS])(void *dst, const uint8_t *src, size_t n, float scale);

    /* Widens to F32, exactly.  */
    void (*to_f32[FP8Q_N_FLOATS])(float *dst, const void *src, size_t n);

    /* Number of codes 0x7F and 0xFF among n, and the largest (code & 0x7F) in *max_out.  */
    size_t (*scan_codes)(const uint8_t *src, size_t n, unsigned *max_out);

    /* Adds to @sums, and returns how many elements break
     *     |w - q*s| <= factor * max(|w|/16, s * 2^-10) * (1 + 2^-20)
     * decided as if in exact arithmetic.  factor is 1 or 2.  src holds finite values; a NaN code
     * breaks the bound and makes the sum of its lane NaN.  */
    size_t (*check[FP8Q_N_FLOATS])(const void *src, const uint8_t *codes, size_t n, float scale,
                                   float factor, struct fp8q_error_sums *sums);

    /* Adds signal and noise of @n_rows rows of @n elements that begin @step elements apart; lanes and
     * order are those of noise_run_plain() in variants.h, so that the sums do not depend on the
     * variant.  */
    void (*add_noise_rows[FP8Q_N_FLOATS])(const void *src, const uint8_t *codes, size_t n_rows,
                                          size_t n, size_t step, float scale,
                                          struct fp8q_noise *noise);

    /* The same of one row of MXFP8: each FP8Q_GROUP elements with the next of @scales.  */
    void (*add_noise_groups[FP8Q_N_FLOATS])(const void *src, const uint8_t *codes,
                                            const float *scales, size_t n,
                                            struct fp8q_noise *noise);
};

/* Every variant that was built, best first, scalar last, then NULL.  */
extern const struct fp8q_kernel *const fp8q_kernels[];

/* The first usable one, or the one called @name; NULL if @name is unknown or not usable here.
 * The result is passed on as an argument: there is no current kernel.  */
const struct fp8q_kernel *fp8q_kernel_select(const char *name);

/* Conversions shared by all variants (scalar.c); those of E4M3 are public: fp8q.h.  */
float fp8q_bf16_value(uint16_t bits);
float fp8q_f16_value(uint16_t bits);
uint16_t fp8q_bf16_from_f32(float x); /* nearest even; NaN stays NaN (quiet) */
uint16_t fp8q_f16_from_f32(float x);  /* nearest even, overflow to infinity; NaN stays NaN */

#endif
