/* SPDX-License-Identifier: Apache-2.0
 *
 * matchers.c - the readers of exclusion lists.
 *
 * How it works.  A row of the table (engines.c) says which key an engine reads and by which rules
 * an entry reaches a module.  Entries are sorted once for each reader; all entries that begin at one place
 * of a module's name are then found by a few binary searches (next_prefix), so that no rule
 * compares every entry with every module.
 */
#include "engines/matchers.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "select/pattern.h"

/* ---- the entries of one reader ---------------------------------------------------------------- */

struct entries {
    unsigned rules;
    const char **sorted; /* plain names */
    size_t n_sorted, sorted_cap;
    bool begins_with[256]; /* first bytes of @sorted */
    const char **tails;    /* for FP8Q_WITHIN: what begins at a component of an entry, sorted */
    size_t n_tails, tails_cap;
    struct expression {
        struct fp8q_pattern *pattern; /* NULL: @text is a glob */
        const char *text;
    } * expressions;
    size_t n_expressions, expressions_cap;
    char **owned; /* entries that are no borrowed text */
    size_t n_owned, owned_cap;
};

static int keep_text(struct entries *e, char *text, const char **text_out, struct fp8q_error *err)
{
    if (!text || fp8q_grow(&e->owned, e->n_owned, &e->owned_cap, sizeof(text), err) != FP8Q_OK) {
        free(text);
        return fp8q_fail_nomem(err);
    }

    e->owned[e->n_owned++] = text;
    *text_out = text;
    return FP8Q_OK;
}

static char *lower(const char *text)
{
    char *copy = strdup(text);
    for (char *c = copy; c && *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return copy;
}

static int add_name(struct entries *e, const char *name, struct fp8q_error *err)
{
    if (e->rules & FP8Q_NO_CASE)
        FP8Q_TRY(keep_text(e, lower(name), &name, err));
    FP8Q_TRY(fp8q_grow(&e->sorted, e->n_sorted, &e->sorted_cap, sizeof(name), err));
    e->sorted[e->n_sorted++] = name;

    /* Most places of a module's name are passed over by this table alone.  */
    e->begins_with[(unsigned char)*name] = true;

    /* Readers that look for a module's name within an entry find it at the start of a component, so
     * what begins at each component of the entry is kept; find_within() searches it by halves.  */
    bool needs_tails = e->rules & (FP8Q_WITHIN | FP8Q_EXPERTS_WITHIN);
    bool only_experts = !(e->rules & FP8Q_WITHIN);
    if (!needs_tails || (only_experts && !strstr(name, "experts")))
        return FP8Q_OK;
    for (const char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
        FP8Q_TRY(fp8q_grow(&e->tails, e->n_tails, &e->tails_cap, sizeof(at), err));
        e->tails[e->n_tails++] = at;
    }

    return FP8Q_OK;
}

/* An expression that is none is passed over: so do engines, or they stop.  */
static int add_expression(struct entries *e, const char *text, const char *regex,
                          struct fp8q_error *err)
{
    struct expression x = {.text = text};
    if (regex && fp8q_pattern_compile(regex, &x.pattern, NULL) != FP8Q_OK)
        return FP8Q_OK;
    int status = fp8q_grow(&e->expressions, e->n_expressions, &e->expressions_cap, sizeof(x), err);
    if (status != FP8Q_OK) {
        fp8q_pattern_free(x.pattern);
        return status;
    }

    e->expressions[e->n_expressions++] = x;
    return FP8Q_OK;
}

/* An expression that was made from an entry.  */
static int add_made(struct entries *e, const char *entry, struct fp8q_text *regex,
                    struct fp8q_error *err)
{
    int status = regex->failed ? fp8q_fail_nomem(err) : add_expression(e, entry, regex->data, err);
    fp8q_text_reset(regex);
    return status;
}

/* transformers takes an entry as a regular expression.  A name is one too, in which only the dots
 * mean more, so names are compared as they are.  */
static int add_begins(struct entries *e, const char *entry, struct fp8q_error *err)
{
    bool at_module = e->rules & FP8Q_BEGINS_MODULE;
    struct fp8q_text regex = {0};
    if (!strpbrk(entry, "^$*+?()[]{}|\\"))
        return FP8Q_OK;

    fp8q_text_printf(&regex, at_module ? "re:(?:%s)(?:(?<=\\.)|(?=\\.|$))" : "re:(?:%s)", entry);
    return add_made(e, entry, &regex, err);
}

/* TensorRT-LLM: `re:` by its whole, else a glob.  */
static int add_glob(struct entries *e, const char *entry, struct fp8q_error *err)
{
    struct fp8q_text regex = {0};
    if (strncmp(entry, "re:", 3) != 0)
        return strpbrk(entry, "*?[") ? add_expression(e, entry, NULL, err) : FP8Q_OK;

    fp8q_text_printf(&regex, "re:(?:%s)\\Z", entry + 3);
    return add_made(e, entry, &regex, err);
}

static int add_entry(struct entries *e, const char *entry, struct fp8q_error *err)
{
    if ((e->rules & FP8Q_REGEX) && strncmp(entry, "re:", 3) == 0)
        return add_expression(e, entry, entry, err);
    if (e->rules & (FP8Q_BEGINS | FP8Q_BEGINS_MODULE))
        FP8Q_TRY(add_begins(e, entry, err));
    if (e->rules & (FP8Q_ANCESTOR | FP8Q_GLOB))
        FP8Q_TRY(add_glob(e, entry, err));

    FP8Q_TRY(add_name(e, entry, err));
    if (!(e->rules & FP8Q_BOTH_SPELLINGS))
        return FP8Q_OK;

    struct fp8q_text other = {0};

    /* SGLang strips one `model.`, or puts one before.  */
    if (strncmp(entry, "model.", 6) == 0)
        return add_name(e, entry + 6, err);
    fp8q_text_printf(&other, "model.%s", entry);
    FP8Q_TRY(fp8q_text_status(&other, err));
    FP8Q_TRY(keep_text(e, other.data, &entry, err));
    return add_name(e, entry, err);
}

static int add_list(struct entries *e, const struct fp8q_name_list *list, struct fp8q_error *err)
{
    for (size_t i = 0; i < list->count; i++)
        FP8Q_TRY(add_entry(e, list->items[i], err));

    return FP8Q_OK;
}

static int add_lists(struct entries *e, const struct fp8q_reader *r,
                     const struct fp8q_exclusions *x, struct fp8q_error *err)
{
    const struct fp8q_name_list *ignored = &x->ignored_layers, *not_converted = &x->not_converted;

    switch (r->keys) {
    case FP8Q_IGNORED_IF_FILLED:
        return add_list(e, ignored->count ? ignored : not_converted, err);
    case FP8Q_IGNORED_IF_PRESENT:
        return add_list(e, ignored->items ? ignored : not_converted, err);
    case FP8Q_NOT_CONVERTED_FIRST:
        return add_list(e, not_converted->items ? not_converted : ignored, err);
    case FP8Q_NOT_CONVERTED:
        return add_list(e, not_converted, err);
    case FP8Q_BOTH_KEYS:
        FP8Q_TRY(add_list(e, ignored, err));
        return add_list(e, not_converted, err);
    default:
        return add_list(e, &x->ignore, err);
    }
}

static void free_entries(struct entries *e)
{
    for (size_t i = 0; i < e->n_expressions; i++)
        fp8q_pattern_free(e->expressions[i].pattern);
    for (size_t i = 0; i < e->n_owned; i++)
        free(e->owned[i]);
    free(e->expressions);
    free(e->owned);
    free(e->sorted);
    free(e->tails);
}

/* ---- finding an entry ------------------------------------------------------------------------- */

/* Order of @entry and the first @len bytes of @text.  */
static int compare_prefix(const char *entry, const char *text, size_t len)
{
    size_t n = strlen(entry);
    int order = memcmp(entry, text, fp8q_min_size(n, len));
    if (order)
        return order;
    return n < len ? -1 : n > len;
}

/* The longest entry that @text begins with, of at most @limit bytes; its length, or 0.
 *
 * The last entry that is not behind text[0..limit) either is a prefix of it, or shares with it all
 * that a shorter prefix could have: so the search goes on with what they share.  */
static size_t next_prefix(const struct entries *e, const char *text, size_t limit,
                          const char **entry_out)
{
    while (limit > 0) {
        size_t low = 0, high = e->n_sorted;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (compare_prefix(e->sorted[middle], text, limit) <= 0)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == 0)
            return 0;

        const char *entry = e->sorted[low - 1];

        /* Not a prefix, perhaps: then a shorter one lies within what it shares with the text.  */
        size_t shared = 0;
        while (shared < limit && entry[shared] && entry[shared] == text[shared])
            shared++;
        if (!entry[shared]) {
            *entry_out = entry;
            return shared;
        }
        limit = shared;
    }

    return 0;
}

static bool is_boundary(char c)
{
    return c == '.' || c == '\0';
}

/* Whether an entry of @len bytes at @at may reach the module of @n bytes by these rules.  */
static bool accepts(unsigned rules, size_t at, bool at_component, size_t len, const char *module,
                    size_t n)
{
    bool ends_component = is_boundary(module[at + len]), ends = at + len == n;

    return (rules & FP8Q_PART) || ((rules & FP8Q_EXACT) && at == 0 && ends) ||
           ((rules & FP8Q_RUN) && at_component && ends_component) ||
           ((rules & FP8Q_LAST_RUN) && at_component && ends) ||
           ((rules & FP8Q_ANCESTOR) && at == 0 && ends_component) ||
           ((rules & FP8Q_BEGINS) && at == 0) ||
           ((rules & FP8Q_BEGINS_MODULE) && at == 0 && ends_component) ||
           ((rules & FP8Q_ENDS) && ends);
}

static const char *find_name(const struct entries *e, const char *module)
{
    size_t n = strlen(module);
    bool anywhere = e->rules & (FP8Q_PART | FP8Q_ENDS),
         runs = e->rules & (FP8Q_RUN | FP8Q_LAST_RUN);

    for (size_t at = 0; at < n; at++) {
        bool at_component = at == 0 || module[at - 1] == '.';
        bool is_start = anywhere || at == 0 || (runs && at_component);
        if (!is_start || !e->begins_with[(unsigned char)module[at]])
            continue;

        /* From the longest entry to the shortest: any of them may be the one that reaches.  */
        const char *entry;
        for (size_t len = n - at; (len = next_prefix(e, module + at, len, &entry)) > 0; len--)
            if (accepts(e->rules, at, at_component, len, module, n))
                return entry;
    }

    return NULL;
}

static bool matches_glob(unsigned rules, const char *glob, const char *module)
{
    char name[1024];
    if (fnmatch(glob, module, FNM_NOESCAPE) == 0)
        return true;
    if (!(rules & FP8Q_ANCESTOR) || strlen(module) >= sizeof(name))
        return false;

    /* Then its ancestors, from the nearest on.  */
    strcpy(name, module);
    for (char *dot; (dot = strrchr(name, '.')) != NULL;) {
        *dot = '\0';
        if (fnmatch(glob, name, FNM_NOESCAPE) == 0)
            return true;
    }
    return false;
}

static const char *find_expression(const struct entries *e, const char *module)
{
    for (size_t i = 0; i < e->n_expressions; i++) {
        const struct expression *x = &e->expressions[i];
        bool matches = false;
        if (!x->pattern)
            matches = matches_glob(e->rules, x->text, module);
        else if (fp8q_pattern_match(x->pattern, module, &matches, NULL) != FP8Q_OK)
            matches = false;
        if (matches)
            return x->text;
    }

    return NULL;
}

/* An entry that holds all of @module.  */
static const char *find_within(const struct entries *e, const char *module)
{
    size_t low = 0, high = e->n_tails;

    /* The first tail not before the module: if any begins with it, that one does.  */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(e->tails[middle], module) < 0)
            low = middle + 1;
        else
            high = middle;
    }

    bool found = low < e->n_tails && strncmp(e->tails[low], module, strlen(module)) == 0;
    return found ? e->tails[low] : NULL;
}

/* The entry by which this reader leaves @module in high precision, or NULL.  */
static const char *find_entry(const struct entries *e, const char *module)
{
    bool is_experts = (e->rules & FP8Q_EXPERTS_WITHIN) && strstr(module, "experts");
    const char *entry = NULL;

    if (is_experts || (e->rules & FP8Q_WITHIN))
        entry = find_within(e, module);
    if (!entry && !(is_experts && (e->rules & FP8Q_EXPERTS_ONLY_SO)))
        entry = find_name(e, module);

    return entry ? entry : find_expression(e, module);
}

/* ---- asking ----------------------------------------------------------------------------------- */

static bool is_built_in(const struct fp8q_reader *r, const char *module)
{
    size_t len;
    return r->built_in && fp8q_has_any_components(module, r->built_in, &len) != NULL;
}

/* vLLM asks about a fused module by its parts, exactly; its rule for experts is for the rest.  */
static bool is_of_experts(const struct fp8q_module *m)
{
    return m->kind == FP8Q_MODULE_EXPERTS || fp8q_ends_with(m->name, "down_proj");
}

static int ask_module(const struct fp8q_reader *r, const struct entries *e,
                      const struct fp8q_module *m, struct fp8q_misreading *misreading,
                      bool *is_wrong, struct fp8q_error *err)
{
    const char *name = m->name;
    char *lowered = NULL;
    if ((r->rules & FP8Q_NO_CASE) && !(name = lowered = lower(m->name)))
        return fp8q_fail_nomem(err);

    /* The parts of fused modules are compared by their whole names, experts or not.  */
    struct entries exact = *e;
    if ((r->rules & FP8Q_EXPERTS_ONLY_SO) && !is_of_experts(m))
        exact.rules &= ~(unsigned)FP8Q_EXPERTS_WITHIN;
    const char *entry = find_entry(&exact, name);
    /* Expressions mind the case.  */
    if (!entry && lowered)
        entry = find_expression(e, m->name);
    free(lowered);

    *is_wrong = (entry != NULL) == m->quantized;
    *misreading = (struct fp8q_misreading){.reader = r, .module = m, .entry = entry};
    return FP8Q_OK;
}

/* What is asked of each reader, and who hears of its misreadings.  */
struct question {
    const struct fp8q_exclusions *exclusions;
    const struct fp8q_modules *modules;
    int (*found)(void *context, const struct fp8q_misreading *misreading);
    void *context;
    struct fp8q_error *err;
};

static int ask_reader(const struct fp8q_reader *r, const struct entries *e,
                      const struct question *q)
{
    for (size_t i = 0; i < q->modules->count; i++) {
        const struct fp8q_module *m = &q->modules->items[i];
        struct fp8q_misreading misreading;
        bool is_wrong = false;

        /* A reader does not ask about every name that a module could have.  */
        if (!(r->kinds & m->kind) || is_built_in(r, m->name))
            continue;

        FP8Q_TRY(ask_module(r, e, m, &misreading, &is_wrong, q->err));
        if (is_wrong)
            FP8Q_TRY(q->found(q->context, &misreading));
    }
    return FP8Q_OK;
}

static int fill_and_ask(const struct fp8q_reader *r, struct entries *e, const struct question *q)
{
    FP8Q_TRY(add_lists(e, r, q->exclusions, q->err));

    /* Sorted, because next_prefix() and find_within() search by halves.  */
    if (e->n_sorted)
        qsort(e->sorted, e->n_sorted, sizeof(*e->sorted), fp8q_compare_strings);
    if (e->n_tails)
        qsort(e->tails, e->n_tails, sizeof(*e->tails), fp8q_compare_strings);
    return ask_reader(r, e, q);
}

/* Whether one of its engines has a class for such models.  */
static bool has_class(const struct fp8q_reader *r, const char *model_type)
{
    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++) {
        const struct fp8q_exception *x =
            fp8q_exception_of((enum fp8q_engine)e, r->format, model_type);
        if ((r->engines & 1U << e) && !(x && x->has_no_class))
            return true;
    }

    return false;
}

int fp8q_readers_ask(const struct fp8q_exclusions *exclusions, const struct fp8q_modules *modules,
                     int (*found)(void *context, const struct fp8q_misreading *misreading),
                     void *context, struct fp8q_error *err)
{
    const struct question q = {exclusions, modules, found, context, err};

    for (size_t i = 0; i < fp8q_n_readers; i++) {
        const struct fp8q_reader *r = &fp8q_readers[i];
        struct entries e = {.rules = r->rules};
        if (r->format != exclusions->format || !has_class(r, modules->model_type))
            continue;

        /* Each reader's own: what is kept of an entry depends on its rules.  */
        int status = fill_and_ask(r, &e, &q);
        free_entries(&e);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

/* ---- lists ------------------------------------------------------------------------------------ */

static int read_list(const struct fp8q_json *array, struct fp8q_name_list *list,
                     struct fp8q_error *err)
{
    if (!fp8q_json_is_array(array))
        return FP8Q_OK; /* null is as good as absent */
    list->items = fp8q_array(fp8q_json_count(array), sizeof(*list->items));
    if (!list->items)
        return fp8q_fail_nomem(err);

    for (const struct fp8q_json *i = fp8q_json_first(array); i; i = fp8q_json_next(i)) {
        const char *text = fp8q_json_string(i, NULL);

        /* What is no name reaches no module.  */
        if (text && *text)
            list->items[list->count++] = text;
    }
    return FP8Q_OK;
}

int fp8q_exclusions_read(const struct fp8q_json *config, struct fp8q_exclusions *x,
                         struct fp8q_error *err)
{
    const char *method = fp8q_json_string(fp8q_json_get(config, "quant_method"), "");
    *x = (struct fp8q_exclusions){.format = FP8Q_FORMAT_FP8};
    const struct fp8q_json *ignore = fp8q_json_get(config, "ignore");
    if (strcmp(method, "compressed-tensors") == 0)
        x->format = FP8Q_FORMAT_COMPRESSED_TENSORS;
    else if (strcmp(method, "modelopt") == 0)
        x->format = FP8Q_FORMAT_MODELOPT;
    if (!ignore && x->format == FP8Q_FORMAT_MODELOPT)
        ignore = fp8q_json_get(config, "exclude_modules");

    FP8Q_TRY(read_list(fp8q_json_get(config, "ignored_layers"), &x->ignored_layers, err));
    FP8Q_TRY(read_list(fp8q_json_get(config, "modules_to_not_convert"), &x->not_converted, err));
    return read_list(ignore, &x->ignore, err);
}

void fp8q_exclusions_reset(struct fp8q_exclusions *x)
{
    free(x->ignored_layers.items);
    free(x->not_converted.items);
    free(x->ignore.items);
    *x = (struct fp8q_exclusions){.format = FP8Q_FORMAT_FP8};
}
