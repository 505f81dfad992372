/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c - one weight matrix between floats and E4M3 values, in the caller's memory.
 *
 * A task is 128 rows, the height of a block, so that tasks share no scale but the tensor's.  Rows
 * are taken one by one (they need not touch), and of wide ones a panel at a time, so that the
 * amax of all blocks of a panel fits on the stack.  The operations are those of a conversion, hence
 * the bits too.
 */
#include <math.h>
#include <stdatomic.h>

#include "api/internal.h"
#include "base/caller.h"
#include "base/mem.h"
#include "base/pool.h"
#include "checkpoint/weights.h"
#include "kernel/e8m0.h"
#include "plan/plan.h"

/* Blocks of one panel, and its columns.  */
enum { PANEL_BLOCKS = 64, PANEL = PANEL_BLOCKS * FP8Q_BLOCK };

struct job {
    struct fp8q_matrix m;
    enum fp8q_float from;
    size_t float_size;
    uint64_t grid_cols; /* scales in a row of them */
    const struct fp8q_kernel *kernel;
    char *floats;
    uint8_t *values;
    float *scales;
    _Atomic uint32_t amax_bits; /* of the whole matrix, in the source's format */
};

/* ---- shapes and addresses -------------------------------------------------------------------- */

static const char *name_of(const struct job *job)
{
    return job->m.name ? job->m.name : "matrix";
}

static int check_enums(const struct fp8q_matrix *m, struct fp8q_error *err)
{
    enum fp8q_float from;

    if (!fp8q_float_of(m->dtype, &from))
        return fp8q_fail(err, FP8Q_E_ARG, "matrix",
                         "struct fp8q_matrix: dtype %d is neither F32 nor F16 nor BF16",
                         (int)m->dtype);
    if ((unsigned)m->scheme > FP8Q_SCHEME_GROUP || (unsigned)m->scale_fmt > FP8Q_SCALE_UE8M0)
        return fp8q_fail(err, FP8Q_E_ARG, "matrix",
                         "struct fp8q_matrix: scheme %d with scale format %d does not exist",
                         (int)m->scheme, (int)m->scale_fmt);
    return FP8Q_OK;
}

/* Copies the caller's struct, with strides set.  */
static int open_matrix(const struct fp8q_matrix *matrix, struct fp8q_matrix *m,
                       struct fp8q_error *err)
{
    uint64_t floats, values;

    *m = (struct fp8q_matrix){0};
    FP8Q_TRY(fp8q_struct_copy(m, sizeof(*m), matrix, "matrix", err));
    FP8Q_TRY(check_enums(m, err));
    m->row_stride = m->row_stride ? m->row_stride : m->cols;
    m->value_stride = m->value_stride ? m->value_stride : m->cols;

    if (m->row_stride < m->cols || m->value_stride < m->cols)
        return fp8q_fail(err, FP8Q_E_ARG, "matrix",
                         "struct fp8q_matrix: a stride (%llu of floats, %llu of values) is less "
                         "than a row of %llu columns",
                         (unsigned long long)m->row_stride, (unsigned long long)m->value_stride,
                         (unsigned long long)m->cols);
    /* A float has four bytes at most: no address that is computed from here on can wrap.  */
    if (__builtin_mul_overflow(m->rows, m->row_stride, &floats) || floats > SIZE_MAX / 4 ||
        __builtin_mul_overflow(m->rows, m->value_stride, &values) || values > SIZE_MAX / 2)
        return fp8q_fail(err, FP8Q_E_ARG, "matrix",
                         "struct fp8q_matrix: %llu x %llu does not fit into memory",
                         (unsigned long long)m->rows, (unsigned long long)m->cols);
    return FP8Q_OK;
}

int fp8q_matrix_scales(const struct fp8q_matrix *matrix, uint64_t shape[2], struct fp8q_error *err)
{
    struct fp8q_matrix m;
    FP8Q_TRY(fp8q_require(shape, "shape_out", err));
    shape[0] = shape[1] = 0;
    FP8Q_TRY(open_matrix(matrix, &m, err));

    fp8q_grid_shape(fp8q_scheme_grid(m.scheme), m.rows, m.cols, shape);
    return FP8Q_OK;
}

static int open_job(const struct fp8q_matrix *matrix, struct job *job, struct fp8q_error *err)
{
    uint64_t grid[2];
    FP8Q_TRY(open_matrix(matrix, &job->m, err));
    if (job->m.rows == 0 || job->m.cols == 0)
        return FP8Q_OK; /* no bytes, so no pointers either */
    FP8Q_TRY(fp8q_require(job->floats, "floats", err));
    FP8Q_TRY(fp8q_require(job->values, "values", err));
    FP8Q_TRY(fp8q_require(job->scales, "scales", err));

    (void)fp8q_float_of(job->m.dtype, &job->from);
    job->float_size = job->from == FP8Q_FLOAT_F32 ? 4 : 2;
    fp8q_grid_shape(fp8q_scheme_grid(job->m.scheme), job->m.rows, job->m.cols, grid);
    job->grid_cols = grid[1];
    return FP8Q_OK;
}

static uint64_t n_tasks(const struct job *job)
{
    return job->m.cols ? fp8q_ceil_div(job->m.rows, FP8Q_BLOCK) : 0;
}

/* First row of the task and the one after its last.  */
static void rows_of(const struct job *job, uint64_t task, uint64_t *first, uint64_t *end)
{
    *first = task * FP8Q_BLOCK;
    *end = fp8q_min_u64(*first + FP8Q_BLOCK, job->m.rows);
}

static char *floats_at(const struct job *job, uint64_t row, uint64_t col)
{
    return job->floats + (row * job->m.row_stride + col) * job->float_size;
}

static uint8_t *values_at(const struct job *job, uint64_t row, uint64_t col)
{
    return job->values + row * job->m.value_stride + col;
}

/* @n columns of one row, as block.h takes them.  */
static struct fp8q_stripe view_of(const struct job *job, uint64_t row, uint64_t col, uint64_t n)
{
    return (struct fp8q_stripe){
        .src = floats_at(job, row, col), .from = job->from, .n_rows = 1, .n_cols = n};
}

/* ---- quantize -------------------------------------------------------------------------------- */

/* Rows [@row, @end) are known to hold a NaN or Inf from column @col on.  */
static int fail_nonfinite(const struct job *job, uint64_t row, uint64_t end, uint64_t col,
                          uint64_t n, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    uint64_t unused, found = 0;

    for (; row < end; row++) {
        struct fp8q_stripe view = view_of(job, row, col, n);
        if (fp8q_stripe_nonfinite(&view, &unused, &found))
            break;
    }
    return fp8q_fail(err, FP8Q_E_FORMAT, "non-finite",
                     "%s: NaN or Inf at [%llu, %llu]; a matrix to quantize must be finite",
                     fp8q_show(&shown, name_of(job)), (unsigned long long)row,
                     (unsigned long long)(col + found));
}

static int quantize_panel(const struct job *job, uint64_t first, uint64_t end, uint64_t col,
                          uint64_t n, struct fp8q_error *err)
{
    uint32_t amax[PANEL_BLOCKS] = {0}, of_row[PANEL_BLOCKS];
    size_t n_blocks = (size_t)fp8q_ceil_div(n, FP8Q_BLOCK);
    float *scales = job->scales + first / FP8Q_BLOCK * job->grid_cols + col / FP8Q_BLOCK;

    for (uint64_t row = first; row < end; row++) {
        struct fp8q_stripe view = view_of(job, row, col, n);
        fp8q_stripe_amax(job->kernel, &view, of_row);
        /* Patterns of magnitudes, with NaN above all, order as the numbers do.  */
        for (size_t i = 0; i < n_blocks; i++)
            amax[i] = of_row[i] > amax[i] ? of_row[i] : amax[i];
    }

    for (size_t i = 0; i < n_blocks; i++) {
        float value;
        if (!fp8q_amax_value(job->from, amax[i], &value))
            return fail_nonfinite(job, first, end, col, n, err);
        scales[i] = fp8q_scale(value, job->m.scale_fmt);
    }

    for (uint64_t row = first; row < end; row++) {
        struct fp8q_stripe view = view_of(job, row, col, n);
        fp8q_stripe_encode(job->kernel, &view, scales, values_at(job, row, col));
    }
    return FP8Q_OK;
}

static int quantize_blocks(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *job = ctx;
    uint64_t first, end;
    (void)worker;
    rows_of(job, task, &first, &end);

    for (uint64_t col = 0; col < job->m.cols; col += PANEL)
        FP8Q_TRY(quantize_panel(job, first, end, col, fp8q_min_u64(job->m.cols - col, PANEL), err));
    return FP8Q_OK;
}

static void encode_row(const struct job *job, uint64_t row, float scale)
{
    job->kernel->encode[job->from](values_at(job, row, 0), floats_at(job, row, 0),
                                   (size_t)job->m.cols, scale);
}

static int quantize_rows(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *job = ctx;
    uint64_t row, end;
    (void)worker;

    for (rows_of(job, task, &row, &end); row < end; row++) {
        float value;
        uint32_t bits =
            job->kernel->amax_bits[job->from](floats_at(job, row, 0), (size_t)job->m.cols);
        if (!fp8q_amax_value(job->from, bits, &value))
            return fail_nonfinite(job, row, row + 1, 0, job->m.cols, err);
        job->scales[row] = fp8q_scale(value, job->m.scale_fmt);
        encode_row(job, row, job->scales[row]);
    }
    return FP8Q_OK;
}

/* MXFP8: the exponents become floats, as all scales are here.  */
static int quantize_groups(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *job = ctx;
    uint8_t exponents[PANEL / FP8Q_GROUP];
    uint64_t row, end;
    (void)worker;

    for (rows_of(job, task, &row, &end); row < end; row++)
        for (uint64_t col = 0; col < job->m.cols; col += PANEL) {
            uint64_t n = fp8q_min_u64(job->m.cols - col, PANEL);
            float *scales = job->scales + row * job->grid_cols + col / FP8Q_GROUP, value;
            uint32_t bits = job->kernel->encode_groups[job->from](
                values_at(job, row, col), exponents, floats_at(job, row, col), (size_t)n);
            if (!fp8q_amax_value(job->from, bits, &value))
                return fail_nonfinite(job, row, row + 1, col, n, err);
            for (uint64_t i = 0; i < fp8q_ceil_div(n, FP8Q_GROUP); i++)
                scales[i] = fp8q_e8m0_value(exponents[i]);
        }
    return FP8Q_OK;
}

/* One scale in all needs the amax of all first.  */
static int measure_rows(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct job *job = ctx;
    uint64_t row, end;
    uint32_t most = 0;
    float value;
    (void)worker;

    for (rows_of(job, task, &row, &end); row < end; row++) {
        uint32_t bits =
            job->kernel->amax_bits[job->from](floats_at(job, row, 0), (size_t)job->m.cols);
        if (!fp8q_amax_value(job->from, bits, &value))
            return fail_nonfinite(job, row, row + 1, 0, job->m.cols, err);
        most = bits > most ? bits : most;
    }

    /* The largest is the same in whatever order the workers come.  */
    uint32_t seen = atomic_load(&job->amax_bits);
    while (most > seen && !atomic_compare_exchange_weak(&job->amax_bits, &seen, most))
        continue;
    return FP8Q_OK;
}

static int encode_rows(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *job = ctx;
    uint64_t row, end;
    (void)worker;
    (void)err;

    for (rows_of(job, task, &row, &end); row < end; row++)
        encode_row(job, row, job->scales[0]);
    return FP8Q_OK;
}

static int quantize_tensor(struct job *job, const struct fp8q_manner *manner,
                           struct fp8q_error *err)
{
    float value = 0;
    FP8Q_TRY(fp8q_pool_run(&manner->watch, manner->threads, n_tasks(job), measure_rows, job, err));

    (void)fp8q_amax_value(job->from, atomic_load(&job->amax_bits), &value);
    job->scales[0] = fp8q_scale(value, job->m.scale_fmt);
    return fp8q_pool_run(&manner->watch, manner->threads, n_tasks(job), encode_rows, job, err);
}

int fp8q_matrix_quantize(const struct fp8q_matrix *matrix, const void *floats, uint8_t *values,
                         float *scales, const struct fp8q_run *run, struct fp8q_error *err)
{
    struct job job = {
        .floats = (char *)(uintptr_t)floats, /* only read */
        .values = values,
        .scales = scales,
    };
    struct fp8q_manner manner;
    FP8Q_TRY(open_job(matrix, &job, err));
    FP8Q_TRY(fp8q_manner_of(run, &manner, err));
    job.kernel = manner.kernel;

    if (n_tasks(&job) == 0)
        return FP8Q_OK;
    if (job.m.scheme == FP8Q_SCHEME_TENSOR)
        return quantize_tensor(&job, &manner, err);
    fp8q_task_fn *task = quantize_rows;
    if (job.m.scheme == FP8Q_SCHEME_BLOCK)
        task = quantize_blocks;
    if (job.m.scheme == FP8Q_SCHEME_GROUP)
        task = quantize_groups;
    return fp8q_pool_run(&manner.watch, manner.threads, n_tasks(&job), task, &job, err);
}

/* ---- dequantize ------------------------------------------------------------------------------ */

/* Index of the scale of a block of row @row that begins at @col.  */
static uint64_t scale_index(const struct job *job, uint64_t row, uint64_t col)
{
    switch (job->m.scheme) {
    case FP8Q_SCHEME_BLOCK:
        return row / FP8Q_BLOCK * job->grid_cols + col / FP8Q_BLOCK;
    case FP8Q_SCHEME_CHANNEL:
        return row;
    case FP8Q_SCHEME_GROUP:
        return row * job->grid_cols + col / FP8Q_GROUP;
    case FP8Q_SCHEME_TENSOR:
    case FP8Q_SCHEME_STATIC:
        break;
    }
    return 0;
}

/* A scale of 0 is good for zeros only; other tools write it for blocks that hold nothing else.  */
static int check_scale(const struct job *job, uint64_t index, const uint8_t *values, size_t n,
                       struct fp8q_error *err)
{
    float scale = job->scales[index];
    struct fp8q_shown shown;
    unsigned most = 0;

    if (scale > 0 && !isinf(scale))
        return FP8Q_OK;
    if (scale == 0) {
        (void)job->kernel->scan_codes(values, n, &most);
        if (most == 0)
            return FP8Q_OK;
    }
    return fp8q_fail(err, FP8Q_E_FORMAT, "scale-value",
                     "%s: scale number %llu is %g, expected a positive, finite one",
                     fp8q_show(&shown, name_of(job)), (unsigned long long)index, (double)scale);
}

static int dequantize_rows(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *job = ctx;
    float wide[FP8Q_BLOCK];
    uint64_t row, end;
    (void)worker;

    uint64_t step = job->m.scheme == FP8Q_SCHEME_GROUP ? FP8Q_GROUP : FP8Q_BLOCK;
    for (rows_of(job, task, &row, &end); row < end; row++)
        for (uint64_t col = 0; col < job->m.cols; col += step) {
            size_t n = (size_t)fp8q_min_u64(job->m.cols - col, step);
            uint64_t index = scale_index(job, row, col);
            const uint8_t *values = values_at(job, row, col);

            FP8Q_TRY(check_scale(job, index, values, n, err));
            /* Through F32, so that a value beyond the caller's type is noticed.  */
            job->kernel->decode[FP8Q_FLOAT_F32](wide, values, n, job->scales[index]);
            FP8Q_TRY(fp8q_store_floats(wide, n, job->m.dtype, floats_at(job, row, col),
                                       name_of(job), err));
        }
    return FP8Q_OK;
}

int fp8q_matrix_dequantize(const struct fp8q_matrix *matrix, const uint8_t *values,
                           const float *scales, void *floats, const struct fp8q_run *run,
                           struct fp8q_error *err)
{
    struct job job = {
        .floats = floats,
        .values = (uint8_t *)(uintptr_t)values, /* only read */
        .scales = (float *)(uintptr_t)scales,
    };
    struct fp8q_manner manner;
    FP8Q_TRY(open_job(matrix, &job, err));
    FP8Q_TRY(fp8q_manner_of(run, &manner, err));
    job.kernel = manner.kernel;

    if (n_tasks(&job) == 0)
        return FP8Q_OK;
    return fp8q_pool_run(&manner.watch, manner.threads, n_tasks(&job), dequantize_rows, &job, err);
}
