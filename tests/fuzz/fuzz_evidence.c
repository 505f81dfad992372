/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_evidence.c - evidence of eval, and behind it that of a baseline: each is refused with a
 * message, or the gate decides on it without a figure that is no number of its check.
 */
#include "fuzz/decide.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct halves in = halves_of(data, size);
    struct fp8q_policy policy = quick_policy();
    struct fp8q_evidence evidence[2];
    struct fp8q_error err = {0};
    int status[2];

    for (int i = 0; i < 2; i++) {
        status[i] = fp8q_evidence_parse(in.text[i], in.len[i], "evidence", &evidence[i], &err);
        require_status(status[i], &err);
    }
    if (status[0] == FP8Q_OK)
        decide(&policy, &evidence[0], status[1] == FP8Q_OK ? &evidence[1] : NULL, NULL, NULL);

    /* Tight limits, so that passing is the exception.  */
    policy.kld_max = 1e-3;
    policy.min_tokens = 1;
    if (status[0] == FP8Q_OK)
        decide(&policy, &evidence[0], NULL, NULL, NULL);
    for (int i = 0; i < 2; i++)
        fp8q_evidence_reset(&evidence[i]);
    fp8q_policy_reset(&policy);
    return 0;
}
