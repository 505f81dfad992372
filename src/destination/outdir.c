/* SPDX-License-Identifier: Apache-2.0
 *
 * outdir.c - takes a destination.
 *
 * First everything is looked at and nothing is made: whose DST is, and whose DST.partial and
 * DST.partial.fp8q are.  Then DST.partial.fp8q is made and locked, and all is looked at again, since
 * only now nobody else of ours can change it.  A commit that was killed is ended or undone
 * (commit.c).  Then the state decides: it is written, or it is the same, or the run is refused.
 */
#include "destination/outdir.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/output.h"
#include "base/path.h"
#include "destination/commit.h"
#include "destination/leftover.h"
#include "destination/state.h"
#include "destination/check.h"

/* ---- what can be refused before the work ------------------------------------------------------ */

/* Finished parts are hours of other machines: they go only with --overwrite.  */
static int check_parts(const struct fp8q_destination *names, const struct fp8q_outdir_job *job,
                       const struct fp8q_leftover *left, struct fp8q_error *err)
{
    struct fp8q_shown a, b, c;
    if (job->use != FP8Q_OUTDIR_FRESH || job->rules.overwrite || !left->records ||
        fp8q_leftover_parts(left) == 0)
        return FP8Q_OK;
    return fp8q_fail(
        err, FP8Q_E_ARG, "parts-exist",
        "%s: parts of a conversion to it are there; end it with `fp8q finish`, or give "
        "them up with --overwrite or by removing %s and %s",
        fp8q_show(&a, names->final), fp8q_show(&b, names->partial), fp8q_show(&c, names->work));
}

/* DST, unless a commit was begun: then it is known only once that is settled.  */
static int check_final(const struct fp8q_destination *names, const struct fp8q_outdir_job *job,
                       const struct fp8q_leftover *left, struct fp8q_error *err)
{
    struct fp8q_listing old;
    bool empty;
    if (left->commit.pending)
        return FP8Q_OK;

    int status = fp8q_destination_check(names, &job->rules, &old, &empty, err);
    fp8q_listing_reset(&old);
    return status;
}

/* In DST the lock would be a file that DST's manifest does not list, and go with the next output.  */
static int refuse_inside(const char *dir, const char *lock_path, struct fp8q_error *err)
{
    struct fp8q_shown a, b;
    struct stat st;
    bool there, inside = false;
    FP8Q_TRY(fp8q_stat(dir, &st, &there, err));
    if (there && S_ISDIR(st.st_mode))
        FP8Q_TRY(fp8q_lies_in(lock_path, &st, &inside, err));
    if (!inside)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "lock-in-dst",
                     "%s: lies in %s, which this conversion makes or replaces; write the lock "
                     "beside it",
                     fp8q_show(&a, lock_path), fp8q_show(&b, dir));
}

static int check_lock_place(const struct fp8q_destination *names, const char *lock_path,
                            struct fp8q_guard_list *outputs, struct fp8q_error *err)
{
    const char *written[] = {names->final, names->partial, names->work};
    struct fp8q_error why = {0};
    struct fp8q_shown shown;

    for (size_t i = 0; i < 3; i++) {
        FP8Q_TRY(refuse_inside(written[i], lock_path, err));
        FP8Q_TRY(fp8q_guard_claim(outputs, written[i], err));
    }
    for (size_t i = 0; i < FP8Q_N_COMPANIONS && !names->is_dir; i++)
        FP8Q_TRY(fp8q_guard_claim(outputs, names->companions[i], err));

    int status = fp8q_guard_claim(outputs, lock_path, &why);
    if (strcmp(why.id, "output-twice") == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "lock-in-dst",
                         "%s: is what this conversion itself makes; give the lock another name",
                         fp8q_show(&shown, lock_path));
    return status == FP8Q_OK ? FP8Q_OK : fp8q_fail_as(err, &why);
}

/* The lock is nothing that is read, and none of what the output is made of.  */
static int check_lock(const struct fp8q_destination *names, const struct fp8q_outdir_job *job,
                      struct fp8q_error *err)
{
    struct fp8q_guard_list outputs = {0};
    if (!job->lock_path)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_guard_check(job->rules.reads, job->lock_path, err));
    FP8Q_TRY(fp8q_output_check(job->lock_path, NULL, err));
    int status = check_lock_place(names, job->lock_path, &outputs, err);
    fp8q_guard_reset(&outputs);
    return status;
}

static int check_names(const struct fp8q_destination *names, const struct fp8q_outdir_job *job,
                       struct fp8q_leftover *left, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_destination_check_lengths(names, job->rules.files, err));
    FP8Q_TRY(check_lock(names, job, err));
    FP8Q_TRY(fp8q_leftover_look(names, left, err));
    FP8Q_TRY(check_final(names, job, left, err));
    return check_parts(names, job, left, err);
}

int fp8q_outdir_check(const struct fp8q_outdir_job *job, struct fp8q_error *err)
{
    struct fp8q_destination names;
    struct fp8q_leftover left = {0};
    FP8Q_TRY(fp8q_destination_open(job->destination, job->rules.ckpt->is_dir, &names, err));
    int status = check_names(&names, job, &left, err);
    fp8q_leftover_reset(&left);
    fp8q_destination_reset(&names);
    return status;
}

/* ---- lock ------------------------------------------------------------------------------------ */

static int make_dir(const char *path, mode_t mode, bool *made_out, struct fp8q_error *err)
{
    struct fp8q_error why = {0};
    bool there;

    int status = fp8q_mkdir_mode(path, mode, &why); /* first, since parts do it at the same time */
    *made_out = status == FP8Q_OK;
    if (*made_out)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_look_for_dir(path, &there, err));
    if (there)
        return FP8Q_OK;

    if (err)
        *err = why;
    return status;
}

static int take_lock(struct fp8q_outdir *out, bool shared, struct fp8q_warnings *warnings,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    bool taken = false;
    char *path = fp8q_join(out->names.work, "lock");
    int status =
        path ? fp8q_lock_file(path, shared, &out->lock_fd, &taken, err) : fp8q_fail_nomem(err);
    free(path);
    FP8Q_TRY(status);

    fp8q_show(&shown, out->names.final);
    if (!taken)
        return fp8q_fail(err, FP8Q_E_ARG, "locked", "%s: another fp8q is working on it",
                         shown.text);
    if (out->lock_fd < 0)
        return fp8q_warn(warnings, err, "no-lock",
                         "%s: this file system cannot lock; make sure that no other fp8q works on "
                         "it",
                         shown.text);
    return FP8Q_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */

static int fail_other_state(const struct fp8q_outdir *out, enum fp8q_outdir_use use,
                            const char *difference, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    fp8q_show(&shown, out->names.partial);
    if (use == FP8Q_OUTDIR_RESUME)
        return fp8q_fail(err, FP8Q_E_ARG, "resume-differs",
                         "%s: was begun otherwise: %.500s; run without --resume to begin anew",
                         shown.text, difference);
    return fp8q_fail(err, FP8Q_E_EVIDENCE, "part-foreign",
                     "%s: holds parts that were made otherwise: %.500s", shown.text, difference);
}

static int compare_state(const struct fp8q_outdir *out, const struct fp8q_outdir_job *job,
                         const struct fp8q_leftover *left, struct fp8q_error *err)
{
    struct fp8q_text difference = {0};
    int status = fp8q_state_difference(left->state, job->state, &difference, err);
    if (difference.len)
        status = fail_other_state(out, job->use, difference.data, err);
    fp8q_text_reset(&difference);
    return status;
}

/* Another part may write its state at the same moment; the first one counts.  */
static int write_state(const struct fp8q_outdir *out, const struct fp8q_outdir_job *job,
                       struct fp8q_error *err)
{
    struct fp8q_error why = {0};
    struct fp8q_leftover left = {0};

    int status = fp8q_workdir_put(&out->names, FP8Q_STATE_NAME, job->state, true, &why);
    if (status == FP8Q_OK)
        return FP8Q_OK;
    if (status != FP8Q_E_ARG)
        return fp8q_fail_as(err, &why);

    FP8Q_TRY(fp8q_workdir_state(&out->names, &left.state, &left.files, err));
    status = left.state ? compare_state(out, job, &left, err) : FP8Q_OK;
    fp8q_leftover_reset(&left);
    return status;
}

/* *@resumed_out: finished shards may be there.  */
static int settle_state(const struct fp8q_outdir *out, const struct fp8q_outdir_job *job,
                        struct fp8q_leftover *left, bool *resumed_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *resumed_out = false;

    if (job->use == FP8Q_OUTDIR_FRESH || !left->state) {
        if (job->use == FP8Q_OUTDIR_FINISH)
            return fp8q_fail(err, FP8Q_E_EVIDENCE, "no-parts",
                             "%s: no part of a conversion to it has been run",
                             fp8q_show(&shown, out->names.final));
        if (job->use == FP8Q_OUTDIR_FRESH)
            FP8Q_TRY(fp8q_leftover_remove(&out->names, left, err));
        return write_state(out, job, err);
    }

    *resumed_out = true;
    return compare_state(out, job, left, err);
}

static int check_space(const struct fp8q_outdir *out, uint64_t size_bytes, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    uint64_t room = fp8q_free_space(out->names.parent);
    if (room >= size_bytes)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_IO, "no-space",
                     "%s: No space left on device: the output needs %llu bytes, %llu are free",
                     fp8q_show(&shown, out->names.final), (unsigned long long)size_bytes,
                     (unsigned long long)room);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int settle_commit(struct fp8q_outdir *out, const struct fp8q_outdir_job *job,
                         struct fp8q_leftover *left, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    if (!left->commit.pending)
        return FP8Q_OK;
    if (job->use == FP8Q_OUTDIR_PART) /* which shares the lock */
        return fp8q_fail(
            err, FP8Q_E_ARG, "commit-pending",
            "%s: a run was killed while it gave the final name; run that command again",
            fp8q_show(&shown, out->names.final));

    FP8Q_TRY(fp8q_commit_recover(out, &left->files, &out->committed, err));
    /* The names stand otherwise now, so everything is looked at again.  */
    fp8q_leftover_reset(left);
    return fp8q_leftover_look(&out->names, left, err);
}

/* The mode of DST: of the directory that it comes from, as `cp -r` would give it.  */
static mode_t partial_mode(const struct fp8q_outdir *out)
{
    struct stat st;
    bool there;
    const struct fp8q_ckpt *ckpt = out->rules.ckpt;
    if (!ckpt->is_dir || fp8q_stat(ckpt->dir, &st, &there, NULL) != FP8Q_OK || !there)
        return 0777;
    return st.st_mode;
}

/* A destination while it is taken, and what is to be undone if that fails.  */
struct taking {
    const struct fp8q_outdir_job *job;
    struct fp8q_outdir *out;
    struct fp8q_leftover left;
    bool made_work, made_partial; /* by this run */
    bool locked;
};

/* Everything under the lock.  */
static int settle(struct taking *t, struct fp8q_error *err)
{
    const struct fp8q_outdir_job *job = t->job;
    struct fp8q_outdir *out = t->out;
    bool resumed;

    FP8Q_TRY(fp8q_leftover_look(&out->names, &t->left, err));
    FP8Q_TRY(settle_commit(out, job, &t->left, err));

    /* A finished output: there is nothing left that could be checked or made.  */
    if (out->committed && job->use == FP8Q_OUTDIR_FINISH)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_destination_check(&out->names, &job->rules, &out->old, &out->empty, err));
    FP8Q_TRY(check_parts(&out->names, job, &t->left, err));
    FP8Q_TRY(settle_state(out, job, &t->left, &resumed, err));

    /* What a fresh run found, it has removed: from here on all is its own.  */
    t->made_work = t->made_work || job->use == FP8Q_OUTDIR_FRESH;
    FP8Q_TRY(make_dir(out->names.partial, partial_mode(out), &t->made_partial, err));

    /* What was made before has its space already, so a resumed run is not asked for it.  */
    return resumed ? FP8Q_OK : check_space(out, job->size_bytes, err);
}

static int take(struct taking *t, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_outdir *out = t->out;
    FP8Q_TRY(make_dir(out->names.work, 0777, &t->made_work, err));

    int status = take_lock(out, t->job->use == FP8Q_OUTDIR_PART, warnings, err);
    /* FP8Q_E_ARG: another run holds it, so the directory is that run's by now.  */
    if (status == FP8Q_E_ARG)
        t->made_work = false;
    FP8Q_TRY(status);

    t->locked = true;
    return settle(t, err);
}

/* A run that ends here leaves what it found.  */
static void give_up(struct taking *t)
{
    struct fp8q_outdir *out = t->out;
    bool gone, alone = t->job->use != FP8Q_OUTDIR_PART;

    if (!t->locked) {
        fp8q_workdir_close(out, t->made_work);
        return;
    }

    /* A part removes nothing: others may be at work in the same directories.  */
    if (t->made_partial && alone)
        (void)fp8q_rmdir(out->names.partial, &gone, NULL);
    if (t->made_work && alone)
        (void)fp8q_workdir_clear(&out->names, NULL);
    fp8q_workdir_close(out, t->made_work && alone);
}

int fp8q_outdir_open(const struct fp8q_outdir_job *job, struct fp8q_outdir *out,
                     struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct taking t = {.job = job, .out = out};
    *out = (struct fp8q_outdir){.rules = job->rules,
                                .keep = job->use != FP8Q_OUTDIR_FRESH,
                                .lock_fd = -1,
                                .lock_path = job->lock_path,
                                .lock_text = job->lock_text};

    FP8Q_TRY(fp8q_outdir_check(job, err));
    FP8Q_TRY(fp8q_destination_open(job->destination, job->rules.ckpt->is_dir, &out->names, err));

    int status = take(&t, warnings, err);
    fp8q_leftover_reset(&t.left);
    if (status != FP8Q_OK)
        give_up(&t);
    else
        out->created = !out->committed;
    return status;
}

/* ---- clean ----------------------------------------------------------------------------------- */

/* *@cleared_out: DST.partial.fp8q can go.  */
static int clean(struct fp8q_outdir *out, const struct fp8q_outdir_job *job,
                 struct fp8q_leftover *left, bool *cleared_out)
{
    FP8Q_TRY(fp8q_leftover_look(&out->names, left, NULL));
    if (!left->work)
        return FP8Q_OK;
    FP8Q_TRY(take_lock(out, false, NULL, NULL));
    FP8Q_TRY(settle_commit(out, job, left, NULL));

    /* Without DST.partial there is no shard that a record could speak of.  */
    if (!left->partial)
        FP8Q_TRY(fp8q_workdir_clear(&out->names, NULL));
    else if (left->state && fp8q_leftover_parts(left) == 0)
        FP8Q_TRY(fp8q_leftover_remove(&out->names, left, NULL));
    else
        return FP8Q_OK;

    *cleared_out = true;
    return FP8Q_OK;
}

void fp8q_outdir_clean(const struct fp8q_outdir_job *job)
{
    struct fp8q_outdir out = {.rules = job->rules, .lock_fd = -1};
    struct fp8q_leftover left = {0};
    bool cleared = false;
    bool is_dir = job->rules.ckpt->is_dir;

    if (fp8q_destination_open(job->destination, is_dir, &out.names, NULL) != FP8Q_OK)
        return;

    /* In silence: DST is complete, so what cannot be cleaned is no failure.  */
    (void)clean(&out, job, &left, &cleared);
    fp8q_leftover_reset(&left);
    fp8q_workdir_close(&out, cleared);
}
