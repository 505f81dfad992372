/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h - what the commands share: the state of one run, its output and its exit status.
 *
 * A command is one function in a file of its own: it parses (options.h), calls the library, fills
 * cli->json with its members, and returns cli_end().  Only files of cli/ and commands/ print.
 */
#ifndef FP8Q_CLI_H
#define FP8Q_CLI_H

#include "base/watch.h"
#include "format/jsonw.h"

enum { CLI_MOST_OPTIONS = 48 };

struct cli_option;
struct cli_syntax;

/* How progress is shown on standard error: a line on a terminal, a JSON object a line, or not.  */
enum cli_progress_as { CLI_PROGRESS_AUTO, CLI_PROGRESS_JSON, CLI_PROGRESS_LINE, CLI_PROGRESS_NONE };

/* State of one run; @json collects the members of the one JSON object that --json prints.  */
struct cli {
    const char *command;
    int argc;
    char **argv; /* of the command: argv[0] is its name */

    bool as_json, quiet, verbose, help, help_all;
    unsigned progress_as;                /* enum cli_progress_as, once parsed */
    uint64_t threads;                    /* after cli_parse(): at least 1 */
    const char *kernel;                  /* NULL: the best; after cli_parse() one that is usable */
    const char *given[CLI_MOST_OPTIONS]; /* names of the options that were given */
    size_t n_given;

    /* Not NULL: the line is unfinished, and this answers what may stand at its end.  */
    void (*complete)(struct cli *cli, const struct cli_syntax *syntax,
                     const struct cli_option *common);

    struct fp8q_warnings warnings;
    size_t warnings_shown;
    struct fp8q_error error;
    struct fp8q_progress progress;
    struct fp8q_watch watch; /* handed to everything that works long */
    struct fp8q_run run;     /* the same, threads and kernel, for calls of fp8q.h */
    struct fp8q_jsonw json;  /* open object; "fp8q" and "command" are written already */
};

struct cli_command {
    const char *name;
    int (*run)(struct cli *cli); /* returns an exit status */
    const char *summary;         /* one line for `fp8q --help` */
};
extern const struct cli_command cli_commands[]; /* ends without a name, in the order of help */

/* Begins a run: the watch, and the object that --json prints.  @cancel outlives it.  */
void cli_begin(struct cli *cli, int argc, char **argv, const struct fp8q_cancel *cancel);

/* Text for people on stdout; nothing with --json or -q.  */
void cli_print(struct cli *cli, const char *fmt, ...) FP8Q_PRINTF(2, 3);
/* Same, for one line: on a terminal it breaks at blanks where the width ends, and goes on @hang columns from
 * the left.  */
void cli_print_wrapped(struct cli *cli, unsigned hang, const char *fmt, ...) FP8Q_PRINTF(3, 4);
/* Same, but only with -v.  */
void cli_print_verbose(struct cli *cli, const char *fmt, ...) FP8Q_PRINTF(2, 3);
/* Escape sequences for stdout ("" unless it is a terminal and NO_COLOR is unset).  */
enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_GOOD, CLI_BAD, CLI_DIM };
const char *cli_style(enum cli_style style);
/* Prints warnings that were added since the last call to stderr (unless -q).  */
void cli_show_warnings(struct cli *cli);

/* Progress on stderr, as cli->progress_as says.  Safe to call from any thread; shows at most ten
 * reports a second: "quantize  42 %  1.2 GB/s  ETA 0:03".  The update function of cli->progress.  */
void cli_progress(void *ctx, const char *stage, uint64_t done, uint64_t total, enum fp8q_unit unit);
/* What AUTO stands for: a line if stderr is a terminal, and neither -q nor --json was given.  */
void cli_progress_choose(struct cli *cli);
void cli_progress_clear(void);

/* Flushes stdout and checks that it arrived: 0, or exit status 3 after a message, which a closed pipe
 * does not get.  */
int cli_flush(void);
/* Ends a command: shows warnings and the error (stderr), prints the JSON object, flushes stdout and
 * checks that it arrived.  @status is the library's; returns the exit status.  */
int cli_end(struct cli *cli, int status);
/* Wrong request: message to stderr, exit status 2.  */
int cli_usage_error(struct cli *cli, const char *fmt, ...) FP8Q_PRINTF(2, 3);

#endif
