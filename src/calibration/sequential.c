/* SPDX-License-Identifier: Apache-2.0
 *
 * sequential.c - the walk through layers and inputs.
 *
 * How it works.  For each site of a layer:
 *
 *     bring_all      every group of samples runs up to the site (model/forward.h, fp8q_part); what
 *                    arrives there is added to the moments
 *     round_site     its weights are rounded, and from here on the network sees the rounded ones
 *
 * What was computed between two sites is computed again for the next one, which costs two thirds of
 * a forward pass more and saves the memory for everything in between.
 */
#include "calibration/sequential.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calibration/calib.h"
#include "calibration/samples.h"
#include "calibration/spread.h"
#include "format/jsonw.h"

#define BUFFER_BYTES ((uint64_t)256 << 20) /* of a forward pass */
#define LIKELY_TOKENS 512                  /* of the first samples, to tell text from noise */

struct walk {
    const struct fp8q_sequential_job *job;
    struct fp8q_sequential *result;
    struct fp8q_warnings *warnings;
    struct fp8q_model model;
    struct fp8q_inputs inputs;
    struct fp8q_holdout holdout;
    struct fp8q_forward fw;
    struct fp8q_branch branch;
    struct fp8q_group *groups;
    size_t n_groups;
    float **h; /* by group: hidden states */

    /* The site at hand.  */
    uint32_t layer;
    enum fp8q_site_kind site;
    size_t first_sample;          /* of the group that runs */
    struct fp8q_moments *moments; /* of the layer, then of each expert; those that came */
    size_t n_moments;
    struct fp8q_token_run *runs;
};

/* ---- the weights of a site -------------------------------------------------------------------- */

struct site_weights {
    size_t sources[3], n;
};

static void add_weight(const struct walk *w, const char *name, struct site_weights *of)
{
    const struct fp8q_ckpt *ckpt = w->model.ckpt;
    const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, name);
    size_t source = t ? (size_t)(t - ckpt->tensors) : 0;

    /* Parts of a fused weight are one tensor.  */
    if (!t || !fp8q_codes_take(w->job->codes, source) ||
        (of->n > 0 && of->sources[of->n - 1] == source))
        return;
    of->sources[of->n++] = source;
}

/* The weights that take the site's input, and are rounded here.  */
static struct site_weights weights_of(const struct walk *w, uint32_t expert)
{
    struct site_weights of = {.n = 0};
    struct fp8q_name name;

    for (int i = 0; i < FP8Q_N_LINEARS; i++) {
        enum fp8q_linear linear = (enum fp8q_linear)i;
        bool exists = expert != FP8Q_NO_EXPERT || fp8q_linear_exists(&w->model, w->layer, linear);
        if (fp8q_linear_site(linear) != w->site || !exists)
            continue;
        add_weight(w,
                   expert == FP8Q_NO_EXPERT
                       ? fp8q_linear_name(&w->model, w->layer, linear, ".weight", &name)
                       : fp8q_expert_name(&w->model, w->layer, expert, linear, ".weight", &name),
                   &of);
    }
    return of;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Rows of the inputs by sample and fate, in their order.  */
static size_t find_runs(struct walk *w, const struct fp8q_site_inputs *in)
{
    size_t n_runs = 0, row = 0;

    for (size_t i = 0; i < in->group->n_samples; i++) {
        size_t n_tokens = in->group->samples[i].n_tokens;
        for (size_t t = 0, run; t < n_tokens; t += run) {
            bool held;
            run = fp8q_holdout_run(&w->holdout, w->first_sample + i, n_tokens, t, &held);

            /* Of an expert's tokens only some are of this run.  */
            size_t end = in->group->first[i] + t + run, n = in->tokens ? 0 : run;
            while (in->tokens && row + n < in->n_tokens && in->tokens[row + n] < end)
                n++;
            if (n > 0)
                w->runs[n_runs++] = (struct fp8q_token_run){row, n, held ? FP8Q_HELD : FP8Q_FIT};
            row += n;
        }
    }
    return n_runs;
}

static int on_site(void *ctx, struct fp8q_forward *fw, const struct fp8q_site_inputs *in,
                   struct fp8q_error *err)
{
    struct walk *w = ctx;
    struct fp8q_moments *m = &w->moments[in->expert == FP8Q_NO_EXPERT ? 0 : 1 + in->expert];
    if (in->site != w->site || weights_of(w, in->expert).n == 0)
        return FP8Q_OK;

    /* Experts that no token comes to get no moments.  */
    if (m->width == 0)
        FP8Q_TRY(fp8q_moments_open(in->width, m, err));
    return fp8q_moments_add(m, fw, in->x, w->runs, find_runs(w, in), err);
}

/* All groups through one part of the layer.  */
static int bring_all(struct walk *w, enum fp8q_site_kind from, enum fp8q_site_kind until,
                     struct fp8q_error *err)
{
    const struct fp8q_part part = {w->layer, from, until};

    w->first_sample = 0;
    for (size_t i = 0; i < w->n_groups; i++) {
        FP8Q_TRY(fp8q_forward_part(&w->fw, &w->branch, &w->groups[i], &part, w->h[i], err));
        w->first_sample += w->groups[i].n_samples;
    }
    return FP8Q_OK;
}

/* ---- rounding -------------------------------------------------------------------------------- */

static int add_name(struct fp8q_sequential *r, const char *weight, struct fp8q_error *err)
{
    struct fp8q_name name;
    const char *site = fp8q_calib_site_of(weight, &name);
    /* Tensors of an input come one after another.  */
    if (r->n_names > 0 && strcmp(r->names[r->n_names - 1], site) == 0)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_grow(&r->names, r->n_names, &r->cap_names, sizeof(*r->names), err));
    r->names[r->n_names] = strdup(site);
    return r->names[r->n_names++] ? FP8Q_OK : fp8q_fail_nomem(err);
}

static void note_unreached(const struct walk *w, size_t source)
{
    struct fp8q_sequential *r = w->result;
    struct fp8q_shown shown;
    struct fp8q_name name;

    /* Once an expert: what comes to its first linears comes to its last.  */
    if (w->site == FP8Q_SITE_GATE_UP && r->n_unreached++ < FP8Q_NAMED_EXPERTS)
        fp8q_text_printf(
            &r->unreached, "%s%s", r->n_unreached > 1 ? ", " : "",
            fp8q_show(&shown, fp8q_calib_site_of(w->model.ckpt->tensors[source].name, &name)));
}

/* Weights of one input: of the layer, or of an expert.  */
static int round_input(struct walk *w, struct fp8q_moments *m, uint32_t expert,
                       struct fp8q_error *err)
{
    const struct site_weights of = weights_of(w, expert);
    struct fp8q_sequential *r = w->result;
    const struct fp8q_spread_job job = {.codes = w->job->codes,
                                        .fw = &w->fw,
                                        .moments = m,
                                        .sources = of.sources,
                                        .n_sources = of.n,
                                        .fmt = w->job->codes->plan->options.scale_fmt};
    struct fp8q_gptq_error sums;
    bool spread = false;
    if (of.n == 0)
        return FP8Q_OK;

    if (m->width == 0) {
        note_unreached(w, of.sources[0]);
        FP8Q_TRY(fp8q_spread_none(&job, err));
    } else {
        /* The guard multiplies with whole rows of them.  */
        FP8Q_TRY(fp8q_moments_mirror(m, &w->fw, err));
        FP8Q_TRY(fp8q_spread(&job, &sums, &spread, err));
        r->n_unheld += m->n_tokens[FP8Q_HELD] == 0;
    }

    r->n_spread += spread;
    r->n_plain += !spread;
    for (size_t i = 0; i < of.n && spread; i++)
        FP8Q_TRY(add_name(r, w->model.ckpt->tensors[of.sources[i]].name, err));
    return FP8Q_OK;
}

static bool is_mixture(const struct walk *w)
{
    return w->site >= FP8Q_SITE_GATE_UP && w->model.sparse[w->layer];
}

static int round_site(struct walk *w, struct fp8q_error *err)
{
    FP8Q_TRY(round_input(w, &w->moments[0], FP8Q_NO_EXPERT, err));
    for (uint32_t e = 0; is_mixture(w) && e < w->model.moe.n_experts; e++) {
        /* Given back one by one, since there may be hundreds.  */
        FP8Q_TRY(round_input(w, &w->moments[1 + e], e, err));
        fp8q_moments_reset(&w->moments[1 + e]);
    }
    return FP8Q_OK;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static int run_site(struct walk *w, struct fp8q_error *err)
{
    /* Nothing to round here; but the attention half has to be run once, before the MLP.  */
    if (w->site != FP8Q_SITE_GATE_UP && !is_mixture(w) && weights_of(w, FP8Q_NO_EXPERT).n == 0)
        return FP8Q_OK;

    /* Behind attention the hidden states are kept, so that it is not computed four times.  */
    FP8Q_TRY(
        bring_all(w, w->site == FP8Q_SITE_DOWN ? FP8Q_SITE_GATE_UP : FP8Q_SITE_QKV, w->site, err));
    int status = round_site(w, err);
    for (size_t i = 0; i < w->n_moments; i++)
        fp8q_moments_reset(&w->moments[i]);
    FP8Q_TRY(status);

    fp8q_watch_report(w->job->watch, "gptq", (uint64_t)w->layer * FP8Q_N_SITES + w->site + 1,
                      (uint64_t)w->model.n_layers * FP8Q_N_SITES, FP8Q_UNIT_STEPS);
    return FP8Q_OK;
}

static int run_layers(struct walk *w, struct fp8q_error *err)
{
    for (size_t i = 0; i < w->n_groups; i++)
        FP8Q_TRY(fp8q_forward_embed(&w->fw, &w->branch, &w->groups[i], w->h[i], err));

    for (w->layer = 0; w->layer < w->model.n_layers; w->layer++) {
        for (int site = 0; site < FP8Q_N_SITES; site++) {
            w->site = (enum fp8q_site_kind)site;
            FP8Q_TRY(run_site(w, err));
        }

        /* Through the MLP with all weights rounded, to the next layer.  */
        w->site = FP8Q_N_SITES;
        FP8Q_TRY(bring_all(w, FP8Q_SITE_GATE_UP, FP8Q_N_SITES, err));
    }
    return FP8Q_OK;
}

/* Whether the model finds the first samples likelier than chance, before all the work.  */
static int judge_group(struct walk *w, const struct fp8q_group *g, float *h, struct fp8q_error *err)
{
    double nll;
    uint64_t n;

    /* No stand-in and no onlooker yet: this is the source as it is.  */
    FP8Q_TRY(fp8q_forward_embed(&w->fw, &w->branch, g, h, err));
    for (uint32_t layer = 0; layer < w->model.n_layers; layer++)
        FP8Q_TRY(fp8q_forward_layer(&w->fw, &w->branch, g, layer, h, err));
    FP8Q_TRY(fp8q_likelihood(&w->fw, &w->model, g, h, &nll, &n, err));
    w->result->noise = fp8q_is_noise(nll, n, w->model.vocab);
    return FP8Q_OK;
}

static int judge_inputs(struct walk *w, struct fp8q_error *err)
{
    struct fp8q_group g;
    size_t n = fp8q_group_size(&w->inputs, 0, fp8q_min_size(LIKELY_TOKENS, w->fw.max_tokens));
    FP8Q_TRY(fp8q_group_open(&g, &w->model, w->inputs.samples, n, err));

    float *h = fp8q_array((uint64_t)g.n_tokens * w->model.hidden, sizeof(*h));
    int status = h ? judge_group(w, &g, h, err) : fp8q_fail_nomem(err);
    free(h);
    fp8q_group_close(&g);
    return status;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int open_groups(struct walk *w, struct fp8q_error *err)
{
    const struct fp8q_inputs *in = &w->inputs;
    size_t most_runs = 0;
    w->groups = fp8q_array(in->n_samples, sizeof(*w->groups));
    w->h = fp8q_array(in->n_samples, sizeof(*w->h));
    if (!w->groups || !w->h)
        return fp8q_fail_nomem(err);

    for (size_t i = 0, n; i < in->n_samples; i += n) {
        struct fp8q_group *g = &w->groups[w->n_groups];
        n = fp8q_group_size(in, i, w->fw.max_tokens);
        FP8Q_TRY(fp8q_group_open(g, &w->model, in->samples + i, n, err));
        w->n_groups++;
        /* A sample has one run, or one for each stretch of a few samples that is held out or not.  */
        most_runs = fp8q_max_size(most_runs, n + g->n_tokens / w->holdout.run);
        w->h[w->n_groups - 1] = fp8q_array((uint64_t)g->n_tokens * w->model.hidden, sizeof(float));
        if (!w->h[w->n_groups - 1])
            return fp8q_fail_nomem(err);
    }

    w->n_moments = 1 + (size_t)w->model.moe.n_experts;
    w->moments = fp8q_array(w->n_moments, sizeof(*w->moments));
    w->runs = fp8q_array(most_runs, sizeof(*w->runs));
    return w->moments && w->runs ? FP8Q_OK : fp8q_fail_nomem(err);
}

static int open_walk(struct walk *w, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = w->job->codes->plan;
    size_t longest = 0;
    FP8Q_TRY(fp8q_model_open(plan->ckpt, &w->model, err));
    FP8Q_TRY(fp8q_inputs_open(w->job->inputs, &w->inputs, w->warnings, err));
    FP8Q_TRY(fp8q_inputs_check(&w->inputs, &w->model, err));

    for (size_t i = 0; i < w->inputs.n_samples; i++)
        longest = fp8q_max_size(longest, w->inputs.samples[i].n_tokens);
    /* How samples are grouped decides memory and time, and no bit.  */
    size_t max_tokens = fp8q_group_tokens(&w->model, &w->inputs, 1, BUFFER_BYTES);
    FP8Q_TRY(fp8q_forward_open(&w->fw, &w->model, plan->threads, w->job->codes->kernel->name,
                               max_tokens, longest, err));

    w->fw.watch = w->job->watch;
    w->branch.model = &w->model;
    w->holdout = fp8q_holdout_of(&w->inputs);
    w->result->inputs_fingerprint = w->inputs.fingerprint;
    return open_groups(w, err);
}

static void close_walk(struct walk *w)
{
    for (size_t i = 0; i < w->n_groups; i++) {
        fp8q_group_close(&w->groups[i]);
        free(w->h[i]);
    }
    for (size_t i = 0; w->moments && i < w->n_moments; i++)
        fp8q_moments_reset(&w->moments[i]);
    free(w->groups);
    free(w->h);
    free(w->moments);
    free(w->runs);
    fp8q_forward_close(&w->fw);
    fp8q_inputs_reset(&w->inputs);
    fp8q_model_reset(&w->model);
}

static int run(struct walk *w, struct fp8q_error *err)
{
    FP8Q_TRY(open_walk(w, err));
    FP8Q_TRY(judge_inputs(w, err));
    if (w->result->noise)
        return FP8Q_OK;

    /* From here on what is rounded is what the network sees.  */
    w->branch.stand_in = &w->job->codes->stand_in;
    w->fw.on_site = on_site;
    w->fw.on_site_ctx = w;
    return run_layers(w, err);
}

int fp8q_sequential_run(const struct fp8q_sequential_job *job, struct fp8q_sequential *result,
                        struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct walk w = {.job = job, .result = result, .warnings = warnings};
    *result = (struct fp8q_sequential){.names = NULL};
    int status = run(&w, err);
    close_walk(&w);
    return status;
}

void fp8q_sequential_reset(struct fp8q_sequential *result)
{
    for (size_t i = 0; i < result->n_names; i++)
        free(result->names[i]);
    free(result->names);
    fp8q_text_reset(&result->unreached);
    *result = (struct fp8q_sequential){.names = NULL};
}

/* ---- the manifest ---------------------------------------------------------------------------- */

int fp8q_sequential_json(const struct fp8q_sequential *r, const char *inputs, struct fp8q_text *out,
                         struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 0};
    char fingerprint[16];
    snprintf(fingerprint, sizeof(fingerprint), "%08x", (unsigned)r->inputs_fingerprint);

    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "method", "error-compensated");
    fp8q_jsonw_string(&w, "inputs", inputs);
    fp8q_jsonw_string(&w, "inputs_fingerprint", fingerprint);

    fp8q_jsonw_open(&w, "compensated", '[');
    for (size_t i = 0; i < r->n_names; i++)
        fp8q_jsonw_string(&w, NULL, r->names[i]);
    fp8q_jsonw_close(&w, ']');
    fp8q_jsonw_close(&w, '}');
    *out = w.text;
    return fp8q_text_status(out, err);
}
