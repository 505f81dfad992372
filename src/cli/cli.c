/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.c - output and exit status for all commands.
 */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal.h"

/* ---- exit status --------------------------------------------------------------------------- */

/* docs/fp8q.1 "EXIT STATUS".  */
static int exit_status(int status)
{
    /* No default, so that the compiler tells of a status without a case.  */
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

    /* Not reached with a status of the enum.  */
    return 3;
}

static const char *status_word(int status)
{
    if (status == FP8Q_OK)
        return "ok";

    /* These are answers to what was asked; all else kept the command from giving one.  */
    return status == FP8Q_E_MISMATCH || status == FP8Q_E_POLICY || status == FP8Q_E_EVIDENCE
               ? "fail"
               : "error";
}

/* ---- begin ---------------------------------------------------------------------------------- */

/* Known before the options are parsed, so that what is wrong with them is told as JSON too.  */
static bool asks_for_json(int argc, char **argv)
{
    /* What stands behind "--" are operands.  */
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

void cli_begin(struct cli *cli, int argc, char **argv, const struct fp8q_cancel *cancel)
{
    *cli = (struct cli){.argc = argc, .argv = argv};
    cli->as_json = asks_for_json(argc, argv);
    if (argc > 0 && argv[0][0] != '-')
        cli->command = argv[0];

    cli->progress = (struct fp8q_progress){cli_progress, cli};
    cli->watch = (struct fp8q_watch){&cli->progress, cancel};
    fp8q_run_init(&cli->run);
    cli->run.progress = &cli->progress;
    cli->run.cancel = cancel;

    /* Closed by json_tail(): however the command ends, the object is whole.  */
    fp8q_jsonw_open(&cli->json, NULL, '{');
    fp8q_jsonw_string(&cli->json, "fp8q", fp8q_version());
    fp8q_jsonw_string(&cli->json, "command", cli->command);
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

/* Bytes of @line that fit into @columns and end before a blank, the first word at least.  Escape sequences (ESC [ ... m) take no room, nor do the later bytes of a character.  */
static size_t fitting(const char *line, unsigned columns)
{
    unsigned used = 0;
    size_t cut = 0, i = 0;

    for (; line[i] && (used <= columns || cut == 0); i++) {
        if (line[i] == '\033') {
            i += strcspn(line + i, "m");
            continue;
        }
        if (line[i] == ' ' && i > 0 && line[i - 1] != ' ')
            cut = i;
        used += ((unsigned char)line[i] & 0xC0) != 0x80;
    }
    return used <= columns || cut == 0 ? strlen(line) : cut;
}

void cli_print_wrapped(struct cli *cli, unsigned hang, const char *fmt, ...)
{
    enum { LEAST = 24 }; /* of a line; what is narrower the terminal breaks */
    unsigned columns = cli_columns();
    char *text = NULL;
    va_list args;
    if (cli->as_json || cli->quiet)
        return;

    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0)
        return; /* without memory: what follows will say it */

    /* The first line as it is, all others behind @hang blanks.  */
    unsigned room = columns;
    for (const char *at = text;; room = columns - hang) {
        size_t len = columns >= hang + LEAST ? fitting(at, room) : strlen(at);
        printf("%.*s\n", (int)len, at);

        at += len + strspn(at + len, " ");
        if (!*at)
            break;
        printf("%*s", (int)hang, "");
    }
    free(text);
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

    /* By the convention of NO_COLOR: set, and not empty.  */
    if (!isatty(STDOUT_FILENO) || (no_color && *no_color))
        return "";
    return codes[style];
}

void cli_show_warnings(struct cli *cli)
{
    /* Each of them once: commands show them when they come, cli_end() shows the rest.  */
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

    /* A command that failed in the middle of a list returned at once.  */
    fp8q_jsonw_close_to(w, 1);

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

/* Whoever was to read standard output has closed its end of the pipe, as `head` does.  */
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

int cli_flush(void)
{
    /* A full disk under a redirection shows only now; work that is done is no excuse.  */
    bool flushed = fflush(stdout) == 0;
    if (flushed && !ferror(stdout))
        return 0;

    /* Who has read enough wants to hear no more.  */
    const char *why = flushed ? "not all was taken" : strerror(errno);
    if (!reader_is_gone())
        fprintf(stderr, "fp8q: error: writing to standard output: %s\n", why);
    return 3;
}

int cli_end(struct cli *cli, int status)
{
    cli_progress_clear();
    cli_show_warnings(cli);

    /* With --json too: a log that has no standard output still says why.  */
    if (status != FP8Q_OK)
        fprintf(stderr, "fp8q: %s: %s\n", status_word(status), cli->error.message);

    int code = exit_status(status);

    if (cli->as_json) {
        json_tail(cli, status);
        /* Half an object is worse than none.  */
        if (cli->json.text.failed) {
            fprintf(stderr, "fp8q: error: out of memory\n");
            code = 3;
        } else {
            fwrite(cli->json.text.data, 1, cli->json.text.len, stdout);
            putchar('\n');
        }
    }

    /* An earlier failure is the one to tell.  */
    int arrived = cli_flush();
    code = code ? code : arrived;

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
