/* SPDX-License-Identifier: Apache-2.0
 *
 * head.c - walks the vocabulary in tiles: a product for each branch, then an update for each token.
 * Tiles have a fixed size, so the order of the sums does not depend on threads.
 */
#include "model/head.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"

#define TILE ((uint64_t)16 * FP8Q_BLOCK)
#define TOKENS_A_TASK 16
#define TOKENS_A_PASS 4096 /* more tokens go through the head in several passes */

/* Running values of one token in one branch.  */
struct running {
    double sum;   /* e^(z - max) */
    double cross; /* e^(z_reference - its max) * (z_reference - z) */
    float max, second, target;
    uint32_t top;
};

struct pass {
    struct fp8q_forward *fw;
    const struct fp8q_branch *branches;
    unsigned n_branches;
    const int64_t *targets;
    size_t n_tokens;
    float **packed; /* per branch */
    float **logits; /* per branch [n_tokens][TILE] */
    struct running **running;
    uint64_t first, n; /* words of the tile */
};

/* Raises the maxima to those of the tile, keeping first and second choice of the reference.  */
static void update_max(struct running *r, const float *z, size_t n, float tile_max, uint64_t first,
                       bool with_second)
{
    /* Most tiles change nothing, and cost one comparison here.  */
    if (with_second && !(tile_max > r->second))
        return;
    if (!with_second && !(tile_max > r->max))
        return;

    float old = r->max;
    /* Only tiles that raise a maximum come here, so the scan is rare.  */
    for (size_t i = 0; i < n; i++) {
        /* The old first choice becomes the second.  */
        if (z[i] > r->max) {
            r->second = r->max;
            r->max = z[i];
            r->top = (uint32_t)(first + i);
            if (!with_second && z[i] == tile_max)
                break;
        } else if (z[i] > r->second) {
            r->second = z[i];
        }
    }

    if (r->max > old && r->sum > 0)
        r->sum *= exp((double)old - (double)r->max);
}

/* What lies between the product and the logit: Granite's factor, Gemma 2's cap.  */
static void bend(const struct pass *p, unsigned branch, float *z)
{
    const struct fp8q_model *m = p->branches[branch].model;
    for (uint64_t i = 0; i < p->n && m->logit_scale != 1.0f; i++)
        z[i] *= m->logit_scale;
    if (m->logit_cap > 0)
        p->fw->gemm->soft_cap(z, (size_t)p->n, m->logit_cap);
}

static void update_token(const struct pass *p, size_t t)
{
    const struct fp8q_gemm *g = p->fw->gemm;
    size_t n = (size_t)p->n;
    for (unsigned b = 0; b < p->n_branches; b++)
        bend(p, b, p->logits[b] + t * TILE);

    const float *z = p->logits[0] + t * TILE;
    struct running *ref = &p->running[0][t];
    float old = ref->max;
    update_max(ref, z, n, g->max(z, n), p->first, true);
    double shrink = ref->max > old && old > -INFINITY ? exp((double)old - (double)ref->max) : 1.0;

    int64_t target = p->targets[t] - (int64_t)p->first;
    bool here = p->targets[t] >= 0 && target >= 0 && target < (int64_t)n;
    /* The target's logit is kept as it passes: no other is.  */
    if (here)
        ref->target = z[target];

    /* The sum of the reference comes with the first other branch, or by itself where it is alone. */
    for (unsigned b = p->n_branches > 1 ? 1 : 0; b < p->n_branches; b++) {
        const float *y = p->logits[b] + t * TILE;
        struct running *r = &p->running[b][t];
        double sums[3] = {0};
        if (b > 0)
            update_max(r, y, n, g->max(y, n), p->first, false);
        g->kl_sums(z, y, n, ref->max, r->max, sums);
        if (b <= 1)
            ref->sum += sums[0];
        if (b > 0) {
            r->cross = r->cross * shrink + sums[1];
            r->sum += sums[2];
            if (here)
                r->target = y[target];
        }
    }
}

static int update_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct pass *p = ctx;
    (void)worker, (void)err;
    size_t first = (size_t)task * TOKENS_A_TASK;
    for (size_t t = first; t < first + TOKENS_A_TASK && t < p->n_tokens; t++)
        update_token(p, t);
    return FP8Q_OK;
}

static int finish(const struct pass *p, struct fp8q_token_score *const *scores, size_t at,
                  struct fp8q_error *err)
{
    for (size_t t = 0; t < p->n_tokens; t++) {
        const struct running *ref = &p->running[0][t];

        double z = (double)ref->max + log(ref->sum);
        for (unsigned b = 0; b < p->n_branches; b++) {
            const struct running *r = &p->running[b][t];
            double y = (double)r->max + log(r->sum);
            struct fp8q_token_score *s = &scores[b][at + t];
            s->nll = p->targets[t] >= 0 ? y - (double)r->target : 0.0;
            s->kld = b > 0 ? r->cross / ref->sum - z + y : 0.0;

            s->margin = (double)ref->max - (double)ref->second;
            s->top = r->top;
            if (s->kld < 0) /* rounding, where the two are all but equal */
                s->kld = 0;
            /* Sums of infinities end here, wherever they began.  */
            if (!isfinite(s->nll) || !isfinite(s->kld))
                return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite",
                                 "a logit of scored token %zu is NaN or infinite", at + t);
        }
    }
    return FP8Q_OK;
}

/* The product of the head in branch @b with a tile of the vocabulary.  */
static struct fp8q_product head_product(const struct pass *p, const struct fp8q_weights *weights,
                                        unsigned b)
{
    struct fp8q_product product = {.weights = weights[b],
                                   .first_row = p->first,
                                   .n_rows = p->n,
                                   .out = p->logits[b],
                                   .stride = TILE,
                                   .format = fp8q_branch_head_acts(&p->branches[b])};
    fp8q_product_prepare(&product);
    return product;
}

/* One tile of the vocabulary: the logits of each branch.  */
static int tile_logits(const struct pass *p, const struct fp8q_weights *weights,
                       struct fp8q_error *err)
{
    for (unsigned b = 0; b < p->n_branches; b++) {
        struct fp8q_product product = head_product(p, weights, b);
        struct fp8q_packed packed = {p->packed[b], p->n_tokens, product.format};
        FP8Q_TRY(fp8q_products_packed(p->fw, &packed, &product, 1, err));
    }
    return FP8Q_OK;
}

static int run_pass(struct pass *p, const struct fp8q_weights *weights, float *const *h, size_t at,
                    struct fp8q_error *err)
{
    struct fp8q_forward *fw = p->fw;
    const struct fp8q_branch *branches = p->branches;
    size_t hidden = (size_t)branches[0].model->hidden;
    for (unsigned b = 0; b < p->n_branches; b++) {
        struct fp8q_packed packed = {p->packed[b], p->n_tokens, head_product(p, weights, b).format};
        FP8Q_TRY(fp8q_products_pack(fw, h[b] + at * hidden, hidden, &packed, NULL, err));
        for (size_t t = 0; t < p->n_tokens; t++)
            p->running[b][t] = (struct running){.max = -INFINITY, .second = -INFINITY};
    }

    uint64_t vocab = branches[0].model->vocab;
    uint64_t tasks = fp8q_ceil_div(p->n_tokens, TOKENS_A_TASK);
    for (p->first = 0; p->first < vocab; p->first += p->n) {
        p->n = fp8q_min_u64(vocab - p->first, TILE);
        FP8Q_TRY(tile_logits(p, weights, err));
        FP8Q_TRY(fp8q_pool_run(fw->watch, fw->n_threads, tasks, update_task, p, err));
    }
    return FP8Q_OK;
}

static bool allocate(struct pass *p, struct fp8q_weights **weights_out, size_t n_tokens,
                     size_t hidden)
{
    unsigned n = p->n_branches;
    bool ok = true;
    *weights_out = fp8q_array(n, sizeof(**weights_out));
    p->packed = fp8q_array(n, sizeof(*p->packed));
    p->logits = fp8q_array(n, sizeof(*p->logits));
    p->running = fp8q_array(n, sizeof(*p->running));
    if (!*weights_out || !p->packed || !p->logits || !p->running)
        return false;

    for (unsigned b = 0; b < n; b++) {
        p->packed[b] = fp8q_array(fp8q_packed_floats(p->fw->gemm, n_tokens, hidden), sizeof(float));
        p->logits[b] = fp8q_array(n_tokens * TILE, sizeof(float));
        p->running[b] = fp8q_array(n_tokens, sizeof(**p->running));
        ok = ok && p->packed[b] && p->logits[b] && p->running[b];
    }
    return ok;
}

static void release(struct pass *p, struct fp8q_weights *weights)
{
    for (unsigned b = 0; b < p->n_branches; b++) {
        if (weights)
            fp8q_weights_reset(&weights[b]);
        if (p->packed)
            free(p->packed[b]);
        if (p->logits)
            free(p->logits[b]);
        if (p->running)
            free(p->running[b]);
    }
    free(weights);
    free(p->packed);
    free(p->logits);
    free(p->running);
}

static int score_all(struct pass *p, struct fp8q_weights *weights, size_t most,
                     const struct fp8q_head_job *job, struct fp8q_error *err)
{
    for (unsigned b = 0; b < p->n_branches; b++)
        FP8Q_TRY(fp8q_weights_open(p->branches[b].model->ckpt, p->branches[b].model->head_name,
                                   &weights[b], err));

    for (size_t at = 0; at < job->n_tokens; at += p->n_tokens) {
        p->n_tokens = fp8q_min_size(job->n_tokens - at, most);
        p->targets = job->targets + at;
        FP8Q_TRY(run_pass(p, weights, job->h, at, err));
        FP8Q_TRY(finish(p, job->scores_out, at, err));
    }
    return FP8Q_OK;
}

int fp8q_head_score(struct fp8q_forward *fw, const struct fp8q_head_job *job,
                    struct fp8q_error *err)
{
    struct pass p = {.fw = fw, .branches = job->branches, .n_branches = job->n_branches};
    struct fp8q_weights *weights = NULL;
    size_t most = fp8q_min_size(job->n_tokens, TOKENS_A_PASS);
    int status;
    if (allocate(&p, &weights, most, (size_t)job->branches[0].model->hidden))
        status = score_all(&p, weights, most, job, err);
    else
        status = fp8q_fail_nomem(err);
    release(&p, weights);
    return status;
}
