/* SPDX-License-Identifier: Apache-2.0
 *
 * panel.c - one stripe of an output beside its source.
 *
 * A stripe (128 rows) of an FP8 weight is taken in panels: all its rows, and as many of its columns
 * as the memory allows, mostly all.  A panel is read in chunks of rows that stay in the cache:
 *
 *     chunk: weights of the source, FP8 values of the output
 *       amax of each block of columns so far
 *       each row of a block: FP8 values derived again with the stored scale; the bound; the sums
 *     end of the panel: the scale of each block derived again from its amax
 *
 * So everything is read once.  Only the checks of what GPTQ rounded need the whole panel at the
 * end.
 */
#include <math.h>
#include <string.h>

#include "base/crc.h"
#include "base/io.h"
#include "base/mem.h"
#include "kernel/e8m0.h"
#include "verify/internal.h"

enum {
    MOST_BLOCKS = 1024, /* of a panel */
    MOST_COLS = MOST_BLOCKS * FP8Q_BLOCK,
    MOST_GROUPS = MOST_COLS / FP8Q_GROUP, /* of a row of MXFP8 in a panel */
    CHUNK = 256 << 10,                    /* bytes of the source */
};

struct panel {
    uint64_t col, n_cols;   /* of the piece */
    enum fp8q_float from;   /* of @values */
    unsigned value_size;    /* bytes */
    bool stays;             /* chunks do not take each other's place */
    char *raw;              /* as the source has it */
    float *wide;            /* an FP8 source decoded, else NULL */
    uint8_t *codes, *again; /* as stored; as derived */
    char *rest;             /* memory behind them */
    uint32_t amax[MOST_BLOCKS];
    struct fp8q_error_sums sums; /* of what had to be looked at element by element ... */
    struct fp8q_noise noise;     /* ... and of what was equal */
    bool other_codes, beyond;    /* said once a stripe: where one differs, most do */
};

/* Some rows of a panel.  */
struct rows {
    uint64_t row; /* of the piece */
    uint32_t n;
    const char *values;
    const uint8_t *codes;
};

static void note(const struct fp8q_compare_job *job, struct fp8q_findings *f, const char *where,
                 const char *fmt, uint64_t row, uint64_t col)
{
    pthread_mutex_lock(&job->all->lock);
    fp8q_findings_add(f, job->stripe, where, fmt, (unsigned long long)row, (unsigned long long)col);
    pthread_mutex_unlock(&job->all->lock);
}

static const char *output_name(const struct fp8q_compare_job *job)
{
    return job->all->plan->tensors[job->piece->output].name;
}

static void add_source_bytes(struct fp8q_stripe_found *found, const char *bytes, size_t n)
{
    found->crc = fp8q_crc32(found->crc, bytes, n);
    found->n_bytes += n;
}

/* ---- left unquantized ------------------------------------------------------------------------ */

int fp8q_compare_kept(const struct fp8q_compare_job *job, struct fp8q_error *err)
{
    struct fp8q_comparison *c = job->all;
    /* A piece that is copied counts bytes as columns; its stripes are FP8Q_COPY_BYTES each.  */
    uint64_t start = (job->stripe - job->piece->first_stripe) * FP8Q_COPY_BYTES;
    uint64_t end = fp8q_min_u64(job->piece->n_cols, start + FP8Q_COPY_BYTES);
    struct fp8q_stripe_found *found = &c->stripes[job->stripe];
    char *a = job->worker->memory, *b = a + CHUNK;

    for (uint64_t at = start; at < end; at += CHUNK) {
        size_t n = (size_t)fp8q_min_u64(end - at, CHUNK), i = 0;
        FP8Q_TRY(fp8q_pread(job->src_fd, a, n, job->source->offset + at, job->src_path, err));
        FP8Q_TRY(fp8q_pread(job->dst_fd, b, n, job->output->offset + at, job->dst_path, err));
        FP8Q_TRY(fp8q_payload_look(c->payload, job->worker->number, job->output, at, b, n, err));
        add_source_bytes(found, a, n);
        if (memcmp(a, b, n) == 0)
            continue;

        /* Only where it begins is said: of a tensor that was shifted nearly every byte differs.  */
        while (a[i] == b[i])
            i++;
        note(job, &c->kept, job->source->name, "differs from byte %llu on", at + i, 0);
    }
    return FP8Q_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Where rows of one of the two tensors come from.  */
struct side {
    int fd;
    const char *path;
    const struct fp8q_tensor *tensor;
    uint64_t n_cols;
};

static struct side source_side(const struct fp8q_compare_job *job, const struct fp8q_piece *piece)
{
    return (struct side){job->src_fd, job->src_path, job->source, piece->n_cols};
}

static struct side output_side(const struct fp8q_compare_job *job, const struct fp8q_piece *piece)
{
    return (struct side){job->dst_fd, job->dst_path, job->output, piece->n_cols};
}

/* @n_rows rows from @row of the tensor on, of each the columns of @v.  */
static int read_rows(const struct side *from, const struct panel *v, uint64_t row, uint32_t n_rows,
                     void *out, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = from->tensor;
    const char *path = from->path;
    uint64_t size = fp8q_dtype_bits(t->dtype) / 8, n_cols = from->n_cols;
    int fd = from->fd;

    /* Whole rows are one run of bytes in the file.  */
    if (v->n_cols == n_cols)
        return fp8q_pread(fd, out, (size_t)(n_rows * n_cols * size),
                          t->offset + row * n_cols * size, path, err);

    for (uint32_t r = 0; r < n_rows; r++)
        FP8Q_TRY(fp8q_pread(fd, (char *)out + r * v->n_cols * size, (size_t)(v->n_cols * size),
                            t->offset + ((row + r) * n_cols + v->col) * size, path, err));
    return FP8Q_OK;
}

/* ---- scales and FP8 values derived again ----------------------------------------------------- */

/* The scale at [row, col] of the piece, from the amax of what it scales.  */
static void check_scale(const struct fp8q_compare_job *job, const struct panel *v, uint64_t row,
                        uint64_t col, uint32_t amax_bits)
{
    struct fp8q_comparison *c = job->all;
    float amax, stored = fp8q_weights_scale(&job->worker->output, row, col);

    /* Where the source has infinities or NaN there is no scale to compare with.  */
    if (!fp8q_amax_value(v->from, amax_bits, &amax)) {
        note(job, &c->bound, output_name(job), "the source is not finite near [%llu, %llu]", row,
             col);
        return;
    }

    bool groups = job->piece->scheme == FP8Q_SCHEME_GROUP;
    float scale = fp8q_scale(amax, groups ? FP8Q_SCALE_UE8M0 : c->plan->options.scale_fmt);
    /* As bits: a difference in the last place is one.  */
    if (!fp8q_same_bits(scale, stored))
        note(job, &c->scales, c->plan->tensors[job->piece->scale].name,
             "scale of the block at [%llu, %llu] is not what the source gives", row, col);
}

/* @n elements of row @r from column @col of the panel on, which share a scale.  */
static void check_values(const struct fp8q_compare_job *job, struct panel *v,
                         const struct rows *rows, uint32_t r, uint64_t col, size_t n)
{
    struct fp8q_comparison *c = job->all;
    const struct fp8q_kernel *k = c->options->kernel;
    bool gptq = c->gptq[job->piece - c->plan->pieces];
    size_t at = (size_t)(r * v->n_cols + col);
    uint64_t row = rows->row + r;
    const char *values = rows->values + at * v->value_size;
    float scale = fp8q_weights_scale(&job->worker->output, row, v->col + col);

    /* What another tool or GPTQ rounded need not be the nearest value.  */
    if (c->same_rules && !gptq) {
        k->encode[v->from](v->again, values, n, scale);
        bool differs = memcmp(v->again, rows->codes + at, n) != 0;
        if (differs && !v->other_codes)
            note(job, &c->codes, output_name(job),
                 "FP8 values of row %llu from column %llu on are not what the source gives", row,
                 v->col + col);
        v->other_codes |= differs;
    }

    /* The sums are wanted for GPTQ too, though its elements are not held to the bound.  */
    size_t beyond = k->check[v->from](values, rows->codes + at, n, scale, c->factor, &v->sums);
    if (beyond && !gptq && !v->beyond)
        note(job, &c->bound, output_name(job), "row %llu near column %llu is beyond the bound", row,
             v->col + col);
    v->beyond |= beyond > 0;
}

static void raise_amax(const struct fp8q_compare_job *job, struct panel *v, const struct rows *rows)
{
    struct fp8q_stripe chunk = {rows->values, v->from, rows->n, v->n_cols};
    uint32_t of_chunk[MOST_BLOCKS];
    fp8q_stripe_amax(job->all->options->kernel, &chunk, of_chunk);

    /* A block spans all rows of the stripe, a chunk only some of them.  */
    for (uint64_t i = 0; i < fp8q_ceil_div(v->n_cols, FP8Q_BLOCK); i++)
        v->amax[i] = of_chunk[i] > v->amax[i] ? of_chunk[i] : v->amax[i];
}

/* What a chunk has in one call: a block at a time, each with the scale as stored.  Scales per row
 * change with every row: no two of them share a call.  */
static uint32_t rows_at_once(const struct fp8q_compare_job *job, const struct rows *rows)
{
    return job->worker->output.scaling == FP8Q_SCALING_ROW ? 1 : rows->n;
}

/* All FP8 values of a chunk again.  */
static void derive_values(const struct fp8q_compare_job *job, const struct panel *v,
                          const struct rows *rows)
{
    const struct fp8q_weights *output = &job->worker->output;
    const struct fp8q_kernel *k = job->all->options->kernel;
    uint32_t at_once = rows_at_once(job, rows);

    for (uint64_t col = 0, n; col < v->n_cols; col += n) {
        n = fp8q_min_u64(fp8q_weights_run(output, v->col + col), v->n_cols - col);
        for (uint32_t r = 0; r < rows->n; r += at_once) {
            size_t at = (size_t)(r * v->n_cols + col);
            k->encode_rows[v->from](v->again + at, rows->values + at * v->value_size, at_once,
                                    (size_t)n, (size_t)v->n_cols,
                                    fp8q_weights_scale(output, rows->row + r, v->col + col));
        }
    }
}

/* The stored scales of MXFP8 of a row, from the first group of the panel on.  */
static const float *group_scales(const struct fp8q_compare_job *job, const struct panel *v,
                                 uint64_t row)
{
    return fp8q_weights_row_scales(&job->worker->output, row) + v->col / FP8Q_GROUP;
}

/* The noise of MXFP8, whose scales change within a row.  */
static void add_noise_of_groups(const struct fp8q_compare_job *job, struct panel *v,
                                const struct rows *rows)
{
    const struct fp8q_kernel *k = job->all->options->kernel;

    for (uint32_t r = 0; r < rows->n; r++) {
        size_t at = (size_t)(r * v->n_cols);
        k->add_noise_groups[v->from](rows->values + at * v->value_size, rows->codes + at,
                                     group_scales(job, v, rows->row + r), (size_t)v->n_cols,
                                     &v->noise);
    }
}

/* The noise of a chunk, whose values are the nearest.  */
static void add_noise(const struct fp8q_compare_job *job, struct panel *v, const struct rows *rows)
{
    const struct fp8q_weights *output = &job->worker->output;
    const struct fp8q_kernel *k = job->all->options->kernel;
    uint32_t at_once = rows_at_once(job, rows);

    for (uint64_t col = 0, n; col < v->n_cols; col += n) {
        n = fp8q_min_u64(fp8q_weights_run(output, v->col + col), v->n_cols - col);
        for (uint32_t r = 0; r < rows->n; r += at_once) {
            size_t at = (size_t)(r * v->n_cols + col);
            k->add_noise_rows[v->from](rows->values + at * v->value_size, rows->codes + at, at_once,
                                       (size_t)n, (size_t)v->n_cols,
                                       fp8q_weights_scale(output, rows->row + r, v->col + col),
                                       &v->noise);
        }
    }
}

/* The same for MXFP8, whose scales come with the FP8 values; false if one differs.  */
static bool derive_groups(const struct fp8q_compare_job *job, const struct panel *v,
                          const struct rows *rows)
{
    const struct fp8q_kernel *k = job->all->options->kernel;
    size_t n = (size_t)fp8q_ceil_div(v->n_cols, FP8Q_GROUP);
    uint8_t exponents[MOST_GROUPS];

    for (uint32_t r = 0; r < rows->n; r++) {
        size_t at = (size_t)(r * v->n_cols);
        uint32_t bits = k->encode_groups[v->from](
            v->again + at, exponents, rows->values + at * v->value_size, (size_t)v->n_cols);
        float amax;
        if (!fp8q_amax_value(v->from, bits, &amax))
            return false;
        const float *stored = group_scales(job, v, rows->row + r);
        for (size_t i = 0; i < n; i++)
            if (fp8q_e8m0_value(exponents[i]) != stored[i])
                return false;
    }
    return true;
}

/* Whether a chunk holds what the source gives.  Then it keeps the bound too: rounding to the
 * nearest does (docs/reference/numerics.md), and only the noise is left to be summed up.  */
static bool is_derived(const struct fp8q_compare_job *job, struct panel *v, const struct rows *rows)
{
    if (job->piece->scheme != FP8Q_SCHEME_GROUP)
        derive_values(job, v, rows);
    else if (!derive_groups(job, v, rows))
        return false;
    if (memcmp(v->again, rows->codes, (size_t)(rows->n * v->n_cols)) != 0)
        return false;

    if (job->piece->scheme == FP8Q_SCHEME_GROUP)
        add_noise_of_groups(job, v, rows);
    else
        add_noise(job, v, rows);
    return true;
}

static void check_row_scales(const struct fp8q_compare_job *job, struct panel *v,
                             const struct rows *rows)
{
    const struct fp8q_kernel *k = job->all->options->kernel;

    for (uint32_t r = 0; r < rows->n; r++) {
        const char *row = rows->values + r * (size_t)v->n_cols * v->value_size;
        check_scale(job, v, rows->row + r, v->col, k->amax_bits[v->from](row, (size_t)v->n_cols));
    }
}

/* One scale for a tensor, and for what shares it, waits for all of their stripes (source.c).  */
static void raise_tensor_amax(const struct fp8q_compare_job *job, const struct panel *v,
                              const struct rows *rows)
{
    struct fp8q_stripe_found *found = &job->all->stripes[job->stripe];
    float amax;
    uint32_t bits =
        job->all->options->kernel->amax_bits[v->from](rows->values, (size_t)(rows->n * v->n_cols));

    /* Infinity stands for all that is not finite: no stored scale goes with it.  */
    if (!fp8q_amax_value(v->from, bits, &amax))
        amax = INFINITY;
    found->amax = amax > found->amax ? amax : found->amax;
    found->scale = fp8q_weights_scale(&job->worker->output, 0, 0);
}

/* Of MXFP8 that is not what the source gives: which scales are not.  */
static void check_group_scales(const struct fp8q_compare_job *job, struct panel *v,
                               const struct rows *rows)
{
    const struct fp8q_kernel *k = job->all->options->kernel;

    for (uint32_t r = 0; r < rows->n; r++)
        for (uint64_t col = 0; col < v->n_cols; col += FP8Q_GROUP) {
            const char *group = rows->values + (r * v->n_cols + col) * v->value_size;
            size_t n = (size_t)fp8q_min_u64(v->n_cols - col, FP8Q_GROUP);
            check_scale(job, v, rows->row + r, v->col + col, k->amax_bits[v->from](group, n));
        }
}

static void check_rows(const struct fp8q_compare_job *job, struct panel *v, const struct rows *rows)
{
    struct fp8q_comparison *c = job->all;
    bool gptq = c->gptq[job->piece - c->plan->pieces];

    if (c->same_rules && job->piece->scheme == FP8Q_SCHEME_TENSOR)
        raise_tensor_amax(job, v, rows);

    /* The amax of a row is known only where the panel holds whole rows.  */
    if (c->same_rules && job->piece->scheme == FP8Q_SCHEME_CHANNEL &&
        v->n_cols == job->piece->n_cols)
        check_row_scales(job, v, rows);

    /* The quick way: of a chunk that is equal no single element need be judged.  */
    if (c->same_rules && !gptq && is_derived(job, v, rows))
        return;
    if (c->same_rules && job->piece->scheme == FP8Q_SCHEME_GROUP)
        check_group_scales(job, v, rows);

    for (uint32_t r = 0; r < rows->n; r++)
        for (uint64_t col = 0, n; col < v->n_cols; col += n) {
            n = fp8q_min_u64(fp8q_weights_run(&job->worker->output, v->col + col), v->n_cols - col);
            check_values(job, v, rows, r, col, (size_t)n);
        }
}

/* ---- what GPTQ rounded ----------------------------------------------------------------------- */

/* One row of a block: sums of squares of its errors, and of the bounds of its elements.  */
static void add_row_errors(const struct fp8q_compare_job *job, const struct panel *v, uint32_t r,
                           uint64_t col, size_t n, double sums[2])
{
    const struct fp8q_kernel *k = job->all->options->kernel;
    const char *values = v->wide ? (const char *)v->wide : v->raw;
    size_t at = (size_t)(r * v->n_cols + col);
    float weight[FP8Q_BLOCK], value[FP8Q_BLOCK];

    k->to_f32[v->from](weight, values + at * v->value_size, n);

    for (size_t i = 0, run; i < n; i += run) {
        uint64_t left = fp8q_weights_run(&job->worker->output, v->col + col + i);
        float scale = fp8q_weights_scale(&job->worker->output, job->row + r, v->col + col + i);
        run = (size_t)fp8q_min_u64(left, n - i);
        k->decode[FP8Q_FLOAT_F32](value, v->codes + at + i, run, scale);
        for (size_t j = 0; j < run; j++) {
            double d = (double)weight[i + j] - (double)value[j];
            /* Half a step of E4M3: 1/16 of a normal number, 2^-10 scales of a subnormal one.  */
            double bound = fmax(fabs((double)weight[i + j]) / 16, (double)scale * 0x1p-10);
            sums[0] += d * d;
            sums[1] += bound * bound;
        }
    }
}

/* GPTQ gives up the bound of single elements for a smaller output error.  What holds is stated for
 * a block: the sum of squared errors is at most 4 times that of the single bounds.  */
static void check_block_bounds(const struct fp8q_compare_job *job, const struct panel *v)
{
    for (uint64_t col = 0; col < v->n_cols; col += FP8Q_BLOCK) {
        size_t n = (size_t)fp8q_min_u64(v->n_cols - col, FP8Q_BLOCK);
        double sums[2] = {0, 0};

        for (uint32_t r = 0; r < job->n_rows; r++)
            add_row_errors(job, v, r, col, n, sums);

        /* Put so that NaN is beyond the bound.  */
        if (!(sums[0] <= 4 * sums[1]))
            note(job, &job->all->block_bound, output_name(job),
                 "block at [%llu, %llu] is beyond its bound", job->row, v->col + col);
    }
}

/* Rounds a stripe again; @v holds whole rows.  */
static int derive_gptq(const struct fp8q_compare_job *job, const struct panel *v,
                       struct fp8q_error *err)
{
    struct fp8q_comparison *c = job->all;
    size_t n = (size_t)(job->n_rows * v->n_cols);
    uint64_t grid_cols = fp8q_ceil_div(v->n_cols, FP8Q_BLOCK);
    const float *scales = job->worker->output.scales + job->row / FP8Q_BLOCK * grid_cols;
    float *widened = (float *)(void *)v->rest;
    /* 128 rows in F32 come first, whether or not they are needed.  */
    char *scratch = v->rest + FP8Q_BLOCK * v->n_cols * sizeof(float);
    const float *values = v->wide;

    /* GPTQ takes F32: what was not decoded is widened.  */
    if (!values) {
        c->options->kernel->to_f32[v->from](widened, v->raw, n);
        values = widened;
    }

    const struct fp8q_hessian *hessian;
    FP8Q_TRY(fp8q_rounding_acquire(&c->rounding, job->piece->source, &hessian, err));
    struct fp8q_gptq_stripe stripe = {hessian,     c->options->kernel, c->rounding.gemm, values,
                                      job->n_rows, v->n_cols,          scales,           scratch};
    int status = fp8q_gptq_encode(&stripe, v->again, err);
    /* Given back before the status is looked at, so that a failure does not hold it.  */
    fp8q_rounding_release(&c->rounding, job->piece->source);
    FP8Q_TRY(status);

    if (memcmp(v->again, v->codes, n) != 0)
        note(job, &c->codes, output_name(job),
             "FP8 values of rows %llu to %llu are not what GPTQ gives with this calibration",
             job->row, job->row + job->n_rows - 1);
    return FP8Q_OK;
}

/* ---- a panel --------------------------------------------------------------------------------- */

uint64_t fp8q_compare_memory(const struct fp8q_comparison *all)
{
    uint64_t plain = (uint64_t)8 * CHUNK; /* what open_panel() and fp8q_compare_float() share out */
    uint64_t bytes = fp8q_max_u64(plain, all->plan->stripe_bytes) + 64;

    /* For each element of a stripe at most 4 bytes raw, 4 decoded, 4 widened, and two FP8
     * values.  */
    if (all->derives_gptq)
        bytes += fp8q_plan_widest_row(all->plan) * FP8Q_BLOCK * 14 + fp8q_gptq_scratch();
    else if (all->holds_rows)
        bytes += fp8q_plan_widest_row(all->plan) * FP8Q_BLOCK * 10;
    return bytes;
}

static char *aligned(char *p)
{
    return p + (64 - (uintptr_t)p % 64) % 64;
}

/* Shares the worker's memory out, and sets the width of the panels.  */
static int open_panel(const struct fp8q_compare_job *job, struct panel *v, struct fp8q_error *err)
{
    const struct fp8q_comparison *c = job->all;
    unsigned in = fp8q_dtype_bits(job->source->dtype) / 8;
    bool decodes = !fp8q_float_of(job->source->dtype, &v->from);
    uint64_t per_column = FP8Q_BLOCK * ((uint64_t)in + 1 + (decodes ? 4 : 0));
    uint64_t n_cols = job->piece->n_cols, cells = CHUNK;
    struct fp8q_shown shown;

    v->stays = c->gptq[job->piece - c->plan->pieces];
    v->value_size = decodes ? 4 : in;
    v->n_cols = fp8q_min_u64(n_cols, MOST_COLS);

    /* To round again takes whole rows: GPTQ carries the error of a column into those behind it.  */
    if (v->stays && c->derives_gptq && n_cols > MOST_COLS)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "too-wide",
                         "tensor \"%s\": GPTQ ends before %llu columns",
                         fp8q_show(&shown, job->source->name), (unsigned long long)n_cols);

    /* The bound of a block takes all its rows, but not all columns: as many as there is memory
     * for.  */
    if (v->stays && !c->derives_gptq && job->piece->scheme == FP8Q_SCHEME_BLOCK)
        v->n_cols =
            fp8q_min_u64(v->n_cols, c->plan->stripe_bytes / per_column / FP8Q_BLOCK * FP8Q_BLOCK);

    /* What is judged at the end of the panel must still be there: all 128 rows of it.  */
    if (v->stays)
        cells = FP8Q_BLOCK * v->n_cols;

    /* F32 values first: they need the strictest alignment.  */
    v->wide = decodes ? (float *)(void *)job->worker->memory : NULL;
    v->raw = job->worker->memory + (decodes ? cells * sizeof(float) : 0);
    v->codes = (uint8_t *)v->raw + fp8q_max_u64(cells * in, (uint64_t)2 * CHUNK);
    v->again = v->codes + cells;
    v->rest = aligned((char *)v->again + cells);
    return FP8Q_OK;
}

/* Reads a panel and checks it on the way.  */
static int check_chunks(const struct fp8q_compare_job *job, struct panel *v, struct fp8q_error *err)
{
    struct fp8q_comparison *c = job->all;
    const struct fp8q_piece *p = job->piece;
    struct side source = source_side(job, p), output = output_side(job, p);
    uint64_t in = fp8q_dtype_bits(job->source->dtype) / 8;
    uint32_t rows_at_once = (uint32_t)fp8q_max_u64(CHUNK / (v->n_cols * in), 1);
    bool whole_rows = v->n_cols == p->n_cols;

    for (uint32_t r = 0, n; r < job->n_rows; r += n) {
        n = job->n_rows - r < rows_at_once ? job->n_rows - r : rows_at_once;
        size_t cells = v->stays ? (size_t)(r * v->n_cols) : 0;
        char *raw = v->raw + cells * in;
        uint8_t *codes = v->codes + cells;
        struct rows rows = {.row = job->row + r, .n = n, .values = raw, .codes = codes};

        /* A piece may begin in the middle of the source tensor, but is the whole of its output
         * tensor.  */
        FP8Q_TRY(read_rows(&source, v, p->first_row + rows.row, n, raw, err));
        FP8Q_TRY(read_rows(&output, v, rows.row, n, codes, err));

        if (v->wide) {
            float *wide = v->wide + cells;
            struct fp8q_tile tile = {p->first_row + rows.row, n, v->col, v->n_cols};
            FP8Q_TRY(fp8q_weights_decode(&job->worker->source, c->options->kernel, &tile,
                                         (const uint8_t *)raw, FP8Q_FLOAT_F32, wide, err));
            rows.values = (const char *)wide;
        }

        if (c->same_rules && p->scheme == FP8Q_SCHEME_BLOCK)
            raise_amax(job, v, &rows);
        check_rows(job, v, &rows);

        /* Parts of rows are no run of bytes: they are no part of a CRC-32 here, and payload.c reads
         * them itself.  */
        if (whole_rows)
            add_source_bytes(&c->stripes[job->stripe], raw, (size_t)(n * v->n_cols * in));
        if (whole_rows)
            FP8Q_TRY(fp8q_payload_look(c->payload, job->worker->number, job->output,
                                       rows.row * v->n_cols, codes, (size_t)(n * v->n_cols), err));
    }
    return FP8Q_OK;
}

static int check_panel(const struct fp8q_compare_job *job, struct panel *v, struct fp8q_error *err)
{
    struct fp8q_comparison *c = job->all;

    memset(v->amax, 0, sizeof(v->amax));
    FP8Q_TRY(check_chunks(job, v, err));

    /* Only now was every row of each block seen.  */
    if (c->same_rules && job->piece->scheme == FP8Q_SCHEME_BLOCK)
        for (uint64_t col = 0; col < v->n_cols; col += FP8Q_BLOCK)
            check_scale(job, v, job->row, v->col + col, v->amax[col / FP8Q_BLOCK]);

    if (v->stays && c->derives_gptq)
        return derive_gptq(job, v, err);
    if (v->stays)
        check_block_bounds(job, v);
    return FP8Q_OK;
}

int fp8q_compare_fp8(const struct fp8q_compare_job *job, struct fp8q_error *err)
{
    struct panel v = {.col = 0};
    FP8Q_TRY(open_panel(job, &v, err));

    /* All panels are as wide as the first, but for the last.  */
    for (uint64_t width = v.n_cols; v.col < job->piece->n_cols; v.col += width) {
        v.n_cols = fp8q_min_u64(job->piece->n_cols - v.col, width);
        FP8Q_TRY(check_panel(job, &v, err));
    }

    /* Each stripe has a place of its own: no lock is needed, and the sums do not depend on the
     * threads.  */
    job->all->stripes[job->stripe].w2 = v.noise.w2 + fp8q_error_total(v.sums.w2);
    job->all->stripes[job->stripe].d2 = v.noise.d2 + fp8q_error_total(v.sums.d2);
    return FP8Q_OK;
}

/* ---- float again ----------------------------------------------------------------------------- */

int fp8q_compare_float(const struct fp8q_compare_job *job, struct fp8q_error *err)
{
    struct fp8q_comparison *c = job->all;
    const struct fp8q_piece *p = job->piece;
    struct side source = source_side(job, p), output = output_side(job, p);
    enum fp8q_dtype to = job->output->dtype;
    unsigned out = fp8q_dtype_bits(to) / 8;
    struct panel v = {.col = 0};
    /* At most 13 bytes for each of MOST_COLS elements: less than fp8q_compare_memory() gives at
     * least.  */
    float *values = (float *)(void *)job->worker->memory;
    char *codes = (char *)(values + MOST_COLS), *again = codes + MOST_COLS;
    char *stored = again + (size_t)MOST_COLS * out;

    for (; v.col < p->n_cols; v.col += v.n_cols) {
        v.n_cols = fp8q_min_u64(p->n_cols - v.col, MOST_COLS);
        uint32_t rows_at_once = (uint32_t)(MOST_COLS / v.n_cols);
        for (uint32_t r = 0, n; r < job->n_rows; r += n) {
            n = job->n_rows - r < rows_at_once ? job->n_rows - r : rows_at_once;
            uint64_t row = job->row + r, from = p->first_row + row;
            size_t cells = (size_t)(n * v.n_cols);

            FP8Q_TRY(read_rows(&source, &v, from, n, codes, err));
            FP8Q_TRY(read_rows(&output, &v, row, n, stored, err));

            if (v.n_cols == p->n_cols)
                add_source_bytes(&c->stripes[job->stripe], codes, cells);

            struct fp8q_tile tile = {from, n, v.col, v.n_cols};
            FP8Q_TRY(fp8q_weights_decode(&job->worker->source, c->options->kernel, &tile,
                                         (const uint8_t *)codes, FP8Q_FLOAT_F32, values, err));
            FP8Q_TRY(fp8q_store_floats(values, cells, to, again, job->source->name, err));

            if (memcmp(again, stored, cells * out) != 0)
                note(job, &c->kept, job->source->name,
                     "differs in the rows from %llu, columns from %llu on", row, v.col);
        }
    }

    return FP8Q_OK;
}
