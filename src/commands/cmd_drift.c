/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_drift.c - `fp8q drift OLD NEW`: has the distribution of inputs moved.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "commands/commands.h"
#include "measure/drift.h"
#include "checkpoint/fingerprint.h"
#include "gate/evidence.h"
#include "plan/manifest.h"

struct args {
    struct fp8q_drift_limits limits;
    const char *model, *statics;
    unsigned scale_fmt; /* index of its words: enum fp8q_scale_fmt */
};

struct state {
    struct fp8q_calib old_calib, new_calib;
    struct fp8q_ckpt *ckpt, *statics;
    struct fp8q_drift drift;
};

static void print_site(struct cli *cli, const struct fp8q_drift_site *s)
{
    cli_print(cli, "%-36s %+7.3f %+8.3f %8.2f %7.3f %9.3f", s->name, s->rms, s->absmax, s->overlap,
              s->hist, s->channels);
    if (!isnan(s->codes_changed))
        cli_print(cli, " %8.2f %%", 100 * s->codes_changed);
    if (!isnan(s->clipped))
        cli_print(cli, "  clipped %.4f %%, unused %.2f", 100 * s->clipped, s->unused);
    cli_print(cli, "%s\n", s->moved ? "  moved" : "");
}

static void print_result(struct cli *cli, const struct args *args, const struct fp8q_drift *d)
{
    double total = 0;

    if (cli->verbose || d->n_moved > 0)
        cli_print(cli, "%-36s log2 rms  absmax  overlap    hist  channels\n", "linear input");
    for (size_t i = 0, shown = 0; i < d->n_sites; i++) {
        total += fabs(d->sites[i].rms);
        /* With -v all of them; else the first ten of those that moved.  */
        if (cli->verbose || (d->sites[i].moved && shown++ < 10))
            print_site(cli, &d->sites[i]);
    }

    cli_print_wrapped(
        cli, 4,
        "%zu of %zu linear inputs moved; mean |log2 rms| %.3f; modality mix changed by %.2f",
        d->n_moved, d->n_sites, total / (double)d->n_sites, d->mix);

    /* Not known without the weights.  */
    if (!isnan(d->codes_changed))
        cli_print(cli,
                  "re-rounding with the new statistics would change %.2f %% of the FP8 values\n",
                  100 * d->codes_changed);

    /* With the limits: a verdict without them says little.  */
    cli_print_wrapped(
        cli, 4,
        "%s: limits are log2 rms %g, log2 absmax %g, overlap %g, hist %g, channels %g, mix %g, "
        "and %g %% of the linear inputs",
        d->stale ? "STALE" : "not stale", args->limits.rms, args->limits.absmax,
        args->limits.overlap, args->limits.hist, args->limits.channels, args->limits.mix,
        100 * args->limits.sites);
}

/* Of which weights the statistics are; both files are of the same.  */
static void subject_json(struct cli *cli, const char *const *paths, const struct state *s)
{
    struct fp8q_evidence subject = {0};
    subject.source.known =
        fp8q_parse_crc(s->old_calib.meta.source_fingerprint, &subject.source.crc32);

    fp8q_jsonw_string(&cli->json, "old", paths[0]);
    fp8q_jsonw_string(&cli->json, "new", paths[1]);
    fp8q_evidence_write_subject(&cli->json, &subject);
}

static int run(struct cli *cli, const char *const *paths, const struct args *args, struct state *s)
{
    struct fp8q_error *err = &cli->error;
    FP8Q_TRY(fp8q_calib_open(paths[0], &s->old_calib, err));
    FP8Q_TRY(fp8q_calib_open(paths[1], &s->new_calib, err));

    /* Weights other than those that OLD was made with would answer another question.  */
    if (args->model) {
        uint32_t fingerprint;
        FP8Q_TRY(fp8q_ckpt_open(args->model, &s->ckpt, &cli->warnings, err));
        FP8Q_TRY(fp8q_fingerprint(s->ckpt, (unsigned)cli->threads, &cli->watch, &fingerprint, err));
        FP8Q_TRY(fp8q_calib_matches(&s->old_calib, fingerprint, err));
    }

    if (args->statics)
        FP8Q_TRY(fp8q_ckpt_open(args->statics, &s->statics, &cli->warnings, err));

    const struct fp8q_drift_options options = {.limits = args->limits,
                                               .ckpt = s->ckpt,
                                               .statics = s->statics,
                                               .fmt = (enum fp8q_scale_fmt)args->scale_fmt,
                                               .kernel = cli->kernel,
                                               .n_threads = (unsigned)cli->threads,
                                               .watch = &cli->watch};
    FP8Q_TRY(fp8q_drift_run(&s->old_calib, &s->new_calib, &options, &s->drift, err));

    cli_progress_clear();
    print_result(cli, args, &s->drift);
    subject_json(cli, paths, s);
    fp8q_drift_json(&s->drift, &args->limits, &cli->json);

    /* The figures were printed first: whoever gets status 5 wants to know why.  */
    if (s->drift.stale)
        return fp8q_fail(
            err, FP8Q_E_EVIDENCE, "calibration-stale",
            "the inputs have moved: %zu of %zu linear inputs beyond the limits, mix by %.2f",
            s->drift.n_moved, s->drift.n_sites, s->drift.mix);
    return FP8Q_OK;
}

int cmd_drift(struct cli *cli)
{
    static const char usage[] =
        "usage: fp8q drift [options] OLD.calib.safetensors NEW.calib.safetensors\n"
        "\n"
        "Compares the statistics of two calibration files of the same weights.  Exit status 5 when "
        "the\n"
        "inputs have moved, so that evaluations and GPTQ-rounded weights made with OLD are stale.\n"
        "\n"
        "Example: fp8q drift april.calib.safetensors may.calib.safetensors --max-mix 0.1";
    struct args args = {.limits = fp8q_drift_defaults, .scale_fmt = FP8Q_SCALE_F32};
    static const char *const fmts[] = {"f32", "ue8m0", NULL};
    struct cli_word scale_fmt = {fmts, &args.scale_fmt};
    const struct cli_option options[] = {
        {"model", 0, CLI_TEXT, &args.model, "SRC",
         "the weights: also the share of FP8 values that GPTQ\nwould change"},
        {"static", 0, CLI_TEXT, &args.statics, "DST",
         "its static input scales: what of NEW they clip, and leave unused"},
        {"scale-fmt", 0, CLI_WORD, &scale_fmt, "FMT", "scales for --model: f32 (default) or ue8m0"},
        {"max-rms", 0, CLI_NUMBER, &args.limits.rms, "X",
         "limit of |log2| of a site's RMS ratio (1)"},
        {"max-absmax", 0, CLI_NUMBER, &args.limits.absmax, "X",
         "limit of log2 of the growth of absmax (1)"},
        {"min-overlap", 0, CLI_SHARE, &args.limits.overlap, "X",
         "least share of top channels that stay (0.5)"},
        {"max-hist", 0, CLI_NUMBER, &args.limits.hist, "X",
         "limit of the mean shift of tile amax, in powers of 2 (0.5)"},
        {"max-channels", 0, CLI_NUMBER, &args.limits.channels, "X",
         "limit of the mean |log2| of the channels' RMS ratio (0.5)"},
        {"max-clipped", 0, CLI_SHARE, &args.limits.clipped, "X",
         "limit of the share that a static scale clips (0.001)"},
        {"max-unused", 0, CLI_NUMBER, &args.limits.unused, "X",
         "limit of the unused range of a static scale, in powers of 2 (4)"},
        {"max-mix", 0, CLI_SHARE, &args.limits.mix, "X",
         "limit of the change of a modality's share (0.2)"},
        {"max-sites", 0, CLI_SHARE, &args.limits.sites, "X", "share of sites that may move (0.05)"},
        {.name = NULL}};
    const char *paths[2];
    struct state s = {.ckpt = NULL};
    int code;

    /* Without weights there is nothing to scale, and without scales nothing to clip.  */
    const struct cli_rule rules[] = {{"scale-fmt", CLI_NEEDS, "model"},
                                     {"max-clipped", CLI_NEEDS, "static"},
                                     {"max-unused", CLI_NEEDS, "static"},
                                     {.option = NULL}};
    const struct cli_syntax syntax = {
        .usage = usage, .options = options, .rules = rules, .min = 2, .max = 2};
    if (!cli_parse(cli, &syntax, paths, &code))
        return code;

    int status = run(cli, paths, &args, &s);

    fp8q_drift_reset(&s.drift);
    fp8q_calib_close(&s.old_calib);
    fp8q_calib_close(&s.new_calib);
    fp8q_ckpt_close(s.ckpt);
    fp8q_ckpt_close(s.statics);
    return cli_end(cli, status);
}
