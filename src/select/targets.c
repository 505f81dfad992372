/* SPDX-License-Identifier: Apache-2.0
 *
 * targets.c - which config group of compressed-tensors a module falls under.
 */
#include "select/targets.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "select/pattern.h"

struct target {
    const struct fp8q_json *group;
    const char *text;
    struct fp8q_pattern *pattern; /* "re:..."; NULL: a name */
};

struct fp8q_targets {
    struct target *items; /* names and expressions, in the order of the file */
    size_t count, cap;
    const struct fp8q_json *of_class; /* the group of all other linears, or NULL */
};

static bool is_class(const char *target)
{
    return strcmp(target, "Linear") == 0;
}

static int add_target(struct fp8q_targets *t, const struct fp8q_json *group, const char *text,
                      struct fp8q_error *err)
{
    struct target item = {.group = group, .text = text};
    if (is_class(text)) {
        t->of_class = t->of_class ? t->of_class : group;
        return FP8Q_OK;
    }

    /* An expression that is none reaches nothing: readers stop at it, or pass it over.  */
    if (strncmp(text, "re:", 3) == 0 && fp8q_pattern_compile(text, &item.pattern, NULL) != FP8Q_OK)
        return FP8Q_OK;
    int status = fp8q_grow(&t->items, t->count, &t->cap, sizeof(item), err);
    if (status != FP8Q_OK) {
        fp8q_pattern_free(item.pattern);
        return status;
    }

    t->items[t->count++] = item;
    return FP8Q_OK;
}

static int read_targets(struct fp8q_targets *t, const struct fp8q_json *quantization,
                        struct fp8q_error *err)
{
    const struct fp8q_json *groups = fp8q_json_get(quantization, "config_groups");

    for (const struct fp8q_json *g = fp8q_json_first(groups); g; g = fp8q_json_next(g)) {
        const struct fp8q_json *list = fp8q_json_get(g, "targets");
        for (const struct fp8q_json *i = fp8q_json_first(list); i; i = fp8q_json_next(i))
            if (fp8q_json_string(i, NULL))
                FP8Q_TRY(add_target(t, g, fp8q_json_string(i, ""), err));
    }
    return FP8Q_OK;
}

int fp8q_targets_open(const struct fp8q_json *quantization, struct fp8q_targets **targets_out,
                      struct fp8q_error *err)
{
    struct fp8q_targets *t = calloc(1, sizeof(*t));
    *targets_out = t;
    if (!t)
        return fp8q_fail_nomem(err);

    int status = read_targets(t, quantization, err);
    if (status != FP8Q_OK) {
        fp8q_targets_close(t);
        *targets_out = NULL;
    }
    return status;
}

void fp8q_targets_close(struct fp8q_targets *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++)
        fp8q_pattern_free(t->items[i].pattern);
    free(t->items);
    free(t);
}

int fp8q_targets_find(const struct fp8q_targets *t, const char *module,
                      const struct fp8q_json **group_out, bool *several_out, struct fp8q_error *err)
{
    const struct fp8q_json *found = NULL;
    bool several = false;

    for (size_t i = 0; i < t->count; i++) {
        const struct target *item = &t->items[i];
        bool matches = !item->pattern && strcmp(item->text, module) == 0;
        if (item->pattern)
            FP8Q_TRY(fp8q_pattern_match(item->pattern, module, &matches, err));
        several |= matches && found && found != item->group;
        if (matches && !found)
            found = item->group;
    }

    *group_out = found ? found : t->of_class;
    if (several_out)
        *several_out = several;
    return FP8Q_OK;
}

/* ---- what a group says ------------------------------------------------------------------------- */

const char *fp8q_strategy_of(enum fp8q_scaling scaling)
{
    static const char *const strategies[] = {[FP8Q_SCALING_NONE] = "none",
                                             [FP8Q_SCALING_BLOCK] = "block",
                                             [FP8Q_SCALING_ROW] = "channel",
                                             [FP8Q_SCALING_TENSOR] = "tensor",
                                             [FP8Q_SCALING_GROUP] = "group"};
    return strategies[scaling];
}

bool fp8q_group_says(const struct fp8q_json *group, const struct fp8q_tensor *scale,
                     enum fp8q_scaling scaling)
{
    const char *strategy = fp8q_json_string(fp8q_json_path(group, "weights.strategy"), "tensor");
    bool is_one = scale->n_elems == 1 && scaling != FP8Q_SCALING_GROUP;

    return strcmp(strategy, fp8q_strategy_of(scaling)) == 0 ||
           (is_one && strcmp(strategy, "group") != 0);
}

bool fp8q_group_is_static(const struct fp8q_json *group)
{
    const struct fp8q_json *inputs = fp8q_json_get(group, "input_activations");

    return fp8q_json_is_object(inputs) && !fp8q_json_bool(fp8q_json_get(inputs, "dynamic"), false);
}
