/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.h - the files of a checkpoint that travel as they are, and those that must not.
 */
#ifndef FP8Q_COPIES_H
#define FP8Q_COPIES_H

#include "base/watch.h"
#include "checkpoint/checkpoint.h"
#include "plan/manifest.h"

struct fp8q_copies {
    struct fp8q_side_file *files; /* in the order of the walk: by name in each directory */
    struct stat *stats;           /* of each, when it was listed */
    size_t count;
    uint64_t bytes;
};

/* Lists what to copy: tokenizer, processor, generation and code files, with sub-directories and
 * their files, each of which can be read.  Links to files are followed, links to directories where
 * they stay inside the checkpoint and lead to no directory that holds them.  Left out, with
 * warnings: other weights and the state of a training (copies.c has the table), facts of an earlier
 * quantization, and what cannot be carried: no regular file, a name that is not UTF-8.  Hidden
 * caches are left out without a word.  FP8Q_E_IO for a file that cannot be read.  */
int fp8q_copies_list(const struct fp8q_ckpt *ckpt, struct fp8q_copies *copies_out,
                     struct fp8q_warnings *warnings, struct fp8q_error *err);
void fp8q_copies_reset(struct fp8q_copies *copies);

/* Copies them into @dir, flushed, and fills in their checksums.  FP8Q_E_IO "source-changed" if one
 * is not the file that was listed.  */
int fp8q_copies_run(const struct fp8q_ckpt *ckpt, struct fp8q_copies *copies, const char *dir,
                    const struct fp8q_watch *watch, struct fp8q_error *err);

/* FP8Q_E_IO "source-changed" if a side file, config.json or the index is another one by now, is
 * gone or has come.  */
int fp8q_copies_unchanged(const struct fp8q_ckpt *ckpt, const struct fp8q_copies *copies,
                          struct fp8q_error *err);

/* Creates the directories between @dir and the file @relative, each with the mode of the source's. */
int fp8q_make_parents_like(const struct fp8q_ckpt *ckpt, const char *dir, const char *relative,
                           struct fp8q_error *err);

#endif
