/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c - whole files: read into memory, written durably, copied with their checksum.
 */
#include "base/file.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"

/* ---- in memory ------------------------------------------------------------------------------- */

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

/* ---- copies ---------------------------------------------------------------------------------- */

struct copy {
    const char *from, *to;
    int in, out;
    char *buf;
    struct fp8q_copied copied; /* its stat is of @in, before the first byte was read */
    const struct fp8q_watch *watch;
};

enum { CHUNK = 1 << 20 };

static int transfer(struct copy *c, struct fp8q_error *err)
{
    uint64_t size = (uint64_t)c->copied.stat.st_size;
    for (uint64_t at = 0; at < size;) {
        size_t n = (size_t)fp8q_min_u64(size - at, CHUNK);
        FP8Q_TRY(fp8q_pread(c->in, c->buf, n, at, c->from, err));
        FP8Q_TRY(fp8q_pwrite(c->out, c->buf, n, at, c->to, err));
        c->copied.crc32 = fp8q_crc32(c->copied.crc32, c->buf, n);
        FP8Q_TRY(fp8q_watch_check(c->watch, err));
        at += n;
    }
    return FP8Q_OK;
}

static int check_unchanged(const struct copy *c, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat now;
    FP8Q_TRY(fp8q_fstat(c->in, &now, c->from, err));
    if (now.st_size == c->copied.stat.st_size &&
        now.st_mtim.tv_sec == c->copied.stat.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == c->copied.stat.st_mtim.tv_nsec)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: changed while it was copied",
                     fp8q_show(&shown, c->from));
}

static int copy(struct copy *c, struct fp8q_error *err)
{
    c->buf = malloc(CHUNK);
    if (!c->buf)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(fp8q_open_read(c->from, &c->copied.stat, &c->in, err));
    FP8Q_TRY(fp8q_create_mode(c->to, c->copied.stat.st_mode, &c->out, err));
    FP8Q_TRY(transfer(c, err));
    return check_unchanged(c, err);
}

int fp8q_copy_file(const char *from, const char *to, const struct fp8q_watch *watch,
                   struct fp8q_copied *copied_out, struct fp8q_error *err)
{
    struct copy c = {.from = from, .to = to, .in = -1, .out = -1, .watch = watch};
    int status = copy(&c, err);
    /* Only a file that was created here may be removed: a create that failed may have met
     * another's.  */
    bool made = c.out >= 0;
    status = fp8q_close_after(status, &c.out, to, err);
    if (status != FP8Q_OK && made)
        (void)fp8q_unlink(to, NULL);
    (void)fp8q_close(&c.in, from, NULL); /* only read */
    free(c.buf);
    if (copied_out)
        *copied_out = c.copied;
    return status;
}

int fp8q_flush_file(const char *path, struct fp8q_error *err)
{
    int fd;
    FP8Q_TRY(fp8q_open_read(path, NULL, &fd, err));
    int status = fp8q_fsync(fd, path, err);
    (void)fp8q_close(&fd, path, NULL); /* nothing was written through it */
    return status;
}
