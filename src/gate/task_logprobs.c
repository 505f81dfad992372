/* SPDX-License-Identifier: Apache-2.0
 *
 * task_logprobs.c - prompt log-probabilities that a serving stack answered, one prompt a line.
 *
 * Three shapes: our own ("tokens" and "top_logprobs"), vLLM's ("prompt_logprobs", also inside
 * "choices"), SGLang's ("meta_info.input_token_logprobs" and "input_top_logprobs").
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/internal.h"

enum { MAX_TOP = 4096 }; /* positions are compared token by token */

static const struct fp8q_json *vllm_list(const struct fp8q_json *line)
{
    const struct fp8q_json *list = fp8q_json_get(line, "prompt_logprobs");
    if (list)
        return list;
    return fp8q_json_get(fp8q_json_first(fp8q_json_get(line, "choices")), "prompt_logprobs");
}

bool fp8q_task_has_logprobs(const struct fp8q_json *line)
{
    return fp8q_json_get(line, "top_logprobs") || vllm_list(line) ||
           fp8q_json_path(line, "meta_info.input_token_logprobs");
}

static int bad_line(struct fp8q_task_reader *r, const char *expected)
{
    return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format", "%s: prompt %zu: expected %s", r->what,
                     r->result->n_items, expected);
}

static bool parse_token(const char *text, int64_t *out)
{
    char *end;
    /* No sign and no blank, which strtoll() would take; 15 digits fit into any int64_t.  */
    if (!text || *text < '0' || *text > '9' || strlen(text) > 15)
        return false;
    *out = (int64_t)strtoll(text, &end, 10);
    return !*end;
}

/* A log-probability is at most 0, up to rounding.  */
static bool is_logprob(double value)
{
    return value <= 1e-3;
}

/* What underflowed comes as any huge number; sums of such would be no numbers.  */
static double bounded(double value)
{
    return fmax(value, -1e4);
}

static int add_top(struct fp8q_task_reader *r, int64_t token, double value)
{
    struct fp8q_task_result *result = r->result;
    if (!is_logprob(value))
        return bad_line(r, "log-probabilities, which are at most 0");
    if (result->positions[result->n_positions - 1].count == MAX_TOP)
        return bad_line(r, "at most 4096 tokens at a position");

    FP8Q_TRY(fp8q_grow(&result->top, result->n_top, &r->top_cap, sizeof(*result->top), r->err));
    result->top[result->n_top++] = (struct fp8q_logprob){token, bounded(value)};
    result->positions[result->n_positions - 1].count++;
    return FP8Q_OK;
}

static int open_position(struct fp8q_task_reader *r)
{
    struct fp8q_task_result *result = r->result;
    FP8Q_TRY(fp8q_grow(&result->positions, result->n_positions, &r->positions_cap,
                       sizeof(*result->positions), r->err));
    result->positions[result->n_positions++] =
        (struct fp8q_logprob_position){-1, (double)NAN, result->n_top, 0};
    return FP8Q_OK;
}

/* Gives the position its token, whose value is among the top ones or @value.  */
static int close_position(struct fp8q_task_reader *r, int64_t token, double value)
{
    struct fp8q_logprob_position *p = &r->result->positions[r->result->n_positions - 1];

    p->token = token;
    p->value = value;
    for (size_t i = 0; i < p->count && isnan(p->value); i++)
        if (r->result->top[p->first + i].token == token)
            p->value = r->result->top[p->first + i].value;
    if (!is_logprob(p->value))
        return bad_line(r, "the log-probability of each prompt token");
    p->value = bounded(p->value);
    return FP8Q_OK;
}

/* {"12": -0.5, ...} or vLLM's {"12": {"logprob": -0.5, "rank": 1}, ...}.  *@first_out: the first
 * token, which in vLLM's answers is the prompt's own.  */
static int read_map(struct fp8q_task_reader *r, const struct fp8q_json *map, int64_t *first_out)
{
    *first_out = -1;

    for (const struct fp8q_json *m = fp8q_json_first(map); m; m = fp8q_json_next(m)) {
        const struct fp8q_json *value = fp8q_json_is_object(m) ? fp8q_json_get(m, "logprob") : m;
        int64_t token;

        if (!parse_token(fp8q_json_key(m), &token))
            return bad_line(r, "token ids as keys");
        if (*first_out < 0)
            *first_out = token;
        FP8Q_TRY(add_top(r, token, fp8q_json_number(value, (double)NAN)));
    }
    return FP8Q_OK;
}

static int read_own(struct fp8q_task_reader *r, const struct fp8q_json *line)
{
    const struct fp8q_json *token = fp8q_json_first(fp8q_json_get(line, "tokens"));
    const struct fp8q_json *map = fp8q_json_first(fp8q_json_get(line, "top_logprobs"));
    for (; map; map = fp8q_json_next(map), token = fp8q_json_next(token)) {
        uint64_t id;
        int64_t first;
        if (!fp8q_json_uint(token, &id))
            return bad_line(r, "as many \"tokens\" as \"top_logprobs\"");
        if (!fp8q_json_is_object(map))
            continue; /* the first token has no prediction */

        FP8Q_TRY(open_position(r));
        FP8Q_TRY(read_map(r, map, &first));
        FP8Q_TRY(close_position(r, (int64_t)id, (double)NAN));
    }
    return FP8Q_OK;
}

static int read_vllm(struct fp8q_task_reader *r, const struct fp8q_json *list)
{
    for (const struct fp8q_json *map = fp8q_json_first(list); map; map = fp8q_json_next(map)) {
        int64_t first;
        /* The first token has no prediction.  */
        if (!fp8q_json_is_object(map))
            continue;

        FP8Q_TRY(open_position(r));
        FP8Q_TRY(read_map(r, map, &first));
        FP8Q_TRY(close_position(r, first, (double)NAN));
    }
    return FP8Q_OK;
}

/* SGLang: [log-probability, token id, text] each.  */
static bool read_triple(const struct fp8q_json *triple, int64_t *token_out, double *value_out)
{
    const struct fp8q_json *value = fp8q_json_first(triple), *id = fp8q_json_next(value);
    uint64_t token = 0;
    bool ok = value && fp8q_json_uint(id, &token);
    *value_out = fp8q_json_number(value, (double)NAN);
    *token_out = (int64_t)token;
    return ok;
}

static int read_sglang(struct fp8q_task_reader *r, const struct fp8q_json *meta)
{
    const struct fp8q_json *own = fp8q_json_first(fp8q_json_get(meta, "input_token_logprobs"));
    const struct fp8q_json *top = fp8q_json_first(fp8q_json_get(meta, "input_top_logprobs"));
    for (; own; own = fp8q_json_next(own), top = fp8q_json_next(top)) {
        int64_t token, id;
        double value, v;
        if (!read_triple(own, &token, &value))
            return bad_line(r, "[log-probability, token, text] in \"input_token_logprobs\"");
        if (isnan(value))
            continue; /* the first token again */

        FP8Q_TRY(open_position(r));
        const struct fp8q_json *item = fp8q_json_is_array(top) ? fp8q_json_first(top) : NULL;
        for (; item; item = fp8q_json_next(item)) {
            if (!read_triple(item, &id, &v))
                return bad_line(r, "[log-probability, token, text] in \"input_top_logprobs\"");
            FP8Q_TRY(add_top(r, id, v));
        }
        FP8Q_TRY(close_position(r, token, value));
    }
    return FP8Q_OK;
}

int fp8q_task_logprob_line(struct fp8q_task_reader *r, const struct fp8q_json *line)
{
    struct fp8q_task_result *result = r->result;
    char buf[32];
    const char *id = fp8q_task_id(fp8q_json_get(line, "id"), buf);
    const struct fp8q_json *meta = fp8q_json_get(line, "meta_info");
    /* Prompts without an id are paired by their line.  */
    if (!id) {
        snprintf(buf, sizeof(buf), "line %zu", result->n_items + 1);
        id = buf;
    }

    snprintf(result->metric, sizeof(result->metric), "NLL");
    FP8Q_TRY(fp8q_grow(&result->position_starts, result->n_items, &r->starts_cap, sizeof(size_t),
                       r->err));
    result->position_starts[result->n_items] = result->n_positions;
    FP8Q_TRY(fp8q_task_add(r, id, 0, NULL, 0));

    if (fp8q_json_get(line, "top_logprobs"))
        FP8Q_TRY(read_own(r, line));
    else if (vllm_list(line))
        FP8Q_TRY(read_vllm(r, vllm_list(line)));
    else
        FP8Q_TRY(read_sglang(r, meta));

    /* The item's score is its mean NLL, for people; the gate goes by positions.  */
    size_t first = result->position_starts[result->n_items - 1], n = result->n_positions - first;
    struct fp8q_task_item *item = &result->items[result->n_items - 1];
    if (n == 0)
        return bad_line(r, "at least one position with log-probabilities");
    for (size_t i = first; i < result->n_positions; i++)
        item->score -= result->positions[i].value / (double)n;
    return FP8Q_OK;
}
