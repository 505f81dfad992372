/* SPDX-License-Identifier: Apache-2.0
 *
 * leftover.c - looks at DST.partial and DST.partial.fp8q, and says whose they are.
 */
#include "destination/leftover.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"

void fp8q_leftover_reset(struct fp8q_leftover *left)
{
    fp8q_json_free(left->state);
    fp8q_listing_reset(&left->files);
    fp8q_journal_reset(&left->commit);
    *left = (struct fp8q_leftover){0};
}

/* ---- whose is it? ---------------------------------------------------------------------------- */

static int foreign(const char *path, const char *why, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    return fp8q_fail(err, FP8Q_E_ARG, "dst-partial-foreign",
                     "%s: is needed for the work and is not fp8q's: %.500s; move it away, or write "
                     "to another DST",
                     fp8q_show(&shown, path), why);
}

int fp8q_look_for_dir(const char *path, bool *there_out, struct fp8q_error *err)
{
    struct stat st;
    FP8Q_TRY(fp8q_lstat(path, &st, there_out, err));
    return *there_out && !S_ISDIR(st.st_mode) ? foreign(path, "it is no directory", err) : FP8Q_OK;
}

/* What stands aside is listed by the commit that set it aside.  */
static int look_at_old(const struct fp8q_destination *names, const struct fp8q_leftover *left,
                       struct fp8q_error *err)
{
    struct fp8q_strangers strangers;
    FP8Q_TRY(fp8q_listing_strangers(&left->commit.old, names->old, &strangers, err));
    return strangers.count ? foreign(names->old, strangers.names, err) : FP8Q_OK;
}

static int read_work(const struct fp8q_destination *names, struct fp8q_leftover *left,
                     struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_workdir_state(names, &left->state, &left->files, err));
    return fp8q_journal_read(names, &left->commit, err);
}

static int look_at_work(const struct fp8q_destination *names, struct fp8q_leftover *left,
                        struct fp8q_error *err)
{
    struct fp8q_strangers strangers;
    struct fp8q_error why = {0};

    FP8Q_TRY(fp8q_look_for_dir(names->work, &left->work, err));
    if (!left->work)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_workdir_strangers(names, &left->records, &strangers, err));
    if (strangers.count)
        return foreign(names->work, strangers.names, err);

    /* What fp8q did not write says that nothing in the directory is its own.  */
    int status = read_work(names, left, &why);
    if (status == FP8Q_E_FORMAT)
        return foreign(names->work, why.message, err);
    return status == FP8Q_OK ? look_at_old(names, left, err) : fp8q_fail_as(err, &why);
}

/* All of it is listed by the state; or it is the old output of a commit that was killed.  */
static int look_at_partial(const struct fp8q_destination *names, struct fp8q_leftover *left,
                           struct fp8q_error *err)
{
    struct fp8q_strangers strangers, others = {.count = 1};

    FP8Q_TRY(fp8q_look_for_dir(names->partial, &left->partial, err));
    if (!left->partial)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_listing_strangers(&left->files, names->partial, &strangers, err));
    if (strangers.count && left->commit.pending)
        FP8Q_TRY(fp8q_listing_strangers(&left->commit.old, names->partial, &others, err));

    bool ours = strangers.count == 0 || others.count == 0;
    return ours ? FP8Q_OK : foreign(names->partial, strangers.names, err);
}

static int look_at_all(const struct fp8q_destination *names, struct fp8q_leftover *left,
                       struct fp8q_error *err)
{
    FP8Q_TRY(look_at_work(names, left, err));
    return look_at_partial(names, left, err);
}

int fp8q_leftover_look(const struct fp8q_destination *names, struct fp8q_leftover *left,
                       struct fp8q_error *err)
{
    *left = (struct fp8q_leftover){0};
    int status = look_at_all(names, left, err);
    if (status != FP8Q_OK)
        fp8q_leftover_reset(left);
    return status;
}

uint64_t fp8q_leftover_parts(const struct fp8q_leftover *left)
{
    uint64_t parts = 0;
    (void)fp8q_json_uint(fp8q_json_get(left->state, "parts"), &parts);
    return parts;
}

/* ---- removal --------------------------------------------------------------------------------- */

int fp8q_leftover_remove(const struct fp8q_destination *names, const struct fp8q_leftover *left,
                         struct fp8q_error *err)
{
    bool gone;

    /* DST.partial first: the state lists its files, and must outlive them.  */
    FP8Q_TRY(fp8q_listing_remove(&left->files, names->partial, &gone, err));
    if (!gone)
        return foreign(names->partial, "something was put into it", err);
    return fp8q_workdir_clear(names, err);
}
