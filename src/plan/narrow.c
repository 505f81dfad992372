/* SPDX-License-Identifier: Apache-2.0
 *
 * narrow.c - second half of the exclusion list: what reaches too far goes, and readers are asked.
 *
 * exclude.c says how it works.
 */
#include "plan/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "engines/matchers.h"

/* What reaches too far: by its place in the sorted list.  */
struct reach {
    const struct fp8q_plan *plan;
    const struct fp8q_modules *modules;
    const struct fp8q_spellings *list;
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
    struct fp8q_spellings *list = (struct fp8q_spellings *)r->list;
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

static void view_list(const struct fp8q_spellings *list, struct fp8q_name_list *view)
{
    view->items = (const char **)list->items;
    view->count = list->count;
}

static int ask(const struct fp8q_plan *plan, const struct fp8q_spellings *ignored,
               const struct fp8q_spellings *not_converted, struct reach *r,
               int (*found)(void *context, const struct fp8q_misreading *misreading))
{
    struct fp8q_exclusions x = {.format = plan->options.format};

    if (x.format == FP8Q_FORMAT_FP8) {
        view_list(ignored, &x.ignored_layers);
        view_list(not_converted, &x.not_converted);
    } else {
        view_list(ignored, &x.ignore);
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

static int copy_list(const struct fp8q_spellings *from, struct fp8q_spellings *to,
                     struct fp8q_error *err)
{
    for (size_t i = 0; i < from->count; i++)
        fp8q_spellings_add(to, from->items[i], strlen(from->items[i]), "");

    return to->failed ? fp8q_fail_nomem(err) : FP8Q_OK;
}

/* The second key is read by transformers alone where both are there, so an entry may be anchored in
 * it without harm to the readers of the first.  */
static int narrow(struct fp8q_plan *plan, struct fp8q_spellings *list,
                  struct fp8q_spellings *not_converted, struct reach *r)
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

    /* The other formats have one list; in that of compressed-tensors an expression can say it to all
     * readers, in ModelOpt's there is none.  */
    enum fp8q_format format = plan->options.format;
    struct fp8q_spellings *anchored = format == FP8Q_FORMAT_FP8 ? not_converted : list;
    if (format == FP8Q_FORMAT_FP8)
        FP8Q_TRY(copy_list(list, not_converted, r->err));
    for (size_t i = 0; i < anchored->count && format != FP8Q_FORMAT_MODELOPT; i++)
        if (r->anchors[i])
            FP8Q_TRY(anchor(plan, &anchored->items[i], r->err));

    fp8q_spellings_sort(list);
    fp8q_spellings_sort(not_converted);
    return FP8Q_OK;
}

static int narrow_and_prove(struct fp8q_plan *plan, struct fp8q_spellings *list,
                            struct fp8q_spellings *not_converted, struct reach *r,
                            struct fp8q_modules *modules)
{
    if (!r->drops || !r->anchors)
        return fp8q_fail_nomem(r->err);
    FP8Q_TRY(fp8q_modules_of(plan->ckpt, fp8q_plan_quantizes, plan, modules, r->err));
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

int fp8q_exclude_narrow(struct fp8q_plan *plan, struct fp8q_spellings *list,
                        struct fp8q_spellings *not_converted, struct fp8q_warnings *warnings,
                        struct fp8q_error *err)
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
