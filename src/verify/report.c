/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c - collects findings, and makes checks of them.
 */
#include "verify/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- findings -------------------------------------------------------------------------------- */

static void free_finding(struct fp8q_finding *finding)
{
    free(finding->where);
    free(finding->observed);
}

/* Whether a finding of this rank would be among those that are kept.  */
static bool is_kept(const struct fp8q_findings *f, uint64_t rank)
{
    return f->keeps_all || f->n_items < FP8Q_MOST_FINDINGS || rank < f->items[f->n_items - 1].rank;
}

/* Opens the place of @rank, behind all that are not larger: findings come nearly in order.  */
static struct fp8q_finding *make_place(struct fp8q_findings *f, uint64_t rank)
{
    if (!f->keeps_all && f->n_items == FP8Q_MOST_FINDINGS)
        free_finding(&f->items[--f->n_items]);
    else if (fp8q_grow(&f->items, f->n_items, &f->cap, sizeof(*f->items), NULL) != FP8Q_OK)
        return NULL;

    size_t at = f->n_items++;
    for (; at > 0 && f->items[at - 1].rank > rank; at--)
        f->items[at] = f->items[at - 1];
    return &f->items[at];
}

void fp8q_findings_add(struct fp8q_findings *f, uint64_t rank, const char *where, const char *fmt,
                       ...)
{
    /* Counted also where it is not kept: the check says how many there were.  */
    f->n_found++;
    if (!is_kept(f, rank))
        return;

    char observed[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(observed, sizeof(observed), fmt, args);
    va_end(args);

    struct fp8q_shown shown;
    struct fp8q_finding finding = {rank, strdup(fp8q_show(&shown, where)), strdup(observed)};
    struct fp8q_finding *place = NULL;

    if (finding.where && finding.observed)
        place = make_place(f, rank);

    /* Remembered until fp8q_report_add(), which has an error to fill.  */
    if (!place) {
        free_finding(&finding);
        f->failed = true;
        return;
    }
    *place = finding;
}

void fp8q_findings_reset(struct fp8q_findings *f)
{
    for (size_t i = 0; i < f->n_items; i++)
        free_finding(&f->items[i]);
    free(f->items);
    f->items = NULL;
    f->n_items = f->cap = 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* The first finding stands for all in what a check says in one line.  */
static struct fp8q_check check_of(const struct fp8q_findings *f)
{
    struct fp8q_check c = {.id = f->id, .status = FP8Q_CHECK_PASS};
    unsigned long long n_looked_at = f->n_looked_at, n_more = f->n_found - 1;

    snprintf(c.limit, sizeof(c.limit), "%s", f->limit);
    if (f->n_found == 0) {
        snprintf(c.observed, sizeof(c.observed), "%llu checked", n_looked_at);
        return c;
    }

    c.status = f->status;
    snprintf(c.where, sizeof(c.where), "%s", f->items[0].where);
    if (n_more == 0)
        snprintf(c.observed, sizeof(c.observed), "%s", f->items[0].observed);
    else
        snprintf(c.observed, sizeof(c.observed), "%.200s (and %llu more)", f->items[0].observed,
                 n_more);
    return c;
}

static int add(struct fp8q_report *report, struct fp8q_findings *f, struct fp8q_error *err)
{
    if (f->failed)
        return fp8q_fail_nomem(err);

    size_t n = report->n_checks;
    /* Two lists, one count: it rises only when both have room.  */
    FP8Q_TRY(fp8q_grow(&report->checks, n, &report->cap_checks, sizeof(*report->checks), err));
    FP8Q_TRY(
        fp8q_grow(&report->findings, n, &report->cap_findings, sizeof(*report->findings), err));

    report->checks[n] = check_of(f);
    report->findings[n] = *f;
    report->n_checks++;
    report->n_failed += report->checks[n].status == FP8Q_CHECK_FAIL;
    report->n_warned += report->checks[n].status == FP8Q_CHECK_WARN;

    f->items = NULL; /* the report's now */
    f->n_items = f->cap = 0;
    return FP8Q_OK;
}

int fp8q_report_add(struct fp8q_report *report, struct fp8q_findings *f, struct fp8q_error *err)
{
    int status = add(report, f, err);
    fp8q_findings_reset(f);
    return status;
}

int fp8q_report_add_all(struct fp8q_report *report, int status,
                        struct fp8q_findings *const *findings, size_t n, struct fp8q_error *err)
{
    for (size_t i = 0; i < n && status == FP8Q_OK; i++)
        status = add(report, findings[i], err);

    for (size_t i = 0; i < n; i++)
        fp8q_findings_reset(findings[i]);
    return status;
}

static void rotate(void *items, size_t size, size_t n_before, size_t n)
{
    /* Large enough for both kinds: a check holds its texts, findings only point to theirs.  */
    char *all = items, last[sizeof(struct fp8q_check)];

    /* Of those behind, one at a time goes in front, so both groups keep their order.  */
    for (size_t i = 0; i < n; i++) {
        char *place = all + i * size;
        memcpy(last, place + n_before * size, size);
        memmove(place + size, place, n_before * size);
        memcpy(place, last, size);
    }
}

void fp8q_report_put_before(struct fp8q_report *report, size_t n_before, size_t n)
{
    size_t first = report->n_checks - n_before - n;
    rotate(report->checks + first, sizeof(*report->checks), n_before, n);
    rotate(report->findings + first, sizeof(*report->findings), n_before, n);
}

void fp8q_report_reset(struct fp8q_report *report)
{
    for (size_t i = 0; i < report->n_checks; i++)
        fp8q_findings_reset(&report->findings[i]);

    free(report->findings);
    free(report->checks);
    free(report->sqnr);
    fp8q_manifest_reset(&report->manifest);

    /* The plan borrows the source, so it goes first.  */
    fp8q_plan_destroy(report->plan);
    fp8q_ckpt_close(report->source);
    fp8q_ckpt_close(report->ckpt);
    *report = (struct fp8q_report){0};
}
