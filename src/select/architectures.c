/* SPDX-License-Identifier: Apache-2.0
 *
 * architectures.c - the two tables: language models, and what is built around them.
 *
 * Allow lists, fail closed: what no row names is left unquantized and listed.  Names were read in
 * published checkpoints and in transformers' classes.
 */
#include "select/families.h"

#define ATTENTION "self_attn.(q_proj k_proj v_proj) self_attn.o_proj "
#define MLP "mlp.(gate_proj up_proj) mlp.down_proj "
#define UP_DOWN "mlp.up_proj mlp.down_proj "
#define MOE "mlp.experts.E.(gate_proj up_proj down_proj) "
#define W123_MOE "block_sparse_moe.experts.E.(w1 w2 w3) "
#define SHARED_EXPERT "mlp.shared_expert.(gate_proj up_proj) mlp.shared_expert.down_proj "
#define SHARED_EXPERTS "mlp.shared_experts.(gate_proj up_proj) mlp.shared_experts.down_proj "
#define SHARED_MLP "mlp.shared_mlp.(gate_proj up_proj) mlp.shared_mlp.down_proj "
#define FEED_FORWARD "feed_forward.(gate_proj up_proj) feed_forward.down_proj "
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
#define INTERNLM2_NOTE                                                                             \
    "InternLM2: wqkv is left unquantized, engines split it while loading but not its scales"
#define BART                                                                                       \
    "self_attn.(q_proj k_proj v_proj) self_attn.out_proj encoder_attn.(k_proj v_proj) "            \
    "encoder_attn.q_proj encoder_attn.out_proj fc1 fc2 "

const struct fp8q_language_model fp8q_language_models[] = {
    {.name = "Llama, Mistral, SmolLM",
     .model_types = "llama mistral ministral ministral3 smollm3 cwm",
     .linears = LLAMA},
    {.name = "Qwen2, Qwen2.5", .model_types = "qwen2", .linears = LLAMA},
    {.name = "Qwen3", .model_types = "qwen3", .linears = LLAMA},
    {.name = "Qwen-VL (text)",
     .model_types = "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen3_vl_text",
     .decoders = "model.language_model",
     .linears = LLAMA},
    {.name = "Qwen2-MoE, Qwen3-MoE",
     .model_types = "qwen2_moe qwen3_moe qwen3_omni_moe_text",
     .linears = LLAMA MOE SHARED_EXPERT,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Qwen3-VL-MoE (text)",
     .model_types = "qwen3_vl_moe_text",
     .decoders = "model.language_model",
     .linears = LLAMA MOE,
     .experts = FP8Q_EXPERTS_STACKED},
    {.name = "Qwen3-Next",
     .model_types = "qwen3_next",
     .decoders = "mtp",
     .linears = LLAMA MOE SHARED_EXPERT GATED_DELTA,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Qwen3.5 (text)",
     .model_types = "qwen3_5_text qwen3_5_moe_text",
     .decoders = "mtp model.language_model",
     .linears = LLAMA MOE SHARED_EXPERT GATED_DELTA,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Gemma (text)",
     .model_types = "gemma gemma2 gemma3_text gemma3n_text gemma4_text vaultgemma",
     .linears = LLAMA,
     .experts = FP8Q_EXPERTS_KEEP},
    {.name = "Llama-like",
     .model_types = "olmo olmo2 olmo3 granite cohere cohere2 seed_oss exaone4 ernie4_5 helium "
                    "stablelm hunyuan_v1_dense mimo minicpm internlm3 diffllama",
     .linears = LLAMA},
    {.name = "without gate_proj",
     .model_types = "nemotron apertus arcee",
     .linears = ATTENTION UP_DOWN},
    {.name = "GLM-4, GLM-Edge",
     .model_types = "glm glm4",
     .linears = ATTENTION "mlp.gate_up_proj mlp.down_proj "},
    {.name = "GLM-4.5, GLM-4V (text)",
     .model_types = "glm4_moe glm4v_moe_text glm4v_text",
     .linears = LLAMA "mlp.gate_up_proj " MOE SHARED_EXPERTS},
    {.name = "Mixtral", .model_types = "mixtral", .linears = ATTENTION W123_MOE MOE},
    {.name = "MiniMax-M2, Phi-3.5-MoE",
     .model_types = "minimax_m2 phimoe",
     .linears = ATTENTION W123_MOE},
    {.name = "OLMoE, FlexOlmo", .model_types = "olmoe flex_olmo", .linears = ATTENTION MOE},
    {.name = "ERNIE 4.5 MoE, dots",
     .model_types = "ernie4_5_moe dots1",
     .linears = LLAMA MOE SHARED_EXPERTS},
    {.name = "HunYuan MoE", .model_types = "hunyuan_v1_moe", .linears = LLAMA MOE SHARED_MLP},
    {.name = "Granite MoE",
     .model_types = "granitemoe granitemoeshared granitemoehybrid",
     .linears = ATTENTION,
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "stacked experts (block_sparse_moe) are left unquantized"},
    {.name = "DeepSeek-V2, DeepSeek-V3",
     .model_types = "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2",
     .linears = LATENT MLP MOE SHARED_EXPERTS,
     .note = "kv_a_proj_with_mqa has 576 rows: it and q_a_proj are left unquantized"},
    {.name = "Phi-3", .model_types = "phi3", .linears = FUSED},
    {.name = "Phi-4-Multimodal (text)",
     .model_types = "phi4mm phi4_multimodal phi3_v",
     .linears = FUSED "self_attn.qkv_proj.base_layer self_attn.o_proj.base_layer "
                      "mlp.gate_up_proj.base_layer mlp.down_proj.base_layer "},
    {.name = "Phi-1, Phi-2",
     .model_types = "phi",
     .linears = "self_attn.(q_proj k_proj v_proj) self_attn.dense mlp.fc1 mlp.fc2 "},
    {.name = "StarCoder2",
     .model_types = "starcoder2",
     .linears = ATTENTION "mlp.c_fc mlp.c_proj "},
    {.name = "LFM2",
     .model_types = "lfm2 lfm2_moe",
     .linears = "self_attn.(q_proj k_proj v_proj) self_attn.out_proj feed_forward.(w1 w3) "
                "feed_forward.w2 feed_forward.experts.E.(w1 w2 w3) "},
    {.name = "Falcon-H1, Jamba",
     .model_types = "falcon_h1 jamba",
     .linears = ATTENTION FEED_FORWARD "feed_forward.experts.E.(gate_proj up_proj down_proj) "},
    {.name = "InternLM2", .model_types = "internlm2", .linears = INTERNLM2, .note = INTERNLM2_NOTE},
    {.name = "gpt-oss",
     .model_types = "gpt_oss",
     .linears = ATTENTION,
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "experts are interleaved and biased: they are left unquantized"},
    {.name = "Llama 4 (text)",
     .model_types = "llama4_text",
     .decoders = "model.language_model",
     .linears = ATTENTION FEED_FORWARD "feed_forward.shared_expert.(gate_proj up_proj) "
                                       "feed_forward.shared_expert.down_proj ",
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "stacked experts are left unquantized"},
    {.name = "InternVL (text)",
     .model_types = "internvl_language",
     .linears = LLAMA MOE INTERNLM2,
     .note = INTERNLM2_NOTE},
    {.name = "BART in Florence-2", .model_types = "florence2_language", .linears = BART},
    {.name = NULL}};

/* Where vision-language models keep their decoder, in all spellings of transformers' classes.  */
#define VLM_DECODERS                                                                               \
    "model.language_model language_model.model model language_model model.language_model.model"
#define QWEN_DECODERS "model model.language_model"
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
#define SPEECH "talker code2wav token2wav depth_decoder tts"
#define PI_ACTION                                                                                  \
    "gemma_expert action_in_proj action_out_proj state_proj action_time_mlp_in "                   \
    "action_time_mlp_out time_mlp_in time_mlp_out"
#define SMOLVLA_ACTION                                                                             \
    "lm_expert state_proj action_in_proj action_out_proj action_time_mlp_in action_time_mlp_out"
#define ACTIONS                                                                                    \
    "action_head action_expert action_decoder action_encoder action_model state_encoder "          \
    "diffusion_head " SMOLVLA_ACTION                                                               \
    " gemma_expert time_mlp_in time_mlp_out proprio_projector noisy_action_projector " SPEECH

const struct fp8q_wrapper fp8q_wrappers[] = {
    {.name = "Qwen2-VL, Qwen2.5-VL",
     .model_types = "qwen2_vl qwen2_5_vl",
     .decoders = QWEN_DECODERS,
     .language = "qwen2",
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS},
    {.name = "Qwen3-VL",
     .model_types = "qwen3_vl",
     .decoders = QWEN_DECODERS,
     .language = "qwen3",
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS},
    {.name = "Qwen3-VL-MoE",
     .model_types = "qwen3_vl_moe",
     .decoders = QWEN_DECODERS,
     .language = "qwen3_vl_moe_text",
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS},
    {.name = "Qwen3.5",
     .model_types = "qwen3_5 qwen3_5_moe",
     .decoders = QWEN_DECODERS,
     .language = "qwen3_5_moe_text",
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS},
    {.name = "Qwen2.5-Omni, Qwen3-Omni",
     .model_types = "qwen2_5_omni qwen2_5_omni_thinker qwen3_omni_moe qwen3_omni_moe_thinker",
     .decoders = "thinker.model model",
     .language = "qwen3_omni_moe_text",
     .vision = "visual audio_tower",
     .projector = QWEN_MERGERS,
     .action = SPEECH,
     .note = "only the thinker is quantized: talker and vocoder speak, they are left unquantized"},
    {.name = "Phi-3-Vision, Phi-4-Multimodal",
     .model_types = "phi3_v phi4mm phi4_multimodal",
     .decoders = "model",
     .language = "phi4mm",
     .vision = "vision_embed_tokens embed_tokens_extend",
     .projector = "img_projection",
     .action = "lora_A lora_B"},
    {.name = "Gemma 3, Gemma 4, PaliGemma, LLaVA, Mistral 3",
     .model_types = "gemma3 gemma3n gemma4 paligemma llava llava_next llava_next_video "
                    "llava_onevision mistral3 pixtral vipllava video_llava aya_vision "
                    "cohere2_vision lfm2_vl",
     .decoders = VLM_DECODERS,
     .language = "llama",
     .vision = "vision_tower vision_model image_tower video_tower audio_tower",
     .projector = "multi_modal_projector mm_projector image_newline embed_vision embed_audio"},
    {.name = "Idefics3, SmolVLM",
     .model_types = "idefics3 smolvlm",
     .decoders = "model.text_model",
     .language = "llama",
     .vision = "vision_model",
     .projector = "connector"},
    {.name = "InternVL",
     .model_types = "internvl internvl_chat",
     .decoders = "language_model.model model.language_model",
     .language = "internvl_language",
     .vision = "vision_model vision_tower",
     .projector = "mlp1 multi_modal_projector",
     .note = INTERNLM2_NOTE},
    {.name = "GLM-4V, GLM-4.5V",
     .model_types = "glm4v glm4v_moe",
     .decoders = QWEN_DECODERS " language_model.model",
     .language = "glm4v_moe_text",
     .vision = QWEN_VISION,
     .projector = "visual.merger"},
    {.name = "Kimi-VL, DeepSeek-VL2",
     .model_types = "kimi_vl kimi_k25 deepseek_vl_v2 deepseek_vl",
     .decoders = VLM_DECODERS " language.model",
     .language = "deepseek_v3",
     .vision = "vision_tower vision vision_model",
     .projector = "multi_modal_projector mm_projector projector aligner"},
    {.name = "MiniCPM-V, MiniCPM-o",
     .model_types = "minicpmv minicpmo",
     .decoders = "llm.model",
     .language = "qwen2",
     .vision = "vpm apm",
     .projector = "resampler audio_projection_layer",
     .action = "tts"},
    {.name = "HunYuan-VL, dots.ocr",
     .model_types = "hunyuan_vl dots_ocr",
     .decoders = VLM_DECODERS,
     .language = "llama",
     .vision = "vit vision_tower visual"},
    {.name = "Qwen2-Audio, Voxtral, Ultravox",
     .model_types = "qwen2_audio voxtral ultravox",
     .decoders = VLM_DECODERS,
     .language = "llama",
     .vision = "audio_tower",
     .projector = "multi_modal_projector"},
    {.name = "CSM",
     .model_types = "csm",
     .decoders = "backbone_model",
     .language = "llama",
     .vision = "codec_model",
     .action = SPEECH},
    {.name = "SmolVLA",
     .model_types = "smolvla",
     .decoders = "model.vlm_with_expert.vlm.model.text_model vlm_with_expert.vlm.model.text_model",
     .language = "llama",
     .vision = "vlm.model.vision_model",
     .projector = "vlm.model.connector",
     .action = SMOLVLA_ACTION},
    {.name = "pi0, pi0.5",
     .model_types = "pi0 pi05 pi0_fast",
     .decoders = "paligemma_with_expert.paligemma.model.language_model "
                 "model.paligemma_with_expert.paligemma.model.language_model "
                 "paligemma_with_expert.paligemma.language_model.model "
                 "model.paligemma_with_expert.paligemma.language_model.model",
     .language = "gemma",
     .vision = "paligemma.model.vision_tower paligemma.vision_tower",
     .projector = "multi_modal_projector",
     .action = PI_ACTION},
    {.name = "OpenVLA, Prismatic",
     .model_types = "openvla prismatic",
     .decoders = "language_model.model",
     .language = "llama",
     .vision = "vision_backbone",
     .projector = "projector",
     .action = "action_head proprio_projector noisy_action_projector",
     .note = "lm_head is the action head: it is left unquantized"},
    {.name = "GR00T N1.5-N1.7",
     .model_types = "gr00t_n1_5 gr00t_n1_6 gr00t_n1_7 gr00t_n1 Gr00tN1d6 Gr00tN1d7 groot",
     .decoders = "backbone.eagle_model.language_model.model backbone.model.language_model.model "
                 "backbone.model.model.language_model backbone.model.language_model "
                 "_groot_model.backbone.eagle_model.language_model.model "
                 "_groot_model.backbone.model.model.language_model",
     .language = "qwen3",
     .vision = "vision_model visual",
     .projector = "mlp1 eagle_linear visual.merger visual.deepstack_merger_list",
     .action = "action_head"},
    {.name = "Florence-2, X-VLA",
     .model_types = "florence2 xvla",
     .decoders = "language_model.model.encoder language_model.model.decoder "
                 "vlm.language_model.model.encoder vlm.language_model.model.decoder "
                 "model.vlm.language_model.model.encoder model.vlm.language_model.model.decoder "
                 "model.language_model.encoder model.language_model.decoder",
     .language = "florence2_language",
     .vision = "vision_tower",
     .projector = "image_projection image_proj_norm image_pos_embed multi_modal_projector",
     .action = "transformer soft_prompts soft_prompt_hub"},
    {.name = "Llama 4",
     .model_types = "llama4",
     .decoders = "model language_model.model model.language_model",
     .language = "llama4_text",
     .vision = "vision_model",
     .projector = "multi_modal_projector"},
    {.name = NULL}};

const struct fp8q_language_model fp8q_general_language = {
    .name = "linears of usual names",
    .linears = LLAMA FUSED MOE SHARED_EXPERT SHARED_EXPERTS LATENT INTERNLM2 W123_MOE FEED_FORWARD
    "attention.(q_proj k_proj v_proj) attention.o_proj ",
    .experts = FP8Q_EXPERTS_KEEP};

const struct fp8q_wrapper fp8q_general_wrapper = {
    .name = "general rule (no config.json, or an unknown model_type)",
    .vision = TOWERS,
    .projector = PROJECTORS,
    .action = ACTIONS};
