/* SPDX-License-Identifier: Apache-2.0
 *
 * inject.c - the wrappers.
 */
#include "faults/inject.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

const char *const fault_call_names[N_CALLS] = {
    "open",      "close",     "pread",           "pwrite",         "fsync",
    "fallocate", "ftruncate", "fstat",           "stat",           "lstat",
    "statvfs",   "mkdir",     "rename",          "renameat2",      "linkat",
    "unlink",    "rmdir",     "opendir",         "readdir",        "flock",
    "fchmod",    "realpath",  "sync_file_range", "pthread_create", "memory"};

void __sanitizer_print_stack_trace(void) __attribute__((weak));

static struct fault armed;
static long *counts;
static long n_calls; /* of all kinds but memory */

void fault_arm(const struct fault *fault, long *counts_out)
{
    armed = *fault;
    n_calls = 0;
    counts = counts_out;
}

void fault_disarm(void)
{
    counts = NULL;
}

/* Counts a call and says what is to happen to it.  */
static enum fault_kind next(enum fault_call call)
{
    if (!counts)
        return FAULT_NONE;
    long n = __atomic_fetch_add(&counts[call], 1, __ATOMIC_RELAXED);
    if (armed.kind == FAULT_KILL) {
        if (call != CALL_MEMORY && __atomic_fetch_add(&n_calls, 1, __ATOMIC_RELAXED) == armed.at)
            raise(SIGKILL);
        return FAULT_NONE;
    }
    if (armed.kind == FAULT_NONE || call != armed.call ||
        (armed.kind == FAULT_ALWAYS ? n < armed.at : n != armed.at))
        return FAULT_NONE;
    if (armed.trace && __sanitizer_print_stack_trace)
        __sanitizer_print_stack_trace();
    errno = armed.error;
    return armed.kind;
}

/* Defines the wrapper of a function that fails with @bad.  */
#define WRAP(call, bad, type, name, params, args)                                                  \
    type __real_##name params;                                                                     \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params                                                                      \
    {                                                                                              \
        return next(call) == FAULT_NONE ? __real_##name args : (bad);                              \
    }

WRAP(CALL_FSYNC, -1, int, fsync, (int fd), (fd))
WRAP(CALL_FALLOCATE, -1, int, fallocate64, (int fd, int mode, off_t offset, off_t len),
     (fd, mode, offset, len))
WRAP(CALL_FTRUNCATE, -1, int, ftruncate64, (int fd, off_t len), (fd, len))
WRAP(CALL_FSTAT, -1, int, fstat64, (int fd, struct stat *st), (fd, st))
WRAP(CALL_STAT, -1, int, stat64, (const char *path, struct stat *st), (path, st))
WRAP(CALL_LSTAT, -1, int, lstat64, (const char *path, struct stat *st), (path, st))
WRAP(CALL_STATVFS, -1, int, statvfs64, (const char *path, struct statvfs *fs), (path, fs))
WRAP(CALL_MKDIR, -1, int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(CALL_RENAME, -1, int, rename, (const char *from, const char *to), (from, to))
WRAP(CALL_RENAMEAT2, -1, int, renameat2,
     (int from_fd, const char *from, int to_fd, const char *to, unsigned flags),
     (from_fd, from, to_fd, to, flags))
WRAP(CALL_LINKAT, -1, int, linkat,
     (int from_fd, const char *from, int to_fd, const char *to, int flags),
     (from_fd, from, to_fd, to, flags))
WRAP(CALL_UNLINK, -1, int, unlink, (const char *path), (path))
WRAP(CALL_RMDIR, -1, int, rmdir, (const char *path), (path))
WRAP(CALL_OPENDIR, NULL, DIR *, opendir, (const char *path), (path))
WRAP(CALL_READDIR, NULL, struct dirent *, readdir64, (DIR * dir), (dir))
WRAP(CALL_FLOCK, -1, int, flock, (int fd, int how), (fd, how))
WRAP(CALL_FCHMOD, -1, int, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(CALL_REALPATH, NULL, char *, realpath, (const char *path, char *out), (path, out))
WRAP(CALL_SYNC_FILE_RANGE, -1, int, sync_file_range, (int fd, off_t at, off_t n, unsigned flags),
     (fd, at, n, flags))
WRAP(CALL_THREAD, EAGAIN, int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
     (thread, attr, run, arg))
WRAP(CALL_MEMORY, NULL, void *, malloc, (size_t size), (size))
WRAP(CALL_MEMORY, NULL, void *, calloc, (size_t count, size_t size), (count, size))
WRAP(CALL_MEMORY, NULL, void *, realloc, (void *old, size_t size), (old, size))
WRAP(CALL_MEMORY, NULL, char *, strdup, (const char *text), (text))
WRAP(CALL_MEMORY, NULL, char *, strndup, (const char *text, size_t max), (text, max))
WRAP(CALL_MEMORY, ENOMEM, int, posix_memalign, (void **out, size_t align, size_t size),
     (out, align, size))

/* A failed close closes all the same, as on Linux.  */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    enum fault_kind kind = next(CALL_CLOSE);
    int error = errno, result = __real_close(fd);
    if (kind == FAULT_NONE)
        return result;
    errno = error;
    return -1;
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    bool makes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    mode_t mode = makes ? va_arg(args, mode_t) : 0;
    va_end(args);
    return next(CALL_OPEN) == FAULT_NONE ? __real_open64(path, flags, mode) : -1;
}

ssize_t __real_pread64(int fd, void *buf, size_t len, off_t at);
ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t at);
ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t at)
{
    enum fault_kind kind = next(CALL_PREAD);
    if (kind == FAULT_SHORT && len > 1)
        len = 1;
    return kind == FAULT_NONE || kind == FAULT_SHORT ? __real_pread64(fd, buf, len, at) : -1;
}

ssize_t __real_pwrite64(int fd, const void *buf, size_t len, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t at)
{
    enum fault_kind kind = next(CALL_PWRITE);
    if (kind == FAULT_SHORT && len > 1)
        len = 1;
    return kind == FAULT_NONE || kind == FAULT_SHORT ? __real_pwrite64(fd, buf, len, at) : -1;
}
