/* SPDX-License-Identifier: Apache-2.0
 *
 * output.h - a result file: evidence, lock, JUnit, Markdown, calibration, dumped inputs.
 *
 * | what stands at the path           | what is done                                              |
 * |-----------------------------------|-----------------------------------------------------------|
 * | nothing, or a regular file        | written aside (fresh.h), and given the name when it is    |
 * |                                   | whole and on disk; mode and owner as before               |
 * | a link                            | the same with what it leads to; the link stays            |
 * | /dev/stdout, /dev/fd/N, a process | written into, from where the descriptor stands            |
 * | substitution                      |                                                           |
 * | a FIFO or a device                | opened and written into; ten seconds are given for        |
 * |                                   | somebody to read a FIFO                                   |
 * | a directory                       | refused                                                   |
 *
 * Where no file can be made beside it (a directory that may not be written, one file that is
 * mounted), a regular file is written in place.  On failure nothing is left behind, and where a
 * rename does the work the file of before still stands.
 */
#ifndef FP8Q_OUTPUT_H
#define FP8Q_OUTPUT_H

#include <sys/types.h>

#include "base/fresh.h"
#include "base/guard.h"
#include "base/text.h"

/* Before the work: that @path can become a result file, and is nothing that this run reads
 * (fp8q_guard_claim(); @guard may be NULL).  Creates nothing.  FP8Q_E_ARG "output-is-input",
 * "output-twice", "output-directory", "output-is-checkpoint"; FP8Q_E_IO where it cannot be written.  */
int fp8q_output_check(const char *path, struct fp8q_guard_list *guard, struct fp8q_error *err);

/* The regular file that an output at @path makes or replaces: its absolute path, links followed, in
 * new memory; NULL where bytes go into what is open already or is no file.  */
int fp8q_output_file(const char *path, char **file_out, struct fp8q_error *err);

struct fp8q_output {
    char *path; /* what is written, links resolved */
    int fd;
    struct fp8q_fresh fresh;
    bool beside;   /* written as @fresh; false: into @path */
    bool new_only; /* set it after opening: a file that appears meanwhile is not replaced */
    mode_t mode;   /* of the file before, or 0 */
    uid_t uid;
    gid_t gid;
};

/* Begins a result file, adds bytes at its end, and gives it its name.  After a failure of either
 * of the first two, and instead of the third: fp8q_output_abandon().  */
int fp8q_output_open(const char *path, struct fp8q_output *out, struct fp8q_error *err);
int fp8q_output_add(struct fp8q_output *out, const void *data, size_t len, struct fp8q_error *err);
int fp8q_output_commit(struct fp8q_output *out, struct fp8q_error *err);
void fp8q_output_abandon(struct fp8q_output *out);

/* All of it.  */
int fp8q_output_write(const char *path, const void *data, size_t len, struct fp8q_error *err);
/* A text, unless there was no memory for some of it.  */
int fp8q_output_text(const char *path, const struct fp8q_text *text, struct fp8q_error *err);

#endif
