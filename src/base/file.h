/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h - whole files.
 */
#ifndef FP8Q_FILE_H
#define FP8Q_FILE_H

#include <sys/stat.h>

#include "base/watch.h"

/* A whole file of at most @max bytes, with a NUL appended (not counted in *@len_out).  Free
 * *@data_out.  */
int fp8q_read_file(const char *path, uint64_t max, char **data_out, size_t *len_out,
                   struct fp8q_error *err);
/* The same, but absence is no failure: *@data_out is NULL then.  */
int fp8q_read_file_if_there(const char *path, uint64_t max, char **data_out, size_t *len_out,
                            struct fp8q_error *err);
/* A new file with these bytes, fsynced and closed; removed again on failure.  */
int fp8q_write_file(const char *path, const void *data, size_t len, struct fp8q_error *err);

struct fp8q_copied {
    uint32_t crc32;   /* of the bytes */
    struct stat stat; /* of the file that was read */
};

/* Copies a regular file to a path where nothing stands, with the permission bits of the first less
 * the umask, as `cp` does.  @copied_out may be NULL.  FP8Q_E_IO "source-changed" if the file changed
 * meanwhile.  Not flushed to disk: fp8q_flush_file().  On failure nothing stands at @to.  */
int fp8q_copy_file(const char *from, const char *to, const struct fp8q_watch *watch,
                   struct fp8q_copied *copied_out, struct fp8q_error *err);

/* Waits until a file that was written before is on disk.  */
int fp8q_flush_file(const char *path, struct fp8q_error *err);

#endif
