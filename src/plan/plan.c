/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - turns decisions into output tensors and pieces.
 */
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/exclude.h"
#include "plan/layout.h"
#include "base/mem.h"

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

/* ---- questions about a plan -------------------------------------------------------------------
 */

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

uint64_t fp8q_plan_stripe_bytes(const struct fp8q_plan *plan, const struct fp8q_piece *piece)
{
    const struct fp8q_tensor *t = &plan->ckpt->tensors[piece->source];
    uint64_t elem = 1; /* what is kept is a row of bytes */

    if (piece->kind != FP8Q_OUT_KEPT && t->n_elems)
        elem = t->size_bytes / t->n_elems;
    return piece->n_stripes ? piece->n_rows * piece->n_cols * elem / piece->n_stripes : 0;
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

static int check_options(const struct fp8q_plan *plan, struct fp8q_warnings *warnings,
                         struct fp8q_error *err)
{
    const struct fp8q_plan_options *o = &plan->options;
    bool channel =
        o->select.scheme == FP8Q_SCHEME_CHANNEL || o->select.ragged == FP8Q_RAGGED_CHANNEL;
    if (channel && o->format == FP8Q_FORMAT_FP8)
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-format",
                         "per-channel scales cannot be said in the fp8 dialect: use --format "
                         "compressed-tensors");
    if (o->max_shard_size && !plan->ckpt->is_dir)
        return fp8q_fail(err, FP8Q_E_ARG, "max-shard-size",
                         "--max-shard-size: the source is one file, and so is its output");
    if (o->scale_fmt == FP8Q_SCALE_UE8M0 && o->select.scheme != FP8Q_SCHEME_BLOCK)
        return fp8q_fail(err, FP8Q_E_ARG, "scheme-scale-fmt",
                         "--scale-fmt ue8m0 is defined for blocks only");
    if (!o->dequantize && o->select.scheme == FP8Q_SCHEME_TENSOR && o->format == FP8Q_FORMAT_FP8)
        return fp8q_warn(
            warnings, err, "scheme-format",
            "per-tensor scales in the fp8 dialect are called weight_scale, as vLLM and "
            "SGLang read them; transformers looks for another name and takes the bare "
            "codes for weights. --format compressed-tensors is read by all three");
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
    bool known;
    const char *type;
    FP8Q_TRY(check_options(plan, warnings, err));
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
    FP8Q_TRY(fp8q_plan_pieces(plan, err));
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
