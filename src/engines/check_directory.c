/* SPDX-License-Identifier: Apache-2.0
 *
 * check_directory.c - whether the files of a directory lead an engine where they should, and
 * exclusion lists to the modules that are not FP8.
 */
#include "engines/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "engines/matchers.h"
#include "select/pattern.h"

/* ---- files ----------------------------------------------------------------------------------- */

static bool was_warned(const struct fp8q_warnings *warnings, const char *id)
{
    for (size_t i = 0; warnings && i < warnings->count; i++)
        if (strcmp(warnings->items[i].id, id) == 0)
            return true;

    return false;
}

static bool has_file(const struct fp8q_ckpt *ckpt, const char *beginning)
{
    for (size_t i = 0; i < ckpt->n_other_files; i++)
        if (fp8q_starts_with(ckpt->other_files[i], beginning))
            return true;

    return false;
}

int fp8q_judge_directory(struct fp8q_judge *j)
{
    const struct fp8q_on_disk *f = j->facts;
    if (!f->config)
        return FP8Q_OK; /* there is nothing to be led away from */

    for (size_t i = 0; i < fp8q_n_traps; i++) {
        const struct fp8q_trap *trap = &fp8q_traps[i];
        bool is_there =
            trap->warning ? was_warned(f->warnings, trap->warning) : has_file(f->ckpt, trap->file);
        bool belongs = trap->method && strcmp(trap->method, f->method) == 0;
        if (is_there && !belongs && (trap->engines & 1U << j->engine))
            FP8Q_TRY(fp8q_judge_say(j, FP8Q_STOPS, "files", trap->change, "%s", trap->why));
    }

    return FP8Q_OK;
}

/* ---- exclusion lists ------------------------------------------------------------------------- */

/* Misreadings of one reader, by what they come to: how many modules, and the first.  */
struct reading {
    size_t n_excluded, n_missing, n_doubtful;
    const struct fp8q_module *excluded, *missing, *doubtful;
    const char *entry; /* that reaches @excluded */
};

struct lists {
    const struct fp8q_on_disk *facts;
    struct reading *by_reader; /* as many as there are readers */
};

/* Engines build the linears and experts of a decoder in FP8 unless the list says otherwise.  Of
 * towers, routers and heads they may know by themselves that they are not.  */
static bool is_certain(const struct fp8q_on_disk *f, const struct fp8q_module *m)
{
    struct fp8q_linear_place place;
    bool of_experts = m->kind == FP8Q_MODULE_EXPERTS || m->kind == FP8Q_MODULE_STACKED;
    if (of_experts && fp8q_family_layer(&f->family, f->ckpt->tensors[m->tensor].name))
        return true;

    return fp8q_family_linear(&f->family, m->name, &place);
}

static int note_misreading(void *context, const struct fp8q_misreading *m)
{
    struct lists *l = context;
    struct reading *r = &l->by_reader[m->reader - fp8q_readers];

    if (m->entry && r->n_excluded++ == 0) {
        r->excluded = m->module;
        r->entry = m->entry;
    }
    if (m->entry)
        return FP8Q_OK;
    if (is_certain(l->facts, m->module) && r->n_missing++ == 0)
        r->missing = m->module;
    else if (!is_certain(l->facts, m->module) && r->n_doubtful++ == 0)
        r->doubtful = m->module;

    return FP8Q_OK;
}

static bool is_fp8(const void *context, size_t tensor)
{
    return fp8q_is_fp8(((const struct fp8q_ckpt *)context)->tensors[tensor].dtype);
}

static int say_missing(struct fp8q_judge *j, const struct fp8q_reader *reader,
                       const struct reading *r)
{
    enum fp8q_weight_of weight = FP8Q_STOPS;
    const char *change = "add it to the exclusion list";
    struct fp8q_shown shown;

    /* What older versions do is worth a note only.  */
    if (reader->is_older || (j->demands & FP8Q_QUANTIZES_REST)) {
        weight = FP8Q_NOTE;
        change = NULL;
    }
    return fp8q_judge_say(j, weight, "exclusions", change,
                          "%s would build %zu module%s in FP8 that %s not, first \"%s\"",
                          reader->name, r->n_missing, fp8q_plural(r->n_missing),
                          r->n_missing == 1 ? "is" : "are", fp8q_show(&shown, r->missing->name));
}

static int say_misreadings(struct fp8q_judge *j, const struct fp8q_reader *reader,
                           const struct reading *r)
{
    bool older = reader->is_older;
    struct fp8q_shown shown, entry;

    if (r->n_excluded)
        FP8Q_TRY(fp8q_judge_say(j, older ? FP8Q_NOTE : FP8Q_STOPS, "exclusions",
                                older ? NULL : "take the entry out of the exclusion list",
                                "%s leaves %zu FP8 module%s in high precision, first \"%s\" by "
                                "entry \"%s\"",
                                reader->name, r->n_excluded, fp8q_plural(r->n_excluded),
                                fp8q_show(&shown, r->excluded->name), fp8q_show(&entry, r->entry)));
    if (r->n_missing)
        FP8Q_TRY(say_missing(j, reader, r));
    if (r->n_doubtful && !older)
        FP8Q_TRY(fp8q_judge_say(j, FP8Q_NOTE, "exclusions-doubtful", NULL,
                                "no exclusion list names %zu module%s in high precision, first "
                                "\"%s\": the model's class must know",
                                r->n_doubtful, fp8q_plural(r->n_doubtful),
                                fp8q_show(&shown, r->doubtful->name)));

    return FP8Q_OK;
}

static int say_all(const struct lists *l, struct fp8q_engines_report *report,
                   struct fp8q_error *err)
{
    for (size_t i = 0; i < fp8q_n_readers; i++)
        for (unsigned e = 0; e < FP8Q_N_ENGINES; e++) {
            struct fp8q_judgement *judgement = &report->engines[e];
            struct fp8q_judge j = {.facts = l->facts,
                                   .engine = (enum fp8q_engine)e,
                                   .judgement = judgement,
                                   .err = err};
            if (!judgement->reading || !(fp8q_readers[i].engines & 1U << e))
                continue;
            j.demands = judgement->reading->demands;
            FP8Q_TRY(say_misreadings(&j, &fp8q_readers[i], &l->by_reader[i]));
        }

    return FP8Q_OK;
}

int fp8q_judge_lists(const struct fp8q_on_disk *f, struct fp8q_engines_report *report,
                     struct fp8q_error *err)
{
    struct fp8q_exclusions exclusions = {.format = f->format};
    struct fp8q_modules modules = {.items = NULL};
    struct lists lists = {.facts = f};
    if (!f->has_format)
        return FP8Q_OK;

    lists.by_reader = fp8q_array(fp8q_n_readers, sizeof(*lists.by_reader));
    int status = lists.by_reader ? FP8Q_OK : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = fp8q_exclusions_read(f->config, &exclusions, err);
    if (status == FP8Q_OK)
        status = fp8q_modules_of(f->ckpt, is_fp8, f->ckpt, &modules, err);
    if (status == FP8Q_OK)
        status = fp8q_readers_ask(&exclusions, &modules, note_misreading, &lists, err);
    if (status == FP8Q_OK)
        status = say_all(&lists, report, err);

    fp8q_modules_reset(&modules);
    fp8q_exclusions_reset(&exclusions);
    free(lists.by_reader);
    return status;
}
