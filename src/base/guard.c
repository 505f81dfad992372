/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c - compares what is written with what is read.
 */
#include "base/guard.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"

struct fp8q_guarded {
    char *path;
    const char *what; /* NULL: an output of this run, whose parent and name follow */
    struct stat stat;
    char *name; /* with an output: within the directory @stat */
};

/* ---- where a path lies ----------------------------------------------------------------------- */

/* Cuts the last component off a path; false if there is none.  */
static bool cut_last(char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
    if (len == 0 || strcmp(path, ".") == 0 || strcmp(path, "/") == 0)
        return false;

    char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(path, "."); /* what has no slash lies in the directory at hand */
    else
        slash[slash == path ? 1 : 0] = '\0';
    return true;
}

/* The first directory above @at that is there, without links; @at is used up.  */
static int find_above(char *at, char **real_out, struct fp8q_error *err)
{
    for (;;) {
        bool has_more = cut_last(at);
        FP8Q_TRY(fp8q_real_path(at, real_out, err));
        if (*real_out)
            return FP8Q_OK;
        if (!has_more)
            return fp8q_fail(err, FP8Q_E_IO, "no-directory", "the directory at hand is gone");
    }
}

/* The directory that @path lies in, without links, or the nearest one above that is there.  */
static int real_parent(const char *path, char **real_out, struct fp8q_error *err)
{
    char *at = strdup(path);
    *real_out = NULL;
    int status = at ? find_above(at, real_out, err) : fp8q_fail_nomem(err);
    free(at);
    return status;
}

bool fp8q_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

int fp8q_lies_in(const char *path, const struct stat *dir, bool *inside_out, struct fp8q_error *err)
{
    char *at;
    *inside_out = false;
    FP8Q_TRY(fp8q_real_path(path, &at, err));
    if (!at)
        FP8Q_TRY(real_parent(path, &at, err));

    int status = FP8Q_OK;
    /* Upwards by device and inode, so that no spelling of a path hides where it lies.  */
    for (;;) {
        struct stat st;
        bool there;
        status = fp8q_stat(at, &st, &there, err);
        if (status != FP8Q_OK)
            break;
        *inside_out = there && fp8q_same_file(&st, dir);

        char *slash = strrchr(at, '/');
        if (*inside_out || !slash || (slash == at && at[1] == '\0'))
            break;
        slash[slash == at ? 1 : 0] = '\0';
    }

    free(at);
    return status;
}

/* ---- the list -------------------------------------------------------------------------------- */

static int add(struct fp8q_guard_list *guard, const struct fp8q_guarded *item,
               struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_grow(&guard->items, guard->count, &guard->cap, sizeof(*guard->items), err));

    struct fp8q_guarded *g = &guard->items[guard->count];
    *g = *item;
    g->path = strdup(item->path);
    g->name = item->name ? strdup(item->name) : NULL;
    if (!g->path || (item->name && !g->name)) {
        free(g->path);
        free(g->name);
        return fp8q_fail_nomem(err);
    }

    /* Counted last: a failure leaves the list as it was.  */
    guard->count++;
    return FP8Q_OK;
}

int fp8q_guard_add(struct fp8q_guard_list *guard, const char *path, const char *what,
                   struct fp8q_error *err)
{
    struct fp8q_guarded item = {.path = (char *)(uintptr_t)path, .what = what};
    bool there = false;
    if (path)
        FP8Q_TRY(fp8q_stat(path, &item.stat, &there, err));
    return there ? add(guard, &item, err) : FP8Q_OK;
}

void fp8q_guard_reset(struct fp8q_guard_list *guard)
{
    for (size_t i = 0; i < guard->count; i++) {
        free(guard->items[i].path);
        free(guard->items[i].name);
    }
    free(guard->items);
    *guard = (struct fp8q_guard_list){0};
}

/* ---- questions ------------------------------------------------------------------------------- */

static int refuse(const char *path, const struct fp8q_guarded *g, const char *how,
                  struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    return fp8q_fail(err, FP8Q_E_ARG, "output-is-input",
                     "%s: %s %s (%s), which this run reads; write to another place",
                     fp8q_show(&a, path), how, g->what, fp8q_show(&b, g->path));
}

/* Names that loaders look for in a checkpoint's directory.  */
static bool is_of_checkpoint(const char *path)
{
    const char *name = fp8q_basename(path);
    return fp8q_ends_with(name, ".safetensors") || fp8q_ends_with(name, ".index.json") ||
           strcmp(name, "config.json") == 0;
}

static int check_dir(const struct fp8q_guarded *g, const char *path, bool there,
                     struct fp8q_error *err)
{
    bool inside;
    if (!there && !is_of_checkpoint(path))
        return FP8Q_OK;
    FP8Q_TRY(fp8q_lies_in(path, &g->stat, &inside, err));
    return inside ? refuse(path, g, "lies in", err) : FP8Q_OK;
}

int fp8q_guard_check(const struct fp8q_guard_list *guard, const char *path, struct fp8q_error *err)
{
    struct stat st;
    bool there;
    FP8Q_TRY(fp8q_stat(path, &st, &there, err));
    if (there && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return FP8Q_OK; /* bytes that go there overwrite nothing */

    for (size_t i = 0; i < guard->count; i++) {
        const struct fp8q_guarded *g = &guard->items[i];
        if (!g->what)
            continue;
        if (there && fp8q_same_file(&st, &g->stat))
            return refuse(path, g, "is", err);
        if (S_ISDIR(g->stat.st_mode))
            FP8Q_TRY(check_dir(g, path, there, err));
    }
    return FP8Q_OK;
}

/* The directory that a new file at @path would be made in.  */
static int stat_parent(const char *path, struct stat *stat_out, struct fp8q_error *err)
{
    bool there;
    char *parent;
    FP8Q_TRY(real_parent(path, &parent, err));
    int status = fp8q_stat(parent, stat_out, &there, err);
    free(parent);
    return status;
}

/* An output is known by its directory and its name there: it may not be there yet.  */
static int claim(struct fp8q_guard_list *guard, const char *path, struct fp8q_error *err)
{
    struct fp8q_guarded item = {.path = (char *)(uintptr_t)path,
                                .name = (char *)(uintptr_t)fp8q_basename(path)};
    struct fp8q_shown a, b;
    FP8Q_TRY(stat_parent(path, &item.stat, err));

    for (size_t i = 0; i < guard->count; i++) {
        const struct fp8q_guarded *g = &guard->items[i];
        if (!g->what && fp8q_same_file(&g->stat, &item.stat) && strcmp(g->name, item.name) == 0)
            return fp8q_fail(err, FP8Q_E_ARG, "output-twice",
                             "%s and %s are the same file; give each output its own",
                             fp8q_show(&a, g->path), fp8q_show(&b, path));
    }
    return add(guard, &item, err);
}

int fp8q_guard_claim(struct fp8q_guard_list *guard, const char *path, struct fp8q_error *err)
{
    struct stat st;
    bool there;
    char *real;
    FP8Q_TRY(fp8q_guard_check(guard, path, err));
    FP8Q_TRY(fp8q_stat(path, &st, &there, err));
    if (there && !S_ISREG(st.st_mode))
        return FP8Q_OK; /* a pipe or a terminal takes any number of outputs, one after the other */

    FP8Q_TRY(fp8q_real_path(path, &real, err));
    int status = claim(guard, real ? real : path, err);
    free(real);
    return status;
}

/* ---- what a result may replace --------------------------------------------------------------- */

/* By its first bytes: safetensors, GGUF, or the zip and pickle files of torch.  */
static int is_weights(const char *path, bool *weights_out, struct fp8q_error *err)
{
    enum { LOOKED_AT = 4096 };
    static const char own[] = "\"format\":\"fp8q-";
    char begin[LOOKED_AT];
    struct stat st;
    int fd;

    *weights_out = false;
    FP8Q_TRY(fp8q_open_read(path, &st, &fd, err));
    size_t n = (size_t)fp8q_min_u64((uint64_t)st.st_size, sizeof(begin));
    int status = fp8q_pread(fd, begin, n, 0, path, err);
    (void)fp8q_close(&fd, path, NULL);
    FP8Q_TRY(status);

    /* The length of the header, of which the upper bytes are zero, and the header.  */
    bool safetensors =
        n > 8 && memcmp(begin + 4, "\0\0\0\0{", 5) == 0 && !memmem(begin, n, own, sizeof(own) - 1);
    *weights_out = safetensors || (n > 4 && memcmp(begin, "GGUF", 4) == 0) ||
                   (n > 4 && memcmp(begin, "PK\3\4", 4) == 0) ||
                   (n > 2 && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5);
    return FP8Q_OK;
}

/* A directory with a config.json and weights, or an index of them.  */
static int is_checkpoint(const char *dir, bool *checkpoint_out, struct fp8q_error *err)
{
    char **names;
    size_t count;
    bool config = false, weights = false;

    FP8Q_TRY(fp8q_list_dir(dir, &names, &count, err));
    for (size_t i = 0; i < count; i++) {
        config = config || strcmp(names[i], "config.json") == 0;
        weights = weights || fp8q_ends_with(names[i], ".safetensors") ||
                  fp8q_ends_with(names[i], ".index.json") || fp8q_ends_with(names[i], ".bin");
    }
    fp8q_names_free(names, count);
    *checkpoint_out = config && weights;
    return FP8Q_OK;
}

int fp8q_guard_replaced(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    bool weights, checkpoint = false;
    FP8Q_TRY(is_weights(path, &weights, err));
    if (!weights) {
        char *dir = fp8q_dir_of(path);
        int status = dir ? is_checkpoint(dir, &checkpoint, err) : fp8q_fail_nomem(err);
        free(dir);
        FP8Q_TRY(status);
    }

    if (!weights && !checkpoint)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "output-is-checkpoint",
                     "%s: is %s, which no result replaces; write to another place",
                     fp8q_show(&shown, path), weights ? "a weight file" : "a file of a checkpoint");
}

int fp8q_guard_find_below(const struct fp8q_guard_list *guard, const char *dir,
                          const char **path_out, const char **what_out, struct fp8q_error *err)
{
    struct stat st;
    bool there, inside = false;
    *path_out = *what_out = NULL;
    FP8Q_TRY(fp8q_stat(dir, &st, &there, err));

    for (size_t i = 0; there && i < guard->count && !inside; i++) {
        const struct fp8q_guarded *g = &guard->items[i];
        if (!g->what)
            continue;
        inside = fp8q_same_file(&g->stat, &st);
        if (!inside && S_ISDIR(st.st_mode))
            FP8Q_TRY(fp8q_lies_in(g->path, &st, &inside, err));
        if (inside) {
            *path_out = g->path;
            *what_out = g->what;
        }
    }
    return FP8Q_OK;
}
