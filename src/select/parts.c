/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c - logical parts of fused and stacked weights.
 */
#include "select/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/names.h"
#include "kernel/block.h"
#include "select/pattern.h"

/* Of the language model's own config, else of the top level.  */
static uint64_t config_size(const struct fp8q_json *config, const char *key)
{
    uint64_t value;
    if (fp8q_json_uint(fp8q_json_get(fp8q_language_config(config), key), &value))
        return value;

    return fp8q_json_uint(fp8q_json_get(config, key), &value) ? value : 0;
}

struct fp8q_parts_config fp8q_parts_config_of(const struct fp8q_json *config)
{
    struct fp8q_parts_config c = {.hidden = config_size(config, "hidden_size"),
                                  .heads = config_size(config, "num_attention_heads"),
                                  .kv_heads = config_size(config, "num_key_value_heads"),
                                  .head_dim = config_size(config, "head_dim"),
                                  .moe_intermediate = config_size(config, "moe_intermediate_size")};

    /* ChatGLM's words; and where all layers have experts, there may be one intermediate size.  */
    if (!c.kv_heads)
        c.kv_heads = config_size(config, "multi_query_group_num");
    if (!c.head_dim)
        c.head_dim = config_size(config, "kv_channels");
    if (!c.moe_intermediate)
        c.moe_intermediate = config_size(config, "intermediate_size");

    /* What a config leaves out, model classes fill in like this.  */
    if (!c.kv_heads)
        c.kv_heads = c.heads;
    if (!c.head_dim && c.heads)
        c.head_dim = c.hidden / c.heads;

    return c;
}

static bool last_component_is(const char *name, const char *component)
{
    static const char adapter[] = ".base_layer"; /* the matrix beside its LoRA adapters */
    size_t end = fp8q_weight_stem(name), len = strlen(component), n = sizeof(adapter) - 1;
    if (end > n && strncmp(name + end - n, adapter, n) == 0)
        end -= n;

    return end >= len && strncmp(name + end - len, component, len) == 0 &&
           (end == len || name[end - len - 1] == '.');
}

static bool last_component_in(const char *name, const char *const *components)
{
    while (*components && !last_component_is(name, *components))
        components++;

    return *components;
}

unsigned fp8q_parts(const struct fp8q_parts_config *c, const char *name, uint64_t n_rows,
                    uint64_t sizes_out[3])
{
    static const char *const halves[] = {"gate_up_proj", "input_linear", "ff_proj", NULL};
    static const char *const qkv[] = {"qkv_proj", "wqkv",   "query_key_value",
                                      "att_proj", "W_pack", NULL};
    if (last_component_in(name, halves)) {
        sizes_out[0] = sizes_out[1] = n_rows / 2;
        return n_rows % 2 == 0 ? 2 : 0;
    }

    if (fp8q_has_components(name, "conv.in_proj") && n_rows % 3 == 0) { /* LFM2's gates and input */
        sizes_out[0] = sizes_out[1] = sizes_out[2] = n_rows / 3;
        return 3;
    }

    if (last_component_in(name, qkv)) {
        /* Sizes that do not add up to the rows are none that this weight was made by.  */
        uint64_t q, kv, all;
        if (!c->head_dim || __builtin_mul_overflow(c->heads, c->head_dim, &q) ||
            __builtin_mul_overflow(c->kv_heads, c->head_dim, &kv) ||
            __builtin_add_overflow(q, kv, &all) || __builtin_add_overflow(all, kv, &all) ||
            all != n_rows)
            return 0;
        sizes_out[0] = q;
        sizes_out[1] = sizes_out[2] = kv;
        return 3;
    }

    sizes_out[0] = n_rows;
    return 1;
}

bool fp8q_parts_aligned(const struct fp8q_parts_config *c, const char *name, uint64_t n_rows)
{
    uint64_t sizes[3];
    unsigned n = fp8q_parts(c, name, n_rows, sizes);

    for (unsigned i = 0; i < n; i++)
        if (sizes[i] % FP8Q_BLOCK)
            return false;

    return n > 0;
}

/* ---- stacked experts ------------------------------------------------------------------------- */

bool fp8q_stack_layout_fits(const struct fp8q_parts_config *c, enum fp8q_experts experts,
                            bool gate_up, const uint64_t shape[3])
{
    uint64_t hidden = c->hidden, inner = c->moe_intermediate;
    if (!hidden || !inner || inner > UINT64_MAX / 2)
        return false;

    /* Both sizes must be those of the config, or the layout is a guess.  */
    uint64_t rows = gate_up ? 2 * inner : hidden; /* [E, out, in] */
    uint64_t cols = gate_up ? hidden : inner;
    if (rows == cols)
        return false; /* the transposed layout has the same shape */

    if (experts == FP8Q_EXPERTS_STACKED) /* [E, in, out] on the hub */
        return shape[1] == cols && shape[2] == rows;
    return shape[1] == rows && shape[2] == cols;
}

bool fp8q_stack_aligned(enum fp8q_experts experts, const char *name, const uint64_t shape[3])
{
    /* A block must not straddle gate and up, which lie along the output dimension.  */
    bool halves = last_component_is(name, "gate_up_proj");
    uint64_t rows = shape[1], cols = shape[2];

    if (halves && experts == FP8Q_EXPERTS_STACKED)
        cols /= 2;
    else if (halves)
        rows /= 2;

    return rows % FP8Q_BLOCK == 0 && cols % FP8Q_BLOCK == 0;
}

const struct fp8q_tensor *fp8q_split_source(const struct fp8q_ckpt *ckpt, const char *name)
{
    const char *experts = strstr(name, ".experts.");
    if (!experts)
        return NULL;

    size_t head = (size_t)(experts - name) + 9;
    size_t digits = strspn(name + head, "0123456789");
    const char *projection = name + head + digits;
    bool gate_up =
        strcmp(projection, ".gate_proj.weight") == 0 || strcmp(projection, ".up_proj.weight") == 0;
    if (!digits || !(gate_up || strcmp(projection, ".down_proj.weight") == 0))
        return NULL;

    /* gate and up of every expert come from one stack.  */
    return fp8q_ckpt_find_joined(ckpt, name, head, gate_up ? "gate_up_proj" : "down_proj");
}

bool fp8q_split_in(const struct fp8q_ckpt *ckpt, const char *name)
{
    const char *last = strrchr(name, '.');
    bool gate_up = last && strcmp(last, ".gate_up_proj") == 0;
    if (!last || (!gate_up && strcmp(last, ".down_proj") != 0))
        return false;

    size_t head = (size_t)(last - name);

    /* Experts are split all or none, so the first one tells.  */
    const struct fp8q_tensor *t = fp8q_ckpt_find_joined(
        ckpt, name, head, gate_up ? ".0.gate_proj.weight" : ".0.down_proj.weight");
    return t && t->dtype == FP8Q_F8_E4M3;
}
