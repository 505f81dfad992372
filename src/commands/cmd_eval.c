/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_eval.c - `fp8q eval SRC DST...`: how far the outputs of checkpoints differ from the source's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "measure/eval.h"
#include "select/quantized.h"
#include "cli/evalinputs.h"
#include "cli/format.h"
#include "checkpoint/fingerprint.h"
#include "base/date.h"
#include "base/mem.h"
#include "cli/gate_facts.h"

struct args {
    struct cli_inputs inputs;
    unsigned acts;            /* enum fp8q_acts */
    struct cli_list evidence; /* a file for each output */
    const char *stack;
    bool decompose, requant, overwrite, fp8_cache;
};

/* One checkpoint to be compared with the source.  */
struct output {
    struct fp8q_ckpt *ckpt;
    struct fp8q_model model;
    struct cli_origin origin;
    struct fp8q_text differences; /* of its config.json */
};

struct state {
    struct fp8q_ckpt *source;
    struct fp8q_model source_model;
    struct fp8q_inputs inputs;
    uint32_t source_print;
    struct output outputs[FP8Q_EVAL_MAX_OUTPUTS];
    struct fp8q_eval evals[FP8Q_EVAL_MAX_OUTPUTS];
    unsigned n_outputs;
};

/* In the order of enum fp8q_acts.  */
static const char *const acts_names[] = {"none", "served", "block", "block-pow2", "token", NULL};

static int open_output(struct cli *cli, const char *path, struct state *s, struct output *o)
{
    struct fp8q_error *err = &cli->error;
    FP8Q_TRY(fp8q_ckpt_open(path, &o->ckpt, &cli->warnings, err));
    FP8Q_TRY(fp8q_model_open(o->ckpt, &o->model, err));
    FP8Q_TRY(fp8q_model_same(&s->source_model, &o->model, err));

    /* Turned round, the figures are no worse and mean nothing.  */
    const char *what;
    if (fp8q_already_quantized(s->source, &what) && !fp8q_already_quantized(o->ckpt, &what))
        FP8Q_TRY(fp8q_warn(&cli->warnings, err, "eval-order",
                           "the first checkpoint is quantized and %s is not: the order is SRC DST",
                           path));

    /* Networks that compute different things can be compared, but not without saying so.  */
    fp8q_model_differences(&s->source_model, &o->model, &o->differences);
    FP8Q_TRY(fp8q_text_status(&o->differences, err));
    if (o->differences.len)
        FP8Q_TRY(fp8q_warn(&cli->warnings, err, "config-differs",
                           "%s computes something else than its source, by its own config.json: %s",
                           path, o->differences.data));
    return FP8Q_OK;
}

static int open_all(struct cli *cli, const char *const *paths, const struct args *args,
                    struct state *s)
{
    struct fp8q_error *err = &cli->error;
    FP8Q_TRY(fp8q_ckpt_open(paths[0], &s->source, &cli->warnings, err));
    FP8Q_TRY(fp8q_model_open(s->source, &s->source_model, err));
    for (unsigned i = 0; i < s->n_outputs; i++)
        FP8Q_TRY(open_output(cli, paths[1 + i], s, &s->outputs[i]));

    /* By the tokenizer of the source: all must see the same tokens.  */
    FP8Q_TRY(cli_inputs_open(cli, &args->inputs, s->source, &s->inputs));
    FP8Q_TRY(fp8q_inputs_check(&s->inputs, &s->source_model, err));

    /* Last, as it reads every byte of all.  */
    unsigned threads = (unsigned)cli->threads;
    FP8Q_TRY(fp8q_fingerprint(s->source, threads, &cli->watch, &s->source_print, err));
    for (unsigned i = 0; i < s->n_outputs; i++)
        FP8Q_TRY(cli_origin_read(cli, s->outputs[i].ckpt, &s->outputs[i].origin));
    return FP8Q_OK;
}

/* The head of the evidence, which borrows from @s and @o.  */
static struct fp8q_evidence evidence_of(const struct args *args, const struct state *s,
                                        const struct output *o)
{
    return (struct fp8q_evidence){.kind = (char *)"eval",
                                  .tool = (char *)("fp8q " FP8Q_VERSION),
                                  .stack = (char *)args->stack,
                                  .rounding =
                                      o->origin.rounding[0] ? (char *)o->origin.rounding : NULL,
                                  .source = {true, s->source_print},
                                  .output = o->origin.output,
                                  .config = o->origin.config,
                                  .inputs = {true, s->inputs.fingerprint}};
}

static void write_results(struct fp8q_jsonw *w, const struct args *args, const struct state *s,
                          unsigned i)
{
    const struct output *o = &s->outputs[i];
    fp8q_jsonw_string(w, "source", s->source->path);
    fp8q_jsonw_string(w, "output", o->ckpt->path);
    fp8q_jsonw_string(w, "dataset", s->inputs.dataset);
    fp8q_jsonw_uint(w, "n_samples", s->inputs.n_samples);
    fp8q_jsonw_string(w, "acts", acts_names[args->acts]);
    fp8q_jsonw_string(w, "acts_served", fp8q_served_name(&o->model));
    fp8q_jsonw_string(w, "kv_cache", args->fp8_cache ? "fp8" : "none");
    fp8q_jsonw_string(w, "config_differences", o->differences.data ? o->differences.data : "");
    fp8q_eval_json(&s->evals[i], w);
}

/* As in the evidence of output @i, but for the time and the tool.  */
static void write_subject(struct fp8q_jsonw *w, const struct args *args, const struct state *s,
                          unsigned i)
{
    const struct fp8q_evidence evidence = evidence_of(args, s, &s->outputs[i]);
    fp8q_evidence_write_subject(w, &evidence);
    write_results(w, args, s, i);
}

static void write_json(struct fp8q_jsonw *w, const struct args *args, const struct state *s)
{
    if (s->n_outputs == 1) {
        write_subject(w, args, s, 0);
        return;
    }

    fp8q_jsonw_open(w, "outputs", '[');
    for (unsigned i = 0; i < s->n_outputs; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        write_subject(w, args, s, i);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static int write_evidence(struct cli *cli, const struct args *args, const struct state *s,
                          unsigned i)
{
    struct fp8q_jsonw w = {.indent = 1};
    struct fp8q_evidence evidence = evidence_of(args, s, &s->outputs[i]);
    struct cli_time stamp;

    if (!fp8q_time_parse(cli_timestamp(&stamp), &evidence.created))
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "time", "SOURCE_DATE_EPOCH is no time");

    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_evidence_write(&w, &evidence);
    write_results(&w, args, s, i);
    fp8q_jsonw_close(&w, '}');
    fp8q_text_add(&w.text, "\n", 1);

    int status = fp8q_output_text(args->evidence.items[i], &w.text, &cli->error);
    fp8q_text_reset(&w.text);
    return status;
}

/* ---- for people ---------------------------------------------------------------------------- */

/* Tables fit 80 columns.  */
enum { NAME = 12, PATH = 24 };

/* The standard error between samples; where there is none, between tokens; "-" of one token.  */
static const char *error_text(char buf[16], const struct fp8q_eval_figures *f)
{
    double se = isnan(f->kld_se) ? f->kld_se_by_token : f->kld_se;
    snprintf(buf, 16, isfinite(se) ? "%.6f" : "-", se);
    return buf;
}

static void print_row_heads(struct cli *cli, int width, const char *head)
{
    cli_print(cli, "%-*s %8s %8s %8s %8s %8s %7s %5s %7s\n", width, head, "KLD mean", "+- SE",
              "median", "p99", "max", "top-1 %", "flips", "dlnPPL");
}

static void print_row(struct cli *cli, int width, const char *name,
                      const struct fp8q_eval_figures *f)
{
    char se[16];
    cli_print(cli, "%-*s %8.6f %8s %8.6f %8.6f %8.6f %7.3f %5llu %+7.4f\n", width, name, f->kld,
              error_text(se, f), f->kld_median, f->kld_p99, f->kld_max, 100 * f->top1,
              (unsigned long long)f->flips, f->dlnppl);
}

static int by_kld(const void *a, const void *b)
{
    double x = (*(const struct fp8q_eval_sample *const *)a)->kld;
    double y = (*(const struct fp8q_eval_sample *const *)b)->kld;
    /* The largest first.  */
    return (x < y) - (x > y);
}

static void print_worst(struct cli *cli, const struct fp8q_eval *e)
{
    const struct fp8q_eval_sample **order = calloc(e->n_samples ? e->n_samples : 1, sizeof(*order));
    size_t n = 0;

    /* Samples of which no token was scored have no figures.  */
    for (size_t i = 0; order && i < e->n_samples; i++)
        if (e->samples[i].tokens > 0)
            order[n++] = &e->samples[i];

    /* A list for people is not worth a failure: without memory it is left out.  */
    if (order)
        qsort(order, n, sizeof(*order), by_kld);

    struct fp8q_text t = {0};
    size_t show = cli->verbose ? n : fp8q_min_size(n, 3);
    for (size_t i = 0; i < show; i++)
        fp8q_text_printf(&t, "%s %zu (KLD %.6f, top-1 %.2f %%)", i ? "," : "",
                         (size_t)(order[i] - e->samples), order[i]->kld, 100 * order[i]->top1);

    /* Of one sample the total has said all.  */
    if (n > 1 && t.data)
        cli_print_wrapped(cli, 4, "worst samples:%s", t.data);
    fp8q_text_reset(&t);
    free(order);
}

/* Figures of some of the tokens, each with the number of tokens and samples that it is a mean of.  */
static void print_parts(struct cli *cli, const char *head, const struct fp8q_eval_parts *parts)
{
    char se[16];

    if (parts->n > 0)
        cli_print(cli, "%-16s %8s %7s %8s %8s %8s %8s %7s\n", head, "tokens", "samples", "KLD mean",
                  "+- SE", "p99", "max", "top-1 %");
    for (size_t i = 0; i < parts->n; i++) {
        const struct fp8q_eval_part *p = &parts->items[i];
        const struct fp8q_eval_figures *f = &p->figures;
        cli_print(cli, "  %-14s %8llu %7llu %8.6f %8s %8.6f %8.6f %7.3f\n",
                  p->name[0] ? p->name : "(none)", (unsigned long long)f->tokens,
                  (unsigned long long)f->samples, f->kld, error_text(se, f), f->kld_p99, f->kld_max,
                  100 * f->top1);
    }
}

static void print_state(struct cli *cli, const struct fp8q_eval *e, enum fp8q_state state,
                        const char *name)
{
    uint32_t worst = fp8q_eval_worst(e, state);
    double sum = 0;
    for (uint32_t i = 0; i < e->n_layers; i++)
        sum += e->errors[state][i];
    cli_print(cli, "  %-22s %.5f   %.5f   layer %u\n", name, sum / (double)e->n_layers,
              e->errors[state][worst], worst);
}

/* What an action expert reads of a backbone.  Captured inputs are of such models; others ask.  */
static void print_states(struct cli *cli, const struct state *s, unsigned i)
{
    const struct fp8q_eval *e = &s->evals[i];
    const char *prefix = s->outputs[i].model.prefix;
    int root = (int)strlen(prefix);
    if (s->inputs.hidden == 0 && !cli->verbose)
        return;

    /* The root without the dot that ends it.  */
    cli_print(cli, "relative error (L2) over %llu tokens; %u layer%s of %.*s\n",
              (unsigned long long)e->n_tokens, e->n_layers, fp8q_plural(e->n_layers),
              root ? root - 1 : 0, prefix);
    cli_print(cli, "  %-22s mean      worst\n", "");
    print_state(cli, e, FP8Q_STATE_HIDDEN, "hidden state");
    print_state(cli, e, FP8Q_STATE_KEYS, "keys");
    print_state(cli, e, FP8Q_STATE_VALUES, "values");
    cli_print(cli, "  %-22s %.5f\n", "behind the final norm", e->final_error);

    for (int state = 0; state < FP8Q_N_STATES; state++) {
        cli_print_verbose(cli, "%s after each layer:", fp8q_state_names[state]);
        for (uint32_t layer = 0; layer < e->n_layers; layer++)
            cli_print_verbose(cli, " %.5f", e->errors[state][layer]);
        cli_print_verbose(cli, "\n");
    }
}

static int by_clipped(const void *a, const void *b)
{
    double x = ((const struct fp8q_eval_static *)a)->clipped;
    double y = ((const struct fp8q_eval_static *)b)->clipped;
    return (x < y) - (x > y);
}

/* Linears whose inputs are clipped, the worst first.  */
static void print_statics(struct cli *cli, const struct fp8q_eval *e)
{
    size_t n = e->n_statics, size = sizeof(*e->statics), show = cli->verbose ? n : 5;
    struct fp8q_eval_static *order = n ? malloc(n * size) : NULL;
    if (!order)
        return;

    memcpy(order, e->statics, n * size);
    qsort(order, n, size, by_clipped);
    cli_print(cli,
              "static inputs of %zu linear%s: at most %.4f %% of a linear's are clipped, at most "
              "%.2f powers of two of a range unused\n",
              n, fp8q_plural(n), 100 * e->clipped, e->unused);
    for (size_t i = 0; i < n && i < show && (order[i].clipped > 0 || cli->verbose); i++)
        cli_print(cli, "  %-44s clipped %.4f %%, unused %.2f\n", order[i].name.text,
                  100 * order[i].clipped, order[i].unused);
    free(order);
}

static void print_rows(struct cli *cli, const struct fp8q_eval *e)
{
    static const char *const names[] = {"output", "acts only", "weights only", "UE8M0 scales"};
    const struct fp8q_eval_figures *f = &e->rows[FP8Q_EVAL_OUTPUT];
    if (f->tokens == 0) {
        cli_print(cli, "the inputs predict no token: no KLD, only the errors of states\n");
        return;
    }

    print_row_heads(cli, NAME, "");
    for (int i = 0; i < FP8Q_EVAL_N_ROWS; i++) /* decompose and requant were asked for or not */
        if (e->rows[i].tokens > 0)
            print_row(cli, NAME, names[i], &e->rows[i]);

    if (f->nll_tokens > 0) {
        struct cli_spread spread;
        cli_print(cli, "perplexity: source %.5f, output %.5f (dlnPPL %+.5f%s)\n", f->ppl_source,
                  f->ppl_output, f->dlnppl, cli_spread(&spread, 5, f->dlnppl_se));
    }
    if (e->rows[FP8Q_EVAL_ACTIVATIONS].tokens > 0 && f->kld > 0)
        cli_print_wrapped(
            cli, 4,
            "dynamic activation quantization alone costs %.0f %% of the KLD: a floor for any "
            "offline tool",
            100 * e->rows[FP8Q_EVAL_ACTIVATIONS].kld / f->kld);
}

static void print_output(struct cli *cli, const struct args *args, const struct state *s,
                         unsigned i)
{
    const struct fp8q_eval *e = &s->evals[i];
    const struct fp8q_eval_figures *f = &e->rows[FP8Q_EVAL_OUTPUT];
    bool served = args->acts == FP8Q_ACTS_SERVED;

    if (s->n_outputs > 1)
        cli_print(cli, "%s%s: ", i ? "\n" : "", s->outputs[i].ckpt->path);
    cli_print_wrapped(
        cli, 4, "%llu token%s of %zu sample%s scored, %llu quantized linear%s, activations: %s%s%s",
        (unsigned long long)f->tokens, fp8q_plural(f->tokens), e->n_samples,
        fp8q_plural(e->n_samples), (unsigned long long)e->n_quantized, fp8q_plural(e->n_quantized),
        acts_names[args->acts], served ? ", " : "",
        served ? fp8q_served_name(&s->outputs[i].model) : "");
    print_rows(cli, e);
    print_statics(cli, e);
    print_parts(cli, "by modality", &e->modalities);
    print_parts(cli, "by category", &e->categories);
    print_worst(cli, e);
    print_states(cli, s, i);
}

/* What several outputs are run together for: their figures one below the other.  */
static void print_side_by_side(struct cli *cli, const struct state *s)
{
    if (s->n_outputs == 1 || s->evals[0].rows[FP8Q_EVAL_OUTPUT].tokens == 0)
        return;

    cli_print(cli, "\n");
    print_row_heads(cli, PATH, "side by side");
    for (unsigned i = 0; i < s->n_outputs; i++) {
        /* The end of a long path tells outputs apart.  */
        const char *path = s->outputs[i].ckpt->path;
        size_t len = strlen(path);
        print_row(cli, PATH, len > PATH ? path + len - PATH : path,
                  &s->evals[i].rows[FP8Q_EVAL_OUTPUT]);
    }
}

/* What is read must not be written, and nothing twice.  */
static int guard_inputs(struct cli *cli, const char *const *paths, const struct args *args,
                        const struct state *s, struct fp8q_guard_list *guard)
{
    const struct cli_list *evidence = &args->evidence;
    if (evidence->count > 0 && evidence->count != s->n_outputs)
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "evidence",
                         "%zu file%s of -o for %u checkpoints to evaluate: give one for each, in "
                         "their order",
                         evidence->count, fp8q_plural(evidence->count), s->n_outputs);

    FP8Q_TRY(fp8q_guard_add(guard, paths[0], "the source", &cli->error));
    for (unsigned i = 0; i < s->n_outputs; i++)
        FP8Q_TRY(fp8q_guard_add(guard, paths[1 + i], "a checkpoint to evaluate", &cli->error));
    FP8Q_TRY(cli_inputs_check(cli, &args->inputs, guard));
    for (size_t i = 0; i < evidence->count; i++)
        FP8Q_TRY(cli_result_check(evidence->items[i], args->overwrite, guard, &cli->error));
    return FP8Q_OK;
}

static int check_outputs(struct cli *cli, const char *const *paths, const struct args *args,
                         const struct state *s)
{
    struct fp8q_guard_list guard = {0};
    int status = guard_inputs(cli, paths, args, s, &guard);
    fp8q_guard_reset(&guard);
    return status;
}

static int measure(struct cli *cli, const struct args *args, struct state *s)
{
    const struct fp8q_eval_options options = {.acts = (enum fp8q_acts)args->acts,
                                              .decompose = args->decompose,
                                              .requant_ue8m0 = args->requant,
                                              .fp8_cache = args->fp8_cache,
                                              .n_threads = (unsigned)cli->threads,
                                              .kernel = cli->kernel,
                                              .watch = &cli->watch};
    const struct fp8q_model *models[FP8Q_EVAL_MAX_OUTPUTS];
    for (unsigned i = 0; i < s->n_outputs; i++)
        models[i] = &s->outputs[i].model;
    FP8Q_TRY(fp8q_eval_outputs(&s->source_model, models, s->n_outputs, &s->inputs, &options,
                               s->evals, &cli->error));

    /* What was measured is what was fingerprinted, or there is no evidence.  */
    FP8Q_TRY(fp8q_ckpt_unchanged(s->source, &cli->error));
    for (unsigned i = 0; i < s->n_outputs; i++)
        FP8Q_TRY(fp8q_ckpt_unchanged(s->outputs[i].ckpt, &cli->error));
    return FP8Q_OK;
}

static int run(struct cli *cli, const char *const *paths, const struct args *args, struct state *s)
{
    /* What can be refused is refused before hours of work.  */
    FP8Q_TRY(check_outputs(cli, paths, args, s));
    FP8Q_TRY(open_all(cli, paths, args, s));
    FP8Q_TRY(measure(cli, args, s));

    for (unsigned i = 0; i < args->evidence.count; i++)
        FP8Q_TRY(write_evidence(cli, args, s, i));
    cli_progress_clear();
    for (unsigned i = 0; i < s->n_outputs; i++)
        print_output(cli, args, s, i);
    print_side_by_side(cli, s);

    /* The object on standard output has the same results as the evidence.  */
    write_json(&cli->json, args, s);
    return FP8Q_OK;
}

static void reset(struct state *s)
{
    for (unsigned i = 0; i < s->n_outputs; i++) {
        fp8q_text_reset(&s->outputs[i].differences);
        fp8q_eval_reset(&s->evals[i]);
        fp8q_model_reset(&s->outputs[i].model);
        fp8q_ckpt_close(s->outputs[i].ckpt);
    }
    fp8q_inputs_reset(&s->inputs);
    fp8q_model_reset(&s->source_model);
    fp8q_ckpt_close(s->source);
}

int cmd_eval(struct cli *cli)
{
    static const char usage[] =
        "usage: fp8q eval [options] SRC DST... (--inputs F | --text FILE)\n"
        "\n"
        "Runs all checkpoints on the same inputs, a layer at a time, and reports how far the "
        "outputs\n"
        "of each DST are from those of SRC: KL divergence, top-1 agreement, perplexity.  DST may "
        "come\n"
        "from another tool.  Several (at most 8) share the one pass over SRC.\n"
        "\n"
        "Example: fp8q eval Qwen3-4B Qwen3-4B-FP8 --text prompts.txt -o eval.json";
    static const struct cli_group groups[] = {
        CLI_INPUT_GROUP,
        {"What is compared", "acts decompose requant-ue8m0", "kv-cache"},
        {"Evidence", "output overwrite", "stack"},
        {.head = NULL}};
    struct args args = {.acts = FP8Q_ACTS_SERVED, .stack = "fp8q-simulated"};
    struct cli_word acts = {acts_names, &args.acts};
    const struct cli_option options[] = {
        CLI_INPUT_OPTIONS(args.inputs),
        {"acts", 0, CLI_WORD, &acts, "KIND",
         "activations of quantized linears: served (default: by 128 channels for\n"
         "block scales, else by token), none, block, block-pow2, token"},
        {"decompose", 0, CLI_FLAG, &args.decompose, NULL,
         "also what activations alone and weights alone cost"},
        {"kv-cache", 0, CLI_FLAG, &args.fp8_cache, NULL,
         "keys and values pass through an FP8 cache, with DST's scales (1 without)"},
        {"requant-ue8m0", 0, CLI_FLAG, &args.requant, NULL,
         "also DST with its scales made powers of two, as some engines make them"},
        {"output", 'o', CLI_LIST, &args.evidence, "FILE",
         "write the evidence (JSON) for `fp8q gate`; with several DST one -o for each"},
        {"overwrite", 0, CLI_FLAG, &args.overwrite, NULL, "replace an existing FILE of -o"},
        {"stack", 0, CLI_TEXT, &args.stack, "ID", "serving stack that the evidence speaks for"},
        {.name = NULL}};
    const char *paths[1 + FP8Q_EVAL_MAX_OUTPUTS];
    struct state s = {0};
    int code;

    /* The stack is said in the evidence alone.  */
    const struct cli_rule rules[] = {CLI_INPUT_RULES,
                                     {"stack", CLI_NEEDS, "output"},
                                     {"overwrite", CLI_NEEDS, "output"},
                                     {.option = NULL}};
    const struct cli_syntax syntax = {.usage = usage,
                                      .groups = groups,
                                      .options = options,
                                      .rules = rules,
                                      .min = 2,
                                      .max = 1 + FP8Q_EVAL_MAX_OUTPUTS};
    if (!cli_parse(cli, &syntax, paths, &code)) {
        /* The list may have grown before the line was found to be wrong.  */
        free(args.evidence.items);
        return code;
    }

    while (s.n_outputs < FP8Q_EVAL_MAX_OUTPUTS && paths[1 + s.n_outputs])
        s.n_outputs++;
    int status = run(cli, paths, &args, &s);

    reset(&s);
    free(args.evidence.items);
    return cli_end(cli, status);
}
