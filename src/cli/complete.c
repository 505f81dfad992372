/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.c - completions, from the tables that also parse the line and print its help.
 */
#include "cli/complete.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "kernel/kernel.h"

void cli_complete_word(const char *lead, const char *word, const char *typed, const char *help)
{
    size_t n_lead = strlen(lead), n_typed = strlen(typed);

    /* Of the lead, as much as was typed of it; words are understood in any case.  */
    if (strncmp(lead, typed, n_typed < n_lead ? n_typed : n_lead) != 0)
        return;
    if (n_typed > n_lead && strncasecmp(word, typed + n_lead, n_typed - n_lead) != 0)
        return;

    printf("%s%s", lead, word);
    if (help)
        printf("\t%.*s", (int)strcspn(help, "\n"), help);
    putchar('\n');
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Options say by the name of their value what it is.  */
static bool is_file(const struct cli_option *o)
{
    static const char *const files[] = {"FILE", "DIR", "PATH", "SRC", "DST", NULL};
    for (size_t i = 0; files[i]; i++)
        if (o->value && strcmp(o->value, files[i]) == 0)
            return true;
    return false;
}

/* @lead is what stands in the same word before the value: "--format=" or nothing.  */
static void offer_values(const struct cli_option *o, const char *lead, const char *typed)
{
    if (cli_has_words(o)) {
        const struct cli_word *word = o->target;
        const char *behind = o->kind == CLI_WORD_OF ? strrchr(typed + strlen(lead), '=') : NULL;
        char head[256]; /* what stands before the word: a pattern too */
        snprintf(head, sizeof(head), "%.*s", behind ? (int)(behind + 1 - typed) : (int)strlen(lead),
                 behind ? typed : lead);
        for (size_t i = 0; word->words[i]; i++)
            cli_complete_word(head, word->words[i], typed, NULL);
    } else if (strcmp(o->name, "kernel") == 0) {
        for (size_t i = 0; fp8q_kernels[i]; i++)
            if (fp8q_kernels[i]->usable())
                cli_complete_word(lead, fp8q_kernels[i]->name, typed, NULL);
    } else if (is_file(o)) {
        puts(":files");
    }
}

/* ---- options --------------------------------------------------------------------------------- */

/* Whether an option that was given keeps @o from being given too.  */
static bool is_excluded(const struct cli *cli, const struct cli_rule *rules,
                        const struct cli_option *o)
{
    for (const struct cli_rule *r = rules; r && r->option; r++) {
        if (r->kind != CLI_EXCLUDES)
            continue;
        if (cli_given(cli, r->option) && cli_is_among(o->name, r->other))
            return true;

        for (size_t i = 0; strcmp(r->option, o->name) == 0 && i < cli->n_given; i++)
            if (cli_is_among(cli->given[i], r->other))
                return true;
    }
    return false;
}

static void offer_options(const struct cli *cli, const struct cli_syntax *syntax,
                          const struct cli_option *options, const char *typed)
{
    for (const struct cli_option *o = options; o->name; o++) {
        /* Aliases are understood, not advertised; only a list may be given again.  */
        bool again = o->kind == CLI_LIST || o->kind == CLI_WORD_OF;
        if (!o->help || (!again && cli_given(cli, o->name)))
            continue;
        if (!is_excluded(cli, syntax->rules, o))
            cli_complete_word("--", o->name, typed, o->help);
    }
}

/* ---- the line -------------------------------------------------------------------------------- */

/* What the words before the last one say about it.  */
struct place {
    const struct cli_option *option; /* it is the value of this one, or NULL */
    bool options_end;                /* there was a "--" */
    int n_operands;
};

static struct place find_place(struct cli *cli, const struct cli_syntax *syntax,
                               const struct cli_option *common)
{
    struct place place = {0};

    for (int i = 1; i < cli->argc - 1; i++) {
        const char *arg = cli->argv[i], *value;

        if (place.option) {
            place.option = NULL;
        } else if (place.options_end || arg[0] != '-' || arg[1] == '\0') {
            place.n_operands++;
        } else if (strcmp(arg, "--") == 0) {
            place.options_end = true;
        } else {
            const struct cli_option *o = cli_find_option(syntax->options, common, arg, &value);
            /* A word that is unknown is for the parser to complain about.  */
            if (!o)
                continue;
            cli_note_given(cli, o->name);
            if (o->kind != CLI_FLAG && !value)
                place.option = o;
        }
    }
    return place;
}

void cli_complete(struct cli *cli, const struct cli_syntax *syntax, const struct cli_option *common)
{
    const char *typed = cli->argv[cli->argc - 1], *value;
    struct place place = find_place(cli, syntax, common);

    if (place.option) {
        offer_values(place.option, "", typed);
    } else if (!place.options_end && strncmp(typed, "--", 2) == 0 && strchr(typed, '=')) {
        const struct cli_option *o = cli_find_option(syntax->options, common, typed, &value);
        char lead[CLI_MOST_OPTIONS];
        if (!o || o->kind == CLI_FLAG)
            return;

        snprintf(lead, sizeof(lead), "%.*s", (int)(value - typed), typed);
        offer_values(o, lead, typed);
    } else if (!place.options_end && typed[0] == '-') {
        offer_options(cli, syntax, syntax->options, typed);
        offer_options(cli, syntax, common, typed);
    } else if (place.n_operands < syntax->max) {
        puts(":files");
    }
}
