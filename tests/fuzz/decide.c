/* SPDX-License-Identifier: Apache-2.0
 *
 * decide.c - a decision on whatever could be parsed, and what must hold of it.
 */
#include "fuzz/decide.h"

#include <math.h>
#include <string.h>

#include "fuzz/fuzz.h"

struct halves halves_of(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *cut = size ? memchr(text, 0xFF, size) : NULL;
    if (!cut)
        return (struct halves){{text, text}, {size, size}};

    size_t before = (size_t)(cut - text);
    return (struct halves){{text, cut + 1}, {before, size - before - 1}};
}

void require_status(int status, const struct fp8q_error *err)
{
    FUZZ_REQUIRE(status == FP8Q_OK || (err->id[0] && err->message[0]));
}

struct fp8q_policy quick_policy(void)
{
    struct fp8q_policy policy;
    fp8q_policy_default(&policy);
    policy.resamples = 100;
    return policy;
}

static void require_sense(const struct fp8q_gate *gate)
{
    for (size_t i = 0; i < gate->n_checks; i++) {
        const struct fp8q_gate_check *c = &gate->checks[i];
        FUZZ_REQUIRE(c->id && c->message);

        /* What passes a limit has a finite estimate and an upper bound within it.  */
        FUZZ_REQUIRE(c->verdict != FP8Q_VERDICT_PASS || isnan(c->limit) ||
                     (c->observed <= c->limit && c->high <= c->limit));
    }
}

void decide(const struct fp8q_policy *policy, const struct fp8q_evidence *evidence,
            const struct fp8q_evidence *baseline, const struct fp8q_task_result *base,
            const struct fp8q_task_result *quant)
{
    const struct fp8q_gate_task pair = {"task", base, quant, true};
    struct fp8q_gate_request request = {.policy = policy,
                                        .evidence = evidence,
                                        .n_evidence = evidence != NULL,
                                        .baselines = baseline,
                                        .n_baselines = baseline != NULL,
                                        .tasks = &pair,
                                        .n_tasks = base && quant};
    struct fp8q_error err = {0};
    struct fp8q_gate gate;

    if (evidence) {
        request.facts.output = evidence->output;
        request.facts.source = evidence->source;
        request.facts.config = evidence->config;
        request.now = evidence->created;
    }
    FUZZ_REQUIRE(fp8q_gate(&request, &gate, &err) == FP8Q_OK);
    require_sense(&gate);
    fp8q_gate_reset(&gate);
}
