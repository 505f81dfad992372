/* SPDX-License-Identifier: Apache-2.0
 *
 * exclude.c - the exclusion list.
 *
 * Engines differ: vLLM compares whole paths, SGLang dotted parts, transformers regular expressions
 * and suffixes, lmdeploy substrings.  So each kept linear is listed by its full path, and again in
 * the spelling of other module trees (prefixes, fused names), and each tower by its root.  An alias
 * must never reach a quantized module: nothing is shortened except a leading `model.` of a tower.
 */
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>

#include "format/jsonw.h"
#include "base/mem.h"
#include "format/names.h"
#include "select/pattern.h"
#include "select/role.h"

struct list {
    char **items;
    size_t count, cap;
    bool of_vlm; /* the decoder `model.layers` is called `model.language_model.layers` elsewhere */
    struct fp8q_error *err;
    int status;
};

static void add(struct list *list, const char *head, size_t head_len, const char *tail)
{
    if (list->status != FP8Q_OK)
        return;
    char *item = malloc(head_len + strlen(tail) + 1);
    if (!item) {
        list->status = fp8q_fail_nomem(list->err);
        return;
    }
    memcpy(item, head, head_len);
    strcpy(item + head_len, tail);
    list->status =
        fp8q_grow(&list->items, list->count, &list->cap, sizeof(*list->items), list->err);
    if (list->status == FP8Q_OK)
        list->items[list->count++] = item;
    else
        free(item);
}

static void sort_unique(struct list *list)
{
    if (list->count < 2)
        return;
    qsort(list->items, list->count, sizeof(*list->items), fp8q_compare_strings);
    size_t n = 1;
    for (size_t i = 1; i < list->count; i++)
        if (strcmp(list->items[n - 1], list->items[i]) == 0)
            free(list->items[i]);
        else
            list->items[n++] = list->items[i];
    list->count = n;
}

/* ---- spellings ------------------------------------------------------------------------------- */

static bool starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* One module name under the other prefixes that the same model's classes use.  */
static void add_prefixes(struct list *list, const char *name, bool kept_root)
{
    static const char new_vlm[] = "model.language_model.", old_vlm[] = "language_model.model.";
    add(list, name, strlen(name), "");
    if (starts_with(name, new_vlm)) {
        const char *rest = name + sizeof(new_vlm) - 1;
        add(list, old_vlm, sizeof(old_vlm) - 1, rest);
        add(list, "model.", 6, rest); /* loaded as a text-only model */
    } else if (starts_with(name, old_vlm)) {
        const char *rest = name + sizeof(old_vlm) - 1;
        add(list, new_vlm, sizeof(new_vlm) - 1, rest);
        add(list, "model.", 6, rest);
    } else if (list->of_vlm && starts_with(name, "model.layers.")) {
        add(list, new_vlm, sizeof(new_vlm) - 1, name + 6);
        add(list, old_vlm, sizeof(old_vlm) - 1, name + 6);
    }
    if (kept_root && starts_with(name, "model."))
        add(list, name + 6, strlen(name + 6), "");
    else if (kept_root)
        add(list, "model.", 6, name);
}

struct fused {
    const char *member, *alias; /* last components */
};

/* What engines call the matrix that holds a member, or the members of a matrix fused on disk.  */
static const struct fused fused_names[] = {
    {"q_proj", "qkv_proj"},
    {"k_proj", "qkv_proj"},
    {"v_proj", "qkv_proj"},
    {"gate_proj", "gate_up_proj"},
    {"up_proj", "gate_up_proj"},
    {"qkv", "qkv_proj"},
    {"qkv", "q_proj"},
    {"qkv", "k_proj"},
    {"qkv", "v_proj"},
    {"qkv_proj", "q_proj"},
    {"qkv_proj", "k_proj"},
    {"qkv_proj", "v_proj"},
    {"gate_up_proj", "gate_proj"},
    {"gate_up_proj", "up_proj"},
    {"in_proj_qkv", "in_proj_qkvz"},
    {"in_proj_z", "in_proj_qkvz"},
    {"in_proj_b", "in_proj_ba"},
    {"in_proj_a", "in_proj_ba"},
    {"in_proj_ba", "in_proj_b"},
    {"in_proj_ba", "in_proj_a"},
    {"in_proj_qkvz", "in_proj_qkv"},
    {"in_proj_qkvz", "in_proj_z"},
    {"q_a_proj", "fused_qkv_a_proj_with_mqa"},
    {"kv_a_proj_with_mqa", "fused_qkv_a_proj_with_mqa"},
};

static void add_module(struct list *list, const char *module, bool kept_root)
{
    const char *dot = strrchr(module, '.');
    const char *last = dot ? dot + 1 : module;
    size_t head = (size_t)(last - module);
    add_prefixes(list, module, kept_root);
    for (size_t i = 0; i < sizeof(fused_names) / sizeof(*fused_names); i++) {
        char name[1024];
        if (strcmp(last, fused_names[i].member) != 0 ||
            head + strlen(fused_names[i].alias) >= sizeof(name))
            continue;
        memcpy(name, module, head);
        strcpy(name + head, fused_names[i].alias);
        add_prefixes(list, name, kept_root);
    }
}

/* ---- what stays ------------------------------------------------------------------------------ */

/* Looks like a linear to an engine: a 2-D weight that is no embedding.  An adaRMS `dense` inside a
 * norm is one.  */
static bool is_kept_linear(const struct fp8q_tensor *t, const struct fp8q_decision *d)
{
    return !d->quantize && t->ndim == 2 && d->reason != FP8Q_WHY_EMBEDDING &&
           fp8q_is_weight_name(t->name);
}

/* A root whose name no quantized module has in it, at the start or as a dotted part.  */
static bool root_is_free(const struct fp8q_plan *plan, const char *run)
{
    bool is_free = true;
    for (size_t i = 0; i < plan->ckpt->n_tensors && is_free; i++)
        is_free = !plan->selection.decisions[i].quantize ||
                  (!fp8q_has_components(plan->ckpt->tensors[i].name, run) &&
                   !starts_with(plan->ckpt->tensors[i].name, run));
    return is_free;
}

static bool is_experts_stack(const struct fp8q_tensor *t, size_t *len_out)
{
    const char *experts = strstr(t->name, ".experts.");
    *len_out = experts ? (size_t)(experts - t->name) + 8 : 0;
    return experts && t->ndim == 3;
}

static void add_roots(struct fp8q_plan *plan, struct list *list, struct list *roots)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &plan->ckpt->tensors[i];
        enum fp8q_reason reason = plan->selection.decisions[i].reason;
        bool kept_root =
            reason == FP8Q_WHY_VISION || reason == FP8Q_WHY_PROJECTOR || reason == FP8Q_WHY_ACTION;
        size_t len = kept_root ? fp8q_root_prefix(&plan->selection.family, t->name) : 0;
        if (len == 0)
            continue;
        if (roots->count && strncmp(roots->items[roots->count - 1], t->name, len) == 0 &&
            roots->items[roots->count - 1][len] == '\0')
            continue; /* tensors are sorted: the same root again */
        add(roots, t->name, len, "");
    }
    sort_unique(roots);
    for (size_t i = 0; i < roots->count; i++)
        if (root_is_free(plan, roots->items[i]))
            add_prefixes(list, roots->items[i], true);
}

static void add_kept(struct fp8q_plan *plan, struct list *list)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &plan->ckpt->tensors[i];
        const struct fp8q_decision *d = &plan->selection.decisions[i];
        size_t len;
        if (!d->quantize && is_experts_stack(t, &len)) {
            char *experts = strndup(t->name, len);
            if (experts)
                add_prefixes(list, experts, false);
            else
                list->status = fp8q_fail_nomem(list->err);
            free(experts);
        }
        if (!is_kept_linear(t, d))
            continue;
        char *module = strndup(t->name, fp8q_module_len(t->name));
        if (module)
            add_module(list, module,
                       d->reason == FP8Q_WHY_VISION || d->reason == FP8Q_WHY_PROJECTOR ||
                           d->reason == FP8Q_WHY_ACTION);
        else
            list->status = fp8q_fail_nomem(list->err);
        free(module);
        if (d->linear && d->group.expert) /* the whole layer's experts stay */
            add(list, t->name, d->group.group_len - 1, "");
    }
}

/* An alias may name a module that is quantized (two stacks in one model): then it must go.  */
static void drop_quantized(const struct fp8q_plan *plan, struct list *list)
{
    size_t n = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct fp8q_tensor *t =
            fp8q_ckpt_find_joined(plan->ckpt, list->items[i], strlen(list->items[i]), ".weight");
        if (t && plan->selection.decisions[t - plan->ckpt->tensors].quantize)
            free(list->items[i]);
        else
            list->items[n++] = list->items[i];
    }
    list->count = n;
}

static void free_list(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
}

/* compressed-tensors: towers, routers and the head as anchored expressions without a prefix,
 * because engines match them against their own module tree, and SGLang takes a plain entry as a
 * substring.  */
static void add_regexes(const struct fp8q_plan *plan, const struct list *roots, struct list *list)
{
    static const struct {
        const char *component, *regex;
    } routers[] = {{"mlp.gate", "re:.*\\.mlp\\.gate$"},
                   {"block_sparse_moe.gate", "re:.*\\.block_sparse_moe\\.gate$"},
                   {"router", "re:.*\\.router$"},
                   {"shared_expert_gate", "re:.*shared_expert_gate$"}};
    add(list, "re:.*lm_head$", 13, "");
    for (size_t i = 0; i < roots->count; i++) {
        const char *root = roots->items[i];
        const char *last = strrchr(root, '.') ? strrchr(root, '.') + 1 : root;
        struct fp8q_text regex = {0};
        if (!root_is_free(plan, last))
            continue;
        fp8q_text_printf(&regex, "re:.*%s\\..*", last);
        if (regex.failed)
            list->status = fp8q_fail_nomem(list->err);
        else
            add(list, regex.data, regex.len, "");
        fp8q_text_reset(&regex);
    }
    for (size_t r = 0; r < sizeof(routers) / sizeof(*routers); r++)
        for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
            if (plan->selection.decisions[i].reason == FP8Q_WHY_ROUTER &&
                fp8q_has_components(plan->ckpt->tensors[i].name, routers[r].component)) {
                add(list, routers[r].regex, strlen(routers[r].regex), "");
                break;
            }
    /* The exact names of routers would act as substrings of gate_proj; the expressions replace
     * them.  */
    size_t n = 0;
    for (size_t i = 0; i < list->count; i++) {
        const char *item = list->items[i];
        const char *last = strrchr(item, '.');
        if (strncmp(item, "re:", 3) != 0 && last && strcmp(last, ".gate") == 0)
            free(list->items[i]);
        else
            list->items[n++] = list->items[i];
    }
    list->count = n;
}

int fp8q_exclude(struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct list list = {.err = err}, roots = {.err = err};
    const char *decoders = plan->selection.family.decoders;
    const char *more = plan->selection.family.more_decoders;
    list.of_vlm = (decoders && strstr(decoders, "model.language_model")) ||
                  (more && strstr(more, "model.language_model"));
    add(&list, "lm_head", 7, "");
    add_roots(plan, &list, &roots);
    add_kept(plan, &list);
    sort_unique(&list);
    drop_quantized(plan, &list);
    if (plan->options.format == FP8Q_FORMAT_COMPRESSED_TENSORS)
        add_regexes(plan, &roots, &list);
    sort_unique(&list);
    int status = list.status != FP8Q_OK ? list.status : roots.status;
    free_list(&roots);
    if (status != FP8Q_OK) {
        free_list(&list);
        return status;
    }
    plan->exclusions = list.items;
    plan->n_exclusions = list.count;
    return FP8Q_OK;
}
