/* SPDX-License-Identifier: Apache-2.0
 *
 * fresh.h - a file that gets its name when it is whole, and leaves nothing beside it.
 *
 * Where the system can, it has no name until then, so a run that is killed leaves nothing.  To
 * replace a file, and where a file must have a name, it stands beside for a while as
 * ".fp8q-NAME.inode-N", with the number of its own inode: nothing but fp8q makes a file that says so,
 * and a copy of one has another number.  It is locked as long as its run lives; the next run for the
 * same file removes what is not.
 */
#ifndef FP8Q_FRESH_H
#define FP8Q_FRESH_H

#include <stdbool.h>

#include "base/error.h"

struct fp8q_fresh {
    char *dir, *own; /* where it is made; its path there, or NULL while it has none */
    char name[64];   /* ".fp8q-NAME" */
    int held;        /* holds file and lock until the name is given; -1: there is none */
};

/* Removes what killed runs left of files for @path, and begins one in its directory.  Write into
 * *@fd_out and close it.  On failure there is nothing to drop, and errno says why.  */
int fp8q_fresh_open(const char *path, struct fp8q_fresh *fresh, int *fd_out,
                    struct fp8q_error *err);
/* Gives it the name; its bytes are on disk.  With @new_only what stands there is not replaced.  On
 * failure errno says why; EBUSY: the name is a mount point, and the file stands at fresh->own.  To be
 * dropped in every case.  */
int fp8q_fresh_place(struct fp8q_fresh *fresh, const char *path, bool new_only,
                     struct fp8q_error *err);
void fp8q_fresh_drop(struct fp8q_fresh *fresh);

#endif
