/* SPDX-License-Identifier: Apache-2.0
 *
 * stripe.c - one stripe of 128 rows: read, scaled, encoded, and left for its worker to write.
 *
 * How it works.  A stripe is taken as one panel of all its columns if the memory holds that, else in
 * several, cut at block borders.  A panel is read in chunks of rows that stay in the cache:
 *
 *     block     read a chunk, amax of its blocks; after the last chunk the scales, then encode
 *     row       amax of every row over all panels first, then encode (a second read if need be)
 *     tensor    the scale is known from a pass before (fp8q_stripe_amax_only())
 *     float     FP8 values decoded by their scales, and stored as BF16, F16 or F32
 *     kept      bytes as they are
 *
 * A single panel stays in memory, since its worker may have to wait for the file; panels of many are
 * written at once.  Checksums are taken of each chunk, or of each row where a panel is no whole rows,
 * and joined, so that they do not depend on how the stripe was cut.
 */
#include "convert/stripe.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/crc.h"
#include "base/mem.h"

enum { MAX_BLOCKS = 256 }; /* of a panel */
#define WIDEST ((uint64_t)MAX_BLOCKS * FP8Q_BLOCK)

/* A stripe on its way: all its rows, one panel of columns at a time.  */
struct pass {
    struct fp8q_stripe_job *job;
    const struct fp8q_tensor *source;
    enum fp8q_float from;       /* of @values */
    unsigned in_size, out_size; /* bytes of an element in the files */
    uint64_t row;               /* first row, in the source tensor */
    uint64_t out_row;           /* first row, in the output tensor */
    uint32_t n_rows;
    uint64_t n_cols, width;   /* of the matrix, of a panel */
    uint64_t col, panel_cols; /* the panel at hand */
    char *in;                 /* as read */
    void *values;             /* what to encode: @in itself, or F32 decoded from it */
    char *out;
    bool direct; /* codes are decoded from @in to @out, @values are not needed */
    float *wide; /* F32 values for a site, where @values are not */
    uint32_t in_crc[FP8Q_BLOCK], out_crc[FP8Q_BLOCK]; /* by row; [0] alone if one panel is all */
};

static unsigned output_size(const struct fp8q_plan *plan, const struct fp8q_piece *piece)
{
    return piece->kind == FP8Q_OUT_FLOAT ? fp8q_dtype_bits(plan->options.to) / 8 : 1;
}

uint64_t fp8q_stripe_need(const struct fp8q_plan *plan, const struct fp8q_piece *piece,
                          bool compensated)
{
    enum fp8q_dtype from = plan->ckpt->tensors[piece->source].dtype;
    enum fp8q_float ignored;
    if (piece->kind == FP8Q_OUT_KEPT)
        return FP8Q_COPY_BYTES;

    /* An element as read, as written, as F32 where it is decoded, and again as F32 for GPTQ.  */
    uint64_t cell = fp8q_dtype_bits(from) / 8 + output_size(plan, piece) +
                    (fp8q_float_of(from, &ignored) ? 0 : sizeof(float)) +
                    (compensated ? sizeof(float) : 0);
    return fp8q_ceil_div(piece->n_cols, FP8Q_BLOCK) * FP8Q_BLOCK * FP8Q_BLOCK * cell + 64;
}

static void pass_open(struct pass *p, struct fp8q_stripe_job *job)
{
    unsigned out_size = output_size(job->plan, job->piece);
    const struct fp8q_piece *piece = job->piece;
    uint64_t first = job->stripe * FP8Q_BLOCK, left = piece->n_rows - first;

    memset(p, 0, sizeof(*p));
    p->job = job;
    p->source = &job->plan->ckpt->tensors[piece->source];
    p->in_size = fp8q_dtype_bits(p->source->dtype) / 8;
    p->out_size = out_size;
    p->row = piece->first_row + first;
    p->out_row = first;
    p->n_rows = (uint32_t)(left < FP8Q_BLOCK ? left : FP8Q_BLOCK);
    p->n_cols = piece->n_cols;

    bool decodes = !fp8q_float_of(p->source->dtype, &p->from);
    uint64_t per_column = FP8Q_BLOCK * ((uint64_t)p->in_size + out_size + (decodes ? 4 : 0));

    /* Whole blocks only, so that no block is cut by a panel and its scale is known from one.  */
    uint64_t width = job->memory_size / per_column / FP8Q_BLOCK * FP8Q_BLOCK;
    if (width > WIDEST)
        width = WIDEST;
    p->width = width < p->n_cols && !job->site ? width : p->n_cols;

    uint64_t cells = FP8Q_BLOCK * p->width;
    /* F32 values first: they need the strictest alignment.  */
    p->values = job->memory;
    p->in = decodes ? job->memory + cells * 4 : job->memory;
    p->wide =
        (float *)(void *)(job->memory +
                          ((size_t)(p->in - job->memory) + cells * p->in_size + 63) / 64 * 64);
    p->out = job->memory + job->memory_size - cells * out_size;
}

static bool one_panel(const struct pass *p)
{
    return p->width == p->n_cols;
}

static bool next_panel(struct pass *p)
{
    p->col += p->panel_cols;
    uint64_t left = p->n_cols - p->col;
    p->panel_cols = left < p->width ? left : p->width;
    return left > 0;
}

/* ---- transfer -------------------------------------------------------------------------------- */

/* Rows are read in chunks that stay in the second-level cache, so that their checksum and amax cost
 * no second trip to memory.  */
#define CHUNK_BYTES ((size_t)512 << 10)

static uint32_t chunk_rows(const struct pass *p)
{
    uint64_t rows = CHUNK_BYTES / (p->panel_cols * p->in_size);

    /* A row is never cut, even one that is longer than a chunk.  */
    return rows == 0 ? 1 : rows < p->n_rows ? (uint32_t)rows : p->n_rows;
}

/* The chunk that follows @first and @n; false at the end.  Starts with both 0.  */
static bool next_chunk(const struct pass *p, uint32_t *first, uint32_t *n)
{
    *first += *n;
    uint32_t rows = chunk_rows(p), left = p->n_rows - *first;
    *n = left < rows ? left : rows;
    return left > 0;
}

static int read_chunk(struct pass *p, uint32_t first, uint32_t n, bool checksum,
                      struct fp8q_error *err)
{
    struct fp8q_stripe_job *job = p->job;
    size_t row_bytes = (size_t)(p->panel_cols * p->in_size);
    uint64_t at = p->source->offset + ((p->row + first) * p->n_cols + p->col) * p->in_size;
    char *chunk = p->in + first * row_bytes;

    if (one_panel(p)) {
        FP8Q_TRY(fp8q_pread(job->src_fd, chunk, row_bytes * n, at, job->src_path, err));
        if (checksum)
            p->in_crc[0] = fp8q_crc32(p->in_crc[0], chunk, row_bytes * n);
    } else {
        /* A panel's rows lie apart in the file, so each row has a checksum of its own.  */
        for (uint32_t r = 0; r < n; r++, at += p->n_cols * p->in_size) {
            char *row = chunk + r * row_bytes;
            FP8Q_TRY(fp8q_pread(job->src_fd, row, row_bytes, at, job->src_path, err));
            if (checksum)
                p->in_crc[first + r] = fp8q_crc32(p->in_crc[first + r], row, row_bytes);
        }
    }

    if (!job->weights || p->direct)
        return FP8Q_OK;

    struct fp8q_tile tile = {p->row + first, n, p->col, p->panel_cols};
    return fp8q_weights_decode(job->weights, job->kernel, &tile, (const uint8_t *)chunk,
                               FP8Q_FLOAT_F32, (float *)p->values + first * p->panel_cols, err);
}

static uint64_t output_offset(const struct fp8q_stripe_job *job, uint64_t at)
{
    const struct fp8q_out_tensor *t = &job->plan->tensors[job->piece->output];
    return job->plan->shards[t->shard].data_start + t->begin + at;
}

/* A panel of many is written here; the only one waits for fp8q_stripe_write().  */
static int end_chunk(struct pass *p, uint32_t first, uint32_t n, struct fp8q_error *err)
{
    struct fp8q_stripe_job *job = p->job;
    size_t row_bytes = (size_t)(p->panel_cols * p->out_size);
    char *chunk = p->out + first * row_bytes;
    const struct fp8q_tile tile = {p->row + first, n, p->col, p->panel_cols};

    /* Values that were rounded before, by the same scales, take the place of the nearest.  */
    if (job->codes)
        FP8Q_TRY(fp8q_codes_get(job->codes, job->piece->source, &tile, (uint8_t *)chunk, err));

    if (one_panel(p)) {
        p->out_crc[0] = fp8q_crc32(p->out_crc[0], chunk, row_bytes * n);
        return FP8Q_OK;
    }

    /* Memory is needed for the next panel, so this one cannot wait until the file is free.  */
    uint64_t at = output_offset(job, ((p->out_row + first) * p->n_cols + p->col) * p->out_size);
    for (uint32_t r = 0; r < n; r++, at += p->n_cols * p->out_size) {
        const char *row = chunk + r * row_bytes;
        p->out_crc[first + r] = fp8q_crc32(p->out_crc[first + r], row, row_bytes);
        FP8Q_TRY(fp8q_pwrite(job->dst_fd, row, row_bytes, at, job->dst_path, err));
    }
    return FP8Q_OK;
}

int fp8q_stripe_write(struct fp8q_stripe_job *job, struct fp8q_error *err)
{
    return fp8q_pwrite(job->dst_fd, job->out, job->out_len, job->out_offset, job->dst_path, err);
}

static uint32_t join_rows(const struct pass *p, const uint32_t *crc, unsigned size)
{
    uint32_t joined = crc[0];

    /* Of one panel, crc[0] covers all rows already.  */
    for (uint32_t r = 1; r < p->n_rows && !one_panel(p); r++)
        joined = fp8q_crc32_join(joined, crc[r], p->n_cols * size);
    return joined;
}

static void pass_close(struct pass *p)
{
    p->job->source_crc = join_rows(p, p->in_crc, p->in_size);
    p->job->output_crc = join_rows(p, p->out_crc, p->out_size);

    /* out_len is 0 otherwise, which tells the worker that nothing waits to be written.  */
    if (one_panel(p)) {
        p->job->out = p->out;
        p->job->out_len = (size_t)(p->n_rows * p->n_cols * p->out_size);
        p->job->out_offset = output_offset(p->job, p->out_row * p->n_cols * p->out_size);
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

static size_t value_size(const struct pass *p)
{
    return p->from == FP8Q_FLOAT_F32 ? 4 : 2;
}

static const char *values_of_row(const struct pass *p, uint32_t row)
{
    return (const char *)p->values + row * p->panel_cols * value_size(p);
}

static struct fp8q_stripe view_of(const struct pass *p, uint32_t first, uint32_t n)
{
    return (struct fp8q_stripe){
        .src = values_of_row(p, first), .from = p->from, .n_rows = n, .n_cols = p->panel_cols};
}

/* The panel holds a NaN or Inf: says where.  */
static int fail_nonfinite(const struct pass *p, struct fp8q_error *err)
{
    struct fp8q_stripe view = view_of(p, 0, p->n_rows);
    struct fp8q_shown shown;
    uint64_t row = 0, col = 0;
    char index[80];

    fp8q_stripe_nonfinite(&view, &row, &col);

    /* Inf has the largest exponent and no mantissa; all else with that exponent is NaN.  */
    size_t size = value_size(p);
    uint32_t bits = 0;
    memcpy(&bits, values_of_row(p, (uint32_t)row) + col * size, size);
    static const uint32_t infinity[FP8Q_N_FLOATS] = {
        [FP8Q_FLOAT_BF16] = 0x7F80, [FP8Q_FLOAT_F16] = 0x7C00, [FP8Q_FLOAT_F32] = 0x7F800000};
    uint32_t magnitude = bits & (size == 4 ? 0x7FFFFFFFU : 0x7FFFU);

    /* As users index it: stacked experts are one matrix here, and three dimensions in the file.  */
    row += p->row;
    col += p->col;
    if (p->source->ndim == 3)
        snprintf(index, sizeof(index), "[%llu, %llu, %llu]",
                 (unsigned long long)(row / p->source->shape[1]),
                 (unsigned long long)(row % p->source->shape[1]), (unsigned long long)col);
    else
        snprintf(index, sizeof(index), "[%llu, %llu]", (unsigned long long)row,
                 (unsigned long long)col);

    return fp8q_fail(err, FP8Q_E_FORMAT, "non-finite",
                     "%s, tensor \"%s\": %s at %s; a tensor to quantize must be finite (--ignore "
                     "keeps it as it is)",
                     p->job->src_path, fp8q_show(&shown, p->source->name),
                     magnitude == infinity[p->from] ? "Inf" : "NaN", index);
}

/* Never a checkpoint whose weights are finite in the source and infinite when they are read.  */
static int fail_overflow(const struct pass *p, float amax, float scale, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    return fp8q_fail(
        err, FP8Q_E_UNSUPPORTED, "scale-overflow",
        "tensor \"%s\": the value %g with the power-of-two scale %g would be read back "
        "as infinity; use F32 scales, or --ignore leaves the tensor as it is",
        fp8q_show(&shown, p->source->name), (double)amax, (double)scale);
}

/* Reads the panel and finds the scale of each of its blocks.  */
static int block_scales(struct pass *p, float *scales, struct fp8q_error *err)
{
    uint32_t amax[MAX_BLOCKS] = {0}, of_chunk[MAX_BLOCKS];
    size_t n = (size_t)fp8q_ceil_div(p->panel_cols, FP8Q_BLOCK);

    for (uint32_t first = 0, rows = 0; next_chunk(p, &first, &rows);) {
        FP8Q_TRY(read_chunk(p, first, rows, true, err));
        struct fp8q_stripe view = view_of(p, first, rows);
        fp8q_stripe_amax(p->job->kernel, &view, of_chunk);
        for (size_t i = 0; i < n; i++)
            amax[i] = of_chunk[i] > amax[i] ? of_chunk[i] : amax[i];
    }

    if (!fp8q_block_scales(p->from, amax, n, p->job->plan->options.scale_fmt, scales))
        return fail_nonfinite(p, err);

    for (size_t i = 0; i < n; i++) {
        float value;
        if (fp8q_amax_value(p->from, amax[i], &value) && fp8q_scale_overflows(value, scales[i]))
            return fail_overflow(p, value, scales[i], err);
    }
    return FP8Q_OK;
}

/* Reads the panel and raises amax[r] to the largest magnitude of row r in it.  */
static int row_amax(struct pass *p, float amax[FP8Q_BLOCK], bool checksum, struct fp8q_error *err)
{
    for (uint32_t first = 0, n = 0; next_chunk(p, &first, &n);) {
        FP8Q_TRY(read_chunk(p, first, n, checksum, err));

        for (uint32_t r = first; r < first + n; r++) {
            float value;
            uint32_t bits =
                p->job->kernel->amax_bits[p->from](values_of_row(p, r), (size_t)p->panel_cols);

            if (!fp8q_amax_value(p->from, bits, &value))
                return fail_nonfinite(p, err);
            amax[r] = value > amax[r] ? value : amax[r];
        }
    }
    return FP8Q_OK;
}

/* ---- the stages ------------------------------------------------------------------------------ */

/* A site works on whole rows, so pass_open() has made one panel of them.  */
static int encode_blocks(struct pass *p, const float *scales, struct fp8q_error *err)
{
    struct fp8q_stripe_job *job = p->job;

    if (!job->site) {
        for (uint32_t first = 0, n = 0; next_chunk(p, &first, &n);) {
            struct fp8q_stripe view = view_of(p, first, n);
            fp8q_stripe_encode(job->kernel, &view, scales,
                               (uint8_t *)p->out + first * p->panel_cols);
            FP8Q_TRY(end_chunk(p, first, n, err));
        }
        return FP8Q_OK;
    }

    /* GPTQ adds what rounding lost to columns that follow, so it takes F32 values.  */
    const float *wide = p->values;
    if (p->from != FP8Q_FLOAT_F32) {
        job->kernel->to_f32[p->from](p->wide, p->values, (size_t)(p->n_rows * p->n_cols));
        wide = p->wide;
    }

    struct fp8q_gptq_stripe stripe = {job->site, job->kernel, job->gemm, wide,
                                      p->n_rows, p->n_cols,   scales,    job->compensation};
    FP8Q_TRY(fp8q_gptq_encode(&stripe, (uint8_t *)p->out, err));
    return end_chunk(p, 0, p->n_rows, err);
}

static int quantize_blocks(struct pass *p, struct fp8q_error *err)
{
    uint64_t grid_cols = fp8q_ceil_div(p->n_cols, FP8Q_BLOCK);
    while (next_panel(p)) {
        float *scales = p->job->scales + p->job->stripe * grid_cols + p->col / FP8Q_BLOCK;

        /* The panel is still in memory, so it is encoded without a second read.  */
        FP8Q_TRY(block_scales(p, scales, err));
        FP8Q_TRY(encode_blocks(p, scales, err));
    }
    return FP8Q_OK;
}

/* One scale a row (or the tensor's).  Only rows wider than a panel are read twice.  */
static int quantize_rows(struct pass *p, struct fp8q_error *err)
{
    bool per_tensor = p->job->piece->scheme == FP8Q_SCHEME_TENSOR;
    bool again = per_tensor || !one_panel(p);
    float amax[FP8Q_BLOCK] = {0};
    float *scales = p->job->scales + (per_tensor ? 0 : p->job->stripe * FP8Q_BLOCK);

    /* A scale speaks of a whole row: all panels are seen before the first value is encoded.  */
    while (!per_tensor && next_panel(p))
        FP8Q_TRY(row_amax(p, amax, !again, err));
    for (uint32_t r = 0; r < p->n_rows && !per_tensor; r++)
        scales[r] = fp8q_scale(amax[r], FP8Q_SCALE_F32);

    p->col = p->panel_cols = 0;
    while (next_panel(p))
        for (uint32_t first = 0, n = 0; next_chunk(p, &first, &n);) {
            /* The checksum is taken in the last reading, and only there, so bytes count once.  */
            if (again)
                FP8Q_TRY(read_chunk(p, first, n, true, err));
            for (uint32_t r = first; r < first + n; r++)
                p->job->kernel->encode[p->from]((uint8_t *)p->out + r * p->panel_cols,
                                                values_of_row(p, r), (size_t)p->panel_cols,
                                                per_tensor ? p->job->tensor_scale : scales[r]);
            FP8Q_TRY(end_chunk(p, first, n, err));
        }
    return FP8Q_OK;
}

/* One chunk of rows, each in groups of 32.  */
static int encode_groups(struct pass *p, uint32_t first, uint32_t n, struct fp8q_error *err)
{
    struct fp8q_stripe_job *job = p->job;
    uint64_t grid_cols = fp8q_ceil_div(p->n_cols, FP8Q_GROUP);
    uint8_t *exponents = (uint8_t *)job->scales + (job->stripe * FP8Q_BLOCK + first) * grid_cols +
                         p->col / FP8Q_GROUP;

    for (uint32_t r = first; r < first + n; r++, exponents += grid_cols) {
        float amax;
        uint32_t bits =
            job->kernel->encode_groups[p->from]((uint8_t *)p->out + r * p->panel_cols, exponents,
                                                values_of_row(p, r), (size_t)p->panel_cols);

        if (!fp8q_amax_value(p->from, bits, &amax))
            return fail_nonfinite(p, err);
        /* The group of the largest value has the largest scale, so it speaks for all.  */
        float scale = fp8q_scale(amax, FP8Q_SCALE_UE8M0);
        if (fp8q_scale_overflows(amax, scale))
            return fail_overflow(p, amax, scale, err);
    }
    return FP8Q_OK;
}

/* MXFP8: rows lie in the cache from reading them until they are written.  */
static int quantize_groups(struct pass *p, struct fp8q_error *err)
{
    while (next_panel(p))
        for (uint32_t first = 0, n = 0; next_chunk(p, &first, &n);) {
            FP8Q_TRY(read_chunk(p, first, n, true, err));
            FP8Q_TRY(encode_groups(p, first, n, err));
            FP8Q_TRY(end_chunk(p, first, n, err));
        }
    return FP8Q_OK;
}

int fp8q_stripe_quantize(struct fp8q_stripe_job *job, struct fp8q_error *err)
{
    struct pass p;
    struct fp8q_shown shown;
    pass_open(&p, job);
    if (p.width > WIDEST) /* a site takes rows as they are */
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "too-wide",
                         "tensor \"%s\": error compensation ends at %llu columns",
                         fp8q_show(&shown, p.source->name), (unsigned long long)WIDEST);
    int status;
    switch (job->piece->scheme) {
    case FP8Q_SCHEME_BLOCK:
        status = quantize_blocks(&p, err);
        break;
    case FP8Q_SCHEME_GROUP:
        status = quantize_groups(&p, err);
        break;
    default:
        status = quantize_rows(&p, err);
    }
    FP8Q_TRY(status);
    pass_close(&p);
    return FP8Q_OK;
}

int fp8q_stripe_amax_only(struct fp8q_stripe_job *job, float *amax_out, struct fp8q_error *err)
{
    struct pass p;
    float amax[FP8Q_BLOCK] = {0};
    pass_open(&p, job);
    /* The source's checksum comes from the pass that encodes, so none is taken here.  */
    while (next_panel(&p))
        FP8Q_TRY(row_amax(&p, amax, false, err));
    *amax_out = 0;
    for (uint32_t r = 0; r < p.n_rows; r++)
        *amax_out = amax[r] > *amax_out ? amax[r] : *amax_out;
    return FP8Q_OK;
}

int fp8q_stripe_float(struct fp8q_stripe_job *job, struct fp8q_error *err)
{
    struct pass p;
    enum fp8q_float to = FP8Q_FLOAT_F32;

    pass_open(&p, job);
    /* F16 goes the longer way, which finds what does not fit.  */
    p.direct = job->weights && fp8q_float_of(job->plan->options.to, &to) && to != FP8Q_FLOAT_F16;

    while (next_panel(&p))
        for (uint32_t first = 0, n = 0; next_chunk(&p, &first, &n);) {
            uint64_t at = first * p.panel_cols;
            char *out = p.out + at * p.out_size;

            FP8Q_TRY(read_chunk(&p, first, n, true, err));
            struct fp8q_tile tile = {p.row + first, n, p.col, p.panel_cols};
            if (p.direct)
                FP8Q_TRY(fp8q_weights_decode(job->weights, job->kernel, &tile,
                                             (const uint8_t *)p.in + at, to, out, err));
            else
                FP8Q_TRY(fp8q_store_floats((const float *)p.values + at, (size_t)(p.panel_cols * n),
                                           job->plan->options.to, out, p.source->name, err));

            FP8Q_TRY(end_chunk(&p, first, n, err));
        }

    pass_close(&p);
    return FP8Q_OK;
}

int fp8q_stripe_copy(struct fp8q_stripe_job *job, struct fp8q_error *err)
{
    const struct fp8q_tensor *source = &job->plan->ckpt->tensors[job->piece->source];
    uint64_t at = job->stripe * FP8Q_COPY_BYTES, left = job->piece->n_cols - at;
    size_t len = (size_t)(left < FP8Q_COPY_BYTES ? left : FP8Q_COPY_BYTES);

    /* At the end of the memory: what waits to be written lies there, the next stripe before it.  */
    char *bytes = job->memory + (job->memory_size - len) / 64 * 64;

    uint32_t crc = 0;
    for (size_t done = 0, n; done < len; done += n) {
        n = len - done < CHUNK_BYTES ? len - done : CHUNK_BYTES;
        FP8Q_TRY(fp8q_pread(job->src_fd, bytes + done, n, source->offset + at + done, job->src_path,
                            err));
        crc = fp8q_crc32(crc, bytes + done, n);
    }

    /* A copy: what was read is what is written, so one checksum speaks of both.  */
    job->source_crc = job->output_crc = crc;
    job->out = bytes;
    job->out_len = len;
    job->out_offset = output_offset(job, at);
    return FP8Q_OK;
}
