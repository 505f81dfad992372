/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_compare.c - `fp8q compare`: the table of formats and granularities on real weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fingerprint.h"
#include "cli/format.h"
#include "cli/options.h"
#include "commands/commands.h"
#include "gate/evidence.h"
#include "measure/compare.h"
#include "select/select.h"

static const char usage[] =
    "usage: fp8q compare [options] SRC\n"
    "\n"
    "Rounds the weights of SRC (a .safetensors file or a checkpoint directory) to FP8 E4M3, INT8\n"
    "and INT4 with one scale per tensor, per output channel and per 128x128 block, and prints the\n"
    "error of each and its size.  Nothing is written.  Without --tensor: the 2-D weights that\n"
    "quantize takes (--unaligned quantize), or all 2-D float tensors where it would take none.\n"
    "\n"
    "Example: fp8q compare Qwen3-4B --markdown";

enum style { STYLE_TEXT, STYLE_MARKDOWN, STYLE_CSV };

static void print_csv(struct cli *cli, const struct fp8q_compare_sums *s, const char *name)
{
    for (unsigned i = 0; i < FP8Q_CMP_ROWS; i++)
        cli_print(cli, "%s,%s,%s,%.9g,%.9g,%.6f,%llu\n", name, fp8q_compare_format(i),
                  fp8q_compare_granularity(i), fp8q_compare_rmse(s, i), fp8q_compare_relative(s, i),
                  fp8q_compare_sqnr_db(s, i), (unsigned long long)s->bytes[i]);
}

static void print_table(struct cli *cli, const struct fp8q_compare_sums *s, const char *name,
                        enum style style)
{
    char bytes[32];
    bool md = style == STYLE_MARKDOWN;

    /* CSV is one table with the name in every row; the others are a table for each name.  */
    if (style == STYLE_CSV) {
        print_csv(cli, s, name);
        return;
    }

    cli_print(cli, "%s%s: %llu tensor%s, %llu weights, %s in the source%s\n", md ? "\n**" : "\n",
              name, (unsigned long long)s->n_tensors, fp8q_plural(s->n_tensors),
              (unsigned long long)s->n_elems, fp8q_show_bytes(bytes, s->source_bytes),
              md ? "**\n" : "");
    cli_print(
        cli,
        md ? "| format | scale per | RMSE | relative | SQNR dB | size | of source |\n"
             "|---|---|---|---|---|---|---|\n"
           : "  format    scale per    RMSE         relative   SQNR dB  size       of source\n");

    for (unsigned i = 0; i < FP8Q_CMP_ROWS; i++)
        cli_print(cli,
                  md ? "| %s | %s | %.8f | %.4f %% | %.2f | %s | %.1f %% |\n"
                     : "  %-9s %-11s  %.8f  %8.4f %%  %7.2f  %-9s  %5.1f %%\n",
                  fp8q_compare_format(i), fp8q_compare_granularity(i), fp8q_compare_rmse(s, i),
                  100 * fp8q_compare_relative(s, i), fp8q_compare_sqnr_db(s, i),
                  fp8q_show_bytes(bytes, s->bytes[i]),
                  100 * (double)s->bytes[i] / (double)s->source_bytes);
}

static void json_rows(struct fp8q_jsonw *w, const struct fp8q_compare_sums *s)
{
    fp8q_jsonw_uint(w, "tensors", s->n_tensors);
    fp8q_jsonw_uint(w, "weights", s->n_elems);
    fp8q_jsonw_uint(w, "source_bytes", s->source_bytes);
    fp8q_jsonw_open(w, "rows", '[');
    for (unsigned i = 0; i < FP8Q_CMP_ROWS; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "format", fp8q_compare_format(i));
        fp8q_jsonw_string(w, "granularity", fp8q_compare_granularity(i));
        fp8q_jsonw_number(w, "rmse", fp8q_compare_rmse(s, i));
        fp8q_jsonw_number(w, "relative_rmse", fp8q_compare_relative(s, i));
        fp8q_jsonw_number(w, "sqnr_db", fp8q_compare_sqnr_db(s, i));
        fp8q_jsonw_uint(w, "bytes", s->bytes[i]);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

/* Of which weights the figures are, where the whole was read anyway.  */
static int subject_json(struct cli *cli, const struct fp8q_ckpt *ckpt, bool whole)
{
    struct fp8q_evidence subject = {.source = {.known = whole}};
    if (whole)
        FP8Q_TRY(fp8q_fingerprint(ckpt, (unsigned)cli->threads, &cli->watch, &subject.source.crc32,
                                  &cli->error));

    fp8q_jsonw_string(&cli->json, "source", ckpt->path);
    fp8q_evidence_write_subject(&cli->json, &subject);
    return FP8Q_OK;
}

static void report(struct cli *cli, const struct fp8q_compare *result, enum style style)
{
    struct fp8q_jsonw *w = &cli->json;
    struct fp8q_shown shown;

    /* JSON has all groups, whatever the style.  */
    fp8q_jsonw_string(w, "selection", result->selection);
    json_rows(w, &result->total);
    fp8q_jsonw_open(w, "groups", '[');
    for (size_t i = 0; i < result->n_groups; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "group", result->groups[i].name);
        json_rows(w, &result->groups[i]);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');

    if (style == STYLE_CSV)
        cli_print(cli, "group,format,granularity,rmse,relative_rmse,sqnr_db,bytes\n");
    /* In text, a table for each group is long: only with -v.  */
    for (size_t i = 0; i < result->n_groups && (style != STYLE_TEXT || cli->verbose); i++)
        print_table(cli, &result->groups[i], fp8q_show(&shown, result->groups[i].name), style);
    print_table(cli, &result->total, style == STYLE_CSV ? "total" : result->selection, style);

    if (style == STYLE_TEXT && !cli->verbose && result->n_groups > 1)
        cli_print(cli, "\n%zu module groups; -v prints a table for each.\n", result->n_groups);
}

/* What quantize would take, unaligned weights too: the table says nothing about what engines can load.
 */
struct choice {
    const struct fp8q_ckpt *ckpt;
    struct fp8q_selection selection;
};

static bool is_chosen(void *ctx, const struct fp8q_tensor *tensor)
{
    const struct choice *choice = ctx;
    return choice->selection.decisions[tensor - choice->ckpt->tensors].quantize;
}

/* False where quantize would take nothing (another architecture, weights that are FP8 already).  */
static bool choose(const struct fp8q_ckpt *ckpt, struct choice *choice)
{
    const struct fp8q_select_options options = {.unaligned = FP8Q_UNALIGNED_QUANTIZE};
    choice->ckpt = ckpt;

    /* That it fails is no error: all 2-D float tensors are taken then.  */
    if (fp8q_select(ckpt, &options, &choice->selection, NULL, NULL) != FP8Q_OK)
        return false;

    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (ckpt->tensors[i].ndim == 2 && choice->selection.decisions[i].quantize)
            return true;

    fp8q_selection_reset(&choice->selection);
    return false;
}

static int compare(struct cli *cli, const struct fp8q_ckpt *ckpt, const struct cli_list *names,
                   struct fp8q_compare *result_out)
{
    struct fp8q_compare_options options = {.kernel = fp8q_kernel_select(cli->kernel),
                                           .threads = (unsigned)cli->threads,
                                           .names = names->items,
                                           .n_names = names->count,
                                           .watch = &cli->watch};

    /* Named tensors are taken as they are named; else those that quantize would take.  */
    struct choice choice;
    bool chosen = names->count == 0 && choose(ckpt, &choice);
    if (chosen) {
        options.take = is_chosen;
        options.take_ctx = &choice;
    }

    int status = fp8q_compare(ckpt, &options, result_out, &cli->error);
    if (chosen)
        fp8q_selection_reset(&choice.selection);
    FP8Q_TRY(status);

    return cli->as_json ? subject_json(cli, ckpt, names->count == 0) : FP8Q_OK;
}

static int run(struct cli *cli, const char *path, const struct cli_list *names, enum style style)
{
    struct fp8q_ckpt *ckpt;
    struct fp8q_compare result;
    FP8Q_TRY(fp8q_ckpt_open(path, &ckpt, &cli->warnings, &cli->error));

    int status = compare(cli, ckpt, names, &result);
    cli_progress_clear();
    if (status == FP8Q_OK)
        report(cli, &result, style);
    fp8q_compare_reset(&result);
    fp8q_ckpt_close(ckpt);
    return status;
}

int cmd_compare(struct cli *cli)
{
    struct cli_list names = {0};
    bool markdown = false, csv = false;
    const char *path;
    int code;
    const struct cli_option options[] = {
        {"tensor", 0, CLI_LIST, &names, "NAME", "only this tensor (may be given again)"},
        {"markdown", 0, CLI_FLAG, &markdown, NULL, "print Markdown tables"},
        {"csv", 0, CLI_FLAG, &csv, NULL, "print comma-separated values"},
        {.name = NULL}};
    const struct cli_rule rules[] = {
        {"markdown", CLI_EXCLUDES, "csv json"}, {"csv", CLI_EXCLUDES, "json"}, {.option = NULL}};
    const struct cli_syntax syntax = {
        .usage = usage, .options = options, .rules = rules, .min = 1, .max = 1};

    if (cli_parse(cli, &syntax, &path, &code)) {
        enum style style = STYLE_TEXT;
        if (markdown)
            style = STYLE_MARKDOWN;
        else if (csv)
            style = STYLE_CSV;
        code = cli_end(cli, run(cli, path, &names, style));
    }

    /* What the parser put into the list is ours, also when it refused the line.  */
    free(names.items);
    return code;
}
