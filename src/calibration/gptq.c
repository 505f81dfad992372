/* SPDX-License-Identifier: Apache-2.0
 *
 * gptq.c - rounding one stripe with a prepared Hessian, and the guard on it.
 *
 * How it works.  A stripe (up to 128 rows) is cut into blocks of 128 columns, and each block is
 * rounded for itself, transposed, so that one column of all rows is one run of memory:
 *
 *     take_block     columns in the Hessian's order (largest second moment first)
 *     round_block    for each column: encode it, find its error, and take error x factor off
 *                    every column that is still to come - the step of GPTQ
 *     (encode)       put the codes back in natural order
 *
 * The first columns are rounded as they are, the last ones carry what the others left over; that is
 * why the columns that matter most go first.  The guard does the same twice, with plain codes and
 * with the factors that have not seen the held-out tokens, and compares d H d^T on those.
 */
#include "calibration/gptq.h"

#include <string.h>

#include "base/mem.h"

/* One call's working memory: the block transposed, what it became, a product.  */
struct scratch {
    float columns[FP8Q_MOMENTS]; /* [column in order][row]: values still to round */
    float deltas[FP8Q_MOMENTS];  /* [row][column] */
    float product[FP8Q_MOMENTS];
    float packed_a[(FP8Q_BLOCK + 16) * FP8Q_BLOCK], packed_b[(FP8Q_BLOCK + 32) * FP8Q_BLOCK];
    float rounded[FP8Q_BLOCK], error[FP8Q_BLOCK];
    uint8_t codes[FP8Q_MOMENTS]; /* [column in order][row] */
};

size_t fp8q_gptq_scratch(void)
{
    return sizeof(struct scratch);
}

/* One block of the stripe: @n columns from column @at on.  */
struct block {
    const struct fp8q_gptq_stripe *stripe;
    size_t at, n;
    const float *w; /* of the stripe, from column @at on */
    float scale;
    const struct fp8q_hessian_block *hessian;
};

static struct block block_of(const struct fp8q_gptq_stripe *stripe, size_t index)
{
    size_t at = index * FP8Q_BLOCK;
    return (struct block){.stripe = stripe,
                          .at = at,
                          .n = fp8q_min_size((size_t)stripe->n_cols - at, FP8Q_BLOCK),
                          .w = stripe->w + at,
                          .scale = stripe->scales[index],
                          .hessian = &stripe->hessian->blocks[index]};
}

static void take_block(const struct block *b, const uint8_t *order, struct scratch *s)
{
    uint32_t n_rows = b->stripe->n_rows;
    for (size_t i = 0; i < b->n; i++)
        for (uint32_t r = 0; r < n_rows; r++)
            s->columns[i * n_rows + r] = b->w[r * b->stripe->n_cols + order[i]];
}

/* Codes of one block with @factors; the columns' values are consumed.  After column i is rounded
 * with error e, the columns j > i take -e * factors[i][j]: the step of GPTQ, with the division
 * folded into the factors.  */
static void round_block(const struct block *b, const float *factors, struct scratch *s)
{
    const struct fp8q_kernel *kernel = b->stripe->kernel;
    uint32_t n_rows = b->stripe->n_rows;

    for (size_t i = 0; i < b->n; i++) {
        float *column = s->columns + i * n_rows;
        uint8_t *codes = s->codes + i * n_rows;
        /* Value and code side by side: the difference is what the others must make up for.  */
        kernel->encode[FP8Q_FLOAT_F32](codes, column, n_rows, b->scale);
        kernel->decode[FP8Q_FLOAT_F32](s->rounded, codes, n_rows, b->scale);

        for (uint32_t r = 0; r < n_rows; r++)
            s->error[r] = column[r] - s->rounded[r];
        b->stripe->gemm->subtract_outer(column + n_rows, n_rows, factors + i * FP8Q_BLOCK + i + 1,
                                        b->n - i - 1, s->error, n_rows);
    }
}

static int check_call(const struct fp8q_gptq_stripe *s, struct fp8q_error *err)
{
    if (s->n_cols == s->hessian->n_cols && s->n_rows <= FP8Q_BLOCK)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "calibration-shape",
                     "a stripe of %u x %llu for statistics of %llu channels", s->n_rows,
                     (unsigned long long)s->n_cols, (unsigned long long)s->hessian->n_cols);
}

int fp8q_gptq_encode(const struct fp8q_gptq_stripe *stripe, uint8_t *codes_out,
                     struct fp8q_error *err)
{
    struct scratch *s = stripe->scratch;
    FP8Q_TRY(check_call(stripe, err));

    for (size_t index = 0; index < stripe->hessian->n_blocks; index++) {
        struct block b = block_of(stripe, index);
        take_block(&b, b.hessian->order, s);
        round_block(&b, b.hessian->factors, s);

        for (size_t i = 0; i < b.n; i++)
            for (uint32_t r = 0; r < stripe->n_rows; r++)
                codes_out[r * stripe->n_cols + b.at + b.hessian->order[i]] =
                    s->codes[i * stripe->n_rows + r];
    }
    return FP8Q_OK;
}

/* ---- guard ----------------------------------------------------------------------------------- */

/* sum over rows of d H d^T for the codes in @s, which stand in @order.  */
static double held_error(const struct block *b, const uint8_t *order, struct scratch *s)
{
    const struct fp8q_gemm *g = b->stripe->gemm;
    uint32_t n_rows = b->stripe->n_rows;
    size_t n = b->n;

    for (size_t i = 0; i < n; i++) {
        b->stripe->kernel->decode[FP8Q_FLOAT_F32](s->rounded, s->codes + i * n_rows, n_rows,
                                                  b->scale);
        for (uint32_t r = 0; r < n_rows; r++)
            s->deltas[r * n + order[i]] = b->w[r * b->stripe->n_cols + order[i]] - s->rounded[r];
    }

    /* H is symmetric, so its rows serve as the columns that the product wants.  */
    fp8q_pack_a(g, (struct fp8q_strided){s->deltas, n, 1}, n_rows, n, s->packed_a);
    fp8q_pack_b(g, (struct fp8q_strided){b->hessian->held, FP8Q_BLOCK, 1}, n, n, s->packed_b);
    fp8q_gemm_packed(g, n_rows, n, n, s->packed_a, s->packed_b, s->product, n);
    return g->dot(s->product, s->deltas, n_rows * n);
}

int fp8q_gptq_guard(const struct fp8q_gptq_stripe *stripe, struct fp8q_gptq_error *sums_out,
                    struct fp8q_error *err)
{
    struct scratch *s = stripe->scratch;
    *sums_out = (struct fp8q_gptq_error){0};
    FP8Q_TRY(check_call(stripe, err));

    for (size_t index = 0; index < stripe->hessian->n_blocks; index++) {
        struct block b = block_of(stripe, index);
        take_block(&b, b.hessian->order, s);
        stripe->kernel->encode[FP8Q_FLOAT_F32](s->codes, s->columns, b.n * stripe->n_rows, b.scale);
        sums_out->plain += held_error(&b, b.hessian->order, s);

        /* The same block again, as if only three quarters of the tokens had been seen.  */
        take_block(&b, b.hessian->order_fit, s);
        round_block(&b, b.hessian->factors_fit, s);
        sums_out->compensated += held_error(&b, b.hessian->order_fit, s);
    }
    return FP8Q_OK;
}

bool fp8q_gptq_helps(const struct fp8q_gptq_error *sums)
{
    return sums->compensated < sums->plain;
}
