/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_families.c - fp8q families
 */
#include "commands/commands.h"
#include "select/families.h"

static const char usage[] =
    "usage: fp8q families [options]\n\n"
    "Prints the family table: what is quantized and what is kept, by config.json's model_type.";

static const char *experts_word(enum fp8q_experts experts)
{
    static const char *const words[] = {"one by one", "stacked, stay stacked",
                                        "stacked, split into 2-D", "stacked, kept"};
    return words[experts];
}

static void print_row(struct cli *cli, const struct fp8q_family *f)
{
    cli_print(cli, "%s%s%s\n", cli_style(CLI_BOLD), f->name, cli_style(CLI_PLAIN));
    cli_print(cli, "  model_type  %s\n", f->model_types ? f->model_types : "any other");
    cli_print(cli, "  decoder     %s\n", f->decoders ? f->decoders : "(any)");
    cli_print(cli, "  quantized   layers.N. + %s\n", f->linears);
    if (f->vision)
        cli_print(cli, "  vision      %s\n", f->vision);
    if (f->projector)
        cli_print(cli, "  projector   %s\n", f->projector);
    if (f->action)
        cli_print(cli, "  action      %s\n", f->action);
    cli_print(cli, "  experts     %s\n", experts_word(f->experts));
    if (f->note)
        cli_print(cli, "  note        %s\n", f->note);
}

static void write_row(struct fp8q_jsonw *w, const struct fp8q_family *f)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", f->name);
    fp8q_jsonw_string(w, "model_types", f->model_types);
    fp8q_jsonw_string(w, "decoders", f->decoders);
    fp8q_jsonw_string(w, "linears", f->linears);
    fp8q_jsonw_string(w, "vision", f->vision);
    fp8q_jsonw_string(w, "projector", f->projector);
    fp8q_jsonw_string(w, "action", f->action);
    fp8q_jsonw_string(w, "experts", experts_word(f->experts));
    fp8q_jsonw_string(w, "note", f->note);
    fp8q_jsonw_close(w, '}');
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct cli_option options[] = {{.name = NULL}};
    int code;
    if (!cli_parse(cli, argc, argv, usage, options, NULL, 0, 0, &code))
        return code;
    fp8q_jsonw_open(&cli->json, "families", '[');
    for (const struct fp8q_family *f = fp8q_families; f->name; f++) {
        print_row(cli, f);
        write_row(&cli->json, f);
    }
    print_row(cli, &fp8q_general_family);
    write_row(&cli->json, &fp8q_general_family);
    fp8q_jsonw_close(&cli->json, ']');
    return cli_end(cli, FP8Q_OK);
}

const struct cli_command cli_cmd_families = {"families", run, "print the table of model families"};
