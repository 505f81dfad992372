/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c - a shared counter hands out tasks; nothing is queued.
 */
#include "base/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/float_env.h"

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
        int status = fp8q_watch_check(pool->watch, &error);
        if (status == FP8Q_OK)
            status = pool->run(pool->ctx, self->index, task, &error);
        if (status == FP8Q_OK)
            continue;

        pthread_mutex_lock(&pool->lock);
        if (task < pool->limit) { /* every lower task has been taken already and will be heard */
            pool->limit = task;
            pool->status = status;
            pool->error = error;
        }
        pthread_mutex_unlock(&pool->lock);
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
