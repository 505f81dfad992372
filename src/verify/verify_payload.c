/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_payload.c - every byte of an output: checksums, codes and scales, without a source.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files.h"
#include "base/io.h"
#include "base/crc.h"
#include "base/mem.h"
#include "base/pool.h"
#include "verify/verify.h"
#include "format/names.h"
#include "checkpoint/weights.h"

enum { BUFFER = 8 << 20 };

/* How a tensor is read: whole 128-row stripes of codes where they fit the buffer, else bytes.  */
struct item {
    const struct fp8q_tensor *tensor;
    uint64_t first_task, n_tasks, bytes_per_task;
    bool stripes;
    uint64_t n_cols;
};

/* Scales of the tensor whose stripes a worker takes in a row.  */
struct worker {
    struct fp8q_weights weights;
    const struct item *of;
};

struct fp8q_payload {
    struct fp8q_verify_report *report;
    const struct fp8q_verify_options *options;
    struct fp8q_files files;
    struct item *items;
    size_t n_items;
    size_t *item_of; /* by index in ckpt->tensors */
    uint32_t *crc;   /* by task */
    bool *looked_at; /* by task */
    uint64_t n_tasks;
    uint8_t *buffers; /* BUFFER bytes a worker */
    struct worker *workers;
    bool ue8m0, plain_rounding;
    pthread_mutex_t lock; /* guards the findings */
    struct fp8q_finding nan_codes, block_max, scales, pow2, tensor_crc;
    _Atomic uint64_t done;
};

/* ---- scales: few, looked at while opening ---------------------------------------------------- */

static int check_scales(struct fp8q_payload *p, const struct fp8q_tensor *t, uint64_t rank,
                        struct fp8q_error *err)
{
    const struct fp8q_tensor *s;
    float *values;
    static const char *const endings[] = {FP8Q_SCALE_INV_ENDING, FP8Q_SCALE_ENDING};
    for (size_t k = 0; k < 2; k++) {
        s = fp8q_ckpt_find_joined(p->report->ckpt, t->name, strlen(t->name), endings[k]);
        if (!s)
            continue;
        values = fp8q_array(s->n_elems, sizeof(*values));
        if (!values)
            return fp8q_fail_nomem(err);
        struct fp8q_error found = {0};
        int status =
            fp8q_read_floats(p->report->ckpt, s, fp8q_kernel_select("scalar"), values, &found);
        if (status != FP8Q_OK) {
            free(values);
            if (fp8q_cannot_look(status)) {
                if (err)
                    *err = found;
                return status;
            }
            fp8q_finding_add(&p->scales, rank, s->name, "%s", found.message);
            return FP8Q_OK;
        }
        for (uint64_t i = 0; i < s->n_elems; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof(bits));
            p->scales.n_looked_at++;
            if (!(values[i] >= 0x1p-126f) || bits >= 0x7F800000)
                fp8q_finding_add(&p->scales, rank, s->name, "scale %llu is %g",
                                 (unsigned long long)i, (double)values[i]);
            if (p->ue8m0) {
                p->pow2.n_looked_at++;
                if (bits & 0x7FFFFF)
                    fp8q_finding_add(&p->pow2, rank, s->name, "scale %llu is %.9g",
                                     (unsigned long long)i, (double)values[i]);
            }
        }
        free(values);
        return FP8Q_OK;
    }
    return FP8Q_OK;
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Smallest code that the largest weight of a block can have under the scale rule: amax / (amax/448)
 * rounds to 448.  A power of two is less than twice amax/448, so the quotient is above 224.  */
static unsigned least_max(const struct fp8q_payload *p)
{
    return p->ue8m0 ? 0x76 : 0x7E;
}

/* A block of zeros has the scale 1; the floor 2^-126 stands for anything smaller.  */
static bool max_fits(const struct fp8q_payload *p, unsigned max, float scale)
{
    return max >= least_max(p) || (max == 0 && scale == 1.0f) || scale == 0x1p-126f;
}

static void check_blocks(struct fp8q_payload *p, const struct item *item,
                         const struct fp8q_weights *w, uint64_t rank, uint64_t row, uint32_t n_rows,
                         const uint8_t *codes)
{
    const struct fp8q_kernel *k = p->options->kernel;
    for (uint64_t col = 0; col < w->n_cols; col += FP8Q_BLOCK) {
        size_t n = (size_t)(w->n_cols - col < FP8Q_BLOCK ? w->n_cols - col : FP8Q_BLOCK);
        unsigned max = 0, row_max;
        for (uint32_t r = 0; r < n_rows; r++) {
            (void)k->scan_codes(codes + r * w->n_cols + col, n, &row_max);
            max = row_max > max ? row_max : max;
        }
        float scale = fp8q_weights_scale(w, row, col);
        if (max_fits(p, max, scale))
            continue;
        pthread_mutex_lock(&p->lock);
        fp8q_finding_add(&p->block_max, rank, item->tensor->name,
                         "block at [%llu, %llu] with scale %g: largest code 0x%02X",
                         (unsigned long long)row, (unsigned long long)col, (double)scale, max);
        pthread_mutex_unlock(&p->lock);
    }
}

static void check_nan(struct fp8q_payload *p, const struct item *item, uint64_t rank,
                      uint64_t offset, const uint8_t *codes, size_t n)
{
    unsigned max;
    size_t found = p->options->kernel->scan_codes(codes, n, &max);
    if (found == 0)
        return;
    size_t at = 0;
    while ((codes[at] & 0x7F) != 0x7F)
        at++;
    pthread_mutex_lock(&p->lock);
    fp8q_finding_add(&p->nan_codes, rank, item->tensor->name, "code 0x%02X at element %llu",
                     codes[at], (unsigned long long)(offset + at));
    pthread_mutex_unlock(&p->lock);
}

static const struct item *item_of(const struct fp8q_payload *p, uint64_t task)
{
    size_t low = 0, high = p->n_items;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p->items[middle].first_task <= task)
            low = middle;
        else
            high = middle;
    }
    return &p->items[low];
}

static int look(struct fp8q_payload *p, unsigned worker, const struct item *item, uint64_t task,
                const uint8_t *bytes, size_t n, struct fp8q_error *err)
{
    uint64_t at = (task - item->first_task) * item->bytes_per_task;
    p->crc[task] = fp8q_crc32(0, bytes, n);
    p->looked_at[task] = true;
    if (item->tensor->dtype == FP8Q_F8_E4M3)
        check_nan(p, item, task, at, bytes, n);
    if (!item->stripes || !p->plain_rounding)
        return FP8Q_OK;
    struct worker *w = &p->workers[worker];
    if (w->of != item) {
        fp8q_weights_reset(&w->weights);
        w->of = NULL;
        FP8Q_TRY(fp8q_weights_open(p->report->ckpt, item->tensor->name, &w->weights, err));
        w->of = item;
    }
    check_blocks(p, item, &w->weights, task, at / item->n_cols, (uint32_t)(n / item->n_cols),
                 bytes);
    return FP8Q_OK;
}

/* Bytes of this task of an item, @at bytes from the tensor's start.  */
static size_t task_bytes(const struct item *item, uint64_t at)
{
    uint64_t left = item->tensor->size_bytes - at;
    return (size_t)(left < item->bytes_per_task ? left : item->bytes_per_task);
}

int fp8q_payload_look(struct fp8q_payload *p, unsigned worker, const struct fp8q_tensor *tensor,
                      uint64_t offset, const void *bytes, size_t n, struct fp8q_error *err)
{
    const struct item *item = &p->items[p->item_of[tensor - p->report->ckpt->tensors]];
    if (offset % item->bytes_per_task != 0 || n != task_bytes(item, offset))
        return FP8Q_OK;
    return look(p, worker, item, item->first_task + offset / item->bytes_per_task, bytes, n, err);
}

static int run_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct fp8q_payload *p = ctx;
    const struct item *item = item_of(p, task);
    const struct fp8q_tensor *t = item->tensor;
    uint8_t *buffer = p->buffers + (size_t)worker * BUFFER;
    uint64_t at = (task - item->first_task) * item->bytes_per_task;
    size_t n = task_bytes(item, at);
    if (!p->looked_at[task]) {
        int fd;
        FP8Q_TRY(fp8q_files_acquire(&p->files, t->shard, &fd, err));
        FP8Q_TRY(
            fp8q_pread(fd, buffer, n, t->offset + at, p->report->ckpt->shards[t->shard].path, err));
        FP8Q_TRY(look(p, worker, item, task, buffer, n, err));
    }
    fp8q_watch_report(p->options->watch, "verify", atomic_fetch_add(&p->done, n) + n,
                      p->report->ckpt->data_bytes, FP8Q_UNIT_BYTES);
    return fp8q_files_release(&p->files, t->shard, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const struct fp8q_tensor *x = ((const struct item *)a)->tensor;
    const struct fp8q_tensor *y = ((const struct item *)b)->tensor;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int open_item(struct fp8q_payload *p, struct item *item, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = item->tensor;
    struct fp8q_weights w;
    item->bytes_per_task = (uint64_t)1 << 20;
    int status = FP8Q_E_FORMAT;
    if (t->dtype == FP8Q_F8_E4M3 && p->report->ours) /* what is wrong with them is said elsewhere */
        status = fp8q_weights_open(p->report->ckpt, t->name, &w, err);
    if (fp8q_cannot_look(status))
        return status;
    if (status == FP8Q_OK) {
        /* Others round their scales to BF16, so the largest code says nothing about theirs.  */
        item->stripes = w.scaling == FP8Q_SCALING_BLOCK && w.matrix_rows % FP8Q_BLOCK == 0 &&
                        w.n_cols <= BUFFER / FP8Q_BLOCK;
        item->n_cols = w.n_cols;
        if (item->stripes)
            item->bytes_per_task = w.n_cols * FP8Q_BLOCK;
        fp8q_weights_reset(&w);
    }
    item->n_tasks = fp8q_ceil_div(t->size_bytes, item->bytes_per_task);
    return FP8Q_OK;
}

static int open_payload(struct fp8q_payload *p, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = p->report->ckpt;
    FP8Q_TRY(fp8q_files_create(ckpt, &p->files, err));
    p->items = fp8q_array(ckpt->n_tensors, sizeof(*p->items));
    p->buffers = fp8q_array(p->options->threads, BUFFER);
    p->workers = fp8q_array(p->options->threads, sizeof(*p->workers));
    p->item_of = fp8q_array(ckpt->n_tensors, sizeof(*p->item_of));
    if (!p->items || !p->buffers || !p->workers || !p->item_of)
        return fp8q_fail_nomem(err);
    p->n_items = ckpt->n_tensors;
    for (size_t i = 0; i < p->n_items; i++)
        p->items[i].tensor = &ckpt->tensors[i];
    qsort(p->items, p->n_items, sizeof(*p->items), compare_places);
    for (size_t i = 0; i < p->n_items; i++) {
        struct item *item = &p->items[i];
        p->item_of[item->tensor - ckpt->tensors] = i;
        FP8Q_TRY(open_item(p, item, err));
        if (item->tensor->dtype == FP8Q_F8_E4M3)
            FP8Q_TRY(check_scales(p, item->tensor, i, err));
        item->first_task = p->n_tasks;
        p->n_tasks += item->n_tasks;
        fp8q_files_expect(&p->files, item->tensor->shard, item->n_tasks);
        p->nan_codes.n_looked_at += item->tensor->dtype == FP8Q_F8_E4M3 ? item->tensor->n_elems : 0;
        p->block_max.n_looked_at += item->stripes;
    }
    p->crc = fp8q_array(p->n_tasks, sizeof(*p->crc));
    p->looked_at = fp8q_array(p->n_tasks, sizeof(*p->looked_at));
    return p->crc && p->looked_at ? FP8Q_OK : fp8q_fail_nomem(err);
}

static void compare_crcs(struct fp8q_payload *p)
{
    for (size_t i = 0; i < p->n_items; i++) {
        const struct item *item = &p->items[i];
        uint32_t crc = 0, expected;
        for (uint64_t k = 0; k < item->n_tasks; k++) {
            uint64_t left = item->tensor->size_bytes - k * item->bytes_per_task;
            crc = fp8q_crc32_join(crc, p->crc[item->first_task + k],
                                  left < item->bytes_per_task ? left : item->bytes_per_task);
        }
        p->tensor_crc.n_looked_at++;
        if (fp8q_manifest_crc(&p->report->manifest, item->tensor->name, &expected) &&
            crc != expected)
            fp8q_finding_add(&p->tensor_crc, i, item->tensor->name, "CRC-32 %08x, expected %08x",
                             (unsigned)crc, (unsigned)expected);
    }
}

static int report_payload(struct fp8q_payload *p, struct fp8q_error *err)
{
    struct fp8q_verify_report *r = p->report;
    if (r->ours) {
        compare_crcs(p);
        FP8Q_TRY(fp8q_verify_report_add(r, &p->tensor_crc, err));
    }
    FP8Q_TRY(fp8q_verify_report_add(r, &p->nan_codes, err));
    FP8Q_TRY(fp8q_verify_report_add(r, &p->scales, err));
    if (p->ue8m0)
        FP8Q_TRY(fp8q_verify_report_add(r, &p->pow2, err));
    return r->ours && p->plain_rounding ? fp8q_verify_report_add(r, &p->block_max, err) : FP8Q_OK;
}

int fp8q_payload_open(struct fp8q_verify_report *report, const struct fp8q_verify_options *o,
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
        .ue8m0 = strcmp(fp8q_json_string(fp8q_json_get(quant, "scale_fmt"), ""), "ue8m0") == 0 ||
                 strcmp(fp8q_json_string(fp8q_json_get(report->manifest.json, "scale_fmt"), ""),
                        "ue8m0") == 0,
        .plain_rounding = strcmp(rounding, "nearest-even") == 0,
        .nan_codes = {.id = "nan-codes",
                      .status = FP8Q_CHECK_FAIL,
                      .limit = "no code 0x7F or 0xFF"},
        .block_max = {.id = "block-max",
                      .status = FP8Q_CHECK_FAIL,
                      .limit = "the largest code of a block is what its scale rule gives"},
        .scales = {.id = "scale-values",
                   .status = FP8Q_CHECK_FAIL,
                   .limit = "finite, at least 2^-126"},
        .pow2 = {.id = "scale-pow2", .status = FP8Q_CHECK_FAIL, .limit = "powers of two"},
        .tensor_crc = {
            .id = "tensor-crc", .status = FP8Q_CHECK_FAIL, .limit = "each tensor as written"}};
    int status = open_payload(p, err);
    if (status != FP8Q_OK) {
        fp8q_payload_close(p);
        *payload_out = NULL;
    }
    return status;
}

int fp8q_payload_finish(struct fp8q_payload *p, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_pool_run(p->options->watch, p->options->threads, p->n_tasks, run_task, p, err));
    return report_payload(p, err);
}

void fp8q_payload_close(struct fp8q_payload *p)
{
    if (!p)
        return;
    for (unsigned i = 0; p->workers && i < p->options->threads; i++)
        fp8q_weights_reset(&p->workers[i].weights);
    fp8q_files_reset(&p->files);
    free(p->workers);
    free(p->items);
    free(p->item_of);
    free(p->buffers);
    free(p->crc);
    free(p->looked_at);
    free(p);
}
