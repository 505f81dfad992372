/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c - products of activations with weights that stay on disk: a task reads 128 rows, rounds
 * them if the branch says so, packs them and multiplies them with all tokens.
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

bool fp8q_quantize_acts(const struct fp8q_kernel *kernel, struct fp8q_act_format format, float *x,
                        size_t n, uint8_t *codes)
{
    static const struct {
        size_t step; /* 0: all */
        enum fp8q_scale_fmt fmt;
    } ways[] = {[FP8Q_ACTS_BLOCK] = {FP8Q_BLOCK, FP8Q_SCALE_F32},
                [FP8Q_ACTS_BLOCK_POW2] = {FP8Q_BLOCK, FP8Q_SCALE_UE8M0},
                [FP8Q_ACTS_TOKEN] = {0, FP8Q_SCALE_F32},
                [FP8Q_ACTS_GROUP] = {FP8Q_GROUP, FP8Q_SCALE_UE8M0},
                [FP8Q_ACTS_STATIC] = {0, FP8Q_SCALE_F32}};
    size_t step = ways[format.acts].step ? ways[format.acts].step : n;

    for (size_t i = 0; i < n; i += step) {
        size_t m = fp8q_min_size(n - i, step);
        float amax, scale = format.scale;
        if (!fp8q_amax_value(FP8Q_FLOAT_F32, kernel->amax_bits[FP8Q_FLOAT_F32](x + i, m), &amax))
            return false;
        if (format.acts != FP8Q_ACTS_STATIC)
            scale = fp8q_scale(amax, ways[format.acts].fmt);
        kernel->encode[FP8Q_FLOAT_F32](codes, x + i, m, scale);
        kernel->decode[FP8Q_FLOAT_F32](x + i, codes, m, scale);
    }
    return true;
}

/* ---- packing the tokens -------------------------------------------------------------------- */

struct pack_job {
    struct fp8q_forward *fw;
    const float *x;
    float *packed;
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

static int pack_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct pack_job *job = ctx;
    struct fp8q_forward *fw = job->fw;
    size_t first = (size_t)task * job->step, width = job->width;
    size_t n = fp8q_min_size(job->n_tokens - first, job->step);
    const float *x = job->x + first * width;

    if (job->clipping && job->format.acts == FP8Q_ACTS_STATIC)
        count_clipped(job, x, n * width);

    /* The input itself stays: another format may be made of it.  */
    if (job->format.acts != FP8Q_ACTS_NONE) {
        float *rows = fw->workers + worker * fw->worker_floats;
        uint8_t *codes = (uint8_t *)(rows + n * width);
        memcpy(rows, x, n * width * sizeof(*rows));
        for (size_t i = 0; i < n; i++)
            if (!fp8q_quantize_acts(fw->kernel, job->format, rows + i * width, width, codes))
                return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite",
                                 "an activation of token %zu of the group is NaN or infinite",
                                 first + i);
        x = rows;
    }
    fp8q_pack_a(fw->gemm, (struct fp8q_strided){x, width, 1}, n, width,
                job->packed + first * width);
    return FP8Q_OK;
}

int fp8q_products_pack(struct fp8q_forward *fw, const float *x, size_t width,
                       const struct fp8q_packed *to, struct fp8q_clipping *clipping,
                       struct fp8q_error *err)
{
    struct pack_job job = {.fw = fw,
                           .x = x,
                           .packed = to->packed,
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
    return a.acts == b.acts && (a.acts != FP8Q_ACTS_STATIC || a.scale == b.scale);
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

/* @w [n_rows][n_cols]: to the nearest FP8 values with one scale a block, and back.  @work: room for
 * the values, their scales and amax.  */
static int round_stripe(const struct fp8q_kernel *kernel, float *w, size_t n_rows, size_t n_cols,
                        enum fp8q_scale_fmt fmt, float *work, struct fp8q_error *err)
{
    size_t n_blocks = (size_t)fp8q_ceil_div(n_cols, FP8Q_BLOCK);
    float *scales = work;
    uint32_t *amax = (uint32_t *)(void *)(work + n_blocks);
    uint8_t *codes = (uint8_t *)(amax + n_blocks);
    const struct fp8q_stripe stripe = {
        .src = w, .from = FP8Q_FLOAT_F32, .n_rows = (uint32_t)n_rows, .n_cols = n_cols};
    fp8q_stripe_amax(kernel, &stripe, amax);
    if (!fp8q_block_scales(FP8Q_FLOAT_F32, amax, n_blocks, fmt, scales))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "a weight is NaN or infinite");
    fp8q_stripe_encode(kernel, &stripe, scales, codes);

    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_cols; c += FP8Q_BLOCK)
            kernel->decode[FP8Q_FLOAT_F32](w + r * n_cols + c, codes + r * n_cols + c,
                                           fp8q_min_size(n_cols - c, FP8Q_BLOCK),
                                           scales[c / FP8Q_BLOCK]);
    return FP8Q_OK;
}

/* Rows of the weight that a stripe takes: [first, first + n) on disk, of which @skip and what comes
 * behind the part are another's.  They are read only where blocks are rounded together.  */
static int product_stripe(const struct product_job *job, const struct fp8q_product *p,
                          unsigned worker, uint64_t index, struct fp8q_error *err)
{
    struct fp8q_forward *fw = job->fw;
    const struct fp8q_weights *weights = &p->weights;
    size_t width = (size_t)weights->n_cols;
    uint64_t first = (first_stripe(p) + index) * STRIPE;
    uint64_t begin = fp8q_max_u64(first, p->first_row);
    uint64_t end = fp8q_min_u64(first + STRIPE, p->first_row + p->n_rows);
    float *w = fw->workers + worker * fw->worker_floats;
    float *packed = w + STRIPE * width; /* also what is read, before it is widened */

    /* Blocks are those of the stored weight, so a rounded stripe is read whole.  */
    if (p->round) {
        size_t whole = (size_t)fp8q_min_u64(STRIPE, weights->n_rows - first);
        FP8Q_TRY(fp8q_weights_read(weights, fw->kernel, first, whole, packed, w, err));
        FP8Q_TRY(round_stripe(fw->kernel, w, whole, width, p->round_fmt, packed, err));
        w += (begin - first) * width;
    } else {
        FP8Q_TRY(fp8q_weights_read(weights, fw->kernel, begin, end - begin, packed, w, err));
    }

    size_t n = (size_t)(end - begin);
    fp8q_pack_b(fw->gemm, (struct fp8q_strided){w, width, 1}, n, width, packed);
    float *out = p->out + (begin - p->first_row);
    fp8q_gemm_packed(fw->gemm, job->packed->n_tokens, n, width, job->packed->packed, packed, out,
                     p->stride);
    if (p->bias)
        for (size_t t = 0; t < job->packed->n_tokens; t++)
            for (size_t j = 0; j < n; j++)
                out[t * p->stride + j] += p->bias[begin - p->first_row + j];
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
    for (size_t i = 0; i < n_products; i++) {
        struct fp8q_packed packed = {fw->packed, n_tokens, products[i].format};
        bool done = false;
        for (size_t j = 0; j < i; j++)
            done |= same_format(products[j].format, packed.format);
        /* Another product had the same format, and all of that format ran together.  */
        if (done)
            continue;

        struct fp8q_clipping clipping = {.values = 0};
        FP8Q_TRY(fp8q_products_pack(fw, x, (size_t)products[i].weights.n_cols, &packed,
                                    products[i].clipping ? &clipping : NULL, err));
        add_clipping(products, n_products, packed.format, &clipping);
        FP8Q_TRY(fp8q_products_packed(fw, &packed, products, n_products, err));
    }
    return FP8Q_OK;
}
