/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.c - collects what a report says: proof, tensors, reasons, values, results, verdict.
 *
 * In the order of cost: what can be refused is refused before all bytes are read.
 */
#include "report/facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/scales.h"
#include "engines/tp.h"
#include "report/internal.h"
#include "report/markup.h"

/* ---- proof ----------------------------------------------------------------------------------- */

/* Runs verify.  A check that failed is what the report is to tell; anything else ends it.  */
static int prove(struct fp8q_facts *f, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    const struct fp8q_facts_request *r = &f->request;
    const struct fp8q_verify_options options = {
        .source = r->source, .threads = r->threads, .kernel = r->kernel, .watch = r->watch};

    f->proof_status = fp8q_verify(r->output, &options, &f->proof, warnings, &f->proof_error);
    if (f->proof_status == FP8Q_OK || f->proof_status == FP8Q_E_MISMATCH)
        return FP8Q_OK;
    if (err)
        *err = f->proof_error;
    return f->proof_status;
}

static bool has_passed(const struct fp8q_facts *f, const char *check)
{
    for (size_t i = 0; i < f->proof.n_checks; i++)
        if (strcmp(f->proof.checks[i].id, check) == 0)
            return f->proof.checks[i].status == FP8Q_CHECK_PASS;
    return false;
}

/* Of the output as verify found it, or else anew; of the source as given, or as the manifest says.  */
static int take_fingerprints(struct fp8q_facts *f, struct fp8q_error *err)
{
    const struct fp8q_facts_request *r = &f->request;
    const struct fp8q_json *manifest = f->proof.manifest.json;

    f->output.known = has_passed(f, "fingerprint") &&
                      fp8q_parse_crc(fp8q_json_string(fp8q_json_get(manifest, "fingerprint"), ""),
                                     &f->output.crc32);
    if (!f->output.known)
        FP8Q_TRY(fp8q_fingerprint(f->proof.ckpt, r->threads, r->watch, &f->output.crc32, err));
    f->output.known = true;

    f->source.known = fp8q_parse_crc(
        fp8q_json_string(fp8q_json_path(manifest, "source.fingerprint"), ""), &f->source.crc32);
    if (!f->source.known && f->proof.source) {
        FP8Q_TRY(fp8q_fingerprint(f->proof.source, r->threads, r->watch, &f->source.crc32, err));
        f->source.known = true;
    }
    return FP8Q_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

bool fp8q_facts_is_of_shape(const char *reason)
{
    return strcmp(reason, "ragged") == 0 || strcmp(reason, "ragged-group") == 0 ||
           strcmp(reason, "small") == 0;
}

static bool is_quantized(const struct fp8q_tensor *t)
{
    return fp8q_is_fp8(t->dtype) && t->ndim >= 2;
}

/* What the selection says of the output itself: quantize's reasons, without the source.  A failure
 * (patterns of another version) is none of the report's: reasons are then the roles.  */
static int select_again(struct fp8q_facts *f, struct fp8q_error *err)
{
    struct fp8q_select_options o = {.scheme = FP8Q_SCHEME_BLOCK};
    if (f->proof.ours)
        o = fp8q_request_options(&f->proof.manifest.request, NULL).select;

    o.requantize = o.allow_unmatched = o.allow_tower = true;
    o.strict = false;
    struct fp8q_error why = {0};
    int status = fp8q_select(f->proof.ckpt, &o, &f->selection, NULL, &why);
    if (status == FP8Q_E_NOMEM || status == FP8Q_E_IO) /* of the machine, not of the checkpoint */
        return fp8q_fail_as(err, &why);

    f->has_selection = status == FP8Q_OK;
    return FP8Q_OK;
}

static const char *reason_of(const struct fp8q_facts *f, size_t i, const char *role)
{
    const struct fp8q_decision *d = &f->selection.decisions[i];
    if (!f->has_selection)
        return role;

    /* A reason to quantize, and it was not done: somebody else decided.  */
    if (d->reason < FP8Q_WHY_BACKBONE)
        return fp8q_reason_name(d->reason);
    return f->proof.ours && f->proof.manifest.request.like ? "not-in-like" : "not-quantized";
}

/* "model.layers.3.mlp.up_proj.weight": layer 3, kind "up_proj".  */
static void place_of(struct fp8q_facts_tensor *t)
{
    const char *name = t->tensor->name, *end = name + strlen(name);
    bool is_first = true;
    if (fp8q_ends_with(name, ".weight") || fp8q_ends_with(name, ".bias"))
        while (*end != '.')
            end--;

    t->layer = UINT64_MAX;
    for (const char *at = name; at < end; is_first = false) {
        const char *stop = memchr(at, '.', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);

        /* The first number is the layer's; later ones are those of experts.  */
        if (!is_first && t->layer == UINT64_MAX && len < 7 && strspn(at, "0123456789") == len)
            t->layer = strtoull(at, NULL, 10);
        t->kind = at;
        t->kind_len = len;
        at += len + 1;
    }
}

static int list_tensors(struct fp8q_facts *f, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = f->proof.ckpt;
    f->tensors = fp8q_array(ckpt->n_tensors, sizeof(*f->tensors));
    if (!f->tensors)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        if (fp8q_scale_owner(ckpt, t->name)) {
            f->n_scale_tensors++;
            f->scale_bytes += t->size_bytes;
            continue;
        }

        struct fp8q_facts_tensor *out = &f->tensors[f->n_tensors++];
        *out = (struct fp8q_facts_tensor){
            .tensor = t, .kind = t->name, .kind_len = strlen(t->name), .sqnr = (double)NAN};
        FP8Q_TRY(fp8q_tensor_role(ckpt, &f->inspection.family, t, &out->role, err));
        out->reason = is_quantized(t) ? NULL : reason_of(f, i, out->role);
        place_of(out);

        f->weight_elems += t->ndim >= 2 ? t->n_elems : 0;
        f->n_quantized += !out->reason;
        f->quantized_elems += out->reason ? 0 : t->n_elems;
    }
    return FP8Q_OK;
}

static int compare_names(const void *key, const void *item)
{
    return strcmp(key, ((const struct fp8q_facts_tensor *)item)->tensor->name);
}

static struct fp8q_facts_tensor *find_tensor(const struct fp8q_facts *f, const char *name)
{
    return bsearch(name, f->tensors, f->n_tensors, sizeof(*f->tensors), compare_names);
}

/* Experts of one stack are compared one by one; the worst of them speaks for the stack.  */
static void take_noise(struct fp8q_facts *f)
{
    for (size_t i = 0; i < f->proof.n_sqnr; i++) {
        const struct fp8q_sqnr *s = &f->proof.sqnr[i];
        struct fp8q_facts_tensor *t = find_tensor(f, s->name);
        if (t && !(t->sqnr <= s->db))
            t->sqnr = s->db;
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */

static bool same_shape(const struct fp8q_tensor *a, const struct fp8q_tensor *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0;
}

static int add_to_group(struct fp8q_facts_groups *groups, const char *name,
                        const struct fp8q_tensor *t, bool by_shape, struct fp8q_error *err)
{
    struct fp8q_facts_group *g = NULL;

    for (size_t i = 0; i < groups->count && !g; i++) {
        struct fp8q_facts_group *item = &groups->items[i];
        if (item->dtype == t->dtype && strcmp(item->name, name) == 0 &&
            (!by_shape || same_shape(item->example, t)))
            g = item;
    }

    if (!g) {
        FP8Q_TRY(
            fp8q_grow(&groups->items, groups->count, &groups->cap, sizeof(*groups->items), err));
        g = &groups->items[groups->count++];
        *g = (struct fp8q_facts_group){.name = name, .dtype = t->dtype, .example = t};
    }

    g->n_tensors++;
    g->n_elems += t->n_elems;
    g->bytes += t->size_bytes;
    return FP8Q_OK;
}

static int compare_bytes(const void *a, const void *b)
{
    const struct fp8q_facts_group *x = a, *y = b;
    int by_name = strcmp(x->name, y->name);

    /* The largest first; the rest makes the order a total one.  */
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return by_name ? by_name : strcmp(x->example->name, y->example->name);
}

static int group_tensors(struct fp8q_facts *f, struct fp8q_error *err)
{
    struct fp8q_facts_groups *const all[] = {&f->roles, &f->left, &f->left_shapes};

    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct fp8q_facts_tensor *t = &f->tensors[i];
        FP8Q_TRY(add_to_group(&f->roles, t->role, t->tensor, false, err));
        if (t->reason)
            FP8Q_TRY(add_to_group(&f->left, t->reason, t->tensor, false, err));
        if (t->reason && fp8q_facts_is_of_shape(t->reason))
            FP8Q_TRY(add_to_group(&f->left_shapes, t->reason, t->tensor, true, err));
    }

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i]->count)
            qsort(all[i]->items, all[i]->count, sizeof(*all[i]->items), compare_bytes);
    return FP8Q_OK;
}

/* ---- tensor parallelism ---------------------------------------------------------------------- */

/* The blocks of a tensor's scales, which cuts must not go through; none: {0, 0}.  */
static struct fp8q_grid blocks_of(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *t)
{
    const struct fp8q_tensor *scales;
    struct fp8q_scale_layout layout;

    bool in_blocks = is_quantized(t) && fp8q_find_scales(ckpt, t, &scales, NULL) == FP8Q_OK &&
                     fp8q_find_layout(ckpt, t, scales, &layout, NULL) == FP8Q_OK &&
                     (layout.scaling == FP8Q_SCALING_BLOCK || layout.scaling == FP8Q_SCALING_GROUP);
    if (!in_blocks)
        return (struct fp8q_grid){0};
    return (struct fp8q_grid){(uint32_t)layout.block_rows, (uint32_t)layout.block_cols};
}

static bool is_in_blocks(const void *grids, size_t tensor, struct fp8q_grid *grid_out)
{
    *grid_out = ((const struct fp8q_grid *)grids)[tensor];
    return grid_out->rows > 0;
}

static int find_misfits(struct fp8q_facts *f, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = f->proof.ckpt;
    struct fp8q_grid *grids = fp8q_array(ckpt->n_tensors, sizeof(*grids));
    const struct fp8q_tp tp = {ckpt, &f->inspection.family, is_in_blocks, grids};
    if (!grids)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < ckpt->n_tensors; i++)
        grids[i] = blocks_of(ckpt, &ckpt->tensors[i]);
    for (unsigned i = 0; i < FP8Q_FACTS_TP; i++)
        f->tp_misfits[i] = fp8q_tp_misfit(&tp, 2U << i);

    free(grids);
    return FP8Q_OK;
}

unsigned fp8q_facts_largest_tp(const struct fp8q_facts *f)
{
    unsigned ways = 1;

    for (unsigned i = 0; i < FP8Q_FACTS_TP && !f->tp_misfits[i]; i++)
        ways *= 2;
    return ways;
}

/* ---- values ---------------------------------------------------------------------------------- */

static double scale_range(const struct fp8q_value_figures *v)
{
    return v && v->n_scales > 1 && v->scale_min > 0 ? v->scale_max / v->scale_min : 0;
}

/* The tensor that was asked for, or the one that gains most by blocks: whose scales lie furthest
 * apart.  */
static int choose_map(struct fp8q_facts *f, struct fp8q_error *err)
{
    const char *wanted = f->request.tensor;
    struct fp8q_shown shown;
    double widest = 0;

    for (size_t i = 0; !wanted && i < f->n_tensors; i++)
        if (scale_range(f->tensors[i].values) > widest) {
            widest = scale_range(f->tensors[i].values);
            f->map_tensor = f->tensors[i].tensor->name;
        }
    if (!wanted)
        return FP8Q_OK;

    const struct fp8q_facts_tensor *t = find_tensor(f, wanted);
    if (!t || t->reason)
        return fp8q_fail(err, FP8Q_E_ARG, "no-tensor", "--tensor: there is no FP8 weight \"%s\"",
                         fp8q_show(&shown, wanted));
    f->map_tensor = t->tensor->name;
    return FP8Q_OK;
}

static int measure_values(struct fp8q_facts *f, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = f->proof.ckpt;
    const struct fp8q_values_options options = {
        .source = f->proof.source, .threads = f->request.threads, .watch = f->request.watch};
    FP8Q_TRY(fp8q_values_measure(ckpt, &options, &f->values, err));

    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct fp8q_value_figures *v =
            &f->values.tensors[f->tensors[i].tensor - ckpt->tensors];
        f->tensors[i].values = v->n_values ? v : NULL;
    }

    FP8Q_TRY(choose_map(f, err));
    return f->map_tensor
               ? fp8q_look_at_values(ckpt, f->map_tensor, f->request.kernel, &f->looked_at, err)
               : FP8Q_OK;
}

/* ---- verdict --------------------------------------------------------------------------------- */

static void judge_proof(struct fp8q_facts *f)
{
    const char *against = f->proof.source ? "against its source" : "without its source";

    if (f->proof_status == FP8Q_OK) {
        f->verdict = FP8Q_FACTS_PASSED;
        snprintf(f->verdict_text, sizeof(f->verdict_text), "%zu checks passed %s.",
                 f->proof.n_checks, against);
    } else {
        f->verdict = FP8Q_FACTS_FAILED;
        snprintf(f->verdict_text, sizeof(f->verdict_text), "%zu of %zu checks failed: %.400s.",
                 f->proof.n_failed, f->proof.n_checks, f->proof_error.message);
    }
}

static void judge(struct fp8q_facts *f)
{
    const struct fp8q_result_gate *g = &f->results.gate;
    size_t used;
    judge_proof(f);

    /* What the gate says goes further than the proof of the bytes, but cannot mend it.  */
    if (g->there && f->verdict == FP8Q_FACTS_PASSED && strcmp(g->verdict, "pass") != 0)
        f->verdict = strcmp(g->verdict, "fail") == 0 || strcmp(g->verdict, "widened") == 0
                         ? FP8Q_FACTS_FAILED
                         : FP8Q_FACTS_UNDECIDED;

    used = strlen(f->verdict_text);
    if (g->there)
        snprintf(f->verdict_text + used, sizeof(f->verdict_text) - used, " Gate: %.40s.",
                 g->verdict);
    else if (f->verdict == FP8Q_FACTS_PASSED && !f->results.eval.there)
        snprintf(f->verdict_text + used, sizeof(f->verdict_text) - used,
                 " Nothing says yet what its outputs lose.");

    used = strlen(f->verdict_text);
    if (f->results.drift.there && f->results.drift.stale)
        snprintf(f->verdict_text + used, sizeof(f->verdict_text) - used,
                 " The inputs have moved since it was measured.");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int collect(struct fp8q_facts *f, struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_measurements_read(&f->request.results, &f->results, err));
    FP8Q_TRY(prove(f, warnings, err));
    FP8Q_TRY(take_fingerprints(f, err));
    FP8Q_TRY(fp8q_measurements_check(&f->results, f->source, f->output, err));

    FP8Q_TRY(fp8q_inspect(f->proof.ckpt, &f->inspection, err));
    FP8Q_TRY(select_again(f, err));
    FP8Q_TRY(list_tensors(f, err));
    take_noise(f);
    FP8Q_TRY(group_tensors(f, err));
    FP8Q_TRY(find_misfits(f, err));
    FP8Q_TRY(fp8q_facts_ask_engines(f, err));
    FP8Q_TRY(measure_values(f, err));

    f->source_bytes = f->proof.source ? f->proof.source->data_bytes : 0;
    FP8Q_TRY(fp8q_facts_name(f, err));
    judge(f);
    return FP8Q_OK;
}

int fp8q_facts_collect(const struct fp8q_facts_request *request, struct fp8q_facts *facts_out,
                       struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    *facts_out = (struct fp8q_facts){.request = *request};
    return collect(facts_out, warnings, err);
}

void fp8q_facts_reset(struct fp8q_facts *f)
{
    fp8q_measurements_reset(&f->results);
    fp8q_statistics_reset(&f->looked_at);
    fp8q_values_reset(&f->values);
    if (f->has_selection)
        fp8q_selection_reset(&f->selection);
    fp8q_inspection_reset(&f->inspection);

    free(f->tensors);
    free(f->roles.items);
    free(f->left.items);
    free(f->left_shapes.items);
    free(f->name);
    free(f->path);
    free(f->source_path);
    free(f->base_model);
    for (size_t i = 0; i < FP8Q_CARD_KEYS; i++)
        free(f->inherited[i]);
    free(f->options);

    /* Last: names are borrowed from the checkpoint that it owns.  */
    fp8q_report_reset(&f->proof);
    *f = (struct fp8q_facts){0};
}
