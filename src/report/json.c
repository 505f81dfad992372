/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - facts to JSON, in the order of the page.
 */
#include "report/json.h"

#include <math.h>
#include <stdio.h>

#include "report/internal.h"

static void fingerprint_json(struct fp8q_jsonw *w, const char *key, struct fp8q_fingerprint f)
{
    char text[16];
    snprintf(text, sizeof(text), "%08x", (unsigned)f.crc32);
    fp8q_jsonw_string(w, key, f.known ? text : NULL);
}

static void shape_json(struct fp8q_jsonw *w, const char *key, const struct fp8q_tensor *t)
{
    fp8q_jsonw_open(w, key, '[');
    for (uint32_t i = 0; i < t->ndim; i++)
        fp8q_jsonw_uint(w, NULL, t->shape[i]);
    fp8q_jsonw_close(w, ']');
}

/* ---- the checkpoint -------------------------------------------------------------------------- */

static void head_json(const struct fp8q_facts *f, struct fp8q_jsonw *w)
{
    static const char *const verdicts[] = {"passed", "undecided", "failed"};

    fp8q_jsonw_string(w, "name", f->name);
    fp8q_jsonw_string(w, "path", f->path);
    fp8q_jsonw_string(w, "source", f->source_path);
    fp8q_jsonw_string(w, "base_model", f->base_model);
    fp8q_jsonw_string(w, "license", f->inherited[FP8Q_CARD_LICENSE]);
    fp8q_jsonw_string(w, "created", f->request.created);
    fp8q_jsonw_string(w, "verdict", verdicts[f->verdict]);
    fp8q_jsonw_string(w, "verdict_text", f->verdict_text);

    fp8q_jsonw_string(w, "architecture", f->inspection.family.name);
    fp8q_jsonw_string(w, "model_type", f->inspection.model_type);
    fp8q_jsonw_string(w, "quantization", f->inspection.quantization);
    fp8q_jsonw_string(w, "options", f->options);

    fp8q_jsonw_open(w, "fingerprints", '{');
    fingerprint_json(w, "source", f->source);
    fingerprint_json(w, "output", f->output);
    fp8q_jsonw_close(w, '}');

    fp8q_jsonw_open(w, "bytes", '{');
    fp8q_jsonw_number(w, "source", f->source_bytes ? (double)f->source_bytes : (double)NAN);
    fp8q_jsonw_uint(w, "output", f->proof.ckpt->data_bytes);
    fp8q_jsonw_uint(w, "scales", f->scale_bytes);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_number(w, "bits_per_weight", f->inspection.bits_per_weight);
    fp8q_jsonw_uint(w, "weights", f->weight_elems);
    fp8q_jsonw_uint(w, "quantized_weights", f->quantized_elems);
}

static void groups_json(struct fp8q_jsonw *w, const char *key, const char *name,
                        const struct fp8q_facts_groups *groups, bool shapes)
{
    fp8q_jsonw_open(w, key, '[');
    for (size_t i = 0; i < groups->count; i++) {
        const struct fp8q_facts_group *g = &groups->items[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, name, g->name);
        fp8q_jsonw_string(w, "dtype", fp8q_dtype_name(g->dtype));
        fp8q_jsonw_uint(w, "tensors", g->n_tensors);
        fp8q_jsonw_uint(w, "elements", g->n_elems);
        fp8q_jsonw_uint(w, "bytes", g->bytes);
        if (shapes) {
            shape_json(w, "shape", g->example);
            fp8q_jsonw_string(w, "example", g->example->name);
        }
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void checks_json(const struct fp8q_facts *f, struct fp8q_jsonw *w)
{
    static const char *const words[] = {"pass", "warn", "fail"};

    fp8q_jsonw_open(w, "verify", '[');
    for (size_t i = 0; i < f->proof.n_checks; i++) {
        const struct fp8q_check *c = &f->proof.checks[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "id", c->id);
        fp8q_jsonw_string(w, "status", words[c->status]);
        fp8q_jsonw_string(w, "observed", c->observed);
        fp8q_jsonw_string(w, "limit", c->limit);
        fp8q_jsonw_string(w, "where", c->where);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void tp_json(const struct fp8q_facts *f, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, "tensor_parallel", '{');
    fp8q_jsonw_uint(w, "largest", fp8q_facts_largest_tp(f));
    fp8q_jsonw_open(w, "misfits", '{');
    for (unsigned i = 0; i < FP8Q_FACTS_TP; i++) {
        char ways[16];
        snprintf(ways, sizeof(ways), "%u", 2U << i);
        fp8q_jsonw_string(w, ways, f->tp_misfits[i]);
    }
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_close(w, '}');
}

static void engines_json(const struct fp8q_facts *f, struct fp8q_jsonw *w)
{
    static const char *const words[] = {"yes", "unsure", "no"};

    fp8q_jsonw_open(w, "engines", '{');
    for (size_t i = 0; i < FP8Q_N_ENGINES; i++)
        fp8q_jsonw_string(w, fp8q_engines[i].word, words[f->engines[i].state]);
    fp8q_jsonw_close(w, '}');
}

/* ---- weights --------------------------------------------------------------------------------- */

static double share(uint64_t part, uint64_t of)
{
    return of ? (double)part / (double)of : (double)NAN;
}

static void values_json(const struct fp8q_facts *f, struct fp8q_jsonw *w)
{
    const struct fp8q_value_figures *v = &f->values.total;

    fp8q_jsonw_open(w, "values", '{');
    fp8q_jsonw_uint(w, "count", v->n_values);
    fp8q_jsonw_number(w, "saturated", share(v->saturated, v->n_values));
    fp8q_jsonw_number(w, "underflowed", share(v->underflowed, v->n_compared));
    fp8q_jsonw_open(w, "by_exponent", '[');
    for (size_t i = 0; i < FP8Q_CODE_BINS; i++)
        fp8q_jsonw_uint(w, NULL, v->by_exponent[i]);
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');

    fp8q_jsonw_open(w, "scales", '{');
    fp8q_jsonw_uint(w, "count", v->n_scales);
    fp8q_jsonw_number(w, "min", v->scale_min);
    fp8q_jsonw_number(w, "max", v->scale_max);
    fp8q_jsonw_open(w, "by_power", '{');
    for (int i = 0; i < FP8Q_SCALE_BINS; i++) {
        char power[16];
        snprintf(power, sizeof(power), "%d", i - FP8Q_SCALE_BINS_LOW);
        if (f->values.by_scale[i])
            fp8q_jsonw_uint(w, power, f->values.by_scale[i]);
    }
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_close(w, '}');
}

/* Five digits: more of them would be noise, and a third of the page.  */
static void rounded_json(struct fp8q_jsonw *w, double value)
{
    char digits[40];
    fp8q_number_print(digits, sizeof(digits), 5, value);
    fp8q_jsonw_number(w, NULL, isfinite(value) ? fp8q_number_parse(digits, NULL) : value);
}

static void map_json(const struct fp8q_facts *f, struct fp8q_jsonw *w)
{
    struct fp8q_amax_map map = fp8q_amax_map_of(&f->looked_at, FP8Q_MAP_MOST, FP8Q_MAP_MOST);
    if (!f->map_tensor)
        return;

    fp8q_jsonw_open(w, "block_amax", '{');
    fp8q_jsonw_string(w, "tensor", f->map_tensor);
    fp8q_jsonw_uint(w, "block_rows", f->looked_at.grid_rows);
    fp8q_jsonw_uint(w, "block_cols", f->looked_at.grid_cols);
    fp8q_jsonw_uint(w, "rows", map.rows);
    fp8q_jsonw_uint(w, "cols", map.cols);

    fp8q_jsonw_open(w, "cells", '[');
    for (uint64_t i = 0; i < map.rows * map.cols; i++)
        rounded_json(w, (double)fp8q_amax_map_cell(&map, i / map.cols, i % map.cols));
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

/* Rows instead of objects: of ten thousand tensors the keys would be most of the page.  */
static void tensors_json(const struct fp8q_facts *f, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, "tensors", '{');
    fp8q_jsonw_raw(w, "columns",
                   "[\"name\", \"dtype\", \"shape\", \"role\", \"reason\", \"sqnr_db\", "
                   "\"saturated\", \"underflowed\", \"scale_min\", \"scale_max\"]");

    fp8q_jsonw_open(w, "rows", '[');
    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct fp8q_facts_tensor *t = &f->tensors[i];
        const struct fp8q_value_figures *v = t->values;
        fp8q_jsonw_open(w, NULL, '[');
        fp8q_jsonw_string(w, NULL, t->tensor->name);
        fp8q_jsonw_string(w, NULL, fp8q_dtype_name(t->tensor->dtype));
        shape_json(w, NULL, t->tensor);
        fp8q_jsonw_string(w, NULL, t->role);
        fp8q_jsonw_string(w, NULL, t->reason);
        if (v) {
            rounded_json(w, t->sqnr);
            rounded_json(w, share(v->saturated, v->n_values));
            rounded_json(w, share(v->underflowed, v->n_compared));
            rounded_json(w, v->scale_min);
            rounded_json(w, v->scale_max);
        }
        fp8q_jsonw_close(w, ']');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

/* ---- results --------------------------------------------------------------------------------- */

static void row_json(const struct fp8q_result_row *r, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, NULL, '{');
    fp8q_jsonw_string(w, "of", r->name);
    fp8q_jsonw_number(w, "mean", r->mean);
    fp8q_jsonw_number(w, "se", r->se);
    fp8q_jsonw_number(w, "median", r->median);
    fp8q_jsonw_number(w, "p95", r->p95);
    fp8q_jsonw_number(w, "p99", r->p99);
    fp8q_jsonw_number(w, "p999", r->p999);
    fp8q_jsonw_number(w, "max", r->max);
    fp8q_jsonw_number(w, "top1", r->top1);
    fp8q_jsonw_number(w, "dln_ppl", r->dln);
    fp8q_jsonw_close(w, '}');
}

static void parts_json(const struct fp8q_result_parts *parts, const char *name, const char *key,
                       struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, name, '[');
    for (size_t i = 0; i < parts->count; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        if (key)
            fp8q_jsonw_uint(w, key, parts->items[i].key);
        else
            fp8q_jsonw_string(w, "name", parts->items[i].name);
        fp8q_jsonw_uint(w, "tokens", parts->items[i].tokens);
        fp8q_jsonw_number(w, "kld", parts->items[i].kld);
        fp8q_jsonw_number(w, "top1", parts->items[i].top1);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void eval_json(const struct fp8q_result_eval *e, struct fp8q_jsonw *w)
{
    if (!e->there)
        return;

    fp8q_jsonw_open(w, "eval", '{');
    fp8q_jsonw_string(w, "dataset", e->dataset);
    fp8q_jsonw_string(w, "acts", e->acts);
    fp8q_jsonw_uint(w, "tokens", e->tokens);

    fp8q_jsonw_open(w, "rows", '[');
    for (size_t i = 0; i < FP8Q_RESULT_ROWS; i++)
        if (e->rows[i].there)
            row_json(&e->rows[i], w);
    fp8q_jsonw_close(w, ']');

    parts_json(&e->samples, "samples", "sample", w);
    parts_json(&e->modalities, "modalities", "modality", w);
    parts_json(&e->categories, "categories", NULL, w);
    parts_json(&e->positions, "positions", "from", w);
    fp8q_jsonw_open(w, "layer_error", '[');
    for (size_t i = 0; i < e->n_layers; i++)
        fp8q_jsonw_number(w, NULL, e->layer_error[i]);
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

static void sweep_json(const struct fp8q_result_sweep *s, struct fp8q_jsonw *w)
{
    if (!s->there)
        return;

    fp8q_jsonw_open(w, "sweep", '{');
    fp8q_jsonw_uint(w, "tokens", s->tokens);
    fp8q_jsonw_number(w, "all", s->all_measured);
    fp8q_jsonw_open(w, "splits", '[');
    for (size_t i = 0; i < s->n_splits; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_uint(w, "kept", s->splits[i].kept);
        fp8q_jsonw_string(w, "last_kept", s->splits[i].last_kept);
        fp8q_jsonw_uint(w, "bytes", s->splits[i].bytes);
        fp8q_jsonw_number(w, "kld", s->splits[i].kld);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

static void compare_json(const struct fp8q_result_compare *c, struct fp8q_jsonw *w)
{
    if (!c->there)
        return;

    fp8q_jsonw_open(w, "compare", '[');
    for (size_t i = 0; i < c->count; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "format", c->rows[i].format);
        fp8q_jsonw_string(w, "granularity", c->rows[i].granularity);
        fp8q_jsonw_number(w, "rmse", c->rows[i].rmse);
        fp8q_jsonw_number(w, "relative_rmse", c->rows[i].relative);
        fp8q_jsonw_number(w, "sqnr_db", c->rows[i].sqnr);
        fp8q_jsonw_uint(w, "bytes", c->rows[i].bytes);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void drift_json(const struct fp8q_result_drift *d, struct fp8q_jsonw *w)
{
    if (!d->there)
        return;

    fp8q_jsonw_open(w, "drift", '{');
    fp8q_jsonw_bool(w, "stale", d->stale);
    fp8q_jsonw_uint(w, "moved", d->n_moved);
    fp8q_jsonw_uint(w, "sites", d->count);
    fp8q_jsonw_number(w, "mix", d->mix);
    fp8q_jsonw_number(w, "codes_changed", d->codes_changed);
    fp8q_jsonw_close(w, '}');
}

static void gate_json(const struct fp8q_result_gate *g, struct fp8q_jsonw *w)
{
    if (!g->there)
        return;

    fp8q_jsonw_open(w, "gate", '{');
    fp8q_jsonw_string(w, "verdict", g->verdict);
    fp8q_jsonw_open(w, "checks", '[');
    for (size_t i = 0; i < g->count; i++) {
        const struct fp8q_result_check *c = &g->checks[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "id", c->id);
        fp8q_jsonw_string(w, "status", c->status);
        fp8q_jsonw_number(w, "observed", c->observed);
        fp8q_jsonw_number(w, "ci_low", c->low);
        fp8q_jsonw_number(w, "ci_high", c->high);
        fp8q_jsonw_number(w, "limit", c->limit);
        fp8q_jsonw_string(w, "message", c->message);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

static void calibration_json(const struct fp8q_measurements *r, struct fp8q_jsonw *w)
{
    const struct fp8q_calib *c = &r->calibration;
    if (!r->has_calibration)
        return;

    fp8q_jsonw_open(w, "calibration", '{');
    fp8q_jsonw_string(w, "dataset", c->meta.dataset);
    fp8q_jsonw_uint(w, "samples", c->meta.n_samples);
    fp8q_jsonw_uint(w, "tokens", c->meta.n_tokens);
    fp8q_jsonw_uint(w, "sites", c->n_sites);
    fp8q_jsonw_close(w, '}');
}

void fp8q_facts_json(const struct fp8q_facts *f, struct fp8q_jsonw *w)
{
    head_json(f, w);
    groups_json(w, "roles", "role", &f->roles, false);
    groups_json(w, "left", "reason", &f->left, false);
    groups_json(w, "left_shapes", "reason", &f->left_shapes, true);
    tp_json(f, w);
    engines_json(f, w);

    eval_json(&f->results.eval, w);
    if (f->proof.n_sqnr)
        fp8q_jsonw_number(w, "sqnr_db", f->proof.sqnr_mean);
    values_json(f, w);
    map_json(f, w);

    sweep_json(&f->results.sweep, w);
    compare_json(&f->results.compare, w);
    drift_json(&f->results.drift, w);
    calibration_json(&f->results, w);
    gate_json(&f->results.gate, w);
    checks_json(f, w);
    tensors_json(f, w);
}
