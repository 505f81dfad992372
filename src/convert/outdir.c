/* SPDX-License-Identifier: Apache-2.0
 *
 * outdir.c - checks, lock, and the final rename.
 */
#include "convert/outdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "format/names.h"

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

char *fp8q_default_destination(const struct fp8q_ckpt *ckpt, const char *suffix)
{
    if (ckpt->is_dir) {
        /* "." and ".." and links have their name behind them.  */
        const char *base = fp8q_basename(ckpt->path);
        if (strcmp(base, ".") == 0 || strcmp(base, "..") == 0 || *base == '\0') {
            char *real;
            (void)fp8q_real_path(ckpt->path, &real, NULL);
            char *out = real ? with_suffix(real, suffix) : NULL;
            free(real);
            return out;
        }
        return with_suffix(ckpt->path, suffix);
    }
    size_t len = fp8q_weights_stem(ckpt->path);
    char *out = malloc(len + strlen(suffix) + 16);
    if (out) {
        memcpy(out, ckpt->path, len);
        strcpy(out + len, suffix);
        strcat(out, FP8Q_WEIGHTS_ENDING);
    }
    return out;
}

/* What belongs to a weights file and stands beside it: scales, or the manifest alone.  */
enum { N_COMPANIONS = 2 };
static const char *const companion_endings[N_COMPANIONS] = {FP8Q_SCALES_ENDING,
                                                            FP8Q_MANIFEST_ENDING};
static const char *const companion_names[N_COMPANIONS] = {FP8Q_SIDECAR_NAME, FP8Q_MANIFEST_NAME};

static char *companion(const char *file, size_t kind)
{
    size_t len = fp8q_weights_stem(file);
    char *out = malloc(len + 32);
    if (out) {
        memcpy(out, file, len);
        strcpy(out + len, companion_endings[kind]);
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

static int is_there(const char *path, bool *there_out, struct fp8q_error *err)
{
    struct stat st;
    *there_out = false;
    return path ? fp8q_lstat(path, &st, there_out, err) : fp8q_fail_nomem(err);
}

/* What `dequantize` writes has no manifest, but says so in the metadata of its shards.  */
static bool has_our_metadata(const char *path)
{
    struct fp8q_ckpt *ckpt;
    bool ours = false;
    if (fp8q_ckpt_open(path, &ckpt, NULL, NULL) != FP8Q_OK)
        return false; /* whatever it is, it is nobody's business here */
    for (size_t i = 0; i < ckpt->n_shards && !ours; i++)
        for (size_t k = 0; k < ckpt->shards[i].header.n_metadata && !ours; k++)
            ours = strncmp(ckpt->shards[i].header.metadata[k].key, "fp8q.", 5) == 0;
    fp8q_ckpt_close(ckpt);
    return ours;
}

/* An output of this tool: has a manifest or our metadata.  Only such a thing may be overwritten. */
static int is_ours(const char *path, bool is_dir, bool *ours_out, struct fp8q_error *err)
{
    *ours_out = false;
    for (size_t i = 0; i < N_COMPANIONS && !*ours_out; i++) {
        char *mark = is_dir ? fp8q_join(path, companion_names[i]) : companion(path, i);
        int status = is_there(mark, ours_out, err);
        free(mark);
        FP8Q_TRY(status);
    }
    *ours_out = *ours_out || has_our_metadata(path);
    return FP8Q_OK;
}

/* @path lies in directory @dir (both by device and inode, up to the root), or is it.  */
static int lies_in(const char *path, const struct stat *dir, bool *inside_out,
                   struct fp8q_error *err)
{
    char *at;
    bool there;
    *inside_out = false;
    FP8Q_TRY(fp8q_real_path(path, &at, err));
    int status = FP8Q_OK;
    while (at && !*inside_out) {
        struct stat st;
        status = fp8q_stat(at, &st, &there, err);
        if (status != FP8Q_OK)
            break;
        *inside_out = there && st.st_ino == dir->st_ino && st.st_dev == dir->st_dev;
        char *slash = strrchr(at, '/');
        if (!slash || (slash == at && at[1] == '\0'))
            break;
        slash[slash == at ? 1 : 0] = '\0';
    }
    free(at);
    return status;
}

/* @existing, which @destination leads to, is not the source and does not hold it.  */
static int check_existing(const struct fp8q_ckpt *ckpt, const char *destination,
                          const struct stat *source, const struct stat *existing,
                          struct fp8q_error *err)
{
    struct fp8q_shown shown;
    bool same = existing->st_ino == source->st_ino && existing->st_dev == source->st_dev;
    bool holds = false;
    fp8q_show(&shown, destination);
    for (size_t i = 0; i < ckpt->n_shards && !same; i++)
        same = existing->st_ino == ckpt->shards[i].stat.st_ino &&
               existing->st_dev == ckpt->shards[i].stat.st_dev;
    if (same)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-is-src", "%s: is the source itself", shown.text);
    if (S_ISDIR(existing->st_mode))
        FP8Q_TRY(lies_in(ckpt->path, existing, &holds, err));
    if (holds)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-holds-src", "%s: the source lies in it", shown.text);
    if (S_ISDIR(existing->st_mode) != ckpt->is_dir)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-kind", "%s: is a %s, the source is a %s", shown.text,
                         ckpt->is_dir ? "file" : "directory", ckpt->is_dir ? "directory" : "file");
    return FP8Q_OK;
}

static int check_in_source(const char *destination, const struct stat *source,
                           struct fp8q_error *err)
{
    struct fp8q_shown shown;
    bool inside = false;
    char *parent = parent_of(destination);
    int status = parent ? lies_in(parent, source, &inside, err) : fp8q_fail_nomem(err);
    free(parent);
    if (status == FP8Q_OK && inside)
        status = fp8q_fail(err, FP8Q_E_ARG, "dst-in-src", "%s: lies in the source",
                           fp8q_show(&shown, destination));
    return status;
}

/* A companion alone is another tool's file, unless our own killed run left it.  */
static int check_companions(const char *destination, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    bool begun;
    char *partial = with_suffix(destination, ".partial");
    int status = is_there(partial, &begun, err);
    free(partial);
    for (size_t i = 0; i < N_COMPANIONS && status == FP8Q_OK && !begun; i++) {
        bool there;
        char *path = companion(destination, i);
        status = is_there(path, &there, err);
        if (status == FP8Q_OK && there)
            status = fp8q_fail(err, FP8Q_E_ARG, "dst-exists", "%s: exists already",
                               fp8q_show(&shown, path));
        free(path);
    }
    return status;
}

int fp8q_outdir_check(const struct fp8q_ckpt *ckpt, const char *destination, bool overwrite,
                      struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat source, existing;
    bool there, ours;
    FP8Q_TRY(fp8q_stat(ckpt->path, &source, &there, err));
    if (!there)
        return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: is gone",
                         fp8q_show(&shown, ckpt->path));
    FP8Q_TRY(fp8q_stat(destination, &existing, &there, err));
    if (there)
        FP8Q_TRY(check_existing(ckpt, destination, &source, &existing, err));
    if (ckpt->is_dir)
        FP8Q_TRY(check_in_source(destination, &source, err));
    FP8Q_TRY(fp8q_lstat(destination, &existing, &there, err));
    if (there && !overwrite)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-exists",
                         "%s: exists already; --overwrite replaces an earlier output",
                         fp8q_show(&shown, destination));
    if (there) {
        FP8Q_TRY(is_ours(destination, S_ISDIR(existing.st_mode), &ours, err));
        if (!ours)
            return fp8q_fail(err, FP8Q_E_ARG, "dst-foreign",
                             "%s: exists and is no output of fp8q; --overwrite replaces only those",
                             fp8q_show(&shown, destination));
    }
    return ckpt->is_dir || overwrite ? FP8Q_OK : check_companions(destination, err);
}

/* ---- what a killed commit left --------------------------------------------------------------- */

static int rename_if_there(const char *from, const char *to, struct fp8q_error *err)
{
    bool there;
    if (!to)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(is_there(from, &there, err));
    return there ? fp8q_rename(from, to, err) : FP8Q_OK;
}

/* Moves what stands at the final names to DST.partial/.fp8q/old.*: weights first, since they are
 * what a loader looks for.  */
static int set_aside(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    char *old = fp8q_join(out->work, "old.weights");
    int status = rename_if_there(out->final, old, err);
    free(old);
    for (size_t i = 0; i < N_COMPANIONS && status == FP8Q_OK; i++) {
        char *path = companion(out->final, i);
        old = fp8q_join(out->work, i ? "old.manifest" : "old.scales");
        status = rename_if_there(path, old, err);
        free(path);
        free(old);
    }
    /* From here on what stands at a companion's name is new.  */
    char *all = status == FP8Q_OK ? fp8q_join(out->work, "old.all") : NULL;
    if (status == FP8Q_OK)
        status = all ? fp8q_write_file(all, "", 0, err) : fp8q_fail_nomem(err);
    free(all);
    return status;
}

/* The reverse, for a commit that failed or was killed.  */
static int put_back(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    bool weights, final, all;
    char *old_weights = fp8q_join(out->work, "old.weights");
    char *marker = fp8q_join(out->work, "old.all");
    int status = is_there(old_weights, &weights, err);
    if (status == FP8Q_OK)
        status = is_there(out->final, &final, err);
    if (status == FP8Q_OK)
        status = is_there(marker, &all, err);
    bool needed = status == FP8Q_OK && weights && !final;
    for (size_t i = 0; i < N_COMPANIONS && needed && status == FP8Q_OK; i++) {
        char *path = companion(out->final, i);
        char *old = fp8q_join(out->work, i ? "old.manifest" : "old.scales");
        status = path ? FP8Q_OK : fp8q_fail_nomem(err);
        if (status == FP8Q_OK && all)
            status = fp8q_unlink(path, err);
        if (status == FP8Q_OK)
            status = rename_if_there(old, path, err);
        free(path);
        free(old);
    }
    if (needed && status == FP8Q_OK)
        status = fp8q_rename(old_weights, out->final, err);
    if (needed && status == FP8Q_OK)
        status = fp8q_unlink(marker, err);
    free(old_weights);
    free(marker);
    return status;
}

/* A directory's .fp8q that was moved beside it, or the old DST that was moved into that.  */
static int take_back_dirs(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    bool aside, work, old, final;
    FP8Q_TRY(is_there(out->aside, &aside, err));
    if (!aside)
        return FP8Q_OK;
    FP8Q_TRY(is_there(out->old, &old, err));
    FP8Q_TRY(is_there(out->final, &final, err));
    if (old && !final)
        FP8Q_TRY(fp8q_rename(out->old, out->final, err));
    FP8Q_TRY(is_there(out->work, &work, err));
    return work || final ? fp8q_remove_tree(out->aside, err)
                         : fp8q_rename(out->aside, out->work, err);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int make_dir(const char *path, bool *made_out, struct fp8q_error *err)
{
    struct stat st;
    struct fp8q_shown shown;
    struct fp8q_error why = {0};
    bool there;
    int status = fp8q_mkdir(path, &why); /* first, since parts do this at the same time */
    *made_out = status == FP8Q_OK;
    if (*made_out)
        return FP8Q_OK;
    FP8Q_TRY(fp8q_lstat(path, &st, &there, err));
    if (there && S_ISDIR(st.st_mode))
        return FP8Q_OK;
    if (there)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-exists", "%s: exists and is no directory",
                         fp8q_show(&shown, path));
    if (err)
        *err = why;
    return status;
}

/* Locks DST.partial itself, so that nobody else can come in while .fp8q is not in it, and a file,
 * since network file systems lock no directories.  */
static int take_locks(struct fp8q_outdir *out, bool shared, bool *taken_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    bool made;
    FP8Q_TRY(fp8q_lock_dir(out->partial, shared, &out->dir_lock_fd, taken_out, err));
    if (*taken_out) {
        *taken_out = false;
        if (!shared)
            FP8Q_TRY(take_back_dirs(out, err));
        FP8Q_TRY(make_dir(out->work, &made, err));
        char *path = fp8q_join(out->work, "lock");
        int status = path ? fp8q_lock_file(path, shared, &out->lock_fd, taken_out, err)
                          : fp8q_fail_nomem(err);
        free(path);
        FP8Q_TRY(status);
    }
    return *taken_out ? FP8Q_OK
                      : fp8q_fail(err, FP8Q_E_ARG, "locked", "%s: another fp8q is working on it",
                                  fp8q_show(&shown, out->final));
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

static int write_state(const struct fp8q_outdir *out, const char *path, const char *state,
                       struct fp8q_error *err)
{
    char *fresh = fp8q_join_unique(out->work, "state"); /* parts do this at the same time */
    int status = fresh ? fp8q_write_file(fresh, state, strlen(state), err) : fp8q_fail_nomem(err);
    if (status == FP8Q_OK) {
        status = fp8q_rename(fresh, path, err);
        if (status != FP8Q_OK)
            (void)fp8q_unlink(fresh, NULL);
    }
    free(fresh);
    return status;
}

static int fail_other_state(const struct fp8q_outdir *out, enum fp8q_outdir_use use,
                            struct fp8q_error *err)
{
    struct fp8q_shown shown;
    fp8q_show(&shown, out->partial);
    if (use == FP8Q_OUTDIR_RESUME)
        return fp8q_fail(err, FP8Q_E_ARG, "resume-differs",
                         "%s: was begun with another source, other options or another version of "
                         "fp8q; remove it or run without --resume",
                         shown.text);
    return fp8q_fail(err, FP8Q_E_EVIDENCE, "part-foreign",
                     "%s: holds parts of another source, other options or another version of fp8q",
                     shown.text);
}

/* Stores the state, or compares it with what is there; *@resumed_out: it is the same.  */
static int settle_state(struct fp8q_outdir *out, const char *state, enum fp8q_outdir_use use,
                        bool *resumed_out, struct fp8q_error *err)
{
    char *data = NULL;
    size_t len = 0;
    char *path = fp8q_join(out->work, "state.json");
    int status = path ? fp8q_read_file_if_there(path, (uint64_t)1 << 30, &data, &len, err)
                      : fp8q_fail_nomem(err);
    bool there = data != NULL;
    *resumed_out = there && len == strlen(state) && memcmp(data, state, len) == 0;
    free(data);
    if (status == FP8Q_OK && !*resumed_out) {
        if (use == FP8Q_OUTDIR_FINISH || (there && use != FP8Q_OUTDIR_FRESH))
            status = fail_other_state(out, use, err);
        if (status == FP8Q_OK && use != FP8Q_OUTDIR_PART)
            status = remove_leftovers(out, err);
        if (status == FP8Q_OK)
            status = write_state(out, path, state, err);
    }
    free(path);
    return status;
}

static int check_space(const struct fp8q_outdir *out, uint64_t size_bytes, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    uint64_t room = fp8q_free_space(out->partial);
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
    free(out->partial);
    free(out->work);
    free(out->aside);
    free(out->old);
    (void)fp8q_close(&out->lock_fd, "", NULL);
    (void)fp8q_close(&out->dir_lock_fd, "", NULL);
    *out = (struct fp8q_outdir){.lock_fd = -1, .dir_lock_fd = -1};
}

static int make_names(struct fp8q_outdir *out, const char *destination, struct fp8q_error *err)
{
    out->final = with_suffix(destination, "");
    out->partial = with_suffix(destination, ".partial");
    out->aside = with_suffix(destination, ".partial.fp8q");
    out->work = out->partial ? fp8q_join(out->partial, ".fp8q") : NULL;
    out->old = out->aside ? fp8q_join(out->aside, "old") : NULL;
    return out->final && out->partial && out->work && out->aside && out->old ? FP8Q_OK
                                                                             : fp8q_fail_nomem(err);
}

int fp8q_outdir_open(const struct fp8q_ckpt *ckpt, const char *destination, const char *state,
                     uint64_t size_bytes, enum fp8q_outdir_use use, bool overwrite,
                     struct fp8q_outdir *out, struct fp8q_error *err)
{
    bool made = false, locked = false, resumed = false;
    *out = (struct fp8q_outdir){.lock_fd = -1,
                                .dir_lock_fd = -1,
                                .is_dir = ckpt->is_dir,
                                .overwrite = overwrite,
                                .keep = use != FP8Q_OUTDIR_FRESH};
    int status = make_names(out, destination, err);
    if (status == FP8Q_OK)
        status = make_dir(out->partial, &made, err);
    bool removable = false; /* what we made ourselves, and what we hold the lock of */
    if (status == FP8Q_OK) {
        status = take_locks(out, use == FP8Q_OUTDIR_PART, &locked, err);
        removable = made && status != FP8Q_E_ARG && use != FP8Q_OUTDIR_PART;
    }
    if (status == FP8Q_OK && !ckpt->is_dir)
        status = put_back(out, err); /* on failure nothing is removed */
    if (status == FP8Q_OK) {
        removable = removable || use == FP8Q_OUTDIR_FRESH;
        if (!made && use == FP8Q_OUTDIR_FRESH)
            status = remove_leftovers(out, err);
    }
    if (status == FP8Q_OK)
        status = settle_state(out, state, use, &resumed, err);
    if (status == FP8Q_OK && use != FP8Q_OUTDIR_FINISH && !resumed)
        status = check_space(out, size_bytes, err);
    if (status == FP8Q_OK) {
        out->created = true;
        return FP8Q_OK;
    }
    if (removable)
        (void)fp8q_remove_tree(out->partial, NULL);
    free_names(out);
    return status;
}

void fp8q_outdir_clean(const struct fp8q_ckpt *ckpt, const char *destination)
{
    struct fp8q_outdir out = {.lock_fd = -1, .dir_lock_fd = -1};
    bool partial = false, aside = false;
    if (make_names(&out, destination, NULL) == FP8Q_OK) {
        (void)is_there(out.partial, &partial, NULL);
        (void)is_there(out.aside, &aside, NULL);
    }
    free_names(&out);
    if ((partial || aside) &&
        fp8q_outdir_open(ckpt, destination, "", 0, FP8Q_OUTDIR_FRESH, false, &out, NULL) == FP8Q_OK)
        fp8q_outdir_abandon(&out);
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

/* Flushes the entries of a directory and of those in it.  */
static int flush_dirs(const char *path, struct fp8q_error *err)
{
    char **names;
    size_t n;
    struct stat st;
    bool there;
    FP8Q_TRY(fp8q_list_dir(path, &names, &n, err));
    int status = FP8Q_OK;
    for (size_t i = 0; i < n && status == FP8Q_OK; i++) {
        char *child = fp8q_join(path, names[i]);
        status = child ? fp8q_lstat(child, &st, &there, err) : fp8q_fail_nomem(err);
        if (status == FP8Q_OK && there && S_ISDIR(st.st_mode))
            status = flush_dirs(child, err);
        free(child);
    }
    fp8q_names_free(names, n);
    return status == FP8Q_OK ? fp8q_fsync_dir(path, err) : status;
}

static int flush_parent(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    char *parent = parent_of(out->final);
    int status = parent ? fp8q_fsync_dir(parent, err) : fp8q_fail_nomem(err);
    free(parent);
    return status;
}

/* Gives the final name; in one step where the system can, so that an old DST is never absent.  */
static int place_dir(struct fp8q_outdir *out, bool replace, bool *swapped_out,
                     struct fp8q_error *err)
{
    *swapped_out = false;
    if (!replace)
        return fp8q_rename_new(out->partial, out->final, err);
    int status = fp8q_rename_swap(out->partial, out->final, err);
    *swapped_out = status == FP8Q_OK;
    if (status != FP8Q_E_UNSUPPORTED)
        return status;
    FP8Q_TRY(fp8q_rename(out->final, out->old, err));
    status = fp8q_rename_new(out->partial, out->final, err);
    if (status != FP8Q_OK)
        (void)fp8q_rename(out->old, out->final, NULL);
    return status;
}

static void unplace_dir(struct fp8q_outdir *out, bool replace, bool swapped)
{
    if (swapped) {
        (void)fp8q_rename_swap(out->partial, out->final, NULL);
        return;
    }
    (void)fp8q_rename(out->final, out->partial, NULL);
    if (replace)
        (void)fp8q_rename(out->old, out->final, NULL);
}

/* .fp8q moves out, so that it never reaches DST, and comes back if anything fails.  */
static int commit_dir(struct fp8q_outdir *out, struct fp8q_error *err)
{
    bool replace = false, swapped = false;
    if (out->overwrite)
        FP8Q_TRY(is_there(out->final, &replace, err));
    FP8Q_TRY(fp8q_remove_tree(out->aside, err));
    FP8Q_TRY(fp8q_rename(out->work, out->aside, err));
    int status = flush_dirs(out->partial, err);
    if (status == FP8Q_OK) {
        status = place_dir(out, replace, &swapped, err);
        if (status == FP8Q_OK) {
            status = flush_parent(out, err);
            if (status != FP8Q_OK)
                unplace_dir(out, replace, swapped);
        }
    }
    if (status != FP8Q_OK) {
        (void)fp8q_rename(out->aside, out->work, NULL);
        return status;
    }
    if (swapped)
        (void)fp8q_remove_tree(out->partial, NULL);
    (void)fp8q_remove_tree(out->aside, NULL);
    return FP8Q_OK;
}

/* The file that goes beside the weights; *@from_out is NULL if there is none.  */
static int find_companion(const struct fp8q_outdir *out, char **from_out, char **to_out,
                          struct fp8q_error *err)
{
    *from_out = *to_out = NULL;
    for (size_t i = 0; i < N_COMPANIONS; i++) {
        bool there;
        char *path = fp8q_join(out->partial, companion_names[i]);
        int status = is_there(path, &there, err);
        if (status == FP8Q_OK && there) {
            *from_out = path;
            *to_out = companion(out->final, i);
            return *to_out ? FP8Q_OK : fp8q_fail_nomem(err);
        }
        free(path);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

/* The companion first: what people look for is the weights file, and it must not be there alone. */
static int place_files(struct fp8q_outdir *out, const char *weights, const char *from,
                       const char *to, struct fp8q_error *err)
{
    bool placed = false, placed_weights = false;
    int status = out->overwrite ? set_aside(out, err) : FP8Q_OK;
    if (status == FP8Q_OK && from) {
        status = fp8q_rename(from, to, err);
        placed = status == FP8Q_OK;
    }
    if (status == FP8Q_OK) {
        status = fp8q_rename_new(weights, out->final, err);
        placed_weights = status == FP8Q_OK;
    }
    if (status == FP8Q_OK)
        status = flush_parent(out, err);
    if (status == FP8Q_OK)
        return FP8Q_OK;
    if (placed_weights)
        (void)fp8q_rename(out->final, weights, NULL);
    if (placed)
        (void)fp8q_rename(to, from, NULL);
    if (out->overwrite)
        (void)put_back(out, NULL);
    return status;
}

static int commit_files(struct fp8q_outdir *out, struct fp8q_error *err)
{
    char *from = NULL, *to = NULL;
    char *weights = fp8q_join(out->partial, "weights.safetensors");
    int status = weights ? find_companion(out, &from, &to, err) : fp8q_fail_nomem(err);
    if (status == FP8Q_OK)
        status = place_files(out, weights, from, to, err);
    if (status == FP8Q_OK)
        (void)fp8q_remove_tree(out->partial, NULL);
    free(weights);
    free(from);
    free(to);
    return status;
}

int fp8q_outdir_commit(struct fp8q_outdir *out, struct fp8q_error *err)
{
    int status = out->is_dir ? commit_dir(out, err) : commit_files(out, err);
    if (status == FP8Q_OK)
        free_names(out);
    else
        fp8q_outdir_abandon(out);
    return status;
}
