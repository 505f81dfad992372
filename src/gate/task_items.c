/* SPDX-License-Identifier: Apache-2.0
 *
 * task_items.c - one item of a task result from one object or line: id, score, cluster, hash.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
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
    bool yes = fp8q_json_bool(value, false);
    *out = fp8q_json_number(value, yes ? 1 : (double)NAN);
    if (isnan(*out) && yes == fp8q_json_bool(value, true))
        *out = 0; /* false */
    return !isnan(*out);
}

const char *fp8q_task_id(const struct fp8q_json *value, char *buf)
{
    const char *text = fp8q_json_string(value, NULL);
    double number = fp8q_json_number(value, (double)NAN);
    if (text || isnan(number))
        return text;
    snprintf(buf, 32, "%.17g", number);
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
    result->clustered = result->clustered || cluster;
    result->items[result->n_items++] =
        (struct fp8q_task_item){copy, score, fp8q_task_hash(0, cluster ? cluster : id), hash};
    return FP8Q_OK;
}
