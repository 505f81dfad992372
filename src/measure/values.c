/* SPDX-License-Identifier: Apache-2.0
 *
 * values.c - counts FP8 values and scales.
 *
 * How it works.  A task is one weight.  Its bytes are read in chunks and counted by code; where the
 * source has a weight of the same name, its bytes come beside them, since only there is it known
 * which zeros were none.  Sums over weights are made at the end, so that they do not depend on who
 * did what.
 */
#include "measure/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "checkpoint/weights.h"

enum { CHUNK = 256 << 10 }; /* values that are read together */

struct job {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_values_options *options;
    struct fp8q_values *values;
    uint64_t (*by_scale)[FP8Q_SCALE_BINS]; /* of each worker */
    char **memory;                         /* of each worker */
};

/* ---- one weight ------------------------------------------------------------------------------ */

/* Four tables in turn: a run of equal codes would wait for its own counter.  */
static void count_codes(const uint8_t *codes, size_t n, uint64_t by_code[256])
{
    uint32_t tables[4][256] = {{0}};

    for (size_t i = 0; i < n; i++)
        tables[i % 4][codes[i]]++;
    for (size_t code = 0; code < 256; code++)
        for (size_t k = 0; k < 4; k++)
            by_code[code] += tables[k][code];
}

static void take_counts(const uint64_t by_code[256], struct fp8q_value_figures *f)
{
    for (unsigned code = 0; code < 256; code++) {
        unsigned magnitude = code & 0x7F, exponent = magnitude >> 3;
        unsigned bin = exponent ? exponent + 1 : magnitude != 0;

        f->by_exponent[bin] += by_code[code];
        f->saturated += magnitude == 0x7E ? by_code[code] : 0;
        f->n_values += by_code[code];
    }
}

/* Zeros among @n codes whose source, of @size bytes each, is not zero, whatever its sign.  */
static uint64_t count_underflow(const uint8_t *codes, const char *source, size_t size, size_t n)
{
    uint64_t count = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, source + i * size, size);
        bits &= size == 2 ? 0x7FFF : 0x7FFFFFFF;
        count += (codes[i] & 0x7F) == 0 && bits != 0;
    }
    return count;
}

/* The weight of the source that these values were made of, or NULL.  */
static const struct fp8q_tensor *find_source(const struct fp8q_ckpt *source,
                                             const struct fp8q_tensor *t, size_t *size_out)
{
    const struct fp8q_tensor *s = source ? fp8q_ckpt_find(source, t->name) : NULL;
    enum fp8q_float format;

    if (!s || s->n_elems != t->n_elems || !fp8q_float_of(s->dtype, &format))
        return NULL;
    *size_out = s->dtype == FP8Q_F32 ? 4 : 2;
    return s;
}

static int count_values(const struct job *job, unsigned worker, const struct fp8q_tensor *t,
                        struct fp8q_value_figures *f, struct fp8q_error *err)
{
    const struct fp8q_ckpt *source = job->options->source;
    uint8_t *codes = (uint8_t *)job->memory[worker];
    char *beside = job->memory[worker] + CHUNK;
    uint64_t by_code[256] = {0};
    size_t size = 0;
    const struct fp8q_tensor *from = find_source(source, t, &size);

    for (uint64_t at = 0; at < t->n_elems; at += CHUNK) {
        size_t n = (size_t)fp8q_min_u64(t->n_elems - at, CHUNK);
        FP8Q_TRY(fp8q_watch_check(job->options->watch, err));
        FP8Q_TRY(fp8q_ckpt_read(job->ckpt, t, at, codes, n, err));
        count_codes(codes, n, by_code);
        if (!from)
            continue;

        FP8Q_TRY(fp8q_ckpt_read(source, from, at * size, beside, n * size, err));
        f->n_compared += n;
        f->underflowed += count_underflow(codes, beside, size, n);
    }

    take_counts(by_code, f);
    return FP8Q_OK;
}

static void count_scales(const float *scales, uint64_t n, struct fp8q_value_figures *f,
                         uint64_t bins[FP8Q_SCALE_BINS])
{
    f->n_scales = n;
    f->scale_min = INFINITY;

    for (uint64_t i = 0; i < n; i++) {
        int exponent;
        double scale = (double)scales[i];

        /* Zero and NaN have no place on the axis; verify tells of them.  */
        if (!(scale > 0) || !isfinite(scale))
            continue;
        (void)frexp(scale, &exponent); /* scale = m * 2^exponent, m from 0.5 on */

        int bin = exponent - 1 + FP8Q_SCALE_BINS_LOW;
        bins[bin < 0 ? 0 : fp8q_min_size((size_t)bin, FP8Q_SCALE_BINS - 1)]++;
        f->scale_min = fmin(f->scale_min, scale);
        f->scale_max = fmax(f->scale_max, scale);
    }

    if (isinf(f->scale_min))
        f->scale_min = 0;
}

static int measure_weight(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct job *job = ctx;
    const struct fp8q_tensor *t = &job->ckpt->tensors[task];
    struct fp8q_value_figures *f = &job->values->tensors[task];
    struct fp8q_weights w;
    if (t->dtype != FP8Q_F8_E4M3 || t->ndim < 2)
        return FP8Q_OK;

    /* What its scales mean is not for this to judge: without them it is left out.  */
    int status = fp8q_weights_open(job->ckpt, t->name, &w, err);
    if (status == FP8Q_E_IO || status == FP8Q_E_NOMEM)
        return status;
    if (status != FP8Q_OK)
        return FP8Q_OK;

    count_scales(w.scales, w.scale_from->n_elems, f, job->by_scale[worker]);
    fp8q_weights_reset(&w);

    FP8Q_TRY(count_values(job, worker, t, f, err));
    fp8q_watch_report(job->options->watch, "values", task, job->ckpt->n_tensors, FP8Q_UNIT_TENSORS);
    return FP8Q_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void add_figures(struct fp8q_value_figures *total, const struct fp8q_value_figures *f)
{
    bool first = total->n_scales == 0;
    if (f->n_values == 0)
        return;

    total->n_values += f->n_values;
    for (size_t i = 0; i < FP8Q_CODE_BINS; i++)
        total->by_exponent[i] += f->by_exponent[i];
    total->saturated += f->saturated;
    total->n_compared += f->n_compared;
    total->underflowed += f->underflowed;

    total->n_scales += f->n_scales;
    total->scale_min = first ? f->scale_min : fmin(total->scale_min, f->scale_min);
    total->scale_max = fmax(total->scale_max, f->scale_max);
}

static int measure(struct job *job, struct fp8q_error *err)
{
    struct fp8q_values *v = job->values;
    unsigned threads = job->options->threads;

    v->n_tensors = job->ckpt->n_tensors;
    v->tensors = fp8q_array(v->n_tensors, sizeof(*v->tensors));
    job->memory = fp8q_array(threads, sizeof(*job->memory));
    job->by_scale = fp8q_array(threads, sizeof(*job->by_scale));
    if (!v->tensors || !job->memory || !job->by_scale)
        return fp8q_fail_nomem(err);

    /* Codes, and beside them as many values of the widest format.  */
    for (unsigned i = 0; i < threads; i++)
        if (!(job->memory[i] = malloc(CHUNK + 4 * (size_t)CHUNK)))
            return fp8q_fail_nomem(err);

    FP8Q_TRY(fp8q_pool_run(job->options->watch, threads, v->n_tensors, measure_weight, job, err));

    for (size_t i = 0; i < v->n_tensors; i++)
        add_figures(&v->total, &v->tensors[i]);
    for (unsigned i = 0; i < threads; i++)
        for (size_t bin = 0; bin < FP8Q_SCALE_BINS; bin++)
            v->by_scale[bin] += job->by_scale[i][bin];
    return FP8Q_OK;
}

int fp8q_values_measure(const struct fp8q_ckpt *ckpt, const struct fp8q_values_options *options,
                        struct fp8q_values *values_out, struct fp8q_error *err)
{
    struct job job = {.ckpt = ckpt, .options = options, .values = values_out};
    *values_out = (struct fp8q_values){0};

    int status = measure(&job, err);

    for (unsigned i = 0; job.memory && i < options->threads; i++)
        free(job.memory[i]);
    free(job.memory);
    free(job.by_scale);
    if (status != FP8Q_OK)
        fp8q_values_reset(values_out);
    return status;
}

void fp8q_values_reset(struct fp8q_values *values)
{
    free(values->tensors);
    *values = (struct fp8q_values){0};
}
