/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_file.c - writes the file of a lock, and takes it back.
 *
 * The file may lie anywhere, on another file system too, so it cannot get its name in one step with
 * the output.  It comes first, and commit.json says what is to be put back if the output does not
 * follow (destination/commit.c has the table).
 */
#include "plan/lock_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/output.h"
#include "base/path.h"
#include "base/utf8.h"

void fp8q_lock_file_reset(struct fp8q_lock_file *lock)
{
    free(lock->path);
    *lock = (struct fp8q_lock_file){.path = NULL};
}

/* ---- before ---------------------------------------------------------------------------------- */

static int keep_copy(struct fp8q_lock_file *lock, const char *copy, struct fp8q_error *err)
{
    struct fp8q_copied copied;
    struct stat st;
    FP8Q_TRY(fp8q_lstat(lock->path, &st, &lock->had_before, err));
    if (!lock->had_before)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_unlink(copy, err)); /* of a run that was killed before it wrote commit.json */
    FP8Q_TRY(fp8q_copy_file(lock->path, copy, NULL, &copied, err));
    FP8Q_TRY(fp8q_flush_file(copy, err));

    /* The same text need not be taken back, whoever wrote it.  */
    if (copied.crc32 == lock->crc)
        fp8q_lock_file_reset(lock);
    return FP8Q_OK;
}

static int open_file(const char *path, const char *copy, struct fp8q_lock_file *lock,
                     struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_output_file(path, &lock->path, err));

    /* A path that JSON cannot say could not be read again by the run that takes the lock back.  */
    if (lock->path && !fp8q_utf8_is_valid(lock->path))
        fp8q_lock_file_reset(lock);
    return lock->path ? keep_copy(lock, copy, err) : FP8Q_OK;
}

int fp8q_lock_file_open(const char *path, const char *text, const char *copy,
                        struct fp8q_lock_file *lock, struct fp8q_error *err)
{
    *lock = (struct fp8q_lock_file){.crc = fp8q_crc32(0, text, strlen(text))};
    int status = open_file(path, copy, lock, err);
    if (status != FP8Q_OK)
        fp8q_lock_file_reset(lock);
    return status;
}

/* ---- writing and taking back ------------------------------------------------------------------ */

/* The name of a file that was written, renamed or removed is on disk when its directory is.  */
static int flush_dir_of(const char *path, struct fp8q_error *err)
{
    char *dir = fp8q_dir_of(path);
    int status = dir ? fp8q_fsync_dir(dir, err) : fp8q_fail_nomem(err);
    free(dir);
    return status;
}

int fp8q_lock_file_write(const struct fp8q_lock_file *lock, const char *path, const char *text,
                         struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_output_write(path, text, strlen(text), err));
    return lock->path ? flush_dir_of(lock->path, err) : FP8Q_OK;
}

int fp8q_lock_file_is_ours(const struct fp8q_lock_file *lock, bool *ours_out,
                           struct fp8q_error *err)
{
    struct stat st;
    bool there;
    uint32_t crc;

    *ours_out = false;
    if (!lock->path)
        return FP8Q_OK;
    FP8Q_TRY(fp8q_lstat(lock->path, &st, &there, err));
    if (!there || !S_ISREG(st.st_mode))
        return FP8Q_OK;

    FP8Q_TRY(fp8q_file_crc32(lock->path, &crc, err));
    *ours_out = crc == lock->crc;
    return FP8Q_OK;
}

static int put_back(const char *path, const char *copy, struct fp8q_error *err)
{
    char *data;
    size_t len;
    FP8Q_TRY(fp8q_read_file(copy, SIZE_MAX / 2, &data, &len, err));
    int status = fp8q_output_write(path, data, len, err);
    free(data);
    return status;
}

int fp8q_lock_file_take_back(const struct fp8q_lock_file *lock, const char *copy,
                             struct fp8q_error *err)
{
    bool ours;
    FP8Q_TRY(fp8q_lock_file_is_ours(lock, &ours, err));
    if (!ours)
        return FP8Q_OK;

    FP8Q_TRY(lock->had_before ? put_back(lock->path, copy, err) : fp8q_unlink(lock->path, err));
    return flush_dir_of(lock->path, err);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

void fp8q_lock_file_json(const struct fp8q_lock_file *lock, struct fp8q_jsonw *w)
{
    if (!lock->path)
        return;
    fp8q_jsonw_open(w, "lock", '{');
    fp8q_jsonw_string(w, "path", lock->path);
    fp8q_jsonw_uint(w, "crc32", lock->crc);
    fp8q_jsonw_bool(w, "had_before", lock->had_before);
    fp8q_jsonw_close(w, '}');
}

int fp8q_lock_file_parse(const struct fp8q_json *parent, struct fp8q_lock_file *lock,
                         struct fp8q_error *err)
{
    const struct fp8q_json *json = fp8q_json_get(parent, "lock");
    const char *path = fp8q_json_string(fp8q_json_get(json, "path"), NULL);
    uint64_t crc;

    *lock = (struct fp8q_lock_file){.path = NULL};
    if (!path || !fp8q_json_uint(fp8q_json_get(json, "crc32"), &crc) || crc > UINT32_MAX)
        return FP8Q_OK;

    lock->crc = (uint32_t)crc;
    lock->had_before = fp8q_json_bool(fp8q_json_get(json, "had_before"), false);
    lock->path = strdup(path);
    return lock->path ? FP8Q_OK : fp8q_fail_nomem(err);
}
