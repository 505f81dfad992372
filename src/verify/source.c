/* SPDX-License-Identifier: Apache-2.0
 *
 * source.c - an output against its source.
 *
 * How it works.  The plan is made again, from the request that the manifest holds; a checkpoint of
 * another tool is planned like itself (what is FP8 there is to be FP8).  The plan says for each
 * output tensor which rows of which source tensor it comes from, so the two checkpoints are walked
 * side by side in the stripes of the plan, each file read once from front to back:
 *
 *     left unquantized   the same bytes                                    kept-identical
 *     FP8                the scale that the source gives, bit for bit      scales-equal
 *                        (per tensor: by all that engines fuse with it)
 *                        the FP8 values that source and scale give         codes-equal
 *                        each element within its bound                     error-bound
 *     GPTQ               the same with the calibration file; without it
 *                        a bound for each block                            block-error-bound
 *     float again        decoded and rounded again, the same bytes         kept-identical
 *
 * What was written by fp8q must be equal; what another tool wrote, with scales and rounding of its
 * own, keeps a bound that is twice as wide.  The rules and the kernels are the writer's; none of
 * its code for streaming and for files is, so an error there cannot hide here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/mem.h"
#include "base/pool.h"
#include "checkpoint/fingerprint.h"
#include "verify/internal.h"

/* ---- the plan of the output ------------------------------------------------------------------ */

static int make_plan(struct fp8q_report *report, const struct fp8q_verify_options *o,
                     struct fp8q_error *err)
{
    struct fp8q_request r = {.format = FP8Q_FORMAT_FP8};
    const char *method = fp8q_json_string(
        fp8q_json_path(report->ckpt->config, "quantization_config.quant_method"), "fp8");

    if (report->ours)
        r = report->manifest.request;
    else if (strcmp(method, "compressed-tensors") == 0)
        r.format = FP8Q_FORMAT_COMPRESSED_TENSORS;
    r.tp = 0;

    /* Of what another tool was asked to do nothing is known but the result.  */
    bool like = !report->ours || r.like;
    struct fp8q_plan_options options = fp8q_request_options(&r, like ? report->ckpt : NULL);
    options.threads = o->threads;

    struct fp8q_data_scales stored;
    struct fp8q_data_scales_of derived;
    FP8Q_TRY(fp8q_verify_data_open(report, o, &options, &stored, &derived, err));

    /* Reasons to refuse were weighed when it was quantized; now the output is there, and only to be
     * described.  */
    options.select.allow_tower = true;
    options.select.allow_unmatched = true;
    if (!report->ours)
        options.select.unaligned = FP8Q_UNALIGNED_QUANTIZE;

    struct fp8q_warnings ignored = {0}; /* they were given when it was quantized */
    int status = fp8q_plan_create(report->source, &options, &report->plan, &ignored, err);
    fp8q_warnings_reset(&ignored);
    fp8q_data_scales_close(&derived);
    return status;
}

static bool is_as_planned(const struct fp8q_comparison *c, const struct fp8q_out_tensor *p,
                          const struct fp8q_tensor *t)
{
    if (fp8q_is_with_scales(p) && !c->report->ours)
        return true; /* other tools have other types and shapes of scales */
    if (t->dtype != p->dtype || t->ndim != p->ndim)
        return false;

    /* Of a scalar neither has a shape to point to.  */
    return p->ndim == 0 || memcmp(t->shape, p->shape, p->ndim * sizeof(*p->shape)) == 0;
}

/* "[256, 128]", as far as it fits.  */
static const char *shape_text(char text[80], const uint64_t *shape, uint32_t ndim)
{
    int at = snprintf(text, 80, "[");
    /* Up to 55 characters leave room for one more number of 20 digits, and the bracket.  */
    for (uint32_t k = 0; k < ndim && at < 56; k++)
        at += snprintf(text + at, 80 - (size_t)at, "%s%llu", k ? ", " : "",
                       (unsigned long long)shape[k]);
    snprintf(text + at, 80 - (size_t)at, "]");
    return text;
}

/* Every planned tensor is there as planned, and no other.  */
static int match_tensors(struct fp8q_comparison *c, struct fp8q_error *err)
{
    struct fp8q_findings f = {.id = "source-tensors",
                              .status = FP8Q_CHECK_FAIL,
                              .limit =
                                  "the tensors that the source gives, with their types and shapes"};
    char found[80], planned[80];
    size_t n_there = 0;

    for (size_t i = 0; i < c->plan->n_tensors; i++) {
        const struct fp8q_out_tensor *p = &c->plan->tensors[i];
        const struct fp8q_tensor *t = fp8q_ckpt_find(c->report->ckpt, p->name);
        f.n_looked_at++;
        n_there += t != NULL;

        if (!t)
            fp8q_findings_add(&f, i, p->name, "is missing");
        else if (is_as_planned(c, p, t))
            c->tensors[i] = t;
        else
            fp8q_findings_add(&f, i, p->name, "is %s %s, expected %s %s", fp8q_dtype_name(t->dtype),
                              shape_text(found, t->shape, t->ndim), fp8q_dtype_name(p->dtype),
                              shape_text(planned, p->shape, p->ndim));
    }

    size_t n_more = c->report->ckpt->n_tensors - n_there;
    if (n_more)
        fp8q_findings_add(&f, c->plan->n_tensors, c->report->ckpt->path,
                          "%zu tensor%s that the source does not give", n_more,
                          fp8q_plural(n_more));
    return fp8q_report_add(c->report, &f, err);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static int load_scales(const struct fp8q_compare_job *job, struct fp8q_error *err)
{
    const struct fp8q_comparison *c = job->all;
    struct fp8q_compare_worker *w = job->worker;
    size_t index = (size_t)(job->piece - c->plan->pieces);

    /* Stripes come in rising order, so a worker mostly stays with its piece.  */
    if (w->piece == index)
        return FP8Q_OK;

    fp8q_weights_reset(&w->source);
    fp8q_weights_reset(&w->output);
    /* Of no piece, until all scales that it needs are open.  */
    w->piece = SIZE_MAX;

    if (fp8q_is_fp8(job->source->dtype))
        FP8Q_TRY(fp8q_weights_open(c->plan->ckpt, job->source->name, &w->source, err));
    if (job->piece->kind == FP8Q_OUT_CODES)
        FP8Q_TRY(fp8q_weights_open(c->report->ckpt, job->output->name, &w->output, err));
    w->piece = index;
    return FP8Q_OK;
}

static int compare(const struct fp8q_compare_job *job, struct fp8q_error *err)
{
    if (job->piece->kind == FP8Q_OUT_KEPT)
        return fp8q_compare_kept(job, err);

    FP8Q_TRY(load_scales(job, err));
    if (job->piece->kind == FP8Q_OUT_CODES)
        return fp8q_compare_fp8(job, err);
    return fp8q_compare_float(job, err);
}

static int run_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct fp8q_comparison *c = ctx;
    const struct fp8q_piece *p = fp8q_plan_piece(c->plan, task);
    const struct fp8q_tensor *s = &c->plan->ckpt->tensors[p->source], *t = c->tensors[p->output];
    if (!t)
        return FP8Q_OK; /* reported as missing */

    uint64_t row = (task - p->first_stripe) * FP8Q_BLOCK;
    struct fp8q_compare_job job = {.all = c,
                                   .worker = &c->workers[worker],
                                   .piece = p,
                                   .source = s,
                                   .output = t,
                                   .src_path = c->plan->ckpt->shards[s->shard].path,
                                   .dst_path = c->report->ckpt->shards[t->shard].path,
                                   .stripe = task,
                                   .row = row};

    /* What is left unquantized counts in bytes, and has no rows.  */
    if (p->kind != FP8Q_OUT_KEPT)
        job.n_rows = (uint32_t)fp8q_min_u64(p->n_rows - row, FP8Q_BLOCK);

    FP8Q_TRY(fp8q_files_acquire(&c->sources, s->shard, &job.src_fd, err));
    FP8Q_TRY(fp8q_files_acquire(&c->outputs, t->shard, &job.dst_fd, err));
    FP8Q_TRY(compare(&job, err));

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

    /* Worst first; equal ones by name, since qsort() alone leaves their order open.  */
    if (x->db != y->db)
        return x->db < y->db ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sums in the order of stripes, so that no digit depends on the threads.  */
static double sqnr_of(const struct fp8q_comparison *c, const struct fp8q_piece *p)
{
    double w2 = 0, d2 = 0;
    for (uint64_t k = p->first_stripe; k < p->first_stripe + p->n_stripes; k++) {
        w2 += c->stripes[k].w2;
        d2 += c->stripes[k].d2;
    }
    return d2 > 0 ? 10 * log10(w2 / d2) : INFINITY;
}

static int collect_sqnr(struct fp8q_comparison *c, struct fp8q_error *err)
{
    struct fp8q_report *r = c->report;
    double total = 0;
    size_t n_finite = 0;

    r->sqnr = fp8q_array(c->plan->n_pieces, sizeof(*r->sqnr));
    if (!r->sqnr)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < c->plan->n_pieces; i++) {
        const struct fp8q_piece *p = &c->plan->pieces[i];
        if (p->kind != FP8Q_OUT_CODES || !c->tensors[p->output])
            continue;
        double db = sqnr_of(c, p);
        r->sqnr[r->n_sqnr++] = (struct fp8q_sqnr){c->plan->tensors[p->output].name, db};

        /* One exact tensor would make the mean infinite.  */
        if (isfinite(db)) {
            total += db;
            n_finite++;
        }
    }

    qsort(r->sqnr, r->n_sqnr, sizeof(*r->sqnr), compare_sqnr);
    r->sqnr_mean = n_finite ? total / (double)n_finite : INFINITY;
    return FP8Q_OK;
}

/* ---- scales per tensor ----------------------------------------------------------------------- */

static float piece_amax(const struct fp8q_comparison *c, const struct fp8q_piece *p)
{
    float amax = 0;
    for (uint64_t k = p->first_stripe; k < p->first_stripe + p->n_stripes; k++)
        amax = c->stripes[k].amax > amax ? c->stripes[k].amax : amax;
    return amax;
}

static void check_tensor_scale(struct fp8q_comparison *c, const struct fp8q_piece *p, float amax)
{
    float stored = c->stripes[p->first_stripe].scale;

    if (!isfinite(amax)) {
        fp8q_findings_add(&c->bound, p->first_stripe, c->plan->tensors[p->output].name,
                          "the source, or what engines fuse with it, is not finite");
        return;
    }

    float scale = fp8q_scale(amax, FP8Q_SCALE_F32);
    if (!fp8q_same_bits(scale, stored))
        fp8q_findings_add(&c->scales, p->first_stripe, c->plan->tensors[p->scale].name,
                          "scale is %.9g, the source gives %.9g", (double)stored, (double)scale);
}

/* After all stripes: the largest value of a fused group gives the scale of each of its tensors.  */
static int check_tensor_scales(struct fp8q_comparison *c, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = c->plan;
    if (!c->same_rules || plan->n_groups == 0)
        return FP8Q_OK;

    float *amax = fp8q_array(plan->n_groups, sizeof(*amax));
    if (!amax)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        if (p->group != SIZE_MAX)
            amax[p->group] = fmaxf(amax[p->group], piece_amax(c, p));
    }

    /* What is missing was reported; what is empty left no stripe to remember its scale.  */
    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        if (p->group != SIZE_MAX && p->n_stripes && c->tensors[p->output])
            check_tensor_scale(c, p, amax[p->group]);
    }
    free(amax);
    return FP8Q_OK;
}

/* ---- the source's fingerprint ---------------------------------------------------------------- */

/* The CRC-32 of the rows of a source tensor that one piece took; false if not all were read.  */
static bool add_piece(const struct fp8q_comparison *c, const struct fp8q_piece *p, uint32_t *crc,
                      uint64_t *n_bytes)
{
    for (uint64_t k = p->first_stripe; k < p->first_stripe + p->n_stripes; k++) {
        const struct fp8q_stripe_found *s = &c->stripes[k];
        /* Not read here, or in parts of rows.  */
        if (s->n_bytes == 0)
            return false;
        *crc = fp8q_crc32_join(*crc, s->crc, s->n_bytes);
        *n_bytes += s->n_bytes;
    }
    return true;
}

/* Of a tensor that the output does not carry, or not in rows that were read whole.  */
static int crc_by_reading(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *t, char *memory,
                          uint32_t *crc_out, struct fp8q_error *err)
{
    *crc_out = 0;
    for (uint64_t at = 0, n; at < t->size_bytes; at += n) {
        n = fp8q_min_u64(t->size_bytes - at, FP8Q_COPY_BYTES);
        FP8Q_TRY(fp8q_ckpt_read(ckpt, t, at, memory, (size_t)n, err));
        *crc_out = fp8q_crc32(*crc_out, memory, (size_t)n);
    }
    return FP8Q_OK;
}

/* By the place in the source.  */
static int compare_pieces(const void *a, const void *b)
{
    const struct fp8q_piece *x = *(const struct fp8q_piece *const *)a;
    const struct fp8q_piece *y = *(const struct fp8q_piece *const *)b;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    return x->first_row < y->first_row ? -1 : x->first_row > y->first_row;
}

static int fingerprint_of(const struct fp8q_comparison *c, const struct fp8q_piece *const *pieces,
                          uint32_t *out, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = c->plan->ckpt;
    const struct fp8q_piece *const *end = pieces + c->plan->n_pieces;
    *out = 0;

    /* Pieces come in the order of the source: one walk finds those of each tensor, be they none or
     * many.  */
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        uint64_t n_bytes = 0;
        uint32_t crc = 0;
        bool all = true;
        for (; pieces < end && (*pieces)->source == i; pieces++)
            all = all && add_piece(c, *pieces, &crc, &n_bytes);

        /* No worker runs any more, so the memory of the first is free to read the tensor with.  */
        if (!all || n_bytes != t->size_bytes)
            FP8Q_TRY(crc_by_reading(ckpt, t, c->workers[0].memory, &crc, err));
        *out = fp8q_fingerprint_add(*out, t->name, t->dtype, t->shape, t->ndim, crc);
    }
    return FP8Q_OK;
}

/* All of the source is what the manifest says that the output was made of: also the tensors that
 * the output does not carry.  */
static int check_fingerprint(struct fp8q_comparison *c, struct fp8q_error *err)
{
    uint32_t found, expected;

    /* Only a manifest of fp8q names the source.  */
    if (!c->same_rules)
        return FP8Q_OK;

    const struct fp8q_piece **pieces = fp8q_array(c->plan->n_pieces, sizeof(*pieces));
    if (!pieces)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < c->plan->n_pieces; i++)
        pieces[i] = &c->plan->pieces[i];
    qsort(pieces, c->plan->n_pieces, sizeof(*pieces), compare_pieces);
    int status = fingerprint_of(c, pieces, &found, err);
    free(pieces);
    FP8Q_TRY(status);

    (void)fp8q_parse_crc(
        fp8q_json_string(fp8q_json_path(c->report->manifest.json, "source.fingerprint"), NULL),
        &expected);
    c->fingerprint.n_looked_at = c->plan->ckpt->n_tensors;
    if (found != expected)
        fp8q_findings_add(&c->fingerprint, 0, c->plan->ckpt->path,
                          "fingerprint %08x, made of one with %08x", (unsigned)found,
                          (unsigned)expected);
    return FP8Q_OK;
}

static void count_looked_at(struct fp8q_comparison *c)
{
    for (size_t i = 0; i < c->plan->n_pieces; i++) {
        const struct fp8q_piece *p = &c->plan->pieces[i];
        if (p->kind != FP8Q_OUT_CODES) {
            c->kept.n_looked_at++;
            continue;
        }

        const struct fp8q_out_tensor *s = &c->plan->tensors[p->scale];
        uint64_t n = p->n_rows * p->n_cols;
        /* Without the calibration file, GPTQ's rounding cannot be repeated; the bounds of its
         * blocks still hold.  */
        bool derived = !c->gptq[i] || c->derives_gptq;
        c->codes.n_looked_at += derived ? n : 0;
        c->bound.n_looked_at += c->gptq[i] ? 0 : n;
        c->block_bound.n_looked_at += derived ? 0 : n;
        c->scales.n_looked_at += (s->end - s->begin) / (fp8q_dtype_bits(s->dtype) / 8);
    }
}

/* Which findings become checks: what was not asked is no check.  */
static int report_all(struct fp8q_comparison *c, int status, struct fp8q_error *err)
{
    struct fp8q_findings *all[6];
    size_t n = 0;

    if (c->same_rules)
        all[n++] = &c->fingerprint;
    all[n++] = &c->kept;
    if (c->same_rules) {
        all[n++] = &c->codes;
        all[n++] = &c->scales;
    }
    all[n++] = &c->bound;
    if (c->block_bound.n_looked_at)
        all[n++] = &c->block_bound;
    status = fp8q_report_add_all(c->report, status, all, n, err);

    /* Not all of them were reported above; what was is empty, and may be released twice.  */
    fp8q_findings_reset(&c->codes);
    fp8q_findings_reset(&c->scales);
    fp8q_findings_reset(&c->block_bound);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Which pieces GPTQ rounded, by the manifest; with the calibration file, their Hessians.  */
static int open_rounding(struct fp8q_comparison *c, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = c->plan;
    const struct fp8q_json *list = fp8q_json_path(c->report->manifest.json, "rounding.compensated");
    struct fp8q_name buf;

    c->gptq = fp8q_array(plan->n_pieces, sizeof(*c->gptq));
    if (!c->gptq)
        return fp8q_fail_nomem(err);

    /* With statistics of a file only blocks are rounded so, and with samples all schemes.  */
    bool all = fp8q_json_path(c->report->manifest.json, "rounding.inputs") != NULL;
    for (size_t i = 0; i < plan->n_pieces && list; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        const struct fp8q_tensor *t = &plan->ckpt->tensors[p->source];
        if (p->kind == FP8Q_OUT_CODES && t->ndim == 2 && (all || p->scheme == FP8Q_SCHEME_BLOCK))
            c->gptq[i] = fp8q_json_has_string(list, fp8q_calib_site_of(t->name, &buf));
        c->holds_rows |= c->gptq[i] && p->scheme != FP8Q_SCHEME_BLOCK;
    }

    /* What was rounded layer by layer is not to be had from statistics of the source's layers.  */
    c->derives_gptq = list && c->options->calibration &&
                      fp8q_json_path(c->report->manifest.json, "rounding.calibration");
    if (!c->derives_gptq)
        return FP8Q_OK;

    return fp8q_rounding_open(plan, c->options->calibration, c->options->kernel, list,
                              c->options->watch, &c->rounding, err);
}

static int open_workers(struct fp8q_comparison *c, struct fp8q_error *err)
{
    uint64_t bytes = fp8q_compare_memory(c);
    c->workers = fp8q_array(c->options->threads, sizeof(*c->workers));
    if (!c->workers || bytes > SIZE_MAX)
        return fp8q_fail_nomem(err);

    for (unsigned i = 0; i < c->options->threads; i++) {
        struct fp8q_compare_worker *w = &c->workers[i];
        w->number = i;
        w->piece = SIZE_MAX;

        if (posix_memalign((void **)&w->memory, 64, (size_t)bytes) != 0)
            return fp8q_fail_nomem(err);
    }
    return FP8Q_OK;
}

static int open_comparison(struct fp8q_comparison *c, struct fp8q_error *err)
{
    const struct fp8q_plan *plan = c->plan;
    c->tensors = fp8q_array(plan->n_tensors, sizeof(*c->tensors));
    c->stripes = fp8q_array(plan->n_stripes, sizeof(*c->stripes));
    if (!c->tensors || !c->stripes)
        return fp8q_fail_nomem(err);

    FP8Q_TRY(open_rounding(c, err));
    FP8Q_TRY(open_workers(c, err));
    FP8Q_TRY(fp8q_files_create(plan->ckpt, &c->sources, err));
    FP8Q_TRY(fp8q_files_create(c->report->ckpt, &c->outputs, err));
    FP8Q_TRY(match_tensors(c, err));

    /* What is missing gets no task, so its files must not wait for one.  */
    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        if (!c->tensors[p->output])
            continue;
        fp8q_files_expect(&c->sources, plan->ckpt->tensors[p->source].shard, p->n_stripes);
        fp8q_files_expect(&c->outputs, c->tensors[p->output]->shard, p->n_stripes);
    }
    return FP8Q_OK;
}

static void close_comparison(struct fp8q_comparison *c)
{
    for (unsigned i = 0; c->workers && i < c->options->threads; i++) {
        free(c->workers[i].memory);
        fp8q_weights_reset(&c->workers[i].source);
        fp8q_weights_reset(&c->workers[i].output);
    }

    /* These have a checkpoint only if opening came so far.  */
    if (c->sources.ckpt)
        fp8q_files_reset(&c->sources);
    if (c->outputs.ckpt)
        fp8q_files_reset(&c->outputs);
    if (c->derives_gptq)
        fp8q_rounding_close(&c->rounding);

    free(c->gptq);
    free(c->workers);
    free(c->tensors);
    free(c->stripes);
}

static int run_comparison(struct fp8q_comparison *c, struct fp8q_error *err)
{
    FP8Q_TRY(open_comparison(c, err));
    FP8Q_TRY(fp8q_pool_run(c->options->watch, c->options->threads, c->plan->n_stripes, run_task, c,
                           err));

    /* After all stripes: fingerprint and SQNR are put together from what each of them left.  */
    count_looked_at(c);
    FP8Q_TRY(check_tensor_scales(c, err));
    FP8Q_TRY(check_fingerprint(c, err));
    return collect_sqnr(c, err);
}

int fp8q_verify_source(struct fp8q_report *report, const struct fp8q_verify_options *o,
                       struct fp8q_payload *payload, struct fp8q_error *err)
{
    FP8Q_TRY(make_plan(report, o, err));
    FP8Q_TRY(fp8q_verify_data_check(report, o, err));

    struct fp8q_comparison c = {
        .report = report,
        .payload = payload,
        .options = o,
        .plan = report->plan,
        .same_rules = report->ours,
        .factor = report->ours ? 1.0f : 2.0f,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .fingerprint = {.id = "source-fingerprint",
                        .status = FP8Q_CHECK_FAIL,
                        .limit = "the source that the manifest names"},
        .kept = {.id = "kept-identical",
                 .status = FP8Q_CHECK_FAIL,
                 .limit = "tensors left unquantized byte for byte as in the source"},
        .codes = {.id = "codes-equal",
                  .status = FP8Q_CHECK_FAIL,
                  .limit = "FP8 values as derived again"},
        .scales = {.id = "scales-equal",
                   .status = FP8Q_CHECK_FAIL,
                   .limit = "scales as derived again"},
        .bound = {.id = "error-bound",
                  .status = FP8Q_CHECK_FAIL,
                  .limit = report->ours ? "|w - q*s| <= max(|w|/16, s*2^-10)"
                                        : "|w - q*s| <= 2 * max(|w|/16, s*2^-10)"},
        .block_bound = {
            .id = "block-error-bound",
            .status = FP8Q_CHECK_FAIL,
            .limit =
                "GPTQ: in each block, squared errors sum up to at most 4 x those of the bounds"}};
    report->bound_factor = (double)c.factor;

    /* After a failure too: what was found so far is to be released.  */
    int status = report_all(&c, run_comparison(&c, err), err);
    close_comparison(&c);
    return status;
}
