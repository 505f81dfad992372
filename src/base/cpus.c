/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus.c - the affinity mask and the quotas of control groups.
 */
#include "base/cpus.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"

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
