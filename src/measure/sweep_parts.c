/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep_parts.c - what the units of a sweep are made of: linears of a layer, its shared expert's, and all its
 * experts together.
 */
#include <stdio.h>

#include "measure/internal.h"

/* The linear that a part is; experts are none.  */
static enum fp8q_linear linear_of(int part)
{
    return (enum fp8q_linear)(part >= FP8Q_PART_SHARED ? part - FP8Q_PART_SHARED + FP8Q_GATE_PROJ
                                                       : part);
}

bool fp8q_part_exists(const struct fp8q_model *m, uint32_t layer, int part)
{
    if (part == FP8Q_PART_EXPERTS)
        return m->sparse[layer];
    /* Where there are experts, the MLP's linears are the shared one's.  */
    bool mlp = part >= FP8Q_GATE_PROJ;
    if (mlp && m->sparse[layer] != (part >= FP8Q_PART_SHARED))
        return false;
    return fp8q_linear_exists(m, layer, linear_of(part));
}

static bool linear_weight(const struct fp8q_model *m, uint32_t layer, enum fp8q_linear linear,
                          struct fp8q_part_weight *out)
{
    struct fp8q_name name;
    out->slot = fp8q_linear_slot(layer, linear);
    fp8q_layer_shape(m, layer, linear, out->shape);
    /* A fused weight is one tensor, counted with its first part.  */
    if (fp8q_linear_disk_rows(m, linear) != out->shape[0] && !m->sparse[layer])
        out->shape[0] = fp8q_linear_disk_rows(m, linear);

    out->tensor = fp8q_ckpt_find(m->ckpt, fp8q_linear_name(m, layer, linear, ".weight", &name));
    return true;
}

/* Experts in turn, of each gate, up and down; or the two stacks.  */
static bool expert_weight(const struct fp8q_model *m, uint32_t layer, uint32_t i,
                          struct fp8q_part_weight *out)
{
    bool stacked = m->moe.stack != FP8Q_STACK_NONE;
    uint32_t expert = stacked ? 0 : i / 3, kind = stacked ? 2 * i : i % 3;
    enum fp8q_linear linear = (enum fp8q_linear)(FP8Q_GATE_PROJ + (int)kind);
    struct fp8q_place place;
    if (expert >= m->moe.n_experts || kind > 2)
        return false;

    bool down = linear == FP8Q_DOWN_PROJ;
    fp8q_expert_place(m, layer, expert, linear, &place);
    *out = (struct fp8q_part_weight){
        .slot = fp8q_expert_slot(m, layer, expert, linear),
        .shape = {down ? m->hidden : m->moe.width, down ? m->moe.width : m->hidden},
        .tensor = fp8q_ckpt_find(m->ckpt, place.name.text),
        .matrices = 1,
        .transposed = place.transposed};
    if (stacked)
        out->matrices = m->moe.n_experts * (down ? 1u : 2u);
    return true;
}

bool fp8q_part_weight_of(const struct fp8q_model *m, uint32_t layer, int part, uint32_t i,
                         struct fp8q_part_weight *out)
{
    *out = (struct fp8q_part_weight){.matrices = 1};
    if (part == FP8Q_PART_EXPERTS)
        return expert_weight(m, layer, i, out);
    return i == 0 && linear_weight(m, layer, linear_of(part), out);
}

const char *fp8q_part_name(const struct fp8q_model *m, uint32_t layer, int part,
                           struct fp8q_name *buf)
{
    if (part == FP8Q_PART_EXPERTS)
        return fp8q_layer_name(m, layer, m->moe.experts, buf);
    return fp8q_linear_name(m, layer, linear_of(part), "", buf);
}
