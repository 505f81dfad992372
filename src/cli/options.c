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

enum { MOST_THREADS = 1024, N_COMMON = 8 };

/* ---- values ---------------------------------------------------------------------------------- */

static bool parse_uint(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    if (!*text)
        return false;

    /* Neither signs nor spaces, which strtoull() would take.  */
    for (; *text; text++)
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;

    if (value < least || value > most)
        return false;
    *out = value;
    return true;
}

/* Plain decimal notation: neither "nan" nor "0x10".  */
static bool parse_number(const char *text, double most, double *out)
{
    char *end;
    if (text[strspn(text, "0123456789.eE+-")] || *text == '\0')
        return false;

    double value = strtod(text, &end);
    if (*end || !isfinite(value) || value < 0 || value > most)
        return false;
    *out = value;
    return true;
}

static bool parse_size(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        double unit;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1024},
                 {"MiB", 1048576},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0}};
    char *end;

    /* strtod() would also take signs, spaces, "inf" and "nan".  */
    if (*text < '0' || *text > '9')
        return false;

    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (strcasecmp(end, units[i].suffix) == 0) {
            value *= units[i].unit;
            /* What is below 1e19 fits into 64 bits; less than a byte is no size.  */
            if (!(value >= 1 && value < 1e19))
                return false;
            *out = (uint64_t)value;
            return true;
        }
    return false;
}

static bool parse_word(const char *text, const struct cli_word *word)
{
    for (unsigned i = 0; word->words[i]; i++)
        if (strcasecmp(word->words[i], text) == 0) {
            *word->value = i;
            return true;
        }
    return false;
}

int cli_list_add(struct cli_list *list, const char *item, struct fp8q_error *err)
{
    /* Lists of options are short: to grow by one is cheap enough.  */
    const char **items = realloc(list->items, (list->count + 1) * sizeof(*items));
    if (!items)
        return fp8q_fail_nomem(err);

    list->items = items;
    items[list->count++] = item;
    return FP8Q_OK;
}

/* "fp8 or compressed-tensors"; of three and more "a, b or c".  */
static void list_words(const struct cli_word *word, char *buf, size_t cap)
{
    size_t used = 0;
    buf[0] = '\0';
    for (size_t i = 0; word->words[i] && used < cap; i++) {
        const char *comma = word->words[i + 1] ? ", " : " or ";
        used += (size_t)snprintf(buf + used, cap - used, "%s%s", i ? comma : "", word->words[i]);
    }
}

static const char *expected_text(const struct cli_option *o, char *buf, size_t cap)
{
    switch (o->kind) {
    case CLI_UINT:
        return "a whole number from 1 to 2147483647";
    case CLI_THREADS:
        return "a whole number from 0 (all CPUs) to 1024";
    case CLI_NUMBER:
        return "a number of at least 0";
    case CLI_SHARE:
        return "a number from 0 to 1";
    case CLI_SIZE:
        return "a size such as 512MiB or 5GB";
    case CLI_WORD:
        list_words(o->target, buf, cap);
        return buf;
    default:
        return "a text that is not empty";
    }
}

static int fail_value(struct cli *cli, const struct cli_option *o, const char *value)
{
    struct fp8q_shown shown;
    struct cli_suggestion near = {0};
    struct cli_hint hint;
    char expected[256];

    if (o->kind == CLI_WORD) {
        const struct cli_word *word = o->target;
        for (size_t i = 0; word->words[i]; i++)
            cli_suggest_offer(&near, value, word->words[i]);
    }

    return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage", "--%s: expected %s, found \"%s\"%s", o->name,
                     expected_text(o, expected, sizeof(expected)), fp8q_show(&shown, value),
                     cli_suggest_hint(&near, "", &hint));
}

static int set_option(struct cli *cli, const struct cli_option *o, const char *value)
{
    bool ok = true;

    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->target = true;
        break;
    case CLI_TEXT:
        /* An empty value is most likely a variable of the shell that is not set.  */
        ok = *value != '\0';
        *(const char **)o->target = value;
        break;
    case CLI_LIST:
        if (*value)
            return cli_list_add(o->target, value, &cli->error);
        ok = false;
        break;
    case CLI_WORD:
        ok = parse_word(value, o->target);
        break;
    case CLI_UINT:
        ok = parse_uint(value, 1, INT32_MAX, o->target);
        break;
    case CLI_THREADS:
        ok = parse_uint(value, 0, MOST_THREADS, o->target);
        break;
    case CLI_NUMBER:
        ok = parse_number(value, HUGE_VAL, o->target);
        break;
    case CLI_SHARE:
        ok = parse_number(value, 1, o->target);
        break;
    case CLI_SIZE:
        ok = parse_size(value, o->target);
        break;
    }
    return ok ? FP8Q_OK : fail_value(cli, o, value);
}

/* ---- help ------------------------------------------------------------------------------------ */

static void print_options(const struct cli_option *options)
{
    for (const struct cli_option *o = options; o->name; o++) {
        char head[64], letter[8] = "    ";

        /* Without help it is another spelling of one that has it.  */
        if (!o->help)
            continue;

        if (o->letter)
            snprintf(letter, sizeof(letter), "-%c, ", o->letter);
        snprintf(head, sizeof(head), "%s--%s%s%s", letter, o->name, o->value ? " " : "",
                 o->value ? o->value : "");

        const char *help = o->help, *line_end;
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
}

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
    size_t len = strlen(arg) > 2 ? strcspn(arg + 2, "=") : 0;

    /* A single letter is too little to guess from.  */
    if (arg[1] == '-' && len < sizeof(name)) {
        memcpy(name, arg + 2, len);
        name[len] = '\0';
        for (const struct cli_option *o = p->syntax->options; o->name; o++)
            if (o->help)
                cli_suggest_offer(&near, name, o->name);
        for (const struct cli_option *o = p->common; o->name; o++)
            cli_suggest_offer(&near, name, o->name);
    }

    return fp8q_fail(&p->cli->error, FP8Q_E_ARG, "usage",
                     "%s: unknown option \"%s\"%s; see `fp8q %s --help`", p->cli->command,
                     fp8q_show(&shown, arg), cli_suggest_hint(&near, "--", &hint), p->cli->command);
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
    return set_option(cli, o, value);
}

static int take_operand(struct parser *p, const char *arg)
{
    struct fp8q_shown shown;

    if (p->n_operands == p->syntax->max)
        return fp8q_fail(&p->cli->error, FP8Q_E_ARG, "usage",
                         "%s: unexpected operand \"%s\"; see `fp8q %s --help`", p->cli->command,
                         fp8q_show(&shown, arg), p->cli->command);

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
                         min, min == 1 ? "" : "s", p->n_operands, cli->command);

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
        {"help", 'h', CLI_FLAG, &cli->help, NULL, "print this text"},
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
    if (status == FP8Q_OK && cli->help) {
        printf("%s\n\nOptions:\n", syntax->usage);
        print_options(syntax->options);
        print_options(common);
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
        cli->threads = fp8q_min_u64(fp8q_cpu_count(), MOST_THREADS);
    cli->run.threads = (unsigned)cli->threads;
    cli->run.kernel = cli->kernel;

    cli_progress_choose(cli);
    return true;
}
