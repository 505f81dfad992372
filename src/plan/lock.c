/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c - writes and compares lock files.
 */
#include "plan/lock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/weights.h"
#include "format/jsonw.h"
#include "format/names.h"
#include "select/scheme.h"

/* ---- writing --------------------------------------------------------------------------------- */

static void write_shape(struct fp8q_jsonw *w, const struct fp8q_out_tensor *t)
{
    struct fp8q_text shape = {0};
    for (uint32_t k = 0; k < t->ndim; k++)
        fp8q_text_printf(&shape, "%s%llu", k ? ", " : "[", (unsigned long long)t->shape[k]);
    fp8q_text_puts(&shape, "]");

    if (shape.failed)
        w->text.failed = true;
    else
        fp8q_jsonw_raw(w, t->name, shape.data);
    fp8q_text_reset(&shape);
}

/* Only where it is not the plain one: unaligned tensors may be scaled per row, and patterns name
 * others.  */
static void write_schemes(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    bool any = false;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[plan->by_name[i]];
        enum fp8q_scheme scheme = plan->selection.decisions[t->source].scheme;
        if (t->kind != FP8Q_OUT_CODES || scheme == plan->options.select.scheme)
            continue;
        if (!any)
            fp8q_jsonw_open(w, "schemes", '{');
        any = true;
        fp8q_jsonw_string(w, t->name, fp8q_scheme_names[scheme]);
    }
    if (any)
        fp8q_jsonw_close(w, '}');
}

int fp8q_lock_text(const struct fp8q_plan *plan, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 1};
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "schema", "fp8q-lock/1");
    fp8q_jsonw_string(&w, "scheme", fp8q_scheme_names[plan->options.select.scheme]);

    /* By name, so that a diff of two locks shows what changed.  */
    fp8q_jsonw_open(&w, "tensors", '{');
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[plan->by_name[i]];
        if (t->kind == FP8Q_OUT_CODES)
            write_shape(&w, t);
    }
    fp8q_jsonw_close(&w, '}');
    write_schemes(&w, plan);
    fp8q_jsonw_close(&w, '}');
    fp8q_text_puts(&w.text, "\n");

    *out = w.text;
    return fp8q_text_status(out, err);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct locked {
    const char *name; /* borrowed from the JSON, like the rest */
    const struct fp8q_json *shape;
    enum fp8q_scheme scheme;
};

struct lock {
    char *text;
    struct fp8q_json *json;
    struct locked *tensors; /* sorted by name */
    size_t n;
};

static int compare_locked(const void *a, const void *b)
{
    return strcmp(((const struct locked *)a)->name, ((const struct locked *)b)->name);
}

static struct locked *find_locked(const struct lock *lock, const char *name)
{
    struct locked key = {.name = name};
    return bsearch(&key, lock->tensors, lock->n, sizeof(key), compare_locked);
}

static bool is_shape(const struct fp8q_json *value)
{
    uint64_t size;
    for (const struct fp8q_json *i = fp8q_json_first(value); i; i = fp8q_json_next(i))
        if (!fp8q_json_uint(i, &size))
            return false;
    return fp8q_json_is_array(value);
}

static bool find_scheme(const char *text, enum fp8q_scheme *scheme_out)
{
    for (unsigned i = 0; fp8q_scheme_names[i]; i++)
        if (strcmp(text, fp8q_scheme_names[i]) == 0) {
            *scheme_out = (enum fp8q_scheme)i;
            return true;
        }
    return false;
}

static int bad_entry(const char *path, const char *name, const char *expected,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    return fp8q_fail(err, FP8Q_E_FORMAT, "lock-entry", "%s: \"%s\": expected %s", path,
                     fp8q_show(&shown, name), expected);
}

static int parse_tensors(struct lock *lock, const char *path, struct fp8q_error *err)
{
    static const char of_scheme[] = "FP8_BLOCK, FP8_DYNAMIC, FP8, MXFP8 or FP8_STATIC";
    const struct fp8q_json *tensors = fp8q_json_get(lock->json, "tensors");
    enum fp8q_scheme scheme;
    if (!find_scheme(fp8q_json_string(fp8q_json_get(lock->json, "scheme"), ""), &scheme))
        return bad_entry(path, "scheme", of_scheme, err);
    lock->tensors = fp8q_array(fp8q_json_count(tensors), sizeof(*lock->tensors));
    if (!lock->tensors)
        return fp8q_fail_nomem(err);

    for (const struct fp8q_json *t = fp8q_json_first(tensors); t; t = fp8q_json_next(t)) {
        if (!is_shape(t))
            return bad_entry(path, fp8q_json_key(t), "a shape", err);
        lock->tensors[lock->n++] = (struct locked){fp8q_json_key(t), t, scheme};
    }

    /* Sorted here, since the own schemes below are found by name.  */
    qsort(lock->tensors, lock->n, sizeof(*lock->tensors), compare_locked);

    const struct fp8q_json *schemes = fp8q_json_get(lock->json, "schemes");
    for (const struct fp8q_json *s = fp8q_json_first(schemes); s; s = fp8q_json_next(s)) {
        struct locked *of = find_locked(lock, fp8q_json_key(s));
        enum fp8q_scheme own;
        if (!of || !find_scheme(fp8q_json_string(s, ""), &own))
            return bad_entry(path, fp8q_json_key(s), of ? of_scheme : "a tensor of the lock", err);
        of->scheme = own;
    }
    return FP8Q_OK;
}

static int lock_read(const char *path, struct lock *lock, struct fp8q_error *err)
{
    size_t len;
    struct fp8q_shown shown;

    /* A lock that is not there is missing evidence; one that cannot be read is an error.  */
    FP8Q_TRY(fp8q_read_file_if_there(path, (uint64_t)1 << 28, &lock->text, &len, err));
    if (!lock->text)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "no-lock-file", "%s: no such lock file",
                         fp8q_show(&shown, path));

    FP8Q_TRY(fp8q_json_parse(lock->text, len, 0, path, &lock->json, err));
    const char *schema = fp8q_json_string(fp8q_json_get(lock->json, "schema"), "");
    if (strcmp(schema, "fp8q-lock/1") != 0 ||
        !fp8q_json_is_object(fp8q_json_get(lock->json, "tensors")))
        return fp8q_fail(err, FP8Q_E_FORMAT, "lock-schema",
                         "%s: expected the schema \"fp8q-lock/1\", found \"%s\"", path,
                         fp8q_show(&shown, schema));
    return parse_tensors(lock, path, err);
}

static void lock_reset(struct lock *lock)
{
    free(lock->tensors);
    fp8q_json_free(lock->json);
    free(lock->text);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static int add(struct fp8q_lock_result *r, enum fp8q_lock_kind kind, const char *name,
               struct fp8q_error *err, const char *fmt, ...) FP8Q_PRINTF(5, 6);

static int add(struct fp8q_lock_result *r, enum fp8q_lock_kind kind, const char *name,
               struct fp8q_error *err, const char *fmt, ...)
{
    FP8Q_TRY(fp8q_grow(&r->items, r->n_items, &r->cap, sizeof(*r->items), err));
    struct fp8q_lock_difference *d = &r->items[r->n_items];
    *d = (struct fp8q_lock_difference){.kind = kind, .name = strdup(name)};
    if (!d->name)
        return fp8q_fail_nomem(err);

    va_list args;
    va_start(args, fmt);
    vsnprintf(d->observed, sizeof(d->observed), fmt, args);
    va_end(args);
    r->n_items++;
    r->n_of[kind]++;

    /* Fewer quantized tensors than the lock allows do not go beyond it.  */
    r->n_beyond += kind != FP8Q_LOCK_MISSING;
    return FP8Q_OK;
}

/* FP8 is what fp8q writes; but a weight that has become anything else of eight bits or fewer was
 * quantized as well.  */
static bool is_quantized(const struct fp8q_tensor *t)
{
    if (t->dtype == FP8Q_F8_E4M3)
        return true;
    return t->ndim >= 2 && fp8q_dtype_bits(t->dtype) <= 8 && t->dtype != FP8Q_BOOL &&
           (fp8q_ends_with(t->name, FP8Q_WEIGHT_ENDING) ||
            fp8q_ends_with(t->name, ".weight_packed") || fp8q_ends_with(t->name, ".qweight") ||
            fp8q_ends_with(t->name, "_blocks"));
}

static bool same_shape(const struct fp8q_tensor *t, const struct fp8q_json *shape)
{
    uint32_t k = 0;
    uint64_t size;
    for (const struct fp8q_json *i = fp8q_json_first(shape); i; i = fp8q_json_next(i), k++)
        if (k >= t->ndim || !fp8q_json_uint(i, &size) || size != t->shape[k])
            return false;
    return k == t->ndim;
}

/* Whether a scheme of the lock gives this weight one scale: of a small matrix a block is all.  */
static bool gives_one_scale(enum fp8q_scheme scheme, const struct fp8q_weights *w)
{
    uint64_t grid[2];

    fp8q_grid_shape(fp8q_scheme_grid(scheme), w->n_rows, w->n_cols, grid);
    return grid[0] == 1 && grid[1] == 1;
}

/* "X.input_scale" beside "X.weight": its inputs are static.  */
static bool has_input_scale(const struct fp8q_ckpt *ckpt, const char *weight)
{
    size_t stem = fp8q_weight_stem(weight);
    return fp8q_ckpt_find_joined(ckpt, weight, stem, ".input_scale") != NULL;
}

/* What the scales of a weight say that its scheme is; false: none of ours.  */
static bool scheme_on_disk(const struct fp8q_ckpt *ckpt, const struct fp8q_weights *w,
                           const char *name, enum fp8q_scheme *scheme_out)
{
    static const enum fp8q_scheme schemes[] = {[FP8Q_SCALING_BLOCK] = FP8Q_SCHEME_BLOCK,
                                               [FP8Q_SCALING_ROW] = FP8Q_SCHEME_CHANNEL,
                                               [FP8Q_SCALING_TENSOR] = FP8Q_SCHEME_TENSOR,
                                               [FP8Q_SCALING_GROUP] = FP8Q_SCHEME_GROUP};
    if (w->scaling == FP8Q_SCALING_NONE)
        return false;

    *scheme_out = schemes[w->scaling];
    if (w->scaling == FP8Q_SCALING_TENSOR && has_input_scale(ckpt, name))
        *scheme_out = FP8Q_SCHEME_STATIC;
    return true;
}

/* Where both schemes give one scale, it is the same scale, whatever it is called.  */
static int check_scheme(struct fp8q_lock_result *r, const struct fp8q_ckpt *ckpt,
                        const struct fp8q_tensor *t, enum fp8q_scheme locked,
                        struct fp8q_error *err)
{
    struct fp8q_weights w;
    struct fp8q_error why = {0};
    enum fp8q_scheme found = locked;
    int status = fp8q_weights_open(ckpt, t->name, &w, &why);

    /* Only what says nothing of the checkpoint is a failure of the comparison; scales that are not
     * understood are a difference.  */
    if (status == FP8Q_E_IO || status == FP8Q_E_NOMEM)
        return fp8q_fail_as(err, &why);
    bool known = status == FP8Q_OK && scheme_on_disk(ckpt, &w, t->name, &found);
    bool is_one = known && w.scale_from->n_elems == 1 && gives_one_scale(locked, &w) &&
                  (found == FP8Q_SCHEME_STATIC) == (locked == FP8Q_SCHEME_STATIC);
    fp8q_weights_reset(&w);

    if (is_one || (known && found == locked))
        return FP8Q_OK;
    return add(r, FP8Q_LOCK_SCHEME, t->name, err, "is scaled as %s, the lock says %s",
               known ? fp8q_scheme_names[found] : "no FP8 scheme", fp8q_scheme_names[locked]);
}

static int compare(const struct lock *lock, const struct fp8q_ckpt *ckpt,
                   struct fp8q_lock_result *r, struct fp8q_error *err)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        if (!is_quantized(t))
            continue;
        const struct locked *l = find_locked(lock, t->name);
        if (!l) {
            FP8Q_TRY(add(r, FP8Q_LOCK_ADDED, t->name, err, "is %s and not in the lock",
                         fp8q_dtype_name(t->dtype)));
            continue;
        }
        if (!same_shape(t, l->shape))
            FP8Q_TRY(add(r, FP8Q_LOCK_SHAPE, t->name, err, "has another shape than in the lock"));
        if (t->n_elems > 0)
            FP8Q_TRY(check_scheme(r, ckpt, t, l->scheme, err));
    }

    /* The other way round: what the lock has and the checkpoint lacks.  */
    for (size_t i = 0; i < lock->n; i++) {
        const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, lock->tensors[i].name);
        if (t && is_quantized(t))
            continue;
        FP8Q_TRY(add(r, FP8Q_LOCK_MISSING, lock->tensors[i].name, err,
                     t ? "is in the lock and not quantized" : "is in the lock and not there"));
    }
    return FP8Q_OK;
}

static int read_and_compare(const char *path, struct lock *lock, const struct fp8q_ckpt *ckpt,
                            struct fp8q_lock_result *r, struct fp8q_error *err)
{
    FP8Q_TRY(lock_read(path, lock, err));
    return compare(lock, ckpt, r, err);
}

int fp8q_lock_compare(const char *path, const struct fp8q_ckpt *ckpt, struct fp8q_lock_result *r,
                      struct fp8q_error *err)
{
    struct lock lock = {0};
    *r = (struct fp8q_lock_result){0};
    int status = read_and_compare(path, &lock, ckpt, r, err);
    lock_reset(&lock);
    return status;
}

void fp8q_lock_result_reset(struct fp8q_lock_result *r)
{
    for (size_t i = 0; i < r->n_items; i++)
        free(r->items[i].name);
    free(r->items);
    *r = (struct fp8q_lock_result){0};
}
