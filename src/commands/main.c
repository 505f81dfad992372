/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - the command table and signals.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/dir.h"
#include "cli/cli.h"
#include "cli/complete.h"
#include "cli/suggest.h"
#include "commands/commands.h"

/* Every command, in the order of help.  */
const struct cli_command cli_commands[] = {
    {"quantize", cmd_quantize, "convert a checkpoint to block-FP8"},
    {"finish", cmd_finish, "end a conversion whose parts ran separately"},
    {"verify", cmd_verify, "prove a checkpoint, alone or against its source"},
    {"inspect", cmd_inspect, "show what a file or directory holds"},
    {"check", cmd_check, "which engine loads a checkpoint, and what would have to change"},
    {"dequantize", cmd_dequantize, "convert an FP8 checkpoint back to high precision"},
    {"families", cmd_families, "print the tables of architectures"},
    {"compare", cmd_compare, "error and size of FP8, INT8 and INT4 on the weights of a checkpoint"},
    {"calibrate", cmd_calibrate, "statistics of the inputs of linears"},
    {"eval", cmd_eval, "how far the outputs of two checkpoints differ"},
    {"drift", cmd_drift, "whether the distribution of inputs has moved"},
    {"sweep", cmd_sweep, "what each module costs; splits by budget"},
    {"gate", cmd_gate, "one decision from verify, evidence of eval, and task results"},
    {"report", cmd_report, "all that is known of a checkpoint, as a page or a model card"},
    {"bench", cmd_bench, "measure this machine and a conversion on it"},
    {NULL, NULL, NULL},
};

/* The first signal asks the library to stop, so that it removes what it began; the program then
 * dies of that signal, as a shell expects.  A later one kills at once; not one within the next
 * second or two, since timeout(1) and others signal a process and then its whole group.  */
static volatile sig_atomic_t caught_signal, caught_at;
static struct fp8q_cancel stop;

static void on_signal(int number)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);

    if (caught_signal && (sig_atomic_t)now.tv_sec - caught_at > 1) {
        signal(number, SIG_DFL);
        raise(number); /* blocked until this handler returns */
        return;
    }

    if (!caught_signal) {
        caught_signal = number;
        caught_at = (sig_atomic_t)now.tv_sec;
    }

    fp8q_cancel(&stop);
}

static void install_handlers(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    const int signals[] = {SIGINT, SIGTERM, SIGHUP};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        struct sigaction old;
        /* A signal that the caller had ignored (nohup, background jobs) stays ignored.  */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

/* A standard stream that the caller closed would give its number to the next file that is opened,
 * and what is printed would go into that file.  Opened the wrong way round, so that using the
 * stream still fails as it should.  */
static void hold_standard_streams(void)
{
    /* open() takes the lowest number that is free: this one, as those below it are held.  */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            _exit(3);
}

static int print_help(void)
{
    puts("usage: fp8q COMMAND [options] ...\n\n"
         "Turns a safetensors checkpoint into a block-FP8 checkpoint that serving engines load\n"
         "unedited, and proves the result.\n\nCommands:");
    for (size_t i = 0; cli_commands[i].name; i++)
        printf("  %-12s %s\n", cli_commands[i].name, cli_commands[i].summary);

    puts("\n`fp8q COMMAND --help` explains a command, --help-all with every option.\n"
         "Exit status: 0 done or passed, 1 a check failed, 2 wrong request, 3 I/O error or "
         "malformed\n"
         "input, 4 policy violation, 5 evidence missing, stale or inconclusive.\n\n"
         "Example: fp8q quantize Qwen3-4B && fp8q verify Qwen3-4B-FP8 --source Qwen3-4B");
    return cli_flush();
}

static const struct cli_command *find_command(const char *name)
{
    for (size_t i = 0; cli_commands[i].name; i++)
        if (strcmp(name, cli_commands[i].name) == 0)
            return &cli_commands[i];
    return NULL;
}

/* No command of that name: says so, also as JSON, and which was probably meant.  */
static int fail_command(struct cli *cli, const char *name)
{
    struct cli_suggestion near = {0};
    struct cli_hint hint;
    struct fp8q_shown shown;
    struct stat st;
    bool there;
    fp8q_show(&shown, name);

    for (size_t i = 0; cli_commands[i].name; i++)
        cli_suggest_offer(&near, name, cli_commands[i].name);

    /* Options are offered too: the first word may be a slip of one of these.  */
    cli_suggest_offer(&near, name, "--version");
    cli_suggest_offer(&near, name, "--help");

    /* Somebody who begins with the checkpoint wants it converted.  */
    if (!near.best && fp8q_stat(name, &st, &there, NULL) == FP8Q_OK && there)
        return cli_usage_error(cli, "\"%s\" is no command; did you mean `fp8q quantize %s`?",
                               shown.text, shown.text);
    return cli_usage_error(cli, "unknown %s \"%s\"%s; see `fp8q --help`",
                           name[0] == '-' ? "option" : "command", shown.text,
                           cli_suggest_hint(&near, "", &hint));
}

static int run_command(struct cli *cli, const struct cli_command *command)
{
    /* Only now: before a command runs there is nothing to clean up.  */
    install_handlers();
    int code = command->run(cli);

    /* A shell whose child dies of SIGINT ends its script; after an exit status it would go on.  */
    if (caught_signal) {
        signal(caught_signal, SIG_DFL);
        raise(caught_signal);
    }
    return code;
}

/* `fp8q __complete WORD...`: what may stand in place of the last WORD, for the completions of shells
 * (tools/package/completions).  Not in the help: nobody types it.  */
static int complete_line(int argc, char **argv)
{
    struct cli cli;
    const struct cli_command *command = argc > 1 ? find_command(argv[0]) : NULL;

    if (argc == 1 || (argc == 2 && strcmp(argv[0], "help") == 0))
        for (size_t i = 0; cli_commands[i].name; i++)
            cli_complete_word("", cli_commands[i].name, argv[argc - 1], cli_commands[i].summary);

    if (argc == 1) {
        cli_complete_word("--", "help", argv[0], "list the commands");
        cli_complete_word("--", "version", argv[0], "print the version");
    }
    if (!command)
        return cli_flush();

    cli_begin(&cli, argc, argv, &stop);
    cli.complete = cli_complete;
    return command->run(&cli);
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

int main(int argc, char **argv)
{
    static char help[] = "--help";
    char *help_of[] = {NULL, help, NULL};
    struct cli cli;
    hold_standard_streams();
    /* A closed pipe is an error of a write, checked like any other, not a silent death half-way. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* the write then fails with EFBIG, which is reported */

    /* For people a help, for a script a failure.  */
    if (argc < 2) {
        int failed = print_help();
        return failed ? failed : 2;
    }

    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("fp8q %s\n", fp8q_version());
        return cli_flush();
    }

    if (strcmp(argv[1], "__complete") == 0)
        return complete_line(argc - 2, argv + 2);

    /* `help` with a word behind it asks for the help of that command.  */
    if (is_help(argv[1]) && (argc == 2 || argv[1][0] == '-'))
        return print_help();

    /* `fp8q help quantize` is `fp8q quantize --help`.  */
    argv++;
    argc--;
    if (strcmp(argv[0], "help") == 0) {
        help_of[0] = argv[1];
        argv = help_of;
        argc = 2;
    }

    cli_begin(&cli, argc, argv, &stop);
    const struct cli_command *command = find_command(argv[0]);

    /* As the first word it was seen by cli_begin(), so this is told as JSON.  */
    if (!command && strcmp(argv[0], "--json") == 0)
        return cli_usage_error(&cli, "no command before --json; see `fp8q --help`");
    if (!command)
        return fail_command(&cli, argv[0]);
    return run_command(&cli, command);
}
