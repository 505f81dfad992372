/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h - what the commands share: option tables, output, progress, exit status.
 *
 * A command is one file: a static option table, a usage text and a run function.  It calls the
 * library, fills cli->json with its members, and returns cli_end().  Only files of this directory
 * print.
 */
#ifndef FP8Q_CLI_H
#define FP8Q_CLI_H

#include "base/watch.h"
#include "format/jsonw.h"

enum cli_kind {
    CLI_FLAG,   /* bool: set to true */
    CLI_TEXT,   /* const char * */
    CLI_LIST,   /* struct cli_list: may be given again */
    CLI_UINT,   /* uint64_t, decimal */
    CLI_NUMBER, /* double */
    CLI_SIZE /* uint64_t bytes: 500MB, 5GB (decimal, as Hugging Face), 512MiB, 1GiB, plain bytes */
};

struct cli_list {
    const char **items;
    size_t count;
};

struct cli_option {
    const char *name; /* "ignore" for --ignore */
    char letter;      /* 'o' for -o, or 0 */
    enum cli_kind kind;
    void *target;
    const char *value; /* how help calls the value: "PAT" */
    const char *help;  /* one or more lines ('\n'); NULL: an alias that help leaves out */
};

/* State of one run; @json collects the members of the one JSON object that --json prints.  */
struct cli {
    const char *command;
    bool as_json, quiet, verbose, help;
    bool draws;         /* progress: standard error is a terminal, and neither -q nor --json */
    uint64_t threads;   /* 0: all CPUs that the process may use */
    const char *kernel; /* NULL: best */
    struct fp8q_warnings warnings;
    size_t warnings_shown;
    struct fp8q_error error;
    struct fp8q_progress progress;
    struct fp8q_watch watch; /* handed to everything that works long */
    struct fp8q_jsonw json;  /* open object; "fp8q" and "command" are written already */
};

struct cli_command {
    const char *name;
    int (*run)(struct cli *cli, int argc,
               char **argv); /* argv[0] is the command's name; returns an exit status */
    const char *summary;     /* one line for `fp8q --help` */
};
extern const struct cli_command *const cli_commands[]; /* NULL-terminated, in the order of help */

/* Parses options of @options (NULL-name-terminated) and the common ones; operands go to @operands
 * (at most @max, the rest is an error, fewer than @min too).  `--help` prints @usage and the table.
 * Returns 0 to go on, else the command must return *@exit_out.  */
bool cli_parse(struct cli *cli, int argc, char **argv, const char *usage,
               const struct cli_option *options, const char **operands, int min, int max,
               int *exit_out);

/* Text for people on stdout; nothing with --json or -q.  */
void cli_print(struct cli *cli, const char *fmt, ...) FP8Q_PRINTF(2, 3);
/* Same, but only with -v.  */
void cli_print_verbose(struct cli *cli, const char *fmt, ...) FP8Q_PRINTF(2, 3);
/* Escape sequences for stdout ("" unless it is a terminal and NO_COLOR is unset).  */
enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_GOOD, CLI_BAD, CLI_DIM };
const char *cli_style(enum cli_style style);
/* "3.35 GB" (decimal).  @buf has room for 32 bytes.  */
const char *cli_bytes(char *buf, uint64_t bytes);
/* Prints warnings that were added since the last call to stderr (unless -q).  */
void cli_show_warnings(struct cli *cli);

/* Progress on stderr, only if that is a terminal and neither -q nor --json was given.  Safe to call
 * from any thread; draws at most ten times a second: "quantize  42 %  1.2 GB/s  ETA 0:03".  The
 * update function of cli->progress.  */
void cli_progress(void *ctx, const char *stage, uint64_t done, uint64_t total, enum fp8q_unit unit);
void cli_progress_clear(void);

/* Ends a command: shows warnings and the error (stderr), prints the JSON object, flushes stdout and
 * checks that it arrived.  @status is the library's; returns the exit status.  */
int cli_end(struct cli *cli, int status);
/* Usage error: message to stderr, exit status 2.  */
int cli_usage_error(struct cli *cli, const char *fmt, ...) FP8Q_PRINTF(2, 3);

#endif
