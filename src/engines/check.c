/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c - which engine loads a checkpoint: the steps, for each engine in turn.
 *
 * How it works.  The facts are gathered once (on_disk.c).  Then each engine's judge compares them
 * with its rows of the tables: the description in config.json, the files of the directory, every
 * weight with its scales, what tensor parallelism would cut; and all engines together read the
 * exclusion list.  Nothing ends the search: a checkpoint may need more than one change.
 */
#include "engines/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/packed.h"
#include "engines/internal.h"
#include "engines/tp.h"

int fp8q_judge_say(struct fp8q_judge *j, enum fp8q_weight_of weight, const char *id,
                   const char *change, const char *fmt, ...)
{
    struct fp8q_judgement *to = j->judgement;
    struct fp8q_judged item = {.id = id, .weight = weight};
    char message[1200];
    va_list args;
    FP8Q_TRY(fp8q_grow(&to->items, to->count, &to->cap, sizeof(item), j->err));

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    item.message = strdup(message);
    item.change = change ? strdup(change) : NULL;

    /* In the list at once, so that it is freed with it.  */
    to->items[to->count++] = item;
    if (weight > to->worst)
        to->worst = weight;
    return item.message && (item.change || !change) ? FP8Q_OK : fp8q_fail_nomem(j->err);
}

/* ---- single questions ------------------------------------------------------------------------ */

/* What no table of formats can say: policies, and models that an engine treats in its own way.  */
static int judge_model(struct fp8q_judge *j)
{
    const struct fp8q_on_disk *f = j->facts;
    const struct fp8q_exception *x = fp8q_exception_of(j->engine, f->format, f->family.model_type);

    if (f->family.lerobot)
        FP8Q_TRY(fp8q_judge_say(j, FP8Q_STOPS, "model", "fp8q dequantize, or a runtime of your own",
                                "LeRobot policies are read by LeRobot alone, which would take FP8 "
                                "values for weights"));
    if (f->has_format && x)
        FP8Q_TRY(fp8q_judge_say(j, FP8Q_STOPS, "model", x->change, "%s", x->why));
    return FP8Q_OK;
}

static bool in_blocks(const void *context, size_t tensor, struct fp8q_grid *grid_out)
{
    const struct fp8q_on_disk *f = context;
    const struct fp8q_disk_weight *w = fp8q_disk_weight_of(f, &f->ckpt->tensors[tensor]);
    if (!w || (w->layout.scaling != FP8Q_SCALING_BLOCK && w->layout.scaling != FP8Q_SCALING_GROUP))
        return false;

    *grid_out = (struct fp8q_grid){(uint32_t)w->layout.block_rows, (uint32_t)w->layout.block_cols};
    return true;
}

static int judge_tp(struct fp8q_judge *j, const struct fp8q_tp *tp, unsigned ways, unsigned largest)
{
    struct fp8q_shown shown;
    char change[80];
    const char *name = fp8q_tp_misfit(tp, ways);
    if (!name || !fp8q_engines[j->engine].cuts)
        return FP8Q_OK;

    snprintf(change, sizeof(change), "serve with at most %u way%s", largest, fp8q_plural(largest));
    return fp8q_judge_say(j, FP8Q_STOPS, "tp", change,
                          "%u ways of tensor parallelism would cut blocks of \"%s\"", ways,
                          fp8q_show(&shown, name));
}

/* Scales that are no powers of two are rounded to such ones while loading on Blackwell.  */
static int note_rounding(struct fp8q_judge *j)
{
    const char *fmt = fp8q_json_string(fp8q_json_get(j->facts->config, "scale_fmt"), "");
    bool blocks = false;
    for (size_t i = 0; i < j->facts->n_weights && !blocks; i++)
        blocks = j->facts->weights[i].scale && j->facts->weights[i].scale->dtype == FP8Q_F32 &&
                 j->facts->weights[i].layout.scaling == FP8Q_SCALING_BLOCK;

    if (!blocks || !(j->demands & FP8Q_ROUNDS_SCALES) || strcmp(fmt, "ue8m0") == 0)
        return FP8Q_OK;
    return fp8q_judge_say(j, FP8Q_NOTE, "double-rounding", NULL,
                          "on Blackwell, F32 scales become powers of two while loading, a second "
                          "rounding; --scale-fmt ue8m0 avoids it");
}

/* lmdeploy looks for a parameter for every tensor, and has none for these.  */
static int judge_cache_scales(struct fp8q_judge *j)
{
    const struct fp8q_ckpt *ckpt = j->facts->ckpt;
    struct fp8q_shown shown;
    if (!(j->demands & FP8Q_NO_CACHE_SCALES))
        return FP8Q_OK;

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const char *name = ckpt->tensors[i].name;
        if (fp8q_ends_with(name, ".k_scale") || fp8q_ends_with(name, ".v_scale"))
            return fp8q_judge_say(j, FP8Q_STOPS, "cache-scales", "quantize without --kv-cache",
                                  "it has no parameter for scales of keys and values, first "
                                  "\"%s\"",
                                  fp8q_show(&shown, name));
    }

    return FP8Q_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int judge_engine(struct fp8q_judge *j, const struct fp8q_tp *tp, unsigned ways,
                        unsigned largest)
{
    FP8Q_TRY(fp8q_judge_config(j));
    FP8Q_TRY(judge_model(j));
    FP8Q_TRY(fp8q_judge_directory(j));

    /* Of a format that it does not read, the rest would mean nothing.  */
    if (!j->judgement->reading)
        return FP8Q_OK;
    FP8Q_TRY(fp8q_judge_weights(j));
    FP8Q_TRY(judge_cache_scales(j));
    FP8Q_TRY(judge_tp(j, tp, ways, largest));
    return note_rounding(j);
}

/* What the engine reads of this format; MXFP8 in the fp8 format is a method that not all have.  */
static const struct fp8q_reading *find_reading(const struct fp8q_on_disk *f,
                                               enum fp8q_engine engine)
{
    const struct fp8q_reading *r = f->has_format ? fp8q_reading_of(engine, f->format) : NULL;
    bool has_groups = r && (r->scalings & 1U << FP8Q_SCALING_GROUP);

    return f->says_groups && !has_groups ? NULL : r;
}

static int judge_all(const struct fp8q_on_disk *f, unsigned ways,
                     struct fp8q_engines_report *report, struct fp8q_error *err)
{
    const struct fp8q_tp tp = {
        .ckpt = f->ckpt, .family = &f->family, .in_blocks = in_blocks, .context = f};
    report->largest_tp = fp8q_largest_tp(&tp, &report->tp_limit);
    for (size_t i = 0; i < f->n_weights && !report->has_groups; i++)
        report->has_groups = f->weights[i].layout.scaling == FP8Q_SCALING_GROUP;

    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++) {
        struct fp8q_judge j = {.facts = f,
                               .engine = (enum fp8q_engine)e,
                               .judgement = &report->engines[e],
                               .err = err};
        j.judgement->reading = find_reading(f, j.engine);
        j.demands = j.judgement->reading ? j.judgement->reading->demands : 0;
        FP8Q_TRY(judge_engine(&j, &tp, ways, report->largest_tp));
    }

    return fp8q_judge_lists(f, report, err);
}

int fp8q_engines_check(const struct fp8q_ckpt *ckpt, const struct fp8q_warnings *warnings,
                       unsigned ways, struct fp8q_engines_report *report, struct fp8q_error *err)
{
    struct fp8q_on_disk facts;
    *report = (struct fp8q_engines_report){.largest_tp = 0};
    FP8Q_TRY(fp8q_refuse_packed(ckpt, err));

    int status = fp8q_on_disk_of(ckpt, warnings, &facts, err);
    if (status == FP8Q_OK)
        status = judge_all(&facts, ways, report, err);

    fp8q_on_disk_reset(&facts);
    return status;
}

void fp8q_engines_reset(struct fp8q_engines_report *report)
{
    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++) {
        struct fp8q_judgement *j = &report->engines[e];
        for (size_t i = 0; i < j->count; i++) {
            free(j->items[i].message);
            free(j->items[i].change);
        }
        free(j->items);
    }

    *report = (struct fp8q_engines_report){.largest_tp = 0};
}
