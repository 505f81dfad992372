/* SPDX-License-Identifier: Apache-2.0
 *
 * calib_merge.c - adds up calibration files of the same weights.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calibration/calib.h"

struct merge {
    struct fp8q_calib *inputs;
    size_t n_inputs;
    struct fp8q_calib sum;
};

static bool add_counts(int64_t *sums, const int64_t *counts, size_t n)
{
    bool fits = true;
    for (size_t i = 0; i < n; i++)
        fits &= !__builtin_add_overflow(sums[i], counts[i], &sums[i]);
    return fits;
}

static int merge_site(struct merge *m, const struct fp8q_calib *other, struct fp8q_calib_site *s,
                      struct fp8q_error *err)
{
    const struct fp8q_calib_site *o = fp8q_calib_find(other, s->name);

    /* Of the same weights, and yet other inputs: made by another version, or by hand.  */
    if (!o || o->width != s->width)
        return fp8q_fail(err, FP8Q_E_ARG, "calibration",
                         "%s and %s cannot be merged: they differ in site \"%s\"",
                         m->inputs[0].file->path, other->file->path, s->name);

    /* Counts come from files, so that their sums may be anything: those that do not fit are lies.
     */
    bool fits = add_counts(s->count, o->count, o->n_groups) &&
                add_counts(s->moment_count, o->moment_count, 2) &&
                add_counts(s->hist, o->hist, FP8Q_HIST_BINS) &&
                add_counts(s->values, o->values, FP8Q_VALUE_BINS);
    if (!fits)
        return fp8q_fail(err, FP8Q_E_FORMAT, "calibration",
                         "%s and %s cannot be merged: the counts of \"%s\" add up to more than a "
                         "file can hold",
                         m->inputs[0].file->path, other->file->path, s->name);
    if (o->n_groups > s->n_groups)
        s->n_groups = o->n_groups;

    /* A sum over some of the files would be taken for one over all.  */
    for (int a = 0; a < FP8Q_CALIB_N_ARRAYS; a++)
        s->has[a] &= o->has[a];
    s->has_hist &= o->has_hist;
    s->has_values &= o->has_values;
    return FP8Q_OK;
}

/* The largest of all files; what one lacks, the sum lacks.  */
static void merge_caches(struct fp8q_calib *sum, const struct fp8q_calib *other)
{
    size_t n = 0;
    for (size_t i = 0; i < sum->n_caches; i++) {
        struct fp8q_calib_cache *c = &sum->caches[i];
        const struct fp8q_calib_cache *o = fp8q_calib_find_cache(other, c->name);
        if (!o || o->n_heads != c->n_heads)
            continue;

        for (int half = 0; half < 2; half++)
            for (uint32_t h = 0; h < c->n_heads; h++)
                if (o->absmax[half][h] > c->absmax[half][h])
                    c->absmax[half][h] = o->absmax[half][h];
        sum->caches[n++] = *c;
    }
    sum->n_caches = n;
}

static int add_arrays(const struct merge *m, const char *site, enum fp8q_calib_array array,
                      float *part_of, float *out, struct fp8q_error *err)
{
    for (size_t i = 0; i < m->n_inputs; i++) {
        const struct fp8q_calib_site *o = fp8q_calib_find(&m->inputs[i], site);
        FP8Q_TRY(fp8q_calib_read(&m->inputs[i], o, array, part_of, err));

        /* A file of fewer modalities has fewer rows: it adds to the first ones.  */
        uint64_t floats = fp8q_calib_floats(o, array);
        for (uint64_t j = 0; j < floats; j++)
            if (array != FP8Q_CALIB_ABSMAX)
                out[j] += part_of[j];
            else if (part_of[j] > out[j])
                out[j] = part_of[j];
    }
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
    int status = add_arrays(m, s->name, array, part_of, out, err);
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
    /* Cut where it grows too long: a name for people.  */
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
    /* The first file's sites are the frame; the others are added to them.  */
    m->sum.meta = first->meta;
    m->sum.n_sites = first->n_sites;
    m->sum.sites = fp8q_array(first->n_sites, sizeof(*m->sum.sites));
    if (!m->sum.sites)
        return fp8q_fail_nomem(err);

    memcpy(m->sum.sites, first->sites, first->n_sites * sizeof(*first->sites));
    m->sum.caches = fp8q_array(first->n_caches, sizeof(*m->sum.caches));
    if (!m->sum.caches)
        return fp8q_fail_nomem(err);
    memcpy(m->sum.caches, first->caches, first->n_caches * sizeof(*first->caches));
    m->sum.n_caches = first->n_caches;

    for (size_t i = 1; i < n_paths; i++) {
        FP8Q_TRY(add_meta(&m->sum.meta, &m->inputs[i], err));
        if (m->inputs[i].n_sites != first->n_sites)
            return fp8q_fail(err, FP8Q_E_ARG, "calibration", "%s and %s do not have the same sites",
                             first->file->path, m->inputs[i].file->path);
        for (size_t s = 0; s < first->n_sites; s++)
            FP8Q_TRY(merge_site(m, &m->inputs[i], &m->sum.sites[s], err));
        merge_caches(&m->sum, &m->inputs[i]);
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
    if (status != FP8Q_OK)
        goto out;
    snprintf(m.sum.meta.created, sizeof(m.sum.meta.created), "%s", created);
    status = fp8q_calib_write(&m.sum, out, overwrite, merge_get, &m, err);
out:
    for (size_t i = 0; i < m.n_inputs; i++)
        fp8q_calib_close(&m.inputs[i]);
    free(m.inputs);
    free(m.sum.sites);
    free(m.sum.caches);
    return status;
}
