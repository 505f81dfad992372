/* SPDX-License-Identifier: Apache-2.0
 *
 * spread.c - GPTQ with the full Hessian, stripe by stripe of 128 rows.
 *
 * How it works.  Positions (factor.h) go from the last block of 128 to the first:
 *
 *     start_block    what the errors behind the block ask of it: one product of matrices
 *     round_block    its columns one after another, each error taken over by those before it
 *
 * Three passes over the weights of an input: plain values, and the guard's with the tokens to fit;
 * then those with all tokens, if they help.
 */
#include "calibration/spread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"

#define TILE ((size_t)FP8Q_BLOCK * FP8Q_BLOCK)

/* A worker's memory; all of [128 rows][n] unless it says something else.  */
struct area {
    float *w;                 /* weights in their own order */
    float *errors;            /* w - value, by position, then by channel */
    float *left, *right;      /* packed operands */
    float *product, *columns; /* [128][128]; columns by position, each [row] */
    float *negative; /* [128][128] factors of the block, with the sign that is subtracted */
    uint8_t *codes;
    float rounded[FP8Q_BLOCK];
};

struct spreading {
    const struct fp8q_spread_job *job;
    struct fp8q_factor factor;
    struct fp8q_weights *weights; /* by source */
    size_t n_open, n_cols, n_blocks;
    uint64_t n_stripes;
    struct area *areas;
    struct fp8q_gptq_error *sums; /* by stripe */
    bool *beyond;                 /* by stripe: a block breaks its bound */
    bool judge;                   /* the first passes: errors on held-out tokens are wanted */
};

/* ---- one stripe ------------------------------------------------------------------------------ */

struct stripe {
    const struct spreading *s;
    struct area *area;
    const struct fp8q_weights *weights;
    size_t source;
    const struct fp8q_coded *coded;
    uint64_t row;
    uint32_t n_rows;
};

static const struct fp8q_kernel *kernel_of(const struct stripe *t)
{
    return t->s->job->fw->kernel;
}

static struct stripe find_stripe(const struct spreading *s, unsigned worker, uint64_t task)
{
    struct stripe t = {.s = s, .area = &s->areas[worker]};
    size_t i = 0;

    /* Stripes are numbered through all tensors.  */
    for (; task >= fp8q_ceil_div(s->weights[i].n_rows, FP8Q_BLOCK); i++)
        task -= fp8q_ceil_div(s->weights[i].n_rows, FP8Q_BLOCK);
    t.weights = &s->weights[i];
    t.source = s->job->sources[i];
    t.row = task * FP8Q_BLOCK;
    t.n_rows = (uint32_t)fp8q_min_u64(t.weights->n_rows - t.row, FP8Q_BLOCK);
    t.coded = &s->job->codes->of[t.source];
    return t;
}

/* Scale of row @r of the stripe.  */
static float *scale_at(const struct stripe *t, uint32_t r, size_t col)
{
    return fp8q_coded_scale(t->coded, t->row + r, col);
}

static size_t run_at(const struct stripe *t, size_t col)
{
    return (size_t)fp8q_coded_run(t->coded, t->s->n_cols, col);
}

static bool find_block_scales(const struct stripe *t)
{
    uint32_t *amax = (uint32_t *)(void *)t->area->product;
    const struct fp8q_stripe view = {
        .src = t->area->w, .from = FP8Q_FLOAT_F32, .n_rows = t->n_rows, .n_cols = t->s->n_cols};
    fp8q_stripe_amax(kernel_of(t), &view, amax);
    return fp8q_block_scales(FP8Q_FLOAT_F32, amax, t->s->n_blocks, t->s->job->fmt,
                             scale_at(t, 0, 0));
}

/* Of rows, or of the groups of MXFP8 within them.  */
static bool find_row_scales(const struct stripe *t)
{
    enum fp8q_scale_fmt fmt = t->coded->grid.cols ? FP8Q_SCALE_UE8M0 : FP8Q_SCALE_F32;
    size_t n = t->s->n_cols;

    /* A run is what shares a scale: the row, or 32 columns of it.  */
    for (uint32_t r = 0; r < t->n_rows; r++)
        for (size_t col = 0; col < n; col += run_at(t, col)) {
            float amax;
            const float *w = t->area->w + r * n + col;
            uint32_t bits = kernel_of(t)->amax_bits[FP8Q_FLOAT_F32](w, run_at(t, col));
            if (!fp8q_amax_value(FP8Q_FLOAT_F32, bits, &amax))
                return false;
            *scale_at(t, r, col) = fp8q_scale(amax, fmt);
        }
    return true;
}

/* The rules of plain rounding; one scale for a tensor is there already.  */
static bool find_scales(const struct stripe *t)
{
    if (t->coded->grid.rows == FP8Q_BLOCK)
        return find_block_scales(t);
    return t->coded->grid.rows == 0 || find_row_scales(t);
}

static int read_stripe(const struct stripe *t, struct fp8q_error *err)
{
    struct area *a = t->area;
    struct fp8q_shown shown;

    FP8Q_TRY(fp8q_weights_read(t->weights, kernel_of(t), t->row, t->n_rows, a->errors, a->w, err));
    if (!find_scales(t))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "tensor \"%s\" holds NaN or Inf",
                         fp8q_show(&shown, t->weights->tensor->name));
    return FP8Q_OK;
}

static void round_plainly(const struct stripe *t)
{
    struct area *a = t->area;
    size_t n = t->s->n_cols;

    for (uint32_t r = 0; r < t->n_rows; r++)
        for (size_t col = 0; col < n; col += run_at(t, col))
            kernel_of(t)->encode[FP8Q_FLOAT_F32](a->codes + r * n + col, a->w + r * n + col,
                                                 run_at(t, col), *scale_at(t, r, col));
}

/* Columns of a block, as the errors behind it leave them: w + errors x factors.  */
static void start_block(const struct stripe *t, size_t block, size_t size)
{
    const struct fp8q_factor *f = &t->s->factor;
    const struct fp8q_gemm *g = t->s->job->fw->gemm;
    struct area *a = t->area;
    size_t n = f->n, first = block * FP8Q_BLOCK, behind = first + size;

    /* Nothing is behind the last block.  */
    memset(a->product, 0, TILE * sizeof(*a->product));
    if (behind < n) {
        fp8q_pack_a(g, (struct fp8q_strided){a->errors + behind, n, 1}, t->n_rows, n - behind,
                    a->left);
        fp8q_pack_b(g, (struct fp8q_strided){f->l + behind * n + first, 1, n}, size, n - behind,
                    a->right);
        fp8q_gemm_packed(g, t->n_rows, size, n - behind, a->left, a->right, a->product, FP8Q_BLOCK);
    }

    /* Turned on their side, so that a column of all rows is one run of memory.  */
    for (size_t j = 0; j < size; j++)
        for (uint32_t r = 0; r < t->n_rows; r++)
            a->columns[j * t->n_rows + r] =
                a->w[r * n + f->order[first + j]] + a->product[r * FP8Q_BLOCK + j];
}

/* One column from its values: codes, and their errors against the weights themselves.  */
static void round_column(const struct stripe *t, size_t position, float *values, float *error)
{
    struct area *a = t->area;
    size_t n = t->s->n_cols, channel = t->s->factor.order[position];
    size_t step = t->coded->grid.rows == 1 ? (size_t)t->coded->grid_cols : 0;
    const float *scales = scale_at(t, 0, channel);
    uint8_t codes[FP8Q_BLOCK];

    /* Rows may have scales of their own, so values are divided here and encoded with scale 1.  */
    for (uint32_t r = 0; r < t->n_rows; r++)
        values[r] /= scales[r * step];
    kernel_of(t)->encode[FP8Q_FLOAT_F32](codes, values, t->n_rows, 1.0f);
    kernel_of(t)->decode[FP8Q_FLOAT_F32](a->rounded, codes, t->n_rows, 1.0f);

    /* Against the weight, not against what it was asked to be: the factors spread whole errors.  */
    for (uint32_t r = 0; r < t->n_rows; r++) {
        error[r] = a->w[r * n + channel] - a->rounded[r] * scales[r * step];
        a->errors[r * n + position] = error[r];
        a->codes[r * n + channel] = codes[r];
    }
}

/* From the last column to the first: what it leaves over is taken by the columns before it.  */
static void round_block(const struct stripe *t, size_t block, size_t size)
{
    const struct fp8q_factor *f = &t->s->factor;
    struct area *a = t->area;
    size_t first = block * FP8Q_BLOCK;

    for (size_t j = size; j-- > 0;) {
        const float *row = f->l + (first + j) * f->n + first;
        float error[FP8Q_BLOCK];
        round_column(t, first + j, a->columns + j * t->n_rows, error);

        /* There is an operation that subtracts, and errors are to be added.  */
        for (size_t i = 0; i < j; i++)
            a->negative[i] = -row[i];
        t->s->job->fw->gemm->subtract_outer(a->columns, t->n_rows, a->negative, j, error,
                                            t->n_rows);
    }
}

static void round_spreading(const struct stripe *t)
{
    for (size_t block = t->s->n_blocks; block-- > 0;) {
        size_t size = fp8q_min_size(t->s->n_cols - block * FP8Q_BLOCK, FP8Q_BLOCK);
        start_block(t, block, size);
        round_block(t, block, size);
    }
}

/* ---- what came of it ------------------------------------------------------------------------- */

/* Errors of the codes at hand, by channel.  */
static void find_errors(const struct stripe *t)
{
    struct area *a = t->area;
    size_t n = t->s->n_cols;

    for (uint32_t r = 0; r < t->n_rows; r++)
        for (size_t col = 0; col < n; col += run_at(t, col))
            kernel_of(t)->decode[FP8Q_FLOAT_F32](a->errors + r * n + col, a->codes + r * n + col,
                                                 run_at(t, col), *scale_at(t, r, col));
    for (size_t i = 0; i < t->n_rows * n; i++)
        a->errors[i] = a->w[i] - a->errors[i];
}

/* sum over rows of d H d^T with the moments of held-out tokens; a->errors are by channel.  */
static double held_error(const struct stripe *t)
{
    const struct fp8q_gemm *g = t->s->job->fw->gemm;
    const float *held = t->s->job->moments->sums[FP8Q_HELD];
    struct area *a = t->area;
    size_t n = t->s->n_cols;
    double sum = 0;

    /* The moments are symmetric, so their rows serve as the columns that the product wants.  */
    fp8q_pack_a(g, (struct fp8q_strided){a->errors, n, 1}, t->n_rows, n, a->left);
    for (size_t col = 0; col < n; col += FP8Q_BLOCK) {
        size_t size = fp8q_min_size(n - col, FP8Q_BLOCK);
        fp8q_pack_b(g, (struct fp8q_strided){held + col * n, n, 1}, size, n, a->right);
        fp8q_gemm_packed(g, t->n_rows, size, n, a->left, a->right, a->product, FP8Q_BLOCK);
        for (uint32_t r = 0; r < t->n_rows; r++)
            sum += g->dot(a->product + r * FP8Q_BLOCK, a->errors + r * n + col, size);
    }
    return sum;
}

/* Sums of squares of @n errors, and of the bounds of their weights.  */
static void add_to_bound(const float *weights, const float *errors, size_t n, double scale,
                         double sums[2])
{
    for (size_t i = 0; i < n; i++) {
        double bound = fmax(fabs((double)weights[i]) / 16, scale * 0x1p-10);
        sums[0] += (double)errors[i] * (double)errors[i];
        sums[1] += bound * bound;
    }
}

/* Whether a block's squared errors add up to more than verify lets pass: four times those of half a
 * step of E4M3 for each weight.  */
static bool breaks_bound(const struct stripe *t)
{
    const struct area *a = t->area;
    size_t n = t->s->n_cols;

    for (size_t first = 0; first < n; first += FP8Q_BLOCK) {
        size_t end = fp8q_min_size(first + FP8Q_BLOCK, n);
        double sums[2] = {0, 0};
        for (uint32_t r = 0; r < t->n_rows; r++)
            for (size_t col = first, run; col < end; col += run) {
                run = fp8q_min_size(run_at(t, col), end - col);
                add_to_bound(a->w + r * n + col, a->errors + r * n + col, run,
                             (double)*scale_at(t, r, col), sums);
            }
        /* Put so that NaN is beyond the bound.  */
        if (!(sums[0] <= 4 * sums[1]))
            return true;
    }
    return false;
}

static int put(const struct stripe *t, struct fp8q_error *err)
{
    return fp8q_codes_put(t->s->job->codes, t->source, t->row, t->n_rows, t->area->codes, err);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static int plain_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct spreading *s = ctx;
    struct stripe t = find_stripe(s, worker, task);
    FP8Q_TRY(read_stripe(&t, err));
    round_plainly(&t);
    FP8Q_TRY(put(&t, err));
    if (!s->judge)
        return FP8Q_OK;

    /* The same stripe twice, with the weights still in memory.  */
    find_errors(&t);
    s->sums[task].plain = held_error(&t);
    round_spreading(&t);
    find_errors(&t);
    s->sums[task].compensated = held_error(&t);
    return FP8Q_OK;
}

static int final_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct spreading *s = ctx;
    struct stripe t = find_stripe(s, worker, task);
    FP8Q_TRY(read_stripe(&t, err));
    round_spreading(&t);
    find_errors(&t);
    s->beyond[task] = breaks_bound(&t);
    return put(&t, err);
}

static int run_pass(struct spreading *s, fp8q_task_fn *task, struct fp8q_error *err)
{
    const struct fp8q_forward *fw = s->job->fw;
    return fp8q_pool_run(fw->watch, fw->n_threads, s->n_stripes, task, s, err);
}

static int open_weights(struct spreading *s, struct fp8q_error *err)
{
    const struct fp8q_spread_job *job = s->job;
    const struct fp8q_ckpt *ckpt = job->codes->plan->ckpt;
    s->weights = fp8q_array(job->n_sources, sizeof(*s->weights));
    if (!s->weights)
        return fp8q_fail_nomem(err);

    for (; s->n_open < job->n_sources; s->n_open++) {
        struct fp8q_weights *w = &s->weights[s->n_open];
        FP8Q_TRY(fp8q_weights_open(ckpt, ckpt->tensors[job->sources[s->n_open]].name, w, err));
        FP8Q_TRY(fp8q_codes_begin(job->codes, job->sources[s->n_open], err));
        /* All have the columns of the input that they share.  */
        s->n_stripes += fp8q_ceil_div(w->n_rows, FP8Q_BLOCK);
        s->n_cols = (size_t)w->n_cols;
    }
    s->n_blocks = (size_t)fp8q_ceil_div(s->n_cols, FP8Q_BLOCK);
    return FP8Q_OK;
}

/* Floats of a worker's area, and where its parts begin.  */
static uint64_t lay_out(const struct fp8q_gemm *g, uint64_t n_cols, float *memory, struct area *a)
{
    uint64_t stripe = FP8Q_BLOCK * n_cols;
    const struct {
        float **at;
        uint64_t floats;
    } parts[] = {{&a->w, stripe},
                 {&a->errors, stripe},
                 {&a->left, fp8q_packed_a(g, FP8Q_BLOCK, (size_t)n_cols)},
                 {&a->right, fp8q_packed_b(g, FP8Q_BLOCK, (size_t)n_cols)},
                 {&a->product, TILE + n_cols},
                 {&a->columns, TILE},
                 {&a->negative, FP8Q_BLOCK}};
    uint64_t floats = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        *parts[i].at = memory ? memory + floats : NULL;
        floats += fp8q_ceil_div(parts[i].floats, 16) * 16;
    }
    a->codes = memory ? (uint8_t *)(memory + floats) : NULL;
    return floats + fp8q_ceil_div(stripe, 64) * 16;
}

static int open_areas(struct spreading *s, struct fp8q_error *err)
{
    const struct fp8q_forward *fw = s->job->fw;
    struct area sizes;
    uint64_t floats = lay_out(fw->gemm, s->n_cols, NULL, &sizes);
    s->areas = fp8q_array(fw->n_threads, sizeof(*s->areas));
    s->sums = fp8q_array(s->n_stripes, sizeof(*s->sums));
    s->beyond = fp8q_array(s->n_stripes, sizeof(*s->beyond));
    if (!s->areas || !s->sums || !s->beyond)
        return fp8q_fail_nomem(err);

    /* Each worker has its own, so that their pages are apart.  */
    for (unsigned i = 0; i < fw->n_threads; i++) {
        float *memory = fp8q_array(floats, sizeof(float));
        if (!memory)
            return fp8q_fail_nomem(err);
        (void)lay_out(fw->gemm, s->n_cols, memory, &s->areas[i]);
    }
    return FP8Q_OK;
}

static void close_all(struct spreading *s)
{
    for (unsigned i = 0; s->areas && i < s->job->fw->n_threads; i++)
        free(s->areas[i].w); /* the first part */
    for (size_t i = 0; s->weights && i < s->n_open; i++)
        fp8q_weights_reset(&s->weights[i]);
    free(s->areas);
    free(s->weights);
    free(s->sums);
    free(s->beyond);
    fp8q_factor_reset(&s->factor);
}

/* Whether errors were spread over every stripe within the bounds of its blocks.  */
static int write_spread(struct spreading *s, bool *within_out, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_factor_make(&s->factor, s->job->moments, true, s->job->fw, err));
    *within_out = s->factor.usable;
    if (!s->factor.usable)
        return FP8Q_OK;

    FP8Q_TRY(run_pass(s, final_task, err));
    for (uint64_t i = 0; i < s->n_stripes; i++)
        *within_out = *within_out && !s->beyond[i];
    return FP8Q_OK;
}

static int spread(struct spreading *s, struct fp8q_gptq_error *sums_out, bool *spread_out,
                  struct fp8q_error *err)
{
    FP8Q_TRY(open_weights(s, err));
    FP8Q_TRY(open_areas(s, err));
    FP8Q_TRY(fp8q_factor_open(s->n_cols, &s->factor, err));
    FP8Q_TRY(fp8q_factor_make(&s->factor, s->job->moments, false, s->job->fw, err));
    /* Where nothing was held out there is no judge, and what cannot be shown is not done.  */
    s->judge = s->factor.usable && s->job->moments->n_tokens[FP8Q_HELD] > 0;
    FP8Q_TRY(run_pass(s, plain_task, err));

    /* In the order of stripes, whoever made them.  */
    for (uint64_t i = 0; i < s->n_stripes; i++) {
        sums_out->plain += s->sums[i].plain;
        sums_out->compensated += s->sums[i].compensated;
    }
    if (!fp8q_gptq_helps(sums_out))
        return FP8Q_OK;

    /* Plain values once more, if one block of all would break its bound.  */
    FP8Q_TRY(write_spread(s, spread_out, err));
    s->judge = false;
    return *spread_out ? FP8Q_OK : run_pass(s, plain_task, err);
}

int fp8q_spread(const struct fp8q_spread_job *job, struct fp8q_gptq_error *sums_out,
                bool *spread_out, struct fp8q_error *err)
{
    struct spreading s = {.job = job};
    *sums_out = (struct fp8q_gptq_error){0};
    *spread_out = false;
    int status = spread(&s, sums_out, spread_out, err);
    close_all(&s);
    return status;
}

static int spread_none(struct spreading *s, struct fp8q_error *err)
{
    FP8Q_TRY(open_weights(s, err));
    FP8Q_TRY(open_areas(s, err));
    return run_pass(s, plain_task, err);
}

int fp8q_spread_none(const struct fp8q_spread_job *job, struct fp8q_error *err)
{
    struct spreading s = {.job = job};
    int status = spread_none(&s, err);
    close_all(&s);
    return status;
}
