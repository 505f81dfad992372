/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h - paths as text.
 */
#ifndef FP8Q_PATH_H
#define FP8Q_PATH_H

#include "base/error.h"

/* "@dir/@name" in new memory; NULL without memory.  Free with free().  */
char *fp8q_join(const char *dir, const char *name);
/* The same with a random ending, for a file that is renamed when it is whole: processes on several
 * machines can make it at the same time (their process numbers may be equal, in containers most).
 */
char *fp8q_join_unique(const char *dir, const char *name);
/* True if @relative cannot lead out of the directory that it is relative to: neither empty nor
 * absolute, and no "..".  */
bool fp8q_stays_inside(const char *relative);
/* The directory of a file, in new memory: what stands before its name, or ".".  */
char *fp8q_dir_of(const char *path);
/* Part after the last '/', borrowed.  */
const char *fp8q_basename(const char *path);

#endif
