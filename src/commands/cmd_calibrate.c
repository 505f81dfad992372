/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_calibrate.c - `fp8q calibrate MODEL`: statistics of the inputs of linears.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "calibration/calib.h"
#include "cli/format.h"
#include "commands/commands.h"
#include "cli/evalinputs.h"
#include "checkpoint/fingerprint.h"

struct args {
    struct cli_inputs inputs;
    const char *out, *import;
    struct cli_list merge;
    bool no_moments, overwrite;
};

struct state {
    struct fp8q_ckpt *ckpt;
    struct fp8q_model model;
    struct fp8q_inputs inputs;
};

static int collect(struct cli *cli, const char *path, const struct args *args, struct state *s)
{
    struct fp8q_error *err = &cli->error;
    struct cli_time created;
    struct fp8q_calibrate_options options = {.n_threads = (unsigned)cli->threads,
                                             .kernel = cli->kernel,
                                             .no_moments = args->no_moments,
                                             .watch = &cli->watch,
                                             .created = cli_timestamp(&created)};

    /* What can be wrong is found before the model runs, for that is the long part.  */
    FP8Q_TRY(fp8q_ckpt_open(path, &s->ckpt, &cli->warnings, err));
    FP8Q_TRY(fp8q_model_open(s->ckpt, &s->model, err));
    FP8Q_TRY(cli_inputs_open(cli, &args->inputs, s->ckpt, &s->inputs));
    FP8Q_TRY(fp8q_inputs_check(&s->inputs, &s->model, err));
    FP8Q_TRY(fp8q_fingerprint(s->ckpt, options.n_threads, &cli->watch, &options.source_fingerprint,
                              err));
    FP8Q_TRY(fp8q_calibrate(&s->model, &s->inputs, &options, args->out, args->overwrite, err));

    /* What was run is what was fingerprinted, or the statistics are of nothing known.  */
    return fp8q_ckpt_unchanged(s->ckpt, err);
}

/* Nats a token, of the tokens that have one before them; NaN: none has.  */
static double mean_nll(const struct fp8q_calib_meta *m)
{
    return m->nll_tokens ? m->nll_sum / (double)m->nll_tokens : NAN;
}

static bool has_hessians(const struct fp8q_calib *calib)
{
    for (size_t i = 0; i < calib->n_sites; i++)
        if (!calib->sites[i].has[FP8Q_CALIB_HBLK])
            return false;
    return true;
}

/* Experts that few tokens reached, by the names of their inputs: the first of them for people.  */
static void print_few(struct cli *cli, const struct fp8q_calib *calib)
{
    enum { SHOWN = 8 };
    size_t n = 0;
    for (size_t i = 0; i < calib->n_sites; i++)
        n += fp8q_calib_is_few(&calib->sites[i]);
    if (n == 0)
        return;

    cli_print(cli, "%zu input%s of experts had fewer than %d tokens, and GPTQ rounds plainly:\n", n,
              fp8q_plural(n), FP8Q_BLOCK);
    size_t shown = 0;
    for (size_t i = 0; i < calib->n_sites && shown < SHOWN; i++)
        if (fp8q_calib_is_few(&calib->sites[i]) && ++shown)
            cli_print(cli, "  %s (%lld)\n", calib->sites[i].name,
                      (long long)calib->sites[i].moment_count[0]);
    if (n > SHOWN)
        cli_print(cli, "  ... and %zu more (--json names them all)\n", n - SHOWN);
}

static void write_few(struct fp8q_jsonw *w, const struct fp8q_calib *calib)
{
    fp8q_jsonw_open(w, "few_tokens", '[');
    for (size_t i = 0; i < calib->n_sites; i++)
        if (fp8q_calib_is_few(&calib->sites[i]))
            fp8q_jsonw_string(w, NULL, calib->sites[i].name);
    fp8q_jsonw_close(w, ']');
}

static void print_summary(struct cli *cli, const char *out, const struct fp8q_calib *calib)
{
    const struct fp8q_calib_meta *m = &calib->meta;
    char bytes[32];

    cli_print(cli, "%s: %zu linear input%s, %llu token%s of %llu sample%s, %s%s\n", out,
              calib->n_sites, fp8q_plural(calib->n_sites), (unsigned long long)m->n_tokens,
              fp8q_plural(m->n_tokens), (unsigned long long)m->n_samples, fp8q_plural(m->n_samples),
              fp8q_show_bytes(bytes, calib->file->data_bytes),
              has_hessians(calib) ? "" : "; no Hessians, so not for GPTQ");

    /* Beside chance, so that a reader sees at once whether the inputs mean anything to the model.  */
    if (m->nll_tokens > 0)
        cli_print(cli, "the model gives these tokens %.3f nats each; words at random %.3f\n",
                  mean_nll(m), log((double)m->vocab));
    print_few(cli, calib);
}

static void write_summary(struct fp8q_jsonw *w, const char *out, const struct fp8q_calib *calib)
{
    fp8q_jsonw_number(w, "nll", mean_nll(&calib->meta));
    fp8q_jsonw_bool(w, "noise", fp8q_calib_is_noise(calib));
    fp8q_jsonw_string(w, "output", out);
    fp8q_jsonw_uint(w, "sites", calib->n_sites);
    fp8q_jsonw_uint(w, "tokens", calib->meta.n_tokens);
    fp8q_jsonw_uint(w, "samples", calib->meta.n_samples);
    fp8q_jsonw_bool(w, "moments", has_hessians(calib));
    write_few(w, calib);
    fp8q_jsonw_string(w, "source_fingerprint", calib->meta.source_fingerprint);
    fp8q_jsonw_string(w, "inputs_fingerprint", calib->meta.inputs_fingerprint);
}

static int report(struct cli *cli, const char *out)
{
    struct fp8q_calib calib;
    struct fp8q_error why;

    /* Read back from the file: what is reported is what a later command will find in it.  The file
     * is whole by now, and may have taken hours: it stays.  */
    int status = fp8q_calib_open(out, &calib, &why);
    if (status != FP8Q_OK) {
        cli->error = why;
        snprintf(cli->error.message, sizeof(cli->error.message),
                 "%.400s is written, but cannot be read back: %.1500s", out, why.message);
        return status;
    }

    print_summary(cli, out, &calib);
    write_summary(&cli->json, out, &calib);

    bool is_noise = fp8q_calib_is_noise(&calib);
    fp8q_calib_close(&calib);
    if (!is_noise)
        return FP8Q_OK;
    return fp8q_warn(&cli->warnings, &cli->error, "calibration-noise",
                     "%s: the model finds these inputs no likelier than random words: they are not "
                     "representative, and quantize --calibration will round plainly",
                     out);
}

/* What is read must not be written: the model, the inputs, the files to add up or convert.  */
static int guard_inputs(struct cli *cli, const char *path, const struct args *args,
                        struct fp8q_guard_list *guard)
{
    struct fp8q_error *err = &cli->error;

    FP8Q_TRY(fp8q_guard_add(guard, path, "the model", err));
    FP8Q_TRY(fp8q_guard_add(guard, args->import, "the file of --import", err));
    for (size_t i = 0; i < args->merge.count; i++)
        FP8Q_TRY(fp8q_guard_add(guard, args->merge.items[i], "a file of --merge", err));

    /* Inputs are for a model: --merge and --import have none.  */
    if (path)
        FP8Q_TRY(cli_inputs_check(cli, &args->inputs, guard));
    return cli_result_check(args->out, args->overwrite, guard, err);
}

static int check_output(struct cli *cli, const char *path, const struct args *args)
{
    struct fp8q_guard_list guard = {0};
    int status = guard_inputs(cli, path, args, &guard);
    fp8q_guard_reset(&guard);
    return status;
}

static int run(struct cli *cli, const char *path, const struct args *args, struct state *s)
{
    struct fp8q_error *err = &cli->error;
    struct cli_time created;
    /* Three ways to a calibration file, of which each excludes the others.  */
    int ways = (path != NULL) + (args->import != NULL) + (args->merge.count > 0);
    if (ways != 1 || !args->out)
        return fp8q_fail(err, FP8Q_E_ARG, "usage",
                         "calibrate: give one of MODEL, --merge and --import, and -o FILE");

    FP8Q_TRY(check_output(cli, path, args));
    if (args->import)
        FP8Q_TRY(fp8q_calib_import(args->import, cli_timestamp(&created), args->out,
                                   args->overwrite, err));
    else if (path)
        FP8Q_TRY(collect(cli, path, args, s));
    else
        FP8Q_TRY(fp8q_calib_merge(args->merge.items, args->merge.count, cli_timestamp(&created),
                                  args->out, args->overwrite, err));

    /* The line of progress goes before anything is printed.  */
    cli_progress_clear();
    return report(cli, args->out);
}

int cmd_calibrate(struct cli *cli)
{
    static const char usage[] =
        "usage: fp8q calibrate MODEL (--inputs F | --text FILE) -o C.calib.safetensors\n"
        "       fp8q calibrate --merge A --merge B ... -o C\n"
        "       fp8q calibrate --import IMATRIX -o C\n"
        "\n"
        "Runs a model on representative inputs and writes statistics of the inputs of its linears, "
        "for\n"
        "`fp8q quantize --calibration` (GPTQ) and `fp8q drift`.\n"
        "\n"
        "Example: fp8q calibrate Qwen3-4B --text prompts.txt -o qwen3.calib.safetensors";
    static const struct cli_group groups[] = {
        CLI_INPUT_GROUP,
        {"The calibration file", "output overwrite no-moments merge import", ""},
        {.head = NULL}};
    struct args args = {.out = NULL};
    const struct cli_option options[] = {
        CLI_INPUT_OPTIONS(args.inputs),
        {"output", 'o', CLI_TEXT, &args.out, "FILE", "calibration file to write"},
        {"no-moments", 0, CLI_FLAG, &args.no_moments, NULL,
         "leave out the Hessians, which GPTQ needs: a small file,\nfor drift only"},
        {"merge", 0, CLI_LIST, &args.merge, "FILE", "add up files of the same weights (repeat)"},
        {"import", 0, CLI_TEXT, &args.import, "FILE",
         "convert a llama.cpp imatrix (.gguf or .dat)"},
        {"overwrite", 0, CLI_FLAG, &args.overwrite, NULL, "replace an existing FILE of -o"},
        {.name = NULL}};
    const char *path;
    struct state s = {0};
    int code;
#define ONLY_MODEL "inputs text chunk samples dump-inputs no-moments"

    /* Files that are added up or converted were made with inputs of their own.  */
    const struct cli_rule rules[] = {CLI_INPUT_RULES,
                                     {"merge", CLI_EXCLUDES, ONLY_MODEL " import"},
                                     {"import", CLI_EXCLUDES, ONLY_MODEL},
                                     {.option = NULL}};
#undef ONLY_MODEL
    const struct cli_syntax syntax = {
        .usage = usage, .groups = groups, .options = options, .rules = rules, .max = 1};
    if (!cli_parse(cli, &syntax, &path, &code)) {
        /* The list may have grown before the line was found to be wrong.  */
        free(args.merge.items);
        return code;
    }

    int status = run(cli, path, &args, &s);
    /* Any of these may be empty: run() ends where it fails.  */
    fp8q_inputs_reset(&s.inputs);
    fp8q_model_reset(&s.model);
    fp8q_ckpt_close(s.ckpt);
    free(args.merge.items);
    return cli_end(cli, status);
}
