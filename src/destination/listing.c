/* SPDX-License-Identifier: Apache-2.0
 *
 * listing.c - lists of files, compared with what stands in a directory.
 *
 * Removal goes by the list and never by the directory: listed files are unlinked by name, and
 * directories are removed by rmdir(), which fails while anything is in them.  So a file that
 * somebody puts there at the last moment survives, too.
 */
#include "destination/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/mem.h"
#include "base/path.h"

int fp8q_listing_add(struct fp8q_listing *l, const char *name, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_grow(&l->names, l->count, &l->cap, sizeof(*l->names), err));
    l->names[l->count] = strdup(name);
    if (!l->names[l->count])
        return fp8q_fail_nomem(err);
    l->count++;
    return FP8Q_OK;
}

void fp8q_listing_reset(struct fp8q_listing *l)
{
    fp8q_names_free(l->names, l->count);
    *l = (struct fp8q_listing){0};
}

/* Position of the first name that is not less than @name.  */
static size_t lower_bound(const struct fp8q_listing *l, const char *name)
{
    size_t from = 0, to = l->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (strcmp(l->names[middle], name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

bool fp8q_listing_has(const struct fp8q_listing *l, const char *name)
{
    size_t i = lower_bound(l, name);
    return i < l->count && strcmp(l->names[i], name) == 0;
}

/* Order of @name and the files in the directory of @len bytes @dir: 0 if it lies there.  */
static int compare_below(const char *name, const char *dir, size_t len)
{
    int order = strncmp(name, dir, len);
    return order ? order : (unsigned char)name[len] - '/';
}

/* Whether any listed file lies in the directory @dir.  */
static bool has_below(const struct fp8q_listing *l, const char *dir)
{
    size_t from = 0, to = l->count, len = strlen(dir);

    /* The list is sorted by bytes, so all that lies in one directory stands together.  */
    while (from < to) {
        size_t middle = from + (to - from) / 2;

        int order = compare_below(l->names[middle], dir, len);
        if (order == 0)
            return true;
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return false;
}

int fp8q_listing_sort(struct fp8q_listing *l, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    if (l->count)
        qsort(l->names, l->count, sizeof(*l->names), fp8q_compare_strings);

    for (size_t i = 0; i < l->count; i++) {
        bool twice = i > 0 && strcmp(l->names[i - 1], l->names[i]) == 0;

        if (twice || has_below(l, l->names[i]))
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "name-clash",
                             "\"%s\" would be written twice, or is a file and a directory at once; "
                             "rename it in the source",
                             fp8q_show(&shown, l->names[i]));
    }
    return FP8Q_OK;
}

/* ---- a directory against the list ------------------------------------------------------------ */

void fp8q_strangers_add(struct fp8q_strangers *s, const char *name)
{
    enum { MOST_NAMED = 5, ROOM_FOR_MORE = 40 };
    struct fp8q_shown shown;
    char item[sizeof(shown.text) + 8];
    int n =
        snprintf(item, sizeof(item), "%s\"%s\"", s->n_named ? ", " : "", fp8q_show(&shown, name));

    s->count++;
    if (s->n_named < MOST_NAMED && s->named_len + (size_t)n + ROOM_FOR_MORE < sizeof(s->names)) {
        memcpy(s->names + s->named_len, item, (size_t)n + 1);
        s->named_len += (size_t)n;
        s->n_named++;
    }

    /* The number of the others stands behind the names, and is written anew each time.  */
    if (s->count > s->n_named)
        snprintf(s->names + s->named_len, ROOM_FOR_MORE, " and %zu more", s->count - s->n_named);
}

struct walk {
    const struct fp8q_listing *listing;
    const char *root;
    struct fp8q_strangers *strangers;
    struct fp8q_error *err;
};

static char *below(const char *dir, const char *name)
{
    return *dir ? fp8q_join(dir, name) : strdup(name);
}

static int walk_dir(struct walk *w, const char *relative);

static int visit(struct walk *w, const char *relative)
{
    struct stat st;
    bool there;
    FP8Q_TRY(fp8q_lstat_in(w->root, relative, &st, &there, w->err));

    /* What NFS keeps of a file that was removed while it was open goes by itself.  */
    if (!there || strncmp(fp8q_basename(relative), ".nfs", 4) == 0)
        return FP8Q_OK;

    /* A directory without a listed file is a stranger as a whole, and named once.  */
    if (S_ISDIR(st.st_mode) && has_below(w->listing, relative))
        return walk_dir(w, relative);
    if (!S_ISREG(st.st_mode) || !fp8q_listing_has(w->listing, relative))
        fp8q_strangers_add(w->strangers, relative);
    return FP8Q_OK;
}

static int visit_each(struct walk *w, const char *relative, char **names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *child = below(relative, names[i]);
        int status = child ? visit(w, child) : fp8q_fail_nomem(w->err);
        free(child);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

static int walk_dir(struct walk *w, const char *relative)
{
    char **names = NULL;
    size_t n = 0;
    char *dir = *relative ? fp8q_join(w->root, relative) : strdup(w->root);
    int status = dir ? fp8q_list_dir(dir, &names, &n, w->err) : fp8q_fail_nomem(w->err);
    free(dir);
    FP8Q_TRY(status);

    status = visit_each(w, relative, names, n);
    fp8q_names_free(names, n);
    return status;
}

int fp8q_listing_strangers(const struct fp8q_listing *l, const char *dir,
                           struct fp8q_strangers *strangers, struct fp8q_error *err)
{
    struct walk w = {.listing = l, .root = dir, .strangers = strangers, .err = err};
    struct stat st;
    bool there;

    *strangers = (struct fp8q_strangers){0};
    FP8Q_TRY(fp8q_lstat(dir, &st, &there, err));
    return there ? walk_dir(&w, "") : FP8Q_OK;
}

/* Not through links: a link of a listed name is not the file that was written.  */
static int is_file(const char *dir, const char *name, bool *is_out, struct fp8q_error *err)
{
    struct stat st;
    bool there;
    *is_out = false;
    FP8Q_TRY(fp8q_lstat_in(dir, name, &st, &there, err));
    *is_out = there && S_ISREG(st.st_mode);
    return FP8Q_OK;
}

int fp8q_listing_missing(const struct fp8q_listing *l, const char *dir, const char **name_out,
                         struct fp8q_error *err)
{
    *name_out = NULL;
    for (size_t i = 0; i < l->count; i++) {
        bool is;
        FP8Q_TRY(is_file(dir, l->names[i], &is, err));
        if (!is) {
            *name_out = l->names[i];
            break;
        }
    }
    return FP8Q_OK;
}

/* ---- removal and motion ---------------------------------------------------------------------- */

static int unlink_below(const char *dir, const char *name, struct fp8q_error *err)
{
    bool is;
    FP8Q_TRY(is_file(dir, name, &is, err));

    /* A directory or a link of that name is not what fp8q wrote.  */
    return is ? fp8q_unlink_in(dir, name, err) : FP8Q_OK;
}

/* From the deepest directory of @path up, as far as they are empty; not the first @len bytes.  */
static int remove_upwards(char *path, size_t len, struct fp8q_error *err)
{
    bool gone = true;
    for (char *slash; gone && (slash = strrchr(path, '/')) != NULL && slash > path + len;) {
        *slash = '\0';
        FP8Q_TRY(fp8q_rmdir(path, &gone, err));
    }
    return FP8Q_OK;
}

/* Removes the directories between @dir and @name that are empty.  */
static int remove_empty_dirs(const char *dir, const char *name, struct fp8q_error *err)
{
    char *path = fp8q_join(dir, name);
    int status = path ? remove_upwards(path, strlen(dir), err) : fp8q_fail_nomem(err);
    free(path);
    return status;
}

int fp8q_listing_remove(const struct fp8q_listing *l, const char *dir, bool *gone_out,
                        struct fp8q_error *err)
{
    struct stat st;
    bool there, gone = true;

    FP8Q_TRY(fp8q_lstat(dir, &st, &there, err));
    if (gone_out)
        *gone_out = !there;
    if (!there)
        return FP8Q_OK;

    for (size_t i = 0; i < l->count; i++)
        FP8Q_TRY(unlink_below(dir, l->names[i], err));

    /* All files first: a directory goes only when the last file in it is gone.  */
    for (size_t i = 0; i < l->count; i++)
        if (strchr(l->names[i], '/'))
            FP8Q_TRY(remove_empty_dirs(dir, l->names[i], err));

    FP8Q_TRY(fp8q_rmdir(dir, &gone, err));
    if (gone_out)
        *gone_out = gone;
    return FP8Q_OK;
}

static int move_one(const char *name, const char *from, const char *to, struct fp8q_error *err)
{
    bool is;
    FP8Q_TRY(is_file(from, name, &is, err));
    if (!is)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_make_parents(to, name, err));
    char *old = fp8q_join(from, name), *new = fp8q_join(to, name);
    int status = old && new ? fp8q_rename_new(old, new, err) : fp8q_fail_nomem(err);
    free(old);
    free(new);
    return status;
}

int fp8q_listing_move(const struct fp8q_listing *l, const char *from, const char *to,
                      struct fp8q_error *err)
{
    for (size_t i = 0; i < l->count; i++)
        FP8Q_TRY(move_one(l->names[i], from, to, err));
    return FP8Q_OK;
}

static int flush_child(const char *path, struct fp8q_error *err)
{
    struct stat st;
    bool there;
    FP8Q_TRY(fp8q_lstat(path, &st, &there, err));
    return there && S_ISDIR(st.st_mode) ? fp8q_flush_tree(path, err) : FP8Q_OK;
}

static int flush_each(const char *dir, char **names, size_t n, struct fp8q_error *err)
{
    for (size_t i = 0; i < n; i++) {
        char *child = fp8q_join(dir, names[i]);
        int status = child ? flush_child(child, err) : fp8q_fail_nomem(err);
        free(child);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

int fp8q_flush_tree(const char *dir, struct fp8q_error *err)
{
    char **names;
    size_t n;
    FP8Q_TRY(fp8q_list_dir(dir, &names, &n, err));
    int status = flush_each(dir, names, n, err);
    fp8q_names_free(names, n);
    FP8Q_TRY(status);

    /* What is in a directory first: a name that is on disk leads to something.  */
    return fp8q_fsync_dir(dir, err);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

void fp8q_listing_write(const struct fp8q_listing *l, const char *key, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, key, '[');
    for (size_t i = 0; i < l->count; i++)
        fp8q_jsonw_string(w, NULL, l->names[i]);
    fp8q_jsonw_close(w, ']');
}

static int parse_names(const struct fp8q_json *json, struct fp8q_listing *l, struct fp8q_error *err)
{
    if (!fp8q_json_is_array(json))
        return fp8q_fail(err, FP8Q_E_FORMAT, "listing", "expected a list of files");

    for (const struct fp8q_json *i = fp8q_json_first(json); i; i = fp8q_json_next(i)) {
        /* What is listed may be removed, so no name may lead out of the directory.  */
        const char *name = fp8q_json_string(i, "");
        if (!fp8q_stays_inside(name))
            return fp8q_fail(err, FP8Q_E_FORMAT, "listing", "a file is no relative path");
        FP8Q_TRY(fp8q_listing_add(l, name, err));
    }
    return fp8q_listing_sort(l, err);
}

int fp8q_listing_parse(const struct fp8q_json *json, struct fp8q_listing *l, struct fp8q_error *err)
{
    *l = (struct fp8q_listing){0};
    int status = parse_names(json, l, err);
    if (status != FP8Q_OK)
        fp8q_listing_reset(l);
    return status;
}
