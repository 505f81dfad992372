/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.c - runs the branches of an evaluation group by group, layer by layer.
 *
 * How it works.  A branch is one network with one way to treat weights and activations; branch 0 is
 * the source in F32.  For each group of samples that fits into the buffers, all branches go through
 * layer 0, then all through layer 1, and so on; after the last, the head scores every branch against
 * branch 0, token by token.  Nothing of the size of tokens x vocabulary is ever kept.  Several outputs
 * share the one pass of the source.
 */
#include "measure/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "measure/internal.h"
#include "measure/score.h"

const char *const fp8q_eval_row_names[FP8Q_EVAL_N_ROWS] = {"output", "activations-only",
                                                           "weights-only", "requantized-ue8m0"};

/* One of the checkpoints that are compared with the source.  */
struct output {
    const struct fp8q_model *model;
    unsigned branch;                /* as it is served; its others follow */
    struct fp8q_clipping *clipping; /* of its linears, by slot */
    float (*cache_scales)[2];       /* NULL, or by layer */
    bool *requant;                  /* linears that FP8Q_EVAL_REQUANT rounds */
    struct fp8q_states states;
};

struct run {
    const struct fp8q_inputs *inputs;
    const struct fp8q_eval_options *options;
    struct fp8q_forward fw;
    struct output *outputs;
    unsigned n_outputs;
    /* by branch, of which 0 is the source */
    struct fp8q_branch *branches;
    enum fp8q_eval_row *row;
    unsigned *of; /* which output */
    float **h;
    struct fp8q_token_score **scores; /* over all scored tokens, as what follows */
    unsigned n_branches, branch;      /* @branch: at work */
    struct fp8q_cached source_cache;
    uint32_t *sample;
    uint8_t *modality, *position; /* position: of which range */
    bool *has_target;
    size_t n_scored, done_scored, max_tokens;
    uint64_t work_done, work_per_token; /* in layers x branches */
};

/* ---- setting up ---------------------------------------------------------------------------- */

static void add_branch(struct run *r, struct output *o, enum fp8q_eval_row row,
                       struct fp8q_branch branch)
{
    r->row[r->n_branches] = row;
    r->of[r->n_branches] = (unsigned)(o - r->outputs);
    r->branches[r->n_branches++] = branch;
}

/* Block scales are what engines with power-of-two kernels requantize when they load.  */
static int add_requantized(struct run *r, struct output *o, struct fp8q_error *err)
{
    const struct fp8q_model *m = o->model;
    o->requant = fp8q_array(m->n_slots, sizeof(*o->requant));
    if (!o->requant)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < m->n_slots; i++)
        o->requant[i] = m->scaling[i] == FP8Q_SCALING_BLOCK;

    add_branch(r, o, FP8Q_EVAL_REQUANT,
               (struct fp8q_branch){.model = m,
                                    .acts = r->options->acts,
                                    .round = o->requant,
                                    .round_fmt = FP8Q_SCALE_UE8M0});
    return FP8Q_OK;
}

static int add_output(struct run *r, struct output *o, struct fp8q_error *err)
{
    const struct fp8q_eval_options *options = r->options;
    const struct fp8q_model *m = o->model, *source = r->branches[0].model;

    o->clipping = fp8q_array(m->n_slots, sizeof(*o->clipping));
    if (!o->clipping)
        return fp8q_fail_nomem(err);
    if (options->fp8_cache) {
        o->cache_scales = fp8q_array(m->n_layers, sizeof(*o->cache_scales));
        if (!o->cache_scales)
            return fp8q_fail_nomem(err);
        FP8Q_TRY(fp8q_cache_scales_read(m, o->cache_scales, err));
    }

    /* First: the errors of layers, samples and modalities are taken from there.  */
    o->branch = r->n_branches;
    add_branch(r, o, FP8Q_EVAL_OUTPUT,
               (struct fp8q_branch){.model = m,
                                    .acts = options->acts,
                                    .round = options->round,
                                    .round_fmt = options->round_fmt,
                                    .stand_in = options->stand_in,
                                    .acts_like = options->acts_like,
                                    .clipping = o->clipping,
                                    .cache_scales = (const float(*)[2])o->cache_scales});
    if (options->decompose) {
        /* Each half of the damage alone: the source's weights with rounded inputs, and the output's
         * weights with inputs in F32.  */
        add_branch(r, o, FP8Q_EVAL_ACTIVATIONS,
                   (struct fp8q_branch){.model = source, .acts = options->acts, .acts_like = m});
        add_branch(r, o, FP8Q_EVAL_WEIGHTS, (struct fp8q_branch){.model = m});
    }
    return options->requant_ue8m0 ? add_requantized(r, o, err) : FP8Q_OK;
}

static int choose_branches(struct run *r, const struct fp8q_model *source, struct fp8q_error *err)
{
    size_t most = 1 + (size_t)r->n_outputs * FP8Q_EVAL_N_ROWS;
    r->branches = fp8q_array(most, sizeof(*r->branches));
    r->row = fp8q_array(most, sizeof(*r->row));
    r->of = fp8q_array(most, sizeof(*r->of));
    r->h = fp8q_array(most, sizeof(*r->h));
    r->scores = fp8q_array(most, sizeof(*r->scores));
    if (!r->branches || !r->row || !r->of || !r->h || !r->scores)
        return fp8q_fail_nomem(err);

    r->branches[0] = (struct fp8q_branch){.model = source, .acts = r->options->acts};
    r->n_branches = 1;
    for (unsigned i = 0; i < r->n_outputs; i++)
        FP8Q_TRY(add_output(r, &r->outputs[i], err));
    return FP8Q_OK;
}

static int count_scored(struct run *r, struct fp8q_error *err)
{
    const struct fp8q_inputs *in = r->inputs;

    for (size_t i = 0; i < in->n_samples; i++)
        for (size_t t = 0; t < in->samples[i].n_tokens; t++)
            r->n_scored += fp8q_sample_scored(&in->samples[i], t);
    if (r->n_scored == 0 && in->hidden == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                         "no position is scored: samples of one token, or all masked out");
    return FP8Q_OK;
}

static int allocate(struct run *r, const struct fp8q_model *m, struct fp8q_error *err)
{
    bool ok = true;

    /* Hidden states are those of one group; of a token only its score is kept to the end.  */
    for (unsigned b = 0; b < r->n_branches; b++) {
        r->h[b] = fp8q_array((uint64_t)r->max_tokens * m->hidden, sizeof(float));
        r->scores[b] = fp8q_array(r->n_scored, sizeof(**r->scores));
        ok = ok && r->h[b] && r->scores[b];
    }

    r->sample = fp8q_array(r->n_scored, sizeof(*r->sample));
    r->modality = fp8q_array(r->n_scored, 1);
    r->position = fp8q_array(r->n_scored, 1);
    r->has_target = fp8q_array(r->n_scored, sizeof(*r->has_target));
    ok = ok && r->sample && r->modality && r->position && r->has_target;
    if (!ok)
        return fp8q_fail_nomem(err);

    for (unsigned i = 0; i < r->n_outputs; i++)
        FP8Q_TRY(fp8q_states_open(&r->outputs[i].states, m, err));
    return fp8q_cached_open(&r->source_cache, m, r->max_tokens, err);
}

/* The source's keys and values of a layer wait for those of the outputs.  */
static int on_cache(void *ctx, struct fp8q_forward *fw, const struct fp8q_group *group,
                    uint32_t layer, struct fp8q_error *err)
{
    struct run *r = ctx;
    struct output *o = &r->outputs[r->of[r->branch]];
    (void)err;

    if (r->branch == 0)
        fp8q_cached_keep(&r->source_cache, fw, group->n_tokens);
    else if (r->branch == o->branch)
        fp8q_states_cache(&o->states, &r->source_cache, fw, group->n_tokens, layer);
    return FP8Q_OK;
}

static int set_up(struct run *r, const struct fp8q_model *source, struct fp8q_error *err)
{
    /* All sizes below are the source's, so all have to be of one network.  */
    for (unsigned i = 0; i < r->n_outputs; i++)
        FP8Q_TRY(fp8q_model_same(source, r->outputs[i].model, err));
    FP8Q_TRY(fp8q_inputs_check(r->inputs, source, err));
    FP8Q_TRY(choose_branches(r, source, err));
    FP8Q_TRY(count_scored(r, err));

    /* What the caller allows for buffers decides how many samples run together, no result.  */
    uint64_t bytes = r->options->buffer_bytes ? r->options->buffer_bytes : (uint64_t)384 << 20;
    r->max_tokens = fp8q_group_tokens(source, r->inputs, r->n_branches, bytes);
    FP8Q_TRY(allocate(r, source, err));
    r->work_per_token = (uint64_t)source->n_layers * r->n_branches;
    FP8Q_TRY(fp8q_forward_open(&r->fw, source, r->options->n_threads, r->options->kernel,
                               r->max_tokens, fp8q_longest_sample(r->inputs), err));
    r->fw.watch = r->options->watch;
    r->fw.on_cache = on_cache;
    r->fw.on_site_ctx = r;
    return FP8Q_OK;
}

static void tear_down(struct run *r)
{
    for (unsigned b = 0; b < r->n_branches; b++) {
        free(r->h[b]);
        free(r->scores[b]);
    }
    for (unsigned i = 0; r->outputs && i < r->n_outputs; i++) {
        free(r->outputs[i].requant);
        free(r->outputs[i].clipping);
        free(r->outputs[i].cache_scales);
        fp8q_states_close(&r->outputs[i].states);
    }
    fp8q_cached_close(&r->source_cache);
    free(r->outputs);
    free(r->branches);
    free(r->row);
    free(r->of);
    free(r->h);
    free(r->scores);
    free(r->sample);
    free(r->modality);
    free(r->position);
    free(r->has_target);
    fp8q_forward_close(&r->fw);
}

/* ---- running ------------------------------------------------------------------------------- */

static void add_hidden(struct run *r, const struct fp8q_group *g, uint32_t layer)
{
    size_t hidden = (size_t)r->branches[0].model->hidden;

    for (unsigned i = 0; i < r->n_outputs; i++) {
        struct output *o = &r->outputs[i];
        const struct fp8q_state_pair pair = {r->fw.gemm, r->h[0], r->h[o->branch], g->n_tokens,
                                             hidden};
        fp8q_states_add(&o->states, FP8Q_STATE_HIDDEN, layer, &pair);
    }
}

/* Of which range of FP8Q_EVAL_POSITIONS a place in a sample is.  */
static uint8_t position_range(size_t t)
{
    uint8_t range = 0;

    for (t /= FP8Q_EVAL_FIRST_POSITIONS; t && range < FP8Q_EVAL_POSITIONS - 1; t /= 2)
        range++;
    return range;
}

/* Moves the hidden states of scored positions to the front and notes what they are.  */
static size_t gather(struct run *r, const struct fp8q_group *g, size_t first_sample,
                     int64_t *targets)
{
    size_t hidden = (size_t)r->branches[0].model->hidden, n = 0;

    for (size_t i = 0; i < g->n_samples; i++) {
        const struct fp8q_sample *s = &g->samples[i];

        for (size_t t = 0; t < s->n_tokens; t++) {
            if (!fp8q_sample_scored(s, t))
                continue;

            size_t at = r->done_scored + n;
            targets[n] = fp8q_sample_target(s, t);
            r->sample[at] = (uint32_t)(first_sample + i);
            r->modality[at] = s->modality ? s->modality[t] : 0;
            r->position[at] = position_range(t);
            r->has_target[at] = targets[n] >= 0;

            /* Never backwards: row n of a group stands at or before its token.  */
            for (unsigned b = 0; b < r->n_branches; b++)
                memmove(r->h[b] + n * hidden, r->h[b] + (g->first[i] + t) * hidden,
                        hidden * sizeof(float));
            n++;
        }
    }
    return n;
}

static int score_rows(struct run *r, size_t n, const int64_t *targets, struct fp8q_error *err)
{
    if (n == 0)
        return FP8Q_OK;

    struct fp8q_token_score **scores = fp8q_array(r->n_branches, sizeof(*scores));
    if (!scores)
        return fp8q_fail_nomem(err);
    for (unsigned b = 0; b < r->n_branches; b++)
        scores[b] = r->scores[b] + r->done_scored;

    const struct fp8q_head_job job = {r->branches, r->n_branches, r->h, targets, n, scores};
    int status = fp8q_head_score(&r->fw, &job, err);
    free(scores);
    return status;
}

static int score_group(struct run *r, const struct fp8q_group *g, size_t first_sample,
                       struct fp8q_error *err)
{
    int64_t *targets = fp8q_array(g->n_tokens, sizeof(*targets));
    if (!targets)
        return fp8q_fail_nomem(err);

    size_t n = gather(r, g, first_sample, targets);
    int status = score_rows(r, n, targets, err);
    r->done_scored += n;
    free(targets);
    return status;
}

static int run_layers(struct run *r, const struct fp8q_group *g, struct fp8q_error *err)
{
    const struct fp8q_model *m = r->branches[0].model;

    for (unsigned b = 0; b < r->n_branches; b++)
        FP8Q_TRY(fp8q_forward_embed(&r->fw, &r->branches[b], g, r->h[b], err));

    /* All branches go through a layer before the next one, so its weights are read once.  */
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        for (unsigned b = 0; b < r->n_branches; b++) {
            r->branch = b;
            FP8Q_TRY(fp8q_forward_layer(&r->fw, &r->branches[b], g, layer, r->h[b], err));
            r->work_done += g->n_tokens;
            fp8q_watch_report(r->options->watch, "eval", r->work_done / r->work_per_token,
                              r->inputs->n_tokens, FP8Q_UNIT_TOKENS);
        }
        add_hidden(r, g, layer);
    }
    return FP8Q_OK;
}

static int run_group(void *ctx, const struct fp8q_group *g, size_t first_sample,
                     struct fp8q_error *err)
{
    struct run *r = ctx;
    FP8Q_TRY(run_layers(r, g, err));

    /* All tokens: an expert may read the last state of those that predict nothing.  */
    for (unsigned b = 0; b < r->n_branches; b++)
        FP8Q_TRY(fp8q_forward_norm(&r->fw, &r->branches[b], g->n_tokens, r->h[b], err));
    add_hidden(r, g, r->branches[0].model->n_layers);
    return score_group(r, g, first_sample, err);
}

/* ---- results ------------------------------------------------------------------------------- */

static void add_to_mean(struct fp8q_eval_sample *s, const struct fp8q_token_score *source,
                        const struct fp8q_token_score *output, bool has_target)
{
    s->tokens++;
    s->kld += output->kld;
    s->top1 += source->top == output->top;

    if (has_target) {
        s->nll_tokens++;
        s->nll_source += source->nll;
        s->nll_output += output->nll;
    }
}

static void divide_mean(struct fp8q_eval_sample *s)
{
    double n = (double)s->tokens, m = (double)s->nll_tokens;

    s->kld /= n; /* NaN for none: written as null */
    s->top1 /= n;
    s->nll_source /= m;
    s->nll_output /= m;
}

static int open_results(const struct run *r, const struct fp8q_model *output, struct fp8q_eval *e,
                        struct fp8q_error *err)
{

    e->n_samples = r->inputs->n_samples;
    e->n_layers = output->n_layers;
    e->n_tokens = r->inputs->n_tokens;
    /* Evidence in which nothing was quantized is to be seen as such.  */
    for (size_t i = 0; i < output->n_slots; i++)
        e->n_quantized += output->scaling[i] != FP8Q_SCALING_NONE;

    e->samples = fp8q_array(e->n_samples, sizeof(*e->samples));
    bool ok = e->samples != NULL;
    for (int i = 0; i < FP8Q_N_STATES; i++) {
        e->errors[i] = fp8q_array(e->n_layers, sizeof(double));
        ok = ok && e->errors[i];
    }
    return ok ? FP8Q_OK : fp8q_fail_nomem(err);
}

static void add_means(const struct run *r, const struct fp8q_token_score *scores,
                      struct fp8q_eval *e)
{
    for (size_t i = 0; i < r->n_scored; i++)
        add_to_mean(&e->samples[r->sample[i]], &r->scores[0][i], &scores[i], r->has_target[i]);

    for (size_t i = 0; i < e->n_samples; i++) {
        divide_mean(&e->samples[i]);
        memcpy(e->samples[i].category, r->inputs->samples[i].category, FP8Q_MAX_CATEGORY);
    }
}

/* The same figures for some of the tokens.  */
static int add_parts(const struct run *r, const struct fp8q_scores *scores, struct fp8q_eval *e,
                     struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_parts_modalities(scores, r->modality, &e->modalities, err));
    FP8Q_TRY(fp8q_parts_categories(scores, r->inputs, &e->categories, err));
    return fp8q_parts_positions(scores, r->position, &e->positions, err);
}

static void add_static(struct fp8q_eval *e, const struct fp8q_clipping *c, struct fp8q_name name)
{
    struct fp8q_eval_static *s = &e->statics[e->n_statics++];
    s->name = name;
    s->clipped = (double)c->clipped / (double)c->values;
    /* Nothing is unused where something is clipped; of zeros alone nothing can be said.  */
    s->unused = c->largest > 0 ? fmax(-log2((double)c->largest), 0) : 0;

    e->clipped = fmax(e->clipped, s->clipped);
    e->unused = fmax(e->unused, s->unused);
}

/* Linears in the order of the network; a mixture's experts come together under its name.  */
static int add_statics(const struct output *o, struct fp8q_eval *e, struct fp8q_error *err)
{
    const struct fp8q_model *m = o->model;
    e->clipped = e->unused = (double)NAN;
    e->statics = fp8q_array((uint64_t)m->n_layers * FP8Q_N_LINEARS, sizeof(*e->statics));
    if (!e->statics)
        return fp8q_fail_nomem(err);

    for (uint32_t layer = 0; layer < m->n_layers; layer++)
        for (int i = 0; i < FP8Q_N_LINEARS; i++) {
            struct fp8q_name name;
            enum fp8q_linear linear = (enum fp8q_linear)i;
            const struct fp8q_clipping *c = &o->clipping[fp8q_linear_slot(layer, linear)];
            if (c->values == 0)
                continue;
            fp8q_linear_name(m, layer, linear, "", &name);
            add_static(e, c, name);
        }
    return FP8Q_OK;
}

static int collect(const struct run *r, const struct output *o, struct fp8q_eval *e,
                   struct fp8q_error *err)
{
    FP8Q_TRY(open_results(r, o->model, e, err));
    FP8Q_TRY(add_statics(o, e, err));
    add_means(r, r->scores[o->branch], e);
    for (int state = 0; state < FP8Q_N_STATES; state++)
        for (uint32_t i = 0; i < e->n_layers; i++)
            e->errors[state][i] = fp8q_states_error(&o->states, (enum fp8q_state)state, i);
    e->final_error = fp8q_states_error(&o->states, FP8Q_STATE_HIDDEN, e->n_layers);

    for (unsigned b = 1; b < r->n_branches; b++) {
        const struct fp8q_scores scores = {.source = r->scores[0],
                                           .output = r->scores[b],
                                           .sample = r->sample,
                                           .has_target = r->has_target,
                                           .n_tokens = r->n_scored,
                                           .n_samples = e->n_samples};
        if (&r->outputs[r->of[b]] != o)
            continue;
        FP8Q_TRY(fp8q_scores_figures(&scores, &e->rows[r->row[b]], err));
        if (b == o->branch)
            FP8Q_TRY(add_parts(r, &scores, e, err));
    }
    return FP8Q_OK;
}

static int run_eval(struct run *r, const struct fp8q_model *source,
                    const struct fp8q_model *const *outputs, struct fp8q_eval *evals_out,
                    struct fp8q_error *err)
{
    r->outputs = fp8q_array(r->n_outputs, sizeof(*r->outputs));
    if (!r->outputs)
        return fp8q_fail_nomem(err);
    for (unsigned i = 0; i < r->n_outputs; i++)
        r->outputs[i].model = outputs[i];

    FP8Q_TRY(set_up(r, source, err));
    const struct fp8q_groups groups = {source, outputs, r->n_outputs, r->inputs, r->max_tokens};
    FP8Q_TRY(fp8q_groups_run(&groups, run_group, r, err));

    for (unsigned i = 0; i < r->n_outputs; i++)
        FP8Q_TRY(collect(r, &r->outputs[i], &evals_out[i], err));
    return FP8Q_OK;
}

int fp8q_eval_outputs(const struct fp8q_model *source, const struct fp8q_model *const *outputs,
                      unsigned n_outputs, const struct fp8q_inputs *inputs,
                      const struct fp8q_eval_options *options, struct fp8q_eval *evals_out,
                      struct fp8q_error *err)
{
    struct run r = {.inputs = inputs, .options = options, .n_outputs = n_outputs};
    memset(evals_out, 0, n_outputs * sizeof(*evals_out));

    int status = run_eval(&r, source, outputs, evals_out, err);
    tear_down(&r);
    for (unsigned i = 0; status != FP8Q_OK && i < n_outputs; i++)
        fp8q_eval_reset(&evals_out[i]);
    return status;
}

int fp8q_eval_run(const struct fp8q_model *source, const struct fp8q_model *output,
                  const struct fp8q_inputs *inputs, const struct fp8q_eval_options *options,
                  struct fp8q_eval *eval_out, struct fp8q_error *err)
{
    return fp8q_eval_outputs(source, &output, 1, inputs, options, eval_out, err);
}

void fp8q_eval_reset(struct fp8q_eval *eval)
{
    free(eval->samples);
    for (int i = 0; i < FP8Q_N_STATES; i++)
        free(eval->errors[i]);
    free(eval->modalities.items);
    free(eval->categories.items);
    free(eval->positions.items);
    free(eval->statics);
    *eval = (struct fp8q_eval){0};
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void figures_json(const struct fp8q_eval_figures *f, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, "kld", '{');
    fp8q_jsonw_number(w, "mean", f->kld);
    fp8q_jsonw_number(w, "se", f->kld_se);
    fp8q_jsonw_number(w, "se_by_token", f->kld_se_by_token);
    fp8q_jsonw_number(w, "median", f->kld_median);
    fp8q_jsonw_number(w, "p95", f->kld_p95);
    fp8q_jsonw_number(w, "p99", f->kld_p99);
    fp8q_jsonw_number(w, "p999", f->kld_p999);
    fp8q_jsonw_number(w, "max", f->kld_max);
    fp8q_jsonw_close(w, '}');

    fp8q_jsonw_number(w, "top1", f->top1);
    fp8q_jsonw_number(w, "top1_se", f->top1_se);
    fp8q_jsonw_uint(w, "flips", f->flips);

    fp8q_jsonw_open(w, "ppl", '{');
    fp8q_jsonw_number(w, "source", f->ppl_source);
    fp8q_jsonw_number(w, "output", f->ppl_output);
    fp8q_jsonw_number(w, "dln", f->dlnppl);
    fp8q_jsonw_number(w, "dln_se", f->dlnppl_se);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_uint(w, "tokens", f->tokens);
    fp8q_jsonw_uint(w, "samples_scored", f->samples);
}

static void sample_json(const struct fp8q_eval_sample *s, uint64_t number, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_uint(w, "sample", number);
    if (s->category[0])
        fp8q_jsonw_string(w, "category", s->category);
    fp8q_jsonw_uint(w, "tokens", s->tokens);
    fp8q_jsonw_number(w, "kld", s->kld);
    fp8q_jsonw_number(w, "top1", s->top1);
    fp8q_jsonw_number(w, "nll_source", s->nll_source);
    fp8q_jsonw_number(w, "nll_output", s->nll_output);
    fp8q_jsonw_close(w, '}');
}

static void statics_json(const struct fp8q_eval *e, struct fp8q_jsonw *w)
{
    if (e->n_statics == 0)
        return;

    fp8q_jsonw_open(w, "static", '{');
    fp8q_jsonw_number(w, "clipped", e->clipped);
    fp8q_jsonw_number(w, "unused", e->unused);
    fp8q_jsonw_open(w, "linears", '[');
    for (size_t i = 0; i < e->n_statics; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", e->statics[i].name.text);
        fp8q_jsonw_number(w, "clipped", e->statics[i].clipped);
        fp8q_jsonw_number(w, "unused", e->statics[i].unused);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

void fp8q_eval_json(const struct fp8q_eval *eval, struct fp8q_jsonw *w)
{
    figures_json(&eval->rows[FP8Q_EVAL_OUTPUT], w);
    fp8q_jsonw_uint(w, "quantized_linears", eval->n_quantized);
    statics_json(eval, w);

    fp8q_jsonw_open(w, "rows", '{');
    /* The output's own row stands at the top; the others were run only if asked for.  */
    for (int i = FP8Q_EVAL_ACTIVATIONS; i < FP8Q_EVAL_N_ROWS; i++) {
        if (eval->rows[i].tokens == 0)
            continue;
        fp8q_jsonw_open(w, fp8q_eval_row_names[i], '{');
        figures_json(&eval->rows[i], w);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, '}');

    fp8q_jsonw_open(w, "samples", '[');
    for (size_t i = 0; i < eval->n_samples; i++)
        sample_json(&eval->samples[i], i, w);
    fp8q_jsonw_close(w, ']');

    fp8q_parts_json(&eval->modalities, "modalities", "modality", w);
    fp8q_parts_json(&eval->categories, "categories", NULL, w);
    fp8q_parts_json(&eval->positions, "positions", "from", w);
    fp8q_states_json(eval, w);
}
