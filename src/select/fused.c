/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.c - the fused names, once.
 */
#include "select/fused.h"

#include <string.h>

static const struct fp8q_fused table[] = {
    {.parts = {"q_proj", "k_proj", "v_proj"},
     .name = "qkv_proj",
     .file_name = "qkv",
     .on_disk = true,
     .in_targets = true},
    {.parts = {"gate_proj", "up_proj"},
     .name = "gate_up_proj",
     .on_disk = true,
     .in_targets = true},
    {.parts = {"in_proj_qkv", "in_proj_z"}, .name = "in_proj_qkvz", .on_disk = true},
    {.parts = {"in_proj_b", "in_proj_a"}, .name = "in_proj_ba", .on_disk = true},
    {.parts = {"q_a_proj", "kv_a_proj_with_mqa"}, .name = "fused_qkv_a_proj_with_mqa"},
    {.parts = {"w1", "w3"}, .name = NULL}};

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
