/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c - whole files: read into memory, written durably.
 */
#include "base/file.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"

/* All bytes of an open file of @size bytes, with a NUL behind them.  */
static int read_all(int fd, size_t size, const char *path, char **data_out, struct fp8q_error *err)
{
    char *data = malloc(size + 1);
    if (!data)
        return fp8q_fail_nomem(err);

    int status = fp8q_pread(fd, data, size, 0, path, err);
    if (status != FP8Q_OK) {
        free(data);
        return status;
    }

    data[size] = '\0';
    *data_out = data;
    return FP8Q_OK;
}

int fp8q_read_file(const char *path, uint64_t max, char **data_out, size_t *len_out,
                   struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    int fd, status;

    *data_out = NULL;
    *len_out = 0;
    FP8Q_TRY(fp8q_open_read(path, &st, &fd, err));

    if ((uint64_t)st.st_size > max || (uint64_t)st.st_size >= SIZE_MAX)
        status =
            fp8q_fail(err, FP8Q_E_FORMAT, "file-too-large", "%s: %lld bytes, the limit is %llu",
                      fp8q_show(&shown, path), (long long)st.st_size, (unsigned long long)max);
    else
        status = read_all(fd, (size_t)st.st_size, path, data_out, err);

    (void)fp8q_close(&fd, path, NULL); /* only read: nothing can be lost */
    if (*data_out)
        *len_out = (size_t)st.st_size;
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

static int write_and_flush(int fd, const char *path, const void *data, size_t len,
                           struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_pwrite(fd, data, len, 0, path, err));
    return fp8q_fsync(fd, path, err);
}

int fp8q_write_file(const char *path, const void *data, size_t len, struct fp8q_error *err)
{
    int fd;

    FP8Q_TRY(fp8q_create(path, &fd, err));
    int status = write_and_flush(fd, path, data, len, err);
    status = fp8q_close_after(status, &fd, path, err);

    /* A file that is not whole is removed.  */
    if (status != FP8Q_OK)
        unlink(path);
    return status;
}
