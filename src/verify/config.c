/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c - quantization_config, and its exclusion list against the tensors.
 */
#include "verify/internal.h"

#include <stdlib.h>
#include <string.h>

#include "format/names.h"
#include "engines/matchers.h"

static const char place[] = FP8Q_CONFIG_NAME ", quantization_config";

/* ---- the exclusion list ---------------------------------------------------------------------- */

/* By how the engines read it (engines/matchers.c), over all modules, those too that only engines
 * build.  What the newest versions take otherwise than it lies on disk is a fault of a checkpoint
 * that fp8q wrote; other tools write for one engine, so there only what every engine takes so is
 * one.  */
struct lists {
    const struct fp8q_report *report;
    struct fp8q_findings listed, quantized, readers;
};

static bool is_fp8(const void *ckpt, size_t tensor)
{
    const struct fp8q_tensor *t = &((const struct fp8q_ckpt *)ckpt)->tensors[tensor];

    /* Of what is empty nothing was quantized, whatever its type.  */
    return fp8q_is_fp8(t->dtype) && t->n_elems > 0;
}

static int note_misreading(void *context, const struct fp8q_misreading *m)
{
    struct lists *l = context;
    const struct fp8q_module *module = m->module;
    struct fp8q_shown shown;
    bool ours = l->report->ours && !m->reader->is_older;

    /* An entry that is the module's own name is a fault whoever wrote it; one that merely reaches
     * it is one only in an output of fp8q, for the engines of today.  */
    if (m->entry && (ours || strcmp(m->entry, module->name) == 0))
        fp8q_findings_add(&l->quantized, module->tensor, module->name,
                          "is F8_E4M3 and in the exclusion list by \"%.150s\" for %s",
                          fp8q_show(&shown, m->entry), m->reader->name);
    else if (m->entry)
        fp8q_findings_add(&l->readers, module->tensor, module->name,
                          "is F8_E4M3, but \"%.150s\" excludes it for %s",
                          fp8q_show(&shown, m->entry), m->reader->name);
    else if (!m->reader->is_older)
        fp8q_findings_add(&l->listed, module->tensor, module->name,
                          "is not FP8 and not in the exclusion list for %s", m->reader->name);
    else
        fp8q_findings_add(&l->readers, module->tensor, module->name,
                          "is not FP8, but no entry excludes it for %s", m->reader->name);

    return FP8Q_OK;
}

static int ask_readers(struct lists *l, const struct fp8q_json *q,
                       struct fp8q_exclusions *exclusions, struct fp8q_modules *modules,
                       struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = l->report->ckpt;
    FP8Q_TRY(fp8q_exclusions_read(q, exclusions, err));
    FP8Q_TRY(fp8q_modules_of(ckpt, is_fp8, ckpt, modules, err));

    /* Each module is counted under the one question that it can fail, and under that of the
     * readers.  */
    for (size_t i = 0; i < modules->count; i++) {
        struct fp8q_findings *f = modules->items[i].quantized ? &l->quantized : &l->listed;
        f->n_looked_at++;
        l->readers.n_looked_at++;
    }
    return fp8q_readers_ask(exclusions, modules, note_misreading, l, err);
}

static int check_modules(struct lists *l, const struct fp8q_json *q, struct fp8q_error *err)
{
    struct fp8q_exclusions exclusions = {.ignore = {NULL, 0}};
    struct fp8q_modules modules = {.items = NULL};

    int status = ask_readers(l, q, &exclusions, &modules, err);
    fp8q_modules_reset(&modules);
    fp8q_exclusions_reset(&exclusions);
    return status;
}

static int check_lists(struct fp8q_report *report, const struct fp8q_json *q,
                       struct fp8q_error *err)
{
    struct lists l = {.report = report,
                      .listed = {.id = "exclusions",
                                 .status = report->ours ? FP8Q_CHECK_FAIL : FP8Q_CHECK_WARN,
                                 .limit = "every linear left unquantized is in the exclusion list"},
                      .quantized = {.id = "exclusions-quantized",
                                    .status = FP8Q_CHECK_FAIL,
                                    .limit = "no quantized module is in the exclusion list"},
                      .readers = {.id = "exclusions-readers",
                                  .status = FP8Q_CHECK_WARN,
                                  .limit = "every engine reads the list alike"}};
    struct fp8q_findings *const all[] = {&l.listed, &l.quantized, &l.readers};

    int status = check_modules(&l, q, err);
    return fp8q_report_add_all(report, status, all, 3, err);
}

/* ---- the object ------------------------------------------------------------------------------ */

/* An entry of transformers' own key may end in "$", so that it reaches nothing else.  */
static bool same_entry(const char *a, const char *b)
{
    size_t n = strlen(b);

    return strncmp(a, b, n) == 0 && (a[n] == '\0' || strcmp(a + n, "$") == 0);
}

static bool same_lists(const struct fp8q_json *a, const struct fp8q_json *b)
{
    const struct fp8q_json *x = fp8q_json_first(a), *y = fp8q_json_first(b);

    /* The two defaults differ, so that entries that are no strings are never taken for equal.  */
    for (; x && y; x = fp8q_json_next(x), y = fp8q_json_next(y))
        if (!same_entry(fp8q_json_string(x, "1"), fp8q_json_string(y, "2")))
            return false;
    return !x && !y;
}

static bool is_size(const struct fp8q_json *list, uint64_t rows, uint64_t cols)
{
    uint64_t a = 0, b = 0;
    const struct fp8q_json *first = fp8q_json_first(list);

    return fp8q_json_count(list) == 2 && fp8q_json_uint(first, &a) &&
           fp8q_json_uint(fp8q_json_next(first), &b) && a == rows && b == cols;
}

static bool has_block_scales(const struct fp8q_ckpt *ckpt)
{
    /* One element is a scale of the whole tensor: it says nothing of blocks.  */
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
        /* A companion's ending takes the place of its owner's; without one it is appended to the
         * name.  */
        size_t stem = *c->owner ? fp8q_stem_len(weight, c->owner) : strlen(weight);
        if (c->scales_weight == scales_weight && stem)
            found = fp8q_ckpt_find_joined(ckpt, weight, stem, c->ending);
    }
    return found;
}

/* Static activations: each layer needs a scale for its inputs, and engines have no kernel for them
 * beside block scales.  */
void fp8q_verify_static(const struct fp8q_ckpt *ckpt, size_t i, struct fp8q_findings *f)
{
    const struct fp8q_tensor *t = &ckpt->tensors[i], *scale = companion(ckpt, t->name, true);

    /* Scales per row may have two dimensions as well, but then as many rows as the weight.  */
    if (scale && scale->ndim >= 2 && scale->n_elems > 1 && scale->shape[0] != t->shape[0])
        fp8q_findings_add(f, i + 1, t->name, "has static inputs, and its scales are blocks");
    else if (!companion(ckpt, t->name, false))
        fp8q_findings_add(f, i + 1, t->name, "has static inputs, and no input_scale");
}

static void check_static(const struct fp8q_ckpt *ckpt, struct fp8q_findings *f)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (ckpt->tensors[i].dtype == FP8Q_F8_E4M3)
            fp8q_verify_static(ckpt, i, f);
}

/* @groups: MXFP8, whose block size is fixed.  */
static void check_fp8(const struct fp8q_report *report, const struct fp8q_json *q, bool groups,
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

    /* Optional, unlike the scheme: who leaves it out means e4m3.  */
    const char *fmt = fp8q_json_string(fp8q_json_get(q, "fmt"), "e4m3");
    if (strcmp(fmt, "e4m3") != 0)
        fp8q_findings_add(f, 0, place, "fmt: expected \"e4m3\", found \"%.60s\"",
                          fp8q_show(&shown, fmt));

    /* Without block scales there is no block size to state.  */
    const struct fp8q_json *size = fp8q_json_get(q, "weight_block_size");
    if (!groups && has_block_scales(report->ckpt) && !is_size(size, FP8Q_BLOCK, FP8Q_BLOCK))
        fp8q_findings_add(f, 0, place, "weight_block_size is not [128, 128]");
    if (groups && size && !is_size(size, 1, FP8Q_GROUP))
        fp8q_findings_add(f, 0, place, "weight_block_size is not [1, 32]");

    /* fp8q writes the list under both keys, for engines that read only one of them; other tools
     * need not.  */
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
    } else if (strcmp(method, "fp8") == 0 || strcmp(method, "mxfp8") == 0) {
        check_fp8(report, q, *method == 'm', f);

        /* Other tools write one of the two keys, or neither.  */
        const struct fp8q_json *list = fp8q_json_get(q, "ignored_layers");
        return list ? list : fp8q_json_get(q, "modules_to_not_convert");
    } else if (strcmp(method, "modelopt") == 0) {
        const char *algo = fp8q_json_string(fp8q_json_get(q, "quant_algo"), "");
        if (strcmp(algo, "FP8") != 0)
            fp8q_findings_add(f, 0, place, "quant_algo: expected \"FP8\", found \"%.60s\"",
                              fp8q_show(&shown, algo));
        check_static(report->ckpt, f);
        return fp8q_json_get(q, "ignore");
    } else if (strcmp(method, "compressed-tensors") == 0) {
        if (!fp8q_json_is_object(fp8q_json_get(q, "config_groups")))
            fp8q_findings_add(f, 0, place, "config_groups is missing");
        return fp8q_json_get(q, "ignore");
    } else {
        fp8q_findings_add(f, 0, place,
                          "quant_method: expected \"fp8\", \"mxfp8\", \"modelopt\" or "
                          "\"compressed-tensors\", found \"%.60s\"",
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

        /* The one at the top was looked at already, with all that lies in it.  */
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
    struct fp8q_findings f = {
        .id = "quantization-config",
        .status = FP8Q_CHECK_FAIL,
        .limit = "quant_method fp8, mxfp8, modelopt or compressed-tensors, complete",
        .n_looked_at = 1};

    if (!report->ckpt->is_dir)
        return FP8Q_OK; /* a file alone has no config */
    if (!report->ckpt->config)
        return check_absent(report, err);

    const struct fp8q_json *list = check_object(report, &f);
    /* A second config elsewhere does not make the first one unreadable: it does not count here.  */
    bool is_wrong = f.n_found > 0;
    find_others(report->ckpt->config, true, &f);
    FP8Q_TRY(fp8q_report_add(report, &f, err));

    /* Where nothing can be read, every module would be reported as not excluded: one cause, and it
     * was said.  */
    if (is_wrong && !list)
        return FP8Q_OK;
    const struct fp8q_json *q = fp8q_json_get(report->ckpt->config, "quantization_config");
    FP8Q_TRY(check_lists(report, q, err));
    const char *method = fp8q_json_string(fp8q_json_get(q, "quant_method"), "");
    return strcmp(method, "compressed-tensors") == 0 ? fp8q_verify_groups(report, q, err) : FP8Q_OK;
}
