/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h - stage 2, second half: every output tensor, its shard, offset and size, before a byte is
 * written.
 *
 * The plan owns all decisions.  Streaming only carries it out: a piece says which rows of which
 * source tensor become which bytes of which output shard.
 */
#ifndef FP8Q_PLAN_H
#define FP8Q_PLAN_H

#include "select/select.h"

/* Scales that data decide, from whoever has the data (calibration/scales.h, or the output that is
 * verified).  */
struct fp8q_data_scales {
    const void *ctx;
    /* The scale of all inputs of the linear with @weight.  */
    int (*input)(const void *ctx, const char *weight, float *scale_out, struct fp8q_error *err);
    /* The scale of the keys (@values: of the values) that attention "model.layers.0.self_attn" keeps
     * in its cache.  */
    int (*cache)(const void *ctx, const char *attention, bool values, float *scale_out,
                 struct fp8q_error *err);
    const char *source_fingerprint; /* of the weights they were measured with; NULL: not asked */
};

struct fp8q_plan_options {
    struct fp8q_select_options select;
    enum fp8q_format format;
    enum fp8q_scales scales;
    enum fp8q_scale_fmt scale_fmt;
    uint64_t max_shard_size; /* bytes of tensor data; 0: keep the source's shards */
    uint64_t max_memory;     /* bytes; 0: FP8Q_DEFAULT_MEMORY */
    unsigned threads;
    unsigned tp;        /* 0, or fail unless all partitions are multiples of 128 */
    bool static_inputs; /* linears of every scheme have an input scale: another tool's output */
    bool fp8_cache;     /* attentions have scales for a cache, from @data */
    const struct fp8q_data_scales *data; /* borrowed while the plan is made; NULL: none */
    bool dequantize;                     /* the other direction: FP8 becomes @to */
    enum fp8q_dtype to;                  /* BF16, F16 or F32 */
};
#define FP8Q_DEFAULT_MEMORY ((uint64_t)200 << 20)

enum fp8q_kind {
    FP8Q_OUT_KEPT,
    FP8Q_OUT_CODES,
    FP8Q_OUT_SCALE,
    FP8Q_OUT_FLOAT,
    FP8Q_OUT_CONSTANT /* one F32 that the plan knows: written with the scales, by no piece */
};

/* One tensor of the output.  Tensors lie in the order of the files: by shard, then as in its
 * header.  */
struct fp8q_out_tensor {
    const char *name;
    const uint64_t *shape;
    uint32_t ndim, shard;
    enum fp8q_dtype dtype;
    enum fp8q_kind kind;
    uint64_t begin, end; /* in the shard's data section */
    size_t source;       /* index of the source tensor it comes from */
    float value;         /* FP8Q_OUT_CONSTANT */
};

struct fp8q_out_shard {
    char *name;   /* relative to the destination */
    char *header; /* length field and JSON text; NULL for the sidecar, whose manifest comes last */
    uint64_t data_start; /* bytes of the header */
    uint64_t size_bytes; /* of the whole file */
    uint32_t header_crc32;
    size_t first_tensor, n_tensors; /* in plan->tensors */
    size_t first_piece, n_pieces;   /* in plan->pieces */
    uint64_t scale_bytes; /* scales made by its pieces, kept in memory while it is written */
};

/* One matrix: rows [first_row, first_row + n_rows) of a source tensor seen as [.., n_cols].  A kept
 * tensor is one row of bytes.  Stripes are 128 rows (kept: FP8Q_COPY_BYTES bytes).  */
struct fp8q_piece {
    size_t source; /* tensor of the checkpoint */
    size_t output; /* codes, floats or kept tensor */
    size_t scale;  /* scale tensor, or SIZE_MAX */
    uint64_t first_row, n_rows, n_cols;
    uint64_t scale_offset; /* of its first scale within the shard's scales, in bytes */
    uint64_t first_stripe; /* number of the first of its stripes in the plan */
    uint64_t n_stripes;
    enum fp8q_scheme scheme; /* of the weights: static is a matter of inputs */
    enum fp8q_kind kind;
    size_t group; /* FP8Q_SCHEME_TENSOR: pieces of one number share one scale; else SIZE_MAX */
};
#define FP8Q_COPY_BYTES ((uint64_t)1 << 20)

struct fp8q_count {
    size_t tensors;
    uint64_t source_bytes, output_bytes;
};

struct fp8q_plan {
    const struct fp8q_ckpt *ckpt; /* borrowed */
    struct fp8q_plan_options options;
    struct fp8q_selection selection;

    struct fp8q_out_tensor *tensors;
    size_t n_tensors;
    size_t *by_name;               /* indices in @tensors, sorted by name */
    struct fp8q_out_shard *shards; /* weights, then the sidecar if there is one */
    size_t n_shards;
    size_t *shard_sources; /* by output shard: the source shard whose name and metadata it takes */
    size_t sidecar;        /* index in @shards, SIZE_MAX without */
    struct fp8q_piece *pieces;
    size_t n_pieces;
    size_t n_groups; /* of pieces that share a scale */
    uint64_t n_stripes;

    char *index_text;    /* NULL: the output has no index */
    char *config_text;   /* NULL: no config.json */
    char *hf_quant_text; /* hf_quant_config.json of the modelopt format, or NULL */
    char *quant_config;  /* the value of quantization_config, or NULL */
    char **exclusions;   /* sorted names written into the config */
    size_t n_exclusions;
    char **not_converted; /* the same for transformers' own key of the fp8 format */
    size_t n_not_converted;
    char *misreading; /* how an engine would read the list wrongly; NULL: none would */

    struct fp8q_count by_reason[FP8Q_N_REASONS];
    struct fp8q_count by_scheme[FP8Q_N_REASONS][FP8Q_N_SCHEMES]; /* the same, taken apart */
    uint64_t source_bytes, output_bytes;                         /* tensor data */
    uint64_t bytes_read_twice; /* of it: a scale for a whole tensor is measured first */
    uint64_t stripe_bytes;     /* working memory of one worker */
    uint64_t peak_memory;      /* estimate, bytes */
    unsigned threads;          /* what the memory allows */
    unsigned shards_at_once;   /* at work, at most */
    unsigned largest_tp;
    const char *tp_limit; /* tensor that stops a larger one, or NULL */

    void *arena; /* list of allocations that belong to the plan */
};

/* The format that AUTO stands for with the scales of this selection.  */
enum fp8q_format fp8q_format_of(enum fp8q_format format, const struct fp8q_select_options *select);
/* Whether the plan needs scales that data decide.  */
bool fp8q_plan_takes_data(const struct fp8q_plan_options *options);

/* Plans a conversion.  @ckpt must outlive the plan.  On failure *@plan_out is NULL.
 *
 * Errors: those of fp8q_select(); FP8Q_E_ARG for options that exclude each other or a memory limit
 * that cannot be kept.  A plan that must not be carried out is made all the same, so that it can be
 * shown: fp8q_plan_check().  */
int fp8q_plan_create(const struct fp8q_ckpt *ckpt, const struct fp8q_plan_options *options,
                     struct fp8q_plan **plan_out, struct fp8q_warnings *warnings,
                     struct fp8q_error *err);

/* Why the plan must not be carried out: FP8Q_E_ARG "already-quantized"; FP8Q_E_MISMATCH
 * "nothing-to-quantize" with the reasons by count and what would help, or "tp"; FP8Q_E_ARG
 * "exclusion-misread" if an engine would take a module for what it is not.  */
int fp8q_plan_check(const struct fp8q_plan *plan, struct fp8q_error *err);
void fp8q_plan_destroy(struct fp8q_plan *plan);

/* The piece that stripe number @stripe belongs to.  */
const struct fp8q_piece *fp8q_plan_piece(const struct fp8q_plan *plan, uint64_t stripe);

/* Source bytes of one stripe of @piece, about: what progress counts.  */
uint64_t fp8q_plan_stripe_bytes(const struct fp8q_plan *plan, const struct fp8q_piece *piece);

/* Whether the tensor goes where the scales do.  */
bool fp8q_is_with_scales(const struct fp8q_out_tensor *tensor);

/* Whether any tensor is quantized with this scheme.  */
bool fp8q_plan_has_scheme(const struct fp8q_plan *plan, enum fp8q_scheme scheme);

/* Elements of the longest row that is quantized: error compensation needs whole rows, beyond the
 * stripe's memory.  */
uint64_t fp8q_plan_widest_row(const struct fp8q_plan *plan);

/* Name of a weight's scale tensor in this dialect, in memory of @plan.  */
const char *fp8q_plan_scale_name(struct fp8q_plan *plan, const char *weight,
                                 enum fp8q_scheme scheme);
/* @size zeroed bytes that are freed with the plan; NULL without memory.  */
void *fp8q_plan_alloc(struct fp8q_plan *plan, uint64_t count, size_t size);

/* Grid of a scheme (block.h).  */
struct fp8q_grid fp8q_scheme_grid(enum fp8q_scheme scheme);

#endif
