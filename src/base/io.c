/* SPDX-License-Identifier: Apache-2.0
 *
 * io.c - descriptors: open, whole transfers, flush, close.
 */
#include "base/io.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/internal.h"
#include "base/mem.h"

/* Linux moves at most 0x7ffff000 bytes a call; smaller pieces also let a cancel through.  */
#define LARGEST_TRANSFER ((size_t)1 << 30)

_Static_assert(sizeof(off_t) == 8, "build with _FILE_OFFSET_BITS=64");

/* ---- open and close ---------------------------------------------------------------------- */

static const char *kind_name(mode_t mode)
{
    if (S_ISDIR(mode))
        return "directory";
    return S_ISFIFO(mode) ? "FIFO" : "device or socket";
}

static int check_regular(int fd, const char *path, struct stat *stat_out, struct fp8q_error *err)
{
    struct stat st;
    struct fp8q_shown shown;

    if (fstat(fd, &st) != 0)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    if (!S_ISREG(st.st_mode))
        return fp8q_fail(err, FP8Q_E_IO, "not-regular", "%s: is a %s, expected a regular file",
                         fp8q_show(&shown, path), kind_name(st.st_mode));
    if (stat_out)
        *stat_out = st;
    return FP8Q_OK;
}

/* Closes *@fd unless it is a regular file.  */
static int require_regular(int *fd, const char *path, struct stat *stat_out, struct fp8q_error *err)
{
    int status = check_regular(*fd, path, stat_out, err);

    if (status != FP8Q_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

int fp8q_open_retry(const char *path, int flags, int mode)
{
    int fd;

    do
        fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);

    return fd;
}

int fp8q_open_read(const char *path, struct stat *stat_out, int *fd_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    /* O_NONBLOCK: opening a FIFO without a writer would otherwise hang.  No effect on regular
     * files.  */
    *fd_out = fp8q_open_retry(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (*fd_out < 0)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    return require_regular(fd_out, path, stat_out, err);
}

int fp8q_create(const char *path, int *fd_out, struct fp8q_error *err)
{
    return fp8q_create_mode(path, 0666, fd_out, err);
}

int fp8q_create_mode(const char *path, mode_t mode, int *fd_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    /* Whatever stands at the path, a link included, is left alone.  */
    *fd_out = fp8q_open_retry(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, (int)(mode & 0777));
    if (*fd_out < 0)
        return fp8q_fail_errno(err, errno, "cannot create %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

int fp8q_open_write(const char *path, int *fd_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    *fd_out = fp8q_open_retry(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW, 0);
    if (*fd_out < 0)
        return fp8q_fail_errno(err, errno, "cannot open %s for writing", fp8q_show(&shown, path));
    return require_regular(fd_out, path, NULL, err);
}

int fp8q_close(int *fd, const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    if (*fd < 0)
        return FP8Q_OK;

    int result = close(*fd);
    *fd = -1;

    /* Linux has closed the descriptor even on EINTR; any other error may mean lost data.  */
    if (result != 0 && errno != EINTR)
        return fp8q_fail_errno(err, errno, "closing %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

int fp8q_close_after(int status, int *fd, const char *path, struct fp8q_error *err)
{
    if (status != FP8Q_OK) {
        (void)fp8q_close(fd, path, NULL);
        return status;
    }
    return fp8q_close(fd, path, err);
}

/* ---- transfer ---------------------------------------------------------------------------- */

int fp8q_pread(int fd, void *buf, size_t len, uint64_t offset, const char *path,
               struct fp8q_error *err)
{
    struct fp8q_shown shown;

    for (size_t done = 0; done < len;) {
        size_t want = fp8q_min_size(len - done, LARGEST_TRANSFER);
        ssize_t n = pread(fd, (char *)buf + done, want, (off_t)(offset + done));

        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return fp8q_fail(
                err, FP8Q_E_IO, "file-ended",
                "%s: ends at byte %llu, expected %llu more (changed while being read?)",
                fp8q_show(&shown, path), (unsigned long long)(offset + done),
                (unsigned long long)(len - done));
        else if (errno != EINTR)
            return fp8q_fail_errno(err, errno, "reading %s", fp8q_show(&shown, path));
    }
    return FP8Q_OK;
}

int fp8q_pwrite(int fd, const void *buf, size_t len, uint64_t offset, const char *path,
                struct fp8q_error *err)
{
    struct fp8q_shown shown;

    for (size_t done = 0; done < len;) {
        size_t want = fp8q_min_size(len - done, LARGEST_TRANSFER);
        ssize_t n = pwrite(fd, (const char *)buf + done, want, (off_t)(offset + done));

        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return fp8q_fail_errno(err, n == 0 ? EIO : errno, "writing %s",
                                   fp8q_show(&shown, path));
    }
    return FP8Q_OK;
}

bool fp8q_read_line(const char *path, char *buf, size_t cap)
{
    int fd = fp8q_open_retry(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return false;

    ssize_t n = pread(fd, buf, cap - 1, 0);
    close(fd);
    if (n < 0)
        return false;
    buf[n] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    return true;
}

int fp8q_fsync(int fd, const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    int result;

    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);

    if (result != 0)
        return fp8q_fail_errno(err, errno, "flushing %s to disk", fp8q_show(&shown, path));
    return FP8Q_OK;
}

int fp8q_reserve(int fd, uint64_t size, const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    int result;
    struct statfs fs;

    if (size == 0)
        return FP8Q_OK;

    /* tmpfs reserves by allocating every page, one writer at a time; a write does that as well.  */
    bool in_memory = fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
    do
        result = in_memory ? -1 : fallocate(fd, 0, 0, (off_t)size);
    while (result != 0 && !in_memory && errno == EINTR);

    if (result == 0)
        return FP8Q_OK;
    if (!in_memory && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        return fp8q_fail_errno(err, errno, "reserving %llu bytes for %s", (unsigned long long)size,
                               fp8q_show(&shown, path));

    /* No room was promised, so a write may still meet a full disk; the size is right at least.  */
    do
        result = ftruncate(fd, (off_t)size);
    while (result != 0 && errno == EINTR);
    if (result != 0)
        return fp8q_fail_errno(err, errno, "sizing %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

void fp8q_start_writeback(int fd, uint64_t offset, uint64_t len)
{
    (void)sync_file_range(fd, (off_t)offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

void fp8q_drop_cache(int fd, uint64_t offset, uint64_t len)
{
    (void)posix_fadvise(fd, (off_t)offset, (off_t)len, POSIX_FADV_DONTNEED);
}
