/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.c - how far the work is: one line on a terminal's stderr, or a JSON object a line for the
 * program that started this one.
 */
#include "cli/cli.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/format.h"

static struct {
    pthread_mutex_t lock;
    const char *stage;
    double started, drawn; /* seconds */
    bool on_screen, ended; /* @ended: the end of @stage was told */
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
        snprintf(buf, 64, "%s", fp8q_show_bytes(bytes, (uint64_t)rate));
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

/* {"stage": "quantize", "done": 1, "total": 2, "unit": "bytes", "per_second": 3.5, "eta_seconds": 0}  */
static void tell(const char *stage, uint64_t done, uint64_t total, enum fp8q_unit unit,
                 double seconds)
{
    static const char *const units[] = {"bytes", "tokens", "steps", "tensors"};
    double rate = seconds > 0 ? (double)done / seconds : 0;
    struct fp8q_jsonw w = {.indent = 0};

    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "stage", stage);
    fp8q_jsonw_uint(&w, "done", done);
    fp8q_jsonw_uint(&w, "total", total);
    fp8q_jsonw_string(&w, "unit", units[unit]);
    fp8q_jsonw_number(&w, "per_second", rate);
    /* Not known before anything is done: null.  */
    fp8q_jsonw_number(&w, "eta_seconds", rate > 0 ? (double)(total - done) / rate : HUGE_VAL);
    fp8q_jsonw_close(&w, '}');

    /* One call, so that no other line comes between.  */
    if (fp8q_text_status(&w.text, NULL) == FP8Q_OK)
        fprintf(stderr, "%s\n", w.text.data);
    fp8q_text_reset(&w.text);
}

static void show(const struct cli *cli, const char *stage, uint64_t done, uint64_t total,
                 enum fp8q_unit unit, double t)
{
    progress.drawn = t;
    if (cli->progress_as == CLI_PROGRESS_JSON) {
        tell(stage, done, total, unit, t - progress.started);
    } else {
        progress.on_screen = true;
        draw(stage, done, total, unit, t - progress.started);
    }
}

void cli_progress(void *ctx, const char *stage, uint64_t done, uint64_t total, enum fp8q_unit unit)
{
    const struct cli *cli = ctx;
    if (cli->progress_as == CLI_PROGRESS_NONE || total == 0)
        return;

    /* Shares of a stage are rounded, so the last ones may add up to a little more than all.  */
    done = fp8q_min_u64(done, total);

    pthread_mutex_lock(&progress.lock);
    bool for_programs = cli->progress_as == CLI_PROGRESS_JSON;
    bool begins = !progress.stage || strcmp(progress.stage, stage) != 0;
    double t = now();

    if (begins) {
        progress.stage = stage;
        progress.started = t;
        progress.drawn = t;
        progress.ended = false;
    }

    /* At most ten times a second.  A line does not show the beginning, which has no rate yet, nor the
     * end, after which it is gone; a program wants to see both.  */
    bool ends = for_programs && done == total && !progress.ended;
    if ((begins && for_programs) || ends || t - progress.drawn >= 0.1)
        show(cli, stage, done, total, unit, t);
    progress.ended |= ends;
    pthread_mutex_unlock(&progress.lock);
}

void cli_progress_choose(struct cli *cli)
{
    /* Only on a terminal: in a log, a line that draws itself anew is noise.  */
    if (cli->progress_as == CLI_PROGRESS_AUTO)
        cli->progress_as = !cli->quiet && !cli->as_json && isatty(STDERR_FILENO)
                               ? CLI_PROGRESS_LINE
                               : CLI_PROGRESS_NONE;
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
