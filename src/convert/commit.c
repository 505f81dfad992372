/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.c - the final name, and what is left to do after a run that was killed while giving it.
 *
 * P is DST.partial, W is DST.partial.fp8q; W/commit.json lists the files of the old output and has
 * a checksum of the new one.  A directory gets its name by one rename, an old one goes by a swap of
 * two names.  Where the system cannot swap, the old one goes to W/old first, and where it cannot
 * even rename (overlayfs, a directory of a lower layer), its files do, one by one.  A file has a
 * companion, so two renames are needed; the weights come last, since they are what a loader looks
 * for.  "-" is nothing, C the companion.
 *
 * | killed                            | DST       | P          | W/old    | the next run            |
 * |-----------------------------------|-----------|------------|----------|-------------------------|
 * | before commit.json is written     | - or old  | new        | -        | has nothing to undo     |
 * | after it                          | - or old  | new        | -        | removes commit.json     |
 * | after the rename, nothing was old | new       | -          | -        | removes W               |
 * | after the swap                    | new       | old        | -        | removes P, W            |
 * | no swap: old one set aside        | -         | new        | old      | puts it back            |
 * |   after the rename                | new       | -          | old      | removes W               |
 * | file by file                      | some old  | new        | some old | puts them back          |
 * | file: old weights set aside       | - and C   | weights, C | weights  | puts them back          |
 * |   old C set aside as well         | -         | weights, C | both     | puts them back          |
 * |   new C in place                  | - and C   | weights    | both     | takes C back, puts back |
 * |   new weights in place            | new and C | -          | both     | removes P, W            |
 *
 * P and DST are told apart by the checksum where both are there, by the weights in P for a file.
 * What is removed goes by the lists of files, so a file that somebody else put there stays.
 */
#include "convert/commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"
#include "convert/destination_check.h"

static int is_there(const char *path, bool *there_out, struct fp8q_error *err)
{
    struct stat st;
    *there_out = false;
    return path ? fp8q_lstat(path, &st, there_out, err) : fp8q_fail_nomem(err);
}

static int in_dir(const char *dir, const char *name, bool *there_out, struct fp8q_error *err)
{
    char *path = fp8q_join(dir, name);
    int status = is_there(path, there_out, err);
    free(path);
    return status;
}

static char *old_dir(const struct fp8q_outdir *out)
{
    return fp8q_join(out->names.work, FP8Q_OLD_NAME);
}

static int flush_parent(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    return fp8q_fsync_dir(out->names.parent, err);
}

/* ---- which output is it? --------------------------------------------------------------------- */

enum { LOOKED_AT = 1 << 20 };

/* Adds the name, the size and the first bytes of a file, which hold every header and checksum.  */
static int mark_file(const char *dir, const char *name, char *buf, uint32_t *crc,
                     struct fp8q_error *err)
{
    struct stat st = {0};
    int fd = -1;

    char *path = fp8q_join(dir, name);
    int status = path ? fp8q_open_read(path, &st, &fd, err) : fp8q_fail_nomem(err);
    size_t n = status == FP8Q_OK ? (size_t)fp8q_min_u64((uint64_t)st.st_size, LOOKED_AT) : 0;
    if (status == FP8Q_OK)
        status = fp8q_pread(fd, buf, n, 0, path, err);

    /* Name and size count, too: two files of the same beginning are told apart.  */
    *crc = fp8q_crc32(*crc, name, strlen(name) + 1);
    *crc = fp8q_crc32(*crc, &st.st_size, sizeof(st.st_size));
    *crc = fp8q_crc32(*crc, buf, n);

    (void)fp8q_close(&fd, "", NULL);
    free(path);
    return status;
}

/* *@complete_out is false, and the result 0, if a listed file is not there.  */
static int mark_of(const char *dir, const struct fp8q_listing *files, uint32_t *crc_out,
                   bool *complete_out, struct fp8q_error *err)
{
    const char *missing;

    *crc_out = 0;
    *complete_out = false;
    FP8Q_TRY(fp8q_listing_missing(files, dir, &missing, err));

    if (missing)
        return FP8Q_OK;

    char *buf = malloc(LOOKED_AT);
    int status = buf ? FP8Q_OK : fp8q_fail_nomem(err);
    for (size_t i = 0; i < files->count && status == FP8Q_OK; i++)
        status = mark_file(dir, files->names[i], buf, crc_out, err);

    free(buf);
    *complete_out = status == FP8Q_OK;
    return status;
}

/* ---- commit.json ----------------------------------------------------------------------------- */

static int write_commit(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 1};
    uint32_t mark;
    bool complete;

    /* Of DST.partial, which is whole by now: it is how the next run knows the new output.  */
    FP8Q_TRY(mark_of(out->names.partial, out->rules.files, &mark, &complete, err));

    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_uint(&w, "mark", mark);
    fp8q_listing_write(&out->old, "replaced", &w);
    fp8q_jsonw_close(&w, '}');

    int status = fp8q_text_status(&w.text, err);
    if (status == FP8Q_OK)
        status = fp8q_workdir_put(&out->names, FP8Q_COMMIT_NAME, w.text.data, false, err);
    fp8q_text_reset(&w.text);
    return status;
}

static int read_commit(const struct fp8q_destination *names, bool *pending_out, uint64_t *mark_out,
                       struct fp8q_listing *old_out, struct fp8q_error *err)
{
    char *data = NULL, *path = fp8q_join(names->work, FP8Q_COMMIT_NAME);
    size_t len = 0;
    struct fp8q_json *json = NULL;

    *old_out = (struct fp8q_listing){0};
    /* No checksum is as large, so a commit.json without a mark matches no output.  */
    *mark_out = UINT64_MAX;

    int status =
        path ? fp8q_read_file_if_there(path, 1 << 28, &data, &len, err) : fp8q_fail_nomem(err);
    *pending_out = data != NULL;

    if (status == FP8Q_OK && data)
        status = fp8q_json_parse(data, len, 0, path, &json, err);
    if (json) {
        (void)fp8q_json_uint(fp8q_json_get(json, "mark"), mark_out);
        status = fp8q_listing_parse(fp8q_json_get(json, "replaced"), old_out, err);
    }

    fp8q_json_free(json);
    free(data);
    free(path);
    return status;
}

int fp8q_commit_pending(const struct fp8q_destination *names, bool *pending_out,
                        struct fp8q_listing *old_out, struct fp8q_error *err)
{
    uint64_t mark;
    return read_commit(names, pending_out, &mark, old_out, err);
}

static int drop_commit(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    char *path = fp8q_join(out->names.work, FP8Q_COMMIT_NAME);
    int status = path ? fp8q_unlink(path, err) : fp8q_fail_nomem(err);
    free(path);
    return status;
}

/* ---- undo ------------------------------------------------------------------------------------ */

/* What was set aside goes back to DST: the directory as a whole if nothing else is in it, else those
 * of its files that are there.  */
static int put_back_dir(const struct fp8q_outdir *out, const struct fp8q_listing *old,
                        struct fp8q_error *err)
{
    struct fp8q_text strangers = {0};
    struct stat st;
    bool aside, final;
    size_t n;

    char *dir = old_dir(out);
    int status = dir ? fp8q_lstat(dir, &st, &aside, err) : fp8q_fail_nomem(err);
    if (status != FP8Q_OK || !aside || old->count == 0)
        goto end;

    status = is_there(out->names.final, &final, err);
    if (status == FP8Q_OK)
        status = fp8q_listing_strangers(old, dir, &n, &strangers, err);

    /* As a whole, if it holds nothing but the old output: a rename is done or not done.  */
    if (status == FP8Q_OK && !final && n == 0) {
        status = fp8q_rename(dir, out->names.final, err);
        goto end;
    }

    /* Else file by file; what is not listed stays where it is, and the directory with it.  */
    if (status == FP8Q_OK && !final)
        status = fp8q_mkdir_mode(out->names.final, st.st_mode, err);
    if (status == FP8Q_OK)
        status = fp8q_listing_move(old, dir, out->names.final, err);
    if (status == FP8Q_OK)
        status = fp8q_listing_remove(old, dir, NULL, err);
end:
    fp8q_text_reset(&strangers);
    free(dir);
    return status;
}

static int move_if_there(const char *dir, const char *name, const char *path, bool out_of_dir,
                         struct fp8q_error *err)
{
    bool there;
    char *inside = fp8q_join(dir, name);
    const char *from = out_of_dir ? inside : path, *to = out_of_dir ? path : inside;
    int status = inside ? is_there(from, &there, err) : fp8q_fail_nomem(err);

    /* Never over what stands at the new name: the move fails instead.  */
    if (status == FP8Q_OK && there)
        status = fp8q_rename_new(from, to, err);
    free(inside);
    return status;
}

/* A new companion that was in place before its weights goes back to P, then the old files to
 * DST's names, the weights last.  */
static int put_back_files(const struct fp8q_outdir *out, const struct fp8q_listing *files,
                          const struct fp8q_listing *old, struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;
    char *dir = old_dir(out);
    int status = dir ? FP8Q_OK : fp8q_fail_nomem(err);

    for (size_t i = 0; i < FP8Q_N_COMPANIONS && status == FP8Q_OK; i++) {
        bool made;
        const char *name = fp8q_companion_names[i];

        /* A companion of the new output that P lacks is at DST's name, where it may not stay.  */
        status = in_dir(names->partial, name, &made, err);
        if (status == FP8Q_OK && fp8q_listing_has(files, name) && !made)
            status = move_if_there(names->partial, name, names->companions[i], false, err);
        if (status == FP8Q_OK)
            status = move_if_there(dir, name, names->companions[i], true, err);
    }

    if (status == FP8Q_OK)
        status = move_if_there(dir, FP8Q_WEIGHTS_NAME, names->final, true, err);
    if (status == FP8Q_OK)
        status = fp8q_listing_remove(old, dir, NULL, err);

    free(dir);
    return status;
}

/* ---- recover --------------------------------------------------------------------------------- */

/* Whether DST is the new output.  */
static int is_committed(const struct fp8q_outdir *out, const struct fp8q_listing *files,
                        uint64_t mark, bool *committed_out, struct fp8q_error *err)
{
    bool partial, final, complete, same;
    uint32_t crc;

    *committed_out = false;
    FP8Q_TRY(is_there(out->names.final, &final, err));
    if (!final)
        return FP8Q_OK;

    /* The weights move last, so once P has none everything is in place.  */
    if (!out->names.is_dir) {
        FP8Q_TRY(in_dir(out->names.partial, FP8Q_WEIGHTS_NAME, &partial, err));
        *committed_out = !partial;
        return FP8Q_OK;
    }

    FP8Q_TRY(mark_of(out->names.final, files, &crc, &complete, err));
    *committed_out = complete && crc == mark;
    if (!*committed_out)
        return FP8Q_OK;

    /* Old and new may look the same.  Then nothing was done yet, as far as can be seen, and P goes
     * on to become DST.  */
    FP8Q_TRY(is_there(out->names.partial, &partial, err));
    if (partial) {
        FP8Q_TRY(mark_of(out->names.partial, files, &crc, &same, err));
        *committed_out = !same || crc != mark;
    }
    return FP8Q_OK;
}

/* The old output, wherever it stands by now.  */
static int remove_old(struct fp8q_outdir *out, const struct fp8q_listing *old, bool *left_out,
                      struct fp8q_error *err)
{
    bool gone = true, aside_gone = true;

    /* Set aside, or swapped to P's name.  */
    char *dir = old_dir(out);
    int status = dir ? fp8q_listing_remove(old, dir, &aside_gone, err) : fp8q_fail_nomem(err);
    free(dir);
    FP8Q_TRY(status);
    FP8Q_TRY(fp8q_listing_remove(old, out->names.partial, &gone, err));
    *left_out = !gone || !aside_gone;
    return FP8Q_OK;
}

static int recover(struct fp8q_outdir *out, const struct fp8q_listing *files,
                   const struct fp8q_listing *old, uint64_t mark, bool *committed_out,
                   struct fp8q_error *err)
{
    bool left;
    FP8Q_TRY(is_committed(out, files, mark, committed_out, err));
    if (!*committed_out) {
        FP8Q_TRY(out->names.is_dir ? put_back_dir(out, old, err)
                                   : put_back_files(out, files, old, err));
        return drop_commit(out, err);
    }

    /* The name is on disk before the old output goes: one of the two survives a power failure.  */
    FP8Q_TRY(flush_parent(out, err));
    FP8Q_TRY(remove_old(out, old, &left, err));
    return fp8q_workdir_clear(&out->names, err);
}

int fp8q_commit_recover(struct fp8q_outdir *out, const struct fp8q_listing *files,
                        bool *committed_out, struct fp8q_error *err)
{
    struct fp8q_listing old;
    uint64_t mark;
    bool pending;
    *committed_out = false;
    int status = read_commit(&out->names, &pending, &mark, &old, err);
    if (status == FP8Q_OK && pending)
        status = recover(out, files, &old, mark, committed_out, err);
    fp8q_listing_reset(&old);
    return status;
}

/* ---- give the name --------------------------------------------------------------------------- */

/* Where two names cannot be swapped: the old directory goes aside, as a whole or by its files.  */
static int set_dir_aside(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    struct fp8q_error why = {0};
    struct stat st;
    bool there;
    char *dir = old_dir(out);

    if (!dir)
        return fp8q_fail_nomem(err);

    int status = fp8q_rename(out->names.final, dir, &why);
    /* overlayfs cannot rename a directory of a lower layer, and says that it is another device.  */
    if (status != FP8Q_OK && strcmp(why.id, "cross-device") == 0) {
        status = fp8q_stat(out->names.final, &st, &there, &why);
        if (status == FP8Q_OK)
            status = fp8q_mkdir_mode(dir, st.st_mode, &why);
        if (status == FP8Q_OK)
            status = fp8q_listing_move(&out->old, out->names.final, dir, &why);
        if (status == FP8Q_OK)
            status = fp8q_listing_remove(&out->old, out->names.final, NULL, &why);
    }

    if (status != FP8Q_OK && err)
        *err = why;
    free(dir);
    return status;
}

/* *@swapped_out: the old output is now P.  */
static int place_dir(const struct fp8q_outdir *out, bool *swapped_out, struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;
    *swapped_out = false;

    if (out->empty) /* rename() replaces an empty directory, and no other */
        return fp8q_rename(names->partial, names->final, err);
    if (out->old.count == 0)
        return fp8q_rename_new(names->partial, names->final, err);

    int status = fp8q_rename_swap(names->partial, names->final, err);
    *swapped_out = status == FP8Q_OK;

    if (status != FP8Q_E_UNSUPPORTED)
        return status;

    FP8Q_TRY(set_dir_aside(out, err));
    return fp8q_rename_new(names->partial, names->final, err);
}

static int commit_dir(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;
    bool swapped;

    FP8Q_TRY(place_dir(out, &swapped, err));
    int status = flush_parent(out, err);
    if (status == FP8Q_OK)
        return FP8Q_OK;

    /* The name may be lost with the next power failure, so it is not given at all.  */
    if (swapped)
        (void)fp8q_rename_swap(names->partial, names->final, NULL);
    else
        (void)fp8q_rename(names->final, names->partial, NULL);
    return status;
}

static int set_files_aside(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;
    char *dir = old_dir(out);
    int status = dir ? fp8q_mkdir(dir, err) : fp8q_fail_nomem(err);

    /* The weights first: a loader that finds them must find their companions, too.  */
    if (status == FP8Q_OK)
        status = move_if_there(dir, FP8Q_WEIGHTS_NAME, names->final, false, err);
    for (size_t i = 0; i < FP8Q_N_COMPANIONS && status == FP8Q_OK; i++)
        if (fp8q_listing_has(&out->old, fp8q_companion_names[i]))
            status = move_if_there(dir, fp8q_companion_names[i], names->companions[i], false, err);
    free(dir);
    return status;
}

static int commit_files(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;

    if (out->old.count)
        FP8Q_TRY(set_files_aside(out, err));

    /* Companions before the weights, so that no weights stand there without theirs.  */
    for (size_t i = 0; i < FP8Q_N_COMPANIONS; i++)
        FP8Q_TRY(move_if_there(names->partial, fp8q_companion_names[i], names->companions[i], true,
                               err));
    FP8Q_TRY(move_if_there(names->partial, FP8Q_WEIGHTS_NAME, names->final, true, err));

    int status = flush_parent(out, err);

    /* Without its weights it is not there, so fp8q_commit_recover() puts the old one back.  */
    if (status != FP8Q_OK)
        (void)move_if_there(names->partial, FP8Q_WEIGHTS_NAME, names->final, false, NULL);
    return status;
}

/* DST.partial is exactly the output that the plan says.  */
static int check_whole(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    const struct fp8q_listing *files = out->rules.files;
    struct fp8q_shown a, b;
    struct fp8q_text names = {0};
    const char *missing;
    size_t n = 0;

    FP8Q_TRY(fp8q_listing_missing(files, out->names.partial, &missing, err));
    fp8q_show(&a, out->names.partial);
    if (missing)
        return fp8q_fail(err, FP8Q_E_IO, "partial-changed", "%s: \"%s\" was removed during the run",
                         a.text, fp8q_show(&b, missing));

    int status = fp8q_listing_strangers(files, out->names.partial, &n, &names, err);
    if (status == FP8Q_OK && n)
        status = fp8q_fail(err, FP8Q_E_IO, "partial-changed",
                           "%s: something else put files there during the run: %.500s", a.text,
                           names.data);
    fp8q_text_reset(&names);
    return status;
}

static int commit(struct fp8q_outdir *out, struct fp8q_error *err)
{
    FP8Q_TRY(check_whole(out, err));
    /* DST may have changed since the beginning.  */
    fp8q_listing_reset(&out->old);
    FP8Q_TRY(fp8q_destination_check(&out->names, &out->rules, &out->old, &out->empty, err));

    /* Names in DST.partial are on disk before commit.json says that the output is whole.  */
    FP8Q_TRY(fp8q_flush_tree(out->names.partial, err));
    FP8Q_TRY(write_commit(out, err));
    return out->names.is_dir ? commit_dir(out, err) : commit_files(out, err);
}

int fp8q_outdir_commit(struct fp8q_outdir *out, bool *left_out, struct fp8q_error *err)
{
    bool left = false, committed;

    int status = commit(out, err);
    if (status != FP8Q_OK) {
        (void)fp8q_commit_recover(out, out->rules.files, &committed, NULL);
        fp8q_workdir_abandon(out);
        return status;
    }

    /* DST is there.  What cannot be removed now is no failure any more.  */
    bool cleared = remove_old(out, &out->old, &left, NULL) == FP8Q_OK && !left &&
                   fp8q_workdir_clear(&out->names, NULL) == FP8Q_OK;
    if (left_out)
        *left_out = left;
    fp8q_workdir_close(out, cleared);
    return FP8Q_OK;
}
