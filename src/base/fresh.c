/* SPDX-License-Identifier: Apache-2.0
 *
 * fresh.c - a file that gets its name when it is whole, and leaves nothing beside it.
 */
#include "base/fresh.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/internal.h"
#include "base/io.h"
#include "base/path.h"

#define INODE ".inode-"

/* ---- names ----------------------------------------------------------------------------------- */

/* A descriptor as a path.  */
struct fd_path {
    char text[32];
};

static const char *path_of(int fd, struct fd_path *p)
{
    snprintf(p->text, sizeof(p->text), "/proc/self/fd/%d", fd);
    return p->text;
}

/* ".fp8q-NAME.inode-N" of the file that @fd has open, or NULL for want of memory.  */
static char *inode_name(const struct fp8q_fresh *f, int fd)
{
    struct stat st;
    char name[sizeof(f->name) + 32];
    if (fp8q_fstat(fd, &st, f->name, NULL) != FP8Q_OK)
        return NULL;
    snprintf(name, sizeof(name), "%s" INODE "%llx", f->name, (unsigned long long)st.st_ino);
    return fp8q_join(f->dir, name);
}

/* ---- what killed runs left ------------------------------------------------------------------- */

/* Nobody else has it open, by the lock that whoever writes it holds.  */
static bool is_abandoned(const char *path, const struct stat *seen)
{
    struct stat st;
    int fd = fp8q_open_retry(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return false;
    bool same = fp8q_fstat(fd, &st, path, NULL) == FP8Q_OK && st.st_ino == seen->st_ino &&
                st.st_dev == seen->st_dev;
    bool abandoned = same && flock(fd, LOCK_EX | LOCK_NB) == 0;
    (void)fp8q_close(&fd, path, NULL);
    return abandoned;
}

static void clear_one(const char *path, const char *number)
{
    struct stat st;
    bool there;
    char *end;
    unsigned long long inode = strtoull(number, &end, 16);

    if (*number == '\0' || *end != '\0' || fp8q_lstat(path, &st, &there, NULL) != FP8Q_OK)
        return;
    if (there && S_ISREG(st.st_mode) && st.st_ino == inode && st.st_uid == geteuid() &&
        is_abandoned(path, &st))
        (void)fp8q_unlink(path, NULL);
}

/* What cannot be seen or removed stays: it is in nobody's way.  */
static void clear(const struct fp8q_fresh *f)
{
    char **names, prefix[sizeof(f->name) + sizeof(INODE)];
    size_t count, len = (size_t)snprintf(prefix, sizeof(prefix), "%s" INODE, f->name);

    if (fp8q_list_dir(f->dir, &names, &count, NULL) != FP8Q_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        char *path = strncmp(names[i], prefix, len) == 0 ? fp8q_join(f->dir, names[i]) : NULL;
        if (path)
            clear_one(path, names[i] + len);
        free(path);
    }
    fp8q_names_free(names, count);
}

/* ---- open ------------------------------------------------------------------------------------ */

/* Without a name, if the file system has such files and they can be given one.  */
static int open_nameless(const struct fp8q_fresh *f)
{
    if (access("/proc/self/fd", X_OK) != 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return fp8q_open_retry(f->dir, O_RDWR | O_TMPFILE, 0666);
}

static int open_named(struct fp8q_fresh *f)
{
    char *own = fp8q_join_unique(f->dir, f->name);
    int fd = own ? fp8q_open_retry(own, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0666) : -1;
    if (fd < 0) {
        int error = own ? errno : ENOMEM;
        free(own);
        errno = error;
        return -1;
    }

    /* Only now its inode is known.  Without that name no later run will touch it.  */
    char *told = inode_name(f, fd);
    bool renamed = told && fp8q_rename_new(own, told, NULL) == FP8Q_OK;
    f->own = renamed ? told : own;
    free(renamed ? own : told);
    return fd;
}

static int begin(struct fp8q_fresh *f, int *fd_out)
{
    *fd_out = open_nameless(f);
    /* As kernels and file systems say that they have none.  */
    if (*fd_out < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL ||
                        errno == ENOENT || errno == ENOSYS))
        *fd_out = open_named(f);
    if (*fd_out < 0)
        return -1;

    f->held = fcntl(*fd_out, F_DUPFD_CLOEXEC, 3);
    if (f->held < 0)
        return -1;
    /* Where nothing can be locked, nobody takes it for abandoned either.  */
    (void)flock(f->held, LOCK_EX | LOCK_NB);
    return 0;
}

int fp8q_fresh_open(const char *path, struct fp8q_fresh *f, int *fd_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *fd_out = -1;
    *f = (struct fp8q_fresh){.held = -1, .dir = fp8q_dir_of(path)};
    /* A long name would not take an ending.  */
    snprintf(f->name, sizeof(f->name), ".fp8q-%.24s", fp8q_basename(path));
    if (!f->dir) {
        errno = ENOMEM;
        return fp8q_fail_nomem(err);
    }

    clear(f);
    if (begin(f, fd_out) == 0)
        return FP8Q_OK;

    int error = errno;
    (void)fp8q_close(fd_out, path, NULL);
    fp8q_fresh_drop(f);
    int status = error == ENOMEM
                     ? fp8q_fail_nomem(err)
                     : fp8q_fail_errno(err, error, "cannot write %s", fp8q_show(&shown, path));
    errno = error;
    return status;
}

/* ---- place ----------------------------------------------------------------------------------- */

static bool link_as(int fd, const char *path)
{
    struct fd_path from;
    return linkat(AT_FDCWD, path_of(fd, &from), AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
}

/* Where it cannot be linked after all, or the name is taken, a copy does.  */
static int give_own_name(struct fp8q_fresh *f, struct fp8q_error *err)
{
    struct fd_path from;
    char *own = inode_name(f, f->held);
    if (own && link_as(f->held, own)) {
        f->own = own;
        return FP8Q_OK;
    }

    free(own);
    own = fp8q_join_unique(f->dir, f->name);
    if (!own)
        return fp8q_fail_nomem(err);
    int status = fp8q_copy_file(path_of(f->held, &from), own, NULL, NULL, err);
    if (status != FP8Q_OK) {
        free(own);
        return status;
    }
    f->own = own;
    return fp8q_flush_file(own, err);
}

int fp8q_fresh_place(struct fp8q_fresh *f, const char *path, bool new_only, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    /* To a name that is free it goes at once.  */
    if (!f->own && link_as(f->held, path))
        return FP8Q_OK;
    if (!f->own)
        FP8Q_TRY(give_own_name(f, err));

    int status = FP8Q_OK;
    if (new_only)
        status = fp8q_rename_new(f->own, path, err);
    else if (rename(f->own, path) != 0) {
        int error = errno;
        status = fp8q_fail_errno(err, error, "cannot write %s", fp8q_show(&shown, path));
        errno = error;
    }

    if (status == FP8Q_OK) {
        free(f->own);
        f->own = NULL;
    }
    return status;
}

void fp8q_fresh_drop(struct fp8q_fresh *f)
{
    if (f->own)
        (void)fp8q_unlink(f->own, NULL);
    (void)fp8q_close(&f->held, "", NULL);
    free(f->own);
    free(f->dir);
    *f = (struct fp8q_fresh){.held = -1};
}
