/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c - products of activations with weights that stay on disk: a task reads 128 rows, rounds
 * them if the branch says so, packs them and multiplies them with all tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "model/forward.h"
#include "base/pool.h"

#define STRIPE FP8Q_BLOCK

/* ---- activations --------------------------------------------------------------------------- */

static enum fp8q_acts resolve(enum fp8q_acts acts, bool rounded, enum fp8q_scaling scaling)
{
    if (!rounded && scaling == FP8Q_SCALING_NONE)
        return FP8Q_ACTS_NONE;
    if (acts != FP8Q_ACTS_SERVED)
        return acts;
    return rounded || scaling == FP8Q_SCALING_BLOCK ? FP8Q_ACTS_BLOCK : FP8Q_ACTS_TOKEN;
}

enum fp8q_acts fp8q_branch_acts(const struct fp8q_branch *b, uint32_t layer,
                                enum fp8q_linear linear)
{
    size_t i = (size_t)layer * FP8Q_N_LINEARS + linear;
    const struct fp8q_model *like = b->acts_like ? b->acts_like : b->model;
    return resolve(b->acts, b->round && b->round[i], (enum fp8q_scaling)like->scaling[i]);
}

enum fp8q_acts fp8q_branch_head_acts(const struct fp8q_branch *b)
{
    const struct fp8q_model *like = b->acts_like ? b->acts_like : b->model;
    return resolve(b->acts, false, like->head_scaling);
}

bool fp8q_quantize_acts(const struct fp8q_kernel *kernel, enum fp8q_acts acts, float *x, size_t n,
                        uint8_t *codes)
{
    size_t step = acts == FP8Q_ACTS_TOKEN ? n : FP8Q_BLOCK;
    enum fp8q_scale_fmt fmt = acts == FP8Q_ACTS_BLOCK_POW2 ? FP8Q_SCALE_UE8M0 : FP8Q_SCALE_F32;
    for (size_t i = 0; i < n; i += step) {
        size_t m = n - i < step ? n - i : step;
        float amax;
        if (!fp8q_amax_value(FP8Q_FLOAT_F32, kernel->amax_bits[FP8Q_FLOAT_F32](x + i, m), &amax))
            return false;
        float scale = fp8q_scale(amax, fmt);
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
    enum fp8q_acts acts;
};

static int pack_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct pack_job *job = ctx;
    struct fp8q_forward *fw = job->fw;
    size_t first = (size_t)task * job->step, width = job->width;
    size_t n = job->n_tokens - first < job->step ? job->n_tokens - first : job->step;
    const float *x = job->x + first * width;
    if (job->acts != FP8Q_ACTS_NONE) {
        float *rows = fw->workers + worker * fw->worker_floats;
        uint8_t *codes = (uint8_t *)(rows + n * width);
        memcpy(rows, x, n * width * sizeof(*rows));
        for (size_t i = 0; i < n; i++)
            if (!fp8q_quantize_acts(fw->kernel, job->acts, rows + i * width, width, codes))
                return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite",
                                 "an activation of token %zu of the group is NaN or infinite",
                                 first + i);
        x = rows;
    }
    fp8q_pack_a(fw->gemm, (struct fp8q_strided){x, width, 1}, n, width,
                job->packed + first * width);
    return FP8Q_OK;
}

int fp8q_products_pack(struct fp8q_forward *fw, const float *x, size_t n_tokens, size_t width,
                       enum fp8q_acts acts, float *packed, struct fp8q_error *err)
{
    struct pack_job job = {fw, x, packed, n_tokens, width, (size_t)fw->gemm->mr * 4, acts};
    return fp8q_pool_run(fw->watch, fw->n_threads, (n_tokens + job.step - 1) / job.step, pack_task,
                         &job, err);
}

/* ---- the products -------------------------------------------------------------------------- */

struct product_job {
    struct fp8q_forward *fw;
    const float *packed;
    struct fp8q_product *products;
    size_t n_products, n_tokens;
    enum fp8q_acts acts;
};

static uint64_t n_stripes(const struct fp8q_product *p)
{
    return (p->n_rows + STRIPE - 1) / STRIPE;
}

/* @w [n_rows][n_cols]: to the nearest codes with one scale a block, and back.  */
static int round_stripe(const struct fp8q_kernel *kernel, float *w, size_t n_rows, size_t n_cols,
                        enum fp8q_scale_fmt fmt, uint8_t *codes, struct fp8q_error *err)
{
    for (size_t c = 0; c < n_cols; c += FP8Q_BLOCK) {
        size_t n = n_cols - c < FP8Q_BLOCK ? n_cols - c : FP8Q_BLOCK;
        uint32_t bits = 0;
        float amax;
        for (size_t r = 0; r < n_rows; r++) {
            uint32_t row_bits = kernel->amax_bits[FP8Q_FLOAT_F32](w + r * n_cols + c, n);
            bits = row_bits > bits ? row_bits : bits;
        }
        if (!fp8q_amax_value(FP8Q_FLOAT_F32, bits, &amax))
            return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "a weight is NaN or infinite");
        float scale = fp8q_scale(amax, fmt);
        for (size_t r = 0; r < n_rows; r++) {
            kernel->encode[FP8Q_FLOAT_F32](codes, w + r * n_cols + c, n, scale);
            kernel->decode[FP8Q_FLOAT_F32](w + r * n_cols + c, codes, n, scale);
        }
    }
    return FP8Q_OK;
}

static int product_stripe(const struct product_job *job, const struct fp8q_product *p,
                          unsigned worker, uint64_t stripe, struct fp8q_error *err)
{
    struct fp8q_forward *fw = job->fw;
    size_t width = (size_t)p->weights.n_cols, first = (size_t)stripe * STRIPE;
    size_t n = (size_t)p->n_rows - first < STRIPE ? (size_t)p->n_rows - first : STRIPE;
    float *w = fw->workers + worker * fw->worker_floats;
    float *packed = w + STRIPE * width; /* also what is read, before it is widened */
    FP8Q_TRY(fp8q_weights_read(&p->weights, fw->kernel, p->first_row + first, n, packed, w, err));
    if (p->round)
        FP8Q_TRY(round_stripe(fw->kernel, w, n, width, p->round_fmt, (uint8_t *)packed, err));
    fp8q_pack_b(fw->gemm, (struct fp8q_strided){w, width, 1}, n, width, packed);
    float *out = p->out + first;
    fp8q_gemm_packed(fw->gemm, job->n_tokens, n, width, job->packed, packed, out, p->stride);
    if (p->bias)
        for (size_t t = 0; t < job->n_tokens; t++)
            for (size_t j = 0; j < n; j++)
                out[t * p->stride + j] += p->bias[first + j];
    return FP8Q_OK;
}

static int product_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct product_job *job = ctx;
    for (size_t i = 0; i < job->n_products; i++) {
        const struct fp8q_product *p = &job->products[i];
        if (p->acts != job->acts)
            continue;
        if (task < n_stripes(p))
            return product_stripe(job, p, worker, task, err);
        task -= n_stripes(p);
    }
    return FP8Q_OK;
}

int fp8q_products_packed(struct fp8q_forward *fw, const float *packed, size_t n_tokens,
                         enum fp8q_acts acts, struct fp8q_product *products, size_t n_products,
                         struct fp8q_error *err)
{
    struct product_job job = {fw, packed, products, n_products, n_tokens, acts};
    uint64_t tasks = 0;
    for (size_t i = 0; i < n_products; i++)
        if (products[i].acts == acts)
            tasks += n_stripes(&products[i]);
    return fp8q_pool_run(fw->watch, fw->n_threads, tasks, product_task, &job, err);
}

int fp8q_products_run(struct fp8q_forward *fw, const float *x, size_t n_tokens, size_t width,
                      struct fp8q_product *products, size_t n_products, struct fp8q_error *err)
{
    for (int a = FP8Q_ACTS_NONE; a <= FP8Q_ACTS_TOKEN; a++) {
        enum fp8q_acts acts = (enum fp8q_acts)a;
        bool any = false;
        for (size_t i = 0; i < n_products; i++)
            any |= products[i].acts == acts;
        if (!any)
            continue;
        FP8Q_TRY(fp8q_products_pack(fw, x, n_tokens, width, acts, fw->packed, err));
        FP8Q_TRY(fp8q_products_packed(fw, fw->packed, n_tokens, acts, products, n_products, err));
    }
    return FP8Q_OK;
}
