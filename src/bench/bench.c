/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.c - a real conversion beside the transfers that it cannot do without, on the same files.
 */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/block.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/mem.h"
#include "base/pool.h"
#include "format/safetensors.h"

enum { MOST_ROUNDS = 32, ROWS = 5632, COLS = 2048 };
#define MATRIX ((uint64_t)ROWS * COLS * 2)
#define CHUNK ((uint64_t)512 << 10)

struct bench {
    const struct fp8q_bench_options *options;
    struct fp8q_bench_files *result;
    char *dir, *source, *output, *sidecar, *scratch;
    char **memory; /* CHUNK bytes a worker */
    uint64_t source_bytes, output_bytes;
    int in, out;
    bool reads, writes;
};

/* ---- the input ------------------------------------------------------------------------------- */

/* Sums of three uniform numbers: as spread out as trained weights are, and the same everywhere.  */
static void fill_matrix(uint16_t *values)
{
    uint64_t state = 1;
    for (size_t i = 0; i < MATRIX / 2; i++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        int sum = (int)(state >> 54) + (int)(state >> 44 & 1023) + (int)(state >> 34 & 1023) - 1534;
        values[i] = fp8q_bf16_from_f32((float)sum * 4e-5f);
    }
}

/* The same values in each matrix: the time of a conversion does not depend on them.  */
static int repeat_matrix(const struct bench *b, int fd, const uint16_t *values, uint64_t n,
                         uint64_t start, struct fp8q_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        FP8Q_TRY(fp8q_pwrite(fd, values, MATRIX, start + i * MATRIX, b->source, err));
        FP8Q_TRY(fp8q_watch_check(b->options->watch, err));
    }
    return FP8Q_OK;
}

static int write_matrices(const struct bench *b, int fd, uint64_t n, uint64_t start,
                          struct fp8q_error *err)
{
    uint16_t *values = fp8q_array(MATRIX / 2, sizeof(*values));
    if (!values)
        return fp8q_fail_nomem(err);

    fill_matrix(values);
    int status = repeat_matrix(b, fd, values, n, start, err);
    free(values);
    return status;
}

/* One matrix a layer, under a name that every conversion quantizes.  */
static int make_header(uint64_t n, struct fp8q_text *header, struct fp8q_error *err)
{
    static const uint64_t shape[2] = {ROWS, COLS};
    const struct fp8q_st_pair format = {"format", "pt", 6, 2};
    struct fp8q_st_tensor *tensors = fp8q_array(n, sizeof(*tensors));
    char(*names)[64] = fp8q_array(n, sizeof(*names));
    int status;

    if (!tensors || !names) {
        status = fp8q_fail_nomem(err);
    } else {
        for (uint64_t i = 0; i < n; i++) {
            snprintf(names[i], sizeof(*names), "model.layers.%llu.mlp.up_proj.weight",
                     (unsigned long long)i);
            tensors[i] = (struct fp8q_st_tensor){
                names[i], (uint64_t *)shape, i * MATRIX, (i + 1) * MATRIX, 2, FP8Q_BF16};
        }
        status = fp8q_st_emit(tensors, n, &format, 1, 0, header, err);
    }

    free(tensors);
    free(names);
    return status;
}

static int write_source(struct bench *b, uint64_t n, const struct fp8q_text *header, int *fd_out,
                        struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_create(b->source, fd_out, err));
    FP8Q_TRY(fp8q_pwrite(*fd_out, header->data, header->len, 0, b->source, err));
    FP8Q_TRY(write_matrices(b, *fd_out, n, header->len, err));

    /* Else its write-back would disturb what is timed after it.  */
    return fp8q_fsync(*fd_out, b->source, err);
}

static int make_source(struct bench *b, struct fp8q_error *err)
{
    /* One more, so that at least the size that was asked for is reached.  */
    uint64_t n = b->options->size_bytes / MATRIX + 1;
    struct fp8q_text header = {0};
    int fd = -1;
    int status = make_header(n, &header, err);
    if (status == FP8Q_OK)
        status = write_source(b, n, &header, &fd, err);

    b->source_bytes = header.len + n * MATRIX;
    b->output_bytes = header.len + n * MATRIX / 2;
    (void)fp8q_close(&fd, b->source, NULL);
    fp8q_text_reset(&header);
    return status;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* A chunk of the source, then the share of the output that belongs to it.  */
static int transfer(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct bench *b = ctx;
    uint64_t at = task * CHUNK;
    size_t n = (size_t)fp8q_min_u64(b->source_bytes - at, CHUNK);
    if (b->reads)
        FP8Q_TRY(fp8q_pread(b->in, b->memory[worker], n, at, b->source, err));
    /* Half as many bytes: a BF16 value has two, an FP8 value one.  */
    if (b->writes)
        FP8Q_TRY(fp8q_pwrite(b->out, b->memory[worker], n / 2, at / 2, b->scratch, err));
    return FP8Q_OK;
}

static void close_transfer(struct bench *b)
{
    (void)fp8q_close(&b->in, b->source, NULL);
    (void)fp8q_close(&b->out, b->scratch, NULL);
    (void)fp8q_remove_tree(b->scratch, NULL);
}

/* Opening, reserving and closing belong to a transfer, so they are timed; @flush_out is what the
 * flush took after that.  */
static int run_transfer(struct bench *b, double *used_out, double *flush_out,
                        struct fp8q_error *err)
{
    double start = fp8q_bench_now();
    FP8Q_TRY(fp8q_open_read(b->source, NULL, &b->in, err));
    if (b->writes) {
        FP8Q_TRY(fp8q_create(b->scratch, &b->out, err));
        FP8Q_TRY(fp8q_reserve(b->out, b->output_bytes, b->scratch, err));
    }
    FP8Q_TRY(fp8q_pool_run(b->options->watch, b->options->threads,
                           fp8q_ceil_div(b->source_bytes, CHUNK), transfer, b, err));
    *used_out = fp8q_bench_now() - start;

    if (b->writes)
        FP8Q_TRY(fp8q_fsync(b->out, b->scratch, err));
    *flush_out = fp8q_bench_now() - start - *used_out;
    return FP8Q_OK;
}

static int time_transfer(struct bench *b, bool reads, bool writes, double *used_out,
                         double *flush_out, struct fp8q_error *err)
{
    b->reads = reads;
    b->writes = writes;
    int status = run_transfer(b, used_out, flush_out, err);

    close_transfer(b);
    return status;
}

/* What cp does: one thread, the whole file.  */
static int run_copy(struct bench *b, double *used_out, double *flush_out, struct fp8q_error *err)
{
    double start = fp8q_bench_now();
    FP8Q_TRY(fp8q_open_read(b->source, NULL, &b->in, err));
    FP8Q_TRY(fp8q_create(b->scratch, &b->out, err));
    for (uint64_t at = 0, n; at < b->source_bytes; at += n) {
        n = fp8q_min_u64(b->source_bytes - at, CHUNK / 2);
        FP8Q_TRY(fp8q_pread(b->in, b->memory[0], (size_t)n, at, b->source, err));
        FP8Q_TRY(fp8q_pwrite(b->out, b->memory[0], (size_t)n, at, b->scratch, err));
        FP8Q_TRY(fp8q_watch_check(b->options->watch, err));
    }
    *used_out = fp8q_bench_now() - start;

    FP8Q_TRY(fp8q_fsync(b->out, b->scratch, err));
    *flush_out = fp8q_bench_now() - start - *used_out;
    return FP8Q_OK;
}

static int time_copy(struct bench *b, double *used_out, double *flush_out, struct fp8q_error *err)
{
    int status = run_copy(b, used_out, flush_out, err);

    close_transfer(b);
    return status;
}

/* ---- the conversion -------------------------------------------------------------------------- */

/* All that `fp8q quantize` does, from opening the source to the final name.  */
static int time_quantize(struct bench *b, double *used_out, struct fp8q_error *err)
{
    struct fp8q_conversion *conversion = NULL;
    struct fp8q_request request;
    struct fp8q_run run;
    fp8q_request_init(&request);
    request.source = b->source;
    fp8q_run_init(&run);
    run.threads = b->options->threads;
    run.kernel = b->options->kernel->name;
    run.cancel = b->options->watch ? b->options->watch->cancel : NULL;

    double start = fp8q_bench_now();
    int status = fp8q_conversion_open(&request, &run, &conversion, NULL, err);
    if (status == FP8Q_OK)
        status = fp8q_conversion_run(conversion, b->output, NULL, err);
    *used_out = fp8q_bench_now() - start;

    fp8q_conversion_close(conversion);
    (void)fp8q_remove_tree(b->output, NULL);
    (void)fp8q_remove_tree(b->sidecar, NULL);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
    qsort(values, n, sizeof(*values), by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Everything in turn, round after round, so that other load on the machine meets all alike.  */
static int measure(struct bench *b, struct fp8q_error *err)
{
    enum { READ, WRITE, FLUSH_WRITE, BOTH, COPY, FLUSH_COPY, QUANTIZE, N };
    double times[N][MOST_ROUNDS], ignored;
    /* A median needs one round at least; @times has room for MOST_ROUNDS.  */
    unsigned n = (unsigned)fp8q_min_u64(fp8q_max_u64(b->options->rounds, 1), MOST_ROUNDS);

    for (unsigned i = 0; i < n; i++) {
        FP8Q_TRY(time_quantize(b, &times[QUANTIZE][i], err));
        FP8Q_TRY(time_copy(b, &times[COPY][i], &times[FLUSH_COPY][i], err));
        FP8Q_TRY(time_transfer(b, true, false, &times[READ][i], &ignored, err));
        FP8Q_TRY(time_transfer(b, false, true, &times[WRITE][i], &times[FLUSH_WRITE][i], err));
        FP8Q_TRY(time_transfer(b, true, true, &times[BOTH][i], &ignored, err));
    }

    *b->result = (struct fp8q_bench_files){
        .source_bytes = b->source_bytes,
        .output_bytes = b->output_bytes,
        .read = median(times[READ], n),
        .write = median(times[WRITE], n),
        .transfer = median(times[BOTH], n),
        .copy = median(times[COPY], n),
        .quantize = median(times[QUANTIZE], n),
        .flush_write = median(times[FLUSH_WRITE], n),
        .flush_copy = median(times[FLUSH_COPY], n),
    };
    return FP8Q_OK;
}

static int open_bench(struct bench *b, struct fp8q_error *err)
{
    unsigned threads = b->options->threads;
    b->dir = fp8q_join_unique(b->options->dir, "fp8q-bench");
    b->memory = fp8q_array(threads, sizeof(*b->memory));
    if (!b->dir || !b->memory)
        return fp8q_fail_nomem(err);

    b->source = fp8q_join(b->dir, "source.safetensors");
    b->output = fp8q_join(b->dir, "output.safetensors");
    b->sidecar = fp8q_join(b->dir, "output.scales.safetensors");
    b->scratch = fp8q_join(b->dir, "scratch");
    if (!b->source || !b->output || !b->sidecar || !b->scratch)
        return fp8q_fail_nomem(err);

    for (unsigned i = 0; i < threads; i++)
        if (posix_memalign((void **)&b->memory[i], 64, CHUNK) != 0)
            return fp8q_fail_nomem(err);
    /* Pages that nobody wrote to would make the first transfer pay for them.  */
    for (unsigned i = 0; i < threads; i++)
        memset(b->memory[i], 1, CHUNK);

    return fp8q_mkdir(b->dir, err);
}

static void close_bench(struct bench *b)
{
    if (b->dir)
        (void)fp8q_remove_tree(b->dir, NULL);

    for (unsigned i = 0; b->memory && i < b->options->threads; i++)
        free(b->memory[i]);
    free(b->memory);
    free(b->dir);
    free(b->source);
    free(b->output);
    free(b->sidecar);
    free(b->scratch);
}

static int run_bench(struct bench *b, struct fp8q_error *err)
{
    FP8Q_TRY(open_bench(b, err));
    FP8Q_TRY(make_source(b, err));
    return measure(b, err);
}

int fp8q_bench_files(const struct fp8q_bench_options *options, struct fp8q_bench_files *result,
                     struct fp8q_error *err)
{
    struct bench b = {.options = options, .result = result, .in = -1, .out = -1};
    *result = (struct fp8q_bench_files){0};

    int status = run_bench(&b, err);
    close_bench(&b);
    return status;
}
