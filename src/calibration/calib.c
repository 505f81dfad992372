/* SPDX-License-Identifier: Apache-2.0
 *
 * calib.c - reads, writes and merges calibration files.
 */
#include "calibration/calib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/dir.h"
#include "format/names.h"
#include "base/mem.h"

#define FORMAT "fp8q-calib/1"

static const char *const array_names[FP8Q_CALIB_N_ARRAYS] = {"sum", "sumsq", "absmax", "hblk",
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
        {"k_proj", "q_proj"}, {"v_proj", "q_proj"}, {"up_proj", "gate_proj"}};
    size_t len = fp8q_weight_stem(tensor_name);
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
    if (sumsq->ndim != 2 || sumsq->shape[0] == 0 || sumsq->shape[0] > FP8Q_MODALITIES ||
        sumsq->shape[1] == 0)
        return bad(c, sumsq->name, "has a wrong shape", err);
    s->n_groups = (uint32_t)sumsq->shape[0];
    s->width = sumsq->shape[1];
    for (int i = 0; i < FP8Q_CALIB_N_ARRAYS; i++) {
        const struct fp8q_tensor *t = part(c, s, array_names[i], name, sizeof(name));
        s->has[i] = t != NULL;
        if (t && !shape_fits(s, t, i))
            return bad(c, name, "has a wrong type or shape", err);
    }
    FP8Q_TRY(read_counts(c, s, "count", s->count, s->n_groups, &has_count, err));
    FP8Q_TRY(read_counts(c, s, "hblk_count", s->moment_count, 2, &has_moments, err));
    FP8Q_TRY(read_counts(c, s, "amax_hist", s->hist, FP8Q_HIST_BINS, &s->has_hist, err));
    if (!has_count || s->has[FP8Q_CALIB_HBLK] != has_moments ||
        s->has[FP8Q_CALIB_HELD] != has_moments)
        return bad(c, s->name, "lacks a part of its statistics", err);
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

static int read_meta(struct fp8q_calib *c, struct fp8q_error *err)
{
    const struct fp8q_st_header *h = &c->file->shards[0].header;
    char format[32] = "", number[32] = "";
    struct fp8q_shown shown;
    copy_meta(h, "format", format, sizeof(format));
    if (strncmp(format, "fp8q-calib/", 11) != 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "calibration", "%s: not a calibration file",
                         c->file->path);
    if (strcmp(format, FORMAT) != 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "calibration-version",
                         "%s: format \"%s\", this version reads \"" FORMAT "\"", c->file->path,
                         fp8q_show(&shown, format));
    copy_meta(h, "source_fingerprint", c->meta.source_fingerprint,
              sizeof(c->meta.source_fingerprint));
    copy_meta(h, "inputs_fingerprint", c->meta.inputs_fingerprint,
              sizeof(c->meta.inputs_fingerprint));
    copy_meta(h, "source", c->meta.source, sizeof(c->meta.source));
    copy_meta(h, "dataset", c->meta.dataset, sizeof(c->meta.dataset));
    copy_meta(h, "created", c->meta.created, sizeof(c->meta.created));
    copy_meta(h, "n_samples", number, sizeof(number));
    c->meta.n_samples = strtoull(number, NULL, 10);
    number[0] = 0;
    copy_meta(h, "n_tokens", number, sizeof(number));
    c->meta.n_tokens = strtoull(number, NULL, 10);
    number[0] = 0;
    copy_meta(h, "nll_sum", number, sizeof(number));
    c->meta.nll_sum = strtod(number, NULL);
    number[0] = 0;
    copy_meta(h, "nll_tokens", number, sizeof(number));
    c->meta.nll_tokens = strtoull(number, NULL, 10);
    number[0] = 0;
    copy_meta(h, "vocab", number, sizeof(number));
    c->meta.vocab = strtoull(number, NULL, 10);
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
    int status = calib_out->file->is_dir
                     ? fp8q_fail(err, FP8Q_E_ARG, "calibration", "%s: expected one file", path)
                     : read_meta(calib_out, err);
    if (status == FP8Q_OK)
        status = read_sites(calib_out, err);
    if (status != FP8Q_OK)
        fp8q_calib_close(calib_out);
    return status;
}

void fp8q_calib_close(struct fp8q_calib *calib)
{
    fp8q_ckpt_close(calib->file);
    free(calib->sites);
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

int fp8q_calib_read(const struct fp8q_calib *calib, const struct fp8q_calib_site *site,
                    enum fp8q_calib_array array, float *out, struct fp8q_error *err)
{
    char name[192];
    const struct fp8q_tensor *t = part(calib, site, array_names[array], name, sizeof(name));
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
    snprintf(hex, sizeof(hex), "%08x", fingerprint);
    if (strcmp(hex, calib->meta.source_fingerprint) == 0)
        return FP8Q_OK;
    return fp8q_fail(
        err, FP8Q_E_EVIDENCE, "calibration-foreign",
        "%s: statistics of other weights: made with \"%s\" of fingerprint \"%s\", these are %s",
        calib->file->path, fp8q_show(&source, calib->meta.source),
        fp8q_show(&shown, calib->meta.source_fingerprint), hex);
}

bool fp8q_calib_is_noise(const struct fp8q_calib *calib)
{
    const struct fp8q_calib_meta *m = &calib->meta;
    return m->nll_tokens > 0 && m->vocab >= 1024 &&
           m->nll_sum / (double)m->nll_tokens >= 0.9 * log((double)m->vocab);
}

/* ---- writing ------------------------------------------------------------------------------- */

struct writer {
    const struct fp8q_calib *calib;
    struct fp8q_st_tensor *tensors;
    char (*names)[192];
    uint64_t (*shapes)[3];
    size_t n;
    uint64_t at;
    int fd;
    const char *path;
};

static void add_tensor(struct writer *w, const struct fp8q_calib_site *s, const char *field,
                       enum fp8q_dtype dtype, uint32_t ndim, uint64_t a, uint64_t b, uint64_t c)
{
    size_t i = w->n++;
    snprintf(w->names[i], sizeof(w->names[i]), "%s.%s", s->name, field);
    w->shapes[i][0] = a;
    w->shapes[i][1] = b;
    w->shapes[i][2] = c;
    uint64_t size = a * (ndim > 1 ? b : 1) * (ndim > 2 ? c : 1) * (fp8q_dtype_bits(dtype) / 8);
    w->tensors[i] = (struct fp8q_st_tensor){.name = w->names[i],
                                            .shape = w->shapes[i],
                                            .ndim = ndim,
                                            .dtype = dtype,
                                            .begin = w->at,
                                            .end = w->at + size};
    w->at += size;
}

/* Integers of all sites first, so that everything is aligned.  */
static void list_tensors(struct writer *w)
{
    for (size_t i = 0; i < w->calib->n_sites; i++) {
        const struct fp8q_calib_site *s = &w->calib->sites[i];
        add_tensor(w, s, "count", FP8Q_I64, 1, s->n_groups, 0, 0);
        if (s->has[FP8Q_CALIB_HBLK])
            add_tensor(w, s, "hblk_count", FP8Q_I64, 1, 2, 0, 0);
        if (s->has_hist)
            add_tensor(w, s, "amax_hist", FP8Q_I64, 1, FP8Q_HIST_BINS, 0, 0);
    }
    for (size_t i = 0; i < w->calib->n_sites; i++) {
        const struct fp8q_calib_site *s = &w->calib->sites[i];
        uint64_t blocks = fp8q_ceil_div(s->width, FP8Q_BLOCK);
        for (int a = 0; a < FP8Q_CALIB_N_ARRAYS; a++)
            if (s->has[a] && a < FP8Q_CALIB_HBLK)
                add_tensor(w, s, array_names[a], FP8Q_F32, 2, s->n_groups, s->width, 0);
            else if (s->has[a])
                add_tensor(w, s, array_names[a], FP8Q_F32, 3, blocks, FP8Q_BLOCK, FP8Q_BLOCK);
    }
}

static int put(struct writer *w, const void *data, uint64_t size, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_pwrite(w->fd, data, (size_t)size, w->at, w->path, err));
    w->at += size;
    return FP8Q_OK;
}

static int put_header(struct writer *w, struct fp8q_error *err)
{
    const struct fp8q_calib_meta *m = &w->calib->meta;
    char n_samples[32], n_tokens[32], nll_sum[32], nll_tokens[32], vocab[32];
    snprintf(nll_sum, sizeof(nll_sum), "%.9g", m->nll_sum);
    snprintf(nll_tokens, sizeof(nll_tokens), "%llu", (unsigned long long)m->nll_tokens);
    snprintf(vocab, sizeof(vocab), "%llu", (unsigned long long)m->vocab);
    snprintf(n_samples, sizeof(n_samples), "%llu", (unsigned long long)m->n_samples);
    snprintf(n_tokens, sizeof(n_tokens), "%llu", (unsigned long long)m->n_tokens);
    const char *const pairs[][2] = {
        {"format", FORMAT},
        {"tool", "fp8q " FP8Q_VERSION},
        {"created", m->created},
        {"source", m->source},
        {"source_fingerprint", m->source_fingerprint},
        {"dataset", m->dataset},
        {"inputs_fingerprint", m->inputs_fingerprint},
        {"n_samples", n_samples},
        {"n_tokens", n_tokens},
        {"nll_sum", nll_sum},
        {"nll_tokens", nll_tokens},
        {"vocab", vocab},
    };
    struct fp8q_st_pair metadata[sizeof(pairs) / sizeof(*pairs)];
    size_t n = sizeof(pairs) / sizeof(*pairs);
    for (size_t i = 0; i < n; i++)
        metadata[i] = (struct fp8q_st_pair){pairs[i][0], pairs[i][1], strlen(pairs[i][0]),
                                            strlen(pairs[i][1])};
    struct fp8q_text header = {0};
    int status = fp8q_st_emit(w->tensors, w->n, metadata, n, 0, &header, err);
    w->at = 0;
    if (status == FP8Q_OK)
        status = put(w, header.data, header.len, err);
    fp8q_text_reset(&header);
    return status;
}

static int put_data(struct writer *w, fp8q_calib_get_fn *get, void *ctx, struct fp8q_error *err)
{
    const struct fp8q_calib *c = w->calib;
    uint64_t most = 1;
    for (size_t i = 0; i < c->n_sites; i++) {
        const struct fp8q_calib_site *s = &c->sites[i];
        FP8Q_TRY(put(w, s->count, s->n_groups * sizeof(int64_t), err));
        if (s->has[FP8Q_CALIB_HBLK])
            FP8Q_TRY(put(w, s->moment_count, sizeof(s->moment_count), err));
        if (s->has_hist)
            FP8Q_TRY(put(w, s->hist, sizeof(s->hist), err));
        for (int a = 0; a < FP8Q_CALIB_N_ARRAYS; a++) {
            uint64_t floats = fp8q_calib_floats(s, (enum fp8q_calib_array)a);
            most = floats > most ? floats : most;
        }
    }
    float *buffer = fp8q_array(most, sizeof(*buffer));
    int status = buffer ? FP8Q_OK : fp8q_fail_nomem(err);
    for (size_t i = 0; i < c->n_sites; i++)
        for (int a = 0; a < FP8Q_CALIB_N_ARRAYS && status == FP8Q_OK; a++) {
            if (!c->sites[i].has[a])
                continue;
            status = get(ctx, i, (enum fp8q_calib_array)a, buffer, err);
            if (status == FP8Q_OK)
                status = put(
                    w, buffer,
                    fp8q_calib_floats(&c->sites[i], (enum fp8q_calib_array)a) * sizeof(float), err);
        }
    free(buffer);
    return status;
}

static int write_all(struct writer *w, fp8q_calib_get_fn *get, void *ctx, struct fp8q_error *err)
{
    size_t most = w->calib->n_sites * (3 + FP8Q_CALIB_N_ARRAYS);
    w->tensors = fp8q_array(most, sizeof(*w->tensors));
    w->names = fp8q_array(most, sizeof(*w->names));
    w->shapes = fp8q_array(most, sizeof(*w->shapes));
    if (!w->tensors || !w->names || !w->shapes)
        return fp8q_fail_nomem(err);
    list_tensors(w);
    FP8Q_TRY(fp8q_create(w->path, &w->fd, err));
    FP8Q_TRY(put_header(w, err));
    FP8Q_TRY(put_data(w, get, ctx, err));
    return fp8q_fsync(w->fd, w->path, err);
}

int fp8q_calib_write(const struct fp8q_calib *calib, const char *path, bool overwrite,
                     fp8q_calib_get_fn *get, void *ctx, struct fp8q_error *err)
{
    size_t size = strlen(path) + 32;
    char *partial = malloc(size);
    if (!partial)
        return fp8q_fail_nomem(err);
    snprintf(partial, size, "%s.partial-%ld", path, (long)getpid());
    struct writer w = {.calib = calib, .fd = -1, .path = partial};
    int status = write_all(&w, get, ctx, err);
    int closed = fp8q_close(&w.fd, partial, status == FP8Q_OK ? err : NULL);
    status = status == FP8Q_OK ? closed : status;
    if (status == FP8Q_OK)
        status = overwrite ? fp8q_rename(partial, path, err) : fp8q_rename_new(partial, path, err);
    if (status != FP8Q_OK)
        fp8q_remove_tree(partial, NULL);
    free(w.tensors);
    free(w.names);
    free(w.shapes);
    free(partial);
    return status;
}

/* ---- merging ------------------------------------------------------------------------------- */

struct merge {
    struct fp8q_calib *inputs;
    size_t n_inputs;
    struct fp8q_calib sum;
};

static int merge_site(struct merge *m, const struct fp8q_calib *other, struct fp8q_calib_site *s,
                      struct fp8q_error *err)
{
    const struct fp8q_calib_site *o = fp8q_calib_find(other, s->name);
    if (!o || o->width != s->width)
        return fp8q_fail(err, FP8Q_E_ARG, "calibration",
                         "%s and %s cannot be merged: they differ in site \"%s\"",
                         m->inputs[0].file->path, other->file->path, s->name);
    s->n_groups = o->n_groups > s->n_groups ? o->n_groups : s->n_groups;
    for (uint32_t g = 0; g < o->n_groups; g++)
        s->count[g] += o->count[g];
    for (size_t i = 0; i < 2; i++)
        s->moment_count[i] += o->moment_count[i];
    for (size_t i = 0; i < FP8Q_HIST_BINS; i++)
        s->hist[i] += o->hist[i];
    for (int a = 0; a < FP8Q_CALIB_N_ARRAYS; a++)
        s->has[a] &= o->has[a];
    s->has_hist &= o->has_hist;
    return FP8Q_OK;
}

static int merge_get(void *ctx, size_t index, enum fp8q_calib_array array, float *out,
                     struct fp8q_error *err)
{
    const struct merge *m = ctx;
    const struct fp8q_calib_site *s = &m->sum.sites[index];
    uint64_t n = fp8q_calib_floats(s, array);
    float *part_of = fp8q_array(n, sizeof(*part_of));
    if (!part_of)
        return fp8q_fail_nomem(err);
    memset(out, 0, (size_t)n * sizeof(*out));
    int status = FP8Q_OK;
    for (size_t i = 0; i < m->n_inputs && status == FP8Q_OK; i++) {
        const struct fp8q_calib_site *o = fp8q_calib_find(&m->inputs[i], s->name);
        status = fp8q_calib_read(&m->inputs[i], o, array, part_of, err);
        uint64_t floats = status == FP8Q_OK ? fp8q_calib_floats(o, array) : 0;
        for (uint64_t j = 0; j < floats; j++)
            if (array != FP8Q_CALIB_ABSMAX)
                out[j] += part_of[j];
            else if (part_of[j] > out[j])
                out[j] = part_of[j];
    }
    free(part_of);
    return status;
}

static int add_meta(struct fp8q_calib_meta *sum, const struct fp8q_calib *other,
                    struct fp8q_error *err)
{
    const struct fp8q_calib_meta *o = &other->meta;
    if (strcmp(sum->source_fingerprint, o->source_fingerprint) != 0)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-foreign",
                         "%s: statistics of other weights than the first file's",
                         other->file->path);
    sum->n_samples += o->n_samples;
    sum->n_tokens += o->n_tokens;
    sum->nll_sum += o->nll_sum;
    sum->nll_tokens += o->nll_tokens;
    size_t len = strlen(sum->dataset);
    snprintf(sum->dataset + len, sizeof(sum->dataset) - len, "%s%s", len ? " + " : "", o->dataset);
    sum->inputs_fingerprint[0] = 0; /* no longer one set of inputs */
    return FP8Q_OK;
}

static int merge_open(struct merge *m, const char *const *paths, size_t n_paths,
                      struct fp8q_error *err)
{
    m->inputs = fp8q_array(n_paths, sizeof(*m->inputs));
    if (!m->inputs)
        return fp8q_fail_nomem(err);
    for (; m->n_inputs < n_paths; m->n_inputs++)
        FP8Q_TRY(fp8q_calib_open(paths[m->n_inputs], &m->inputs[m->n_inputs], err));
    const struct fp8q_calib *first = &m->inputs[0];
    m->sum.meta = first->meta;
    m->sum.n_sites = first->n_sites;
    m->sum.sites = fp8q_array(first->n_sites, sizeof(*m->sum.sites));
    if (!m->sum.sites)
        return fp8q_fail_nomem(err);
    memcpy(m->sum.sites, first->sites, first->n_sites * sizeof(*first->sites));
    for (size_t i = 1; i < n_paths; i++) {
        FP8Q_TRY(add_meta(&m->sum.meta, &m->inputs[i], err));
        if (m->inputs[i].n_sites != first->n_sites)
            return fp8q_fail(err, FP8Q_E_ARG, "calibration", "%s and %s do not have the same sites",
                             first->file->path, m->inputs[i].file->path);
        for (size_t s = 0; s < first->n_sites; s++)
            FP8Q_TRY(merge_site(m, &m->inputs[i], &m->sum.sites[s], err));
    }
    return FP8Q_OK;
}

int fp8q_calib_merge(const char *const *paths, size_t n_paths, const char *created, const char *out,
                     bool overwrite, struct fp8q_error *err)
{
    struct merge m = {.inputs = NULL};
    if (n_paths < 2)
        return fp8q_fail(err, FP8Q_E_ARG, "usage", "merging needs at least two files");
    int status = merge_open(&m, paths, n_paths, err);
    snprintf(m.sum.meta.created, sizeof(m.sum.meta.created), "%s", created);
    if (status == FP8Q_OK)
        status = fp8q_calib_write(&m.sum, out, overwrite, merge_get, &m, err);
    for (size_t i = 0; i < m.n_inputs; i++)
        fp8q_calib_close(&m.inputs[i]);
    free(m.inputs);
    free(m.sum.sites);
    return status;
}
