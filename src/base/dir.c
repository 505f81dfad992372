/* SPDX-License-Identifier: Apache-2.0
 *
 * dir.c - directories: names, renames, locks, and what stands at a path.
 */
#include "base/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/internal.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"

/* The kernel's numbers, where the C library (musl) does not name them.  */
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

/* ---- directories ------------------------------------------------------------------------- */

int fp8q_mkdir(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    if (mkdir(path, 0777) != 0)
        return fp8q_fail_errno(err, errno, "cannot create directory %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

/* Creates @path unless something stands there.  */
static int mkdir_if_missing(const char *path, struct fp8q_error *err)
{
    struct stat st;
    bool there;

    FP8Q_TRY(fp8q_lstat(path, &st, &there, err));
    return there ? FP8Q_OK : fp8q_mkdir(path, err);
}

/* From the top: @path is cut at each slash behind its first @len bytes in turn.  */
static int make_each(char *path, size_t len, struct fp8q_error *err)
{
    for (char *slash = strchr(path + len + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        FP8Q_TRY(mkdir_if_missing(path, err));
        *slash = '/';
    }
    return FP8Q_OK;
}

int fp8q_make_parents(const char *dir, const char *relative, struct fp8q_error *err)
{
    char *path = fp8q_join(dir, relative);
    int status = path ? make_each(path, strlen(dir), err) : fp8q_fail_nomem(err);
    free(path);
    return status;
}

/* glibc has a function for it (tests fail it by wrapping that), others have the system call alone.  */
static int rename_flags(const char *from, const char *to, unsigned flags)
{
#if defined(__GLIBC__) || !defined(SYS_renameat2)
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
#else
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
#endif
}

/* File systems without a flag say so in one of these ways.  */
static bool no_such_flag(int error)
{
    return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

int fp8q_rename(const char *from, const char *to, struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    if (rename(from, to) == 0)
        return FP8Q_OK;
    bool across = errno == EXDEV;
    int status =
        fp8q_fail_errno(err, errno, "renaming %s to %s", fp8q_show(&a, from), fp8q_show(&b, to));
    if (across && err)
        snprintf(err->id, sizeof(err->id), "cross-device");
    return status;
}

int fp8q_rename_new(const char *from, const char *to, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    if (rename_flags(from, to, RENAME_NOREPLACE) == 0)
        return FP8Q_OK;
    if (errno == EEXIST)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-exists", "%s: exists already",
                         fp8q_show(&shown, to));
    if (!no_such_flag(errno))
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
    if (rename_flags(a, b, RENAME_EXCHANGE) == 0)
        return FP8Q_OK;
    if (no_such_flag(errno) || errno == EXDEV) /* EXDEV: overlayfs, a directory of a lower layer */
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "no-swap",
                         "%s: this file system cannot swap two names", fp8q_show(&shown, b));
    return fp8q_fail_errno(err, errno, "replacing %s", fp8q_show(&shown, b));
}

int fp8q_fsync_dir(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    int fd = fp8q_open_retry(path, O_RDONLY | O_DIRECTORY, 0);
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

/* Names of @dir but "." and "..".  What was read before a failure stays in @names_out.  */
static int read_names(DIR *dir, const char *path, char ***names_out, size_t *count_out,
                      struct fp8q_error *err)
{
    struct fp8q_shown shown;
    size_t cap = 0;

    for (;;) {
        errno = 0; /* the only way to tell the end from a failure */
        struct dirent *entry = readdir(dir);
        if (!entry && errno)
            return fp8q_fail_errno(err, errno, "listing %s", fp8q_show(&shown, path));
        if (!entry)
            return FP8Q_OK;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;

        FP8Q_TRY(fp8q_grow(names_out, *count_out, &cap, sizeof(**names_out), err));
        char *name = strdup(entry->d_name);
        if (!name)
            return fp8q_fail_nomem(err);
        (*names_out)[(*count_out)++] = name;
    }
}

int fp8q_list_dir(const char *path, char ***names_out, size_t *count_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    DIR *dir = opendir(path);

    *names_out = NULL;
    *count_out = 0;
    if (!dir)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));

    int status = read_names(dir, path, names_out, count_out, err);
    closedir(dir);
    if (status != FP8Q_OK) {
        fp8q_names_free(*names_out, *count_out);
        *names_out = NULL;
        *count_out = 0;
        return status;
    }

    /* A file system lists in any order; results must not depend on it.  */
    if (*count_out)
        qsort(*names_out, *count_out, sizeof(**names_out), fp8q_compare_strings);
    return FP8Q_OK;
}

static int remove_each(const char *dir, char **names, size_t count, struct fp8q_error *err)
{
    for (size_t i = 0; i < count; i++) {
        char *child = fp8q_join(dir, names[i]);
        /* Depth is that of our own output tree, a copy of the source's.  */
        int status = child ? fp8q_remove_tree(child, err) : fp8q_fail_nomem(err);
        free(child);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

static int remove_children(const char *path, struct fp8q_error *err)
{
    char **names;
    size_t count;
    FP8Q_TRY(fp8q_list_dir(path, &names, &count, err));

    int status = remove_each(path, names, count, err);
    fp8q_names_free(names, count);
    return status;
}

int fp8q_remove_tree(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    bool there;

    /* Not through a link: what it leads to is not ours to remove.  */
    FP8Q_TRY(fp8q_lstat(path, &st, &there, err));
    if (!there)
        return FP8Q_OK;
    if (!S_ISDIR(st.st_mode))
        return fp8q_unlink(path, err);

    FP8Q_TRY(remove_children(path, err));
    if (rmdir(path) != 0 && errno != ENOENT)
        return fp8q_fail_errno(err, errno, "removing %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

/* ---- what stands at a path ----------------------------------------------------------------- */

static int stat_result(int result, const char *path, bool *there_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    *there_out = result == 0;
    if (result == 0 || errno == ENOENT || errno == ENOTDIR)
        return FP8Q_OK;
    int error = errno;
    int status = fp8q_fail_errno(err, error, "%s", fp8q_show(&shown, path));
    if (err && error == ELOOP)
        snprintf(err->id, sizeof(err->id), "link-loop");
    if (err && error == ENAMETOOLONG)
        snprintf(err->id, sizeof(err->id), "path-too-long");
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

int fp8q_lstat_in(const char *dir, const char *name, struct stat *stat_out, bool *there_out,
                  struct fp8q_error *err)
{
    char *path = fp8q_join(dir, name);
    int status = path ? fp8q_lstat(path, stat_out, there_out, err) : fp8q_fail_nomem(err);
    free(path);
    return status;
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

int fp8q_unlink_in(const char *dir, const char *name, struct fp8q_error *err)
{
    char *path = fp8q_join(dir, name);
    int status = path ? fp8q_unlink(path, err) : fp8q_fail_nomem(err);
    free(path);
    return status;
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
    /* Some network file systems answer with zeros.  */
    if (statvfs(dir, &fs) != 0 || fs.f_blocks == 0 ||
        __builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, &bytes))
        return UINT64_MAX;

    return bytes;
}

/* ---- locks --------------------------------------------------------------------------------- */

/* Network file systems may have no locks at all (Lustre mounted without flock, some FUSE ones).  */
static bool cannot_lock(int error)
{
    return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

static int take_lock(int fd, const char *path, bool shared, bool *taken_out, bool *works_out,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat held, there;
    bool exists;
    int result;
    *taken_out = *works_out = true;
    do
        result = flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
    while (result != 0 && errno == EINTR);

    if (result != 0) {
        *taken_out = *works_out = cannot_lock(errno);
        if (*taken_out)
            *works_out = false;
        if (*taken_out || errno == EWOULDBLOCK)
            return FP8Q_OK;
        return fp8q_fail_errno(err, errno, "locking %s", fp8q_show(&shown, path));
    }

    /* Who held it before may have removed the file: then another one will be locked by the next.  */
    FP8Q_TRY(fp8q_fstat(fd, &held, path, err));
    FP8Q_TRY(fp8q_lstat(path, &there, &exists, err));
    *taken_out = exists && held.st_ino == there.st_ino && held.st_dev == there.st_dev;
    return FP8Q_OK;
}

int fp8q_lock_file(const char *path, bool shared, int *fd_out, bool *taken_out,
                   struct fp8q_error *err)
{
    struct fp8q_shown shown;
    bool works = true;
    *taken_out = false;

    *fd_out = fp8q_open_retry(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (*fd_out < 0)
        return fp8q_fail_errno(err, errno, "cannot create %s", fp8q_show(&shown, path));

    int status = take_lock(*fd_out, path, shared, taken_out, &works, err);
    if (status != FP8Q_OK || !*taken_out || !works)
        (void)fp8q_close(fd_out, path, NULL); /* nothing was written */
    return status;
}

/* ---- places ---------------------------------------------------------------------------------- */

int fp8q_rmdir(const char *path, bool *gone_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *gone_out = rmdir(path) == 0 || errno == ENOENT;
    if (*gone_out || errno == ENOTEMPTY || errno == EEXIST)
        return FP8Q_OK;
    return fp8q_fail_errno(err, errno, "removing %s", fp8q_show(&shown, path));
}

int fp8q_mkdir_mode(const char *path, mode_t mode, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    /* Files are still to be written into it, whatever mode it is to have.  */
    if (mkdir(path, (mode & 0777) | 0700) != 0)
        return fp8q_fail_errno(err, errno, "cannot create directory %s", fp8q_show(&shown, path));
    return FP8Q_OK;
}

bool fp8q_is_mount(const char *path)
{
    enum { KERNEL_STATX_INO = 0x100, KERNEL_MOUNT_ROOT = 0x2000 };
    /* The kernel's struct statx, of which only this is read.  Called by number: the C libraries of
     * some systems in use (musl before 1.2.5) have no function for it.  */
    struct {
        uint32_t mask, block_size;
        uint64_t attributes;
        unsigned char rest[240];
    } st;

    return syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, KERNEL_STATX_INO, &st) == 0 &&
           (st.attributes & KERNEL_MOUNT_ROOT) != 0;
}
