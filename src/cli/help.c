/* SPDX-License-Identifier: Apache-2.0
 *
 * help.c - --help and --help-all, from the tables that parse the line.
 *
 * --help is one screen: what a command does, an example, the common options under the heads of its
 * groups, and the bare names of the rare ones, which --help-all explains.  A command without groups
 * has few options, and all of them are common.
 */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"

static void print_option(const struct cli_option *o)
{
    char head[64], letter[8] = "    ";
    const char *help = o->help, *line_end;

    if (o->letter)
        snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    snprintf(head, sizeof(head), "%s--%s%s%s", letter, o->name, o->value ? " " : "",
             o->value ? o->value : "");

    printf("  %-28s", head);
    /* A long head has a line of its own.  */
    if (strlen(head) >= 28)
        printf("\n  %-28s", "");
    while ((line_end = strchr(help, '\n'))) {
        printf("%.*s\n  %-28s", (int)(line_end - help), help, "");
        help = line_end + 1;
    }

    printf("%s\n", help);
}

/* The options that @names lists, in that order.  */
static void print_named(const struct cli_option *options, const char *names)
{
    for (const char *n = names; *n; n += strspn(n, " ")) {
        size_t len = strcspn(n, " ");
        for (const struct cli_option *o = options; o->name; o++)
            if (strlen(o->name) == len && memcmp(o->name, n, len) == 0)
                print_option(o);
        n += len;
    }
}

static bool is_grouped(const struct cli_group *groups, const char *name)
{
    for (const struct cli_group *g = groups; g && g->head; g++)
        if (cli_is_among(name, g->common) || cli_is_among(name, g->rare))
            return true;
    return false;
}

/* The options of no group: all of a command that has none.  */
static void print_rest(const char *head, const struct cli_option *options,
                       const struct cli_group *groups)
{
    bool first = true;

    for (const struct cli_option *o = options; o->name; o++) {
        /* Without help it is another spelling of one that has it.  */
        if (!o->help || is_grouped(groups, o->name))
            continue;
        if (first)
            printf("\n%s:\n", head);
        first = false;
        print_option(o);
    }
}

static void print_groups(const struct cli_option *options, const struct cli_group *groups, bool all)
{
    for (const struct cli_group *g = groups; g && g->head; g++) {
        printf("\n%s:\n", g->head);
        print_named(options, g->common);
        if (all)
            print_named(options, g->rare);
    }
}

static bool is_common(const struct cli_group *groups, const char *name)
{
    for (const struct cli_group *g = groups; g->head; g++)
        if (cli_is_among(name, g->common))
            return true;
    return false;
}

/* The names of the options that --help does not explain, in lines; @column is where the last one ended.  */
static void print_rare_names(const struct cli_option *options, const struct cli_group *groups,
                             size_t *column)
{
    enum { WIDTH = 90 };

    for (const struct cli_option *o = options; o->name; o++) {
        size_t len = strlen(o->name) + 3;
        if (!o->help || is_common(groups, o->name))
            continue;

        if (*column + len > WIDTH) {
            printf("\n ");
            *column = 1;
        }
        printf(" --%s", o->name);
        *column += len;
    }
}

void cli_print_help(const struct cli_syntax *syntax, const struct cli_option *common, bool all)
{
    static const struct cli_group of_all[] = {
        {"Common options", "json threads quiet verbose help", "help-all progress kernel"},
        {.head = NULL}};

    printf("%s\n", syntax->usage);
    if (all && syntax->details)
        printf("\n%s\n", syntax->details);

    print_groups(syntax->options, syntax->groups, all);
    if (all || !syntax->groups)
        print_rest(syntax->groups ? "More" : "Options", syntax->options, syntax->groups);
    print_groups(common, of_all, all);

    if (!all) {
        size_t column = 1;
        printf("\nRare (--help-all explains them):\n ");
        if (syntax->groups)
            print_rare_names(syntax->options, syntax->groups, &column);
        print_rare_names(common, of_all, &column);
        printf("\n");
    }
}
