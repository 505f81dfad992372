/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h - F32 matrix products and row mathematics for the evaluation forward pass.
 *
 * Every element of a product is one chain of fused multiply-adds over rising k, starting from 0,
 * and the row functions use no fused operations and fixed lanes.  So the bits depend neither on the
 * instruction set, nor on the tiling, nor on the number of threads.  Statistics come out of these
 * functions, never bytes of a checkpoint (but for the decisions of compensate.h).
 */
#ifndef FP8Q_GEMM_H
#define FP8Q_GEMM_H

#include "base/error.h"

/* Operations of one instruction set; those of gemm_scalar.c run everywhere.  */
struct fp8q_gemm {
    const char *name; /* as the kernel of kernel.h that it goes with */
    bool (*usable)(void);
    uint32_t mr, nr; /* rows and columns of one tile */

    /* c[i][j] (+)= sum over k of a[k*mr + i] * b[k*nr + j] for a whole tile; @add: the chains go on
     * from the values in c.  */
    void (*micro)(size_t n_k, const float *a, const float *b, float *c, size_t ldc, bool add);

    /* Of packed FP8 values, for a whole tile:
     *     c[i][j] += t[i][j] * (a_scale[i] * b_scale[j])
     * t: the chain of fused multiply-adds over k, from 0; the two products and the sum are rounded
     * one by one.  */
    void (*micro_fp8)(size_t n_k, const void *a, const void *b, const float *a_scale,
                      const float *b_scale, float *c, size_t ldc);
    bool pairs; /* FP8 values are packed as BF16, two of k in a word, the first in the upper half */

    float (*max)(const float *x, size_t n); /* -Inf for n = 0; NaN elements are ignored */
    double (*dot)(const float *x, const float *y, size_t n); /* F64 lanes of F32 products */
    /* dst[i] = exp(src[i] - shift), returns the sum.  dst may be src.  */
    double (*exp_sum)(float *dst, const float *src, size_t n, float shift);
    /* sums[0] += e^(p-shift_p), sums[1] += e^(p-shift_p) * (p-q), sums[2] += e^(q-shift_q).  */
    void (*kl_sums)(const float *p, const float *q, size_t n, float shift_p, float shift_q,
                    double sums[3]);
    void (*silu_mul)(float *gate, const float *up, size_t n); /* gate = gate/(1+e^-gate) * up */
    /* The same with GELU's tanh form: gate = gate * (1 + tanh(u)) / 2, u = sqrt(2/pi) (gate +
     * 0.044715 gate^3).  */
    void (*gelu_mul)(float *gate, const float *up, size_t n);
    void (*soft_cap)(float *x, size_t n, float cap); /* x = cap tanh(x / cap) */
    /* y[r][i] -= a[r] * x[i] for @n_rows rows of @n: one product and one difference, each rounded.
     */
    void (*subtract_outer)(float *y, size_t stride, const float *a, size_t n_rows, const float *x,
                           size_t n);
};

extern const struct fp8q_gemm *const fp8q_gemms[]; /* best first, scalar last, then NULL */
/* The first usable one, or the one called @name if it exists and is usable, else the scalar one. */
const struct fp8q_gemm *fp8q_gemm_select(const char *name);
extern const struct fp8q_gemm fp8q_gemm_scalar;

/* A matrix by strides in elements: x[i*row + j*col].  */
struct fp8q_strided {
    const float *x;
    size_t row, col;
};

/* Packed operands: groups of mr (or nr) rows, [group][k][row in group], padded with zeros.  */
size_t fp8q_packed_a(const struct fp8q_gemm *g, size_t n_rows, size_t n_k); /* in floats */
size_t fp8q_packed_b(const struct fp8q_gemm *g, size_t n_rows, size_t n_k);
void fp8q_pack_a(const struct fp8q_gemm *g, struct fp8q_strided a, size_t n_rows, size_t n_k,
                 float *packed_out);
void fp8q_pack_b(const struct fp8q_gemm *g, struct fp8q_strided b, size_t n_rows, size_t n_k,
                 float *packed_out);

/* c[i*ldc + j] = sum over k of a[i][k] * b[j][k], on the calling thread.  */
void fp8q_gemm_packed(const struct fp8q_gemm *g, size_t n_rows, size_t n_cols, size_t n_k,
                      const float *a_packed, const float *b_packed, float *c, size_t ldc);

/* ---- FP8 values -------------------------------------------------------------------------------- */

/* A product of E4M3 values.  Scales are those of segments of @step elements of k, the last of which may
 * be shorter; @step is even.  */
struct fp8q_fp8_shape {
    size_t n_rows, n_cols; /* of C */
    size_t n_k, step;
};
size_t fp8q_n_segments(const struct fp8q_fp8_shape *shape);

/* One side: values as fp8q_pack_fp8() packs them, scales [segment][row].  */
struct fp8q_fp8_operand {
    const void *packed;
    const float *scales;
};

/* Four-byte words that a row takes, packed.  */
size_t fp8q_fp8_words(const struct fp8q_gemm *g, size_t n_k);
/* @codes: rows of @n_k E4M3 values, packed in groups of @group (mr or nr) rows; takes no more room than
 * the same rows as F32.  */
void fp8q_pack_fp8(const struct fp8q_gemm *g, size_t group, const uint8_t *codes, size_t n_rows,
                   size_t n_k, void *packed_out);

/* c[i*ldc + j] = sum over segments of (sum over k of a[i][k] b[j][k]) * (a_scale * b_scale), segment by
 * segment as micro_fp8 says.  This is what tensor cores compute of block-scaled FP8, but for the
 * width of their sums.  */
void fp8q_gemm_fp8(const struct fp8q_gemm *g, const struct fp8q_fp8_shape *shape,
                   const struct fp8q_fp8_operand *a, const struct fp8q_fp8_operand *b, float *c,
                   size_t ldc);

#endif
