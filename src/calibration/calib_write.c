/* SPDX-License-Identifier: Apache-2.0
 *
 * calib_write.c - writes calibration files, one array after another, so that memory holds one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/text.h"
#include "calibration/calib.h"

struct writer {
    const struct fp8q_calib *calib;
    struct fp8q_st_tensor *tensors;
    char (*names)[192];
    uint64_t (*shapes)[3];
    size_t n;
    uint64_t at;
    struct fp8q_output out;
};

static void add_tensor(struct writer *w, const char *site, const char *field, enum fp8q_dtype dtype,
                       uint32_t ndim, const uint64_t *shape)
{
    size_t i = w->n++;
    snprintf(w->names[i], sizeof(w->names[i]), "%s.%s", site, field);
    memcpy(w->shapes[i], shape, ndim * sizeof(*shape));

    uint64_t size = fp8q_dtype_bits(dtype) / 8;
    for (uint32_t d = 0; d < ndim; d++)
        size *= shape[d];
    w->tensors[i] = (struct fp8q_st_tensor){.name = w->names[i],
                                            .shape = w->shapes[i],
                                            .ndim = ndim,
                                            .dtype = dtype,
                                            .begin = w->at,
                                            .end = w->at + size};
    w->at += size;
}

static void add_counts(struct writer *w, const struct fp8q_calib_site *s, const char *field,
                       uint64_t n)
{
    add_tensor(w, s->name, field, FP8Q_I64, 1, &n);
}

/* Integers of all sites first, so that everything is aligned.  */
static void list_tensors(struct writer *w)
{
    for (size_t i = 0; i < w->calib->n_sites; i++) {
        const struct fp8q_calib_site *s = &w->calib->sites[i];
        add_counts(w, s, "count", s->n_groups);
        if (s->has[FP8Q_CALIB_HBLK])
            add_counts(w, s, "hblk_count", 2);
        if (s->has_hist)
            add_counts(w, s, "amax_hist", FP8Q_HIST_BINS);
        if (s->has_values)
            add_counts(w, s, "value_hist", FP8Q_VALUE_BINS);
    }

    for (size_t i = 0; i < w->calib->n_sites; i++) {
        const struct fp8q_calib_site *s = &w->calib->sites[i];
        const uint64_t rows[2] = {s->n_groups, s->width};
        const uint64_t blocks[3] = {fp8q_ceil_div(s->width, FP8Q_BLOCK), FP8Q_BLOCK, FP8Q_BLOCK};
        for (int a = 0; a < FP8Q_CALIB_N_ARRAYS; a++)
            if (s->has[a] && a < FP8Q_CALIB_HBLK)
                add_tensor(w, s->name, fp8q_calib_array_names[a], FP8Q_F32, 2, rows);
            else if (s->has[a])
                add_tensor(w, s->name, fp8q_calib_array_names[a], FP8Q_F32, 3, blocks);
    }

    for (size_t i = 0; i < w->calib->n_caches; i++) {
        const uint64_t heads[2] = {2, w->calib->caches[i].n_heads};
        add_tensor(w, w->calib->caches[i].name, "cache_absmax", FP8Q_F32, 2, heads);
    }
}

static int put(struct writer *w, const void *data, uint64_t size, struct fp8q_error *err)
{
    return fp8q_output_add(&w->out, data, (size_t)size, err);
}

static int put_header(struct writer *w, struct fp8q_error *err)
{
    const struct fp8q_calib_meta *m = &w->calib->meta;
    char n_samples[32], n_tokens[32], nll_sum[32], nll_tokens[32], vocab[32];
    fp8q_number_print(nll_sum, sizeof(nll_sum), 9, m->nll_sum);
    snprintf(nll_tokens, sizeof(nll_tokens), "%llu", (unsigned long long)m->nll_tokens);
    snprintf(vocab, sizeof(vocab), "%llu", (unsigned long long)m->vocab);
    snprintf(n_samples, sizeof(n_samples), "%llu", (unsigned long long)m->n_samples);
    snprintf(n_tokens, sizeof(n_tokens), "%llu", (unsigned long long)m->n_tokens);

    const char *const pairs[][2] = {
        {"format", FP8Q_CALIB_FORMAT},
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
    if (status != FP8Q_OK)
        goto out;
    status = put(w, header.data, header.len, err);
out:
    fp8q_text_reset(&header);
    return status;
}

static int put_arrays(struct writer *w, fp8q_calib_get_fn *get, void *ctx, float *buffer,
                      struct fp8q_error *err)
{
    const struct fp8q_calib *c = w->calib;

    /* The order of list_tensors(): what comes first in the header lies first.  */
    for (size_t i = 0; i < c->n_sites; i++)
        for (int a = 0; a < FP8Q_CALIB_N_ARRAYS; a++) {
            enum fp8q_calib_array array = (enum fp8q_calib_array)a;
            if (!c->sites[i].has[a])
                continue;
            FP8Q_TRY(get(ctx, i, array, buffer, err));
            FP8Q_TRY(put(w, buffer, fp8q_calib_floats(&c->sites[i], array) * sizeof(float), err));
        }
    return FP8Q_OK;
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
        if (s->has_values)
            FP8Q_TRY(put(w, s->values, sizeof(s->values), err));
        for (int a = 0; a < FP8Q_CALIB_N_ARRAYS; a++) {
            uint64_t floats = fp8q_calib_floats(s, (enum fp8q_calib_array)a);
            most = floats > most ? floats : most;
        }
    }

    float *buffer = fp8q_array(most, sizeof(*buffer));
    if (!buffer)
        return fp8q_fail_nomem(err);
    int status = put_arrays(w, get, ctx, buffer, err);
    free(buffer);
    FP8Q_TRY(status);

    for (size_t i = 0; i < c->n_caches; i++)
        for (int half = 0; half < 2; half++)
            FP8Q_TRY(put(w, c->caches[i].absmax[half], c->caches[i].n_heads * sizeof(float), err));
    return FP8Q_OK;
}

/* A FIFO or a device is written into; a file is somebody's.  */
static int check_new(const char *path, bool overwrite, struct fp8q_error *err)
{
    struct stat st;
    struct fp8q_shown shown;
    bool there;
    FP8Q_TRY(fp8q_stat(path, &st, &there, err));
    if (overwrite || !there || !S_ISREG(st.st_mode))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "dst-exists", "%s: exists already", fp8q_show(&shown, path));
}

static int write_all(struct writer *w, const char *path, bool overwrite, fp8q_calib_get_fn *get,
                     void *ctx, struct fp8q_error *err)
{
    size_t most = w->calib->n_sites * (4 + FP8Q_CALIB_N_ARRAYS) + w->calib->n_caches;
    w->tensors = fp8q_array(most, sizeof(*w->tensors));
    w->names = fp8q_array(most, sizeof(*w->names));
    w->shapes = fp8q_array(most, sizeof(*w->shapes));
    if (!w->tensors || !w->names || !w->shapes)
        return fp8q_fail_nomem(err);

    list_tensors(w);
    FP8Q_TRY(check_new(path, overwrite, err));
    FP8Q_TRY(fp8q_output_open(path, &w->out, err));
    w->out.new_only = !overwrite;
    FP8Q_TRY(put_header(w, err));
    FP8Q_TRY(put_data(w, get, ctx, err));
    return fp8q_output_commit(&w->out, err);
}

int fp8q_calib_write(const struct fp8q_calib *calib, const char *path, bool overwrite,
                     fp8q_calib_get_fn *get, void *ctx, struct fp8q_error *err)
{
    struct writer w = {.calib = calib, .out = {.fd = -1}};
    int status = write_all(&w, path, overwrite, get, ctx, err);
    if (status != FP8Q_OK)
        fp8q_output_abandon(&w.out);

    free(w.tensors);
    free(w.names);
    free(w.shapes);
    return status;
}
