/* SPDX-License-Identifier: Apache-2.0
 *
 * resume.c - what earlier runs and other machines have done already.
 *
 * A finished output is compared by content with what was asked for; of an unfinished one, a shard
 * is done if its record vouches for it and it still is what the record says.
 */
#include "convert/resume.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/mem.h"
#include "base/path.h"
#include "checkpoint/fingerprint.h"
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

static int find_done(const struct fp8q_plan *plan, const struct fp8q_outdir *out, const bool *skip,
                     struct fp8q_record *record, bool *done, struct fp8q_error *err)
{
    for (size_t i = 0; i < plan->n_shards; i++)
        if (i != plan->sidecar && (!skip || !skip[i]))
            FP8Q_TRY(is_done(plan, i, out, record, &done[i], err));
    return FP8Q_OK;
}

/* done[i] for the finished ones of those shards that skip[i] does not name (NULL: of all).  */
static int list_done(const struct fp8q_plan *plan, const struct fp8q_outdir *out, const bool *skip,
                     bool *done, struct fp8q_error *err)
{
    struct fp8q_record record = {.crcs = fp8q_array(plan->n_pieces, sizeof(*record.crcs))};
    int status =
        record.crcs ? find_done(plan, out, skip, &record, done, err) : fp8q_fail_nomem(err);
    free(record.crcs);
    return status;
}

/* What is known of each shard: the part that it belongs to, and whether it is finished.  */
struct shares {
    unsigned *part_of;
    bool *done;
};

static int shares_create(const struct fp8q_plan *plan, struct shares *s, struct fp8q_error *err)
{
    s->part_of = fp8q_array(plan->n_shards, sizeof(*s->part_of));
    s->done = fp8q_array(plan->n_shards, sizeof(*s->done));
    return s->part_of && s->done ? FP8Q_OK : fp8q_fail_nomem(err);
}

static void shares_free(struct shares *s)
{
    free(s->part_of);
    free(s->done);
}

static int choose(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                  const struct fp8q_parts_asked *asked, struct shares *s, bool *skip,
                  size_t *resumed_out, struct fp8q_error *err)
{
    FP8Q_TRY(shares_create(plan, s, err));

    /* Without parts all shards are of part 0, and so is this run.  */
    if (asked->n_parts)
        FP8Q_TRY(fp8q_part_of_shards(plan, asked->n_parts, s->part_of, err));
    for (size_t i = 0; i < plan->n_shards; i++)
        skip[i] = s->part_of[i] != asked->part;

    if (asked->look)
        FP8Q_TRY(list_done(plan, out, skip, s->done, err));
    for (size_t i = 0; i < plan->n_shards; i++) {
        skip[i] = skip[i] || s->done[i];
        *resumed_out += s->done[i];
    }
    return FP8Q_OK;
}

int fp8q_parts_choose(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                      const struct fp8q_parts_asked *asked, bool *skip, size_t *resumed_out,
                      struct fp8q_error *err)
{
    struct shares s;
    *resumed_out = 0;
    int status = choose(plan, out, asked, &s, skip, resumed_out, err);
    shares_free(&s);
    return status;
}

static int name_missing(const struct fp8q_plan *plan, unsigned n_parts, const struct shares *s,
                        struct fp8q_text *out, struct fp8q_error *err)
{
    bool *absent = fp8q_array((uint64_t)n_parts + 1, sizeof(*absent));
    if (!absent)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < plan->n_shards; i++)
        if (i != plan->sidecar && !s->done[i])
            absent[s->part_of[i]] = true;
    for (unsigned i = 1; i <= n_parts; i++)
        if (absent[i])
            fp8q_text_printf(out, "%s%u", out->len ? ", " : "", i);
    free(absent);
    return fp8q_text_status(out, err);
}

static int list_missing(const struct fp8q_plan *plan, const struct fp8q_outdir *out,
                        unsigned n_parts, struct shares *s, struct fp8q_text *missing,
                        struct fp8q_error *err)
{
    FP8Q_TRY(shares_create(plan, s, err));

    /* The same shares as in the runs of the parts, so that the message names what to run again.  */
    FP8Q_TRY(fp8q_part_of_shards(plan, n_parts, s->part_of, err));
    FP8Q_TRY(list_done(plan, out, NULL, s->done, err));
    return name_missing(plan, n_parts, s, missing, err);
}

int fp8q_parts_check(const struct fp8q_plan *plan, const struct fp8q_outdir *out, unsigned n_parts,
                     struct fp8q_error *err)
{
    struct fp8q_text missing = {0};
    struct fp8q_shown shown;
    struct shares s;

    int status = list_missing(plan, out, n_parts, &s, &missing, err);
    shares_free(&s);
    if (missing.len)
        status = fp8q_fail(err, FP8Q_E_EVIDENCE, "part-missing",
                           "%s: of %u parts these have not ended, were not run, or were changed "
                           "since: %.200s",
                           fp8q_show(&shown, out->names.final), n_parts, missing.data);
    fp8q_text_reset(&missing);
    return status;
}

/* ---- a finished output ----------------------------------------------------------------------- */

struct comparison {
    const struct fp8q_wanted *wanted;
    struct fp8q_ckpt *done;
    struct fp8q_manifest manifest;
    struct fp8q_text changed;
    struct fp8q_error *err;
};

/* Requests as texts: every member that counts is written, so none can be forgotten here.  */
static int compare_requests(struct comparison *c, struct fp8q_text *done, struct fp8q_text *wanted,
                            bool *same_out)
{
    FP8Q_TRY(fp8q_text_status(done, c->err));
    FP8Q_TRY(fp8q_text_status(wanted, c->err));
    *same_out = strcmp(done->data, wanted->data) == 0;
    return FP8Q_OK;
}

/* The manifest tells of the same version and options.  */
static int is_same_request(struct comparison *c, bool *same_out)
{
    struct fp8q_jsonw done = {.indent = 0}, wanted = {.indent = 0};
    const char *version = fp8q_json_string(fp8q_json_get(c->manifest.json, "fp8q"), "");

    *same_out = false;
    if (strcmp(version, FP8Q_VERSION) != 0)
        return FP8Q_OK;

    fp8q_request_write(&c->manifest.request, NULL, &done);
    fp8q_request_write(c->wanted->request, NULL, &wanted);
    int status = compare_requests(c, &done.text, &wanted.text, same_out);
    fp8q_text_reset(&done.text);
    fp8q_text_reset(&wanted.text);
    return status;
}

static bool states(const struct comparison *c, const char *path, uint32_t crc)
{
    uint32_t stated;
    const char *text = fp8q_json_string(fp8q_json_path(c->manifest.json, path), NULL);
    return fp8q_parse_crc(text, &stated) && stated == crc;
}

/* The calibration or the inputs, which are a file of the same path.  */
static int compare_evidence(struct comparison *c)
{
    uint32_t crc;
    bool there;
    FP8Q_TRY(fp8q_request_evidence(c->wanted->request, &crc, &there, c->err));
    if (there && !states(c, "evidence_crc32", crc))
        fp8q_text_puts(&c->changed, "the calibration file or the inputs have changed");
    return fp8q_text_status(&c->changed, c->err);
}

static int compare_weights(struct comparison *c)
{
    uint32_t crc;
    if (!states(c, "source.files_crc32", fp8q_source_crc32(c->wanted->plan->ckpt))) {
        fp8q_text_puts(&c->changed, "shards or config.json of the source have changed");
        return FP8Q_OK;
    }

    /* The quick check is done; from here all bytes are read, since times prove nothing.  */
    FP8Q_TRY(fp8q_fingerprint(c->wanted->plan->ckpt, c->wanted->plan->threads, c->wanted->watch,
                              &crc, c->err));
    if (!states(c, "source.fingerprint", crc)) {
        fp8q_text_puts(&c->changed, "weights of the source have changed");
        return FP8Q_OK;
    }

    FP8Q_TRY(fp8q_fingerprint(c->done, c->wanted->plan->threads, c->wanted->watch, &crc, c->err));
    if (!states(c, "fingerprint", crc))
        fp8q_text_puts(&c->changed, "the weights in it have changed");
    return FP8Q_OK;
}

static int crc_if_there(const char *path, uint32_t *crc_out, bool *there_out,
                        struct fp8q_error *err)
{
    struct stat st;
    *crc_out = 0;
    FP8Q_TRY(fp8q_stat(path, &st, there_out, err));
    return *there_out ? fp8q_file_crc32(path, crc_out, err) : FP8Q_OK;
}

static int crc_in(const char *dir, const char *name, uint32_t *crc_out, bool *there_out,
                  struct fp8q_error *err)
{
    char *path = fp8q_join(dir, name);
    int status = path ? crc_if_there(path, crc_out, there_out, err) : fp8q_fail_nomem(err);
    free(path);
    return status;
}

static int compare_side_files(struct comparison *c)
{
    const struct fp8q_json *files = fp8q_json_get(c->manifest.json, "files");
    struct fp8q_shown shown;
    size_t n = c->wanted->copies->count;

    if (fp8q_json_count(files) != n)
        fp8q_text_puts(&c->changed, "files of the source were added or removed");

    const struct fp8q_json *f = fp8q_json_first(files);
    for (size_t i = 0; i < n && c->changed.len == 0; i++, f = fp8q_json_next(f)) {
        const char *name = c->wanted->copies->files[i].name, *key = f ? fp8q_json_key(f) : "";
        uint32_t stated, source, done;
        bool there, exists;
        FP8Q_TRY(crc_in(c->wanted->plan->ckpt->dir, name, &source, &there, c->err));
        FP8Q_TRY(crc_in(c->wanted->destination, name, &done, &exists, c->err));

        if (!key || strcmp(key, name) != 0)
            fp8q_text_puts(&c->changed, "files of the source were added or removed");
        else if (!fp8q_parse_crc(fp8q_json_string(f, NULL), &stated) || source != stated)
            fp8q_text_printf(&c->changed, "\"%s\" of the source has changed",
                             fp8q_show(&shown, name));
        else if (!exists || done != stated)
            fp8q_text_printf(&c->changed, "\"%s\" in it has changed", fp8q_show(&shown, name));
    }
    return fp8q_text_status(&c->changed, c->err);
}

static int compare(struct comparison *c, bool *complete_out)
{
    bool found, same;

    FP8Q_TRY(fp8q_ckpt_open(c->wanted->destination, &c->done, NULL, c->err));
    FP8Q_TRY(fp8q_manifest_read(c->done, &c->manifest, &found, c->err));
    if (!found)
        return FP8Q_OK;

    FP8Q_TRY(is_same_request(c, &same));
    if (!same)
        return FP8Q_OK;

    FP8Q_TRY(compare_evidence(c));
    if (c->changed.len == 0)
        FP8Q_TRY(compare_weights(c));
    if (c->changed.len == 0 && c->done->is_dir)
        FP8Q_TRY(compare_side_files(c));

    *complete_out = c->changed.len == 0;
    return fp8q_text_status(&c->changed, c->err);
}

/* Not readable as an output of fp8q: not complete.  What becomes of it is decided elsewhere.  */
static bool is_no_output(const struct fp8q_error *why)
{
    return why->status == FP8Q_E_FORMAT || why->status == FP8Q_E_MISMATCH ||
           why->status == FP8Q_E_ARG || strcmp(why->id, "no-safetensors") == 0;
}

int fp8q_complete(const struct fp8q_wanted *wanted, bool *complete_out, char **changed_out,
                  struct fp8q_error *err)
{
    struct fp8q_error why = {0};
    struct comparison c = {.wanted = wanted, .err = &why};
    struct stat st;
    bool there;

    *complete_out = false;
    *changed_out = NULL;
    FP8Q_TRY(fp8q_stat(wanted->destination, &st, &there, err));
    if (!there)
        return FP8Q_OK;

    int status = compare(&c, complete_out);
    fp8q_manifest_reset(&c.manifest);
    fp8q_ckpt_close(c.done);

    if (status != FP8Q_OK) {
        fp8q_text_reset(&c.changed);
        return is_no_output(&why) ? FP8Q_OK : fp8q_fail_as(err, &why);
    }
    *changed_out = c.changed.data;
    return FP8Q_OK;
}
