/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_gate.c - policy, evidence and task results: refused with a message, or the gate decides on
 * them without a figure that is no number of its check.
 */
#include <math.h>

#include "fuzz/fuzz.h"
#include "gate/gate.h"

static void require_status(int status, const struct fp8q_error *err)
{
    FUZZ_REQUIRE(status == FP8Q_OK || (err->id[0] && err->message[0]));
}

static void decide(const struct fp8q_policy *policy, const struct fp8q_evidence *evidence,
                   const struct fp8q_task_result *task)
{
    /* As two files of the same scores; with equal content it would end there.  */
    struct fp8q_task_result quant = task ? *task : (struct fp8q_task_result){0};
    quant.content_len = 0;
    const struct fp8q_gate_task pair = {"task", task, &quant, true};
    const struct fp8q_gate_request request = {
        .policy = policy,
        .facts = {.output = evidence ? evidence->output : (struct fp8q_fingerprint){0},
                  .source = evidence ? evidence->source : (struct fp8q_fingerprint){0},
                  .config = evidence ? evidence->config : (struct fp8q_fingerprint){0}},
        .evidence = evidence,
        .n_evidence = evidence != NULL,
        .baselines = evidence,
        .n_baselines = evidence != NULL,
        .tasks = &pair,
        .n_tasks = task != NULL,
        .now = evidence ? evidence->created : 0};
    struct fp8q_error err = {0};
    struct fp8q_gate gate;
    FUZZ_REQUIRE(fp8q_gate(&request, &gate, &err) == FP8Q_OK);
    for (size_t i = 0; i < gate.n_checks; i++) {
        const struct fp8q_gate_check *c = &gate.checks[i];
        FUZZ_REQUIRE(c->id && c->message);
        /* What passes a limit has a finite estimate and an upper bound within it.  */
        FUZZ_REQUIRE(c->verdict != FP8Q_VERDICT_PASS || isnan(c->limit) ||
                     (c->observed <= c->limit && c->high <= c->limit));
    }
    fp8q_gate_reset(&gate);
}

static void print_and_read(const struct fp8q_policy *policy)
{
    struct fp8q_jsonw w = {.indent = 1};
    struct fp8q_policy again;
    struct fp8q_error err = {0};
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_policy_write(&w, policy);
    fp8q_jsonw_close(&w, '}');
    FUZZ_REQUIRE(fp8q_text_status(&w.text, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_policy_parse(w.text.data, w.text.len, "printed", &again, &err) == FP8Q_OK);
    fp8q_policy_reset(&again);
    fp8q_text_reset(&w.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct fp8q_error err = {0};
    struct fp8q_policy policy, given;
    struct fp8q_evidence evidence;
    struct fp8q_task_result task;
    fp8q_policy_default(&policy);
    policy.resamples = 100;
    int status = fp8q_policy_parse(text, size, "input", &given, &err);
    require_status(status, &err);
    if (status == FP8Q_OK) {
        print_and_read(&given);
        decide(&given, NULL, NULL);
    }
    fp8q_policy_reset(&given);
    status = fp8q_evidence_parse(text, size, "input", &evidence, &err);
    require_status(status, &err);
    if (status == FP8Q_OK)
        decide(&policy, &evidence, NULL);
    fp8q_evidence_reset(&evidence);
    status = fp8q_task_parse(text, size, "input", "gsm8k", NULL, &task, &err);
    require_status(status, &err);
    if (status == FP8Q_OK)
        decide(&policy, NULL, &task);
    fp8q_task_reset(&task);
    return 0;
}
