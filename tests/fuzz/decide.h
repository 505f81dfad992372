/* SPDX-License-Identifier: Apache-2.0
 *
 * decide.h - the gate over what was parsed: what fuzz_policy.c, fuzz_evidence.c and fuzz_tasks.c
 * share.
 */
#ifndef FP8Q_TESTS_DECIDE_H
#define FP8Q_TESTS_DECIDE_H

#include "gate/gate.h"

/* An input in two halves: what stands before and behind its first 0xFF, a byte that is in no text.
 * Without one, both are the whole.  */
struct halves {
    const char *text[2];
    size_t len[2];
};
struct halves halves_of(const uint8_t *data, size_t size);

/* A failure says what and why.  */
void require_status(int status, const struct fp8q_error *err);
/* The defaults, with few resamples.  */
struct fp8q_policy quick_policy(void);

/* Decides on what is there (NULL: nothing), as if evidence and checkpoint were of the same bytes.
 * No check passes whose figure is no number or beyond its limit.  */
void decide(const struct fp8q_policy *policy, const struct fp8q_evidence *evidence,
            const struct fp8q_evidence *baseline, const struct fp8q_task_result *base,
            const struct fp8q_task_result *quant);

#endif
