/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c - a shared counter hands out tasks, nothing is queued; and how many processors there are.
 */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_env.h"
#include "base/io.h"
#include "base/mem.h"

struct pool {
    pthread_mutex_t lock; /* guards all below */
    uint64_t next, limit; /* tasks at or beyond @limit are not started */
    int status;
    struct fp8q_error error;
    const struct fp8q_watch *watch;
    fp8q_task_fn *run;
    void *ctx;
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    unsigned index;
};

static int run_task(const struct pool *pool, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_watch_check(pool->watch, err));
    return pool->run(pool->ctx, worker, task, err);
}

/* Of several failures the lowest task's is told: every lower one was taken before, and is heard.  */
static void note_failure(struct pool *pool, uint64_t task, int status,
                         const struct fp8q_error *error)
{
    pthread_mutex_lock(&pool->lock);
    if (task < pool->limit) {
        pool->limit = task;
        pool->status = status;
        pool->error = *error;
    }
    pthread_mutex_unlock(&pool->lock);
}

static __attribute__((noinline)) void take_tasks(struct worker *self)
{
    struct pool *pool = self->pool;

    for (;;) {
        pthread_mutex_lock(&pool->lock);
        uint64_t task = pool->next < pool->limit ? pool->next++ : UINT64_MAX;
        pthread_mutex_unlock(&pool->lock);

        if (task == UINT64_MAX)
            return;

        struct fp8q_error error = {0};
        int status = run_task(pool, self->index, task, &error);
        if (status != FP8Q_OK)
            note_failure(pool, task, status, &error);
    }
}

/* A thread inherits the floating-point mode of the host program, and so does what runs in it.  */
static void *work(void *arg)
{
    uint64_t mode = fp8q_float_env_enter();

    take_tasks(arg);
    fp8q_float_env_leave(mode);
    return NULL;
}

int fp8q_pool_run(const struct fp8q_watch *watch, unsigned n_threads, uint64_t n_tasks,
                  fp8q_task_fn *run, void *ctx, struct fp8q_error *err)
{
    struct pool pool = {.limit = n_tasks, .watch = watch, .run = run, .ctx = ctx};

    if (n_threads > n_tasks)
        n_threads = (unsigned)n_tasks;
    if (n_threads == 0)
        n_threads = 1;

    struct worker *workers = calloc(n_threads, sizeof(*workers));
    if (!workers)
        return fp8q_fail_nomem(err);

    pthread_mutex_init(&pool.lock, NULL);
    unsigned started = 0;
    for (unsigned i = 0; i < n_threads; i++)
        workers[i] = (struct worker){.pool = &pool, .index = i};

    /* Fewer threads than asked for is slower, not wrong.  */
    for (unsigned i = 1; i < n_threads; i++)
        if (pthread_create(&workers[started + 1].thread, NULL, work, &workers[started + 1]) == 0)
            started++;

    work(&workers[0]);
    for (unsigned i = 1; i <= started; i++)
        pthread_join(workers[i].thread, NULL);

    pthread_mutex_destroy(&pool.lock);
    free(workers);

    if (pool.status != FP8Q_OK && err)
        *err = pool.error;
    return pool.status;
}

/* ---- processors ------------------------------------------------------------------------------ */

#define CGROUPS "/sys/fs/cgroup"

/* A fixed cpu_set_t ends at 1,024 CPUs, and the call fails on a machine with more.  */
static unsigned cpus_of_mask(void)
{
    for (size_t most = CPU_SETSIZE; most <= CPU_SETSIZE * 64; most *= 2) {
        cpu_set_t *set = CPU_ALLOC(most);
        size_t size = CPU_ALLOC_SIZE(most);
        if (!set)
            return 1;

        int result = sched_getaffinity(0, size, set);
        int count = result == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (count > 0)
            return (unsigned)count;
    }
    return 1;
}

unsigned fp8q_cpus_of_quota(const char *text)
{
    unsigned long long quota = 0, period = 0;

    if (*text < '0' || *text > '9') /* "max", or -1 */
        return 0;
    if (sscanf(text, "%llu %llu", &quota, &period) != 2 || quota == 0 || period == 0)
        return 0;
    return (unsigned)fp8q_min_u64(fp8q_ceil_div(quota, period), UINT16_MAX);
}

/* The quota of one group, in either version of control groups; 0 for none.  */
static unsigned cpus_of_group(const char *group)
{
    char path[512], max[64] = "", period[32] = "";

    snprintf(path, sizeof(path), CGROUPS "%s/cpu.max", group);
    if (fp8q_read_line(path, max, sizeof(max)))
        return fp8q_cpus_of_quota(max);

    snprintf(path, sizeof(path), CGROUPS "/cpu%s/cpu.cfs_quota_us", group);
    bool there = fp8q_read_line(path, max, sizeof(max) / 2);
    snprintf(path, sizeof(path), CGROUPS "/cpu%s/cpu.cfs_period_us", group);
    if (!there || !fp8q_read_line(path, period, sizeof(period)) || *max == '-')
        return 0;
    strcat(max, " ");
    strcat(max, period);
    return fp8q_cpus_of_quota(max);
}

/* This process's group ("0::/a/b", in a container mostly "0::/"), and every group above it.  */
static unsigned cpus_of_groups(void)
{
    char line[256], *group = NULL;
    unsigned least = 0;

    if (fp8q_read_line("/proc/self/cgroup", line, sizeof(line)) && strncmp(line, "0::", 3) == 0)
        group = line + 3;
    for (;;) {
        unsigned n = cpus_of_group(group && strcmp(group, "/") != 0 ? group : "");
        if (n && (!least || n < least))
            least = n;
        char *slash = group ? strrchr(group, '/') : NULL;
        if (!slash)
            return least;
        *slash = '\0';
    }
}

unsigned fp8q_cpu_count(void)
{
    unsigned mask = cpus_of_mask(), groups = cpus_of_groups();

    return groups && groups < mask ? groups : mask;
}
