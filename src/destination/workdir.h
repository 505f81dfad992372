/* SPDX-License-Identifier: Apache-2.0
 *
 * workdir.h - DST.partial and DST.partial.fp8q while a conversion holds them.
 *
 * DST.partial holds what becomes the output, and nothing else, so that one rename makes it DST.
 * Lock, state, records and shards that are not whole stand in DST.partial.fp8q.  Both are fp8q's
 * if the state there says so and lists all that they hold; of any other directory of these names
 * nothing is used and nothing is removed.
 */
#ifndef FP8Q_WORKDIR_H
#define FP8Q_WORKDIR_H

#include "destination/destination.h"

struct fp8q_outdir {
    struct fp8q_destination names;
    struct fp8q_destination_rules rules; /* borrowed */
    struct fp8q_listing old;             /* files of the output that is replaced */
    bool empty;                          /* DST is an empty directory */
    bool keep;                           /* a failure leaves finished shards for --resume */
    bool created;                        /* there is something to remove */
    bool committed; /* a killed run had come so far that nothing is left to do */
    int lock_fd;
    const char *lock_path, *lock_text; /* to be written with the output, or NULL; borrowed */
};

/* Files in DST.partial.fp8q beyond the records (record.h).  */
#define FP8Q_STATE_NAME "state.json"
#define FP8Q_COMMIT_NAME "commit.json"
#define FP8Q_REPLACED_LOCK_NAME "replaced.lock" /* a file that a lock was written over */
#define FP8Q_CODES_NAME "codes"                 /* of rounded values, until it loses its name */

/* Reads the state; *@json_out is NULL if there is none.  FP8Q_E_FORMAT if it is none that fp8q
 * wrote.  */
int fp8q_workdir_state(const struct fp8q_destination *names, struct fp8q_json **json_out,
                       struct fp8q_listing *files_out, struct fp8q_error *err);

/* What stands in DST.partial.fp8q and is not fp8q's; *@records_out: records are there, too.  */
int fp8q_workdir_strangers(const struct fp8q_destination *names, bool *records_out,
                           struct fp8q_strangers *strangers_out, struct fp8q_error *err);

/* The JSON of a file there; *@json_out is NULL if it is not there.  */
int fp8q_workdir_get(const struct fp8q_destination *names, const char *name,
                     struct fp8q_json **json_out, struct fp8q_error *err);

/* A small file there, written under another name first.  With @once an existing one stays, and the
 * result is FP8Q_E_ARG "dst-exists".  */
int fp8q_workdir_put(const struct fp8q_destination *names, const char *name, const char *text,
                     bool once, struct fp8q_error *err);

/* Removes what fp8q keeps there; the lock and the directory stay for fp8q_workdir_close().  */
int fp8q_workdir_clear(const struct fp8q_destination *names, struct fp8q_error *err);

/* Lets go of DST.partial as it is.  With @remove_work DST.partial.fp8q goes, which must have been
 * cleared.  */
void fp8q_workdir_close(struct fp8q_outdir *out, bool remove_work);

/* Removes DST.partial (unless out->keep) and lets go.  */
void fp8q_workdir_abandon(struct fp8q_outdir *out);

#endif
