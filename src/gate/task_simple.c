/* SPDX-License-Identifier: Apache-2.0
 *
 * task_simple.c - LeRobot's eval_info.json and CSV.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/internal.h"
#include "base/text.h"

/* ---- LeRobot ------------------------------------------------------------------------------- */

/* {"per_episode": [{"episode_ix": 0, "seed": 1000, "success": true, "sum_reward": ...}]}.  The seed
 * sets the scene, so it is what pairs two runs; without one it is the episode's number.  */
static int per_episode(struct fp8q_task_reader *r, const struct fp8q_json *list, const char *metric)
{
    for (const struct fp8q_json *e = fp8q_json_first(list); e; e = fp8q_json_next(e)) {
        char buf[32], id[64];
        struct fp8q_shown shown;
        const char *seed = fp8q_task_id(fp8q_json_get(e, "seed"), buf);
        const char *number = seed ? seed : fp8q_task_id(fp8q_json_get(e, "episode_ix"), buf);
        double score;
        if (!number || !fp8q_task_score(fp8q_json_get(e, metric), &score))
            return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format",
                             "%s: episode %zu: expected \"seed\" or \"episode_ix\", and \"%s\"",
                             r->what, r->result->n_items + 1, fp8q_show(&shown, metric));
        snprintf(id, sizeof(id), "%s %s", seed ? "seed" : "episode", number);
        FP8Q_TRY(fp8q_task_add(r, id, score, NULL, 0));
    }
    return FP8Q_OK;
}

/* {"per_task": [{"task_group": "libero_spatial", "task_id": 0, "metrics": {"successes": [true,
 * ...]}}]}.  */
static int per_task(struct fp8q_task_reader *r, const struct fp8q_json *list, const char *metric)
{
    static const char *const plural[][2] = {
        {"success", "successes"}, {"sum_reward", "sum_rewards"}, {"max_reward", "max_rewards"}};
    const char *member = metric;
    for (size_t i = 0; i < sizeof(plural) / sizeof(*plural); i++)
        if (strcmp(metric, plural[i][0]) == 0)
            member = plural[i][1];
    for (const struct fp8q_json *t = fp8q_json_first(list); t; t = fp8q_json_next(t)) {
        char buf[32], id[400];
        struct fp8q_shown shown;
        const char *group = fp8q_json_string(fp8q_json_get(t, "task_group"), "task");
        const char *number = fp8q_task_id(fp8q_json_get(t, "task_id"), buf);
        const struct fp8q_json *scores = fp8q_json_get(fp8q_json_get(t, "metrics"), member);
        size_t episode = 0;
        if (!number || !fp8q_json_is_array(scores))
            return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format",
                             "%s: expected \"task_id\" and \"metrics.%s\" in each of \"per_task\"",
                             r->what, fp8q_show(&shown, member));
        for (const struct fp8q_json *s = fp8q_json_first(scores); s; s = fp8q_json_next(s)) {
            double score;
            if (!fp8q_task_score(s, &score))
                return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format",
                                 "%s: \"metrics.%s\" holds something else than numbers", r->what,
                                 fp8q_show(&shown, member));
            snprintf(id, sizeof(id), "%.200s/%.100s/%zu", group, number, episode++);
            FP8Q_TRY(fp8q_task_add(r, id, score, NULL, 0));
        }
    }
    return FP8Q_OK;
}

int fp8q_task_lerobot(struct fp8q_task_reader *r, const struct fp8q_json *root)
{
    const char *metric = r->metric ? r->metric : "success";
    const struct fp8q_json *episodes = fp8q_json_get(root, "per_episode");
    snprintf(r->result->metric, sizeof(r->result->metric), "%s", metric);
    if (fp8q_json_is_array(episodes))
        return per_episode(r, episodes, metric);
    return per_task(r, fp8q_json_get(root, "per_task"), metric);
}

/* ---- CSV ----------------------------------------------------------------------------------- */

enum { MAX_COLUMNS = 256 };

/* One field (RFC 4180) appended to @out with a NUL; the position after its separator.  *@end_out:
 * that was the last one of the line.  */
static size_t csv_field(const char *text, size_t len, size_t at, struct fp8q_text *out,
                        bool *end_out)
{
    bool quoted = at < len && text[at] == '"';
    at += quoted;
    for (; at < len; at++) {
        if (quoted && text[at] == '"') {
            if (at + 1 < len && text[at + 1] == '"')
                at++;
            else {
                quoted = false;
                continue;
            }
        } else if (!quoted && (text[at] == ',' || text[at] == '\n')) {
            break;
        } else if (!quoted && text[at] == '\r' && at + 1 < len && text[at + 1] == '\n') {
            continue;
        }
        fp8q_text_add(out, text + at, 1);
    }
    fp8q_text_add(out, "", 1);
    *end_out = at >= len || text[at] == '\n';
    return at < len ? at + 1 : at;
}

/* One line: fields as NUL-terminated texts in @line, their starts in @fields.  */
static size_t csv_line(const char *text, size_t len, size_t at, struct fp8q_text *line,
                       size_t fields[MAX_COLUMNS], size_t *count_out)
{
    bool end = false;
    line->len = 0;
    for (*count_out = 0; !end && *count_out < MAX_COLUMNS; ++*count_out) {
        fields[*count_out] = line->len;
        at = csv_field(text, len, at, line, &end);
    }
    return at;
}

static bool parse_score(const char *text, double *out)
{
    static const char *const words[][2] = {{"true", "false"}, {"True", "False"}, {"TRUE", "FALSE"}};
    char *end;
    for (size_t i = 0; i < 3; i++)
        if (strcmp(text, words[i][0]) == 0 || strcmp(text, words[i][1]) == 0) {
            *out = strcmp(text, words[i][0]) == 0;
            return true;
        }
    *out = fp8q_number_parse(text, &end);
    return *text && !*end && isfinite(*out);
}

static int csv_rows(struct fp8q_task_reader *r, const char *text, size_t len,
                    struct fp8q_text *line)
{
    const char *metric = r->metric ? r->metric : "score";
    size_t fields[MAX_COLUMNS], n, number = 1;
    int id = -1, score = -1, cluster = -1;
    struct fp8q_shown shown;
    size_t at = csv_line(text, len, 0, line, fields, &n);
    FP8Q_TRY(fp8q_text_status(line, r->err));
    for (size_t i = 0; i < n; i++) {
        const char *name = line->data + fields[i];
        id = strcmp(name, "id") == 0 ? (int)i : id;
        score = strcmp(name, metric) == 0 ? (int)i : score;
        cluster = strcmp(name, "cluster") == 0 ? (int)i : cluster;
    }
    if (id < 0 || score < 0)
        return fp8q_fail(
            r->err, FP8Q_E_FORMAT, "task-format",
            "%s: neither JSON nor CSV whose first line names the columns \"id\" and \"%s\"",
            r->what, fp8q_show(&shown, metric));
    size_t columns = n;
    while (at < len) {
        double value;
        at = csv_line(text, len, at, line, fields, &n);
        number++;
        FP8Q_TRY(fp8q_text_status(line, r->err));
        if (n == 1 && !line->data[0])
            continue; /* an empty line */
        if (n != columns || !parse_score(line->data + fields[score], &value))
            return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format",
                             "%s line %zu: expected %zu fields and a number as \"%s\"", r->what,
                             number, columns, fp8q_show(&shown, metric));
        FP8Q_TRY(fp8q_task_add(r, line->data + fields[id], value,
                               cluster < 0 ? NULL : line->data + fields[cluster], 0));
    }
    return FP8Q_OK;
}

int fp8q_task_csv(struct fp8q_task_reader *r, const char *text, size_t len)
{
    struct fp8q_text line = {0};
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        len -= 3;
    }
    snprintf(r->result->metric, sizeof(r->result->metric), "%s", r->metric ? r->metric : "score");
    int status = csv_rows(r, text, len, &line);
    fp8q_text_reset(&line);
    return status;
}
