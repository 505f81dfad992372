/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_check.c - `fp8q check DST`: which engine loads a checkpoint, and what would have to change.
 */
#include "cli/options.h"
#include "commands/commands.h"
#include "engines/check.h"
#include "engines/tp.h"
#include "select/inspect.h"

struct state {
    struct fp8q_ckpt *ckpt;
    struct fp8q_inspection inspection;
    struct fp8q_engines_report report;
};

/* ---- for people ------------------------------------------------------------------------------ */

/* Where a line goes on that is too long for the terminal.  */
enum { HANG = 6 };

static void print_finding(struct cli *cli, const struct fp8q_judged *item)
{
    static const char *const words[] = {"note", "unknown", "stops"};

    cli_print_wrapped(cli, HANG, "  %s: %s", words[item->weight], item->message);
    if (item->change)
        cli_print_wrapped(cli, HANG + 2, "    change: %s", item->change);
}

static void print_limits(struct cli *cli, const struct fp8q_engines_report *r,
                         const struct fp8q_engine_row *engine, const struct fp8q_judgement *j)
{
    struct fp8q_shown shown;

    if (engine->cuts && r->tp_limit)
        cli_print_wrapped(cli, HANG, "  tensor parallel: up to %u (%s)", r->largest_tp,
                          fp8q_show(&shown, r->tp_limit));
    else if (engine->cuts)
        cli_print(cli, "  tensor parallel: up to %d and more\n", FP8Q_MOST_TP);

    if (r->has_groups && j->reading->group_gpus) {
        cli_print_wrapped(cli, HANG, "  MXFP8 arithmetic: %s", j->reading->group_gpus);
        return;
    }
    cli_print_wrapped(cli, HANG, "  FP8 arithmetic: %s", j->reading->gpus);
    cli_print_wrapped(cli, HANG, "  elsewhere: %s", j->reading->other);
}

static void print_engine(struct cli *cli, const struct fp8q_engines_report *r, unsigned e)
{
    static const struct {
        enum cli_style style;
        const char *text;
    } verdicts[] = {{CLI_GOOD, "loads"}, {CLI_DIM, "not known"}, {CLI_BAD, "does not load"}};
    const struct fp8q_judgement *j = &r->engines[e];

    cli_print(cli, "%s (%s): %s%s%s\n", fp8q_engines[e].name, fp8q_engines[e].version,
              cli_style(verdicts[j->worst].style), verdicts[j->worst].text, cli_style(CLI_PLAIN));
    /* What stops it comes first.  */
    for (int weight = FP8Q_STOPS; weight >= FP8Q_NOTE; weight--)
        for (size_t i = 0; i < j->count; i++)
            if (j->items[i].weight == (enum fp8q_weight_of)weight)
                print_finding(cli, &j->items[i]);

    if (j->worst != FP8Q_STOPS && j->reading)
        print_limits(cli, r, &fp8q_engines[e], j);
}

/* ---- for machines ---------------------------------------------------------------------------- */

static void write_findings(struct fp8q_jsonw *w, const struct fp8q_judgement *j)
{
    static const char *const words[] = {"note", "unknown", "stops"};

    fp8q_jsonw_open(w, "findings", '[');
    for (size_t i = 0; i < j->count; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "id", j->items[i].id);
        fp8q_jsonw_string(w, "status", words[j->items[i].weight]);
        fp8q_jsonw_string(w, "message", j->items[i].message);
        fp8q_jsonw_string(w, "change", j->items[i].change);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void write_engine(struct fp8q_jsonw *w, const struct fp8q_engines_report *r, unsigned e)
{
    const struct fp8q_judgement *j = &r->engines[e];

    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "engine", fp8q_engines[e].word);
    fp8q_jsonw_string(w, "version", fp8q_engines[e].version);
    if (j->worst == FP8Q_UNSURE)
        fp8q_jsonw_raw(w, "loads", "null");
    else
        fp8q_jsonw_bool(w, "loads", j->worst == FP8Q_NOTE);

    if (fp8q_engines[e].cuts) {
        fp8q_jsonw_uint(w, "largest_tp", r->largest_tp);
        fp8q_jsonw_string(w, "tp_limit", r->tp_limit);
    }
    fp8q_jsonw_string(w, "fp8_arithmetic", j->reading ? j->reading->gpus : NULL);
    fp8q_jsonw_string(w, "elsewhere", j->reading ? j->reading->other : NULL);
    if (r->has_groups)
        fp8q_jsonw_string(w, "mxfp8_arithmetic", j->reading ? j->reading->group_gpus : NULL);
    write_findings(w, j);
    fp8q_jsonw_close(w, '}');
}

/* ---- all ------------------------------------------------------------------------------------- */

static void report(struct cli *cli, const struct state *s, unsigned engines)
{
    struct fp8q_shown shown;
    cli_show_warnings(cli);
    cli_print_wrapped(cli, HANG, "quantization: %s", fp8q_show(&shown, s->inspection.quantization));
    fp8q_jsonw_string(&cli->json, "quantization", s->inspection.quantization);

    fp8q_jsonw_open(&cli->json, "engines", '[');
    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++)
        if (engines & 1U << e) {
            print_engine(cli, &s->report, e);
            write_engine(&cli->json, &s->report, e);
        }
    fp8q_jsonw_close(&cli->json, ']');
}

static void name_engines(struct fp8q_text *t, const struct state *s, unsigned engines,
                         enum fp8q_weight_of weight, const char *words)
{
    const char *comma = t->len ? "; " : "";

    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++)
        if ((engines & 1U << e) && s->report.engines[e].worst == weight) {
            fp8q_text_printf(t, "%s%s%s", comma, *words ? words : ", ", fp8q_engines[e].name);
            comma = words = "";
        }
}

/* The engines that do not load it, or of which it is not known: a failure that names them.  */
static int decide(struct cli *cli, const struct state *s, unsigned engines)
{
    struct fp8q_text names = {0};
    name_engines(&names, s, engines, FP8Q_STOPS, "does not load in ");
    name_engines(&names, s, engines, FP8Q_UNSURE, "not known of ");

    int status = fp8q_text_status(&names, &cli->error);
    if (status == FP8Q_OK && names.len)
        status = fp8q_fail(&cli->error, FP8Q_E_MISMATCH, "engine", "%s", names.data);
    fp8q_text_reset(&names);
    return status;
}

static int run(struct cli *cli, const char *path, unsigned engines, uint64_t ways, struct state *s)
{
    struct fp8q_error *err = &cli->error;

    FP8Q_TRY(fp8q_ckpt_open_watched(path, &cli->watch, &s->ckpt, &cli->warnings, err));
    FP8Q_TRY(fp8q_inspect(s->ckpt, &s->inspection, err));
    FP8Q_TRY(fp8q_engines_check(s->ckpt, &cli->warnings, (unsigned)ways, &s->report, err));

    report(cli, s, engines);
    return decide(cli, s, engines);
}

int cmd_check(struct cli *cli)
{
    static const char usage[] =
        "usage: fp8q check [options] DST\n\n"
        "Says which engine loads a quantized checkpoint as it lies on disk, up to which tensor\n"
        "parallelism and on which GPUs, and what would have to change where one does not.  Reads\n"
        "headers and config only; whether an engine knows the architecture is not asked.\n\n"
        "Example: fp8q check Qwen3-4B-FP8 --engine vllm --tp 4";
    const char *words[FP8Q_N_ENGINES + 1] = {NULL};
    unsigned engines = 0;
    uint64_t ways = 0;
    struct cli_word engine = {words, &engines};
    const struct cli_option options[] = {
        {"engine", 0, CLI_WORDS, &engine, "NAME",
         "vllm, sglang, transformers, trtllm, lmdeploy or llama.cpp;\nmay be given again (default: "
         "all)"},
        {"tp", 0, CLI_UINT, &ways, "N", "ways of tensor parallelism that must fit"},
        {.name = NULL}};
    const struct cli_syntax syntax = {.usage = usage, .options = options, .min = 1, .max = 1};
    struct state s = {.ckpt = NULL};
    const char *path;
    int code;

    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++)
        words[e] = fp8q_engines[e].word;
    if (!cli_parse(cli, &syntax, &path, &code))
        return code;

    if (engines == 0)
        engines = (1U << FP8Q_N_ENGINES) - 1;
    int status = run(cli, path, engines, ways, &s);

    fp8q_engines_reset(&s.report);
    fp8q_inspection_reset(&s.inspection);
    fp8q_ckpt_close(s.ckpt);
    return cli_end(cli, status);
}
