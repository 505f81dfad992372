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
 * | after the lock is written         | - or old  | new        | -        | takes the lock back     |
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
 * With a lock asked for (of a conversion in parts by its parts, whose state then names it for the
 * finish) the lock is written before the output gets its name, so that DST never stands
 * there without it.  commit.json names the file, and W/replaced.lock is a copy of what stood there;
 * a run that undoes the commit puts that back, if the file still has the text that was written.  In
 * all rows below the lock it stands where it was asked for, and a row with the old output takes it
 * back.  A run that is killed leaves a lock without DST until the next run for DST; no conversion is
 * refused for it (fp8q_convert_killed_lock()).
 *
 * P and DST are told apart by the checksum where both are there, by the weights in P for a file.
 * What is removed goes by the lists of files, so a file that somebody else put there stays.
 */
#include "destination/commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/path.h"
#include "destination/check.h"
#include "destination/journal.h"

static int is_there(const char *path, bool *there_out, struct fp8q_error *err)
{
    struct stat st;
    return fp8q_lstat(path, &st, there_out, err);
}

static int in_dir(const char *dir, const char *name, bool *there_out, struct fp8q_error *err)
{
    struct stat st;
    return fp8q_lstat_in(dir, name, &st, there_out, err);
}

static int flush_parent(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    return fp8q_fsync_dir(out->names.parent, err);
}

/* ---- undo ------------------------------------------------------------------------------------ */

/* What was set aside goes back to DST: the directory as a whole if nothing else is in it, else those
 * of its files that are there.  */
static int put_back_dir(const struct fp8q_outdir *out, const struct fp8q_listing *old,
                        struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;
    struct fp8q_strangers strangers;
    struct stat st;
    bool aside, final;

    FP8Q_TRY(fp8q_lstat(names->old, &st, &aside, err));
    if (!aside || old->count == 0)
        return FP8Q_OK;

    FP8Q_TRY(is_there(names->final, &final, err));
    FP8Q_TRY(fp8q_listing_strangers(old, names->old, &strangers, err));

    /* As a whole, if it holds nothing but the old output: a rename is done or not done.  */
    if (!final && strangers.count == 0)
        return fp8q_rename(names->old, names->final, err);

    /* Else file by file; what is not listed stays where it is, and the directory with it.  */
    if (!final)
        FP8Q_TRY(fp8q_mkdir_mode(names->final, st.st_mode, err));
    FP8Q_TRY(fp8q_listing_move(old, names->old, names->final, err));
    return fp8q_listing_remove(old, names->old, NULL, err);
}

/* Never over what stands at the new name: the move fails instead.  */
static int move_if_there(const char *from, const char *to, struct fp8q_error *err)
{
    bool there;
    FP8Q_TRY(is_there(from, &there, err));
    return there ? fp8q_rename_new(from, to, err) : FP8Q_OK;
}

static int move_out(const char *dir, const char *name, const char *path, struct fp8q_error *err)
{
    char *inside = fp8q_join(dir, name);
    int status = inside ? move_if_there(inside, path, err) : fp8q_fail_nomem(err);
    free(inside);
    return status;
}

static int move_in(const char *path, const char *dir, const char *name, struct fp8q_error *err)
{
    char *inside = fp8q_join(dir, name);
    int status = inside ? move_if_there(path, inside, err) : fp8q_fail_nomem(err);
    free(inside);
    return status;
}

static int put_back_companion(const struct fp8q_destination *names,
                              const struct fp8q_listing *files, size_t i, struct fp8q_error *err)
{
    const char *name = fp8q_companion_names[i];
    bool made;

    /* A companion of the new output that P lacks is at DST's name, where it may not stay.  */
    FP8Q_TRY(in_dir(names->partial, name, &made, err));
    if (fp8q_listing_has(files, name) && !made)
        FP8Q_TRY(move_in(names->companions[i], names->partial, name, err));

    return move_out(names->old, name, names->companions[i], err);
}

/* A new companion that was in place before its weights goes back to P, then the old files to
 * DST's names, the weights last.  */
static int put_back_files(const struct fp8q_outdir *out, const struct fp8q_listing *files,
                          const struct fp8q_listing *old, struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;

    for (size_t i = 0; i < FP8Q_N_COMPANIONS; i++)
        FP8Q_TRY(put_back_companion(names, files, i, err));
    FP8Q_TRY(move_out(names->old, FP8Q_WEIGHTS_NAME, names->final, err));
    return fp8q_listing_remove(old, names->old, NULL, err);
}

/* ---- recover --------------------------------------------------------------------------------- */

/* Whether DST is the new output.  */
static int is_committed(const struct fp8q_destination *names, const struct fp8q_listing *files,
                        uint64_t mark, bool *committed_out, struct fp8q_error *err)
{
    bool partial, final, complete, same;
    uint32_t crc;

    *committed_out = false;
    FP8Q_TRY(is_there(names->final, &final, err));
    if (!final)
        return FP8Q_OK;

    /* The weights move last, so once P has none everything is in place.  */
    if (!names->is_dir) {
        FP8Q_TRY(in_dir(names->partial, FP8Q_WEIGHTS_NAME, &partial, err));
        *committed_out = !partial;
        return FP8Q_OK;
    }

    FP8Q_TRY(fp8q_mark_of(names->final, files, &crc, &complete, err));
    *committed_out = complete && crc == mark;
    if (!*committed_out)
        return FP8Q_OK;

    /* Old and new may look the same.  Then nothing was done yet, as far as can be seen, and P goes
     * on to become DST.  */
    FP8Q_TRY(is_there(names->partial, &partial, err));
    if (partial) {
        FP8Q_TRY(fp8q_mark_of(names->partial, files, &crc, &same, err));
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
    FP8Q_TRY(fp8q_listing_remove(old, out->names.old, &aside_gone, err));
    FP8Q_TRY(fp8q_listing_remove(old, out->names.partial, &gone, err));
    *left_out = !gone || !aside_gone;
    return FP8Q_OK;
}

static int take_lock_back(const struct fp8q_destination *names, const struct fp8q_lock_file *lock,
                          struct fp8q_error *err)
{
    char *copy = fp8q_join(names->work, FP8Q_REPLACED_LOCK_NAME);
    int status = copy ? fp8q_lock_file_take_back(lock, copy, err) : fp8q_fail_nomem(err);
    free(copy);
    return status;
}

static int recover(struct fp8q_outdir *out, const struct fp8q_listing *files,
                   const struct fp8q_journal *c, bool *committed_out, struct fp8q_error *err)
{
    bool left;
    FP8Q_TRY(is_committed(&out->names, files, c->mark, committed_out, err));
    if (!*committed_out) {
        FP8Q_TRY(take_lock_back(&out->names, &c->lock, err));
        FP8Q_TRY(out->names.is_dir ? put_back_dir(out, &c->old, err)
                                   : put_back_files(out, files, &c->old, err));
        return fp8q_unlink_in(out->names.work, FP8Q_COMMIT_NAME, err);
    }

    /* The name is on disk before the old output goes: one of the two survives a power failure.  */
    FP8Q_TRY(flush_parent(out, err));
    FP8Q_TRY(remove_old(out, &c->old, &left, err));
    return fp8q_workdir_clear(&out->names, err);
}

int fp8q_commit_recover(struct fp8q_outdir *out, const struct fp8q_listing *files,
                        bool *committed_out, struct fp8q_error *err)
{
    struct fp8q_journal c;
    *committed_out = false;
    FP8Q_TRY(fp8q_journal_read(&out->names, &c, err));
    int status = c.pending ? recover(out, files, &c, committed_out, err) : FP8Q_OK;
    fp8q_journal_reset(&c);
    return status;
}

int fp8q_commit_killed_lock(const struct fp8q_destination *names, const struct fp8q_listing *files,
                            struct fp8q_lock_file *lock_out, struct fp8q_error *err)
{
    struct fp8q_journal c;
    bool committed = false;
    *lock_out = (struct fp8q_lock_file){.path = NULL};
    FP8Q_TRY(fp8q_journal_read(names, &c, err));

    int status = c.lock.path ? is_committed(names, files, c.mark, &committed, err) : FP8Q_OK;
    if (status == FP8Q_OK && !committed) {
        *lock_out = c.lock;
        c.lock.path = NULL; /* the caller's from here on */
    }
    fp8q_journal_reset(&c);
    return status;
}

/* ---- give the name --------------------------------------------------------------------------- */

/* Where two names cannot be swapped: the old directory goes aside, as a whole or by its files.  */
static int set_dir_aside(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;
    struct fp8q_error why = {0};
    struct stat st;
    bool there;

    if (fp8q_rename(names->final, names->old, &why) == FP8Q_OK)
        return FP8Q_OK;

    /* overlayfs cannot rename a directory of a lower layer, and says that it is another device.  */
    if (strcmp(why.id, "cross-device") != 0)
        return fp8q_fail_as(err, &why);
    FP8Q_TRY(fp8q_stat(names->final, &st, &there, err));
    FP8Q_TRY(fp8q_mkdir_mode(names->old, st.st_mode, err));
    FP8Q_TRY(fp8q_listing_move(&out->old, names->final, names->old, err));
    return fp8q_listing_remove(&out->old, names->final, NULL, err);
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

    /* The weights first: a loader that finds them must find their companions, too.  */
    FP8Q_TRY(fp8q_mkdir(names->old, err));
    FP8Q_TRY(move_in(names->final, names->old, FP8Q_WEIGHTS_NAME, err));
    for (size_t i = 0; i < FP8Q_N_COMPANIONS; i++)
        if (fp8q_listing_has(&out->old, fp8q_companion_names[i]))
            FP8Q_TRY(move_in(names->companions[i], names->old, fp8q_companion_names[i], err));
    return FP8Q_OK;
}

static int commit_files(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    const struct fp8q_destination *names = &out->names;

    if (out->old.count)
        FP8Q_TRY(set_files_aside(out, err));

    /* Companions before the weights, so that no weights stand there without theirs.  */
    for (size_t i = 0; i < FP8Q_N_COMPANIONS; i++)
        FP8Q_TRY(move_out(names->partial, fp8q_companion_names[i], names->companions[i], err));
    FP8Q_TRY(move_out(names->partial, FP8Q_WEIGHTS_NAME, names->final, err));

    int status = flush_parent(out, err);

    /* Without its weights it is not there, so fp8q_commit_recover() puts the old one back.  */
    if (status != FP8Q_OK)
        (void)move_in(names->final, names->partial, FP8Q_WEIGHTS_NAME, NULL);
    return status;
}

/* DST.partial is exactly the output that the plan says.  */
static int check_whole(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    const struct fp8q_listing *files = out->rules.files;
    struct fp8q_strangers strangers;
    struct fp8q_shown a, b;
    const char *missing;

    FP8Q_TRY(fp8q_listing_missing(files, out->names.partial, &missing, err));
    fp8q_show(&a, out->names.partial);
    if (missing)
        return fp8q_fail(err, FP8Q_E_IO, "partial-changed", "%s: \"%s\" was removed during the run",
                         a.text, fp8q_show(&b, missing));

    FP8Q_TRY(fp8q_listing_strangers(files, out->names.partial, &strangers, err));
    if (strangers.count)
        return fp8q_fail(err, FP8Q_E_IO, "partial-changed",
                         "%s: something else put files there during the run: %s", a.text,
                         strangers.names);
    return FP8Q_OK;
}

static int open_lock(const struct fp8q_outdir *out, struct fp8q_lock_file *lock,
                     struct fp8q_error *err)
{
    *lock = (struct fp8q_lock_file){.path = NULL};
    if (!out->lock_path)
        return FP8Q_OK;

    char *copy = fp8q_join(out->names.work, FP8Q_REPLACED_LOCK_NAME);
    int status = copy ? fp8q_lock_file_open(out->lock_path, out->lock_text, copy, lock, err)
                      : fp8q_fail_nomem(err);
    free(copy);
    return status;
}

/* commit.json, then the lock that it speaks of, then the name.  */
static int place(const struct fp8q_outdir *out, const struct fp8q_lock_file *lock,
                 struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_journal_write(out, lock, err));
    if (out->lock_path)
        FP8Q_TRY(fp8q_lock_file_write(lock, out->lock_path, out->lock_text, err));
    return out->names.is_dir ? commit_dir(out, err) : commit_files(out, err);
}

static int write_lock_and_place(const struct fp8q_outdir *out, struct fp8q_error *err)
{
    struct fp8q_lock_file lock;
    FP8Q_TRY(open_lock(out, &lock, err));
    int status = place(out, &lock, err);
    fp8q_lock_file_reset(&lock);
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
    return write_lock_and_place(out, err);
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
