/* SPDX-License-Identifier: Apache-2.0
 *
 * inject.h - fails one system call or allocation of this process.
 *
 * The program is linked with --wrap for every function that src/base imports, and for allocations.
 */
#ifndef FP8Q_TESTS_INJECT_H
#define FP8Q_TESTS_INJECT_H

#include <stdbool.h>

enum fault_call {
    CALL_OPEN,
    CALL_CLOSE,
    CALL_PREAD,
    CALL_PWRITE,
    CALL_FSYNC,
    CALL_FALLOCATE,
    CALL_FTRUNCATE,
    CALL_FSTAT,
    CALL_STAT,
    CALL_LSTAT,
    CALL_STATVFS,
    CALL_MKDIR,
    CALL_RENAME,
    CALL_RENAMEAT2,
    CALL_LINKAT,
    CALL_UNLINK,
    CALL_RMDIR,
    CALL_OPENDIR,
    CALL_READDIR,
    CALL_FLOCK,
    CALL_FCHMOD,
    CALL_REALPATH,
    CALL_SYNC_FILE_RANGE,
    CALL_THREAD,
    CALL_MEMORY,
    N_CALLS
};
extern const char *const fault_call_names[N_CALLS];

/* What happens at call number @at of its kind, counted from 0.  */
enum fault_kind {
    FAULT_NONE,   /* only counted */
    FAULT_ERRNO,  /* fails with @error */
    FAULT_ALWAYS, /* ... and so does every later one */
    FAULT_SHORT,  /* moves one byte only */
    FAULT_KILL    /* SIGKILL before the call; @at counts the calls of all kinds, memory excepted */
};
struct fault {
    enum fault_kind kind;
    enum fault_call call;
    long at;
    int error;
    bool trace; /* print where, if a sanitizer is there to do it */
};

/* From now on; @counts_out (N_CALLS entries) is counted up, whatever fails.  */
void fault_arm(const struct fault *fault, long *counts_out);
void fault_disarm(void);

#endif
