/* SPDX-License-Identifier: Apache-2.0
 *
 * imatrix.c - llama.cpp importance matrices as calibration files.
 *
 * GGUF (version 2 and 3): key/value pairs are skipped, F32 tensors `NAME.in_sum2` [K, 1],
 * `NAME.counts` [1, 1] and `NAME.in_sum` [K, 1] are read.  The older .dat: per entry a name, a
 * number of calls, and the mean square times that number. Stacked experts (more than one matrix)
 * are left out: there is no site for them here.
 */
#include "calibration/calib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/path.h"
#include "base/mem.h"

#define MAX_FILE ((uint64_t)1 << 31)

/* Bytes of a file with a cursor; every read is checked.  Little-endian, as the format is.  */
struct bytes {
    const char *path;
    const uint8_t *data;
    size_t len, at;
    bool failed;
};

static const uint8_t *take(struct bytes *b, uint64_t n)
{
    if (b->failed || n > b->len - b->at) {
        b->failed = true;
        return NULL;
    }
    const uint8_t *p = b->data + b->at;
    b->at += (size_t)n;
    return p;
}

static uint64_t take_uint(struct bytes *b, unsigned size)
{
    const uint8_t *p = take(b, size);
    uint64_t value = 0;
    for (unsigned i = 0; p && i < size; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static float float_at(const uint8_t *p)
{
    uint32_t bits =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* ---- the sites being built ------------------------------------------------------------------- */

struct entry {
    const uint8_t *sumsq, *sum; /* little-endian F32 in the file; @sum may be NULL */
    uint64_t width;
    double count;
};

struct import {
    struct fp8q_calib calib;
    struct entry *entries; /* by site */
    size_t cap_sites, cap_entries;
};

/* "blk.3.attn_k.weight" -> "model.layers.3.self_attn.q_proj"; false for what is no linear of a
 * decoder.  */
static bool site_name(const char *name, size_t len, char *out, size_t size)
{
    static const char *const map[][2] = {
        {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.q_proj"},
        {"attn_v", "self_attn.q_proj"}, {"attn_output", "self_attn.o_proj"},
        {"ffn_gate", "mlp.gate_proj"},  {"ffn_up", "mlp.gate_proj"},
        {"ffn_down", "mlp.down_proj"},
    };
    char text[96], kind[64];
    unsigned layer;
    int end = 0;

    if (len >= sizeof(text))
        return false;

    memcpy(text, name, len);
    text[len] = 0;
    /* The end is checked too: "weight.more" is another tensor.  */
    if (sscanf(text, "blk.%5u.%63[a-z_].weight%n", &layer, kind, &end) != 2 || (size_t)end != len)
        return false;

    for (size_t i = 0; i < sizeof(map) / sizeof(*map); i++)
        if (strcmp(kind, map[i][0]) == 0) {
            snprintf(out, size, "model.layers.%u.%s", layer, map[i][1]);
            return true;
        }
    return false;
}

/* Entry of the weight @name, made if it is new; NULL in *@entry_out for weights that are not read.
 */
static int entry_of(struct import *im, const char *name, size_t len, struct entry **entry_out,
                    struct fp8q_error *err)
{
    char site[160];
    *entry_out = NULL;
    if (!site_name(name, len, site, sizeof(site)))
        return FP8Q_OK;

    size_t n = im->calib.n_sites;
    /* A file lists the weights of a layer one after another, and layers are few.  */
    for (size_t i = 0; i < n; i++)
        if (strcmp(im->calib.sites[i].name, site) == 0) {
            *entry_out = &im->entries[i];
            return FP8Q_OK;
        }

    FP8Q_TRY(fp8q_grow(&im->calib.sites, n, &im->cap_sites, sizeof(*im->calib.sites), err));
    FP8Q_TRY(fp8q_grow(&im->entries, n, &im->cap_entries, sizeof(*im->entries), err));

    im->calib.sites[n] = (struct fp8q_calib_site){.n_groups = 1};
    im->entries[n] = (struct entry){.sumsq = NULL};
    memcpy(im->calib.sites[n].name, site, sizeof(site));
    im->calib.n_sites++;
    *entry_out = &im->entries[n];
    return FP8Q_OK;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

static void skip_value(struct bytes *b, uint64_t type, unsigned depth)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type < sizeof(sizes) && sizes[type]) {
        take(b, sizes[type]);
    } else if (type == 8) { /* string */
        take(b, take_uint(b, 8));
    } else if (type == 9 && depth < 4) { /* array */
        uint64_t item = take_uint(b, 4), n = take_uint(b, 8);
        if (item < sizeof(sizes) && sizes[item]) {
            take(b, n > b->len ? UINT64_MAX : n * sizes[item]);
            return;
        }
        for (uint64_t i = 0; i < n && !b->failed; i++)
            skip_value(b, item, depth + 1);
    } else {
        b->failed = true;
    }
}

struct gguf_tensor {
    const char *name;
    uint64_t name_len, dims[4], offset;
    uint32_t n_dims, type;
};

static void take_tensor(struct bytes *b, struct gguf_tensor *t)
{
    *t = (struct gguf_tensor){.name_len = take_uint(b, 8), .dims = {1, 1, 1, 1}};
    t->name = (const char *)take(b, t->name_len);
    t->n_dims = (uint32_t)take_uint(b, 4);
    if (t->n_dims > 4)
        b->failed = true;
    for (uint32_t i = 0; i < t->n_dims && !b->failed; i++)
        t->dims[i] = take_uint(b, 8);
    t->type = (uint32_t)take_uint(b, 4);
    t->offset = take_uint(b, 8);
}

static bool ends_with(const struct gguf_tensor *t, const char *ending, size_t *stem_out)
{
    size_t n = strlen(ending);
    *stem_out = (size_t)t->name_len - n;
    return t->name_len > n && memcmp(t->name + t->name_len - n, ending, n) == 0;
}

/* One tensor's part of an entry; @data begins the data section.  */
static int add_gguf_tensor(struct import *im, const struct bytes *b, size_t data,
                           const struct gguf_tensor *t, struct fp8q_error *err)
{
    static const char *const endings[] = {".in_sum2", ".in_sum", ".counts"};
    size_t stem = 0;
    int kind = -1;
    for (int i = 0; i < 3 && kind < 0; i++)
        if (ends_with(t, endings[i], &stem))
            kind = i;

    uint64_t n = t->dims[0], matrices = t->dims[1] * t->dims[2] * t->dims[3];
    /* Stacked experts: no linear input of theirs is known here.  */
    if (kind < 0 || matrices != 1)
        return FP8Q_OK;

    struct entry *e;
    FP8Q_TRY(entry_of(im, t->name, stem, &e, err));
    if (!e)
        return FP8Q_OK;

    if (t->type != 0 || n == 0 || n > MAX_FILE || t->offset > b->len - data ||
        n * 4 > b->len - data - t->offset || (kind < 2 && e->width && e->width != n))
        return fp8q_fail(err, FP8Q_E_FORMAT, "imatrix",
                         "%s: a tensor leaves the file or has a wrong shape", b->path);

    const uint8_t *p = b->data + data + t->offset;
    /* Counts are stored as one float.  */
    if (kind == 2) {
        e->count = (double)float_at(p);
        return FP8Q_OK;
    }

    e->width = n;
    *(kind == 0 ? &e->sumsq : &e->sum) = p;
    return FP8Q_OK;
}

static int read_gguf(struct import *im, struct bytes *b, struct fp8q_error *err)
{
    take(b, 4); /* magic, seen already */
    uint64_t version = take_uint(b, 4), n_tensors = take_uint(b, 8), n_pairs = take_uint(b, 8);
    uint64_t align = 32;
    if (version != 2 && version != 3)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "imatrix", "%s: GGUF version %llu", b->path,
                         (unsigned long long)version);

    /* Only the alignment of the data is of use here.  */
    for (uint64_t i = 0; i < n_pairs && !b->failed; i++) {
        uint64_t len = take_uint(b, 8);
        const uint8_t *key = take(b, len);
        uint64_t type = take_uint(b, 4);
        if (key && len == 17 && memcmp(key, "general.alignment", 17) == 0 && type == 4)
            align = take_uint(b, 4);
        else
            skip_value(b, type, 0);
    }

    size_t table = b->at;
    struct gguf_tensor t;

    /* Twice over the table: the data section begins where it ends.  */
    for (uint64_t i = 0; i < n_tensors && !b->failed; i++)
        take_tensor(b, &t);
    if (b->failed || align == 0 || align > 4096)
        return fp8q_fail(err, FP8Q_E_FORMAT, "imatrix", "%s: the GGUF header is broken", b->path);

    size_t data = (size_t)((b->at + align - 1) / align * align);
    if (data > b->len)
        data = b->len;

    b->at = table;
    for (uint64_t i = 0; i < n_tensors; i++) {
        take_tensor(b, &t);
        FP8Q_TRY(add_gguf_tensor(im, b, data, &t, err));
    }
    return FP8Q_OK;
}

/* ---- .dat ------------------------------------------------------------------------------------ */

static int read_dat(struct import *im, struct bytes *b, struct fp8q_error *err)
{
    uint64_t n = take_uint(b, 4);
    if (n == 0 || n > 100000)
        b->failed = true;

    for (uint64_t i = 0; i < n && !b->failed; i++) {
        uint64_t len = take_uint(b, 4);
        const char *name = (const char *)take(b, len);
        uint64_t calls = take_uint(b, 4), values = take_uint(b, 4);
        const uint8_t *p = take(b, values * 4);
        if (!p || values == 0)
            break;

        struct entry *e;
        FP8Q_TRY(entry_of(im, name, (size_t)len, &e, err));
        /* q, k and v have the same input, and each its own entry: the first counts.  */
        if (!e || e->sumsq)
            continue;

        e->sumsq = p;
        e->width = values;
        e->count = (double)calls;
    }

    if (b->failed)
        return fp8q_fail(err, FP8Q_E_FORMAT, "imatrix",
                         "%s: neither a GGUF nor an imatrix .dat file", b->path);
    return FP8Q_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check_entries(struct import *im, const char *path, struct fp8q_error *err)
{
    if (im->calib.n_sites == 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "imatrix", "%s: no statistics of a decoder's linears",
                         path);

    for (size_t i = 0; i < im->calib.n_sites; i++) {
        struct fp8q_calib_site *s = &im->calib.sites[i];
        const struct entry *e = &im->entries[i];

        if (!e->sumsq || !(e->count >= 0) || e->count > 9e15)
            return fp8q_fail(err, FP8Q_E_FORMAT, "imatrix", "%s: site \"%s\" lacks sums or counts",
                             path, s->name);
        /* A mean of nothing guides nobody.  */
        if (e->count < 1)
            return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-empty",
                             "%s: \"%s\" holds statistics of zero tokens", path, s->name);

        s->width = e->width;
        s->count[0] = (int64_t)e->count;
        s->has[FP8Q_CALIB_SUMSQ] = true;
        s->has[FP8Q_CALIB_SUM] = e->sum != NULL;
        if (e->count > (double)im->calib.meta.n_tokens)
            im->calib.meta.n_tokens = (uint64_t)e->count;

        for (uint64_t k = 0; k < e->width; k++) {
            float x = float_at(e->sumsq + 4 * k);
            if (!isfinite(x) || x < 0 || (e->sum && !isfinite(float_at(e->sum + 4 * k))))
                return fp8q_fail(err, FP8Q_E_FORMAT, "imatrix",
                                 "%s: \"%s\" holds a value that cannot be", path, s->name);
        }
    }
    return FP8Q_OK;
}

static int get_array(void *ctx, size_t index, enum fp8q_calib_array array, float *out,
                     struct fp8q_error *err)
{
    const struct entry *e = &((const struct import *)ctx)->entries[index];
    const uint8_t *p = array == FP8Q_CALIB_SUM ? e->sum : e->sumsq;
    (void)err;
    for (uint64_t k = 0; k < e->width; k++)
        out[k] = float_at(p + 4 * k);
    return FP8Q_OK;
}

static int read_entries(struct import *im, const char *path, char **data_out,
                        struct fp8q_error *err)
{
    size_t len;
    FP8Q_TRY(fp8q_read_file(path, MAX_FILE, data_out, &len, err));
    struct bytes b = {.path = path, .data = (const uint8_t *)*data_out, .len = len};

    /* The older format has no magic: what is no GGUF is read as one, and fails where it is none. */
    if (len >= 4 && memcmp(*data_out, "GGUF", 4) == 0)
        FP8Q_TRY(read_gguf(im, &b, err));
    else
        FP8Q_TRY(read_dat(im, &b, err));
    return check_entries(im, path, err);
}

int fp8q_calib_import(const char *path, const char *created, const char *out, bool overwrite,
                      struct fp8q_error *err)
{
    struct import im = {.entries = NULL};
    struct fp8q_calib_meta *meta = &im.calib.meta;
    char *data = NULL; /* the entries point into it */
    int status = read_entries(&im, path, &data, err);
    if (status != FP8Q_OK)
        goto out;

    snprintf(meta->source, sizeof(meta->source), "imatrix %.200s", fp8q_basename(path));
    snprintf(meta->created, sizeof(meta->created), "%s", created);
    status = fp8q_calib_write(&im.calib, out, overwrite, get_array, &im, err);
out:
    free(im.calib.sites);
    free(im.entries);
    free(data);
    return status;
}
