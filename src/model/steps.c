/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.c - the small steps of a layer, token by token: norms, rotation, activation, sums.  A task
 * is a few tokens; each token is one worker's, so the order of sums is fixed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "model/internal.h"

#define TOKENS_A_TASK 16

struct token_job {
    struct fp8q_forward *fw;
    const struct fp8q_model *model;
    const struct fp8q_layer *layer;
    const float *in, *weight, *weight_k; /* norm weights */
    float *out, scale, eps;
    size_t n_tokens, width, in_stride, out_stride;
    bool (*step)(const struct token_job *job, size_t token); /* false: not finite */
    _Atomic bool not_finite;
};

static int token_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct token_job *job = ctx;
    (void)worker, (void)err;
    /* A flag, not a failure: which token was first would depend on timing.  */
    size_t first = (size_t)task * TOKENS_A_TASK;
    for (size_t t = first; t < first + TOKENS_A_TASK && t < job->n_tokens; t++)
        if (!job->step(job, t))
            job->not_finite = true;
    return FP8Q_OK;
}

static int over_tokens(struct token_job *job, struct fp8q_error *err)
{
    uint64_t tasks = fp8q_ceil_div(job->n_tokens, TOKENS_A_TASK);
    FP8Q_TRY(fp8q_pool_run(job->fw->watch, job->fw->n_threads, tasks, token_task, job, err));
    if (job->not_finite)
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "an activation is NaN or infinite");
    return FP8Q_OK;
}

/* ---- norms --------------------------------------------------------------------------------- */

/* False if the mean square is not finite.  */
static bool rms_norm(const struct fp8q_gemm *g, const float *x, const float *weight, float eps,
                     size_t n, float *out)
{
    float mean = (float)(g->dot(x, x, n) / (double)n);
    /* Weight times normalised value, in this order: the last bit is transformers'.  */
    float factor = 1.0f / sqrtf(mean + eps);

    for (size_t i = 0; i < n; i++)
        out[i] = weight[i] * (x[i] * factor);
    return isfinite(mean);
}

static bool norm_step(const struct token_job *job, size_t t)
{
    return rms_norm(job->fw->gemm, job->in + t * job->in_stride, job->weight, job->eps, job->width,
                    job->out + t * job->out_stride);
}

int fp8q_step_read(const struct fp8q_forward *fw, const struct fp8q_model *m, const char *name,
                   uint64_t n, float **out, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = fp8q_ckpt_find(m->ckpt, name);
    *out = fp8q_array(n, sizeof(**out));
    if (!*out)
        return fp8q_fail_nomem(err);

    int status = fp8q_read_floats(m->ckpt, t, fw->kernel, *out, err);
    if (status != FP8Q_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

/* The weight of a norm, with the 1 that Gemma leaves out on disk.  */
static int read_norm(const struct fp8q_forward *fw, const struct fp8q_model *m, const char *name,
                     uint64_t n, float **out, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_step_read(fw, m, name, n, out, err));
    for (uint64_t i = 0; i < n && m->norm_plus_one; i++)
        (*out)[i] += 1.0f;
    return FP8Q_OK;
}

int fp8q_step_norm_part(struct fp8q_forward *fw, const struct fp8q_model *m,
                        const struct fp8q_norm_job *norm, struct fp8q_error *err)
{
    float *weight;
    FP8Q_TRY(read_norm(fw, m, norm->name, norm->width, &weight, err));
    struct token_job job = {.fw = fw,
                            .model = m,
                            .in = norm->in,
                            .weight = weight,
                            .out = norm->out,
                            .eps = norm->eps,
                            .n_tokens = norm->n_tokens,
                            .width = norm->width,
                            .in_stride = norm->in_stride,
                            .out_stride = norm->out_stride,
                            .step = norm_step};
    int status = over_tokens(&job, err);
    free(weight);
    return status;
}

int fp8q_step_norm(struct fp8q_forward *fw, const struct fp8q_model *m, const char *name,
                   size_t n_tokens, const float *in, float *out, struct fp8q_error *err)
{
    const size_t hidden = (size_t)m->hidden;
    const struct fp8q_norm_job norm = {.name = name,
                                       .in = in,
                                       .out = out,
                                       .n_tokens = n_tokens,
                                       .width = hidden,
                                       .in_stride = hidden,
                                       .out_stride = hidden,
                                       .eps = m->norm_eps};
    return fp8q_step_norm_part(fw, m, &norm, err);
}

/* ---- rotation ------------------------------------------------------------------------------ */

/* The first @dim elements of a head turn in pairs; those behind stay.  */
static void rotate(const struct fp8q_rope *rope, float *x, const float *cosines, const float *sines)
{
    size_t half = rope->dim / 2, step = rope->interleaved ? 2 : 1;
    size_t other = rope->interleaved ? 1 : half;
    for (size_t i = 0; i < half; i++) {
        /* Both layouts turn the pair (a, b) by the same angle.  */
        float *pair = x + i * step, a = pair[0], b = pair[other];
        pair[0] = a * cosines[i] - b * sines[i];
        pair[other] = b * cosines[i] + a * sines[i];
    }
}

/* Norm of each head or of all together, rotation, and a factor.  */
static bool turn_heads(const struct token_job *job, size_t t, float *heads, uint32_t n_heads,
                       const float *weight, float factor)
{
    const struct fp8q_model *m = job->model;
    const struct fp8q_gemm *g = job->fw->gemm;
    size_t dim = m->head_dim;
    unsigned which = m->rope_of[job->layer->index];
    bool finite = true;
    if (m->qk_norm == FP8Q_QK_NORM_WHOLE)
        finite = rms_norm(g, heads, weight, m->norm_eps, n_heads * dim, heads);

    for (uint32_t h = 0; h < n_heads; h++) {
        float *x = heads + h * dim;
        if (m->qk_norm == FP8Q_QK_NORM_HEAD)
            finite &= rms_norm(g, x, weight, m->norm_eps, dim, x);
        /* SmolLM3 leaves every fourth layer without a rotation.  */
        if (which != FP8Q_NO_ROPE) {
            size_t at = t * (m->ropes[which].dim / 2);
            rotate(&m->ropes[which], x, job->layer->rotary->cos[which] + at,
                   job->layer->rotary->sin[which] + at);
        }
        /* The scale of attention goes into q, so that scores need no pass of their own.  */
        for (size_t i = 0; i < dim; i++)
            x[i] *= factor;
    }
    return finite;
}

static bool rotate_step(const struct token_job *job, size_t t)
{
    const struct fp8q_model *m = job->model;
    size_t dim = m->head_dim;
    bool finite = turn_heads(job, t, job->fw->q + t * m->n_heads * dim, m->n_heads, job->weight,
                             m->attention_scale);
    finite &= turn_heads(job, t, job->fw->k + t * m->n_kv_heads * dim, m->n_kv_heads, job->weight_k,
                         1.0f);
    return finite;
}

/* The two norms' weights; NULL where there are none.  */
static int read_qk_norms(const struct fp8q_layer *l, float **q_out, float **k_out,
                         struct fp8q_error *err)
{
    const struct fp8q_model *m = l->branch->model;
    struct fp8q_name name;
    uint64_t q = m->head_dim, k = m->head_dim;
    if (m->qk_norm == FP8Q_QK_NORM_NONE)
        return FP8Q_OK;
    if (m->qk_norm == FP8Q_QK_NORM_WHOLE) {
        q *= m->n_heads;
        k *= m->n_kv_heads;
    }

    fp8q_layer_name(m, l->index, "self_attn.q_norm.weight", &name);
    FP8Q_TRY(read_norm(l->fw, m, name.text, q, q_out, err));
    fp8q_layer_name(m, l->index, "self_attn.k_norm.weight", &name);
    return read_norm(l->fw, m, name.text, k, k_out, err);
}

int fp8q_step_rotate(const struct fp8q_layer *l, struct fp8q_error *err)
{
    float *norm_q = NULL, *norm_k = NULL;
    int status = read_qk_norms(l, &norm_q, &norm_k, err);
    if (status != FP8Q_OK)
        goto out;

    struct token_job job = {.fw = l->fw,
                            .model = l->branch->model,
                            .layer = l,
                            .weight = norm_q,
                            .weight_k = norm_k,
                            .n_tokens = l->group->n_tokens,
                            .step = rotate_step};
    status = over_tokens(&job, err);
out:
    free(norm_q);
    free(norm_k);
    return status;
}

/* ---- latent attention ------------------------------------------------------------------------ */

/* Rotates what turns of one head at token @t.  */
static void turn_latent(const struct token_job *job, size_t t, float *x)
{
    const struct fp8q_rope *rope = &job->model->ropes[0];
    size_t at = t * (rope->dim / 2);
    rotate(rope, x, job->layer->rotary->cos[0] + at, job->layer->rotary->sin[0] + at);
}

static bool turn_key_step(const struct token_job *job, size_t t)
{
    const struct fp8q_latent *l = &job->model->latent;
    turn_latent(job, t, job->fw->latent.kv_a + t * (l->kv_rank + l->turning) + l->kv_rank);
    return true;
}

/* Every head's key ends with the part that all share.  */
static bool spread_step(const struct token_job *job, size_t t)
{
    const struct fp8q_model *m = job->model;
    const struct fp8q_latent *l = &m->latent;
    const struct fp8q_forward *fw = job->fw;
    size_t plain = l->plain, turning = l->turning, values = m->value_dim;
    const float *common = fw->latent.kv_a + t * (l->kv_rank + turning) + l->kv_rank;

    for (uint32_t h = 0; h < m->n_heads; h++) {
        size_t head = t * m->n_heads + h;
        const float *from = fw->latent.kv + head * (plain + values);
        float *k = fw->k + head * m->head_dim, *q = fw->q + head * m->head_dim;
        memcpy(k, from, plain * sizeof(*k));
        memcpy(k + plain, common, turning * sizeof(*k));
        memcpy(fw->v + head * values, from + plain, values * sizeof(*k));

        turn_latent(job, t, q + plain);
        for (size_t i = 0; i < m->head_dim; i++)
            q[i] *= m->attention_scale;
    }
    return true;
}

static int over_layer(const struct fp8q_layer *l,
                      bool (*step)(const struct token_job *job, size_t token),
                      struct fp8q_error *err)
{
    struct token_job job = {.fw = l->fw,
                            .model = l->branch->model,
                            .layer = l,
                            .n_tokens = l->group->n_tokens,
                            .step = step};
    return over_tokens(&job, err);
}

int fp8q_step_turn_key(const struct fp8q_layer *l, struct fp8q_error *err)
{
    return over_layer(l, turn_key_step, err);
}

int fp8q_step_spread(const struct fp8q_layer *l, struct fp8q_error *err)
{
    return over_layer(l, spread_step, err);
}

/* ---- activation and sums ------------------------------------------------------------------- */

static bool silu_step(const struct token_job *job, size_t t)
{
    job->fw->gemm->silu_mul(job->out + t * job->width, job->in + t * job->width, job->width);
    return true;
}

static bool gelu_step(const struct token_job *job, size_t t)
{
    job->fw->gemm->gelu_mul(job->out + t * job->width, job->in + t * job->width, job->width);
    return true;
}

int fp8q_step_activate(struct fp8q_forward *fw, const struct fp8q_model *m, float *gate,
                       const float *up, size_t n_tokens, size_t width, struct fp8q_error *err)
{
    struct token_job job = {
        .fw = fw, .in = up, .out = gate, .n_tokens = n_tokens, .width = width, .step = silu_step};
    if (m->activation == FP8Q_GELU_TANH)
        job.step = gelu_step;
    return over_tokens(&job, err);
}

static bool add_step(const struct token_job *job, size_t t)
{
    const float *in = job->in + t * job->width;
    float *out = job->out + t * job->width;
    for (size_t i = 0; i < job->width; i++)
        out[i] += in[i] * job->scale;
    return true;
}

int fp8q_step_add(const struct fp8q_layer *l, struct fp8q_error *err)
{
    struct token_job job = {.fw = l->fw,
                            .in = l->fw->x,
                            .out = l->h,
                            .scale = l->branch->model->residual_scale,
                            .n_tokens = l->group->n_tokens,
                            .width = (size_t)l->branch->model->hidden,
                            .step = add_step};
    return over_tokens(&job, err);
}
