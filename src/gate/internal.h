/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of gate/ share: making checks, and reading task results.
 */
#ifndef FP8Q_GATE_INTERNAL_H
#define FP8Q_GATE_INTERNAL_H

#include "gate/gate.h"

/* ---- for gate*.c --------------------------------------------------------------------------- */

/* Adds @check with a copy of its id and a message; strings of @check itself are ignored.  */
int fp8q_gate_add(struct fp8q_gate *gate, struct fp8q_gate_check check, struct fp8q_error *err,
                  const char *id, const char *fmt, ...) FP8Q_PRINTF(5, 6);
/* A check without figures.  */
struct fp8q_gate_check fp8q_gate_check_of(unsigned tier, enum fp8q_verdict verdict);
/* Verdict of an interval against an upper limit; sets observed, limit, low, high and n_needed.
 * Without an interval (NAN bounds) it is inconclusive.  */
struct fp8q_gate_check fp8q_gate_check_limit(unsigned tier, double estimate, double low,
                                             double high, uint64_t n, double limit);

int fp8q_gate_eval(struct fp8q_gate *gate, const struct fp8q_gate_request *request,
                   struct fp8q_error *err);
/* The figures of evidence that is about the checkpoint, against all limits.  @baseline is NULL where
 * there is none for it.  */
int fp8q_gate_limits(struct fp8q_gate *gate, const struct fp8q_gate_request *r,
                     const struct fp8q_evidence *e, const struct fp8q_evidence *baseline,
                     struct fp8q_error *err);
int fp8q_gate_tasks(struct fp8q_gate *gate, const struct fp8q_gate_request *request,
                    struct fp8q_error *err);

struct fp8q_task_check {
    struct fp8q_gate *gate;
    const struct fp8q_policy *policy;
    const struct fp8q_gate_task *task;
    const struct fp8q_task_policy *own; /* NULL: nothing special */
    double tail;
    struct fp8q_error *err;
};

int fp8q_task_check_add(const struct fp8q_task_check *c, struct fp8q_gate_check check,
                        const char *suffix, const char *message);
int fp8q_task_check_verdict(const struct fp8q_task_check *c, enum fp8q_verdict verdict,
                            const char *message);
int fp8q_task_check_logprobs(const struct fp8q_task_check *c);

/* ---- for the readers (task_*.c) ------------------------------------------------------------ */

struct fp8q_task_reader {
    struct fp8q_task_result *result;
    const char *what, *task, *metric;
    size_t items_cap, positions_cap, top_cap, starts_cap;
    struct fp8q_error *err;
};
int fp8q_task_add(struct fp8q_task_reader *r, const char *id, double score, const char *cluster,
                  uint64_t hash);
/* Notes that the file has @metric, and that it is the one read if it is the first.  */
int fp8q_task_add_metric(struct fp8q_task_reader *r, const char *metric);
/* By the name of a well-known metric ("acc,none", "wer").  */
enum fp8q_direction fp8q_metric_direction(const char *metric);
/* Number or boolean; false for anything else.  */
bool fp8q_task_score(const struct fp8q_json *value, double *out);
/* Text of an id, which may be a string or a number; @buf has room for 32.  NULL: neither.  */
const char *fp8q_task_id(const struct fp8q_json *value, char *buf);
uint64_t fp8q_task_hash(uint64_t hash, const char *text); /* start with 0; NULL changes nothing */

int fp8q_task_lm_eval_results(struct fp8q_task_reader *r, const struct fp8q_json *root);
int fp8q_task_lm_eval_sample(struct fp8q_task_reader *r, const struct fp8q_json *line);
int fp8q_task_lerobot(struct fp8q_task_reader *r, const struct fp8q_json *root);
int fp8q_task_csv(struct fp8q_task_reader *r, const char *text, size_t len);
bool fp8q_task_has_logprobs(const struct fp8q_json *line);
int fp8q_task_logprob_line(struct fp8q_task_reader *r, const struct fp8q_json *line);

#endif
