/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c - shares of a conversion, and what is done of them.
 */
#include "convert/parts.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/path.h"
#include "convert/record.h"

/* ---- shares ---------------------------------------------------------------------------------- */

struct sized {
    size_t shard;
    uint64_t bytes;
};

static int by_size(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;

    /* A tie goes to the lower number, so that the shares are the same on every machine.  */
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->shard < y->shard ? -1 : 1;
}

/* Largest shard first, each to the part that has least so far.  */
int fp8q_part_of_shards(const struct fp8q_plan *plan, unsigned n_parts, unsigned *part_out,
                        struct fp8q_error *err)
{
    struct sized *order = fp8q_array(plan->n_shards, sizeof(*order));
    uint64_t *load = fp8q_array(n_parts, sizeof(*load));

    if (!order || !load) {
        free(order);
        free(load);
        return fp8q_fail_nomem(err);
    }

    size_t n = 0;
    for (size_t i = 0; i < plan->n_shards; i++) {
        part_out[i] = 0;
        if (i != plan->sidecar)
            order[n++] = (struct sized){i, plan->shards[i].size_bytes};
    }
    qsort(order, n, sizeof(*order), by_size);

    for (size_t i = 0; i < n; i++) {
        unsigned least = 0;
        for (unsigned p = 1; p < n_parts; p++)
            if (load[p] < load[least])
                least = p;

        /* Numbers of parts begin with 1: 0 is the sidecar, which `fp8q finish` writes.  */
        load[least] += order[i].bytes;
        part_out[order[i].shard] = least + 1;
    }
    free(order);
    free(load);
    return FP8Q_OK;
}

/* ---- what is done ---------------------------------------------------------------------------- */

/* A record that the shard in DST.partial agrees with.  */
static int is_done(const struct fp8q_plan *plan, size_t shard, const struct fp8q_outdir *out,
                   struct fp8q_record *record, bool *done_out, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_record_read(plan, shard, out->names.work, record, done_out, err));
    free(record->scales);
    if (!*done_out)
        return FP8Q_OK;

    char *path = fp8q_join(out->names.partial, plan->shards[shard].name);
    int status =
        path ? fp8q_record_vouches(plan, shard, path, record, done_out, err) : fp8q_fail_nomem(err);
    free(path);
    return status;
}

/* done[i] for the finished ones of those shards that skip[i] does not name (NULL: of all).  */
static int list_done(const struct fp8q_plan *plan, const struct fp8q_outdir *out, const bool *skip,
                     bool *done, struct fp8q_error *err)
{
    struct fp8q_record record = {.crcs = fp8q_array(plan->n_pieces, sizeof(*record.crcs))};
    int status = record.crcs ? FP8Q_OK : fp8q_fail_nomem(err);
    for (size_t i = 0; i < plan->n_shards && status == FP8Q_OK; i++)
        if (i != plan->sidecar && (!skip || !skip[i]))
            status = is_done(plan, i, out, &record, &done[i], err);
    free(record.crcs);
    return status;
}

int fp8q_parts_choose(const struct fp8q_plan *plan, const struct fp8q_outdir *out, unsigned part,
                      unsigned n_parts, bool look, bool *skip, size_t *resumed_out,
                      struct fp8q_error *err)
{
    unsigned *part_of = fp8q_array(plan->n_shards, sizeof(*part_of));
    bool *done = fp8q_array(plan->n_shards, sizeof(*done));
    int status = part_of && done ? FP8Q_OK : fp8q_fail_nomem(err);
    *resumed_out = 0;

    if (status == FP8Q_OK && n_parts)
        status = fp8q_part_of_shards(plan, n_parts, part_of, err);
    /* Without parts all shards are of part 0, and so is this run.  */
    for (size_t i = 0; i < plan->n_shards && status == FP8Q_OK; i++)
        skip[i] = part_of[i] != part;

    if (status == FP8Q_OK && look)
        status = list_done(plan, out, skip, done, err);
    for (size_t i = 0; i < plan->n_shards && status == FP8Q_OK; i++) {
        skip[i] = skip[i] || done[i];
        *resumed_out += done[i];
    }

    free(part_of);
    free(done);
    return status;
}

static int name_missing(const struct fp8q_plan *plan, unsigned n_parts, const unsigned *part_of,
                        const bool *done, struct fp8q_text *out, struct fp8q_error *err)
{
    bool *absent = fp8q_array((uint64_t)n_parts + 1, sizeof(*absent));
    if (!absent)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < plan->n_shards; i++)
        if (i != plan->sidecar && !done[i])
            absent[part_of[i]] = true;
    for (unsigned i = 1; i <= n_parts; i++)
        if (absent[i])
            fp8q_text_printf(out, "%s%u", out->len ? ", " : "", i);
    free(absent);
    return fp8q_text_status(out, err);
}

int fp8q_parts_check(const struct fp8q_plan *plan, const struct fp8q_outdir *out, unsigned n_parts,
                     struct fp8q_error *err)
{
    struct fp8q_text missing = {0};
    struct fp8q_shown shown;
    unsigned *part_of = fp8q_array(plan->n_shards, sizeof(*part_of));
    bool *done = fp8q_array(plan->n_shards, sizeof(*done));

    int status = part_of && done ? FP8Q_OK : fp8q_fail_nomem(err);

    /* The same shares as in the runs of the parts, so that the message names what to run again.  */
    if (status == FP8Q_OK)
        status = fp8q_part_of_shards(plan, n_parts, part_of, err);
    if (status == FP8Q_OK)
        status = list_done(plan, out, NULL, done, err);
    if (status == FP8Q_OK)
        status = name_missing(plan, n_parts, part_of, done, &missing, err);

    if (status == FP8Q_OK && missing.len)
        status = fp8q_fail(err, FP8Q_E_EVIDENCE, "part-missing",
                           "%s: of %u parts these have not ended, were not run, or were changed "
                           "since: %.200s",
                           fp8q_show(&shown, out->names.final), n_parts, missing.data);

    fp8q_text_reset(&missing);
    free(part_of);
    free(done);
    return status;
}
