/* SPDX-License-Identifier: Apache-2.0
 *
 * tasks.h - results of task evaluations that other tools wrote, read into one form.
 *
 * Known by their content: lm-eval results (aggregates) and its sample logs (JSONL), LeRobot's
 * eval_info.json, CSV and JSONL with `id` and `score`, and prompt log-probabilities of a serving
 * stack (JSONL as in docs/reference/policy.md, or with the members of vLLM's or SGLang's answers).
 */
#ifndef FP8Q_TASKS_H
#define FP8Q_TASKS_H

#include "format/json.h"

/* Whether more or less of a metric is better.  */
enum fp8q_direction { FP8Q_DIRECTION_UNKNOWN, FP8Q_DIRECTION_HIGHER, FP8Q_DIRECTION_LOWER };

struct fp8q_task_item {
    char *id; /* owned */
    double score;
    uint64_t cluster; /* hash of the cluster's name */
    uint64_t hash;    /* of the question as the tool logged it; 0: not logged */
};

/* Log-probabilities of one prompt: for each scored position the token and the most likely ones.  */
struct fp8q_logprob {
    int64_t token;
    double value;
};
struct fp8q_logprob_position {
    int64_t token;       /* of the prompt */
    double value;        /* its log-probability */
    size_t first, count; /* in @top, most of them the stack's top k */
};

struct fp8q_task_result {
    char *path;                    /* owned */
    const char *format;            /* static, for people */
    char metric[64];               /* what the score is */
    enum fp8q_direction direction; /* as the file says, or the name of the metric */
    char **metrics; /* all metrics that the file has of the task, in its order; owned */
    size_t n_metrics, metrics_cap;
    uint32_t content_crc; /* of the whole file */
    uint64_t content_len;
    uint64_t version; /* hash of task version, few-shot count and the like; 0: unknown */
    bool clustered;

    struct fp8q_task_item *items; /* sorted by id; NULL for aggregates */
    size_t n_items;

    bool aggregate;  /* only these are known: */
    double mean, se; /* se: NAN if unknown */
    uint64_t n;      /* 0 if unknown */

    struct fp8q_logprob_position *positions; /* item i owns position_starts[i] .. [i+1]-1 */
    struct fp8q_logprob *top;
    size_t *position_starts; /* NULL unless log-probabilities */
    size_t n_positions, n_top;
};

/* The text of a result file.  @task picks among the tasks of one file, @metric among its metrics ("exact_match,strict-match");
 * NULL: the first (and @metrics lists the others).  FP8Q_E_FORMAT: none of the formats, or broken; FP8Q_E_EVIDENCE: no such task or
 * metric, no items.  On failure *@result_out is zeroed; else fp8q_task_reset().  */
int fp8q_task_parse(const char *text, size_t len, const char *path, const char *task,
                    const char *metric, struct fp8q_task_result *result_out,
                    struct fp8q_error *err);
void fp8q_task_reset(struct fp8q_task_result *result);

/* Results of the unquantized model and of the checkpoint, of one metric.  */
struct fp8q_task_pair {
    struct fp8q_task_result base, quant;
};
struct fp8q_task_pairs {
    struct fp8q_task_pair *pairs; /* owned; the first is of the metric that stands first */
    size_t n_pairs, cap;
};
/* Reads both files for @metric, or, where it is NULL, for every metric that the base run has.
 * Errors as fp8q_task_parse(), FP8Q_E_EVIDENCE also where the quantized run lacks a metric.  On
 * failure *@pairs_out is zeroed; else fp8q_task_pairs_reset().  */
int fp8q_task_read_pairs(const char *base, const char *quant, const char *task, const char *metric,
                         struct fp8q_task_pairs *pairs_out, struct fp8q_error *err);
void fp8q_task_pairs_reset(struct fp8q_task_pairs *pairs);

#endif
