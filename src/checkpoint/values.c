/* SPDX-License-Identifier: Apache-2.0
 *
 * values.c - what the values of one tensor are.
 *
 * Blocks are 128x128 whatever the tensor is quantized by, so that a weight before and after
 * conversion can be laid side by side.  Of a block what counts is its amax, which makes the scale,
 * and the share of values that fall below the smallest normal FP8 value under that scale: there
 * rounding is absolute, no longer relative, and a lone outlier costs all the others.
 */
#include "checkpoint/values.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

enum { BLOCK = 128 };

/* Of E4M3: 2^-6 / 448, as a share of amax.  */
#define SMALLEST_NORMAL_SHARE (0.015625f / FP8Q_E4M3_MAX)

/* The rows of one stripe of blocks, and where the next are to come from.  */
struct look {
    const struct fp8q_kernel *kernel;
    struct fp8q_weights weights;
    void *raw;
    float *rows;
    struct fp8q_statistics *out;
    double sum, squares;
};

static void count_value(struct look *l, float v)
{
    struct fp8q_statistics *s = l->out;

    if (!isfinite(v)) {
        s->n_nonfinite++;
        return;
    }

    s->n_zeros += v == 0;
    s->min = fmin(s->min, (double)v);
    s->max = fmax(s->max, (double)v);
    l->sum += (double)v;
    l->squares += (double)v * (double)v;
}

/* A NaN is no larger than anything, so amax is that of the finite values and infinities.  */
static void look_at_block(const struct look *l, uint64_t n_rows, uint64_t col, uint64_t n_cols,
                          struct fp8q_block_statistics *block)
{
    for (uint64_t r = 0; r < n_rows; r++) {
        const float *row = l->rows + r * l->weights.n_cols + col;
        for (uint64_t c = 0; c < n_cols; c++)
            block->amax = fmaxf(block->amax, fabsf(row[c]));
    }

    float smallest = block->amax * SMALLEST_NORMAL_SHARE;
    for (uint64_t r = 0; r < n_rows; r++) {
        const float *row = l->rows + r * l->weights.n_cols + col;
        for (uint64_t c = 0; c < n_cols; c++)
            block->n_small += row[c] != 0 && fabsf(row[c]) < smallest;
    }
    block->n_values = n_rows * n_cols;
}

static int look_at_stripe(struct look *l, uint64_t row, uint64_t n_rows,
                          struct fp8q_block_statistics *blocks, struct fp8q_error *err)
{
    uint64_t n_cols = l->weights.n_cols;

    FP8Q_TRY(fp8q_weights_read(&l->weights, l->kernel, row, n_rows, l->raw, l->rows, err));
    for (uint64_t i = 0; i < n_rows * n_cols; i++)
        count_value(l, l->rows[i]);

    for (uint64_t k = 0; k < l->out->grid_cols; k++)
        look_at_block(l, n_rows, k * BLOCK, fp8q_min_u64(BLOCK, n_cols - k * BLOCK), &blocks[k]);
    return FP8Q_OK;
}

static int look_at_all(struct look *l, struct fp8q_error *err)
{
    const struct fp8q_weights *w = &l->weights;
    struct fp8q_statistics *s = l->out;
    uint64_t in_matrix = fp8q_ceil_div(w->matrix_rows, BLOCK);

    /* Blocks of a stack begin anew with each of its matrices.  */
    s->grid_rows = w->n_rows / w->matrix_rows * in_matrix;
    s->grid_cols = fp8q_ceil_div(w->n_cols, BLOCK);
    s->n_values = w->n_rows * w->n_cols;
    s->blocks = fp8q_array(s->grid_rows * s->grid_cols, sizeof(*s->blocks));
    l->raw = fp8q_array(BLOCK * w->n_cols, sizeof(float));
    l->rows = fp8q_array(BLOCK * w->n_cols, sizeof(float));
    if (!s->blocks || !l->raw || !l->rows)
        return fp8q_fail_nomem(err);

    for (uint64_t g = 0; g < s->grid_rows; g++) {
        uint64_t within = g % in_matrix * BLOCK;
        uint64_t row = g / in_matrix * w->matrix_rows + within;
        FP8Q_TRY(look_at_stripe(l, row, fp8q_min_u64(BLOCK, w->matrix_rows - within),
                                s->blocks + g * s->grid_cols, err));
    }
    return FP8Q_OK;
}

static void sum_up(struct look *l)
{
    struct fp8q_statistics *s = l->out;
    double n = (double)(s->n_values - s->n_nonfinite);

    s->mean = n > 0 ? l->sum / n : NAN;
    s->rms = n > 0 ? sqrt(l->squares / n) : NAN;
    for (uint64_t i = 0; i < s->grid_rows * s->grid_cols; i++)
        s->n_small += s->blocks[i].n_small;

    /* Of nothing there is no range.  */
    if (n == 0)
        s->min = s->max = NAN;
}

static int look_at_tensor(struct look *l, const struct fp8q_ckpt *ckpt, const char *name,
                          struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_weights_open(ckpt, name, &l->weights, err));
    FP8Q_TRY(look_at_all(l, err));
    sum_up(l);
    return FP8Q_OK;
}

int fp8q_look_at_values(const struct fp8q_ckpt *ckpt, const char *name,
                        const struct fp8q_kernel *kernel, struct fp8q_statistics *statistics,
                        struct fp8q_error *err)
{
    *statistics =
        (struct fp8q_statistics){.size = sizeof(*statistics), .min = HUGE_VAL, .max = -HUGE_VAL};
    struct look look = {.kernel = kernel, .out = statistics};

    int status = look_at_tensor(&look, ckpt, name, err);
    if (status != FP8Q_OK)
        fp8q_statistics_reset(statistics);

    free(look.raw);
    free(look.rows);
    fp8q_weights_reset(&look.weights);
    return status;
}

void fp8q_statistics_reset(struct fp8q_statistics *statistics)
{
    free(statistics->blocks);
    *statistics = (struct fp8q_statistics){.size = sizeof(*statistics)};
}

/* ---- the map of amax ------------------------------------------------------------------------- */

struct fp8q_amax_map fp8q_amax_map_of(const struct fp8q_statistics *s, uint64_t most_rows,
                                      uint64_t most_cols)
{
    struct fp8q_amax_map map = {.statistics = s,
                                .rows = fp8q_min_u64(s->grid_rows, most_rows),
                                .cols = fp8q_min_u64(s->grid_cols, most_cols)};

    for (uint64_t i = 0; i < s->grid_rows * s->grid_cols; i++) {
        float amax = s->blocks[i].amax;
        if (!(amax > 0) || !isfinite(amax))
            continue;
        map.low = map.low > 0 ? fminf(map.low, amax) : amax;
        map.high = fmaxf(map.high, amax);
    }
    return map;
}

float fp8q_amax_map_cell(const struct fp8q_amax_map *map, uint64_t row, uint64_t col)
{
    const struct fp8q_statistics *s = map->statistics;
    uint64_t row_end = (row + 1) * s->grid_rows / map->rows;
    uint64_t col_end = (col + 1) * s->grid_cols / map->cols;
    float amax = 0;

    for (uint64_t r = row * s->grid_rows / map->rows; r < row_end; r++)
        for (uint64_t c = col * s->grid_cols / map->cols; c < col_end; c++)
            amax = fmaxf(amax, s->blocks[r * s->grid_cols + c].amax);
    return amax;
}
