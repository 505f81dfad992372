/* SPDX-License-Identifier: Apache-2.0
 *
 * codes.c - the working file of FP8 values, and what a network sees of it.
 */
#include "calibration/codes.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"

static bool is_rounded(const struct fp8q_plan *plan, const struct fp8q_piece *piece)
{
    return piece->kind == FP8Q_OUT_CODES && plan->ckpt->tensors[piece->source].ndim == 2;
}

uint64_t fp8q_codes_size(const struct fp8q_plan *plan)
{
    uint64_t size = 0;
    for (size_t i = 0; i < plan->n_pieces; i++)
        if (is_rounded(plan, &plan->pieces[i]))
            size += plan->ckpt->tensors[plan->pieces[i].source].n_elems;
    return size;
}

bool fp8q_codes_take(const struct fp8q_codes *codes, size_t source)
{
    return codes->of[source].offset != UINT64_MAX;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int create_file(struct fp8q_codes *c, const char *path, struct fp8q_error *err)
{
    c->path = strdup(path);
    if (!c->path)
        return fp8q_fail_nomem(err);

    /* Of a run that was killed between the two calls below.  */
    FP8Q_TRY(fp8q_unlink(c->path, err));
    FP8Q_TRY(fp8q_create(c->path, &c->fd, err));
    FP8Q_TRY(fp8q_unlink(c->path, err));
    return fp8q_reserve(c->fd, c->size, c->path, err);
}

static bool has(const void *ctx, const struct fp8q_tensor *weight)
{
    const struct fp8q_codes *c = ctx;
    return c->of[weight - c->plan->ckpt->tensors].scales != NULL;
}

static int read_rows(const void *ctx, const struct fp8q_tensor *weight, uint64_t row,
                     uint64_t n_rows, void *raw, float *out, struct fp8q_error *err)
{
    const struct fp8q_codes *c = ctx;
    size_t source = (size_t)(weight - c->plan->ckpt->tensors);
    const struct fp8q_coded *of = &c->of[source];
    uint64_t n_cols = weight->shape[1];
    FP8Q_TRY(fp8q_codes_get(c, source, &(struct fp8q_tile){row, n_rows, 0, n_cols}, raw, err));

    for (uint64_t r = 0; r < n_rows; r++)
        for (uint64_t col = 0, n; col < n_cols; col += n) {
            n = fp8q_coded_run(of, n_cols, col);
            c->kernel->decode[FP8Q_FLOAT_F32](out + r * n_cols + col,
                                              (const uint8_t *)raw + r * n_cols + col, (size_t)n,
                                              *fp8q_coded_scale(of, row + r, col));
        }
    return FP8Q_OK;
}

static void take_pieces(struct fp8q_codes *c)
{
    const struct fp8q_plan *plan = c->plan;
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        c->of[i].offset = UINT64_MAX;

    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        if (!is_rounded(plan, p))
            continue;
        /* Two-dimensional tensors are one piece, so the source says which.  */
        struct fp8q_grid grid = fp8q_scheme_grid(p->scheme);
        c->of[p->source] =
            (struct fp8q_coded){.offset = c->size,
                                .grid = grid,
                                .grid_cols = grid.cols ? fp8q_ceil_div(p->n_cols, grid.cols) : 1,
                                .group = p->group};
        c->size += plan->ckpt->tensors[p->source].n_elems;
    }

    /* Found when the first of a group is begun: a group may be in many layers' files.  */
    for (size_t i = 0; i < plan->n_groups; i++)
        c->group_amax[i] = -1;
}

int fp8q_codes_open(const struct fp8q_plan *plan, const struct fp8q_kernel *kernel,
                    const char *path, struct fp8q_codes *c, struct fp8q_error *err)
{
    *c = (struct fp8q_codes){
        .plan = plan, .kernel = kernel, .fd = -1, .stand_in = {.has = has, .read = read_rows}};
    c->stand_in.ctx = c;
    c->of = fp8q_array(plan->ckpt->n_tensors, sizeof(*c->of));
    c->group_amax = fp8q_array(plan->n_groups, sizeof(*c->group_amax));
    if (!c->of || !c->group_amax)
        return fp8q_fail_nomem(err);

    /* The size first: the file is reserved as a whole, so that a full disk is found before the work.  */
    take_pieces(c);
    return create_file(c, path, err);
}

void fp8q_codes_close(struct fp8q_codes *c)
{
    for (size_t i = 0; c->of && i < c->plan->ckpt->n_tensors; i++)
        free(c->of[i].scales);
    free(c->of);
    free(c->group_amax);
    /* Nothing in it is needed any more, so nothing can be lost.  */
    (void)fp8q_close(&c->fd, c->path, NULL);
    free(c->path);
    /* So that closing it again does nothing.  */
    *c = (struct fp8q_codes){.fd = -1};
}

/* ---- scales ---------------------------------------------------------------------------------- */

float *fp8q_coded_scale(const struct fp8q_coded *of, uint64_t row, uint64_t col)
{
    uint64_t grid_row = of->grid.rows ? row / of->grid.rows : 0;
    return of->scales + grid_row * of->grid_cols + (of->grid.cols ? col / of->grid.cols : 0);
}

uint64_t fp8q_coded_run(const struct fp8q_coded *of, uint64_t n_cols, uint64_t col)
{
    uint64_t left = n_cols - col;
    return of->grid.cols ? fp8q_min_u64(left, of->grid.cols - col % of->grid.cols) : left;
}

/* Raises *@amax to the largest magnitude of a weight.  @memory: room for 128 rows, twice.  */
static int raise_amax(const struct fp8q_codes *c, const struct fp8q_weights *w, float *memory,
                      float *amax, struct fp8q_error *err)
{
    float *raw = memory + FP8Q_BLOCK * w->n_cols;
    struct fp8q_shown shown;

    for (uint64_t row = 0; row < w->n_rows; row += FP8Q_BLOCK) {
        uint64_t n = fp8q_min_u64(w->n_rows - row, FP8Q_BLOCK);
        float largest;
        FP8Q_TRY(fp8q_weights_read(w, c->kernel, row, n, raw, memory, err));
        uint32_t bits = c->kernel->amax_bits[FP8Q_FLOAT_F32](memory, (size_t)(n * w->n_cols));
        if (!fp8q_amax_value(FP8Q_FLOAT_F32, bits, &largest))
            return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "tensor \"%s\" holds NaN or Inf",
                             fp8q_show(&shown, w->tensor->name));
        /* A maximum comes out the same in any order of tensors.  */
        *amax = largest > *amax ? largest : *amax;
    }
    return FP8Q_OK;
}

static int raise_amax_of(const struct fp8q_codes *c, const struct fp8q_tensor *t, float *amax,
                         struct fp8q_error *err)
{
    struct fp8q_weights w;
    FP8Q_TRY(fp8q_weights_open(c->plan->ckpt, t->name, &w, err));
    float *memory = fp8q_array(2 * FP8Q_BLOCK * w.n_cols, sizeof(*memory));
    int status = memory ? raise_amax(c, &w, memory, amax, err) : fp8q_fail_nomem(err);
    free(memory);
    fp8q_weights_reset(&w);
    return status;
}

/* One scale speaks of all pieces of a group, wherever in the network they are.  */
static int find_group_amax(struct fp8q_codes *c, size_t group, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = c->plan;
    float amax = 0;
    if (c->group_amax[group] >= 0)
        return FP8Q_OK;

    for (size_t i = 0; i < plan->n_pieces; i++)
        if (plan->pieces[i].group == group)
            FP8Q_TRY(raise_amax_of(c, &plan->ckpt->tensors[plan->pieces[i].source], &amax, err));
    c->group_amax[group] = amax;
    return FP8Q_OK;
}

int fp8q_codes_begin(struct fp8q_codes *c, size_t source, struct fp8q_error *err)
{
    struct fp8q_coded *of = &c->of[source];
    uint64_t n_rows = c->plan->ckpt->tensors[source].shape[0];
    uint64_t grid_rows = of->grid.rows ? fp8q_ceil_div(n_rows, of->grid.rows) : 1;

    of->scales = fp8q_array(grid_rows * of->grid_cols, sizeof(float));
    if (!of->scales)
        return fp8q_fail_nomem(err);
    if (of->group == SIZE_MAX)
        return FP8Q_OK;

    FP8Q_TRY(find_group_amax(c, of->group, err));
    of->scales[0] = fp8q_scale(c->group_amax[of->group], FP8Q_SCALE_F32);
    return FP8Q_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

int fp8q_codes_put(const struct fp8q_codes *c, size_t source, uint64_t row, uint64_t n_rows,
                   const uint8_t *values, struct fp8q_error *err)
{
    uint64_t n_cols = c->plan->ckpt->tensors[source].shape[1];
    return fp8q_pwrite(c->fd, values, (size_t)(n_rows * n_cols),
                       c->of[source].offset + row * n_cols, c->path, err);
}

int fp8q_codes_get(const struct fp8q_codes *c, size_t source, const struct fp8q_tile *tile,
                   uint8_t *values, struct fp8q_error *err)
{
    uint64_t n_cols = c->plan->ckpt->tensors[source].shape[1];
    uint64_t at = c->of[source].offset + tile->row * n_cols + tile->col;
    /* Whole rows lie one after another, others apart.  */
    bool whole = tile->n_cols == n_cols;
    uint64_t n_reads = whole ? 1 : tile->n_rows;
    size_t len = (size_t)(tile->n_cols * (whole ? tile->n_rows : 1));

    for (uint64_t i = 0; i < n_reads; i++)
        FP8Q_TRY(fp8q_pread(c->fd, values + i * len, len, at + i * n_cols, c->path, err));
    return FP8Q_OK;
}
