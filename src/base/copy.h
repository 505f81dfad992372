/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h - copies whole files.
 */
#ifndef FP8Q_COPY_H
#define FP8Q_COPY_H

#include <sys/stat.h>

#include "base/watch.h"

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
