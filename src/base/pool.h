/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h - runs numbered tasks on a fixed number of threads.
 */
#ifndef FP8Q_POOL_H
#define FP8Q_POOL_H

#include "base/watch.h"

/* One task.  @worker is 0..n_threads-1 and never runs two tasks at once, so it can own scratch
 * memory.  */
typedef int fp8q_task_fn(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err);

/* Runs tasks 0..@n_tasks-1, each taken in rising order by the next free worker, on @n_threads
 * threads (the caller is one of them).  After a failure, or when @watch (NULL allowed) asks to
 * stop, no later task starts; the failure of the lowest task is returned, so the outcome does not
 * depend on timing.  */
int fp8q_pool_run(const struct fp8q_watch *watch, unsigned n_threads, uint64_t n_tasks,
                  fp8q_task_fn *run, void *ctx, struct fp8q_error *err);

/* CPUs of the affinity mask, or fewer if a control group (a container's limit) grants less time; at
 * least 1.  */
unsigned fp8q_cpu_count(void);

/* CPUs that a quota of control groups amounts to, rounded up; 0 for "no limit" or what is no quota.
 * "MAX PERIOD" as in cpu.max: "150000 100000" is 2.  */
unsigned fp8q_cpus_of_quota(const char *text);

#endif
