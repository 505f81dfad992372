/* SPDX-License-Identifier: Apache-2.0
 *
 * stripe.c - the inner stages of streaming.
 */
#include "stripe.h"

#include <stdio.h>
#include <string.h>

#include "io.h"
#include "mem.h"

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
    float *wide; /* F32 values for a site, where @values are not */
    uint32_t in_crc[FP8Q_BLOCK], out_crc[FP8Q_BLOCK]; /* by row; [0] alone if one panel is all */
};

static void pass_open(struct pass *p, struct fp8q_stripe_job *job, unsigned out_size)
{
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
    uint64_t width = job->plan->stripe_bytes / per_column / FP8Q_BLOCK * FP8Q_BLOCK;
    if (width > WIDEST)
        width = WIDEST;
    p->width = width < p->n_cols && !job->site ? width : p->n_cols;
    uint64_t cells = FP8Q_BLOCK * p->width;
    /* F32 values first: they need the strictest alignment.  */
    p->values = job->memory;
    p->in = decodes ? job->memory + cells * 4 : job->memory;
    p->out = p->in + cells * p->in_size;
    p->wide = (float *)(void *)(job->memory +
                                ((size_t)(p->out - job->memory) + cells * out_size + 63) / 64 * 64);
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

static int read_panel(struct pass *p, bool checksum, struct fp8q_error *err)
{
    struct fp8q_stripe_job *job = p->job;
    size_t row_bytes = (size_t)(p->panel_cols * p->in_size);
    uint64_t at = p->source->offset + (p->row * p->n_cols + p->col) * p->in_size;
    if (one_panel(p)) {
        size_t bytes = row_bytes * p->n_rows;
        FP8Q_TRY(fp8q_pread(job->src_fd, p->in, bytes, at, job->src_path, err));
        if (checksum)
            p->in_crc[0] = fp8q_crc32(0, p->in, bytes);
    } else {
        for (uint32_t r = 0; r < p->n_rows; r++, at += p->n_cols * p->in_size) {
            char *row = p->in + r * row_bytes;
            FP8Q_TRY(fp8q_pread(job->src_fd, row, row_bytes, at, job->src_path, err));
            if (checksum)
                p->in_crc[r] = fp8q_crc32(p->in_crc[r], row, row_bytes);
        }
    }
    if (job->weights)
        fp8q_weights_decode(job->weights, job->kernel, p->row, p->n_rows, p->col, p->panel_cols,
                            (const uint8_t *)p->in, p->values);
    return FP8Q_OK;
}

static int write_panel(struct pass *p, struct fp8q_error *err)
{
    struct fp8q_stripe_job *job = p->job;
    const struct fp8q_out_tensor *t = &job->plan->tensors[job->piece->output];
    size_t row_bytes = (size_t)(p->panel_cols * p->out_size);
    uint64_t at = job->plan->shards[t->shard].data_start + t->begin +
                  (p->out_row * p->n_cols + p->col) * p->out_size;
    if (one_panel(p)) {
        p->out_crc[0] = fp8q_crc32(0, p->out, row_bytes * p->n_rows);
        return fp8q_pwrite(job->dst_fd, p->out, row_bytes * p->n_rows, at, job->dst_path, err);
    }
    for (uint32_t r = 0; r < p->n_rows; r++, at += p->n_cols * p->out_size) {
        const char *row = p->out + r * row_bytes;
        p->out_crc[r] = fp8q_crc32(p->out_crc[r], row, row_bytes);
        FP8Q_TRY(fp8q_pwrite(job->dst_fd, row, row_bytes, at, job->dst_path, err));
    }
    return FP8Q_OK;
}

static uint32_t join_rows(const struct pass *p, const uint32_t *crc, unsigned size)
{
    uint32_t joined = crc[0];
    for (uint32_t r = 1; r < p->n_rows && !one_panel(p); r++)
        joined = fp8q_crc32_join(joined, crc[r], p->n_cols * size);
    return joined;
}

static void pass_close(struct pass *p)
{
    p->job->source_crc = join_rows(p, p->in_crc, p->in_size);
    p->job->output_crc = join_rows(p, p->out_crc, p->out_size);
}

/* ---- scales ---------------------------------------------------------------------------------- */

static struct fp8q_stripe panel_view(const struct pass *p)
{
    return (struct fp8q_stripe){
        .src = p->values, .from = p->from, .n_rows = p->n_rows, .n_cols = p->panel_cols};
}

/* The panel holds a NaN or Inf: says where.  */
static int fail_nonfinite(const struct pass *p, struct fp8q_error *err)
{
    struct fp8q_stripe view = panel_view(p);
    struct fp8q_shown shown;
    uint64_t row = 0, col = 0;
    char index[80];
    fp8q_stripe_nonfinite(&view, &row, &col);
    const char *last = (const char *)p->values;
    size_t size = p->from == FP8Q_FLOAT_F32 ? 4 : 2;
    uint32_t bits = 0;
    memcpy(&bits, last + (row * p->panel_cols + col) * size, size);
    static const uint32_t infinity[FP8Q_N_FLOATS] = {
        [FP8Q_FLOAT_BF16] = 0x7F80, [FP8Q_FLOAT_F16] = 0x7C00, [FP8Q_FLOAT_F32] = 0x7F800000};
    uint32_t magnitude = bits & (size == 4 ? 0x7FFFFFFFU : 0x7FFFU);
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

static int block_scales(struct pass *p, float *scales, struct fp8q_error *err)
{
    uint32_t amax[MAX_BLOCKS];
    struct fp8q_stripe view = panel_view(p);
    size_t n = (size_t)fp8q_ceil_div(p->panel_cols, FP8Q_BLOCK);
    fp8q_stripe_amax(p->job->kernel, &view, amax);
    for (size_t i = 0; i < n; i++) {
        float value;
        if (!fp8q_amax_value(p->from, amax[i], &value))
            return fail_nonfinite(p, err);
        scales[i] = fp8q_scale(value, p->job->plan->options.scale_fmt);
    }
    return FP8Q_OK;
}

/* Raises amax[r] to the largest magnitude of row r in this panel.  */
static int row_amax(struct pass *p, float amax[FP8Q_BLOCK], struct fp8q_error *err)
{
    size_t size = p->from == FP8Q_FLOAT_F32 ? 4 : 2;
    for (uint32_t r = 0; r < p->n_rows; r++) {
        const char *row = (const char *)p->values + r * p->panel_cols * size;
        float value;
        if (!fp8q_amax_value(
                p->from, p->job->kernel->amax_bits[p->from](row, (size_t)p->panel_cols), &value))
            return fail_nonfinite(p, err);
        amax[r] = value > amax[r] ? value : amax[r];
    }
    return FP8Q_OK;
}

/* ---- the stages ------------------------------------------------------------------------------ */

/* A site works on whole rows, so pass_open() has made one panel of them.  */
static int encode_blocks(struct pass *p, const float *scales, struct fp8q_error *err)
{
    struct fp8q_stripe_job *job = p->job;
    struct fp8q_stripe view = panel_view(p);
    if (!job->site) {
        fp8q_stripe_encode(job->kernel, &view, scales, (uint8_t *)p->out);
        return FP8Q_OK;
    }
    const float *wide = p->values;
    if (p->from != FP8Q_FLOAT_F32) {
        job->kernel->to_f32[p->from](p->wide, p->values, (size_t)(p->n_rows * p->n_cols));
        wide = p->wide;
    }
    return fp8q_compensate_stripe(job->site, job->kernel, job->gemm, wide, p->n_rows, p->n_cols,
                                  scales, (uint8_t *)p->out, job->compensation, err);
}

static int quantize_blocks(struct pass *p, struct fp8q_error *err)
{
    uint64_t grid_cols = fp8q_ceil_div(p->n_cols, FP8Q_BLOCK);
    while (next_panel(p)) {
        float *scales = p->job->scales + p->job->stripe * grid_cols + p->col / FP8Q_BLOCK;
        FP8Q_TRY(read_panel(p, true, err));
        FP8Q_TRY(block_scales(p, scales, err));
        FP8Q_TRY(encode_blocks(p, scales, err));
        FP8Q_TRY(write_panel(p, err));
    }
    return FP8Q_OK;
}

/* One scale a row (or the tensor's).  Rows wider than a panel are read twice.  */
static int quantize_rows(struct pass *p, struct fp8q_error *err)
{
    bool per_tensor = p->job->piece->scheme == FP8Q_SCHEME_TENSOR;
    float amax[FP8Q_BLOCK] = {0};
    float *scales = p->job->scales + (per_tensor ? 0 : p->job->stripe * FP8Q_BLOCK);
    size_t size = p->from == FP8Q_FLOAT_F32 ? 4 : 2;
    while (!per_tensor && next_panel(p)) {
        FP8Q_TRY(read_panel(p, false, err));
        FP8Q_TRY(row_amax(p, amax, err));
    }
    for (uint32_t r = 0; r < p->n_rows && !per_tensor; r++)
        scales[r] = fp8q_scale(amax[r], FP8Q_SCALE_F32);
    p->col = p->panel_cols = 0;
    while (next_panel(p)) {
        FP8Q_TRY(read_panel(p, true, err));
        for (uint32_t r = 0; r < p->n_rows; r++)
            p->job->kernel->encode[p->from]((uint8_t *)p->out + r * p->panel_cols,
                                            (const char *)p->values + r * p->panel_cols * size,
                                            (size_t)p->panel_cols,
                                            per_tensor ? p->job->tensor_scale : scales[r]);
        FP8Q_TRY(write_panel(p, err));
    }
    return FP8Q_OK;
}

int fp8q_stripe_quantize(struct fp8q_stripe_job *job, struct fp8q_error *err)
{
    struct pass p;
    pass_open(&p, job, 1);
    FP8Q_TRY(job->piece->scheme == FP8Q_SCHEME_BLOCK ? quantize_blocks(&p, err)
                                                     : quantize_rows(&p, err));
    pass_close(&p);
    return FP8Q_OK;
}

int fp8q_stripe_amax_only(struct fp8q_stripe_job *job, float *amax_out, struct fp8q_error *err)
{
    struct pass p;
    float amax[FP8Q_BLOCK] = {0};
    pass_open(&p, job, 1);
    while (next_panel(&p)) {
        FP8Q_TRY(read_panel(&p, false, err));
        FP8Q_TRY(row_amax(&p, amax, err));
    }
    *amax_out = 0;
    for (uint32_t r = 0; r < p.n_rows; r++)
        *amax_out = amax[r] > *amax_out ? amax[r] : *amax_out;
    return FP8Q_OK;
}

int fp8q_store_floats(const float *values, size_t n, enum fp8q_dtype to, char *out,
                      const char *name, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    if (to == FP8Q_F32) {
        memcpy(out, values, n * sizeof(float));
        return FP8Q_OK;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t bits =
            to == FP8Q_F16 ? fp8q_f16_from_f32(values[i]) : fp8q_bf16_from_f32(values[i]);
        if (to == FP8Q_F16 && (bits & 0x7FFF) == 0x7C00)
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "f16-overflow",
                             "tensor \"%s\": the value %g does not fit F16 (largest 65504); use "
                             "--dtype bf16",
                             fp8q_show(&shown, name), (double)values[i]);
        memcpy(out + 2 * i, &bits, 2);
    }
    return FP8Q_OK;
}

int fp8q_stripe_float(struct fp8q_stripe_job *job, struct fp8q_error *err)
{
    struct pass p;
    pass_open(&p, job, fp8q_dtype_bits(job->plan->options.to) / 8);
    while (next_panel(&p)) {
        FP8Q_TRY(read_panel(&p, true, err));
        FP8Q_TRY(fp8q_store_floats(p.values, (size_t)(p.panel_cols * p.n_rows),
                                   job->plan->options.to, p.out, p.source->name, err));
        FP8Q_TRY(write_panel(&p, err));
    }
    pass_close(&p);
    return FP8Q_OK;
}

int fp8q_stripe_copy(struct fp8q_stripe_job *job, struct fp8q_error *err)
{
    const struct fp8q_tensor *source = &job->plan->ckpt->tensors[job->piece->source];
    const struct fp8q_out_tensor *t = &job->plan->tensors[job->piece->output];
    uint64_t at = job->stripe * FP8Q_COPY_BYTES, left = job->piece->n_cols - at;
    size_t n = (size_t)(left < FP8Q_COPY_BYTES ? left : FP8Q_COPY_BYTES);
    FP8Q_TRY(fp8q_pread(job->src_fd, job->memory, n, source->offset + at, job->src_path, err));
    job->source_crc = job->output_crc = fp8q_crc32(0, job->memory, n);
    return fp8q_pwrite(job->dst_fd, job->memory, n,
                       job->plan->shards[t->shard].data_start + t->begin + at, job->dst_path, err);
}
