/* SPDX-License-Identifier: Apache-2.0
 *
 * leftover.h - what an earlier run left beside DST.
 */
#ifndef FP8Q_LEFTOVER_H
#define FP8Q_LEFTOVER_H

#include "destination/journal.h"

struct fp8q_leftover {
    bool work, partial;         /* the directories are there */
    bool records;               /* finished shards, or shards at work */
    struct fp8q_json *state;    /* or NULL */
    struct fp8q_listing files;  /* by the state */
    struct fp8q_journal commit; /* that was begun */
};

/* Looks, and makes nothing.  FP8Q_E_ARG "dst-partial-foreign" if either directory is not fp8q's or
 * holds what fp8q did not write.  */
int fp8q_leftover_look(const struct fp8q_destination *names, struct fp8q_leftover *left_out,
                       struct fp8q_error *err);
void fp8q_leftover_reset(struct fp8q_leftover *left);

/* Of how many parts a conversion was begun; 0: of none.  */
uint64_t fp8q_leftover_parts(const struct fp8q_leftover *left);

/* Removes what the state lists, and then what fp8q keeps beside it.  */
int fp8q_leftover_remove(const struct fp8q_destination *names, const struct fp8q_leftover *left,
                         struct fp8q_error *err);

/* Nothing, or a real directory; anything else there is foreign.  */
int fp8q_look_for_dir(const char *path, bool *there_out, struct fp8q_error *err);

#endif
