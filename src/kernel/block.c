/* SPDX-License-Identifier: Apache-2.0
 *
 * block.c - the scale of a block, and the walk over the blocks of one stripe of rows.  A
 * block is taken as a whole, row by row: callers hand over as many rows as their cache holds.  Edge
 * blocks are the elements that exist; nothing is padded.  docs/reference/numerics.md has the rules.
 */
#include "kernel/block.h"

#include <math.h>
#include <string.h>

#include "base/float_env.h"
#include "kernel/e8m0.h"

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float divide_by_448(float amax)
{
    /* The host program may have set another mode.  Volatile, so that no compiler moves the division
     * out from between the two calls: clang does even where it is a function of its own.  */
    volatile float passing = amax;
    uint64_t mode = fp8q_float_env_enter();

    passing = passing / FP8Q_E4M3_MAX;
    fp8q_float_env_leave(mode);
    return passing;
}

bool fp8q_scale_overflows(float amax, float scale)
{
    /* The largest magnitude of a block has its largest code.  Only near the end of F32 can that be
     * rounded up beyond it, so that nothing need be computed below.  */
    if (amax < 0x1p127f)
        return false;

    const struct fp8q_kernel *k = fp8q_kernel_select("scalar");
    uint8_t code;
    float back;
    k->encode[FP8Q_FLOAT_F32](&code, &amax, 1, scale);
    k->decode[FP8Q_FLOAT_F32](&back, &code, 1, scale);
    return isinf(back);
}

float fp8q_scale(float amax, enum fp8q_scale_fmt fmt)
{
    /* 448 * 2^-126, below which the scale is 2^-126.  Compared as bits: where subnormals count as
     * zero, amax == 0 would hold for them too.  */
    static const uint32_t least = 9u << 23 | 0x600000;
    uint32_t bits;

    memcpy(&bits, &amax, sizeof(bits));
    if (bits == 0)
        return 1.0f;
    if (fmt == FP8Q_SCALE_UE8M0)
        return fp8q_e8m0_value(fp8q_e8m0_of_amax(bits));
    return bits < least ? FP8Q_MIN_SCALE : divide_by_448(amax);
}

bool fp8q_amax_value(enum fp8q_float from, uint32_t bits, float *amax_out)
{
    /* Infinity and every NaN lie at or above these patterns.  */
    static const uint32_t infinity[FP8Q_N_FLOATS] = {0x7F80, 0x7C00, 0x7F800000};

    *amax_out = 0.0f;
    if (bits >= infinity[from])
        return false;

    if (from == FP8Q_FLOAT_F32)
        *amax_out = float_of(bits);
    else if (from == FP8Q_FLOAT_F16)
        *amax_out = fp8q_f16_value((uint16_t)bits);
    else
        *amax_out = fp8q_bf16_value((uint16_t)bits);

    return true;
}

static uint64_t pieces(uint64_t n, uint32_t size)
{
    /* A size of 0 means one piece for everything.  */
    if (size == 0)
        return n > 0;
    return n / size + (n % size != 0);
}

void fp8q_grid_shape(struct fp8q_grid grid, uint64_t n_rows, uint64_t n_cols, uint64_t shape_out[2])
{
    shape_out[0] = pieces(n_rows, grid.rows);
    shape_out[1] = pieces(n_cols, grid.cols);
}

static size_t element_size(enum fp8q_float from)
{
    return from == FP8Q_FLOAT_F32 ? 4 : 2;
}

/* Columns of the block that begins at @col.  */
static size_t block_cols(const struct fp8q_stripe *stripe, uint64_t col)
{
    uint64_t left = stripe->n_cols - col;
    return left < FP8Q_BLOCK ? (size_t)left : FP8Q_BLOCK;
}

void fp8q_stripe_amax(const struct fp8q_kernel *k, const struct fp8q_stripe *stripe,
                      uint32_t *amax_out)
{
    const size_t size = element_size(stripe->from), step = (size_t)stripe->n_cols;
    const char *src = stripe->src;

    for (uint64_t col = 0; col < stripe->n_cols; col += FP8Q_BLOCK)
        amax_out[col / FP8Q_BLOCK] = k->amax_rows[stripe->from](
            src + size * (size_t)col, stripe->n_rows, block_cols(stripe, col), step);
}

bool fp8q_block_scales(enum fp8q_float from, const uint32_t *amax, size_t n,
                       enum fp8q_scale_fmt fmt, float *scales_out)
{
    for (size_t i = 0; i < n; i++) {
        float value;
        if (!fp8q_amax_value(from, amax[i], &value))
            return false;
        scales_out[i] = fp8q_scale(value, fmt);
    }
    return true;
}

void fp8q_stripe_encode(const struct fp8q_kernel *k, const struct fp8q_stripe *stripe,
                        const float *scales, uint8_t *codes_out)
{
    const size_t size = element_size(stripe->from), step = (size_t)stripe->n_cols;
    const char *src = stripe->src;

    for (uint64_t col = 0; col < stripe->n_cols; col += FP8Q_BLOCK)
        k->encode_rows[stripe->from](codes_out + col, src + size * (size_t)col, stripe->n_rows,
                                     block_cols(stripe, col), step, scales[col / FP8Q_BLOCK]);
}

/* Finds the place for an error message, once amax has shown that there is one; not fast.  */
bool fp8q_stripe_nonfinite(const struct fp8q_stripe *stripe, uint64_t *row_out, uint64_t *col_out)
{
    const struct fp8q_kernel *k = fp8q_kernel_select("scalar");
    const size_t size = element_size(stripe->from);
    const char *src = stripe->src;

    *row_out = *col_out = 0;

    for (uint32_t row = 0; row < stripe->n_rows; row++)
        for (uint64_t col = 0; col < stripe->n_cols; col++, src += size) {
            float value;
            if (!fp8q_amax_value(stripe->from, k->amax_bits[stripe->from](src, 1), &value)) {
                *row_out = row;
                *col_out = col;
                return true;
            }
        }
    return false;
}

bool fp8q_float_of(enum fp8q_dtype dtype, enum fp8q_float *float_out)
{
    /* Set to F32 where the answer is no, so that it is never left undefined.  */
    *float_out = dtype == FP8Q_BF16  ? FP8Q_FLOAT_BF16
                 : dtype == FP8Q_F16 ? FP8Q_FLOAT_F16
                                     : FP8Q_FLOAT_F32;
    return dtype == FP8Q_BF16 || dtype == FP8Q_F16 || dtype == FP8Q_F32;
}
