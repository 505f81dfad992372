/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus.h - how many processors this process may use.
 */
#ifndef FP8Q_CPUS_H
#define FP8Q_CPUS_H

/* CPUs of the affinity mask, or fewer if a control group (a container's limit) grants less time; at
 * least 1.  */
unsigned fp8q_cpu_count(void);

/* CPUs that a quota of control groups amounts to, rounded up; 0 for "no limit" or what is no quota.
 * "MAX PERIOD" as in cpu.max: "150000 100000" is 2.  */
unsigned fp8q_cpus_of_quota(const char *text);

#endif
