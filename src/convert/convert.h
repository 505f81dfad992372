/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.h - a whole conversion: plan -> stream -> finish, into DST.partial and then DST.
 */
#ifndef FP8Q_CONVERT_H
#define FP8Q_CONVERT_H

#include "destination/destination.h"
#include "convert/finish.h"
#include "plan/lock_file.h"

enum { FP8Q_MOST_SHARES = 65535 };

struct fp8q_convert_options {
    const char *destination;
    const struct fp8q_request *request;
    const struct fp8q_kernel *kernel;
    const struct fp8q_watch *watch;
    bool overwrite, resume;
    unsigned part, n_parts; /* 1..n_parts, or 0 of 0 */
    /* NULL, or a lock for the output.  Without a text it is known to be there; with parts its path
     * is absolute, and the finish writes it.  */
    const char *lock_path, *lock_text;
    bool lock_is_checked; /* it may not replace another */
};

struct fp8q_convert_result {
    struct fp8q_finish_result finish;
    size_t resumed_shards;           /* taken over from an earlier run */
    size_t n_compensated, n_guarded; /* with a calibration: linears rounded by GPTQ, and plainly */
    bool complete;                   /* false: a part, DST is not there yet */
};

/* Everything that can be refused before the work, without creating anything: whose DST and its
 * neighbours are, names, side files that cannot be read.  fp8q_convert() asks it again.  */
int fp8q_convert_check(const struct fp8q_plan *plan, const struct fp8q_convert_options *options,
                       struct fp8q_error *err);

/* Carries out @plan.  On failure nothing stands under the final name that did not before, and
 * nothing is left unless @resume or a part was asked for.  */
int fp8q_convert(const struct fp8q_plan *plan, const struct fp8q_convert_options *options,
                 struct fp8q_convert_result *result_out, struct fp8q_warnings *warnings,
                 struct fp8q_error *err);

/* Whether the destination is already what @plan and the request would make: same version of fp8q,
 * same options, and by all their checksums neither the source nor DST have changed since.  What a
 * killed commit left beside it is then removed.  FP8Q_E_ARG "resume-differs" naming what has
 * changed, unless it may be overwritten.  */
int fp8q_convert_complete(const struct fp8q_plan *plan, const struct fp8q_convert_options *options,
                          bool *complete_out, struct fp8q_error *err);

/* The lock that a killed run wrote for an output that did not get its name, and the copy of what
 * stood there before (free it; NULL if nothing did); *@lock_out has no path if there is none.  Reads
 * only: the next run puts it back.  */
int fp8q_convert_killed_lock(const char *destination, bool is_dir, struct fp8q_lock_file *lock_out,
                             char **copy_out, struct fp8q_error *err);

/* Ends a conversion whose parts are all done: plan again from the state beside DST.partial, finish,
 * commit.  @plan must be made from the request that fp8q_convert_state() read.  */
int fp8q_convert_finish(const struct fp8q_plan *plan, const struct fp8q_convert_options *options,
                        struct fp8q_convert_result *result_out, struct fp8q_warnings *warnings,
                        struct fp8q_error *err);

/* What was asked of a conversion in parts, from its state.  */
struct fp8q_convert_parts {
    struct fp8q_request request;
    uint64_t n_parts;
    char *lock_path; /* or NULL */
    bool lock_is_checked;
};
/* Reads it from what parts left at @destination; FP8Q_E_EVIDENCE "no-parts" if there is nothing.  */
int fp8q_convert_state(const char *destination, struct fp8q_convert_parts *parts_out,
                       struct fp8q_error *err);
void fp8q_convert_parts_reset(struct fp8q_convert_parts *parts);

#endif
