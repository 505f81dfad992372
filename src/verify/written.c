/* SPDX-License-Identifier: Apache-2.0
 *
 * written.c - everything but the payload is as the manifest says that it was written.
 */
#include "verify/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/path.h"
#include "format/names.h"

static const char *manifest_string(const struct fp8q_report *report, const char *path)
{
    return fp8q_json_string(fp8q_json_path(report->manifest.json, path), NULL);
}

/* ---- headers and tensors --------------------------------------------------------------------- */

/* The manifest's entry of a shard.  That of a single file was written under the file's first name.
 */
static const char *header_entry(const struct fp8q_json *headers, const struct fp8q_ckpt *ckpt,
                                const char *name)
{
    for (const struct fp8q_json *h = fp8q_json_first(headers); h; h = fp8q_json_next(h))
        if (!ckpt->is_dir || strcmp(fp8q_json_key(h), name) == 0)
            return fp8q_json_string(h, NULL);
    return NULL;
}

static int check_headers(struct fp8q_report *report, struct fp8q_error *err)
{
    struct fp8q_findings f = {
        .id = "header-crc", .status = FP8Q_CHECK_FAIL, .limit = "each shard's header as written"};
    const struct fp8q_json *headers = fp8q_json_get(report->manifest.json, "headers");
    const struct fp8q_ckpt *ckpt = report->ckpt;

    for (size_t i = 0; i < ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &ckpt->shards[i];
        uint32_t crc;
        if (i == report->manifest.shard)
            continue; /* states its own CRC, which was checked */

        f.n_looked_at++;
        if (!fp8q_parse_crc(header_entry(headers, ckpt, s->name), &crc))
            fp8q_findings_add(&f, i, s->name, "is not in the manifest");
        else if (crc != s->header.crc32)
            fp8q_findings_add(&f, i, s->name, "header CRC-32 %08x, expected %08x",
                              (unsigned)s->header.crc32, (unsigned)crc);
    }

    /* A shard that is gone was met nowhere above: the numbers tell.  */
    if (fp8q_json_count(headers) != f.n_looked_at)
        fp8q_findings_add(&f, ckpt->n_shards, ckpt->path, "%zu shard%s, the manifest has %zu",
                          (size_t)f.n_looked_at, fp8q_plural(f.n_looked_at),
                          fp8q_json_count(headers));
    return fp8q_report_add(report, &f, err);
}

static int check_tensor_set(struct fp8q_report *report, struct fp8q_error *err)
{
    struct fp8q_findings f = {.id = "tensor-set",
                              .status = FP8Q_CHECK_FAIL,
                              .limit = "exactly the tensors of the manifest"};
    const struct fp8q_manifest *m = &report->manifest;
    const struct fp8q_ckpt *ckpt = report->ckpt;
    uint32_t crc;

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        f.n_looked_at++;
        if (!fp8q_manifest_crc(m, ckpt->tensors[i].name, &crc))
            fp8q_findings_add(&f, i, ckpt->tensors[i].name, "is not in the manifest");
    }

    for (size_t i = 0; i < m->n_tensors; i++)
        if (!fp8q_ckpt_find(ckpt, m->tensors[i].name))
            fp8q_findings_add(&f, ckpt->n_tensors + i, m->tensors[i].name, "is missing");

    return fp8q_report_add(report, &f, err);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int check_index(struct fp8q_report *report, struct fp8q_error *err)
{
    struct fp8q_findings f = {.id = "index-crc",
                              .status = FP8Q_CHECK_FAIL,
                              .limit = "index as written",
                              .n_looked_at = 1};
    const struct fp8q_ckpt *ckpt = report->ckpt;
    const char *expected = manifest_string(report, "index_crc32");
    uint32_t crc, now = fp8q_crc32(0, ckpt->index_text, ckpt->index_len);

    /* One file alone has no index, and had none.  */
    if (!expected && !ckpt->index_text)
        return FP8Q_OK;

    if (!fp8q_parse_crc(expected, &crc) || !ckpt->index_text || now != crc)
        fp8q_findings_add(&f, 0, FP8Q_INDEX_NAME, "CRC-32 %08x, expected %s", (unsigned)now,
                          expected ? expected : "none");
    return fp8q_report_add(report, &f, err);
}

/* Engines read quantization_config: a change in it fails.  The rest of config.json is edited by
 * people for good reasons: a change there warns.  */
static int check_config_crcs(struct fp8q_report *report, struct fp8q_error *err)
{
    struct fp8q_findings quant = {.id = "quantization-config-crc",
                                  .status = FP8Q_CHECK_FAIL,
                                  .limit = "quantization_config as written",
                                  .n_looked_at = 1};
    struct fp8q_findings config = {.id = "config-crc",
                                   .status = FP8Q_CHECK_WARN,
                                   .limit = "config.json as written",
                                   .n_looked_at = 1};
    struct fp8q_findings *const all[] = {&quant, &config};
    const struct fp8q_ckpt *ckpt = report->ckpt;
    const char *whole = manifest_string(report, "config_crc32");
    const char *part = manifest_string(report, "quantization_config_crc32");
    uint32_t crc;
    int status;

    /* No config.json, then as now.  */
    if (!whole && !ckpt->config_text)
        return FP8Q_OK;

    if (!whole)
        fp8q_findings_add(&config, 0, FP8Q_CONFIG_NAME, "is not in the manifest: it was added");
    if (!whole || !ckpt->config_text) {
        if (!ckpt->config_text)
            fp8q_findings_add(&quant, 0, FP8Q_CONFIG_NAME, "is missing");
        return fp8q_report_add_all(report, FP8Q_OK, all, 2, err);
    }

    uint32_t now =
        fp8q_config_crc32(fp8q_json_get(ckpt->config, "quantization_config"), err, &status);
    FP8Q_TRY(status);
    if (!fp8q_parse_crc(part, &crc) || now != crc)
        fp8q_findings_add(&quant, 0, FP8Q_CONFIG_NAME, "quantization_config was changed");

    /* A change in quantization_config is one in the text too, and was said.  */
    now = fp8q_crc32(0, ckpt->config_text, ckpt->config_len);
    if (quant.n_found == 0 && (!fp8q_parse_crc(whole, &crc) || now != crc))
        fp8q_findings_add(&config, 0, FP8Q_CONFIG_NAME, "was changed outside quantization_config");
    return fp8q_report_add_all(report, FP8Q_OK, all, 2, err);
}

/* @name, a file of the manifest that should have the CRC-32 @expected.  */
static int check_file(struct fp8q_findings *f, const struct fp8q_ckpt *ckpt, const char *name,
                      const char *expected, struct fp8q_error *err)
{
    uint64_t rank = f->n_looked_at++;

    /* Names in a manifest are data from a file: none may lead out of the directory.  */
    if (!name || !fp8q_stays_inside(name)) {
        fp8q_findings_add(f, rank, "manifest", "names a file outside the directory");
        return FP8Q_OK;
    }

    bool there;
    struct stat st;
    uint32_t crc, now = 0;
    char *path = fp8q_join(ckpt->dir, name);
    if (!path)
        return fp8q_fail_nomem(err);

    int status = fp8q_stat(path, &st, &there, err);
    if (status == FP8Q_OK && there && S_ISREG(st.st_mode))
        status = fp8q_file_crc32(path, &now, err);
    free(path);
    FP8Q_TRY(status);

    if (!there)
        fp8q_findings_add(f, rank, name, "is missing");
    else if (!S_ISREG(st.st_mode))
        fp8q_findings_add(f, rank, name, "is no regular file");
    else if (!fp8q_parse_crc(expected, &crc) || now != crc)
        fp8q_findings_add(f, rank, name, "CRC-32 %08x, expected %08x", (unsigned)now,
                          (unsigned)crc);
    return FP8Q_OK;
}

static int check_files(struct fp8q_report *report, struct fp8q_error *err)
{
    struct fp8q_findings f = {
        .id = "file-crc", .status = FP8Q_CHECK_FAIL, .limit = "copied files as written"};
    struct fp8q_findings *const all[] = {&f};
    const struct fp8q_json *files = fp8q_json_get(report->manifest.json, "files");
    int status = FP8Q_OK;

    for (const struct fp8q_json *i = fp8q_json_first(files); i && !status; i = fp8q_json_next(i))
        status = check_file(&f, report->ckpt, fp8q_json_key(i), fp8q_json_string(i, NULL), err);
    return fp8q_report_add_all(report, status, all, 1, err);
}

/* ---- files that were added ------------------------------------------------------------------- */

/* By its name, something that a loader may take for a part of the model.  */
static bool misleads(const char *name)
{
    static const char *const endings[] = {".bin", ".pt",      ".pth",        ".gguf",
                                          ".h5",  ".msgpack", ".index.json", ".py"};
    static const char *const names[] = {"adapter_config.json",      "hf_quant_config.json",
                                        "quantization_config.json", "quant_config.json",
                                        "quantize_config.json",     "recipe.yaml",
                                        FP8Q_MANIFEST_NAME,         "quant_model_description.json"};

    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
        if (fp8q_ends_with(name, endings[i]))
            return true;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Other weights, adapters, a second quantization config: nobody reads them now, but loaders look
 * for them by name.  */
static int check_added(struct fp8q_report *report, struct fp8q_error *err)
{
    struct fp8q_findings f = {.id = "files-added",
                              .status = FP8Q_CHECK_WARN,
                              .limit = "no file that a loader may take beside those written"};
    const struct fp8q_json *files = fp8q_json_get(report->manifest.json, "files");
    const struct fp8q_ckpt *ckpt = report->ckpt;

    for (size_t i = 0; ckpt->is_dir && i < ckpt->n_other_files; i++) {
        const char *name = ckpt->other_files[i];
        /* The manifest is a file of its own where no shard carries it, and does not name
         * itself.  */
        bool is_manifest =
            report->manifest.shard == SIZE_MAX && strcmp(name, FP8Q_MANIFEST_NAME) == 0;

        f.n_looked_at++;
        if (misleads(name) && !is_manifest && !fp8q_json_get(files, name))
            fp8q_findings_add(&f, i, name, "is not in the manifest: it was added");
    }

    return fp8q_report_add(report, &f, err);
}

int fp8q_verify_written(struct fp8q_report *report, struct fp8q_error *err)
{
    FP8Q_TRY(check_headers(report, err));
    FP8Q_TRY(check_tensor_set(report, err));
    FP8Q_TRY(check_index(report, err));
    FP8Q_TRY(check_config_crcs(report, err));
    FP8Q_TRY(check_files(report, err));
    return check_added(report, err);
}
