/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.c - causal attention with grouped key/value heads.  A task is one key/value head of one
 * sample and a block of queries; scores of the block are held whole, so the softmax is the plain
 * one.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "model/internal.h"

struct job {
    struct fp8q_forward *fw;
    const struct fp8q_model *model;
    const struct fp8q_group *group;
    uint64_t window;
    size_t block; /* queries of a task */
};

/* Queries that one task takes at most: the largest tile of any instruction set has 14 rows.  */
#define MAX_BLOCK 128

static size_t block_size(const struct fp8q_gemm *g)
{
    size_t rows = (size_t)g->mr * (g->mr < 8 ? 8 : 4);
    return fp8q_min_size(rows, MAX_BLOCK / g->mr * g->mr);
}

size_t fp8q_attention_floats(const struct fp8q_gemm *g, const struct fp8q_model *m,
                             size_t max_sample)
{
    size_t block = block_size(g), keys = max_sample;
    return 2 * block * keys + block * m->head_dim + fp8q_packed_b(g, keys, m->head_dim) +
           fp8q_packed_b(g, m->value_dim, keys);
}

/* Scores -> e^(score - max) in the keys that query @i may see, 0 elsewhere; returns 1/sum.  */
static float soften(const struct fp8q_gemm *g, float *scores, size_t n_keys, size_t begin,
                    size_t end)
{
    /* Hidden keys count nothing, so the product with the values needs no mask.  */
    memset(scores, 0, begin * sizeof(*scores));
    memset(scores + end, 0, (n_keys - end) * sizeof(*scores));
    float max = g->max(scores + begin, end - begin);
    return (float)(1.0 / g->exp_sum(scores + begin, scores + begin, end - begin, max));
}

/* Queries first..first+n-1 of a sample, and the keys low..high-1 that any of them sees.  */
struct span {
    size_t base;   /* token where the sample begins */
    size_t prefix; /* tokens that see one another in both directions */
    size_t first, n, low, high;
};

/* The keys [begin, end) that query @i of the span sees, counted from its lowest.  */
static void visible(const struct job *job, const struct span *s, size_t i, size_t *begin_out,
                    size_t *end_out)
{
    size_t seen = s->first + i + 1 - s->low;
    *begin_out = job->window && seen > job->window ? seen - (size_t)job->window : 0;
    *end_out = fp8q_max_size(seen, s->prefix > s->low ? s->prefix - s->low : 0);
}

static void attend(const struct job *job, float *area, const struct span *s, uint32_t kv_head)
{
    struct fp8q_forward *fw = job->fw;
    const struct fp8q_model *m = job->model;
    const struct fp8q_gemm *g = fw->gemm;
    size_t dim = m->head_dim, q_stride = m->n_heads * dim, k_stride = m->n_kv_heads * dim;
    size_t v_dim = m->value_dim, v_stride = m->n_kv_heads * v_dim, out_stride = m->n_heads * v_dim;
    size_t n_keys = s->high - s->low;
    float *scores = area, *packed_p = scores + job->block * n_keys;
    float *packed_q = packed_p + job->block * n_keys;
    float *packed_k = packed_q + job->block * dim;
    float *packed_v = packed_k + fp8q_packed_b(g, n_keys, dim);

    /* Keys and values serve all the heads that share them.  */
    const float *k = fw->k + (s->base + s->low) * k_stride + kv_head * dim;
    const float *v = fw->v + (s->base + s->low) * v_stride + kv_head * v_dim;
    fp8q_pack_b(g, (struct fp8q_strided){k, k_stride, 1}, n_keys, dim, packed_k);
    fp8q_pack_b(g, (struct fp8q_strided){v, 1, v_stride}, v_dim, n_keys, packed_v);

    uint32_t shared = m->n_heads / m->n_kv_heads;
    for (uint32_t head = kv_head * shared; head < (kv_head + 1) * shared; head++) {
        const float *q = fw->q + (s->base + s->first) * q_stride + head * dim;
        float *out = fw->att + (s->base + s->first) * out_stride + head * v_dim;
        float inverse[MAX_BLOCK];
        fp8q_pack_a(g, (struct fp8q_strided){q, q_stride, 1}, s->n, dim, packed_q);
        fp8q_gemm_packed(g, s->n, n_keys, dim, packed_q, packed_k, scores, n_keys);
        if (m->attention_cap > 0)
            g->soft_cap(scores, s->n * n_keys, m->attention_cap);
        for (size_t i = 0; i < s->n; i++) {
            size_t begin, end;
            visible(job, s, i, &begin, &end);
            inverse[i] = soften(g, scores + i * n_keys, n_keys, begin, end);
        }

        fp8q_pack_a(g, (struct fp8q_strided){scores, n_keys, 1}, s->n, n_keys, packed_p);
        fp8q_gemm_packed(g, s->n, v_dim, n_keys, packed_p, packed_v, out, out_stride);
        for (size_t i = 0; i < s->n; i++)
            for (size_t d = 0; d < v_dim; d++)
                out[i * out_stride + d] *= inverse[i];
    }
}

static struct span span_of(const struct job *job, size_t sample, size_t first)
{
    const struct fp8q_sample *s = &job->group->samples[sample];

    struct span span = {.base = job->group->first[sample],
                        .prefix = s->prefix_len,
                        .first = first,
                        .n = fp8q_min_size(s->n_tokens - first, job->block)};
    if (job->window && first + 1 > job->window)
        span.low = first + 1 - (size_t)job->window;
    span.high = fp8q_max_size(first + span.n, span.prefix);
    return span;
}

/* Tasks are numbered by sample, block of queries, key/value head.  */
static int task_run(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct job *job = ctx;
    const struct fp8q_group *group = job->group;
    (void)err;

    uint32_t kv_head = (uint32_t)(task % job->model->n_kv_heads);
    /* What is left counts blocks through all samples.  */
    task /= job->model->n_kv_heads;
    for (size_t i = 0; i < group->n_samples; i++) {
        size_t n_tokens = group->samples[i].n_tokens;
        size_t n_blocks = (size_t)fp8q_ceil_div(n_tokens, job->block);
        if (task >= n_blocks) {
            task -= n_blocks;
            continue;
        }
        struct span span = span_of(job, i, (size_t)task * job->block);
        attend(job, job->fw->workers + worker * job->fw->worker_floats, &span, kv_head);
        break;
    }
    return FP8Q_OK;
}

int fp8q_attention(struct fp8q_forward *fw, const struct fp8q_model *model,
                   const struct fp8q_group *group, uint64_t window, struct fp8q_error *err)
{
    struct job job = {fw, model, group, window, block_size(fw->gemm)};

    uint64_t tasks = 0;
    for (size_t i = 0; i < group->n_samples; i++)
        tasks += fp8q_ceil_div(group->samples[i].n_tokens, job.block);
    return fp8q_pool_run(fw->watch, fw->n_threads, tasks * model->n_kv_heads, task_run, &job, err);
}
