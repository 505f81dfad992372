/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c - quantization_config, and its exclusion list against the tensors.
 */
#include "verify/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/names.h"
#include "select/role.h"

static const char place[] = FP8Q_CONFIG_NAME ", quantization_config";

/* ---- the exclusion list ---------------------------------------------------------------------- */

struct exclusions {
    const char **items; /* exact names, sorted; borrowed from the config */
    size_t n;
    struct fp8q_pattern **regexes;
    size_t n_regexes;
};

static int read_exclusions(const struct fp8q_json *list, struct exclusions *e,
                           struct fp8q_error *err)
{
    size_t n = fp8q_json_count(list);
    e->items = fp8q_array(n, sizeof(*e->items));
    e->regexes = fp8q_array(n, sizeof(*e->regexes));
    if (!e->items || !e->regexes)
        return fp8q_fail_nomem(err);

    for (const struct fp8q_json *i = fp8q_json_first(list); i; i = fp8q_json_next(i)) {
        const char *text = fp8q_json_string(i, NULL);
        if (!text || !*text)
            continue;
        if (strncmp(text, "re:", 3) != 0)
            e->items[e->n++] = text;
        else if (fp8q_pattern_compile(text, &e->regexes[e->n_regexes], NULL) == FP8Q_OK)
            e->n_regexes++;
    }

    qsort(e->items, e->n, sizeof(*e->items), fp8q_compare_strings);
    return FP8Q_OK;
}

static void free_exclusions(struct exclusions *e)
{
    for (size_t i = 0; i < e->n_regexes; i++)
        fp8q_pattern_free(e->regexes[i]);
    free(e->regexes);
    free(e->items);
}

/* By full name, or by a regular expression: what the strictest engine (vLLM) understands.  */
static bool excluded(const struct exclusions *e, const char *module)
{
    if (bsearch(&module, e->items, e->n, sizeof(*e->items), fp8q_compare_strings))
        return true;

    for (size_t i = 0; i < e->n_regexes; i++) {
        bool matches = false;
        if (fp8q_pattern_match(e->regexes[i], module, &matches, NULL) == FP8Q_OK && matches)
            return true;
    }
    return false;
}

/* 2-D weights left unquantized that an engine would build as an FP8 linear unless they are listed.
 */
static bool must_be_listed(const struct fp8q_family *family, const struct fp8q_tensor *t)
{
    enum fp8q_reason reason;
    enum fp8q_float from;
    bool tower;
    if (t->ndim != 2 || !fp8q_float_of(t->dtype, &from) || !fp8q_is_weight_name(t->name))
        return false;

    /* Engines never build embeddings and norms as FP8.  */
    return !fp8q_role(family, t->name, t->ndim, &reason, &tower) ||
           (reason != FP8Q_WHY_EMBEDDING && reason != FP8Q_WHY_NORM);
}

struct lists {
    struct fp8q_findings listed, quantized;
};

static int check_modules(struct lists *l, const struct fp8q_ckpt *ckpt, const struct exclusions *e,
                         struct fp8q_error *err)
{
    const struct fp8q_family family = fp8q_family_of(ckpt->config);

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        char *module = strndup(t->name, fp8q_module_len(t->name));
        if (!module)
            return fp8q_fail_nomem(err);
        bool is_excluded = excluded(e, module);
        free(module);

        if (t->dtype == FP8Q_F8_E4M3) {
            l->quantized.n_looked_at++;
            if (is_excluded)
                fp8q_findings_add(&l->quantized, i, t->name,
                                  "is F8_E4M3 and in the exclusion list");
        } else if (must_be_listed(&family, t)) {
            l->listed.n_looked_at++;
            if (!is_excluded)
                fp8q_findings_add(&l->listed, i, t->name, "is %s and not in the exclusion list",
                                  fp8q_dtype_name(t->dtype));
        }
    }
    return FP8Q_OK;
}

static int check_lists(struct fp8q_report *report, const struct fp8q_json *list,
                       struct fp8q_error *err)
{
    struct exclusions e = {0};
    struct lists l = {.listed = {.id = "exclusions",
                                 .status = report->ours ? FP8Q_CHECK_FAIL : FP8Q_CHECK_WARN,
                                 .limit = "every linear left unquantized is in the exclusion list"},
                      .quantized = {.id = "exclusions-quantized",
                                    .status = FP8Q_CHECK_FAIL,
                                    .limit = "no quantized module is in the exclusion list"}};
    struct fp8q_findings *const all[] = {&l.listed, &l.quantized};

    int status = read_exclusions(list, &e, err);
    if (status == FP8Q_OK)
        status = check_modules(&l, report->ckpt, &e, err);
    free_exclusions(&e);
    return fp8q_report_add_all(report, status, all, 2, err);
}

/* ---- the object ------------------------------------------------------------------------------ */

static bool same_lists(const struct fp8q_json *a, const struct fp8q_json *b)
{
    const struct fp8q_json *x = fp8q_json_first(a), *y = fp8q_json_first(b);
    for (; x && y; x = fp8q_json_next(x), y = fp8q_json_next(y))
        if (strcmp(fp8q_json_string(x, "1"), fp8q_json_string(y, "2")) != 0)
            return false;
    return !x && !y;
}

static bool is_128(const struct fp8q_json *list)
{
    uint64_t a = 0, b = 0;
    const struct fp8q_json *first = fp8q_json_first(list);
    return fp8q_json_count(list) == 2 && fp8q_json_uint(first, &a) &&
           fp8q_json_uint(fp8q_json_next(first), &b) && a == FP8Q_BLOCK && b == FP8Q_BLOCK;
}

static bool has_block_scales(const struct fp8q_ckpt *ckpt)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (fp8q_stem_len(ckpt->tensors[i].name, FP8Q_SCALE_INV_ENDING) &&
            ckpt->tensors[i].n_elems > 1)
            return true;
    return false;
}

/* The first companion of @weight of one kind: what scales the weight, or what scales its inputs. */
static const struct fp8q_tensor *companion(const struct fp8q_ckpt *ckpt, const char *weight,
                                           bool scales_weight)
{
    const struct fp8q_tensor *found = NULL;
    for (size_t i = 0; i < fp8q_n_companions && !found; i++) {
        const struct fp8q_companion *c = &fp8q_companions[i];
        size_t stem = *c->owner ? fp8q_stem_len(weight, c->owner) : strlen(weight);
        if (c->scales_weight == scales_weight && stem)
            found = fp8q_ckpt_find_joined(ckpt, weight, stem, c->ending);
    }
    return found;
}

/* Static activations: each layer needs a scale for its inputs, and engines have no kernel for them
 * beside block scales.  */
static void check_static(const struct fp8q_ckpt *ckpt, struct fp8q_findings *f)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        if (t->dtype != FP8Q_F8_E4M3)
            continue;
        const struct fp8q_tensor *scale = companion(ckpt, t->name, true);
        if (scale && scale->ndim >= 2 && scale->n_elems > 1 && scale->shape[0] != t->shape[0])
            fp8q_findings_add(f, i + 1, t->name,
                              "activation_scheme is \"static\", and its scales are blocks");
        else if (!companion(ckpt, t->name, false))
            fp8q_findings_add(f, i + 1, t->name,
                              "activation_scheme is \"static\", and it has no input_scale");
    }
}

static void check_fp8(const struct fp8q_report *report, const struct fp8q_json *q,
                      struct fp8q_findings *f)
{
    struct fp8q_shown shown;
    const char *scheme = fp8q_json_string(fp8q_json_get(q, "activation_scheme"), "");
    if (strcmp(scheme, "static") == 0)
        check_static(report->ckpt, f);
    else if (strcmp(scheme, "dynamic") != 0)
        fp8q_findings_add(f, 0, place,
                          "activation_scheme: expected \"dynamic\" or \"static\", found \"%.60s\"",
                          fp8q_show(&shown, scheme));

    const char *fmt = fp8q_json_string(fp8q_json_get(q, "fmt"), "e4m3");
    if (strcmp(fmt, "e4m3") != 0)
        fp8q_findings_add(f, 0, place, "fmt: expected \"e4m3\", found \"%.60s\"",
                          fp8q_show(&shown, fmt));
    if (has_block_scales(report->ckpt) && !is_128(fp8q_json_get(q, "weight_block_size")))
        fp8q_findings_add(f, 0, place, "weight_block_size is not [128, 128]");
    if (report->ours &&
        !same_lists(fp8q_json_get(q, "modules_to_not_convert"), fp8q_json_get(q, "ignored_layers")))
        fp8q_findings_add(f, 0, place, "modules_to_not_convert and ignored_layers differ");
}

/* What is wrong with the object itself; returns its exclusion list, NULL without one.  */
static const struct fp8q_json *check_object(const struct fp8q_report *report,
                                            struct fp8q_findings *f)
{
    const struct fp8q_json *q = fp8q_json_get(report->ckpt->config, "quantization_config");
    const char *method = fp8q_json_string(fp8q_json_get(q, "quant_method"), NULL);
    struct fp8q_shown shown;

    if (!fp8q_json_is_object(q)) {
        fp8q_findings_add(f, 0, FP8Q_CONFIG_NAME, "there is no quantization_config");
    } else if (!method) {
        fp8q_findings_add(f, 0, place, "there is no quant_method");
    } else if (strcmp(method, "fp8") == 0) {
        check_fp8(report, q, f);
        const struct fp8q_json *list = fp8q_json_get(q, "ignored_layers");
        return list ? list : fp8q_json_get(q, "modules_to_not_convert");
    } else if (strcmp(method, "compressed-tensors") == 0) {
        if (!fp8q_json_is_object(fp8q_json_get(q, "config_groups")))
            fp8q_findings_add(f, 0, place, "config_groups is missing");
        return fp8q_json_get(q, "ignore");
    } else {
        fp8q_findings_add(
            f, 0, place,
            "quant_method: expected \"fp8\" or \"compressed-tensors\", found \"%.60s\"",
            fp8q_show(&shown, method));
    }
    return NULL;
}

/* A second quantization_config, in a nested config: some loaders look there first.  Depth is that
 * of a document that passed the JSON gate.  */
static void find_others(const struct fp8q_json *object, bool top, struct fp8q_findings *f)
{
    for (const struct fp8q_json *i = fp8q_json_first(object); i; i = fp8q_json_next(i)) {
        const char *key = fp8q_json_key(i);
        bool says = key && (strcmp(key, "quantization_config") == 0 ||
                            strcmp(key, "compression_config") == 0);
        if (top && key && strcmp(key, "quantization_config") == 0)
            continue;
        if (says && !fp8q_json_is_null(i))
            fp8q_findings_add(f, 1, FP8Q_CONFIG_NAME, "there is a second %s in a nested config",
                              key);
        if (fp8q_json_is_object(i))
            find_others(i, false, f);
    }
}

/* A directory that had no config.json before it was quantized has none now: no engine can load
 * either.  */
static int check_absent(struct fp8q_report *report, struct fp8q_error *err)
{
    bool had_none = report->ours && !fp8q_json_get(report->manifest.json, "config_crc32");
    struct fp8q_findings f = {.id = "config",
                              .status = had_none ? FP8Q_CHECK_WARN : FP8Q_CHECK_FAIL,
                              .limit = "a config.json, without which no engine loads",
                              .n_looked_at = 1};
    fp8q_findings_add(&f, 0, report->ckpt->path, "there is no config.json");
    return fp8q_report_add(report, &f, err);
}

int fp8q_verify_config(struct fp8q_report *report, struct fp8q_error *err)
{
    struct fp8q_findings f = {.id = "quantization-config",
                              .status = FP8Q_CHECK_FAIL,
                              .limit = "quant_method fp8 or compressed-tensors, complete",
                              .n_looked_at = 1};
    if (!report->ckpt->is_dir)
        return FP8Q_OK; /* a file alone has no config */
    if (!report->ckpt->config)
        return check_absent(report, err);

    const struct fp8q_json *list = check_object(report, &f);
    bool is_wrong = f.n_found > 0;
    find_others(report->ckpt->config, true, &f);
    FP8Q_TRY(fp8q_report_add(report, &f, err));
    return is_wrong && !list ? FP8Q_OK : check_lists(report, list, err);
}
