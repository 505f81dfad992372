/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c - decides keep or quantize for every tensor: role, family, shape, patterns, groups.
 */
#include "select/select.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/names.h"
#include "base/text.h"
#include "select/internal.h"
#include "select/quantized.h"
#include "select/role.h"

/* ---- one tensor, by itself ------------------------------------------------------------------- */

struct context {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_select_options *options;
    struct fp8q_selection *selection;
    struct fp8q_warnings *warnings;
    struct fp8q_parts_config parts;
};

/* The family's answer for stacked 3-D experts; names end without ".weight".  */
static bool decide_stack(const struct context *c, const struct fp8q_tensor *t,
                         struct fp8q_decision *d)
{
    size_t layer = fp8q_family_layer(c->selection->family, t->name);
    const char *rest = t->name + layer;
    bool gate_up = strcmp(rest, "mlp.experts.gate_up_proj") == 0 ||
                   strcmp(rest, "feed_forward.experts.gate_up_proj") == 0;
    bool down = strcmp(rest, "mlp.experts.down_proj") == 0 ||
                strcmp(rest, "feed_forward.experts.down_proj") == 0;
    if (!layer || t->ndim != 3 || !(gate_up || down))
        return false;
    enum fp8q_experts experts = c->selection->family->experts;
    d->quantize = experts == FP8Q_EXPERTS_STACKED || experts == FP8Q_EXPERTS_SPLIT;
    d->reason = !d->quantize                      ? FP8Q_WHY_EXPERTS_UNSUPPORTED
                : experts == FP8Q_EXPERTS_STACKED ? FP8Q_WHY_EXPERT_STACKED
                                                  : FP8Q_WHY_EXPERT_SPLIT;
    d->linear = true;
    d->group = (struct fp8q_linear_place){.entry = "experts",
                                          .group_len =
                                              layer + (size_t)(strstr(rest, "experts.") - rest) + 8,
                                          .fused = true,
                                          .expert = true};
    bool scheme_fits = c->options->scheme == FP8Q_SCHEME_BLOCK || experts != FP8Q_EXPERTS_STACKED;
    if (d->quantize && !scheme_fits) { /* only blocks have a 3-D scale that engines read */
        d->quantize = false;
        d->reason = FP8Q_WHY_EXPERTS_UNSUPPORTED;
    }
    if (d->quantize && !fp8q_stack_layout_fits(&c->parts, experts, gate_up, t->shape)) {
        d->quantize = false;
        d->reason = FP8Q_WHY_EXPERTS_UNSUPPORTED;
    }
    return true;
}

/* Whether the shape lets blocks serve it: the last two sizes and all logical parts multiples of
 * 128.  */
static bool is_aligned(const struct context *c, const struct fp8q_tensor *t,
                       const struct fp8q_decision *d)
{
    if (t->ndim == 3)
        return fp8q_stack_aligned(c->selection->family->experts, t->name, t->shape);
    if (t->shape[0] % FP8Q_BLOCK || t->shape[1] % FP8Q_BLOCK)
        return false;
    return !d->linear || fp8q_parts_aligned(&c->parts, t->name, t->shape[0]);
}

static void keep(struct fp8q_decision *d, enum fp8q_reason reason)
{
    d->quantize = false;
    d->reason = reason;
}

/* A stack that stays one has a meaning in whole blocks only: its rows may be the inputs, and a
 * block must not reach from one expert into the next.  */
static void decide_shape(const struct context *c, const struct fp8q_tensor *t,
                         struct fp8q_decision *d)
{
    bool stays_stacked = t->ndim == 3 && c->selection->family->experts == FP8Q_EXPERTS_STACKED;
    d->scheme = c->options->scheme;
    if (!d->quantize)
        return;
    if (d->scheme != FP8Q_SCHEME_BLOCK) {
        if (stays_stacked)
            keep(d, FP8Q_WHY_EXPERTS_UNSUPPORTED);
    } else if (!is_aligned(c, t, d)) {
        if (c->options->ragged == FP8Q_RAGGED_KEEP || stays_stacked)
            keep(d, FP8Q_WHY_RAGGED);
        else if (c->options->ragged == FP8Q_RAGGED_CHANNEL)
            d->scheme = FP8Q_SCHEME_CHANNEL;
    }
}

static int decide(const struct context *c, const struct fp8q_tensor *t, struct fp8q_decision *d,
                  struct fp8q_error *err)
{
    enum fp8q_float from;
    bool is_fp8 = t->dtype == FP8Q_F8_E4M3;
    *d = (struct fp8q_decision){.reason = FP8Q_WHY_UNCLASSIFIED};
    if (fp8q_scale_owner(c->ckpt, t->name)) {
        d->reason = FP8Q_WHY_SCALE;
        return FP8Q_OK;
    }
    if (fp8q_role(c->selection->family, t->name, t->ndim, &d->reason, &d->tower))
        return FP8Q_OK;
    if (is_fp8 && !c->options->requantize) {
        d->reason = FP8Q_WHY_ALREADY_FP8;
        return FP8Q_OK;
    }
    if (!fp8q_float_of(t->dtype, &from) && !is_fp8) {
        d->reason = FP8Q_WHY_NOT_FLOAT;
        return FP8Q_OK;
    }
    d->reason = FP8Q_WHY_UNCLASSIFIED;
    if (decide_stack(c, t, d)) {
        decide_shape(c, t, d);
        return FP8Q_OK;
    }
    if (t->ndim != 2 || !fp8q_is_weight_name(t->name))
        return FP8Q_OK;
    char *module = strndup(t->name, fp8q_module_len(t->name));
    if (!module)
        return fp8q_fail_nomem(err);
    d->linear = fp8q_family_linear(c->selection->family, module, &d->group);
    free(module);
    if (!d->linear)
        return FP8Q_OK;
    d->quantize = true;
    d->reason = d->group.expert ? FP8Q_WHY_EXPERT : FP8Q_WHY_BACKBONE;
    decide_shape(c, t, d);
    return FP8Q_OK;
}

/* Kept by a rule that --include or --no-default-ignore can lift: a 2-D float weight of a linear. */
static bool can_be_included(const struct fp8q_tensor *t, const struct fp8q_decision *d)
{
    enum fp8q_float from;
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
        return !d->quantize && t->ndim == 2 && fp8q_is_weight_name(t->name) &&
               fp8q_float_of(t->dtype, &from);
    }
}

static void include(const struct context *c, const struct fp8q_tensor *t, struct fp8q_decision *d)
{
    d->quantize = true;
    d->reason = FP8Q_WHY_INCLUDED;
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
        if ((included || c->options->no_default_ignore) && can_be_included(t, d))
            include(c, t, d);
        if (ignored && d->quantize) {
            d->quantize = false;
            d->reason = FP8Q_WHY_IGNORED;
        }
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
                     n, n == 1 ? "" : "s", fp8q_show(&shown, first));
}

/* ---- the same selection as another checkpoint ------------------------------------------------ */

static int apply_like(const struct context *c, struct fp8q_error *err)
{
    const struct fp8q_ckpt *like = c->options->like;
    struct fp8q_selection *s = c->selection;
    struct fp8q_shown shown;
    size_t n_like = 0, n_found = 0;
    const char *lacking = NULL;
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
    if (lacking)
        return fp8q_fail(err, FP8Q_E_MISMATCH, "like-lacking",
                         "%zu of the %zu quantized tensors of --like %s are not in the source, the "
                         "first is \"%s\"",
                         n_like - n_found, n_like, like->path, fp8q_show(&shown, lacking));
    for (size_t i = 0; i < c->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &c->ckpt->tensors[i];
        struct fp8q_decision *d = &s->decisions[i];
        const struct fp8q_tensor *other = fp8q_ckpt_find(like, t->name);
        bool wanted = other ? other->dtype == FP8Q_F8_E4M3 : fp8q_split_in(like, t->name);
        enum fp8q_float from;
        if (wanted && !d->quantize) {
            if (!fp8q_float_of(t->dtype, &from) || t->ndim != 2)
                return fp8q_fail(err, FP8Q_E_MISMATCH, "like-impossible",
                                 "\"%s\" is quantized in --like but cannot be here (%s, %u-D)",
                                 fp8q_show(&shown, t->name), fp8q_dtype_name(t->dtype), t->ndim);
            d->quantize = true;
            d->scheme = c->options->scheme;
        }
        if (d->quantize)
            d->reason = wanted ? FP8Q_WHY_LIKE : FP8Q_WHY_NOT_LIKE;
        d->quantize = d->quantize && wanted;
    }
    return FP8Q_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int warn_about_family(const struct context *c, struct fp8q_error *err)
{
    const struct fp8q_selection *s = c->selection;
    struct fp8q_shown shown;
    if (s->known_family)
        return FP8Q_OK;
    if (s->model_type)
        return fp8q_warn(
            c->warnings, err, "unknown-family",
            "model_type \"%s\" is not in the family table (`fp8q families`): only names "
            "that are plainly a decoder's linears are quantized",
            fp8q_show(&shown, s->model_type));
    if (c->ckpt->config)
        return fp8q_warn(c->warnings, err, "unknown-family",
                         "config.json has no model_type: only names that are plainly a decoder's "
                         "linears are quantized");
    return FP8Q_OK;
}

int fp8q_select(const struct fp8q_ckpt *ckpt, const struct fp8q_select_options *options,
                struct fp8q_selection *selection_out, struct fp8q_warnings *warnings,
                struct fp8q_error *err)
{
    struct fp8q_selection *s = selection_out;
    *s = (struct fp8q_selection){0};
    s->family = fp8q_family_of(ckpt->config, &s->model_type, &s->known_family);
    s->decisions = fp8q_array(ckpt->n_tensors, sizeof(*s->decisions));
    if (!s->decisions)
        return fp8q_fail_nomem(err);
    struct context c = {.ckpt = ckpt, .options = options, .selection = s, .warnings = warnings};
    c.parts = fp8q_parts_config_of(ckpt->config);

    struct fp8q_pattern_set *set = NULL;
    int status = warn_about_family(&c, err);
    for (size_t i = 0; i < ckpt->n_tensors && status == FP8Q_OK; i++)
        status = decide(&c, &ckpt->tensors[i], &s->decisions[i], err);
    if (status == FP8Q_OK)
        status = fp8q_pattern_set_create(options, &set, err);
    if (status == FP8Q_OK)
        status = apply_patterns(&c, set, err);
    if (status == FP8Q_OK)
        status = fp8q_pattern_set_lint(set, ckpt, s, options, warnings, err);
    if (status == FP8Q_OK)
        status = options->like ? apply_like(&c, err)
                               : fp8q_groups_settle(ckpt, options, s, warnings, err);
    if (status == FP8Q_OK)
        status = refuse_towers(&c, err);
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        s->n_quantize += s->decisions[i].quantize;
    fp8q_pattern_set_free(set);
    if (status != FP8Q_OK)
        fp8q_selection_reset(s);
    return status;
}
