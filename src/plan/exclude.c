/* SPDX-License-Identifier: Apache-2.0
 *
 * exclude.c - the exclusion list.
 *
 * How it works.  Engines differ: vLLM compares whole paths, SGLang dotted parts, transformers
 * regular expressions and suffixes, lmdeploy substrings (engines/engines.c).  So the list is made wide,
 * then narrowed, then proved:
 *
 *     1  each linear left unquantized by its full path, and again in the spellings of other module
 *        trees (prefixes, fused names); the experts of a layer by one name; each tower by its root
 *     2  what the readers would take for a quantized module goes, if it was a spelling only; what
 *        must be there is anchored, so that it reaches itself and nothing else
 *     3  all readers are asked about all modules; what is left to say is a warning, and a refusal
 *        where an engine of today would read the output wrongly
 */
#include "plan/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "format/jsonw.h"
#include "format/names.h"
#include "engines/matchers.h"
#include "select/fused.h"
#include "select/pattern.h"
#include "select/role.h"

struct list {
    char **items;
    size_t count, cap;
    bool of_vlm; /* the decoder `model.layers` is called `model.language_model.layers` elsewhere */
    bool failed; /* no memory: then nothing is added any more, and make_list() says so */
};

static void add(struct list *list, const char *head, size_t head_len, const char *tail)
{
    if (list->failed)
        return;

    char *item = malloc(head_len + strlen(tail) + 1);
    size_t size = sizeof(*list->items);
    if (!item || fp8q_grow(&list->items, list->count, &list->cap, size, NULL) != FP8Q_OK) {
        list->failed = true;
        free(item);
        return;
    }

    memcpy(item, head, head_len);
    strcpy(item + head_len, tail);
    list->items[list->count++] = item;
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
static void add_prefixes(struct list *list, const char *name, bool is_root)
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
    } else if (starts_with(name, "layers.")) {
        add(list, "model.", 6, name); /* a base model: causal classes put `model.` before it */
    }

    /* Older and newer classes keep towers with and without `model.`.  */
    if (is_root && starts_with(name, "model."))
        add(list, name + 6, strlen(name + 6), "");
    else if (is_root)
        add(list, "model.", 6, name);
}

/* The same for the first @len bytes of @text with @tail behind them.  */
static void add_joined(struct list *list, const char *text, size_t len, const char *tail,
                       bool is_root)
{
    struct fp8q_text name = {0};
    fp8q_text_add(&name, text, len);
    fp8q_text_puts(&name, tail);
    if (name.failed)
        list->failed = true;
    else
        add_prefixes(list, name.data, is_root);
    fp8q_text_reset(&name);
}

/* A module, what engines call the matrix that it is a part of, and the parts of one that is fused
 * on disk.  */
static void add_module(struct list *list, const char *module, bool is_root)
{
    const char *dot = strrchr(module, '.');
    const char *last = dot ? dot + 1 : module;
    size_t head = (size_t)(last - module);
    const struct fp8q_fused *part = fp8q_fused_of_part(last);
    const struct fp8q_fused *whole = fp8q_fused_of_whole(last);
    add_prefixes(list, module, is_root);

    /* vLLM and SGLang ask by parts, lmdeploy by the whole, and files may have either.  */
    if (part && part->name)
        add_joined(list, module, head, part->name, is_root);
    if (whole && whole->name && strcmp(whole->name, last) != 0)
        add_joined(list, module, head, whole->name, is_root);
    for (size_t i = 0; whole && whole->parts[i]; i++)
        add_joined(list, module, head, whole->parts[i], is_root);
}

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

static bool is_quantized(const void *plan, size_t tensor)
{
    return ((const struct fp8q_plan *)plan)->selection.decisions[tensor].quantize;
}

/* A root whose name no quantized module has in it, at the start or as a dotted part.  */
static bool root_is_free(const struct fp8q_plan *plan, const char *run)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const char *name = plan->ckpt->tensors[i].name;
        if (is_quantized(plan, i) && (fp8q_has_components(name, run) || starts_with(name, run)))
            return false;
    }

    return true;
}

static void add_roots(struct fp8q_plan *plan, struct list *list, struct list *roots)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const char *name = plan->ckpt->tensors[i].name;
        const struct fp8q_decision *d = &plan->selection.decisions[i];
        size_t len = is_of_root(d) ? fp8q_root_prefix(&plan->selection.family, name) : 0;
        const char *last = roots->count ? roots->items[roots->count - 1] : "";
        bool again = strncmp(last, name, len) == 0 && last[len] == '\0'; /* tensors are sorted */
        if (len > 0 && !again)
            add(roots, name, len, "");
    }

    sort_unique(roots);

    /* A tower with something quantized inside cannot be named as a whole.  */
    for (size_t i = 0; i < roots->count; i++)
        if (root_is_free(plan, roots->items[i]))
            add_prefixes(list, roots->items[i], true);
}

/* Bytes of "....experts" in the name of one expert's matrix or of a stack; 0 if it has none.  */
static size_t experts_prefix(const struct fp8q_tensor *t)
{
    const char *experts = strstr(t->name, ".experts.");
    bool is_one = experts && t->ndim == 2 && strspn(experts + 9, "0123456789") > 0;

    return experts && (is_one || t->ndim == 3) ? (size_t)(experts - t->name) + 8 : 0;
}

/* A stack under a name of its own: engines build its experts as a module that no file names.  */
static void add_other_stack(const struct fp8q_plan *plan, struct list *list,
                            const struct fp8q_tensor *t)
{
    size_t layer = fp8q_family_layer(&plan->selection.family, t->name);
    size_t parent = fp8q_weight_stem(t->name);
    while (parent > 0 && t->name[parent - 1] != '.')
        parent--;

    /* Its own name, what engines call the experts of most such models, and its parent's.  */
    add_joined(list, t->name, fp8q_weight_stem(t->name), "", false);
    add_joined(list, t->name, layer, "moe.experts", false);
    if (parent <= layer)
        return;
    add_joined(list, t->name, parent, "experts", false);

    /* The parent itself only where it holds nothing that is quantized: SGLang and transformers
 * leave all that is below an entry.  */
    char *module = strndup(t->name, parent - 1);
    if (!module)
        list->failed = true;
    else if (root_is_free(plan, module))
        add_prefixes(list, module, false);
    free(module);
}

/* Experts are left by whole layers, so one name says it for all of them.  */
static bool add_experts(const struct fp8q_plan *plan, struct list *list,
                        const struct fp8q_tensor *t, const struct fp8q_decision *d)
{
    size_t len = experts_prefix(t), layer = fp8q_family_layer(&plan->selection.family, t->name);
    if (len) {
        add_joined(list, t->name, len, "", is_of_root(d));
        if (layer && len - 7 == layer) /* lies in the layer itself */
            add_joined(list, t->name, layer, "moe.experts", false);
        return true;
    }

    bool is_stack = t->ndim == 3 && layer && !is_of_root(d) && d->reason != FP8Q_WHY_CONV;
    if (is_stack)
        add_other_stack(plan, list, t);
    return is_stack;
}

static void add_left(struct fp8q_plan *plan, struct list *list)
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
        if (add_experts(plan, list, t, d) || !is_left_linear(t, d))
            continue;

        /* Not of experts: each linear by itself.  */
        char *module = strndup(t->name, fp8q_module_len(t->name));
        if (module)
            add_module(list, module, is_of_root(d));
        else
            list->failed = true;
        free(module);
    }
}

bool fp8q_head_is_quantized(const struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        if (is_quantized(plan, i) && fp8q_has_components(plan->ckpt->tensors[i].name, "lm_head"))
            return true;

    return false;
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

/* ---- compressed-tensors: expressions --------------------------------------------------------- */

static void add_text(struct list *list, struct fp8q_text *regex)
{
    if (regex->failed)
        list->failed = true;
    else
        add(list, regex->data, regex->len, "");
    fp8q_text_reset(regex);
}

/* Engines of this format ask about each expert by its own name.  */
static void add_expert_regexes(const struct fp8q_plan *plan, struct list *list)
{
    bool all = root_is_free(plan, "experts"), has_draft = fp8q_plan_has_draft(plan);
    size_t last_len = 0;
    const char *last = NULL;

    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &plan->ckpt->tensors[i];
        size_t len = is_quantized(plan, i) || t->ndim != 2 ? 0 : experts_prefix(t);
        struct fp8q_text regex = {0};
        if (len == 0 || (len == last_len && strncmp(last, t->name, len) == 0))
            continue;
        last = t->name;
        last_len = len;

        /* No expert is quantized anywhere: one expression says it for the whole model.  */
        if (all)
            fp8q_text_puts(&regex, "re:.*\\.experts");
        else
            fp8q_write_stem(&regex, t->name, len, has_draft);
        fp8q_text_puts(&regex, "(?:$|\\..*)");
        add_text(list, &regex);
        if (all)
            return;
    }
}

/* Towers and the head as anchored expressions without a prefix, because engines match them against
 * their own module tree.  */
static void add_root_regexes(const struct fp8q_plan *plan, const struct list *roots,
                             struct list *list)
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
static void add_router_regexes(const struct fp8q_plan *plan, struct list *list)
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
        add(list, routers[r].regex, strlen(routers[r].regex), "");

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

static void add_regexes(const struct fp8q_plan *plan, const struct list *roots, struct list *list)
{
    if (!fp8q_head_is_quantized(plan))
        add(list, "re:.*lm_head$", 13, "");
    add_expert_regexes(plan, list);
    add_root_regexes(plan, roots, list);
    add_router_regexes(plan, list);
}

/* ---- narrowing and proof --------------------------------------------------------------------- */

/* What reaches too far: by its place in the sorted list.  */
struct reach {
    const struct fp8q_plan *plan;
    const struct fp8q_modules *modules;
    const struct list *list;
    bool *drops, *anchors;
    struct fp8q_warnings *warnings;
    struct fp8q_error *err;
    const struct fp8q_reader *readers[16]; /* of the misreadings that were said */
    size_t n_readers;
    char misreading[800]; /* the first of an engine as it is today */
};

/* A module that must be listed by this very name.  */
static bool is_needed(const struct fp8q_modules *modules, const char *entry)
{
    size_t low = 0, high = modules->count;

    /* Modules are sorted by name, and the first of several under one name is found.  */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(modules->items[middle].name, entry) < 0)
            low = middle + 1;
        else
            high = middle;
    }

    bool found = low < modules->count && strcmp(modules->items[low].name, entry) == 0;
    return found && !modules->items[low].quantized;
}

static int note_reach(void *context, const struct fp8q_misreading *m)
{
    struct reach *r = context;
    struct list *list = (struct list *)r->list;
    char **place = m->entry ? bsearch(&m->entry, list->items, list->count, sizeof(*list->items),
                                      fp8q_compare_strings)
                            : NULL;

    /* A reader that adds spellings of its own is told of its own; the entry is met beside them.  */
    if (!place)
        return FP8Q_OK;

    bool *marks = is_needed(r->modules, m->entry) ? r->anchors : r->drops;
    marks[place - list->items] = true;
    return FP8Q_OK;
}

static void view_list(const struct list *list, struct fp8q_name_list *view)
{
    view->items = (const char **)list->items;
    view->count = list->count;
}

static int ask(const struct fp8q_plan *plan, const struct list *ignored,
               const struct list *not_converted, struct reach *r,
               int (*found)(void *context, const struct fp8q_misreading *misreading))
{
    struct fp8q_exclusions x = {.format = plan->options.format};

    /* ModelOpt's list is read as those of the fp8 format are: by name.  */
    if (x.format == FP8Q_FORMAT_MODELOPT)
        x.format = FP8Q_FORMAT_FP8;
    if (x.format == FP8Q_FORMAT_COMPRESSED_TENSORS) {
        view_list(ignored, &x.ignore);
    } else {
        view_list(ignored, &x.ignored_layers);
        view_list(not_converted, &x.not_converted);
    }

    return fp8q_readers_ask(&x, r->modules, found, r, r->err);
}

/* "^" is not needed: all readers of expressions match from the beginning.  */
static int anchor(const struct fp8q_plan *plan, char **item, struct fp8q_error *err)
{
    bool compressed = plan->options.format == FP8Q_FORMAT_COMPRESSED_TENSORS;
    struct fp8q_text text = {0};
    fp8q_text_puts(&text, compressed ? "re:" : "");

    /* In the fp8 format dots are left as they are: as an expression `.` matches a dot too.  */
    for (const char *c = *item; *c; c++)
        fp8q_text_printf(&text, *c == '.' && compressed ? "\\%c" : "%c", *c);
    fp8q_text_puts(&text, "$");

    int status = fp8q_text_status(&text, err);
    if (status != FP8Q_OK) {
        fp8q_text_reset(&text);
        return status;
    }
    free(*item);
    *item = text.data;
    return FP8Q_OK;
}

/* What one reader would do, for people.  */
static void describe(const struct fp8q_misreading *m, char *text, size_t cap)
{
    struct fp8q_shown a, b;

    if (m->entry)
        snprintf(text, cap,
                 "%s would leave \"%.300s\" in high precision, which is quantized: the entry "
                 "\"%.300s\" of the exclusion list reaches it",
                 m->reader->name, fp8q_show(&a, m->module->name), fp8q_show(&b, m->entry));
    else
        snprintf(text, cap,
                 "%s would build \"%.300s\" in FP8, which is left unquantized: no entry of the "
                 "exclusion list reaches it",
                 m->reader->name, fp8q_show(&a, m->module->name));
}

static int warn_of(void *context, const struct fp8q_misreading *m)
{
    struct reach *r = context;
    char text[800];

    /* Of engines as they are today, none may be wrong: fp8q_plan_check().  */
    if (!m->reader->is_older && !*r->misreading)
        describe(m, r->misreading, sizeof(r->misreading));

    for (size_t i = 0; i < r->n_readers; i++)
        if (r->readers[i] == m->reader)
            return FP8Q_OK; /* one of a reader's misreadings is enough */
    if (r->n_readers < sizeof(r->readers) / sizeof(*r->readers))
        r->readers[r->n_readers++] = m->reader;

    describe(m, text, sizeof(text));
    return fp8q_warn(r->warnings, r->err, m->entry ? "exclusion-reach" : "exclusion-missing", "%s",
                     text);
}

static int copy_list(const struct list *from, struct list *to, struct fp8q_error *err)
{
    for (size_t i = 0; i < from->count; i++)
        add(to, from->items[i], strlen(from->items[i]), "");

    return to->failed ? fp8q_fail_nomem(err) : FP8Q_OK;
}

/* The second key is read by transformers alone where both are there, so an entry may be anchored in
 * it without harm to the readers of the first.  */
static int narrow(struct fp8q_plan *plan, struct list *list, struct list *not_converted,
                  struct reach *r)
{
    size_t n = 0;
    FP8Q_TRY(ask(plan, list, list, r, note_reach));
    for (size_t i = 0; i < list->count; i++) {
        if (r->drops[i]) {
            free(list->items[i]);
            continue;
        }

        /* Marks move with their entries: from here on both are by the new place.  */
        r->anchors[n] = r->anchors[i];
        list->items[n++] = list->items[i];
    }
    list->count = n;

    bool compressed = plan->options.format == FP8Q_FORMAT_COMPRESSED_TENSORS;
    if (!compressed)
        FP8Q_TRY(copy_list(list, not_converted, r->err));

    /* compressed-tensors has one list, in which an expression can say it to all readers.  */
    struct list *anchored = compressed ? list : not_converted;
    for (size_t i = 0; i < anchored->count; i++)
        if (r->anchors[i])
            FP8Q_TRY(anchor(plan, &anchored->items[i], r->err));

    sort_unique(list);
    sort_unique(not_converted);
    return FP8Q_OK;
}

static int narrow_and_prove(struct fp8q_plan *plan, struct list *list, struct list *not_converted,
                            struct reach *r, struct fp8q_modules *modules)
{
    if (!r->drops || !r->anchors)
        return fp8q_fail_nomem(r->err);
    FP8Q_TRY(fp8q_modules_of(plan->ckpt, is_quantized, plan, modules, r->err));
    FP8Q_TRY(narrow(plan, list, not_converted, r));

    /* Once more over the final lists.  What is found now cannot be helped: it is said, and of
     * today's engines it is a reason not to go on.  */
    FP8Q_TRY(ask(plan, list, not_converted, r, warn_of));
    if (!*r->misreading)
        return FP8Q_OK;
    plan->misreading = fp8q_plan_alloc(plan, sizeof(r->misreading), 1);
    if (!plan->misreading)
        return fp8q_fail_nomem(r->err);
    memcpy(plan->misreading, r->misreading, sizeof(r->misreading));
    return FP8Q_OK;
}

static int make_true(struct fp8q_plan *plan, struct list *list, struct list *not_converted,
                     struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_modules modules = {.items = NULL};
    struct reach r = {.plan = plan,
                      .modules = &modules,
                      .list = list,
                      .drops = fp8q_array(list->count, sizeof(*r.drops)),
                      .anchors = fp8q_array(list->count, sizeof(*r.anchors)),
                      .warnings = warnings,
                      .err = err};

    int status = narrow_and_prove(plan, list, not_converted, &r, &modules);
    fp8q_modules_reset(&modules);
    free(r.drops);
    free(r.anchors);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void free_list(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct list){.items = NULL};
}

static int make_list(struct fp8q_plan *plan, struct list *list, struct list *roots,
                     struct fp8q_error *err)
{
    const char *decoders = plan->selection.family.decoders;
    const char *more = plan->selection.family.more_decoders;
    list->of_vlm = (decoders && strstr(decoders, "model.language_model")) ||
                   (more && strstr(more, "model.language_model"));

    if (!fp8q_head_is_quantized(plan))
        add(list, "lm_head", 7, "");
    add_roots(plan, list, roots);
    add_left(plan, list);
    sort_unique(list);

    /* Before the expressions, which are no names of tensors that could be looked up.  */
    drop_quantized(plan, list);
    if (plan->options.format == FP8Q_FORMAT_COMPRESSED_TENSORS)
        add_regexes(plan, roots, list);
    sort_unique(list);

    return list->failed || roots->failed ? fp8q_fail_nomem(err) : FP8Q_OK;
}

static int make_lists(struct fp8q_plan *plan, struct list *list, struct list *not_converted,
                      struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct list roots = {.items = NULL};
    int status = make_list(plan, list, &roots, err);
    free_list(&roots);
    FP8Q_TRY(status);
    return make_true(plan, list, not_converted, warnings, err);
}

int fp8q_exclude(struct fp8q_plan *plan, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct list list = {.items = NULL}, not_converted = {.items = NULL};
    int status = make_lists(plan, &list, &not_converted, warnings, err);
    if (status != FP8Q_OK) {
        free_list(&list);
        free_list(&not_converted);
        return status;
    }

    plan->exclusions = list.items;
    plan->n_exclusions = list.count;
    plan->not_converted = not_converted.items;
    plan->n_not_converted = not_converted.count;
    return FP8Q_OK;
}
