/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h - whether a conversion may write there.
 */
#ifndef FP8Q_DESTINATION_CHECK_H
#define FP8Q_DESTINATION_CHECK_H

#include "destination/destination.h"

/* FP8Q_E_ARG "dst-path" if a name of DST or of a file below it is too long for the system.  */
int fp8q_destination_check_lengths(const struct fp8q_destination *names,
                                   const struct fp8q_listing *files, struct fp8q_error *err);

/* Refuses (FP8Q_E_ARG) a DST that is, holds or lies in the source, that exists (without
 * @overwrite), that is no output of fp8q or holds what fp8q did not write, that cannot be renamed
 * to.  *@old_out are the files of an existing output, which may be
 * replaced (a file's by the names in DST.partial); *@empty_out: DST is a directory with nothing in
 * it.  Creates nothing.  */
int fp8q_destination_check(const struct fp8q_destination *names,
                           const struct fp8q_destination_rules *rules, struct fp8q_listing *old_out,
                           bool *empty_out, struct fp8q_error *err);

#endif
