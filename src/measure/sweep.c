/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep.c - units and their costs.
 *
 * How it works.  A unit is a set of linears that engines fuse, so that it is quantized whole or not
 * at all.  Its cost is the KL divergence of a run in which it alone is rounded.  Run naively, that
 * is one pass over the network for each unit; but a unit of layer k changes nothing before layer k:
 *
 *     source pass   keeps the hidden state before every layer, and after the last
 *     unit of k     starts from the kept state before k and runs layers k .. last
 *     BATCH units   are scored together, so that the source's head runs once for all of them
 *
 * That halves the work, and memory is (layers + BATCH) hidden states of one group of samples.
 * split.c then chooses which units to leave unquantized.
 */
#include "measure/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "measure/internal.h"
#include "measure/score.h"

#define BATCH 4 /* units that share one pass of the source's head */

/* ---- units ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint16_t linears;
} kinds[] = {
    /* Latent attention has its two first products here, which engines fuse as well.  */
    {"q/k/v", 1 << FP8Q_Q_PROJ | 1 << FP8Q_K_PROJ | 1 << FP8Q_V_PROJ | 1 << FP8Q_KV_A_PROJ},
    {"q_b", 1 << FP8Q_Q_B_PROJ},
    {"kv_b", 1 << FP8Q_KV_B_PROJ},
    {"o", 1 << FP8Q_O_PROJ},
    {"gate/up", 1 << FP8Q_GATE_PROJ | 1 << FP8Q_UP_PROJ},
    {"down", 1 << FP8Q_DOWN_PROJ},
    {"shared gate/up", 3 << FP8Q_PART_SHARED},
    {"shared down", 4 << FP8Q_PART_SHARED},
    {"experts", 1 << FP8Q_PART_EXPERTS},
};
#define N_KINDS ((int)(sizeof(kinds) / sizeof(*kinds)))

static bool fits(const struct fp8q_model *m, const struct fp8q_part_weight *w,
                 enum fp8q_scheme scheme, bool unaligned)
{
    bool blocks_fit = unaligned || (w->shape[0] % FP8Q_BLOCK == 0 && w->shape[1] % FP8Q_BLOCK == 0);
    if (m->scaling[w->slot] != FP8Q_SCALING_NONE)
        return false;
    /* Stacks are scaled in blocks or not at all.  */
    if (scheme != FP8Q_SCHEME_BLOCK && w->tensor->ndim == 3)
        return false;
    return scheme == FP8Q_SCHEME_BLOCK
               ? blocks_fit
               : scheme != FP8Q_SCHEME_GROUP || w->shape[1] % FP8Q_GROUP == 0;
}

/* Whole or not at all, in every layer that has it: every weight wide, and of sizes that the scheme can
 * scale.  */
static bool can_quantize(const struct fp8q_model *m, const struct fp8q_sweep_unit *u,
                         uint16_t parts, enum fp8q_scheme scheme, bool unaligned)
{
    unsigned n = 0;
    for (uint32_t layer = u->first_layer; layer <= u->last_layer; layer++)
        for (int i = 0; i < FP8Q_N_PARTS; i++) {
            struct fp8q_part_weight w;
            if (!(parts >> i & 1) || !fp8q_part_exists(m, layer, i))
                continue;
            n++;
            for (uint32_t k = 0; fp8q_part_weight_of(m, layer, i, k, &w); k++)
                if (!fits(m, &w, scheme, unaligned))
                    return false;
        }
    return n > 0;
}

static uint64_t scale_bytes(enum fp8q_scheme scheme, const uint64_t shape[2])
{
    switch (scheme) {
    case FP8Q_SCHEME_CHANNEL:
        return shape[0] * 4;
    case FP8Q_SCHEME_GROUP:
        return shape[0] * fp8q_ceil_div(shape[1], FP8Q_GROUP);
    default:
        return fp8q_ceil_div(shape[0], FP8Q_BLOCK) * fp8q_ceil_div(shape[1], FP8Q_BLOCK) * 4;
    }
}

static uint64_t bytes_saved(const struct fp8q_model *m, uint32_t layer,
                            const struct fp8q_sweep_choice *c)
{
    uint64_t saved = 0;

    for (int i = 0; i < FP8Q_N_PARTS; i++) {
        struct fp8q_part_weight w;
        bool rest = i < FP8Q_N_LINEARS && fp8q_linear_is_rest(m, (enum fp8q_linear)i);
        if (!(c->linears >> i & 1) || rest || !fp8q_part_exists(m, layer, i))
            continue;

        for (uint32_t k = 0; fp8q_part_weight_of(m, layer, i, k, &w); k++) {
            uint64_t bytes = w.tensor->n_elems + scale_bytes(c->scheme, w.shape) * w.matrices;
            /* A tiny weight may be smaller than its scale.  */
            if (w.tensor->size_bytes > bytes)
                saved += w.tensor->size_bytes - bytes;
        }
    }
    return saved;
}

/* Those of @parts that any layer of the unit has.  */
static uint16_t existing(const struct fp8q_model *m, const struct fp8q_sweep_unit *u,
                         uint16_t parts)
{
    uint16_t found = 0;
    for (uint32_t layer = u->first_layer; layer <= u->last_layer; layer++)
        for (int i = 0; i < FP8Q_N_PARTS; i++)
            if (parts >> i & 1 && fp8q_part_exists(m, layer, i))
                found |= (uint16_t)(1u << i);
    return found;
}

/* Adds what of layers @first to @last x @linears can be quantized as one unit, if there is anything,
 * with all schemes that can.  */
static void add_unit(struct fp8q_sweep *s, const struct fp8q_model *m, const char *name,
                     uint32_t first, uint32_t last, uint16_t linears,
                     const struct fp8q_sweep_options *o)
{
    static const enum fp8q_scheme all[FP8Q_SWEEP_CHOICES] = {FP8Q_SCHEME_BLOCK, FP8Q_SCHEME_CHANNEL,
                                                             FP8Q_SCHEME_GROUP};
    unsigned schemes = o->schemes ? o->schemes : 1U << FP8Q_SCHEME_BLOCK;
    struct fp8q_sweep_unit u = {.first_layer = first, .last_layer = last};

    for (int i = 0; i < FP8Q_SWEEP_CHOICES; i++) {
        struct fp8q_sweep_choice c = {.scheme = all[i]};
        if (!(schemes >> all[i] & 1))
            continue;
        for (int k = 0; k < N_KINDS; k++)
            if ((linears & kinds[k].linears) &&
                can_quantize(m, &u, kinds[k].linears, all[i], o->unaligned))
                c.linears |= existing(m, &u, kinds[k].linears);

        for (uint32_t layer = first; layer <= last; layer++)
            c.bytes_saved += bytes_saved(m, layer, &c);
        if (c.linears)
            u.choices[u.n_choices++] = c;
    }

    snprintf(u.name, sizeof(u.name), "%s", name);
    if (u.n_choices)
        s->units[s->n_units++] = u;
}

static void add_units(struct fp8q_sweep *s, const struct fp8q_model *m,
                      const struct fp8q_sweep_options *o)
{
    const uint16_t all = (1 << FP8Q_N_PARTS) - 1;
    char name[64];

    for (uint32_t layer = 0; layer < m->n_layers && o->by == FP8Q_SWEEP_LAYER; layer++) {
        snprintf(name, sizeof(name), "layers.%u", layer);
        add_unit(s, m, name, layer, layer, all, o);
    }

    for (int k = 0; k < N_KINDS && o->by == FP8Q_SWEEP_KIND; k++) {
        snprintf(name, sizeof(name), "all %s", kinds[k].name);
        add_unit(s, m, name, 0, m->n_layers - 1, kinds[k].linears, o);
    }

    for (uint32_t layer = 0; layer < m->n_layers && o->by == FP8Q_SWEEP_SITE; layer++)
        for (int k = 0; k < N_KINDS; k++) {
            snprintf(name, sizeof(name), "layers.%u %s", layer, kinds[k].name);
            add_unit(s, m, name, layer, layer, kinds[k].linears, o);
        }
}

static int list_units(struct fp8q_sweep *s, const struct fp8q_model *m,
                      const struct fp8q_sweep_options *o, struct fp8q_error *err)
{
    /* One for each site of each layer is the most that any grouping gives.  */
    s->units = fp8q_array((uint64_t)m->n_layers * N_KINDS, sizeof(*s->units));
    if (!s->units)
        return fp8q_fail_nomem(err);
    add_units(s, m, o);

    s->steps = fp8q_array(s->n_units, FP8Q_SWEEP_CHOICES * sizeof(*s->steps));
    if (!s->steps)
        return fp8q_fail_nomem(err);
    if (s->n_units == 0)
        return fp8q_fail(
            err, FP8Q_E_ARG, "nothing",
            "nothing can be quantized: weights are F8 already, or their sizes are no multiples "
            "of 128 (--unaligned quantize)");
    return FP8Q_OK;
}

/* ---- buffers --------------------------------------------------------------------------------- */

struct run {
    struct fp8q_sweep_job job;
    struct fp8q_forward fw;
    struct fp8q_as as; /* the one that runs */
    struct trial {
        size_t unit;
        unsigned choice;
    } * trials; /* each choice of each unit */
    size_t max_tokens, n_trials;
    float *states; /* [layer 0 .. n_layers][max_tokens][hidden]: before each, and after the last */
    float *h[1 + BATCH]; /* [0]: the source */
    struct fp8q_token_score *scores[1 + BATCH];
    double *kld, *tokens;           /* [trial][sample], [sample] */
    int64_t *targets;               /* none: only the KL divergence is asked for */
    uint64_t work_done, work_total; /* layers x tokens */
};

static int allocate(struct run *r, struct fp8q_error *err)
{
    const struct fp8q_model *m = r->job.model;
    size_t n_samples = r->job.inputs->n_samples;
    uint64_t floats = (uint64_t)r->max_tokens * m->hidden;

    r->states = fp8q_array(floats * (m->n_layers + 1), sizeof(float));
    r->kld = fp8q_array((uint64_t)r->n_trials * n_samples, sizeof(double));
    r->tokens = fp8q_array(n_samples, sizeof(double));
    r->targets = fp8q_array(r->max_tokens, sizeof(*r->targets));
    bool ok = r->states && r->kld && r->tokens && r->targets;

    for (int i = 0; i < 1 + BATCH; i++) {
        r->h[i] = fp8q_array(floats, sizeof(float));
        r->scores[i] = fp8q_array(r->max_tokens, sizeof(**r->scores));
        ok = ok && r->h[i] && r->scores[i];
    }
    for (size_t i = 0; ok && i < r->max_tokens; i++)
        r->targets[i] = -1;
    return ok ? FP8Q_OK : fp8q_fail_nomem(err);
}

static int list_trials(struct run *r, struct fp8q_error *err)
{
    const struct fp8q_sweep *s = r->job.sweep;
    r->trials = fp8q_array(s->n_units, FP8Q_SWEEP_CHOICES * sizeof(*r->trials));
    if (!r->trials)
        return fp8q_fail_nomem(err);

    for (size_t u = 0; u < s->n_units; u++)
        for (unsigned c = 0; c < s->units[u].n_choices; c++)
            r->trials[r->n_trials++] = (struct trial){u, c};
    return FP8Q_OK;
}

static int open_run(struct run *r, struct fp8q_error *err)
{
    const struct fp8q_model *m = r->job.model;
    const struct fp8q_inputs *in = r->job.inputs;
    const struct fp8q_sweep_options *o = r->job.options;
    uint64_t bytes = o->buffer_bytes ? o->buffer_bytes : (uint64_t)512 << 20;

    /* The states count like that many more branches.  */
    r->max_tokens = fp8q_group_tokens(m, in, (m->n_layers + BATCH) / 2 + 1, bytes);
    FP8Q_TRY(list_trials(r, err));

    /* The source pass, and then each trial from its unit's first layer on.  */
    r->work_total = in->n_tokens * m->n_layers;
    for (size_t i = 0; i < r->n_trials; i++)
        r->work_total +=
            in->n_tokens * (m->n_layers - r->job.sweep->units[r->trials[i].unit].first_layer);

    FP8Q_TRY(fp8q_as_open(m, o->kernel, &r->as, err));
    FP8Q_TRY(allocate(r, err));
    FP8Q_TRY(fp8q_forward_open(&r->fw, m, o->n_threads, o->kernel, r->max_tokens,
                               fp8q_longest_sample(in), err));
    r->fw.watch = o->watch;
    return FP8Q_OK;
}

static void close_run(struct run *r)
{
    free(r->states);
    free(r->kld);
    free(r->tokens);
    free(r->targets);
    for (int i = 0; i < 1 + BATCH; i++) {
        free(r->h[i]);
        free(r->scores[i]);
    }
    free(r->trials);
    fp8q_as_close(&r->as);
    fp8q_forward_close(&r->fw);
}

/* ---- one group ------------------------------------------------------------------------------- */

static void progress(struct run *r, uint64_t work)
{
    r->work_done += work;
    fp8q_watch_report(r->job.options->watch, "sweep", r->work_done, r->work_total, FP8Q_UNIT_STEPS);
}

/* Moves the hidden states of scored positions to the front; how many there are.  */
static size_t scored_rows(const struct run *r, const struct fp8q_group *g, float *h)
{
    size_t hidden = (size_t)r->job.model->hidden, n = 0;

    for (size_t i = 0; i < g->n_samples; i++)
        for (size_t t = 0; t < g->samples[i].n_tokens; t++)
            if (fp8q_sample_scored(&g->samples[i], t))
                memmove(h + n++ * hidden, h + (g->first[i] + t) * hidden, hidden * sizeof(*h));
    return n;
}

/* Runs the layers from the unit's first on, with the unit quantized.  */
static int run_trial(struct run *r, const struct fp8q_group *g, const struct trial *t,
                     unsigned slot, struct fp8q_error *err)
{
    const struct fp8q_model *m = r->job.model;
    const struct fp8q_sweep_unit *u = &r->job.sweep->units[t->unit];
    size_t size = g->n_tokens * (size_t)m->hidden;
    struct fp8q_branch branch = {.model = m,
                                 .acts = r->job.options->acts,
                                 .acts_like = &r->as.like,
                                 .stand_in = &r->as.stand_in,
                                 .round = r->as.round,
                                 .round_fmt = r->job.options->fmt};

    fp8q_as_clear(&r->as); /* of the trial before */
    fp8q_as_add(&r->as, u, &u->choices[t->choice]);

    memcpy(r->h[1 + slot], r->states + u->first_layer * size, size * sizeof(float));
    for (uint32_t layer = u->first_layer; layer < m->n_layers; layer++) {
        FP8Q_TRY(fp8q_forward_layer(&r->fw, &branch, g, layer, r->h[1 + slot], err));
        progress(r, g->n_tokens);
    }
    return FP8Q_OK;
}

static void add_scores(struct run *r, const struct fp8q_group *g, size_t first_sample, size_t trial,
                       const struct fp8q_token_score *scores)
{
    double *kld = r->kld + trial * r->job.inputs->n_samples + first_sample;
    size_t n = 0;

    for (size_t i = 0; i < g->n_samples; i++)
        for (size_t t = 0; t < g->samples[i].n_tokens; t++)
            if (fp8q_sample_scored(&g->samples[i], t))
                kld[i] += scores[n++].kld;
}

static int run_batch(struct run *r, const struct fp8q_group *g, size_t first_sample, size_t first,
                     unsigned n_trials, struct fp8q_error *err)
{
    const struct fp8q_model *m = r->job.model;
    size_t size = g->n_tokens * (size_t)m->hidden, n = 0;
    struct fp8q_branch branches[1 + BATCH] = {{.model = m}};

    /* These branches are for the head, which no unit rounds: all use the source's norm and
     * logits.  */
    for (unsigned i = 0; i < n_trials; i++) {
        branches[1 + i].model = m;
        FP8Q_TRY(run_trial(r, g, &r->trials[first + i], i, err));
    }

    /* The head consumes its hidden states, the source's too: hence a copy for every batch.  */
    memcpy(r->h[0], r->states + m->n_layers * size, size * sizeof(float));
    for (unsigned i = 0; i < 1 + n_trials; i++) {
        n = scored_rows(r, g, r->h[i]);
        FP8Q_TRY(fp8q_forward_norm(&r->fw, &branches[i], n, r->h[i], err));
    }
    FP8Q_TRY(fp8q_head_score(
        &r->fw, &(struct fp8q_head_job){branches, n_trials + 1, r->h, r->targets, n, r->scores},
        err));

    for (unsigned i = 0; i < n_trials; i++)
        add_scores(r, g, first_sample, first + i, r->scores[1 + i]);
    return FP8Q_OK;
}

static int run_group(void *ctx, const struct fp8q_group *g, size_t first_sample,
                     struct fp8q_error *err)
{
    struct run *r = ctx;
    const struct fp8q_branch source = {.model = r->job.model};
    size_t size = g->n_tokens * (size_t)r->job.model->hidden;

    FP8Q_TRY(fp8q_forward_embed(&r->fw, &source, g, r->states, err));
    for (uint32_t layer = 0; layer < r->job.model->n_layers; layer++) {
        /* A layer works in place, and the state before it is where later units start: hence a
         * copy.  */
        float *next = r->states + (layer + 1) * size;
        memcpy(next, next - size, size * sizeof(float));
        FP8Q_TRY(fp8q_forward_layer(&r->fw, &source, g, layer, next, err));
        progress(r, g->n_tokens);
    }

    /* The same positions are scored for every unit, so they are counted once.  */
    for (size_t i = 0; i < g->n_samples; i++)
        for (size_t t = 0; t < g->samples[i].n_tokens; t++)
            r->tokens[first_sample + i] += fp8q_sample_scored(&g->samples[i], t);

    for (size_t first = 0; first < r->n_trials; first += BATCH) {
        unsigned n = (unsigned)fp8q_min_size(r->n_trials - first, BATCH);
        FP8Q_TRY(run_batch(r, g, first_sample, first, n, err));
    }
    return FP8Q_OK;
}

/* ---- costs ----------------------------------------------------------------------------------- */

static int add_up(struct run *r, struct fp8q_error *err)
{
    size_t n_samples = r->job.inputs->n_samples;
    double tokens = 0;

    /* Samples in their order, whatever groups they ran in.  */
    for (size_t i = 0; i < n_samples; i++)
        tokens += r->tokens[i];
    if (!(tokens > 0))
        return fp8q_fail(err, FP8Q_E_ARG, "inputs", "no position is scored");

    for (size_t i = 0; i < r->n_trials; i++) {
        struct fp8q_sweep_unit *unit = &r->job.sweep->units[r->trials[i].unit];
        struct fp8q_sweep_choice *choice = &unit->choices[r->trials[i].choice];
        const double *kld = r->kld + i * n_samples;
        double sum = 0;

        for (size_t k = 0; k < n_samples; k++)
            sum += kld[k];
        choice->kld = sum / tokens;
        choice->kld_se = fp8q_ratio_se(kld, r->tokens, n_samples);
    }
    return FP8Q_OK;
}

static int measure_units(struct run *r, struct fp8q_error *err)
{
    FP8Q_TRY(open_run(r, err));
    const struct fp8q_groups groups = {
        .model = r->job.model, .inputs = r->job.inputs, .max_tokens = r->max_tokens};
    FP8Q_TRY(fp8q_groups_run(&groups, run_group, r, err));
    return add_up(r, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int run_sweep(const struct fp8q_sweep_job *job, struct fp8q_error *err)
{
    double budget = job->options->budget_kld;

    /* NaN and negative numbers would be no budget without a word.  */
    if (!(budget >= 0 && isfinite(budget)) && !(budget <= FP8Q_SWEEP_NO_BUDGET))
        return fp8q_fail(err, FP8Q_E_ARG, "sweep-budget",
                         "budget of the KLD: expected a number from 0 on, found %g", budget);
    FP8Q_TRY(fp8q_inputs_check(job->inputs, job->model, err));
    FP8Q_TRY(list_units(job->sweep, job->model, job->options, err));
    job->sweep->source_bytes = job->model->ckpt->data_bytes;

    struct run r = {.job = *job};
    int status = measure_units(&r, err);
    close_run(&r); /* before the splits are run: they have buffers of their own */
    FP8Q_TRY(status);

    return fp8q_split_choose(job, err);
}

int fp8q_sweep_run(const struct fp8q_model *model, const struct fp8q_inputs *inputs,
                   const struct fp8q_sweep_options *options, struct fp8q_sweep *sweep_out,
                   struct fp8q_error *err)
{
    *sweep_out = (struct fp8q_sweep){0};
    const struct fp8q_sweep_job job = {model, inputs, options, sweep_out};

    int status = run_sweep(&job, err);
    if (status != FP8Q_OK)
        fp8q_sweep_reset(sweep_out);
    return status;
}

void fp8q_sweep_reset(struct fp8q_sweep *sweep)
{
    free(sweep->units);
    free(sweep->steps);
    *sweep = (struct fp8q_sweep){0};
}
