/* SPDX-License-Identifier: Apache-2.0
 *
 * outdir.c - checks, lock, and the final rename.
 */
#include "outdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "io.h"
#include "layout.h"

static char *with_suffix(const char *path, const char *suffix)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    char *out = malloc(len + strlen(suffix) + 1);
    if (out) {
        memcpy(out, path, len);
        strcpy(out + len, suffix);
    }
    return out;
}

/* Length of a file name without ".safetensors".  */
static size_t stem_len(const char *path)
{
    static const char ending[] = ".safetensors";
    size_t len = strlen(path), end = sizeof(ending) - 1;
    return len > end && strcmp(path + len - end, ending) == 0 ? len - end : len;
}

char *fp8q_default_destination(const struct fp8q_ckpt *ckpt, const char *suffix)
{
    if (ckpt->is_dir) {
        /* "." and ".." and links have their name behind them.  */
        const char *base = fp8q_basename(ckpt->path);
        if (strcmp(base, ".") == 0 || strcmp(base, "..") == 0 || *base == '\0') {
            char *real = realpath(ckpt->path, NULL);
            char *out = real ? with_suffix(real, suffix) : NULL;
            free(real);
            return out;
        }
        return with_suffix(ckpt->path, suffix);
    }
    size_t len = stem_len(ckpt->path);
    char *out = malloc(len + strlen(suffix) + 16);
    if (out) {
        memcpy(out, ckpt->path, len);
        strcpy(out + len, suffix);
        strcat(out, ".safetensors");
    }
    return out;
}

static char *sidecar_name(const char *file)
{
    size_t len = stem_len(file);
    char *out = malloc(len + 32);
    if (out) {
        memcpy(out, file, len);
        strcpy(out + len, ".scales.safetensors");
    }
    return out;
}

/* Directory that holds @path: "." for a bare name.  */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* An output of this tool: has a manifest.  Only such a thing may be overwritten.  */
static bool is_ours(const char *path, bool is_dir)
{
    static const char *const marks[] = {FP8Q_SIDECAR_NAME, FP8Q_MANIFEST_NAME};
    struct stat st;
    if (!is_dir) {
        char *sidecar = sidecar_name(path);
        bool ours = sidecar && lstat(sidecar, &st) == 0;
        free(sidecar);
        return ours;
    }
    for (size_t i = 0; i < 2; i++) {
        char *mark = fp8q_join(path, marks[i]);
        bool found = mark && lstat(mark, &st) == 0;
        free(mark);
        if (found)
            return true;
    }
    return false;
}

/* @path lies in directory @dir (both by device and inode, up to the root), or is it.  */
static bool lies_in(const char *path, const struct stat *dir)
{
    char *at = realpath(path, NULL);
    bool inside = false;
    while (at && !inside) {
        struct stat st;
        inside = stat(at, &st) == 0 && st.st_ino == dir->st_ino && st.st_dev == dir->st_dev;
        char *slash = strrchr(at, '/');
        if (!slash || (slash == at && at[1] == '\0'))
            break;
        slash[slash == at ? 1 : 0] = '\0';
    }
    free(at);
    return inside;
}

int fp8q_outdir_check(const struct fp8q_ckpt *ckpt, const char *destination, bool overwrite,
                      struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat source, existing;
    char *parent = parent_of(destination);
    int status = parent ? FP8Q_OK : fp8q_fail_nomem(err);
    fp8q_show(&shown, destination);
    if (status == FP8Q_OK && stat(ckpt->path, &source) != 0)
        status = fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, ckpt->path));
    if (status == FP8Q_OK && stat(destination, &existing) == 0) {
        bool same = existing.st_ino == source.st_ino && existing.st_dev == source.st_dev;
        for (size_t i = 0; i < ckpt->n_shards && !same; i++)
            same = existing.st_ino == ckpt->shards[i].stat.st_ino &&
                   existing.st_dev == ckpt->shards[i].stat.st_dev;
        if (same)
            status =
                fp8q_fail(err, FP8Q_E_ARG, "dst-is-src", "%s: is the source itself", shown.text);
        else if (S_ISDIR(existing.st_mode) && lies_in(ckpt->path, &existing))
            status = fp8q_fail(err, FP8Q_E_ARG, "dst-holds-src", "%s: the source lies in it",
                               shown.text);
        else if (S_ISDIR(existing.st_mode) != ckpt->is_dir)
            status = fp8q_fail(err, FP8Q_E_ARG, "dst-kind", "%s: is a %s, the source is a %s",
                               shown.text, ckpt->is_dir ? "file" : "directory",
                               ckpt->is_dir ? "directory" : "file");
    }
    if (status == FP8Q_OK && ckpt->is_dir && lies_in(parent, &source))
        status = fp8q_fail(err, FP8Q_E_ARG, "dst-in-src", "%s: lies in the source", shown.text);
    if (status == FP8Q_OK && lstat(destination, &existing) == 0) {
        if (!overwrite)
            status =
                fp8q_fail(err, FP8Q_E_ARG, "dst-exists",
                          "%s: exists already; --overwrite replaces an earlier output", shown.text);
        else if (!is_ours(destination, S_ISDIR(existing.st_mode)))
            status = fp8q_fail(
                err, FP8Q_E_ARG, "dst-foreign",
                "%s: exists and is no output of fp8q; --overwrite replaces only those", shown.text);
    }
    if (status == FP8Q_OK && !ckpt->is_dir && !overwrite) {
        /* A sidecar alone is another tool's file, unless our own killed run left it.  */
        char *sidecar = sidecar_name(destination), *partial = with_suffix(destination, ".partial");
        if (!sidecar || !partial)
            status = fp8q_fail_nomem(err);
        else if (lstat(sidecar, &existing) == 0 && lstat(partial, &source) != 0)
            status = fp8q_fail(err, FP8Q_E_ARG, "dst-exists", "%s: exists already",
                               fp8q_show(&shown, sidecar));
        free(sidecar);
        free(partial);
    }
    free(parent);
    return status;
}

/* ---- open ------------------------------------------------------------------------------------ */

/* Takes the lock of DST.partial; a directory that was renamed or removed meanwhile does not count.
 */
static int take_lock(struct fp8q_outdir *out, bool shared, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat held, there;
    char *path = fp8q_join(out->work, "lock");
    if (!path)
        return fp8q_fail_nomem(err);
    int status = FP8Q_OK;
    out->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (out->lock_fd < 0)
        status = fp8q_fail_errno(err, errno, "cannot create %s", fp8q_show(&shown, path));
    else if (flock(out->lock_fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 ||
             fstat(out->lock_fd, &held) != 0 || stat(path, &there) != 0 ||
             held.st_ino != there.st_ino || held.st_dev != there.st_dev)
        status = fp8q_fail(err, FP8Q_E_ARG, "locked", "%s: another fp8q is working on it",
                           fp8q_show(&shown, out->final));
    if (status != FP8Q_OK && out->lock_fd >= 0) {
        close(out->lock_fd);
        out->lock_fd = -1;
    }
    free(path);
    return status;
}

static int make_dir(const char *path, bool *made_out, struct fp8q_error *err)
{
    struct stat st;
    struct fp8q_shown shown;
    *made_out = mkdir(path, 0777) == 0;
    if (*made_out)
        return FP8Q_OK;
    if (errno != EEXIST)
        return fp8q_fail_errno(err, errno, "cannot create directory %s", fp8q_show(&shown, path));
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return fp8q_fail(err, FP8Q_E_ARG, "dst-exists", "%s: exists and is no directory",
                         fp8q_show(&shown, path));
    return FP8Q_OK;
}

/* Everything in DST.partial but the lock.  */
static int remove_leftovers(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    const char *const dirs[] = {out->partial, out->work};
    int status = FP8Q_OK;
    for (size_t d = 0; d < 2 && status == FP8Q_OK; d++) {
        char **names;
        size_t n;
        FP8Q_TRY(fp8q_list_dir(dirs[d], &names, &n, err));
        for (size_t i = 0; i < n && status == FP8Q_OK; i++) {
            if (strcmp(names[i], d == 0 ? ".fp8q" : "lock") == 0)
                continue;
            char *path = fp8q_join(dirs[d], names[i]);
            status = path ? fp8q_remove_tree(path, err) : fp8q_fail_nomem(err);
            free(path);
        }
        fp8q_names_free(names, n);
    }
    return status;
}

/* Stores the state, or compares it with what is there.  */
static int settle_state(struct fp8q_outdir *out, const char *state, enum fp8q_outdir_use use,
                        struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct fp8q_error ignored;
    char *data = NULL;
    size_t len = 0;
    char *path = fp8q_join(out->work, "state.json"),
         *fresh = fp8q_join_unique(out->work, "state"); /* parts may do this at the same time */
    int status = path && fresh ? FP8Q_OK : fp8q_fail_nomem(err);
    bool there = status == FP8Q_OK && fp8q_read_file(path, UINT64_MAX, &data, &len, &ignored) == 0;
    bool same = there && len == strlen(state) && memcmp(data, state, len) == 0;
    free(data);
    if (status == FP8Q_OK && there && !same && use != FP8Q_OUTDIR_FRESH)
        status = use == FP8Q_OUTDIR_RESUME
                     ? fp8q_fail(err, FP8Q_E_ARG, "resume-differs",
                                 "%s: was begun with another source, other options or another "
                                 "version of fp8q; remove it or run without --resume",
                                 fp8q_show(&shown, out->partial))
                     : fp8q_fail(err, FP8Q_E_EVIDENCE, "part-foreign",
                                 "%s: holds parts of another source, other options or another "
                                 "version of fp8q",
                                 fp8q_show(&shown, out->partial));
    if (status == FP8Q_OK && !same && use != FP8Q_OUTDIR_PART)
        status = remove_leftovers(out, err);
    if (status == FP8Q_OK && !same) {
        status = fp8q_write_file(fresh, state, strlen(state), err);
        if (status == FP8Q_OK)
            status = fp8q_rename(fresh, path, err);
    }
    free(path);
    free(fresh);
    return status;
}

static int check_space(const struct fp8q_outdir *out, uint64_t size_bytes, struct fp8q_error *err)
{
    struct statvfs fs;
    struct fp8q_shown shown;
    if (statvfs(out->partial, &fs) != 0 || fs.f_blocks == 0)
        return FP8Q_OK; /* no figures: a write will tell */
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (room >= size_bytes)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_IO, "no-space",
                     "%s: No space left on device: the output needs %llu bytes, %llu are free",
                     fp8q_show(&shown, out->final), (unsigned long long)size_bytes,
                     (unsigned long long)room);
}

static void free_names(struct fp8q_outdir *out)
{
    free(out->final);
    free(out->sidecar);
    free(out->partial);
    free(out->work);
    int fd = out->lock_fd;
    *out = (struct fp8q_outdir){.lock_fd = -1};
    if (fd >= 0)
        close(fd);
}

int fp8q_outdir_open(const struct fp8q_ckpt *ckpt, const char *destination, const char *state,
                     uint64_t size_bytes, enum fp8q_outdir_use use, bool overwrite,
                     struct fp8q_outdir *out, struct fp8q_error *err)
{
    bool made = false, made_work;
    *out = (struct fp8q_outdir){.lock_fd = -1,
                                .is_dir = ckpt->is_dir,
                                .overwrite = overwrite,
                                .keep = use != FP8Q_OUTDIR_FRESH};
    out->final = with_suffix(destination, "");
    out->partial = with_suffix(destination, ".partial");
    out->work = out->partial ? fp8q_join(out->partial, ".fp8q") : NULL;
    out->sidecar = out->final && !ckpt->is_dir ? sidecar_name(out->final) : NULL;
    int status = out->final && out->partial && out->work && (out->sidecar || ckpt->is_dir)
                     ? FP8Q_OK
                     : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = make_dir(out->partial, &made, err);
    if (status == FP8Q_OK)
        status = make_dir(out->work, &made_work, err);
    if (status == FP8Q_OK)
        status = take_lock(out, use == FP8Q_OUTDIR_PART, err);
    bool locked = status == FP8Q_OK;
    if (status == FP8Q_OK && !made && use == FP8Q_OUTDIR_FRESH)
        status = remove_leftovers(out, err);
    if (status == FP8Q_OK)
        status = settle_state(out, state, use, err);
    if (status == FP8Q_OK && use != FP8Q_OUTDIR_FINISH)
        status = check_space(out, size_bytes, err);
    if (status == FP8Q_OK) {
        out->created = true;
        return FP8Q_OK;
    }
    if ((made || use == FP8Q_OUTDIR_FRESH) && locked)
        (void)fp8q_remove_tree(out->partial, NULL);
    free_names(out);
    return status;
}

void fp8q_outdir_leave(struct fp8q_outdir *out)
{
    free_names(out);
}

void fp8q_outdir_abandon(struct fp8q_outdir *out)
{
    if (out->created && !out->keep)
        (void)fp8q_remove_tree(out->partial, NULL);
    free_names(out);
}

/* ---- commit ---------------------------------------------------------------------------------- */

static int commit_dir(struct fp8q_outdir *out, struct fp8q_error *err)
{
    struct fp8q_error ignored;
    if (!out->overwrite)
        return fp8q_rename_new(out->partial, out->final, err);
    struct stat st;
    if (lstat(out->final, &st) != 0)
        return fp8q_rename_new(out->partial, out->final, err);
    /* One step where the system can, so that DST is never absent; then the old one goes.  */
    int status = fp8q_rename_swap(out->partial, out->final, err);
    if (status == FP8Q_E_UNSUPPORTED) {
        FP8Q_TRY(fp8q_remove_tree(out->final, err));
        return fp8q_rename(out->partial, out->final, err);
    }
    if (status == FP8Q_OK)
        (void)fp8q_remove_tree(out->partial, &ignored);
    return status;
}

/* The sidecar first: what people look for is the weights file, and it must not be there alone.  */
static int commit_files(struct fp8q_outdir *out, struct fp8q_error *err)
{
    struct stat st;
    char *weights = fp8q_join(out->partial, "weights.safetensors");
    char *scales = fp8q_join(out->partial, FP8Q_SIDECAR_NAME);
    char *manifest = fp8q_join(out->partial, FP8Q_MANIFEST_NAME);
    int status = weights && scales && manifest ? FP8Q_OK : fp8q_fail_nomem(err);
    if (status == FP8Q_OK && lstat(manifest, &st) == 0) { /* --scales inline */
        free(scales);
        scales = manifest;
        manifest = NULL;
        char *name = out->sidecar;
        size_t len = stem_len(out->final);
        out->sidecar = malloc(len + 32);
        if (out->sidecar) {
            memcpy(out->sidecar, out->final, len);
            strcpy(out->sidecar + len, ".fp8q-manifest.json");
        } else {
            status = fp8q_fail_nomem(err);
        }
        free(name);
    }
    bool has_scales = status == FP8Q_OK && lstat(scales, &st) == 0;
    if (has_scales)
        status = fp8q_rename(scales, out->sidecar, err);
    if (status == FP8Q_OK)
        status = out->overwrite ? fp8q_rename(weights, out->final, err)
                                : fp8q_rename_new(weights, out->final, err);
    if (status != FP8Q_OK && has_scales)
        unlink(out->sidecar);
    if (status == FP8Q_OK)
        (void)fp8q_remove_tree(out->partial, NULL);
    free(weights);
    free(scales);
    free(manifest);
    return status;
}

int fp8q_outdir_commit(struct fp8q_outdir *out, struct fp8q_error *err)
{
    char *parent = parent_of(out->final);
    int status = parent ? FP8Q_OK : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = fp8q_remove_tree(out->work, err);
    if (status == FP8Q_OK)
        status = fp8q_fsync_dir(out->partial, err);
    if (status == FP8Q_OK)
        status = out->is_dir ? commit_dir(out, err) : commit_files(out, err);
    if (status == FP8Q_OK)
        status = fp8q_fsync_dir(parent, err);
    free(parent);
    if (status != FP8Q_OK) {
        out->keep = false;
        fp8q_outdir_abandon(out);
        return status;
    }
    free_names(out);
    return FP8Q_OK;
}
