/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c - workers.
 *
 * A task is one stripe: 128 rows of one matrix, or a megabyte of a kept tensor.  A worker reads it
 * into the front of its memory and leaves what is to be written at the end:
 *
 *     | stripe at work ->        ...        | pending 2 | pending 1 | pending 0 |
 *
 * The kernel lets one writer at a time into a file.  So a worker writes only while the file is
 * free, and else goes on with the next stripe, until its memory is full or MAX_PENDING stripes
 * wait.  Bytes go to planned offsets and checksums are joined by row, so nothing that is written
 * depends on who did what.  Several shards are at work at a time, their stripes mixed.
 * shards.c has the files.
 */
#include "convert/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "checkpoint/files.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/pool.h"
#include "convert/stripe.h"
#include "checkpoint/scales.h"

/* More do not help: eight stripes of the usual size fill a worker's memory.  */
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
    struct fp8q_files sources;
    struct fp8q_shards outputs;
    pthread_mutex_t lock; /* guards group_amax */
    struct worker *workers;
    unsigned n_workers;
    size_t memory_size; /* of each worker */
    uint64_t *stripes;  /* numbers of the stripes to do */
    uint64_t n_stripes;
    float *group_amax; /* by piece->group, for per-tensor scales */
    _Atomic uint64_t done_bytes;
    uint64_t total_bytes;
};

/* ---- files ----------------------------------------------------------------------------------- */

static uint32_t source_shard(const struct stream *s, const struct fp8q_piece *p)
{
    return s->plan->ckpt->tensors[p->source].shard;
}

static uint32_t output_shard(const struct stream *s, const struct fp8q_piece *p)
{
    return s->plan->tensors[p->output].shard;
}

/* Opens what a stripe needs; the files stay open until their last stripe.  */
static int acquire(struct stream *s, const struct fp8q_piece *p, int *src_fd_out,
                   struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_files_acquire(&s->sources, source_shard(s, p), src_fd_out, err));
    return fp8q_shards_acquire(&s->outputs, output_shard(s, p), err);
}

static int release(struct stream *s, const struct fp8q_piece *p, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_files_release(&s->sources, source_shard(s, p), err));
    return fp8q_shards_release(&s->outputs, output_shard(s, p), err);
}

/* ---- one stripe ------------------------------------------------------------------------------ */

/* The scales of an FP8 source; one read for all stripes that this worker takes in a row.  */
static int load_weights(struct stream *s, struct worker *w, const struct fp8q_piece *p,
                        struct fp8q_error *err)
{
    const struct fp8q_tensor *t = &s->plan->ckpt->tensors[p->source];
    if (!fp8q_is_fp8(t->dtype) || p->kind == FP8Q_OUT_KEPT || w->weights_of == p->source)
        return FP8Q_OK;

    /* Forgotten first: after a read that fails, no stripe may use what is there.  */
    fp8q_weights_reset(&w->weights);
    w->weights_of = SIZE_MAX;
    FP8Q_TRY(fp8q_weights_open(s->plan->ckpt, t->name, &w->weights, err));
    w->weights_of = p->source;
    return FP8Q_OK;
}

static struct fp8q_stripe_job make_job(struct stream *s, struct worker *w,
                                       const struct fp8q_piece *p, uint64_t number, int src_fd)
{
    const struct fp8q_open_output *f = &s->outputs.files[output_shard(s, p)];
    float *scales = NULL;

    if (p->scale != SIZE_MAX)
        scales = (float *)(void *)((char *)f->scales + p->scale_offset);

    return (struct fp8q_stripe_job){.plan = s->plan,
                                    .piece = p,
                                    .stripe = number - p->first_stripe,
                                    .kernel = s->options->kernel,
                                    .src_fd = src_fd,
                                    .src_path = s->plan->ckpt->shards[source_shard(s, p)].path,
                                    .dst_fd = f->fd,
                                    .dst_path = f->path,
                                    .weights = w->weights_of == p->source ? &w->weights : NULL,
                                    .memory = w->memory,
                                    .memory_size = s->memory_size - w->held,
                                    .scales = scales};
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
    const struct fp8q_codes *codes = s->options->codes;
    size_t source = job->piece->source;
    if (codes && fp8q_codes_take(codes, source))
        job->codes = codes;
    if (!r)
        return fp8q_stripe_quantize(job, err);

    /* Released after a failure, too: a Hessian that has a user stays in memory.  */
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

    /* Before the release: the one of the last stripe joins the checksums of the whole shard.  */
    s->outputs.source_crc[done->number] = done->job.source_crc;
    s->outputs.output_crc[done->number] = done->job.output_crc;
    report_progress(s, p);
    return release(s, p, err);
}

/* Writes one stripe; unless @wait, only if no other worker is writing to the same file (else
 * *@written_out is false).  */
static int write_stripe(struct stream *s, struct pending *next, bool wait, bool *written_out,
                        struct fp8q_error *err)
{
    struct fp8q_open_output *f = &s->outputs.files[output_shard(s, next->job.piece)];

    if (wait)
        pthread_mutex_lock(&f->writer);
    *written_out = wait || pthread_mutex_trylock(&f->writer) == 0;
    if (!*written_out)
        return FP8Q_OK;

    int status = fp8q_stripe_write(&next->job, err);
    f->unflushed += next->job.out_len;
    bool flush = f->unflushed >= FLUSH_BYTES;
    if (flush)
        f->unflushed = 0;
    pthread_mutex_unlock(&f->writer);

    /* Outside of the lock, since another worker may write meanwhile.  */
    if (flush) {
        const struct fp8q_tensor *t = &s->plan->ckpt->tensors[next->job.piece->source];
        fp8q_start_writeback(next->job.dst_fd, 0, 0);
        fp8q_files_passed(&s->sources, t->shard, t->offset);
    }
    return status;
}

/* The stripes that this worker has ready, oldest first; *@n_done counts those that are gone.  */
static int write_in_turn(struct stream *s, struct worker *w, bool wait, unsigned *n_done,
                         struct fp8q_error *err)
{
    for (*n_done = 0; *n_done < w->n_pending;) {
        struct pending *next = &w->pending[*n_done];
        bool written = false;
        int status = write_stripe(s, next, wait, &written, err);
        if (!written)
            return FP8Q_OK;

        /* One that failed is gone, too: nobody is to write it again.  */
        ++*n_done;
        FP8Q_TRY(status);
        FP8Q_TRY(end_stripe(s, next, err));
    }
    return FP8Q_OK;
}

static int write_pending(struct stream *s, struct worker *w, bool wait, struct fp8q_error *err)
{
    unsigned n;
    int status = write_in_turn(s, w, wait, &n, err);

    w->n_pending -= n;
    memmove(w->pending, w->pending + n, w->n_pending * sizeof(*w->pending));

    /* Memory is given back only as a whole: what still waits lies in front of what went.  */
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

    /* Known since measure_stripe(); one stripe writes it, so that no two write the same word.  */
    if (p->scheme == FP8Q_SCHEME_TENSOR) {
        job->tensor_scale = fp8q_scale(s->group_amax[p->group], FP8Q_SCALE_F32);
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
    if (made->job.out_len == 0) /* taken in panels, and written already */
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

/* ---- scales per tensor ----------------------------------------------------------------------- */

/* Per-tensor scales need all of a tensor, and all that shares its scale, before the first code.  */
static int measure_stripe(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct stream *s = ctx;
    struct worker *w = &s->workers[worker];
    uint64_t number = s->stripes[task];
    const struct fp8q_piece *p = fp8q_plan_piece(s->plan, number);
    float amax;
    int src_fd;

    FP8Q_TRY(fp8q_files_acquire(&s->sources, source_shard(s, p), &src_fd, err));
    FP8Q_TRY(load_weights(s, w, p, err));

    /* Nothing is written: the piece may belong to a shard that another part makes.  */
    struct fp8q_stripe_job job = {.plan = s->plan,
                                  .piece = p,
                                  .stripe = number - p->first_stripe,
                                  .kernel = s->options->kernel,
                                  .src_fd = src_fd,
                                  .src_path = s->plan->ckpt->shards[source_shard(s, p)].path,
                                  .dst_fd = -1,
                                  .weights = w->weights_of == p->source ? &w->weights : NULL,
                                  .memory = w->memory,
                                  .memory_size = s->memory_size};
    FP8Q_TRY(fp8q_stripe_amax_only(&job, &amax, err));

    /* The largest of all, in whatever order they come.  */
    pthread_mutex_lock(&s->lock);
    float *largest = &s->group_amax[p->group];
    *largest = amax > *largest ? amax : *largest;
    pthread_mutex_unlock(&s->lock);

    return fp8q_files_release(&s->sources, source_shard(s, p), err);
}

/* The stripes of all that shares a scale with what this run writes: siblings in shards that are
 * done, or another part's, are read again rather than waited for.  */
static void list_measured(struct stream *s, bool *wanted)
{
    const struct fp8q_plan *plan = s->plan;

    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        if (p->group != SIZE_MAX && !s->options->skip[output_shard(s, p)])
            wanted[p->group] = true;
    }

    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        if (p->group == SIZE_MAX || !wanted[p->group])
            continue;
        for (uint64_t k = 0; k < p->n_stripes; k++)
            s->stripes[s->n_stripes++] = p->first_stripe + k;
        fp8q_files_expect(&s->sources, source_shard(s, p), p->n_stripes);
    }
}

static int measure(struct stream *s, struct fp8q_error *err)
{
    if (s->plan->n_groups == 0)
        return FP8Q_OK;

    bool *wanted = fp8q_array(s->plan->n_groups, sizeof(*wanted));
    if (!wanted)
        return fp8q_fail_nomem(err);
    list_measured(s, wanted);
    free(wanted);

    int status =
        fp8q_pool_run(s->options->watch, s->n_workers, s->n_stripes, measure_stripe, s, err);
    s->n_stripes = 0; /* the list begins anew, with what is to be written */
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Counts what is to be done, by file.  */
static void expect_pieces(struct stream *s)
{
    for (size_t i = 0; i < s->plan->n_pieces; i++) {
        const struct fp8q_piece *p = &s->plan->pieces[i];
        uint32_t out = output_shard(s, p);
        if (s->options->skip[out])
            continue;

        fp8q_files_expect(&s->sources, source_shard(s, p), p->n_stripes);

        s->outputs.files[out].stripes_left += p->n_stripes;
        if (p->n_stripes)
            s->total_bytes += p->n_stripes * fp8q_plan_stripe_bytes(s->plan, p);
    }
}

/* A shard at work; there are several at a time, since a file takes one writer.  */
struct lane {
    size_t piece, end; /* pieces that are left of it */
    uint64_t stripe;   /* of the piece */
    uint64_t bytes;    /* listed so far, of all its shards */
};

/* Moves on to the next stripe, which may be in the next shard; false if none is left.  */
static bool lane_next(const struct stream *s, struct lane *lane, size_t *next_shard)
{
    const struct fp8q_plan *plan = s->plan;
    for (;;) {
        if (lane->piece < lane->end && lane->stripe < plan->pieces[lane->piece].n_stripes)
            return true;
        lane->stripe = 0;
        if (lane->piece < lane->end && ++lane->piece < lane->end)
            continue;

        while (*next_shard < plan->n_shards && s->options->skip[*next_shard])
            ++*next_shard;
        if (*next_shard == plan->n_shards)
            return false;
        const struct fp8q_out_shard *shard = &plan->shards[(*next_shard)++];
        lane->piece = shard->first_piece;
        lane->end = shard->first_piece + shard->n_pieces;
    }
}

/* Each stripe comes from the lane that has had the fewest bytes: shards are begun in order, and those
 * at work advance together.  */
static void list_stripes(struct stream *s, struct lane *lanes, unsigned n)
{
    for (size_t next_shard = 0;;) {
        struct lane *least = NULL;
        for (unsigned i = 0; i < n; i++)
            if (!least || lanes[i].bytes < least->bytes)
                least = &lanes[i];
        if (!least)
            return;

        if (!lane_next(s, least, &next_shard)) {
            *least = lanes[--n];
            continue;
        }
        const struct fp8q_piece *p = &s->plan->pieces[least->piece];
        s->stripes[s->n_stripes++] = p->first_stripe + least->stripe++;
        least->bytes += fp8q_plan_stripe_bytes(s->plan, p);
    }
}

static int list_all(struct stream *s, struct fp8q_error *err)
{
    unsigned n = s->n_workers < s->plan->shards_at_once ? s->n_workers : s->plan->shards_at_once;
    struct lane *lanes = fp8q_array(n, sizeof(*lanes));
    if (!lanes)
        return fp8q_fail_nomem(err);

    expect_pieces(s);
    list_stripes(s, lanes, n);
    free(lanes);
    return FP8Q_OK;
}

/* Each worker can hold a source and an output open, and some more are open anyway.  */
static unsigned thread_limit(unsigned threads)
{
    struct rlimit limit;

    /* Four descriptors a worker, and 16 for all else: rather fewer threads than a failure.  */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        rlim_t pairs = limit.rlim_cur > 24 ? (limit.rlim_cur - 16) / 4 : 1;
        if (threads > pairs)
            threads = (unsigned)pairs;
    }
    return threads;
}

/* One worker's memory: stripes, and behind them what GPTQ needs.  */
static int give_memory(struct stream *s, struct fp8q_error *err)
{
    size_t scratch = 0;
    uint64_t size = fp8q_max_u64(s->plan->stripe_bytes, FP8Q_COPY_BYTES);

    if (s->options->rounding) { /* which takes whole rows */
        /* At most 13 bytes a value: 4 as read, 4 decoded, 4 for GPTQ, 1 as FP8.  */
        size += fp8q_plan_widest_row(s->plan) * FP8Q_BLOCK * 13 + 128;
        scratch = fp8q_gptq_scratch();
    }

    s->memory_size = (size_t)(size / 64 * 64);

    for (unsigned i = 0; i < s->n_workers; i++) {
        struct worker *w = &s->workers[i];
        w->weights_of = SIZE_MAX;
        if (posix_memalign((void **)&w->memory, 64, s->memory_size + scratch) != 0)
            return fp8q_fail_nomem(err);
        w->compensation = w->memory + s->memory_size;
    }
    return FP8Q_OK;
}

static int open_stream(struct stream *s, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = s->plan;
    pthread_mutex_init(&s->lock, NULL);

    s->n_workers = thread_limit(plan->threads);
    s->workers = fp8q_array(s->n_workers, sizeof(*s->workers));
    s->stripes = fp8q_array(plan->n_stripes, sizeof(*s->stripes));
    s->group_amax = fp8q_array(plan->n_groups, sizeof(*s->group_amax));
    if (!s->workers || !s->stripes || !s->group_amax)
        return fp8q_fail_nomem(err);

    FP8Q_TRY(give_memory(s, err));
    FP8Q_TRY(fp8q_files_create(plan->ckpt, &s->sources, err));
    FP8Q_TRY(fp8q_shards_create(plan, s->options, &s->outputs, err));

    s->outputs.drop_cache = s->sources.outgrows_memory;
    return FP8Q_OK;
}

static void close_stream(struct stream *s)
{
    /* Also after open_stream() failed halfway; what it did not come to is still zero.  */
    if (s->sources.ckpt)
        fp8q_files_reset(&s->sources);
    if (s->outputs.files)
        fp8q_shards_reset(&s->outputs);

    for (unsigned i = 0; s->workers && i < s->n_workers; i++) {
        free(s->workers[i].memory);
        fp8q_weights_reset(&s->workers[i].weights);
    }

    free(s->workers);
    free(s->stripes);
    free(s->group_amax);
    pthread_mutex_destroy(&s->lock);
}

static int run(struct stream *s, struct fp8q_error *err)
{
    const struct fp8q_watch *watch = s->options->watch;
    FP8Q_TRY(open_stream(s, err));
    FP8Q_TRY(measure(s, err));
    FP8Q_TRY(list_all(s, err));
    FP8Q_TRY(fp8q_shards_write_empty(&s->outputs, err));
    FP8Q_TRY(fp8q_pool_run(watch, s->n_workers, s->n_stripes, run_stripe, s, err));

    /* What workers still hold when no task is left, written by this thread alone.  */
    return write_rest(s, err);
}

int fp8q_stream(const struct fp8q_plan *plan, const struct fp8q_stream_options *options,
                struct fp8q_error *err)
{
    struct stream s = {.plan = plan, .options = options};
    int status = run(&s, err);
    close_stream(&s);
    return status;
}
