/* SPDX-License-Identifier: Apache-2.0
 *
 * forward.c - embedding, one layer, final norm.  The products are in linear.c, attention in
 * attention.c, the head with its statistics in head.c.
 */
#include "model/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "model/rope.h"

#define TOKENS_A_TASK 16

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- buffers ------------------------------------------------------------------------------- */

static size_t widest(const struct fp8q_model *m)
{
    return larger(larger((size_t)m->hidden, (size_t)m->intermediate),
                  (size_t)m->n_heads * m->head_dim);
}

size_t fp8q_group_tokens(const struct fp8q_model *m, const struct fp8q_inputs *inputs,
                         unsigned n_branches, uint64_t bytes)
{
    uint64_t q = (uint64_t)m->n_heads * m->head_dim, kv = (uint64_t)m->n_kv_heads * m->head_dim;
    uint64_t floats = m->hidden * (1 + 2 * (uint64_t)n_branches) + 2 * q + 2 * kv +
                      2 * m->intermediate + widest(m) + m->head_dim;
    uint64_t tokens = bytes / (4 * floats);
    for (size_t i = 0; i < inputs->n_samples; i++)
        tokens = larger((size_t)tokens, inputs->samples[i].n_tokens);
    return tokens < inputs->n_tokens ? (size_t)tokens : (size_t)inputs->n_tokens;
}

int fp8q_forward_open(struct fp8q_forward *fw_out, const struct fp8q_model *m, unsigned n_threads,
                      const char *kernel_name, size_t max_tokens, size_t max_sample,
                      struct fp8q_error *err)
{
    struct fp8q_forward *fw = fw_out;
    *fw = (struct fp8q_forward){.n_threads = n_threads ? n_threads : 1, .max_tokens = max_tokens};
    fw->kernel = fp8q_kernel_select(kernel_name);
    if (!fw->kernel)
        return fp8q_fail(err, FP8Q_E_ARG, "kernel", "kernel \"%s\" is unknown or not usable here",
                         kernel_name);
    fw->gemm = fp8q_gemm_select(kernel_name ? fw->kernel->name : NULL);
    fw->wide = widest(m);
    size_t q = (size_t)m->n_heads * m->head_dim, kv = (size_t)m->n_kv_heads * m->head_dim;
    size_t rows = max_tokens + fw->gemm->mr;
    /* 128 rows of a weight, once as F32 and once packed; or a few tokens and their codes; or
     * attention.  */
    fw->worker_floats = larger(2 * (FP8Q_BLOCK + fw->gemm->nr) * fw->wide,
                               fp8q_attention_floats(fw->gemm, m, max_sample));
    fw->x = fp8q_array((uint64_t)rows * m->hidden, sizeof(float));
    fw->q = fp8q_array((uint64_t)rows * q, sizeof(float));
    fw->k = fp8q_array((uint64_t)rows * kv, sizeof(float));
    fw->v = fp8q_array((uint64_t)rows * kv, sizeof(float));
    fw->att = fp8q_array((uint64_t)rows * q, sizeof(float));
    fw->gate = fp8q_array((uint64_t)rows * m->intermediate, sizeof(float));
    fw->up = fp8q_array((uint64_t)rows * m->intermediate, sizeof(float));
    fw->packed = fp8q_array((uint64_t)rows * fw->wide, sizeof(float));
    fw->workers = fp8q_array((uint64_t)fw->n_threads * fw->worker_floats, sizeof(float));
    if (fw->x && fw->q && fw->k && fw->v && fw->att && fw->gate && fw->up && fw->packed &&
        fw->workers)
        return FP8Q_OK;
    fp8q_forward_close(fw);
    return fp8q_fail_nomem(err);
}

void fp8q_forward_close(struct fp8q_forward *fw)
{
    float *const buffers[] = {fw->x,    fw->q,  fw->k,      fw->v,      fw->att,
                              fw->gate, fw->up, fw->packed, fw->workers};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(*buffers); i++)
        free(buffers[i]);
    *fw = (struct fp8q_forward){0};
}

/* ---- groups -------------------------------------------------------------------------------- */

size_t fp8q_group_size(const struct fp8q_inputs *inputs, size_t first, size_t max_tokens)
{
    size_t n = 0, tokens = 0;
    for (size_t i = first; i < inputs->n_samples; i++, n++) {
        if (n > 0 && inputs->samples[i].n_tokens > max_tokens - tokens)
            break;
        tokens += inputs->samples[i].n_tokens;
        if (tokens >= max_tokens)
            return n + 1;
    }
    return n;
}

static int rotary_table(struct fp8q_group *g, const struct fp8q_model *m, size_t i,
                        struct fp8q_error *err)
{
    const struct fp8q_sample *s = &g->samples[i];
    size_t n = s->n_tokens, half = m->head_dim / 2;
    float inv_freq[FP8Q_MAX_HEAD_DIM / 2];
    int64_t *counted = NULL, max = (int64_t)n - 1;
    const int64_t *positions = s->positions;
    if (positions) {
        max = 0;
        for (size_t t = 0; t < n * s->position_rows; t++)
            max = positions[t] > max ? positions[t] : max;
    } else {
        counted = fp8q_array(n, sizeof(*counted));
        if (!counted)
            return fp8q_fail_nomem(err);
        for (size_t t = 0; t < n; t++)
            counted[t] = (int64_t)t;
        positions = counted;
    }
    fp8q_rope_frequencies(m, (uint64_t)max, inv_freq);
    fp8q_rope_table(m, inv_freq, positions, s->positions ? s->position_rows : 1, n, n,
                    g->cos + g->first[i] * half, g->sin + g->first[i] * half);
    free(counted);
    return FP8Q_OK;
}

int fp8q_group_open(struct fp8q_group *group_out, const struct fp8q_model *model,
                    const struct fp8q_sample *samples, size_t n_samples, struct fp8q_error *err)
{
    struct fp8q_group *g = group_out;
    *g = (struct fp8q_group){.samples = samples, .n_samples = n_samples};
    g->first = fp8q_array(n_samples, sizeof(*g->first));
    for (size_t i = 0; g->first && i < n_samples; i++) {
        g->first[i] = g->n_tokens;
        g->n_tokens += samples[i].n_tokens;
        g->max_sample = larger(g->max_sample, samples[i].n_tokens);
    }
    uint64_t floats = (uint64_t)g->n_tokens * model->head_dim / 2;
    g->cos = fp8q_array(floats, sizeof(float));
    g->sin = fp8q_array(floats, sizeof(float));
    int status = g->first && g->cos && g->sin ? FP8Q_OK : fp8q_fail_nomem(err);
    for (size_t i = 0; status == FP8Q_OK && i < n_samples; i++)
        status = rotary_table(g, model, i, err);
    if (status != FP8Q_OK)
        fp8q_group_close(g);
    return status;
}

void fp8q_group_close(struct fp8q_group *group)
{
    free(group->first);
    free(group->cos);
    free(group->sin);
    *group = (struct fp8q_group){0};
}

/* ---- steps over tokens --------------------------------------------------------------------- */

struct token_job {
    struct fp8q_forward *fw;
    const struct fp8q_model *model;
    const struct fp8q_group *group;
    const float *in, *weight, *weight_k; /* norm weights */
    float *out;
    size_t n_tokens, width;
    void (*step)(const struct token_job *job, size_t token);
    _Atomic bool not_finite;
};

static int token_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct token_job *job = ctx;
    (void)worker, (void)err;
    size_t first = (size_t)task * TOKENS_A_TASK;
    for (size_t t = first; t < first + TOKENS_A_TASK && t < job->n_tokens; t++)
        job->step(job, t);
    return FP8Q_OK;
}

static int over_tokens(struct token_job *job, struct fp8q_error *err)
{
    uint64_t tasks = (job->n_tokens + TOKENS_A_TASK - 1) / TOKENS_A_TASK;
    FP8Q_TRY(fp8q_pool_run(job->fw->watch, job->fw->n_threads, tasks, token_task, job, err));
    if (job->not_finite)
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "an activation is NaN or infinite");
    return FP8Q_OK;
}

/* False if the mean square is not finite.  */
static bool rms_norm(const struct fp8q_gemm *g, const float *x, const float *weight, float eps,
                     size_t n, float *out)
{
    float mean = (float)(g->dot(x, x, n) / (double)n);
    float factor = 1.0f / sqrtf(mean + eps);
    for (size_t i = 0; i < n; i++)
        out[i] = weight[i] * (x[i] * factor);
    return isfinite(mean);
}

static void norm_step(const struct token_job *job, size_t t)
{
    const float *x = job->in + t * job->width;
    if (!rms_norm(job->fw->gemm, x, job->weight, job->model->norm_eps, job->width,
                  job->out + t * job->width))
        ((struct token_job *)job)->not_finite = true;
}

static int read_floats(const struct fp8q_forward *fw, const struct fp8q_model *m, const char *name,
                       uint64_t n, float **out, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = fp8q_ckpt_find(m->ckpt, name); /* model.c has checked the shape */
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

static int norm_named(struct fp8q_forward *fw, const struct fp8q_model *m, const char *name,
                      size_t n_tokens, const float *in, float *out, struct fp8q_error *err)
{
    float *weight;
    FP8Q_TRY(read_floats(fw, m, name, m->hidden, &weight, err));
    struct token_job job = {.fw = fw,
                            .model = m,
                            .in = in,
                            .weight = weight,
                            .out = out,
                            .n_tokens = n_tokens,
                            .width = (size_t)m->hidden,
                            .step = norm_step};
    int status = over_tokens(&job, err);
    free(weight);
    return status;
}

/* Norm of each head (Qwen3), rotation, and for queries the factor 1/sqrt(dim) of attention.  */
static bool rotate(const struct token_job *job, float *x, const float *weight, const float *cosines,
                   const float *sines, float factor)
{
    const struct fp8q_model *m = job->model;
    size_t half = m->head_dim / 2;
    bool finite = true;
    if (weight)
        finite = rms_norm(job->fw->gemm, x, weight, m->norm_eps, m->head_dim, x);
    for (size_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = (a * cosines[i] - b * sines[i]) * factor;
        x[i + half] = (b * cosines[i] + a * sines[i]) * factor;
    }
    return finite;
}

static void rotate_step(const struct token_job *job, size_t t)
{
    const struct fp8q_model *m = job->model;
    size_t dim = m->head_dim;
    const float *cosines = job->group->cos + t * dim / 2, *sines = job->group->sin + t * dim / 2;
    float factor = 1.0f / sqrtf((float)dim);
    bool finite = true;
    for (uint32_t h = 0; h < m->n_heads; h++)
        finite &= rotate(job, job->fw->q + (t * m->n_heads + h) * dim, job->weight, cosines, sines,
                         factor);
    for (uint32_t h = 0; h < m->n_kv_heads; h++)
        finite &= rotate(job, job->fw->k + (t * m->n_kv_heads + h) * dim, job->weight_k, cosines,
                         sines, 1.0f);
    if (!finite)
        ((struct token_job *)job)->not_finite = true;
}

static void silu_step(const struct token_job *job, size_t t)
{
    job->fw->gemm->silu_mul(job->out + t * job->width, job->in + t * job->width, job->width);
}

static void add_step(const struct token_job *job, size_t t)
{
    const float *in = job->in + t * job->width;
    float *out = job->out + t * job->width;
    for (size_t i = 0; i < job->width; i++)
        out[i] += in[i];
}

/* ---- one layer ----------------------------------------------------------------------------- */

struct layer {
    struct fp8q_forward *fw;
    const struct fp8q_branch *branch;
    const struct fp8q_group *group;
    uint32_t index;
    float *h;
};

static int open_product(const struct layer *l, enum fp8q_linear linear, float *out,
                        struct fp8q_product *p, struct fp8q_error *err)
{
    const struct fp8q_model *m = l->branch->model;
    struct fp8q_name name;
    *p = (struct fp8q_product){.out = out, .acts = fp8q_branch_acts(l->branch, l->index, linear)};
    FP8Q_TRY(fp8q_weights_open(m->ckpt, fp8q_linear_name(m, l->index, linear, ".weight", &name),
                               &p->weights, err));
    p->n_rows = p->weights.n_rows;
    p->stride = (size_t)p->n_rows;
    p->round = l->branch->round && l->branch->round[l->index * FP8Q_N_LINEARS + linear];
    p->round_fmt = l->branch->round_fmt;
    if (m->bias[linear])
        return read_floats(l->fw, m, fp8q_linear_name(m, l->index, linear, ".bias", &name),
                           p->n_rows, &p->bias, err);
    return FP8Q_OK;
}

/* The linears first..first+n-1, which share the input @x.  */
static int run_site(const struct layer *l, enum fp8q_linear first, size_t n, const float *x,
                    float *const *outs, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    struct fp8q_product products[3] = {{.out = NULL}};
    enum fp8q_site_kind site = fp8q_linear_site(first);
    size_t width = (size_t)fp8q_site_width(l->branch->model, site);
    int status = FP8Q_OK;
    if (fw->on_site)
        status = fw->on_site(fw->on_site_ctx, fw, l->group, l->index, site, x, width, err);
    for (size_t i = 0; i < n && status == FP8Q_OK; i++)
        status = open_product(l, (enum fp8q_linear)(first + i), outs[i], &products[i], err);
    if (status == FP8Q_OK)
        status = fp8q_products_run(fw, x, l->group->n_tokens, width, products, n, err);
    for (size_t i = 0; i < n; i++) {
        fp8q_weights_reset(&products[i].weights);
        free(products[i].bias);
    }
    return status;
}

static int layer_norm(const struct layer *l, const char *which, struct fp8q_error *err)
{
    struct fp8q_name name;
    const struct fp8q_model *m = l->branch->model;
    return norm_named(l->fw, m, fp8q_layer_name(m, l->index, which, &name), l->group->n_tokens,
                      l->h, l->fw->x, err);
}

static int rotate_all(const struct layer *l, struct fp8q_error *err)
{
    const struct fp8q_model *m = l->branch->model;
    struct fp8q_name name;
    float *norm_q = NULL, *norm_k = NULL;
    int status = FP8Q_OK;
    if (m->qk_norm)
        status =
            read_floats(l->fw, m, fp8q_layer_name(m, l->index, "self_attn.q_norm.weight", &name),
                        m->head_dim, &norm_q, err);
    if (m->qk_norm && status == FP8Q_OK)
        status =
            read_floats(l->fw, m, fp8q_layer_name(m, l->index, "self_attn.k_norm.weight", &name),
                        m->head_dim, &norm_k, err);
    struct token_job job = {.fw = l->fw,
                            .model = m,
                            .group = l->group,
                            .weight = norm_q,
                            .weight_k = norm_k,
                            .n_tokens = l->group->n_tokens,
                            .step = rotate_step};
    if (status == FP8Q_OK)
        status = over_tokens(&job, err);
    free(norm_q);
    free(norm_k);
    return status;
}

static int add_to_hidden(const struct layer *l, struct fp8q_error *err)
{
    struct token_job job = {.fw = l->fw,
                            .in = l->fw->x,
                            .out = l->h,
                            .n_tokens = l->group->n_tokens,
                            .width = (size_t)l->branch->model->hidden,
                            .step = add_step};
    return over_tokens(&job, err);
}

static int run_layer(const struct layer *l, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    const struct fp8q_model *m = l->branch->model;
    FP8Q_TRY(layer_norm(l, "input_layernorm.weight", err));
    FP8Q_TRY(run_site(l, FP8Q_Q_PROJ, 3, fw->x, (float *const[]){fw->q, fw->k, fw->v}, err));
    FP8Q_TRY(rotate_all(l, err));
    FP8Q_TRY(fp8q_attention(fw, m, l->group, m->window[l->index], err));
    FP8Q_TRY(run_site(l, FP8Q_O_PROJ, 1, fw->att, &fw->x, err));
    FP8Q_TRY(add_to_hidden(l, err));
    FP8Q_TRY(layer_norm(l, "post_attention_layernorm.weight", err));
    FP8Q_TRY(run_site(l, FP8Q_GATE_PROJ, 2, fw->x, (float *const[]){fw->gate, fw->up}, err));
    struct token_job silu = {.fw = fw,
                             .in = fw->up,
                             .out = fw->gate,
                             .n_tokens = l->group->n_tokens,
                             .width = (size_t)m->intermediate,
                             .step = silu_step};
    FP8Q_TRY(over_tokens(&silu, err));
    FP8Q_TRY(run_site(l, FP8Q_DOWN_PROJ, 1, fw->gate, &fw->x, err));
    return add_to_hidden(l, err);
}

int fp8q_forward_layer(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                       const struct fp8q_group *group, uint32_t layer, float *h,
                       struct fp8q_error *err)
{
    struct layer l = {fw, branch, group, layer, h};
    struct fp8q_error inner = {0};
    int status = run_layer(&l, &inner);
    if (status == FP8Q_OK || strcmp(inner.id, "not-finite") != 0) {
        if (status != FP8Q_OK && err)
            *err = inner;
        return status;
    }
    struct fp8q_shown shown;
    return fp8q_fail(err, (enum fp8q_status)status, "not-finite", "%s, layer %u: %s",
                     fp8q_show(&shown, branch->model->ckpt->path), layer, inner.message);
}

int fp8q_forward_norm(struct fp8q_forward *fw, const struct fp8q_branch *branch, size_t n_tokens,
                      float *h, struct fp8q_error *err)
{
    struct fp8q_name name = {""};
    strcat(strcat(name.text, branch->model->prefix), "norm.weight");
    return norm_named(fw, branch->model, name.text, n_tokens, h, h, err);
}

/* ---- embedding ----------------------------------------------------------------------------- */

static int embed_sample(struct fp8q_forward *fw, const struct fp8q_weights *w,
                        const struct fp8q_sample *s, float *h, struct fp8q_error *err)
{
    size_t hidden = (size_t)w->n_cols;
    if (s->embeds) {
        memcpy(h, s->embeds, s->n_tokens * hidden * sizeof(*h));
        return FP8Q_OK;
    }
    for (size_t t = 0; t < s->n_tokens; t++)
        FP8Q_TRY(fp8q_weights_read(w, fw->kernel, (uint64_t)s->ids[t], 1, fw->workers,
                                   h + t * hidden, err));
    return FP8Q_OK;
}

int fp8q_forward_embed(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                       const struct fp8q_group *group, float *h, struct fp8q_error *err)
{
    const struct fp8q_model *m = branch->model;
    struct fp8q_weights weights;
    struct fp8q_name name = {""};
    strcat(strcat(name.text, m->prefix), "embed_tokens.weight");
    FP8Q_TRY(fp8q_weights_open(m->ckpt, name.text, &weights, err));
    int status = FP8Q_OK;
    for (size_t i = 0; i < group->n_samples && status == FP8Q_OK; i++)
        status =
            embed_sample(fw, &weights, &group->samples[i], h + group->first[i] * m->hidden, err);
    fp8q_weights_reset(&weights);
    return status;
}
