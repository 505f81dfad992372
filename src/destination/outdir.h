/* SPDX-License-Identifier: Apache-2.0
 *
 * outdir.h - takes a destination for one conversion: checks, lock, state, what a killed run left.
 */
#ifndef FP8Q_OUTDIR_H
#define FP8Q_OUTDIR_H

#include "destination/workdir.h"

enum fp8q_outdir_use {
    FP8Q_OUTDIR_FRESH,  /* what a killed run left is removed, parts excepted */
    FP8Q_OUTDIR_RESUME, /* ... is taken over if its state is the same, else refused */
    FP8Q_OUTDIR_PART,   /* shared with other parts of the same request */
    FP8Q_OUTDIR_FINISH  /* must be there */
};

/* What is asked for, and what must hold; all borrowed.  */
struct fp8q_outdir_job {
    const char *destination;
    struct fp8q_destination_rules rules;
    const char *state;                 /* of this conversion */
    uint64_t size_bytes;               /* that must be free */
    const char *lock_path, *lock_text; /* of a lock to be written with the output, or NULL */
    enum fp8q_outdir_use use;
};

/* Everything that can be refused before the work, without creating anything.  */
int fp8q_outdir_check(const struct fp8q_outdir_job *job, struct fp8q_error *err);

/* Ends or undoes a commit that was killed, creates or takes over DST.partial and locks it; a second
 * process is refused (FP8Q_E_ARG "locked").  Where nothing can be locked, a warning says so.  On
 * failure nothing is left of what this call made.  Ends with fp8q_outdir_commit() (commit.h),
 * fp8q_workdir_close() or fp8q_workdir_abandon().  */
int fp8q_outdir_open(const struct fp8q_outdir_job *job, struct fp8q_outdir *out,
                     struct fp8q_warnings *warnings, struct fp8q_error *err);

/* Removes what a commit that was killed left beside a complete DST; never parts.  */
void fp8q_outdir_clean(const struct fp8q_outdir_job *job);

#endif
