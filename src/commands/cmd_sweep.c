/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_sweep.c - `fp8q sweep SRC`: what each module costs, and which split keeps a budget.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "commands/commands.h"
#include "checkpoint/fingerprint.h"
#include "cli/evalinputs.h"
#include "gate/evidence.h"
#include "measure/sweep.h"
#include "select/scheme.h"

struct args {
    struct cli_inputs inputs;
    unsigned by, acts, scale_fmt, unaligned; /* indices of their words */
    unsigned schemes;                        /* bits */
    const char *ignore_file;
    double budget_kld;
    uint64_t budget_bytes;
    bool overwrite;
};

struct state {
    struct fp8q_ckpt *ckpt;
    struct fp8q_model model;
    struct fp8q_inputs inputs;
    uint32_t fingerprint; /* of the source */
    struct fp8q_sweep sweep;
};

static const char *const by_words[] = {"site", "layer", "kind", NULL};
static const char *const fmt_words[] = {"f32", "ue8m0", NULL};
static const char *const unaligned_words[] = {"keep", "quantize", NULL};
/* In the order of enum fp8q_scheme, without those that need data or a second reading.  */
static const char *const scheme_words[] = {"FP8_BLOCK", "FP8_DYNAMIC", "MXFP8", NULL};
static const char *const acts_words[] = {"none", "served", NULL};

/* What is read must not be written.  */
static int guard_inputs(struct cli *cli, const char *path, const struct args *args,
                        struct fp8q_guard_list *guard)
{
    FP8Q_TRY(fp8q_guard_add(guard, path, "the source", &cli->error));
    FP8Q_TRY(cli_inputs_check(cli, &args->inputs, guard));
    return cli_result_check(args->ignore_file, args->overwrite, guard, &cli->error);
}

static int check_outputs(struct cli *cli, const char *path, const struct args *args)
{
    struct fp8q_guard_list guard = {0};
    int status = guard_inputs(cli, path, args, &guard);
    fp8q_guard_reset(&guard);
    return status;
}

/* One step: the unit, what it goes on to (only where there is more than one scheme), what it cost and
 * saved before, and the sums behind it.  */
static void print_step(struct cli *cli, const struct fp8q_sweep *s, size_t n, bool mixed)
{
    char saved[32] = "", size[32], cost[32] = "", kept[32];
    const struct fp8q_sweep_step *step = n ? &s->steps[n - 1] : NULL;
    struct fp8q_sweep_sum sum = fp8q_sweep_split(s, n);

    if (step) {
        const struct fp8q_sweep_choice *from = fp8q_sweep_choice_of(s, step->unit, n - 1);
        snprintf(cost, sizeof(cost), "%.3e", from->kld);
        fp8q_show_bytes(saved, from->bytes_saved);
    }
    cli_print(cli, "%5zu  %-20s", sum.n_kept, step ? s->units[step->unit].name : "(all quantized)");
    if (mixed) {
        const struct fp8q_sweep_choice *to = step ? fp8q_sweep_choice_of(s, step->unit, n) : NULL;
        snprintf(kept, sizeof(kept), "%s", to ? fp8q_scheme_names[to->scheme] : step ? "left" : "");
        cli_print(cli, " %-11s", kept);
    }
    cli_print(cli, " %12s %10s   %12s %12.6f\n", cost, saved, fp8q_show_bytes(size, sum.bytes),
              sum.kld);
}

static bool is_mixed(const struct fp8q_sweep *s)
{
    for (size_t i = 0; i < s->n_units; i++)
        if (s->units[i].n_choices > 1)
            return true;
    return false;
}

static void print_units(struct cli *cli, const struct fp8q_sweep *s)
{
    /* Twelve lines are read; more only if they are asked for.  */
    size_t show = cli->verbose || s->n_steps <= 12 ? s->n_steps : 12;
    bool mixed = is_mixed(s);
    char size[32];

    cli_print(
        cli,
        "%zu unit%s, %llu scored token%s; keeping them in this order (cost for a byte saved):\n",
        s->n_units, fp8q_plural(s->n_units), (unsigned long long)s->tokens, fp8q_plural(s->tokens));
    cli_print(cli, "%5s  %-20s", "kept", "unit");
    if (mixed)
        cli_print(cli, " %-11s", "becomes");
    cli_print(cli, " %12s %10s   %12s %12s\n", "its KLD", "saves", "then bytes", "KLD");

    /* Row 0 is the split that leaves nothing unquantized.  */
    for (size_t n = 0; n <= show; n++)
        print_step(cli, s, n, mixed);
    if (show < s->n_steps)
        cli_print(cli, "  ... %zu more (-v shows them); none quantized: %s, KLD 0\n",
                  s->n_steps - show, fp8q_show_bytes(size, s->source_bytes));
}

/* A word of a command line, as a shell reads it.  */
static int print_word(void *ctx, const char *word, struct fp8q_error *err)
{
    bool plain = !strpbrk(word, " \t\n'\"\\$`|&;()<>*?[]{}~#!");
    (void)err;

    cli_print(ctx, plain ? " %s" : " '", word);
    for (const char *c = word; *c && !plain; c++)
        cli_print(ctx, *c == '\'' ? "'\\''" : "%c", *c);
    if (!plain)
        cli_print(ctx, "'");
    return FP8Q_OK;
}

/* What gives the chosen split.  */
static int print_command(struct cli *cli, const struct args *args, const struct state *s)
{
    cli_print(cli, "fp8q quantize");
    FP8Q_TRY(print_word(cli, s->ckpt->path, &cli->error));
    if (args->unaligned == 1)
        cli_print(cli, " --unaligned quantize");
    if (args->scale_fmt == 1)
        cli_print(cli, " --scale-fmt ue8m0");
    FP8Q_TRY(fp8q_sweep_words(&s->sweep, &s->model, print_word, cli, &cli->error));
    cli_print(cli, "\n");
    return FP8Q_OK;
}

static int print_result(struct cli *cli, const struct args *args, const struct state *state)
{
    const struct fp8q_sweep *s = &state->sweep;
    char size[32];
    struct cli_spread spread;
    print_units(cli, s);
    cli_print(cli, "all quantized: predicted %.6f (sum), measured %.6f%s (%+.1f %%)\n", s->sum_kld,
              s->all_kld, cli_spread(&spread, 6, s->all_se), 100 * (s->sum_kld / s->all_kld - 1));

    /* Without a budget nothing was chosen, but that all be quantized.  */
    bool has_budget = args->budget_kld >= 0 || args->budget_bytes > 0;
    if (has_budget)
        cli_print(cli, "chosen: keep %zu unit%s, %s, predicted %.6f, measured %.6f: budget %s\n",
                  s->n_kept, fp8q_plural(s->n_kept), fp8q_show_bytes(size, s->chosen_bytes),
                  s->chosen_predicted, s->chosen_kld, s->met ? "kept" : "NOT kept");
    return has_budget || is_mixed(s) ? print_command(cli, args, state) : FP8Q_OK;
}

static int write_ignore(struct cli *cli, const struct args *args, const struct state *s)
{
    struct fp8q_text text = {0};
    int status = fp8q_sweep_ignore(&s->sweep, &s->model, &text, &cli->error);

    /* If nothing is to be left unquantized, the file is empty, but it is there.  */
    if (status == FP8Q_OK)
        status = fp8q_output_text(args->ignore_file, &text, &cli->error);

    fp8q_text_reset(&text);
    return status;
}

/* Of which weights and inputs the figures are.  */
static void subject_json(struct cli *cli, const struct state *s)
{
    const struct fp8q_evidence subject = {.source = {true, s->fingerprint},
                                          .inputs = {true, s->inputs.fingerprint}};

    fp8q_jsonw_string(&cli->json, "source", s->ckpt->path);
    fp8q_evidence_write_subject(&cli->json, &subject);
}

static unsigned scheme_bits(const struct args *args)
{
    static const enum fp8q_scheme schemes[] = {FP8Q_SCHEME_BLOCK, FP8Q_SCHEME_CHANNEL,
                                               FP8Q_SCHEME_GROUP};
    unsigned bits = 0;
    for (unsigned i = 0; i < sizeof(schemes) / sizeof(*schemes); i++)
        if (args->schemes >> i & 1)
            bits |= 1U << schemes[i];
    return bits;
}

/* Powers of two are a matter of blocks alone.  */
static int check_schemes(struct cli *cli, const struct args *args)
{
    if (args->scale_fmt == 0 || args->schemes <= 1)
        return FP8Q_OK;
    return fp8q_fail(&cli->error, FP8Q_E_ARG, "scheme-scale-fmt",
                     "--scale-fmt ue8m0 is defined for blocks only");
}

static int run(struct cli *cli, const char *path, const struct args *args, struct state *s)
{
    struct fp8q_error *err = &cli->error;
    struct fp8q_sweep_options options = {.by = (enum fp8q_sweep_by)args->by,
                                         .fmt = (enum fp8q_scale_fmt)args->scale_fmt,
                                         .schemes = scheme_bits(args),
                                         .unaligned = args->unaligned == 1,
                                         .acts =
                                             args->acts == 1 ? FP8Q_ACTS_SERVED : FP8Q_ACTS_NONE,
                                         .budget_kld = args->budget_kld,
                                         .budget_bytes = args->budget_bytes,
                                         .n_threads = (unsigned)cli->threads,
                                         .kernel = cli->kernel,
                                         .watch = &cli->watch};

    FP8Q_TRY(check_schemes(cli, args));
    FP8Q_TRY(check_outputs(cli, path, args)); /* before hours of work */
    FP8Q_TRY(fp8q_ckpt_open(path, &s->ckpt, &cli->warnings, err));
    FP8Q_TRY(fp8q_model_open(s->ckpt, &s->model, err));
    FP8Q_TRY(cli_inputs_open(cli, &args->inputs, s->ckpt, &s->inputs));
    FP8Q_TRY(fp8q_fingerprint(s->ckpt, options.n_threads, &cli->watch, &s->fingerprint, err));
    FP8Q_TRY(fp8q_sweep_run(&s->model, &s->inputs, &options, &s->sweep, err));

    cli_progress_clear();
    FP8Q_TRY(print_result(cli, args, s));
    subject_json(cli, s);
    FP8Q_TRY(fp8q_sweep_json(&s->sweep, &s->model, &cli->json, err));

    if (args->ignore_file)
        FP8Q_TRY(write_ignore(cli, args, s));

    /* The figures are out by now: they say by how much the budget is missed.  */
    if (!s->sweep.met)
        return fp8q_fail(err, FP8Q_E_MISMATCH, "budget", "no split keeps the budget");
    return FP8Q_OK;
}

int cmd_sweep(struct cli *cli)
{
    static const char usage[] =
        "usage: fp8q sweep [options] SRC (--inputs F | --text FILE)\n"
        "\n"
        "Measures what quantizing each module alone costs in KL divergence and saves in bytes, "
        "and\n"
        "lists the splits from all quantized to none.  With a budget it chooses one and measures "
        "it.\n"
        "Of several schemes each module takes the one that costs least for its bytes.\n"
        "\n"
        "Example: fp8q sweep Qwen3-4B --text prompts.txt --budget-kld 0.01 -o leave.txt";
    static const struct cli_group groups[] = {
        CLI_INPUT_GROUP,
        {"What is tried", "by scheme unaligned", "acts scale-fmt"},
        {"The split", "budget-kld budget-bytes output overwrite", ""},
        {.head = NULL}};
    struct args args = {.acts = 1, .budget_kld = FP8Q_SWEEP_NO_BUDGET};
    struct cli_word by = {by_words, &args.by}, acts = {acts_words, &args.acts},
                    fmt = {fmt_words, &args.scale_fmt}, scheme = {scheme_words, &args.schemes},
                    unaligned = {unaligned_words, &args.unaligned};

    const struct cli_option options[] = {
        CLI_INPUT_OPTIONS(args.inputs),
        {"by", 0, CLI_WORD, &by, "UNIT",
         "site (default: q/k/v, o, gate/up, down of each layer),\nlayer, or kind (one kind in all "
         "layers)"},
        {"scheme", 0, CLI_WORDS, &scheme, "NAME",
         "to try (may be repeated): FP8_BLOCK (default), FP8_DYNAMIC, MXFP8"},
        {"acts", 0, CLI_WORD, &acts, "KIND", "activations: served (default) or none"},
        {"scale-fmt", 0, CLI_WORD, &fmt, "FMT", "f32 (default) or ue8m0"},
        {"unaligned", 0, CLI_WORD, &unaligned, "HOW",
         "sizes that are no multiple of 128: keep (default) or quantize"},
        {"ragged", 0, CLI_WORD, &unaligned, "HOW", NULL},
        {"budget-kld", 0, CLI_NUMBER, &args.budget_kld, "X",
         "largest KL divergence that the split may have"},
        {"budget-bytes", 0, CLI_SIZE, &args.budget_bytes, "SIZE", "largest size of all tensors"},
        {"output", 'o', CLI_TEXT, &args.ignore_file, "FILE",
         "write what the split leaves unquantized, a pattern for --ignore a line"},
        {"overwrite", 0, CLI_FLAG, &args.overwrite, NULL, "replace an existing FILE of -o"},
        {.name = NULL}};
    const char *path;
    struct state s = {.ckpt = NULL};
    int code;

    /* -o without a budget would list nothing, which is what is asked for then.  */
    const struct cli_rule rules[] = {CLI_INPUT_RULES,
                                     {"budget-kld", CLI_EXCLUDES, "budget-bytes"},
                                     {"overwrite", CLI_NEEDS, "output"},
                                     {.option = NULL}};
    const struct cli_syntax syntax = {
        .usage = usage, .groups = groups, .options = options, .rules = rules, .min = 1, .max = 1};
    if (!cli_parse(cli, &syntax, &path, &code))
        return code;

    int status = run(cli, path, &args, &s);

    fp8q_sweep_reset(&s.sweep);
    fp8q_inputs_reset(&s.inputs);
    fp8q_model_reset(&s.model);
    fp8q_ckpt_close(s.ckpt);
    return cli_end(cli, status);
}
