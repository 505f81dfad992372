/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - turns decisions into output tensors and pieces.
 */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exclude.h"
#include "layout.h"
#include "mem.h"

/* ---- memory of the plan ---------------------------------------------------------------------- */

struct block {
    struct block *next;
    max_align_t data[];
};

void *fp8q_plan_alloc(struct fp8q_plan *plan, uint64_t count, size_t size)
{
    uint64_t bytes;
    if (!fp8q_mul_u64(count, size, &bytes) || bytes > SIZE_MAX - sizeof(struct block))
        return NULL;
    struct block *b = calloc(1, sizeof(*b) + (size_t)bytes);
    if (!b)
        return NULL;
    b->next = plan->arena;
    plan->arena = b;
    return b->data;
}

void fp8q_plan_destroy(struct fp8q_plan *plan)
{
    if (!plan)
        return;
    for (struct block *b = plan->arena, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    for (size_t i = 0; i < plan->n_shards; i++) {
        free(plan->shards[i].name);
        free(plan->shards[i].header);
    }
    for (size_t i = 0; i < plan->n_exclusions; i++)
        free(plan->exclusions[i]);
    free(plan->exclusions);
    free(plan->shards);
    free(plan->tensors);
    free(plan->pieces);
    free(plan->index_text);
    free(plan->config_text);
    free(plan->quant_config);
    fp8q_selection_reset(&plan->selection);
    free(plan);
}

/* ---- output tensors and pieces --------------------------------------------------------------- */

struct builder {
    struct fp8q_plan *plan;
    size_t tensor_cap, piece_cap;
    struct fp8q_error *err;
};

struct fp8q_grid fp8q_scheme_grid(enum fp8q_scheme scheme)
{
    switch (scheme) {
    case FP8Q_SCHEME_CHANNEL:
        return (struct fp8q_grid){1, 0};
    case FP8Q_SCHEME_TENSOR:
        return (struct fp8q_grid){0, 0};
    default:
        return (struct fp8q_grid){FP8Q_BLOCK, FP8Q_BLOCK};
    }
}

const char *fp8q_plan_scale_name(struct fp8q_plan *plan, const char *weight)
{
    /* Per-tensor scales are "weight_scale" in both dialects; vLLM and SGLang read no other name. */
    bool inv =
        plan->options.format == FP8Q_FORMAT_FP8 && plan->options.select.scheme == FP8Q_SCHEME_BLOCK;
    const char *ending = inv ? "_scale_inv" : "_scale";
    size_t len = strlen(weight);
    char *name = fp8q_plan_alloc(plan, len + strlen(ending) + 1, 1);
    if (name) {
        memcpy(name, weight, len);
        strcpy(name + len, ending);
    }
    return name;
}

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
    return add_piece(b,
                     (struct fp8q_piece){.source = source,
                                         .output = output,
                                         .scale = SIZE_MAX,
                                         .n_rows = 1,
                                         .n_cols = t->size_bytes,
                                         .n_stripes = fp8q_ceil_div(t->size_bytes, FP8Q_COPY_BYTES),
                                         .kind = FP8Q_OUT_KEPT});
}

/* Codes and scale for rows [first_row, first_row + n_rows) of a source, under @name with @shape. */
static int add_quantized(struct builder *b, size_t source, const char *name, uint32_t ndim,
                         const uint64_t *shape, uint64_t first_row, uint64_t n_rows)
{
    struct fp8q_plan *plan = b->plan;
    const struct fp8q_tensor *t = &plan->ckpt->tensors[source];
    enum fp8q_scheme scheme = plan->selection.decisions[source].scheme;
    uint64_t n_cols = shape[ndim - 1], grid[2], scale_shape[3];
    size_t codes, scale;
    fp8q_grid_shape(fp8q_scheme_grid(scheme), n_rows, n_cols, grid);
    uint32_t scale_ndim = 2;
    scale_shape[0] = grid[0];
    scale_shape[1] = grid[1];
    if (ndim == 3) { /* rows of all experts are one matrix, since each has a multiple of 128 */
        scale_shape[0] = shape[0];
        scale_shape[1] = grid[0] / (shape[0] ? shape[0] : 1);
        scale_shape[2] = grid[1];
        scale_ndim = 3;
    } else if (scheme == FP8Q_SCHEME_TENSOR) {
        scale_ndim = 1; /* [1]: what compressed-tensors writes, and engines reshape */
    }
    const uint64_t *kept_shape = make_shape(b, ndim, shape);
    const uint64_t *kept_scale_shape = make_shape(b, scale_ndim, scale_shape);
    const char *scale_name = fp8q_plan_scale_name(plan, name);
    if (!kept_shape || !kept_scale_shape || !scale_name)
        return fp8q_fail_nomem(b->err);
    FP8Q_TRY(add_tensor(b,
                        (struct fp8q_out_tensor){.name = name,
                                                 .shape = kept_shape,
                                                 .ndim = ndim,
                                                 .shard = t->shard,
                                                 .dtype = FP8Q_F8_E4M3,
                                                 .kind = FP8Q_OUT_CODES,
                                                 .end = n_rows * n_cols,
                                                 .source = source},
                        &codes));
    FP8Q_TRY(add_tensor(b,
                        (struct fp8q_out_tensor){.name = scale_name,
                                                 .shape = kept_scale_shape,
                                                 .ndim = scale_ndim,
                                                 .shard = t->shard,
                                                 .dtype = FP8Q_F32,
                                                 .kind = FP8Q_OUT_SCALE,
                                                 .end = grid[0] * grid[1] * sizeof(float),
                                                 .source = source},
                        &scale));
    return add_piece(b, (struct fp8q_piece){.source = source,
                                            .output = codes,
                                            .scale = scale,
                                            .first_row = first_row,
                                            .n_rows = n_rows,
                                            .n_cols = n_cols,
                                            .n_stripes = fp8q_ceil_div(n_rows, FP8Q_BLOCK),
                                            .scheme = scheme,
                                            .kind = FP8Q_OUT_CODES});
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
    if (converts && fp8q_scale_owner(b->plan->ckpt, t->name))
        return FP8Q_OK;
    if (converts && t->dtype == FP8Q_F8_E4M3 && !d->quantize)
        return add_float(b, source);
    if (!d->quantize)
        return add_kept(b, source);
    if (d->reason == FP8Q_WHY_EXPERT_SPLIT ||
        (t->ndim == 3 && b->plan->selection.family->experts == FP8Q_EXPERTS_SPLIT))
        return add_split(b, source);
    return add_quantized(b, source, t->name, t->ndim, t->shape, 0,
                         t->ndim == 3 ? t->shape[0] * t->shape[1] : t->shape[0]);
}

static int by_place(const void *a, const void *b, void *tensors)
{
    const struct fp8q_tensor *x = (struct fp8q_tensor *)tensors + *(const size_t *)a;
    const struct fp8q_tensor *y = (struct fp8q_tensor *)tensors + *(const size_t *)b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x < y ? -1 : 1;
}

/* All sources in the order in which they lie on disk, so that reading is sequential.  */
static int add_sources(struct builder *b)
{
    const struct fp8q_ckpt *ckpt = b->plan->ckpt;
    size_t *order = fp8q_array(ckpt->n_tensors, sizeof(*order));
    int status = FP8Q_OK;
    if (!order)
        return fp8q_fail_nomem(b->err);
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        order[i] = i;
    qsort_r(order, ckpt->n_tensors, sizeof(*order), by_place, ckpt->tensors);
    for (size_t i = 0; i < ckpt->n_tensors && status == FP8Q_OK; i++)
        status = add_source(b, order[i]);
    free(order);
    return status;
}

const struct fp8q_piece *fp8q_plan_piece(const struct fp8q_plan *plan, uint64_t stripe)
{
    size_t low = 0, high = plan->n_pieces;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (plan->pieces[middle].first_stripe <= stripe)
            low = middle;
        else
            high = middle;
    }
    return &plan->pieces[low]; /* pieces without stripes come before the one that has this number */
}

bool fp8q_plan_has_scheme(const struct fp8q_plan *plan, enum fp8q_scheme scheme)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        if (plan->selection.decisions[i].quantize && plan->selection.decisions[i].scheme == scheme)
            return true;
    return false;
}

uint64_t fp8q_plan_widest_row(const struct fp8q_plan *plan)
{
    uint64_t widest = 0;
    for (size_t i = 0; i < plan->n_pieces; i++)
        if (plan->pieces[i].kind == FP8Q_OUT_CODES && plan->pieces[i].n_cols > widest)
            widest = plan->pieces[i].n_cols;
    return widest;
}

/* ---- totals and limits ----------------------------------------------------------------------- */

static void count(struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        struct fp8q_count *c = &plan->by_reason[plan->selection.decisions[i].reason];
        c->tensors++;
        c->source_bytes += plan->ckpt->tensors[i].size_bytes;
        plan->source_bytes += plan->ckpt->tensors[i].size_bytes;
    }
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[i];
        plan->by_reason[plan->selection.decisions[t->source].reason].output_bytes +=
            t->end - t->begin;
        plan->output_bytes += t->end - t->begin;
    }
}

static int refuse_nothing(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_text reasons = {0};
    if (plan->selection.n_quantize > 0)
        return FP8Q_OK;
    for (int r = 0; r < FP8Q_N_REASONS; r++)
        if (plan->by_reason[r].tensors)
            fp8q_text_printf(&reasons, "%s%zu %s", reasons.len ? ", " : "",
                             plan->by_reason[r].tensors, fp8q_reason_name((enum fp8q_reason)r));
    bool ragged = plan->by_reason[FP8Q_WHY_RAGGED].tensors > 0;
    bool experts = plan->by_reason[FP8Q_WHY_EXPERTS_UNSUPPORTED].tensors > 0;
    int status = fp8q_fail(
        err, FP8Q_E_MISMATCH, "nothing-to-quantize",
        "nothing to quantize: all %zu tensors stay (%s).%s%s%s", plan->ckpt->n_tensors,
        reasons.data ? reasons.data : "none",
        ragged ? " Ragged sizes are no multiples of 128: --ragged per-channel makes a checkpoint "
                 "that can be served, --ragged quantize one for own runtimes."
               : "",
        experts ? " Stacked experts of this family have no FP8 layout that engines read." : "",
        ragged ? "" : " --include PAT adds modules that stay by default.");
    fp8q_text_reset(&reasons);
    return status;
}

/* Working memory of one stripe: source, codes, and F32 values where the source is FP8 itself.  */
static uint64_t bytes_per_column(const struct fp8q_plan *plan, const struct fp8q_piece *p)
{
    unsigned in = fp8q_dtype_bits(plan->ckpt->tensors[p->source].dtype) / 8;
    bool from_fp8 = plan->ckpt->tensors[p->source].dtype == FP8Q_F8_E4M3;
    return FP8Q_BLOCK * ((uint64_t)in + sizeof(float) + (from_fp8 ? sizeof(float) : 0));
}

static int plan_memory(struct fp8q_plan *plan, struct fp8q_error *err)
{
    enum { SMALLEST = FP8Q_BLOCK * FP8Q_BLOCK * 12, LARGEST = 16 << 20, PER_TENSOR = 512 };
    uint64_t limit = plan->options.max_memory ? plan->options.max_memory : FP8Q_DEFAULT_MEMORY;
    uint64_t scales = 0, widest = FP8Q_COPY_BYTES;
    for (size_t i = 0; i < plan->n_shards; i++)
        if (plan->shards[i].scale_bytes > scales)
            scales = plan->shards[i].scale_bytes;
    for (size_t i = 0; i < plan->n_pieces; i++) {
        uint64_t need = plan->pieces[i].kind == FP8Q_OUT_KEPT
                            ? FP8Q_COPY_BYTES
                            : fp8q_ceil_div(plan->pieces[i].n_cols, FP8Q_BLOCK) * FP8Q_BLOCK *
                                  bytes_per_column(plan, &plan->pieces[i]);
        if (need > widest)
            widest = need;
    }
    /* Two shards can be in flight; tables and texts are there already.  */
    uint64_t fixed = ((uint64_t)8 << 20) + 2 * scales +
                     (plan->n_tensors + plan->ckpt->n_tensors) * PER_TENSOR + plan->n_stripes * 8;
    uint64_t stripe = widest < LARGEST ? widest : LARGEST;
    unsigned threads = plan->options.threads ? plan->options.threads : 1;
    if (limit < fixed + FP8Q_COPY_BYTES + SMALLEST)
        return fp8q_fail(err, FP8Q_E_ARG, "max-memory",
                         "--max-memory %llu bytes: this conversion needs at least %llu",
                         (unsigned long long)limit,
                         (unsigned long long)(fixed + FP8Q_COPY_BYTES + SMALLEST));
    while (threads > 1 && (limit - fixed) / threads < FP8Q_COPY_BYTES + SMALLEST)
        threads--;
    if ((limit - fixed) / threads < stripe)
        stripe = (limit - fixed) / threads;
    plan->threads = threads;
    plan->stripe_bytes = stripe;
    plan->peak_memory = fixed + threads * stripe;
    return FP8Q_OK;
}

static int refuse_quantized(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *what;
    if (plan->options.select.requantize || !fp8q_already_quantized(plan->ckpt, &what))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "already-quantized",
                     "%s: is quantized already (%s); --requantize takes FP8 weights through F32 "
                     "again",
                     fp8q_show(&shown, plan->ckpt->path), what);
}

static int refuse_tp(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *name = fp8q_tp_misfit(plan->ckpt, &plan->selection, plan->options.tp);
    if (plan->options.tp < 2 || !name)
        return FP8Q_OK;
    return fp8q_fail(
        err, FP8Q_E_MISMATCH, "tp",
        "--tp %u: a partition of \"%s\" is no multiple of 128; the largest power of two "
        "that fits is %u",
        plan->options.tp, fp8q_show(&shown, name), plan->largest_tp);
}

int fp8q_plan_check(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    if (plan->options.dequantize)
        return FP8Q_OK;
    FP8Q_TRY(refuse_quantized(plan, err));
    FP8Q_TRY(refuse_nothing(plan, err));
    return refuse_tp(plan, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int check_options(const struct fp8q_plan_options *o, struct fp8q_error *err)
{
    bool channel =
        o->select.scheme == FP8Q_SCHEME_CHANNEL || o->select.ragged == FP8Q_RAGGED_CHANNEL;
    if (channel && o->format == FP8Q_FORMAT_FP8)
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-format",
                         "per-channel scales cannot be said in the fp8 dialect: use --format "
                         "compressed-tensors");
    if (o->scale_fmt == FP8Q_SCALE_UE8M0 && o->select.scheme != FP8Q_SCHEME_BLOCK)
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-scale-fmt",
                         "--scale-fmt ue8m0 is defined for blocks only");
    return FP8Q_OK;
}

static void select_floats(struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        struct fp8q_decision *d = &plan->selection.decisions[i];
        d->reason = fp8q_scale_owner(plan->ckpt, plan->ckpt->tensors[i].name) ? FP8Q_WHY_SCALE
                    : plan->ckpt->tensors[i].dtype == FP8Q_F8_E4M3            ? FP8Q_WHY_ALREADY_FP8
                                                                              : FP8Q_WHY_NOT_FLOAT;
    }
}

/* The files are the truth: nothing is added or removed, but a head that contradicts the config is
 * said.  */
static int warn_about_head(const struct fp8q_plan *plan, struct fp8q_warnings *warnings,
                           struct fp8q_error *err)
{
    const struct fp8q_json *config = plan->ckpt->config;
    const struct fp8q_json *tie = fp8q_json_get(config, "tie_word_embeddings");
    if (!tie)
        tie = fp8q_json_path(config, "text_config.tie_word_embeddings");
    bool has_head = fp8q_ckpt_find(plan->ckpt, "lm_head.weight") != NULL;
    if (tie && fp8q_json_bool(tie, false) && has_head)
        return fp8q_warn(
            warnings, err, "tied-head",
            "config.json ties the word embeddings, yet lm_head.weight is there too: both "
            "are kept as they are");
    if (tie && !fp8q_json_bool(tie, true) && !has_head &&
        fp8q_ckpt_find(plan->ckpt, "model.embed_tokens.weight"))
        return fp8q_warn(warnings, err, "missing-head",
                         "config.json says that the word embeddings are not tied, yet there is no "
                         "lm_head.weight");
    return FP8Q_OK;
}

static int build(struct fp8q_plan *plan, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct builder b = {.plan = plan, .err = err};
    bool known;
    const char *type;
    FP8Q_TRY(check_options(&plan->options, err));
    if (plan->options.dequantize) {
        plan->selection.family = fp8q_family_of(plan->ckpt->config, &type, &known);
        plan->selection.decisions =
            fp8q_array(plan->ckpt->n_tensors, sizeof(*plan->selection.decisions));
        if (!plan->selection.decisions)
            return fp8q_fail_nomem(err);
        select_floats(plan);
    } else {
        FP8Q_TRY(fp8q_select(plan->ckpt, &plan->options.select, &plan->selection, warnings, err));
    }
    FP8Q_TRY(add_sources(&b));
    count(plan);
    if (!plan->options.dequantize) {
        plan->largest_tp = fp8q_largest_tp(plan->ckpt, &plan->selection, &plan->tp_limit);
        FP8Q_TRY(fp8q_exclude(plan, err));
        FP8Q_TRY(warn_about_head(plan, warnings, err));
    }
    FP8Q_TRY(fp8q_config_texts(plan, err));
    FP8Q_TRY(fp8q_layout(plan, err));
    return plan_memory(plan, err);
}

int fp8q_plan_create(const struct fp8q_ckpt *ckpt, const struct fp8q_plan_options *options,
                     struct fp8q_plan **plan_out, struct fp8q_warnings *warnings,
                     struct fp8q_error *err)
{
    *plan_out = NULL;
    struct fp8q_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return fp8q_fail_nomem(err);
    plan->ckpt = ckpt;
    plan->options = *options;
    plan->sidecar = SIZE_MAX;
    int status = build(plan, warnings, err);
    if (status != FP8Q_OK) {
        fp8q_plan_destroy(plan);
        return status;
    }
    *plan_out = plan;
    return FP8Q_OK;
}
