/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_families.c - fp8q families
 */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "commands/commands.h"

static const char usage[] =
    "usage: fp8q families [options]\n\n"
    "Prints the two tables of architectures: language models, and what is built around them.\n\n"
    "Example: fp8q families --json";

static void print_line(struct cli *cli, const char *word, const char *text)
{
    if (text)
        cli_print_wrapped(cli, 14, "  %-11s %s", word, text);
}

static void print_row(struct cli *cli, const struct fp8q_architecture_info *a)
{
    cli_print(cli, "%s%s%s\n", cli_style(CLI_BOLD), a->name, cli_style(CLI_PLAIN));
    print_line(cli, "model_type", a->model_types ? a->model_types : "any other");
    print_line(cli, a->is_wrapper ? "decoder" : "also under", a->decoders);
    print_line(cli, "quantized", a->linears);
    print_line(cli, "experts", a->experts);
    print_line(cli, "language", a->language);
    print_line(cli, "vision", a->vision);
    print_line(cli, "projector", a->projector);
    print_line(cli, "other", a->action);
    print_line(cli, "note", a->note);
}

/* ---- for machines ---------------------------------------------------------------------------- */

/* The words of @text, which spaces separate, as an array.  */
static void write_words(struct fp8q_jsonw *w, const char *key, const char *text)
{
    char word[256];

    fp8q_jsonw_open(w, key, '[');
    for (size_t len; text && *(text += strspn(text, " ")); text += len) {
        len = strcspn(text, " ");
        snprintf(word, sizeof(word), "%.*s", (int)len, text);
        fp8q_jsonw_string(w, NULL, word);
    }
    fp8q_jsonw_close(w, ']');
}

/* "a.(b c) d" as [["a.b", "a.c"], ["d"]]: what stands in one array is one matrix for engines.  */
static void write_linears(struct fp8q_jsonw *w, const char *text)
{
    char name[256];

    fp8q_jsonw_open(w, "linears", '[');
    while (*(text += strspn(text, " "))) {
        size_t head = strcspn(text, " (");
        const char *member = text + head;
        bool is_group = *member == '(';
        fp8q_jsonw_open(w, NULL, '[');

        /* Alone, the head is the name; before a group, its members have it in common.  */
        do {
            member += is_group;
            size_t len = is_group ? strcspn(member, " )") : 0;
            snprintf(name, sizeof(name), "%.*s%.*s", (int)head, text, (int)len, member);
            fp8q_jsonw_string(w, NULL, name);
            member += len;
        } while (is_group && *member == ' ');

        fp8q_jsonw_close(w, ']');
        text = member + (is_group && *member == ')');
    }
    fp8q_jsonw_close(w, ']');
}

static void write_row(struct fp8q_jsonw *w, const struct fp8q_architecture_info *a)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", a->name);
    write_words(w, "model_types", a->model_types);
    write_words(w, "decoders", a->decoders);
    /* The linears of a wrapper are those of the decoder in it; its own parts stand around that.  */
    if (a->is_wrapper) {
        fp8q_jsonw_string(w, "language", a->language);
        write_words(w, "vision", a->vision);
        write_words(w, "projector", a->projector);
        write_words(w, "action", a->action);
    } else {
        write_linears(w, a->linears);
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

    cli_print_wrapped(cli, 2,
                      "Language models: what the layers of a decoder hold (behind layers.N.)");
    cli_print(cli, "\n");
    fp8q_jsonw_open(&cli->json, "language_models", '[');
    list_rows(cli, false);
    fp8q_jsonw_close(&cli->json, ']');

    cli_print(cli, "\n");
    cli_print_wrapped(cli, 2, "Wrappers: where the decoder is, and what stands around it");
    cli_print(cli, "\n");
    fp8q_jsonw_open(&cli->json, "families", '[');
    list_rows(cli, true);
    fp8q_jsonw_close(&cli->json, ']');
    return cli_end(cli, FP8Q_OK);
}
