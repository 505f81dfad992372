/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.h - what a commit is about to do, written down for the run after a kill: commit.json in
 * DST.partial.fp8q.
 */
#ifndef FP8Q_JOURNAL_H
#define FP8Q_JOURNAL_H

#include "destination/workdir.h"
#include "plan/lock_file.h"

/* A commit that was begun and not ended.  */
struct fp8q_journal {
    bool pending;
    uint64_t mark;           /* of the new output */
    struct fp8q_listing old; /* files of the output to be replaced */
    struct fp8q_lock_file lock;
};

/* Of DST.partial, which must be whole.  */
int fp8q_journal_write(const struct fp8q_outdir *out, const struct fp8q_lock_file *lock,
                       struct fp8q_error *err);
/* @journal_out->pending is false if there is none.  */
int fp8q_journal_read(const struct fp8q_destination *names, struct fp8q_journal *journal_out,
                      struct fp8q_error *err);
void fp8q_journal_reset(struct fp8q_journal *journal);

/* CRC-32 of names, sizes and first bytes of the listed files in @dir, which have every header and
 * checksum.  *@complete_out is false, and the result 0, if one is not there.  */
int fp8q_mark_of(const char *dir, const struct fp8q_listing *files, uint32_t *crc_out,
                 bool *complete_out, struct fp8q_error *err);

#endif
