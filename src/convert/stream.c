/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c - workers, open files, and the end of each shard.
 */
#include "convert/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "checkpoint/files.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/crc.h"
#include "base/mem.h"
#include "base/pool.h"
#include "convert/record.h"
#include "convert/stripe.h"

/* A file that is open while stripes of it are left.  */
struct open_file {
    int fd;
    char *path;
    uint64_t stripes_left;
    pthread_mutex_t writer; /* held while writing: the kernel takes one writer a file anyway */
    uint64_t unflushed;     /* bytes written since write-back was last started; under @writer */
};

enum { MAX_PENDING = 8 };

/* Write-back starts whenever so much has been written: the disk then works while the processor
 * does, and the fsync at the end of a shard finds little left.  */
#define FLUSH_BYTES ((uint64_t)8 << 20)

struct worker {
    char *memory; /* stripe at work in front, stripes to be written at the end */
    size_t held;  /* bytes of the latter */
    struct pending {
        struct fp8q_stripe_job job;
        uint64_t number; /* of the stripe */
    } pending[MAX_PENDING];
    unsigned n_pending;
    char *compensation;          /* with error-compensated rounding */
    struct fp8q_weights weights; /* scales of the FP8 source at hand */
    size_t weights_of;           /* its index, or SIZE_MAX */
};

struct stream {
    const struct fp8q_plan *plan;
    const struct fp8q_stream_options *options;
    struct fp8q_results results;
    pthread_mutex_t lock; /* guards outputs, scales and tensor_amax */
    struct fp8q_files sources;
    struct open_file *outputs;
    float **scales; /* by output shard, while it is open */
    struct worker *workers;
    unsigned n_workers;
    size_t memory_size; /* of each worker */
    uint64_t *stripes;  /* numbers of the stripes to do */
    uint64_t n_stripes;
    uint32_t *source_crc, *output_crc; /* by stripe number */
    float *tensor_amax;                /* by piece, for per-tensor scales */
    _Atomic uint64_t done_bytes;
    uint64_t total_bytes;
};

/* ---- shards open and close ------------------------------------------------------------------- */

static uint32_t source_shard(const struct stream *s, const struct fp8q_piece *p)
{
    return s->plan->ckpt->tensors[p->source].shard;
}

static uint32_t output_shard(const struct stream *s, const struct fp8q_piece *p)
{
    return s->plan->tensors[p->output].shard == s->plan->sidecar
               ? UINT32_MAX
               : s->plan->tensors[p->output].shard;
}

/* Creates the shard, or takes over what a killed run left of it, with its full size reserved.  */
static int open_output(struct stream *s, uint32_t shard, struct fp8q_error *err)
{
    const struct fp8q_out_shard *o = &s->plan->shards[shard];
    struct open_file *f = &s->outputs[shard];
    /* A worker may come here again after another one failed.  */
    if (!s->scales[shard])
        s->scales[shard] = fp8q_array(o->scale_bytes, 1);
    if (!f->path)
        f->path = s->options->shared ? fp8q_join_unique(s->options->record_dir, "shard")
                                     : fp8q_join(s->options->out_dir, o->name);
    if (!s->scales[shard] || !f->path)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(fp8q_remove_tree(f->path, err));
    FP8Q_TRY(fp8q_create(f->path, &f->fd, err));
    FP8Q_TRY(fp8q_reserve(f->fd, o->size_bytes, f->path, err));
    return fp8q_pwrite(f->fd, o->header, (size_t)o->data_start, 0, f->path, err);
}

/* Opens what a stripe needs; the files stay open until their last stripe.  */
static int acquire(struct stream *s, const struct fp8q_piece *p, int *src_fd_out,
                   struct fp8q_error *err)
{
    uint32_t out = output_shard(s, p);
    FP8Q_TRY(fp8q_files_acquire(&s->sources, source_shard(s, p), src_fd_out, err));
    pthread_mutex_lock(&s->lock);
    int status = s->outputs[out].fd < 0 ? open_output(s, out, err) : FP8Q_OK;
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- the end of a shard ---------------------------------------------------------------------- */

/* Checksum of a whole tensor from those of its stripes.  */
static uint32_t join_stripes(const struct fp8q_piece *p, const uint32_t *crc, uint64_t stripe_len,
                             uint64_t total_len, uint32_t before)
{
    uint32_t joined = before;
    for (uint64_t i = 0; i < p->n_stripes; i++) {
        uint64_t at = i * stripe_len, left = total_len - at;
        joined = fp8q_crc32_join(joined, crc[p->first_stripe + i],
                                 left < stripe_len ? left : stripe_len);
    }
    return joined;
}

static void join_piece(struct stream *s, const struct fp8q_piece *p, const float *scales)
{
    const struct fp8q_tensor *t = &s->plan->ckpt->tensors[p->source];
    const struct fp8q_out_tensor *o = &s->plan->tensors[p->output];
    bool kept = p->kind == FP8Q_OUT_KEPT;
    uint64_t in_row = kept ? 1 : p->n_cols * (fp8q_dtype_bits(t->dtype) / 8);
    uint64_t out_row = kept ? 1 : p->n_cols * (fp8q_dtype_bits(o->dtype) / 8);
    uint64_t rows = kept ? FP8Q_COPY_BYTES : FP8Q_BLOCK;
    uint64_t n_rows = kept ? p->n_cols : p->n_rows;
    uint32_t *source = &s->results.source_crc[p->source];
    *source = join_stripes(p, s->source_crc, rows * in_row, n_rows * in_row, *source);
    s->results.output_crc[p->output] =
        join_stripes(p, s->output_crc, rows * out_row, n_rows * out_row, 0);
    if (p->scale != SIZE_MAX) {
        const struct fp8q_out_tensor *scale = &s->plan->tensors[p->scale];
        s->results.output_crc[p->scale] = fp8q_crc32(0, (const char *)scales + p->scale_offset,
                                                     (size_t)(scale->end - scale->begin));
    }
}

static int write_inline_scales(const struct stream *s, uint32_t shard, struct fp8q_error *err)
{
    const struct fp8q_out_shard *o = &s->plan->shards[shard];
    for (size_t i = o->first_piece; i < o->first_piece + o->n_pieces; i++) {
        const struct fp8q_piece *p = &s->plan->pieces[i];
        if (p->scale == SIZE_MAX)
            continue;
        const struct fp8q_out_tensor *t = &s->plan->tensors[p->scale];
        FP8Q_TRY(fp8q_pwrite(s->outputs[shard].fd, (const char *)s->scales[shard] + p->scale_offset,
                             (size_t)(t->end - t->begin), o->data_start + t->begin,
                             s->outputs[shard].path, err));
    }
    return FP8Q_OK;
}

/* The name must be on disk before the record that vouches for it.  */
static int give_name(const struct stream *s, const struct open_file *f, const char *name,
                     struct fp8q_error *err)
{
    char *path = fp8q_join(s->options->out_dir, name);
    int status = path ? fp8q_rename(f->path, path, err) : fp8q_fail_nomem(err);
    char *slash = path ? strrchr(path, '/') : NULL;
    if (slash)
        *slash = '\0';
    if (status == FP8Q_OK)
        status = fp8q_fsync_dir(path, err);
    free(path);
    return status;
}

/* All stripes are written: scales, fsync, close, record.  */
static int end_output(struct stream *s, uint32_t shard, struct fp8q_error *err)
{
    const struct fp8q_out_shard *o = &s->plan->shards[shard];
    struct open_file *f = &s->outputs[shard];
    for (size_t i = o->first_piece; i < o->first_piece + o->n_pieces; i++)
        join_piece(s, &s->plan->pieces[i], s->scales[shard]);
    if (s->plan->options.scales == FP8Q_SCALES_INLINE)
        FP8Q_TRY(write_inline_scales(s, shard, err));
    FP8Q_TRY(fp8q_fsync(f->fd, f->path, err));
    if (s->sources.outgrows_memory)
        fp8q_drop_cache(f->fd, 0, 0);
    FP8Q_TRY(fp8q_close(&f->fd, f->path, err));
    if (s->options->shared)
        FP8Q_TRY(give_name(s, f, o->name, err));
    FP8Q_TRY(fp8q_record_write(s->plan, shard, s->options->record_dir, &s->results,
                               s->scales[shard], err));
    free(s->scales[shard]);
    s->scales[shard] = NULL;
    return FP8Q_OK;
}

static int release(struct stream *s, const struct fp8q_piece *p, struct fp8q_error *err)
{
    uint32_t out = output_shard(s, p);
    FP8Q_TRY(fp8q_files_release(&s->sources, source_shard(s, p), err));
    pthread_mutex_lock(&s->lock);
    bool last_out = --s->outputs[out].stripes_left == 0;
    pthread_mutex_unlock(&s->lock);
    return last_out ? end_output(s, out, err) : FP8Q_OK;
}

/* ---- one stripe ------------------------------------------------------------------------------ */

/* The scales of an FP8 source; one read for all stripes that this worker takes in a row.  */
static int load_weights(struct stream *s, struct worker *w, const struct fp8q_piece *p,
                        struct fp8q_error *err)
{
    const struct fp8q_tensor *t = &s->plan->ckpt->tensors[p->source];
    if (t->dtype != FP8Q_F8_E4M3 || p->kind == FP8Q_OUT_KEPT || w->weights_of == p->source)
        return FP8Q_OK;
    fp8q_weights_reset(&w->weights);
    w->weights_of = SIZE_MAX;
    FP8Q_TRY(fp8q_weights_open(s->plan->ckpt, t->name, &w->weights, err));
    w->weights_of = p->source;
    return FP8Q_OK;
}

static struct fp8q_stripe_job make_job(struct stream *s, struct worker *w,
                                       const struct fp8q_piece *p, uint64_t number, int src_fd)
{
    uint32_t in = source_shard(s, p), out = output_shard(s, p);
    return (struct fp8q_stripe_job){
        .plan = s->plan,
        .piece = p,
        .stripe = number - p->first_stripe,
        .kernel = s->options->kernel,
        .src_fd = src_fd,
        .src_path = s->plan->ckpt->shards[in].path,
        .dst_fd = s->outputs[out].fd,
        .dst_path = s->outputs[out].path,
        .weights = w->weights_of == p->source ? &w->weights : NULL,
        .memory = w->memory,
        .memory_size = s->memory_size - w->held,
        .scales = p->scale == SIZE_MAX
                      ? NULL
                      : (float *)(void *)((char *)s->scales[out] + p->scale_offset)};
}

static void report_progress(struct stream *s, const struct fp8q_piece *p)
{
    uint64_t bytes = fp8q_plan_stripe_bytes(s->plan, p);
    uint64_t done = atomic_fetch_add(&s->done_bytes, bytes) + bytes;
    fp8q_watch_report(s->options->watch, s->plan->options.dequantize ? "dequantize" : "quantize",
                      done, s->total_bytes, FP8Q_UNIT_BYTES);
}

static int quantize_stripe(struct stream *s, struct worker *w, struct fp8q_stripe_job *job,
                           struct fp8q_error *err)
{
    struct fp8q_rounding *r = s->options->rounding;
    size_t source = job->piece->source;
    if (!r)
        return fp8q_stripe_quantize(job, err);
    FP8Q_TRY(fp8q_rounding_acquire(r, source, &job->site, err));
    job->gemm = r->gemm;
    job->compensation = w->compensation;
    int status = fp8q_stripe_quantize(job, err);
    fp8q_rounding_release(r, source);
    return status;
}

static int end_stripe(struct stream *s, const struct pending *done, struct fp8q_error *err)
{
    const struct fp8q_piece *p = done->job.piece;
    s->source_crc[done->number] = done->job.source_crc;
    s->output_crc[done->number] = done->job.output_crc;
    report_progress(s, p);
    return release(s, p, err);
}

/* Writes the stripes that this worker has ready, oldest first; unless @wait, only while no other
 * worker is writing to the same file.  */
static int write_pending(struct stream *s, struct worker *w, bool wait, struct fp8q_error *err)
{
    unsigned n = 0;
    int status = FP8Q_OK;
    for (; n < w->n_pending && status == FP8Q_OK; n++) {
        struct pending *next = &w->pending[n];
        struct open_file *f = &s->outputs[output_shard(s, next->job.piece)];
        if (wait)
            pthread_mutex_lock(&f->writer);
        else if (pthread_mutex_trylock(&f->writer) != 0)
            break;
        status = fp8q_stripe_write(&next->job, err);
        f->unflushed += next->job.out_len;
        bool flush = f->unflushed >= FLUSH_BYTES;
        if (flush)
            f->unflushed = 0;
        pthread_mutex_unlock(&f->writer);
        if (flush) {
            const struct fp8q_tensor *t = &s->plan->ckpt->tensors[next->job.piece->source];
            fp8q_start_writeback(next->job.dst_fd, 0, 0);
            fp8q_files_passed(&s->sources, t->shard, t->offset);
        }
        if (status == FP8Q_OK)
            status = end_stripe(s, next, err);
    }
    w->n_pending -= n;
    memmove(w->pending, w->pending + n, w->n_pending * sizeof(*w->pending));
    if (w->n_pending == 0)
        w->held = 0;
    return status;
}

static int make_stripe(struct stream *s, struct worker *w, struct fp8q_stripe_job *job,
                       struct fp8q_error *err)
{
    const struct fp8q_piece *p = job->piece;
    if (p->kind == FP8Q_OUT_KEPT)
        return fp8q_stripe_copy(job, err);
    if (p->kind == FP8Q_OUT_FLOAT)
        return fp8q_stripe_float(job, err);
    if (p->scheme == FP8Q_SCHEME_TENSOR) {
        job->tensor_scale = fp8q_scale(s->tensor_amax[p - s->plan->pieces], FP8Q_SCALE_F32);
        if (job->stripe == 0)
            job->scales[0] = job->tensor_scale;
    }
    return quantize_stripe(s, w, job, err);
}

static int run_stripe(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct stream *s = ctx;
    struct worker *w = &s->workers[worker];
    uint64_t number = s->stripes[task];
    const struct fp8q_piece *p = fp8q_plan_piece(s->plan, number);
    int src_fd;
    if (w->n_pending == MAX_PENDING ||
        fp8q_stripe_need(s->plan, p, s->options->rounding != NULL) > s->memory_size - w->held)
        FP8Q_TRY(write_pending(s, w, true, err));
    FP8Q_TRY(acquire(s, p, &src_fd, err));
    FP8Q_TRY(load_weights(s, w, p, err));
    struct pending *made = &w->pending[w->n_pending];
    *made = (struct pending){make_job(s, w, p, number, src_fd), number};
    FP8Q_TRY(make_stripe(s, w, &made->job, err));
    if (made->job.out_len == 0)
        return end_stripe(s, made, err);
    w->n_pending++;
    w->held = s->memory_size - (size_t)(made->job.out - w->memory);
    return write_pending(s, w, false, err);
}

static int write_rest(struct stream *s, struct fp8q_error *err)
{
    for (unsigned i = 0; i < s->n_workers; i++)
        FP8Q_TRY(write_pending(s, &s->workers[i], true, err));
    return FP8Q_OK;
}

/* Per-tensor scales need all of a tensor before its first code.  */
static int measure_stripe(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct stream *s = ctx;
    uint64_t number = s->stripes[task];
    const struct fp8q_piece *p = fp8q_plan_piece(s->plan, number);
    float amax;
    if (p->kind != FP8Q_OUT_CODES || p->scheme != FP8Q_SCHEME_TENSOR)
        return FP8Q_OK;
    int src_fd;
    FP8Q_TRY(acquire(s, p, &src_fd, err));
    FP8Q_TRY(load_weights(s, &s->workers[worker], p, err));
    struct fp8q_stripe_job job = make_job(s, &s->workers[worker], p, number, src_fd);
    FP8Q_TRY(fp8q_stripe_amax_only(&job, &amax, err));
    pthread_mutex_lock(&s->lock);
    float *largest = &s->tensor_amax[p - s->plan->pieces];
    *largest = amax > *largest ? amax : *largest;
    pthread_mutex_unlock(&s->lock);
    return fp8q_files_release(&s->sources, source_shard(s, p), err);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Counts what is to be done, by stripe and by file.  */
static void list_stripes(struct stream *s)
{
    for (size_t i = 0; i < s->plan->n_pieces; i++) {
        const struct fp8q_piece *p = &s->plan->pieces[i];
        uint32_t out = output_shard(s, p);
        if (s->options->skip[out])
            continue;
        for (uint64_t k = 0; k < p->n_stripes; k++)
            s->stripes[s->n_stripes++] = p->first_stripe + k;
        bool measured = p->kind == FP8Q_OUT_CODES && p->scheme == FP8Q_SCHEME_TENSOR;
        fp8q_files_expect(&s->sources, source_shard(s, p), p->n_stripes * (measured ? 2 : 1));
        s->outputs[out].stripes_left += p->n_stripes;
        if (p->n_stripes)
            s->total_bytes += s->plan->ckpt->tensors[p->source].size_bytes;
    }
}

/* Each worker can hold a source and an output open, and some more are open anyway.  */
static unsigned thread_limit(unsigned threads)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        rlim_t pairs = limit.rlim_cur > 24 ? (limit.rlim_cur - 16) / 4 : 1;
        if (threads > pairs)
            threads = (unsigned)pairs;
    }
    return threads;
}

static int open_stream(struct stream *s, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = s->plan;
    pthread_mutex_init(&s->lock, NULL);
    s->n_workers = thread_limit(plan->threads);
    s->outputs = fp8q_array(plan->n_shards, sizeof(*s->outputs));
    s->scales = fp8q_array(plan->n_shards, sizeof(*s->scales));
    s->workers = fp8q_array(s->n_workers, sizeof(*s->workers));
    s->stripes = fp8q_array(plan->n_stripes, sizeof(*s->stripes));
    s->source_crc = fp8q_array(plan->n_stripes, sizeof(*s->source_crc));
    s->output_crc = fp8q_array(plan->n_stripes, sizeof(*s->output_crc));
    s->tensor_amax = fp8q_array(plan->n_pieces, sizeof(*s->tensor_amax));
    s->memory_size =
        (size_t)(plan->stripe_bytes > FP8Q_COPY_BYTES ? plan->stripe_bytes : FP8Q_COPY_BYTES);
    for (size_t i = 0; s->outputs && i < plan->n_shards; i++)
        s->outputs[i] = (struct open_file){.fd = -1, .writer = PTHREAD_MUTEX_INITIALIZER};
    for (unsigned i = 0; s->workers && i < s->n_workers; i++)
        s->workers[i].weights_of = SIZE_MAX;
    if (!s->outputs || !s->scales || !s->workers || !s->stripes || !s->source_crc ||
        !s->output_crc || !s->tensor_amax)
        return fp8q_fail_nomem(err);
    size_t scratch = 0;
    if (s->options->rounding) {
        s->memory_size += (size_t)(fp8q_plan_widest_row(plan) * FP8Q_BLOCK * 13 + 128);
        scratch = fp8q_gptq_scratch();
    }
    s->memory_size = s->memory_size / 64 * 64;
    for (unsigned i = 0; i < s->n_workers; i++) {
        struct worker *w = &s->workers[i];
        if (posix_memalign((void **)&w->memory, 64, s->memory_size + scratch) != 0)
            return fp8q_fail_nomem(err);
        w->compensation = w->memory + s->memory_size;
    }
    FP8Q_TRY(fp8q_files_create(plan->ckpt, &s->sources, err));
    return fp8q_results_create(plan, &s->results, err);
}

static void close_stream(struct stream *s)
{
    fp8q_files_reset(&s->sources);
    for (size_t i = 0; i < s->plan->n_shards; i++) {
        if (s->outputs) {
            if (s->options->shared && s->outputs[i].fd >= 0) /* nobody else knows its name */
                (void)fp8q_remove_tree(s->outputs[i].path, NULL);
            (void)fp8q_close(&s->outputs[i].fd, "", NULL); /* open only after a failure */
            free(s->outputs[i].path);
        }
        if (s->scales)
            free(s->scales[i]);
    }
    for (unsigned i = 0; s->workers && i < s->n_workers; i++) {
        free(s->workers[i].memory);
        fp8q_weights_reset(&s->workers[i].weights);
    }
    free(s->outputs);
    free(s->scales);
    free(s->workers);
    free(s->stripes);
    free(s->source_crc);
    free(s->output_crc);
    free(s->tensor_amax);
    fp8q_results_reset(&s->results);
    pthread_mutex_destroy(&s->lock);
}

/* Shards whose tensors are all empty have no stripe that could end them.  */
static int write_empty_shards(struct stream *s, struct fp8q_error *err)
{
    for (uint32_t i = 0; i < s->plan->n_shards; i++) {
        if (i == s->plan->sidecar || s->options->skip[i] || s->outputs[i].stripes_left > 0)
            continue;
        FP8Q_TRY(open_output(s, i, err));
        FP8Q_TRY(end_output(s, i, err));
    }
    return FP8Q_OK;
}

int fp8q_stream(const struct fp8q_plan *plan, const struct fp8q_stream_options *options,
                struct fp8q_error *err)
{
    struct stream s = {.plan = plan, .options = options};
    int status = open_stream(&s, err);
    if (status == FP8Q_OK) {
        list_stripes(&s);
        status = write_empty_shards(&s, err);
    }
    if (status == FP8Q_OK && plan->options.select.scheme == FP8Q_SCHEME_TENSOR)
        status = fp8q_pool_run(options->watch, s.n_workers, s.n_stripes, measure_stripe, &s, err);
    if (status == FP8Q_OK)
        status = fp8q_pool_run(options->watch, s.n_workers, s.n_stripes, run_stripe, &s, err);
    if (status == FP8Q_OK)
        status = write_rest(&s, err);
    close_stream(&s);
    return status;
}
