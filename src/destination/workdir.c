/* SPDX-License-Identifier: Apache-2.0
 *
 * workdir.c - the files beside DST.partial.
 */
#include "destination/workdir.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "destination/state.h"

#define LOCK_NAME "lock"
#define MOST_BYTES ((uint64_t)1 << 30) /* of a file there */

static int parse_file(const char *path, struct fp8q_json **json_out, struct fp8q_error *err)
{
    char *data;
    size_t len;
    FP8Q_TRY(fp8q_read_file_if_there(path, MOST_BYTES, &data, &len, err));
    int status = data ? fp8q_json_parse(data, len, 0, path, json_out, err) : FP8Q_OK;
    free(data);
    return status;
}

int fp8q_workdir_get(const struct fp8q_destination *names, const char *name,
                     struct fp8q_json **json_out, struct fp8q_error *err)
{
    char *path = fp8q_join(names->work, name);
    *json_out = NULL;
    int status = path ? parse_file(path, json_out, err) : fp8q_fail_nomem(err);
    free(path);
    return status;
}

int fp8q_workdir_state(const struct fp8q_destination *names, struct fp8q_json **json_out,
                       struct fp8q_listing *files_out, struct fp8q_error *err)
{
    *files_out = (struct fp8q_listing){0};
    FP8Q_TRY(fp8q_workdir_get(names, FP8Q_STATE_NAME, json_out, err));
    if (!*json_out)
        return FP8Q_OK;

    int status = fp8q_state_files(*json_out, names->work, files_out, err);
    if (status != FP8Q_OK) {
        fp8q_json_free(*json_out);
        *json_out = NULL;
    }
    return status;
}

/* Gives a file its name, or removes it.  */
static int name_file(const char *fresh, const char *path, bool once, struct fp8q_error *err)
{
    int status = once ? fp8q_rename_new(fresh, path, err) : fp8q_rename(fresh, path, err);
    if (status != FP8Q_OK)
        (void)fp8q_unlink(fresh, NULL);
    return status;
}

static int put_file(const char *fresh, const char *path, const char *text, bool once,
                    struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_write_file(fresh, text, strlen(text), err));
    return name_file(fresh, path, once, err);
}

int fp8q_workdir_put(const struct fp8q_destination *names, const char *name, const char *text,
                     bool once, struct fp8q_error *err)
{
    char *path = fp8q_join(names->work, name);
    char *fresh = fp8q_join_unique(names->work, name); /* parts do this at the same time */
    int status = path && fresh ? put_file(fresh, path, text, once, err) : fp8q_fail_nomem(err);
    free(fresh);
    free(path);
    FP8Q_TRY(status);
    return fp8q_fsync_dir(names->work, err);
}

/* ---- what stands there ----------------------------------------------------------------------- */

enum entry {
    ENTRY_FOREIGN,
    ENTRY_LOCK,
    ENTRY_STATE,
    ENTRY_COMMIT,
    ENTRY_OLD,
    ENTRY_RECORD,
    ENTRY_REPLACED,
    ENTRY_CODES
};

/* By its name; with a random ending while it is not whole.  */
static enum entry entry_of(const char *name)
{
    static const struct {
        const char *start;
        enum entry entry;
    } table[] = {{FP8Q_STATE_NAME, ENTRY_STATE},
                 {FP8Q_COMMIT_NAME, ENTRY_COMMIT},
                 {FP8Q_REPLACED_LOCK_NAME, ENTRY_REPLACED},
                 {FP8Q_CODES_NAME, ENTRY_CODES},
                 {"shard-", ENTRY_RECORD},
                 {"shard.", ENTRY_RECORD}};

    if (strcmp(name, LOCK_NAME) == 0)
        return ENTRY_LOCK;
    if (strcmp(name, FP8Q_OLD_NAME) == 0)
        return ENTRY_OLD;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (strncmp(name, table[i].start, strlen(table[i].start)) == 0)
            return table[i].entry;
    return ENTRY_FOREIGN;
}

static int is_ours(const struct fp8q_destination *names, const char *name, bool *ours_out,
                   struct fp8q_error *err)
{
    struct stat st;
    bool there;
    FP8Q_TRY(fp8q_lstat_in(names->work, name, &st, &there, err));

    enum entry entry = entry_of(name);
    *ours_out = !there || strncmp(name, ".nfs", 4) == 0 ||
                (entry == ENTRY_OLD && S_ISDIR(st.st_mode)) ||
                (entry != ENTRY_FOREIGN && S_ISREG(st.st_mode));
    return FP8Q_OK;
}

static int sort_out(const struct fp8q_destination *names, char **list, size_t n, bool *records_out,
                    struct fp8q_strangers *strangers, struct fp8q_error *err)
{
    for (size_t i = 0; i < n; i++) {
        bool ours;
        FP8Q_TRY(is_ours(names, list[i], &ours, err));
        if (!ours)
            fp8q_strangers_add(strangers, list[i]);
        *records_out = *records_out || entry_of(list[i]) == ENTRY_RECORD;
    }
    return FP8Q_OK;
}

int fp8q_workdir_strangers(const struct fp8q_destination *names, bool *records_out,
                           struct fp8q_strangers *strangers, struct fp8q_error *err)
{
    char **list;
    size_t n;

    *strangers = (struct fp8q_strangers){0};
    *records_out = false;
    FP8Q_TRY(fp8q_list_dir(names->work, &list, &n, err));
    int status = sort_out(names, list, n, records_out, strangers, err);
    fp8q_names_free(list, n);
    return status;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Removes the files of one kind.  */
static int clear(const struct fp8q_destination *names, char **list, size_t n, enum entry entry,
                 struct fp8q_error *err)
{
    for (size_t i = 0; i < n; i++) {
        bool ours;
        if (entry_of(list[i]) != entry)
            continue;
        FP8Q_TRY(is_ours(names, list[i], &ours, err));
        if (ours)
            FP8Q_TRY(fp8q_unlink_in(names->work, list[i], err));
    }
    return FP8Q_OK;
}

/* The state goes after all that it speaks of, then the commit, then what the commit speaks of: a run
 * that is killed in between leaves what the next one understands.  */
static int clear_in_order(const struct fp8q_destination *names, char **list, size_t n,
                          struct fp8q_error *err)
{
    FP8Q_TRY(clear(names, list, n, ENTRY_CODES, err));
    FP8Q_TRY(clear(names, list, n, ENTRY_RECORD, err));
    FP8Q_TRY(clear(names, list, n, ENTRY_STATE, err));
    FP8Q_TRY(clear(names, list, n, ENTRY_COMMIT, err));
    return clear(names, list, n, ENTRY_REPLACED, err);
}

int fp8q_workdir_clear(const struct fp8q_destination *names, struct fp8q_error *err)
{
    struct stat st;
    bool there;
    char **list;
    size_t n;

    FP8Q_TRY(fp8q_lstat(names->work, &st, &there, err));
    if (!there)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_list_dir(names->work, &list, &n, err));
    int status = clear_in_order(names, list, n, err);
    fp8q_names_free(list, n);
    return status;
}

/* A client that did not see the close in time: the file has no name of its own any more.  */
static void remove_silly_names(const struct fp8q_outdir *out)
{
    char **list;
    size_t n;
    if (fp8q_list_dir(out->names.work, &list, &n, NULL) != FP8Q_OK)
        return;
    for (size_t i = 0; i < n; i++)
        if (strncmp(list[i], ".nfs", 4) == 0)
            (void)fp8q_unlink_in(out->names.work, list[i], NULL);
    fp8q_names_free(list, n);
}

/* The lock file is removed while it is held, so that whoever opened it meanwhile notices.  NFS then
 * keeps it under another name until it is closed, and only after that the directory is empty.  */
static void remove_work(struct fp8q_outdir *out)
{
    bool gone = false;
    (void)fp8q_unlink_in(out->names.work, LOCK_NAME, NULL);
    (void)fp8q_rmdir(out->names.work, &gone, NULL);
    (void)fp8q_close(&out->lock_fd, "", NULL);
    if (!gone) {
        remove_silly_names(out);
        (void)fp8q_rmdir(out->names.work, &gone, NULL);
    }
}

void fp8q_workdir_close(struct fp8q_outdir *out, bool remove)
{
    if (remove)
        remove_work(out);
    (void)fp8q_close(&out->lock_fd, "", NULL);
    fp8q_listing_reset(&out->old);
    fp8q_destination_reset(&out->names);
    *out = (struct fp8q_outdir){.lock_fd = -1};
}

void fp8q_workdir_abandon(struct fp8q_outdir *out)
{
    bool remove = out->created && !out->keep;
    if (remove) {
        (void)fp8q_listing_remove(out->rules.files, out->names.partial, NULL, NULL);
        (void)fp8q_workdir_clear(&out->names, NULL);
    }
    fp8q_workdir_close(out, remove);
}
