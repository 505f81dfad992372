/* SPDX-License-Identifier: Apache-2.0
 *
 * task_items.c - one item of a task result from one object or line: id, score, cluster, hash.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "gate/internal.h"

uint64_t fp8q_task_hash(uint64_t hash, const char *text)
{
    if (!text)
        return hash;
    if (hash == 0)
        hash = 0xCBF29CE484222325; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001B3;
    return (hash ^ 0xFF) * 0x100000001B3; /* so that "a", "b" differs from "ab" */
}

bool fp8q_task_score(const struct fp8q_json *value, double *out)
{
    /* Booleans are scores of 1 and 0; whatever is no bool gives back the default.  */
    bool yes = fp8q_json_bool(value, false);
    *out = fp8q_json_number(value, yes ? 1 : (double)NAN);
    if (isnan(*out) && yes == fp8q_json_bool(value, true))
        *out = 0; /* false */
    return isfinite(*out);
}

const char *fp8q_task_id(const struct fp8q_json *value, char *buf)
{
    const char *text = fp8q_json_string(value, NULL);
    double number = fp8q_json_number(value, (double)NAN);
    if (text || isnan(number))
        return text;
    fp8q_number_print(buf, 32, 17, number);
    return buf;
}

int fp8q_task_add(struct fp8q_task_reader *r, const char *id, double score, const char *cluster,
                  uint64_t hash)
{
    struct fp8q_task_result *result = r->result;
    FP8Q_TRY(
        fp8q_grow(&result->items, result->n_items, &r->items_cap, sizeof(*result->items), r->err));
    char *copy = strdup(id);
    if (!copy)
        return fp8q_fail_nomem(r->err);
    /* Without a cluster an item is one of its own, by its id.  */
    result->clustered = result->clustered || cluster;
    result->items[result->n_items++] =
        (struct fp8q_task_item){copy, score, fp8q_task_hash(0, cluster ? cluster : id), hash};
    return FP8Q_OK;
}

int fp8q_task_add_metric(struct fp8q_task_reader *r, const char *metric)
{
    struct fp8q_task_result *result = r->result;
    for (size_t i = 0; i < result->n_metrics; i++)
        if (strcmp(result->metrics[i], metric) == 0)
            return FP8Q_OK;

    FP8Q_TRY(fp8q_grow(&result->metrics, result->n_metrics, &result->metrics_cap,
                       sizeof(*result->metrics), r->err));
    char *copy = strdup(metric);
    if (!copy)
        return fp8q_fail_nomem(r->err);
    result->metrics[result->n_metrics++] = copy;
    return FP8Q_OK;
}

enum fp8q_direction fp8q_metric_direction(const char *metric)
{
    static const char *const higher[] = {
        "acc",         "accuracy", "acc_norm",   "acc_bytes", "acc_mutual_info",
        "exact_match", "em",       "f1",         "mcc",       "bleu",
        "chrf",        "rouge1",   "rouge2",     "rougeL",    "rougeLsum",
        "success",     "reward",   "sum_reward", "max_reward"};
    static const char *const lower[] = {"perplexity",
                                        "word_perplexity",
                                        "byte_perplexity",
                                        "bits_per_byte",
                                        "ppl",
                                        "nll",
                                        "loss",
                                        "ter",
                                        "wer",
                                        "cer",
                                        "mse",
                                        "mae",
                                        "rmse",
                                        "brier_score",
                                        "error",
                                        "action_mse",
                                        "NLL"};
    /* Whole names only, up to the filter of lm-eval: "accuracy_loss" must not be an accuracy.  */
    size_t len = strcspn(metric, ",");

    for (size_t i = 0; i < sizeof(higher) / sizeof(*higher); i++)
        if (strlen(higher[i]) == len && strncmp(metric, higher[i], len) == 0)
            return FP8Q_DIRECTION_HIGHER;
    for (size_t i = 0; i < sizeof(lower) / sizeof(*lower); i++)
        if (strlen(lower[i]) == len && strncmp(metric, lower[i], len) == 0)
            return FP8Q_DIRECTION_LOWER;
    return strncmp(metric, "pass@", 5) == 0 ? FP8Q_DIRECTION_HIGHER : FP8Q_DIRECTION_UNKNOWN;
}
