/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.c - copies side files, with their checksums.
 */
#include "convert/copies.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/path.h"
#include "format/names.h"

/* ---- the copies ------------------------------------------------------------------------------ */

/* The directory @to, with the mode of @from where that is one.  */
static int make_dir_like(const char *from, const char *to, struct fp8q_error *err)
{
    struct stat st, ignored;
    bool there, exists;
    FP8Q_TRY(fp8q_lstat(to, &ignored, &exists, err));
    if (exists)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_stat(from, &st, &there, err));
    return fp8q_mkdir_mode(to, there ? st.st_mode : 0777, err);
}

/* Each directory in turn, from the top: both paths, which end in @relative, are cut off at the same
 * slash.  */
static int make_each_like(char *from, char *to, const char *relative, struct fp8q_error *err)
{
    char *in_from = from + strlen(from) - strlen(relative);
    char *in_to = to + strlen(to) - strlen(relative);

    for (const char *slash = strchr(relative, '/'); slash; slash = strchr(slash + 1, '/')) {
        in_from[slash - relative] = in_to[slash - relative] = '\0';
        FP8Q_TRY(make_dir_like(from, to, err));
        in_from[slash - relative] = in_to[slash - relative] = '/';
    }
    return FP8Q_OK;
}

int fp8q_make_parents_like(const struct fp8q_ckpt *ckpt, const char *dir, const char *relative,
                           struct fp8q_error *err)
{
    char *from = fp8q_join(ckpt->dir, relative), *to = fp8q_join(dir, relative);
    int status = from && to ? make_each_like(from, to, relative, err) : fp8q_fail_nomem(err);
    free(from);
    free(to);
    return status;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int changed(const struct fp8q_ckpt *ckpt, const char *name, const char *how,
                   struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: \"%s\" %s during the run",
                     fp8q_show(&a, ckpt->path), fp8q_show(&b, name), how);
}

/* @from and @to are the paths of side file @i.  */
static int copy_one(const struct fp8q_ckpt *ckpt, struct fp8q_side_files *copies, size_t i,
                    const char *from, const char *to, const struct fp8q_watch *watch,
                    struct fp8q_error *err)
{
    struct fp8q_side_file *file = &copies->files[i];
    struct fp8q_copied copied;
    FP8Q_TRY(fp8q_unlink(to, err)); /* what a resumed run left */
    FP8Q_TRY(fp8q_copy_file(from, to, watch, &copied, err));
    file->crc32 = copied.crc32;

    /* What was copied is what was listed: the same file, with no write since.  */
    return same(&copied.stat, &copies->stats[i]) ? FP8Q_OK
                                                 : changed(ckpt, file->name, "changed", err);
}

static int copy_file(const struct fp8q_ckpt *ckpt, struct fp8q_side_files *copies, size_t i,
                     const char *dir, const struct fp8q_watch *watch, struct fp8q_error *err)
{
    const char *name = copies->files[i].name;
    FP8Q_TRY(fp8q_make_parents_like(ckpt, dir, name, err));

    char *from = fp8q_join(ckpt->dir, name), *to = fp8q_join(dir, name);
    int status =
        from && to ? copy_one(ckpt, copies, i, from, to, watch, err) : fp8q_fail_nomem(err);
    free(from);
    free(to);
    return status;
}

static int flush_file(const char *dir, const char *name, struct fp8q_error *err)
{
    char *path = fp8q_join(dir, name);
    int status = path ? fp8q_flush_file(path, err) : fp8q_fail_nomem(err);
    free(path);
    return status;
}

int fp8q_copies_run(const struct fp8q_ckpt *ckpt, struct fp8q_side_files *copies, const char *dir,
                    const struct fp8q_watch *watch, struct fp8q_error *err)
{
    /* All of them first, then the flushes: the file system can write them together.  */
    for (size_t i = 0; i < copies->count; i++)
        FP8Q_TRY(copy_file(ckpt, copies, i, dir, watch, err));
    for (size_t i = 0; i < copies->count; i++)
        FP8Q_TRY(flush_file(dir, copies->files[i].name, err));
    return FP8Q_OK;
}

/* @text is NULL for a file that was not there.  */
static int text_unchanged(const struct fp8q_ckpt *ckpt, const char *name, const char *text,
                          size_t len, struct fp8q_error *err)
{
    enum { MOST_BYTES = 1 << 30 };
    char *now = NULL, *path = fp8q_join(ckpt->dir, name);
    size_t now_len = 0;
    int status = path ? fp8q_read_file_if_there(path, MOST_BYTES, &now, &now_len, err)
                      : fp8q_fail_nomem(err);
    free(path);
    FP8Q_TRY(status);

    bool is_same = !now && !text;
    if (now && text)
        is_same = now_len == len && memcmp(now, text, len) == 0;

    free(now);
    return is_same ? FP8Q_OK : changed(ckpt, name, "changed", err);
}

static bool has_file(const struct fp8q_side_files *copies, const char *name)
{
    for (size_t i = 0; i < copies->count; i++)
        if (strcmp(copies->files[i].name, name) == 0)
            return true;
    return false;
}

/* Both lists have the order of the walk: up to the first name that differs nothing came or went.  */
static int compare_lists(const struct fp8q_ckpt *ckpt, const struct fp8q_side_files *then,
                         const struct fp8q_side_files *now, struct fp8q_error *err)
{
    for (size_t i = 0; i < then->count || i < now->count; i++) {
        bool was = i < then->count, is = i < now->count;

        if (was && is && strcmp(then->files[i].name, now->files[i].name) == 0) {
            if (!same(&then->stats[i], &now->stats[i]))
                return changed(ckpt, then->files[i].name, "changed", err);
        } else if (was && !has_file(now, then->files[i].name)) {
            return changed(ckpt, then->files[i].name, "was removed", err);
        } else if (is) {
            return changed(ckpt, now->files[i].name, "was added", err);
        }
    }
    return FP8Q_OK;
}

int fp8q_copies_unchanged(const struct fp8q_ckpt *ckpt, const struct fp8q_side_files *copies,
                          struct fp8q_error *err)
{
    struct fp8q_side_files now;

    if (!ckpt->is_dir)
        return FP8Q_OK;
    FP8Q_TRY(text_unchanged(ckpt, FP8Q_CONFIG_NAME, ckpt->config_text, ckpt->config_len, err));
    if (ckpt->has_index)
        FP8Q_TRY(text_unchanged(ckpt, FP8Q_INDEX_NAME, ckpt->index_text, ckpt->index_len, err));

    FP8Q_TRY(fp8q_side_files_list(ckpt, &now, NULL, err));
    int status = compare_lists(ckpt, copies, &now, err);
    fp8q_side_files_reset(&now);
    return status;
}
