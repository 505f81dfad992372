/* SPDX-License-Identifier: Apache-2.0
 *
 * payload.c - every byte of an output: checksums, FP8 values and scales, without a source.
 *
 * A task is a part of one tensor: 128 rows of an FP8 weight whose blocks can be judged, else a
 * mebibyte.  Its bytes come in chunks, in order, from whoever reads them: run_task() here, or the
 * comparison with the source, which needs them anyway.  The state of a task half seen stands in its
 * worker; a task of which a chunk is missing is read again from its start.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/pool.h"
#include "checkpoint/fingerprint.h"
#include "format/names.h"
#include "select/fused.h"
#include "verify/internal.h"

enum {
    CHUNK = 256 << 10, /* bytes read at a time: they stay in the second-level cache */
    WIDEST = 64 << 10, /* columns of a weight whose blocks are judged */
};

/* How a tensor is read.  */
struct item {
    const struct fp8q_tensor *tensor;
    uint64_t first_task, n_tasks, bytes_per_task;
    bool stripes;       /* 128 rows a task, as the comparison with a source reads them */
    bool judged;        /* ... which are blocks, of which the largest code is known */
    bool grouped;       /* ... or groups of a row (MXFP8), of which it is known too */
    bool scaled_whole;  /* by one scale, which is ... */
    float tensor_scale; /* ... this */
    uint64_t n_cols;
};

struct worker {
    char *memory;                /* CHUNK bytes, or one row */
    uint8_t *column_max;         /* WIDEST: largest code of each column of the task so far */
    struct fp8q_weights weights; /* scales of @of, whose tasks this worker takes in a row */
    const struct item *of;

    uint64_t task, seen; /* the task in hand, and how many of its bytes were seen */
    uint32_t crc;        /* of those */
};

struct fp8q_payload {
    struct fp8q_report *report;
    const struct fp8q_verify_options *options;
    struct fp8q_files files;
    struct item *items; /* in the order of the files */
    size_t n_items;
    size_t *item_of; /* by index in ckpt->tensors */
    uint32_t *crc;   /* by task */
    bool *looked_at; /* by task */
    uint64_t n_tasks;
    struct worker *workers;
    bool ue8m0, plain_rounding;

    pthread_mutex_t lock; /* guards the findings */
    struct fp8q_findings nan_codes, block_max, scales, pow2, fused, tensor_crc, fingerprint;
    _Atomic uint64_t done;
};

/* ---- scales: few, looked at while opening ---------------------------------------------------- */

static void check_scale_values(struct fp8q_payload *p, const struct fp8q_tensor *of,
                               const float *values, uint64_t n, uint64_t rank)
{
    /* E8M0 begins a power of two below; other tools have it over groups of zeros.  */
    bool e8m0 = of->dtype == FP8Q_U8 || of->dtype == FP8Q_F8_E8M0;
    float least = e8m0 ? FP8Q_MIN_SCALE / 2 : FP8Q_MIN_SCALE;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));

        /* The comparison refuses NaN, zero and what is negative; what is left is infinity.  */
        if (!(values[i] >= least) || bits >= 0x7F800000)
            fp8q_findings_add(&p->scales, rank, of->name, "scale %llu is %g", (unsigned long long)i,
                              (double)values[i]);

        /* A power of two has no bits in its fraction.  */
        if (p->ue8m0 && !e8m0 && bits & 0x7FFFFF)
            fp8q_findings_add(&p->pow2, rank, of->name, "scale %llu is %.9g", (unsigned long long)i,
                              (double)values[i]);
    }
    p->scales.n_looked_at += n;
    p->pow2.n_looked_at += p->ue8m0 ? n : 0;
}

/* The scales of a weight that could not be opened because of them: each value by itself.  */
static int check_broken_scales(struct fp8q_payload *p, const struct fp8q_tensor *t, uint64_t rank,
                               struct fp8q_error *err)
{
    static const char *const endings[] = {FP8Q_SCALE_INV_ENDING, FP8Q_SCALE_ENDING};
    const struct fp8q_tensor *s = NULL;
    struct fp8q_error found = {0};

    for (size_t k = 0; k < 2 && !s; k++)
        s = fp8q_ckpt_find_joined(p->report->ckpt, t->name, strlen(t->name), endings[k]);
    if (!s)
        return FP8Q_OK; /* said by structure.c */

    float *values = fp8q_array(s->n_elems, sizeof(*values));
    if (!values)
        return fp8q_fail_nomem(err);

    int status = fp8q_read_floats(p->report->ckpt, s, fp8q_kernel_select("scalar"), values, &found);
    if (status == FP8Q_OK)
        check_scale_values(p, s, values, s->n_elems, rank);
    free(values);

    if (fp8q_cannot_look(status)) {
        if (err)
            *err = found;
        return status;
    }
    if (status != FP8Q_OK)
        fp8q_findings_add(&p->scales, rank, s->name, "%s", found.message);
    return FP8Q_OK;
}

/* ---- FP8 values ------------------------------------------------------------------------------ */

/* Smallest code that the largest weight of a block can have under the scale rule: amax / (amax/448)
 * rounds to 448.  A power of two is less than twice amax/448, so the quotient is above 224.  A block
 * of zeros has the scale 1; the floor 2^-126 stands for anything smaller.  */
static bool max_fits(bool pow2, unsigned max, float scale)
{
    return max >= (pow2 ? 0x76U : 0x7EU) || (max == 0 && scale == 1.0f) || scale == FP8Q_MIN_SCALE;
}

/* A worker takes the tasks of a tensor in a row, so its scales are seldom opened again.  */
static int open_scales(struct fp8q_payload *p, struct worker *w, const struct item *item,
                       struct fp8q_error *err)
{
    if (w->of == item)
        return FP8Q_OK;

    fp8q_weights_reset(&w->weights);
    w->of = NULL;
    FP8Q_TRY(fp8q_weights_open(p->report->ckpt, item->tensor->name, &w->weights, err));
    w->of = item;
    return FP8Q_OK;
}

static void check_row_groups(struct fp8q_payload *p, const struct worker *w,
                             const struct item *item, uint64_t row, const uint8_t *codes)
{
    const float *scales = fp8q_weights_row_scales(&w->weights, row);

    for (uint64_t col = 0; col < item->n_cols; col += FP8Q_GROUP, scales++) {
        size_t n = (size_t)fp8q_min_u64(item->n_cols - col, FP8Q_GROUP);
        unsigned max;
        (void)p->options->kernel->scan_codes(codes + col, n, &max);
        /* NaN was found already.  */
        if (max == 0x7F || max_fits(true, max, *scales))
            continue;

        pthread_mutex_lock(&p->lock);
        fp8q_findings_add(&p->block_max, w->task, item->tensor->name,
                          "group at [%llu, %llu] with scale %g: largest FP8 value 0x%02X",
                          (unsigned long long)row, (unsigned long long)col, (double)*scales, max);
        pthread_mutex_unlock(&p->lock);
    }
}

/* Judges the groups of whole rows from @row on.  */
static int check_groups(struct fp8q_payload *p, struct worker *w, const struct item *item,
                        uint64_t row, const uint8_t *codes, size_t n, struct fp8q_error *err)
{
    FP8Q_TRY(open_scales(p, w, item, err));

    for (size_t at = 0; at < n; at += (size_t)item->n_cols)
        check_row_groups(p, w, item, row++, codes + at);
    return FP8Q_OK;
}

/* Judges the blocks of a stripe whose rows were all seen.  */
static int check_blocks(struct fp8q_payload *p, struct worker *w, const struct item *item,
                        uint64_t row, struct fp8q_error *err)
{
    FP8Q_TRY(open_scales(p, w, item, err));

    for (uint64_t col = 0; col < item->n_cols; col += FP8Q_BLOCK) {
        size_t n = (size_t)fp8q_min_u64(item->n_cols - col, FP8Q_BLOCK);
        float scale = fp8q_weights_scale(&w->weights, row, col);
        /* The largest of the columns is that of the block; NaN has the highest code of all, so it
         * shows here too.  */
        unsigned max;
        (void)p->options->kernel->scan_codes(w->column_max + col, n, &max);
        if (max != 0x7F && max_fits(p->ue8m0, max, scale))
            continue;

        pthread_mutex_lock(&p->lock);
        if (max == 0x7F)
            fp8q_findings_add(&p->nan_codes, w->task, item->tensor->name,
                              "FP8 value 0x7F or 0xFF in the block at [%llu, %llu]",
                              (unsigned long long)row, (unsigned long long)col);
        else
            fp8q_findings_add(&p->block_max, w->task, item->tensor->name,
                              "block at [%llu, %llu] with scale %g: largest FP8 value 0x%02X",
                              (unsigned long long)row, (unsigned long long)col, (double)scale, max);
        pthread_mutex_unlock(&p->lock);
    }
    return FP8Q_OK;
}

/* @at: of the first code, in its tensor.  */
static void check_nan(struct fp8q_payload *p, const struct item *item, uint64_t task, uint64_t at,
                      const uint8_t *codes, size_t n)
{
    unsigned max;
    if (p->options->kernel->scan_codes(codes, n, &max) == 0)
        return;

    /* The kernel says how many there are, not where.  */
    size_t i = 0;
    while ((codes[i] & 0x7F) != 0x7F)
        i++;

    pthread_mutex_lock(&p->lock);
    fp8q_findings_add(&p->nan_codes, task, item->tensor->name, "FP8 value 0x%02X at element %llu",
                      codes[i], (unsigned long long)(at + i));
    pthread_mutex_unlock(&p->lock);
}

/* The largest code of each column over whole rows.  */
static void raise_column_max(uint8_t *restrict max, const uint8_t *restrict codes, size_t n,
                             size_t n_cols)
{
    for (; n >= n_cols; n -= n_cols, codes += n_cols)
        for (size_t i = 0; i < n_cols; i++) {
            /* Without the sign: the largest by magnitude.  */
            uint8_t code = codes[i] & 0x7F;
            max[i] = code > max[i] ? code : max[i];
        }
}

/* ---- one task -------------------------------------------------------------------------------- */

/* Bytes of a task of an item.  */
static size_t task_bytes(const struct item *item, uint64_t task)
{
    uint64_t at = (task - item->first_task) * item->bytes_per_task;
    return (size_t)fp8q_min_u64(item->tensor->size_bytes - at, item->bytes_per_task);
}

/* @n bytes, @at bytes from the start of a task.  */
struct chunk {
    uint64_t task, at;
    const uint8_t *bytes;
    size_t n;
};

/* A chunk out of order leaves the task undone.  */
static int look(struct fp8q_payload *p, struct worker *w, const struct item *item,
                const struct chunk *chunk, struct fp8q_error *err)
{
    const uint8_t *bytes = chunk->bytes;
    uint64_t task = chunk->task, at = chunk->at;
    size_t n = chunk->n;
    uint64_t start = (task - item->first_task) * item->bytes_per_task;

    /* The first chunk begins a task anew, whatever became of the one in hand.  */
    if (at == 0) {
        w->task = task;
        w->seen = 0;
        w->crc = 0;
        if (item->judged)
            memset(w->column_max, 0, (size_t)item->n_cols);
    }

    /* A chunk was left out: the task stays undone until run_task() reads it whole.  */
    if (w->task != task || w->seen != at)
        return FP8Q_OK;

    w->seen += n;
    w->crc = fp8q_crc32(w->crc, bytes, n);
    if (item->judged) /* finds NaN on the way */
        raise_column_max(w->column_max, bytes, n, (size_t)item->n_cols);
    else if (item->tensor->dtype == FP8Q_F8_E4M3)
        check_nan(p, item, task, start + at, bytes, n);
    if (item->grouped)
        FP8Q_TRY(check_groups(p, w, item, (start + at) / item->n_cols, bytes, n, err));

    if (w->seen < task_bytes(item, task))
        return FP8Q_OK;

    /* One worker saw all of this task, so its places need no lock.  */
    p->crc[task] = w->crc;
    p->looked_at[task] = true;
    return item->judged ? check_blocks(p, w, item, start / item->n_cols, err) : FP8Q_OK;
}

int fp8q_payload_look(struct fp8q_payload *p, unsigned worker, const struct fp8q_tensor *tensor,
                      uint64_t offset, const void *bytes, size_t n, struct fp8q_error *err)
{
    const struct item *item = &p->items[p->item_of[tensor - p->report->ckpt->tensors]];
    uint64_t task = item->first_task + offset / item->bytes_per_task;
    uint64_t at = offset % item->bytes_per_task;
    bool whole_rows = !item->stripes || (at % item->n_cols == 0 && n % item->n_cols == 0);

    /* What does not fit a task is not wrong: its bytes are read again later.  */
    if (!whole_rows || n > task_bytes(item, task) - at)
        return FP8Q_OK;
    return look(p, &p->workers[worker], item, &(struct chunk){task, at, bytes, n}, err);
}

static const struct item *item_of(const struct fp8q_payload *p, uint64_t task)
{
    size_t low = 0, high = p->n_items;

    /* The last item that begins no later.  An empty tensor has no task; it stands before the one
     * that begins with the same.  */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p->items[middle].first_task <= task)
            low = middle;
        else
            high = middle;
    }
    return &p->items[low];
}

static int read_task(struct fp8q_payload *p, struct worker *w, const struct item *item,
                     uint64_t task, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = item->tensor;
    const char *path = p->report->ckpt->shards[t->shard].path;
    uint64_t start = t->offset + (task - item->first_task) * item->bytes_per_task;
    size_t all = task_bytes(item, task), step = CHUNK;
    int fd;

    /* Whole rows, as raise_column_max() needs them; a row is at most WIDEST bytes, so memory holds
     * it.  */
    if (item->stripes)
        step = (size_t)(item->n_cols * fp8q_max_u64(CHUNK / item->n_cols, 1));

    FP8Q_TRY(fp8q_files_acquire(&p->files, t->shard, &fd, err));
    for (size_t at = 0, n; at < all; at += n) {
        n = fp8q_min_size(all - at, step);
        FP8Q_TRY(fp8q_pread(fd, w->memory, n, start + at, path, err));
        struct chunk chunk = {task, at, (const uint8_t *)w->memory, n};
        FP8Q_TRY(look(p, w, item, &chunk, err));
    }
    return FP8Q_OK;
}

static int run_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct fp8q_payload *p = ctx;
    const struct item *item = item_of(p, task);
    size_t n = task_bytes(item, task);

    /* After a comparison with the source most tasks are done already.  */
    if (!p->looked_at[task])
        FP8Q_TRY(read_task(p, &p->workers[worker], item, task, err));

    fp8q_watch_report(p->options->watch, "verify", atomic_fetch_add(&p->done, n) + n,
                      p->report->ckpt->data_bytes, FP8Q_UNIT_BYTES);

    /* Due also for a task that was not read here: it was counted by fp8q_files_expect().  */
    return fp8q_files_release(&p->files, item->tensor->shard, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const struct fp8q_tensor *x = ((const struct item *)a)->tensor;
    const struct fp8q_tensor *y = ((const struct item *)b)->tensor;

    /* By their place in the files, so that each file is read forward and closed when it is done
     * with.  */
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Looks at the scales of an FP8 weight, and decides whether its blocks can be judged.  */
static int open_fp8(struct fp8q_payload *p, struct item *item, uint64_t rank,
                    struct fp8q_error *err)
{
    struct fp8q_weights w;
    int status = fp8q_weights_open(p->report->ckpt, item->tensor->name, &w, err);
    if (fp8q_cannot_look(status))
        return status;
    if (status != FP8Q_OK)
        return check_broken_scales(p, item->tensor, rank, err);

    check_scale_values(p, w.scale_from, w.scales, w.scale_from->n_elems, rank);

    /* In a stack of matrices a stripe must not reach into the next one, whose scales are
     * others.  */
    bool one_matrix = w.n_rows == w.matrix_rows || w.matrix_rows % FP8Q_BLOCK == 0;
    item->stripes = one_matrix && w.n_cols <= WIDEST;
    item->n_cols = w.n_cols;
    if (item->stripes)
        item->bytes_per_task = w.n_cols * FP8Q_BLOCK;

    /* Others round their scales to BF16, so the largest code says nothing about theirs; and GPTQ
     * may round it down.  */
    bool ours = item->stripes && p->report->ours && p->plain_rounding;
    item->judged = ours && w.scaling == FP8Q_SCALING_BLOCK;
    item->grouped = ours && w.scaling == FP8Q_SCALING_GROUP;
    item->scaled_whole = w.scaling == FP8Q_SCALING_TENSOR;
    if (item->scaled_whole)
        item->tensor_scale = w.scales[0];

    fp8q_weights_reset(&w);
    return FP8Q_OK;
}

static int open_items(struct fp8q_payload *p, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = p->report->ckpt;
    for (size_t i = 0; i < p->n_items; i++)
        p->items[i].tensor = &ckpt->tensors[i];
    qsort(p->items, p->n_items, sizeof(*p->items), compare_places);

    for (size_t i = 0; i < p->n_items; i++) {
        struct item *item = &p->items[i];
        const struct fp8q_tensor *t = item->tensor;
        p->item_of[t - ckpt->tensors] = i;
        item->bytes_per_task = FP8Q_COPY_BYTES;
        if (t->dtype == FP8Q_F8_E4M3) {
            p->nan_codes.n_looked_at += t->n_elems;
            FP8Q_TRY(open_fp8(p, item, i, err));
        }
        p->block_max.n_looked_at += item->judged || item->grouped;

        /* Only now: how many rows a task takes was decided by open_fp8().  */
        item->first_task = p->n_tasks;
        item->n_tasks = fp8q_ceil_div(t->size_bytes, item->bytes_per_task);
        p->n_tasks += item->n_tasks;
        fp8q_files_expect(&p->files, t->shard, item->n_tasks);
    }
    return FP8Q_OK;
}

/* The FP8 weights of one scale each, by the matrix that engines make of them.  */
struct fused_items {
    const struct item **items, **first; /* @first: of each number */
    const char **names;
    size_t *numbers;
    size_t n;
};

static int compare_fused(struct fp8q_payload *p, struct fused_items *f, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    for (size_t i = 0; i < p->n_items; i++)
        if (p->items[i].scaled_whole) {
            f->items[f->n] = &p->items[i];
            f->names[f->n++] = p->items[i].tensor->name;
        }
    FP8Q_TRY(fp8q_fused_number(f->names, f->n, f->numbers, err));

    for (size_t i = 0; i < f->n; i++) {
        const struct item *item = f->items[i], **first = &f->first[f->numbers[i]];
        if (!*first)
            *first = item;
        else if (item->tensor_scale != (*first)->tensor_scale)
            fp8q_findings_add(&p->fused, i, item->tensor->name,
                              "scale %.9g, that of \"%s\" is %.9g", (double)item->tensor_scale,
                              fp8q_show(&shown, (*first)->tensor->name),
                              (double)(*first)->tensor_scale);
    }
    p->fused.n_looked_at = f->n;
    return FP8Q_OK;
}

/* Engines requantize the parts of a fused matrix to their largest scale, unless they share one.  */
static int check_fused(struct fp8q_payload *p, struct fp8q_error *err)
{
    struct fused_items f = {.items = fp8q_array(p->n_items, sizeof(*f.items)),
                            .first = fp8q_array(p->n_items, sizeof(*f.first)),
                            .names = fp8q_array(p->n_items, sizeof(*f.names)),
                            .numbers = fp8q_array(p->n_items, sizeof(*f.numbers))};
    int status = f.items && f.first && f.names && f.numbers ? compare_fused(p, &f, err)
                                                            : fp8q_fail_nomem(err);
    free(f.items);
    free(f.first);
    free(f.names);
    free(f.numbers);
    return status;
}
static int open_workers(struct fp8q_payload *p, struct fp8q_error *err)
{
    unsigned n = p->options->threads;
    p->workers = fp8q_array(n, sizeof(*p->workers));

    for (unsigned i = 0; p->workers && i < n; i++) {
        /* No task has this number: whatever comes first begins one.  */
        p->workers[i].task = UINT64_MAX;
        p->workers[i].memory = malloc(CHUNK);
        p->workers[i].column_max = malloc(WIDEST);
        if (!p->workers[i].memory || !p->workers[i].column_max)
            return fp8q_fail_nomem(err);
    }
    return p->workers ? FP8Q_OK : fp8q_fail_nomem(err);
}

static int open_payload(struct fp8q_payload *p, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = p->report->ckpt;
    FP8Q_TRY(fp8q_files_create(ckpt, &p->files, err));
    FP8Q_TRY(open_workers(p, err));

    p->n_items = ckpt->n_tensors;
    p->items = fp8q_array(p->n_items, sizeof(*p->items));
    p->item_of = fp8q_array(p->n_items, sizeof(*p->item_of));
    if (!p->items || !p->item_of)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(open_items(p, err));
    FP8Q_TRY(check_fused(p, err));

    p->crc = fp8q_array(p->n_tasks, sizeof(*p->crc));
    p->looked_at = fp8q_array(p->n_tasks, sizeof(*p->looked_at));
    return p->crc && p->looked_at ? FP8Q_OK : fp8q_fail_nomem(err);
}

static bool states_ue8m0(const struct fp8q_json *object)
{
    return strcmp(fp8q_json_string(fp8q_json_get(object, "scale_fmt"), ""), "ue8m0") == 0;
}

int fp8q_payload_open(struct fp8q_report *report, const struct fp8q_verify_options *o,
                      struct fp8q_payload **payload_out, struct fp8q_error *err)
{
    const struct fp8q_json *quant = fp8q_json_get(report->ckpt->config, "quantization_config");
    const char *rounding =
        fp8q_json_string(fp8q_json_path(report->manifest.json, "rounding.method"), "");
    struct fp8q_payload *p = malloc(sizeof(*p));
    *payload_out = p;
    if (!p)
        return fp8q_fail_nomem(err);

    *p = (struct fp8q_payload){
        .report = report,
        .options = o,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .ue8m0 = states_ue8m0(quant) || states_ue8m0(report->manifest.json),
        .plain_rounding = strcmp(rounding, "nearest-even") == 0,
        .nan_codes = {.id = "nan-codes",
                      .status = FP8Q_CHECK_FAIL,
                      .limit = "no FP8 value is NaN (0x7F or 0xFF)"},
        .block_max = {.id = "block-max",
                      .status = FP8Q_CHECK_FAIL,
                      .limit = "the largest FP8 value of a block is what its scale rule gives"},
        .scales = {.id = "scale-values",
                   .status = FP8Q_CHECK_FAIL,
                   .limit = "finite, at least 2^-126"},
        .pow2 = {.id = "scale-pow2", .status = FP8Q_CHECK_FAIL, .limit = "powers of two"},
        .fused = {.id = "scale-fused",
                  .status = FP8Q_CHECK_FAIL,
                  .limit = "one scale for all that engines load as one matrix"},
        .tensor_crc = {.id = "tensor-crc",
                       .status = FP8Q_CHECK_FAIL,
                       .limit = "each tensor as written"},
        .fingerprint = {.id = "fingerprint",
                        .status = FP8Q_CHECK_FAIL,
                        .limit = "that of the manifest, over all tensors",
                        .n_looked_at = 1}};

    int status = open_payload(p, err);
    if (status != FP8Q_OK) {
        fp8q_payload_close(p);
        *payload_out = NULL;
    }
    return status;
}

/* ---- the checks ------------------------------------------------------------------------------ */

static uint32_t tensor_crc(const struct fp8q_payload *p, const struct item *item)
{
    uint32_t crc = 0;

    /* In the order of the bytes: joining CRC-32s is not commutative.  */
    for (uint64_t k = item->first_task; k < item->first_task + item->n_tasks; k++)
        crc = fp8q_crc32_join(crc, p->crc[k], task_bytes(item, k));
    return crc;
}

/* Of each tensor, and of all: the fingerprint, by which evidence knows this output.  */
static void compare_crcs(struct fp8q_payload *p)
{
    const struct fp8q_manifest *m = &p->report->manifest;
    const struct fp8q_ckpt *ckpt = p->report->ckpt;
    uint32_t fingerprint = 0, expected;
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        uint32_t crc = tensor_crc(p, &p->items[p->item_of[i]]);
        fingerprint = fp8q_fingerprint_add(fingerprint, t->name, t->dtype, t->shape, t->ndim, crc);

        /* A tensor that the manifest does not know is a finding of written.c.  */
        if (fp8q_manifest_crc(m, t->name, &expected) && crc != expected)
            fp8q_findings_add(&p->tensor_crc, p->item_of[i], t->name, "CRC-32 %08x, expected %08x",
                              (unsigned)crc, (unsigned)expected);
    }

    p->tensor_crc.n_looked_at = ckpt->n_tensors;
    (void)fp8q_parse_crc(fp8q_json_string(fp8q_json_get(m->json, "fingerprint"), NULL), &expected);
    if (fingerprint != expected)
        fp8q_findings_add(&p->fingerprint, 0, ckpt->path, "fingerprint %08x, expected %08x",
                          (unsigned)fingerprint, (unsigned)expected);
}

int fp8q_payload_finish(struct fp8q_payload *p, struct fp8q_error *err)
{
    struct fp8q_report *r = p->report;
    FP8Q_TRY(fp8q_pool_run(p->options->watch, p->options->threads, p->n_tasks, run_task, p, err));

    /* Only a manifest says what they should be.  */
    if (r->ours) {
        compare_crcs(p);
        FP8Q_TRY(fp8q_report_add(r, &p->tensor_crc, err));
        FP8Q_TRY(fp8q_report_add(r, &p->fingerprint, err));
    }

    FP8Q_TRY(fp8q_report_add(r, &p->nan_codes, err));
    FP8Q_TRY(fp8q_report_add(r, &p->scales, err));
    if (p->ue8m0)
        FP8Q_TRY(fp8q_report_add(r, &p->pow2, err));
    if (r->ours && p->fused.n_looked_at)
        FP8Q_TRY(fp8q_report_add(r, &p->fused, err));

    return r->ours && p->plain_rounding ? fp8q_report_add(r, &p->block_max, err) : FP8Q_OK;
}

void fp8q_payload_close(struct fp8q_payload *p)
{
    if (!p)
        return;

    struct fp8q_findings *const all[] = {&p->nan_codes, &p->block_max,  &p->scales,     &p->pow2,
                                         &p->fused,     &p->tensor_crc, &p->fingerprint};
    /* Those that became checks are empty by now: the report owns their texts.  */
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        fp8q_findings_reset(all[i]);
    for (unsigned i = 0; p->workers && i < p->options->threads; i++) {
        fp8q_weights_reset(&p->workers[i].weights);
        free(p->workers[i].memory);
        free(p->workers[i].column_max);
    }

    fp8q_files_reset(&p->files);
    free(p->workers);
    free(p->items);
    free(p->item_of);
    free(p->crc);
    free(p->looked_at);
    free(p);
}
