/* SPDX-License-Identifier: Apache-2.0
 *
 * forward.c - the buffers of a forward pass, which samples run together in them, and the angles of
 * their tokens.  What runs is in layer.c.
 */
#include "model/forward.h"

#include <stdlib.h>

#include "base/mem.h"

/* ---- buffers ------------------------------------------------------------------------------- */

/* Floats a token takes in the buffers of an MLP: those of a layer's, an expert's, the shared one's
 * pass through the same memory.  */
static uint64_t mlp_width(const struct fp8q_model *m)
{
    return fp8q_max_u64(m->intermediate, fp8q_max_u64(m->moe.width, m->moe.shared_width));
}

static size_t widest(const struct fp8q_model *m)
{
    uint64_t att = (uint64_t)m->n_heads * m->value_dim;
    uint64_t latent = fp8q_max_u64(m->latent.q_rank, m->latent.kv_rank);
    return (size_t)fp8q_max_u64(fp8q_max_u64(att, latent), fp8q_max_u64(m->hidden, mlp_width(m)));
}

/* Floats that a token takes in each buffer of one layer.  */
struct widths {
    uint64_t q, k, v, att, q_a, kv_a, kv_c, kv;
};

static struct widths widths_of(const struct fp8q_model *m)
{
    const struct fp8q_latent *l = &m->latent;
    struct widths w = {.q = (uint64_t)m->n_heads * m->head_dim,
                       .k = (uint64_t)m->n_kv_heads * m->head_dim,
                       .v = (uint64_t)m->n_kv_heads * m->value_dim,
                       .att = (uint64_t)m->n_heads * m->value_dim};
    if (l->kv_rank == 0)
        return w;

    w.q_a = l->q_rank;
    w.kv_a = (uint64_t)l->kv_rank + l->turning;
    w.kv_c = l->kv_rank;
    w.kv = (uint64_t)m->n_heads * (l->plain + m->value_dim);
    return w;
}

size_t fp8q_group_tokens(const struct fp8q_model *m, const struct fp8q_inputs *inputs,
                         unsigned n_branches, uint64_t bytes)
{
    const struct widths w = widths_of(m);
    /* Hidden states of all branches and their scores, then the buffers of one layer.  */
    uint64_t floats = m->hidden * (1 + 2 * (uint64_t)n_branches) + w.q + w.k + w.v + w.att + w.q_a +
                      w.kv_a + w.kv_c + w.kv + 2 * mlp_width(m) + widest(m) + m->head_dim;
    if (m->moe.n_experts)
        floats += 3 * m->hidden;

    uint64_t tokens = bytes / (4 * floats);
    for (size_t i = 0; i < inputs->n_samples; i++)
        tokens = fp8q_max_u64(tokens, inputs->samples[i].n_tokens);
    return (size_t)fp8q_min_u64(tokens, inputs->n_tokens);
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

    const struct widths w = widths_of(m);
    size_t rows = max_tokens + fw->gemm->mr, hidden = (size_t)m->hidden;
    /* 128 rows of a weight, once as F32 and once packed; or a few tokens and their FP8 values; or
     * attention.  */
    fw->worker_floats = fp8q_max_size(2 * (FP8Q_BLOCK + fw->gemm->nr) * fw->wide,
                                      fp8q_attention_floats(fw->gemm, m, max_sample));
    const struct {
        float **buffer;
        uint64_t floats;
    } buffers[] = {
        {&fw->x, (uint64_t)max_tokens * hidden},
        {&fw->q, (uint64_t)max_tokens * w.q},
        {&fw->k, (uint64_t)max_tokens * w.k},
        {&fw->v, (uint64_t)max_tokens * w.v},
        {&fw->att, (uint64_t)max_tokens * w.att},
        {&fw->latent.q_a, (uint64_t)max_tokens * w.q_a},
        {&fw->latent.kv_a, (uint64_t)max_tokens * w.kv_a},
        {&fw->latent.kv_c, (uint64_t)max_tokens * w.kv_c},
        {&fw->latent.kv, (uint64_t)max_tokens * w.kv},
        {&fw->gate, (uint64_t)max_tokens * mlp_width(m)},
        {&fw->up, (uint64_t)max_tokens * mlp_width(m)},
        {&fw->packed, fp8q_packed_floats(fw->gemm, rows, fw->wide)},
        {&fw->routed, m->moe.n_experts ? 3 * (uint64_t)max_tokens * hidden : 0},
        {&fw->workers, (uint64_t)fw->n_threads * fw->worker_floats},
    };
    for (size_t i = 0; i < sizeof(buffers) / sizeof(*buffers); i++) {
        *buffers[i].buffer = fp8q_array(buffers[i].floats, sizeof(float));
        if (!*buffers[i].buffer) {
            fp8q_forward_close(fw);
            return fp8q_fail_nomem(err);
        }
    }
    return FP8Q_OK;
}

void fp8q_forward_close(struct fp8q_forward *fw)
{
    free(fw->x);
    free(fw->q);
    free(fw->k);
    free(fw->v);
    free(fw->att);
    free(fw->latent.q_a);
    free(fw->latent.kv_a);
    free(fw->latent.kv_c);
    free(fw->latent.kv);
    free(fw->gate);
    free(fw->up);
    free(fw->packed);
    free(fw->routed);
    free(fw->workers);
    *fw = (struct fp8q_forward){0};
}

/* ---- groups -------------------------------------------------------------------------------- */

size_t fp8q_group_size(const struct fp8q_inputs *inputs, size_t first, size_t max_tokens)
{
    size_t n = 0, tokens = 0;
    for (size_t i = first; i < inputs->n_samples; i++, n++) {
        /* A sample longer than the limit is a group by itself.  */
        if (n > 0 && inputs->samples[i].n_tokens > max_tokens - tokens)
            break;
        tokens += inputs->samples[i].n_tokens;
        if (tokens >= max_tokens)
            return n + 1;
    }
    return n;
}

/* Positions of a sample and the largest of them; *@counted_out is what must be freed.  */
static int positions_of(const struct fp8q_sample *s, struct fp8q_positions *out,
                        int64_t **counted_out, int64_t *max_out, struct fp8q_error *err)
{
    *counted_out = NULL;
    *max_out = (int64_t)s->n_tokens - 1;
    *out = (struct fp8q_positions){s->positions, s->position_rows, s->n_tokens};
    if (s->positions) {
        *max_out = 0;
        for (size_t t = 0; t < s->n_tokens * s->position_rows; t++)
            if (s->positions[t] > *max_out)
                *max_out = s->positions[t];
        return FP8Q_OK;
    }

    int64_t *counted = fp8q_array(s->n_tokens, sizeof(*counted));
    if (!counted)
        return fp8q_fail_nomem(err);
    for (size_t t = 0; t < s->n_tokens; t++)
        counted[t] = (int64_t)t;
    *counted_out = counted;
    out->at = counted;
    out->rows = 1;
    return FP8Q_OK;
}

/* The part of the tables that belongs to sample @i.  */
static int fill_sample(const struct fp8q_group *g, struct fp8q_rotary *rotary, size_t i,
                       struct fp8q_error *err)
{
    struct fp8q_positions positions;
    int64_t *counted, max;
    float inv_freq[FP8Q_MAX_HEAD_DIM / 2];
    /* Dynamic scaling and longrope go by the sample's own length, so each has its frequencies.  */
    FP8Q_TRY(positions_of(&g->samples[i], &positions, &counted, &max, err));

    for (int k = 0; k < 2 && rotary->cos[k]; k++) {
        const struct fp8q_rope *rope = &rotary->model->ropes[k];
        size_t at = g->first[i] * (rope->dim / 2);
        fp8q_rope_frequencies(rope, (uint64_t)max, inv_freq);
        fp8q_rope_table(rope, inv_freq, &positions, rotary->cos[k] + at, rotary->sin[k] + at);
    }
    free(counted);
    return FP8Q_OK;
}

static bool needs_second(const struct fp8q_model *m)
{
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (m->rope_of[i] == 1)
            return true;
    return false;
}

int fp8q_group_add(struct fp8q_group *g, const struct fp8q_model *model, struct fp8q_error *err)
{
    for (unsigned i = 0; i < g->n_models; i++)
        /* Branches of one model share its angles.  */
        if (g->rotary[i].model == model)
            return FP8Q_OK;
    if (g->n_models == FP8Q_MAX_MODELS)
        return fp8q_fail(err, FP8Q_E_ARG, "group", "more than %d models in one group",
                         FP8Q_MAX_MODELS);

    struct fp8q_rotary *rotary = &g->rotary[g->n_models++];
    rotary->model = model;
    for (int k = 0; k < (needs_second(model) ? 2 : 1); k++) {
        uint64_t floats = (uint64_t)g->n_tokens * (model->ropes[k].dim / 2);
        rotary->cos[k] = fp8q_array(floats, sizeof(float));
        rotary->sin[k] = fp8q_array(floats, sizeof(float));
        if (!rotary->cos[k] || !rotary->sin[k])
            return fp8q_fail_nomem(err);
    }
    for (size_t i = 0; i < g->n_samples; i++)
        FP8Q_TRY(fill_sample(g, rotary, i, err));
    return FP8Q_OK;
}

int fp8q_group_open(struct fp8q_group *group_out, const struct fp8q_model *model,
                    const struct fp8q_sample *samples, size_t n_samples, struct fp8q_error *err)
{
    struct fp8q_group *g = group_out;
    *g = (struct fp8q_group){.samples = samples, .n_samples = n_samples};
    g->first = fp8q_array(n_samples, sizeof(*g->first));
    if (!g->first)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < n_samples; i++) {
        g->first[i] = g->n_tokens;
        g->n_tokens += samples[i].n_tokens;
        g->max_sample = fp8q_max_size(g->max_sample, samples[i].n_tokens);
    }

    int status = fp8q_group_add(g, model, err);
    if (status != FP8Q_OK)
        fp8q_group_close(g);
    return status;
}

void fp8q_group_close(struct fp8q_group *group)
{
    free(group->first);
    for (unsigned i = 0; i < group->n_models; i++)
        for (int k = 0; k < 2; k++) {
            free(group->rotary[i].cos[k]);
            free(group->rotary[i].sin[k]);
        }
    *group = (struct fp8q_group){0};
}
