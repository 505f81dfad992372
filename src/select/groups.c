/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.c - fused groups: what engines load as one matrix is quantized whole or not at all.
 */
#include "select/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/names.h"
#include "select/fused.h"
#include "select/scheme.h"

struct context {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_select_options *options;
    struct fp8q_selection *selection;
    struct fp8q_warnings *warnings;
    struct member {
        size_t tensor;
        struct fp8q_linear_place place;
    } * members;
    size_t n_members;
};

/* Where a weight that no table names would stand, by its name alone: what engines fuse is called
 * the same everywhere.  It matters once --include or --like quantizes one of its siblings.  */
static bool place_by_name(const char *name, struct fp8q_linear_place *place)
{
    const char *experts = strstr(name, ".experts.");
    size_t parent_len;
    if (!fp8q_is_weight_name(name))
        return false;

    *place = (struct fp8q_linear_place){.entry = "experts", .fused = true, .expert = true};
    if (experts && strspn(experts + 9, "0123456789")) {
        place->group_len = (size_t)(experts - name) + 9;
        return true;
    }

    /* Else the last component decides, beside siblings of the same parent.  */
    const struct fp8q_fused *fused = fp8q_fused_of_weight(name, &parent_len);
    if (!fused)
        return false;
    *place = (struct fp8q_linear_place){
        .entry = fused->parts[0], .group_len = parent_len, .fused = true, .expert = false};
    return true;
}

static int list_members(struct context *c, struct fp8q_error *err)
{
    c->members = fp8q_array(c->ckpt->n_tensors, sizeof(*c->members));
    if (!c->members)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < c->ckpt->n_tensors; i++) {
        const struct fp8q_decision *d = &c->selection->decisions[i];
        struct member m = {.tensor = i, .place = d->group};
        bool is_member =
            d->linear ? d->group.fused : place_by_name(c->ckpt->tensors[i].name, &m.place);
        if (is_member)
            c->members[c->n_members++] = m;
    }

    return FP8Q_OK;
}

/* Same group: same linear entry and same leading bytes of the name.  */
static int compare_group(const struct context *c, const struct member *a, const struct member *b)
{
    const struct fp8q_linear_place *ga = &a->place, *gb = &b->place;
    size_t n = fp8q_min_size(ga->group_len, gb->group_len);
    int order = strncmp(c->ckpt->tensors[a->tensor].name, c->ckpt->tensors[b->tensor].name, n);

    if (order)
        return order;
    if (ga->group_len != gb->group_len)
        return ga->group_len < gb->group_len ? -1 : 1;

    /* All matrices of a layer's experts are one group, whatever their projection.  */
    if (ga->expert && gb->expert)
        return 0;
    return ga->entry < gb->entry ? -1 : ga->entry > gb->entry;
}

/* Members of one group stay in the order of their names.  */
static int compare_members(const void *a, const void *b, void *context)
{
    const struct member *x = a, *y = b;
    int order = compare_group(context, x, y);
    return order ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Groups that are left for the same reason in many layers are one warning.  */
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

    /* Further kinds are counted with the last: the message is an example, no list.  */
    if (i == sizeof(split->kinds) / sizeof(*split->kinds))
        i--;
    if (i == split->n_kinds) {
        split->n_kinds++;
        split->kinds[i].entry = entry;
        split->kinds[i].user = user;
        snprintf(split->kinds[i].first, sizeof(split->kinds[i].first),
                 "\"%.250s\" is left unquantized (%s); engines load it together with \"%.250s\"",
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
            snprintf(more, sizeof(more), " (and %zu group%s like it)", split->kinds[i].count - 1,
                     fp8q_plural(split->kinds[i].count - 1));

        /* With --strict the first kind is enough to refuse.  */
        if (c->options->strict)
            return fp8q_fail(err, FP8Q_E_MISMATCH, "group-split",
                             "%s, so it would split its group%s", split->kinds[i].first, more);
        FP8Q_TRY(fp8q_warn(c->warnings, err, "group-split", "%s, so the whole group is left%s",
                           split->kinds[i].first, more));
    }
    return FP8Q_OK;
}

/* Engines read one scheme for a group.  Scales per row that an unaligned member needs spread to the
 * others; any other difference was asked for.  */
static int settle_scheme(const struct context *c, const struct member *members, size_t n,
                         struct fp8q_error *err)
{
    struct fp8q_decision *d = c->selection->decisions;
    const struct fp8q_decision *first = &d[members[0].tensor], *other = first;
    struct fp8q_shown a, b;
    bool any_channel = false;

    for (size_t i = 0; i < n; i++)
        any_channel |= d[members[i].tensor].scheme == FP8Q_SCHEME_CHANNEL;
    for (size_t i = 0; i < n; i++) {
        struct fp8q_decision *m = &d[members[i].tensor];
        bool widens = any_channel && c->options->unaligned == FP8Q_UNALIGNED_CHANNEL;
        if (widens && m->scheme == FP8Q_SCHEME_BLOCK)
            m->scheme = FP8Q_SCHEME_CHANNEL;
        if (m->scheme != first->scheme)
            other = m;
    }
    if (other == first)
        return FP8Q_OK;

    return fp8q_fail(
        err, FP8Q_E_ARG, "scheme-split",
        "--scheme: \"%.250s\" would be %s and \"%.250s\" %s, but engines load them as "
        "one matrix; name them all in one pattern",
        fp8q_show(&a, c->ckpt->tensors[first - d].name), fp8q_scheme_names[first->scheme],
        fp8q_show(&b, c->ckpt->tensors[other - d].name), fp8q_scheme_names[other->scheme]);
}

/* Leaves a group whole if one of its members must be left.  */
static int settle_group(const struct context *c, const struct member *members, size_t n,
                        struct split_groups *split, struct fp8q_error *err)
{
    struct fp8q_decision *d = c->selection->decisions;
    size_t n_quantize = 0, cause = SIZE_MAX;

    for (size_t i = 0; i < n; i++) {
        const struct fp8q_decision *m = &d[members[i].tensor];
        n_quantize += m->quantize;
        if (!m->quantize && cause == SIZE_MAX)
            cause = members[i].tensor;
    }

    /* Of one mind already: only how is to be settled.  */
    if (n_quantize == n)
        return settle_scheme(c, members, n, err);
    if (n_quantize == 0)
        return FP8Q_OK;

    /* Whoever asked for the split by a pattern is told so in other words.  */
    bool user = d[cause].reason == FP8Q_WHY_IGNORED;
    const char *left = NULL;
    for (size_t i = 0; i < n; i++) {
        struct fp8q_decision *m = &d[members[i].tensor];
        if (!m->quantize)
            continue;
        left = c->ckpt->tensors[members[i].tensor].name;
        m->quantize = false;
        m->reason = user ? FP8Q_WHY_IGNORED_GROUP : FP8Q_WHY_RAGGED_GROUP;
    }
    note_split(split, members[0].place.entry, user, c->ckpt->tensors[cause].name,
               fp8q_reason_name(d[cause].reason), left);
    return FP8Q_OK;
}

static int settle_all(struct context *c, struct split_groups *split, struct fp8q_error *err)
{
    qsort_r(c->members, c->n_members, sizeof(*c->members), compare_members, c);

    /* Sorted, so a group is a run of members that compare as equal.  */
    for (size_t first = 0, end; first < c->n_members; first = end) {
        for (end = first + 1; end < c->n_members; end++)
            if (compare_group(c, &c->members[first], &c->members[end]) != 0)
                break;
        FP8Q_TRY(settle_group(c, &c->members[first], end - first, split, err));
    }
    return FP8Q_OK;
}

int fp8q_groups_settle(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                       struct fp8q_selection *selection, struct fp8q_warnings *warnings,
                       struct fp8q_error *err)
{
    struct context c = {
        .ckpt = ckpt, .options = options, .selection = selection, .warnings = warnings};
    struct split_groups split = {.n_kinds = 0};
    FP8Q_TRY(list_members(&c, err));

    int status = settle_all(&c, &split, err);
    free(c.members);
    FP8Q_TRY(status);
    return warn_of_splits(&c, &split, err);
}
