/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_file.h - the file of a lock, written just before its output gets its name, so that no output
 * stands there without the lock that was asked for; and taken back if the output does not come.
 */
#ifndef FP8Q_LOCK_FILE_H
#define FP8Q_LOCK_FILE_H

#include "format/json.h"
#include "format/jsonw.h"

struct fp8q_lock_file {
    char *path;      /* absolute, links followed; NULL: there is nothing to take back */
    uint32_t crc;    /* of the new text */
    bool had_before; /* a file stood there, of which a copy is kept */
};

/* Looks at what stands at @path, and keeps a copy of it as @copy.  Writes no lock.  Where that text
 * stands there already, or where bytes go into a pipe or a device, nothing can or need be taken
 * back.  */
int fp8q_lock_file_open(const char *path, const char *text, const char *copy,
                        struct fp8q_lock_file *lock_out, struct fp8q_error *err);
void fp8q_lock_file_reset(struct fp8q_lock_file *lock);

/* Writes the lock, durably.  */
int fp8q_lock_file_write(const struct fp8q_lock_file *lock, const char *path, const char *text,
                         struct fp8q_error *err);

/* Whether the file still has the text that was written; what somebody else wrote is theirs.  */
int fp8q_lock_file_is_ours(const struct fp8q_lock_file *lock, bool *ours_out,
                           struct fp8q_error *err);
/* Puts back what stood there before, if the file is still ours.  */
int fp8q_lock_file_take_back(const struct fp8q_lock_file *lock, const char *copy,
                             struct fp8q_error *err);

/* As the member "lock", and back; no member if there is nothing to take back.  */
void fp8q_lock_file_json(const struct fp8q_lock_file *lock, struct fp8q_jsonw *w);
int fp8q_lock_file_parse(const struct fp8q_json *parent, struct fp8q_lock_file *lock_out,
                         struct fp8q_error *err);

#endif
