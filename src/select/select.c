/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c - decides for every tensor whether it is quantized.
 *
 * How it works.  Each step may only narrow what the step before allowed, but for --include:
 *
 *     name          a tower, a norm, a router ...: left (role.c), whatever else holds
 *     type          integers and what is packed: left
 *     architecture  a linear of the language model by its tables (families.c): quantized
 *     scheme        that of the last --scheme pattern which matches, or the plain one
 *     shape         sizes that are no multiples of 128: left, or scaled per row (per channel)
 *     patterns      --include lifts what a rule of names left, and so does a --scheme pattern that
 *                   names nothing else; --ignore comes last, and wins
 *     --like        the selection of another checkpoint in place of all this
 *     groups        what engines load as one matrix is quantized whole or not at all (groups.c)
 *
 * What no table names is left and listed: nothing is quantized because of its shape alone.
 */
#include "select/select.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/names.h"
#include "base/text.h"
#include "select/internal.h"
#include "select/parts.h"
#include "select/quantized.h"
#include "select/role.h"
#include "checkpoint/scales.h"

/* ---- one tensor, by itself ------------------------------------------------------------------- */

struct context {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_select_options *options;
    struct fp8q_selection *selection;
    struct fp8q_warnings *warnings;
    struct fp8q_parts_config parts;
};

static void leave(struct fp8q_decision *d, enum fp8q_reason reason)
{
    d->quantize = false;
    d->reason = reason;
}

/* Whether this program can read the values of a tensor that it would quantize.  */
static bool has_values(const struct context *c, const struct fp8q_tensor *t)
{
    enum fp8q_float from;
    bool is_fp8 = fp8q_is_fp8(t->dtype);

    return fp8q_float_of(t->dtype, &from) || (is_fp8 && c->options->requantize);
}

/* Whether the shape lets the scheme serve it.  Blocks: the last two sizes and all logical parts
 * multiples of 128.  Groups lie within a row, and engines take none that is short.  */
static bool is_aligned(const struct context *c, const struct fp8q_tensor *t,
                       const struct fp8q_decision *d)
{
    if (d->scheme == FP8Q_SCHEME_GROUP)
        return t->shape[t->ndim - 1] % FP8Q_GROUP == 0;
    if (t->ndim == 3)
        return fp8q_stack_aligned(c->selection->family.experts, t->name, t->shape);
    if (t->shape[0] % FP8Q_BLOCK || t->shape[1] % FP8Q_BLOCK)
        return false;

    return !d->linear || fp8q_parts_aligned(&c->parts, t->name, t->shape[0]);
}

/* The veto of the shape.  A stack that stays one has a meaning in whole blocks only: its rows may
 * be the inputs, and a block must not reach from one expert into the next.  */
static void decide_shape(const struct context *c, const struct fp8q_tensor *t,
                         struct fp8q_decision *d)
{
    bool stays_stacked = t->ndim == 3 && c->selection->family.experts == FP8Q_EXPERTS_STACKED;
    if (!d->quantize)
        return;

    if (t->n_elems == 0) {
        leave(d, FP8Q_WHY_SMALL); /* nothing to scale by, and no engine has such a matrix */
    } else if (d->scheme != FP8Q_SCHEME_BLOCK && stays_stacked) {
        leave(d, FP8Q_WHY_EXPERTS_UNSUPPORTED);
    } else if ((d->scheme == FP8Q_SCHEME_BLOCK || d->scheme == FP8Q_SCHEME_GROUP) &&
               !is_aligned(c, t, d)) {
        bool has_rule = d->scheme == FP8Q_SCHEME_BLOCK && !stays_stacked;
        if (c->options->unaligned == FP8Q_UNALIGNED_KEEP || !has_rule)
            leave(d, FP8Q_WHY_RAGGED);
        else if (c->options->unaligned == FP8Q_UNALIGNED_CHANNEL)
            d->scheme = FP8Q_SCHEME_CHANNEL;
    }
}

/* The architecture's answer for stacked 3-D experts.  */
static bool decide_stack(const struct context *c, const struct fp8q_tensor *t,
                         struct fp8q_decision *d)
{
    enum fp8q_experts experts = c->selection->family.experts;
    bool gate_up;
    if (t->ndim != 3 || !fp8q_family_stacked_experts(&c->selection->family, t->name, &gate_up))
        return false;

    d->linear = true;
    d->group =
        (struct fp8q_linear_place){.entry = "experts",
                                   .group_len = (size_t)(strrchr(t->name, '.') - t->name) + 1,
                                   .fused = true,
                                   .expert = true};

    /* Only blocks have a 3-D scale that engines read.  */
    bool stays = experts == FP8Q_EXPERTS_STACKED, is_split = experts == FP8Q_EXPERTS_SPLIT;
    bool scheme_fits = d->scheme == FP8Q_SCHEME_BLOCK || is_split;
    if ((!stays && !is_split) || !scheme_fits ||
        !fp8q_stack_layout_fits(&c->parts, experts, gate_up, t->shape)) {
        leave(d, FP8Q_WHY_EXPERTS_UNSUPPORTED);
        return true;
    }

    d->quantize = true;
    d->reason = stays ? FP8Q_WHY_EXPERT_STACKED : FP8Q_WHY_EXPERT_SPLIT;
    decide_shape(c, t, d);
    return true;
}

/* Fills @d->linear and @d->group, whatever type and shape the tensor has: a member that cannot be
 * quantized holds its group back.  */
static int place_linear(const struct context *c, const struct fp8q_tensor *t,
                        struct fp8q_decision *d, struct fp8q_error *err)
{
    if (!fp8q_is_weight_name(t->name))
        return FP8Q_OK;
    char *module = strndup(t->name, fp8q_module_len(t->name));
    if (!module)
        return fp8q_fail_nomem(err);
    d->linear = fp8q_family_linear(&c->selection->family, module, &d->group);
    free(module);

    return FP8Q_OK;
}

static int decide(const struct context *c, struct fp8q_pattern_set *set,
                  const struct fp8q_tensor *t, struct fp8q_decision *d, struct fp8q_error *err)
{
    *d = (struct fp8q_decision){.reason = FP8Q_WHY_UNCLASSIFIED, .scheme = c->options->scheme};
    if (fp8q_scale_owner(c->ckpt, t->name)) {
        d->reason = FP8Q_WHY_SCALE;
        return FP8Q_OK;
    }

    FP8Q_TRY(fp8q_pattern_set_scheme(set, t->name, &d->scheme, err));
    /* Even if it stays: its place says which group it would hold back.  */
    FP8Q_TRY(place_linear(c, t, d, err));
    if (fp8q_role(&c->selection->family, t->name, t->ndim, &d->reason, &d->tower))
        return FP8Q_OK;

    /* A name that says nothing: now the type, the architecture and the shape.  */
    d->reason = FP8Q_WHY_UNCLASSIFIED;
    if (!has_values(c, t))
        d->reason = fp8q_is_fp8(t->dtype) ? FP8Q_WHY_ALREADY_FP8 : FP8Q_WHY_NOT_FLOAT;
    else if (!decide_stack(c, t, d) && d->linear && t->ndim == 2) {
        d->quantize = true;
        d->reason = d->group.expert ? FP8Q_WHY_EXPERT : FP8Q_WHY_BACKBONE;
        decide_shape(c, t, d);
    }

    return FP8Q_OK;
}

/* Left by a rule that --include or --no-default-ignore can lift: a 2-D float weight of a linear. */
static bool can_be_included(const struct context *c, const struct fp8q_tensor *t,
                            const struct fp8q_decision *d)
{
    switch (d->reason) {
    case FP8Q_WHY_NORM:
    case FP8Q_WHY_BIAS:
    case FP8Q_WHY_EMBEDDING:
    case FP8Q_WHY_CONV:
    case FP8Q_WHY_SMALL:
    case FP8Q_WHY_SCALE:
    case FP8Q_WHY_RAGGED:
        return false;
    default:
        return !d->quantize && t->ndim == 2 && fp8q_is_weight_name(t->name) && has_values(c, t);
    }
}

static void include(const struct context *c, const struct fp8q_tensor *t, struct fp8q_decision *d)
{
    d->quantize = true;
    d->reason = FP8Q_WHY_INCLUDED;

    /* --include lifts rules of names; the shape keeps its veto.  */
    decide_shape(c, t, d);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static int apply_patterns(const struct context *c, struct fp8q_pattern_set *set,
                          struct fp8q_error *err)
{
    struct fp8q_selection *s = c->selection;

    for (size_t i = 0; i < c->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &c->ckpt->tensors[i];
        struct fp8q_decision *d = &s->decisions[i];
        bool included, ignored;
        FP8Q_TRY(fp8q_pattern_set_match(set, t->name, d, &ignored, &included, err));

        /* --ignore has the last word, also over --include.  */
        if ((included || c->options->no_default_ignore) && can_be_included(c, t, d))
            include(c, t, d);
        if (ignored && d->quantize)
            leave(d, FP8Q_WHY_IGNORED);
    }

    return FP8Q_OK;
}

/* A tower that becomes FP8 is the worst silent accident, so it needs its own word.  */
static int refuse_towers(const struct context *c, struct fp8q_error *err)
{
    size_t n = 0;
    const char *first = NULL;
    for (size_t i = 0; i < c->ckpt->n_tensors; i++)
        if (c->selection->decisions[i].tower && c->selection->decisions[i].quantize && n++ == 0)
            first = c->ckpt->tensors[i].name;

    struct fp8q_shown shown;
    if (n == 0 || c->options->allow_tower)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_POLICY, "tower-touched",
                     "%zu tensor%s of a vision or audio tower would be quantized, the first is "
                     "\"%s\"; narrow the pattern, add --ignore, or say --allow-tower",
                     n, fp8q_plural(n), fp8q_show(&shown, first));
}

/* ---- the same selection as another checkpoint ------------------------------------------------ */

/* Every quantized name of the other checkpoint must be here, perhaps still inside a stack.  */
static int check_like(const struct context *c, struct fp8q_error *err)
{
    const struct fp8q_ckpt *like = c->options->like;
    const char *lacking = NULL;
    size_t n_like = 0, n_found = 0;

    for (size_t i = 0; i < like->n_tensors; i++) {
        const struct fp8q_tensor *t = &like->tensors[i];
        if (t->dtype != FP8Q_F8_E4M3)
            continue;
        n_like++;
        if (fp8q_ckpt_find(c->ckpt, t->name) || fp8q_split_source(c->ckpt, t->name))
            n_found++;
        else if (!lacking)
            lacking = t->name;
    }

    struct fp8q_shown shown;
    if (!lacking)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_MISMATCH, "like-lacking",
                     "%zu of the %zu quantized tensors of --like %s are not in the source, the "
                     "first is \"%s\"",
                     n_like - n_found, n_like, like->path, fp8q_show(&shown, lacking));
}

static int apply_like(const struct context *c, struct fp8q_error *err)
{
    const struct fp8q_ckpt *like = c->options->like;
    FP8Q_TRY(check_like(c, err));

    for (size_t i = 0; i < c->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &c->ckpt->tensors[i];
        struct fp8q_decision *d = &c->selection->decisions[i];
        const struct fp8q_tensor *other = fp8q_ckpt_find(like, t->name);

        /* The other tool may have split a stack that is still whole here.  */
        bool wanted = other ? other->dtype == FP8Q_F8_E4M3 : fp8q_split_in(like, t->name);
        bool possible = has_values(c, t) && t->ndim == 2 && t->n_elems > 0;
        struct fp8q_shown shown;

        if (wanted && !d->quantize && !possible)
            return fp8q_fail(err, FP8Q_E_MISMATCH, "like-impossible",
                             "\"%s\" is quantized in --like but cannot be here (%s, %u-D)",
                             fp8q_show(&shown, t->name), fp8q_dtype_name(t->dtype), t->ndim);

        /* --like stands in place of the rules: what they left is taken all the same.  */
        d->quantize |= wanted;
        if (d->quantize)
            d->reason = wanted ? FP8Q_WHY_LIKE : FP8Q_WHY_NOT_LIKE;
        d->quantize = d->quantize && wanted;
    }

    return FP8Q_OK;
}

/* ---- what a source has beside its weights ---------------------------------------------------- */

/* Whether tensor @i is a companion that must not go along: beside a weight that is quantized anew it
 * would stand twice under one name, or scale it again; elsewhere it scales nothing.  */
static bool is_stale(const struct context *c, size_t i)
{
    const char *name = c->ckpt->tensors[i].name;
    const struct fp8q_tensor *owner = fp8q_stale_owner(c->ckpt, name);

    if (owner && c->selection->decisions[owner - c->ckpt->tensors].quantize)
        return true;
    return fp8q_is_leftover_scale(c->ckpt, name);
}

/* A high-precision conversion of an FP8 checkpoint may still carry the old scales.  */
static int drop_stale_scales(const struct context *c, struct fp8q_error *err)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < c->ckpt->n_tensors; i++) {
        if (!is_stale(c, i))
            continue;
        leave(&c->selection->decisions[i], FP8Q_WHY_STALE_SCALE);
        if (n++ == 0)
            first = c->ckpt->tensors[i].name;
    }

    struct fp8q_shown shown;
    if (n == 0)
        return FP8Q_OK;
    return fp8q_warn(c->warnings, err, "stale-scale",
                     "%zu scale%s of an earlier quantization, without FP8 weights, the first is "
                     "\"%s\": %s not carried over",
                     n, fp8q_plural(n), fp8q_show(&shown, first), n == 1 ? "it is" : "they are");
}

/* Roots of stacks that were taken or passed over, with the tensors below each.  */
struct roots {
    struct root {
        const char *name; /* its first @len bytes */
        size_t len, count;
    } items[4];
    size_t n_items, n_more; /* @n_more tensors lie under further roots */
};

static void count_root(struct roots *roots, const char *name, size_t len)
{
    size_t i = 0;
    while (i < roots->n_items &&
           (roots->items[i].len != len || strncmp(roots->items[i].name, name, len) != 0))
        i++;

    /* Four roots are named; of all others the tensors are only counted.  */
    if (i == sizeof(roots->items) / sizeof(*roots->items)) {
        roots->n_more++;
        return;
    }

    if (i == roots->n_items)
        roots->items[roots->n_items++] = (struct root){.name = name, .len = len};
    roots->items[i].count++;
}

static void show_roots(const struct roots *roots, struct fp8q_text *text)
{
    for (size_t i = 0; i < roots->n_items; i++) {
        const struct root *r = &roots->items[i];
        struct fp8q_shown shown;
        const char *name = r->len ? fp8q_show_n(&shown, r->name, r->len) : "(no prefix)";
        fp8q_text_printf(text, "%s%s (%zu)", i ? ", " : "", name, r->count);
    }
    if (roots->n_more)
        fp8q_text_printf(text, ", and %zu more", roots->n_more);
}

/* The roots of stacks that look like a decoder's: those that were taken for the language model, and
 * those that were left.  */
static int list_roots(const struct context *c, struct roots *taken, struct roots *left,
                      struct fp8q_error *err)
{
    for (size_t i = 0; i < c->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &c->ckpt->tensors[i];
        const struct fp8q_decision *d = &c->selection->decisions[i];
        if (t->ndim != 2 || !fp8q_is_weight_name(t->name))
            continue;

        char *module = strndup(t->name, fp8q_module_len(t->name));
        if (!module)
            return fp8q_fail_nomem(err);
        size_t root = fp8q_stack_root(module);
        free(module);
        if (root == SIZE_MAX)
            continue;

        /* What stands in a known decoder and was left has a reason of its own.  */
        if (d->quantize)
            count_root(taken, t->name, root);
        else if (!fp8q_family_layer(&c->selection->family, t->name) &&
                 (d->reason == FP8Q_WHY_UNCLASSIFIED || !c->selection->family.known))
            count_root(left, t->name, root);
    }
    return FP8Q_OK;
}

/* "@before: the roots @after"; nothing is said of none.  */
static int warn_of(const struct context *c, const struct roots *roots, const char *id,
                   const char *before, const char *after, struct fp8q_error *err)
{
    struct fp8q_text text = {0};
    if (roots->n_items == 0)
        return FP8Q_OK;

    show_roots(roots, &text);
    int status = fp8q_text_status(&text, err);
    if (status == FP8Q_OK)
        status = fp8q_warn(c->warnings, err, id, "%s: %s%s", before, text.data, after);
    fp8q_text_reset(&text);
    return status;
}

/* Names the stacks that look like a decoder's but stand under another root, and for an unknown
 * type those that were taken.  */
static int warn_about_roots(const struct context *c, struct fp8q_error *err)
{
    struct roots taken = {.n_items = 0}, left = {.n_items = 0};
    FP8Q_TRY(list_roots(c, &taken, &left, err));

    FP8Q_TRY(warn_of(c, &left, "other-stacks",
                     "layers under roots that are not this architecture's language model are left "
                     "unquantized",
                     "; --include PAT adds them", err));
    if (c->selection->family.known || !c->ckpt->config)
        return FP8Q_OK;
    return warn_of(c, &taken, "general-roots", "taken for the language model", "", err);
}

static int warn_about_family(const struct context *c, struct fp8q_error *err)
{
    const struct fp8q_family *f = &c->selection->family;
    struct fp8q_shown shown;

    if (f->known && !f->language_known)
        return fp8q_warn(c->warnings, err, "unknown-language-model",
                         "the language model's model_type \"%s\" is not known (`fp8q families`): "
                         "of its layers only linears of usual names are quantized",
                         fp8q_show(&shown, f->language_type));
    if (f->known)
        return FP8Q_OK;
    if (f->model_type)
        return fp8q_warn(c->warnings, err, "unknown-family",
                         "model_type \"%s\" is not known (`fp8q families`): only linears of usual "
                         "names under the roots of a language model are quantized",
                         fp8q_show(&shown, f->model_type));
    if (c->ckpt->config)
        return fp8q_warn(c->warnings, err, "unknown-family",
                         "config.json has no model_type: only linears of usual names under the "
                         "roots of a language model are quantized");
    return FP8Q_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int decide_all(const struct context *c, struct fp8q_pattern_set *set, struct fp8q_error *err)
{
    struct fp8q_selection *s = c->selection;
    FP8Q_TRY(warn_about_family(c, err));
    for (size_t i = 0; i < c->ckpt->n_tensors; i++)
        FP8Q_TRY(decide(c, set, &c->ckpt->tensors[i], &s->decisions[i], err));
    for (size_t i = 0; i < c->ckpt->n_tensors; i++)
        FP8Q_TRY(
            fp8q_pattern_set_note(set, c->ckpt->tensors[i].name, s->decisions[i].quantize, err));

    /* Patterns before groups, so that a group which a pattern splits is settled whole.  */
    FP8Q_TRY(apply_patterns(c, set, err));
    FP8Q_TRY(fp8q_pattern_set_lint(set, c->ckpt, s, c->options, c->warnings, err));
    if (c->options->like)
        FP8Q_TRY(apply_like(c, err));
    FP8Q_TRY(fp8q_groups_settle(c->ckpt, c->options, s, c->warnings, err));

    /* Last, because patterns, --like and groups have all had their say on what is quantized.  */
    FP8Q_TRY(refuse_towers(c, err));
    FP8Q_TRY(drop_stale_scales(c, err));
    return warn_about_roots(c, err);
}

int fp8q_select(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                struct fp8q_selection *selection_out, struct fp8q_warnings *warnings,
                struct fp8q_error *err)
{
    struct fp8q_selection *s = selection_out;
    *s = (struct fp8q_selection){.family = fp8q_family_of(ckpt->config)};
    s->decisions = fp8q_array(ckpt->n_tensors, sizeof(*s->decisions));
    if (!s->decisions)
        return fp8q_fail_nomem(err);

    struct context c = {.ckpt = ckpt, .options = options, .selection = s, .warnings = warnings};
    c.parts = fp8q_parts_config_of(ckpt->config);
    struct fp8q_pattern_set *set = NULL;
    int status = fp8q_pattern_set_create(options, &set, err);
    if (status == FP8Q_OK)
        status = decide_all(&c, set, err);
    fp8q_pattern_set_free(set);
    if (status != FP8Q_OK) {
        fp8q_selection_reset(s);
        return status;
    }

    /* Counted at the end: every step before may still have changed a decision.  */
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        s->n_quantize += s->decisions[i].quantize;
    return FP8Q_OK;
}

void fp8q_selection_reset(struct fp8q_selection *s)
{
    free(s->decisions);
    *s = (struct fp8q_selection){0};
}
