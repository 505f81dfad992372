/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.c - part of planning: decisions become output tensors, and the pieces that fill them.
 *
 * A piece is rows of one source tensor that become one output tensor: mostly all of them; stacked
 * experts that engines want one by one give a piece for each.  What is left unquantized is one row
 * of bytes.  Sources are taken in the order in which they lie on disk.
 */
#include "plan/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/scales.h"
#include "format/names.h"
#include "select/fused.h"
#include "select/scheme.h"

struct builder {
    struct fp8q_plan *plan;
    size_t tensor_cap, piece_cap;
    struct fp8q_error *err;
};

static int add_tensor(struct builder *b, struct fp8q_out_tensor tensor, size_t *index_out)
{
    struct fp8q_plan *plan = b->plan;
    FP8Q_TRY(fp8q_grow(&plan->tensors, plan->n_tensors, &b->tensor_cap, sizeof(tensor), b->err));

    *index_out = plan->n_tensors;
    plan->tensors[plan->n_tensors++] = tensor;
    return FP8Q_OK;
}

static int add_piece(struct builder *b, struct fp8q_piece piece)
{
    struct fp8q_plan *plan = b->plan;
    piece.group = SIZE_MAX;
    FP8Q_TRY(fp8q_grow(&plan->pieces, plan->n_pieces, &b->piece_cap, sizeof(piece), b->err));

    plan->pieces[plan->n_pieces++] = piece;
    return FP8Q_OK;
}

/* Sizes in the order [..., rows, cols], in memory of the plan.  */
static const uint64_t *make_shape(struct builder *b, uint32_t ndim, const uint64_t *sizes)
{
    uint64_t *shape = fp8q_plan_alloc(b->plan, ndim, sizeof(*shape));

    if (shape)
        memcpy(shape, sizes, ndim * sizeof(*shape));
    return shape;
}

static int add_kept(struct builder *b, size_t source)
{
    const struct fp8q_tensor *t = &b->plan->ckpt->tensors[source];
    size_t output;
    FP8Q_TRY(add_tensor(b,
                        (struct fp8q_out_tensor){.name = t->name,
                                                 .shape = t->shape,
                                                 .ndim = t->ndim,
                                                 .shard = t->shard,
                                                 .dtype = t->dtype,
                                                 .kind = FP8Q_OUT_KEPT,
                                                 .end = t->size_bytes,
                                                 .source = source},
                        &output));

    /* Bytes are copied as they are: one row of them, whatever the shape.  */
    return add_piece(b,
                     (struct fp8q_piece){.source = source,
                                         .output = output,
                                         .scale = SIZE_MAX,
                                         .n_rows = 1,
                                         .n_cols = t->size_bytes,
                                         .n_stripes = fp8q_ceil_div(t->size_bytes, FP8Q_COPY_BYTES),
                                         .kind = FP8Q_OUT_KEPT});
}

/* Shape of the scales of a matrix that is quantized, in memory of the plan; NULL without.  */
static const uint64_t *scale_shape(struct builder *b, enum fp8q_scheme scheme, uint32_t ndim,
                                   const uint64_t *shape, const uint64_t grid[2],
                                   uint32_t *ndim_out)
{
    uint64_t sizes[3] = {grid[0], grid[1]};
    *ndim_out = 2;

    if (ndim == 3) { /* rows of all experts are one matrix, since each has a multiple of 128 */
        sizes[0] = shape[0];
        sizes[1] = grid[0] / (shape[0] ? shape[0] : 1);
        sizes[2] = grid[1];
        *ndim_out = 3;
    } else if (scheme == FP8Q_SCHEME_TENSOR) {
        *ndim_out = 1; /* [1]: what compressed-tensors writes, and engines reshape */
    }

    return make_shape(b, *ndim_out, sizes);
}

/* "X.input_scale" of weight "X.weight".  */
static const char *input_scale_name(struct builder *b, const char *weight)
{
    static const char ending[] = ".input_scale";
    size_t stem = fp8q_weight_stem(weight), room = stem + sizeof(ending);
    char *name = fp8q_plan_alloc(b->plan, room, 1);
    if (name)
        snprintf(name, room, "%.*s%s", (int)stem, weight, ending);
    return name;
}

/* What the inputs of a linear are scaled by, beside its weight.  */
static int add_input_scale(struct builder *b, size_t source, const char *weight)
{
    struct fp8q_plan *plan = b->plan;
    const struct fp8q_data_scales *data = plan->options.data;
    static const uint64_t one[1] = {1};
    size_t index;

    struct fp8q_out_tensor scale = {.name = input_scale_name(b, weight),
                                    .shape = make_shape(b, 1, one),
                                    .ndim = 1,
                                    .shard = plan->ckpt->tensors[source].shard,
                                    .dtype = FP8Q_F32,
                                    .kind = FP8Q_OUT_CONSTANT,
                                    .end = sizeof(float),
                                    .source = source};
    if (!scale.name || !scale.shape)
        return fp8q_fail_nomem(b->err);
    FP8Q_TRY(data->input(data->ctx, weight, &scale.value, b->err));
    return add_tensor(b, scale, &index);
}

/* FP8 values and scales for rows [first_row, first_row + n_rows) of a source, under @name with
 * @shape.  */
static int add_quantized(struct builder *b, size_t source, const char *name, uint32_t ndim,
                         const uint64_t *shape, uint64_t first_row, uint64_t n_rows)
{
    struct fp8q_plan *plan = b->plan;
    uint32_t shard = plan->ckpt->tensors[source].shard;
    enum fp8q_scheme asked = plan->selection.decisions[source].scheme;
    enum fp8q_scheme scheme = fp8q_scheme_of_weights(asked);
    uint64_t n_cols = shape[ndim - 1], grid[2];

    /* E8M0 as U8: what engines declare, since not all of their containers know the type.  */
    enum fp8q_dtype scale_type = scheme == FP8Q_SCHEME_GROUP ? FP8Q_U8 : FP8Q_F32;

    fp8q_grid_shape(fp8q_scheme_grid(scheme), n_rows, n_cols, grid);

    struct fp8q_out_tensor codes = {.name = name,
                                    .shape = make_shape(b, ndim, shape),
                                    .ndim = ndim,
                                    .shard = shard,
                                    .dtype = FP8Q_F8_E4M3,
                                    .kind = FP8Q_OUT_CODES,
                                    .end = n_rows * n_cols,
                                    .source = source};
    struct fp8q_out_tensor scale = {.name = fp8q_plan_scale_name(plan, name, scheme),
                                    .shard = shard,
                                    .dtype = scale_type,
                                    .kind = FP8Q_OUT_SCALE,
                                    .end = grid[0] * grid[1] * (fp8q_dtype_bits(scale_type) / 8),
                                    .source = source};
    scale.shape = scale_shape(b, scheme, ndim, shape, grid, &scale.ndim);
    if (!codes.shape || !scale.shape || !scale.name)
        return fp8q_fail_nomem(b->err);

    struct fp8q_piece piece = {.source = source,
                               .first_row = first_row,
                               .n_rows = n_rows,
                               .n_cols = n_cols,
                               .n_stripes = fp8q_ceil_div(n_rows, FP8Q_BLOCK),
                               .scheme = scheme,
                               .kind = FP8Q_OUT_CODES};
    FP8Q_TRY(add_tensor(b, codes, &piece.output));
    FP8Q_TRY(add_tensor(b, scale, &piece.scale));
    if (asked == FP8Q_SCHEME_STATIC || plan->options.static_inputs)
        FP8Q_TRY(add_input_scale(b, source, name));
    return add_piece(b, piece);
}

/* "...experts" + ".E." + projection + ".weight" */
static const char *expert_name(struct builder *b, const char *stacked, uint64_t expert,
                               const char *projection)
{
    size_t head = (size_t)(strrchr(stacked, '.') - stacked);
    size_t room = head + strlen(projection) + 32;
    char *name = fp8q_plan_alloc(b->plan, room, 1);
    if (name)
        snprintf(name, room, "%.*s.%llu.%s.weight", (int)head, stacked, (unsigned long long)expert,
                 projection);
    return name;
}

static int add_split(struct builder *b, size_t source)
{
    const struct fp8q_tensor *t = &b->plan->ckpt->tensors[source];
    bool gate_up = strcmp(strrchr(t->name, '.'), ".gate_up_proj") == 0;
    static const char *const projections[2][2] = {{"down_proj", NULL}, {"gate_proj", "up_proj"}};

    /* gate and up are the two halves of the rows of each expert.  */
    uint64_t rows = gate_up ? t->shape[1] / 2 : t->shape[1];

    for (uint64_t e = 0; e < t->shape[0]; e++)
        for (unsigned half = 0; half < (gate_up ? 2U : 1U); half++) {
            const char *name = expert_name(b, t->name, e, projections[gate_up][half]);
            uint64_t shape[2] = {rows, t->shape[2]};
            if (!name)
                return fp8q_fail_nomem(b->err);
            FP8Q_TRY(add_quantized(b, source, name, 2, shape, e * t->shape[1] + half * rows, rows));
        }
    return FP8Q_OK;
}

/* A weight that becomes floats again.  Its scale tensor is not carried.  */
static int add_float(struct builder *b, size_t source)
{
    struct fp8q_plan *plan = b->plan;
    const struct fp8q_tensor *t = &plan->ckpt->tensors[source];
    uint64_t n_cols = t->ndim ? t->shape[t->ndim - 1] : 1;
    uint64_t n_rows = n_cols ? t->n_elems / n_cols : 0, bytes;
    size_t output;
    if (!fp8q_mul_u64(t->n_elems, fp8q_dtype_bits(plan->options.to) / 8, &bytes))
        return fp8q_fail(b->err, FP8Q_E_UNSUPPORTED, "too-large", "a tensor is too large");

    /* The scales are not carried: their values are in the floats.  */
    FP8Q_TRY(add_tensor(b,
                        (struct fp8q_out_tensor){.name = t->name,
                                                 .shape = t->shape,
                                                 .ndim = t->ndim,
                                                 .shard = t->shard,
                                                 .dtype = plan->options.to,
                                                 .kind = FP8Q_OUT_FLOAT,
                                                 .end = bytes,
                                                 .source = source},
                        &output));
    return add_piece(b, (struct fp8q_piece){.source = source,
                                            .output = output,
                                            .scale = SIZE_MAX,
                                            .n_rows = n_rows,
                                            .n_cols = n_cols,
                                            .n_stripes = fp8q_ceil_div(n_rows, FP8Q_BLOCK),
                                            .kind = FP8Q_OUT_FLOAT});
}

static int add_source(struct builder *b, size_t source)
{
    const struct fp8q_tensor *t = &b->plan->ckpt->tensors[source];
    const struct fp8q_decision *d = &b->plan->selection.decisions[source];
    bool converts = b->plan->options.dequantize || b->plan->options.select.requantize;

    /* Scales go with the FP8 values that they scaled.  */
    if (d->reason == FP8Q_WHY_STALE_SCALE)
        return FP8Q_OK;
    if (converts && fp8q_scale_owner(b->plan->ckpt, t->name))
        return FP8Q_OK;
    if (converts && fp8q_is_quantization_marker(t->name))
        return FP8Q_OK;
    /* Made anew.  */
    if (b->plan->options.fp8_cache && fp8q_is_cache_scale(t->name))
        return FP8Q_OK;
    /* Engines read them beside FP8 weights; in a plain checkpoint they are unknown names.  */
    if (b->plan->options.dequantize && t->n_elems == 1 && fp8q_is_cache_scale(t->name))
        return FP8Q_OK;
    if (converts && fp8q_is_fp8(t->dtype) && !d->quantize)
        return add_float(b, source);

    if (!d->quantize)
        return add_kept(b, source);

    bool is_split = t->ndim == 3 && b->plan->selection.family.experts == FP8Q_EXPERTS_SPLIT;
    if (is_split || d->reason == FP8Q_WHY_EXPERT_SPLIT)
        return add_split(b, source);
    uint64_t n_rows = t->ndim == 3 ? t->shape[0] * t->shape[1] : t->shape[0];
    return add_quantized(b, source, t->name, t->ndim, t->shape, 0, n_rows);
}

/* ---- scales of the cache ----------------------------------------------------------------------- */

/* @n bytes of a weight's name are those of its attention.  Engines find the scales below the
 * projections; of a fused one, below the attention.  */
static int add_cache_scale(struct builder *b, size_t source, size_t n, bool values, bool fused)
{
    struct fp8q_plan *plan = b->plan;
    const struct fp8q_data_scales *data = plan->options.data;
    const struct fp8q_tensor *t = &plan->ckpt->tensors[source];
    static const uint64_t one[1] = {1};
    char half = values ? 'v' : 'k', *attention = fp8q_plan_alloc(plan, n + 1, 1);
    char *name = fp8q_plan_alloc(plan, n + 32, 1);
    size_t index;

    struct fp8q_out_tensor scale = {.name = name,
                                    .shape = make_shape(b, 1, one),
                                    .ndim = 1,
                                    .shard = t->shard,
                                    .dtype = FP8Q_F32,
                                    .kind = FP8Q_OUT_CONSTANT,
                                    .end = sizeof(float),
                                    .source = source};
    if (!attention || !name || !scale.shape)
        return fp8q_fail_nomem(b->err);

    memcpy(attention, t->name, n);
    if (fused)
        snprintf(name, n + 32, "%s.%c_scale", attention, half);
    else
        snprintf(name, n + 32, "%s.%c_proj.%c_scale", attention, half, half);
    FP8Q_TRY(data->cache(data->ctx, attention, values, &scale.value, b->err));
    return add_tensor(b, scale, &index);
}

static int add_cache_scales(struct builder *b)
{
    const struct fp8q_ckpt *ckpt = b->plan->ckpt;
    size_t n_before = b->plan->n_tensors;

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const char *name = ckpt->tensors[i].name;
        size_t k = fp8q_stem_len(name, ".k_proj.weight"), v = fp8q_stem_len(name, ".v_proj.weight");
        size_t whole = fp8q_stem_len(name, ".qkv_proj.weight");
        if (!b->plan->selection.decisions[i].linear)
            continue;
        if (k || whole)
            FP8Q_TRY(add_cache_scale(b, i, k + whole, false, whole != 0));
        if (v || whole)
            FP8Q_TRY(add_cache_scale(b, i, v + whole, true, whole != 0));
    }

    if (b->plan->n_tensors > n_before)
        return FP8Q_OK;
    return fp8q_fail(b->err, FP8Q_E_UNSUPPORTED, "kv-cache",
                     "--kv-cache: no key and value projections of a decoder were found");
}

/* ---- scales that are shared ------------------------------------------------------------------ */

static bool has_tensor_scale(const struct fp8q_piece *p)
{
    return p->kind == FP8Q_OUT_CODES && p->scheme == FP8Q_SCHEME_TENSOR;
}

/* Engines load q, k and v, or gate and up, as one matrix, and of one that has a scale per tensor
 * they requantize all parts to the largest scale.  With one scale for all there is nothing to
 * requantize.  */
static int number_groups(struct builder *b, const char **names, size_t *of_piece, size_t *numbers)
{
    struct fp8q_plan *plan = b->plan;
    size_t n = 0;

    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        if (!has_tensor_scale(p))
            continue;
        of_piece[n] = i;
        names[n++] = plan->tensors[p->output].name;
        plan->bytes_read_twice += p->n_stripes * fp8q_plan_stripe_bytes(plan, p);
    }
    FP8Q_TRY(fp8q_fused_number(names, n, numbers, b->err));

    for (size_t i = 0; i < n; i++) {
        plan->pieces[of_piece[i]].group = numbers[i];
        plan->n_groups = numbers[i] >= plan->n_groups ? numbers[i] + 1 : plan->n_groups;
    }
    return FP8Q_OK;
}

static int share_scales(struct builder *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->plan->n_pieces; i++)
        n += has_tensor_scale(&b->plan->pieces[i]);
    if (n == 0)
        return FP8Q_OK;

    const char **names = fp8q_array(n, sizeof(*names));
    size_t *of_piece = fp8q_array(n, sizeof(*of_piece)), *numbers = fp8q_array(n, sizeof(*numbers));
    int status = names && of_piece && numbers ? number_groups(b, names, of_piece, numbers)
                                              : fp8q_fail_nomem(b->err);
    free(names);
    free(of_piece);
    free(numbers);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b, void *tensors)
{
    const struct fp8q_tensor *x = (struct fp8q_tensor *)tensors + *(const size_t *)a;
    const struct fp8q_tensor *y = (struct fp8q_tensor *)tensors + *(const size_t *)b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;

    /* Empty tensors share an offset: the table's order decides, on every machine alike.  */
    return x < y ? -1 : 1;
}

static int add_sources(struct builder *b, size_t *order)
{
    const struct fp8q_ckpt *ckpt = b->plan->ckpt;

    for (size_t i = 0; i < ckpt->n_tensors; i++)
        order[i] = i;
    qsort_r(order, ckpt->n_tensors, sizeof(*order), by_place, ckpt->tensors);
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        FP8Q_TRY(add_source(b, order[i]));
    if (b->plan->options.fp8_cache)
        FP8Q_TRY(add_cache_scales(b));
    return share_scales(b);
}

/* All sources in the order in which they lie on disk, so that reading is sequential.  */
int fp8q_plan_pieces(struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct builder b = {.plan = plan, .err = err};
    size_t *order = fp8q_array(plan->ckpt->n_tensors, sizeof(*order));
    int status = order ? add_sources(&b, order) : fp8q_fail_nomem(err);
    free(order);
    return status;
}
