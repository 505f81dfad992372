/* SPDX-License-Identifier: Apache-2.0
 *
 * modules.c - the modules that engines make of a checkpoint's tensors.
 */
#include "engines/matchers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "format/names.h"
#include "kernel/block.h"
#include "select/families.h"
#include "select/fused.h"
#include "select/pattern.h"
#include "select/quantized.h"
#include "select/role.h"

struct builder {
    const struct fp8q_ckpt *ckpt;
    struct fp8q_family family;
    struct fp8q_modules *modules;
    struct fp8q_error *err;
};

/* The module called @head (its first @len bytes) followed by @tail.  */
static int add(struct builder *b, const char *head, size_t len, const char *tail,
               struct fp8q_module module)
{
    struct fp8q_modules *m = b->modules;
    FP8Q_TRY(fp8q_grow(&m->items, m->count, &m->cap, sizeof(*m->items), b->err));
    module.name = malloc(len + strlen(tail) + 1);
    if (!module.name)
        return fp8q_fail_nomem(b->err);

    memcpy(module.name, head, len);
    strcpy(module.name + len, tail);
    m->items[m->count++] = module;
    return FP8Q_OK;
}

/* Tables that are looked up by token or position; no engine builds a linear of one.  */
static bool is_token_table(const char *module)
{
    static const char tables[] = "embed_tokens wte wpe tok_embeddings word_embeddings token_table "
                                 "position_embeddings position_embedding token_type_embeddings "
                                 "embed_positions shared token_embedding";
    const char *last = strrchr(module, '.') ? strrchr(module, '.') + 1 : module;
    size_t len;
    return fp8q_has_any_components(last, tables, &len) != NULL;
}

bool fp8q_is_token_table(const char *tensor)
{
    char module[1024];
    size_t len = fp8q_weight_stem(tensor);
    if (len >= sizeof(module))
        return false;

    memcpy(module, tensor, len);
    module[len] = '\0';
    return is_token_table(module);
}

/* Where the last component of the first @len bytes of @name begins; it is copied to @last.  */
static size_t last_component(const char *name, size_t len, char last[64])
{
    size_t from = len;
    while (from > 0 && name[from - 1] != '.')
        from--;

    snprintf(last, 64, "%.*s", (int)fp8q_min_size(len - from, 63), name + from);
    return from;
}

/* A matrix that is fused on disk is asked about by its parts, parts by the name of the whole.  */
static int add_other_names(struct builder *b, const char *name, size_t len, struct fp8q_module m)
{
    char last[64];
    size_t from = last_component(name, len, last);
    const struct fp8q_fused *whole = fp8q_fused_of_whole(last), *part = fp8q_fused_of_part(last);

    m.kind = FP8Q_MODULE_PART;
    for (size_t i = 0; whole && whole->parts[i]; i++)
        FP8Q_TRY(add(b, name, from, whole->parts[i], m));
    m.kind = FP8Q_MODULE_MERGED;
    if (part && part->name)
        FP8Q_TRY(add(b, name, from, part->name, m));

    return FP8Q_OK;
}

static int add_matrix(struct builder *b, const struct fp8q_tensor *t, struct fp8q_module m)
{
    const char *experts = strstr(t->name, ".experts.");
    size_t len = fp8q_weight_stem(t->name);
    bool is_expert = experts && strspn(experts + 9, "0123456789");

    m.kind = is_expert ? FP8Q_MODULE_EXPERT : FP8Q_MODULE_LINEAR;
    FP8Q_TRY(add(b, t->name, len, "", m));
    if (!is_expert)
        return add_other_names(b, t->name, len, m);

    /* Engines ask about all experts of a layer at once, older ones about each.  */
    m.kind = FP8Q_MODULE_EXPERTS;
    return add(b, t->name, (size_t)(experts - t->name) + 8, "", m);
}

/* The experts that engines make of a stack: one module, and in compressed-tensors they ask about it
 * by the matrices of its first expert.  */
static int add_experts(struct builder *b, const char *head, size_t len, const char *tail,
                       struct fp8q_module m)
{
    char matrix[64];
    snprintf(matrix, sizeof(matrix), "%s.0.down_proj", tail);

    m.kind = FP8Q_MODULE_EXPERTS;
    FP8Q_TRY(add(b, head, len, tail, m));
    m.kind = FP8Q_MODULE_STACKED;
    return add(b, head, len, matrix, m);
}

/* A stack of experts is one module in engines: where its name says `experts`, that; else the
 * parent's `experts`, and in some engines `moe.experts` of the layer.  */
static int add_stack(struct builder *b, const struct fp8q_tensor *t, struct fp8q_module m)
{
    const char *experts = strstr(t->name, ".experts.");
    size_t layer = fp8q_family_layer(&b->family, t->name), len = fp8q_weight_stem(t->name);

    if (experts)
        FP8Q_TRY(add_experts(b, t->name, (size_t)(experts - t->name) + 1, "experts", m));

    /* Gemma 4 keeps the stack in the layer, and engines call it moe.experts.  */
    if (experts && layer && (size_t)(experts - t->name) + 1 == layer && !m.quantized)
        return add_experts(b, t->name, layer, "moe.experts", m);
    if (experts)
        return FP8Q_OK;

    while (len > 0 && t->name[len - 1] != '.')
        len--;
    if (len <= layer) /* lies in the layer itself */
        return m.quantized ? FP8Q_OK : add_experts(b, t->name, layer, "moe.experts", m);
    return add_experts(b, t->name, len, "experts", m);
}

static int add_tensor(struct builder *b, size_t i, bool quantized)
{
    const struct fp8q_tensor *t = &b->ckpt->tensors[i];
    struct fp8q_module m = {.quantized = quantized, .tensor = i};
    enum fp8q_float from;
    enum fp8q_reason reason;
    bool tower;

    /* Integers and packed values are no matrix that an engine could build in FP8.  */
    if (!quantized && !fp8q_float_of(t->dtype, &from))
        return FP8Q_OK;

    if (t->ndim == 2 && fp8q_is_weight_name(t->name)) {
        bool is_table = !quantized && fp8q_is_token_table(t->name);
        return is_table ? FP8Q_OK : add_matrix(b, t, m);
    }
    /* The scales of a stack are 3-D too, and no module.  */
    bool is_stack = t->ndim == 3 && !fp8q_scale_owner(b->ckpt, t->name) &&
                    fp8q_family_layer(&b->family, t->name) &&
                    !fp8q_role(&b->family, t->name, t->ndim, &reason, &tower);
    return is_stack ? add_stack(b, t, m) : FP8Q_OK;
}

static int compare(const void *a, const void *b)
{
    const struct fp8q_module *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order)
        return order;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->quantized != y->quantized)
        return x->quantized ? 1 : -1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* The experts of a layer come once; if they differ, once as quantized and once as not.  */
static void drop_doubles(struct fp8q_modules *m)
{
    size_t n = m->count ? 1 : 0;
    for (size_t i = 1; i < m->count; i++) {
        const struct fp8q_module *last = &m->items[n - 1];
        bool same = strcmp(last->name, m->items[i].name) == 0 && last->kind == m->items[i].kind &&
                    last->quantized == m->items[i].quantized;
        if (same)
            free(m->items[i].name);
        else
            m->items[n++] = m->items[i];
    }

    m->count = n;
}

int fp8q_modules_of(const struct fp8q_ckpt *ckpt,
                    bool (*is_quantized)(const void *context, size_t tensor), const void *context,
                    struct fp8q_modules *modules_out, struct fp8q_error *err)
{
    *modules_out = (struct fp8q_modules){.items = NULL};
    struct builder b = {
        .ckpt = ckpt, .family = fp8q_family_of(ckpt->config), .modules = modules_out, .err = err};
    modules_out->model_type = b.family.model_type;

    for (size_t i = 0; i < ckpt->n_tensors; i++)
        FP8Q_TRY(add_tensor(&b, i, is_quantized(context, i)));
    if (modules_out->count)
        qsort(modules_out->items, modules_out->count, sizeof(*modules_out->items), compare);
    drop_doubles(modules_out);

    return FP8Q_OK;
}

void fp8q_modules_reset(struct fp8q_modules *m)
{
    for (size_t i = 0; i < m->count; i++)
        free(m->items[i].name);
    free(m->items);
    *m = (struct fp8q_modules){.items = NULL};
}
