/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h - stage 5: reopens an output cold and proves it.
 *
 * Without a source: structure, manifest, every checksum, codes and scales, config and index.  With
 * a source: kept tensors identical, every code and scale derived again, every element within its
 * bound.
 */
#ifndef FP8Q_VERIFY_H
#define FP8Q_VERIFY_H

#include "plan/manifest.h"

struct fp8q_sqnr {
    const char *name; /* borrowed from the checkpoint or the plan */
    double db;        /* infinite if exact */
};

struct fp8q_verify_report {
    struct fp8q_check *checks;
    size_t n_checks, n_failed, n_warned;
    struct fp8q_sqnr *sqnr; /* with a source: quantized tensors, worst first */
    size_t n_sqnr;
    double sqnr_mean;
    bool ours;           /* a manifest was found */
    double bound_factor; /* 1, or 2 for codes of other tools; 0 without a source */
    struct fp8q_manifest manifest;
    struct fp8q_ckpt *ckpt, *source; /* owned */
    struct fp8q_plan *plan;          /* owned; with a source */
};

struct fp8q_verify_options {
    const char *source;      /* NULL: without */
    const char *lock_file;   /* NULL: without */
    const char *calibration; /* NULL, or what compensated codes were made with */
    bool strict;             /* warnings fail */
    unsigned threads;
    const struct fp8q_kernel *kernel;
    const struct fp8q_watch *watch;
};

/* Verifies @path.  Returns 0 if all checks passed, FP8Q_E_MISMATCH if one failed, FP8Q_E_POLICY if
 * the lock was widened, else what kept it from looking (FP8Q_E_IO, FP8Q_E_FORMAT).  @report_out is
 * filled as far as it went; release with fp8q_verify_report_reset() in every case.  */
int fp8q_verify(const char *path, const struct fp8q_verify_options *options,
                struct fp8q_verify_report *report_out, struct fp8q_warnings *warnings,
                struct fp8q_error *err);
void fp8q_verify_report_reset(struct fp8q_verify_report *report);

/* ---- between the files of verify ----------------------------------------------------------------
 */

/* Collects findings of one kind from all threads.  */
struct fp8q_finding {
    const char *id;
    enum fp8q_check_status status; /* if anything is found */
    const char *limit;
    uint64_t n_looked_at, n_found;
    uint64_t first_rank; /* lowest rank is shown, whichever thread came first */
    char observed[256], where[400];
};

/* Notes that something is wrong; @rank orders findings.  Not locked.  */
void fp8q_finding_add(struct fp8q_finding *f, uint64_t rank, const char *where, const char *fmt,
                      ...) FP8Q_PRINTF(4, 5);
/* What keeps verify from looking is its own failure, not one of the checkpoint.  */
static inline bool fp8q_cannot_look(int status)
{
    return status == FP8Q_E_IO || status == FP8Q_E_NOMEM || status == FP8Q_E_CANCELLED;
}
/* Turns it into a check of the report.  */
int fp8q_verify_report_add(struct fp8q_verify_report *report, const struct fp8q_finding *finding,
                           struct fp8q_error *err);

/* Config against tensors, pairs of weights and scales, index and manifest against headers.  */
int fp8q_verify_structure(struct fp8q_verify_report *report, const struct fp8q_verify_options *o,
                          struct fp8q_warnings *warnings, struct fp8q_error *err);
/* Every byte: checksums, codes, scales.  In between, bytes that were read for another reason can be
 * shown to it, so that nothing is read twice.  */
struct fp8q_payload;
int fp8q_payload_open(struct fp8q_verify_report *report, const struct fp8q_verify_options *o,
                      struct fp8q_payload **payload_out, struct fp8q_error *err);
/* @n bytes at @offset of a tensor of report->ckpt, read by worker @worker; taken if they are what
 * one of its tasks would read.  */
int fp8q_payload_look(struct fp8q_payload *payload, unsigned worker,
                      const struct fp8q_tensor *tensor, uint64_t offset, const void *bytes,
                      size_t n, struct fp8q_error *err);
/* Reads the rest, and adds the checks to the report.  */
int fp8q_payload_finish(struct fp8q_payload *payload, struct fp8q_error *err);
void fp8q_payload_close(struct fp8q_payload *payload);

/* Against report->source; shows what it reads to @payload.  */
int fp8q_verify_source(struct fp8q_verify_report *report, const struct fp8q_verify_options *o,
                       struct fp8q_payload *payload, struct fp8q_warnings *warnings,
                       struct fp8q_error *err);

#endif
