/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.c - fused groups: what engines load as one matrix is quantized whole or not at all.
 */
#include "select/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct context {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_select_options *options;
    struct fp8q_selection *selection;
    struct fp8q_warnings *warnings;
};

/* Same group: same linear entry and same leading bytes of the name.  */
static int compare_group(const struct context *c, size_t a, size_t b)
{
    const struct fp8q_linear_place *ga = &c->selection->decisions[a].group;
    const struct fp8q_linear_place *gb = &c->selection->decisions[b].group;
    size_t n = ga->group_len < gb->group_len ? ga->group_len : gb->group_len;
    int order = strncmp(c->ckpt->tensors[a].name, c->ckpt->tensors[b].name, n);
    if (order)
        return order;
    if (ga->group_len != gb->group_len)
        return ga->group_len < gb->group_len ? -1 : 1;
    if (ga->expert && gb->expert)
        return 0;
    return ga->entry < gb->entry ? -1 : ga->entry > gb->entry;
}

static int compare_group_r(const void *a, const void *b, void *context)
{
    return compare_group(context, *(const size_t *)a, *(const size_t *)b);
}

/* Groups that stay for the same reason in many layers are one warning.  */
struct split_groups {
    struct {
        const char *entry; /* of the family's linears */
        bool user;
        size_t count;
        char first[600];
    } kinds[16];
    size_t n_kinds;
};

static void note_split(struct split_groups *split, const char *entry, bool user, const char *cause,
                       const char *why, const char *kept)
{
    struct fp8q_shown a, b;
    size_t i = 0;
    while (i < split->n_kinds && (split->kinds[i].entry != entry || split->kinds[i].user != user))
        i++;
    if (i == sizeof(split->kinds) / sizeof(*split->kinds))
        i--;
    if (i == split->n_kinds) {
        split->n_kinds++;
        split->kinds[i].entry = entry;
        split->kinds[i].user = user;
        snprintf(split->kinds[i].first, sizeof(split->kinds[i].first),
                 "\"%.250s\" stays (%s); engines load it together with \"%.250s\"",
                 fp8q_show(&a, cause), why, fp8q_show(&b, kept));
    }
    split->kinds[i].count++;
}

static int warn_of_splits(const struct context *c, const struct split_groups *split,
                          struct fp8q_error *err)
{
    for (size_t i = 0; i < split->n_kinds; i++) {
        char more[64] = "";
        if (split->kinds[i].count > 1)
            snprintf(more, sizeof(more), " (and %zu groups like it)", split->kinds[i].count - 1);
        if (c->options->strict)
            return fp8q_fail(err, FP8Q_E_MISMATCH, "group-split",
                             "%s, so it would split its group%s", split->kinds[i].first, more);
        FP8Q_TRY(fp8q_warn(c->warnings, err, "group-split", "%s, so the whole group stays%s",
                           split->kinds[i].first, more));
    }
    return FP8Q_OK;
}

/* Keeps the members @first..@end-1 (indices in @order) whole if one of them must stay.  */
static void settle_group(const struct context *c, const size_t *order, size_t first, size_t end,
                         struct split_groups *split)
{
    struct fp8q_decision *d = c->selection->decisions;
    size_t n_quantize = 0, cause = SIZE_MAX;
    bool any_channel = false;
    for (size_t i = first; i < end; i++) {
        const struct fp8q_decision *m = &d[order[i]];
        n_quantize += m->quantize;
        any_channel |= m->quantize && m->scheme == FP8Q_SCHEME_CHANNEL;
        if (!m->quantize && cause == SIZE_MAX)
            cause = order[i];
    }
    for (size_t i = first; i < end && any_channel; i++) /* engines want one scheme in a group */
        d[order[i]].scheme = FP8Q_SCHEME_CHANNEL;
    if (n_quantize == 0 || cause == SIZE_MAX)
        return;

    bool user = d[cause].reason == FP8Q_WHY_IGNORED;
    const char *kept = NULL;
    for (size_t i = first; i < end; i++)
        if (d[order[i]].quantize) {
            kept = c->ckpt->tensors[order[i]].name;
            d[order[i]].quantize = false;
            d[order[i]].reason = user ? FP8Q_WHY_IGNORED_GROUP : FP8Q_WHY_RAGGED_GROUP;
        }
    note_split(split, d[cause].group.entry, user, c->ckpt->tensors[cause].name,
               fp8q_reason_name(d[cause].reason), kept);
}

int fp8q_groups_settle(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                       struct fp8q_selection *selection, struct fp8q_warnings *warnings,
                       struct fp8q_error *err)
{
    struct context context = {ckpt, options, selection, warnings}, *c = &context;
    size_t n = 0;
    struct split_groups split = {.n_kinds = 0};
    size_t *order = fp8q_array(c->ckpt->n_tensors, sizeof(*order));
    if (!order)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < c->ckpt->n_tensors; i++)
        if (c->selection->decisions[i].linear && c->selection->decisions[i].group.fused)
            order[n++] = i;
    qsort_r(order, n, sizeof(*order), compare_group_r, c);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && compare_group(c, order[first], order[end]) == 0; end++)
            ;
        settle_group(c, order, first, end, &split);
    }
    free(order);
    return warn_of_splits(c, &split, err);
}
