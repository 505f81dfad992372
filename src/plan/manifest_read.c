/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest_read.c - finds the manifest of an output, and checks it before anything in it counts.
 *
 * A conversion leaves exactly one: four entries in the metadata of one shard (the sidecar), or in a
 * file of its own.  So a second one means that files of two runs were mixed, and one of the four
 * alone that somebody took the others away: neither is "a checkpoint of another tool".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"
#include "format/names.h"
#include "plan/manifest.h"

bool fp8q_parse_crc(const char *text, uint32_t *crc_out)
{
    *crc_out = 0;
    if (!text || strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return false;

    *crc_out = (uint32_t)strtoul(text, NULL, 16);
    return true;
}

/* ---- the four texts -------------------------------------------------------------------------- */

/* Wherever they stand.  */
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
            crc = fp8q_crc32(crc, FP8Q_NO_CRC, 8);
            return fp8q_crc32(crc, text + i + n + 8, len - i - n - 8);
        }
    return 0;
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

    /* Minor versions only add; another major one may mean something else by the same words.  */
    unsigned long major = strtoul(f->version, &end, 10);
    if (end == f->version || *end != '.' || major != FP8Q_SIDECAR_MAJOR)
        return fp8q_fail(err, FP8Q_E_MISMATCH, "sidecar-version",
                         "%s: sidecar version %.40s, this fp8q reads %d.x", shown.text, f->version,
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

/* ---- the text -------------------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct fp8q_manifest_entry *)a)->name,
                  ((const struct fp8q_manifest_entry *)b)->name);
}

/* What a check would silently do without is no manifest of this version.  */
static int check_members(const struct fp8q_json *json, const char *where, struct fp8q_error *err)
{
    static const char *const objects[] = {"request", "headers", "files", "tensors"};
    static const char *const crcs[] = {"fingerprint", "source.fingerprint"};
    const char *method = fp8q_json_string(fp8q_json_path(json, "rounding.method"), "");
    const char *lacks = NULL;
    uint32_t crc;

    for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++)
        if (!fp8q_json_is_object(fp8q_json_get(json, objects[i])))
            lacks = objects[i];
    for (size_t i = 0; i < sizeof(crcs) / sizeof(*crcs); i++)
        if (!fp8q_parse_crc(fp8q_json_string(fp8q_json_path(json, crcs[i]), NULL), &crc))
            lacks = crcs[i];
    if (strcmp(method, "nearest-even") != 0 && strcmp(method, "error-compensated") != 0)
        lacks = "rounding.method";

    if (!lacks)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_MISMATCH, "manifest-member",
                     "%s: the manifest has no \"%s\" that this fp8q understands", where, lacks);
}

static int parse_manifest(const struct found *f, struct fp8q_manifest *m, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    FP8Q_TRY(fp8q_json_parse(f->manifest, f->manifest_len, 0, f->where, &m->json, err));
    FP8Q_TRY(check_members(m->json, fp8q_show(&shown, f->where), err));
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
                             "%s: an entry of the manifest cannot be read", shown.text);
    }

    /* Sorted for fp8q_manifest_crc(), which verify asks for every tensor.  */
    qsort(m->tensors, m->n_tensors, sizeof(*m->tensors), compare_entries);
    return FP8Q_OK;
}

static int take(const struct found *f, struct fp8q_manifest *m, struct fp8q_error *err)
{
    FP8Q_TRY(check_found(f, err));
    return parse_manifest(f, m, err);
}

/* ---- where it stands ------------------------------------------------------------------------- */

static const char *pair_value(const struct fp8q_st_header *h, const char *key, size_t *len_out)
{
    for (size_t i = 0; i < h->n_metadata; i++)
        if (strcmp(h->metadata[i].key, key) == 0) {
            *len_out = h->metadata[i].value_len;
            return h->metadata[i].value;
        }
    return NULL;
}

static bool has_entry(const struct fp8q_shard *s)
{
    for (size_t i = 0; i < s->header.n_metadata; i++)
        /* Any entry of ours: a header that has lost one of them must not count as foreign.  */
        if (strncmp(s->header.metadata[i].key, "fp8q.", 5) == 0)
            return true;
    return false;
}

static int read_bytes(const char *path, size_t len, char *bytes, struct fp8q_error *err)
{
    int fd;
    FP8Q_TRY(fp8q_open_read(path, NULL, &fd, err));
    int status = fp8q_pread(fd, bytes, len, 0, path, err);
    (void)fp8q_close(&fd, path, NULL);
    return status;
}

/* The header as it stands in the file, since its texts in @s are decoded.  */
static int crc_of_header(const struct fp8q_shard *s, char *text, uint32_t *crc_out,
                         struct fp8q_error *err)
{
    size_t size = (size_t)s->header.data_start;
    FP8Q_TRY(read_bytes(s->path, size, text, err));
    *crc_out = unsealed_crc(text, size, "\"" FP8Q_KEY_HEADER_CRC "\":\"");
    return FP8Q_OK;
}

static int read_from_shard(const struct fp8q_shard *s, struct fp8q_manifest *m,
                           struct fp8q_error *err)
{
    size_t len;
    struct found f = {.where = s->path,
                      .version = pair_value(&s->header, FP8Q_KEY_VERSION, &len),
                      .manifest_crc = pair_value(&s->header, FP8Q_KEY_MANIFEST_CRC, &len),
                      .header_crc = pair_value(&s->header, FP8Q_KEY_HEADER_CRC, &len)};
    f.manifest = pair_value(&s->header, FP8Q_KEY_MANIFEST, &f.manifest_len);

    char *text = malloc((size_t)s->header.data_start);
    int status = text ? crc_of_header(s, text, &f.actual_crc, err) : fp8q_fail_nomem(err);
    free(text);
    FP8Q_TRY(status);
    return take(&f, m, err);
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

static int parse_file(const char *path, const char *text, size_t len, struct fp8q_manifest *m,
                      struct fp8q_error *err)
{
    struct fp8q_json *json;
    FP8Q_TRY(fp8q_json_parse(text, len, 0, path, &json, err));

    struct found f = {
        .where = path,
        .version = fp8q_json_string(fp8q_json_get(json, FP8Q_KEY_VERSION), NULL),
        .manifest = fp8q_json_string(fp8q_json_get(json, FP8Q_KEY_MANIFEST), NULL),
        .manifest_crc = fp8q_json_string(fp8q_json_get(json, FP8Q_KEY_MANIFEST_CRC), NULL),
        .header_crc = fp8q_json_string(fp8q_json_get(json, FP8Q_KEY_HEADER_CRC), NULL),
        .actual_crc = unsealed_crc(text, len, "\"" FP8Q_KEY_HEADER_CRC "\": \"")};
    f.manifest_len = f.manifest ? strlen(f.manifest) : 0;
    int status = take(&f, m, err);
    fp8q_json_free(json);
    return status;
}

static int read_from_file(const char *path, struct fp8q_manifest *m, struct fp8q_error *err)
{
    char *text;
    size_t len;
    FP8Q_TRY(fp8q_read_file(path, FP8Q_ST_MAX_HEADER, &text, &len, err));
    int status = parse_file(path, text, len, m, err);
    free(text);
    return status;
}

static int refuse_two(const char *first, const char *second, struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    return fp8q_fail(err, FP8Q_E_MISMATCH, "manifest-twice",
                     "\"%s\" and \"%s\" both hold a manifest: files of two conversions were mixed",
                     fp8q_show(&a, first), fp8q_show(&b, second));
}

/* @path: the file's, whether or not it is there.  */
static int find_and_read(const struct fp8q_ckpt *ckpt, const char *path, struct fp8q_manifest *m,
                         bool *found_out, struct fp8q_error *err)
{
    struct stat st;
    bool in_file;
    FP8Q_TRY(fp8q_lstat(path, &st, &in_file, err));
    *found_out = in_file;

    for (size_t i = 0; i < ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &ckpt->shards[i];
        if (!has_entry(s))
            continue;
        if (*found_out)
            return refuse_two(in_file ? path : ckpt->shards[m->shard].path, s->path, err);
        *found_out = true;
        m->shard = i;
    }

    if (in_file)
        return read_from_file(path, m, err);
    return *found_out ? read_from_shard(&ckpt->shards[m->shard], m, err) : FP8Q_OK;
}

int fp8q_manifest_read(const struct fp8q_ckpt *ckpt, struct fp8q_manifest *manifest_out,
                       bool *found_out, struct fp8q_error *err)
{
    *manifest_out = (struct fp8q_manifest){.shard = SIZE_MAX};
    *found_out = false;
    char *path = manifest_path(ckpt);
    if (!path)
        return fp8q_fail_nomem(err);

    int status = find_and_read(ckpt, path, manifest_out, found_out, err);
    free(path);
    if (status != FP8Q_OK)
        fp8q_manifest_reset(manifest_out);
    return status;
}

void fp8q_manifest_reset(struct fp8q_manifest *m)
{
    fp8q_request_reset(&m->request);
    free(m->tensors);
    fp8q_json_free(m->json);
    *m = (struct fp8q_manifest){.shard = SIZE_MAX};
}

bool fp8q_manifest_crc(const struct fp8q_manifest *m, const char *tensor, uint32_t *crc_out)
{
    struct fp8q_manifest_entry key = {.name = tensor};
    const struct fp8q_manifest_entry *e =
        bsearch(&key, m->tensors, m->n_tensors, sizeof(key), compare_entries);
    *crc_out = e ? e->crc32 : 0;
    return e != NULL;
}
