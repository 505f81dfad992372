/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h - what is known of one finished output shard: its checksums and its scales.
 *
 * Written after the shard itself is on disk, so a record means a complete shard: that is what
 * --resume and --part build on.  It is not flushed: one that a power failure damages counts as
 * absent, as does one of another plan.
 */
#ifndef FP8Q_RECORD_H
#define FP8Q_RECORD_H

#include <sys/stat.h>

#include "plan/plan.h"

/* CRC-32 by piece of the plan: of the rows that it reads, of what it writes, of its scales.  Pieces
 * and not tensors, since the experts of one stacked source may go to several shards.  */
struct fp8q_piece_crc {
    uint32_t source, output, scales;
};

/* @crcs: by piece of the plan.  @scales: the shard's F32 scales in the order of its pieces
 * (plan->shards[shard].scale_bytes).  @stat: of the finished shard under its name.  */
struct fp8q_record {
    struct fp8q_piece_crc *crcs;
    float *scales;
    struct stat stat;
};

int fp8q_record_write(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                      const struct fp8q_record *record, struct fp8q_error *err);

/* Reads a record into @record->crcs, which the caller provides, and @record->scales (free them).
 * *@found_out is false if there is none that fits.  */
int fp8q_record_read(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                     struct fp8q_record *record, bool *found_out, struct fp8q_error *err);

/* Whether the shard at @path is the one that the record speaks of: by size and times, or, where
 * those differ (the file was touched, or the tree copied), by all its checksums.  */
int fp8q_record_vouches(const struct fp8q_plan *plan, size_t shard, const char *path,
                        const struct fp8q_record *record, bool *same_out, struct fp8q_error *err);

#endif
