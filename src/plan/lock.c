/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c - writes and compares lock files.
 */
#include "plan/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "format/jsonw.h"
#include "base/mem.h"

int fp8q_lock_text(const struct fp8q_plan *plan, struct fp8q_text *out, struct fp8q_error *err)
{
    static const char *const schemes[] = {"FP8_BLOCK", "FP8_DYNAMIC", "FP8"};
    struct fp8q_jsonw w = {.indent = 1};
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "schema", "fp8q-lock/1");
    fp8q_jsonw_string(&w, "scheme", schemes[plan->options.select.scheme]);
    fp8q_jsonw_open(&w, "tensors", '{');
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[plan->by_name[i]];
        struct fp8q_text shape = {0};
        if (t->kind != FP8Q_OUT_CODES)
            continue;
        for (uint32_t k = 0; k < t->ndim; k++)
            fp8q_text_printf(&shape, "%s%llu", k ? ", " : "[", (unsigned long long)t->shape[k]);
        fp8q_text_puts(&shape, "]");
        if (shape.failed)
            w.text.failed = true;
        else
            fp8q_jsonw_raw(&w, t->name, shape.data);
        fp8q_text_reset(&shape);
    }
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_close(&w, '}');
    fp8q_text_puts(&w.text, "\n");
    *out = w.text;
    return fp8q_text_status(out, err);
}

static int compare_sets(const char **locked, size_t n, const struct fp8q_ckpt *ckpt,
                        struct fp8q_lock_result *r)
{
    struct fp8q_shown shown;
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        if (t->dtype != FP8Q_F8_E4M3 ||
            bsearch(&t->name, locked, n, sizeof(*locked), fp8q_compare_strings) || r->n_added++ > 0)
            continue;
        snprintf(r->first_added, sizeof(r->first_added), "%s", fp8q_show(&shown, t->name));
    }
    for (size_t i = 0; i < n; i++) {
        const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, locked[i]);
        if ((t && t->dtype == FP8Q_F8_E4M3) || r->n_missing++ > 0)
            continue;
        snprintf(r->first_missing, sizeof(r->first_missing), "%s", fp8q_show(&shown, locked[i]));
    }
    return FP8Q_OK;
}

int fp8q_lock_compare(const char *path, const struct fp8q_ckpt *ckpt, struct fp8q_lock_result *r,
                      struct fp8q_error *err)
{
    struct fp8q_json *json = NULL;
    struct fp8q_shown shown;
    char *text = NULL;
    size_t len, n = 0;
    const char **names = NULL;
    *r = (struct fp8q_lock_result){0};
    int status = fp8q_read_file(path, (uint64_t)1 << 28, &text, &len, err);
    if (status != FP8Q_OK) {
        if (err)
            err->status = FP8Q_E_EVIDENCE;
        return FP8Q_E_EVIDENCE;
    }
    status = fp8q_json_parse(text, len, 0, path, &json, err);
    const char *schema = fp8q_json_string(fp8q_json_get(json, "schema"), "");
    const struct fp8q_json *tensors = fp8q_json_get(json, "tensors");
    if (status == FP8Q_OK && (strcmp(schema, "fp8q-lock/1") != 0 || !fp8q_json_is_object(tensors)))
        status = fp8q_fail(err, FP8Q_E_FORMAT, "lock-schema",
                           "%s: expected the schema \"fp8q-lock/1\", found \"%s\"", path,
                           fp8q_show(&shown, schema));
    if (status == FP8Q_OK) {
        names = fp8q_array(fp8q_json_count(tensors), sizeof(*names));
        if (!names)
            status = fp8q_fail_nomem(err);
    }
    if (status == FP8Q_OK) {
        for (const struct fp8q_json *t = fp8q_json_first(tensors); t; t = fp8q_json_next(t))
            names[n++] = fp8q_json_key(t);
        qsort(names, n, sizeof(*names), fp8q_compare_strings);
        status = compare_sets(names, n, ckpt, r);
    }
    free(names);
    fp8q_json_free(json);
    free(text);
    return status;
}
