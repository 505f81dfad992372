/* SPDX-License-Identifier: Apache-2.0
 *
 * workdir.c - the files beside DST.partial.
 */
#include "convert/workdir.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "convert/state.h"

#define LOCK_NAME "lock"
#define MAX_STATE ((uint64_t)1 << 30)

int fp8q_workdir_state(const struct fp8q_destination *names, struct fp8q_json **json_out,
                       struct fp8q_listing *files_out, struct fp8q_error *err)
{
    char *data = NULL, *path = fp8q_join(names->work, FP8Q_STATE_NAME);
    size_t len = 0;
    *json_out = NULL;
    *files_out = (struct fp8q_listing){0};
    int status =
        path ? fp8q_read_file_if_there(path, MAX_STATE, &data, &len, err) : fp8q_fail_nomem(err);
    if (status == FP8Q_OK && data)
        status = fp8q_state_parse(data, len, path, json_out, files_out, err);
    free(data);
    free(path);
    return status;
}

int fp8q_workdir_put(const struct fp8q_destination *names, const char *name, const char *text,
                     bool once, struct fp8q_error *err)
{
    char *path = fp8q_join(names->work, name);
    char *fresh = fp8q_join_unique(names->work, name); /* parts do this at the same time */
    int status =
        path && fresh ? fp8q_write_file(fresh, text, strlen(text), err) : fp8q_fail_nomem(err);

    if (status == FP8Q_OK) {
        status = (once ? fp8q_rename_new : fp8q_rename)(fresh, path, err);
        if (status != FP8Q_OK)
            (void)fp8q_unlink(fresh, NULL);
    }
    if (status == FP8Q_OK)
        status = fp8q_fsync_dir(names->work, err);
    free(fresh);
    free(path);
    return status;
}

/* ---- what stands there ----------------------------------------------------------------------- */

enum entry { ENTRY_FOREIGN, ENTRY_LOCK, ENTRY_STATE, ENTRY_COMMIT, ENTRY_OLD, ENTRY_RECORD };

/* By its name; with a random ending while it is not whole.  */
static enum entry entry_of(const char *name)
{
    static const struct {
        const char *start;
        enum entry entry;
    } table[] = {{FP8Q_STATE_NAME, ENTRY_STATE},
                 {FP8Q_COMMIT_NAME, ENTRY_COMMIT},
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
    char *path = fp8q_join(names->work, name);
    int status = path ? fp8q_lstat(path, &st, &there, err) : fp8q_fail_nomem(err);
    free(path);
    FP8Q_TRY(status);

    enum entry entry = entry_of(name);
    *ours_out = !there || strncmp(name, ".nfs", 4) == 0 ||
                (entry == ENTRY_OLD && S_ISDIR(st.st_mode)) ||
                (entry != ENTRY_FOREIGN && S_ISREG(st.st_mode));
    return FP8Q_OK;
}

int fp8q_workdir_strangers(const struct fp8q_destination *names, size_t *n_out, bool *records_out,
                           struct fp8q_text *names_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    char **list;
    size_t n;

    *n_out = 0;
    *records_out = false;
    FP8Q_TRY(fp8q_list_dir(names->work, &list, &n, err));

    int status = FP8Q_OK;
    for (size_t i = 0; i < n && status == FP8Q_OK; i++) {
        bool ours = false;
        status = is_ours(names, list[i], &ours, err);
        *records_out = *records_out || entry_of(list[i]) == ENTRY_RECORD;

        if (status == FP8Q_OK && !ours && (*n_out)++ < 5)
            fp8q_text_printf(names_out, "%s\"%s\"", names_out->len ? ", " : "",
                             fp8q_show(&shown, list[i]));
    }

    fp8q_names_free(list, n);
    return status == FP8Q_OK ? fp8q_text_status(names_out, err) : status;
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
        char *path = fp8q_join(names->work, list[i]);
        int status = path ? FP8Q_OK : fp8q_fail_nomem(err);
        if (status == FP8Q_OK && ours)
            status = fp8q_unlink(path, err);
        free(path);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

/* The state goes after all that it speaks of, and the commit last: a run that is killed in between
 * leaves what the next one understands.  */
int fp8q_workdir_clear(const struct fp8q_destination *names, struct fp8q_error *err)
{
    static const enum entry order[] = {ENTRY_RECORD, ENTRY_STATE, ENTRY_COMMIT};
    struct stat st;
    bool there;
    char **list;
    size_t n;

    FP8Q_TRY(fp8q_lstat(names->work, &st, &there, err));
    if (!there)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_list_dir(names->work, &list, &n, err));
    int status = FP8Q_OK;
    for (size_t i = 0; i < sizeof(order) / sizeof(*order) && status == FP8Q_OK; i++)
        status = clear(names, list, n, order[i], err);
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
    for (size_t i = 0; i < n; i++) {
        char *path = fp8q_join(out->names.work, list[i]);
        if (path && strncmp(list[i], ".nfs", 4) == 0)
            (void)fp8q_unlink(path, NULL);
        free(path);
    }
    fp8q_names_free(list, n);
}

/* The lock file is removed while it is held, so that whoever opened it meanwhile notices.  NFS then
 * keeps it under another name until it is closed, and only after that the directory is empty.  */
static void remove_work(struct fp8q_outdir *out)
{
    bool gone = false;
    char *path = fp8q_join(out->names.work, LOCK_NAME);
    if (path)
        (void)fp8q_unlink(path, NULL);
    (void)fp8q_rmdir(out->names.work, &gone, NULL);
    (void)fp8q_close(&out->lock_fd, "", NULL);
    if (!gone) {
        remove_silly_names(out);
        (void)fp8q_rmdir(out->names.work, &gone, NULL);
    }
    free(path);
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
