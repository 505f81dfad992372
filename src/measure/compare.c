/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c - streams the chosen tensors twice and folds the errors of their stripes.
 *
 * Work goes in batches of tensors, so that memory stays bounded and the second reading of a batch
 * still finds it in the page cache.  Sums are kept per stripe and added in a fixed order.
 */
#include "measure/compare.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "measure/compare_stripe.h"
#include "base/io.h"
#include "base/mem.h"
#include "format/names.h"
#include "base/pool.h"
#include "checkpoint/packed.h"
#include "checkpoint/scales.h"

#define BATCH_BYTES (256u << 20) /* a batch ends once it has this much */

/* ---- names and figures --------------------------------------------------------------------- */

const char *fp8q_compare_format(unsigned row)
{
    if (row <= FP8Q_CMP_MXFP8)
        return "FP8-E4M3";
    return row <= FP8Q_CMP_INT8_BLOCK ? "INT8" : "INT4";
}

const char *fp8q_compare_granularity(unsigned row)
{
    static const char *const names[] = {"tensor", "channel", "block",   "block-ue8m0",
                                        "mx-32",  "tensor",  "channel", "block",
                                        "tensor", "channel", "block"};
    return names[row];
}

double fp8q_compare_rmse(const struct fp8q_compare_sums *sums, unsigned row)
{
    return sums->n_elems ? sqrt(sums->d2[row] / (double)sums->n_elems) : 0;
}

double fp8q_compare_relative(const struct fp8q_compare_sums *sums, unsigned row)
{
    return sums->w2 > 0 ? sqrt(sums->d2[row] / sums->w2) : 0;
}

double fp8q_compare_sqnr_db(const struct fp8q_compare_sums *sums, unsigned row)
{
    return 10 * log10(sums->w2 / sums->d2[row]); /* no error at all: infinity, null in JSON */
}

static void add_bytes(struct fp8q_compare_sums *sums, uint64_t rows, uint64_t cols)
{
    static const struct fp8q_grid tensor = {0, 0}, channel = {1, 0},
                                  block = {FP8Q_BLOCK, FP8Q_BLOCK}, group = {1, FP8Q_GROUP};
    static const struct fp8q_grid *const grids[FP8Q_CMP_ROWS] = {
        &tensor,  &channel, &block,  &block,   &group, &tensor,
        &channel, &block,   &tensor, &channel, &block};

    for (unsigned row = 0; row < FP8Q_CMP_ROWS; row++) {
        /* Two INT4 values share a byte; a scale counts with the four bytes of a float in every
         * row but that of MXFP8, whose scales are bytes.  */
        uint64_t scale_bytes = row == FP8Q_CMP_MXFP8 ? 1 : sizeof(float);
        uint64_t scales[2], row_bytes = row < FP8Q_CMP_INT4_TENSOR ? cols : fp8q_ceil_div(cols, 2);

        fp8q_grid_shape(*grids[row], rows, cols, scales);
        sums->bytes[row] += rows * row_bytes + scales[0] * scales[1] * scale_bytes;
    }
}

/* ---- selection ----------------------------------------------------------------------------- */

static bool is_matrix(const struct fp8q_tensor *t)
{
    enum fp8q_float from;
    return t->ndim == 2 && t->n_elems > 0 && fp8q_float_of(t->dtype, &from);
}

static bool is_layer_weight(void *ctx, const struct fp8q_tensor *t)
{
    (void)ctx;
    if (!fp8q_ends_with(t->name, FP8Q_WEIGHT_ENDING))
        return false;

    /* A whole component followed by a number: "sub_layers.0" and "layers.norm" are none.  */
    for (const char *at = t->name; (at = strstr(at, "layers.")); at++)
        if ((at == t->name || at[-1] == '.') && at[7] >= '0' && at[7] <= '9')
            return true;
    return false;
}

static bool is_any(void *ctx, const struct fp8q_tensor *t)
{
    (void)ctx;
    (void)t;
    return true;
}

struct compare_run {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_compare_options *options;
    struct fp8q_compare *result;
    const struct fp8q_tensor **tensors; /* the chosen ones */
    size_t n_tensors;
    uint64_t bytes_total; /* to be read, twice */
    _Atomic uint64_t bytes_done;
    int *fds;                             /* per shard, -1: not open */
    struct fp8q_compare_scratch *scratch; /* per worker */
    struct stripe_task *tasks;            /* of the batch at work */
    size_t n_tasks, tasks_cap;
};

static int choose_named(struct compare_run *run, struct fp8q_error *err)
{
    const struct fp8q_compare_options *o = run->options;
    struct fp8q_shown shown;

    for (size_t i = 0; i < o->n_names; i++) {
        const struct fp8q_tensor *t = fp8q_ckpt_find(run->ckpt, o->names[i]);
        if (!t)
            return fp8q_fail(err, FP8Q_E_ARG, "no-such-tensor", "%s: there is no tensor \"%s\"",
                             run->ckpt->path, fp8q_show(&shown, o->names[i]));
        if (!is_matrix(t))
            return fp8q_fail(
                err, FP8Q_E_UNSUPPORTED, "tensor-kind",
                "tensor \"%s\": expected a 2-D float weight, found %s with %u dimensions",
                fp8q_show(&shown, t->name), fp8q_dtype_name(t->dtype), t->ndim);

        /* Twice in the list would be twice in the sums.  */
        for (size_t j = 0; j < run->n_tensors; j++)
            if (run->tensors[j] == t)
                return fp8q_fail(err, FP8Q_E_ARG, "tensor-twice", "tensor \"%s\" is given twice",
                                 fp8q_show(&shown, t->name));
        run->tensors[run->n_tensors++] = t;
    }
    return FP8Q_OK;
}

static void choose_by(struct compare_run *run, bool (*take)(void *, const struct fp8q_tensor *),
                      void *ctx)
{
    for (size_t i = 0; i < run->ckpt->n_tensors; i++)
        if (is_matrix(&run->ckpt->tensors[i]) && take(ctx, &run->ckpt->tensors[i]))
            run->tensors[run->n_tensors++] = &run->ckpt->tensors[i];
}

static int choose(struct compare_run *run, struct fp8q_error *err)
{
    const struct fp8q_compare_options *o = run->options;
    uint64_t room = fp8q_max_u64(o->n_names, run->ckpt->n_tensors);
    run->tensors = fp8q_array(room, sizeof(*run->tensors));
    if (!run->tensors)
        return fp8q_fail_nomem(err);

    run->result->selection = "tensors named";
    if (o->n_names > 0)
        return choose_named(run, err);

    run->result->selection = o->take ? "weights that quantize takes" : "weights of layers";
    choose_by(run, o->take ? o->take : is_layer_weight, o->take_ctx);

    /* No numbered layers at all: any matrix is better than nothing, unless the caller has a
     * rule.  */
    if (run->n_tensors == 0 && !o->take) {
        run->result->selection = "2-D float tensors";
        choose_by(run, is_any, NULL);
    }
    if (run->n_tensors == 0)
        return fp8q_fail(err, FP8Q_E_MISMATCH, "nothing-to-compare",
                         "%s: no 2-D float weights to compare", run->ckpt->path);
    return FP8Q_OK;
}

/* ---- stripes ------------------------------------------------------------------------------- */

struct stripe_task {
    const struct fp8q_tensor *tensor;
    uint64_t row;
    uint32_t n_rows;
    float tensor_amax; /* after the first pass */
    uint32_t amax_bits;
    struct fp8q_stripe_sums sums;
};

static int read_stripe(struct compare_run *run, unsigned worker, const struct stripe_task *task,
                       struct fp8q_stripe *stripe_out, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = task->tensor;
    struct fp8q_compare_scratch *scratch = &run->scratch[worker];
    unsigned elem_bytes = fp8q_dtype_bits(t->dtype) / 8;
    uint64_t cols = t->shape[1], row_bytes = cols * elem_bytes, bytes = task->n_rows * row_bytes;

    FP8Q_TRY(fp8q_compare_scratch_fit(scratch, task->n_rows, cols, elem_bytes, err));
    FP8Q_TRY(fp8q_pread(run->fds[t->shard], scratch->src, (size_t)bytes,
                        t->offset + task->row * row_bytes, run->ckpt->shards[t->shard].path, err));

    *stripe_out = (struct fp8q_stripe){.src = scratch->src, .n_rows = task->n_rows, .n_cols = cols};
    fp8q_float_of(t->dtype, &stripe_out->from);

    /* Workers finish in any order; each reports the sum of all at its own end.  */
    uint64_t done = atomic_fetch_add(&run->bytes_done, bytes) + bytes;
    fp8q_watch_report(run->options->watch, "compare", done, run->bytes_total, FP8Q_UNIT_BYTES);
    return FP8Q_OK;
}

static int amax_task(void *ctx, unsigned worker, uint64_t index, struct fp8q_error *err)
{
    struct compare_run *run = ctx;
    struct stripe_task *task = &run->tasks[index];
    struct fp8q_stripe stripe;
    struct fp8q_shown shown;

    FP8Q_TRY(read_stripe(run, worker, task, &stripe, err));
    task->amax_bits = run->options->kernel->amax_bits[stripe.from](
        stripe.src, (size_t)(stripe.n_rows * stripe.n_cols));

    /* An infinity in a format's own bits becomes a number in none of the others.  */
    uint64_t row, col;
    if (!fp8q_amax_value(stripe.from, task->amax_bits, &task->tensor_amax) &&
        fp8q_stripe_nonfinite(&stripe, &row, &col))
        return fp8q_fail(err, FP8Q_E_FORMAT, "not-finite",
                         "tensor \"%s\": NaN or Inf at [%llu, %llu]",
                         fp8q_show(&shown, task->tensor->name),
                         (unsigned long long)(task->row + row), (unsigned long long)col);
    return FP8Q_OK;
}

static int error_task(void *ctx, unsigned worker, uint64_t index, struct fp8q_error *err)
{
    struct compare_run *run = ctx;
    struct stripe_task *task = &run->tasks[index];
    struct fp8q_stripe stripe;

    /* Read once more: a worker has room for one stripe, not for its share of the batch.  */
    FP8Q_TRY(read_stripe(run, worker, task, &stripe, err));
    fp8q_compare_stripe(run->options->kernel, &stripe, task->tensor_amax, &run->scratch[worker],
                        &task->sums);
    return FP8Q_OK;
}

/* ---- groups -------------------------------------------------------------------------------- */

/* "model.layers.0.mlp.up_proj.weight" -> "up_proj"; a name without dots is its own group.  */
static const char *group_name(const char *name, size_t *len_out)
{
    size_t len = fp8q_weight_stem(name);

    size_t begin = len;
    while (begin > 0 && name[begin - 1] != '.')
        begin--;
    *len_out = len - begin;
    return name + begin;
}

static int find_group(struct fp8q_compare *result, const char *tensor,
                      struct fp8q_compare_sums **group_out, struct fp8q_error *err)
{
    size_t len;
    const char *name = group_name(tensor, &len);

    /* A network has some dozen kinds of linears: no table is needed to find one.  */
    for (size_t i = 0; i < result->n_groups; i++) {
        *group_out = &result->groups[i];
        if (strlen((*group_out)->name) == len && memcmp((*group_out)->name, name, len) == 0)
            return FP8Q_OK;
    }

    FP8Q_TRY(fp8q_grow(&result->groups, result->n_groups, &result->groups_cap,
                       sizeof(*result->groups), err));
    *group_out = &result->groups[result->n_groups];
    **group_out = (struct fp8q_compare_sums){.name = strndup(name, len)};
    if (!(*group_out)->name)
        return fp8q_fail_nomem(err);
    result->n_groups++;
    return FP8Q_OK;
}

static int compare_groups(const void *a, const void *b)
{
    const struct fp8q_compare_sums *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void add_tensor(struct fp8q_compare_sums *sums, const struct fp8q_tensor *t,
                       const struct fp8q_stripe_sums *s)
{
    sums->n_tensors++;
    sums->n_elems += t->n_elems;
    sums->source_bytes += t->size_bytes;
    sums->w2 += s->w2;
    for (unsigned i = 0; i < FP8Q_CMP_ROWS; i++)
        sums->d2[i] += s->d2[i];
    add_bytes(sums, t->shape[0], t->shape[1]);
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Index of the first task of the next tensor.  */
static size_t tensor_end(const struct compare_run *run, size_t first)
{
    size_t end = first + 1;
    while (end < run->n_tasks && run->tasks[end].tensor == run->tasks[first].tensor)
        end++;
    return end;
}

static void share_amax(struct compare_run *run)
{
    /* Tasks of a tensor stand side by side, and no tensor is split between batches.  */
    for (size_t first = 0, end; first < run->n_tasks; first = end) {
        float amax = 0;

        end = tensor_end(run, first);
        for (size_t i = first; i < end; i++)
            amax = fmaxf(amax, run->tasks[i].tensor_amax);
        for (size_t i = first; i < end; i++)
            run->tasks[i].tensor_amax = amax;
    }
}

static int fold_batch(struct compare_run *run, struct fp8q_error *err)
{
    for (size_t first = 0, end; first < run->n_tasks; first = end) {
        const struct fp8q_tensor *t = run->tasks[first].tensor;
        struct fp8q_stripe_sums sums = {0};
        struct fp8q_compare_sums *group = NULL;

        end = tensor_end(run, first);
        /* In the order of stripes, whoever worked on them: sums of doubles depend on their
         * order.  */
        for (size_t i = first; i < end; i++) {
            sums.w2 += run->tasks[i].sums.w2;
            for (unsigned j = 0; j < FP8Q_CMP_ROWS; j++)
                sums.d2[j] += run->tasks[i].sums.d2[j];
        }

        FP8Q_TRY(find_group(run->result, t->name, &group, err));
        add_tensor(group, t, &sums);
        add_tensor(&run->result->total, t, &sums);
    }
    return FP8Q_OK;
}

static int add_tasks(struct compare_run *run, const struct fp8q_tensor *t, struct fp8q_error *err)
{
    /* Shards are opened when they are needed; fp8q_compare() closes them at its end.  */
    if (run->fds[t->shard] < 0)
        FP8Q_TRY(fp8q_open_read(run->ckpt->shards[t->shard].path, NULL, &run->fds[t->shard], err));

    for (uint64_t row = 0; row < t->shape[0]; row += FP8Q_BLOCK) {
        uint64_t n_rows = fp8q_min_u64(t->shape[0] - row, FP8Q_BLOCK);
        FP8Q_TRY(fp8q_grow(&run->tasks, run->n_tasks, &run->tasks_cap, sizeof(*run->tasks), err));
        run->tasks[run->n_tasks++] =
            (struct stripe_task){.tensor = t, .row = row, .n_rows = (uint32_t)n_rows};
    }
    return FP8Q_OK;
}

static int run_batches(struct compare_run *run, struct fp8q_error *err)
{
    unsigned threads = run->options->threads;

    for (size_t next = 0; next < run->n_tensors;) {
        uint64_t bytes = 0;

        /* The scale of a whole tensor needs all of its stripes: hence two rounds.  */
        run->n_tasks = 0;
        while (next < run->n_tensors && bytes < BATCH_BYTES) {
            FP8Q_TRY(add_tasks(run, run->tensors[next], err));
            bytes += run->tensors[next++]->size_bytes;
        }

        FP8Q_TRY(fp8q_pool_run(run->options->watch, threads, run->n_tasks, amax_task, run, err));
        share_amax(run);
        FP8Q_TRY(fp8q_pool_run(run->options->watch, threads, run->n_tasks, error_task, run, err));
        FP8Q_TRY(fold_batch(run, err));
    }
    return FP8Q_OK;
}

static int start(struct compare_run *run, struct fp8q_error *err)
{
    FP8Q_TRY(choose(run, err));
    /* Every tensor is read in both rounds, hence the 2.  */
    for (size_t i = 0; i < run->n_tensors; i++)
        run->bytes_total += 2 * run->tensors[i]->size_bytes;

    run->scratch = fp8q_array(run->options->threads, sizeof(*run->scratch));
    run->fds = fp8q_array(run->ckpt->n_shards, sizeof(*run->fds));
    if (!run->scratch || !run->fds)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < run->ckpt->n_shards; i++)
        run->fds[i] = -1;
    return run_batches(run, err);
}

/* What is compared is the weights themselves; those of FP8 are rounded already, and their bytes are
 * no values.  */
static int refuse_quantized(const struct fp8q_ckpt *ckpt, struct fp8q_error *err)
{
    struct fp8q_shown path, name;

    FP8Q_TRY(fp8q_refuse_packed(ckpt, err));
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (fp8q_is_fp8(ckpt->tensors[i].dtype) && ckpt->tensors[i].ndim >= 2)
            return fp8q_fail(err, FP8Q_E_ARG, "already-quantized",
                             "%s: \"%s\" is FP8 already; compare the checkpoint that it was made "
                             "from, or what `fp8q dequantize` gives",
                             fp8q_show(&path, ckpt->path), fp8q_show(&name, ckpt->tensors[i].name));
    return FP8Q_OK;
}

static int measure(struct compare_run *run, struct fp8q_error *err)
{
    FP8Q_TRY(refuse_quantized(run->ckpt, err));
    FP8Q_TRY(start(run, err));

    /* Of a checkpoint that changed meanwhile the figures are of two states: none are given.  */
    return fp8q_ckpt_unchanged(run->ckpt, err);
}

int fp8q_compare(const struct fp8q_ckpt *ckpt, const struct fp8q_compare_options *options,
                 struct fp8q_compare *result_out, struct fp8q_error *err)
{
    *result_out = (struct fp8q_compare){0};
    struct compare_run run = {.ckpt = ckpt, .options = options, .result = result_out};

    int status = measure(&run, err);
    for (size_t i = 0; run.fds && i < ckpt->n_shards; i++)
        if (run.fds[i] >= 0)
            fp8q_close(&run.fds[i], ckpt->shards[i].path, NULL);
    for (unsigned i = 0; run.scratch && i < options->threads; i++)
        fp8q_compare_scratch_reset(&run.scratch[i]);
    free(run.fds);
    free(run.scratch);
    free(run.tasks);
    free(run.tensors);

    if (status != FP8Q_OK)
        fp8q_compare_reset(result_out);
    else
        qsort(result_out->groups, result_out->n_groups, sizeof(*result_out->groups),
              compare_groups);
    return status;
}

void fp8q_compare_reset(struct fp8q_compare *result)
{
    for (size_t i = 0; i < result->n_groups; i++)
        free(result->groups[i].name);
    free(result->groups);
    *result = (struct fp8q_compare){0};
}
