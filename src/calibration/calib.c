/* SPDX-License-Identifier: Apache-2.0
 *
 * calib.c - reads calibration files.  Everything a file claims is checked here, so that its users
 * need not: shapes, counts, and each array's values as it is read.
 */
#include "calibration/calib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/mem.h"
#include "base/text.h"
#include "calibration/samples.h"
#include "format/names.h"

const char *const fp8q_calib_array_names[FP8Q_CALIB_N_ARRAYS] = {"sum", "sumsq", "absmax", "hblk",
                                                                 "hblk_held"};

uint64_t fp8q_calib_floats(const struct fp8q_calib_site *site, enum fp8q_calib_array array)
{
    if (array == FP8Q_CALIB_HBLK || array == FP8Q_CALIB_HELD)
        return fp8q_ceil_div(site->width, FP8Q_BLOCK) * FP8Q_MOMENTS;
    return site->n_groups * site->width;
}

const char *fp8q_calib_site_of(const char *tensor_name, struct fp8q_name *buf)
{
    static const char *const shared[][2] = {
        {"k_proj", "q_proj"}, {"v_proj", "q_proj"}, {"up_proj", "gate_proj"}, {"w3", "w1"}};

    size_t len = fp8q_weight_stem(tensor_name);
    /* Longer names are no linears of a decoder; the limit keeps the rest within the buffer.  */
    snprintf(buf->text, sizeof(buf->text), "%.*s", (int)(len < 150 ? len : 150), tensor_name);

    char *last = strrchr(buf->text, '.');
    last = last ? last + 1 : buf->text;

    for (size_t i = 0; i < sizeof(shared) / sizeof(*shared); i++)
        if (strcmp(last, shared[i][0]) == 0) {
            snprintf(last, sizeof(buf->text) - (size_t)(last - buf->text), "%s", shared[i][1]);
            break;
        }
    return buf->text;
}

/* The exponent and four bits of the fraction, counted from those of 2^-24.  */
enum { BIN_SHIFT = 19, FIRST_BIN = (127 - 24) << 4 };

unsigned fp8q_value_bin(float magnitude)
{
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof(bits));
    uint32_t place = bits >> BIN_SHIFT;

    if (place < FIRST_BIN)
        return 0;
    return place - FIRST_BIN < FP8Q_VALUE_BINS ? place - FIRST_BIN : FP8Q_VALUE_BINS - 1;
}

float fp8q_value_edge(unsigned bin)
{
    uint32_t bits = (FIRST_BIN + bin) << BIN_SHIFT;
    float edge;
    memcpy(&edge, &bits, sizeof(edge));
    return edge;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int bad(const struct fp8q_calib *c, const char *tensor, const char *what,
               struct fp8q_error *err)
{
    struct fp8q_shown shown;
    return fp8q_fail(err, FP8Q_E_FORMAT, "calibration", "%s: \"%s\" %s", c->file->path,
                     fp8q_show(&shown, tensor), what);
}

static const struct fp8q_tensor *part(const struct fp8q_calib *c, const struct fp8q_calib_site *s,
                                      const char *field, char *name, size_t size)
{
    snprintf(name, size, "%s.%s", s->name, field);
    return fp8q_ckpt_find(c->file, name);
}

static int read_counts(const struct fp8q_calib *c, const struct fp8q_calib_site *s,
                       const char *field, int64_t *out, size_t n, bool *has_out,
                       struct fp8q_error *err)
{
    char name[192];
    const struct fp8q_tensor *t = part(c, s, field, name, sizeof(name));
    *has_out = t != NULL;
    if (!t)
        return FP8Q_OK;
    if (t->dtype != FP8Q_I64 || t->ndim != 1 || t->n_elems != n)
        return bad(c, name, "has a wrong type or shape", err);

    FP8Q_TRY(fp8q_ckpt_read(c->file, t, 0, out, n * sizeof(*out), err));
    for (size_t i = 0; i < n; i++)
        if (out[i] < 0)
            return bad(c, name, "counts fewer than nothing", err);
    return FP8Q_OK;
}

static bool shape_fits(const struct fp8q_calib_site *s, const struct fp8q_tensor *t, int array)
{
    if (t->dtype != FP8Q_F32 || t->n_elems != fp8q_calib_floats(s, (enum fp8q_calib_array)array))
        return false;
    if (array < FP8Q_CALIB_HBLK)
        return t->ndim == 2 && t->shape[0] == s->n_groups;
    return t->ndim == 3 && t->shape[1] == FP8Q_BLOCK && t->shape[2] == FP8Q_BLOCK;
}

static int read_site(const struct fp8q_calib *c, const struct fp8q_tensor *sumsq,
                     struct fp8q_calib_site *s, struct fp8q_error *err)
{
    char name[192];
    bool has_count, has_moments;
    /* The sums of squares are what a file must have: they say the sizes of all else.  */
    if (sumsq->ndim != 2 || sumsq->shape[0] == 0 || sumsq->shape[0] > FP8Q_MODALITIES ||
        sumsq->shape[1] == 0)
        return bad(c, sumsq->name, "has a wrong shape", err);

    s->n_groups = (uint32_t)sumsq->shape[0];
    s->width = sumsq->shape[1];

    for (int i = 0; i < FP8Q_CALIB_N_ARRAYS; i++) {
        const struct fp8q_tensor *t = part(c, s, fp8q_calib_array_names[i], name, sizeof(name));
        s->has[i] = t != NULL;
        if (t && !shape_fits(s, t, i))
            return bad(c, name, "has a wrong type or shape", err);
    }

    FP8Q_TRY(read_counts(c, s, "count", s->count, s->n_groups, &has_count, err));
    FP8Q_TRY(read_counts(c, s, "hblk_count", s->moment_count, 2, &has_moments, err));
    FP8Q_TRY(read_counts(c, s, "amax_hist", s->hist, FP8Q_HIST_BINS, &s->has_hist, err));
    FP8Q_TRY(read_counts(c, s, "value_hist", s->values, FP8Q_VALUE_BINS, &s->has_values, err));

    /* Either all three of the Hessian's parts are there or none.  */
    if (!has_count || s->has[FP8Q_CALIB_HBLK] != has_moments ||
        s->has[FP8Q_CALIB_HELD] != has_moments)
        return bad(c, s->name, "lacks a part of its statistics", err);

    /* Clamped terms, so that a hostile file cannot overflow the sum.  */
    int64_t total = 0;
    for (uint32_t g = 0; g < s->n_groups; g++)
        total += s->count[g] < INT64_MAX / 16 ? s->count[g] : INT64_MAX / 16;
    if (total == 0 || (has_moments && s->moment_count[0] == 0))
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-empty",
                         "%s: \"%s\" holds statistics of zero tokens", c->file->path, s->name);
    return FP8Q_OK;
}

static void copy_meta(const struct fp8q_st_header *h, const char *key, char *out, size_t size)
{
    for (size_t i = 0; i < h->n_metadata; i++)
        if (strcmp(h->metadata[i].key, key) == 0)
            snprintf(out, size, "%.*s", (int)size - 1, h->metadata[i].value);
}

/* A number of the metadata; 0 where it is missing.  */
static uint64_t count_meta(const struct fp8q_st_header *h, const char *key)
{
    char number[32] = "";
    copy_meta(h, key, number, sizeof(number));
    return strtoull(number, NULL, 10);
}

static int read_meta(struct fp8q_calib *c, struct fp8q_error *err)
{
    const struct fp8q_st_header *h = &c->file->shards[0].header;
    char format[32] = "", number[32] = "";
    struct fp8q_shown shown;

    copy_meta(h, "format", format, sizeof(format));
    /* A file of a later version is not taken for one of somebody else.  */
    if (strncmp(format, "fp8q-calib/", 11) != 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "calibration", "%s: not a calibration file",
                         c->file->path);
    if (strcmp(format, FP8Q_CALIB_FORMAT) != 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "calibration-version",
                         "%s: format \"%s\", this version reads \"" FP8Q_CALIB_FORMAT "\"",
                         c->file->path, fp8q_show(&shown, format));

    struct fp8q_calib_meta *m = &c->meta;
    copy_meta(h, "source_fingerprint", m->source_fingerprint, sizeof(m->source_fingerprint));
    copy_meta(h, "inputs_fingerprint", m->inputs_fingerprint, sizeof(m->inputs_fingerprint));
    copy_meta(h, "source", m->source, sizeof(m->source));
    copy_meta(h, "dataset", m->dataset, sizeof(m->dataset));
    copy_meta(h, "created", m->created, sizeof(m->created));

    m->n_samples = count_meta(h, "n_samples");
    m->n_tokens = count_meta(h, "n_tokens");
    m->nll_tokens = count_meta(h, "nll_tokens");
    m->vocab = count_meta(h, "vocab");
    copy_meta(h, "nll_sum", number, sizeof(number));
    m->nll_sum = fp8q_number_parse(number, NULL);
    return FP8Q_OK;
}

static int compare_sites(const void *a, const void *b)
{
    return strcmp(((const struct fp8q_calib_site *)a)->name,
                  ((const struct fp8q_calib_site *)b)->name);
}

static int read_sites(struct fp8q_calib *c, struct fp8q_error *err)
{
    c->sites = fp8q_array(c->file->n_tensors, sizeof(*c->sites));
    if (!c->sites)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < c->file->n_tensors; i++) {
        const struct fp8q_tensor *t = &c->file->tensors[i];
        size_t len = strlen(t->name);
        if (len < 7 || strcmp(t->name + len - 6, ".sumsq") != 0)
            continue;

        struct fp8q_calib_site *s = &c->sites[c->n_sites++];
        if (len - 6 >= sizeof(s->name))
            return bad(c, t->name, "is too long a name", err);
        memcpy(s->name, t->name, len - 6);
        FP8Q_TRY(read_site(c, t, s, err));
    }

    if (c->n_sites == 0)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-empty", "%s: no statistics",
                         c->file->path);
    qsort(c->sites, c->n_sites, sizeof(*c->sites), compare_sites);
    return FP8Q_OK;
}

/* ---- caches ---------------------------------------------------------------------------------- */

static int compare_caches(const void *a, const void *b)
{
    return strcmp(((const struct fp8q_calib_cache *)a)->name,
                  ((const struct fp8q_calib_cache *)b)->name);
}

static int read_cache(const struct fp8q_calib *c, const struct fp8q_tensor *t, size_t stem,
                      struct fp8q_calib_cache *cache, struct fp8q_error *err)
{
    if (t->dtype != FP8Q_F32 || t->ndim != 2 || t->shape[0] != 2 || t->shape[1] == 0 ||
        t->shape[1] > FP8Q_CACHE_HEADS || stem >= sizeof(cache->name))
        return bad(c, t->name, "has a wrong type or shape", err);

    memcpy(cache->name, t->name, stem);
    cache->n_heads = (uint32_t)t->shape[1];

    size_t bytes = cache->n_heads * sizeof(float);
    for (size_t half = 0; half < 2; half++) {
        FP8Q_TRY(fp8q_ckpt_read(c->file, t, half * bytes, cache->absmax[half], bytes, err));
        for (uint32_t h = 0; h < cache->n_heads; h++)
            if (!isfinite(cache->absmax[half][h]) || cache->absmax[half][h] < 0)
                return bad(c, t->name, "holds a value that cannot be", err);
    }
    return FP8Q_OK;
}

static int read_caches(struct fp8q_calib *c, struct fp8q_error *err)
{
    c->caches = fp8q_array(c->file->n_tensors, sizeof(*c->caches));
    if (!c->caches)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < c->file->n_tensors; i++) {
        const struct fp8q_tensor *t = &c->file->tensors[i];
        size_t stem = fp8q_stem_len(t->name, ".cache_absmax");
        if (stem)
            FP8Q_TRY(read_cache(c, t, stem, &c->caches[c->n_caches++], err));
    }
    qsort(c->caches, c->n_caches, sizeof(*c->caches), compare_caches);
    return FP8Q_OK;
}

static int read_all(struct fp8q_calib *c, const char *path, struct fp8q_error *err)
{
    if (c->file->is_dir)
        return fp8q_fail(err, FP8Q_E_ARG, "calibration", "%s: expected one file", path);
    FP8Q_TRY(read_meta(c, err));
    FP8Q_TRY(read_caches(c, err));
    return read_sites(c, err);
}

int fp8q_calib_open(const char *path, struct fp8q_calib *calib_out, struct fp8q_error *err)
{
    struct stat st;
    struct fp8q_shown shown;
    bool there;

    *calib_out = (struct fp8q_calib){0};
    FP8Q_TRY(fp8q_stat(path, &st, &there, err));
    if (!there)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-missing",
                         "%s: no such calibration file", fp8q_show(&shown, path));

    FP8Q_TRY(fp8q_ckpt_open(path, &calib_out->file, NULL, err));
    int status = read_all(calib_out, path, err);
    if (status != FP8Q_OK)
        fp8q_calib_close(calib_out);
    return status;
}

void fp8q_calib_close(struct fp8q_calib *calib)
{
    fp8q_ckpt_close(calib->file);
    free(calib->sites);
    free(calib->caches);
    *calib = (struct fp8q_calib){0};
}

const struct fp8q_calib_site *fp8q_calib_find(const struct fp8q_calib *calib, const char *site)
{
    size_t low = 0, high = calib->n_sites;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(site, calib->sites[middle].name);
        if (order == 0)
            return &calib->sites[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct fp8q_calib_cache *fp8q_calib_find_cache(const struct fp8q_calib *calib,
                                                     const char *attention)
{
    for (size_t i = 0; i < calib->n_caches; i++)
        if (strcmp(calib->caches[i].name, attention) == 0)
            return &calib->caches[i];
    return NULL;
}

int fp8q_calib_read(const struct fp8q_calib *calib, const struct fp8q_calib_site *site,
                    enum fp8q_calib_array array, float *out, struct fp8q_error *err)
{
    char name[192];
    const struct fp8q_tensor *t =
        part(calib, site, fp8q_calib_array_names[array], name, sizeof(name));
    if (!t)
        return bad(calib, name, "is missing", err);

    FP8Q_TRY(fp8q_ckpt_read(calib->file, t, 0, out, (size_t)t->size_bytes, err));
    bool squares = array == FP8Q_CALIB_SUMSQ || array == FP8Q_CALIB_ABSMAX;
    for (uint64_t i = 0; i < t->n_elems; i++)
        if (!isfinite(out[i]) || (squares && out[i] < 0))
            return bad(calib, name, "holds a value that cannot be", err);
    return FP8Q_OK;
}

int fp8q_calib_matches(const struct fp8q_calib *calib, uint32_t fingerprint, struct fp8q_error *err)
{
    char hex[16];
    struct fp8q_shown shown, source;
    /* Compared as written: the file holds text, and an empty one matches nothing.  */
    snprintf(hex, sizeof(hex), "%08x", fingerprint);
    if (strcmp(hex, calib->meta.source_fingerprint) == 0)
        return FP8Q_OK;

    return fp8q_fail(
        err, FP8Q_E_EVIDENCE, "calibration-foreign",
        "%s: statistics of other weights: made with \"%s\" of fingerprint \"%s\", these are %s",
        calib->file->path, fp8q_show(&source, calib->meta.source),
        fp8q_show(&shown, calib->meta.source_fingerprint), hex);
}

bool fp8q_calib_is_expert(const char *site)
{
    const char *experts = strstr(site, ".experts.");
    return experts && experts[9] >= '0' && experts[9] <= '9';
}

bool fp8q_calib_is_few(const struct fp8q_calib_site *site)
{
    return fp8q_calib_is_expert(site->name) && site->has[FP8Q_CALIB_HBLK] &&
           site->moment_count[0] < FP8Q_BLOCK;
}

size_t fp8q_calib_unheld(const struct fp8q_calib *calib)
{
    size_t n = 0;
    for (size_t i = 0; i < calib->n_sites; i++)
        n += calib->sites[i].has[FP8Q_CALIB_HBLK] && calib->sites[i].moment_count[1] == 0;
    return n;
}

bool fp8q_calib_is_noise(const struct fp8q_calib *calib)
{
    const struct fp8q_calib_meta *m = &calib->meta;
    return fp8q_is_noise(m->nll_sum, m->nll_tokens, m->vocab);
}
