/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c - writes and compares states.
 */
#include "destination/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"

/* ---- writing --------------------------------------------------------------------------------- */

/* Negative before 1970, where clocks that were never set and some archives are.  */
static void write_seconds(struct fp8q_jsonw *w, const char *key, time_t seconds)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)seconds);
    fp8q_jsonw_raw(w, key, text);
}

/* Parts may run on machines with copies of their own, which keep times of contents at best; one run
 * that goes on looks at the change time too, which nothing can set back.  */
static void write_file(struct fp8q_jsonw *w, const char *name, const struct stat *st, bool one_run)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "name", name);
    fp8q_jsonw_uint(w, "size", (uint64_t)st->st_size);
    write_seconds(w, "mtime_s", st->st_mtim.tv_sec);
    fp8q_jsonw_uint(w, "mtime_ns", (uint64_t)st->st_mtim.tv_nsec);
    if (one_run) {
        write_seconds(w, "ctime_s", st->st_ctim.tv_sec);
        fp8q_jsonw_uint(w, "ctime_ns", (uint64_t)st->st_ctim.tv_nsec);
    }
}

static void write_source(struct fp8q_jsonw *w, const struct fp8q_ckpt *ckpt,
                         const struct fp8q_side_files *copies, bool one_run)
{
    fp8q_jsonw_uint(w, "config_crc32", fp8q_crc32(0, ckpt->config_text, ckpt->config_len));
    fp8q_jsonw_uint(w, "index_crc32", fp8q_crc32(0, ckpt->index_text, ckpt->index_len));

    fp8q_jsonw_open(w, "shards", '[');
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &ckpt->shards[i];
        write_file(w, s->name, &s->stat, one_run);
        fp8q_jsonw_uint(w, "header_crc32", s->header.crc32);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');

    fp8q_jsonw_open(w, "side_files", '[');
    for (size_t i = 0; i < copies->count; i++) {
        write_file(w, copies->files[i].name, &copies->stats[i], one_run);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static uint32_t plan_crc(const struct fp8q_plan *plan)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < plan->n_shards; i++) {
        const struct fp8q_out_shard *s = &plan->shards[i];

        /* A header has every name, type, shape and offset of its shard.  */
        crc = fp8q_crc32(crc, s->name, strlen(s->name) + 1);
        crc = fp8q_crc32(crc, &s->header_crc32, sizeof(s->header_crc32));
    }
    return crc;
}

/* One run writes its lock itself; parts leave it to their finish, which knows the state alone.  */
static void write_lock(struct fp8q_jsonw *w, const struct fp8q_state_facts *f)
{
    if (f->n_parts == 0 || !f->lock_path)
        return;
    fp8q_jsonw_open(w, "lock", '{');
    fp8q_jsonw_string(w, "path", f->lock_path);
    fp8q_jsonw_bool(w, "checked", f->lock_is_checked);
    fp8q_jsonw_close(w, '}');
}

int fp8q_state_text(const struct fp8q_state_facts *f, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 1};
    uint32_t evidence;
    bool ignored;

    FP8Q_TRY(fp8q_request_evidence(f->request, &evidence, &ignored, err));

    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "fp8q", FP8Q_VERSION);
    fp8q_jsonw_uint(&w, "parts", f->n_parts);
    fp8q_request_write(f->request, "request", &w);
    fp8q_jsonw_uint(&w, "evidence_crc32", evidence);
    write_lock(&w, f);

    write_source(&w, f->plan->ckpt, f->copies, f->n_parts == 0);
    fp8q_jsonw_uint(&w, "plan_crc32", plan_crc(f->plan));
    fp8q_listing_write(f->files, "files", &w);

    fp8q_jsonw_close(&w, '}');

    *out = w.text;
    int status = fp8q_text_status(out, err);
    if (status != FP8Q_OK)
        fp8q_text_reset(out);
    return status;
}

int fp8q_state_files(const struct fp8q_json *state, const char *dir, struct fp8q_listing *files_out,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    uint64_t parts;

    *files_out = (struct fp8q_listing){0};
    if (!fp8q_json_string(fp8q_json_get(state, "fp8q"), NULL) ||
        !fp8q_json_uint(fp8q_json_get(state, "parts"), &parts) ||
        !fp8q_json_is_object(fp8q_json_get(state, "request")))
        return fp8q_fail(err, FP8Q_E_FORMAT, "state", "%s: holds no state of a conversion",
                         fp8q_show(&shown, dir));

    return fp8q_listing_parse(fp8q_json_get(state, "files"), files_out, err);
}

int fp8q_state_lock(const struct fp8q_json *state, char **path_out, bool *checked_out,
                    struct fp8q_error *err)
{
    const struct fp8q_json *lock = fp8q_json_get(state, "lock");
    const char *path = fp8q_json_string(fp8q_json_get(lock, "path"), NULL);

    *checked_out = fp8q_json_bool(fp8q_json_get(lock, "checked"), true);
    *path_out = path ? strdup(path) : NULL;
    return path && !*path_out ? fp8q_fail_nomem(err) : FP8Q_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Values as states have them: texts, integers, booleans, null, and lists and objects of these.  */
static bool same_value(const struct fp8q_json *a, const struct fp8q_json *b)
{
    const char *s = fp8q_json_string(a, NULL), *t = fp8q_json_string(b, NULL);
    double m = fp8q_json_number(a, (double)NAN), n = fp8q_json_number(b, (double)NAN);

    if (!a || !b)
        return a == b;
    if (s || t)
        return s && t && strcmp(s, t) == 0;
    if (!isnan(m) || !isnan(n))
        return m == n;

    if (fp8q_json_is_array(a) != fp8q_json_is_array(b) ||
        fp8q_json_is_object(a) != fp8q_json_is_object(b) ||
        fp8q_json_is_null(a) != fp8q_json_is_null(b) ||
        fp8q_json_bool(a, false) != fp8q_json_bool(b, false) ||
        fp8q_json_count(a) != fp8q_json_count(b))
        return false;

    /* Members in the same order: both texts were written by the same function.  */
    const struct fp8q_json *i = fp8q_json_first(a), *k = fp8q_json_first(b);
    for (; i && k; i = fp8q_json_next(i), k = fp8q_json_next(k)) {
        const char *x = fp8q_json_key(i), *y = fp8q_json_key(k);
        if (!x != !y || (x && y && strcmp(x, y) != 0) || !same_value(i, k))
            return false;
    }
    return true;
}

static const char *name_of(const struct fp8q_json *file)
{
    return fp8q_json_string(fp8q_json_get(file, "name"), "");
}

static bool has_name(const struct fp8q_json *files, const char *name)
{
    for (const struct fp8q_json *f = fp8q_json_first(files); f; f = fp8q_json_next(f))
        if (strcmp(name_of(f), name) == 0)
            return true;
    return false;
}

/* Two lists of files in one order, whichever that is.  The first difference is enough for a message:
 * a file that changed, or the one that is in one list alone.  */
static bool compare_files(const struct fp8q_json *then, const struct fp8q_json *now,
                          const char *kind, struct fp8q_text *out)
{
    const struct fp8q_json *a = fp8q_json_first(then), *b = fp8q_json_first(now);
    struct fp8q_shown shown;

    while (a && b && same_value(a, b)) {
        a = fp8q_json_next(a);
        b = fp8q_json_next(b);
    }
    if (!a && !b)
        return false;

    const char *name = name_of(a ? a : b), *how = "is new";
    if (a && b && strcmp(name, name_of(b)) == 0)
        how = "has changed";
    else if (a && !has_name(now, name))
        how = "is gone";
    else
        name = name_of(b);

    fp8q_text_printf(out, "%s \"%s\" of the source %s", kind, fp8q_show(&shown, name), how);
    return true;
}

static bool compare_requests(const struct fp8q_json *then, const struct fp8q_json *now,
                             struct fp8q_text *out)
{
    for (const struct fp8q_json *i = fp8q_json_first(now); i; i = fp8q_json_next(i)) {
        const char *key = fp8q_json_key(i);
        if (same_value(fp8q_json_get(then, key), i))
            continue;
        if (strcmp(key, "source") == 0)
            fp8q_text_puts(out, "the source has another path");
        else
            fp8q_text_printf(out, "another value of \"%s\" was asked for", key);
        return true;
    }
    return false;
}

static void compare(const struct fp8q_json *then, const struct fp8q_json *now,
                    struct fp8q_text *out)
{
    static const struct {
        const char *key, *says;
    } facts[] = {
        {"fp8q", "it was another version of fp8q"},
        {"parts", "it had another number of parts"},
        {"evidence_crc32", "the calibration file or the inputs have changed"},
        {"config_crc32", "config.json of the source has changed"},
        {"index_crc32", "the index of the source has changed"},
        {"lock", "another lock was asked for"},
    };

    /* From the plainest reason to the least plain; the first that holds is said.  */
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
        if (!same_value(fp8q_json_get(then, facts[i].key), fp8q_json_get(now, facts[i].key))) {
            fp8q_text_puts(out, facts[i].says);
            return;
        }

    if (compare_requests(fp8q_json_get(then, "request"), fp8q_json_get(now, "request"), out) ||
        compare_files(fp8q_json_get(then, "shards"), fp8q_json_get(now, "shards"), "shard", out) ||
        compare_files(fp8q_json_get(then, "side_files"), fp8q_json_get(now, "side_files"), "file",
                      out))
        return;

    if (!same_value(then, now)) /* --like another checkpoint under the same path */
        fp8q_text_puts(out, "the plan is another one");
}

int fp8q_state_difference(const struct fp8q_json *then, const char *now, struct fp8q_text *out,
                          struct fp8q_error *err)
{
    struct fp8q_json *json;
    FP8Q_TRY(fp8q_json_parse(now, strlen(now), 0, "state", &json, err));
    compare(then, json, out);
    fp8q_json_free(json);
    return fp8q_text_status(out, err);
}
