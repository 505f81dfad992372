/* SPDX-License-Identifier: Apache-2.0
 *
 * families.c - the family table and its matching.
 *
 * An allow list, fail closed: what no row names is kept and listed.  Names were read in published
 * checkpoints and in transformers' classes.
 */
#include "select/families.h"

#include <string.h>

#include "select/pattern.h"

#define ATTENTION "self_attn.(q_proj k_proj v_proj) self_attn.o_proj "
#define MLP "mlp.(gate_proj up_proj) mlp.down_proj "
#define MOE "mlp.experts.E.(gate_proj up_proj down_proj) "
#define SHARED_EXPERT "mlp.shared_expert.(gate_proj up_proj) mlp.shared_expert.down_proj "
#define SHARED_EXPERTS "mlp.shared_experts.(gate_proj up_proj) mlp.shared_experts.down_proj "
#define GATED_DELTA                                                                                \
    "linear_attn.in_proj_qkvz linear_attn.(in_proj_qkv in_proj_z) linear_attn.out_proj "
#define LATENT                                                                                     \
    "self_attn.(q_a_proj kv_a_proj_with_mqa) self_attn.q_b_proj self_attn.kv_b_proj "              \
    "self_attn.q_proj self_attn.o_proj "
#define FUSED "self_attn.qkv_proj self_attn.o_proj mlp.gate_up_proj mlp.down_proj "
#define LLAMA ATTENTION MLP
/* Without attention.wqkv: its rows are interleaved by head groups, and engines take it apart while
 * loading, but not its scales.  */
#define INTERNLM2 "attention.wo feed_forward.(w1 w3) feed_forward.w2 "
#define INTERNLM2_NOTE "InternLM2: wqkv stays, engines split it while loading but not its scales"

#define QWEN_VISION "visual"
#define QWEN_MERGERS "visual.merger visual.deepstack_merger_list"
#define TOWERS                                                                                     \
    "visual vision_tower vision_model vision_backbone vision_encoder vision_embed_tokens "         \
    "image_encoder img_processor vpm audio_tower audio_model audio_encoder audio_backbone apm "    \
    "image_embed patch_embed"
#define PROJECTORS                                                                                 \
    "visual.merger deepstack_merger_list multi_modal_projector mm_projector projector connector "  \
    "aligner merger patch_merger resampler vision_language_adapter embed_vision embed_audio "      \
    "image_projection img_projection image_newline eagle_linear mlp1"
#define PI_ACTION                                                                                  \
    "gemma_expert action_in_proj action_out_proj state_proj action_time_mlp_in "                   \
    "action_time_mlp_out time_mlp_in time_mlp_out"
#define SMOLVLA_ACTION                                                                             \
    "lm_expert state_proj action_in_proj action_out_proj action_time_mlp_in action_time_mlp_out"
#define ACTIONS                                                                                    \
    "action_head action_expert action_decoder action_encoder state_encoder " SMOLVLA_ACTION        \
    " gemma_expert time_mlp_in time_mlp_out proprio_projector noisy_action_projector"

const struct fp8q_family fp8q_families[] = {
    {.name = "Llama, Mistral, SmolLM",
     .model_types = "llama mistral smollm3",
     .decoders = "model",
     .linears = LLAMA},
    {.name = "Qwen2, Qwen2.5", .model_types = "qwen2", .decoders = "model", .linears = LLAMA},
    {.name = "Qwen2-VL, Qwen2.5-VL",
     .model_types = "qwen2_vl qwen2_5_vl qwen2_5_vl_text qwen2_vl_text",
     .decoders = "model model.language_model",
     .linears = LLAMA,
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS},
    {.name = "Qwen3", .model_types = "qwen3", .decoders = "model", .linears = LLAMA},
    {.name = "Qwen3-VL",
     .model_types = "qwen3_vl qwen3_vl_text",
     .decoders = "model model.language_model",
     .linears = LLAMA,
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS},
    {.name = "Qwen2-MoE, Qwen3-MoE",
     .model_types = "qwen2_moe qwen3_moe",
     .decoders = "model",
     .linears = LLAMA MOE SHARED_EXPERT,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Qwen3-VL-MoE",
     .model_types = "qwen3_vl_moe qwen3_vl_moe_text",
     .decoders = "model model.language_model",
     .linears = LLAMA MOE,
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS,
     .experts = FP8Q_EXPERTS_STACKED},
    {.name = "Qwen3-Next",
     .model_types = "qwen3_next",
     .decoders = "model mtp",
     .linears = LLAMA MOE SHARED_EXPERT GATED_DELTA,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Qwen3.5",
     .model_types = "qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text",
     .decoders = "model model.language_model mtp",
     .linears = LLAMA MOE SHARED_EXPERT GATED_DELTA,
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Mixtral",
     .model_types = "mixtral",
     .decoders = "model",
     .linears = ATTENTION "block_sparse_moe.experts.E.(w1 w2 w3) " MOE},
    {.name = "DeepSeek-V2, DeepSeek-V3",
     .model_types = "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2",
     .decoders = "model",
     .linears = LATENT MLP MOE SHARED_EXPERTS,
     .note = "kv_a_proj_with_mqa has 576 rows: it and q_a_proj stay"},
    {.name = "Phi-3", .model_types = "phi3", .decoders = "model", .linears = FUSED},
    {.name = "Phi-3-Vision, Phi-4-Multimodal",
     .model_types = "phi3_v phi4mm phi4_multimodal",
     .decoders = "model",
     .linears = FUSED,
     .vision = "vision_embed_tokens embed_tokens_extend",
     .projector = "img_projection",
     .action = "lora_A lora_B"},
    {.name = "Gemma 1-3 (text)",
     .model_types = "gemma gemma2 gemma3_text",
     .decoders = "model",
     .linears = LLAMA},
    {.name = "Gemma 3, PaliGemma, LLaVA, Mistral 3",
     .model_types = "gemma3 paligemma llava llava_next llava_onevision mistral3 pixtral vipllava",
     .decoders = "model model.language_model language_model.model language_model",
     .linears = LLAMA,
     .vision = "vision_tower vision_model",
     .projector = "multi_modal_projector mm_projector image_newline"},
    {.name = "Idefics3, SmolVLM",
     .model_types = "idefics3 smolvlm",
     .decoders = "model.text_model",
     .linears = LLAMA,
     .vision = "vision_model",
     .projector = "connector"},
    {.name = "InternVL",
     .model_types = "internvl internvl_chat",
     .decoders = "language_model.model model.language_model",
     .linears = LLAMA INTERNLM2,
     .vision = "vision_model vision_tower",
     .projector = "mlp1 multi_modal_projector",
     .note = INTERNLM2_NOTE},
    {.name = "InternLM2",
     .model_types = "internlm2",
     .decoders = "model",
     .linears = INTERNLM2,
     .note = INTERNLM2_NOTE},
    {.name = "MiniCPM-V, MiniCPM-o",
     .model_types = "minicpmv minicpmo",
     .decoders = "llm.model",
     .linears = LLAMA,
     .vision = "vpm apm",
     .projector = "resampler audio_projection_layer",
     .action = "tts"},
    {.name = "SmolVLA",
     .model_types = "smolvla",
     .decoders = "model.vlm_with_expert.vlm.model.text_model vlm_with_expert.vlm.model.text_model",
     .linears = LLAMA,
     .vision = "vlm.model.vision_model",
     .projector = "vlm.model.connector",
     .action = SMOLVLA_ACTION,
     .lerobot = true},
    {.name = "pi0, pi0.5",
     .model_types = "pi0 pi05 pi0_fast",
     .decoders = "paligemma_with_expert.paligemma.model.language_model "
                 "model.paligemma_with_expert.paligemma.model.language_model "
                 "paligemma_with_expert.paligemma.language_model.model "
                 "model.paligemma_with_expert.paligemma.language_model.model",
     .linears = LLAMA,
     .vision = "paligemma.model.vision_tower paligemma.vision_tower",
     .projector = "multi_modal_projector",
     .action = PI_ACTION,
     .lerobot = true},
    {.name = "OpenVLA, Prismatic",
     .model_types = "openvla prismatic",
     .decoders = "language_model.model",
     .linears = LLAMA,
     .vision = "vision_backbone",
     .projector = "projector",
     .action = "action_head proprio_projector noisy_action_projector",
     .note = "lm_head is the action head: it stays"},
    {.name = "GR00T N1.5-N1.7",
     .model_types = "gr00t_n1_5 gr00t_n1_6 gr00t_n1_7 gr00t_n1 Gr00tN1d6 Gr00tN1d7",
     .decoders = "backbone.eagle_model.language_model.model backbone.model.language_model.model "
                 "backbone.model.model.language_model backbone.model.language_model",
     .linears = LLAMA,
     .vision = "vision_model visual",
     .projector = "mlp1 eagle_linear visual.merger visual.deepstack_merger_list",
     .action = "action_head"},
    {.name = "Florence-2, X-VLA",
     .model_types = "florence2 xvla",
     .decoders = "language_model.model.encoder language_model.model.decoder "
                 "vlm.language_model.model.encoder vlm.language_model.model.decoder "
                 "model.language_model.encoder model.language_model.decoder",
     .linears = "self_attn.(q_proj k_proj v_proj) self_attn.out_proj "
                "encoder_attn.(k_proj v_proj) encoder_attn.q_proj encoder_attn.out_proj fc1 fc2 ",
     .vision = "vision_tower",
     .projector = "image_projection image_proj_norm image_pos_embed multi_modal_projector",
     .action = "transformer soft_prompts soft_prompt_hub"},
    {.name = "gpt-oss",
     .model_types = "gpt_oss",
     .decoders = "model",
     .linears = ATTENTION,
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "experts are interleaved and biased: they stay"},
    {.name = "Llama 4",
     .model_types = "llama4 llama4_text",
     .decoders = "model language_model.model model.language_model",
     .linears = ATTENTION "feed_forward.(gate_proj up_proj) feed_forward.down_proj "
                          "feed_forward.shared_expert.(gate_proj up_proj) "
                          "feed_forward.shared_expert.down_proj ",
     .vision = "vision_model",
     .projector = "multi_modal_projector",
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "stacked experts stay"},
    {.name = NULL}};

const struct fp8q_family fp8q_general_family = {
    .name = "general rule (no config.json, or an unknown model_type)",
    .decoders = NULL,
    .linears = LLAMA FUSED MOE SHARED_EXPERT SHARED_EXPERTS LATENT INTERNLM2
    "block_sparse_moe.experts.E.(w1 w2 w3) feed_forward.(gate_proj up_proj) feed_forward.down_proj "
    "attention.(q_proj k_proj v_proj) attention.o_proj ",
    .vision = TOWERS,
    .projector = PROJECTORS,
    .action = ACTIONS,
    .experts = FP8Q_EXPERTS_KEEP};

static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (; *list; list += strspn(list, " ")) {
        size_t len = strcspn(list, " ");
        if (len == n && memcmp(list, word, n) == 0)
            return true;
        list += len;
    }
    return false;
}

const struct fp8q_family *fp8q_family_of(const struct fp8q_json *config, const char **type_out,
                                         bool *known_out)
{
    const char *type = fp8q_json_string(fp8q_json_get(config, "model_type"), NULL);
    if (!type) /* LeRobot policies */
        type = fp8q_json_string(fp8q_json_get(config, "type"), NULL);
    if (!type)
        type = fp8q_json_string(fp8q_json_path(config, "text_config.model_type"), NULL);
    *type_out = type;
    *known_out = false;
    for (const struct fp8q_family *f = fp8q_families; type && f->name; f++)
        if (list_has(f->model_types, type)) {
            *known_out = true;
            return f;
        }
    return &fp8q_general_family;
}

/* ---- matching ------------------------------------------------------------------------------ */

/* Length of "layers.N." at @s, or 0.  */
static size_t layer_prefix(const char *s)
{
    if (strncmp(s, "layers.", 7) != 0)
        return 0;
    size_t digits = strspn(s + 7, "0123456789");
    return digits && s[7 + digits] == '.' ? 7 + digits + 1 : 0;
}

size_t fp8q_family_layer(const struct fp8q_family *family, const char *module)
{
    if (!family->decoders) { /* the last `layers.N.`: nothing behind it may be another stack */
        size_t end = 0;
        for (const char *at = module; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
            size_t n = layer_prefix(at);
            if (n)
                end = (size_t)(at - module) + n;
        }
        return end;
    }
    for (const char *root = family->decoders; *root; root += strspn(root, " ")) {
        size_t len = strcspn(root, " ");
        if (strncmp(module, root, len) == 0 && module[len] == '.') {
            size_t n = layer_prefix(module + len + 1);
            if (n)
                return len + 1 + n;
        }
        root += len;
    }
    return 0;
}

/* Matches @name against one entry "head.(a b c)", "head.x" or "experts.E.(a b)".  @entry_len covers
 * the entry; on success the shared length of the group is set.  */
static bool match_entry(const char *entry, size_t entry_len, const char *name,
                        struct fp8q_linear_place *out)
{
    const char *end = entry + entry_len;
    const char *e = entry, *n = name;
    out->expert = false;
    out->fused = false;
    out->group_len = strlen(name);
    while (e < end && *e != '(') {
        if (e[0] == 'E' && e > entry && e[-1] == '.' && e + 1 < end && e[1] == '.') {
            size_t digits = strspn(n, "0123456789");
            if (!digits)
                return false;
            out->expert = true;
            out->group_len = (size_t)(n - name);
            n += digits;
            e++;
        } else if (*e++ != *n++) {
            return false;
        }
    }
    if (e == end)
        return *n == '\0';
    out->fused = true;
    if (!out->expert)
        out->group_len = (size_t)(n - name);
    for (e++; e < end && *e != ')'; e += strspn(e, " ")) {
        size_t len = strcspn(e, " )");
        if (strncmp(n, e, len) == 0 && n[len] == '\0')
            return true;
        e += len;
    }
    return false;
}

/* Length of the entry at @s; blanks inside parentheses belong to it.  */
static size_t entry_length(const char *s)
{
    size_t len = strcspn(s, " (");
    return s[len] == '(' ? len + strcspn(s + len, ")") + 1 : len;
}

bool fp8q_family_linear(const struct fp8q_family *family, const char *module,
                        struct fp8q_linear_place *linear_out)
{
    size_t layer = fp8q_family_layer(family, module);
    if (!layer)
        return false;
    for (const char *entry = family->linears; *entry; entry += strspn(entry, " ")) {
        size_t len = entry_length(entry);
        if (match_entry(entry, len, module + layer, linear_out)) {
            linear_out->entry = entry;
            linear_out->group_len += layer;
            return true;
        }
        entry += len;
    }
    return false;
}
