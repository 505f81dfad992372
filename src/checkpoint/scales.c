/* SPDX-License-Identifier: Apache-2.0
 *
 * scales.c - finds the scales of a weight by name, and their grid by shape.
 */
#include "checkpoint/scales.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "format/names.h"
#include "kernel/block.h"

bool fp8q_is_fp8(enum fp8q_dtype dtype)
{
    return dtype == FP8Q_F8_E4M3 || dtype == FP8Q_F8_E5M2 || dtype == FP8Q_F8_E4M3FNUZ ||
           dtype == FP8Q_F8_E5M2FNUZ;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Length of the name before ".shard_N.weight"; 0 without that ending.  */
static size_t stem_of_part(const char *weight)
{
    size_t end = fp8q_stem_len(weight, FP8Q_WEIGHT_ENDING), at = end;

    while (at > 0 && weight[at - 1] >= '0' && weight[at - 1] <= '9')
        at--;

    static const char part[] = ".shard_";
    size_t len = sizeof(part) - 1;
    return at < end && at > len && memcmp(weight + at - len, part, len) == 0 ? at - len : 0;
}

const struct fp8q_tensor *fp8q_scaled_weight(const struct fp8q_ckpt *ckpt, const char *name)
{
    for (size_t i = 0; i < fp8q_n_companions; i++) {
        const struct fp8q_companion *kind = &fp8q_companions[i];
        size_t stem = fp8q_stem_len(name, kind->ending);
        if (!stem)
            continue;

        const struct fp8q_tensor *t = fp8q_ckpt_find_joined(ckpt, name, stem, kind->owner);
        if (t && fp8q_is_fp8(t->dtype))
            return t;
        if (!kind->scales_weight || !fp8q_ends_with(name, FP8Q_WEIGHT_ENDING FP8Q_SCALE_ENDING))
            continue;

        /* One scale for a table in parts: its first part stands for all.  */
        size_t table = stem - strlen(FP8Q_WEIGHT_ENDING);
        t = fp8q_ckpt_find_joined(ckpt, name, table, ".shard_0.weight");
        if (t && fp8q_is_fp8(t->dtype))
            return t;
    }
    return NULL;
}

/* The next companion that scales @weight, from row *@next of the table on.  */
static const struct fp8q_tensor *next_scales(const struct fp8q_ckpt *ckpt, const char *weight,
                                             size_t *next)
{
    while (*next < fp8q_n_companions) {
        const struct fp8q_companion *kind = &fp8q_companions[(*next)++];
        size_t stem = *kind->owner ? fp8q_stem_len(weight, kind->owner) : strlen(weight);
        if (!kind->scales_weight || !stem)
            continue;

        const struct fp8q_tensor *t = fp8q_ckpt_find_joined(ckpt, weight, stem, kind->ending);
        if (t)
            return t;
    }
    return NULL;
}

int fp8q_find_scales(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *weight,
                     const struct fp8q_tensor **scales_out, struct fp8q_error *err)
{
    struct fp8q_shown shown, other;
    size_t next = 0, part = stem_of_part(weight->name);
    const struct fp8q_tensor *found = next_scales(ckpt, weight->name, &next);
    const struct fp8q_tensor *second = found ? next_scales(ckpt, weight->name, &next) : NULL;

    if (!found && part)
        found =
            fp8q_ckpt_find_joined(ckpt, weight->name, part, FP8Q_WEIGHT_ENDING FP8Q_SCALE_ENDING);
    /* A second one is looked for only to refuse it: nobody can tell which of the two is stale.  */
    *scales_out = found;
    if (!found)
        return fp8q_fail(err, FP8Q_E_FORMAT, "scale-missing",
                         "tensor \"%s\" is %s, but no scales stand beside it (\"..._scale_inv\", "
                         "\"..._scale\", \".scale\", \".qscale_weight\" or \".scale_weight\")",
                         fp8q_show(&shown, weight->name), fp8q_dtype_name(weight->dtype));

    if (second)
        return fp8q_fail(err, FP8Q_E_FORMAT, "scale-twice",
                         "a weight has two scale tensors, \"%s\" and \"%s\"; remove the stale one",
                         fp8q_show(&shown, found->name), fp8q_show(&other, second->name));
    return FP8Q_OK;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Sizes of the scales of one matrix, after what only stacks or pads was taken off.  */
struct grid {
    uint64_t rows, cols;
    bool stacked; /* one such grid for each matrix */
};

/* Reads the shape of a scale tensor as a grid; false if it is none.  */
static bool read_grid(const struct fp8q_tensor *weight, const struct fp8q_tensor *scales,
                      struct grid *grid_out)
{
    const uint64_t *shape = scales->shape;
    uint32_t ndim = scales->ndim;
    uint64_t n_matrices = weight->ndim == 3 ? weight->shape[0] : 1;
    uint64_t rows = weight->shape[weight->ndim - 2];

    *grid_out = (struct grid){1, 1, false};
    /* [], [1] and [1, 1] all mean one scale for everything.  */
    if (scales->n_elems == 1)
        return true;

    if (weight->ndim == 3) {
        if (ndim == 0 || shape[0] != n_matrices)
            return false;
        grid_out->stacked = true;
        /* [E] and [E, 1, 1]: one scale for each matrix.  */
        if (scales->n_elems == n_matrices)
            return true;
        shape++;
        ndim--;
    }

    /* ModelOpt keeps the inner sizes of its blocks as ones: [N/128, 1, K/128, 1].  */
    if (ndim == 4 && shape[1] == 1 && shape[3] == 1) {
        grid_out->rows = shape[0];
        grid_out->cols = shape[2];
        return true;
    }
    if (ndim == 1 && shape[0] == rows) {
        grid_out->rows = rows;
        return true;
    }
    if (ndim != 2)
        return false;
    grid_out->rows = shape[0];
    grid_out->cols = shape[1];
    return true;
}

/* Whether blocks of @rows x @cols make the grid, and if so the layout.  */
static bool try_blocks(struct fp8q_scale_layout *l, const struct grid *grid, uint64_t rows,
                       uint64_t cols)
{
    if (rows == 0 || cols == 0 || fp8q_ceil_div(l->matrix_rows, rows) != grid->rows ||
        fp8q_ceil_div(l->n_cols, cols) != grid->cols)
        return false;
    l->block_rows = rows;
    l->block_cols = cols;
    return true;
}

/* Block sizes in circulation beside 128x128, for checkpoints whose config.json says none.  */
static bool find_other_blocks(struct fp8q_scale_layout *l, const struct grid *grid)
{
    static const uint64_t known[][2] = {{1, 32}, {32, 32}, {1, 128}, {64, 64}};

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (try_blocks(l, grid, known[i][0], known[i][1]))
            return true;
    return false;
}

static int fail_shape(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *weight,
                      const struct fp8q_tensor *scales, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    char size[80] = "128x128 blocks";

    if (ckpt->block_rows)
        snprintf(size, sizeof(size), "the %llux%llu blocks that config.json says",
                 (unsigned long long)ckpt->block_rows, (unsigned long long)ckpt->block_cols);
    return fp8q_fail(err, FP8Q_E_FORMAT, "scale-shape",
                     "tensor \"%s\" of %llu x %llu: its scale tensor of %llu elements is neither a "
                     "grid of %s, nor one scale a row, nor one in all",
                     fp8q_show(&shown, weight->name),
                     (unsigned long long)weight->shape[weight->ndim - 2],
                     (unsigned long long)weight->shape[weight->ndim - 1],
                     (unsigned long long)scales->n_elems, size);
}

int fp8q_find_layout(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *weight,
                     const struct fp8q_tensor *scales, struct fp8q_scale_layout *layout_out,
                     struct fp8q_error *err)
{
    struct fp8q_scale_layout *l = layout_out;
    struct grid grid;

    *l = (struct fp8q_scale_layout){.matrix_rows = weight->shape[weight->ndim - 2],
                                    .n_cols = weight->shape[weight->ndim - 1]};
    if (!read_grid(weight, scales, &grid))
        return fail_shape(ckpt, weight, scales, err);
    l->grid_rows = grid.rows;
    l->grid_cols = grid.cols;
    /* Zero where all matrices of a stack share the scales.  */
    l->matrix_scales = grid.stacked ? grid.rows * grid.cols : 0;

    bool one = grid.rows == 1 && grid.cols == 1, said = ckpt->block_rows != 0;
    uint64_t rows = said ? ckpt->block_rows : FP8Q_BLOCK;
    uint64_t cols = said ? ckpt->block_cols : FP8Q_BLOCK;

    /* Where the config does not say other blocks, powers of two for 32 columns are MXFP8.  */
    bool e8m0 = scales->dtype == FP8Q_F8_E8M0 || scales->dtype == FP8Q_U8;
    l->scaling = FP8Q_SCALING_GROUP;
    if (e8m0 && scales->ndim > 1 && (!said || (rows == 1 && cols == FP8Q_GROUP)) &&
        try_blocks(l, &grid, 1, FP8Q_GROUP))
        return FP8Q_OK;

    /* Blocks go first: of a small matrix a grid of 1 x 1 is one block.  A scalar is no grid.  */
    l->scaling = FP8Q_SCALING_BLOCK;
    if ((!one || scales->ndim > 1) && try_blocks(l, &grid, rows, cols))
        return FP8Q_OK;

    if (grid.cols == 1 && grid.rows == l->matrix_rows)
        l->scaling = FP8Q_SCALING_ROW;
    else if (one)
        l->scaling = FP8Q_SCALING_TENSOR;
    if (l->scaling != FP8Q_SCALING_BLOCK) {
        l->block_rows = one ? l->matrix_rows : 1;
        l->block_cols = l->n_cols;
        return FP8Q_OK;
    }

    /* MXFP8 is one thing, whatever block size the config gives for other weights.  */
    if (e8m0 && try_blocks(l, &grid, 1, FP8Q_GROUP)) {
        l->scaling = FP8Q_SCALING_GROUP;
        return FP8Q_OK;
    }
    if (!said && find_other_blocks(l, &grid))
        return FP8Q_OK;
    /* Stacked experts that lie the other way round, [E, in, out]: a scale of a row is that of a
     * column here.  */
    if (weight->ndim == 3 && grid.rows == 1 && try_blocks(l, &grid, l->matrix_rows, 1))
        return FP8Q_OK;
    return fail_shape(ckpt, weight, scales, err);
}

const char *fp8q_scaling_text(const struct fp8q_scale_layout *layout, enum fp8q_dtype weight,
                              char *buf, size_t cap)
{
    const char *type = weight == FP8Q_F8_E4M3 ? "FP8" : fp8q_dtype_name(weight);

    switch (layout->scaling) {
    case FP8Q_SCALING_GROUP:
        snprintf(buf, cap, "MXFP8 (one scale for 32 columns of a row)");
        break;
    case FP8Q_SCALING_BLOCK:
        snprintf(buf, cap, "block %s (one scale for %llux%llu)", type,
                 (unsigned long long)layout->block_rows, (unsigned long long)layout->block_cols);
        break;
    case FP8Q_SCALING_ROW:
        snprintf(buf, cap, "per-channel %s (one scale a row)", type);
        break;
    case FP8Q_SCALING_TENSOR:
        snprintf(buf, cap, "per-tensor %s (one scale in all)", type);
        break;
    default:
        snprintf(buf, cap, "not FP8");
    }
    return buf;
}
