/* SPDX-License-Identifier: Apache-2.0
 *
 * split.c - which units to leave unquantized, and which scheme the others have.
 *
 * A unit has a path: from the choice that saves most over those that cost less KLD for the bytes that
 * they give back, to none at all.  The steps of all paths stand in one order, by falling KLD for a
 * byte, and a split takes the first of them.  So there are as many splits as steps, and the sum of
 * the costs predicts the KLD of each.  The prediction is off by some per cent, since costs do not
 * quite add up; that is why a chosen split is run as a whole, and more steps are taken until the
 * measurement is within the budget.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "measure/internal.h"

/* ---- paths ----------------------------------------------------------------------------------- */

/* A place in the plane of bytes saved and KLD; behind the path stands what saves and costs nothing. */
static const struct fp8q_sweep_choice *place(const struct fp8q_sweep_unit *u, unsigned at)
{
    static const struct fp8q_sweep_choice nothing = {.linears = 0};
    return at < u->n_path ? &u->choices[u->path[at]] : &nothing;
}

/* KLD for each byte that going from @a to @b gives back.  */
static double cost_of_byte(const struct fp8q_sweep_choice *a, const struct fp8q_sweep_choice *b)
{
    /* A unit of tiny weights may save nothing, hence the 1.  */
    return (a->kld - b->kld) / ((double)(a->bytes_saved - b->bytes_saved) + 1);
}

/* By falling bytes; of the same bytes the least KLD first, in the order of the choices.  */
static bool goes_before(const struct fp8q_sweep_choice *a, const struct fp8q_sweep_choice *b)
{
    return a->bytes_saved > b->bytes_saved || (a->bytes_saved == b->bytes_saved && a->kld < b->kld);
}

/* The lower convex hull of the unit's choices, and of none: what lies above it is never worth its
 * bytes.  */
static void make_path(struct fp8q_sweep_unit *u)
{
    uint8_t sorted[FP8Q_SWEEP_CHOICES];
    unsigned n = 0;
    for (unsigned i = 0; i < u->n_choices; i++, n++) {
        unsigned at = n;
        for (; at > 0 && goes_before(&u->choices[i], &u->choices[sorted[at - 1]]); at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = (uint8_t)i;
    }

    for (unsigned i = 0; i < n; i++) {
        const struct fp8q_sweep_choice *c = &u->choices[sorted[i]];
        if (i > 0 && c->kld >= place(u, u->n_path - 1)->kld)
            continue; /* saves less, and costs no less */
        /* A corner that points up: the step over it is the cheaper one.  */
        while (u->n_path >= 2 && cost_of_byte(place(u, u->n_path - 2), place(u, u->n_path - 1)) <
                                     cost_of_byte(place(u, u->n_path - 1), c))
            u->n_path--;
        u->path[u->n_path++] = sorted[i];
    }
    while (u->n_path >= 2 && cost_of_byte(place(u, u->n_path - 2), place(u, u->n_path - 1)) <
                                 cost_of_byte(place(u, u->n_path - 1), place(u, u->n_path)))
        u->n_path--;
}

/* By insertion: equal costs stay in the order of the network, on every machine.  */
static void add_step(struct fp8q_sweep *s, struct fp8q_sweep_step step)
{
    size_t at = s->n_steps++;

    for (; at > 0 && s->steps[at - 1].cost < step.cost; at--)
        s->steps[at] = s->steps[at - 1];
    s->steps[at] = step;
}

static void make_steps(struct fp8q_sweep *s)
{
    for (size_t i = 0; i < s->n_units; i++) {
        struct fp8q_sweep_unit *u = &s->units[i];
        double before = INFINITY;
        make_path(u);

        /* Costs fall along a hull but for the last bit of a rounding; a step must not pass the one
         * before it.  */
        for (unsigned to = 1; to <= u->n_path; to++) {
            before = fmin(before, cost_of_byte(place(u, to - 1), place(u, to)));
            add_step(s, (struct fp8q_sweep_step){i, to, before});
        }
    }
}

/* ---- splits ---------------------------------------------------------------------------------- */

const struct fp8q_sweep_choice *fp8q_sweep_choice_of(const struct fp8q_sweep *s, size_t unit,
                                                     size_t n_taken)
{
    const struct fp8q_sweep_unit *u = &s->units[unit];
    unsigned at = 0;

    for (size_t i = 0; i < n_taken; i++)
        if (s->steps[i].unit == unit)
            at = s->steps[i].to;
    return at < u->n_path ? place(u, at) : NULL;
}

struct fp8q_sweep_sum fp8q_sweep_split(const struct fp8q_sweep *s, size_t n_taken)
{
    struct fp8q_sweep_sum sum = {.bytes = s->source_bytes};

    /* From the cheapest step to the dearest: what is not taken adds up to what is left to take.  */
    for (size_t i = s->n_steps; i > n_taken; i--) {
        const struct fp8q_sweep_step *step = &s->steps[i - 1];
        const struct fp8q_sweep_unit *u = &s->units[step->unit];
        const struct fp8q_sweep_choice *from = place(u, step->to - 1), *to = place(u, step->to);
        sum.bytes -= from->bytes_saved - to->bytes_saved;
        sum.kld += from->kld - to->kld;
    }
    for (size_t i = 0; i < n_taken; i++)
        sum.n_kept += s->steps[i].to == s->units[s->steps[i].unit].n_path;
    return sum;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int run_split(const struct fp8q_sweep_job *job, const struct fp8q_as *as, double *kld_out,
                     double *se_out, struct fp8q_error *err)
{
    /* Both sides of the evaluation are the source; one rounds the weights of the split as it reads. */
    struct fp8q_eval_options options = {.acts = job->options->acts,
                                        .acts_like = &as->like,
                                        .stand_in = &as->stand_in,
                                        .round = as->round,
                                        .round_fmt = job->options->fmt,
                                        .n_threads = job->options->n_threads,
                                        .kernel = job->options->kernel,
                                        .watch = job->options->watch};
    struct fp8q_eval e;
    FP8Q_TRY(fp8q_eval_run(job->model, job->model, job->inputs, &options, &e, err));

    *kld_out = e.rows[FP8Q_EVAL_OUTPUT].kld;
    if (se_out)
        *se_out = e.rows[FP8Q_EVAL_OUTPUT].kld_se;
    job->sweep->tokens = e.rows[FP8Q_EVAL_OUTPUT].tokens;
    fp8q_eval_reset(&e);
    return FP8Q_OK;
}

/* The split that takes the first @n_taken steps, run as a whole; *@se_out may be NULL.  */
static int measure_split(const struct fp8q_sweep_job *job, size_t n_taken, double *kld_out,
                         double *se_out, struct fp8q_error *err)
{
    struct fp8q_as as;
    int status = fp8q_as_open(job->model, job->options->kernel, &as, err);

    for (size_t i = 0; i < job->sweep->n_units && status == FP8Q_OK; i++) {
        const struct fp8q_sweep_choice *c = fp8q_sweep_choice_of(job->sweep, i, n_taken);
        if (c)
            fp8q_as_add(&as, &job->sweep->units[i], c);
    }
    if (status == FP8Q_OK)
        status = run_split(job, &as, kld_out, se_out, err);
    fp8q_as_close(&as);
    return status;
}

/* ---- budgets --------------------------------------------------------------------------------- */

static void choose(struct fp8q_sweep *s, size_t n_taken)
{
    struct fp8q_sweep_sum sum = fp8q_sweep_split(s, n_taken);

    s->n_taken = n_taken;
    s->n_kept = sum.n_kept;
    s->chosen_bytes = sum.bytes;
    s->chosen_predicted = sum.kld;
}

/* Fewest steps so that the prediction times @correction is within the KLD budget, and at least
 * @from.  */
static size_t predict(const struct fp8q_sweep *s, double budget, double correction, size_t from)
{
    for (size_t n = from; n < s->n_steps; n++)
        if (fp8q_sweep_split(s, n).kld * correction <= budget)
            return n;
    /* Everything kept is the source itself, whose KLD is 0.  */
    return s->n_steps;
}

/* The KLD budget: predict, measure, and go on as long as the measurement is beyond it.  */
static int choose_by_kld(const struct fp8q_sweep_job *job, struct fp8q_error *err)
{
    struct fp8q_sweep *s = job->sweep;
    double budget = job->options->budget_kld;
    double correction = s->sum_kld > 0 ? s->all_kld / s->sum_kld : 1;

    for (size_t from = 0;;) {
        choose(s, predict(s, budget, correction, from));
        /* No step is "all", which was measured before any budget was looked at.  */
        if (s->n_taken == 0)
            s->chosen_kld = s->all_kld;
        else
            FP8Q_TRY(measure_split(job, s->n_taken, &s->chosen_kld, NULL, err));

        s->met = s->chosen_kld <= budget;
        if (s->met || s->n_taken == s->n_steps)
            return FP8Q_OK;

        /* Learn from the miss, so that the next step need not be a single one.  */
        from = s->n_taken + 1;
        correction = fmax(correction, s->chosen_kld / s->chosen_predicted);
    }
}

/* The size budget: go as far as fits; "all" where nothing does.  */
static int choose_by_bytes(const struct fp8q_sweep_job *job, struct fp8q_error *err)
{
    struct fp8q_sweep *s = job->sweep;
    size_t n = 0;

    /* Sizes only grow with the steps: what comes after one that does not fit does not either.  */
    while (n < s->n_steps && fp8q_sweep_split(s, n + 1).bytes <= job->options->budget_bytes)
        n++;
    choose(s, n);
    s->met = s->chosen_bytes <= job->options->budget_bytes;

    /* With no step the KLD stays that of "all", set by fp8q_split_choose().  */
    return n ? measure_split(job, n, &s->chosen_kld, NULL, err) : FP8Q_OK;
}

int fp8q_split_choose(const struct fp8q_sweep_job *job, struct fp8q_error *err)
{
    struct fp8q_sweep *s = job->sweep;

    /* Without a budget "all quantized" is the choice.  */
    make_steps(s);
    FP8Q_TRY(measure_split(job, 0, &s->all_kld, &s->all_se, err));
    choose(s, 0);
    s->sum_kld = s->chosen_predicted;
    s->chosen_kld = s->all_kld;
    s->met = true;

    if (job->options->budget_kld >= 0)
        return choose_by_kld(job, err);
    return job->options->budget_bytes > 0 ? choose_by_bytes(job, err) : FP8Q_OK;
}
