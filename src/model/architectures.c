/* SPDX-License-Identifier: Apache-2.0
 *
 * architectures.c - the language models that can be run, one row each, and the wrappers (VLMs and
 * VLAs) that carry one of them.  What a row leaves out is 0 and means what Llama does.
 *
 * A new architecture is a row here, its own branch where it computes something that no other does
 * (a trait), and a case in tests/reference/eval_reference.py that compares it with transformers.
 */
#include <string.h>

#include "model/internal.h"

#define PRE_NORMS                                                                                  \
    {                                                                                              \
        "input_layernorm.weight", NULL, "post_attention_layernorm.weight", NULL                    \
    }
#define SANDWICH_NORMS                                                                             \
    {                                                                                              \
        "input_layernorm.weight", "post_attention_layernorm.weight",                               \
            "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"                \
    }
#define POST_NORMS                                                                                 \
    {                                                                                              \
        NULL, "post_attention_layernorm.weight", NULL, "post_feedforward_layernorm.weight"         \
    }
#define GLM4_NORMS                                                                                 \
    {                                                                                              \
        "input_layernorm.weight", "post_self_attn_layernorm.weight",                               \
            "post_attention_layernorm.weight", "post_mlp_layernorm.weight"                         \
    }

#define GEMMA (FP8Q_NORM_PLUS_ONE | FP8Q_EMBED_BY_WIDTH | FP8Q_ATTENTION_BIAS | FP8Q_TIED)
#define GLM                                                                                        \
    (FP8Q_ATTENTION_BIAS | FP8Q_BIASED | FP8Q_BIAS_NOT_O | FP8Q_FUSED_GATE_UP |                    \
     FP8Q_ROPE_INTERLEAVED | FP8Q_PARTIAL_ROPE)

static const struct fp8q_architecture architectures[] = {
    {.model_type = "llama", .traits = FP8Q_ATTENTION_BIAS | FP8Q_MLP_BIAS, .norms = PRE_NORMS},
    {.model_type = "mistral",
     .windows = FP8Q_WINDOW_ALL,
     .window = 4096,
     .n_kv_heads = 8,
     .norms = PRE_NORMS},
    {.model_type = "mixtral",
     .windows = FP8Q_WINDOW_ALL,
     .n_kv_heads = 8,
     .norm_eps = 1e-5,
     .theta = 1e6,
     .norms = PRE_NORMS},
    {.model_type = "qwen2",
     .traits = FP8Q_QKV_BIAS,
     .windows = FP8Q_WINDOW_FROM,
     .n_kv_heads = 32,
     .norms = PRE_NORMS},
    {.model_type = "qwen2_vl",
     .traits = FP8Q_QKV_BIAS | FP8Q_MROPE,
     .windows = FP8Q_WINDOW_FROM,
     .n_kv_heads = 8,
     .norm_eps = 1e-5,
     .theta = 1e6,
     .norms = PRE_NORMS},
    {.model_type = "qwen2_5_vl",
     .traits = FP8Q_QKV_BIAS | FP8Q_MROPE,
     .windows = FP8Q_WINDOW_FROM,
     .n_kv_heads = 8,
     .norm_eps = 1e-5,
     .theta = 1e6,
     .norms = PRE_NORMS},
    {.model_type = "qwen2_moe",
     .traits = FP8Q_QKV_BIAS,
     .windows = FP8Q_WINDOW_FLAG_EVEN,
     .window = 4096,
     .n_kv_heads = 16,
     .norms = PRE_NORMS},
    {.model_type = "qwen3",
     .traits = FP8Q_ATTENTION_BIAS,
     .windows = FP8Q_WINDOW_FROM,
     .qk_norm = FP8Q_QK_NORM_HEAD,
     .n_kv_heads = 32,
     .head_dim = 128,
     .norms = PRE_NORMS},
    {.model_type = "qwen3_moe",
     .traits = FP8Q_ATTENTION_BIAS,
     .windows = FP8Q_WINDOW_FLAG_ALL,
     .window = 4096,
     .qk_norm = FP8Q_QK_NORM_HEAD,
     .n_kv_heads = 4,
     .norms = PRE_NORMS},
    {.model_type = "qwen3_vl_text",
     .traits = FP8Q_ATTENTION_BIAS | FP8Q_MROPE | FP8Q_MROPE_ALTERNATE,
     .qk_norm = FP8Q_QK_NORM_HEAD,
     .n_kv_heads = 32,
     .head_dim = 128,
     .theta = 5e5,
     .norms = PRE_NORMS},
    {.model_type = "qwen3_vl_moe_text",
     .traits = FP8Q_ATTENTION_BIAS | FP8Q_MROPE | FP8Q_MROPE_ALTERNATE,
     .qk_norm = FP8Q_QK_NORM_HEAD,
     .n_kv_heads = 16,
     .theta = 5e5,
     .norms = PRE_NORMS},
    {.model_type = "olmoe",
     .traits = FP8Q_ATTENTION_BIAS,
     .qk_norm = FP8Q_QK_NORM_WHOLE,
     .norm_eps = 1e-5,
     .norms = PRE_NORMS},
    {.model_type = "deepseek_v2", .traits = FP8Q_ATTENTION_BIAS | FP8Q_LATENT, .norms = PRE_NORMS},
    {.model_type = "deepseek_v3", .traits = FP8Q_ATTENTION_BIAS | FP8Q_LATENT, .norms = PRE_NORMS},
    {.model_type = "glm4_moe",
     .traits = FP8Q_ATTENTION_BIAS | FP8Q_BIAS_NOT_O | FP8Q_QK_NORM_FLAG | FP8Q_PARTIAL_ROPE,
     .qk_norm = FP8Q_QK_NORM_HEAD,
     .n_kv_heads = 8,
     .norm_eps = 1e-5,
     .partial = 0.5,
     .norms = PRE_NORMS},
    {.model_type = "dots1",
     .traits = FP8Q_ATTENTION_BIAS,
     .windows = FP8Q_WINDOW_LAST,
     .window = 4096,
     .qk_norm = FP8Q_QK_NORM_HEAD,
     .n_kv_heads = 32,
     .norms = PRE_NORMS},
    {.model_type = "ernie4_5_moe",
     .traits = FP8Q_USE_BIAS | FP8Q_ROPE_INTERLEAVED | FP8Q_TIED,
     .n_kv_heads = 4,
     .norm_eps = 1e-5,
     .theta = 5e5,
     .norms = PRE_NORMS},
    {.model_type = "gemma",
     .traits = GEMMA,
     .activation = FP8Q_GELU_TANH,
     .n_kv_heads = 16,
     .head_dim = 256,
     .norms = PRE_NORMS},
    {.model_type = "gemma2",
     .traits = GEMMA | FP8Q_SOFT_CAPS | FP8Q_QUERY_SCALAR,
     .activation = FP8Q_GELU_TANH,
     .windows = FP8Q_WINDOW_EVEN,
     .window = 4096,
     .n_kv_heads = 4,
     .head_dim = 256,
     .norms = SANDWICH_NORMS},
    {.model_type = "gemma3_text",
     .traits = GEMMA | FP8Q_QUERY_SCALAR | FP8Q_ROPE_LOCAL,
     .activation = FP8Q_GELU_TANH,
     .windows = FP8Q_WINDOW_PATTERN,
     .window = 4096,
     .pattern = 6,
     .local_theta = 1e4,
     .qk_norm = FP8Q_QK_NORM_HEAD,
     .n_kv_heads = 4,
     .head_dim = 256,
     .theta = 1e6,
     .norms = SANDWICH_NORMS},
    {.model_type = "phi3",
     .traits = FP8Q_FUSED_QKV | FP8Q_FUSED_GATE_UP | FP8Q_PARTIAL_ROPE,
     .windows = FP8Q_WINDOW_ALL,
     .norm_eps = 1e-5,
     .norms = PRE_NORMS},
    {.model_type = "granite",
     .traits = FP8Q_ATTENTION_BIAS | FP8Q_MLP_BIAS | FP8Q_MULTIPLIERS,
     .norms = PRE_NORMS},
    {.model_type = "olmo2",
     .traits = FP8Q_ATTENTION_BIAS,
     .qk_norm = FP8Q_QK_NORM_WHOLE,
     .norm_eps = 1e-5,
     .norms = POST_NORMS},
    {.model_type = "olmo3",
     .traits = FP8Q_ATTENTION_BIAS | FP8Q_ROPE_LOCAL,
     .windows = FP8Q_WINDOW_PATTERN,
     .window = 4096,
     .pattern = 4,
     .qk_norm = FP8Q_QK_NORM_WHOLE,
     .norm_eps = 1e-5,
     .theta = 5e5,
     .norms = POST_NORMS},
    {.model_type = "ministral",
     .windows = FP8Q_WINDOW_TYPES,
     .window = 4096,
     .n_kv_heads = 8,
     .norms = PRE_NORMS},
    {.model_type = "seed_oss",
     .traits = FP8Q_ATTENTION_BIAS | FP8Q_BIASED | FP8Q_OUT_BIAS | FP8Q_MLP_BIAS,
     .n_kv_heads = 8,
     .head_dim = 128,
     .norms = PRE_NORMS},
    {.model_type = "ernie4_5",
     .traits = FP8Q_USE_BIAS | FP8Q_ROPE_INTERLEAVED | FP8Q_TIED,
     .n_kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 1e-5,
     .theta = 5e5,
     .norms = PRE_NORMS},
    {.model_type = "smollm3",
     .traits = FP8Q_ATTENTION_BIAS | FP8Q_MLP_BIAS | FP8Q_NO_ROPE_LAYERS | FP8Q_TIED,
     .n_kv_heads = 4,
     .theta = 2e6,
     .norms = PRE_NORMS},
    {.model_type = "glm",
     .traits = GLM,
     .n_kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 1.5625e-7,
     .partial = 0.5,
     .norms = PRE_NORMS},
    {.model_type = "glm4",
     .traits = GLM,
     .n_kv_heads = 2,
     .head_dim = 128,
     .norm_eps = 1.5625e-7,
     .partial = 0.5,
     .norms = GLM4_NORMS},
};

/* Wrappers that hand their text to the language model as it is: no cross attention, no adapters.
 * Where they keep its config and its layers is in select/wrappers.c.  */
static const char *const wrappers[] = {
    "qwen2_vl",        "qwen2_5_vl",    "qwen3_vl", "qwen3_vl_moe", "kimi_vl",
    "gemma3",          "paligemma",     "llava",    "llava_next",   "vipllava",
    "llava_onevision", "mistral3",      "idefics2", "idefics3",     "smolvlm",
    "internvl",        "internvl_chat", "got_ocr2", "openvla",      "prismatic"};

const struct fp8q_architecture *fp8q_architecture_find(const char *type)
{
    /* Other names of the same networks.  */
    static const char *const same[][2] = {{"qwen2_vl_text", "qwen2_vl"},
                                          {"qwen2_5_vl_text", "qwen2_5_vl"},
                                          {"kimi_k2", "deepseek_v3"}};
    for (size_t i = 0; type && i < sizeof(same) / sizeof(*same); i++)
        if (strcmp(type, same[i][0]) == 0)
            type = same[i][1];

    for (size_t i = 0; type && i < sizeof(architectures) / sizeof(*architectures); i++)
        if (strcmp(type, architectures[i].model_type) == 0)
            return &architectures[i];
    return NULL;
}

bool fp8q_wrapper_known(const char *type)
{
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(*wrappers); i++)
        /* By name alone: a wrapper that is new may do anything with its text.  */
        if (strcmp(type, wrappers[i]) == 0)
            return true;
    return false;
}

void fp8q_architecture_list(struct fp8q_text *out)
{
    for (size_t i = 0; i < sizeof(architectures) / sizeof(*architectures); i++)
        fp8q_text_printf(out, "%s%s", i ? ", " : "", architectures[i].model_type);
    for (size_t i = 2; i < sizeof(wrappers) / sizeof(*wrappers); i++) /* two stand above */
        fp8q_text_printf(out, ", %s", wrappers[i]);
    fp8q_text_puts(out, ", and the policies pi0, pi0.5, pi0-FAST, SmolVLA and GR00T");
}
