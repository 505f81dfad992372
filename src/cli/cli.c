/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.c - options, output and exit status for all commands.
 */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"

/* ---- exit status --------------------------------------------------------------------------- */

/* docs/fp8q.1 "EXIT STATUS".  */
static int exit_status(int status)
{
    switch ((enum fp8q_status)status) {
    case FP8Q_OK:
        return 0;
    case FP8Q_E_MISMATCH:
        return 1;
    case FP8Q_E_ARG:
    case FP8Q_E_UNSUPPORTED:
        return 2;
    case FP8Q_E_IO:
    case FP8Q_E_FORMAT:
    case FP8Q_E_NOMEM:
    case FP8Q_E_CANCELLED:
        return 3;
    case FP8Q_E_POLICY:
        return 4;
    case FP8Q_E_EVIDENCE:
        return 5;
    }
    return 3;
}

static const char *status_word(int status)
{
    if (status == FP8Q_OK)
        return "ok";
    return status == FP8Q_E_MISMATCH || status == FP8Q_E_POLICY || status == FP8Q_E_EVIDENCE
               ? "fail"
               : "error";
}

/* ---- output -------------------------------------------------------------------------------- */

void cli_print(struct cli *cli, const char *fmt, ...)
{
    if (cli->as_json || cli->quiet)
        return;
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
}

void cli_print_verbose(struct cli *cli, const char *fmt, ...)
{
    if (cli->as_json || cli->quiet || !cli->verbose)
        return;
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
}

const char *cli_style(enum cli_style style)
{
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[32m", "\033[31m", "\033[2m"};
    const char *no_color = getenv("NO_COLOR");
    if (!isatty(STDOUT_FILENO) || (no_color && *no_color))
        return "";
    return codes[style];
}

const char *cli_bytes(char *buf, uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(*units)) {
        value /= 1000;
        unit++;
    }
    snprintf(buf, 32, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return buf;
}

void cli_show_warnings(struct cli *cli)
{
    for (; cli->warnings_shown < cli->warnings.count; cli->warnings_shown++)
        if (!cli->quiet) {
            cli_progress_clear();
            fprintf(stderr, "fp8q: warning: %s\n",
                    cli->warnings.items[cli->warnings_shown].message);
        }
}

static void json_tail(struct cli *cli, int status)
{
    struct fp8q_jsonw *w = &cli->json;
    fp8q_jsonw_open(w, "warnings", '[');
    for (size_t i = 0; i < cli->warnings.count; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "id", cli->warnings.items[i].id);
        fp8q_jsonw_string(w, "message", cli->warnings.items[i].message);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_string(w, "status", status_word(status));
    if (status != FP8Q_OK) {
        fp8q_jsonw_open(w, "error", '{');
        fp8q_jsonw_string(w, "id", cli->error.id);
        fp8q_jsonw_string(w, "message", cli->error.message);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, '}');
}

int cli_end(struct cli *cli, int status)
{
    cli_progress_clear();
    cli_show_warnings(cli);
    if (status != FP8Q_OK)
        fprintf(stderr, "fp8q: %s: %s\n", status_word(status), cli->error.message);
    int code = exit_status(status);
    if (cli->as_json) {
        json_tail(cli, status);
        if (cli->json.text.failed) {
            fprintf(stderr, "fp8q: error: out of memory\n");
            code = 3;
        } else {
            fwrite(cli->json.text.data, 1, cli->json.text.len, stdout);
            putchar('\n');
        }
    }
    bool flushed = fflush(stdout) == 0;
    if (!flushed || ferror(stdout)) {
        fprintf(stderr, "fp8q: error: writing to standard output: %s\n",
                flushed ? "not all was taken" : strerror(errno));
        code = code ? code : 3;
    }
    fp8q_text_reset(&cli->json.text);
    fp8q_warnings_reset(&cli->warnings);
    return code;
}

int cli_usage_error(struct cli *cli, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(cli->error.message, sizeof(cli->error.message), fmt, args);
    va_end(args);
    snprintf(cli->error.id, sizeof(cli->error.id), "usage");
    cli->error.status = FP8Q_E_ARG;
    return cli_end(cli, FP8Q_E_ARG);
}

/* ---- options ------------------------------------------------------------------------------- */

static bool parse_uint(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (!*text)
        return false;
    for (; *text; text++)
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
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
    if (*text < '0' || *text > '9')
        return false;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (strcasecmp(end, units[i].suffix) == 0) {
            value *= units[i].unit;
            if (!(value >= 1 && value < 1e19))
                return false;
            *out = (uint64_t)value;
            return true;
        }
    return false;
}

static bool set_option(struct cli *cli, const struct cli_option *o, const char *value)
{
    char *end;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->target = true;
        return true;
    case CLI_TEXT:
        *(const char **)o->target = value;
        return true;
    case CLI_LIST: {
        struct cli_list *list = o->target;
        const char **items = realloc(list->items, (list->count + 1) * sizeof(*items));
        if (!items)
            return fp8q_fail_nomem(&cli->error) == FP8Q_OK;
        list->items = items;
        items[list->count++] = value;
        return true;
    }
    case CLI_UINT:
        if (parse_uint(value, o->target))
            return true;
        break;
    case CLI_NUMBER:
        *(double *)o->target = strtod(value, &end);
        if (*value && !*end)
            return true;
        break;
    case CLI_SIZE:
        if (parse_size(value, o->target))
            return true;
        break;
    }
    fp8q_fail(&cli->error, FP8Q_E_ARG, "usage", "--%s: expected %s, found \"%s\"", o->name,
              o->kind == CLI_SIZE ? "a size such as 512MiB or 5GB" : "a number", value);
    return false;
}

static void print_options(const struct cli_option *options)
{
    for (const struct cli_option *o = options; o->name; o++) {
        char head[64];
        if (!o->help)
            continue;
        if (o->letter)
            snprintf(head, sizeof(head), "-%c, --%s%s%s", o->letter, o->name, o->value ? " " : "",
                     o->value ? o->value : "");
        else
            snprintf(head, sizeof(head), "    --%s%s%s", o->name, o->value ? " " : "",
                     o->value ? o->value : "");
        const char *help = o->help, *line_end;
        printf("  %-28s", head);
        if (strlen(head) >= 28)
            printf("\n  %-28s", "");
        while ((line_end = strchr(help, '\n'))) {
            printf("%.*s\n  %-28s", (int)(line_end - help), help, "");
            help = line_end + 1;
        }
        printf("%s\n", help);
    }
}

static const struct cli_option *find_option(const struct cli_option *options, const char *name,
                                            size_t len, char letter)
{
    for (const struct cli_option *o = options; o && o->name; o++)
        if (letter ? o->letter == letter
                   : strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

bool cli_parse(struct cli *cli, int argc, char **argv, const char *usage,
               const struct cli_option *options, const char **operands, int min, int max,
               int *exit_out)
{
    const struct cli_option common[] = {
        {"json", 0, CLI_FLAG, &cli->as_json, NULL, "print one JSON object on standard output"},
        {"threads", 't', CLI_UINT, &cli->threads, "N",
         "threads (default: all CPUs that may be used)"},
        {"kernel", 0, CLI_TEXT, &cli->kernel, "NAME",
         "instruction set of the kernels (default: best)"},
        {"quiet", 'q', CLI_FLAG, &cli->quiet, NULL, "print nothing but errors"},
        {"verbose", 'v', CLI_FLAG, &cli->verbose, NULL, "print more"},
        {"help", 'h', CLI_FLAG, &cli->help, NULL, "print this text"},
        {.name = NULL}};
    int n = 0;
    bool options_end = false, failed = false;
    for (int i = 1; i < argc && !failed; i++) {
        char *arg = argv[i];
        if (options_end || arg[0] != '-' || arg[1] == '\0') {
            if (n == max) {
                *exit_out =
                    cli_usage_error(cli, "%s: unexpected operand \"%s\"", cli->command, arg);
                return false;
            }
            operands[n++] = arg;
            continue;
        }
        if (strcmp(arg, "--") == 0) {
            options_end = true;
            continue;
        }
        bool is_long = arg[1] == '-';
        const char *name = is_long ? arg + 2 : arg + 1, *value = NULL;
        const char *equals = is_long ? strchr(name, '=') : NULL;
        size_t len = equals ? (size_t)(equals - name) : strlen(name);
        const struct cli_option *o = find_option(options, name, len, is_long ? 0 : name[0]);
        if (!o)
            o = find_option(common, name, len, is_long ? 0 : name[0]);
        if (!o || (!is_long && o->kind == CLI_FLAG && name[1])) {
            *exit_out = cli_usage_error(cli, "%s: unknown option \"%s\"; see `fp8q %s --help`",
                                        cli->command, arg, cli->command);
            return false;
        }
        if (o->kind == CLI_FLAG ? equals != NULL : false) {
            *exit_out = cli_usage_error(cli, "--%s takes no value", o->name);
            return false;
        }
        if (o->kind != CLI_FLAG) {
            value = equals ? equals + 1 : !is_long && name[1] ? name + 1 : argv[++i];
            if (!value) {
                *exit_out = cli_usage_error(cli, "--%s needs a value (%s)", o->name, o->value);
                return false;
            }
        }
        failed = !set_option(cli, o, value);
    }
    if (failed) {
        *exit_out = cli_end(cli, cli->error.status);
        return false;
    }
    if (cli->help) {
        printf("%s\n\nOptions:\n", usage);
        print_options(options);
        print_options(common);
        cli->as_json = false;
        *exit_out = cli_end(cli, FP8Q_OK);
        return false;
    }
    if (n < min) {
        *exit_out =
            cli_usage_error(cli, "%s: %d operand%s expected, found %d; see `fp8q %s --help`",
                            cli->command, min, min == 1 ? "" : "s", n, cli->command);
        return false;
    }
    for (; n < max; n++)
        operands[n] = NULL;
    if (cli->threads == 0)
        cli->threads = fp8q_cpu_count();
    if (cli->threads > 1024)
        cli->threads = 1024;
    cli->draws = !cli->quiet && !cli->as_json && isatty(STDERR_FILENO);
    return true;
}
