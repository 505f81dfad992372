/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h - which shards a run makes: those of its part that no record vouches for.
 */
#ifndef FP8Q_PARTS_H
#define FP8Q_PARTS_H

#include "convert/workdir.h"
#include "plan/plan.h"

/* Which part of @n_parts each shard belongs to, 1 for the first (0: the sidecar, which is no
 * part's): balanced by bytes, the same on every machine.  @part_out has plan->n_shards entries.  */
int fp8q_part_of_shards(const struct fp8q_plan *plan, unsigned n_parts, unsigned *part_out,
                        struct fp8q_error *err);

/* skip[i] for the shards of other parts (@n_parts 0: there are none) and, with @look, for those that
 * an earlier run finished and that are still what it wrote; *@resumed_out counts the latter.  */
int fp8q_parts_choose(const struct fp8q_plan *plan, const struct fp8q_outdir *out, unsigned part,
                      unsigned n_parts, bool look, bool *skip, size_t *resumed_out,
                      struct fp8q_error *err);

/* FP8Q_E_EVIDENCE "part-missing" unless every shard is there as its record says; names the parts
 * to run.  */
int fp8q_parts_check(const struct fp8q_plan *plan, const struct fp8q_outdir *out, unsigned n_parts,
                     struct fp8q_error *err);

#endif
