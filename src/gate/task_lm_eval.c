/* SPDX-License-Identifier: Apache-2.0
 *
 * task_lm_eval.c - what lm-evaluation-harness writes: results_*.json and samples_*.jsonl.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/internal.h"

/* ---- results_*.json ------------------------------------------------------------------------ */

/* "exact_match,strict-match" is a score; "exact_match_stderr,strict-match" and "alias" are not.  */
static bool is_score(const struct fp8q_json *member)
{
    const char *key = fp8q_json_key(member), *comma = strchr(key, ',');
    size_t len = comma ? (size_t)(comma - key) : 0;
    bool is_stderr = len >= 7 && memcmp(key + len - 7, "_stderr", 7) == 0;
    return comma && !is_stderr && !isnan(fp8q_json_number(member, (double)NAN));
}

/* @wanted is the whole key or its part before the comma; NULL: the first score.  */
static const struct fp8q_json *find_score(const struct fp8q_json *scores, const char *wanted)
{
    for (const struct fp8q_json *m = fp8q_json_first(scores); m; m = fp8q_json_next(m)) {
        const char *key = fp8q_json_key(m);
        size_t len = wanted ? strlen(wanted) : 0;
        if (is_score(m) && (!wanted || strcmp(key, wanted) == 0 ||
                            (strncmp(key, wanted, len) == 0 && key[len] == ',')))
            return m;
    }
    return NULL;
}

static double find_stderr(const struct fp8q_json *scores, const char *key)
{
    char name[200];
    const char *comma = strchr(key, ',');
    snprintf(name, sizeof(name), "%.*s_stderr%s", (int)(comma - key), key, comma);
    double se = fp8q_json_number(fp8q_json_get(scores, name), (double)NAN);
    return se >= 0 ? se : (double)NAN;
}

/* Version, number of shots and hash of the task: different ones are different questions.  */
static uint64_t task_version(const struct fp8q_json *root, const char *task)
{
    static const char *const members[] = {"versions", "n-shot", "task_hashes"};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
        char buf[32];
        const struct fp8q_json *value = fp8q_json_get(fp8q_json_get(root, members[i]), task);
        hash = fp8q_task_hash(hash, fp8q_task_id(value, buf));
    }
    return hash;
}

int fp8q_task_lm_eval_results(struct fp8q_task_reader *r, const struct fp8q_json *root)
{
    struct fp8q_task_result *result = r->result;
    struct fp8q_shown shown[2];
    const struct fp8q_json *scores = fp8q_json_get(fp8q_json_get(root, "results"), r->task);
    if (!scores)
        return fp8q_fail(r->err, FP8Q_E_EVIDENCE, "task-missing", "%s: no results of task \"%s\"",
                         r->what, fp8q_show(&shown[0], r->task));
    const struct fp8q_json *score = find_score(scores, r->metric);
    if (!score)
        return fp8q_fail(
            r->err, FP8Q_E_EVIDENCE, "task-metric", "%s: task \"%s\" has no metric \"%s\"", r->what,
            fp8q_show(&shown[0], r->task), fp8q_show(&shown[1], r->metric ? r->metric : "(any)"));
    const struct fp8q_json *count = fp8q_json_get(fp8q_json_get(root, "n-samples"), r->task);
    if (!fp8q_json_uint(fp8q_json_get(count, "effective"), &result->n))
        result->n = 0;
    result->aggregate = true;
    result->mean = fp8q_json_number(score, 0);
    result->se = find_stderr(scores, fp8q_json_key(score));
    result->version = task_version(root, r->task);
    snprintf(result->metric, sizeof(result->metric), "%s", fp8q_json_key(score));
    return FP8Q_OK;
}

/* ---- samples_*.jsonl ----------------------------------------------------------------------- */

/* Splits "exact_match,strict-match"; without a comma any filter is meant.  */
static bool is_wanted(const struct fp8q_task_result *result, const char *metric, const char *filter)
{
    size_t len = strlen(metric);
    return strncmp(result->metric, metric, len) == 0 &&
           (result->metric[len] == '\0' ||
            (result->metric[len] == ',' && strcmp(result->metric + len + 1, filter) == 0));
}

/* The first line settles the metric, so that all lines of a file speak of the same one.  */
static void settle_metric(struct fp8q_task_reader *r, const struct fp8q_json *line,
                          const char *filter)
{
    char *metric = r->result->metric;
    const size_t size = sizeof(r->result->metric);
    if (*metric)
        return;
    const char *first =
        fp8q_json_string(fp8q_json_first(fp8q_json_get(line, "metrics")), "exact_match");
    if (!r->metric)
        snprintf(metric, size, "%s,%s", first, filter);
    else if (strchr(r->metric, ','))
        snprintf(metric, size, "%s", r->metric);
    else
        snprintf(metric, size, "%s,%s", r->metric, filter);
}

int fp8q_task_lm_eval_sample(struct fp8q_task_reader *r, const struct fp8q_json *line)
{
    static const char *const hashes[] = {"doc_hash", "prompt_hash", "target_hash"};
    struct fp8q_shown shown;
    char id_buf[32], metric[64];
    const char *filter = fp8q_json_string(fp8q_json_get(line, "filter"), "none");
    settle_metric(r, line, filter);
    snprintf(metric, sizeof(metric), "%s", r->result->metric);
    metric[strcspn(metric, ",")] = '\0';
    if (!is_wanted(r->result, metric, filter))
        return FP8Q_OK; /* the same document through another filter */
    const char *id = fp8q_task_id(fp8q_json_get(line, "doc_id"), id_buf);
    double score;
    if (!id || !fp8q_task_score(fp8q_json_get(line, metric), &score))
        return fp8q_fail(r->err, FP8Q_E_EVIDENCE, "task-metric",
                         "%s: sample %zu has no \"doc_id\" or no number \"%s\"", r->what,
                         r->result->n_items + 1, fp8q_show(&shown, metric));
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(hashes) / sizeof(*hashes); i++)
        hash = fp8q_task_hash(hash, fp8q_json_string(fp8q_json_get(line, hashes[i]), NULL));
    return fp8q_task_add(r, id, score, NULL, hash);
}
