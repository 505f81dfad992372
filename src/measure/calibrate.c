/* SPDX-License-Identifier: Apache-2.0
 *
 * calibrate.c - runs a network and collects the statistics of calib.h.
 *
 * How it works.  The forward pass calls on_site() with the inputs of each linear of each layer.  A
 * task is a block of 128 channels with all tokens of the group in order, so the sums depend on
 * nothing but the inputs: not on threads, and not on how samples are grouped.  The Hessian of a
 * block is a product of packed matrices over runs of tokens; a quarter of the runs goes into a
 * second one that is held out, for the guard of gptq.h.
 *
 * Of a mixture each expert has statistics of its own, of the tokens that were routed to it.  An expert
 * that no token reached has none, and takes no memory.
 */
#include "calibration/calib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibration/samples.h"
#include "model/forward.h"
#include "base/mem.h"
#include "base/pool.h"
#include "measure/internal.h"

/* Accumulators of one site.  */
struct sums {
    double *sum, *sumsq; /* [modality][width] */
    float *absmax, *hblk, *held;
};

struct collector {
    const struct fp8q_model *model;
    const struct fp8q_inputs *inputs;
    const struct fp8q_calibrate_options *options;
    struct fp8q_calib calib; /* sites in the order of the network */
    size_t *index;           /* of a site in there, by the slot of its first linear */
    struct sums *sums;
    struct fp8q_forward *fw;
    float *h;            /* hidden states of the group at hand */
    size_t first_sample; /* of it */
    float *inverse_norms;
    float *scratch; /* a worker's rows, packed twice, and product */
    size_t scratch_floats, max_run;
    struct fp8q_holdout holdout;
    uint32_t n_groups; /* modalities */
    uint64_t work_done;
};

/* ---- one group at one site ------------------------------------------------------------------- */

struct site_job {
    struct collector *c;
    struct fp8q_forward *fw;
    const struct fp8q_group *group;
    struct fp8q_calib_site *site;
    struct sums *sums;
    const struct fp8q_site_inputs *in;
    const float *x;
    size_t width;
    struct counts {
        int64_t tiles[FP8Q_HIST_BINS], values[FP8Q_VALUE_BINS];
    } * counts; /* per block of channels */
};

static unsigned hist_bin(float amax)
{
    if (!(amax > 0))
        return 0;

    /* Bin 40 holds magnitudes from 1 up to 2; what is too small or too large for 64
     * bins counts in the first or the last.  */
    int bin = ilogbf(amax) + 40;
    if (bin < 0)
        return 0;
    return bin < FP8Q_HIST_BINS ? (unsigned)bin : FP8Q_HIST_BINS - 1;
}

static void add_tile(const struct site_job *job, size_t block, size_t n, const float *x, unsigned g)
{
    size_t at = g * job->width + block * FP8Q_BLOCK;
    float amax = 0;

    /* Sums and bins of a block belong to one task, so nothing here is locked.  */
    for (size_t i = 0; i < n; i++) {
        float v = x[i], magnitude = fabsf(v);
        job->sums->sum[at + i] += (double)v;
        job->sums->sumsq[at + i] += (double)v * (double)v;
        if (magnitude > job->sums->absmax[at + i])
            job->sums->absmax[at + i] = magnitude;
        job->counts[block].values[fp8q_value_bin(magnitude)]++;
        amax = magnitude > amax ? magnitude : amax;
    }
    job->counts[block].tiles[hist_bin(amax)]++;
}

/* h += sum over the run of u u^T, u = this block's part of a token vector scaled to length 1.  */
static void add_moments(const struct site_job *job, float *scratch, size_t block, size_t n,
                        size_t first, size_t count, float *h)
{
    const struct fp8q_gemm *g = job->fw->gemm;
    float *rows = scratch, *product = rows + job->c->max_run * FP8Q_BLOCK;
    float *packed_a = product + FP8Q_MOMENTS;
    float *packed_b = packed_a + fp8q_packed_a(g, FP8Q_BLOCK, job->c->max_run);

    /* The norm is that of the whole token vector, not of this block's part of it.  */
    for (size_t t = 0; t < count; t++) {
        const float *x = job->x + (first + t) * job->width + block * FP8Q_BLOCK;
        float factor = job->c->inverse_norms[first + t];
        for (size_t i = 0; i < n; i++)
            rows[t * n + i] = x[i] * factor;
    }

    /* Channels are the rows of both operands, tokens what is summed over.  */
    struct fp8q_strided columns = {rows, 1, n};
    fp8q_pack_a(g, columns, n, count, packed_a);
    fp8q_pack_b(g, columns, n, count, packed_b);
    fp8q_gemm_packed(g, n, n, count, packed_a, packed_b, product, FP8Q_BLOCK);

    /* Both have rows of 128 floats: of a narrower last block the rest stays zero, as the file has
     * it.  */
    h += block * FP8Q_MOMENTS;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            h[i * FP8Q_BLOCK + j] += product[i * FP8Q_BLOCK + j];
}

/* Rows from @row on whose tokens come before @end, which is one of the group.  */
static size_t rows_before(const struct site_job *job, size_t row, size_t end)
{
    const struct fp8q_site_inputs *in = job->in;
    size_t n = 0;
    if (!in->tokens)
        return end - row;
    while (row + n < in->n_tokens && in->tokens[row + n] < end)
        n++;
    return n;
}

static unsigned modality_of(const struct site_job *job, size_t sample, size_t row)
{
    const struct fp8q_sample *s = &job->group->samples[sample];
    size_t token = job->in->tokens ? job->in->tokens[row] : row;
    return s->modality ? s->modality[token - job->group->first[sample]] : 0;
}

/* Calls @each with the rows of every run of tokens, in order; of an expert's tokens only some are of a
 * run.  */
typedef void run_fn(const struct site_job *job, void *ctx, size_t row, size_t n, bool held_out);

static void each_run(const struct site_job *job, run_fn *each, void *ctx)
{
    const struct collector *c = job->c;
    size_t row = 0;
    for (size_t i = 0; i < job->group->n_samples; i++) {
        size_t n_tokens = job->group->samples[i].n_tokens;
        for (size_t t = 0, run; t < n_tokens; t += run) {
            bool held_out;
            run = fp8q_holdout_run(&c->holdout, c->first_sample + i, n_tokens, t, &held_out);
            size_t n = rows_before(job, row, job->group->first[i] + t + run);
            if (n > 0)
                each(job, ctx, row, n, held_out);
            row += n;
        }
    }
}

struct block {
    size_t index, n; /* channels */
    float *scratch;
};

static void add_run(const struct site_job *job, void *ctx, size_t row, size_t n, bool held_out)
{
    const struct block *b = ctx;
    add_moments(job, b->scratch, b->index, b->n, row, n,
                held_out ? job->sums->held : job->sums->hblk);
}

static int block_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    const struct site_job *job = ctx;
    struct collector *c = job->c;
    struct block b = {.index = (size_t)task,
                      .n = fp8q_min_size(job->width - (size_t)task * FP8Q_BLOCK, FP8Q_BLOCK),
                      .scratch = c->scratch + worker * c->scratch_floats};
    (void)err;

    /* One tile is one token's part of the block: what an engine with dynamic scales sees at a time.  */
    for (size_t i = 0, row = 0; i < job->group->n_samples; i++) {
        size_t end = job->group->first[i] + job->group->samples[i].n_tokens;
        for (size_t n = rows_before(job, row, end); n > 0; n--, row++)
            add_tile(job, b.index, b.n, job->x + row * job->width + b.index * FP8Q_BLOCK,
                     modality_of(job, i, row));
    }
    if (!c->options->no_moments)
        each_run(job, add_run, &b);
    return FP8Q_OK;
}

static void count_run(const struct site_job *job, void *ctx, size_t row, size_t n, bool held_out)
{
    (void)ctx, (void)row;
    job->site->moment_count[held_out] += (int64_t)n;
}

static void count_tokens(const struct site_job *job)
{
    /* Beside the tasks: each block sees every token, and they are to be counted once.  */
    for (size_t i = 0, row = 0; i < job->group->n_samples; i++) {
        size_t end = job->group->first[i] + job->group->samples[i].n_tokens;
        for (size_t n = rows_before(job, row, end); n > 0; n--, row++)
            job->site->count[modality_of(job, i, row)]++;
    }
    if (!job->c->options->no_moments)
        each_run(job, count_run, NULL);
}

/* A site comes to be with its first tokens; its place in the file was given to it before.  */
static int open_site(struct collector *c, size_t index, const struct fp8q_site_inputs *in,
                     struct fp8q_error *err)
{
    struct fp8q_calib_site *s = &c->calib.sites[index];
    struct sums *sums = &c->sums[index];
    enum fp8q_linear first = fp8q_site_first(in->site);
    struct fp8q_name name;

    /* Linears that share an input share its statistics, under the name of the first.  */
    if (in->expert == FP8Q_NO_EXPERT)
        fp8q_linear_name(c->model, in->layer, first, "", &name);
    else
        fp8q_expert_name(c->model, in->layer, in->expert, first, "", &name);
    memcpy(s->name, name.text, sizeof(s->name));
    s->width = in->width;
    s->n_groups = c->n_groups;
    s->has_hist = s->has_values = true;
    for (int a = 0; a < FP8Q_CALIB_N_ARRAYS; a++)
        s->has[a] = a < FP8Q_CALIB_HBLK || !c->options->no_moments;

    /* Long sums are F64; what is a product of matrices is F32 throughout.  */
    uint64_t values = c->n_groups * s->width;
    uint64_t moments = c->options->no_moments ? 0 : fp8q_calib_floats(s, FP8Q_CALIB_HBLK);
    sums->sum = fp8q_array(values, sizeof(double));
    sums->sumsq = fp8q_array(values, sizeof(double));
    sums->absmax = fp8q_array(values, sizeof(float));
    sums->hblk = fp8q_array(moments, sizeof(float));
    sums->held = fp8q_array(moments, sizeof(float));
    bool ok = sums->sum && sums->sumsq && sums->absmax && sums->hblk && sums->held;
    return ok ? FP8Q_OK : fp8q_fail_nomem(err);
}

static int on_site(void *ctx, struct fp8q_forward *fw, const struct fp8q_site_inputs *inputs,
                   struct fp8q_error *err)
{
    struct collector *c = ctx;
    enum fp8q_linear first = fp8q_site_first(inputs->site);
    size_t slot = inputs->expert == FP8Q_NO_EXPERT
                      ? fp8q_linear_slot(inputs->layer, first)
                      : fp8q_expert_slot(c->model, inputs->layer, inputs->expert, first);
    const size_t index = c->index[slot];
    if (!c->sums[index].sum)
        FP8Q_TRY(open_site(c, index, inputs, err));
    const size_t width = inputs->width, blocks = (width + FP8Q_BLOCK - 1) / FP8Q_BLOCK;
    struct site_job job = {.c = c,
                           .fw = fw,
                           .group = inputs->group,
                           .site = &c->calib.sites[index],
                           .sums = &c->sums[index],
                           .in = inputs,
                           .x = inputs->x,
                           .width = width};

    /* Token vectors count with length 1, so that no loud token drowns the others.  */
    for (size_t t = 0; t < inputs->n_tokens; t++) {
        const float *x = inputs->x + t * width;
        double square = fw->gemm->dot(x, x, width);
        if (!isfinite(square))
            return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite", "an activation is NaN or infinite");
        c->inverse_norms[t] = square > 0 ? (float)(1.0 / sqrt(square)) : 0.0f;
    }

    job.counts = fp8q_array(blocks, sizeof(*job.counts));
    if (!job.counts)
        return fp8q_fail_nomem(err);
    int status = fp8q_pool_run(fw->watch, fw->n_threads, blocks, block_task, &job, err);

    /* Each block has its own bins, whole numbers that may be joined in any order.  */
    for (size_t b = 0; b < blocks; b++) {
        for (size_t i = 0; i < FP8Q_HIST_BINS; i++)
            job.site->hist[i] += job.counts[b].tiles[i];
        for (size_t i = 0; i < FP8Q_VALUE_BINS; i++)
            job.site->values[i] += job.counts[b].values[i];
    }
    free(job.counts);
    count_tokens(&job);
    return status;
}

/* ---- keys and values ------------------------------------------------------------------------- */

static float head_absmax(const float *x, size_t n_tokens, size_t stride, size_t dim)
{
    float most = 0;
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t d = 0; d < dim; d++)
            most = fmaxf(most, fabsf(x[t * stride + d]));
    return most;
}

static int on_cache(void *ctx, struct fp8q_forward *fw, const struct fp8q_group *group,
                    uint32_t layer, struct fp8q_error *err)
{
    struct collector *c = ctx;
    struct fp8q_calib_cache *cache = &c->calib.caches[layer];
    size_t dim = (size_t)c->model->head_dim, stride = cache->n_heads * dim;
    const float *const halves[2] = {fw->k, fw->v};
    (void)err;

    for (int half = 0; half < 2; half++)
        for (uint32_t h = 0; h < cache->n_heads; h++) {
            float *most = &cache->absmax[half][h];
            *most = fmaxf(*most, head_absmax(halves[half] + h * dim, group->n_tokens, stride, dim));
        }
    return FP8Q_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* One more than the largest modality of any token.  */
static uint32_t count_groups(const struct fp8q_inputs *inputs)
{
    uint32_t n_groups = 1;

    for (size_t i = 0; i < inputs->n_samples; i++) {
        const struct fp8q_sample *s = &inputs->samples[i];
        for (size_t t = 0; s->modality && t < s->n_tokens; t++)
            if (s->modality[t] >= n_groups)
                n_groups = s->modality[t] + 1u;
    }
    return n_groups;
}

/* An attention is called what its key projection lies in.  */
static int open_caches(struct collector *c, struct fp8q_error *err)
{
    const struct fp8q_model *m = c->model;
    c->calib.caches = fp8q_array(m->n_layers, sizeof(*c->calib.caches));
    if (!c->calib.caches)
        return fp8q_fail_nomem(err);
    /* Of latent attention another thing is cached, for which files have no place.  */
    if (m->n_kv_heads > FP8Q_CACHE_HEADS || m->latent.kv_rank > 0)
        return FP8Q_OK;

    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        struct fp8q_calib_cache *cache = &c->calib.caches[c->calib.n_caches++];
        struct fp8q_name name;
        fp8q_linear_name(m, layer, FP8Q_K_PROJ, "", &name);
        char *last = strrchr(name.text, '.');
        if (last)
            *last = '\0';
        snprintf(cache->name, sizeof(cache->name), "%.159s", name.text);
        cache->n_heads = m->n_kv_heads;
    }
    return FP8Q_OK;
}

/* Numbers all sites that there can be, in the order of the network: a file's order must not depend on
 * which expert was reached first.  */
static int open_index(struct collector *c, struct fp8q_error *err)
{
    const struct fp8q_model *m = c->model;
    c->index = fp8q_array(m->n_slots, sizeof(*c->index));
    if (!c->index)
        return fp8q_fail_nomem(err);

    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        for (int kind = 0; kind < FP8Q_N_SITES; kind++) {
            enum fp8q_linear first = fp8q_site_first((enum fp8q_site_kind)kind);
            if (fp8q_linear_exists(m, layer, first))
                c->index[fp8q_linear_slot(layer, first)] = c->calib.n_sites++;
        }
        for (uint32_t e = 0; m->sparse[layer] && e < m->moe.n_experts; e++) {
            c->index[fp8q_expert_slot(m, layer, e, FP8Q_GATE_PROJ)] = c->calib.n_sites++;
            c->index[fp8q_expert_slot(m, layer, e, FP8Q_DOWN_PROJ)] = c->calib.n_sites++;
        }
    }
    return FP8Q_OK;
}

/* Those that were never reached go.  */
static void drop_unreached(struct collector *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->calib.n_sites; i++) {
        if (!c->sums[i].sum)
            continue;
        /* Never backwards, and a site that moves leaves nothing behind.  */
        if (n < i) {
            c->calib.sites[n] = c->calib.sites[i];
            c->sums[n] = c->sums[i];
            c->sums[i] = (struct sums){.sum = NULL};
        }
        n++;
    }
    c->calib.n_sites = n;
}

static int open_collector(struct collector *c, size_t max_tokens, struct fp8q_error *err)
{
    const struct fp8q_forward *fw = c->fw;
    c->n_groups = count_groups(c->inputs);

    FP8Q_TRY(open_index(c, err));
    /* Zeroed pages cost nothing until a site is there.  */
    c->calib.sites = fp8q_array(c->calib.n_sites, sizeof(*c->calib.sites));
    c->sums = fp8q_array(c->calib.n_sites, sizeof(*c->sums));
    c->inverse_norms = fp8q_array(max_tokens, sizeof(float));
    c->h = fp8q_array((uint64_t)max_tokens * c->model->hidden, sizeof(*c->h));

    /* A run may be a whole sample.  */
    c->max_run = fp8q_longest_sample(c->inputs);
    c->holdout = fp8q_holdout_of(c->inputs);
    c->scratch_floats = c->max_run * FP8Q_BLOCK + FP8Q_MOMENTS +
                        fp8q_packed_a(fw->gemm, FP8Q_BLOCK, c->max_run) +
                        fp8q_packed_b(fw->gemm, FP8Q_BLOCK, c->max_run);
    c->scratch = fp8q_array((uint64_t)fw->n_threads * c->scratch_floats, sizeof(float));
    if (!c->calib.sites || !c->sums || !c->inverse_norms || !c->h || !c->scratch)
        return fp8q_fail_nomem(err);

    return open_caches(c, err);
}

static void close_collector(struct collector *c)
{
    for (size_t i = 0; c->sums && i < c->calib.n_sites; i++) {
        free(c->sums[i].sum);
        free(c->sums[i].sumsq);
        free(c->sums[i].absmax);
        free(c->sums[i].hblk);
        free(c->sums[i].held);
    }
    free(c->sums);
    free(c->calib.sites);
    free(c->calib.caches);
    free(c->index);
    free(c->inverse_norms);
    free(c->h);
    free(c->scratch);
}

static int run_group(void *ctx, const struct fp8q_group *g, size_t first_sample,
                     struct fp8q_error *err)
{
    struct collector *c = ctx;
    const struct fp8q_branch branch = {.model = c->model};

    c->first_sample = first_sample;
    FP8Q_TRY(fp8q_forward_embed(c->fw, &branch, g, c->h, err));
    for (uint32_t layer = 0; layer < c->model->n_layers; layer++) {
        FP8Q_TRY(fp8q_forward_layer(c->fw, &branch, g, layer, c->h, err));
        c->work_done += g->n_tokens;
        fp8q_watch_report(c->options->watch, "calibrate", c->work_done / c->model->n_layers,
                          c->inputs->n_tokens, FP8Q_UNIT_TOKENS);
    }

    /* One group tells text from noise (fp8q_calib_is_noise), and its states are needed no
     * longer.  */
    return first_sample == 0 ? fp8q_likelihood(c->fw, c->model, g, c->h, &c->calib.meta.nll_sum,
                                               &c->calib.meta.nll_tokens, err)
                             : FP8Q_OK;
}

/* Arrays are written one at a time; sums of long runs are F64 until here.  */
static int get_array(void *ctx, size_t index, enum fp8q_calib_array array, float *out,
                     struct fp8q_error *err)
{
    const struct collector *c = ctx;
    const struct sums *s = &c->sums[index];
    const double *const wide[FP8Q_CALIB_N_ARRAYS] = {
        [FP8Q_CALIB_SUM] = s->sum, [FP8Q_CALIB_SUMSQ] = s->sumsq};
    const float *const narrow[FP8Q_CALIB_N_ARRAYS] = {
        [FP8Q_CALIB_ABSMAX] = s->absmax, [FP8Q_CALIB_HBLK] = s->hblk, [FP8Q_CALIB_HELD] = s->held};
    size_t n = (size_t)fp8q_calib_floats(&c->calib.sites[index], array);
    (void)err;

    if (narrow[array])
        memcpy(out, narrow[array], n * sizeof(*out));
    for (size_t i = 0; wide[array] && i < n; i++)
        out[i] = (float)wide[array][i];
    return FP8Q_OK;
}

static void fill_meta(struct collector *c)
{
    struct fp8q_calib_meta *m = &c->calib.meta;
    /* By this, statistics of other weights are refused later on.  */
    snprintf(m->source_fingerprint, sizeof(m->source_fingerprint), "%08x",
             c->options->source_fingerprint);
    snprintf(m->inputs_fingerprint, sizeof(m->inputs_fingerprint), "%08x", c->inputs->fingerprint);
    snprintf(m->source, sizeof(m->source), "%s", c->model->ckpt->path);
    snprintf(m->dataset, sizeof(m->dataset), "%s", c->inputs->dataset);
    snprintf(m->created, sizeof(m->created), "%s", c->options->created);
    m->n_samples = c->inputs->n_samples;
    m->vocab = c->model->vocab;
    m->n_tokens = c->inputs->n_tokens;
}

static int run_calibrate(struct collector *c, const char *out, bool overwrite,
                         struct fp8q_error *err)
{
    const struct fp8q_calibrate_options *o = c->options;
    uint64_t bytes = o->buffer_bytes ? o->buffer_bytes : (uint64_t)256 << 20;
    size_t max_tokens = fp8q_group_tokens(c->model, c->inputs, 1, bytes);

    /* The forward pass first: the collector's scratch is sized for its kernel and threads.  */
    FP8Q_TRY(fp8q_forward_open(c->fw, c->model, o->n_threads, o->kernel, max_tokens,
                               fp8q_longest_sample(c->inputs), err));
    FP8Q_TRY(open_collector(c, max_tokens, err));
    c->fw->watch = o->watch;
    c->fw->on_site = on_site;
    c->fw->on_cache = c->calib.n_caches ? on_cache : NULL;
    c->fw->on_site_ctx = c;
    const struct fp8q_groups groups = {
        .model = c->model, .inputs = c->inputs, .max_tokens = max_tokens};
    FP8Q_TRY(fp8q_groups_run(&groups, run_group, c, err));

    drop_unreached(c);
    fill_meta(c);
    return fp8q_calib_write(&c->calib, out, overwrite, get_array, c, err);
}

int fp8q_calibrate(const struct fp8q_model *model, const struct fp8q_inputs *inputs,
                   const struct fp8q_calibrate_options *options, const char *out, bool overwrite,
                   struct fp8q_error *err)
{
    struct fp8q_forward fw = {0};
    struct collector c = {.model = model, .inputs = inputs, .options = options, .fw = &fw};
    FP8Q_TRY(fp8q_inputs_check(inputs, model, err));

    int status = run_calibrate(&c, out, overwrite, err);
    close_collector(&c);
    fp8q_forward_close(&fw);
    return status;
}
