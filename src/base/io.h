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

#include "base/error.h"

/* Opens a regular file for reading, following symbolic links.  A FIFO, device or directory is
 * refused without blocking.  @stat_out may be NULL.  On failure *@fd_out is -1.  */
int fp8q_open_read(const char *path, struct stat *stat_out, int *fd_out, struct fp8q_error *err);
/* Creates a file that must not exist yet (mode 0666 less the umask), for reading and writing.  */
int fp8q_create(const char *path, int *fd_out, struct fp8q_error *err);
/* The same with the permission bits of another file, less the umask: as `cp` does.  */
int fp8q_create_mode(const char *path, mode_t mode, int *fd_out, struct fp8q_error *err);
/* Opens an existing regular file for reading and writing; symbolic links are refused.  */
int fp8q_open_write(const char *path, int *fd_out, struct fp8q_error *err);

/* Exactly @len bytes at @offset; fewer means FP8Q_E_IO "file ended" (it shrank).  */
int fp8q_pread(int fd, void *buf, size_t len, uint64_t offset, const char *path,
               struct fp8q_error *err);
int fp8q_pwrite(int fd, const void *buf, size_t len, uint64_t offset, const char *path,
                struct fp8q_error *err);
/* First line, without its end, of a file that the kernel makes up and gives no size (/proc, /sys);
 * cut at @cap - 1 bytes.  False if it cannot be read.  */
bool fp8q_read_line(const char *path, char *buf, size_t cap);
int fp8q_fsync(int fd, const char *path, struct fp8q_error *err);
/* Closes and reports a failed close; always sets *@fd to -1.  A *@fd of -1 is fine.  */
int fp8q_close(int *fd, const char *path, struct fp8q_error *err);
/* The same for a file that was written; @status is the outcome so far.  A close that fails may mean
 * lost data, but of two failures the earlier one is told.  */
int fp8q_close_after(int status, int *fd, const char *path, struct fp8q_error *err);
/* Reserves @size bytes for a new file; a file system that cannot reserve is no failure.  */
int fp8q_reserve(int fd, uint64_t size, const char *path, struct fp8q_error *err);
/* Starts write-back of a range and lets the system drop what was read; hints, never a failure.  */
void fp8q_start_writeback(int fd, uint64_t offset, uint64_t len);
void fp8q_drop_cache(int fd, uint64_t offset, uint64_t len);

#endif
