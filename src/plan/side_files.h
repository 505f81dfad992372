/* SPDX-License-Identifier: Apache-2.0
 *
 * side_files.h - the files of a checkpoint that are no weights: those that travel as they are, and
 * those that must not.
 */
#ifndef FP8Q_SIDE_FILES_H
#define FP8Q_SIDE_FILES_H

#include "checkpoint/checkpoint.h"
#include "plan/manifest.h"

struct fp8q_side_files {
    struct fp8q_side_file *files; /* in the order of the walk: by name in each directory */
    struct stat *stats;           /* of each, when it was listed */
    size_t count;
    uint64_t bytes;
};

/* Lists what to copy: tokenizer, processor, generation and code files, with sub-directories and
 * their files, each of which can be read.  Links to files are followed, links to directories where
 * they stay inside the checkpoint and lead to no directory that holds them.  Left out, with
 * warnings: other weights and the state of a training (side_files.c has the table), facts of an earlier
 * quantization, and what cannot be carried: no regular file, a name that is not UTF-8.  Hidden
 * caches are left out without a word.  FP8Q_E_IO for a file that cannot be read.  */
int fp8q_side_files_list(const struct fp8q_ckpt *ckpt, struct fp8q_side_files *copies_out,
                         struct fp8q_warnings *warnings, struct fp8q_error *err);
void fp8q_side_files_reset(struct fp8q_side_files *copies);

#endif
