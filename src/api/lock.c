/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c - the lock of a plan, and whether one on file says the same.
 */
#include <stdlib.h>
#include <string.h>

#include "api/conversion.h"
#include "base/file.h"
#include "base/output.h"
#include "base/utf8.h"
#include "format/json.h"
#include "plan/lock.h"

enum { MOST_LOCK_BYTES = 1 << 30, NAMED = 5 };

int fp8q_conversion_lock(struct fp8q_conversion *c, const char **text_out, struct fp8q_error *err)
{
    *text_out = NULL;
    /* Made once, so that texts given out before stay good.  */
    if (!c->lock.len)
        FP8Q_TRY(fp8q_lock_text(c->plan, &c->lock, err));

    *text_out = c->lock.data;
    return FP8Q_OK;
}

int fp8q_conversion_write_lock(struct fp8q_conversion *c, const char *path, struct fp8q_error *err)
{
    const char *unused;
    FP8Q_TRY(fp8q_conversion_lock(c, &unused, err));
    free(c->lock_file);
    c->lock_file = NULL;
    c->lock_path = path;
    return FP8Q_OK;
}

/* Parts only say where it goes, and their finish may start in another directory.  */
int fp8q_conversion_place_lock(struct fp8q_conversion *c, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    if (!c->lock_path || c->lock_file)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_output_file(c->lock_path, &c->lock_file, err));
    if (c->lock_file && fp8q_utf8_is_valid(c->lock_file))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "lock-no-file",
                     "%s: parts need a lock that is a file with a name in UTF-8, since only their "
                     "finish writes it",
                     fp8q_show(&shown, c->lock_path));
}

/* ---- a lock on file -------------------------------------------------------------------------- */

static bool same_shape(const struct fp8q_json *a, const struct fp8q_json *b)
{
    const struct fp8q_json *x = fp8q_json_first(a), *y = fp8q_json_first(b);
    uint64_t n, m;

    for (; x && y; x = fp8q_json_next(x), y = fp8q_json_next(y))
        if (!fp8q_json_uint(x, &n) || !fp8q_json_uint(y, &m) || n != m)
            return false;
    return !x && !y;
}

/* The scheme of one tensor: its own, or that of all.  */
static const char *scheme_of(const struct fp8q_json *lock, const char *name)
{
    const char *all = fp8q_json_string(fp8q_json_get(lock, "scheme"), "");
    return fp8q_json_string(fp8q_json_get(fp8q_json_get(lock, "schemes"), name), all);
}

/* Entries of lock @a that @b lacks, or has in another shape or scheme: their number, and the first
 * names.  */
static size_t list_differing(const struct fp8q_json *a, const struct fp8q_json *b,
                             struct fp8q_text *names)
{
    const struct fp8q_json *entries = fp8q_json_get(a, "tensors");
    const struct fp8q_json *others = fp8q_json_get(b, "tensors");
    struct fp8q_shown shown;
    size_t n = 0;

    for (const struct fp8q_json *t = fp8q_json_first(entries); t; t = fp8q_json_next(t)) {
        const char *name = fp8q_json_key(t);
        const struct fp8q_json *same = fp8q_json_get(others, name);
        if (same && same_shape(t, same) && strcmp(scheme_of(a, name), scheme_of(b, name)) == 0)
            continue;
        if (n++ < NAMED)
            fp8q_text_printf(names, "%s%s", n > 1 ? ", " : "", fp8q_show(&shown, name));
    }
    if (n > NAMED)
        fp8q_text_printf(names, " and %zu more", n - NAMED);
    return n;
}

static int compare(const struct fp8q_json *planned, const struct fp8q_json *locked,
                   const char *path, struct fp8q_text *added, struct fp8q_text *gone,
                   struct fp8q_error *err)
{
    const char *scheme = fp8q_json_string(fp8q_json_get(planned, "scheme"), "");
    const char *locked_scheme = fp8q_json_string(fp8q_json_get(locked, "scheme"), "");
    struct fp8q_shown shown;

    if (!fp8q_json_is_object(fp8q_json_get(locked, "tensors")))
        return fp8q_fail(err, FP8Q_E_FORMAT, "lock-schema",
                         "%s: is no lock file: it has no \"tensors\"", fp8q_show(&shown, path));
    if (strcmp(scheme, locked_scheme) != 0)
        return fp8q_fail(err, FP8Q_E_POLICY, "lock-scheme",
                         "%s: locks scheme %.40s, this conversion makes %s (--write-lock replaces "
                         "the lock)",
                         path, fp8q_show(&shown, locked_scheme), scheme);

    size_t n_added = list_differing(planned, locked, added);
    size_t n_gone = list_differing(locked, planned, gone);
    FP8Q_TRY(fp8q_text_status(added, err));
    FP8Q_TRY(fp8q_text_status(gone, err));

    /* First what a lock is there to prevent; a narrower plan is told after it.  */
    if (n_added)
        return fp8q_fail(
            err, FP8Q_E_POLICY, "lock-widened",
            "%s: does not allow %zu tensor%s that would be quantized: %s (--write-lock "
            "replaces the lock)",
            path, n_added, fp8q_plural(n_added), added->data);
    if (n_gone)
        return fp8q_fail(err, FP8Q_E_POLICY, "lock-narrowed",
                         "%s: names %zu tensor%s that would not be quantized: %s (--write-lock "
                         "replaces the lock)",
                         path, n_gone, fp8q_plural(n_gone), gone->data);
    return FP8Q_OK;
}

static int compare_with(const struct fp8q_json *planned, const char *text, size_t len,
                        const char *path, struct fp8q_error *err)
{
    struct fp8q_text added = {0}, gone = {0};
    struct fp8q_json *locked;
    FP8Q_TRY(fp8q_json_parse(text, len, 0, path, &locked, err));
    int status = compare(planned, locked, path, &added, &gone, err);

    fp8q_text_reset(&added);
    fp8q_text_reset(&gone);
    fp8q_json_free(locked);
    return status;
}

static int compare_texts(const struct fp8q_conversion *c, const char *text, size_t len,
                         const char *path, struct fp8q_error *err)
{
    struct fp8q_json *planned;
    FP8Q_TRY(fp8q_json_parse(c->lock.data, c->lock.len, 0, "lock", &planned, err));
    int status = compare_with(planned, text, len, path, err);
    fp8q_json_free(planned);
    return status;
}

/* The lock at @path.  One that a killed run wrote, and that will be taken back, does not count: what
 * stood there before does.  *@text_out is NULL if there is none.  */
static int read_lock(const struct fp8q_conversion *c, const char *path, char **text_out,
                     size_t *len_out, struct fp8q_error *err)
{
    char *file = NULL;
    bool taken_back = false;
    *text_out = NULL;

    if (c->killed_lock.path) {
        FP8Q_TRY(fp8q_output_file(path, &file, err));
        taken_back = file && strcmp(file, c->killed_lock.path) == 0;
        free(file);
    }
    if (taken_back)
        FP8Q_TRY(fp8q_lock_file_is_ours(&c->killed_lock, &taken_back, err));

    if (taken_back && !c->killed_copy)
        return FP8Q_OK;
    return fp8q_read_file_if_there(taken_back ? c->killed_copy : path, MOST_LOCK_BYTES, text_out,
                                   len_out, err);
}

int fp8q_conversion_check_lock(struct fp8q_conversion *c, const char *path, bool *there_out,
                               struct fp8q_error *err)
{
    const char *unused;
    char *text = NULL;
    size_t len = 0;
    *there_out = false;
    FP8Q_TRY(fp8q_require(path, "path", err));
    FP8Q_TRY(fp8q_conversion_lock(c, &unused, err));
    FP8Q_TRY(read_lock(c, path, &text, &len, err));

    *there_out = text != NULL;
    int status = text ? compare_texts(c, text, len, path, err) : FP8Q_OK;
    free(text);
    c->lock_is_checked = status == FP8Q_OK;
    return status;
}

int fp8q_conversion_recheck_lock(struct fp8q_conversion *c, bool *there_out, struct fp8q_error *err)
{
    const char *unused;
    *there_out = false;
    if (!c->lock_path)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_conversion_place_lock(c, err));
    FP8Q_TRY(fp8q_conversion_lock(c, &unused, err));
    return c->lock_is_checked ? fp8q_conversion_check_lock(c, c->lock_file, there_out, err)
                              : FP8Q_OK;
}
