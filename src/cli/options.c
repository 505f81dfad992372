/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c - parses a command line.
 */
#include "cli/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "cli/suggest.h"
#include "kernel/kernel.h"

enum { N_COMMON = 9 };

/* ---- the line -------------------------------------------------------------------------------- */

struct parser {
    struct cli *cli;
    const struct cli_syntax *syntax;
    const struct cli_option *common;
    const char **operands;
    int n_operands;
};

static const struct cli_option *find_in(const struct cli_option *options, const char *name,
                                        size_t len, char letter)
{
    for (const struct cli_option *o = options; o && o->name; o++)
        if (letter ? o->letter == letter
                   : strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

const struct cli_option *cli_find_option(const struct cli_option *own,
                                         const struct cli_option *common, const char *arg,
                                         const char **value_out)
{
    bool is_long = arg[1] == '-';
    const char *name = arg + 1 + is_long;
    size_t len = is_long ? strcspn(name, "=") : 1;
    char letter = is_long ? '\0' : name[0];

    /* Behind the "=" of a long name, or right behind a letter.  */
    *value_out = name[len] ? name + len + is_long : NULL;

    /* Its own options first: a command may give a common name a meaning of its own.  */
    const struct cli_option *o = find_in(own, name, len, letter);
    if (!o)
        o = find_in(common, name, len, letter);

    /* Letters are not bundled: -tN is -t with a value, and a flag has none.  */
    return o && !is_long && o->kind == CLI_FLAG && *value_out ? NULL : o;
}

static int fail_unknown(const struct parser *p, const char *arg)
{
    struct cli_suggestion near = {0};
    struct cli_hint hint;
    struct fp8q_shown shown;
    char name[CLI_MOST_OPTIONS];
    const char *advice = NULL;
    size_t len = strlen(arg) > 2 ? strcspn(arg + 2, "=") : 0;

    /* A single letter is too little to guess from.  */
    if (arg[1] == '-' && len < sizeof(name)) {
        memcpy(name, arg + 2, len);
        name[len] = '\0';
        advice = cli_foreign_option(p->cli->command, name);
        for (const struct cli_option *o = p->syntax->options; o->name; o++)
            if (o->help)
                cli_suggest_offer(&near, name, o->name);
        for (const struct cli_option *o = p->common; o->name; o++)
            cli_suggest_offer(&near, name, o->name);
    }

    return fp8q_fail(&p->cli->error, FP8Q_E_ARG, "usage",
                     "%s: unknown option \"%s\"%s%s; see `fp8q %s --help`", p->cli->command,
                     fp8q_show(&shown, arg), advice ? ": " : "",
                     advice ? advice : cli_suggest_hint(&near, "--", &hint), p->cli->command);
}

void cli_note_given(struct cli *cli, const char *name)
{
    if (!cli_given(cli, name) && cli->n_given < CLI_MOST_OPTIONS)
        cli->given[cli->n_given++] = name;
}

/* The option at argv[*i], with its value, which may be the next word.  */
static int take_option(struct parser *p, int *i)
{
    struct cli *cli = p->cli;
    const char *arg = cli->argv[*i], *value;
    const struct cli_option *o = cli_find_option(p->syntax->options, p->common, arg, &value);
    if (!o)
        return fail_unknown(p, arg);

    cli_note_given(cli, o->name);

    if (o->kind == CLI_FLAG && value)
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage", "--%s takes no value", o->name);
    if (o->kind != CLI_FLAG && !value) {
        /* The next word, whatever that looks like; argv ends in NULL.  */
        value = cli->argv[++*i];
        if (!value)
            return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage", "--%s needs a value (%s)", o->name,
                             o->value);
    }
    return cli_set_option(cli, o, value);
}

static int take_operand(struct parser *p, const char *arg)
{
    struct fp8q_shown shown;

    /* Where a command compares with a source, it is an option.  */
    if (p->n_operands == p->syntax->max)
        return fp8q_fail(&p->cli->error, FP8Q_E_ARG, "usage",
                         "%s: unexpected operand \"%s\"%s; see `fp8q %s --help`", p->cli->command,
                         fp8q_show(&shown, arg),
                         find_in(p->syntax->options, "source", strlen("source"), '\0')
                             ? " (the source is given by --source)"
                             : "",
                         p->cli->command);

    if (!*arg)
        return fp8q_fail(&p->cli->error, FP8Q_E_ARG, "usage", "%s: an operand is empty",
                         p->cli->command);

    p->operands[p->n_operands++] = arg;
    return FP8Q_OK;
}

static int take_words(struct parser *p)
{
    bool options_end = false;

    for (int i = 1; i < p->cli->argc; i++) {
        const char *arg = p->cli->argv[i];

        /* A lone "-" is an operand.  */
        if (options_end || arg[0] != '-' || arg[1] == '\0')
            FP8Q_TRY(take_operand(p, arg));
        else if (strcmp(arg, "--") == 0)
            options_end = true;
        else
            FP8Q_TRY(take_option(p, &i));
    }
    return FP8Q_OK;
}

/* ---- what does not go together --------------------------------------------------------------- */

bool cli_given(const struct cli *cli, const char *name)
{
    for (size_t i = 0; i < cli->n_given; i++)
        if (strcmp(cli->given[i], name) == 0)
            return true;
    return false;
}

bool cli_is_among(const char *name, const char *names)
{
    size_t len = strlen(name);
    for (const char *n = names; *n; n += strspn(n, " ")) {
        size_t n_len = strcspn(n, " ");
        if (n_len == len && memcmp(n, name, len) == 0)
            return true;
        n += n_len;
    }
    return false;
}

/* The first of the space-separated @names that was given, copied to @buf; or NULL.  */
static const char *given_of(const struct cli *cli, const char *names, char buf[64])
{
    for (const char *n = names; *n; n += strspn(n, " ")) {
        size_t len = strcspn(n, " ");
        snprintf(buf, 64, "%.*s", (int)len, n);
        if (cli_given(cli, buf))
            return buf;
        n += len;
    }
    return NULL;
}

/* "a b c" as "--a, --b or --c".  */
static void name_options(const char *names, char *buf, size_t cap)
{
    size_t used = 0;
    for (const char *n = names; *n && used < cap; n += strspn(n, " ")) {
        size_t len = strcspn(n, " ");
        const char *comma = strchr(n, ' ') ? ", " : " or ";
        used += (size_t)snprintf(buf + used, cap - used, "%s--%.*s", n == names ? "" : comma,
                                 (int)len, n);
        n += len;
    }
}

static int check_rules(struct cli *cli, const struct cli_rule *rules)
{
    char found[64], needed[160];

    for (const struct cli_rule *r = rules; r && r->option; r++) {
        if (!cli_given(cli, r->option))
            continue;

        const char *other = given_of(cli, r->other, found);
        if (r->kind == CLI_EXCLUDES && other)
            return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                             "%s: --%s and --%s exclude each other", cli->command, r->option,
                             other);

        if (r->kind == CLI_NEEDS && !other) {
            name_options(r->other, needed, sizeof(needed));
            return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage", "%s: --%s has no effect without %s",
                             cli->command, r->option, needed);
        }
    }

    /* All commands have these two, so no table of rules names them.  */
    if (cli->quiet && cli->verbose)
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                         "%s: --quiet and --verbose exclude each other", cli->command);
    return FP8Q_OK;
}

static int check_kernel(struct cli *cli)
{
    struct fp8q_shown shown;
    char usable[160] = "";
    size_t used = 0;
    if (!cli->kernel || fp8q_kernel_select(cli->kernel))
        return FP8Q_OK;

    for (size_t i = 0; fp8q_kernels[i] && used < sizeof(usable); i++)
        if (fp8q_kernels[i]->usable())
            used += (size_t)snprintf(usable + used, sizeof(usable) - used, "%s%s", used ? ", " : "",
                                     fp8q_kernels[i]->name);

    return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                     "--kernel: expected one that this CPU has (%s), found \"%s\"", usable,
                     fp8q_show(&shown, cli->kernel));
}

/* ---- all ------------------------------------------------------------------------------------- */

static int check_all(struct parser *p)
{
    struct cli *cli = p->cli;
    int min = p->syntax->min;

    if (p->n_operands < min)
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                         "%s: %d operand%s expected, found %d; see `fp8q %s --help`", cli->command,
                         min, fp8q_plural((uint64_t)min), p->n_operands, cli->command);

    FP8Q_TRY(check_rules(cli, p->syntax->rules));
    return check_kernel(cli);
}

bool cli_parse(struct cli *cli, const struct cli_syntax *syntax, const char **operands,
               int *exit_out)
{
    static const char *const progress_words[] = {"auto", "json", "line", "none", NULL};
    struct cli_word progress = {progress_words, &cli->progress_as};
    const struct cli_option common[N_COMMON] = {
        {"json", 0, CLI_FLAG, &cli->as_json, NULL, "print one JSON object on standard output"},
        {"progress", 0, CLI_WORD, &progress, "HOW",
         "on standard error: auto (default: a line on a terminal), json (an object a\n"
         "line, for programs), line, none"},
        {"threads", 't', CLI_THREADS, &cli->threads, "N",
         "threads (default: all CPUs that may be used)"},
        {"kernel", 0, CLI_TEXT, &cli->kernel, "NAME",
         "instruction set of the kernels (default: best)"},
        {"quiet", 'q', CLI_FLAG, &cli->quiet, NULL, "print nothing but errors"},
        {"verbose", 'v', CLI_FLAG, &cli->verbose, NULL, "print more"},
        {"help", 'h', CLI_FLAG, &cli->help, NULL, "print help; --help-all: with the rarer options"},
        {"help-all", 0, CLI_FLAG, &cli->help_all, NULL, "print help with all options"},
        {.name = NULL}};
    struct parser p = {.cli = cli, .syntax = syntax, .common = common, .operands = operands};

    if (cli->complete) {
        cli->complete(cli, syntax, common);
        cli->as_json = false;
        *exit_out = cli_end(cli, FP8Q_OK);
        return false;
    }

    int status = take_words(&p);

    /* Help is given before operands are counted: who asks for it does not know them yet.  */
    if (status == FP8Q_OK && (cli->help || cli->help_all)) {
        cli_print_help(syntax, common, cli->help_all);
        /* It is text, with --json too.  */
        cli->as_json = false;
        *exit_out = cli_end(cli, FP8Q_OK);
        return false;
    }

    if (status == FP8Q_OK)
        status = check_all(&p);
    if (status != FP8Q_OK) {
        *exit_out = cli_end(cli, status);
        return false;
    }

    /* Operands that may be left out.  */
    for (int n = p.n_operands; n < syntax->max; n++)
        operands[n] = NULL;

    /* 0 stands for all CPUs.  */
    if (cli->threads == 0)
        cli->threads = fp8q_min_u64(fp8q_cpu_count(), CLI_MOST_THREADS);
    cli->run.threads = (unsigned)cli->threads;
    cli->run.kernel = cli->kernel;

    cli_progress_choose(cli);
    return true;
}
