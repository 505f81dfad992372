/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c - every question about the names that can be asked before the work.
 */
#include "destination/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/mem.h"
#include "base/path.h"
#include "destination/owned.h"

/* ---- against the source ---------------------------------------------------------------------- */

/* @existing, which DST leads to, is not the source and does not hold it.  */
static int check_existing(const struct fp8q_destination *names, const struct fp8q_ckpt *ckpt,
                          const struct stat *source, const struct stat *existing,
                          struct fp8q_error *err)
{
    struct fp8q_shown shown;
    bool same = fp8q_same_file(existing, source), holds = false;

    fp8q_show(&shown, names->final);
    for (size_t i = 0; i < ckpt->n_shards && !same; i++)
        same = fp8q_same_file(existing, &ckpt->shards[i].stat);

    if (same)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-is-src", "%s: is the source itself", shown.text);

    if (S_ISDIR(existing->st_mode))
        FP8Q_TRY(fp8q_lies_in(ckpt->path, existing, &holds, err));
    if (holds)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-holds-src", "%s: the source lies in it", shown.text);

    if (S_ISDIR(existing->st_mode) != ckpt->is_dir)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-kind", "%s: is a %s, the source is a %s", shown.text,
                         ckpt->is_dir ? "file" : "directory", ckpt->is_dir ? "directory" : "file");
    return FP8Q_OK;
}

static int check_source(const struct fp8q_destination *names, const struct fp8q_ckpt *ckpt,
                        struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat source, existing;
    bool there, inside = false;

    FP8Q_TRY(fp8q_stat(ckpt->path, &source, &there, err));
    if (!there)
        return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: is gone",
                         fp8q_show(&shown, ckpt->path));

    FP8Q_TRY(fp8q_stat(names->final, &existing, &there, err));
    if (there)
        FP8Q_TRY(check_existing(names, ckpt, &source, &existing, err));

    /* What lies in the source counts as one of its files, so DST may not lie there.  */
    if (ckpt->is_dir)
        FP8Q_TRY(fp8q_lies_in(names->parent, &source, &inside, err));
    if (inside)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-in-src", "%s: lies in the source",
                         fp8q_show(&shown, names->final));
    return FP8Q_OK;
}

/* Nothing that is read may stand where something will be written, replaced or removed.  */
static int check_reads(const struct fp8q_destination *names, const struct fp8q_guard_list *reads,
                       struct fp8q_error *err)
{
    const char *written[] = {names->final, names->partial, names->work,
                             names->is_dir ? NULL : names->companions[0],
                             names->is_dir ? NULL : names->companions[1]};

    for (size_t i = 0; i < sizeof(written) / sizeof(*written); i++) {
        struct fp8q_shown a, b;
        const char *path, *what;

        if (!written[i])
            continue;
        FP8Q_TRY(fp8q_guard_find_below(reads, written[i], &path, &what, err));
        if (path)
            return fp8q_fail(err, FP8Q_E_ARG, "dst-is-read",
                             "%s: is or holds %s (%s), which this conversion reads; write to "
                             "another DST",
                             fp8q_show(&a, written[i]), what, fp8q_show(&b, path));
    }
    return FP8Q_OK;
}

/* ---- what cannot be renamed to --------------------------------------------------------------- */

/* Asks for a path below DST.partial, which answers whether it is too long.  */
static int check_length(const struct fp8q_destination *names, const char *dir, const char *name,
                        struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct fp8q_error why = {0};
    struct stat st;
    bool there;
    char *path = name ? fp8q_join(dir, name) : strdup(dir);

    if (!path)
        return fp8q_fail_nomem(err);

    int status = fp8q_lstat(path, &st, &there, &why);
    free(path);

    /* The system answers: limits differ by file system, so none is assumed here.  */
    if (strcmp(why.id, "path-too-long") == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-path",
                         "%s: what is written there gets names that "
                         "are too long: %.600s",
                         fp8q_show(&shown, names->final), why.message);

    return status == FP8Q_OK ? FP8Q_OK : fp8q_fail_as(err, &why);
}

int fp8q_destination_check_lengths(const struct fp8q_destination *names,
                                   const struct fp8q_listing *files, struct fp8q_error *err)
{
    FP8Q_TRY(check_length(names, names->final, NULL, err));

    /* The longest that stands in the work directory.  */
    FP8Q_TRY(check_length(names, names->work, "shard-000000.record.0123456789abcdef", err));
    for (size_t i = 0; i < FP8Q_N_COMPANIONS && !names->is_dir; i++)
        FP8Q_TRY(check_length(names, names->companions[i], NULL, err));
    for (size_t i = 0; i < files->count; i++)
        FP8Q_TRY(check_length(names, names->partial, files->names[i], err));
    return FP8Q_OK;
}

static int check_parent(const struct fp8q_destination *names, struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    struct stat st;
    bool there;
    FP8Q_TRY(fp8q_stat(names->parent, &st, &there, err));
    if (there && S_ISDIR(st.st_mode))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_IO, "dst-parent", "%s: there is no directory %s to make it in",
                     fp8q_show(&a, names->final), fp8q_show(&b, names->parent));
}

/* ---- an existing DST ------------------------------------------------------------------------- */

static int dir_is_empty(const char *path, bool *empty_out, struct fp8q_error *err)
{
    char **list;
    size_t n;
    FP8Q_TRY(fp8q_list_dir(path, &list, &n, err));
    fp8q_names_free(list, n);
    *empty_out = n == 0;
    return FP8Q_OK;
}

static int check_replaceable(const struct fp8q_destination *names, const struct stat *existing,
                             bool overwrite, bool *empty_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    fp8q_show(&shown, names->final);
    if (S_ISDIR(existing->st_mode) && names->is_dir)
        FP8Q_TRY(dir_is_empty(names->final, empty_out, err));

    /* An empty directory holds nothing that could be lost, so it needs no --overwrite.  */
    if (!*empty_out && !overwrite)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-exists",
                         "%s: exists already; --overwrite replaces an earlier output", shown.text);

    if (S_ISLNK(existing->st_mode))
        return fp8q_fail(err, FP8Q_E_ARG, "dst-link",
                         "%s: is a link; name what it leads to, or remove it", shown.text);

    if (fp8q_is_mount(names->final))
        return fp8q_fail(err, FP8Q_E_ARG, "dst-mount",
                         "%s: is a mount point, which cannot be replaced; name something in it, "
                         "such as %s/model",
                         shown.text, shown.text);
    return FP8Q_OK;
}

/* A companion without its weights file is somebody else's.  */
static int check_lone_companions(const struct fp8q_destination *names, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    for (size_t i = 0; i < FP8Q_N_COMPANIONS; i++) {
        struct stat st;
        bool there;
        FP8Q_TRY(fp8q_lstat(names->companions[i], &st, &there, err));
        if (there)
            return fp8q_fail(err, FP8Q_E_ARG, "dst-exists",
                             "%s: exists already, without the weights file that it would belong to",
                             fp8q_show(&shown, names->companions[i]));
    }
    return FP8Q_OK;
}

static int check_old(const struct fp8q_destination *names,
                     const struct fp8q_destination_rules *rules, struct fp8q_listing *old,
                     bool *empty_out, struct fp8q_error *err)
{
    struct stat existing;
    bool there;
    FP8Q_TRY(fp8q_lstat(names->final, &existing, &there, err));
    if (there)
        FP8Q_TRY(check_replaceable(names, &existing, rules->overwrite, empty_out, err));
    if (!there)
        return names->is_dir ? FP8Q_OK : check_lone_companions(names, err);
    if (*empty_out)
        return FP8Q_OK;
    return names->is_dir ? fp8q_owned_dir(names->final, rules, old, err)
                         : fp8q_owned_file(names, old, err);
}

int fp8q_destination_check(const struct fp8q_destination *names,
                           const struct fp8q_destination_rules *rules, struct fp8q_listing *old,
                           bool *empty_out, struct fp8q_error *err)
{
    *old = (struct fp8q_listing){0};
    *empty_out = false;
    FP8Q_TRY(check_source(names, rules->ckpt, err));
    FP8Q_TRY(check_parent(names, err));
    FP8Q_TRY(check_reads(names, rules->reads, err));
    return check_old(names, rules, old, empty_out, err);
}
