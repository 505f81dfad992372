/* SPDX-License-Identifier: Apache-2.0
 *
 * layer.c - embedding, one layer, final norm.
 *
 * How it works.  A layer is two halves, and every architecture fits these lines; what a row of
 * architectures.c leaves out is skipped:
 *
 *     x = norm(h)                        steps.c
 *     q, k, v = linears(x)               linear.c: one pass over the weights, from disk
 *     norm and turn q and k              steps.c
 *     x = linear(attention(q, k, v))     attention.c
 *     h += scale * norm(x)
 *
 *     x = norm(h)
 *     x = down(activation(gate(x)) * up(x))   or experts.c
 *     h += scale * norm(x)
 *
 * Latent attention makes q, k and v in more steps (run_latent).  The head with its statistics is in
 * head.c.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/internal.h"

/* ---- one layer ----------------------------------------------------------------------------- */

int fp8q_product_open(const struct fp8q_branch *branch, const char *name, struct fp8q_product *p,
                      struct fp8q_error *err)
{
    const struct fp8q_stand_in *stand_in = branch->stand_in;
    FP8Q_TRY(fp8q_weights_open(branch->model->ckpt, name, &p->weights, err));
    if (stand_in && stand_in->has(stand_in->ctx, p->weights.tensor))
        p->stand_in = stand_in;
    return FP8Q_OK;
}

static int open_product(const struct fp8q_layer *l, enum fp8q_linear linear, float *out,
                        struct fp8q_product *p, struct fp8q_error *err)
{
    const struct fp8q_model *m = l->branch->model;
    size_t slot = fp8q_linear_slot(l->index, linear);
    struct fp8q_name name;
    uint64_t shape[2];
    *p = (struct fp8q_product){.out = out,
                               .format = fp8q_branch_acts(l->branch, slot),
                               .clipping = l->branch->clipping ? &l->branch->clipping[slot] : NULL};
    FP8Q_TRY(fp8q_product_open(l->branch, fp8q_linear_name(m, l->index, linear, ".weight", &name),
                               p, err));

    /* Of a fused weight only the linear's own rows; the shared expert has a width of its own.  */
    fp8q_linear_shape(m, linear, shape);
    p->first_row = fp8q_linear_first_row(m, linear);
    p->n_rows = fp8q_min_u64(shape[0], p->weights.n_rows);
    if (linear >= FP8Q_GATE_PROJ && m->sparse[l->index])
        p->n_rows = p->weights.n_rows;
    p->stride = (size_t)p->n_rows;
    p->round = l->branch->round && l->branch->round[slot];
    p->round_fmt = l->branch->round_fmt;
    if (m->bias[linear])
        return fp8q_step_read(l->fw, m, fp8q_linear_name(m, l->index, linear, ".bias", &name),
                              p->n_rows, &p->bias, err);
    return FP8Q_OK;
}

void fp8q_products_close(struct fp8q_product *products, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        /* Products that were never opened are zeroed, and that is enough.  */
        fp8q_weights_reset(&products[i].weights);
        free(products[i].bias);
    }
}

/* Linears of one layer that share an input.  */
struct site_run {
    enum fp8q_linear first;
    size_t n;
    const float *x;
    float *const *outs;
};

static int run_products(const struct fp8q_layer *l, const struct site_run *run,
                        struct fp8q_product *products, struct fp8q_error *err)
{
    for (size_t i = 0; i < run->n; i++)
        FP8Q_TRY(
            open_product(l, (enum fp8q_linear)(run->first + i), run->outs[i], &products[i], err));
    return fp8q_products_run(l->fw, run->x, l->group->n_tokens, products, run->n, err);
}

/* Columns of the linears at a site; the shared expert has a width of its own.  */
static size_t width_at(const struct fp8q_layer *l, enum fp8q_site_kind site)
{
    const struct fp8q_model *m = l->branch->model;
    if (site == FP8Q_SITE_DOWN && m->sparse[l->index])
        return (size_t)m->moe.shared_width;
    return (size_t)fp8q_site_width(m, site);
}

/* The linears first..first+n-1, which share the input @x.  */
static int run_site(const struct fp8q_layer *l, enum fp8q_linear first, size_t n, const float *x,
                    float *const *outs, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    struct fp8q_product products[3] = {{.out = NULL}};
    const enum fp8q_site_kind site = fp8q_linear_site(first);
    const struct fp8q_site_inputs inputs = {.group = l->group,
                                            .layer = l->index,
                                            .site = site,
                                            .x = x,
                                            .width = width_at(l, site),
                                            .n_tokens = l->group->n_tokens,
                                            .expert = FP8Q_NO_EXPERT};

    /* Calibration looks on here, before anything is quantized.  */
    if (fw->on_site)
        FP8Q_TRY(fw->on_site(fw->on_site_ctx, fw, &inputs, err));
    if (l->until == site)
        return FP8Q_OK;

    int status = run_products(l, &(struct site_run){first, n, x, outs}, products, err);
    fp8q_products_close(products, n);
    return status;
}

/* The norm at one of the four places, or nothing where the architecture has none.  */
static int norm_at(const struct fp8q_layer *l, enum fp8q_norm place, const float *in, float *out,
                   struct fp8q_error *err)
{
    const struct fp8q_model *m = l->branch->model;
    struct fp8q_name name;
    if (!m->norms[place])
        return FP8Q_OK;
    return fp8q_step_norm(l->fw, m, fp8q_layer_name(m, l->index, m->norms[place], &name),
                          l->group->n_tokens, in, out, err);
}

/* Rows of @n values, @stride apart, as an FP8 cache gives them back.  */
static void pass_rows(const struct fp8q_layer *l, float *x, size_t n, size_t stride, float scale)
{
    const struct fp8q_forward *fw = l->fw;
    uint8_t *codes = (uint8_t *)fw->workers; /* free between two products */

    for (size_t t = 0; t < l->group->n_tokens; t++, x += stride) {
        fw->kernel->encode[FP8Q_FLOAT_F32](codes, x, n, scale);
        fw->kernel->decode[FP8Q_FLOAT_F32](x, codes, n, scale);
    }
}

static void pass_cache(const struct fp8q_layer *l)
{
    const struct fp8q_model *m = l->branch->model;
    size_t k = (size_t)m->n_kv_heads * m->head_dim, v = (size_t)m->n_kv_heads * m->value_dim;
    pass_rows(l, l->fw->k, k, k, l->branch->cache_scales[l->index][0]);
    pass_rows(l, l->fw->v, v, v, l->branch->cache_scales[l->index][1]);
}

/* Engines cache latent vectors, with the keys' common part, as keys alone.  */
static void pass_latent(const struct fp8q_layer *l)
{
    const struct fp8q_latent *a = &l->branch->model->latent;
    float scale = l->branch->cache_scales[l->index][0];
    pass_rows(l, l->fw->latent.kv_c, a->kv_rank, a->kv_rank, scale);
    pass_rows(l, l->fw->latent.kv_a + a->kv_rank, a->turning, (size_t)a->kv_rank + a->turning,
              scale);
}

/* The norm of a latent vector: of the first @width elements of each row of @in.  */
static int norm_latent(const struct fp8q_layer *l, const char *rest, size_t width, size_t in_stride,
                       const float *in, float *out, struct fp8q_error *err)
{
    const struct fp8q_model *m = l->branch->model;
    struct fp8q_name name;
    const struct fp8q_norm_job norm = {.name = fp8q_layer_name(m, l->index, rest, &name),
                                       .in = in,
                                       .out = out,
                                       .n_tokens = l->group->n_tokens,
                                       .width = width,
                                       .in_stride = in_stride,
                                       .out_stride = width,
                                       .eps = m->latent.eps};
    return fp8q_step_norm_part(l->fw, m, &norm, err);
}

/* q, by way of a shorter vector where the architecture compresses queries.  */
static int run_latent_queries(const struct fp8q_layer *l, const float *x, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    size_t rank = l->branch->model->latent.q_rank;
    float *q_a = fw->latent.q_a;
    if (rank == 0)
        return run_site(l, FP8Q_Q_PROJ, 1, x, &fw->q, err);

    FP8Q_TRY(run_site(l, FP8Q_Q_PROJ, 1, x, &q_a, err));
    if (l->until == FP8Q_SITE_QKV)
        return FP8Q_OK;
    FP8Q_TRY(norm_latent(l, FP8Q_Q_A_NORM, rank, rank, q_a, q_a, err));
    return run_site(l, FP8Q_Q_B_PROJ, 1, q_a, &fw->q, err);
}

/* q, k and v of latent attention, turned and scaled.  */
static int run_latent(const struct fp8q_layer *l, const float *x, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    const struct fp8q_latent *a = &l->branch->model->latent;
    float *kv_a = fw->latent.kv_a, *kv_c = fw->latent.kv_c;
    size_t stride = (size_t)a->kv_rank + a->turning;
    FP8Q_TRY(run_latent_queries(l, x, err));
    if (l->until < FP8Q_SITE_KV_A)
        return FP8Q_OK;

    FP8Q_TRY(run_site(l, FP8Q_KV_A_PROJ, 1, x, &kv_a, err));
    if (l->until == FP8Q_SITE_KV_A)
        return FP8Q_OK;
    FP8Q_TRY(norm_latent(l, FP8Q_KV_A_NORM, a->kv_rank, stride, kv_a, kv_c, err));
    FP8Q_TRY(fp8q_step_turn_key(l, err));
    if (l->branch->cache_scales)
        pass_latent(l);

    FP8Q_TRY(run_site(l, FP8Q_KV_B_PROJ, 1, kv_c, &fw->latent.kv, err));
    if (l->until == FP8Q_SITE_KV_B)
        return FP8Q_OK;
    return fp8q_step_spread(l, err);
}

/* q, k and v of the usual attention.  */
static int run_heads(const struct fp8q_layer *l, const float *x, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    FP8Q_TRY(run_site(l, FP8Q_Q_PROJ, 3, x, (float *const[]){fw->q, fw->k, fw->v}, err));
    if (l->until == FP8Q_SITE_QKV)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_step_rotate(l, err));
    if (l->branch->cache_scales)
        pass_cache(l);
    return FP8Q_OK;
}

static int run_attention(const struct fp8q_layer *l, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    const struct fp8q_model *m = l->branch->model;

    /* OLMo 2 reads the hidden state itself: its norms stand behind.  */
    const float *x = m->norms[FP8Q_NORM_IN] ? fw->x : l->h;
    FP8Q_TRY(norm_at(l, FP8Q_NORM_IN, l->h, fw->x, err));
    if (m->latent.kv_rank)
        FP8Q_TRY(run_latent(l, x, err));
    else
        FP8Q_TRY(run_heads(l, x, err));
    if (l->until < FP8Q_SITE_O)
        return FP8Q_OK;

    if (fw->on_cache)
        FP8Q_TRY(fw->on_cache(fw->on_site_ctx, fw, l->group, l->index, err));

    FP8Q_TRY(fp8q_attention(fw, m, l->group, m->window[l->index], err));
    FP8Q_TRY(run_site(l, FP8Q_O_PROJ, 1, fw->att, &fw->x, err));
    if (l->until == FP8Q_SITE_O)
        return FP8Q_OK;

    FP8Q_TRY(norm_at(l, FP8Q_NORM_OUT, fw->x, fw->x, err));
    return fp8q_step_add(l, err);
}

/* gate, up and down of the MLP, or of the expert that all tokens share: @x to @out.  */
static int run_dense(const struct fp8q_layer *l, const float *x, float *out, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    const struct fp8q_model *m = l->branch->model;
    size_t width = (size_t)(m->sparse[l->index] ? m->moe.shared_width : m->intermediate);
    FP8Q_TRY(run_site(l, FP8Q_GATE_PROJ, 2, x, (float *const[]){fw->gate, fw->up}, err));
    if (l->until == FP8Q_SITE_GATE_UP)
        return FP8Q_OK;
    FP8Q_TRY(fp8q_step_activate(fw, m, fw->gate, fw->up, l->group->n_tokens, width, err));
    return run_site(l, FP8Q_DOWN_PROJ, 1, fw->gate, &out, err);
}

static int run_mlp(const struct fp8q_layer *l, struct fp8q_error *err)
{
    struct fp8q_forward *fw = l->fw;
    const struct fp8q_model *m = l->branch->model;
    const float *x = m->norms[FP8Q_NORM_MLP_IN] ? fw->x : l->h;
    FP8Q_TRY(norm_at(l, FP8Q_NORM_MLP_IN, l->h, fw->x, err));

    if (!m->sparse[l->index]) {
        FP8Q_TRY(run_dense(l, x, fw->x, err));
    } else {
        bool shared = m->moe.shared_width > 0;
        if (shared)
            FP8Q_TRY(run_dense(l, x, fw->routed, err));
        FP8Q_TRY(fp8q_experts(l, x, shared, err));
    }
    if (l->until != FP8Q_N_SITES)
        return FP8Q_OK;

    FP8Q_TRY(norm_at(l, FP8Q_NORM_MLP_OUT, fw->x, fw->x, err));
    return fp8q_step_add(l, err);
}

/* Qwen3-VL: what deeper layers of the vision tower saw joins behind the first layers.  */
static void add_deepstack(const struct fp8q_layer *l)
{
    size_t hidden = (size_t)l->branch->model->hidden;
    for (size_t i = 0; i < l->group->n_samples && l->index < FP8Q_MAX_DEEPSTACK; i++) {
        const struct fp8q_sample *s = &l->group->samples[i];
        float *h = l->h + l->group->first[i] * hidden;
        for (size_t j = 0; s->deepstack[l->index] && j < s->n_tokens * hidden; j++)
            h[j] += s->deepstack[l->index][j];
    }
}

static int run_layer(const struct fp8q_layer *l, struct fp8q_error *err)
{
    if (l->from == FP8Q_SITE_QKV)
        FP8Q_TRY(run_attention(l, err));
    if (l->until < FP8Q_SITE_GATE_UP)
        return FP8Q_OK;

    FP8Q_TRY(run_mlp(l, err));
    if (l->until == FP8Q_N_SITES)
        add_deepstack(l);
    return FP8Q_OK;
}

/* Which of two checkpoints gave an infinity is what the user asks first.  */
static int name_culprit(const struct fp8q_layer *l, int status, const struct fp8q_error *inner,
                        struct fp8q_error *err)
{
    struct fp8q_shown shown;
    if (strcmp(inner->id, "not-finite") != 0) {
        if (err)
            *err = *inner;
        return status;
    }
    return fp8q_fail(err, (enum fp8q_status)status, "not-finite", "%s, layer %u: %s",
                     fp8q_show(&shown, l->branch->model->ckpt->path), l->index, inner->message);
}

int fp8q_forward_layer(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                       const struct fp8q_group *group, uint32_t layer, float *h,
                       struct fp8q_error *err)
{
    const struct fp8q_part whole = {layer, FP8Q_SITE_QKV, FP8Q_N_SITES};
    return fp8q_forward_part(fw, branch, group, &whole, h, err);
}

int fp8q_forward_part(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                      const struct fp8q_group *group, const struct fp8q_part *part, float *h,
                      struct fp8q_error *err)
{
    struct fp8q_layer l = {.fw = fw,
                           .branch = branch,
                           .group = group,
                           .index = part->layer,
                           .from = part->from,
                           .until = part->until,
                           .h = h};
    for (unsigned i = 0; i < group->n_models; i++)
        if (group->rotary[i].model == branch->model)
            l.rotary = &group->rotary[i];
    if (!l.rotary)
        return fp8q_fail(err, FP8Q_E_ARG, "group", "the group was not made for this model");

    struct fp8q_error inner = {0};
    int status = run_layer(&l, &inner);
    return status != FP8Q_OK ? name_culprit(&l, status, &inner, err) : FP8Q_OK;
}

int fp8q_forward_norm(struct fp8q_forward *fw, const struct fp8q_branch *branch, size_t n_tokens,
                      float *h, struct fp8q_error *err)
{
    struct fp8q_name name = {""};
    strcat(strcat(name.text, branch->model->prefix), "norm.weight");
    return fp8q_step_norm(fw, branch->model, name.text, n_tokens, h, h, err);
}

/* ---- embedding ----------------------------------------------------------------------------- */

/* Captured embeddings are what entered the first layer, so only rows of the table are scaled.  */
static int embed_sample(struct fp8q_forward *fw, const struct fp8q_weights *w,
                        const struct fp8q_sample *s, float scale, float *h, struct fp8q_error *err)
{
    size_t hidden = (size_t)w->n_cols;
    if (s->embeds) {
        memcpy(h, s->embeds, s->n_tokens * hidden * sizeof(*h));
        return FP8Q_OK;
    }
    /* A row at a time: ids are few beside the vocabulary.  */
    for (size_t t = 0; t < s->n_tokens; t++)
        FP8Q_TRY(fp8q_weights_read(w, fw->kernel, (uint64_t)s->ids[t], 1, fw->workers,
                                   h + t * hidden, err));
    for (size_t i = 0; i < s->n_tokens * hidden && scale != 1.0f; i++)
        h[i] *= scale;
    return FP8Q_OK;
}

static int embed_all(struct fp8q_forward *fw, const struct fp8q_model *m,
                     const struct fp8q_weights *weights, const struct fp8q_group *group, float *h,
                     struct fp8q_error *err)
{
    for (size_t i = 0; i < group->n_samples; i++)
        FP8Q_TRY(embed_sample(fw, weights, &group->samples[i], m->embed_scale,
                              h + group->first[i] * m->hidden, err));
    return FP8Q_OK;
}

int fp8q_forward_embed(struct fp8q_forward *fw, const struct fp8q_branch *branch,
                       const struct fp8q_group *group, float *h, struct fp8q_error *err)
{
    const struct fp8q_model *m = branch->model;
    struct fp8q_weights weights;
    FP8Q_TRY(fp8q_weights_open(m->ckpt, m->embed_name, &weights, err));
    int status = embed_all(fw, m, &weights, group, h, err);
    fp8q_weights_reset(&weights);
    return status;
}
