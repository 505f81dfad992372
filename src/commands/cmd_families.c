/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_families.c - fp8q families
 */
#include "cli/options.h"
#include "commands/commands.h"

static const char usage[] =
    "usage: fp8q families [options]\n\n"
    "Prints the two tables of architectures: language models, and what is built around them.\n\n"
    "Example: fp8q families --json";

static void print_line(struct cli *cli, const char *word, const char *text)
{
    if (text)
        cli_print(cli, "  %-11s %s\n", word, text);
}

static void print_row(struct cli *cli, const struct fp8q_architecture_info *a)
{
    cli_print(cli, "%s%s%s\n", cli_style(CLI_BOLD), a->name, cli_style(CLI_PLAIN));
    print_line(cli, "model_type", a->model_types);
    print_line(cli, a->is_wrapper ? "decoder" : "also under", a->decoders);
    print_line(cli, "quantized", a->linears);
    print_line(cli, "experts", a->experts);
    print_line(cli, "language", a->language);
    print_line(cli, "vision", a->vision);
    print_line(cli, "projector", a->projector);
    print_line(cli, "other", a->action);
    print_line(cli, "note", a->note);
}

static void write_row(struct fp8q_jsonw *w, const struct fp8q_architecture_info *a)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", a->name);
    fp8q_jsonw_string(w, "model_types", a->model_types);
    fp8q_jsonw_string(w, "decoders", a->decoders);
    /* The linears of a wrapper are those of the decoder in it; its own parts stand around that.  */
    if (a->is_wrapper) {
        fp8q_jsonw_string(w, "language", a->language);
        fp8q_jsonw_string(w, "vision", a->vision);
        fp8q_jsonw_string(w, "projector", a->projector);
        fp8q_jsonw_string(w, "action", a->action);
    } else {
        fp8q_jsonw_string(w, "linears", a->linears);
        fp8q_jsonw_string(w, "experts", a->experts);
    }

    fp8q_jsonw_string(w, "note", a->note);
    fp8q_jsonw_close(w, '}');
}

static void list_rows(struct cli *cli, bool wrappers)
{
    struct fp8q_architecture_info row;

    for (size_t i = 0; fp8q_architecture_row(i, &row); i++)
        if (row.is_wrapper == wrappers) {
            print_row(cli, &row);
            write_row(&cli->json, &row);
        }
}

int cmd_families(struct cli *cli)
{
    const struct cli_option options[] = {{.name = NULL}};
    const struct cli_syntax syntax = {.usage = usage, .options = options};
    int code;
    if (!cli_parse(cli, &syntax, NULL, &code))
        return code;

    cli_print(cli, "Language models: what the layers of a decoder hold (behind layers.N.)\n\n");
    fp8q_jsonw_open(&cli->json, "language_models", '[');
    list_rows(cli, false);
    fp8q_jsonw_close(&cli->json, ']');

    cli_print(cli, "\nWrappers: where the decoder is, and what stands around it\n\n");
    fp8q_jsonw_open(&cli->json, "families", '[');
    list_rows(cli, true);
    fp8q_jsonw_close(&cli->json, ']');
    return cli_end(cli, FP8Q_OK);
}
