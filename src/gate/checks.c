/* SPDX-License-Identifier: Apache-2.0
 *
 * checks.c - the list of checks, and the verdict of an interval against a limit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/internal.h"
#include "gate/stats.h"

int fp8q_gate_add(struct fp8q_gate *gate, struct fp8q_gate_check check, struct fp8q_error *err,
                  const char *id, const char *fmt, ...)
{
    struct fp8q_error text;
    va_list args;

    FP8Q_TRY(fp8q_grow(&gate->checks, gate->n_checks, &gate->cap, sizeof(*gate->checks), err));
    va_start(args, fmt);
    vsnprintf(text.message, sizeof(text.message), fmt, args);
    va_end(args);

    check.id = strdup(id);
    check.message = strdup(text.message);
    if (!check.id || !check.message) {
        free(check.id);
        free(check.message);
        return fp8q_fail_nomem(err);
    }

    gate->checks[gate->n_checks++] = check;
    /* Verdicts stand in the order of their gravity, and the gravest is the gate's.  */
    if (check.verdict > gate->verdict && check.verdict != FP8Q_VERDICT_SKIPPED)
        gate->verdict = check.verdict;
    return FP8Q_OK;
}

struct fp8q_gate_check fp8q_gate_check_of(unsigned tier, enum fp8q_verdict verdict)
{
    const double none = (double)NAN;
    return (struct fp8q_gate_check){.tier = tier,
                                    .verdict = verdict,
                                    .observed = none,
                                    .limit = none,
                                    .low = none,
                                    .high = none};
}

struct fp8q_gate_check fp8q_gate_check_limit(unsigned tier, double estimate, double low,
                                             double high, uint64_t n, double limit)
{
    struct fp8q_gate_check check = fp8q_gate_check_of(tier, FP8Q_VERDICT_PASS);

    check.observed = estimate;
    check.limit = limit;
    check.low = low;
    check.high = high;
    check.n = n;

    /* A comparison with NaN is false: no bounds, no decision.  */
    if (high <= limit && estimate <= limit)
        return check;
    check.verdict = low > limit ? FP8Q_VERDICT_FAIL : FP8Q_VERDICT_INCONCLUSIVE;
    if (check.verdict == FP8Q_VERDICT_INCONCLUSIVE && !isnan(high))
        check.n_needed = fp8q_items_needed((struct fp8q_interval){estimate, low, high}, n, limit);
    return check;
}
