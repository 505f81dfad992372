/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_source.c - an output against its source: the plan is made again, every code and scale
 * derived again.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/pool.h"
#include "calibration/rounding.h"
#include "verify/verify.h"
#include "checkpoint/weights.h"

enum { MOST_BLOCKS = 1024 }; /* of a panel */
#define CHUNK_BYTES                                                                                \
    ((uint64_t)256                                                                                 \
     << 10) /* of the source: with its codes it stays in the cache                   \
                           */

/* What one stripe found out.  */
struct stripe_sums {
    double w2, d2;
};

struct worker {
    char *memory;
    struct fp8q_weights source, output; /* scales of the FP8 source, of the output */
    size_t piece;                       /* whose scales these are, or SIZE_MAX */
};

struct check {
    struct fp8q_verify_report *report;
    struct fp8q_payload *payload;
    const struct fp8q_verify_options *options;
    const struct fp8q_plan *plan;
    struct fp8q_files sources, outputs;
    const struct fp8q_tensor **tensors; /* by index in plan->tensors; NULL: not there */
    struct worker *workers;
    struct stripe_sums *sums; /* by stripe */
    bool same_rules;   /* this tool wrote it: scales, and codes unless compensated, must be equal */
    bool *compensated; /* by piece: its codes were compensated */
    bool derives;      /* ... and the calibration file is here to derive them again */
    struct fp8q_rounding rounding;
    float factor;
    pthread_mutex_t lock; /* guards the findings */
    struct fp8q_finding kept, codes, scales, bound, block_bound;
    _Atomic uint64_t done;
};

/* ---- the plan of the output ------------------------------------------------------------------ */

/* The manifest's request against this source; a checkpoint of another tool is planned like itself.
 */
static int make_plan(struct fp8q_verify_report *report, const struct fp8q_verify_options *o,
                     struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_request r = {.format = FP8Q_FORMAT_FP8};
    struct fp8q_warnings ignored = {0};
    const char *method = fp8q_json_string(
        fp8q_json_path(report->ckpt->config, "quantization_config.quant_method"), "fp8");
    (void)warnings;
    if (report->ours)
        r = report->manifest.request;
    else if (strcmp(method, "compressed-tensors") == 0)
        r.format = FP8Q_FORMAT_COMPRESSED_TENSORS;
    r.tp = 0;
    bool like = !report->ours || r.like;
    struct fp8q_plan_options options = fp8q_request_options(&r, like ? report->ckpt : NULL);
    options.threads = o->threads;
    options.select.allow_tower = true;
    options.select.allow_unmatched = true;
    if (!report->ours)
        options.select.ragged = FP8Q_RAGGED_QUANTIZE;
    int status = fp8q_plan_create(report->source, &options, &report->plan, &ignored, err);
    fp8q_warnings_reset(&ignored);
    return status;
}

/* Every planned tensor is there as planned, and no other.  */
static int match_tensors(struct check *c, struct fp8q_error *err)
{
    struct fp8q_finding f = {.id = "source-tensors",
                             .status = FP8Q_CHECK_FAIL,
                             .limit =
                                 "the tensors that the source gives, with their types and shapes"};
    size_t n_there = 0;
    for (size_t i = 0; i < c->plan->n_tensors; i++) {
        const struct fp8q_out_tensor *p = &c->plan->tensors[i];
        const struct fp8q_tensor *t = fp8q_ckpt_find(c->report->ckpt, p->name);
        f.n_looked_at++;
        n_there += t != NULL;
        if (!t) {
            fp8q_finding_add(&f, i, p->name, "is missing");
            continue;
        }
        bool scale = p->kind == FP8Q_OUT_SCALE && !c->report->ours;
        bool same = scale || (t->dtype == p->dtype && t->ndim == p->ndim &&
                              memcmp(t->shape, p->shape, p->ndim * sizeof(*p->shape)) == 0);
        if (!same)
            fp8q_finding_add(&f, i, p->name, "is %s of %llu elements, expected %s",
                             fp8q_dtype_name(t->dtype), (unsigned long long)t->n_elems,
                             fp8q_dtype_name(p->dtype));
        else
            c->tensors[i] = t;
    }
    if (n_there < c->report->ckpt->n_tensors)
        fp8q_finding_add(&f, c->plan->n_tensors, c->report->ckpt->path,
                         "%zu tensors that the source does not give",
                         c->report->ckpt->n_tensors - n_there);
    return fp8q_verify_report_add(c->report, &f, err);
}

/* ---- one stripe ------------------------------------------------------------------------------ */

static void note(struct check *c, struct fp8q_finding *f, uint64_t rank, const char *where,
                 const char *fmt, uint64_t row, uint64_t col)
{
    pthread_mutex_lock(&c->lock);
    fp8q_finding_add(f, rank, where, fmt, (unsigned long long)row, (unsigned long long)col);
    pthread_mutex_unlock(&c->lock);
}

static int check_kept(struct check *c, struct worker *w, const struct fp8q_piece *p, uint64_t rank,
                      int src_fd, int dst_fd, struct fp8q_error *err)
{
    const struct fp8q_tensor *s = &c->plan->ckpt->tensors[p->source], *t = c->tensors[p->output];
    uint64_t at = (rank - p->first_stripe) * FP8Q_COPY_BYTES, left = p->n_cols - at;
    size_t n = (size_t)(left < FP8Q_COPY_BYTES ? left : FP8Q_COPY_BYTES);
    char *a = w->memory, *b = w->memory + FP8Q_COPY_BYTES;
    FP8Q_TRY(fp8q_pread(src_fd, a, n, s->offset + at, c->plan->ckpt->shards[s->shard].path, err));
    FP8Q_TRY(fp8q_pread(dst_fd, b, n, t->offset + at, c->report->ckpt->shards[t->shard].path, err));
    FP8Q_TRY(fp8q_payload_look(c->payload, (unsigned)(w - c->workers), t, at, b, n, err));
    if (memcmp(a, b, n) == 0)
        return FP8Q_OK;
    size_t i = 0;
    while (a[i] == b[i])
        i++;
    note(c, &c->kept, rank, s->name, "differs from byte %llu on", at + i, 0);
    return FP8Q_OK;
}

static int read_rows(int fd, void *out, const struct fp8q_tensor *t, uint64_t n_cols, uint64_t row,
                     uint32_t n_rows, uint64_t col, uint64_t width, const char *path,
                     struct fp8q_error *err)
{
    uint64_t size = fp8q_dtype_bits(t->dtype) / 8;
    if (width == n_cols)
        return fp8q_pread(fd, out, (size_t)(n_rows * n_cols * size),
                          t->offset + row * n_cols * size, path, err);
    for (uint32_t r = 0; r < n_rows; r++)
        FP8Q_TRY(fp8q_pread(fd, (char *)out + r * width * size, (size_t)(width * size),
                            t->offset + ((row + r) * n_cols + col) * size, path, err));
    return FP8Q_OK;
}

/* The panel's column block: scale derived again from its amax; then codes and bound, row by row. */
struct panel {
    enum fp8q_float from;
    const char *values;
    const uint8_t *codes;
    uint8_t *again;
    uint64_t row, col; /* of the piece */
    uint32_t n_rows;
    uint64_t n_cols;
};

/* Where a scale of @n_rows x n elements at (@row, @col) of the panel comes from.  */
static void check_scale(struct check *c, const struct fp8q_piece *p, const struct panel *v,
                        uint64_t rank, uint64_t col, uint32_t row, uint32_t amax_bits, float stored)
{
    float amax;
    if (!fp8q_amax_value(v->from, amax_bits, &amax)) {
        note(c, &c->bound, rank, c->plan->tensors[p->output].name,
             "the source is not finite near [%llu, %llu]", v->row + row, v->col + col);
        return;
    }
    float scale = fp8q_scale(amax, c->plan->options.scale_fmt);
    if (memcmp(&scale, &stored, sizeof(scale)) != 0)
        note(c, &c->scales, rank, c->plan->tensors[p->scale].name,
             "scale of the block at [%llu, %llu] is not what the source gives", v->row + row,
             v->col + col);
}

static void check_codes(struct check *c, const struct fp8q_piece *p, const struct panel *v,
                        uint64_t rank, uint64_t col, uint64_t n, uint32_t r, float scale,
                        struct fp8q_error_sums *sums)
{
    const struct fp8q_kernel *k = c->options->kernel;
    size_t size = v->from == FP8Q_FLOAT_F32 ? 4 : 2;
    const char *name = c->plan->tensors[p->output].name;
    bool compensated = c->compensated[p - c->plan->pieces];
    size_t at = (size_t)(r * v->n_cols + col);
    if (c->same_rules && !compensated) {
        k->encode[v->from](v->again, v->values + at * size, (size_t)n, scale);
        if (memcmp(v->again, v->codes + at, (size_t)n) != 0)
            note(c, &c->codes, rank, name,
                 "codes of row %llu from column %llu on are not what the source gives", v->row + r,
                 v->col + col);
    }
    size_t beyond =
        k->check[v->from](v->values + at * size, v->codes + at, (size_t)n, scale, c->factor, sums);
    if (beyond && !compensated)
        note(c, &c->bound, rank, name, "row %llu near column %llu is beyond the bound", v->row + r,
             v->col + col);
}

/* Some rows of a panel, in memory order, while they are in the cache.  @amax: of each block of
 * columns so far.  */
static void check_rows(struct check *c, struct worker *w, const struct fp8q_piece *p,
                       const struct panel *v, uint64_t rank, uint32_t *amax,
                       struct fp8q_error_sums *sums)
{
    const struct fp8q_kernel *k = c->options->kernel;
    size_t row_bytes = (size_t)v->n_cols * (v->from == FP8Q_FLOAT_F32 ? 4 : 2);
    uint64_t step = w->output.scaling == FP8Q_SCALING_BLOCK ? FP8Q_BLOCK : v->n_cols;
    bool of_rows = c->same_rules && p->scheme == FP8Q_SCHEME_CHANNEL && v->n_cols == p->n_cols;
    uint32_t of_chunk[MOST_BLOCKS];
    if (c->same_rules && p->scheme == FP8Q_SCHEME_BLOCK) {
        struct fp8q_stripe chunk = {v->values, v->from, v->n_rows, v->n_cols};
        fp8q_stripe_amax(k, &chunk, of_chunk);
        for (uint64_t i = 0; i < fp8q_ceil_div(v->n_cols, FP8Q_BLOCK); i++)
            amax[i] = of_chunk[i] > amax[i] ? of_chunk[i] : amax[i];
    }
    for (uint32_t r = 0; r < v->n_rows; r++) {
        if (of_rows)
            check_scale(c, p, v, rank, 0, r,
                        k->amax_bits[v->from](v->values + r * row_bytes, (size_t)v->n_cols),
                        fp8q_weights_scale(&w->output, v->row + r, v->col));
        for (uint64_t col = 0; col < v->n_cols; col += step)
            check_codes(c, p, v, rank, col, v->n_cols - col < step ? v->n_cols - col : step, r,
                        fp8q_weights_scale(&w->output, v->row + r, v->col + col), sums);
    }
}

/* Reads a panel and checks it on the way.  @raw: as in the source; @wide: decoded, or NULL.  The
 * values of all rows stay only if compensated codes are still to be looked at; else each chunk
 * takes the place of the one before, and the cache.  */
static int check_panel(struct check *c, struct worker *w, const struct fp8q_piece *p,
                       const struct panel *v, uint64_t rank, int src_fd, int dst_fd, char *raw,
                       float *wide, struct fp8q_error_sums *sums, struct fp8q_error *err)
{
    const struct fp8q_tensor *s = &c->plan->ckpt->tensors[p->source], *t = c->tensors[p->output];
    uint64_t in = fp8q_dtype_bits(s->dtype) / 8, rows = CHUNK_BYTES / (v->n_cols * in) + 1;
    bool stay = c->compensated[p - c->plan->pieces];
    uint32_t amax[MOST_BLOCKS] = {0};
    struct panel chunk = *v;
    for (uint32_t r = 0; r < v->n_rows; r += chunk.n_rows) {
        size_t cells = (size_t)(r * v->n_cols);
        char *read = stay ? raw + cells * in : raw;
        float *decoded = wide && stay ? wide + cells : wide;
        chunk.row = v->row + r;
        chunk.n_rows = v->n_rows - r < rows ? v->n_rows - r : (uint32_t)rows;
        chunk.values = wide ? (const char *)decoded : read;
        chunk.codes = v->codes + cells;
        FP8Q_TRY(read_rows(src_fd, read, s, p->n_cols, p->first_row + chunk.row, chunk.n_rows,
                           v->col, v->n_cols, c->plan->ckpt->shards[s->shard].path, err));
        FP8Q_TRY(read_rows(dst_fd, (char *)chunk.codes, t, p->n_cols, chunk.row, chunk.n_rows,
                           v->col, v->n_cols, c->report->ckpt->shards[t->shard].path, err));
        if (wide)
            fp8q_weights_decode(&w->source, c->options->kernel, p->first_row + chunk.row,
                                chunk.n_rows, v->col, v->n_cols, (const uint8_t *)read,
                                FP8Q_FLOAT_F32, decoded);
        check_rows(c, w, p, &chunk, rank, amax, sums);
    }
    if (v->n_cols == p->n_cols)
        FP8Q_TRY(fp8q_payload_look(c->payload, (unsigned)(w - c->workers), t, v->row * v->n_cols,
                                   v->codes, (size_t)(v->n_rows * v->n_cols), err));
    if (!c->same_rules || p->scheme != FP8Q_SCHEME_BLOCK)
        return FP8Q_OK;
    for (uint64_t col = 0; col < v->n_cols; col += FP8Q_BLOCK)
        check_scale(c, p, v, rank, col, 0, amax[col / FP8Q_BLOCK],
                    fp8q_weights_scale(&w->output, v->row, v->col + col));
    return FP8Q_OK;
}

/* Compensated codes give up the bound of single elements for a smaller output error.  What holds is
 * stated for a block: the sum of squared errors is at most 4 times that of the single bounds.  */
static void check_block_bound(struct check *c, const struct worker *w, const struct fp8q_piece *p,
                              const struct panel *v, uint64_t rank)
{
    const struct fp8q_kernel *k = c->options->kernel;
    size_t size = v->from == FP8Q_FLOAT_F32 ? 4 : 2;
    for (uint64_t col = 0; col < v->n_cols; col += FP8Q_BLOCK) {
        size_t n = (size_t)(v->n_cols - col < FP8Q_BLOCK ? v->n_cols - col : FP8Q_BLOCK);
        float scale = fp8q_weights_scale(&w->output, v->row, v->col + col);
        double errors = 0, bounds = 0;
        for (uint32_t r = 0; r < v->n_rows; r++) {
            float weight[FP8Q_BLOCK], value[FP8Q_BLOCK];
            size_t at = (size_t)(r * v->n_cols + col);
            k->to_f32[v->from](weight, v->values + at * size, n);
            k->decode[FP8Q_FLOAT_F32](value, v->codes + at, n, scale);
            for (size_t i = 0; i < n; i++) {
                double d = (double)weight[i] - (double)value[i];
                double bound = fmax(fabs((double)weight[i]) / 16, (double)scale * 0x1p-10);
                errors += d * d;
                bounds += bound * bound;
            }
        }
        if (!(errors <= 4 * bounds))
            note(c, &c->block_bound, rank, c->plan->tensors[p->output].name,
                 "block at [%llu, %llu] is beyond its bound", v->row, v->col + col);
    }
}

/* Derives the codes of a compensated stripe again; @v holds whole rows.  */
static int derive_compensated(struct check *c, const struct fp8q_piece *p, const struct panel *v,
                              uint64_t rank, const struct worker *w, float *wide, void *scratch,
                              struct fp8q_error *err)
{
    const struct fp8q_hessian *site;
    const float *values = (const float *)(const void *)v->values;
    uint64_t grid_cols = fp8q_ceil_div(p->n_cols, FP8Q_BLOCK);
    const float *scales = w->output.scales + v->row / FP8Q_BLOCK * grid_cols;
    if (v->from != FP8Q_FLOAT_F32) {
        c->options->kernel->to_f32[v->from](wide, v->values, (size_t)(v->n_rows * v->n_cols));
        values = wide;
    }
    FP8Q_TRY(fp8q_rounding_acquire(&c->rounding, p->source, &site, err));
    struct fp8q_gptq_stripe stripe = {site,      c->options->kernel, c->rounding.gemm, values,
                                      v->n_rows, v->n_cols,          scales,           scratch};
    int status = fp8q_gptq_encode(&stripe, v->again, err);
    fp8q_rounding_release(&c->rounding, p->source);
    if (status == FP8Q_OK && memcmp(v->again, v->codes, (size_t)(v->n_rows * v->n_cols)) != 0)
        note(c, &c->codes, rank, c->plan->tensors[p->output].name,
             "compensated codes of the rows from %llu (%llu) on are not what the calibration gives",
             v->row, 0);
    return status;
}

static char *aligned(char *p)
{
    return p + (64 - (uintptr_t)p % 64) % 64;
}

static int check_quantized(struct check *c, struct worker *w, const struct fp8q_piece *p,
                           uint64_t rank, int src_fd, int dst_fd, struct fp8q_error *err)
{
    const struct fp8q_tensor *s = &c->plan->ckpt->tensors[p->source];
    uint64_t first = (rank - p->first_stripe) * FP8Q_BLOCK, left = p->n_rows - first;
    struct panel v = {.n_rows = (uint32_t)(left < FP8Q_BLOCK ? left : FP8Q_BLOCK), .row = first};
    bool decodes = !fp8q_float_of(s->dtype, &v.from);
    unsigned in = fp8q_dtype_bits(s->dtype) / 8;
    uint64_t per_column = FP8Q_BLOCK * ((uint64_t)in + 1 + (decodes ? 4 : 0)) + 1;
    uint64_t width = c->plan->stripe_bytes / per_column / FP8Q_BLOCK * FP8Q_BLOCK;
    bool compensated = c->compensated[p - c->plan->pieces];
    bool derives = compensated && c->derives;
    width = width < p->n_cols && !derives ? width : p->n_cols;
    if (width > MOST_BLOCKS * FP8Q_BLOCK && derives)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "too-wide",
                         "tensor \"%s\": error compensation ends before %llu columns", s->name,
                         (unsigned long long)width);
    if (width > MOST_BLOCKS * FP8Q_BLOCK)
        width = MOST_BLOCKS * FP8Q_BLOCK;
    float *wide = (float *)(void *)w->memory;
    char *raw = w->memory + (decodes ? FP8Q_BLOCK * width * 4 : 0);
    uint8_t *codes = (uint8_t *)raw + FP8Q_BLOCK * width * in;
    struct fp8q_error_sums sums = {{0}, {0}};
    v.codes = codes;
    v.again = codes + FP8Q_BLOCK * width;
    v.values = decodes ? w->memory : raw;
    for (v.col = 0; v.col < p->n_cols; v.col += width) {
        v.n_cols = p->n_cols - v.col < width ? p->n_cols - v.col : width;
        FP8Q_TRY(
            check_panel(c, w, p, &v, rank, src_fd, dst_fd, raw, decodes ? wide : NULL, &sums, err));
        if (derives) {
            char *more = aligned((char *)v.again + FP8Q_BLOCK * width);
            FP8Q_TRY(derive_compensated(c, p, &v, rank, w, (float *)(void *)more,
                                        more + FP8Q_BLOCK * width * sizeof(float), err));
        } else if (compensated) {
            check_block_bound(c, w, p, &v, rank);
        }
    }
    c->sums[rank] = (struct stripe_sums){fp8q_error_total(sums.w2), fp8q_error_total(sums.d2)};
    return FP8Q_OK;
}

/* A weight that was FP8 in the source and is float here: decoded again, it must be the same bytes.
 */
static int check_float(struct check *c, struct worker *w, const struct fp8q_piece *p, uint64_t rank,
                       int src_fd, int dst_fd, struct fp8q_error *err)
{
    const struct fp8q_tensor *s = &c->plan->ckpt->tensors[p->source], *t = c->tensors[p->output];
    uint64_t first = (rank - p->first_stripe) * FP8Q_BLOCK, left = p->n_rows - first;
    uint32_t n_rows = (uint32_t)(left < FP8Q_BLOCK ? left : FP8Q_BLOCK);
    unsigned out = fp8q_dtype_bits(t->dtype) / 8;
    uint64_t width = c->plan->stripe_bytes / (FP8Q_BLOCK * (5 + 2 * (uint64_t)out));
    width = width < p->n_cols ? width : p->n_cols;
    float *values = (float *)(void *)w->memory;
    char *codes = w->memory + FP8Q_BLOCK * width * sizeof(float);
    char *again = codes + FP8Q_BLOCK * width, *stored = again + FP8Q_BLOCK * width * out;
    for (uint64_t col = 0, n; col < p->n_cols; col += n) {
        n = p->n_cols - col < width ? p->n_cols - col : width;
        FP8Q_TRY(read_rows(src_fd, codes, s, p->n_cols, p->first_row + first, n_rows, col, n,
                           c->plan->ckpt->shards[s->shard].path, err));
        FP8Q_TRY(read_rows(dst_fd, stored, t, p->n_cols, first, n_rows, col, n,
                           c->report->ckpt->shards[t->shard].path, err));
        fp8q_weights_decode(&w->source, c->options->kernel, p->first_row + first, n_rows, col, n,
                            (const uint8_t *)codes, FP8Q_FLOAT_F32, values);
        FP8Q_TRY(fp8q_store_floats(values, (size_t)(n_rows * n), t->dtype, again, s->name, err));
        if (memcmp(again, stored, (size_t)(n_rows * n * out)) != 0)
            note(c, &c->kept, rank, s->name, "differs in the rows from %llu, columns from %llu on",
                 first, col);
    }
    return FP8Q_OK;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static int load_scales(struct check *c, struct worker *w, const struct fp8q_piece *p,
                       struct fp8q_error *err)
{
    size_t index = (size_t)(p - c->plan->pieces);
    const struct fp8q_tensor *s = &c->plan->ckpt->tensors[p->source];
    if (w->piece == index)
        return FP8Q_OK;
    fp8q_weights_reset(&w->source);
    fp8q_weights_reset(&w->output);
    w->piece = SIZE_MAX;
    if (s->dtype == FP8Q_F8_E4M3)
        FP8Q_TRY(fp8q_weights_open(c->plan->ckpt, s->name, &w->source, err));
    if (p->kind == FP8Q_OUT_CODES)
        FP8Q_TRY(
            fp8q_weights_open(c->report->ckpt, c->plan->tensors[p->output].name, &w->output, err));
    w->piece = index;
    return FP8Q_OK;
}

static int run_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct check *c = ctx;
    struct worker *w = &c->workers[worker];
    const struct fp8q_piece *p = fp8q_plan_piece(c->plan, task);
    const struct fp8q_tensor *s = &c->plan->ckpt->tensors[p->source], *t = c->tensors[p->output];
    int src_fd, dst_fd;
    if (!t)
        return FP8Q_OK; /* reported as missing */
    FP8Q_TRY(fp8q_files_acquire(&c->sources, s->shard, &src_fd, err));
    FP8Q_TRY(fp8q_files_acquire(&c->outputs, t->shard, &dst_fd, err));
    if (p->kind == FP8Q_OUT_KEPT) {
        FP8Q_TRY(check_kept(c, w, p, task, src_fd, dst_fd, err));
    } else {
        FP8Q_TRY(load_scales(c, w, p, err));
        FP8Q_TRY((p->kind == FP8Q_OUT_CODES ? check_quantized : check_float)(c, w, p, task, src_fd,
                                                                             dst_fd, err));
    }
    uint64_t n = fp8q_plan_stripe_bytes(c->plan, p);
    fp8q_watch_report(c->options->watch, "verify against the source",
                      atomic_fetch_add(&c->done, n) + n, c->plan->ckpt->data_bytes,
                      FP8Q_UNIT_BYTES);
    FP8Q_TRY(fp8q_files_release(&c->sources, s->shard, err));
    return fp8q_files_release(&c->outputs, t->shard, err);
}

/* ---- results --------------------------------------------------------------------------------- */

static int compare_sqnr(const void *a, const void *b)
{
    const struct fp8q_sqnr *x = a, *y = b;
    if (x->db != y->db)
        return x->db < y->db ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sums in the order of stripes, so that no digit depends on the threads.  */
static int collect_sqnr(struct check *c, struct fp8q_error *err)
{
    struct fp8q_verify_report *r = c->report;
    double total = 0;
    size_t n_finite = 0;
    r->sqnr = fp8q_array(c->plan->n_pieces, sizeof(*r->sqnr));
    if (!r->sqnr)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < c->plan->n_pieces; i++) {
        const struct fp8q_piece *p = &c->plan->pieces[i];
        double w2 = 0, d2 = 0;
        if (p->kind != FP8Q_OUT_CODES || !c->tensors[p->output])
            continue;
        for (uint64_t k = p->first_stripe; k < p->first_stripe + p->n_stripes; k++) {
            w2 += c->sums[k].w2;
            d2 += c->sums[k].d2;
        }
        struct fp8q_sqnr *s = &r->sqnr[r->n_sqnr++];
        *s = (struct fp8q_sqnr){c->plan->tensors[p->output].name,
                                d2 > 0 ? 10 * log10(w2 / d2) : INFINITY};
        if (isfinite(s->db)) {
            total += s->db;
            n_finite++;
        }
    }
    qsort(r->sqnr, r->n_sqnr, sizeof(*r->sqnr), compare_sqnr);
    r->sqnr_mean = n_finite ? total / (double)n_finite : INFINITY;
    return FP8Q_OK;
}

static void count_looked_at(struct check *c)
{
    for (size_t i = 0; i < c->plan->n_pieces; i++) {
        const struct fp8q_piece *p = &c->plan->pieces[i];
        if (p->kind != FP8Q_OUT_CODES) {
            c->kept.n_looked_at++;
            continue;
        }
        uint64_t n = p->n_rows * p->n_cols;
        bool compensated = c->compensated[i];
        c->codes.n_looked_at += compensated && !c->derives ? 0 : n;
        c->bound.n_looked_at += compensated ? 0 : n;
        c->block_bound.n_looked_at += compensated && !c->derives ? n : 0;
        const struct fp8q_out_tensor *s = &c->plan->tensors[p->scale];
        c->scales.n_looked_at += (s->end - s->begin) / sizeof(float);
    }
}

/* Which pieces are compensated, by the manifest; with the calibration file, their sites.  */
static int open_rounding(struct check *c, struct fp8q_error *err)
{
    const struct fp8q_json *list = fp8q_json_path(c->report->manifest.json, "rounding.compensated");
    c->compensated = fp8q_array(c->plan->n_pieces, sizeof(*c->compensated));
    if (!c->compensated)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < c->plan->n_pieces && list; i++) {
        struct fp8q_name buf;
        const struct fp8q_piece *p = &c->plan->pieces[i];
        c->compensated[i] =
            p->kind == FP8Q_OUT_CODES && p->scheme == FP8Q_SCHEME_BLOCK &&
            fp8q_json_has_string(list,
                                 fp8q_calib_site_of(c->plan->ckpt->tensors[p->source].name, &buf));
    }
    c->derives = list && c->options->calibration;
    if (!c->derives)
        return FP8Q_OK;
    return fp8q_rounding_open(c->plan, c->options->calibration, c->options->kernel, list,
                              c->options->watch, &c->rounding, err);
}

static int open_check(struct check *c, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = c->plan;
    unsigned threads = c->options->threads;
    c->tensors = fp8q_array(plan->n_tensors, sizeof(*c->tensors));
    c->workers = fp8q_array(threads, sizeof(*c->workers));
    c->sums = fp8q_array(plan->n_stripes, sizeof(*c->sums));
    if (!c->tensors || !c->workers || !c->sums)
        return fp8q_fail_nomem(err);
    uint64_t bytes = plan->stripe_bytes + 3 * FP8Q_COPY_BYTES;
    FP8Q_TRY(open_rounding(c, err));
    if (c->derives)
        bytes += fp8q_plan_widest_row(plan) * FP8Q_BLOCK * 14 + fp8q_gptq_scratch() + 256;
    for (unsigned i = 0; i < threads; i++) {
        c->workers[i].piece = SIZE_MAX;
        if (bytes > SIZE_MAX ||
            posix_memalign((void **)&c->workers[i].memory, 64, (size_t)bytes) != 0)
            return fp8q_fail_nomem(err);
    }
    FP8Q_TRY(fp8q_files_create(plan->ckpt, &c->sources, err));
    FP8Q_TRY(fp8q_files_create(c->report->ckpt, &c->outputs, err));
    FP8Q_TRY(match_tensors(c, err));
    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        if (!c->tensors[p->output])
            continue;
        fp8q_files_expect(&c->sources, plan->ckpt->tensors[p->source].shard, p->n_stripes);
        fp8q_files_expect(&c->outputs, c->tensors[p->output]->shard, p->n_stripes);
    }
    return FP8Q_OK;
}

static void close_check(struct check *c)
{
    for (unsigned i = 0; c->workers && i < c->options->threads; i++) {
        free(c->workers[i].memory);
        fp8q_weights_reset(&c->workers[i].source);
        fp8q_weights_reset(&c->workers[i].output);
    }
    if (c->sources.ckpt)
        fp8q_files_reset(&c->sources);
    if (c->outputs.ckpt)
        fp8q_files_reset(&c->outputs);
    if (c->derives)
        fp8q_rounding_close(&c->rounding);
    free(c->compensated);
    free(c->workers);
    free(c->tensors);
    free(c->sums);
}

int fp8q_verify_source(struct fp8q_verify_report *report, const struct fp8q_verify_options *o,
                       struct fp8q_payload *payload, struct fp8q_warnings *warnings,
                       struct fp8q_error *err)
{
    FP8Q_TRY(make_plan(report, o, warnings, err));
    struct check c = {
        .report = report,
        .payload = payload,
        .options = o,
        .plan = report->plan,
        .same_rules = report->ours,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .kept = {.id = "kept-identical",
                 .status = FP8Q_CHECK_FAIL,
                 .limit = "kept tensors byte for byte as in the source"},
        .codes = {.id = "codes-equal",
                  .status = FP8Q_CHECK_FAIL,
                  .limit = "codes as derived again"},
        .scales = {.id = "scales-equal",
                   .status = FP8Q_CHECK_FAIL,
                   .limit = "scales as derived again"},
        .bound = {.id = "error-bound", .status = FP8Q_CHECK_FAIL},
        .block_bound = {
            .id = "block-error-bound",
            .status = FP8Q_CHECK_FAIL,
            .limit =
                "compensated blocks: sum of squared errors <= 4 x that of the element bounds"}};
    c.factor = c.same_rules ? 1.0f : 2.0f;
    c.bound.limit = c.same_rules ? "|w - q*s| <= max(|w|/16, s*2^-10)"
                                 : "|w - q*s| <= 2 * max(|w|/16, s*2^-10)";
    report->bound_factor = (double)c.factor;
    int status = open_check(&c, err);
    if (status == FP8Q_OK)
        status = fp8q_pool_run(o->watch, o->threads, c.plan->n_stripes, run_task, &c, err);
    if (status == FP8Q_OK) {
        count_looked_at(&c);
        status = collect_sqnr(&c, err);
    }
    if (status == FP8Q_OK)
        status = fp8q_verify_report_add(report, &c.kept, err);
    if (status == FP8Q_OK && c.same_rules)
        status = fp8q_verify_report_add(report, &c.codes, err);
    if (status == FP8Q_OK && c.same_rules)
        status = fp8q_verify_report_add(report, &c.scales, err);
    if (status == FP8Q_OK)
        status = fp8q_verify_report_add(report, &c.bound, err);
    if (status == FP8Q_OK && c.block_bound.n_looked_at)
        status = fp8q_verify_report_add(report, &c.block_bound, err);
    close_check(&c);
    return status;
}
