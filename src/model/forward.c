/* SPDX-License-Identifier: Apache-2.0
 *
 * forward.c - the buffers of a forward pass.  What runs in them is in layer.c.
 */
#include "model/forward.h"

#include <stdlib.h>

#include "base/mem.h"

/* Floats a token takes in the buffers of an MLP: those of a layer's, an expert's, the shared one's
 * pass through the same memory.  */
static uint64_t mlp_width(const struct fp8q_model *m)
{
    return fp8q_max_u64(m->intermediate, fp8q_max_u64(m->moe.width, m->moe.shared_width));
}

static size_t widest(const struct fp8q_model *m)
{
    uint64_t q = (uint64_t)m->n_heads * m->head_dim;
    return (size_t)fp8q_max_u64(q, fp8q_max_u64(m->hidden, mlp_width(m)));
}

size_t fp8q_group_tokens(const struct fp8q_model *m, const struct fp8q_inputs *inputs,
                         unsigned n_branches, uint64_t bytes)
{
    uint64_t q = (uint64_t)m->n_heads * m->head_dim, kv = (uint64_t)m->n_kv_heads * m->head_dim;
    /* Hidden states of all branches and their scores, then the buffers of one layer.  */
    uint64_t floats = m->hidden * (1 + 2 * (uint64_t)n_branches) + 2 * q + 2 * kv +
                      2 * mlp_width(m) + widest(m) + m->head_dim;
    if (m->moe.n_experts)
        floats += 3 * m->hidden;

    uint64_t tokens = bytes / (4 * floats);
    for (size_t i = 0; i < inputs->n_samples; i++)
        tokens = fp8q_max_u64(tokens, inputs->samples[i].n_tokens);
    return (size_t)fp8q_min_u64(tokens, inputs->n_tokens);
}

int fp8q_forward_open(struct fp8q_forward *fw_out, const struct fp8q_model *m, unsigned n_threads,
                      const char *kernel_name, size_t max_tokens, size_t max_sample,
                      struct fp8q_error *err)
{
    struct fp8q_forward *fw = fw_out;
    *fw = (struct fp8q_forward){.n_threads = n_threads ? n_threads : 1, .max_tokens = max_tokens};
    fw->kernel = fp8q_kernel_select(kernel_name);
    if (!fw->kernel)
        return fp8q_fail(err, FP8Q_E_ARG, "kernel", "kernel \"%s\" is unknown or not usable here",
                         kernel_name);
    fw->gemm = fp8q_gemm_select(kernel_name ? fw->kernel->name : NULL);

    fw->wide = widest(m);

    size_t q = (size_t)m->n_heads * m->head_dim, kv = (size_t)m->n_kv_heads * m->head_dim;
    size_t rows = max_tokens + fw->gemm->mr, hidden = (size_t)m->hidden;
    /* 128 rows of a weight, once as F32 and once packed; or a few tokens and their FP8 values; or
     * attention.  */
    fw->worker_floats = fp8q_max_size(2 * (FP8Q_BLOCK + fw->gemm->nr) * fw->wide,
                                      fp8q_attention_floats(fw->gemm, m, max_sample));
    const struct {
        float **buffer;
        uint64_t floats;
    } buffers[] = {
        {&fw->x, (uint64_t)max_tokens * hidden},
        {&fw->q, (uint64_t)max_tokens * q},
        {&fw->k, (uint64_t)max_tokens * kv},
        {&fw->v, (uint64_t)max_tokens * kv},
        {&fw->att, (uint64_t)max_tokens * q},
        {&fw->gate, (uint64_t)max_tokens * mlp_width(m)},
        {&fw->up, (uint64_t)max_tokens * mlp_width(m)},
        {&fw->packed, (uint64_t)rows * fw->wide},
        {&fw->routed, m->moe.n_experts ? 3 * (uint64_t)max_tokens * hidden : 0},
        {&fw->workers, (uint64_t)fw->n_threads * fw->worker_floats},
    };
    for (size_t i = 0; i < sizeof(buffers) / sizeof(*buffers); i++) {
        *buffers[i].buffer = fp8q_array(buffers[i].floats, sizeof(float));
        if (!*buffers[i].buffer) {
            fp8q_forward_close(fw);
            return fp8q_fail_nomem(err);
        }
    }
    return FP8Q_OK;
}

void fp8q_forward_close(struct fp8q_forward *fw)
{
    free(fw->x);
    free(fw->q);
    free(fw->k);
    free(fw->v);
    free(fw->att);
    free(fw->gate);
    free(fw->up);
    free(fw->packed);
    free(fw->routed);
    free(fw->workers);
    *fw = (struct fp8q_forward){0};
}
