/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.h - what gate demands: a small JSON file over built-in defaults (docs/reference/policy.md).
 *
 * A policy file needs only the members that differ from the defaults.  A member that is not known
 * is an error, so that a misspelt limit cannot silently be no limit.
 */
#ifndef FP8Q_POLICY_H
#define FP8Q_POLICY_H

#include "gate/evidence.h"
#include "gate/tasks.h"

#define FP8Q_POLICY_SCHEMA "fp8q-policy/1"
#define FP8Q_POLICY_ACTS "served"

/* What holds for one task only.  NAN and NULL: as for all tasks.  */
struct fp8q_task_policy {
    char *name, *metric;
    double margin, recovery;
    enum fp8q_direction direction; /* unknown: as the results say */
};

/* A limit of NAN is none.  */
struct fp8q_policy {
    bool verify_required, verify_strict; /* T0 */
    bool lock_required;
    bool fallback_required; /* the source, or a dequantized copy, must exist and match */
    double max_age_days;
    char *stack;       /* NULL: any, unless the request names one */
    double confidence; /* one-sided, of every decision */

    bool eval_required, baseline_required, floor_required; /* T1 */
    bool requantized; /* judge the row of an engine that makes scales powers of two at load */
    double kld_vs_baseline, kld_vs_floor, kld_max;
    double kld_max_by_modality, kld_max_by_category; /* of each of them */
    double
        state_error_max; /* of keys, values and the last hidden state, as an action expert reads */
    double top1_min, top1_drop, delta_ln_ppl_max;
    double clipped_max, unused_max; /* of evidence with static input scales */
    uint64_t min_tokens;
    struct fp8q_fingerprint inputs; /* evidence must be on these inputs */
    char *acts; /* evidence must treat activations so; NULL: FP8Q_POLICY_ACTS; "any": anyhow */

    char **required_tasks; /* T2 */
    size_t n_required_tasks;
    double margin, recovery; /* margin in units of the score; recovery 0.99: 1 % of base */
    uint64_t resamples, seed, min_items;
    double delta_nll_max, serving_kld_max;
    struct fp8q_task_policy *tasks;
    size_t n_tasks;
};

/* The defaults; then fp8q_policy_reset().  */
void fp8q_policy_default(struct fp8q_policy *policy_out);
/* The defaults with those of @text over them.  @what names the file.  This is the fuzz target.  */
int fp8q_policy_parse(const char *text, size_t len, const char *what,
                      struct fp8q_policy *policy_out, struct fp8q_error *err);
int fp8q_policy_read(const char *path, struct fp8q_policy *policy_out, struct fp8q_error *err);
void fp8q_policy_reset(struct fp8q_policy *policy);

/* All members, as a file that reads back as the same policy, into the open object of @w.  */
void fp8q_policy_write(struct fp8q_jsonw *w, const struct fp8q_policy *policy);

/* NULL if there is nothing special about it.  */
const struct fp8q_task_policy *fp8q_policy_task(const struct fp8q_policy *policy, const char *name);

#endif
