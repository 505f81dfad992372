/* SPDX-License-Identifier: Apache-2.0
 *
 * io.c - files: whole transfers, durable writes, and checksums.
 */
#include "io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "text.h"

/* Linux moves at most 0x7ffff000 bytes a call; smaller pieces also let a cancel through.  */
#define LARGEST_TRANSFER ((size_t)1 << 30)

_Static_assert(sizeof(off_t) == 8, "build with _FILE_OFFSET_BITS=64");

/* ---- open and close ---------------------------------------------------------------------- */

static int require_regular(int *fd, const char *path, struct stat *stat_out, struct fp8q_error *err)
{
    struct stat st;
    struct fp8q_shown shown;
    int status = FP8Q_OK;
    if (fstat(*fd, &st) != 0)
        status = fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    else if (!S_ISREG(st.st_mode))
        status = fp8q_fail(err, FP8Q_E_IO, "not-regular", "%s: is a %s, expected a regular file",
                           fp8q_show(&shown, path),
                           S_ISDIR(st.st_mode)    ? "directory"
                           : S_ISFIFO(st.st_mode) ? "FIFO"
                                                  : "device or socket");
    else if (stat_out)
        *stat_out = st;
    if (status != FP8Q_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

static int open_retry(const char *path, int flags, int mode)
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
    *fd_out = open_retry(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (*fd_out < 0)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    return require_regular(fd_out, path, stat_out, err);
}

int fp8q_create(const char *path, int *fd_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *fd_out = open_retry(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    if (*fd_out < 0)
        return fp8q_fail_errno(err, errno, "cannot create %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

int fp8q_open_write(const char *path, int *fd_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *fd_out = open_retry(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW, 0);
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

/* ---- transfer ---------------------------------------------------------------------------- */

int fp8q_pread(int fd, void *buf, size_t len, uint64_t offset, const char *path,
               struct fp8q_error *err)
{
    struct fp8q_shown shown;
    for (size_t done = 0; done < len;) {
        size_t want = len - done < LARGEST_TRANSFER ? len - done : LARGEST_TRANSFER;
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
        size_t want = len - done < LARGEST_TRANSFER ? len - done : LARGEST_TRANSFER;
        ssize_t n = pwrite(fd, (const char *)buf + done, want, (off_t)(offset + done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return fp8q_fail_errno(err, n == 0 ? EIO : errno, "writing %s",
                                   fp8q_show(&shown, path));
    }
    return FP8Q_OK;
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

/* ---- whole files ------------------------------------------------------------------------- */

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

int fp8q_replace_file(const char *path, const void *data, size_t len, struct fp8q_error *err)
{
    char *fresh = malloc(strlen(path) + 32);
    if (!fresh)
        return fp8q_fail_nomem(err);
    sprintf(fresh, "%s.new-%ld", path, (long)getpid());
    int status = fp8q_write_file(fresh, data, len, err);
    if (status == FP8Q_OK) {
        status = fp8q_rename(fresh, path, err);
        if (status != FP8Q_OK)
            unlink(fresh);
    }
    free(fresh);
    return status;
}

int fp8q_copy_file(const char *from, const char *to, struct fp8q_error *err)
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
            status = fp8q_check_cancel(err);
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

/* ---- directories ------------------------------------------------------------------------- */

int fp8q_mkdir(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    if (mkdir(path, 0777) != 0)
        return fp8q_fail_errno(err, errno, "cannot create directory %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

int fp8q_make_parents(const char *dir, const char *relative, struct fp8q_error *err)
{
    char *path = fp8q_join(dir, relative);
    if (!path)
        return fp8q_fail_nomem(err);
    int status = FP8Q_OK;
    struct stat st;
    bool there;
    for (char *slash = strchr(path + strlen(dir) + 1, '/'); slash && status == FP8Q_OK;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        status = fp8q_lstat(path, &st, &there, err);
        if (status == FP8Q_OK && !there)
            status = fp8q_mkdir(path, err);
        *slash = '/';
    }
    free(path);
    return status;
}

int fp8q_rename(const char *from, const char *to, struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    if (rename(from, to) != 0)
        return fp8q_fail_errno(err, errno, "renaming %s to %s", fp8q_show(&a, from),
                               fp8q_show(&b, to));
    return FP8Q_OK;
}

int fp8q_rename_new(const char *from, const char *to, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return FP8Q_OK;
    if (errno == EEXIST)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-exists", "%s: exists already",
                         fp8q_show(&shown, to));
    if (errno != EINVAL && errno != ENOSYS)
        return fp8q_fail_errno(err, errno, "renaming to %s", fp8q_show(&shown, to));
    /* File system without RENAME_NOREPLACE: the check leaves a short gap, the lock covers our own
     * runs.  */
    bool there;
    FP8Q_TRY(fp8q_lstat(to, &st, &there, err));
    if (there)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-exists", "%s: exists already",
                         fp8q_show(&shown, to));
    return fp8q_rename(from, to, err);
}

int fp8q_rename_swap(const char *a, const char *b, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0)
        return FP8Q_OK;
    if (errno == EINVAL || errno == ENOSYS)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "no-swap",
                         "%s: this file system cannot swap two names", fp8q_show(&shown, b));
    return fp8q_fail_errno(err, errno, "replacing %s", fp8q_show(&shown, b));
}

int fp8q_fsync_dir(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    int fd = open_retry(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    int status = FP8Q_OK;
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    /* Some network file systems have no fsync of a directory and say EINVAL.  */
    if (result != 0 && errno != EINVAL)
        status = fp8q_fail_errno(err, errno, "flushing directory %s", fp8q_show(&shown, path));
    close(fd);
    return status;
}

void fp8q_names_free(char **names, size_t count)
{
    for (size_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
}

int fp8q_list_dir(const char *path, char ***names_out, size_t *count_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    char **names = NULL;
    size_t count = 0, cap = 0;
    int status = FP8Q_OK;
    *names_out = NULL;
    *count_out = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry) {
            if (errno)
                status = fp8q_fail_errno(err, errno, "listing %s", fp8q_show(&shown, path));
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (count == cap) {
            char **grown = realloc(names, (cap ? cap * 2 : 32) * sizeof(*names));
            if (!grown) {
                status = fp8q_fail_nomem(err);
                break;
            }
            names = grown;
            cap = cap ? cap * 2 : 32;
        }
        names[count] = strdup(entry->d_name);
        if (!names[count]) {
            status = fp8q_fail_nomem(err);
            break;
        }
        count++;
    }
    closedir(dir);
    if (status != FP8Q_OK) {
        fp8q_names_free(names, count);
        return status;
    }
    if (count)
        qsort(names, count, sizeof(*names), fp8q_compare_strings);
    *names_out = names;
    *count_out = count;
    return FP8Q_OK;
}

int fp8q_remove_tree(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? FP8Q_OK
                               : fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    if (!S_ISDIR(st.st_mode))
        return fp8q_unlink(path, err);
    char **names;
    size_t count;
    int status = fp8q_list_dir(path, &names, &count, err);
    for (size_t i = 0; status == FP8Q_OK && i < count; i++) {
        char *child = fp8q_join(path, names[i]);
        /* Depth is that of our own output tree, a copy of the source's.  */
        status = child ? fp8q_remove_tree(child, err) : fp8q_fail_nomem(err);
        free(child);
    }
    fp8q_names_free(names, count);
    if (status == FP8Q_OK && rmdir(path) != 0 && errno != ENOENT)
        status = fp8q_fail_errno(err, errno, "removing %s", fp8q_show(&shown, path));
    return status;
}

/* ---- what stands at a path ----------------------------------------------------------------- */

static int stat_result(int result, const char *path, bool *there_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *there_out = result == 0;
    if (result == 0 || errno == ENOENT || errno == ENOTDIR)
        return FP8Q_OK;
    bool loop = errno == ELOOP;
    int status = fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    if (loop && err)
        snprintf(err->id, sizeof(err->id), "link-loop");
    return status;
}

int fp8q_stat(const char *path, struct stat *stat_out, bool *there_out, struct fp8q_error *err)
{
    return stat_result(stat(path, stat_out), path, there_out, err);
}

int fp8q_lstat(const char *path, struct stat *stat_out, bool *there_out, struct fp8q_error *err)
{
    return stat_result(lstat(path, stat_out), path, there_out, err);
}

int fp8q_is_dir(const char *path, bool *is_dir_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    *is_dir_out = false;
    if (stat(path, &st) != 0)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    *is_dir_out = S_ISDIR(st.st_mode);
    return FP8Q_OK;
}

int fp8q_fstat(int fd, struct stat *stat_out, const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    if (fstat(fd, stat_out) != 0)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

int fp8q_unlink(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    if (unlink(path) != 0 && errno != ENOENT)
        return fp8q_fail_errno(err, errno, "removing %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

int fp8q_real_path(const char *path, char **real_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *real_out = realpath(path, NULL);
    if (*real_out || errno == ENOENT || errno == ENOTDIR)
        return FP8Q_OK;
    return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
}

uint64_t fp8q_free_space(const char *dir)
{
    struct statvfs fs;
    uint64_t bytes;
    if (statvfs(dir, &fs) != 0 || fs.f_blocks == 0 ||
        __builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* ---- locks --------------------------------------------------------------------------------- */

static int lock_open(int fd, const char *path, bool shared, bool *taken_out, struct fp8q_error *err)
{
    struct stat held, there;
    bool exists;
    int result;
    do
        result = flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
    while (result != 0 && errno == EINTR);
    *taken_out = false;
    if (result != 0) {
        struct fp8q_shown shown;
        return errno == EWOULDBLOCK
                   ? FP8Q_OK
                   : fp8q_fail_errno(err, errno, "locking %s", fp8q_show(&shown, path));
    }
    FP8Q_TRY(fp8q_fstat(fd, &held, path, err));
    FP8Q_TRY(fp8q_lstat(path, &there, &exists, err));
    *taken_out = exists && held.st_ino == there.st_ino && held.st_dev == there.st_dev;
    return FP8Q_OK;
}

int fp8q_lock_file(const char *path, bool shared, int *fd_out, bool *taken_out,
                   struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *taken_out = false;
    *fd_out = open_retry(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (*fd_out < 0)
        return fp8q_fail_errno(err, errno, "cannot create %s", fp8q_show(&shown, path));
    int status = lock_open(*fd_out, path, shared, taken_out, err);
    if (!*taken_out)
        (void)fp8q_close(fd_out, path, NULL); /* nothing was written */
    return status;
}

int fp8q_lock_dir(const char *path, bool shared, int *fd_out, bool *taken_out,
                  struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *taken_out = false;
    *fd_out = open_retry(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (*fd_out < 0) {
        if (errno == ENOENT) /* renamed by who held it */
            return FP8Q_OK;
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    }
    struct fp8q_error why = {0};
    int status = lock_open(*fd_out, path, shared, taken_out, &why);
    if (!*taken_out)
        (void)fp8q_close(fd_out, path, NULL);
    if (status != FP8Q_OK) /* NFS locks only what is open for writing, and a directory never is */
        *taken_out = true;
    return FP8Q_OK;
}

/* ---- paths and checksums ----------------------------------------------------------------- */

char *fp8q_join(const char *dir, const char *name)
{
    size_t a = strlen(dir), b = strlen(name);
    bool slash = a > 0 && dir[a - 1] != '/';
    char *path = malloc(a + slash + b + 1);
    if (!path)
        return NULL;
    memcpy(path, dir, a);
    if (slash)
        path[a] = '/';
    memcpy(path + a + slash, name, b + 1);
    return path;
}

char *fp8q_join_unique(const char *dir, const char *name)
{
    uint64_t number = 0;
    struct timespec now;
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number)) {
        clock_gettime(CLOCK_REALTIME, &now); /* before the system has gathered any randomness */
        number = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec << 16 ^ (uint64_t)getpid();
    }
    char *path = fp8q_join(dir, name);
    size_t len = path ? strlen(path) : 0;
    char *longer = path ? realloc(path, len + 20) : NULL;
    if (!longer) {
        free(path);
        return NULL;
    }
    snprintf(longer + len, 20, ".%016llx", (unsigned long long)number);
    return longer;
}

bool fp8q_stays_inside(const char *relative)
{
    if (*relative == '\0' || *relative == '/')
        return false;
    for (const char *part = relative; *part; part += strcspn(part, "/"), part += *part == '/')
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    return true;
}

const char *fp8q_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

uint32_t fp8q_crc32(uint32_t crc, const void *data, size_t len)
{
    /* libdeflate: 20 GB/s by carry-less multiplication where zlib 1.2.13 has about 1.  */
    return libdeflate_crc32(crc, data, len);
}

uint32_t fp8q_crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
    return (uint32_t)crc32_combine(crc_a, crc_b, (z_off_t)len_b);
}
