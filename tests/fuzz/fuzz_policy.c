/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_policy.c - a policy is refused with a message, or it prints and reads back as the same, and
 * the gate decides by it.  A second half of the input is evidence that it judges.
 */
#include <string.h>

#include "fuzz/decide.h"
#include "fuzz/fuzz.h"

static char *printed(const struct fp8q_policy *policy)
{
    struct fp8q_jsonw w = {.indent = 1};
    struct fp8q_error err = {0};
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_policy_write(&w, policy);
    fp8q_jsonw_close(&w, '}');
    FUZZ_REQUIRE(fp8q_text_status(&w.text, &err) == FP8Q_OK);
    return w.text.data;
}

static void print_and_read(const struct fp8q_policy *policy)
{
    struct fp8q_policy again;
    struct fp8q_error err = {0};
    char *once = printed(policy), *twice;
    FUZZ_REQUIRE(fp8q_policy_parse(once, strlen(once), "printed", &again, &err) == FP8Q_OK);

    twice = printed(&again);
    FUZZ_REQUIRE(strcmp(once, twice) == 0);
    fp8q_policy_reset(&again);
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct halves in = halves_of(data, size);
    struct fp8q_error err = {0};
    struct fp8q_policy policy;
    struct fp8q_evidence evidence;

    int status = fp8q_policy_parse(in.text[0], in.len[0], "policy", &policy, &err);
    require_status(status, &err);
    if (status != FP8Q_OK)
        return 0;
    print_and_read(&policy);

    /* Resamples are a matter of time, not of sense.  */
    if (policy.resamples > 1000)
        policy.resamples = 1000;
    status = fp8q_evidence_parse(in.text[1], in.len[1], "evidence", &evidence, &err);
    decide(&policy, status == FP8Q_OK ? &evidence : NULL, NULL, NULL, NULL);
    fp8q_evidence_reset(&evidence);
    fp8q_policy_reset(&policy);
    return 0;
}
