/* SPDX-License-Identifier: Apache-2.0
 *
 * owned.h - whether what stands at DST is an output of fp8q, and of which files it consists.
 */
#ifndef FP8Q_OWNED_H
#define FP8Q_OWNED_H

#include "destination/destination.h"

/* Lists the files of the output in directory @dir.  It is one if its manifest is whole and agrees
 * with the headers of the shards, the index, config.json and the side files; or, for what
 * `dequantize` wrote (no manifest), if all shards say so in their metadata and the side files are
 * those of @rules' source.  FP8Q_E_ARG "dst-foreign" if it is not, "dst-changed" naming a file that
 * is another one by now, "dst-strangers" naming files that fp8q did not write.  */
int fp8q_owned_dir(const char *dir, const struct fp8q_destination_rules *rules,
                   struct fp8q_listing *files_out, struct fp8q_error *err);

/* The same for a weights file with its companions, under the names of DST.partial.  */
int fp8q_owned_file(const struct fp8q_destination *names, struct fp8q_listing *files_out,
                    struct fp8q_error *err);

#endif
