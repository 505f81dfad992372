/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h - what a run reads, so that it writes none of it.
 *
 * A command first names everything that it will read, then asks for every path that it will write,
 * and only then begins.  Files are compared by device and inode, so neither links nor spelling can
 * make one file look like two.
 */
#ifndef FP8Q_GUARD_H
#define FP8Q_GUARD_H

#include <sys/stat.h>

#include "base/error.h"

/* Zero it to start.  */
struct fp8q_guard_list {
    struct fp8q_guarded *items;
    size_t count, cap;
};

/* Adds a file or a directory that is read; links are followed.  @what completes "PATH: is ..." and
 * must be static text: "the source", "the calibration".  What is not there is not added, nor is NULL,
 * a path that was not given.  FP8Q_E_IO if it cannot be looked at.  */
int fp8q_guard_add(struct fp8q_guard_list *guard, const char *path, const char *what,
                   struct fp8q_error *err);

/* FP8Q_E_ARG "output-is-input" if what stands at @path is a file that is read, or a directory that
 * is read, or lies in one.  A new file in a directory that is read is refused only if it would be
 * taken for a part of the checkpoint there.  What is no regular file (a pipe, a terminal) passes.
 */
int fp8q_guard_check(const struct fp8q_guard_list *guard, const char *path, struct fp8q_error *err);

/* The same for a path that will be written; it is remembered, so that no second output can have it
 * (FP8Q_E_ARG "output-twice").  */
int fp8q_guard_claim(struct fp8q_guard_list *guard, const char *path, struct fp8q_error *err);

/* FP8Q_E_ARG "output-is-checkpoint" if the regular file at @path, which a result would replace, is a
 * weight file or lies beside the config.json of a checkpoint: whether this run reads it or not.
 * Calibration files of fp8q look like weights, and are none.  */
int fp8q_guard_replaced(const char *path, struct fp8q_error *err);

/* The first guarded file or directory that is @dir or lies in it, or NULL: what would go with it if
 * it were replaced.  Links count by what they lead to.  */
int fp8q_guard_find_below(const struct fp8q_guard_list *guard, const char *dir,
                          const char **path_out, const char **what_out, struct fp8q_error *err);

void fp8q_guard_reset(struct fp8q_guard_list *guard);

/* Whether both are of one file, whatever it is called.  */
bool fp8q_same_file(const struct stat *a, const struct stat *b);

/* Whether @path, or the nearest directory above it that is there, lies in the directory @dir, or is
 * it: by device and inode, up to the root.  */
int fp8q_lies_in(const char *path, const struct stat *dir, bool *inside_out,
                 struct fp8q_error *err);

#endif
