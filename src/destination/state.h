/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h - what a conversion depends on, kept beside DST.partial for --resume and for parts.
 */
#ifndef FP8Q_STATE_H
#define FP8Q_STATE_H

#include "plan/side_files.h"
#include "destination/listing.h"
#include "plan/request.h"

/* JSON of everything that must be the same for a conversion to go on: tool version, request, the
 * calibration, config.json and index of the source, each of its shards and side files (name, size,
 * times, header CRC), the plan, the lock that parts were asked for; and the files, which are all that
 * fp8q may remove from DST.partial.  */
struct fp8q_state_facts {
    const struct fp8q_plan *plan;
    const struct fp8q_request *request;
    const struct fp8q_side_files *copies;
    const struct fp8q_listing *files;
    uint64_t n_parts;
    const char *lock_path; /* with parts: the lock that their finish writes, or NULL */
    bool lock_is_checked;
};
int fp8q_state_text(const struct fp8q_state_facts *facts, struct fp8q_text *out,
                    struct fp8q_error *err);

/* The files that the run of a state may have made; FP8Q_E_FORMAT if it is no state that fp8q
 * wrote.  @dir, for the message, is where it was read.  */
int fp8q_state_files(const struct fp8q_json *state, const char *dir, struct fp8q_listing *files_out,
                     struct fp8q_error *err);

/* The lock that the parts of a state were asked for, in new memory, or NULL; *@checked_out: it may not
 * replace another.  */
int fp8q_state_lock(const struct fp8q_json *state, char **path_out, bool *checked_out,
                    struct fp8q_error *err);

/* Names the first difference of two states, in words that complete "...: ".  Nothing is appended if
 * they are the same.  */
int fp8q_state_difference(const struct fp8q_json *then, const char *now, struct fp8q_text *out,
                          struct fp8q_error *err);

#endif
