/* SPDX-License-Identifier: Apache-2.0
 *
 * outdir.h - the destination: built as DST.partial, and renamed to DST when complete.
 *
 * One place decides success or removal.  DST.partial/.fp8q holds the lock, the state of the request
 * and the records of finished shards; it never reaches DST.
 */
#ifndef FP8Q_OUTDIR_H
#define FP8Q_OUTDIR_H

#include "checkpoint/checkpoint.h"

struct fp8q_outdir {
    char *final;                  /* DST; for a file source, the file */
    char *partial, *work;         /* DST.partial, DST.partial/.fp8q */
    char *aside, *old;            /* DST.partial.fp8q: .fp8q, and an old DST, during the commit */
    bool is_dir, overwrite, keep; /* @keep: a failure leaves finished shards for --resume */
    bool created;                 /* there is something to remove */
    int lock_fd, dir_lock_fd;
};

enum fp8q_outdir_use {
    FP8Q_OUTDIR_FRESH,  /* what a killed run left is removed */
    FP8Q_OUTDIR_RESUME, /* ... is taken over if its state is the same, else refused */
    FP8Q_OUTDIR_PART,   /* shared with other parts of the same request */
    FP8Q_OUTDIR_FINISH  /* must be there */
};

/* "SRC-FP8" beside a directory, "NAME-FP8.safetensors" beside a file; @suffix is "-FP8" or so. Free
 * with free().  */
char *fp8q_default_destination(const struct fp8q_ckpt *ckpt, const char *suffix);

/* Refuses a destination that is the source, lies in it, or exists without @overwrite (FP8Q_E_ARG);
 * with @overwrite what exists must be an output of this tool.  Creates nothing.  */
int fp8q_outdir_check(const struct fp8q_ckpt *ckpt, const char *destination, bool overwrite,
                      struct fp8q_error *err);

/* Creates or takes over DST.partial and locks it; a second process is refused (FP8Q_E_ARG
 * "locked").
 * @state is compared with or stored as the state of the request; @size_bytes must be free.  On
 * failure nothing is left of what this call made.  Ends with fp8q_outdir_commit() or _abandon(). */
int fp8q_outdir_open(const struct fp8q_ckpt *ckpt, const char *destination, const char *state,
                     uint64_t size_bytes, enum fp8q_outdir_use use, bool overwrite,
                     struct fp8q_outdir *out, struct fp8q_error *err);

/* Removes what a commit that was killed left beside a complete DST.  */
void fp8q_outdir_clean(const struct fp8q_ckpt *ckpt, const char *destination);

/* Lets go of DST.partial as it is: a part is done.  */
void fp8q_outdir_leave(struct fp8q_outdir *out);
/* Flushes, and gives the final name.  On failure what stood there is there again, and the rest is
 * as after fp8q_outdir_abandon().  */
int fp8q_outdir_commit(struct fp8q_outdir *out, struct fp8q_error *err);
/* Removes DST.partial (unless out->keep) and releases the lock.  */
void fp8q_outdir_abandon(struct fp8q_outdir *out);

#endif
