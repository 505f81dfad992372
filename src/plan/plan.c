/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - the memory of a plan, and questions about it.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/names.h"
#include "select/scheme.h"

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

    /* Never freed one by one: all of it goes with the plan.  */
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
    for (size_t i = 0; i < plan->n_not_converted; i++)
        free(plan->not_converted[i]);
    free(plan->not_converted);
    free(plan->exclusions);

    free(plan->shards);
    free(plan->tensors);
    free(plan->pieces);
    free(plan->index_text);
    free(plan->config_text);
    free(plan->hf_quant_text);
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
    case FP8Q_SCHEME_STATIC:
        return (struct fp8q_grid){0, 0};
    case FP8Q_SCHEME_GROUP:
        return (struct fp8q_grid){1, FP8Q_GROUP};
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

    /* On average: the last stripe is mostly shorter.  */
    return piece->n_stripes ? piece->n_rows * piece->n_cols * elem / piece->n_stripes : 0;
}

bool fp8q_is_with_scales(const struct fp8q_out_tensor *tensor)
{
    return tensor->kind == FP8Q_OUT_SCALE || tensor->kind == FP8Q_OUT_CONSTANT;
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

const char *fp8q_plan_scale_name(struct fp8q_plan *plan, const char *weight,
                                 enum fp8q_scheme scheme)
{
    /* Per-tensor scales are "weight_scale" in both dialects; vLLM and SGLang read no other name. */
    bool inv = plan->options.format == FP8Q_FORMAT_FP8 && scheme != FP8Q_SCHEME_TENSOR;
    const char *ending = inv ? FP8Q_SCALE_INV_ENDING : FP8Q_SCALE_ENDING;
    size_t len = strlen(weight);
    char *name = fp8q_plan_alloc(plan, len + strlen(ending) + 1, 1);

    if (name) {
        memcpy(name, weight, len);
        strcpy(name + len, ending);
    }
    return name;
}

enum fp8q_format fp8q_format_of(enum fp8q_format format, const struct fp8q_select_options *s)
{
    if (format != FP8Q_FORMAT_AUTO)
        return format;

    /* Scales per row exist in one checkpoint format only, and one scale per tensor or per group is
     * read under one name by most engines only there.  */
    bool by_block = s->scheme == FP8Q_SCHEME_BLOCK && s->unaligned != FP8Q_UNALIGNED_CHANNEL &&
                    !fp8q_asks_for_schemes(s);
    return by_block ? FP8Q_FORMAT_FP8 : FP8Q_FORMAT_COMPRESSED_TENSORS;
}

bool fp8q_plan_takes_data(const struct fp8q_plan_options *o)
{
    return o->static_inputs || o->fp8_cache || fp8q_asks_for_scheme(&o->select, FP8Q_SCHEME_STATIC);
}
