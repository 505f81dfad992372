/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h - stage 3: carries out a plan.  Decides nothing.
 *
 * Workers take stripes in the order in which they lie on disk: read, amax, scale, codes, write at
 * the planned offset.  A shard is open from its first stripe to its last; then its scales and
 * checksums go into a record, and it is done.
 */
#ifndef FP8Q_STREAM_H
#define FP8Q_STREAM_H

#include "convert/shards.h"

/* Writes every shard of the plan that @skip does not name, and a record for each.  */
int fp8q_stream(const struct fp8q_plan *plan, const struct fp8q_stream_options *options,
                struct fp8q_error *err);

#endif
