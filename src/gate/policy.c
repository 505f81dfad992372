/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.c - one table of members drives reading, checking and printing.
 */
#include "gate/policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum kind {
    KIND_BOOL,
    KIND_UINT,
    KIND_LIMIT /* number or null */,
    KIND_TEXT,
    KIND_CRC,
    KIND_NAMES
};

struct member {
    const char *section, *key; /* section NULL: at the root */
    enum kind kind;
    size_t offset;
    double low, high; /* of numbers */
    double initial;   /* of bools and numbers; NAN: no limit */
};

#define AT(field) offsetof(struct fp8q_policy, field)
#define NONE ((double)NAN)

/* The defaults and why: docs/reference/policy.md.  */
static const struct member members[] = {
    {NULL, "confidence", KIND_LIMIT, AT(confidence), 0.5, 0.999999, 0.95},
    {"verify", "required", KIND_BOOL, AT(verify_required), 0, 1, 1},
    {"verify", "strict", KIND_BOOL, AT(verify_strict), 0, 1, 0},
    {"verify", "lock_required", KIND_BOOL, AT(lock_required), 0, 1, 0},
    {"verify", "fallback_required", KIND_BOOL, AT(fallback_required), 0, 1, 0},
    {"evidence", "max_age_days", KIND_LIMIT, AT(max_age_days), 0, 1e6, 90},
    {"evidence", "stack", KIND_TEXT, AT(stack), 0, 0, 0},
    {"eval", "required", KIND_BOOL, AT(eval_required), 0, 1, 1},
    {"eval", "baseline_required", KIND_BOOL, AT(baseline_required), 0, 1, 0},
    {"eval", "floor_required", KIND_BOOL, AT(floor_required), 0, 1, 0},
    {"eval", "requantized", KIND_BOOL, AT(requantized), 0, 1, 0},
    {"eval", "kld_vs_baseline", KIND_LIMIT, AT(kld_vs_baseline), 0, 1e6, 1.25},
    {"eval", "kld_vs_floor", KIND_LIMIT, AT(kld_vs_floor), 0, 1e6, 4},
    {"eval", "kld_max", KIND_LIMIT, AT(kld_max), 0, 1e6, NONE},
    {"eval", "kld_max_by_modality", KIND_LIMIT, AT(kld_max_by_modality), 0, 1e6, NONE},
    {"eval", "kld_max_by_category", KIND_LIMIT, AT(kld_max_by_category), 0, 1e6, NONE},
    {"eval", "state_error_max", KIND_LIMIT, AT(state_error_max), 0, 1e6, NONE},
    {"eval", "top1_min", KIND_LIMIT, AT(top1_min), 0, 1, NONE},
    {"eval", "top1_drop_vs_baseline", KIND_LIMIT, AT(top1_drop), 0, 1, 0.02},
    {"eval", "delta_ln_ppl_max", KIND_LIMIT, AT(delta_ln_ppl_max), 0, 1e6, NONE},
    {"eval", "clipped_max", KIND_LIMIT, AT(clipped_max), 0, 1, 0.001},
    {"eval", "unused_max", KIND_LIMIT, AT(unused_max), 0, 1e6, 4},
    {"eval", "min_tokens", KIND_UINT, AT(min_tokens), 0, 1e15, 2000},
    {"eval", "inputs", KIND_CRC, AT(inputs), 0, 0, 0},
    {"eval", "acts", KIND_TEXT, AT(acts), 0, 0, 0},
    {"tasks", "required", KIND_NAMES, AT(required_tasks), 0, 0, 0},
    {"tasks", "margin", KIND_LIMIT, AT(margin), 0, 1e6, 0.02},
    {"tasks", "recovery", KIND_LIMIT, AT(recovery), 0, 1, NONE},
    {"tasks", "min_items", KIND_UINT, AT(min_items), 0, 1e15, 1},
    {"tasks", "resamples", KIND_UINT, AT(resamples), 100, 1e6, 10000},
    {"tasks", "seed", KIND_UINT, AT(seed), 0, 9e15, 1},
    {"serving", "delta_nll_max", KIND_LIMIT, AT(delta_nll_max), 0, 1e6, 0.02},
    {"serving", "kld_max", KIND_LIMIT, AT(serving_kld_max), 0, 1e6, NONE},
};
#define N_MEMBERS (sizeof(members) / sizeof(*members))

static void *field(struct fp8q_policy *policy, const struct member *m)
{
    return (char *)policy + m->offset;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int bad_value(const char *what, const char *section, const char *key, const char *expected,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown[2];
    return fp8q_fail(err, FP8Q_E_FORMAT, "policy-format", "%s: \"%s%s%s\": expected %s", what,
                     section ? fp8q_show(&shown[0], section) : "", section ? "." : "",
                     fp8q_show(&shown[1], key), expected);
}

static int read_limit(const struct fp8q_json *value, const char *what, const char *section,
                      const char *key, const double range[2], double *out, struct fp8q_error *err)
{
    char expected[80];

    /* null becomes NaN, which is "no limit" from here on.  */
    *out = fp8q_json_number(value, NONE);
    if (fp8q_json_is_null(value) || (*out >= range[0] && *out <= range[1]))
        return FP8Q_OK;
    snprintf(expected, sizeof(expected), "null or a number from %g to %g", range[0], range[1]);
    return bad_value(what, section, key, expected, err);
}

static int read_names(struct fp8q_policy *policy, const struct fp8q_json *list, const char *what,
                      const struct member *m, struct fp8q_error *err)
{
    if (!fp8q_json_is_array(list))
        return bad_value(what, m->section, m->key, "an array of names", err);

    policy->required_tasks = fp8q_array(fp8q_json_count(list), sizeof(char *));
    if (!policy->required_tasks)
        return fp8q_fail_nomem(err);
    for (const struct fp8q_json *item = fp8q_json_first(list); item; item = fp8q_json_next(item)) {
        const char *name = fp8q_json_string(item, NULL);
        if (!name || !*name)
            return bad_value(what, m->section, m->key, "an array of names", err);

        char *copy = strdup(name);
        if (!copy)
            return fp8q_fail_nomem(err);
        policy->required_tasks[policy->n_required_tasks++] = copy;
    }
    return FP8Q_OK;
}

static int read_text(const struct fp8q_json *value, const char *what, const struct member *m,
                     char **out, struct fp8q_error *err)
{
    const char *text = fp8q_json_string(value, NULL);
    if (!text && !fp8q_json_is_null(value))
        return bad_value(what, m->section, m->key, "null or a text", err);
    *out = text ? strdup(text) : NULL;
    return text && !*out ? fp8q_fail_nomem(err) : FP8Q_OK;
}

static int read_crc(const struct fp8q_json *value, const char *what, const struct member *m,
                    struct fp8q_fingerprint *out, struct fp8q_error *err)
{
    const char *text = fp8q_json_string(value, "");
    *out = (struct fp8q_fingerprint){0};
    if (fp8q_json_is_null(value))
        return FP8Q_OK;
    if (strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return bad_value(what, m->section, m->key, "null or eight hexadecimal digits", err);
    *out = (struct fp8q_fingerprint){true, (uint32_t)strtoul(text, NULL, 16)};
    return FP8Q_OK;
}

static int read_member(struct fp8q_policy *policy, const struct member *m,
                       const struct fp8q_json *value, const char *what, struct fp8q_error *err)
{
    const double range[2] = {m->low, m->high};
    uint64_t number;

    switch (m->kind) {
    case KIND_BOOL:
        /* Only a value that is no bool gives back either default.  */
        if (fp8q_json_bool(value, true) != fp8q_json_bool(value, false))
            return bad_value(what, m->section, m->key, "true or false", err);
        *(bool *)field(policy, m) = fp8q_json_bool(value, false);
        return FP8Q_OK;
    case KIND_UINT:
        if (!fp8q_json_uint(value, &number) || (double)number < m->low || (double)number > m->high)
            return bad_value(what, m->section, m->key, "a whole number in its range", err);
        *(uint64_t *)field(policy, m) = number;
        return FP8Q_OK;
    case KIND_LIMIT:
        FP8Q_TRY(read_limit(value, what, m->section, m->key, range, field(policy, m), err));
        /* Limits may be absent, but every interval needs a confidence.  */
        if (m->offset == AT(confidence) && isnan(policy->confidence))
            return bad_value(what, m->section, m->key, "a number", err);
        return FP8Q_OK;
    case KIND_TEXT:
        return read_text(value, what, m, field(policy, m), err);
    case KIND_CRC:
        return read_crc(value, what, m, field(policy, m), err);
    case KIND_NAMES:
        return read_names(policy, value, what, m, err);
    }
    return FP8Q_OK;
}

static int read_task_member(struct fp8q_task_policy *task, const struct fp8q_json *m,
                            const char *what, struct fp8q_error *err)
{
    const double any[2] = {0, 1e6}, share[2] = {0, 1};
    const char *key = fp8q_json_key(m);

    if (strcmp(key, "margin") == 0)
        return read_limit(m, what, task->name, key, any, &task->margin, err);
    if (strcmp(key, "recovery") == 0)
        return read_limit(m, what, task->name, key, share, &task->recovery, err);

    if (strcmp(key, "lower_is_better") == 0) {
        bool yes = fp8q_json_bool(m, false);
        if (fp8q_json_is_null(m))
            return FP8Q_OK;
        if (yes != fp8q_json_bool(m, true))
            return bad_value(what, task->name, key, "true, false or null", err);
        task->direction = yes ? FP8Q_DIRECTION_LOWER : FP8Q_DIRECTION_HIGHER;
        return FP8Q_OK;
    }

    if (strcmp(key, "metric") == 0) {
        const char *metric = fp8q_json_string(m, "");
        if (!*metric)
            return bad_value(what, task->name, key, "the name of a metric", err);
        task->metric = strdup(metric);
        return task->metric ? FP8Q_OK : fp8q_fail_nomem(err);
    }
    return bad_value(what, task->name, key, "one of margin, recovery, metric, lower_is_better",
                     err);
}

static int read_task(struct fp8q_task_policy *task, const struct fp8q_json *object,
                     const char *what, struct fp8q_error *err)
{
    if (!fp8q_json_is_object(object))
        return bad_value(what, "tasks.per_task", task->name, "an object", err);
    for (const struct fp8q_json *m = fp8q_json_first(object); m; m = fp8q_json_next(m))
        FP8Q_TRY(read_task_member(task, m, what, err));
    return FP8Q_OK;
}

static int read_tasks(struct fp8q_policy *policy, const struct fp8q_json *object, const char *what,
                      struct fp8q_error *err)
{
    if (!fp8q_json_is_object(object))
        return bad_value(what, "tasks", "per_task", "an object", err);

    policy->tasks = fp8q_array(fp8q_json_count(object), sizeof(*policy->tasks));
    if (!policy->tasks)
        return fp8q_fail_nomem(err);
    for (const struct fp8q_json *m = fp8q_json_first(object); m; m = fp8q_json_next(m)) {
        struct fp8q_task_policy *task = &policy->tasks[policy->n_tasks++];

        /* Counted already, so that a failure further down frees what is there.  */
        *task = (struct fp8q_task_policy){
            .name = strdup(fp8q_json_key(m)), .margin = NONE, .recovery = NONE};
        if (!task->name)
            return fp8q_fail_nomem(err);
        FP8Q_TRY(read_task(task, m, what, err));
    }
    return FP8Q_OK;
}

static const struct member *find_member(const char *section, const char *key)
{
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const char *own = members[i].section;
        if (strcmp(members[i].key, key) == 0 &&
            (own && section ? strcmp(own, section) == 0 : own == section))
            return &members[i];
    }
    return NULL;
}

static bool is_section(const char *name)
{
    for (size_t i = 0; i < N_MEMBERS; i++)
        if (members[i].section && strcmp(members[i].section, name) == 0)
            return true;
    return false;
}

static int read_object(struct fp8q_policy *policy, const char *section,
                       const struct fp8q_json *object, const char *what, struct fp8q_error *err)
{
    for (const struct fp8q_json *value = fp8q_json_first(object); value;
         value = fp8q_json_next(value)) {
        const char *key = fp8q_json_key(value);
        const struct member *m = find_member(section, key);

        /* A word that is not known is refused: a limit with a slip in its name would be none.  */
        if (m)
            FP8Q_TRY(read_member(policy, m, value, what, err));
        else if (section && strcmp(section, "tasks") == 0 && strcmp(key, "per_task") == 0)
            FP8Q_TRY(read_tasks(policy, value, what, err));
        else if (!section && is_section(key) && fp8q_json_is_object(value))
            FP8Q_TRY(read_object(policy, key, value, what, err));
        else if (section || strcmp(key, "schema") != 0)
            return bad_value(what, section, key, "a member that fp8q knows; see --print-policy",
                             err);
    }
    return FP8Q_OK;
}

void fp8q_policy_default(struct fp8q_policy *policy_out)
{
    *policy_out = (struct fp8q_policy){0};

    for (size_t i = 0; i < N_MEMBERS; i++) {
        const struct member *m = &members[i];
        if (m->kind == KIND_BOOL)
            *(bool *)field(policy_out, m) = m->initial > 0;
        else if (m->kind == KIND_UINT)
            *(uint64_t *)field(policy_out, m) = (uint64_t)m->initial;
        else if (m->kind == KIND_LIMIT)
            *(double *)field(policy_out, m) = m->initial;
    }
}

static int read_root(struct fp8q_policy *policy, const struct fp8q_json *root, const char *what,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *schema = fp8q_json_string(fp8q_json_get(root, "schema"), "");
    if (strcmp(schema, FP8Q_POLICY_SCHEMA) != 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "policy-schema",
                         "%s: expected \"schema\": \"" FP8Q_POLICY_SCHEMA "\", found \"%s\"", what,
                         fp8q_show(&shown, schema));
    return read_object(policy, NULL, root, what, err);
}

int fp8q_policy_parse(const char *text, size_t len, const char *what,
                      struct fp8q_policy *policy_out, struct fp8q_error *err)
{
    struct fp8q_json *root;
    *policy_out = (struct fp8q_policy){0};
    FP8Q_TRY(fp8q_json_parse(text, len, 0, what, &root, err));

    /* What the file leaves out has its default.  */
    fp8q_policy_default(policy_out);
    int status = read_root(policy_out, root, what, err);
    fp8q_json_free(root);
    if (status != FP8Q_OK)
        fp8q_policy_reset(policy_out);
    return status;
}

int fp8q_policy_read(const char *path, struct fp8q_policy *policy_out, struct fp8q_error *err)
{
    char *text;
    size_t len;
    *policy_out = (struct fp8q_policy){0};
    FP8Q_TRY(fp8q_read_file(path, 1 << 20, &text, &len, err));
    int status = fp8q_policy_parse(text, len, path, policy_out, err);
    free(text);
    return status;
}

void fp8q_policy_reset(struct fp8q_policy *policy)
{
    for (size_t i = 0; i < policy->n_required_tasks; i++)
        free(policy->required_tasks[i]);
    for (size_t i = 0; i < policy->n_tasks; i++) {
        free(policy->tasks[i].name);
        free(policy->tasks[i].metric);
    }
    free(policy->required_tasks);
    free(policy->tasks);
    free(policy->stack);
    free(policy->acts);
    *policy = (struct fp8q_policy){0};
}

const struct fp8q_task_policy *fp8q_policy_task(const struct fp8q_policy *policy, const char *name)
{
    for (size_t i = 0; i < policy->n_tasks; i++)
        if (strcmp(policy->tasks[i].name, name) == 0)
            return &policy->tasks[i];
    return NULL;
}

/* ---- printing ------------------------------------------------------------------------------ */

/* A text that is not set is null, but for the one that has a default.  */
static const char *text_of(const struct fp8q_policy *policy, const struct member *m)
{
    if (m->offset == AT(acts) && !policy->acts)
        return FP8Q_POLICY_ACTS;
    return m->offset == AT(acts) ? policy->acts : policy->stack;
}

static void write_member(struct fp8q_jsonw *w, const struct fp8q_policy *policy,
                         const struct member *m)
{
    const char *at = (const char *)policy + m->offset;
    char hex[16];

    switch (m->kind) {
    case KIND_BOOL:
        fp8q_jsonw_bool(w, m->key, *(const bool *)at);
        break;
    case KIND_UINT:
        fp8q_jsonw_uint(w, m->key, *(const uint64_t *)(const void *)at);
        break;
    case KIND_LIMIT:
        fp8q_jsonw_number(w, m->key, *(const double *)(const void *)at);
        break;
    case KIND_TEXT:
        fp8q_jsonw_string(w, m->key, text_of(policy, m));
        break;
    case KIND_CRC:
        snprintf(hex, sizeof(hex), "%08x", (unsigned)policy->inputs.crc32);
        fp8q_jsonw_string(w, m->key, policy->inputs.known ? hex : NULL);
        break;
    case KIND_NAMES:
        fp8q_jsonw_open(w, m->key, '[');
        for (size_t i = 0; i < policy->n_required_tasks; i++)
            fp8q_jsonw_string(w, NULL, policy->required_tasks[i]);
        fp8q_jsonw_close(w, ']');
        break;
    }
}

static void write_tasks(struct fp8q_jsonw *w, const struct fp8q_policy *policy)
{
    fp8q_jsonw_open(w, "per_task", '{');
    for (size_t i = 0; i < policy->n_tasks; i++) {
        const struct fp8q_task_policy *t = &policy->tasks[i];
        fp8q_jsonw_open(w, t->name, '{');
        fp8q_jsonw_number(w, "margin", t->margin);
        fp8q_jsonw_number(w, "recovery", t->recovery);
        if (t->metric)
            fp8q_jsonw_string(w, "metric", t->metric);
        /* null as read_task_member() reads it: the results decide.  */
        if (t->direction == FP8Q_DIRECTION_UNKNOWN)
            fp8q_jsonw_string(w, "lower_is_better", NULL);
        else
            fp8q_jsonw_bool(w, "lower_is_better", t->direction == FP8Q_DIRECTION_LOWER);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, '}');
}

void fp8q_policy_write(struct fp8q_jsonw *w, const struct fp8q_policy *policy)
{
    const char *open = NULL;

    /* Members of a section stand together in the table, so it opens with its first one.  */
    fp8q_jsonw_string(w, "schema", FP8Q_POLICY_SCHEMA);
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const char *section = members[i].section;
        if (section && (!open || strcmp(open, section) != 0))
            fp8q_jsonw_open(w, section, '{');
        open = section;

        write_member(w, policy, &members[i]);
        if (open && (i + 1 == N_MEMBERS || strcmp(open, members[i + 1].section) != 0)) {
            if (strcmp(open, "tasks") == 0)
                write_tasks(w, policy);
            fp8q_jsonw_close(w, '}');
        }
    }
}
