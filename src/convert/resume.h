/* SPDX-License-Identifier: Apache-2.0
 *
 * resume.h - what is left to do: shards that no record vouches for, or nothing where DST is already
 * what a conversion would make.
 */
#ifndef FP8Q_RESUME_H
#define FP8Q_RESUME_H

#include "base/watch.h"
#include "convert/copies.h"
#include "destination/workdir.h"
#include "plan/plan.h"
#include "plan/request.h"

/* Which part of @n_parts each shard belongs to, 1 for the first (0: the sidecar, which is no
 * part's): balanced by bytes, the same on every machine.  @part_out has plan->n_shards entries.  */
int fp8q_part_of_shards(const struct fp8q_plan *plan, unsigned n_parts, unsigned *part_out,
                        struct fp8q_error *err);

struct fp8q_parts_asked {
    unsigned part, n_parts; /* 1..n_parts, or 0 of 0: all shards */
    bool look;              /* for shards that are finished already */
};

/* skip[i] for the shards of other parts and for those that an earlier run finished and that are
 * still what it wrote; *@resumed_out counts the latter.  */
int fp8q_parts_choose(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                      const struct fp8q_parts_asked *asked, bool *skip, size_t *resumed_out,
                      struct fp8q_error *err);

/* FP8Q_E_EVIDENCE "part-missing" unless every shard is there as its record says; names the parts
 * to run.  */
int fp8q_parts_check(const struct fp8q_plan *plan, const struct fp8q_outdir *out, unsigned n_parts,
                     struct fp8q_error *err);

/* What a conversion would make, and where.  */
struct fp8q_wanted {
    const struct fp8q_plan *plan;
    const struct fp8q_request *request;
    const struct fp8q_side_files *copies;
    const char *destination;
    const struct fp8q_watch *watch;
};

/* *@complete_out: DST has a manifest of the same version of fp8q and the same request, and by their
 * checksums neither the source nor DST have changed since.  If only that last is not so,
 * *@changed_out names what has changed (free it; else NULL).  Reads all tensors of both.  */
int fp8q_complete(const struct fp8q_wanted *wanted, bool *complete_out, char **changed_out,
                  struct fp8q_error *err);

#endif
