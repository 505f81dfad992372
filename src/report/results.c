/* SPDX-License-Identifier: Apache-2.0
 *
 * results.c - reads what other commands measured.
 *
 * Each file is one JSON object: evidence of eval, or what the command printed with --json.  It says
 * of which bytes it speaks, and results of others are refused: a report that mixes checkpoints is
 * worse than none.
 */
#include "report/results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "plan/manifest.h"

enum { MOST_BYTES = 1 << 28 };

/* One file while it is read.  */
struct input {
    const char *path;
    const struct fp8q_json *root;
    struct fp8q_error *err;
    int status; /* the first failure: one message is enough */
};

/* ---- members --------------------------------------------------------------------------------- */

static void complain(struct input *in, const char *member, const char *expected)
{
    struct fp8q_shown shown;
    if (in->status == FP8Q_OK)
        in->status = fp8q_fail(in->err, FP8Q_E_FORMAT, "report-input",
                               "%s: \"%s\": expected %s, found something else or nothing",
                               fp8q_show(&shown, in->path), member, expected);
}

/* A figure that may be absent or null: NaN then.  */
static double figure(const struct fp8q_json *object, const char *name)
{
    return fp8q_json_number(fp8q_json_get(object, name), (double)NAN);
}

/* A figure that must be there, and from 0 to @most.  */
static double measured(struct input *in, const struct fp8q_json *object, const char *name,
                       double most)
{
    double value = figure(object, name);
    if (!(value >= 0 && value <= most))
        complain(in, name, most == 1 ? "a number from 0 to 1" : "a number from 0 on");
    return value;
}

static uint64_t count(struct input *in, const struct fp8q_json *object, const char *name)
{
    uint64_t value = 0;
    if (!fp8q_json_uint(fp8q_json_get(object, name), &value))
        complain(in, name, "a count");
    return value;
}

static const char *word(struct input *in, const struct fp8q_json *object, const char *name)
{
    const char *text = fp8q_json_string(fp8q_json_get(object, name), NULL);
    if (!text)
        complain(in, name, "a text");
    return text ? text : "";
}

static const struct fp8q_json *list(struct input *in, const struct fp8q_json *object,
                                    const char *name)
{
    const struct fp8q_json *value = fp8q_json_get(object, name);
    if (!fp8q_json_is_array(value))
        complain(in, name, "a list");
    return value;
}

/* Room for one more item; false (and a failure that is told) without memory.  */
static bool grow(struct input *in, void *items, size_t n, size_t *cap, size_t size)
{
    if (in->status == FP8Q_OK)
        in->status = fp8q_grow(items, n, cap, size, in->err);
    return in->status == FP8Q_OK;
}

/* ---- eval ------------------------------------------------------------------------------------ */

static void read_row(struct input *in, const struct fp8q_json *object, struct fp8q_result_row *row)
{
    const struct fp8q_json *kld = fp8q_json_get(object, "kld");
    const struct fp8q_json *ppl = fp8q_json_get(object, "ppl");

    row->there = true;
    row->mean = measured(in, kld, "mean", INFINITY);
    row->se = figure(kld, "se");
    row->median = figure(kld, "median");
    row->p95 = figure(kld, "p95");
    row->p99 = figure(kld, "p99");
    row->p999 = figure(kld, "p999");
    row->max = figure(kld, "max");

    row->top1 = measured(in, object, "top1", 1);
    row->top1_se = figure(object, "top1_se");
    (void)fp8q_json_uint(fp8q_json_get(object, "flips"), &row->flips);

    /* Captured embeddings have no targets, and then no perplexity.  */
    row->ppl_source = figure(ppl, "source");
    row->ppl_output = figure(ppl, "output");
    row->dln = figure(ppl, "dln");
    row->dln_se = figure(ppl, "dln_se");
}

/* Parts without tokens have no figures, and are left out.  */
static void read_parts(struct input *in, const char *name, const char *key,
                       struct fp8q_result_parts *parts)
{
    const struct fp8q_json *item = fp8q_json_first(fp8q_json_get(in->root, name));

    for (uint64_t i = 0; item && in->status == FP8Q_OK; item = fp8q_json_next(item), i++) {
        struct fp8q_result_part part = {.key = i, .tokens = count(in, item, "tokens")};
        if (part.tokens == 0)
            continue;

        (void)fp8q_json_uint(fp8q_json_get(item, key), &part.key);
        (void)fp8q_json_uint(fp8q_json_get(item, "samples"), &part.samples);
        part.name = fp8q_json_string(fp8q_json_get(item, "name"), "");
        part.kld = measured(in, item, "kld", INFINITY);
        part.kld_se = figure(item, "kld_se");
        part.top1 = figure(item, "top1");
        if (grow(in, &parts->items, parts->count, &parts->cap, sizeof(*parts->items)))
            parts->items[parts->count++] = part;
    }
}

static void read_layers(struct input *in, struct fp8q_result_eval *e)
{
    const struct fp8q_json *item = fp8q_json_first(fp8q_json_get(in->root, "layer_error"));

    for (; item && grow(in, &e->layer_error, e->n_layers, &e->layers_cap, sizeof(double));
         item = fp8q_json_next(item))
        e->layer_error[e->n_layers++] = fp8q_json_number(item, (double)NAN);
}

static void read_eval(struct input *in, struct fp8q_measurements *r)
{
    static const char *const keys[] = {NULL, "activations-only", "weights-only",
                                       "requantized-ue8m0"};
    static const char *const names[] = {"as served", "activations only (floor)", "weights only",
                                        "scales made powers of two at load"};
    struct fp8q_result_eval *e = &r->eval;

    e->there = true;
    e->dataset = fp8q_json_string(fp8q_json_get(in->root, "dataset"), "");
    e->acts = fp8q_json_string(fp8q_json_get(in->root, "acts"), "");
    e->stack = fp8q_json_string(fp8q_json_get(in->root, "stack"), "");
    e->created = fp8q_json_string(fp8q_json_get(in->root, "created"), "");
    e->differences = fp8q_json_string(fp8q_json_get(in->root, "config_differences"), "");
    e->tokens = count(in, in->root, "tokens");

    /* What a policy's backbone sees predicts nothing: layers are all that there is.  */
    if (e->tokens > 0)
        read_row(in, in->root, &e->rows[FP8Q_RESULT_OUTPUT]);
    for (size_t i = 0; i < FP8Q_RESULT_ROWS; i++) {
        const struct fp8q_json *row =
            i ? fp8q_json_get(fp8q_json_get(in->root, "rows"), keys[i]) : NULL;
        e->rows[i].name = names[i];
        if (row)
            read_row(in, row, &e->rows[i]);
    }

    read_parts(in, "samples", "sample", &e->samples);
    read_parts(in, "modalities", "modality", &e->modalities);
    read_parts(in, "categories", "category", &e->categories);
    read_parts(in, "positions", "from", &e->positions);
    read_layers(in, e);
}

/* ---- sweep ----------------------------------------------------------------------------------- */

static void read_units(struct input *in, struct fp8q_result_sweep *s)
{
    const struct fp8q_json *item = fp8q_json_first(list(in, in->root, "units"));

    for (; item && grow(in, &s->units, s->n_units, &s->units_cap, sizeof(*s->units));
         item = fp8q_json_next(item)) {
        struct fp8q_result_unit *u = &s->units[s->n_units++];
        *u = (struct fp8q_result_unit){.name = word(in, item, "name"),
                                       .kld = measured(in, item, "kld", INFINITY),
                                       .kld_se = figure(item, "kld_se"),
                                       .bytes_saved = count(in, item, "bytes_saved"),
                                       .quantized =
                                           fp8q_json_bool(fp8q_json_get(item, "quantized"), true)};
    }
}

static void read_splits(struct input *in, struct fp8q_result_sweep *s)
{
    const struct fp8q_json *item = fp8q_json_first(list(in, in->root, "splits"));

    for (; item && grow(in, &s->splits, s->n_splits, &s->splits_cap, sizeof(*s->splits));
         item = fp8q_json_next(item)) {
        struct fp8q_result_split *split = &s->splits[s->n_splits++];
        *split = (struct fp8q_result_split){
            .kept = count(in, item, "kept"),
            .bytes = count(in, item, "bytes"),
            .kld = measured(in, item, "kld", INFINITY),
            .last_kept = fp8q_json_string(fp8q_json_get(item, "last_kept"), NULL)};
    }
}

static void read_sweep(struct input *in, struct fp8q_measurements *r)
{
    struct fp8q_result_sweep *s = &r->sweep;
    const struct fp8q_json *all = fp8q_json_get(in->root, "all");
    const struct fp8q_json *chosen = fp8q_json_get(in->root, "chosen");

    s->there = true;
    read_units(in, s);
    read_splits(in, s);
    s->source_bytes = count(in, in->root, "source_bytes");
    s->tokens = count(in, in->root, "tokens");
    s->all_predicted = figure(all, "predicted");
    s->all_measured = measured(in, all, "measured", INFINITY);
    s->all_se = figure(all, "se");

    s->chosen_kept = count(in, chosen, "kept");
    s->chosen_bytes = count(in, chosen, "bytes");
    s->chosen_measured = measured(in, chosen, "measured", INFINITY);
    s->met = fp8q_json_bool(fp8q_json_get(chosen, "met"), true);
    s->has_budget = s->chosen_kept > 0 || !s->met;
}

/* ---- compare, drift, gate -------------------------------------------------------------------- */

static void read_compare(struct input *in, struct fp8q_measurements *r)
{
    struct fp8q_result_compare *c = &r->compare;
    const struct fp8q_json *item = fp8q_json_first(list(in, in->root, "rows"));

    c->there = true;
    c->selection = fp8q_json_string(fp8q_json_get(in->root, "selection"), "");
    c->source_bytes = count(in, in->root, "source_bytes");
    c->n_tensors = count(in, in->root, "tensors");

    for (; item && grow(in, &c->rows, c->count, &c->cap, sizeof(*c->rows));
         item = fp8q_json_next(item))
        c->rows[c->count++] =
            (struct fp8q_result_format){.format = word(in, item, "format"),
                                        .granularity = word(in, item, "granularity"),
                                        .rmse = measured(in, item, "rmse", INFINITY),
                                        .relative = figure(item, "relative_rmse"),
                                        .sqnr = figure(item, "sqnr_db"),
                                        .bytes = count(in, item, "bytes")};
}

static void read_drift(struct input *in, struct fp8q_measurements *r)
{
    struct fp8q_result_drift *d = &r->drift;
    const struct fp8q_json *item = fp8q_json_first(list(in, in->root, "sites"));
    const struct fp8q_json *stale = fp8q_json_get(in->root, "stale");

    d->there = true;
    d->stale = fp8q_json_bool(stale, true);
    if (d->stale != fp8q_json_bool(stale, false))
        complain(in, "stale", "true or false");
    d->old_path = fp8q_json_string(fp8q_json_get(in->root, "old"), "");
    d->new_path = fp8q_json_string(fp8q_json_get(in->root, "new"), "");
    d->n_moved = count(in, in->root, "moved");
    d->mix = figure(in->root, "mix");
    d->codes_changed = figure(in->root, "codes_changed");

    for (; item && grow(in, &d->sites, d->count, &d->cap, sizeof(*d->sites));
         item = fp8q_json_next(item))
        d->sites[d->count++] =
            (struct fp8q_result_site){.name = word(in, item, "name"),
                                      .moved = fp8q_json_bool(fp8q_json_get(item, "moved"), false),
                                      .rms = figure(item, "rms"),
                                      .absmax = figure(item, "absmax"),
                                      .overlap = figure(item, "overlap"),
                                      .hist = figure(item, "hist"),
                                      .channels = figure(item, "channels")};
}

static void read_gate(struct input *in, struct fp8q_measurements *r)
{
    struct fp8q_result_gate *g = &r->gate;
    const struct fp8q_json *item = fp8q_json_first(list(in, in->root, "checks"));

    g->there = true;
    g->verdict = word(in, in->root, "verdict");

    for (; item && grow(in, &g->checks, g->count, &g->cap, sizeof(*g->checks));
         item = fp8q_json_next(item))
        g->checks[g->count++] = (struct fp8q_result_check){.id = word(in, item, "id"),
                                                           .status = word(in, item, "status"),
                                                           .message = word(in, item, "message"),
                                                           .tier = count(in, item, "tier"),
                                                           .n = count(in, item, "n"),
                                                           .observed = figure(item, "observed"),
                                                           .limit = figure(item, "limit"),
                                                           .low = figure(item, "ci_low"),
                                                           .high = figure(item, "ci_high")};
}

/* ---- files ----------------------------------------------------------------------------------- */

/* An option, the member by which its file is known, and who reads it.  */
struct kind {
    const char *option, *member, *value, *how;
    void (*read)(struct input *in, struct fp8q_measurements *results);
};

static int read_document(const struct kind *kind, struct input *in,
                         struct fp8q_measurements *results)
{
    struct fp8q_shown shown, what;
    const char *found = fp8q_json_string(fp8q_json_get(in->root, kind->member), NULL);
    if (!found) /* of another kind altogether */
        found = fp8q_json_string(fp8q_json_get(in->root, "command"), "");

    if (strcmp(found, kind->value) != 0)
        return fp8q_fail(in->err, FP8Q_E_FORMAT, "report-input",
                         "%s: --%s expects %s, found \"%s\"", fp8q_show(&shown, in->path),
                         kind->option, kind->how, fp8q_show(&what, found));

    kind->read(in, results);
    return in->status;
}

static int read_file(const struct kind *kind, const char *path, struct fp8q_measurements *results,
                     struct fp8q_error *err)
{
    struct fp8q_result_document *d = &results->documents[results->n_documents];
    char *text = NULL;
    size_t len = 0;
    FP8Q_TRY(fp8q_read_file(path, MOST_BYTES, &text, &len, err));

    int status = fp8q_json_parse(text, len, 0, path, &d->json, err);
    free(text);
    FP8Q_TRY(status);
    d->path = path;
    results->n_documents++;

    struct input in = {path, d->json, err, FP8Q_OK};
    return read_document(kind, &in, results);
}

int fp8q_measurements_read(const struct fp8q_result_paths *p, struct fp8q_measurements *results,
                           struct fp8q_error *err)
{
    static const struct kind eval = {"eval", "kind", "eval", "evidence of `eval -o`", read_eval};
    static const struct kind printed[] = {
        {"sweep", "command", "sweep", "what `sweep --json` prints", read_sweep},
        {"compare", "command", "compare", "what `compare --json` prints", read_compare},
        {"drift", "command", "drift", "what `drift --json` prints", read_drift},
        {"gate", "command", "gate", "what `gate --json` prints", read_gate}};
    const char *const paths[] = {p->sweep, p->compare, p->drift, p->gate};
    struct fp8q_evidence evidence;
    *results = (struct fp8q_measurements){0};

    /* Evidence has a reader that holds its figures against its own samples.  */
    if (p->eval) {
        FP8Q_TRY(fp8q_evidence_read(p->eval, &evidence, err));
        fp8q_evidence_reset(&evidence);
        FP8Q_TRY(read_file(&eval, p->eval, results, err));
    }

    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        if (paths[i])
            FP8Q_TRY(read_file(&printed[i], paths[i], results, err));

    if (p->calibration)
        FP8Q_TRY(fp8q_calib_open(p->calibration, &results->calibration, err));
    results->has_calibration = p->calibration != NULL;
    return FP8Q_OK;
}

/* ---- of which bytes -------------------------------------------------------------------------- */

static int check_bytes(const struct fp8q_result_document *d, const char *member,
                       struct fp8q_fingerprint expected, struct fp8q_error *err)
{
    const struct fp8q_json *prints = fp8q_json_get(d->json, "fingerprints");
    const char *text = fp8q_json_string(fp8q_json_get(prints, member), "");
    struct fp8q_shown shown;
    uint32_t crc;

    if (!expected.known || !fp8q_parse_crc(text, &crc) || crc == expected.crc32)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_EVIDENCE, "result-foreign",
                     "%s: it is of other weights: expected those with the %s fingerprint %08x, "
                     "found %08x",
                     fp8q_show(&shown, d->path), member, (unsigned)expected.crc32, (unsigned)crc);
}

int fp8q_measurements_check(const struct fp8q_measurements *r, struct fp8q_fingerprint source,
                            struct fp8q_fingerprint output, struct fp8q_error *err)
{
    for (size_t i = 0; i < r->n_documents; i++) {
        FP8Q_TRY(check_bytes(&r->documents[i], "source", source, err));
        FP8Q_TRY(check_bytes(&r->documents[i], "output", output, err));
    }

    /* A file that does not say of which weights it is cannot be held against them.  */
    bool says = r->has_calibration && r->calibration.meta.source_fingerprint[0];
    return says && source.known ? fp8q_calib_matches(&r->calibration, source.crc32, err) : FP8Q_OK;
}

void fp8q_measurements_reset(struct fp8q_measurements *r)
{
    free(r->eval.samples.items);
    free(r->eval.modalities.items);
    free(r->eval.categories.items);
    free(r->eval.positions.items);
    free(r->eval.layer_error);
    free(r->sweep.units);
    free(r->sweep.splits);
    free(r->compare.rows);
    free(r->drift.sites);
    free(r->gate.checks);
    if (r->has_calibration)
        fp8q_calib_close(&r->calibration);

    /* Last: all texts are borrowed from these.  */
    for (size_t i = 0; i < r->n_documents; i++)
        fp8q_json_free(r->documents[i].json);
    *r = (struct fp8q_measurements){0};
}
