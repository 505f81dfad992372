/* SPDX-License-Identifier: Apache-2.0
 *
 * compare_stripe.c - quantizes a stripe in every format and adds up squared errors.
 *
 * FP8 goes through the kernels that write checkpoints.  Integers are symmetric, as other tools make
 * them: s = amax/127 (or amax/7), q = rne(w/s) clamped, w' = q*s in F32.
 */
#include "measure/compare_stripe.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

int fp8q_compare_scratch_fit(struct fp8q_compare_scratch *scratch, uint64_t n_rows, uint64_t n_cols,
                             unsigned elem_bytes, struct fp8q_error *err)
{
    uint64_t bytes;
    if (!fp8q_mul_u64(n_rows, n_cols, &bytes) || !fp8q_mul_u64(bytes, elem_bytes, &bytes))
        return fp8q_fail_nomem(err);

    /* Old contents are of no use, so nothing is copied; a capacity of 0 notes a failure.  */
    if (bytes > scratch->src_cap) {
        free(scratch->src);
        scratch->src = fp8q_array(bytes, 1);
        scratch->src_cap = scratch->src ? bytes : 0;
    }

    if (n_cols > scratch->cols_cap) {
        free(scratch->row);
        free(scratch->codes);
        free(scratch->amax);
        scratch->row = fp8q_array(n_cols, sizeof(float));
        scratch->codes = fp8q_array(n_cols, 1);
        scratch->amax = fp8q_array(fp8q_ceil_div(n_cols, FP8Q_BLOCK), sizeof(uint32_t));
        scratch->cols_cap = scratch->row && scratch->codes && scratch->amax ? n_cols : 0;
    }

    bool fits = scratch->src_cap >= bytes && scratch->cols_cap >= n_cols;
    return fits ? FP8Q_OK : fp8q_fail_nomem(err);
}

void fp8q_compare_scratch_reset(struct fp8q_compare_scratch *scratch)
{
    free(scratch->src);
    free(scratch->row);
    free(scratch->codes);
    free(scratch->amax);
    *scratch = (struct fp8q_compare_scratch){0};
}

/* ---- integers ------------------------------------------------------------------------------ */

static float int_scale(float amax, float max)
{
    /* Zeros come out right with any scale but 0, by which nothing can be divided.  */
    if (amax == 0.0f)
        return 1.0f;
    return fmaxf(amax / max, FP8Q_MIN_SCALE);
}

/* Adding and subtracting 1.5 * 2^23 rounds |q| < 2^22 to the nearest even integer, in a form that
 * compilers turn into vectors.  Lane i % 16 takes element i, as in the kernels.  */
static void int_errors(const float *x, size_t n, float scale, float max, double d2[16])
{
    const float magic = 12582912.0f;
    for (size_t i = 0; i < n; i += 16) {
        size_t lanes = fp8q_min_size(n - i, 16);
        for (size_t lane = 0; lane < lanes; lane++) {
            float q = (x[i + lane] / scale + magic) - magic;
            q = q > max ? max : q;
            q = q < -max ? -max : q;
            double d = (double)x[i + lane] - (double)(q * scale);
            d2[lane] += d * d;
        }
    }
}

/* ---- one stripe ---------------------------------------------------------------------------- */

struct stripe_run {
    const struct fp8q_kernel *kernel;
    const struct fp8q_stripe *stripe;
    struct fp8q_compare_scratch *scratch;
    struct fp8q_error_sums sums[FP8Q_CMP_ROWS];
};

static void fp8_errors(struct stripe_run *run, enum fp8q_compare_row row, const void *src, size_t n,
                       float scale)
{
    enum fp8q_float from = run->stripe->from;
    run->kernel->encode[from](run->scratch->codes, src, n, scale);
    run->kernel->check[from](src, run->scratch->codes, n, scale, 1.0f, &run->sums[row]);
}

/* All rows of one granularity on @n elements that share a scale.  */
static void span_errors(struct stripe_run *run, enum fp8q_compare_row fp8, const void *src,
                        const float *x, size_t n, float amax)
{
    fp8_errors(run, fp8, src, n, fp8q_scale(amax, FP8Q_SCALE_F32));
    /* Power-of-two scales exist for blocks only.  */
    if (fp8 == FP8Q_CMP_FP8_BLOCK)
        fp8_errors(run, FP8Q_CMP_FP8_UE8M0, src, n, fp8q_scale(amax, FP8Q_SCALE_UE8M0));

    /* FP8 rows are 0 to 2 here, and integer rows stand in the same order of granularities.  */
    int_errors(x, n, int_scale(amax, 127), 127, run->sums[FP8Q_CMP_INT8_TENSOR + fp8].d2);
    int_errors(x, n, int_scale(amax, 7), 7, run->sums[FP8Q_CMP_INT4_TENSOR + fp8].d2);
}

static float amax_value(enum fp8q_float from, uint32_t bits)
{
    float value;
    fp8q_amax_value(from, bits, &value);
    return value;
}

/* MXFP8: the row's own groups.  */
static void group_errors(struct stripe_run *run, const unsigned char *src, size_t n,
                         unsigned elem_bytes)
{
    enum fp8q_float from = run->stripe->from;

    for (size_t col = 0; col < n; col += FP8Q_GROUP) {
        const unsigned char *group = src + col * elem_bytes;
        size_t len = fp8q_min_size(n - col, FP8Q_GROUP);
        float amax = amax_value(from, run->kernel->amax_bits[from](group, len));
        fp8_errors(run, FP8Q_CMP_MXFP8, group, len, fp8q_scale(amax, FP8Q_SCALE_UE8M0));
    }
}

static void row_errors(struct stripe_run *run, const unsigned char *src, unsigned elem_bytes,
                       float tensor_amax)
{
    enum fp8q_float from = run->stripe->from;
    size_t n = (size_t)run->stripe->n_cols;
    float *x = run->scratch->row;

    run->kernel->to_f32[from](x, src, n);

    /* FP8 kernels take the source's own bits, integers the same numbers as F32.  */
    span_errors(run, FP8Q_CMP_FP8_TENSOR, src, x, n, tensor_amax);
    span_errors(run, FP8Q_CMP_FP8_CHANNEL, src, x, n,
                amax_value(from, run->kernel->amax_bits[from](src, n)));

    for (size_t col = 0; col < n; col += FP8Q_BLOCK)
        span_errors(run, FP8Q_CMP_FP8_BLOCK, src + col * elem_bytes, x + col,
                    fp8q_min_size(n - col, FP8Q_BLOCK),
                    amax_value(from, run->scratch->amax[col / FP8Q_BLOCK]));
    group_errors(run, src, n, elem_bytes);
}

void fp8q_compare_stripe(const struct fp8q_kernel *kernel, const struct fp8q_stripe *stripe,
                         float tensor_amax, struct fp8q_compare_scratch *scratch,
                         struct fp8q_stripe_sums *sums_out)
{
    struct stripe_run run = {.kernel = kernel, .stripe = stripe, .scratch = scratch};
    unsigned elem_bytes = stripe->from == FP8Q_FLOAT_F32 ? 4 : 2;

    fp8q_stripe_amax(kernel, stripe, scratch->amax);
    for (uint64_t r = 0; r < stripe->n_rows; r++)
        row_errors(&run, (const unsigned char *)stripe->src + r * stripe->n_cols * elem_bytes,
                   elem_bytes, tensor_amax);

    /* Each FP8 row has seen every weight once: w2 of any of them is that of the stripe.  */
    sums_out->w2 = fp8q_error_total(run.sums[FP8Q_CMP_FP8_TENSOR].w2);
    for (unsigned i = 0; i < FP8Q_CMP_ROWS; i++)
        sums_out->d2[i] = fp8q_error_total(run.sums[i].d2);
}
