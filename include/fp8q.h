/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8q.h - the public interface of the fp8q library, in the order of its data flow:
 *
 *     errors -> checkpoint -> plan -> convert -> verify -> numerics
 *
 * Conventions.  A function returns 0 or one negative `enum fp8q_status` and, if `err` is not NULL,
 * leaves there what happened: where, what was expected, what was found.  Out-parameters are named
 * `*_out`, follow the inputs and are defined on failure too.  Handles come from `_open`/`_create`
 * and have one matching release that accepts NULL.  A returned `const char *` is borrowed. The
 * library never prints, never exits and never reads the environment.
 */
#ifndef FP8Q_H
#define FP8Q_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FP8Q_VERSION "0.1.0"

/* ---- errors ------------------------------------------------------------------------------ */

/* Kinds answer "what can the caller do about it".  */
enum fp8q_status {
    FP8Q_OK = 0,
    FP8Q_E_IO = -1,          /* the system refused: no such file, no space, ... */
    FP8Q_E_FORMAT = -2,      /* a file breaks its own format */
    FP8Q_E_UNSUPPORTED = -3, /* valid, but not ours: dtype, model family, ... */
    FP8Q_E_NOMEM = -4,
    FP8Q_E_ARG = -5,      /* the request is wrong: output exists, pattern without a match, ... */
    FP8Q_E_MISMATCH = -6, /* a check failed: verify found a difference, nothing to quantize */
    FP8Q_E_POLICY = -7,   /* quantized set widened, a vision tower touched */
    FP8Q_E_EVIDENCE = -8, /* evidence, calibration or parts missing, foreign or stale */
    FP8Q_E_CANCELLED = -9 /* fp8q_cancel() was called */
};

/* @id is a short stable word ("dst-exists") for machines, @message is for people.  */
struct fp8q_error {
    enum fp8q_status status;
    char id[40];
    char message[2000];
};

/* A warning list is owned by the caller; zero it, hand it in, and reset it at the end.  */
struct fp8q_warning {
    char id[40];
    char *message;
};
struct fp8q_warnings {
    struct fp8q_warning *items;
    size_t count;
};
void fp8q_warnings_reset(struct fp8q_warnings *warnings);

/* What a progress counts.  */
enum fp8q_unit { FP8Q_UNIT_BYTES, FP8Q_UNIT_TOKENS, FP8Q_UNIT_STEPS, FP8Q_UNIT_TENSORS };

/* Called now and then by whichever thread has done work; must be quick and thread-safe.  @stage is
 * a static string; @done may exceed @total by a little at the end of a stage.  */
struct fp8q_progress {
    void (*update)(void *ctx, const char *stage, uint64_t done, uint64_t total,
                   enum fp8q_unit unit);
    void *ctx;
};

/* A token by which calls are stopped: zero it, name it in fp8q_run, and cancel it from any thread
 * or from a signal handler.  The calls that were given it then end soon with FP8Q_E_CANCELLED, and
 * no others.  It may be zeroed again once they have ended.  */
struct fp8q_cancel {
    int requested;
};
void fp8q_cancel(struct fp8q_cancel *token);

/* ---- options --------------------------------------------------------------------------------- */

/* Element types of safetensors.  The order is the official writer's (falling alignment), so that
 * sorting by (dtype, name) gives its layout.  */
enum fp8q_dtype {
    FP8Q_U64,
    FP8Q_I64,
    FP8Q_F64,
    FP8Q_C64,
    FP8Q_F32,
    FP8Q_U32,
    FP8Q_I32,
    FP8Q_BF16,
    FP8Q_F16,
    FP8Q_U16,
    FP8Q_I16,
    FP8Q_F8_E5M2FNUZ,
    FP8Q_F8_E4M3FNUZ,
    FP8Q_F8_E8M0,
    FP8Q_F8_E4M3,
    FP8Q_F8_E5M2,
    FP8Q_I8,
    FP8Q_U8,
    FP8Q_F6_E3M2,
    FP8Q_F6_E2M3,
    FP8Q_F4,
    FP8Q_BOOL,
    FP8Q_N_DTYPES
};

/* Names and config of the output: docs/reference/format.md "config.json".  */
enum fp8q_format { FP8Q_FORMAT_FP8, FP8Q_FORMAT_COMPRESSED_TENSORS };
/* All scales in one shard of their own, or each beside its weight.  */
enum fp8q_scales { FP8Q_SCALES_SIDECAR, FP8Q_SCALES_INLINE };
/* amax/448, or the smallest power of two not below it.  Both are stored as F32.  */
enum fp8q_scale_fmt { FP8Q_SCALE_F32, FP8Q_SCALE_UE8M0 };
/* One scale for 128x128 elements, for a row, for the tensor: FP8_BLOCK, FP8_DYNAMIC, FP8.  */
enum fp8q_scheme { FP8Q_SCHEME_BLOCK, FP8Q_SCHEME_CHANNEL, FP8Q_SCHEME_TENSOR };
/* Weights whose sizes are no multiples of 128.  */
enum fp8q_ragged { FP8Q_RAGGED_KEEP, FP8Q_RAGGED_QUANTIZE, FP8Q_RAGGED_CHANNEL };

/* A conversion as data: everything that decides output bytes.  Zero it and fill in what differs
 * from the defaults.  Strings and lists are borrowed and must outlive the call.  */
struct fp8q_request {
    const char *source;             /* a .safetensors file or a checkpoint directory */
    const char *like;               /* NULL, or a checkpoint whose quantized set is taken */
    const char *calibration;        /* NULL, or statistics for error-compensated rounding */
    const char **ignore, **include; /* patterns: fp8q(1) */
    size_t n_ignore, n_include;
    bool no_default_ignore, allow_unmatched, allow_tower, strict;
    bool requantize; /* take a source that is FP8 already */
    enum fp8q_format format;
    enum fp8q_scales scales;
    enum fp8q_scale_fmt scale_fmt;
    enum fp8q_scheme scheme;
    enum fp8q_ragged ragged;
    uint64_t max_shard_size; /* bytes of tensor data; 0: keep the source's shards */
    uint64_t tp;             /* 0, or ways of tensor parallelism that must fit */
    bool dequantize;         /* the other direction: FP8 weights become @to */
    enum fp8q_dtype to;      /* FP8Q_BF16, FP8Q_F16 or FP8Q_F32 */
};

/* How a conversion is carried out; none of it changes a byte of the output.  */
struct fp8q_run {
    unsigned threads;                     /* 0: all CPUs that the process may use */
    uint64_t max_memory;                  /* bytes; 0: 200 MiB */
    const char *kernel;                   /* "avx2", "scalar", ...; NULL: the best */
    bool overwrite;                       /* replace an earlier output of this tool */
    bool resume;                          /* go on where a killed run stopped */
    const struct fp8q_progress *progress; /* NULL allowed */
};

/* ---- convert --------------------------------------------------------------------------------- */

struct fp8q_result {
    size_t n_quantized, n_kept;                      /* source tensors */
    uint64_t source_bytes, output_bytes;             /* tensor data */
    uint32_t source_fingerprint, output_fingerprint; /* docs/reference/format.md "The sidecar" */
};

/**
 * fp8q_convert_checkpoint() - quantize (or dequantize) a checkpoint
 * @request:     what to do
 * @destination: directory for a directory, file for a file; must not exist unless run->overwrite
 * @run:         how; NULL means all defaults
 * @result_out:  zeroed on failure; NULL allowed
 * @warnings:    appended to; NULL allowed
 * @err:         message on failure; NULL allowed
 *
 * A weight [N, K] becomes F8_E4M3 [N, K] and an F32 scale [ceil(N/128), ceil(K/128)] with
 * weight = code * scale.  Builds in `DST.partial` and renames; on failure nothing stands under the
 * final name and the source is untouched.  Memory does not grow with the model.
 *
 * Return: 0; FP8Q_E_ARG for a request that cannot be (output exists, pattern without a match,
 * source quantized already); FP8Q_E_MISMATCH if there is nothing to quantize or `tp` does not fit;
 * FP8Q_E_POLICY if a tower would be reached; FP8Q_E_IO, FP8Q_E_FORMAT, FP8Q_E_NOMEM,
 * FP8Q_E_CANCELLED. Threads: uses its own; calls for different destinations may run at the same
 * time. Source:  docs/reference/numerics.md, docs/reference/format.md.
 */
int fp8q_convert_checkpoint(const struct fp8q_request *request, const char *destination,
                            const struct fp8q_run *run, struct fp8q_result *result_out,
                            struct fp8q_warnings *warnings, struct fp8q_error *err);

/* ---- verify ---------------------------------------------------------------------------------- */

enum fp8q_check_status { FP8Q_CHECK_PASS, FP8Q_CHECK_WARN, FP8Q_CHECK_FAIL };

/* One check.  A check that fails at many places is one entry that names the first and counts the
 * rest.  */
struct fp8q_check {
    const char *id; /* static: "tensor-crc" */
    enum fp8q_check_status status;
    char observed[256], limit[128], where[400]; /* safe to print */
};

/**
 * fp8q_verify_checkpoint() - prove a quantized checkpoint
 * @path:       an output of this tool or of another
 * @source:     what it was made from, or NULL: then structure, checksums, codes and scales only
 * @strict:     warnings count as failures
 * @run:        threads, kernel and progress; NULL means all defaults
 * @checks_out: array of @n_checks_out checks, also on failure as far as they went; free with free()
 *
 * Return: 0 if all checks passed; FP8Q_E_MISMATCH if one failed; what kept it from looking
 * otherwise. Source: docs/reference/numerics.md "The bound", docs/reference/format.md "The sidecar".
 */
int fp8q_verify_checkpoint(const char *path, const char *source, bool strict,
                           const struct fp8q_run *run, struct fp8q_check **checks_out,
                           size_t *n_checks_out, struct fp8q_error *err);

/* ---- numerics -------------------------------------------------------------------------------- */

/* Value of each E4M3 code; NaN for 0x7F and 0xFF.  */
extern const float fp8q_e4m3_value[256];
/* Code of @x: nearest, ties to even, saturating at 448; NaN gives 0x7F with its sign; the sign of
 * zero stays.  Equal to a clamped torch cast.  */
uint8_t fp8q_e4m3_from_f32(float x);
/* The scale of a block with this amax (finite, >= 0): amax/448 by IEEE division, or the smallest
 * power of two not below it (decided on amax itself, exactly); at least 2^-126; 1 for amax 0.  */
float fp8q_scale(float amax, enum fp8q_scale_fmt fmt);

#ifdef __cplusplus
}
#endif
#endif
