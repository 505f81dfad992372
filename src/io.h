/* SPDX-License-Identifier: Apache-2.0
 *
 * io.h - the only place that calls the operating system for files.
 *
 * Every function either did all of it or fails with the path in the message; short transfers and
 * EINTR are handled here.  Tests fail any single call by wrapping the symbols that io.c imports.
 */
#ifndef FP8Q_IO_H
#define FP8Q_IO_H

#include <sys/stat.h>
#include <sys/types.h>

#include "error.h"

/* Opens a regular file for reading, following symbolic links.  A FIFO, device or directory is
 * refused without blocking.  @stat_out may be NULL.  On failure *@fd_out is -1.  */
int fp8q_open_read(const char *path, struct stat *stat_out, int *fd_out, struct fp8q_error *err);
/* Creates a file that must not exist yet (mode 0666 less the umask), for reading and writing.  */
int fp8q_create(const char *path, int *fd_out, struct fp8q_error *err);
/* Opens an existing regular file for reading and writing; symbolic links are refused.  */
int fp8q_open_write(const char *path, int *fd_out, struct fp8q_error *err);

/* Exactly @len bytes at @offset; fewer means FP8Q_E_IO "file ended" (it shrank).  */
int fp8q_pread(int fd, void *buf, size_t len, uint64_t offset, const char *path,
               struct fp8q_error *err);
int fp8q_pwrite(int fd, const void *buf, size_t len, uint64_t offset, const char *path,
                struct fp8q_error *err);
int fp8q_fsync(int fd, const char *path, struct fp8q_error *err);
/* Closes and reports a failed close; always sets *@fd to -1.  A *@fd of -1 is fine.  */
int fp8q_close(int *fd, const char *path, struct fp8q_error *err);
/* Reserves @size bytes for a new file; a file system that cannot reserve is no failure.  */
int fp8q_reserve(int fd, uint64_t size, const char *path, struct fp8q_error *err);
/* Starts write-back of a range and lets the system drop what was read; hints, never a failure.  */
void fp8q_start_writeback(int fd, uint64_t offset, uint64_t len);
void fp8q_drop_cache(int fd, uint64_t offset, uint64_t len);

/* A whole file of at most @max bytes, with a NUL appended (not counted in *@len_out).  Free
 * *@data_out.  */
int fp8q_read_file(const char *path, uint64_t max, char **data_out, size_t *len_out,
                   struct fp8q_error *err);
/* The same, but absence is no failure: *@data_out is NULL then.  */
int fp8q_read_file_if_there(const char *path, uint64_t max, char **data_out, size_t *len_out,
                            struct fp8q_error *err);
/* A new file with these bytes, fsynced and closed; removed again on failure.  */
int fp8q_write_file(const char *path, const void *data, size_t len, struct fp8q_error *err);
/* The same for a path that may exist: written beside it and renamed over it.  */
int fp8q_replace_file(const char *path, const void *data, size_t len, struct fp8q_error *err);
/* Copies a regular file to a new path (same rules), keeping its permission bits.  */
int fp8q_copy_file(const char *from, const char *to, struct fp8q_error *err);

int fp8q_mkdir(const char *path, struct fp8q_error *err);
/* Creates the directories between @dir and the file @relative that are not there yet.  */
int fp8q_make_parents(const char *dir, const char *relative, struct fp8q_error *err);
int fp8q_rename(const char *from, const char *to, struct fp8q_error *err);
/* rename() that fails with FP8Q_E_ARG "dst-exists" when @to exists.  */
int fp8q_rename_new(const char *from, const char *to, struct fp8q_error *err);
/* Swaps two existing paths in one step; FP8Q_E_UNSUPPORTED where the system cannot.  */
int fp8q_rename_swap(const char *a, const char *b, struct fp8q_error *err);
int fp8q_fsync_dir(const char *path, struct fp8q_error *err);
/* Removes a file or a whole tree, never following symbolic links; absence is no failure.  */
int fp8q_remove_tree(const char *path, struct fp8q_error *err);

/* What stands at a path: *@there_out is false, and the result 0, if there is nothing (or a link
 * that leads nowhere; one that leads round in a circle is a failure, "link-loop").  The first
 * follows symbolic links, the second does not.  */
int fp8q_stat(const char *path, struct stat *stat_out, bool *there_out, struct fp8q_error *err);
int fp8q_lstat(const char *path, struct stat *stat_out, bool *there_out, struct fp8q_error *err);
/* Whether a path that must be there leads to a directory.  */
int fp8q_is_dir(const char *path, bool *is_dir_out, struct fp8q_error *err);
int fp8q_fstat(int fd, struct stat *stat_out, const char *path, struct fp8q_error *err);
/* Removes one file; absence is no failure.  */
int fp8q_unlink(const char *path, struct fp8q_error *err);
/* Absolute path without links, in new memory; *@real_out is NULL if @path is not there.  */
int fp8q_real_path(const char *path, char **real_out, struct fp8q_error *err);
/* Bytes that a new file in @dir could have; UINT64_MAX where the system does not say.  */
uint64_t fp8q_free_space(const char *dir);
/* Locks a directory, or a file that is created if need be, until *@fd_out is closed.  *@taken_out
 * is false, and the result 0, if someone else holds it or if @path was replaced meanwhile.  A
 * directory on a file system that cannot lock those counts as locked with *@fd_out -1.  */
int fp8q_lock_dir(const char *path, bool shared, int *fd_out, bool *taken_out,
                  struct fp8q_error *err);
int fp8q_lock_file(const char *path, bool shared, int *fd_out, bool *taken_out,
                   struct fp8q_error *err);

/* Names in a directory without "." and "..", sorted by bytes; free with fp8q_names_free().  */
int fp8q_list_dir(const char *path, char ***names_out, size_t *count_out, struct fp8q_error *err);
void fp8q_names_free(char **names, size_t count);

/* "@dir/@name" in new memory; NULL without memory.  Free with free().  */
char *fp8q_join(const char *dir, const char *name);
/* The same with a random ending, for a file that is renamed when it is whole: processes on several
 * machines can make it at the same time (their process numbers may be equal, in containers most).
 */
char *fp8q_join_unique(const char *dir, const char *name);
/* True if @relative cannot lead out of the directory that it is relative to: neither empty nor
 * absolute, and no "..".  */
bool fp8q_stays_inside(const char *relative);
/* Part after the last '/', borrowed.  */
const char *fp8q_basename(const char *path);

/* CRC-32 (zlib's, IEEE 802.3) of @len more bytes after @crc; start with 0.  */
uint32_t fp8q_crc32(uint32_t crc, const void *data, size_t len);
/* CRC-32 of A||B from those of A and B.  */
uint32_t fp8q_crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

#endif
