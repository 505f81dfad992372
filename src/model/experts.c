/* SPDX-License-Identifier: Apache-2.0
 *
 * experts.c - a mixture of experts.
 *
 * How it works.  The router, in full precision, gives each token its few experts and their weights.
 * Then experts are taken one by one, in rising order: the rows of their tokens are gathered, run
 * through gate, up and down as a small batch, and added to those tokens with their weights.  An
 * expert that no token chose is not read.  Sums are in the order of experts, whoever computes them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/internal.h"

struct mixture {
    const struct fp8q_layer *layer;
    const struct fp8q_moe *moe;
    size_t n_tokens, hidden;
    float *logits;         /* [n_tokens][n_experts], then scores; owned */
    float *bias;           /* NULL, or what corrects the choice; owned */
    float *choice;         /* a token's experts and groups by worth; owned */
    uint32_t *chosen;      /* [n_tokens][n_active], owned */
    float *weights;        /* [n_tokens][n_active], owned */
    uint32_t *tokens;      /* those of one expert; owned */
    float *share;          /* their weights; owned */
    float *sum, *in, *out; /* [n_tokens][hidden], in fp8q_forward.routed */
};

/* ---- the router ------------------------------------------------------------------------------ */

/* x times a weight that is never rounded, [n_tokens][n_rows].  */
static int plain_product(const struct fp8q_layer *l, const char *name, const float *x, float *out,
                         struct fp8q_error *err)
{
    const struct fp8q_model *m = l->branch->model;
    struct fp8q_product p = {.out = out};
    struct fp8q_name buf;
    FP8Q_TRY(fp8q_weights_open(m->ckpt, fp8q_layer_name(m, l->index, name, &buf), &p.weights, err));

    p.n_rows = p.weights.n_rows;
    p.stride = (size_t)p.n_rows;
    int status = fp8q_products_run(l->fw, x, l->group->n_tokens, &p, 1, err);
    fp8q_products_close(&p, 1);
    return status;
}

/* By way of F64: the F32 functions of C libraries differ in the last bit.  */
static float exponential(float x)
{
    return (float)exp((double)x);
}

/* Logits of a token -> scores, by which its experts are weighed.  False if one is not finite.  */
static bool score(const struct fp8q_moe *moe, float *logits)
{
    float max = -INFINITY, sum = 0;
    for (uint32_t e = 0; e < moe->n_experts; e++)
        max = fmaxf(max, logits[e]);

    /* The largest is taken off first: exponentials of router logits may overflow.  */
    for (uint32_t e = 0; e < moe->n_experts; e++) {
        logits[e] =
            moe->sigmoid ? 1.0f / (1.0f + exponential(-logits[e])) : exponential(logits[e] - max);
        sum += logits[e];
    }
    for (uint32_t e = 0; e < moe->n_experts && !moe->sigmoid; e++)
        logits[e] /= sum;
    return isfinite(sum) && isfinite(max);
}

/* Index of the largest of @n values; of equals the first.  */
static uint32_t best_of(const float *values, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (values[i] > values[best])
            best = i;
    return best;
}

/* What the experts of a group are worth together: its best one or two.  */
static float worth(const float *choice, uint32_t n, unsigned group_by)
{
    uint32_t best = best_of(choice, n);
    float second = -INFINITY;
    if (group_by == 1)
        return choice[best];

    for (uint32_t i = 0; i < n; i++)
        if (i != best)
            second = fmaxf(second, choice[i]);
    return choice[best] + second;
}

/* Experts outside of the best groups are out of the choice.  */
static void keep_groups(const struct mixture *x, float *choice)
{
    const struct fp8q_moe *moe = x->moe;
    uint32_t size = moe->n_experts / moe->n_groups;
    float *worths = choice + moe->n_experts;

    for (uint32_t g = 0; g < moe->n_groups; g++)
        worths[g] = worth(choice + g * size, size, moe->group_by);
    for (uint32_t k = 0; k < moe->n_best_groups; k++)
        worths[best_of(worths, moe->n_groups)] = -INFINITY; /* taken */
    for (uint32_t g = 0; g < moe->n_groups; g++)
        for (uint32_t i = 0; worths[g] > -INFINITY && i < size; i++)
            choice[g * size + i] = -INFINITY;
}

/* The n_active best experts of a token and their weights.  */
static bool route_token(const struct mixture *x, size_t t)
{
    const struct fp8q_moe *moe = x->moe;
    float *scores = x->logits + t * moe->n_experts, *weights = x->weights + t * moe->n_active;
    float *choice = x->choice, sum = 0;
    uint32_t *chosen = x->chosen + t * moe->n_active;
    if (!score(moe, scores))
        return false;

    /* The correction says who is chosen, never with what weight.  */
    for (uint32_t e = 0; e < moe->n_experts; e++)
        choice[e] = scores[e] + (x->bias ? x->bias[e] : 0);
    if (moe->group_by > 0)
        keep_groups(x, choice);

    for (uint32_t k = 0; k < moe->n_active; k++) {
        chosen[k] = best_of(choice, moe->n_experts);
        choice[chosen[k]] = -INFINITY; /* taken */
        weights[k] = scores[chosen[k]];
        sum += weights[k];
    }
    for (uint32_t k = 0; k < moe->n_active; k++)
        weights[k] *= moe->scale / (moe->normalized ? fmaxf(sum, moe->least_sum) : 1.0f);
    return true;
}

static int read_bias(struct mixture *x, struct fp8q_error *err)
{
    const struct fp8q_layer *l = x->layer;
    struct fp8q_name name;
    struct fp8q_shown shown;
    fp8q_layer_name(l->branch->model, l->index, x->moe->bias, &name);
    FP8Q_TRY(fp8q_step_read(l->fw, l->branch->model, name.text, x->moe->n_experts, &x->bias, err));

    /* NaN would win or lose every comparison.  */
    for (uint32_t e = 0; e < x->moe->n_experts; e++)
        if (!isfinite(x->bias[e]))
            return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite",
                             "tensor \"%s\" holds NaN or infinity", fp8q_show(&shown, name.text));
    return FP8Q_OK;
}

static int route(struct mixture *x, const float *in, struct fp8q_error *err)
{
    FP8Q_TRY(plain_product(x->layer, x->moe->router, in, x->logits, err));
    if (x->moe->bias)
        FP8Q_TRY(read_bias(x, err));

    for (size_t t = 0; t < x->n_tokens; t++)
        if (!route_token(x, t))
            return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "the router gave NaN or infinity");
    return FP8Q_OK;
}

/* ---- experts --------------------------------------------------------------------------------- */

static int open_expert(const struct mixture *x, uint32_t expert, enum fp8q_linear linear,
                       float *out, struct fp8q_product *p, struct fp8q_error *err)
{
    const struct fp8q_layer *l = x->layer;
    const struct fp8q_model *m = l->branch->model;
    size_t slot = fp8q_expert_slot(m, l->index, expert, linear);
    struct fp8q_place place;
    fp8q_expert_place(m, l->index, expert, linear, &place);
    *p = (struct fp8q_product){.matrix = place.matrix,
                               .first_row = place.first_row,
                               .n_rows = place.n_rows,
                               .transposed = place.transposed,
                               .stride = (size_t)place.n_rows,
                               .out = out,
                               .format = fp8q_branch_acts(l->branch, slot),
                               .clipping = l->branch->clipping ? &l->branch->clipping[slot] : NULL};
    FP8Q_TRY(fp8q_product_open(l->branch, place.name.text, p, err));

    p->round = l->branch->round && l->branch->round[slot];
    p->round_fmt = l->branch->round_fmt;
    return FP8Q_OK;
}

/* Calibration looks on, as it does at the sites of a layer.  */
static int show_inputs(const struct mixture *x, uint32_t expert, size_t n, enum fp8q_site_kind site,
                       struct fp8q_error *err)
{
    struct fp8q_forward *fw = x->layer->fw;
    bool first = site == FP8Q_SITE_GATE_UP;
    const struct fp8q_site_inputs inputs = {.group = x->layer->group,
                                            .layer = x->layer->index,
                                            .site = site,
                                            .x = first ? x->in : fw->gate,
                                            .width = first ? x->hidden : (size_t)x->moe->width,
                                            .n_tokens = n,
                                            .tokens = x->tokens,
                                            .expert = expert};
    return fw->on_site ? fw->on_site(fw->on_site_ctx, fw, &inputs, err) : FP8Q_OK;
}

static int run_products(const struct mixture *x, uint32_t expert, size_t n,
                        struct fp8q_product p[3], struct fp8q_error *err)
{
    struct fp8q_forward *fw = x->layer->fw;
    FP8Q_TRY(show_inputs(x, expert, n, FP8Q_SITE_GATE_UP, err));
    if (x->layer->until == FP8Q_SITE_GATE_UP)
        return FP8Q_OK;

    FP8Q_TRY(open_expert(x, expert, FP8Q_GATE_PROJ, fw->gate, &p[0], err));
    FP8Q_TRY(open_expert(x, expert, FP8Q_UP_PROJ, fw->up, &p[1], err));
    FP8Q_TRY(open_expert(x, expert, FP8Q_DOWN_PROJ, x->out, &p[2], err));

    /* gate and up share an input, and so one packing of it.  */
    FP8Q_TRY(fp8q_products_run(fw, x->in, n, p, 2, err));
    FP8Q_TRY(fp8q_step_activate(fw, x->layer->branch->model, fw->gate, fw->up, n,
                                (size_t)x->moe->width, err));

    FP8Q_TRY(show_inputs(x, expert, n, FP8Q_SITE_DOWN, err));
    if (x->layer->until == FP8Q_SITE_DOWN)
        return FP8Q_OK;
    return fp8q_products_run(fw, fw->gate, n, &p[2], 1, err);
}

/* gate, up, down on the first @n gathered rows: in -> out.  */
static int run_expert(const struct mixture *x, uint32_t expert, size_t n, struct fp8q_error *err)
{
    struct fp8q_product p[3] = {{.out = NULL}};
    int status = run_products(x, expert, n, p, err);
    fp8q_products_close(p, 3);
    return status;
}

/* Which tokens chose @expert, and with what weight.  */
static size_t tokens_of(const struct mixture *x, uint32_t expert)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n_tokens * x->moe->n_active; i++)
        if (x->chosen[i] == expert) {
            x->tokens[n] = (uint32_t)(i / x->moe->n_active);
            x->share[n++] = x->weights[i];
        }
    return n;
}

static int add_experts(const struct mixture *x, const float *in, struct fp8q_error *err)
{
    size_t hidden = x->hidden;
    for (uint32_t e = 0; e < x->moe->n_experts; e++) {
        /* An expert that nobody chose costs nothing, not even a read.  */
        size_t n = tokens_of(x, e);
        if (n == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            memcpy(x->in + i * hidden, in + x->tokens[i] * hidden, hidden * sizeof(*in));
        FP8Q_TRY(run_expert(x, e, n, err));
        if (x->layer->until != FP8Q_N_SITES)
            continue;

        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < hidden; j++)
                x->sum[x->tokens[i] * hidden + j] += x->out[i * hidden + j] * x->share[i];
    }
    return FP8Q_OK;
}

/* The shared expert's output, which @sum holds already, times the sigmoid of its gate, if it has
 * one.  */
static int weigh_shared(const struct mixture *x, const float *in, struct fp8q_error *err)
{
    if (!x->moe->shared_gate)
        return FP8Q_OK;

    FP8Q_TRY(plain_product(x->layer, x->moe->shared_gate, in, x->logits, err));
    for (size_t t = 0; t < x->n_tokens; t++) {
        /* How much of the shared expert a token wants.  */
        float gate = 1.0f / (1.0f + exponential(-x->logits[t]));
        for (size_t j = 0; j < x->hidden; j++)
            x->sum[t * x->hidden + j] *= gate;
    }
    return FP8Q_OK;
}

static int run_mixture(struct mixture *x, const float *in, bool shared, struct fp8q_error *err)
{
    size_t n = x->n_tokens;
    x->logits = fp8q_array((uint64_t)n * x->moe->n_experts, sizeof(*x->logits));
    x->chosen = fp8q_array((uint64_t)n * x->moe->n_active, sizeof(*x->chosen));
    x->weights = fp8q_array((uint64_t)n * x->moe->n_active, sizeof(*x->weights));
    x->tokens = fp8q_array(n, sizeof(*x->tokens));
    x->share = fp8q_array(n, sizeof(*x->share));
    x->choice = fp8q_array(2 * (uint64_t)x->moe->n_experts, sizeof(*x->choice));
    if (!x->logits || !x->choice || !x->chosen || !x->weights || !x->tokens || !x->share)
        return fp8q_fail_nomem(err);

    if (shared)
        FP8Q_TRY(weigh_shared(x, in, err));
    else
        memset(x->sum, 0, n * x->hidden * sizeof(*x->sum));
    FP8Q_TRY(route(x, in, err));
    FP8Q_TRY(add_experts(x, in, err));

    /* The input lies where the output belongs, so it is written last.  */
    memcpy(x->layer->fw->x, x->sum, n * x->hidden * sizeof(float));
    return FP8Q_OK;
}

int fp8q_experts(const struct fp8q_layer *l, const float *in, bool shared, struct fp8q_error *err)
{
    const struct fp8q_model *m = l->branch->model;
    size_t n = l->group->n_tokens, hidden = (size_t)m->hidden;
    struct mixture x = {.layer = l, .moe = &m->moe, .n_tokens = n, .hidden = hidden};

    x.sum = l->fw->routed;

    x.in = x.sum + n * hidden;
    x.out = x.in + n * hidden;

    int status = run_mixture(&x, in, shared, err);
    free(x.logits);
    free(x.bias);
    free(x.choice);
    free(x.chosen);
    free(x.weights);
    free(x.tokens);
    free(x.share);
    return status;
}
