/* SPDX-License-Identifier: Apache-2.0
 *
 * destination.h - the names that a conversion writes, and whose they are.
 */
#ifndef FP8Q_DESTINATION_H
#define FP8Q_DESTINATION_H

#include "base/guard.h"
#include "checkpoint/checkpoint.h"
#include "plan/side_files.h"
#include "destination/listing.h"

enum { FP8Q_N_COMPANIONS = 2 };

/* Everything that stands in DST's directory because of a conversion.  */
struct fp8q_destination {
    bool is_dir;                         /* a directory becomes a directory, a file a file */
    char *final;                         /* DST without slashes at its end */
    char *partial;                       /* DST.partial: the directory that becomes DST */
    char *work;                          /* DST.partial.fp8q: lock, state, records, an old DST */
    char *old;                           /* in it: an old DST while it is replaced */
    char *parent;                        /* the directory of all of them */
    char *companions[FP8Q_N_COMPANIONS]; /* of a file: scales, or the manifest alone */
};

#define FP8Q_OLD_NAME "old" /* of @old, a directory in @work */

/* What the companions are called while they are made, in DST.partial.  */
extern const char *const fp8q_companion_names[FP8Q_N_COMPANIONS];
#define FP8Q_WEIGHTS_NAME "weights.safetensors" /* of a file, in DST.partial */

/* "SRC-FP8" beside a directory, "NAME-FP8.safetensors" beside a file; @suffix is "-FP8" or so.  Of a
 * model in the hub's cache "NAME-FP8" in the current directory.  Free with free().  */
char *fp8q_default_destination(const struct fp8q_ckpt *ckpt, const char *suffix);

/* FP8Q_E_ARG "dst-name" for what cannot be a destination: "", ".", "..", and for a file any name
 * that would not be read again as a weights file.  */
int fp8q_destination_open(const char *path, bool is_dir, struct fp8q_destination *names_out,
                          struct fp8q_error *err);
void fp8q_destination_reset(struct fp8q_destination *names);

/* What may stand at the names, for one conversion.  */
struct fp8q_destination_rules {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_guard_list *reads;  /* everything that the conversion reads */
    const struct fp8q_side_files *copies; /* side files that it will copy */
    const struct fp8q_listing *files;     /* all files of the new output */
    bool overwrite;
};

#endif
