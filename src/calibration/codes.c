/* SPDX-License-Identifier: Apache-2.0
 *
 * codes.c - the working file of FP8 values, and what a network sees of it.
 */
#include "calibration/codes.h"

#include <stdlib.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"

/* Under this name it is created; it loses it at once.  */
#define CODES_NAME "codes.tmp"

static bool is_rounded(const struct fp8q_plan *plan, size_t source)
{
    const struct fp8q_decision *d = &plan->selection.decisions[source];
    return d->quantize && d->scheme == FP8Q_SCHEME_BLOCK && plan->ckpt->tensors[source].ndim == 2;
}

uint64_t fp8q_codes_size(const struct fp8q_plan *plan)
{
    uint64_t size = 0;
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        size += is_rounded(plan, i) ? plan->ckpt->tensors[i].n_elems : 0;
    return size;
}

bool fp8q_codes_take(const struct fp8q_codes *codes, size_t source)
{
    return codes->of[source].offset != UINT64_MAX;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int create_file(struct fp8q_codes *c, const char *dir, struct fp8q_error *err)
{
    c->path = fp8q_join(dir, CODES_NAME);
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
    uint64_t n_cols = weight->shape[1], grid_cols = fp8q_ceil_div(n_cols, FP8Q_BLOCK);
    FP8Q_TRY(fp8q_codes_get(c, source, &(struct fp8q_tile){row, n_rows, 0, n_cols}, raw, err));

    for (uint64_t r = 0; r < n_rows; r++)
        for (uint64_t col = 0; col < n_cols; col += FP8Q_BLOCK)
            c->kernel->decode[FP8Q_FLOAT_F32](
                out + r * n_cols + col, (const uint8_t *)raw + r * n_cols + col,
                (size_t)fp8q_min_u64(n_cols - col, FP8Q_BLOCK),
                c->of[source].scales[(row + r) / FP8Q_BLOCK * grid_cols + col / FP8Q_BLOCK]);
    return FP8Q_OK;
}

int fp8q_codes_open(const struct fp8q_plan *plan, const struct fp8q_kernel *kernel, const char *dir,
                    struct fp8q_codes *c, struct fp8q_error *err)
{
    *c = (struct fp8q_codes){
        .plan = plan, .kernel = kernel, .fd = -1, .stand_in = {.has = has, .read = read_rows}};
    c->stand_in.ctx = c;
    c->of = fp8q_array(plan->ckpt->n_tensors, sizeof(*c->of));
    if (!c->of)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        c->of[i].offset = UINT64_MAX;
        if (!is_rounded(plan, i))
            continue;
        c->of[i].offset = c->size;
        c->size += plan->ckpt->tensors[i].n_elems;
    }
    return create_file(c, dir, err);
}

void fp8q_codes_close(struct fp8q_codes *c)
{
    for (size_t i = 0; c->of && i < c->plan->ckpt->n_tensors; i++)
        free(c->of[i].scales);
    free(c->of);
    /* Nothing in it is needed any more, so nothing can be lost.  */
    (void)fp8q_close(&c->fd, c->path, NULL);
    free(c->path);
    *c = (struct fp8q_codes){.fd = -1};
}

/* ---- values ---------------------------------------------------------------------------------- */

int fp8q_codes_begin(struct fp8q_codes *c, size_t source, struct fp8q_error *err)
{
    const uint64_t *shape = c->plan->ckpt->tensors[source].shape;
    c->of[source].scales = fp8q_array(
        fp8q_ceil_div(shape[0], FP8Q_BLOCK) * fp8q_ceil_div(shape[1], FP8Q_BLOCK), sizeof(float));
    return c->of[source].scales ? FP8Q_OK : fp8q_fail_nomem(err);
}

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
