/* SPDX-License-Identifier: Apache-2.0
 *
 * readers.c - which engine reads the output: what `check` says of it, in short.
 */
#include <stdio.h>
#include <string.h>

#include "engines/check.h"
#include "report/internal.h"

static void add(struct fp8q_facts_engine *e, const char *before, const char *text,
                const char *after)
{
    size_t used = strlen(e->note);
    snprintf(e->note + used, sizeof(e->note) - used, "%s%s%s", before, text, after);
}

/* What stops it and what would have to change; else where it is fast.  */
static void describe(const struct fp8q_judgement *j, bool has_groups, struct fp8q_facts_engine *e)
{
    for (size_t i = 0; i < j->count; i++) {
        const struct fp8q_judged *item = &j->items[i];
        if (item->weight != j->worst)
            continue;
        add(e, *e->note ? "; " : "", item->message, "");
        if (item->change)
            add(e, " (", item->change, ")");
    }

    if (!j->reading || j->worst == FP8Q_STOPS)
        return;
    if (has_groups && j->reading->group_gpus) {
        add(e, *e->note ? "; MXFP8 arithmetic: " : "MXFP8 arithmetic: ", j->reading->group_gpus,
            "");
        return;
    }
    add(e, *e->note ? "; FP8 arithmetic: " : "FP8 arithmetic: ", j->reading->gpus, "");
    add(e, "; elsewhere: ", j->reading->other, "");
}

int fp8q_facts_ask_engines(struct fp8q_facts *f, struct fp8q_error *err)
{
    static const enum fp8q_facts_reads states[] = {
        [FP8Q_NOTE] = FP8Q_FACTS_READS,
        [FP8Q_UNSURE] = FP8Q_FACTS_UNSURE,
        [FP8Q_STOPS] = FP8Q_FACTS_STOPS,
    };
    struct fp8q_engines_report report;

    int status = fp8q_engines_check(f->proof.ckpt, NULL, 0, &report, err);
    for (size_t i = 0; i < FP8Q_N_ENGINES; i++) {
        struct fp8q_facts_engine *e = &f->engines[i];
        e->state = status == FP8Q_OK ? states[report.engines[i].worst] : FP8Q_FACTS_UNSURE;
        if (status == FP8Q_OK)
            describe(&report.engines[i], report.has_groups, e);
    }
    fp8q_engines_reset(&report);

    /* A checkpoint without FP8, or of a packed format, is none that engines are asked about.  */
    return status == FP8Q_E_ARG || status == FP8Q_E_UNSUPPORTED ? FP8Q_OK : status;
}
