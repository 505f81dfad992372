/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h - what is known of one finished output shard: its checksums and its scales.
 *
 * Written after the shard itself is on disk, so a record means a complete shard: that is what
 * --resume and
 * --part build on.  A record that is damaged or of another plan counts as absent.
 */
#ifndef FP8Q_RECORD_H
#define FP8Q_RECORD_H

#include "plan/manifest.h"

/* @scales: the shard's F32 scales in the order of its pieces (plan->shards[shard].scale_bytes).  */
int fp8q_record_write(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                      const struct fp8q_results *results, const float *scales,
                      struct fp8q_error *err);

/* Reads a record into @results, and the scales into *@scales_out (free it; NULL: not wanted).
 * *@found_out is false if there is none that fits.  */
int fp8q_record_read(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                     struct fp8q_results *results, float **scales_out, bool *found_out,
                     struct fp8q_error *err);

#endif
