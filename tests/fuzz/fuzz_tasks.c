/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tasks.c - results of tasks as other tools write them (lm-eval, LeRobot, CSV, JSONL, prompt
 * log-probabilities): each half of the input is refused with a message, or the gate compares the
 * two.
 */
#include <string.h>

#include "fuzz/decide.h"
#include "fuzz/fuzz.h"

static void check(const struct fp8q_task_result *r)
{
    FUZZ_REQUIRE(r->path && r->format && (r->aggregate || r->n_items > 0));
    for (size_t i = 1; i < r->n_items && r->items; i++)
        FUZZ_REQUIRE(strcmp(r->items[i - 1].id, r->items[i].id) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct halves in = halves_of(data, size);
    struct fp8q_policy policy = quick_policy();
    struct fp8q_task_result task[2];
    struct fp8q_error err = {0};
    int status[2];

    for (int i = 0; i < 2; i++) {
        status[i] = fp8q_task_parse(in.text[i], in.len[i], "task", "gsm8k", NULL, &task[i], &err);
        require_status(status[i], &err);
        if (status[i] == FP8Q_OK)
            check(&task[i]);
    }

    /* As two files of the same scores; with equal content it would end there.  */
    if (status[0] == FP8Q_OK && status[1] == FP8Q_OK) {
        task[1].content_len += in.text[0] == in.text[1];
        decide(&policy, NULL, NULL, &task[0], &task[1]);
    }
    for (int i = 0; i < 2; i++)
        fp8q_task_reset(&task[i]);
    fp8q_policy_reset(&policy);
    return 0;
}
