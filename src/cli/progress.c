/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.c - one line on a terminal's stderr; nothing anywhere else.
 */
#include "cli/cli.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    const char *stage;
    double started, drawn; /* seconds */
    bool on_screen;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_progress(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    const struct cli *cli = ctx;
    if (cli->quiet || cli->as_json || total == 0 || !isatty(STDERR_FILENO))
        return;
    pthread_mutex_lock(&progress.lock);
    double t = now();
    if (!progress.stage || strcmp(progress.stage, stage) != 0) {
        progress.stage = stage;
        progress.started = t;
        progress.drawn = t;
    } else if (t - progress.drawn >= 0.1) {
        double seconds = t - progress.started;
        double rate = (double)done / seconds;
        double left = rate > 0 ? (double)(total - done) / rate : 0;
        char bytes[32];
        progress.drawn = t;
        progress.on_screen = true;
        fprintf(stderr, "\r\033[K%s %3.0f %%  %s/s  ETA %d:%02d", stage,
                100.0 * (double)done / (double)total, cli_bytes(bytes, (uint64_t)rate),
                (int)(left / 60), (int)left % 60);
        fflush(stderr);
    }
    pthread_mutex_unlock(&progress.lock);
}

void cli_progress_clear(void)
{
    pthread_mutex_lock(&progress.lock);
    if (progress.on_screen)
        fputs("\r\033[K", stderr);
    progress.on_screen = false;
    progress.stage = NULL;
    pthread_mutex_unlock(&progress.lock);
}
