/* SPDX-License-Identifier: Apache-2.0
 *
 * output.c - writes result files.
 */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/internal.h"
#include "base/file.h"
#include "base/io.h"
#include "base/path.h"

/* ---- what stands there ----------------------------------------------------------------------- */

enum place {
    PLACE_FILE, /* a regular file or nothing: written beside and renamed */
    PLACE_OPEN, /* a descriptor of this process: /dev/stdout and its like */
    PLACE_INTO, /* a FIFO or a device */
};

struct target {
    enum place place;
    char *path; /* links resolved; NULL with PLACE_OPEN */
    int fd;     /* PLACE_OPEN */
    bool exists;
    struct stat stat;
};

/* One step along a link: @at becomes what it leads to.  */
static int follow(char **at, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    char leads[4096];
    ssize_t n = readlink(*at, leads, sizeof(leads) - 1);
    if (n < 0)
        return fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, *at));
    leads[n] = '\0';

    size_t dir = (size_t)(fp8q_basename(*at) - *at);
    char *next = malloc(dir + (size_t)n + 1);
    if (!next)
        return fp8q_fail_nomem(err);
    memcpy(next, *at, leads[0] == '/' ? 0 : dir);
    strcpy(next + (leads[0] == '/' ? 0 : dir), leads);

    free(*at);
    *at = next;
    return FP8Q_OK;
}

/* The descriptor that "/proc/self/fd/N" names, whatever the spelling; -1 for any other path.  A
 * link there must not be followed: the file that is open would get a second, other one of its name.
 */
static int own_descriptor(const char *path)
{
    char *end, *real = NULL, self[64];
    const char *name = fp8q_basename(path);
    long fd = strtol(name, &end, 10);
    if (*name < '0' || *name > '9' || *end || fd > 1 << 20 || name == path)
        return -1;

    char *dir = strndup(path, (size_t)(name - path));
    if (dir)
        (void)fp8q_real_path(dir, &real, NULL);
    snprintf(self, sizeof(self), "/proc/%ld/fd", (long)getpid());
    bool ours = real && strcmp(real, self) == 0;

    free(dir);
    free(real);
    return ours ? (int)fd : -1;
}

/* Follows links one by one, since the last one may be a descriptor.  */
static int find_target(const char *path, struct target *t, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    /* As many as Linux follows.  */
    enum { MAX_LINKS = 40 };

    *t = (struct target){.fd = -1};
    t->path = strdup(path);
    if (!t->path)
        return fp8q_fail_nomem(err);

    for (int i = 0;; i++) {
        t->fd = own_descriptor(t->path);
        if (t->fd >= 0) {
            t->place = PLACE_OPEN;
            return FP8Q_OK;
        }
        FP8Q_TRY(fp8q_lstat(t->path, &t->stat, &t->exists, err));
        if (!t->exists || !S_ISLNK(t->stat.st_mode))
            break;
        if (i == MAX_LINKS)
            return fp8q_fail(err, FP8Q_E_IO, "link-loop", "%s: links go round in a circle",
                             fp8q_show(&shown, path));
        FP8Q_TRY(follow(&t->path, err));
    }

    if (t->exists && S_ISDIR(t->stat.st_mode))
        return fp8q_fail(err, FP8Q_E_ARG, "output-directory",
                         "%s: is a directory, expected the name of a file",
                         fp8q_show(&shown, path));
    if (*fp8q_basename(t->path) == '\0')
        return fp8q_fail(err, FP8Q_E_ARG, "output-directory", "%s: names no file",
                         fp8q_show(&shown, path));
    if (t->exists && !S_ISREG(t->stat.st_mode))
        t->place = PLACE_INTO;
    return FP8Q_OK;
}

static int check_file(const struct target *t, const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    char *dir = fp8q_dir_of(t->path);
    if (!dir)
        return fp8q_fail_nomem(err);
    int error = access(dir, W_OK | X_OK) == 0 ? 0 : errno;
    if (error && t->exists && access(t->path, W_OK) == 0)
        error = 0; /* then it is written in place */
    free(dir);
    return error ? fp8q_fail_errno(err, error, "cannot write %s", fp8q_show(&shown, path))
                 : FP8Q_OK;
}

/* The path of @t is to be freed in every case.  */
static int check_target(const char *path, struct target *t, struct fp8q_guard_list *guard,
                        struct fp8q_error *err)
{
    struct fp8q_shown shown;
    FP8Q_TRY(find_target(path, t, err));

    if (t->place == PLACE_FILE) {
        FP8Q_TRY(check_file(t, path, err));
        /* First what this run reads, which says more.  */
        if (guard)
            FP8Q_TRY(fp8q_guard_check(guard, t->path, err));
        if (t->exists)
            FP8Q_TRY(fp8q_guard_replaced(t->path, err));
        return guard ? fp8q_guard_claim(guard, t->path, err) : FP8Q_OK;
    }

    /* Nothing is replaced there, so whether it can be written is all that counts.  */
    bool writable =
        t->place == PLACE_INTO ? access(t->path, W_OK) == 0 : fcntl(t->fd, F_GETFD) >= 0;
    return writable ? FP8Q_OK
                    : fp8q_fail_errno(err, errno, "cannot write %s", fp8q_show(&shown, path));
}

int fp8q_output_check(const char *path, struct fp8q_guard_list *guard, struct fp8q_error *err)
{
    struct target t;
    int status = check_target(path, &t, guard, err);
    free(t.path);
    return status;
}

/* "@path" from the root on: its directory is there.  */
static int absolute(const char *path, char **out, struct fp8q_error *err)
{
    char *real = NULL, *dir = fp8q_dir_of(path);
    int status = dir ? fp8q_real_path(dir, &real, err) : fp8q_fail_nomem(err);
    free(dir);
    FP8Q_TRY(status);
    if (!real)
        return fp8q_fail_errno(err, ENOENT, "cannot write %s", path);

    *out = fp8q_join(real, fp8q_basename(path));
    free(real);
    return *out ? FP8Q_OK : fp8q_fail_nomem(err);
}

int fp8q_output_file(const char *path, char **file_out, struct fp8q_error *err)
{
    struct target t;
    *file_out = NULL;
    int status = find_target(path, &t, err);
    if (status == FP8Q_OK && t.place == PLACE_FILE)
        status = absolute(t.path, file_out, err);
    free(t.path);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Opens a regular file to write it in place: emptied only once it is open.  */
static int open_in_place(struct fp8q_output *out, int why, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    out->fd = fp8q_open_retry(out->path, O_WRONLY | O_NOCTTY | O_TRUNC, 0);
    return out->fd >= 0
               ? FP8Q_OK
               : fp8q_fail_errno(err, why, "cannot write %s", fp8q_show(&shown, out->path));
}

static int open_beside(struct fp8q_output *out, bool exists, struct fp8q_error *err)
{
    struct fp8q_error why = {0};
    out->beside = fp8q_fresh_open(out->path, &out->fresh, &out->fd, &why) == FP8Q_OK;
    if (out->beside)
        return FP8Q_OK;

    int error = errno;
    if (exists && (error == EACCES || error == EPERM || error == EROFS))
        return open_in_place(out, error, err);
    return fp8q_fail_as(err, &why);
}

/* Waits a while for somebody to read a FIFO, and not for ever as open() would.  */
static int open_into(const char *path)
{
    enum { STEPS = 100 };
    static const struct timespec step = {.tv_nsec = 100000000};
    int fd = -1;
    for (int i = 0; i < STEPS; i++) {
        fd = fp8q_open_retry(path, O_WRONLY | O_NOCTTY | O_NONBLOCK, 0);
        if (fd >= 0 || errno != ENXIO)
            break;
        (void)nanosleep(&step, NULL);
    }
    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

int fp8q_output_open(const char *path, struct fp8q_output *out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct target t;
    *out = (struct fp8q_output){.fd = -1};
    int status = find_target(path, &t, err);
    out->path = t.path;
    FP8Q_TRY(status);

    if (t.place == PLACE_FILE) {
        if (t.exists) {
            out->mode = t.stat.st_mode & 07777;
            out->uid = t.stat.st_uid;
            out->gid = t.stat.st_gid;
        }
        return open_beside(out, t.exists, err);
    }
    /* A duplicate, as the descriptor itself is to outlive this output; above the standard three.  */
    out->fd = t.place == PLACE_OPEN ? fcntl(t.fd, F_DUPFD_CLOEXEC, 3) : open_into(t.path);
    return out->fd >= 0 ? FP8Q_OK
                        : fp8q_fail_errno(err, errno, "cannot write %s", fp8q_show(&shown, path));
}

int fp8q_output_add(struct fp8q_output *out, const void *data, size_t len, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    for (size_t done = 0; done < len;) {
        ssize_t n = write(out->fd, (const char *)data + done, len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return fp8q_fail_errno(err, n == 0 ? EIO : errno, "writing %s",
                                   fp8q_show(&shown, out->path));
    }
    return FP8Q_OK;
}

/* Gives the new file the mode and, where this user may, the owner of the one before.  */
static void keep_attributes(const struct fp8q_output *out)
{
    struct stat st;
    if (out->mode == 0 || fp8q_fstat(out->fd, &st, out->path, NULL) != FP8Q_OK)
        return;
    if (st.st_uid != out->uid || st.st_gid != out->gid)
        (void)!fchown(out->fd, out->uid, out->gid);
    (void)fchmod(out->fd, out->mode);
}

static int write_in_place(struct fp8q_output *out, int why, const void *data, size_t len,
                          struct fp8q_error *err)
{
    FP8Q_TRY(open_in_place(out, why, err));
    return fp8q_output_add(out, data, len, err);
}

/* Puts the bytes of the new file into the old one, which cannot be renamed over.  */
static int copy_in_place(struct fp8q_output *out, int why, struct fp8q_error *err)
{
    char *data;
    size_t len;
    FP8Q_TRY(fp8q_read_file(out->fresh.own, SIZE_MAX / 2, &data, &len, err));
    int status = write_in_place(out, why, data, len, err);
    free(data);
    return fp8q_close_after(status, &out->fd, out->path, err);
}

static int finish(struct fp8q_output *out, struct fp8q_error *err)
{
    struct fp8q_error why = {0};
    if (!out->beside)
        return fp8q_close(&out->fd, out->path, err);

    keep_attributes(out);
    /* Before the name, or a crash could leave an empty file under it.  */
    FP8Q_TRY(fp8q_fsync(out->fd, out->path, err));
    FP8Q_TRY(fp8q_close(&out->fd, out->path, err));

    if (fp8q_fresh_place(&out->fresh, out->path, out->new_only, &why) == FP8Q_OK)
        return FP8Q_OK;
    if (errno == EBUSY && out->mode) /* the one file is a mount point */
        return copy_in_place(out, EBUSY, err);
    return fp8q_fail_as(err, &why);
}

int fp8q_output_commit(struct fp8q_output *out, struct fp8q_error *err)
{
    int status = finish(out, err);
    fp8q_output_abandon(out); /* after a success there is nothing left but memory */
    return status;
}

void fp8q_output_abandon(struct fp8q_output *out)
{
    (void)fp8q_close(&out->fd, "", NULL);
    if (out->beside)
        fp8q_fresh_drop(&out->fresh);
    free(out->path);
    *out = (struct fp8q_output){.fd = -1};
}

static int open_and_add(const char *path, struct fp8q_output *out, const void *data, size_t len,
                        struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_output_open(path, out, err));
    return fp8q_output_add(out, data, len, err);
}

int fp8q_output_write(const char *path, const void *data, size_t len, struct fp8q_error *err)
{
    struct fp8q_output out;
    int status = open_and_add(path, &out, data, len, err);
    if (status != FP8Q_OK) {
        fp8q_output_abandon(&out);
        return status;
    }
    return fp8q_output_commit(&out, err);
}

int fp8q_output_text(const char *path, const struct fp8q_text *text, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_text_status(text, err));
    return fp8q_output_write(path, text->data ? text->data : "", text->len, err);
}
