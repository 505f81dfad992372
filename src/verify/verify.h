/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h - stage 5: reopens an output cold and proves it.
 *
 * Without a source: structure, manifest, every checksum, FP8 values and scales, config and index.
 * With a source: tensors left unquantized identical, every FP8 value and scale derived again, every
 * element within its bound.
 */
#ifndef FP8Q_VERIFY_H
#define FP8Q_VERIFY_H

#include "verify/report.h"

struct fp8q_verify_options {
    const char *source;      /* NULL: without */
    const char *lock_file;   /* NULL: without */
    const char *calibration; /* NULL, or what GPTQ rounded with */
    bool strict;             /* warnings fail */
    unsigned threads;
    const struct fp8q_kernel *kernel;
    const struct fp8q_watch *watch;
};

/* Verifies @path.  Returns 0 if all checks passed, FP8Q_E_MISMATCH if one failed, FP8Q_E_POLICY if
 * the lock was widened, else what kept it from looking (FP8Q_E_IO, FP8Q_E_FORMAT).  @report_out is
 * filled as far as it went; release with fp8q_report_reset() in every case.  */
int fp8q_verify(const char *path, const struct fp8q_verify_options *options,
                struct fp8q_report *report_out, struct fp8q_warnings *warnings,
                struct fp8q_error *err);

#endif
