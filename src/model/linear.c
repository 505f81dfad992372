/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c - products of activations with weights that stay on disk: a task reads 128 rows, rounds
 * them if the branch says so, packs them and multiplies them with all tokens.
 *
 * Where both sides are FP8, their values are multiplied and the scales follow, segment by segment, as an
 * engine does it; every other product is one of F32.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "model/forward.h"

#define STRIPE FP8Q_BLOCK

/* ---- activations --------------------------------------------------------------------------- */

/* @served: what the checkpoint says of this linear's input; @rounded: its weight is made FP8 here, so
 * that no checkpoint says anything.  */
static struct fp8q_act_format resolve(const struct fp8q_branch *b, bool rounded,
                                      enum fp8q_acts served, float static_scale)
{
    struct fp8q_act_format format = {.acts = b->acts};
    /* Whatever was asked for, a linear that is not quantized gets its input as it is.  */
    if (!rounded && served == FP8Q_ACTS_NONE)
        format.acts = FP8Q_ACTS_NONE;
    if (format.acts != FP8Q_ACTS_SERVED)
        return format;

    format.acts = served;
    if (rounded)
        format.acts = b->round_fmt == FP8Q_SCALE_UE8M0 ? FP8Q_ACTS_BLOCK_POW2 : FP8Q_ACTS_BLOCK;
    else
        format.scale = static_scale;
    return format;
}

struct fp8q_act_format fp8q_branch_acts(const struct fp8q_branch *b, size_t slot)
{
    const struct fp8q_model *like = b->acts_like ? b->acts_like : b->model;
    return resolve(b, b->round && b->round[slot], (enum fp8q_acts)like->served[slot],
                   like->static_scale[slot]);
}

struct fp8q_act_format fp8q_branch_head_acts(const struct fp8q_branch *b)
{
    const struct fp8q_model *like = b->acts_like ? b->acts_like : b->model;
    return resolve(b, false, like->head_served, like->head_static_scale);
}

/* How many values of a token share a scale (0: all), and what scales may be.  */
static const struct {
    size_t run;
    enum fp8q_scale_fmt fmt;
} ways[] = {[FP8Q_ACTS_BLOCK] = {FP8Q_BLOCK, FP8Q_SCALE_F32},
            [FP8Q_ACTS_BLOCK_POW2] = {FP8Q_BLOCK, FP8Q_SCALE_UE8M0},
            [FP8Q_ACTS_TOKEN] = {0, FP8Q_SCALE_F32},
            [FP8Q_ACTS_GROUP] = {FP8Q_GROUP, FP8Q_SCALE_UE8M0},
            [FP8Q_ACTS_STATIC] = {0, FP8Q_SCALE_F32}};

/* Values with one scale; false if one is NaN or infinite.  */
static bool encode_run(const struct fp8q_kernel *kernel, struct fp8q_act_format format,
                       const float *x, size_t n, uint8_t *codes, float *scale_out)
{
    float amax;
    if (!fp8q_amax_value(FP8Q_FLOAT_F32, kernel->amax_bits[FP8Q_FLOAT_F32](x, n), &amax))
        return false;

    bool is_static = format.acts == FP8Q_ACTS_STATIC;
    *scale_out = is_static ? format.scale : fp8q_scale(amax, ways[format.acts].fmt);
    kernel->encode[FP8Q_FLOAT_F32](codes, x, n, *scale_out);
    return true;
}

/* One token, in place.  */
static bool quantize_acts(const struct fp8q_kernel *kernel, struct fp8q_act_format format, float *x,
                          size_t n, uint8_t *codes)
{
    size_t run = ways[format.acts].run ? ways[format.acts].run : n;
    float scale;

    for (size_t i = 0, m; i < n; i += m) {
        m = fp8q_min_size(n - i, run);
        if (!encode_run(kernel, format, x + i, m, codes, &scale))
            return false;
        kernel->decode[FP8Q_FLOAT_F32](x + i, codes, m, scale);
    }
    return true;
}

/* One token to FP8 values and the scale of each segment, @stride apart.  */
static bool encode_acts(const struct fp8q_kernel *kernel, struct fp8q_act_format format,
                        const float *x, size_t n, uint8_t *codes, float *scales, size_t stride)
{
    size_t run = ways[format.acts].run ? ways[format.acts].run : n;
    float scale;

    for (size_t i = 0, m; i < n; i += m) {
        m = fp8q_min_size(n - i, run);
        if (!encode_run(kernel, format, x + i, m, codes + i, &scale))
            return false;
        for (size_t k = i; k < i + m; k += format.step)
            scales[k / format.step * stride] = scale;
    }
    return true;
}

/* Columns that a product of FP8 values takes at a time: each segment has one scale on either side.  0
 * if there are none, or one side is not E4M3.  */
static size_t segment_step(const struct fp8q_product *p)
{
    const struct fp8q_weights *w = &p->weights;
    size_t step = p->format.acts == FP8Q_ACTS_GROUP ? FP8Q_GROUP : FP8Q_BLOCK;

    /* A narrower weight leaves a worker no room for the scales; and what lies transposed is turned as
     * floats.  */
    if (p->format.acts == FP8Q_ACTS_NONE || w->n_cols < FP8Q_GROUP || p->transposed)
        return 0;
    if (p->round)
        return step;
    if (w->scaling == FP8Q_SCALING_NONE || w->tensor->dtype != FP8Q_F8_E4M3)
        return 0;
    return w->layout.block_cols >= w->n_cols || w->layout.block_cols % step == 0 ? step : 0;
}

void fp8q_product_prepare(struct fp8q_product *product)
{
    product->format.step = segment_step(product);
}

/* ---- packing the tokens -------------------------------------------------------------------- */

size_t fp8q_packed_floats(const struct fp8q_gemm *gemm, size_t n_tokens, size_t width)
{
    return fp8q_packed_a(gemm, n_tokens, width) + n_tokens * (width / FP8Q_GROUP + 1);
}

/* Scales of FP8 values stand behind them, [segment][token].  */
static float *packed_scales(const struct fp8q_gemm *gemm, const struct fp8q_packed *p, size_t width)
{
    return p->packed + fp8q_packed_a(gemm, p->n_tokens, width);
}

struct pack_job {
    struct fp8q_forward *fw;
    const float *x;
    float *packed, *scales;
    size_t n_tokens, width, step;
    struct fp8q_act_format format;
    struct fp8q_clipping *clipping; /* NULL, or to be added to under the lock */
    pthread_mutex_t lock;
};

/* Sums and a maximum, which come out the same in any order.  */
static void count_clipped(struct pack_job *job, const float *x, size_t n)
{
    const float range = job->format.scale * FP8Q_E4M3_MAX;
    struct fp8q_clipping found = {.values = n};

    for (size_t i = 0; i < n; i++) {
        float magnitude = fabsf(x[i]);
        found.clipped += magnitude > range;
        found.largest = magnitude > found.largest ? magnitude : found.largest;
    }

    pthread_mutex_lock(&job->lock);
    job->clipping->values += found.values;
    job->clipping->clipped += found.clipped;
    job->clipping->largest = fmaxf(job->clipping->largest, found.largest / range);
    pthread_mutex_unlock(&job->lock);
}

static int not_finite(size_t token, struct fp8q_error *err)
{
    return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite",
                     "an activation of token %zu of the group is NaN or infinite", token);
}

static int pack_codes(const struct pack_job *job, unsigned worker, size_t first, size_t n,
                      struct fp8q_error *err)
{
    struct fp8q_forward *fw = job->fw;
    size_t width = job->width;
    uint8_t *codes = (uint8_t *)(fw->workers + worker * fw->worker_floats);

    for (size_t i = 0; i < n; i++)
        if (!encode_acts(fw->kernel, job->format, job->x + (first + i) * width, width,
                         codes + i * width, job->scales + first + i, job->n_tokens))
            return not_finite(first + i, err);

    fp8q_pack_fp8(fw->gemm, fw->gemm->mr, codes, n, width,
                  job->packed + first * fp8q_fp8_words(fw->gemm, width));
    return FP8Q_OK;
}

static int pack_floats(const struct pack_job *job, unsigned worker, size_t first, size_t n,
                       struct fp8q_error *err)
{
    struct fp8q_forward *fw = job->fw;
    size_t width = job->width;
    const float *x = job->x + first * width;

    /* The input itself stays: another format may be made of it.  */
    if (job->format.acts != FP8Q_ACTS_NONE) {
        float *rows = fw->workers + worker * fw->worker_floats;
        uint8_t *codes = (uint8_t *)(rows + n * width);
        memcpy(rows, x, n * width * sizeof(*rows));
        for (size_t i = 0; i < n; i++)
            if (!quantize_acts(fw->kernel, job->format, rows + i * width, width, codes))
                return not_finite(first + i, err);
        x = rows;
    }
    fp8q_pack_a(fw->gemm, (struct fp8q_strided){x, width, 1}, n, width,
                job->packed + first * width);
    return FP8Q_OK;
}

static int pack_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct pack_job *job = ctx;
    size_t first = (size_t)task * job->step, n = fp8q_min_size(job->n_tokens - first, job->step);

    if (job->clipping && job->format.acts == FP8Q_ACTS_STATIC)
        count_clipped(job, job->x + first * job->width, n * job->width);
    return job->format.step ? pack_codes(job, worker, first, n, err)
                            : pack_floats(job, worker, first, n, err);
}

int fp8q_products_pack(struct fp8q_forward *fw, const float *x, size_t width,
                       const struct fp8q_packed *to, struct fp8q_clipping *clipping,
                       struct fp8q_error *err)
{
    struct pack_job job = {.fw = fw,
                           .x = x,
                           .packed = to->packed,
                           .scales = packed_scales(fw->gemm, to, width),
                           .n_tokens = to->n_tokens,
                           .width = width,
                           .step = (size_t)fw->gemm->mr * 4,
                           .format = to->format,
                           .clipping = clipping,
                           .lock = PTHREAD_MUTEX_INITIALIZER};
    return fp8q_pool_run(fw->watch, fw->n_threads, fp8q_ceil_div(to->n_tokens, job.step), pack_task,
                         &job, err);
}

/* ---- the products -------------------------------------------------------------------------- */

struct product_job {
    struct fp8q_forward *fw;
    const struct fp8q_packed *packed;
    struct fp8q_product *products;
    size_t n_products;
};

static bool same_format(struct fp8q_act_format a, struct fp8q_act_format b)
{
    return a.acts == b.acts && a.step == b.step &&
           (a.acts != FP8Q_ACTS_STATIC || a.scale == b.scale);
}

/* Stripes are those of the weight on disk, whose blocks of 128 rows are rounded together: a part
 * that begins in the midst of one has a shorter first stripe.  */
static uint64_t first_stripe(const struct fp8q_product *p)
{
    return p->first_row / STRIPE;
}

static uint64_t n_stripes(const struct fp8q_product *p)
{
    return fp8q_ceil_div(p->first_row + p->n_rows, STRIPE) - first_stripe(p);
}

/* Elements of the inputs.  */
static size_t width_of(const struct fp8q_product *p)
{
    return (size_t)(p->transposed ? p->weights.matrix_rows : p->weights.n_cols);
}

/* FP8 values of some rows, with one scale a block of 128 columns.  */
struct rounded {
    float *scales;
    uint8_t *codes;
};

/* @w [n_rows][n_cols] to the nearest FP8 values with one scale a block.  @work: room for them, their
 * scales and amax.  */
static int round_stripe(const struct fp8q_product *p, const struct fp8q_kernel *kernel,
                        const float *w, size_t n_rows, size_t n_cols, float *work,
                        struct rounded *out, struct fp8q_error *err)
{
    size_t n_blocks = (size_t)fp8q_ceil_div(n_cols, FP8Q_BLOCK);
    uint32_t *amax = (uint32_t *)(void *)(work + n_blocks);
    const struct fp8q_stripe stripe = {
        .src = w, .from = FP8Q_FLOAT_F32, .n_rows = (uint32_t)n_rows, .n_cols = n_cols};

    *out = (struct rounded){work, (uint8_t *)(amax + n_blocks)};
    fp8q_stripe_amax(kernel, &stripe, amax);
    if (!fp8q_block_scales(FP8Q_FLOAT_F32, amax, n_blocks, p->round_fmt, out->scales))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "a weight is NaN or infinite");
    fp8q_stripe_encode(kernel, &stripe, out->scales, out->codes);
    return FP8Q_OK;
}

static void decode_rounded(const struct fp8q_kernel *kernel, const struct rounded *from,
                           size_t n_rows, size_t n_cols, float *w)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_cols; c += FP8Q_BLOCK)
            kernel->decode[FP8Q_FLOAT_F32](w + r * n_cols + c, from->codes + r * n_cols + c,
                                           fp8q_min_size(n_cols - c, FP8Q_BLOCK),
                                           from->scales[c / FP8Q_BLOCK]);
}

/* Rows of the matrix that a stripe takes (columns, where it is transposed): [first, first + n) on disk, of which what comes before @begin
 * and from @end on is another part's.  They are read only where blocks are rounded together.  */
struct stripe {
    uint64_t base; /* row of the tensor with which the matrix begins */
    uint64_t first, begin, end;
    float *w, *packed; /* a worker's memory: values, and behind them what is read or packed */
};

static struct stripe stripe_of(const struct fp8q_forward *fw, const struct fp8q_product *p,
                               unsigned worker, uint64_t index)
{
    struct stripe s = {.base = p->matrix * p->weights.matrix_rows,
                       .first = (first_stripe(p) + index) * STRIPE,
                       .w = fw->workers + worker * fw->worker_floats};
    s.begin = fp8q_max_u64(s.first, p->first_row);
    s.end = fp8q_min_u64(s.first + STRIPE, p->first_row + p->n_rows);
    s.packed = s.w + STRIPE * width_of(p);
    return s;
}

/* Blocks are those of the stored weight, so a rounded stripe is read whole.  */
static int read_rounded(const struct fp8q_forward *fw, const struct fp8q_product *p,
                        const struct stripe *s, struct rounded *out, struct fp8q_error *err)
{
    size_t whole = (size_t)fp8q_min_u64(STRIPE, p->weights.matrix_rows - s->first);
    FP8Q_TRY(fp8q_weights_read(&p->weights, fw->kernel, s->base + s->first, whole, s->packed, s->w,
                               err));
    return round_stripe(p, fw->kernel, s->w, whole, (size_t)p->weights.n_cols, s->packed, out, err);
}

/* Weights of a stripe as floats, and where they lie.  */
static int read_rows(const struct fp8q_forward *fw, const struct fp8q_product *p,
                     const struct stripe *s, struct fp8q_strided *out, struct fp8q_error *err)
{
    size_t width = (size_t)p->weights.n_cols, n = (size_t)(s->end - s->begin);
    struct rounded rounded;
    *out = (struct fp8q_strided){s->w, width, 1};

    if (p->stand_in && !p->round)
        return p->stand_in->read(p->stand_in->ctx, p->weights.tensor, s->begin, n, s->packed, s->w,
                                 err);
    if (!p->round)
        return fp8q_weights_read(&p->weights, fw->kernel, s->base + s->begin, n, s->packed, s->w,
                                 err);

    FP8Q_TRY(read_rounded(fw, p, s, &rounded, err));
    decode_rounded(fw->kernel, &rounded, (size_t)(s->end - s->first), width, s->w);
    out->x += (s->begin - s->first) * width;
    return FP8Q_OK;
}

/* The same of a matrix whose columns are the outputs; its blocks are rounded 128 rows at a time.  */
static int read_columns(const struct fp8q_forward *fw, const struct fp8q_product *p,
                        const struct stripe *s, struct fp8q_strided *out, struct fp8q_error *err)
{
    uint64_t n_k = p->weights.matrix_rows, first = p->round ? s->first : s->begin;
    uint64_t end = p->round ? fp8q_min_u64(s->first + STRIPE, p->weights.n_cols) : s->end;
    const struct fp8q_tile tile = {s->base, n_k, first, end - first};
    size_t n = (size_t)tile.n_cols;
    struct rounded rounded;
    *out = (struct fp8q_strided){s->w + (s->begin - first), 1, n};
    FP8Q_TRY(fp8q_weights_read_tile(&p->weights, fw->kernel, &tile, s->packed, s->w, err));

    for (uint64_t k = 0; k < n_k && p->round; k += STRIPE) {
        size_t rows = (size_t)fp8q_min_u64(STRIPE, n_k - k);
        FP8Q_TRY(round_stripe(p, fw->kernel, s->w + k * n, rows, n, s->packed, &rounded, err));
        decode_rounded(fw->kernel, &rounded, rows, n, s->w + k * n);
    }
    return FP8Q_OK;
}

static int multiply_floats(const struct product_job *job, const struct fp8q_product *p,
                           const struct stripe *s, float *out, struct fp8q_error *err)
{
    struct fp8q_forward *fw = job->fw;
    size_t width = width_of(p), n = (size_t)(s->end - s->begin);
    struct fp8q_strided w;
    FP8Q_TRY(p->transposed ? read_columns(fw, p, s, &w, err) : read_rows(fw, p, s, &w, err));

    fp8q_pack_b(fw->gemm, w, n, width, s->packed);
    fp8q_gemm_packed(fw->gemm, job->packed->n_tokens, n, width, job->packed->packed, s->packed, out,
                     p->stride);
    return FP8Q_OK;
}

/* The FP8 values of a stripe to the front of the worker's memory, scales [segment][row] behind them.  */
static int read_codes(const struct fp8q_forward *fw, const struct fp8q_product *p,
                      const struct stripe *s, float *scales, struct fp8q_error *err)
{
    size_t width = (size_t)p->weights.n_cols, n = (size_t)(s->end - s->begin), i = 0;
    struct rounded rounded;

    if (p->round) {
        FP8Q_TRY(read_rounded(fw, p, s, &rounded, err));
        memcpy(s->w, rounded.codes + (s->begin - s->first) * width, n * width);
    } else {
        FP8Q_TRY(fp8q_weights_read_codes(&p->weights, s->base + s->begin, n, (uint8_t *)s->w, err));
    }

    for (uint64_t k = 0; k < width; k += p->format.step)
        for (uint64_t row = s->begin; row < s->end; row++)
            scales[i++] = p->round ? rounded.scales[k / FP8Q_BLOCK]
                                   : fp8q_weights_scale(&p->weights, s->base + row, k);
    return FP8Q_OK;
}

static int multiply_codes(const struct product_job *job, const struct fp8q_product *p,
                          const struct stripe *s, float *out, struct fp8q_error *err)
{
    const struct fp8q_gemm *g = job->fw->gemm;
    size_t width = (size_t)p->weights.n_cols, n = (size_t)(s->end - s->begin);
    float *scales = s->w + STRIPE * width / sizeof(float);
    FP8Q_TRY(read_codes(job->fw, p, s, scales, err));

    const struct fp8q_fp8_shape shape = {job->packed->n_tokens, n, width, p->format.step};
    const struct fp8q_fp8_operand tokens = {job->packed->packed,
                                            packed_scales(g, job->packed, width)};
    const struct fp8q_fp8_operand weight = {s->packed, scales};
    fp8q_pack_fp8(g, g->nr, (const uint8_t *)s->w, n, width, s->packed);
    fp8q_gemm_fp8(g, &shape, &tokens, &weight, out, p->stride);
    return FP8Q_OK;
}

static int product_stripe(const struct product_job *job, const struct fp8q_product *p,
                          unsigned worker, uint64_t index, struct fp8q_error *err)
{
    struct stripe s = stripe_of(job->fw, p, worker, index);
    size_t first = (size_t)(s.begin - p->first_row), n = (size_t)(s.end - s.begin);
    float *out = p->out + first;

    FP8Q_TRY(p->format.step ? multiply_codes(job, p, &s, out, err)
                            : multiply_floats(job, p, &s, out, err));
    if (p->bias)
        for (size_t t = 0; t < job->packed->n_tokens; t++)
            for (size_t j = 0; j < n; j++)
                out[t * p->stride + j] += p->bias[first + j];
    return FP8Q_OK;
}

static int product_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct product_job *job = ctx;
    for (size_t i = 0; i < job->n_products; i++) {
        const struct fp8q_product *p = &job->products[i];
        if (!same_format(p->format, job->packed->format))
            continue;
        /* Stripes are numbered through all products of the format.  */
        if (task < n_stripes(p))
            return product_stripe(job, p, worker, task, err);
        task -= n_stripes(p);
    }
    return FP8Q_OK;
}

int fp8q_products_packed(struct fp8q_forward *fw, const struct fp8q_packed *packed,
                         struct fp8q_product *products, size_t n_products, struct fp8q_error *err)
{
    struct product_job job = {fw, packed, products, n_products};

    uint64_t tasks = 0;
    for (size_t i = 0; i < n_products; i++)
        if (same_format(products[i].format, packed->format))
            tasks += n_stripes(&products[i]);
    return fp8q_pool_run(fw->watch, fw->n_threads, tasks, product_task, &job, err);
}

/* All linears that take an input in this format see the same values.  */
static void add_clipping(struct fp8q_product *products, size_t n_products,
                         struct fp8q_act_format format, const struct fp8q_clipping *found)
{
    for (size_t i = 0; i < n_products; i++) {
        struct fp8q_clipping *c = products[i].clipping;
        if (!c || !same_format(products[i].format, format))
            continue;
        c->values += found->values;
        c->clipped += found->clipped;
        c->largest = fmaxf(c->largest, found->largest);
    }
}

int fp8q_products_run(struct fp8q_forward *fw, const float *x, size_t n_tokens,
                      struct fp8q_product *products, size_t n_products, struct fp8q_error *err)
{
    for (size_t i = 0; i < n_products; i++)
        fp8q_product_prepare(&products[i]);

    for (size_t i = 0; i < n_products; i++) {
        struct fp8q_packed packed = {fw->packed, n_tokens, products[i].format};
        bool done = false;
        for (size_t j = 0; j < i; j++)
            done |= same_format(products[j].format, packed.format);
        /* Another product had the same format, and all of that format ran together.  */
        if (done)
            continue;

        struct fp8q_clipping clipping = {.values = 0};
        FP8Q_TRY(fp8q_products_pack(fw, x, width_of(&products[i]), &packed,
                                    products[i].clipping ? &clipping : NULL, err));
        add_clipping(products, n_products, packed.format, &clipping);
        FP8Q_TRY(fp8q_products_packed(fw, &packed, products, n_products, err));
    }
    return FP8Q_OK;
}
