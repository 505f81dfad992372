/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.h - DST.partial becomes DST.
 */
#ifndef FP8Q_COMMIT_H
#define FP8Q_COMMIT_H

#include "destination/workdir.h"
#include "plan/lock_file.h"

/* Checks that DST.partial holds all files of the output and nothing else, flushes, and gives the
 * final name; an old output goes.  On failure what stood there is there again, and the rest is as
 * after fp8q_workdir_abandon().  *@left_out (NULL allowed): something that fp8q did not write stands
 * in the old output, so it stayed as DST.partial.  */
int fp8q_outdir_commit(struct fp8q_outdir *out, bool *left_out, struct fp8q_error *err);

/* Under the lock: a commit that was killed is ended if DST has the new output already
 * (*@committed_out), else undone.  @files are those of the new output, by its state.  */
int fp8q_commit_recover(struct fp8q_outdir *out, const struct fp8q_listing *files,
                        bool *committed_out, struct fp8q_error *err);

/* The lock of a commit that was killed before DST was the new output, as it will be taken back;
 * without a path if there is none.  */
int fp8q_commit_killed_lock(const struct fp8q_destination *names, const struct fp8q_listing *files,
                            struct fp8q_lock_file *lock_out, struct fp8q_error *err);

#endif
