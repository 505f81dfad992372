/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_structure.c - headers, index, config and manifest against each other; no payload.
 */
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/crc.h"
#include "base/mem.h"
#include "select/role.h"
#include "format/names.h"
#include "checkpoint/weights.h"

static int report_one(struct fp8q_verify_report *report, struct fp8q_finding *f,
                      struct fp8q_error *err)
{
    return fp8q_verify_report_add(report, f, err);
}

/* ---- weights and scales ---------------------------------------------------------------------- */

static int check_pairs(struct fp8q_verify_report *report, struct fp8q_error *err)
{
    struct fp8q_finding pairs = {.id = "scale-pairs",
                                 .status = FP8Q_CHECK_FAIL,
                                 .limit =
                                     "one scale tensor of the right shape for each F8_E4M3 weight"};
    struct fp8q_finding orphans = {
        .id = "scale-owners", .status = FP8Q_CHECK_FAIL, .limit = "no scale without its weight"};
    struct fp8q_finding any = {.id = "quantized",
                               .status = FP8Q_CHECK_FAIL,
                               .limit = "at least one F8_E4M3 weight",
                               .n_looked_at = 1};
    size_t n_fp8 = 0;
    for (size_t i = 0; i < report->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &report->ckpt->tensors[i];
        if (t->dtype == FP8Q_F8_E4M3 && t->n_elems > 0) {
            struct fp8q_weights w;
            struct fp8q_error found = {0};
            n_fp8++;
            pairs.n_looked_at++;
            int status = fp8q_weights_open(report->ckpt, t->name, &w, &found);
            if (fp8q_cannot_look(status)) {
                if (err)
                    *err = found;
                return status;
            }
            /* Values are looked at with the payload, where all of them are counted.  */
            if (status != FP8Q_OK && strcmp(found.id, "scale-value") != 0)
                fp8q_finding_add(&pairs, i, t->name, "%s", found.message);
            fp8q_weights_reset(&w);
        }
        bool scale = fp8q_stem_len(t->name, FP8Q_WEIGHT_ENDING FP8Q_SCALE_INV_ENDING) ||
                     fp8q_stem_len(t->name, FP8Q_WEIGHT_ENDING FP8Q_SCALE_ENDING);
        orphans.n_looked_at += scale;
        if (scale && !fp8q_scale_owner(report->ckpt, t->name))
            fp8q_finding_add(&orphans, i, t->name, "its weight is not there or not F8_E4M3");
    }
    if (n_fp8 == 0)
        fp8q_finding_add(&any, 0, report->ckpt->path, "no F8_E4M3 weight");
    FP8Q_TRY(report_one(report, &any, err));
    FP8Q_TRY(report_one(report, &pairs, err));
    return report_one(report, &orphans, err);
}

/* ---- config ---------------------------------------------------------------------------------- */

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

/* Kept 2-D weights that an engine would build as an FP8 linear unless they are listed.  */
static bool must_be_listed(const struct fp8q_family *family, const struct fp8q_tensor *t)
{
    enum fp8q_reason reason;
    enum fp8q_float from;
    bool tower;
    if (t->ndim != 2 || !fp8q_float_of(t->dtype, &from) || !fp8q_is_weight_name(t->name))
        return false;
    return !fp8q_role(family, t->name, t->ndim, &reason, &tower) ||
           (reason != FP8Q_WHY_EMBEDDING && reason != FP8Q_WHY_NORM);
}

static int check_lists(struct fp8q_verify_report *report, const struct fp8q_json *list,
                       struct fp8q_error *err)
{
    const char *type;
    bool known;
    struct exclusions e = {0};
    enum fp8q_check_status strict = report->ours ? FP8Q_CHECK_FAIL : FP8Q_CHECK_WARN;
    struct fp8q_finding listed = {.id = "exclusions",
                                  .status = strict,
                                  .limit = "every kept linear is in the exclusion list"};
    struct fp8q_finding quantized = {.id = "exclusions-quantized",
                                     .status = FP8Q_CHECK_FAIL,
                                     .limit = "no quantized module is in the exclusion list"};
    const struct fp8q_family *family = fp8q_family_of(report->ckpt->config, &type, &known);
    int status = read_exclusions(list, &e, err);
    for (size_t i = 0; i < report->ckpt->n_tensors && status == FP8Q_OK; i++) {
        const struct fp8q_tensor *t = &report->ckpt->tensors[i];
        char *module = strndup(t->name, fp8q_module_len(t->name));
        if (!module) {
            status = fp8q_fail_nomem(err);
            break;
        }
        if (t->dtype == FP8Q_F8_E4M3) {
            quantized.n_looked_at++;
            if (excluded(&e, module))
                fp8q_finding_add(&quantized, i, t->name, "is F8_E4M3 and in the exclusion list");
        } else if (must_be_listed(family, t)) {
            listed.n_looked_at++;
            if (!excluded(&e, module))
                fp8q_finding_add(&listed, i, t->name, "is %s and not in the exclusion list",
                                 fp8q_dtype_name(t->dtype));
        }
        free(module);
    }
    free_exclusions(&e);
    FP8Q_TRY(status);
    FP8Q_TRY(report_one(report, &listed, err));
    return report_one(report, &quantized, err);
}

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
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        if (fp8q_stem_len(ckpt->tensors[i].name, FP8Q_SCALE_INV_ENDING))
            return true;
    }
    return false;
}

static void check_fp8_dialect(const struct fp8q_verify_report *report, const struct fp8q_json *q,
                              struct fp8q_finding *f)
{
    const struct fp8q_json *block = fp8q_json_get(q, "weight_block_size");
    const char *where = "config.json, quantization_config";
    if (strcmp(fp8q_json_string(fp8q_json_get(q, "activation_scheme"), ""), "dynamic") != 0)
        fp8q_finding_add(f, 0, where, "activation_scheme is not \"dynamic\"");
    if (strcmp(fp8q_json_string(fp8q_json_get(q, "fmt"), "e4m3"), "e4m3") != 0)
        fp8q_finding_add(f, 1, where, "fmt is not \"e4m3\"");
    if (has_block_scales(report->ckpt) && !is_128(block))
        fp8q_finding_add(f, 2, where, "weight_block_size is not [128, 128]");
    if (report->ours &&
        !same_lists(fp8q_json_get(q, "modules_to_not_convert"), fp8q_json_get(q, "ignored_layers")))
        fp8q_finding_add(f, 3, where, "modules_to_not_convert and ignored_layers differ");
}

/* quant_method, sizes, lists; and that what the manifest remembers is still there.  */
static int check_config(struct fp8q_verify_report *report, struct fp8q_error *err)
{
    const struct fp8q_json *q = fp8q_json_get(report->ckpt->config, "quantization_config");
    const char *method = fp8q_json_string(fp8q_json_get(q, "quant_method"), "");
    const struct fp8q_json *list = NULL;
    struct fp8q_finding f = {.id = "quantization-config",
                             .status = FP8Q_CHECK_FAIL,
                             .limit = "quant_method fp8 or compressed-tensors, complete",
                             .n_looked_at = 1};
    if (!report->ckpt->is_dir)
        return FP8Q_OK; /* a file alone has no config */
    if (strcmp(method, "fp8") == 0) {
        check_fp8_dialect(report, q, &f);
        list = fp8q_json_get(q, "ignored_layers");
        if (!list)
            list = fp8q_json_get(q, "modules_to_not_convert");
    } else if (strcmp(method, "compressed-tensors") == 0) {
        list = fp8q_json_get(q, "ignore");
        if (!fp8q_json_is_object(fp8q_json_get(q, "config_groups")))
            fp8q_finding_add(&f, 0, "config.json, quantization_config", "config_groups is missing");
    } else {
        fp8q_finding_add(&f, 0, "config.json, quantization_config",
                         report->ckpt->config ? "quant_method is \"%.60s\""
                                              : "there is no config.json%s",
                         report->ckpt->config ? method : "");
    }
    FP8Q_TRY(report_one(report, &f, err));
    return f.n_found && !list ? FP8Q_OK : check_lists(report, list, err);
}

/* ---- manifest against files ------------------------------------------------------------------ */

static const char *manifest_string(const struct fp8q_verify_report *report, const char *path)
{
    return fp8q_json_string(fp8q_json_path(report->manifest.json, path), NULL);
}

static int check_headers(struct fp8q_verify_report *report, struct fp8q_error *err)
{
    struct fp8q_finding f = {
        .id = "header-crc", .status = FP8Q_CHECK_FAIL, .limit = "each shard's header as written"};
    const struct fp8q_json *headers = fp8q_json_get(report->manifest.json, "headers");
    const struct fp8q_ckpt *ckpt = report->ckpt;
    size_t n_sidecars = 0;
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &ckpt->shards[i];
        const struct fp8q_json *entry = NULL;
        for (const struct fp8q_json *h = fp8q_json_first(headers); h && !entry;
             h = fp8q_json_next(h))
            if (!ckpt->is_dir || strcmp(fp8q_json_key(h), s->name) == 0)
                entry = h;
        bool sidecar =
            ckpt->is_dir ? strcmp(s->name, FP8Q_SIDECAR_NAME) == 0 : fp8q_is_scales_file(s->name);
        if (sidecar && n_sidecars++ == 0)
            continue; /* has its own CRC */
        uint32_t crc;
        f.n_looked_at++;
        if (!fp8q_parse_crc(fp8q_json_string(entry, NULL), &crc))
            fp8q_finding_add(&f, i, s->name, "is not in the manifest");
        else if (crc != s->header.crc32)
            fp8q_finding_add(&f, i, s->name, "header CRC-32 %08x, expected %08x",
                             (unsigned)s->header.crc32, (unsigned)crc);
    }
    if (ckpt->is_dir && fp8q_json_count(headers) != f.n_looked_at)
        fp8q_finding_add(&f, ckpt->n_shards, ckpt->path, "%zu shards, the manifest has %zu",
                         (size_t)f.n_looked_at, fp8q_json_count(headers));
    return report_one(report, &f, err);
}

static int check_tensor_set(struct fp8q_verify_report *report, struct fp8q_error *err)
{
    struct fp8q_finding f = {.id = "tensor-set",
                             .status = FP8Q_CHECK_FAIL,
                             .limit = "exactly the tensors of the manifest"};
    const struct fp8q_manifest *m = &report->manifest;
    uint32_t crc;
    for (size_t i = 0; i < report->ckpt->n_tensors; i++) {
        f.n_looked_at++;
        if (!fp8q_manifest_crc(m, report->ckpt->tensors[i].name, &crc))
            fp8q_finding_add(&f, i, report->ckpt->tensors[i].name, "is not in the manifest");
    }
    for (size_t i = 0; i < m->n_tensors; i++)
        if (!fp8q_ckpt_find(report->ckpt, m->tensors[i].name))
            fp8q_finding_add(&f, report->ckpt->n_tensors + i, m->tensors[i].name, "is missing");
    return report_one(report, &f, err);
}

static int check_file_crcs(struct fp8q_verify_report *report, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = report->ckpt;
    struct fp8q_finding index = {.id = "index-crc",
                                 .status = FP8Q_CHECK_FAIL,
                                 .limit = "index as written",
                                 .n_looked_at = 1};
    struct fp8q_finding quant = {.id = "quantization-config-crc",
                                 .status = FP8Q_CHECK_FAIL,
                                 .limit = "quantization_config as written",
                                 .n_looked_at = 1};
    struct fp8q_finding config = {.id = "config-crc",
                                  .status = FP8Q_CHECK_WARN,
                                  .limit = "config.json as written",
                                  .n_looked_at = 1};
    struct fp8q_finding files = {
        .id = "file-crc", .status = FP8Q_CHECK_FAIL, .limit = "copied files as written"};
    uint32_t crc, now;
    int status;
    const char *index_crc = manifest_string(report, "index_crc32");
    if (index_crc || ckpt->index_text) {
        now = fp8q_crc32(0, ckpt->index_text, ckpt->index_len);
        if (!fp8q_parse_crc(index_crc, &crc) || !ckpt->index_text || now != crc)
            fp8q_finding_add(&index, 0, FP8Q_INDEX_NAME, "CRC-32 %08x, expected %s", (unsigned)now,
                             index_crc ? index_crc : "none");
        FP8Q_TRY(report_one(report, &index, err));
    }
    if (manifest_string(report, "config_crc32")) {
        now = fp8q_config_crc32(fp8q_json_get(ckpt->config, "quantization_config"), err, &status);
        FP8Q_TRY(status);
        if (!fp8q_parse_crc(manifest_string(report, "quantization_config_crc32"), &crc) ||
            now != crc)
            fp8q_finding_add(&quant, 0, "config.json", "quantization_config was changed");
        now = fp8q_crc32(0, ckpt->config_text, ckpt->config_len);
        if (!fp8q_parse_crc(manifest_string(report, "config_crc32"), &crc) || now != crc)
            fp8q_finding_add(&config, 0, "config.json", "was changed outside quantization_config");
        if (quant.n_found)
            config.n_found = 0; /* said already */
        FP8Q_TRY(report_one(report, &quant, err));
        FP8Q_TRY(report_one(report, &config, err));
    }
    const struct fp8q_json *list = fp8q_json_get(report->manifest.json, "files");
    for (const struct fp8q_json *f = fp8q_json_first(list); f; f = fp8q_json_next(f)) {
        files.n_looked_at++;
        if (!fp8q_json_key(f) || !fp8q_stays_inside(fp8q_json_key(f))) {
            fp8q_finding_add(&files, files.n_looked_at, "manifest",
                             "names a file outside the directory");
            continue;
        }
        char *path = fp8q_join(ckpt->dir, fp8q_json_key(f));
        if (!path)
            return fp8q_fail_nomem(err);
        bool there;
        struct stat st;
        status = fp8q_stat(path, &st, &there, err);
        if (status == FP8Q_OK && there && S_ISREG(st.st_mode))
            status = fp8q_file_crc32(path, &now, err);
        free(path);
        FP8Q_TRY(status);
        if (!there || !S_ISREG(st.st_mode))
            fp8q_finding_add(&files, files.n_looked_at, fp8q_json_key(f), "%s",
                             there ? "is no regular file" : "is missing");
        else if (!fp8q_parse_crc(fp8q_json_string(f, NULL), &crc) || now != crc)
            fp8q_finding_add(&files, files.n_looked_at, fp8q_json_key(f),
                             "CRC-32 %08x, expected %08x", (unsigned)now, (unsigned)crc);
    }
    return report_one(report, &files, err);
}

/* ---- index and stray files ------------------------------------------------------------------- */

/* Warnings of opening that are defects in an output: a loader may see other tensors than we did. */
static int check_opening(struct fp8q_verify_report *report, const struct fp8q_warnings *warnings,
                         struct fp8q_error *err)
{
    static const char *const serious[] = {"unindexed-tensor",   "unindexed-file",
                                          "index-beside-model", "tensor-in-two-shards",
                                          "index-total-size",   "index-no-metadata"};
    struct fp8q_finding f = {.id = "index",
                             .status = report->ours ? FP8Q_CHECK_FAIL : FP8Q_CHECK_WARN,
                             .limit = "index, headers and files agree",
                             .n_looked_at = report->ckpt->n_tensors};
    for (size_t i = 0; warnings && i < warnings->count; i++)
        for (size_t k = 0; k < sizeof(serious) / sizeof(*serious); k++)
            if (strcmp(warnings->items[i].id, serious[k]) == 0)
                fp8q_finding_add(&f, i, report->ckpt->path, "%s", warnings->items[i].message);
    return report_one(report, &f, err);
}

int fp8q_verify_structure(struct fp8q_verify_report *report, const struct fp8q_verify_options *o,
                          struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    (void)o;
    FP8Q_TRY(check_opening(report, warnings, err));
    FP8Q_TRY(check_pairs(report, err));
    FP8Q_TRY(check_config(report, err));
    if (!report->ours)
        return FP8Q_OK;
    FP8Q_TRY(check_headers(report, err));
    FP8Q_TRY(check_tensor_set(report, err));
    return check_file_crcs(report, err);
}
