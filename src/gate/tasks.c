/* SPDX-License-Identifier: Apache-2.0
 *
 * tasks.c - tells formats apart, walks the lines of JSONL, and finishes what the readers collected.
 */
#include "gate/tasks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/crc.h"
#include "base/mem.h"
#include "gate/internal.h"

#define MAX_FILE_BYTES (1u << 30)

/* ---- JSONL --------------------------------------------------------------------------------- */

static int generic_line(struct fp8q_task_reader *r, const struct fp8q_json *line)
{
    char id_buf[32], cluster_buf[32];
    const char *metric = r->metric ? r->metric : "score";
    const char *id = fp8q_task_id(fp8q_json_get(line, "id"), id_buf);
    double score;
    if (!id || !fp8q_task_score(fp8q_json_get(line, metric), &score)) {
        struct fp8q_shown shown;
        return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format",
                         "%s: item %zu: expected \"id\" and a number or boolean \"%s\"", r->what,
                         r->result->n_items + 1, fp8q_show(&shown, metric));
    }

    snprintf(r->result->metric, sizeof(r->result->metric), "%s", metric);
    return fp8q_task_add(r, id, score, fp8q_task_id(fp8q_json_get(line, "cluster"), cluster_buf),
                         0);
}

static int read_line(struct fp8q_task_reader *r, const struct fp8q_json *line)
{
    /* By members that no other format has; what is left must have an id and a score.  */
    if (fp8q_json_get(line, "doc_id")) {
        r->result->format = "lm-eval samples";
        return fp8q_task_lm_eval_sample(r, line);
    }
    if (fp8q_task_has_logprobs(line)) {
        r->result->format = "log-probabilities";
        return fp8q_task_logprob_line(r, line);
    }
    r->result->format = "JSONL";
    return generic_line(r, line);
}

static bool is_blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r\n", text[i]))
            return false;
    return true;
}

static int read_lines(struct fp8q_task_reader *r, const char *text, size_t len)
{
    const char *format = NULL;
    size_t number = 0;

    for (size_t at = 0, end; at < len; at = end + 1) {
        const char *newline = memchr(text + at, '\n', len - at);
        char what[300];
        struct fp8q_shown shown;
        struct fp8q_json *line;

        end = newline ? (size_t)(newline - text) : len;
        number++;
        if (is_blank(text + at, end - at))
            continue;

        snprintf(what, sizeof(what), "%s line %zu", fp8q_show(&shown, r->what), number);
        FP8Q_TRY(fp8q_json_parse(text + at, end - at, FP8Q_JSON_PYTHON, what, &line, r->err));
        int status = read_line(r, line);
        fp8q_json_free(line);
        FP8Q_TRY(status);

        if (format && strcmp(format, r->result->format) != 0)
            return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format", "%s: %s after lines of %s", what,
                             r->result->format, format);
        format = r->result->format;
    }
    return FP8Q_OK;
}

/* ---- whole files --------------------------------------------------------------------------- */

static int read_document(struct fp8q_task_reader *r, const struct fp8q_json *root, bool *known_out)
{
    *known_out = true;

    if (fp8q_json_is_object(fp8q_json_get(root, "results"))) {
        r->result->format = "lm-eval results";
        return fp8q_task_lm_eval_results(r, root);
    }
    if (fp8q_json_get(root, "per_episode") || fp8q_json_get(root, "per_task")) {
        r->result->format = "LeRobot eval_info";
        return fp8q_task_lerobot(r, root);
    }
    *known_out = false;
    return FP8Q_OK;
}

static int read_any(struct fp8q_task_reader *r, const char *text, size_t len)
{
    size_t start = 0;

    while (start < len && strchr(" \t\r\n", text[start]))
        start++;
    if (start == len)
        return fp8q_fail(r->err, FP8Q_E_EVIDENCE, "task-empty", "%s: the file is empty", r->what);
    if (text[start] != '{') {
        r->result->format = "CSV";
        return fp8q_task_csv(r, text, len);
    }

    struct fp8q_json *root;
    struct fp8q_error err; /* a JSONL file is no document: that is no error yet */
    bool known = false;
    int status = fp8q_json_parse(text, len, FP8Q_JSON_PYTHON, r->what, &root, &err);
    if (status == FP8Q_E_NOMEM)
        return fp8q_fail_nomem(r->err);

    if (status == FP8Q_OK) {
        status = read_document(r, root, &known);
        fp8q_json_free(root);
        FP8Q_TRY(status);
    }
    /* A JSONL file of one line is a document too, of none of the known kinds.  */
    return known ? FP8Q_OK : read_lines(r, text, len);
}

static int compare_items(const void *a, const void *b)
{
    const struct fp8q_task_item *x = a, *y = b;
    return strcmp(x->id, y->id);
}

static int finish(struct fp8q_task_reader *r)
{
    struct fp8q_task_result *result = r->result;
    struct fp8q_shown shown;
    if (result->aggregate)
        return FP8Q_OK;
    if (result->n_items == 0)
        return fp8q_fail(r->err, FP8Q_E_EVIDENCE, "task-empty", "%s: no results in it", r->what);

    /* Prompts stay in the order of the file: they are paired by line.  */
    if (result->position_starts) {
        FP8Q_TRY(fp8q_grow(&result->position_starts, result->n_items, &r->starts_cap,
                           sizeof(size_t), r->err));
        result->position_starts[result->n_items] = result->n_positions;
        return FP8Q_OK;
    }

    /* Sorted, since runs may write their items in any order and pairs are by id.  */
    qsort(result->items, result->n_items, sizeof(*result->items), compare_items);
    for (size_t i = 1; i < result->n_items; i++)
        if (strcmp(result->items[i - 1].id, result->items[i].id) == 0)
            return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-id-twice", "%s: id \"%s\" occurs twice",
                             r->what, fp8q_show(&shown, result->items[i].id));
    return FP8Q_OK;
}

static int parse(struct fp8q_task_reader *r, const char *text, size_t len)
{
    /* Length and CRC tell later whether one file was given for both sides.  */
    r->result->content_crc = fp8q_crc32(0, text, len);
    r->result->content_len = len;
    r->result->path = strdup(r->what);
    if (!r->result->path)
        return fp8q_fail_nomem(r->err);

    FP8Q_TRY(read_any(r, text, len));
    if (r->result->direction == FP8Q_DIRECTION_UNKNOWN)
        r->result->direction = fp8q_metric_direction(r->result->metric);
    return finish(r);
}

int fp8q_task_parse(const char *text, size_t len, const char *path, const char *task,
                    const char *metric, struct fp8q_task_result *result_out, struct fp8q_error *err)
{
    struct fp8q_task_reader r = {
        .result = result_out, .what = path, .task = task, .metric = metric, .err = err};
    *result_out = (struct fp8q_task_result){.se = (double)NAN};

    int status = parse(&r, text, len);
    if (status != FP8Q_OK)
        fp8q_task_reset(result_out);
    return status;
}

void fp8q_task_reset(struct fp8q_task_result *result)
{
    for (size_t i = 0; i < result->n_items; i++)
        free(result->items[i].id);
    free(result->items);
    free(result->path);
    free(result->positions);
    free(result->top);
    free(result->position_starts);
    for (size_t i = 0; i < result->n_metrics; i++)
        free(result->metrics[i]);
    free(result->metrics);
    *result = (struct fp8q_task_result){0};
}

/* ---- both sides ---------------------------------------------------------------------------- */

struct pair_texts {
    const char *paths[2], *task;
    char *texts[2];
    size_t lens[2];
};

static int parse_side(const struct pair_texts *t, int side, const char *metric,
                      struct fp8q_task_result *out, struct fp8q_error *err)
{
    return fp8q_task_parse(t->texts[side], t->lens[side], t->paths[side], t->task, metric, out,
                           err);
}

static int add_pair(const struct pair_texts *t, const char *metric, struct fp8q_task_pairs *pairs,
                    struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_grow(&pairs->pairs, pairs->n_pairs, &pairs->cap, sizeof(*pairs->pairs), err));
    struct fp8q_task_pair *pair = &pairs->pairs[pairs->n_pairs++];

    *pair = (struct fp8q_task_pair){0};
    FP8Q_TRY(parse_side(t, 0, metric, &pair->base, err));

    /* Both of the same metric, in whatever order the two files have them.  */
    if (!metric && pair->base.n_metrics > 1)
        metric = pair->base.metrics[0];
    return parse_side(t, 1, metric, &pair->quant, err);
}

static int read_pairs(struct pair_texts *t, const char *metric, struct fp8q_task_pairs *pairs,
                      struct fp8q_error *err)
{
    /* Read once, parsed anew for each metric.  */
    for (int side = 0; side < 2; side++)
        FP8Q_TRY(
            fp8q_read_file(t->paths[side], MAX_FILE_BYTES, &t->texts[side], &t->lens[side], err));
    FP8Q_TRY(add_pair(t, metric, pairs, err));

    /* The array moves as it grows: names are borrowed from the first result, not from a pair.  */
    char **metrics = pairs->pairs[0].base.metrics;
    size_t n = metric ? 0 : pairs->pairs[0].base.n_metrics;
    for (size_t i = 1; i < n; i++)
        FP8Q_TRY(add_pair(t, metrics[i], pairs, err));
    return FP8Q_OK;
}

int fp8q_task_read_pairs(const char *base, const char *quant, const char *task, const char *metric,
                         struct fp8q_task_pairs *pairs_out, struct fp8q_error *err)
{
    struct pair_texts texts = {.paths = {base, quant}, .task = task};
    *pairs_out = (struct fp8q_task_pairs){0};

    int status = read_pairs(&texts, metric, pairs_out, err);
    free(texts.texts[0]);
    free(texts.texts[1]);
    if (status != FP8Q_OK)
        fp8q_task_pairs_reset(pairs_out);
    return status;
}

void fp8q_task_pairs_reset(struct fp8q_task_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n_pairs; i++) {
        fp8q_task_reset(&pairs->pairs[i].base);
        fp8q_task_reset(&pairs->pairs[i].quant);
    }
    free(pairs->pairs);
    *pairs = (struct fp8q_task_pairs){0};
}
