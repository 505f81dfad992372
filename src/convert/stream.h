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

#include "plan/plan.h"
#include "calibration/rounding.h"

struct fp8q_stream_options {
    const struct fp8q_kernel *kernel;
    const struct fp8q_watch *watch; /* NULL allowed */
    const char *out_dir;            /* where the shards go */
    const char *record_dir;         /* where the records go */
    const bool *skip;               /* by output shard: not ours, or done already */
    /* Another process may be making the same shard (a part that a scheduler started twice): each
     * makes its own in @record_dir, and what gets the name is whole.  */
    bool shared;
    struct fp8q_rounding *rounding; /* NULL, or error-compensated rounding */
};

/* Writes every shard of the plan that @skip does not name, and a record for each.  */
int fp8q_stream(const struct fp8q_plan *plan, const struct fp8q_stream_options *options,
                struct fp8q_error *err);

#endif
