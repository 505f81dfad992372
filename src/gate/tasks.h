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
    char *path;         /* owned */
    const char *format; /* static, for people */
    char metric[64];    /* what the score is */
    uint64_t version;   /* hash of task version, few-shot count and the like; 0: unknown */
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

/* @task picks among the tasks of one file, @metric among its metrics ("exact_match,strict-match");
 * NULL: the first.  FP8Q_E_FORMAT: none of the formats, or broken; FP8Q_E_EVIDENCE: no such task or
 * metric, no items.  On failure *@result_out is zeroed; else fp8q_task_reset().  */
int fp8q_task_read(const char *path, const char *task, const char *metric,
                   struct fp8q_task_result *result_out, struct fp8q_error *err);
/* The same from memory; this is the fuzz target.  */
int fp8q_task_parse(const char *text, size_t len, const char *path, const char *task,
                    const char *metric, struct fp8q_task_result *result_out,
                    struct fp8q_error *err);
void fp8q_task_reset(struct fp8q_task_result *result);

/* ---- for the readers (task_*.c) ------------------------------------------------------------ */

struct fp8q_task_reader {
    struct fp8q_task_result *result;
    const char *what, *task, *metric;
    size_t items_cap, positions_cap, top_cap, starts_cap;
    struct fp8q_error *err;
};
int fp8q_task_add(struct fp8q_task_reader *r, const char *id, double score, const char *cluster,
                  uint64_t hash);
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
