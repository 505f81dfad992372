/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.c - one line on a terminal's stderr; nothing anywhere else.
 */
#include "cli/cli.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cli/format.h"

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

/* Work a second: bytes as a size, anything else as a number with its unit.  */
static const char *rate_text(char buf[64], double rate, enum fp8q_unit unit)
{
    static const char *const units[] = {"", "tokens", "steps", "tensors"};
    char bytes[32];

    if (unit == FP8Q_UNIT_BYTES)
        snprintf(buf, 64, "%s", cli_bytes(bytes, (uint64_t)rate));
    else
        snprintf(buf, 64, rate < 10 ? "%.1f %s" : "%.0f %s", rate, units[unit]);
    return buf;
}

/* "0:03", "1:02:03"; beyond a hundred hours nobody believes the figure.  */
static const char *eta_text(char buf[32], double seconds)
{
    if (!(seconds < 100 * 3600))
        return "?";

    unsigned s = (unsigned)seconds;
    if (s < 3600)
        snprintf(buf, 32, "%u:%02u", s / 60, s % 60);
    else
        snprintf(buf, 32, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    return buf;
}

static void draw(const char *stage, uint64_t done, uint64_t total, enum fp8q_unit unit,
                 double seconds)
{
    double rate = (double)done / seconds;
    double left = rate > 0 ? (double)(total - done) / rate : HUGE_VAL;
    char speed[64], eta[32];

    fprintf(stderr, "\r\033[K%s %3.0f %%  %s/s  ETA %s", stage,
            100.0 * (double)done / (double)total, rate_text(speed, rate, unit),
            eta_text(eta, left));
    fflush(stderr);
}

void cli_progress(void *ctx, const char *stage, uint64_t done, uint64_t total, enum fp8q_unit unit)
{
    const struct cli *cli = ctx;
    if (!cli->draws || total == 0)
        return;

    /* Shares of a stage are rounded, so the last ones may add up to a little more than all.  */
    done = fp8q_min_u64(done, total);

    pthread_mutex_lock(&progress.lock);
    double t = now();

    /* The beginning of a stage draws nothing: it has no rate yet.  */
    if (!progress.stage || strcmp(progress.stage, stage) != 0) {
        progress.stage = stage;
        progress.started = t;
        progress.drawn = t;
    } else if (t - progress.drawn >= 0.1) {
        /* At most ten times a second.  */
        progress.drawn = t;
        progress.on_screen = true;
        draw(stage, done, total, unit, t - progress.started);
    }
    pthread_mutex_unlock(&progress.lock);
}

void cli_progress_clear(void)
{
    pthread_mutex_lock(&progress.lock);
    if (progress.on_screen)
        fputs("\r\033[K", stderr);
    progress.on_screen = false;

    /* The next report begins its stage anew, and with it the rate.  */
    progress.stage = NULL;
    pthread_mutex_unlock(&progress.lock);
}
