/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep.c - units, their costs, and the choice of a split.  The hidden states of the source before
 * each layer are kept, so that a unit's run begins at its own layer.
 */
#include "measure/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "measure/score.h"

#define BATCH 4 /* units that share one pass of the source's head */

/* ---- units ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint8_t linears;
} kinds[FP8Q_N_SITES] = {
    {"q/k/v", 1 << FP8Q_Q_PROJ | 1 << FP8Q_K_PROJ | 1 << FP8Q_V_PROJ},
    {"o", 1 << FP8Q_O_PROJ},
    {"gate/up", 1 << FP8Q_GATE_PROJ | 1 << FP8Q_UP_PROJ},
    {"down", 1 << FP8Q_DOWN_PROJ},
};

/* Whole or not at all: every size a multiple of 128, every weight wide.  */
static bool can_quantize(const struct fp8q_model *m, uint32_t layer, uint8_t linears, bool ragged)
{
    for (int i = 0; i < FP8Q_N_LINEARS; i++) {
        uint64_t shape[2];
        if (!(linears >> i & 1))
            continue;
        fp8q_linear_shape(m, (enum fp8q_linear)i, shape);
        if (m->scaling[layer * FP8Q_N_LINEARS + (uint32_t)i] != FP8Q_SCALING_NONE ||
            (!ragged && (shape[0] % FP8Q_BLOCK || shape[1] % FP8Q_BLOCK)))
            return false;
    }
    return true;
}

static uint64_t bytes_saved(const struct fp8q_model *m, uint32_t layer, uint8_t linears)
{
    uint64_t saved = 0;
    for (int i = 0; i < FP8Q_N_LINEARS; i++) {
        struct fp8q_name name;
        uint64_t shape[2], scales;
        if (!(linears >> i & 1))
            continue;
        fp8q_linear_shape(m, (enum fp8q_linear)i, shape);
        scales = fp8q_ceil_div(shape[0], FP8Q_BLOCK) * fp8q_ceil_div(shape[1], FP8Q_BLOCK) * 4;
        const struct fp8q_tensor *t = fp8q_ckpt_find(
            m->ckpt, fp8q_linear_name(m, layer, (enum fp8q_linear)i, ".weight", &name));
        if (t->size_bytes > t->n_elems + scales)
            saved += t->size_bytes - t->n_elems - scales;
    }
    return saved;
}

/* Adds the parts of [first, last] x @linears that can be quantized as one unit, if there are any.
 */
static void add_unit(struct fp8q_sweep *s, const struct fp8q_model *m, const char *name,
                     uint32_t first, uint32_t last, uint8_t linears, bool ragged)
{
    struct fp8q_sweep_unit u = {.first_layer = first, .last_layer = last};
    for (int k = 0; k < FP8Q_N_SITES; k++)
        if ((linears & kinds[k].linears) && can_quantize(m, first, kinds[k].linears, ragged))
            u.linears |= kinds[k].linears;
    for (uint32_t layer = first; layer <= last; layer++)
        u.bytes_saved += bytes_saved(m, layer, u.linears);
    snprintf(u.name, sizeof(u.name), "%s", name);
    if (u.linears)
        s->units[s->n_units++] = u;
}

static int list_units(struct fp8q_sweep *s, const struct fp8q_model *m,
                      const struct fp8q_sweep_options *o, struct fp8q_error *err)
{
    char name[64];
    s->units = fp8q_array((uint64_t)m->n_layers * FP8Q_N_SITES, sizeof(*s->units));
    if (!s->units)
        return fp8q_fail_nomem(err);
    for (uint32_t layer = 0; layer < m->n_layers && o->by == FP8Q_SWEEP_LAYER; layer++) {
        snprintf(name, sizeof(name), "layers.%u", layer);
        add_unit(s, m, name, layer, layer, 0x7F, o->ragged);
    }
    for (int k = 0; k < FP8Q_N_SITES && o->by == FP8Q_SWEEP_KIND; k++) {
        snprintf(name, sizeof(name), "all %s", kinds[k].name);
        add_unit(s, m, name, 0, m->n_layers - 1, kinds[k].linears, o->ragged);
    }
    for (uint32_t layer = 0; layer < m->n_layers && o->by == FP8Q_SWEEP_SITE; layer++)
        for (int k = 0; k < FP8Q_N_SITES; k++) {
            snprintf(name, sizeof(name), "layers.%u %s", layer, kinds[k].name);
            add_unit(s, m, name, layer, layer, kinds[k].linears, o->ragged);
        }
    s->order = fp8q_array(s->n_units, sizeof(*s->order));
    if (!s->order)
        return fp8q_fail_nomem(err);
    if (s->n_units == 0)
        return fp8q_fail(
            err, FP8Q_E_ARG, "nothing",
            "nothing can be quantized: weights are F8 already, or their sizes are no multiples "
            "of 128 (--ragged quantize)");
    return FP8Q_OK;
}

static void unit_flags(const struct fp8q_sweep_unit *u, bool *flags)
{
    for (uint32_t layer = u->first_layer; layer <= u->last_layer; layer++)
        for (int i = 0; i < FP8Q_N_LINEARS; i++)
            if (u->linears >> i & 1)
                flags[layer * FP8Q_N_LINEARS + (uint32_t)i] = true;
}

/* ---- costs ----------------------------------------------------------------------------------- */

struct run {
    const struct fp8q_model *model;
    const struct fp8q_inputs *inputs;
    const struct fp8q_sweep_options *options;
    struct fp8q_sweep *sweep;
    struct fp8q_forward fw;
    size_t max_tokens, n_flags;
    float *
        states; /* [layer 0..n_layers][max_tokens][hidden]: before each layer, and after the last */
    float *h[1 + BATCH]; /* [0]: the source */
    bool *flags[BATCH];
    struct fp8q_token_score *scores[1 + BATCH];
    double *kld, *tokens; /* [unit][sample], [sample] */
    uint64_t work_done, work_total;
};

static size_t scored_rows(const struct run *r, const struct fp8q_group *g, float *h)
{
    size_t hidden = (size_t)r->model->hidden, n = 0;
    for (size_t i = 0; i < g->n_samples; i++)
        for (size_t t = 0; t < g->samples[i].n_tokens; t++)
            if (fp8q_sample_scored(&g->samples[i], t))
                memmove(h + n++ * hidden, h + (g->first[i] + t) * hidden, hidden * sizeof(*h));
    return n;
}

static void progress(struct run *r, uint64_t work)
{
    r->work_done += work;
    fp8q_watch_report(r->options->watch, "sweep", r->work_done, r->work_total, FP8Q_UNIT_STEPS);
}

/* Runs the layers from the unit's first on, with the unit quantized.  */
static int run_unit(struct run *r, const struct fp8q_group *g, const struct fp8q_sweep_unit *u,
                    unsigned slot, struct fp8q_error *err)
{
    size_t size = g->n_tokens * (size_t)r->model->hidden;
    memset(r->flags[slot], 0, r->n_flags * sizeof(bool));
    unit_flags(u, r->flags[slot]);
    struct fp8q_branch branch = {.model = r->model,
                                 .acts = r->options->acts,
                                 .round = r->flags[slot],
                                 .round_fmt = r->options->fmt};
    memcpy(r->h[1 + slot], r->states + u->first_layer * size, size * sizeof(float));
    for (uint32_t layer = u->first_layer; layer < r->model->n_layers; layer++) {
        FP8Q_TRY(fp8q_forward_layer(&r->fw, &branch, g, layer, r->h[1 + slot], err));
        progress(r, g->n_tokens);
    }
    return FP8Q_OK;
}

static void add_scores(struct run *r, const struct fp8q_group *g, size_t first_sample, size_t unit,
                       const struct fp8q_token_score *scores)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_samples; i++)
        for (size_t t = 0; t < g->samples[i].n_tokens; t++)
            if (fp8q_sample_scored(&g->samples[i], t))
                r->kld[unit * r->inputs->n_samples + first_sample + i] += scores[n++].kld;
}

static int run_batch(struct run *r, const struct fp8q_group *g, size_t first_sample,
                     size_t first_unit, size_t n_units, struct fp8q_error *err)
{
    size_t size = g->n_tokens * (size_t)r->model->hidden, n = 0;
    struct fp8q_branch branches[1 + BATCH] = {{.model = r->model}};
    int64_t *targets = fp8q_array(g->n_tokens, sizeof(*targets));
    int status = targets ? FP8Q_OK : fp8q_fail_nomem(err);
    for (unsigned i = 0; i < n_units && status == FP8Q_OK; i++) {
        branches[1 + i].model = r->model;
        status = run_unit(r, g, &r->sweep->units[first_unit + i], i, err);
    }
    memcpy(r->h[0], r->states + r->model->n_layers * size, size * sizeof(float));
    for (unsigned i = 0; i < 1 + n_units && status == FP8Q_OK; i++) {
        n = scored_rows(r, g, r->h[i]);
        status = fp8q_forward_norm(&r->fw, &branches[i], n, r->h[i], err);
    }
    for (size_t t = 0; t < n; t++)
        targets[t] = -1;
    if (status == FP8Q_OK)
        status = fp8q_head_score(&r->fw, branches, (unsigned)n_units + 1, r->h, targets, n,
                                 r->scores, err);
    for (size_t i = 0; i < n_units && status == FP8Q_OK; i++)
        add_scores(r, g, first_sample, first_unit + i, r->scores[1 + i]);
    free(targets);
    return status;
}

static int run_group(struct run *r, const struct fp8q_group *g, size_t first_sample,
                     struct fp8q_error *err)
{
    const struct fp8q_branch source = {.model = r->model};
    size_t size = g->n_tokens * (size_t)r->model->hidden;
    FP8Q_TRY(fp8q_forward_embed(&r->fw, &source, g, r->states, err));
    for (uint32_t layer = 0; layer < r->model->n_layers; layer++) {
        float *next = r->states + (layer + 1) * size;
        memcpy(next, next - size, size * sizeof(float));
        FP8Q_TRY(fp8q_forward_layer(&r->fw, &source, g, layer, next, err));
        progress(r, g->n_tokens);
    }
    for (size_t i = 0; i < g->n_samples; i++)
        for (size_t t = 0; t < g->samples[i].n_tokens; t++)
            r->tokens[first_sample + i] += fp8q_sample_scored(&g->samples[i], t);
    for (size_t unit = 0; unit < r->sweep->n_units; unit += BATCH) {
        size_t n = r->sweep->n_units - unit < BATCH ? r->sweep->n_units - unit : BATCH;
        FP8Q_TRY(run_batch(r, g, first_sample, unit, n, err));
    }
    return FP8Q_OK;
}

static int open_run(struct run *r, struct fp8q_error *err)
{
    const struct fp8q_model *m = r->model;
    size_t n_samples = r->inputs->n_samples, longest = 0;
    for (size_t i = 0; i < n_samples; i++)
        if (r->inputs->samples[i].n_tokens > longest)
            longest = r->inputs->samples[i].n_tokens;
    uint64_t bytes = r->options->buffer_bytes ? r->options->buffer_bytes : (uint64_t)512 << 20;
    /* The states count like that many more branches.  */
    r->max_tokens = fp8q_group_tokens(m, r->inputs, (m->n_layers + BATCH) / 2 + 1, bytes);
    r->n_flags = (size_t)m->n_layers * FP8Q_N_LINEARS;
    uint64_t floats = (uint64_t)r->max_tokens * m->hidden;
    r->states = fp8q_array(floats * (m->n_layers + 1), sizeof(float));
    r->kld = fp8q_array((uint64_t)r->sweep->n_units * n_samples, sizeof(double));
    r->tokens = fp8q_array(n_samples, sizeof(double));
    bool ok = r->states && r->kld && r->tokens;
    for (int i = 0; i < 1 + BATCH; i++) {
        r->h[i] = fp8q_array(floats, sizeof(float));
        r->scores[i] = fp8q_array(r->max_tokens, sizeof(**r->scores));
        ok = ok && r->h[i] && r->scores[i];
    }
    for (int i = 0; i < BATCH; i++) {
        r->flags[i] = fp8q_array(r->n_flags, sizeof(bool));
        ok = ok && r->flags[i];
    }
    for (size_t i = 0; i < r->sweep->n_units; i++)
        r->work_total += r->inputs->n_tokens * (m->n_layers - r->sweep->units[i].first_layer);
    r->work_total += r->inputs->n_tokens * m->n_layers;
    if (!ok)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(fp8q_forward_open(&r->fw, m, r->options->n_threads, r->options->kernel, r->max_tokens,
                               longest, err));
    r->fw.watch = r->options->watch;
    return FP8Q_OK;
}

static void close_run(struct run *r)
{
    free(r->states);
    free(r->kld);
    free(r->tokens);
    for (int i = 0; i < 1 + BATCH; i++) {
        free(r->h[i]);
        free(r->scores[i]);
    }
    for (int i = 0; i < BATCH; i++)
        free(r->flags[i]);
    fp8q_forward_close(&r->fw);
}

static int measure_units(struct run *r, struct fp8q_error *err)
{
    const struct fp8q_inputs *in = r->inputs;
    int status = open_run(r, err);
    for (size_t i = 0, n; i < in->n_samples && status == FP8Q_OK; i += n) {
        struct fp8q_group group;
        n = fp8q_group_size(in, i, r->max_tokens);
        status = fp8q_group_open(&group, r->model, in->samples + i, n, err);
        if (status == FP8Q_OK)
            status = run_group(r, &group, i, err);
        fp8q_group_close(&group);
    }
    double tokens = 0;
    for (size_t i = 0; i < in->n_samples && status == FP8Q_OK; i++)
        tokens += r->tokens[i];
    if (status == FP8Q_OK && tokens == 0)
        status = fp8q_fail(err, FP8Q_E_ARG, "inputs", "no position is scored");
    for (size_t u = 0; u < r->sweep->n_units && status == FP8Q_OK; u++) {
        const double *kld = r->kld + u * in->n_samples;
        double sum = 0;
        for (size_t i = 0; i < in->n_samples; i++)
            sum += kld[i];
        r->sweep->units[u].kld = sum / tokens;
        r->sweep->units[u].kld_se = fp8q_ratio_se(kld, r->tokens, in->n_samples);
        r->sweep->sum_kld += sum / tokens;
    }
    close_run(r);
    return status;
}

/* ---- choice ---------------------------------------------------------------------------------- */

void fp8q_sweep_split(const struct fp8q_sweep *s, size_t n_kept, uint64_t *bytes_out,
                      double *kld_out)
{
    uint64_t bytes = s->source_bytes;
    double kld = 0;
    for (size_t i = n_kept; i < s->n_units; i++) {
        bytes -= s->units[s->order[i]].bytes_saved;
        kld += s->units[s->order[i]].kld;
    }
    *bytes_out = bytes;
    *kld_out = kld;
}

static double cost_of_byte(const struct fp8q_sweep_unit *u)
{
    return u->kld / ((double)u->bytes_saved + 1);
}

static void sort_units(struct fp8q_sweep *s)
{
    for (size_t i = 0; i < s->n_units; i++) {
        size_t at = i;
        for (; at > 0 && cost_of_byte(&s->units[s->order[at - 1]]) < cost_of_byte(&s->units[i]);
             at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

/* The split that keeps the first @n_kept, measured as a whole.  */
static int measure_split(const struct run *r, size_t n_kept, double *kld_out, double *se_out,
                         struct fp8q_error *err)
{
    const struct fp8q_sweep *s = r->sweep;
    bool *flags = fp8q_array((uint64_t)r->model->n_layers * FP8Q_N_LINEARS, sizeof(*flags));
    if (!flags)
        return fp8q_fail_nomem(err);
    for (size_t i = n_kept; i < s->n_units; i++)
        unit_flags(&s->units[s->order[i]], flags);
    struct fp8q_eval_options options = {.acts = r->options->acts,
                                        .round = flags,
                                        .round_fmt = r->options->fmt,
                                        .n_threads = r->options->n_threads,
                                        .kernel = r->options->kernel,
                                        .watch = r->options->watch};
    struct fp8q_eval e;
    int status = fp8q_eval_run(r->model, r->model, r->inputs, &options, &e, err);
    free(flags);
    if (status != FP8Q_OK)
        return status;
    *kld_out = e.rows[FP8Q_EVAL_OUTPUT].kld;
    *se_out = e.rows[FP8Q_EVAL_OUTPUT].kld_se;
    r->sweep->tokens = e.rows[FP8Q_EVAL_OUTPUT].tokens;
    fp8q_eval_reset(&e);
    return FP8Q_OK;
}

/* Fewest units to keep so that the prediction times @correction is within the KLD budget, and at
 * least @from.  */
static size_t choose(const struct fp8q_sweep *s, double budget, double correction, size_t from)
{
    uint64_t bytes;
    double kld;
    for (size_t n = from; n < s->n_units; n++) {
        fp8q_sweep_split(s, n, &bytes, &kld);
        if (kld * correction <= budget)
            return n;
    }
    return s->n_units;
}

/* The KLD budget: predict, measure, and keep more as long as the measurement is beyond it.  */
static int choose_by_kld(struct run *r, struct fp8q_error *err)
{
    struct fp8q_sweep *s = r->sweep;
    double budget = r->options->budget_kld, se;
    double correction = s->sum_kld > 0 ? s->all_kld / s->sum_kld : 1;
    for (size_t from = 0;;) {
        s->n_kept = choose(s, budget, correction, from);
        fp8q_sweep_split(s, s->n_kept, &s->chosen_bytes, &s->chosen_predicted);
        if (s->n_kept == 0)
            s->chosen_kld = s->all_kld;
        else
            FP8Q_TRY(measure_split(r, s->n_kept, &s->chosen_kld, &se, err));
        s->met = s->chosen_kld <= budget;
        if (s->met || s->n_kept == s->n_units)
            return FP8Q_OK;
        from = s->n_kept + 1;
        correction = fmax(correction, s->chosen_kld / s->chosen_predicted);
    }
}

/* The size budget: keep as much as fits; "all" where nothing does.  */
static int choose_by_bytes(struct run *r, struct fp8q_error *err)
{
    struct fp8q_sweep *s = r->sweep;
    double kld, se;
    uint64_t bytes;
    s->n_kept = 0;
    for (size_t n = 1; n <= s->n_units; n++) {
        fp8q_sweep_split(s, n, &bytes, &kld);
        if (bytes > r->options->budget_bytes)
            break;
        s->n_kept = n;
    }
    fp8q_sweep_split(s, s->n_kept, &s->chosen_bytes, &s->chosen_predicted);
    s->met = s->chosen_bytes <= r->options->budget_bytes;
    s->chosen_kld = s->all_kld;
    return s->n_kept ? measure_split(r, s->n_kept, &s->chosen_kld, &se, err) : FP8Q_OK;
}

static int run_sweep(struct run *r, struct fp8q_error *err)
{
    struct fp8q_sweep *s = r->sweep;
    FP8Q_TRY(fp8q_inputs_check(r->inputs, r->model, err));
    FP8Q_TRY(list_units(s, r->model, r->options, err));
    s->source_bytes = r->model->ckpt->data_bytes;
    FP8Q_TRY(measure_units(r, err));
    sort_units(s);
    FP8Q_TRY(measure_split(r, 0, &s->all_kld, &s->all_se, err));
    fp8q_sweep_split(s, 0, &s->chosen_bytes, &s->chosen_predicted);
    s->chosen_kld = s->all_kld;
    s->met = true;
    if (r->options->budget_kld >= 0)
        FP8Q_TRY(choose_by_kld(r, err));
    else if (r->options->budget_bytes > 0)
        FP8Q_TRY(choose_by_bytes(r, err));
    for (size_t i = s->n_kept; i < s->n_units; i++)
        s->units[s->order[i]].quantized = true;
    return FP8Q_OK;
}

int fp8q_sweep_run(const struct fp8q_model *model, const struct fp8q_inputs *inputs,
                   const struct fp8q_sweep_options *options, struct fp8q_sweep *sweep_out,
                   struct fp8q_error *err)
{
    *sweep_out = (struct fp8q_sweep){0};
    struct run r = {.model = model, .inputs = inputs, .options = options, .sweep = sweep_out};
    int status = run_sweep(&r, err);
    if (status != FP8Q_OK)
        fp8q_sweep_reset(sweep_out);
    return status;
}

void fp8q_sweep_reset(struct fp8q_sweep *sweep)
{
    free(sweep->units);
    free(sweep->order);
    *sweep = (struct fp8q_sweep){0};
}

/* ---- reports --------------------------------------------------------------------------------- */

int fp8q_sweep_ignore(const struct fp8q_sweep *s, const struct fp8q_model *model,
                      struct fp8q_text *out, struct fp8q_error *err)
{
    for (size_t u = 0; u < s->n_units; u++) {
        const struct fp8q_sweep_unit *unit = &s->units[u];
        for (uint32_t layer = unit->first_layer; layer <= unit->last_layer && !unit->quantized;
             layer++)
            for (int i = 0; i < FP8Q_N_LINEARS; i++) {
                struct fp8q_name name;
                if (unit->linears >> i & 1)
                    fp8q_text_printf(
                        out, "%s\n",
                        fp8q_linear_name(model, layer, (enum fp8q_linear)i, "", &name));
            }
    }
    return fp8q_text_status(out, err);
}

static void unit_json(const struct fp8q_sweep_unit *u, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", u->name);
    fp8q_jsonw_number(w, "kld", u->kld);
    fp8q_jsonw_number(w, "kld_se", u->kld_se);
    fp8q_jsonw_uint(w, "bytes_saved", u->bytes_saved);
    fp8q_jsonw_bool(w, "quantized", u->quantized);
    fp8q_jsonw_close(w, '}');
}

void fp8q_sweep_json(const struct fp8q_sweep *s, const struct fp8q_model *model,
                     struct fp8q_jsonw *w)
{
    fp8q_jsonw_uint(w, "tokens", s->tokens);
    fp8q_jsonw_uint(w, "source_bytes", s->source_bytes);
    fp8q_jsonw_open(w, "units", '[');
    for (size_t i = 0; i < s->n_units; i++)
        unit_json(&s->units[i], w);
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_open(w, "splits", '[');
    for (size_t n = 0; n <= s->n_units; n++) {
        uint64_t bytes;
        double kld;
        fp8q_sweep_split(s, n, &bytes, &kld);
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_uint(w, "kept", n);
        fp8q_jsonw_string(w, "last_kept", n ? s->units[s->order[n - 1]].name : NULL);
        fp8q_jsonw_uint(w, "bytes", bytes);
        fp8q_jsonw_number(w, "kld", kld);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_open(w, "all", '{');
    fp8q_jsonw_number(w, "predicted", s->sum_kld);
    fp8q_jsonw_number(w, "measured", s->all_kld);
    fp8q_jsonw_number(w, "se", s->all_se);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_open(w, "chosen", '{');
    fp8q_jsonw_uint(w, "kept", s->n_kept);
    fp8q_jsonw_uint(w, "bytes", s->chosen_bytes);
    fp8q_jsonw_number(w, "predicted", s->chosen_predicted);
    fp8q_jsonw_number(w, "measured", s->chosen_kld);
    fp8q_jsonw_bool(w, "met", s->met);
    fp8q_jsonw_open(w, "ignore", '[');
    for (size_t u = 0; u < s->n_units; u++)
        for (uint32_t layer = s->units[u].first_layer; layer <= s->units[u].last_layer; layer++)
            for (int i = 0; i < FP8Q_N_LINEARS && !s->units[u].quantized; i++) {
                struct fp8q_name name;
                if (s->units[u].linears >> i & 1)
                    fp8q_jsonw_string(
                        w, NULL, fp8q_linear_name(model, layer, (enum fp8q_linear)i, "", &name));
            }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}
