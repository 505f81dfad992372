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

#include "cli/cli.h"

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
    /* A closed pipe is an error of a write, checked like any other, not a silent death half-way. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* the write then fails with EFBIG, which is reported */
}

/* A standard stream that the caller closed would give its number to the next file that is opened,
 * and what is printed would go into that file.  Opened the wrong way round, so that using the
 * stream still fails as it should.  */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            _exit(3);
}

static int flushed(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "fp8q: error: writing to standard output: %s\n", strerror(errno));
    return 3;
}

static int print_help(void)
{
    puts("usage: fp8q COMMAND [options] ...\n\n"
         "Turns a safetensors checkpoint into a block-FP8 checkpoint that serving engines load\n"
         "unedited, and proves the result.\n\nCommands:");
    for (size_t i = 0; cli_commands[i]; i++)
        printf("  %-12s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    puts("\n`fp8q COMMAND --help` lists the options of a command.  Exit status: 0 done or passed,\n"
         "1 a check failed, 2 wrong request, 3 I/O error or malformed input, 4 policy violation,\n"
         "5 evidence missing, stale or inconclusive.");
    return flushed();
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    if (argc < 2) {
        fputs("fp8q: error: no command; see `fp8q --help`\n", stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("fp8q " FP8Q_VERSION);
        return flushed();
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return print_help();
    for (size_t i = 0; cli_commands[i]; i++) {
        if (strcmp(argv[1], cli_commands[i]->name) != 0)
            continue;
        struct cli cli = {.command = argv[1]};
        cli.progress = (struct fp8q_progress){cli_progress, &cli};
        cli.watch = (struct fp8q_watch){&cli.progress, &stop};
        fp8q_jsonw_open(&cli.json, NULL, '{');
        fp8q_jsonw_string(&cli.json, "fp8q", FP8Q_VERSION);
        fp8q_jsonw_string(&cli.json, "command", argv[1]);
        install_handlers();
        int code = cli_commands[i]->run(&cli, argc - 1, argv + 1);
        if (caught_signal) {
            signal(caught_signal, SIG_DFL);
            raise(caught_signal);
        }
        return code;
    }
    struct fp8q_shown shown;
    fprintf(stderr, "fp8q: error: unknown command \"%s\"; see `fp8q --help`\n",
            fp8q_show(&shown, argv[1]));
    return 2;
}
