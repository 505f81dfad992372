/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.c - the fused names, once.
 */
#include "select/fused.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/names.h"

static const struct fp8q_fused table[] = {
    {.parts = {"q_proj", "k_proj", "v_proj"},
     .name = "qkv_proj",
     .file_name = "qkv",
     .on_disk = true,
     .in_targets = "qkv_proj"},
    {.parts = {"gate_proj", "up_proj"},
     .name = "gate_up_proj",
     .on_disk = true,
     .in_targets = "gate_up_proj"},
    {.parts = {"in_proj_qkv", "in_proj_z"},
     .name = "in_proj_qkvz",
     .on_disk = true,
     .in_targets = "in_proj_qkvz"},
    {.parts = {"in_proj_b", "in_proj_a"},
     .name = "in_proj_ba",
     .on_disk = true,
     .in_targets = "in_proj_ba"},
    {.parts = {"q_a_proj", "kv_a_proj_with_mqa"},
     .name = "fused_qkv_a_proj_with_mqa",
     .in_targets = "fused_qkv_a_proj(?:_with_mqa)?"},
    {.parts = {"w1", "w3"}, .name = NULL, .in_targets = "gate_up_proj"}};

const struct fp8q_fused *fp8q_fused_of_part(const char *component)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        for (const char *const *part = table[i].parts; *part; part++)
            if (strcmp(*part, component) == 0)
                return &table[i];

    return NULL;
}

const struct fp8q_fused *fp8q_fused_of_whole(const char *component)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        const struct fp8q_fused *f = &table[i];
        if (f->on_disk && strcmp(f->name, component) == 0)
            return f;
        if (f->file_name && strcmp(f->file_name, component) == 0)
            return f;
    }

    return NULL;
}

const struct fp8q_fused *fp8q_fused_of_weight(const char *name, size_t *parent_len_out)
{
    char last[64];
    size_t module = fp8q_weight_stem(name), from = module;

    *parent_len_out = 0;
    if (!fp8q_is_weight_name(name))
        return NULL;
    while (from > 0 && name[from - 1] != '.')
        from--;

    /* No part of a fused matrix has so long a name.  */
    if (module - from >= sizeof(last))
        return NULL;
    memcpy(last, name + from, module - from);
    last[module - from] = '\0';
    *parent_len_out = from;
    return fp8q_fused_of_part(last);
}

/* ---- numbers --------------------------------------------------------------------------------- */

struct part {
    const char *name;
    const struct fp8q_fused *row; /* NULL: a matrix by itself */
    size_t parent_len, index;
};

static int compare_parents(const struct part *a, const struct part *b)
{
    int order = memcmp(a->name, b->name, fp8q_min_size(a->parent_len, b->parent_len));
    if (order)
        return order;
    return (a->parent_len > b->parent_len) - (a->parent_len < b->parent_len);
}

/* One matrix: the same row, and the same parent.  */
static int compare_wholes(const struct part *a, const struct part *b)
{
    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return a->row ? compare_parents(a, b) : strcmp(a->name, b->name);
}

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = compare_wholes(x, y);
    return order ? order : strcmp(x->name, y->name);
}

int fp8q_fused_number(const char *const *names, size_t n, size_t *numbers_out,
                      struct fp8q_error *err)
{
    struct part *parts = fp8q_array(n, sizeof(*parts));
    if (!parts)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < n; i++) {
        struct part *p = &parts[i];
        *p = (struct part){.name = names[i], .index = i};
        p->row = fp8q_fused_of_weight(names[i], &p->parent_len);
    }
    qsort(parts, n, sizeof(*parts), compare_parts);

    /* Sorted, the parts of a matrix follow each other.  */
    for (size_t i = 0, number = 0; i < n; i++) {
        number += i > 0 && compare_wholes(&parts[i - 1], &parts[i]) != 0;
        numbers_out[parts[i].index] = number;
    }

    free(parts);
    return FP8Q_OK;
}
