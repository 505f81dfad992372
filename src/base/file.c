/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c - whole files: read into memory, written durably, copied.
 */
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/io.h"

int fp8q_read_file(const char *path, uint64_t max, char **data_out, size_t *len_out,
                   struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    int fd, status;
    *data_out = NULL;
    *len_out = 0;
    FP8Q_TRY(fp8q_open_read(path, &st, &fd, err));
    if ((uint64_t)st.st_size > max || (uint64_t)st.st_size >= SIZE_MAX) {
        status =
            fp8q_fail(err, FP8Q_E_FORMAT, "file-too-large", "%s: %lld bytes, the limit is %llu",
                      fp8q_show(&shown, path), (long long)st.st_size, (unsigned long long)max);
        goto out;
    }
    *data_out = malloc((size_t)st.st_size + 1);
    if (!*data_out) {
        status = fp8q_fail_nomem(err);
        goto out;
    }
    status = fp8q_pread(fd, *data_out, (size_t)st.st_size, 0, path, err);
    if (status != FP8Q_OK) {
        free(*data_out);
        *data_out = NULL;
        goto out;
    }
    (*data_out)[st.st_size] = '\0';
    *len_out = (size_t)st.st_size;
out:
    (void)fp8q_close(&fd, path, NULL); /* only read: nothing can be lost */
    return status;
}

int fp8q_read_file_if_there(const char *path, uint64_t max, char **data_out, size_t *len_out,
                            struct fp8q_error *err)
{
    struct stat st;
    bool there;
    *data_out = NULL;
    *len_out = 0;
    FP8Q_TRY(fp8q_lstat(path, &st, &there, err));
    return there ? fp8q_read_file(path, max, data_out, len_out, err) : FP8Q_OK;
}

int fp8q_write_file(const char *path, const void *data, size_t len, struct fp8q_error *err)
{
    int fd;
    FP8Q_TRY(fp8q_create(path, &fd, err));
    int status = fp8q_pwrite(fd, data, len, 0, path, err);
    if (status == FP8Q_OK)
        status = fp8q_fsync(fd, path, err);
    int closed = fp8q_close(&fd, path, status == FP8Q_OK ? err : NULL);
    if (status == FP8Q_OK)
        status = closed;
    if (status != FP8Q_OK)
        unlink(path);
    return status;
}

int fp8q_copy_file(const char *from, const char *to, const struct fp8q_watch *watch,
                   struct fp8q_error *err)
{
    enum { CHUNK = 1 << 20 };
    struct stat st;
    int in = -1, out = -1, status;
    struct fp8q_shown shown;
    char *buf = malloc(CHUNK);
    if (!buf)
        return fp8q_fail_nomem(err);
    status = fp8q_open_read(from, &st, &in, err);
    if (status == FP8Q_OK)
        status = fp8q_create(to, &out, err);
    for (uint64_t off = 0; status == FP8Q_OK && off < (uint64_t)st.st_size;) {
        uint64_t left = (uint64_t)st.st_size - off;
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        status = fp8q_pread(in, buf, n, off, from, err);
        if (status == FP8Q_OK)
            status = fp8q_pwrite(out, buf, n, off, to, err);
        if (status == FP8Q_OK)
            status = fp8q_watch_check(watch, err);
        off += n;
    }
    if (status == FP8Q_OK && fchmod(out, st.st_mode & 0777) != 0)
        status = fp8q_fail_errno(err, errno, "setting the mode of %s", fp8q_show(&shown, to));
    if (status == FP8Q_OK)
        status = fp8q_fsync(out, to, err);
    bool created = out >= 0;
    int closed = fp8q_close(&out, to, status == FP8Q_OK ? err : NULL);
    if (status == FP8Q_OK)
        status = closed;
    if (status != FP8Q_OK && created)
        unlink(to);
    (void)fp8q_close(&in, from, NULL);
    free(buf);
    return status;
}
