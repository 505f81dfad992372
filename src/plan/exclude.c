/* SPDX-License-Identifier: Apache-2.0
 *
 * exclude.c - the exclusion list.
 *
 * How it works.  Engines differ: vLLM compares whole paths, SGLang dotted parts, transformers
 * regular expressions and suffixes, lmdeploy substrings (engines/engines.c).  So the list is made
 * wide (here, with spellings.c), then narrowed and proved (narrow.c):
 *
 *     1  each linear left unquantized by its full path, and again in the spellings of other module
 *        trees (prefixes, fused names); the experts of a layer by one name; each tower by its root
 *     2  what the readers would take for a quantized module goes, if it was a spelling only; what
 *        must be there is anchored, so that it reaches itself and nothing else
 *     3  all readers are asked about all modules; what is left to say is a warning, and a refusal
 *        where an engine of today would read the output wrongly
 */
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "format/names.h"
#include "engines/matchers.h"
#include "select/pattern.h"
#include "select/role.h"

/* ---- what is left unquantized ---------------------------------------------------------------- */

/* Looks like a linear to an engine: a 2-D weight that is no table of tokens.  An adaRMS `dense`
 * inside a norm is one.  */
static bool is_left_linear(const struct fp8q_tensor *t, const struct fp8q_decision *d)
{
    bool is_table = d->reason == FP8Q_WHY_EMBEDDING && fp8q_is_token_table(t->name);

    return !d->quantize && t->ndim == 2 && !is_table && fp8q_is_weight_name(t->name);
}

static bool is_of_root(const struct fp8q_decision *d)
{
    return d->reason == FP8Q_WHY_VISION || d->reason == FP8Q_WHY_PROJECTOR ||
           d->reason == FP8Q_WHY_ACTION;
}

bool fp8q_plan_quantizes(const void *plan, size_t tensor)
{
    return ((const struct fp8q_plan *)plan)->selection.decisions[tensor].quantize;
}

/* A root whose name no quantized module has in it, at the start or as a dotted part.  */
static bool root_is_free(const struct fp8q_plan *plan, const char *run)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const char *name = plan->ckpt->tensors[i].name;
        if (fp8q_plan_quantizes(plan, i) &&
            (fp8q_has_components(name, run) || fp8q_starts_with(name, run)))
            return false;
    }

    return true;
}

static void add_roots(struct fp8q_plan *plan, struct fp8q_spellings *list,
                      struct fp8q_spellings *roots)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const char *name = plan->ckpt->tensors[i].name;
        const struct fp8q_decision *d = &plan->selection.decisions[i];
        size_t len = is_of_root(d) ? fp8q_root_prefix(&plan->selection.family, name) : 0;
        const char *last = roots->count ? roots->items[roots->count - 1] : "";
        bool again = strncmp(last, name, len) == 0 && last[len] == '\0'; /* tensors are sorted */
        if (len > 0 && !again)
            fp8q_spellings_add(roots, name, len, "");
    }

    fp8q_spellings_sort(roots);

    /* A tower with something quantized inside cannot be named as a whole.  */
    for (size_t i = 0; i < roots->count; i++)
        if (root_is_free(plan, roots->items[i]))
            fp8q_spell_prefixes(list, roots->items[i], true);
}

/* Bytes of "....experts" in the name of one expert's matrix or of a stack; 0 if it has none.  */
static size_t experts_prefix(const struct fp8q_tensor *t)
{
    const char *experts = strstr(t->name, ".experts.");
    bool is_one = experts && t->ndim == 2 && strspn(experts + 9, "0123456789") > 0;

    return experts && (is_one || t->ndim == 3) ? (size_t)(experts - t->name) + 8 : 0;
}

/* Bytes of the name up to its last component.  */
static size_t parent_len(const char *name)
{
    size_t len = fp8q_weight_stem(name);
    while (len > 0 && name[len - 1] != '.')
        len--;

    return len;
}

/* A stack of experts whose name does not say so.  */
static bool is_other_stack(const struct fp8q_plan *plan, size_t tensor)
{
    const struct fp8q_tensor *t = &plan->ckpt->tensors[tensor];
    const struct fp8q_decision *d = &plan->selection.decisions[tensor];

    return t->ndim == 3 && !experts_prefix(t) && !is_of_root(d) && d->reason != FP8Q_WHY_CONV &&
           fp8q_family_layer(&plan->selection.family, t->name);
}

/* Engines build the experts of such a stack as a module that no file names.  */
static void add_other_stack(const struct fp8q_plan *plan, struct fp8q_spellings *list,
                            const struct fp8q_tensor *t)
{
    size_t layer = fp8q_family_layer(&plan->selection.family, t->name);
    size_t parent = parent_len(t->name);

    /* Its own name, what engines call the experts of most such models, and its parent's.  */
    fp8q_spell_joined(list, t->name, fp8q_weight_stem(t->name), "", false);
    fp8q_spell_joined(list, t->name, layer, "moe.experts", false);
    if (parent <= layer)
        return;
    fp8q_spell_joined(list, t->name, parent, "experts", false);

    /* The parent itself only where it holds nothing that is quantized: SGLang and transformers
 * leave all that is below an entry.  */
    char *module = strndup(t->name, parent - 1);
    if (!module)
        list->failed = true;
    else if (root_is_free(plan, module))
        fp8q_spell_prefixes(list, module, false);
    free(module);
}

/* Experts are left by whole layers, so one name says it for all of them.  */
static bool add_experts(const struct fp8q_plan *plan, struct fp8q_spellings *list, size_t tensor)
{
    const struct fp8q_tensor *t = &plan->ckpt->tensors[tensor];
    const struct fp8q_decision *d = &plan->selection.decisions[tensor];
    size_t len = experts_prefix(t), layer = fp8q_family_layer(&plan->selection.family, t->name);
    if (len) {
        fp8q_spell_joined(list, t->name, len, "", is_of_root(d));
        if (layer && len - 7 == layer) /* lies in the layer itself */
            fp8q_spell_joined(list, t->name, layer, "moe.experts", false);
        return true;
    }

    bool is_stack = is_other_stack(plan, tensor);
    if (is_stack)
        add_other_stack(plan, list, t);
    return is_stack;
}

static void add_left(struct fp8q_plan *plan, struct fp8q_spellings *list)
{
    size_t last_len = 0;
    const char *last = NULL;

    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &plan->ckpt->tensors[i];
        const struct fp8q_decision *d = &plan->selection.decisions[i];
        size_t len = d->quantize ? 0 : experts_prefix(t);
        bool again = len > 0 && len == last_len && strncmp(last, t->name, len) == 0;
        if (d->quantize || again)
            continue;

        /* Of the experts of a layer one stands for all.  */
        if (len > 0) {
            last = t->name;
            last_len = len;
        }
        if (add_experts(plan, list, i) || !is_left_linear(t, d))
            continue;

        /* Not of experts: each linear by itself.  */
        char *module = strndup(t->name, fp8q_module_len(t->name));
        if (module)
            fp8q_spell_module(list, module, is_of_root(d));
        else
            list->failed = true;
        free(module);
    }
}

bool fp8q_head_is_quantized(const struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        if (fp8q_plan_quantizes(plan, i) &&
            fp8q_has_components(plan->ckpt->tensors[i].name, "lm_head"))
            return true;

    return false;
}

/* An alias may name a module that is quantized (two stacks in one model): then it must go.  */
static void drop_quantized(const struct fp8q_plan *plan, struct fp8q_spellings *list)
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

/* ---- compressed-tensors: expressions --------------------------------------------------------- */

static void add_text(struct fp8q_spellings *list, struct fp8q_text *regex)
{
    if (regex->failed)
        list->failed = true;
    else
        fp8q_spellings_add(list, regex->data, regex->len, "");
    fp8q_text_reset(regex);
}

/* Engines of this format ask about each expert by its own name, those of a stack too.  */
static void add_expert_regexes(const struct fp8q_plan *plan, struct fp8q_spellings *list)
{
    bool all = root_is_free(plan, "experts"), has_draft = fp8q_plan_has_draft(plan);
    size_t last_len = 0;
    const char *last = NULL;

    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const char *name = plan->ckpt->tensors[i].name;
        bool left = !fp8q_plan_quantizes(plan, i), stack = left && is_other_stack(plan, i);
        size_t len = left ? experts_prefix(&plan->ckpt->tensors[i]) : 0;
        struct fp8q_text regex = {0};
        if (stack)
            len = parent_len(name);
        if (len == 0 || (len == last_len && strncmp(last, name, len) == 0))
            continue;
        last = name;
        last_len = len;

        /* No expert is quantized anywhere: one expression says it for the whole model.  */
        if (all)
            fp8q_text_puts(&regex, "re:.*\\.experts");
        else
            fp8q_write_stem(&regex, name, len, has_draft);
        fp8q_text_puts(&regex, stack && !all ? "experts(?:$|\\..*)" : "(?:$|\\..*)");
        add_text(list, &regex);
        if (all)
            return;
    }
}

/* Towers and the head as anchored expressions without a prefix, because engines match them against
 * their own module tree.  */
static void add_root_regexes(const struct fp8q_plan *plan, const struct fp8q_spellings *roots,
                             struct fp8q_spellings *list)
{
    for (size_t i = 0; i < roots->count; i++) {
        const char *root = roots->items[i];
        const char *last = strrchr(root, '.') ? strrchr(root, '.') + 1 : root;
        struct fp8q_text regex = {0};
        if (!root_is_free(plan, last))
            continue;
        fp8q_text_printf(&regex, "re:.*%s\\..*", last);
        add_text(list, &regex);
    }
}

/* Routers likewise.  Their plain names go: older readers take `mlp.gate` for a part of
 * `mlp.gate_proj`.  */
static void add_router_regexes(const struct fp8q_plan *plan, struct fp8q_spellings *list)
{
    static const struct {
        const char *component, *regex;
    } routers[] = {{"mlp.gate", "re:.*\\.mlp\\.gate$"},
                   {"block_sparse_moe.gate", "re:.*\\.block_sparse_moe\\.gate$"},
                   {"router", "re:.*\\.router$"},
                   {"shared_expert_gate", "re:.*shared_expert_gate$"}};

    for (size_t r = 0; r < sizeof(routers) / sizeof(*routers); r++) {
        bool found = false;
        for (size_t i = 0; i < plan->ckpt->n_tensors && !found; i++)
            found = plan->selection.decisions[i].reason == FP8Q_WHY_ROUTER &&
                    fp8q_has_components(plan->ckpt->tensors[i].name, routers[r].component);
        if (!found)
            continue;
        fp8q_spellings_add(list, routers[r].regex, strlen(routers[r].regex), "");

        size_t n = 0;
        for (size_t i = 0; i < list->count; i++) {
            const char *item = list->items[i];
            bool is_said = strncmp(item, "re:", 3) != 0 && fp8q_ends_with(item, ".gate") &&
                           fp8q_ends_with(item, routers[r].component);
            if (is_said)
                free(list->items[i]);
            else
                list->items[n++] = list->items[i];
        }
        list->count = n;
    }
}

static void add_regexes(const struct fp8q_plan *plan, const struct fp8q_spellings *roots,
                        struct fp8q_spellings *list)
{
    if (!fp8q_head_is_quantized(plan))
        fp8q_spellings_add(list, "re:.*lm_head$", 13, "");
    add_expert_regexes(plan, list);
    add_root_regexes(plan, roots, list);
    add_router_regexes(plan, list);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int make_list(struct fp8q_plan *plan, struct fp8q_spellings *list,
                     struct fp8q_spellings *roots, struct fp8q_error *err)
{
    /* A VLM's text model may be loaded by itself, and then has the shorter names.  */
    const char *decoders = plan->selection.family.decoders;
    const char *more = plan->selection.family.more_decoders;
    list->of_vlm = (decoders && strstr(decoders, "model.language_model")) ||
                   (more && strstr(more, "model.language_model"));

    if (!fp8q_head_is_quantized(plan))
        fp8q_spellings_add(list, "lm_head", 7, "");
    add_roots(plan, list, roots);
    add_left(plan, list);
    fp8q_spellings_sort(list);

    /* Before the expressions, which are no names of tensors that could be looked up.  */
    drop_quantized(plan, list);
    if (plan->options.format == FP8Q_FORMAT_COMPRESSED_TENSORS)
        add_regexes(plan, roots, list);
    fp8q_spellings_sort(list);

    return list->failed || roots->failed ? fp8q_fail_nomem(err) : FP8Q_OK;
}

static int make_lists(struct fp8q_plan *plan, struct fp8q_spellings *list,
                      struct fp8q_spellings *not_converted, struct fp8q_warnings *warnings,
                      struct fp8q_error *err)
{
    struct fp8q_spellings roots = {.items = NULL};
    int status = make_list(plan, list, &roots, err);
    fp8q_spellings_reset(&roots);
    FP8Q_TRY(status);
    return fp8q_exclude_narrow(plan, list, not_converted, warnings, err);
}

int fp8q_exclude(struct fp8q_plan *plan, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_spellings list = {.items = NULL}, not_converted = {.items = NULL};
    int status = make_lists(plan, &list, &not_converted, warnings, err);
    if (status != FP8Q_OK) {
        fp8q_spellings_reset(&list);
        fp8q_spellings_reset(&not_converted);
        return status;
    }

    plan->exclusions = list.items;
    plan->n_exclusions = list.count;
    plan->not_converted = not_converted.items;
    plan->n_not_converted = not_converted.count;
    return FP8Q_OK;
}
