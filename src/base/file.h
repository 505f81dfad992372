/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h - whole files.
 */
#ifndef FP8Q_FILE_H
#define FP8Q_FILE_H

#include "base/error.h"

/* A whole file of at most @max bytes, with a NUL appended (not counted in *@len_out).  Free
 * *@data_out.  */
int fp8q_read_file(const char *path, uint64_t max, char **data_out, size_t *len_out,
                   struct fp8q_error *err);
/* The same, but absence is no failure: *@data_out is NULL then.  */
int fp8q_read_file_if_there(const char *path, uint64_t max, char **data_out, size_t *len_out,
                            struct fp8q_error *err);
/* A new file with these bytes, fsynced and closed; removed again on failure.  */
int fp8q_write_file(const char *path, const void *data, size_t len, struct fp8q_error *err);
#endif
