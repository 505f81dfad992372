/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.h - copies what travels with the weights, and sees that the source has not changed.
 */
#ifndef FP8Q_COPIES_H
#define FP8Q_COPIES_H

#include "base/watch.h"
#include "plan/side_files.h"

/* Copies the side files into @dir, flushed, and fills in their checksums.  FP8Q_E_IO
 * "source-changed" if one is not the file that was listed.  */
int fp8q_copies_run(const struct fp8q_ckpt *ckpt, struct fp8q_side_files *copies, const char *dir,
                    const struct fp8q_watch *watch, struct fp8q_error *err);

/* FP8Q_E_IO "source-changed" if a side file, config.json or the index is another one by now, is
 * gone or has come.  */
int fp8q_copies_unchanged(const struct fp8q_ckpt *ckpt, const struct fp8q_side_files *copies,
                          struct fp8q_error *err);

/* Creates the directories between @dir and the file @relative, each with the mode of the source's. */
int fp8q_make_parents_like(const struct fp8q_ckpt *ckpt, const char *dir, const char *relative,
                           struct fp8q_error *err);

#endif
