/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.c - writes the manifest.
 */
#include "plan/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "plan/internal.h"
#include "base/mem.h"

static void write_crc(struct fp8q_jsonw *w, const char *key, uint32_t crc)
{
    char text[16];
    snprintf(text, sizeof(text), "%08x", (unsigned)crc);
    fp8q_jsonw_string(w, key, text);
}

/* ---- canonical quantization_config ----------------------------------------------------------- */

static int compare_members(const void *a, const void *b)
{
    return strcmp(fp8q_json_key(*(const struct fp8q_json *const *)a),
                  fp8q_json_key(*(const struct fp8q_json *const *)b));
}

/* Depth is that of a document that passed the JSON gate: at most 128.  */
static void write_canonical(struct fp8q_jsonw *w, const char *key, const struct fp8q_json *v)
{
    bool is_object = fp8q_json_is_object(v);
    const char *text = fp8q_json_string(v, NULL);
    if (is_object || fp8q_json_is_array(v)) {
        size_t n = 0, count = fp8q_json_count(v);
        const struct fp8q_json **items = fp8q_array(count, sizeof(*items));
        if (!items) {
            w->text.failed = true;
            return;
        }
        for (const struct fp8q_json *i = fp8q_json_first(v); i; i = fp8q_json_next(i))
            items[n++] = i;

        /* Members by name: their order in the file says nothing.  */
        if (is_object)
            qsort(items, n, sizeof(*items), compare_members);

        fp8q_jsonw_open(w, key, is_object ? '{' : '[');
        for (size_t i = 0; i < n; i++)
            write_canonical(w, is_object ? fp8q_json_key(items[i]) : NULL, items[i]);
        fp8q_jsonw_close(w, is_object ? '}' : ']');
        free(items);
    } else if (text) {
        fp8q_jsonw_string(w, key, text);
    } else if (fp8q_json_is_null(v)) {
        fp8q_jsonw_raw(w, key, "null");
    } else if (fp8q_json_bool(v, true) == fp8q_json_bool(v, false)) {
        fp8q_jsonw_bool(w, key, fp8q_json_bool(v, false));
    } else {
        fp8q_jsonw_number(w, key, fp8q_json_number(v, 0));
    }
}

uint32_t fp8q_config_crc32(const struct fp8q_json *value, struct fp8q_error *err, int *status_out)
{
    struct fp8q_jsonw w = {.indent = 0};
    write_canonical(&w, NULL, value);
    *status_out = fp8q_text_status(&w.text, err);
    uint32_t crc = *status_out == FP8Q_OK ? fp8q_crc32(0, w.text.data, w.text.len) : 0;
    fp8q_text_reset(&w.text);
    return crc;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_config_crcs(const struct fp8q_plan *plan, struct fp8q_jsonw *w,
                             struct fp8q_error *err)
{
    struct fp8q_json *quant;
    int status;
    if (!plan->config_text || !plan->quant_config)
        return FP8Q_OK;

    /* Two sums: of the file's bytes, and of what it says about the quantization, which survives a
     * change elsewhere in config.json.  */
    FP8Q_TRY(fp8q_json_parse(plan->quant_config, strlen(plan->quant_config), 0,
                             "quantization_config", &quant, err));
    uint32_t crc = fp8q_config_crc32(quant, err, &status);
    fp8q_json_free(quant);
    FP8Q_TRY(status);

    write_crc(w, "config_crc32", fp8q_crc32(0, plan->config_text, strlen(plan->config_text)));
    write_crc(w, "quantization_config_crc32", crc);
    return FP8Q_OK;
}

static int manifest_text(const struct fp8q_plan *plan, const struct fp8q_manifest_facts *facts,
                         struct fp8q_jsonw *w, struct fp8q_error *err)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "fp8q", FP8Q_VERSION);
    fp8q_request_write(facts->request, "request", w);
    fp8q_jsonw_raw(w, "block_size", "[128, 128]");
    fp8q_jsonw_string(w, "scale_fmt",
                      plan->options.scale_fmt == FP8Q_SCALE_UE8M0 ? "ue8m0" : "f32");
    fp8q_jsonw_string(w, "scale_meaning", "weight = code * scale");
    fp8q_jsonw_raw(w, "rounding", facts->rounding);
    if (facts->has_evidence)
        write_crc(w, "evidence_crc32", facts->evidence_crc32);

    /* The source: what --resume and `gate` compare.  */
    fp8q_jsonw_open(w, "source", '{');
    fp8q_jsonw_string(w, "path", plan->ckpt->path);
    write_crc(w, "fingerprint", facts->source_fingerprint);
    write_crc(w, "files_crc32", fp8q_source_crc32(plan->ckpt)); /* tells a request done already */
    fp8q_jsonw_close(w, '}');

    /* Every byte of the output has its checksum in one of these.  */
    write_crc(w, "fingerprint", facts->output_fingerprint);
    FP8Q_TRY(write_config_crcs(plan, w, err));
    if (plan->index_text)
        write_crc(w, "index_crc32", fp8q_crc32(0, plan->index_text, strlen(plan->index_text)));

    fp8q_jsonw_open(w, "headers", '{');
    for (size_t i = 0; i < plan->n_shards; i++)
        if (i != plan->sidecar)
            write_crc(w, plan->shards[i].name, plan->shards[i].header_crc32);
    fp8q_jsonw_close(w, '}');

    fp8q_jsonw_open(w, "files", '{');
    for (size_t i = 0; i < facts->n_side_files; i++)
        write_crc(w, facts->side_files[i].name, facts->side_files[i].crc32);
    if (plan->hf_quant_text)
        write_crc(w, FP8Q_HF_QUANT_NAME,
                  fp8q_crc32(0, plan->hf_quant_text, strlen(plan->hf_quant_text)));
    fp8q_jsonw_close(w, '}');

    fp8q_jsonw_open(w, "tensors", '{');
    for (size_t i = 0; i < plan->n_tensors; i++)
        write_crc(w, plan->tensors[plan->by_name[i]].name,
                  facts->results->output_crc[plan->by_name[i]]);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_close(w, '}');
    return fp8q_text_status(&w->text, err);
}

/* Puts the CRC of the whole text into its own place, where zeros stand.  */
static void seal(struct fp8q_text *text, const char *before)
{
    char digits[16];
    /* Within the manifest's own text quotes are escaped, so the first match is the entry.  */
    char *place = (char *)memmem(text->data, text->len, before, strlen(before)) + strlen(before);
    snprintf(digits, sizeof(digits), "%08x", (unsigned)fp8q_crc32(0, text->data, text->len));
    memcpy(place, digits, 8);
}

/* Keys in the order of names; zeros stand for the header's own CRC until seal().  */
static int emit_sidecar(const struct fp8q_st_tensor *entries, size_t n,
                        const struct fp8q_text *manifest, struct fp8q_text *out,
                        struct fp8q_error *err)
{
    char crc[16], version[32];

    snprintf(crc, sizeof(crc), "%08x", (unsigned)fp8q_crc32(0, manifest->data, manifest->len));
    int len = snprintf(version, sizeof(version), "%d.%d", FP8Q_SIDECAR_MAJOR, FP8Q_SIDECAR_MINOR);
    const struct fp8q_st_pair pairs[] = {
        {"format", "pt", 6, 2},
        {FP8Q_KEY_HEADER_CRC, FP8Q_NO_CRC, sizeof(FP8Q_KEY_HEADER_CRC) - 1, 8},
        {FP8Q_KEY_MANIFEST, manifest->data, sizeof(FP8Q_KEY_MANIFEST) - 1, manifest->len},
        {FP8Q_KEY_MANIFEST_CRC, crc, sizeof(FP8Q_KEY_MANIFEST_CRC) - 1, 8},
        {FP8Q_KEY_VERSION, version, sizeof(FP8Q_KEY_VERSION) - 1, (size_t)len}};
    FP8Q_TRY(fp8q_st_emit(entries, n, pairs, 5, 0, out, err));

    seal(out, "\"" FP8Q_KEY_HEADER_CRC "\":\"");
    return FP8Q_OK;
}

static int sidecar_header(const struct fp8q_plan *plan, const struct fp8q_text *manifest,
                          struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_st_tensor *entries = fp8q_shard_entries(plan, plan->sidecar);
    size_t n = plan->shards[plan->sidecar].n_tensors;
    int status = entries ? emit_sidecar(entries, n, manifest, out, err) : fp8q_fail_nomem(err);
    free(entries);
    return status;
}

/* The same four entries as in a sidecar, for outputs that have none.  */
static int manifest_file(const struct fp8q_text *manifest, struct fp8q_text *out,
                         struct fp8q_error *err)
{
    struct fp8q_jsonw file = {.indent = 1};
    char version[32];

    snprintf(version, sizeof(version), "%d.%d", FP8Q_SIDECAR_MAJOR, FP8Q_SIDECAR_MINOR);
    fp8q_jsonw_open(&file, NULL, '{');
    fp8q_jsonw_string(&file, FP8Q_KEY_HEADER_CRC, FP8Q_NO_CRC);
    fp8q_jsonw_string(&file, FP8Q_KEY_MANIFEST, manifest->data);
    write_crc(&file, FP8Q_KEY_MANIFEST_CRC, fp8q_crc32(0, manifest->data, manifest->len));
    fp8q_jsonw_string(&file, FP8Q_KEY_VERSION, version);
    fp8q_jsonw_close(&file, '}');
    fp8q_text_puts(&file.text, "\n");

    *out = file.text;
    FP8Q_TRY(fp8q_text_status(out, err));
    seal(out, "\"" FP8Q_KEY_HEADER_CRC "\": \"");
    return FP8Q_OK;
}

static int write_form(const struct fp8q_plan *plan, const struct fp8q_manifest_facts *facts,
                      bool in_sidecar, struct fp8q_jsonw *w, struct fp8q_text *out,
                      struct fp8q_error *err)
{
    FP8Q_TRY(manifest_text(plan, facts, w, err));
    return in_sidecar ? sidecar_header(plan, &w->text, out, err)
                      : manifest_file(&w->text, out, err);
}

/* What both forms share: the text of the manifest, and nothing in @out after a failure.  */
static int make_text(const struct fp8q_plan *plan, const struct fp8q_manifest_facts *facts,
                     bool in_sidecar, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 0};
    *out = (struct fp8q_text){0};

    int status = write_form(plan, facts, in_sidecar, &w, out, err);
    if (status != FP8Q_OK)
        fp8q_text_reset(out);
    fp8q_text_reset(&w.text);
    return status;
}

int fp8q_manifest_sidecar_header(const struct fp8q_plan *plan,
                                 const struct fp8q_manifest_facts *facts, struct fp8q_text *out,
                                 struct fp8q_error *err)
{
    return make_text(plan, facts, true, out, err);
}

int fp8q_manifest_file(const struct fp8q_plan *plan, const struct fp8q_manifest_facts *facts,
                       struct fp8q_text *out, struct fp8q_error *err)
{
    return make_text(plan, facts, false, out, err);
}

int fp8q_results_create(const struct fp8q_plan *plan, struct fp8q_results *results_out,
                        struct fp8q_error *err)
{
    results_out->output_crc = fp8q_array(plan->n_tensors, sizeof(uint32_t));
    results_out->source_crc = fp8q_array(plan->ckpt->n_tensors, sizeof(uint32_t));
    if (results_out->output_crc && results_out->source_crc)
        return FP8Q_OK;
    fp8q_results_reset(results_out);
    return fp8q_fail_nomem(err);
}

void fp8q_results_reset(struct fp8q_results *results)
{
    free(results->output_crc);
    free(results->source_crc);
    *results = (struct fp8q_results){0};
}
