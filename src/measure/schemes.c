/* SPDX-License-Identifier: Apache-2.0
 *
 * schemes.c - weights of the source as schemes would round them, each linear by its own.
 *
 * Blocks are rounded by the branch itself, which knows where they begin.  Scales of a row, or of 32
 * columns of one, speak of that row alone: a stand-in reads the source's rows and rounds them.  What
 * an engine does with the inputs stands in a copy of the model's description.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/e8m0.h"
#include "measure/internal.h"

/* Values of @scheme_of: a scheme, so that 0 is "as it is".  */
#define MARK(scheme) ((uint8_t)((scheme) + 1))

static size_t tensor_of(const struct fp8q_as *as, const struct fp8q_tensor *weight)
{
    return (size_t)(weight - as->model->ckpt->tensors);
}

static bool has(const void *ctx, const struct fp8q_tensor *weight)
{
    const struct fp8q_as *as = ctx;
    return as->scheme_of[tensor_of(as, weight)] != 0;
}

/* One row there and back, with one scale.  */
static int round_row(const struct fp8q_kernel *kernel, float *row, size_t n, uint8_t *codes,
                     struct fp8q_error *err)
{
    float amax;
    if (!fp8q_amax_value(FP8Q_FLOAT_F32, kernel->amax_bits[FP8Q_FLOAT_F32](row, n), &amax))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "a weight is NaN or infinite");

    float scale = fp8q_scale(amax, FP8Q_SCALE_F32);
    kernel->encode[FP8Q_FLOAT_F32](codes, row, n, scale);
    kernel->decode[FP8Q_FLOAT_F32](row, codes, n, scale);
    return FP8Q_OK;
}

/* The same in groups of 32; their exponents follow the codes.  */
static int round_groups(const struct fp8q_kernel *kernel, float *row, size_t n, uint8_t *codes,
                        struct fp8q_error *err)
{
    uint8_t *exponents = codes + n;
    float amax;
    uint32_t bits = kernel->encode_groups[FP8Q_FLOAT_F32](codes, exponents, row, n);
    if (!fp8q_amax_value(FP8Q_FLOAT_F32, bits, &amax))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "a weight is NaN or infinite");

    for (size_t c = 0; c < n; c += FP8Q_GROUP)
        kernel->decode[FP8Q_FLOAT_F32](row + c, codes + c, fp8q_min_size(n - c, FP8Q_GROUP),
                                       fp8q_e8m0_value(exponents[c / FP8Q_GROUP]));
    return FP8Q_OK;
}

static int read_rows(const void *ctx, const struct fp8q_tensor *weight, uint64_t row,
                     uint64_t n_rows, void *raw, float *out, struct fp8q_error *err)
{
    const struct fp8q_as *as = ctx;
    bool groups = as->scheme_of[tensor_of(as, weight)] == MARK(FP8Q_SCHEME_GROUP);
    struct fp8q_weights w;
    FP8Q_TRY(fp8q_weights_open(as->model->ckpt, weight->name, &w, err));

    /* @raw has four bytes an element, and is free again once they are floats.  */
    size_t n = (size_t)w.n_cols;
    int status = fp8q_weights_read(&w, as->kernel, row, n_rows, raw, out, err);
    for (uint64_t r = 0; r < n_rows && status == FP8Q_OK; r++)
        status = groups ? round_groups(as->kernel, out + r * n, n, raw, err)
                        : round_row(as->kernel, out + r * n, n, raw, err);
    fp8q_weights_reset(&w);
    return status;
}

int fp8q_as_open(const struct fp8q_model *model, const char *kernel, struct fp8q_as *as,
                 struct fp8q_error *err)
{
    *as = (struct fp8q_as){.model = model,
                           .kernel = fp8q_kernel_select(kernel),
                           .like = *model,
                           .stand_in = {.ctx = as, .has = has, .read = read_rows}};
    as->scheme_of = fp8q_array(model->ckpt->n_tensors, sizeof(*as->scheme_of));
    as->round = fp8q_array(model->n_slots, sizeof(*as->round));
    as->served = fp8q_array(model->n_slots, sizeof(*as->served));
    as->like.served = as->served;
    if (!as->scheme_of || !as->round || !as->served)
        return fp8q_fail_nomem(err);

    fp8q_as_clear(as);
    return FP8Q_OK;
}

void fp8q_as_close(struct fp8q_as *as)
{
    free(as->scheme_of);
    free(as->round);
    free(as->served);
}

void fp8q_as_clear(struct fp8q_as *as)
{
    memset(as->scheme_of, 0, as->model->ckpt->n_tensors);
    memset(as->round, 0, as->model->n_slots * sizeof(*as->round));
    memcpy(as->served, as->model->served, as->model->n_slots);
}

static void add_weight(struct fp8q_as *as, const struct fp8q_part_weight *w,
                       enum fp8q_scheme scheme)
{
    static const enum fp8q_acts acts[] = {[FP8Q_SCHEME_BLOCK] = FP8Q_ACTS_BLOCK,
                                          [FP8Q_SCHEME_CHANNEL] = FP8Q_ACTS_TOKEN,
                                          [FP8Q_SCHEME_GROUP] = FP8Q_ACTS_GROUP};
    as->served[w->slot] = (uint8_t)acts[scheme];
    as->round[w->slot] = scheme == FP8Q_SCHEME_BLOCK;
    if (w->tensor && scheme != FP8Q_SCHEME_BLOCK)
        as->scheme_of[tensor_of(as, w->tensor)] = MARK(scheme);
}

/* A stack's weight stands for all its experts.  */
static void add_experts(struct fp8q_as *as, uint32_t layer, enum fp8q_scheme scheme)
{
    const struct fp8q_model *m = as->model;
    for (uint32_t e = 0; e < m->moe.n_experts; e++)
        for (int i = FP8Q_GATE_PROJ; i <= FP8Q_DOWN_PROJ; i++) {
            struct fp8q_place place;
            struct fp8q_part_weight w = {.slot =
                                             fp8q_expert_slot(m, layer, e, (enum fp8q_linear)i)};
            fp8q_expert_place(m, layer, e, (enum fp8q_linear)i, &place);
            w.tensor = fp8q_ckpt_find(m->ckpt, place.name.text);
            add_weight(as, &w, scheme);
        }
}

void fp8q_as_add(struct fp8q_as *as, const struct fp8q_sweep_unit *u,
                 const struct fp8q_sweep_choice *choice)
{
    for (uint32_t layer = u->first_layer; layer <= u->last_layer; layer++)
        for (int i = 0; i < FP8Q_N_PARTS; i++) {
            struct fp8q_part_weight w;
            if (!(choice->linears >> i & 1) || !fp8q_part_exists(as->model, layer, i))
                continue;
            if (i == FP8Q_PART_EXPERTS)
                add_experts(as, layer, choice->scheme);
            else if (fp8q_part_weight_of(as->model, layer, i, 0, &w))
                add_weight(as, &w, choice->scheme);
        }
}
