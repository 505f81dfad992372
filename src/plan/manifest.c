/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.c - writes and reads the manifest.
 */
#include "plan/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/crc.h"
#include "plan/internal.h"
#include "format/names.h"
#include "base/mem.h"

#define HEADER_CRC_KEY "fp8q.header_crc32"
#define NO_CRC "00000000"

static void write_crc(struct fp8q_jsonw *w, const char *key, uint32_t crc)
{
    char text[16];
    snprintf(text, sizeof(text), "%08x", (unsigned)crc);
    fp8q_jsonw_string(w, key, text);
}

bool fp8q_parse_crc(const char *text, uint32_t *crc_out)
{
    *crc_out = 0;
    if (!text || strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return false;
    *crc_out = (uint32_t)strtoul(text, NULL, 16);
    return true;
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
    fp8q_jsonw_open(w, "source", '{');
    fp8q_jsonw_string(w, "path", plan->ckpt->path);
    write_crc(w, "fingerprint", facts->source_fingerprint);
    write_crc(w, "files_crc32", fp8q_source_crc32(plan->ckpt)); /* tells a request done already */
    fp8q_jsonw_close(w, '}');
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

int fp8q_manifest_sidecar_header(const struct fp8q_plan *plan,
                                 const struct fp8q_manifest_facts *facts, struct fp8q_text *out,
                                 struct fp8q_error *err)
{
    const struct fp8q_out_shard *s = &plan->shards[plan->sidecar];
    struct fp8q_jsonw w = {.indent = 0};
    char crc[16], version[32];
    struct fp8q_st_tensor *entries = fp8q_shard_entries(plan, plan->sidecar);
    int status = entries ? manifest_text(plan, facts, &w, err) : fp8q_fail_nomem(err);
    if (status == FP8Q_OK) {
        snprintf(crc, sizeof(crc), "%08x", (unsigned)fp8q_crc32(0, w.text.data, w.text.len));
        int n = snprintf(version, sizeof(version), "%d.%d", FP8Q_SIDECAR_MAJOR, FP8Q_SIDECAR_MINOR);
        const struct fp8q_st_pair pairs[] = {
            {"format", "pt", 6, 2},
            {HEADER_CRC_KEY, NO_CRC, sizeof(HEADER_CRC_KEY) - 1, 8},
            {"fp8q.manifest", w.text.data, 13, w.text.len},
            {"fp8q.manifest_crc32", crc, 19, 8},
            {"fp8q.sidecar_version", version, 20, (size_t)n}};
        status = fp8q_st_emit(entries, s->n_tensors, pairs, 5, 0, out, err);
    }
    if (status == FP8Q_OK)
        seal(out, "\"" HEADER_CRC_KEY "\":\"");
    fp8q_text_reset(&w.text);
    free(entries);
    return status;
}

int fp8q_manifest_file(const struct fp8q_plan *plan, const struct fp8q_manifest_facts *facts,
                       struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 0}, file = {.indent = 1};
    char version[32];
    int status = manifest_text(plan, facts, &w, err);
    if (status == FP8Q_OK) {
        snprintf(version, sizeof(version), "%d.%d", FP8Q_SIDECAR_MAJOR, FP8Q_SIDECAR_MINOR);
        fp8q_jsonw_open(&file, NULL, '{');
        fp8q_jsonw_string(&file, HEADER_CRC_KEY, NO_CRC);
        fp8q_jsonw_string(&file, "fp8q.manifest", w.text.data);
        write_crc(&file, "fp8q.manifest_crc32", fp8q_crc32(0, w.text.data, w.text.len));
        fp8q_jsonw_string(&file, "fp8q.sidecar_version", version);
        fp8q_jsonw_close(&file, '}');
        fp8q_text_puts(&file.text, "\n");
        status = fp8q_text_status(&file.text, err);
    }
    if (status == FP8Q_OK) {
        seal(&file.text, "\"" HEADER_CRC_KEY "\": \"");
        *out = file.text;
        file.text = (struct fp8q_text){0};
    }
    fp8q_text_reset(&w.text);
    fp8q_text_reset(&file.text);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The four texts, wherever they stand.  */
struct found {
    const char *header_crc, *manifest, *manifest_crc, *version;
    size_t manifest_len;
    const char *where;
    uint32_t actual_crc; /* of the header or file with zeros for its own CRC */
};

/* CRC of @text with the eight digits after @before taken as zeros.  */
static uint32_t unsealed_crc(const char *text, size_t len, const char *before)
{
    size_t n = strlen(before);
    for (size_t i = 0; i + n + 8 <= len; i++)
        if (text[i] == '"' && memcmp(text + i, before, n) == 0) {
            uint32_t crc = fp8q_crc32(0, text, i + n);
            crc = fp8q_crc32(crc, NO_CRC, 8);
            return fp8q_crc32(crc, text + i + n + 8, len - i - n - 8);
        }
    return 0;
}

static const char *pair_value(const struct fp8q_st_header *h, const char *key, size_t *len_out)
{
    for (size_t i = 0; i < h->n_metadata; i++)
        if (strcmp(h->metadata[i].key, key) == 0) {
            *len_out = h->metadata[i].value_len;
            return h->metadata[i].value;
        }
    return NULL;
}

static int find_in_shard(const struct fp8q_shard *s, struct found *f, bool *found_out,
                         struct fp8q_error *err)
{
    size_t len;
    int fd;
    f->version = pair_value(&s->header, "fp8q.sidecar_version", &len);
    f->manifest = pair_value(&s->header, "fp8q.manifest", &f->manifest_len);
    f->manifest_crc = pair_value(&s->header, "fp8q.manifest_crc32", &len);
    f->header_crc = pair_value(&s->header, HEADER_CRC_KEY, &len);
    *found_out = f->version || f->manifest;
    if (!*found_out)
        return FP8Q_OK;
    f->where = s->path;
    char *text = malloc((size_t)s->header.data_start);
    if (!text)
        return fp8q_fail_nomem(err);
    int status = fp8q_open_read(s->path, NULL, &fd, err);
    if (status == FP8Q_OK)
        status = fp8q_pread(fd, text, (size_t)s->header.data_start, 0, s->path, err);
    if (status == FP8Q_OK)
        f->actual_crc =
            unsealed_crc(text, (size_t)s->header.data_start, "\"" HEADER_CRC_KEY "\":\"");
    (void)fp8q_close(&fd, s->path, NULL);
    free(text);
    return status;
}

static int check_found(const struct found *f, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    uint32_t crc;
    char *end;
    fp8q_show(&shown, f->where);
    if (!f->version || !f->manifest || !f->manifest_crc || !f->header_crc)
        return fp8q_fail(err, FP8Q_E_MISMATCH, "manifest-incomplete",
                         "%s: the manifest lacks one of its four entries", shown.text);
    unsigned long major = strtoul(f->version, &end, 10);
    if (end == f->version || *end != '.' || major != FP8Q_SIDECAR_MAJOR)
        return fp8q_fail(err, FP8Q_E_MISMATCH, "sidecar-version",
                         "%s: sidecar version %s, this fp8q reads %d.x", shown.text, f->version,
                         FP8Q_SIDECAR_MAJOR);
    if (!fp8q_parse_crc(f->manifest_crc, &crc) ||
        crc != fp8q_crc32(0, f->manifest, f->manifest_len))
        return fp8q_fail(err, FP8Q_E_MISMATCH, "manifest-crc",
                         "%s: the manifest's CRC-32 is not the one that stands beside it",
                         shown.text);
    if (!fp8q_parse_crc(f->header_crc, &crc) || crc != f->actual_crc)
        return fp8q_fail(err, FP8Q_E_MISMATCH, "manifest-header-crc",
                         "%s: the header's CRC-32 is not the one that it states", shown.text);
    return FP8Q_OK;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct fp8q_manifest_entry *)a)->name,
                  ((const struct fp8q_manifest_entry *)b)->name);
}

static int parse_manifest(const struct found *f, struct fp8q_manifest *m, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_json_parse(f->manifest, f->manifest_len, 0, f->where, &m->json, err));
    FP8Q_TRY(fp8q_request_parse(fp8q_json_get(m->json, "request"), &m->request, err));
    const struct fp8q_json *tensors = fp8q_json_get(m->json, "tensors");
    m->tensors = fp8q_array(fp8q_json_count(tensors), sizeof(*m->tensors));
    if (!m->tensors)
        return fp8q_fail_nomem(err);
    for (const struct fp8q_json *t = fp8q_json_first(tensors); t; t = fp8q_json_next(t)) {
        struct fp8q_manifest_entry *e = &m->tensors[m->n_tensors++];
        e->name = fp8q_json_key(t);
        if (!e->name || !fp8q_parse_crc(fp8q_json_string(t, NULL), &e->crc32))
            return fp8q_fail(err, FP8Q_E_MISMATCH, "manifest-entry",
                             "%s: an entry of the manifest cannot be read", f->where);
    }
    qsort(m->tensors, m->n_tensors, sizeof(*m->tensors), compare_entries);
    return FP8Q_OK;
}

/* The manifest as a file: in the directory, or beside the weights file.  */
static char *manifest_path(const struct fp8q_ckpt *ckpt)
{
    if (ckpt->is_dir)
        return fp8q_join(ckpt->dir, FP8Q_MANIFEST_NAME);
    size_t len = fp8q_weights_stem(ckpt->path);
    char *path = malloc(len + sizeof(FP8Q_MANIFEST_ENDING));
    if (path) {
        memcpy(path, ckpt->path, len);
        strcpy(path + len, FP8Q_MANIFEST_ENDING);
    }
    return path;
}

static int read_file(const struct fp8q_ckpt *ckpt, struct fp8q_manifest *m, bool *found_out,
                     struct fp8q_error *err)
{
    struct stat st;
    struct found f = {0};
    struct fp8q_json *json = NULL;
    char *text = NULL, *path = manifest_path(ckpt);
    size_t len = 0;
    *found_out = false;
    if (!path)
        return fp8q_fail_nomem(err);
    int status = fp8q_lstat(path, &st, found_out, err);
    if (status == FP8Q_OK && *found_out) {
        status = fp8q_read_file(path, FP8Q_ST_MAX_HEADER, &text, &len, err);
        if (status == FP8Q_OK)
            status = fp8q_json_parse(text, len, 0, path, &json, err);
        f.where = path;
        f.version = fp8q_json_string(fp8q_json_get(json, "fp8q.sidecar_version"), NULL);
        f.manifest = fp8q_json_string(fp8q_json_get(json, "fp8q.manifest"), NULL);
        f.manifest_len = f.manifest ? strlen(f.manifest) : 0;
        f.manifest_crc = fp8q_json_string(fp8q_json_get(json, "fp8q.manifest_crc32"), NULL);
        f.header_crc = fp8q_json_string(fp8q_json_get(json, HEADER_CRC_KEY), NULL);
        f.actual_crc = text ? unsealed_crc(text, len, "\"" HEADER_CRC_KEY "\": \"") : 0;
        if (status == FP8Q_OK)
            status = check_found(&f, err);
        if (status == FP8Q_OK)
            status = parse_manifest(&f, m, err);
    }
    fp8q_json_free(json);
    free(text);
    free(path);
    return status;
}

int fp8q_manifest_read(const struct fp8q_ckpt *ckpt, struct fp8q_manifest *manifest_out,
                       bool *found_out, struct fp8q_error *err)
{
    *manifest_out = (struct fp8q_manifest){0};
    *found_out = false;
    int status = FP8Q_OK;
    for (size_t i = 0; i < ckpt->n_shards && !*found_out && status == FP8Q_OK; i++) {
        struct found f = {0};
        status = find_in_shard(&ckpt->shards[i], &f, found_out, err);
        if (status == FP8Q_OK && *found_out)
            status = check_found(&f, err);
        if (status == FP8Q_OK && *found_out)
            status = parse_manifest(&f, manifest_out, err);
    }
    if (status == FP8Q_OK && !*found_out)
        status = read_file(ckpt, manifest_out, found_out, err);
    if (status != FP8Q_OK)
        fp8q_manifest_reset(manifest_out);
    return status;
}

void fp8q_manifest_reset(struct fp8q_manifest *m)
{
    fp8q_request_reset(&m->request);
    free(m->tensors);
    fp8q_json_free(m->json);
    *m = (struct fp8q_manifest){0};
}

bool fp8q_manifest_crc(const struct fp8q_manifest *m, const char *tensor, uint32_t *crc_out)
{
    struct fp8q_manifest_entry key = {.name = tensor};
    const struct fp8q_manifest_entry *e =
        bsearch(&key, m->tensors, m->n_tensors, sizeof(key), compare_entries);
    *crc_out = e ? e->crc32 : 0;
    return e != NULL;
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
