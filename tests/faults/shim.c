/* SPDX-License-Identifier: Apache-2.0
 *
 * shim.c - answers as other file systems do.  LD_PRELOAD it, with FP8Q_SHIM set to one of:
 *
 *     noflock, nolocks  ENOSYS (Lustre without flock), ENOLCK (NFS without its daemon)
 *     noswap            renameat2() without flags (NFS, CIFS, FUSE)
 *     nochmod           modes cannot be set (vfat, CIFS)
 *     nfs               a file that is removed while it is open stays as .nfsNNNN until it is closed
 *     nofallocate       nothing can be reserved
 *     notmpfile         no files without a name (NFS, vfat)
 *     nolink            such files, but no hard links to give them one
 *     nodirsync         fsync() of a directory is refused (some network file systems)
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static bool is(const char *kind)
{
    const char *asked = getenv("FP8Q_SHIM");
    return asked && strcmp(asked, kind) == 0;
}

#define REAL(type, name, params) type(*real) params = (type(*) params)dlsym(RTLD_NEXT, #name)

int flock(int fd, int how)
{
    REAL(int, flock, (int, int));
    errno = is("noflock") ? ENOSYS : ENOLCK;
    return is("noflock") || is("nolocks") ? -1 : real(fd, how);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    REAL(int, renameat2, (int, const char *, int, const char *, unsigned));
    errno = EINVAL;
    return is("noswap") && flags ? -1 : real(from_fd, from, to_fd, to, flags);
}

int fchmod(int fd, mode_t mode)
{
    REAL(int, fchmod, (int, mode_t));
    errno = EPERM;
    return is("nochmod") ? -1 : real(fd, mode);
}

int open64(const char *path, int flags, ...)
{
    REAL(int, open64, (const char *, int, ...));
    bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
    va_list args;
    va_start(args, flags);
    mode_t mode = nameless || flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    errno = EOPNOTSUPP;
    return is("notmpfile") && nameless ? -1 : real(path, flags, mode);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    REAL(int, linkat, (int, const char *, int, const char *, int));
    errno = EPERM;
    return is("nolink") ? -1 : real(from_fd, from, to_fd, to, flags);
}

int fallocate64(int fd, int mode, off64_t at, off64_t len)
{
    REAL(int, fallocate64, (int, int, off64_t, off64_t));
    errno = EOPNOTSUPP;
    return is("nofallocate") ? -1 : real(fd, mode, at, len);
}

int fsync(int fd)
{
    REAL(int, fsync, (int));
    struct stat st;
    if (is("nodirsync") && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    return real(fd);
}

/* ---- silly rename: only of what this process has open ---------------------------------------- */

static char silly[16][4096];
static ino_t silly_inode[16];
static unsigned n_silly;

static bool is_open(const struct stat *file)
{
    for (int fd = 0; fd < 256; fd++) {
        struct stat st;
        if (fstat(fd, &st) == 0 && st.st_ino == file->st_ino && st.st_dev == file->st_dev)
            return true;
    }
    return false;
}

int unlink(const char *path)
{
    REAL(int, unlink, (const char *));
    struct stat st;
    if (!is("nfs") || n_silly == 16 || lstat(path, &st) != 0 || !is_open(&st))
        return real(path);
    const char *slash = strrchr(path, '/');
    snprintf(silly[n_silly], sizeof(silly[0]), "%.*s.nfs%04u", slash ? (int)(slash - path + 1) : 0,
             path, n_silly);
    silly_inode[n_silly] = st.st_ino;
    return rename(path, silly[n_silly++]);
}

int close(int fd)
{
    REAL(int, close, (int));
    struct stat st;
    bool known = is("nfs") && fstat(fd, &st) == 0;
    int result = real(fd);
    for (unsigned i = 0; known && i < n_silly; i++)
        if (silly_inode[i] == st.st_ino && !is_open(&st)) {
            int (*remove_real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
            (void)remove_real(silly[i]);
            silly_inode[i] = 0;
        }
    return result;
}
