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

/* @wanted is the whole key or its part before the comma; NULL: any.  */
static bool is_named(const char *key, const char *wanted)
{
    size_t len = wanted ? strlen(wanted) : 0;
    return !wanted || strcmp(key, wanted) == 0 ||
           (strncmp(key, wanted, len) == 0 && key[len] == ',');
}

/* The first score called @wanted; all scores are noted as metrics of the result.  */
static int find_score(struct fp8q_task_reader *r, const struct fp8q_json *scores,
                      const struct fp8q_json **score_out)
{
    *score_out = NULL;
    for (const struct fp8q_json *m = fp8q_json_first(scores); m; m = fp8q_json_next(m)) {
        if (!is_score(m))
            continue;
        FP8Q_TRY(fp8q_task_add_metric(r, fp8q_json_key(m)));
        if (!*score_out && is_named(fp8q_json_key(m), r->metric))
            *score_out = m;
    }
    return FP8Q_OK;
}

static double find_stderr(const struct fp8q_json *scores, const char *key)
{
    char name[200];
    const char *comma = strchr(key, ',');

    /* is_score() saw to it that there is a comma.  */
    snprintf(name, sizeof(name), "%.*s_stderr%s", (int)(comma - key), key, comma);
    double se = fp8q_json_number(fp8q_json_get(scores, name), (double)NAN);
    return se >= 0 ? se : (double)NAN;
}

/* "higher_is_better": {"lambada_openai": {"perplexity": false, "acc": true}}; null: not known.  */
static enum fp8q_direction find_direction(const struct fp8q_json *root, const char *task,
                                          const char *key)
{
    const struct fp8q_json *all = fp8q_json_get(fp8q_json_get(root, "higher_is_better"), task);
    char name[200];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(key, ","), key);
    const struct fp8q_json *value = fp8q_json_get(all, name);
    bool yes = fp8q_json_bool(value, false);

    /* What is no boolean comes back as whatever it was to be by default.  */
    if (yes != fp8q_json_bool(value, true))
        return FP8Q_DIRECTION_UNKNOWN;
    return yes ? FP8Q_DIRECTION_HIGHER : FP8Q_DIRECTION_LOWER;
}

enum { MAX_DEPTH = 8 }; /* of groups of groups; real ones have three */

/* Items of a task; of a group (mmlu) the sum of its subtasks.  0: the file does not say.  */
static uint64_t count_items(const struct fp8q_json *root, const char *task,
                            unsigned depth) // NOLINT(misc-no-recursion)
{
    const struct fp8q_json *own = fp8q_json_get(fp8q_json_get(root, "n-samples"), task);
    uint64_t n, sum = 0;
    if (own)
        return fp8q_json_uint(fp8q_json_get(own, "effective"), &n) ? n : 0;

    const struct fp8q_json *parts = fp8q_json_get(fp8q_json_get(root, "group_subtasks"), task);
    for (const struct fp8q_json *p = fp8q_json_first(parts); p; p = fp8q_json_next(p)) {
        const char *name = fp8q_json_string(p, NULL);
        n = name && depth < MAX_DEPTH ? count_items(root, name, depth + 1) : 0;
        /* A part of unknown size makes the sum unknown; bounds keep it from overflowing.  */
        if (n == 0 || n > UINT32_MAX || sum > UINT32_MAX)
            return 0;
        sum += n;
    }
    return sum;
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
    const struct fp8q_json *score;

    if (!scores)
        return fp8q_fail(r->err, FP8Q_E_EVIDENCE, "task-missing", "%s: no results of task \"%s\"",
                         r->what, fp8q_show(&shown[0], r->task));
    FP8Q_TRY(find_score(r, scores, &score));
    if (!score)
        return fp8q_fail(
            r->err, FP8Q_E_EVIDENCE, "task-metric", "%s: task \"%s\" has no metric \"%s\"", r->what,
            fp8q_show(&shown[0], r->task), fp8q_show(&shown[1], r->metric ? r->metric : "(any)"));

    const char *key = fp8q_json_key(score);
    result->aggregate = true;
    result->n = count_items(root, r->task, 0);
    result->mean = fp8q_json_number(score, 0);
    result->se = find_stderr(scores, key);
    result->direction = find_direction(root, r->task, key);
    result->version = task_version(root, r->task);
    snprintf(result->metric, sizeof(result->metric), "%s", key);
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

/* Under these names a sample holds a log-likelihood, not a perplexity: the other direction.  */
static bool is_likelihood(const char *metric)
{
    static const char *const names[] = {"perplexity", "word_perplexity", "byte_perplexity",
                                        "bits_per_byte"};
    size_t len = strcspn(metric, ",");

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strlen(names[i]) == len && strncmp(metric, names[i], len) == 0)
            return true;
    return false;
}

/* The metrics of the line, each with its filter.  */
static int note_metrics(struct fp8q_task_reader *r, const struct fp8q_json *line,
                        const char *filter)
{
    const struct fp8q_json *list = fp8q_json_get(line, "metrics");
    char name[200];

    for (const struct fp8q_json *m = fp8q_json_first(list); m; m = fp8q_json_next(m))
        if (fp8q_json_string(m, NULL)) {
            snprintf(name, sizeof(name), "%.120s,%.60s", fp8q_json_string(m, ""), filter);
            FP8Q_TRY(fp8q_task_add_metric(r, name));
        }
    return FP8Q_OK;
}

/* The first line settles the metric, so that all lines of a file speak of the same one.  */
static int settle_metric(struct fp8q_task_reader *r, const struct fp8q_json *line,
                         const char *filter)
{
    char *metric = r->result->metric;
    const size_t size = sizeof(r->result->metric);
    struct fp8q_shown shown;
    if (*metric)
        return FP8Q_OK;

    const char *first =
        fp8q_json_string(fp8q_json_first(fp8q_json_get(line, "metrics")), "exact_match");
    if (!r->metric)
        snprintf(metric, size, "%s,%s", first, filter);
    else if (strchr(r->metric, ','))
        snprintf(metric, size, "%s", r->metric);
    else
        snprintf(metric, size, "%s,%s", r->metric, filter);

    if (is_likelihood(metric))
        return fp8q_fail(r->err, FP8Q_E_EVIDENCE, "task-likelihood",
                         "%s: samples hold log-likelihoods under the name \"%s\"; give the results "
                         "file, or name another metric in the policy (tasks.per_task)",
                         r->what, fp8q_show(&shown, metric));
    return FP8Q_OK;
}

static uint64_t question_hash(const struct fp8q_json *line)
{
    static const char *const hashes[] = {"doc_hash", "prompt_hash", "target_hash"};
    uint64_t hash = 0;

    for (size_t i = 0; i < sizeof(hashes) / sizeof(*hashes); i++)
        hash = fp8q_task_hash(hash, fp8q_json_string(fp8q_json_get(line, hashes[i]), NULL));
    return hash;
}

int fp8q_task_lm_eval_sample(struct fp8q_task_reader *r, const struct fp8q_json *line)
{
    struct fp8q_shown shown;
    char id_buf[32], metric[sizeof(r->result->metric)];
    const char *filter = fp8q_json_string(fp8q_json_get(line, "filter"), "none");
    double score;

    FP8Q_TRY(note_metrics(r, line, filter));
    FP8Q_TRY(settle_metric(r, line, filter));
    /* In a sample the score stands under the metric's name without its filter.  */
    snprintf(metric, sizeof(metric), "%s", r->result->metric);
    metric[strcspn(metric, ",")] = '\0';
    if (!is_wanted(r->result, metric, filter))
        return FP8Q_OK; /* the same document through another filter */

    const char *id = fp8q_task_id(fp8q_json_get(line, "doc_id"), id_buf);
    if (!id || !fp8q_task_score(fp8q_json_get(line, metric), &score))
        return fp8q_fail(r->err, FP8Q_E_EVIDENCE, "task-metric",
                         "%s: sample %zu has no \"doc_id\" or no number \"%s\"", r->what,
                         r->result->n_items + 1, fp8q_show(&shown, metric));
    return fp8q_task_add(r, id, score, NULL, question_hash(line));
}
