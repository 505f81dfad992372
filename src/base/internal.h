/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of base share.
 */
#ifndef FP8Q_BASE_INTERNAL_H
#define FP8Q_BASE_INTERNAL_H

/* open(2) with O_CLOEXEC, again after EINTR.  */
int fp8q_open_retry(const char *path, int flags, int mode);

#endif
