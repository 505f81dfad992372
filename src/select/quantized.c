/* SPDX-License-Identifier: Apache-2.0
 *
 * quantized.c - recognises what is quantized already: scales and their weights, packed formats,
 * configs.
 */
#include "select/quantized.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/packed.h"
#include "checkpoint/scales.h"
#include "format/names.h"

/* ---- scales ---------------------------------------------------------------------------------- */

const struct fp8q_tensor *fp8q_scale_owner(const struct fp8q_ckpt *ckpt, const char *name)
{
    return fp8q_scaled_weight(ckpt, name);
}

const struct fp8q_tensor *fp8q_stale_owner(const struct fp8q_ckpt *ckpt, const char *name)
{
    for (size_t i = 0; i < fp8q_n_companions; i++) {
        const struct fp8q_companion *kind = &fp8q_companions[i];
        size_t stem = fp8q_stem_len(name, kind->ending);
        if (!stem)
            continue;
        const struct fp8q_tensor *t = fp8q_ckpt_find_joined(ckpt, name, stem, kind->owner);
        if (t && !fp8q_is_fp8(t->dtype))
            return t;
    }

    return NULL;
}

bool fp8q_is_leftover_scale(const struct fp8q_ckpt *ckpt, const char *name)
{
    const struct fp8q_tensor *owner = fp8q_scale_owner(ckpt, name);

    /* Of a weight without elements there is nothing to scale.  */
    if (owner)
        return owner->n_elems == 0;
    if (fp8q_stem_len(name, FP8Q_WEIGHT_ENDING FP8Q_SCALE_ENDING) ||
        fp8q_stem_len(name, FP8Q_WEIGHT_ENDING FP8Q_SCALE_INV_ENDING))
        return true;

    /* A stack of experts has no ".weight".  */
    size_t stem = fp8q_stem_len(name, FP8Q_SCALE_INV_ENDING);
    return stem && fp8q_ckpt_find_joined(ckpt, name, stem, "");
}

/* ---- configs --------------------------------------------------------------------------------- */

static bool is_quantization_key(const char *key)
{
    return strcmp(key, "quantization_config") == 0 || strcmp(key, "compression_config") == 0;
}

bool fp8q_is_fp8_dtype(const struct fp8q_json *value)
{
    return fp8q_starts_with(fp8q_json_string(value, ""), "float8");
}

/* A member that claims a quantization which is no more.  */
static bool is_claim(const struct fp8q_json *m)
{
    const char *key = fp8q_json_key(m);
    bool is_dtype = strcmp(key, "torch_dtype") == 0 || strcmp(key, "dtype") == 0;
    return is_quantization_key(key) || (is_dtype && fp8q_is_fp8_dtype(m));
}

/* The first description of a quantization in @object or below.  An empty one says nothing.  */
static const struct fp8q_json *find_description(const struct fp8q_json *object)
{
    for (const struct fp8q_json *m = fp8q_json_first(object); m; m = fp8q_json_next(m)) {
        const char *key = fp8q_json_key(m);
        const struct fp8q_json *found = NULL;

        /* Nested configs too: that of a VLM's language model may hold the only one.  */
        if (key && is_quantization_key(key) && fp8q_json_is_object(m))
            found = fp8q_json_count(m) ? m : NULL;
        else if (fp8q_json_is_object(m) || fp8q_json_is_array(m))
            found = find_description(m);
        if (found)
            return found;
    }

    return NULL;
}

struct path_list {
    char **items;
    size_t count, cap;
};

static bool add_path(struct path_list *list, const char *path)
{
    char *copy = strdup(path);
    if (!copy || fp8q_grow(&list->items, list->count, &list->cap, sizeof(copy), NULL) != FP8Q_OK) {
        free(copy);
        return false;
    }

    list->items[list->count++] = copy;
    return true;
}

/* Depth is that of a document that passed the JSON gate.  */
static bool collect(const struct fp8q_json *object, const char *prefix, struct path_list *list)
{
    bool ok = true;
    for (const struct fp8q_json *m = fp8q_json_first(object); m && ok; m = fp8q_json_next(m)) {
        struct fp8q_text path = {0};
        fp8q_text_printf(&path, "%s%s", prefix, fp8q_json_key(m));
        if (path.failed)
            ok = false;
        else if (*prefix && is_claim(m))
            ok = add_path(list, path.data);
        else if (fp8q_json_is_object(m)) {
            fp8q_text_puts(&path, ".");
            ok = !path.failed && collect(m, path.data, list);
        }
        fp8q_text_reset(&path);
    }

    return ok;
}

char **fp8q_nested_quantization(const struct fp8q_json *config)
{
    struct path_list list = {.items = NULL};
    bool ok = !fp8q_json_is_object(config) || collect(config, "", &list);

    /* Room for the NULL at the end.  */
    ok = ok && fp8q_grow(&list.items, list.count, &list.cap, sizeof(char *), NULL) == FP8Q_OK;
    if (!ok) {
        for (size_t i = 0; i < list.count; i++)
            free(list.items[i]);
        free(list.items);
        return NULL;
    }

    list.items[list.count] = NULL;
    return list.items;
}

void fp8q_free_paths(char **paths)
{
    for (size_t i = 0; paths && paths[i]; i++)
        free(paths[i]);
    free(paths);
}

bool fp8q_already_quantized(const struct fp8q_ckpt *ckpt, const char **what_out)
{
    const struct fp8q_json *q = find_description(ckpt->config);
    const char *tensor;
    if (q) {
        *what_out = fp8q_json_string(fp8q_json_get(q, "quant_method"), "quantized");
        return true;
    }

    /* A config may have lost its description: then the tensors tell.  */
    *what_out = fp8q_packed_format(ckpt, &tensor);
    for (size_t i = 0; i < ckpt->n_tensors && !*what_out; i++)
        if (fp8q_is_fp8(ckpt->tensors[i].dtype) && ckpt->tensors[i].n_elems > 0)
            *what_out = "FP8 weights";
    return *what_out != NULL;
}
