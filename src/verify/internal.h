/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - between the files of verify.
 */
#ifndef FP8Q_VERIFY_INTERNAL_H
#define FP8Q_VERIFY_INTERNAL_H

#include <stdatomic.h>
#include <string.h>

#include "calibration/rounding.h"
#include "calibration/scales.h"
#include "checkpoint/files.h"
#include "checkpoint/weights.h"
#include "verify/verify.h"

/* What keeps verify from looking is its own failure, not one of the checkpoint.  */
static inline bool fp8q_cannot_look(int status)
{
    return status == FP8Q_E_IO || status == FP8Q_E_NOMEM || status == FP8Q_E_CANCELLED;
}

/* Whether two scales are the same to the last bit; a NaN is equal to itself.  */
static inline bool fp8q_same_bits(float a, float b)
{
    uint32_t x, y;
    memcpy(&x, &a, sizeof(x));
    memcpy(&y, &b, sizeof(y));
    return x == y;
}

/* ---- structure.c, config.c, groups.c, written.c: no payload ----------------------------------------------
 */

/* Index, headers and files; weights and their scales.  @warnings: those of opening.  */
int fp8q_verify_structure(struct fp8q_report *report, const struct fp8q_warnings *warnings,
                          struct fp8q_error *err);
/* quantization_config and the exclusion list against the tensors.  */
int fp8q_verify_config(struct fp8q_report *report, struct fp8q_error *err);
/* Weights and inputs against the config groups of compressed-tensors.  groups.c  */
int fp8q_verify_groups(struct fp8q_report *report, const struct fp8q_json *quantization,
                       struct fp8q_error *err);
/* What tensor @i lacks whose inputs are static.  */
void fp8q_verify_static(const struct fp8q_ckpt *ckpt, size_t i, struct fp8q_findings *findings);
/* Headers, names and files against the manifest.  */
int fp8q_verify_written(struct fp8q_report *report, struct fp8q_error *err);

/* ---- payload.c: every byte ---------------------------------------------------------------------
 */

/* Checksums, FP8 values, scales.  Between open and finish, bytes that were read for another reason
 * can be shown to it, so that nothing is read twice.  */
struct fp8q_payload;
int fp8q_payload_open(struct fp8q_report *report, const struct fp8q_verify_options *options,
                      struct fp8q_payload **payload_out, struct fp8q_error *err);
/* @n bytes at @offset of a tensor of report->ckpt, read by worker @worker; taken if they are what
 * one of its tasks would read.  */
int fp8q_payload_look(struct fp8q_payload *payload, unsigned worker,
                      const struct fp8q_tensor *tensor, uint64_t offset, const void *bytes,
                      size_t n, struct fp8q_error *err);
/* Reads the rest, and adds the checks to the report.  */
int fp8q_payload_finish(struct fp8q_payload *payload, struct fp8q_error *err);
void fp8q_payload_close(struct fp8q_payload *payload);

/* ---- source.c: against report->source ----------------------------------------------------------
 */

/* Shows what it reads of the output to @payload.  */
int fp8q_verify_source(struct fp8q_report *report, const struct fp8q_verify_options *options,
                       struct fp8q_payload *payload, struct fp8q_error *err);

/* ---- static.c: scales that data decided --------------------------------------------------------
 */

/* What the plan of a static output asks: from @options->calibration into @derived, or without one
 * from the output itself into @stored.  Close @derived with fp8q_data_scales_close() in every
 * case.  */
int fp8q_verify_data_open(const struct fp8q_report *report,
                          const struct fp8q_verify_options *options,
                          struct fp8q_plan_options *plan_options, struct fp8q_data_scales *stored,
                          struct fp8q_data_scales_of *derived, struct fp8q_error *err);
/* Stored input scales against those of the plan, if a calibration gave them.  */
int fp8q_verify_data_check(struct fp8q_report *report, const struct fp8q_verify_options *options,
                           struct fp8q_error *err);

/* ---- panel.c: one stripe of it -----------------------------------------------------------------
 */

/* What one stripe gives for the figures of the whole.  */
struct fp8q_stripe_found {
    double w2, d2;    /* sums of squares, of the signal and of the error */
    uint32_t crc;     /* of its bytes in the source ... */
    uint64_t n_bytes; /* ... which are so many; 0 if they were not read in one piece */
    float amax;       /* of its values, where one scale speaks of the tensor ... */
    float scale;      /* ... which is stored as this */
};

struct fp8q_compare_worker {
    unsigned number;
    char *memory;                       /* fp8q_compare_memory() bytes */
    struct fp8q_weights source, output; /* scales of an FP8 source, and of the output */
    size_t piece;                       /* whose scales these are, or SIZE_MAX */
};

/* The comparison of a whole output.  */
struct fp8q_comparison {
    struct fp8q_report *report;
    struct fp8q_payload *payload;
    const struct fp8q_verify_options *options;
    const struct fp8q_plan *plan;
    struct fp8q_files sources, outputs;
    const struct fp8q_tensor **tensors; /* by index in plan->tensors; NULL: not there */
    struct fp8q_compare_worker *workers;
    struct fp8q_stripe_found *stripes;

    bool same_rules;   /* fp8q wrote it: scales, and FP8 values but for GPTQ, must be equal */
    float factor;      /* of the bound */
    bool *gptq;        /* by piece: rounded by GPTQ */
    bool holds_rows;   /* some of them have scales of rows: their panels are whole rows */
    bool derives_gptq; /* the calibration file is here to round them again */
    struct fp8q_rounding rounding;

    pthread_mutex_t lock; /* guards the findings */
    struct fp8q_findings kept, codes, scales, bound, block_bound, fingerprint;
    _Atomic uint64_t done;
};

/* One stripe of one piece, between opened files.  */
struct fp8q_compare_job {
    struct fp8q_comparison *all;
    struct fp8q_compare_worker *worker;
    const struct fp8q_piece *piece;
    const struct fp8q_tensor *source, *output;
    const char *src_path, *dst_path;
    int src_fd, dst_fd;
    uint64_t stripe; /* in the plan: the rank of its findings */
    uint64_t row;    /* of the piece */
    uint32_t n_rows;
};

/* Working memory of one worker, in bytes.  */
uint64_t fp8q_compare_memory(const struct fp8q_comparison *all);
/* A part of a tensor left unquantized: byte for byte.  */
int fp8q_compare_kept(const struct fp8q_compare_job *job, struct fp8q_error *err);
/* Weights that were FP8 in the source and are float here: decoded again, the same bytes.  */
int fp8q_compare_float(const struct fp8q_compare_job *job, struct fp8q_error *err);
/* FP8 weights: scales and FP8 values derived again, each element within its bound.  */
int fp8q_compare_fp8(const struct fp8q_compare_job *job, struct fp8q_error *err);

#endif
