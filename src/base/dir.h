/* SPDX-License-Identifier: Apache-2.0
 *
 * dir.h - directories, renames, locks, and what stands at a path.
 */
#ifndef FP8Q_DIR_H
#define FP8Q_DIR_H

#include <sys/stat.h>

#include "base/error.h"

int fp8q_mkdir(const char *path, struct fp8q_error *err);
/* Creates the directories between @dir and the file @relative that are not there yet.  */
int fp8q_make_parents(const char *dir, const char *relative, struct fp8q_error *err);
/* The id of the error is "cross-device" where only a copy could do it.  */
int fp8q_rename(const char *from, const char *to, struct fp8q_error *err);
/* rename() that fails with FP8Q_E_ARG "dst-exists" when @to exists.  */
int fp8q_rename_new(const char *from, const char *to, struct fp8q_error *err);
/* Swaps two existing paths in one step; FP8Q_E_UNSUPPORTED where the system cannot.  */
int fp8q_rename_swap(const char *a, const char *b, struct fp8q_error *err);
int fp8q_fsync_dir(const char *path, struct fp8q_error *err);
/* Removes a file or a whole tree, never following symbolic links; absence is no failure.  */
int fp8q_remove_tree(const char *path, struct fp8q_error *err);

/* What stands at a path: *@there_out is false, and the result 0, if there is nothing (or a link
 * that leads nowhere; one that leads round in a circle is a failure, "link-loop", as is a path that is too long,
 * "path-too-long").  The first
 * follows symbolic links, the second does not.  */
int fp8q_stat(const char *path, struct stat *stat_out, bool *there_out, struct fp8q_error *err);
int fp8q_lstat(const char *path, struct stat *stat_out, bool *there_out, struct fp8q_error *err);
/* The second for "@dir/@name".  */
int fp8q_lstat_in(const char *dir, const char *name, struct stat *stat_out, bool *there_out,
                  struct fp8q_error *err);
/* Whether a path that must be there leads to a directory.  */
int fp8q_is_dir(const char *path, bool *is_dir_out, struct fp8q_error *err);
int fp8q_fstat(int fd, struct stat *stat_out, const char *path, struct fp8q_error *err);
/* Removes one file; absence is no failure.  The second: "@dir/@name".  */
int fp8q_unlink(const char *path, struct fp8q_error *err);
int fp8q_unlink_in(const char *dir, const char *name, struct fp8q_error *err);
/* Absolute path without links, in new memory; *@real_out is NULL if @path is not there.  */
int fp8q_real_path(const char *path, char **real_out, struct fp8q_error *err);
/* Bytes that a new file in @dir could have; UINT64_MAX where the system does not say.  */
uint64_t fp8q_free_space(const char *dir);
/* Locks a file, which is created if need be, until *@fd_out is closed.  *@taken_out is false, and
 * the result 0, if someone else holds it or if @path was replaced meanwhile.  Where the file system
 * cannot lock, it counts as taken with *@fd_out -1.  */
int fp8q_lock_file(const char *path, bool shared, int *fd_out, bool *taken_out,
                   struct fp8q_error *err);

/* Removes an empty directory; *@gone_out is false, and the result 0, if something is in it.  Absence
 * is no failure.  */
int fp8q_rmdir(const char *path, bool *gone_out, struct fp8q_error *err);
/* A directory with the permission bits of another one, less the umask; its owner may always use it. */
int fp8q_mkdir_mode(const char *path, mode_t mode, struct fp8q_error *err);
/* Whether something is mounted at @path, so that it cannot be renamed.  */
bool fp8q_is_mount(const char *path);

/* Names in a directory without "." and "..", sorted by bytes; free with fp8q_names_free().  */
int fp8q_list_dir(const char *path, char ***names_out, size_t *count_out, struct fp8q_error *err);
void fp8q_names_free(char **names, size_t count);

#endif
