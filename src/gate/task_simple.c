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

static int one_task(struct fp8q_task_reader *r, const struct fp8q_json *t, const char *member)
{
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

    /* Scores have no ids in this file: the place in the list is what pairs two runs.  */
    for (const struct fp8q_json *s = fp8q_json_first(scores); s; s = fp8q_json_next(s)) {
        double score;
        if (!fp8q_task_score(s, &score))
            return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format",
                             "%s: \"metrics.%s\" holds something else than numbers", r->what,
                             fp8q_show(&shown, member));
        snprintf(id, sizeof(id), "%.200s/%.100s/%zu", group, number, episode++);
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

    for (const struct fp8q_json *t = fp8q_json_first(list); t; t = fp8q_json_next(t))
        FP8Q_TRY(one_task(r, t, member));
    return FP8Q_OK;
}

/* "pc_success" of the whole file, in per cent, must be that of its episodes.  */
static int check_success(struct fp8q_task_reader *r, const struct fp8q_json *root)
{
    const char *const path =
        fp8q_json_get(root, "per_episode") ? "aggregated.pc_success" : "overall.pc_success";
    double stated = fp8q_json_number(fp8q_json_path(root, path), (double)NAN), sum = 0;

    for (size_t i = 0; i < r->result->n_items; i++)
        sum += r->result->items[i].score;
    double found = 100 * sum / (double)r->result->n_items;
    if (isnan(stated) || isnan(found) || fabs(stated - found) <= 0.01)
        return FP8Q_OK;
    return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-contradiction",
                     "%s: \"%s\" is %g, but its episodes give %g", r->what, path, stated, found);
}

int fp8q_task_lerobot(struct fp8q_task_reader *r, const struct fp8q_json *root)
{
    const char *metric = r->metric ? r->metric : "success";
    const struct fp8q_json *episodes = fp8q_json_get(root, "per_episode");

    snprintf(r->result->metric, sizeof(r->result->metric), "%s", metric);
    if (fp8q_json_is_array(episodes))
        FP8Q_TRY(per_episode(r, episodes, metric));
    else
        FP8Q_TRY(per_task(r, fp8q_json_get(root, "per_task"), metric));
    return strcmp(metric, "success") == 0 ? check_success(r, root) : FP8Q_OK;
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

    /* The buffer is used again: what was read of the line before is gone.  */
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

/* Where the columns are; -1: there is none.  */
struct columns {
    size_t count;
    int id, score, cluster;
};

static int csv_header(struct fp8q_task_reader *r, const struct fp8q_text *line,
                      const size_t *fields, size_t n, struct columns *out)
{
    const char *metric = r->metric ? r->metric : "score";
    const char *const names[] = {"id", metric, "cluster"};
    int found[] = {-1, -1, -1};
    struct fp8q_shown shown;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++) {
            if (strcmp(line->data + fields[i], names[k]) != 0)
                continue;
            /* Which of the two would count is anybody's guess.  */
            if (found[k] >= 0)
                return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format",
                                 "%s: two columns are called \"%s\"", r->what,
                                 fp8q_show(&shown, names[k]));
            found[k] = (int)i;
        }

    if (found[0] < 0 || found[1] < 0)
        return fp8q_fail(
            r->err, FP8Q_E_FORMAT, "task-format",
            "%s: neither JSON nor CSV whose first line names the columns \"id\" and \"%s\"",
            r->what, fp8q_show(&shown, metric));
    *out = (struct columns){n, found[0], found[1], found[2]};
    return FP8Q_OK;
}

static int csv_rows(struct fp8q_task_reader *r, const char *text, size_t len,
                    struct fp8q_text *line)
{
    size_t fields[MAX_COLUMNS], n, number = 1;
    struct columns c = {0};
    struct fp8q_shown shown;

    size_t at = csv_line(text, len, 0, line, fields, &n);
    FP8Q_TRY(fp8q_text_status(line, r->err));
    FP8Q_TRY(csv_header(r, line, fields, n, &c));

    while (at < len) {
        double value;
        at = csv_line(text, len, at, line, fields, &n);
        number++;
        FP8Q_TRY(fp8q_text_status(line, r->err));
        if (n == 1 && !line->data[0])
            continue; /* an empty line */

        if (n != c.count || !parse_score(line->data + fields[c.score], &value))
            return fp8q_fail(r->err, FP8Q_E_FORMAT, "task-format",
                             "%s line %zu: expected %zu fields and a number as \"%s\"", r->what,
                             number, c.count, fp8q_show(&shown, r->metric ? r->metric : "score"));
        FP8Q_TRY(fp8q_task_add(r, line->data + fields[c.id], value,
                               c.cluster < 0 ? NULL : line->data + fields[c.cluster], 0));
    }
    return FP8Q_OK;
}

int fp8q_task_csv(struct fp8q_task_reader *r, const char *text, size_t len)
{
    struct fp8q_text line = {0};

    /* Spreadsheets write a byte order mark.  */
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        len -= 3;
    }

    snprintf(r->result->metric, sizeof(r->result->metric), "%s", r->metric ? r->metric : "score");
    int status = csv_rows(r, text, len, &line);
    fp8q_text_reset(&line);
    return status;
}
