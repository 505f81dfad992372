/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8q.h - the public interface of the fp8q library, in the order of its data flow:
 *
 *     errors -> checkpoint -> conversion -> verification -> matrices in memory -> numerics
 *
 * Calls.  A function returns 0 or one negative `enum fp8q_status` and, if `err` is not NULL, leaves
 * there what happened: where, what was expected, what was found.  Out-parameters are named `*_out`
 * and are defined on failure too.  Handles come from `_open` and have one `_close` that accepts
 * NULL.  A returned `const ...*` is borrowed from the handle and lives as long as it.  The library
 * never prints, never exits, never reads the environment and keeps no state between calls.
 *
 * Structs.  Those that a caller fills in begin with their size and have an `_init` function; new
 * members come at the end, and an old program's smaller struct means the defaults for them.  A
 * struct that was never initialised (size 0) is FP8Q_E_ARG "struct-size".  Those that the library
 * fills in are read through pointers and may grow at the end too.
 *
 * Threads.  Any number of threads may use different handles; one handle belongs to one thread at a
 * time.  fp8q_cancel() may be called from everywhere.
 */
#ifndef FP8Q_H
#define FP8Q_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FP8Q_VERSION "0.1.0"
/* The version of the library that runs, which need not be that of this header.  */
const char *fp8q_version(void);

/* ---- errors ------------------------------------------------------------------------------ */

/* Kinds answer "what can the caller do about it".  */
enum fp8q_status {
    FP8Q_OK = 0,
    FP8Q_E_IO = -1,          /* the system refused: no such file, no space, ... */
    FP8Q_E_FORMAT = -2,      /* a file breaks its own format */
    FP8Q_E_UNSUPPORTED = -3, /* valid, but not ours: dtype, architecture, ... */
    FP8Q_E_NOMEM = -4,
    FP8Q_E_ARG = -5,      /* the request is wrong: output exists, pattern without a match, ... */
    FP8Q_E_MISMATCH = -6, /* a check failed: verify found a difference, nothing to quantize */
    FP8Q_E_POLICY = -7,   /* quantized set widened, a vision tower touched */
    FP8Q_E_EVIDENCE = -8, /* evidence, calibration or parts missing, foreign or stale */
    FP8Q_E_CANCELLED = -9 /* the token of this call was cancelled */
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

/* ---- how a call is carried out --------------------------------------------------------------- */

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

/* None of this changes a byte of a result.  Pointers are borrowed for as long as the handle that
 * was opened with it.  Where a `run` is taken, NULL means all defaults.  */
struct fp8q_run {
    size_t size;
    unsigned threads;    /* 0: all CPUs that the process may use; at most 1024 are taken */
    uint64_t max_memory; /* bytes of working memory; 0: about 200 MiB, more for huge models */
    const char *kernel;  /* "avx2", "scalar", ...; NULL: the best that this CPU has */
    bool overwrite;      /* replace an earlier output of this tool */
    bool resume;         /* go on where a killed run stopped */
    const struct fp8q_progress *progress; /* NULL: nobody listens */
    const struct fp8q_cancel *cancel;     /* NULL: nobody stops it */
};

static inline void fp8q_run_init(struct fp8q_run *run)
{
    memset(run, 0, sizeof(*run));
    run->size = sizeof(*run);
}

/* ---- types and options ----------------------------------------------------------------------- */

/* Element types of safetensors.  The order is the official writer's (falling alignment).  */
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
/* As safetensors spells it: "BF16", "F8_E4M3"; "?" for what is no dtype.  */
const char *fp8q_dtype_name(enum fp8q_dtype dtype);

/* Names and config of the output (docs: "config.json").  AUTO is fp8, and compressed-tensors where
 * scales per row or per tensor can be said in it alone.  */
enum fp8q_format {
    FP8Q_FORMAT_AUTO,
    FP8Q_FORMAT_FP8,
    FP8Q_FORMAT_COMPRESSED_TENSORS,
    FP8Q_FORMAT_MODELOPT /* FP8_STATIC only */
};
/* All scales in one shard of their own, or each beside its weight.  */
enum fp8q_scales { FP8Q_SCALES_SIDECAR, FP8Q_SCALES_INLINE };
/* amax/448, or the smallest power of two not below it.  Both are stored as F32.  */
enum fp8q_scale_fmt { FP8Q_SCALE_F32, FP8Q_SCALE_UE8M0 };
/* One scale for 128x128 elements, per row (output channel), per tensor, or a power of two for 32
 * elements of a row: FP8_BLOCK, FP8_DYNAMIC, FP8, MXFP8.  FP8_STATIC is FP8 with a scale for the
 * inputs of each linear beside it, from a calibration.  */
enum fp8q_scheme {
    FP8Q_SCHEME_BLOCK,
    FP8Q_SCHEME_CHANNEL,
    FP8Q_SCHEME_TENSOR,
    FP8Q_SCHEME_GROUP,
    FP8Q_SCHEME_STATIC
};
/* Whether scales of an FP8 cache of keys and values are written, from a calibration.  */
enum fp8q_kv_cache { FP8Q_KV_CACHE_NONE, FP8Q_KV_CACHE_FP8 };
/* The largest input that a static scale keeps: the largest seen, the end of the bin up to which
 * 99.99 % or 99.9 % of the values lie, or where the squared error of E4M3 is least.  */
enum fp8q_input_range { FP8Q_RANGE_ABSMAX, FP8Q_RANGE_P9999, FP8Q_RANGE_P999, FP8Q_RANGE_MSE };
/* Weights whose sizes are no multiples of 128: left unquantized, quantized in blocks all the same,
 * or quantized per row.  */
enum fp8q_unaligned { FP8Q_UNALIGNED_KEEP, FP8Q_UNALIGNED_QUANTIZE, FP8Q_UNALIGNED_CHANNEL };

/* A conversion as data: everything that decides output bytes.  Strings and lists are copied by
 * fp8q_conversion_open().  */
struct fp8q_request {
    size_t size;
    const char *source;         /* a .safetensors file or a checkpoint directory */
    const char *like;           /* NULL, or a checkpoint whose quantized set is taken */
    const char *calibration;    /* NULL, or statistics for GPTQ rounding or FP8_STATIC */
    const char *const *ignore;  /* patterns, as fp8q(1) tells: left unquantized */
    const char *const *include; /* quantized though the defaults would leave them */
    size_t n_ignore, n_include;
    bool no_default_ignore, allow_unmatched, allow_tower, strict;
    bool requantize; /* take a source that is FP8 already */
    enum fp8q_format format;
    enum fp8q_scales scales;
    enum fp8q_scale_fmt scale_fmt;
    enum fp8q_scheme scheme;
    enum fp8q_unaligned unaligned;
    uint64_t max_shard_size;           /* bytes of tensor data; 0: keep the source's shards */
    uint64_t tp;                       /* 0, or ways of tensor parallelism that must fit */
    bool dequantize;                   /* the other direction: FP8 weights become @to */
    enum fp8q_dtype to;                /* FP8Q_BF16 (also if 0), FP8Q_F16 or FP8Q_F32 */
    enum fp8q_input_range input_range; /* FP8_STATIC */
    enum fp8q_kv_cache kv_cache;
    const char *const *schemes; /* "PATTERN=NAME": another scheme than @scheme for what matches */
    size_t n_schemes;
    bool gptq;          /* round layer by layer, by what the layers before make of @inputs */
    const char *inputs; /* with @gptq: samples, `*.inputs.safetensors` */
    bool no_gptq;       /* @calibration is for scales alone: values are rounded plainly */
};

static inline void fp8q_request_init(struct fp8q_request *request)
{
    memset(request, 0, sizeof(*request));
    request->size = sizeof(*request);
}

/* ---- checkpoint ------------------------------------------------------------------------------ */

/* A checkpoint that is open for reading: headers, index and config, no weights in memory.  */
struct fp8q_checkpoint;

/**
 * fp8q_checkpoint_open() - open a .safetensors file or a checkpoint directory
 * @path:           what to open
 * @run:            cancel only; NULL means defaults
 * @checkpoint_out: NULL on failure; else fp8q_checkpoint_close() it
 *
 * Return: 0; FP8Q_E_IO, FP8Q_E_FORMAT (a header, the index or config.json breaks its format),
 * FP8Q_E_ARG, FP8Q_E_NOMEM, FP8Q_E_CANCELLED.
 */
int fp8q_checkpoint_open(const char *path, const struct fp8q_run *run,
                         struct fp8q_checkpoint **checkpoint_out, struct fp8q_warnings *warnings,
                         struct fp8q_error *err);
void fp8q_checkpoint_close(struct fp8q_checkpoint *checkpoint);

struct fp8q_checkpoint_info {
    const char *path;
    bool is_directory;
    size_t n_tensors, n_shards, n_groups;
    uint64_t bytes;           /* tensor data */
    const char *model_type;   /* of config.json, or NULL */
    const char *architecture; /* the row of the table of architectures that it falls under */
    const char *quantization; /* for people: "none", "block FP8, ..." */
    double bits_per_weight;
};
const struct fp8q_checkpoint_info *fp8q_checkpoint_info(const struct fp8q_checkpoint *checkpoint);

struct fp8q_tensor_info {
    const char *name;
    enum fp8q_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint64_t bytes;
    const char *role;  /* "backbone", "vision", "norm", ... */
    const char *shard; /* file, relative to the checkpoint */
};
/* Tensors in the order of their names.  NULL beyond the last.  */
const struct fp8q_tensor_info *fp8q_checkpoint_tensor(const struct fp8q_checkpoint *checkpoint,
                                                      size_t index);
/* How tensor @index is quantized: "none", "block" (128x128), "row", "tensor" or "group" (MXFP8) for
 * FP8 weights with one scale for as much, and the name of the tensor that holds the scales (else NULL).  Reads the
 * scales; FP8Q_E_FORMAT or FP8Q_E_UNSUPPORTED for FP8 weights whose scales are missing or none of
 * these.  */
int fp8q_checkpoint_scheme(const struct fp8q_checkpoint *checkpoint, size_t index,
                           const char **scheme_out, const char **scale_out, struct fp8q_error *err);
/* Index of the tensor called @name, or SIZE_MAX.  */
size_t fp8q_checkpoint_find(const struct fp8q_checkpoint *checkpoint, const char *name);

/* Reads @len bytes as stored (little-endian) of tensor @index from byte @offset of it on.  */
int fp8q_checkpoint_read(const struct fp8q_checkpoint *checkpoint, size_t index, uint64_t offset,
                         void *bytes_out, size_t len, struct fp8q_error *err);

/* What the values of one matrix are, block by block of 128x128.  FP8 values count with their scales.  */
struct fp8q_block_statistics {
    float amax;                 /* largest magnitude, infinities counted, NaN not */
    uint64_t n_values, n_small; /* @n_small: not 0, and below 2^-6/448 of @amax: subnormal in FP8 */
};
struct fp8q_statistics {
    size_t size;
    uint64_t n_values, n_zeros, n_nonfinite, n_small;
    double min, max, mean, rms;           /* of the finite values; NaN if there is none */
    uint64_t grid_rows, grid_cols;        /* blocks; those of stacked matrices below each other */
    struct fp8q_block_statistics *blocks; /* grid_rows * grid_cols, owned */
};

/* Reads tensor @index, a matrix or a stack of them, in memory for 128 rows.  FP8Q_E_UNSUPPORTED for
 * another shape or dtype, and as fp8q_checkpoint_scheme().  fp8q_statistics_reset() releases.  */
int fp8q_checkpoint_statistics(const struct fp8q_checkpoint *checkpoint, size_t index,
                               const struct fp8q_run *run, struct fp8q_statistics *statistics_out,
                               struct fp8q_error *err);
void fp8q_statistics_reset(struct fp8q_statistics *statistics);

struct fp8q_shard_info {
    const char *name;
    uint64_t file_bytes;
    size_t n_tensors, n_metadata;
};
const struct fp8q_shard_info *fp8q_checkpoint_shard(const struct fp8q_checkpoint *checkpoint,
                                                    size_t index);
/* The shard's entry @index of `__metadata__`; false beyond the last.  */
bool fp8q_checkpoint_metadata(const struct fp8q_checkpoint *checkpoint, size_t shard, size_t index,
                              const char **key_out, const char **value_out);

/* Tensors alike: names with their numbers replaced by N, one dtype, one shape.  */
struct fp8q_tensor_group {
    const char *pattern; /* "model.layers.N.mlp.up_proj.weight" */
    enum fp8q_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    size_t count;
    uint64_t bytes; /* of all of them */
};
const struct fp8q_tensor_group *fp8q_checkpoint_group(const struct fp8q_checkpoint *checkpoint,
                                                      size_t index);

/* ---- conversion ------------------------------------------------------------------------------ */

/* A conversion: planned when it is opened, carried out when it is told where to.  */
struct fp8q_conversion;

/**
 * fp8q_conversion_open() - plan a conversion
 * @request:        what to do; nothing of it needs to live on
 * @run:            how; NULL means all defaults
 * @conversion_out: NULL on failure; else fp8q_conversion_close() it
 * @warnings:       appended to; NULL allowed
 *
 * Reads headers and configs, decides for every tensor, and computes sizes and places of all output
 * bytes.  Writes nothing.  A plan that must not be carried out is made all the same, so that it can
 * be looked at: fp8q_conversion_check().
 *
 * Return: 0; FP8Q_E_ARG for a request that cannot be (a pattern without a match, options that
 * exclude each other, nothing to dequantize), FP8Q_E_POLICY if a tower would be reached, and what
 * kept it from reading.
 */
int fp8q_conversion_open(const struct fp8q_request *request, const struct fp8q_run *run,
                         struct fp8q_conversion **conversion_out, struct fp8q_warnings *warnings,
                         struct fp8q_error *err);
/* Opens the conversion that parts (fp8q_conversion_run_part()) began at @destination, from the
 * request that they left there.  FP8Q_E_EVIDENCE "no-parts" if there is none.  */
int fp8q_conversion_open_parts(const char *destination, const struct fp8q_run *run,
                               struct fp8q_conversion **conversion_out,
                               struct fp8q_warnings *warnings, struct fp8q_error *err);
void fp8q_conversion_close(struct fp8q_conversion *conversion);

struct fp8q_plan_info {
    size_t n_tensors, n_quantized;       /* of the source */
    size_t n_outputs;                    /* tensors of the output */
    uint64_t source_bytes, output_bytes; /* tensor data */
    uint64_t peak_memory;                /* bytes, an estimate from above */
    unsigned threads;
    const char *architecture, *model_type; /* @model_type may be NULL */
    const char *note;                      /* what to know about the architecture, or NULL */
    bool custom_runtime; /* no public engine would load the result (LeRobot policies) */
    bool dequantizes;
    bool double_rounding; /* F32 block scales, which some engines round again to powers of two */
    unsigned largest_tp;  /* ways of tensor parallelism that fit, at most 64 */
    const char *tp_limit; /* tensor that allows no more, or NULL */
    const char *const *exclusions; /* modules left unquantized, as config.json names them */
    size_t n_exclusions;
    const char *default_destination; /* "SRC-FP8" or so */
    unsigned n_parts;          /* opened by fp8q_conversion_open_parts(): of how many; else 0 */
    uint64_t bytes_read_twice; /* of the source: one scale for a tensor is measured first */
};
const struct fp8q_plan_info *fp8q_conversion_plan(const struct fp8q_conversion *conversion);

/* What becomes of a tensor of the source, in the order of their names.  NULL beyond the last.  */
struct fp8q_planned_tensor {
    const char *name;
    enum fp8q_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint64_t bytes;
    const char *shard;
    bool quantize;      /* false: left as it is, or dequantized */
    const char *reason; /* stable word: "backbone", "norm", "vision", "ragged", ... */
    const char *scheme; /* "FP8_BLOCK", ...; NULL: not quantized */
};
const struct fp8q_planned_tensor *fp8q_conversion_tensor(const struct fp8q_conversion *conversion,
                                                         size_t index);

/* A tensor of the output, in the order of the files.  NULL beyond the last.  */
struct fp8q_output_tensor {
    const char *name;
    enum fp8q_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint64_t bytes;
    size_t shard;  /* number of its file: fp8q_conversion_shard() */
    size_t source; /* index of the tensor of the source that it comes from */
    bool is_scale;
};
const struct fp8q_output_tensor *fp8q_conversion_output(const struct fp8q_conversion *conversion,
                                                        size_t index);

/* File name of output shard @index, as it will stand beside or below @destination (NULL: the
 * default destination).  Copied into @name_out, cut to @cap bytes; false beyond the last.
 * @is_sidecar_out (NULL allowed) is set for the file that holds all scales.  */
bool fp8q_conversion_shard(const struct fp8q_conversion *conversion, size_t index,
                           const char *destination, char *name_out, size_t cap,
                           bool *is_sidecar_out);

/* Totals of one reason.  Reasons that occur, quantized ones last.  NULL beyond the last.  */
struct fp8q_reason_count {
    const char *reason;
    bool quantized;
    size_t tensors;
    uint64_t source_bytes, output_bytes;
    const char *scheme; /* a reason has a row for each; NULL: not quantized */
};
const struct fp8q_reason_count *fp8q_conversion_reason(const struct fp8q_conversion *conversion,
                                                       size_t index);

/**
 * fp8q_conversion_check() - whether the plan may be carried out
 * @destination:  NULL: not looked at
 * @n_parts:      0, or of how many parts one will be run
 * @complete_out: NULL, or whether @destination is this conversion's complete output already; asked
 *                only with run->resume
 *
 * Return: 0; FP8Q_E_ARG (the source is quantized already, @destination exists or touches the
 * source), FP8Q_E_MISMATCH (nothing to quantize, `tp` does not fit).  Writes nothing.
 */
int fp8q_conversion_check(struct fp8q_conversion *conversion, const char *destination,
                          unsigned n_parts, bool *complete_out, struct fp8q_error *err);

/* The lock of this conversion: the sorted names that it quantizes, with scheme and shapes, as JSON.
 * Borrowed.  */
int fp8q_conversion_lock(struct fp8q_conversion *conversion, const char **text_out,
                         struct fp8q_error *err);
/* Has fp8q_conversion_run() write the lock to @path (borrowed; NULL: nowhere) just before the output
 * gets its name, so that no output stands there without it.  What stood at @path comes back if the
 * run fails, and with the next run for that destination if it is killed.  Parts only note it:
 * fp8q_conversion_finish() writes it; if fp8q_conversion_check_lock() passed before, that is asked
 * again there.  */
int fp8q_conversion_write_lock(struct fp8q_conversion *conversion, const char *path,
                               struct fp8q_error *err);
/* Whether the lock file @path allows just this conversion: FP8Q_E_POLICY "lock-widened" (it would
 * quantize more), "lock-narrowed" (less), "lock-scheme".  *@there_out is false, and the result 0,
 * if there is no such file.  After fp8q_conversion_check(), a lock that a killed run for that
 * destination wrote does not count.  */
int fp8q_conversion_check_lock(struct fp8q_conversion *conversion, const char *path,
                               bool *there_out, struct fp8q_error *err);

/**
 * fp8q_conversion_run() - carry the plan out
 * @destination: directory for a directory, file for a file; must not exist unless run->overwrite
 *
 * A weight [N, K] becomes F8_E4M3 [N, K] and an F32 scale [ceil(N/128), ceil(K/128)] with
 * weight = value * scale.  Builds in `DST.partial` and renames; on failure nothing stands under the
 * final name and the source is untouched.  Memory does not grow with the model.
 *
 * Return: 0; what fp8q_conversion_check() returns; FP8Q_E_IO, FP8Q_E_FORMAT (a NaN or Inf, with
 * tensor and index), FP8Q_E_NOMEM, FP8Q_E_EVIDENCE, FP8Q_E_CANCELLED.
 */
int fp8q_conversion_run(struct fp8q_conversion *conversion, const char *destination,
                        struct fp8q_warnings *warnings, struct fp8q_error *err);

/* The share @part (from 1) of @n_parts of the shards only, into `DST.partial`: parts may run on
 * different machines, in any order.  */
int fp8q_conversion_run_part(struct fp8q_conversion *conversion, const char *destination,
                             unsigned part, unsigned n_parts, struct fp8q_warnings *warnings,
                             struct fp8q_error *err);
/* Ends a conversion whose parts are all there: scales, index, config, and the final name.
 * FP8Q_E_EVIDENCE "part-missing" names those that are not; the others stay.  */
int fp8q_conversion_finish(struct fp8q_conversion *conversion, const char *destination,
                           struct fp8q_warnings *warnings, struct fp8q_error *err);

struct fp8q_result {
    bool complete;                                   /* false: a part, there is no DST yet */
    size_t n_quantized, n_kept;                      /* tensors of the source */
    uint64_t source_bytes, output_bytes;             /* tensor data */
    uint64_t file_bytes;                             /* of all files written, copies aside */
    uint32_t source_fingerprint, output_fingerprint; /* docs: "The sidecar" */
    size_t resumed_shards;                           /* taken over from an earlier run */
    size_t n_gptq, n_plain; /* linear inputs rounded by GPTQ, and plainly where it was asked for */
};
/* Of the last run that returned 0; NULL before.  */
const struct fp8q_result *fp8q_conversion_result(const struct fp8q_conversion *conversion);

/* Where a quantized source says that it came from: path and fingerprint of its own source, from its
 * manifest.  False if it says nothing.  */
bool fp8q_conversion_origin(struct fp8q_conversion *conversion, const char **path_out,
                            const char **fingerprint_out);

/* ---- verification ---------------------------------------------------------------------------- */

struct fp8q_verify_request {
    size_t size;
    const char *path;   /* an output of this tool or of another */
    const char *source; /* what it was made from, or NULL: then structure, checksums, values and
                         * scales only */
    const char *lock;   /* NULL, or the lock that must not be exceeded */
    const char *calibration; /* NULL, or what GPTQ-rounded values were made with */
    bool strict;             /* warnings count as failures */
};

static inline void fp8q_verify_request_init(struct fp8q_verify_request *request)
{
    memset(request, 0, sizeof(*request));
    request->size = sizeof(*request);
}

struct fp8q_verification;

/**
 * fp8q_verification_open() - prove a quantized checkpoint
 * @request:          what to look at
 * @run:              threads, kernel, progress and cancel; NULL means all defaults
 * @verification_out: the checks, as far as they went, on failure too (NULL only without memory or
 *                    for a wrong request); fp8q_verification_close() it
 *
 * Return: 0 if all checks passed; FP8Q_E_MISMATCH if one failed; FP8Q_E_POLICY if more is quantized
 * than the lock allows; else what kept it from looking.
 */
int fp8q_verification_open(const struct fp8q_verify_request *request, const struct fp8q_run *run,
                           struct fp8q_verification **verification_out,
                           struct fp8q_warnings *warnings, struct fp8q_error *err);
void fp8q_verification_close(struct fp8q_verification *verification);

enum fp8q_check_status { FP8Q_CHECK_PASS, FP8Q_CHECK_WARN, FP8Q_CHECK_FAIL };

/* One check.  A check that fails at many places is one entry that names the first and counts the
 * rest.  */
struct fp8q_check {
    const char *id; /* static: "tensor-crc" */
    enum fp8q_check_status status;
    char observed[256], limit[128], where[400]; /* safe to print */
};
/* NULL beyond the last.  */
const struct fp8q_check *fp8q_verification_check(const struct fp8q_verification *verification,
                                                 size_t index);

/* What a check found: its finding @index, in an order that does not depend on threads.  @where is a
 * tensor, a file or "".  False beyond the last that was kept (of most checks 1,000).  */
bool fp8q_verification_finding(const struct fp8q_verification *verification, size_t check,
                               size_t index, const char **where_out, const char **observed_out);
/* How many places a check found, kept or not.  */
uint64_t fp8q_verification_count(const struct fp8q_verification *verification, size_t check);

struct fp8q_verification_info {
    size_t n_checks, n_failed, n_warned;
    bool has_manifest;   /* it is an output of this tool */
    double bound_factor; /* with a source: 1, or 2 for FP8 values of other tools; else 0 */
    size_t n_sqnr;       /* with a source: quantized tensors compared */
    double sqnr_mean;    /* signal to quantization noise, dB */
};
const struct fp8q_verification_info *
fp8q_verification_info(const struct fp8q_verification *verification);

/* Signal to quantization noise of one tensor, in dB, worst first; false beyond the last.  */
bool fp8q_verification_sqnr(const struct fp8q_verification *verification, size_t index,
                            const char **name_out, double *db_out);

/* ---- matrices in memory ---------------------------------------------------------------------- */

/* A weight matrix in the caller's memory, and how to quantize it.  */
struct fp8q_matrix {
    size_t size;
    uint64_t rows, cols;
    enum fp8q_dtype dtype; /* of the floats: FP8Q_BF16, FP8Q_F16 or FP8Q_F32 */
    uint64_t row_stride;   /* floats from one row to the next, at least cols; 0: cols */
    uint64_t value_stride; /* the same of the FP8 values; 0: cols */
    enum fp8q_scheme scheme;
    enum fp8q_scale_fmt scale_fmt;
    const char *name; /* for messages; NULL allowed */
};

static inline void fp8q_matrix_init(struct fp8q_matrix *matrix)
{
    memset(matrix, 0, sizeof(*matrix));
    matrix->size = sizeof(*matrix);
}

/* Rows and columns of its scales: [ceil(rows/128), ceil(cols/128)], [rows, 1], [1, 1] or, for
 * MXFP8, [rows, ceil(cols/32)] powers of two (a checkpoint holds their exponents alone).  */
int fp8q_matrix_scales(const struct fp8q_matrix *matrix, uint64_t shape_out[2],
                       struct fp8q_error *err);

/**
 * fp8q_matrix_quantize() - floats to E4M3 values and scales
 * @matrix: shape, strides, types
 * @floats: rows x cols, row-major
 * @values: rows x cols bytes, row-major; must not overlap @floats
 * @scales: F32, row-major, as many as fp8q_matrix_scales() says
 * @run:    threads, kernel and cancel; NULL means all defaults (set threads to 1 to stay on the
 *          calling thread)
 *
 * The bits are those that a conversion writes: docs/reference/numerics.md.  (With one scale per tensor
 * a conversion gives q/k/v, or gate/up, the scale of all: hand them in as one matrix, one below the
 * other, for the same.)  Takes no memory beyond the caller's buffers but about 2 KiB of stack and a few words for each thread.
 *
 * Return: 0; FP8Q_E_FORMAT "non-finite" with row and column of the first NaN or Inf (@values and
 * @scales are then undefined); FP8Q_E_ARG, FP8Q_E_NOMEM, FP8Q_E_CANCELLED.
 */
int fp8q_matrix_quantize(const struct fp8q_matrix *matrix, const void *floats, uint8_t *values,
                         float *scales, const struct fp8q_run *run, struct fp8q_error *err);

/* The way back: floats[i] = value * scale, rounded to F32 and then to the matrix's dtype.
 * FP8Q_E_UNSUPPORTED if one does not fit (F16 ends at 65504).  */
int fp8q_matrix_dequantize(const struct fp8q_matrix *matrix, const uint8_t *values,
                           const float *scales, void *floats, const struct fp8q_run *run,
                           struct fp8q_error *err);

/* ---- numerics -------------------------------------------------------------------------------- */

/* Value of each E4M3 code; NaN for 0x7F and 0xFF.  */
extern const float fp8q_e4m3_value[256];
/* Code of @x: nearest, ties to even, saturating at 448; NaN gives 0x7F with its sign; the sign of
 * zero stays.  Equal to a clamped torch cast.  */
uint8_t fp8q_e4m3_from_f32(float x);
/* The scale of a block with this amax (finite, >= 0): amax/448 by IEEE division, or the smallest
 * power of two not below it (decided on amax itself, exactly); at least 2^-126; 1 for amax 0.  */
float fp8q_scale(float amax, enum fp8q_scale_fmt fmt);

/* ---- the tables of architectures ------------------------------------------------------------- */

/* One row: of the language models, what the layers of a decoder hold; then of the wrappers, where
 * the decoder is and what stands around it.  A checkpoint falls under one of each, by the
 * model_type of its config.  Lists are separated by spaces; NULL where there is nothing to say.  */
struct fp8q_architecture_info {
    bool is_wrapper;
    const char *name;
    const char *model_types; /* NULL: for all others */
    const char *decoders;    /* text before `layers.N.` */
    const char *linears;     /* language models: modules behind `layers.N.` that are quantized */
    const char *experts;     /* language models: how stacked experts are treated, in words */
    const char *language;    /* wrappers: the language models within */
    const char *vision, *projector, *action; /* wrappers: roots that are left unquantized */
    const char *note;
};
/* Row @index; false beyond the last.  */
bool fp8q_architecture_row(size_t index, struct fp8q_architecture_info *row_out);

#ifdef __cplusplus
}
#endif
#endif
