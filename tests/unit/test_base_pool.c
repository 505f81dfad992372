/* SPDX-License-Identifier: Apache-2.0
 *
 * test_base_pool.c - workers that fail: nobody waits for ever, and the outcome does not depend on
 * timing.
 */
#include "support/support.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/pool.h"

enum { N_TASKS = 500 };

struct job {
    bool fails[N_TASKS];
    _Atomic unsigned runs[N_TASKS];
    unsigned cancel_at; /* task that cancels, or N_TASKS */
    struct fp8q_cancel cancel;
};

static int run_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct job *job = ctx;
    job->runs[task]++;
    for (unsigned i = 0; i < (unsigned)(task * 7 % 5) + worker % 2; i++)
        sched_yield(); /* in another order each time */
    if (task == job->cancel_at)
        fp8q_cancel(&job->cancel);
    if (!job->fails[task])
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_IO, "task", "task %llu", (unsigned long long)task);
}

static void the_lowest_failure_is_the_outcome(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (unsigned round = 0; round < 300; round++) {
        struct job job = {.cancel_at = N_TASKS};
        struct fp8q_error err = {0};
        uint64_t lowest = N_TASKS;
        char expected[32];
        unsigned n_threads = (unsigned)(random_u64(&seed) % 9);
        for (unsigned k = 0; k < round % 6; k++) {
            uint64_t task = random_u64(&seed) % N_TASKS;
            job.fails[task] = true;
            lowest = task < lowest ? task : lowest;
        }
        int status = fp8q_pool_run(NULL, n_threads, N_TASKS, run_task, &job, &err);
        for (uint64_t i = 0; i < N_TASKS; i++)
            assert_true(job.runs[i] == 1 || (i > lowest && job.runs[i] == 0));
        if (lowest == N_TASKS) {
            assert_ok(status, &err);
            continue;
        }
        snprintf(expected, sizeof(expected), "task %llu", (unsigned long long)lowest);
        assert_int_equal(status, FP8Q_E_IO);
        assert_string_equal(err.message, expected);
    }
}

static void a_cancel_ends_all(void **state)
{
    (void)state;
    for (unsigned n_threads = 1; n_threads <= 8; n_threads++) {
        struct job job = {.cancel_at = 100};
        const struct fp8q_watch watch = {.cancel = &job.cancel};
        struct fp8q_error err = {0};
        int status = fp8q_pool_run(&watch, n_threads, N_TASKS, run_task, &job, &err);
        assert_failed(status, FP8Q_E_CANCELLED, &err, "cancelled");
        assert_true(job.runs[N_TASKS - 1] == 0);
    }
}

static void no_tasks_and_no_threads(void **state)
{
    (void)state;
    struct job job = {.cancel_at = N_TASKS};
    struct fp8q_error err = {0};
    assert_ok(fp8q_pool_run(NULL, 4, 0, run_task, &job, &err), &err);
    assert_ok(fp8q_pool_run(NULL, 0, 1, run_task, &job, &err), &err);
    assert_true(job.runs[0] == 1 && job.runs[1] == 0);
    assert_true(fp8q_cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_failure_is_the_outcome),
        cmocka_unit_test(a_cancel_ends_all),
        cmocka_unit_test(no_tasks_and_no_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
