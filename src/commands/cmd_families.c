/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_families.c - fp8q families
 */
#include "commands/commands.h"
#include "select/families.h"

static const char usage[] =
    "usage: fp8q families [options]\n\n"
    "Prints the two tables of architectures: language models, and what is built around them.";

static const char *experts_word(enum fp8q_experts experts)
{
    static const char *const words[] = {"one by one", "stacked, stay stacked",
                                        "stacked, split into 2-D", "stacked, left unquantized"};
    return words[experts];
}

static void print_line(struct cli *cli, const char *word, const char *text)
{
    if (text)
        cli_print(cli, "  %-11s %s\n", word, text);
}

static void print_language(struct cli *cli, const struct fp8q_language_model *l)
{
    cli_print(cli, "%s%s%s\n", cli_style(CLI_BOLD), l->name, cli_style(CLI_PLAIN));
    print_line(cli, "model_type", l->model_types);
    print_line(cli, "also under", l->decoders);
    print_line(cli, "quantized", l->linears);
    print_line(cli, "experts", experts_word(l->experts));
    print_line(cli, "note", l->note);
}

static void print_wrapper(struct cli *cli, const struct fp8q_wrapper *w)
{
    cli_print(cli, "%s%s%s\n", cli_style(CLI_BOLD), w->name, cli_style(CLI_PLAIN));
    print_line(cli, "model_type", w->model_types);
    print_line(cli, "decoder", w->decoders);
    print_line(cli, "language", w->language);
    print_line(cli, "vision", w->vision);
    print_line(cli, "projector", w->projector);
    print_line(cli, "other", w->action);
    print_line(cli, "note", w->note);
}

static void write_language(struct fp8q_jsonw *w, const struct fp8q_language_model *l)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", l->name);
    fp8q_jsonw_string(w, "model_types", l->model_types);
    fp8q_jsonw_string(w, "decoders", l->decoders);
    fp8q_jsonw_string(w, "linears", l->linears);
    fp8q_jsonw_string(w, "experts", experts_word(l->experts));
    fp8q_jsonw_string(w, "note", l->note);
    fp8q_jsonw_close(w, '}');
}

static void write_wrapper(struct fp8q_jsonw *w, const struct fp8q_wrapper *row)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", row->name);
    fp8q_jsonw_string(w, "model_types", row->model_types);
    fp8q_jsonw_string(w, "decoders", row->decoders);
    fp8q_jsonw_string(w, "language", row->language);
    fp8q_jsonw_string(w, "vision", row->vision);
    fp8q_jsonw_string(w, "projector", row->projector);
    fp8q_jsonw_string(w, "action", row->action);
    fp8q_jsonw_string(w, "note", row->note);
    fp8q_jsonw_close(w, '}');
}

static void list_languages(struct cli *cli)
{
    cli_print(cli, "Language models: what the layers of a decoder hold (behind layers.N.)\n\n");
    fp8q_jsonw_open(&cli->json, "language_models", '[');
    for (const struct fp8q_language_model *l = fp8q_language_models; l->name; l++) {
        print_language(cli, l);
        write_language(&cli->json, l);
    }
    print_language(cli, &fp8q_general_language);
    write_language(&cli->json, &fp8q_general_language);
    fp8q_jsonw_close(&cli->json, ']');
}

static void list_wrappers(struct cli *cli)
{
    cli_print(cli, "\nWrappers: where the decoder is, and what stands around it\n\n");
    fp8q_jsonw_open(&cli->json, "families", '[');
    for (const struct fp8q_wrapper *w = fp8q_wrappers; w->name; w++) {
        print_wrapper(cli, w);
        write_wrapper(&cli->json, w);
    }
    print_wrapper(cli, &fp8q_general_wrapper);
    write_wrapper(&cli->json, &fp8q_general_wrapper);
    fp8q_jsonw_close(&cli->json, ']');
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct cli_option options[] = {{.name = NULL}};
    int code;
    if (!cli_parse(cli, argc, argv, usage, options, NULL, 0, 0, &code))
        return code;
    list_languages(cli);
    list_wrappers(cli);
    return cli_end(cli, FP8Q_OK);
}

const struct cli_command cli_cmd_families = {"families", run, "print the tables of architectures"};
