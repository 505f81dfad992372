/* SPDX-License-Identifier: Apache-2.0
 *
 * wrappers.c - the second of two tables: where the language model is, and what stands around it.
 *
 * Fail closed: of a wrapper that is in no row only roots that every language model could have are
 * looked at, and everything else is left unquantized and named.
 */
#include "select/families.h"

/* Where vision-language models keep their decoder, in all spellings of transformers' classes.  */
#define VLM_DECODERS                                                                               \
    "model.language_model language_model.model model language_model model.language_model.model"
#define LLM_DECODERS VLM_DECODERS " llm.model llm model.llm model.text_model text_model"
#define QWEN_DECODERS "model model.language_model language_model.model"
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
    "action_time_mlp_out time_mlp_in time_mlp_out model.dit"
#define SMOLVLA_ACTION                                                                             \
    "lm_expert state_proj action_in_proj action_out_proj action_time_mlp_in action_time_mlp_out"
#define ACTIONS                                                                                    \
    "action_head action_expert action_decoder action_encoder action_model state_encoder "          \
    "diffusion_head " SMOLVLA_ACTION                                                               \
    " gemma_expert time_mlp_in time_mlp_out proprio_projector noisy_action_projector " SPEECH

/* The decoder of PaliGemma within a policy, behind @P.  */
#define PALIGEMMA(P)                                                                               \
    P "paligemma.model.language_model " P "paligemma.language_model.model " P                      \
      "paligemma.model.language_model.model " P "paligemma.language_model"
#define FLORENCE(P) P "encoder " P "decoder"

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
    {.name = "Qwen3.5, Qwen3.6, Qwen4",
     .model_types = "qwen3_5 qwen3_5_moe qwen4_exp",
     .decoders = QWEN_DECODERS,
     .language = "qwen3_5_moe_text",
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS},
    {.name = "Qwen2.5-Omni, Qwen3-Omni",
     .model_types = "qwen2_5_omni qwen2_5_omni_thinker qwen3_omni_moe qwen3_omni_moe_thinker",
     .decoders = "thinker.model model thinker.model.language_model model.language_model",
     .language = "qwen3_omni_moe_text",
     .vision = "visual audio_tower",
     .projector = QWEN_MERGERS,
     .action = SPEECH,
     .note = "only the thinker is quantized: talker and vocoder speak, they are left unquantized"},
    {.name = "Cosmos 3",
     .model_types = "cosmos3_omni cosmos3_edge",
     /* Published with the layers at the root.  */
     .decoders = VLM_DECODERS " .",
     .language = "cosmos3_edge_text",
     .vision = "visual vision_tower vision_model audio_tower",
     .projector = "projector multi_modal_projector visual.merger visual.deepstack_merger_list"},
    {.name = "Phi-3-Vision, Phi-4-Multimodal",
     .model_types = "phi3_v phi4mm phi4_multimodal",
     .decoders = "model",
     .language = "phi4mm",
     .vision = "vision_embed_tokens embed_tokens_extend",
     .projector = "img_projection",
     .action = "lora_A lora_B"},
    {.name = "Gemma 3, Gemma 3n, Gemma 4, PaliGemma",
     .model_types = "gemma3 gemma3n gemma4 gemma4_unified paligemma shieldgemma2",
     .decoders = VLM_DECODERS,
     .language = "gemma3_text",
     .vision = "vision_tower vision_model audio_tower vision_embedder",
     .projector = "multi_modal_projector embed_vision embed_audio"},
    {.name = "LLaVA, Mistral 3, Pixtral",
     .model_types = "llava llava_next llava_next_video llava_onevision llava_qwen mistral3 pixtral "
                    "vipllava video_llava lighton_ocr",
     .decoders = VLM_DECODERS,
     .language = "llama",
     .vision = "vision_tower vision_model vision_encoder image_tower video_tower",
     .projector = "multi_modal_projector mm_projector image_newline vision_projection"},
    {.name = "Mistral Large 4",
     .model_types = "mistral_large4",
     .decoders = VLM_DECODERS " .",
     .language = "mistral_large4_text",
     .vision = "vision_tower vision_encoder",
     .projector = "multi_modal_projector patch_merger vision_language_adapter"},
    {.name = "Aya Vision, Command A Vision, LFM2-VL",
     .model_types = "aya_vision cohere2_vision lfm2_vl lfm3_vl",
     .decoders = VLM_DECODERS,
     .language = "cohere2",
     .vision = "vision_tower vision_model",
     .projector = "multi_modal_projector"},
    {.name = "Idefics3, SmolVLM",
     .model_types = "idefics2 idefics3 smolvlm granite_docling",
     .decoders = "model.text_model",
     .language = "llama",
     .vision = "vision_model",
     .projector = "connector"},
    {.name = "InternVL, Nemotron Nano VL",
     .model_types =
         "internvl internvl_chat interns1 qianfan_ocr nemotron_h_omni nvlm "
         "NemotronH_Nano_VL_V2 Llama_Nemotron_Nano_VL h2ovl_chat skywork_chat eagle_2_5_vl",
     .decoders = "language_model.model model.language_model language_model language_model.backbone",
     .language = "internvl_language",
     .vision = "vision_model vision_tower sound_encoder",
     .projector = "mlp1 multi_modal_projector sound_projection"},
    {.name = "GLM-4V, GLM-4.5V, GLM-4.6V, GLM-OCR",
     .model_types = "glm4v glm4v_moe glm46v glmga glm_ocr glm5_next",
     .decoders = QWEN_DECODERS,
     .language = "glm4v_moe_text",
     .vision = QWEN_VISION,
     .projector = "visual.merger"},
    {.name = "Kimi-VL, Kimi-K2.5, DeepSeek-VL2, DeepSeek-OCR",
     .model_types =
         "kimi_vl kimi_k25 kimi_k3 deepseek_vl_v2 deepseek_vl deepseek_vl_hybrid deepseek_ocr "
         "deepseek_ocr2 DeepseekOCR unlimited_ocr",
     .decoders = VLM_DECODERS " language.model",
     .language = "deepseek_v3",
     .vision = "vision_tower vision vision_model sam_model qwen2_model high_res_vision_model",
     .projector = "multi_modal_projector mm_projector projector aligner"},
    {.name = "ERNIE 4.5 VL",
     .model_types = "ernie4_5_moe_vl ernie4_5_vl_moe ernie4_5_vl",
     .decoders = "model model.language_model",
     .language = "ernie4_5_vl_moe_text",
     .vision = "vision_model vision_tower",
     .projector = "resampler_model model.resampler_model",
     .note = "experts for text and for images are both part of the language model"},
    {.name = "MiniMax-VL, MiniMax-M3",
     .model_types = "minimax_vl_01 minimax_m3_vl",
     .decoders = VLM_DECODERS,
     .language = "minimax_m3_vl_text",
     .vision = "vision_tower vision_model",
     .projector = "multi_modal_projector patch_merge_mlp"},
    {.name = "MiniCPM-V, MiniCPM-o",
     .model_types = "minicpmv minicpmo minicpmv4_6 minicpmv4_7 minicpm_ocr",
     .decoders = "llm.model " VLM_DECODERS,
     .language = "qwen2",
     .vision = "vpm apm vision_tower",
     .projector = "resampler audio_projection_layer merger",
     .action = "tts"},
    {.name = "HunYuan-VL, Hy4-VL, dots.ocr, dots.vlm",
     .model_types = "hunyuan_vl hy_v4_vl dots_ocr dots_vlm dots3_note",
     .decoders = VLM_DECODERS,
     .language = "llama",
     .vision = "vit vision_tower visual vision_encoder audio_tower",
     .projector = "perceive patch_merger"},
    {.name = "Step 3 VL",
     .model_types = "step3_vl step3p7 step_robotics",
     .decoders = VLM_DECODERS,
     .language = "step3_text",
     .vision = "vision_model vision_tower",
     .projector = "vit_large_projector vit_downsampler vit_downsampler2 multi_modal_projector"},
    {.name = "Keye-VL, PaddleOCR-VL, VideoLLaMA 3",
     .model_types = "Keye KeyeVL1_5 keye paddleocr_vl video_llama_3 videollama3_qwen2",
     .decoders = "model model.language_model",
     .language = "qwen3",
     .vision = "visual vision_encoder vision_model",
     .projector = "mlp_AR mm_projector projector"},
    {.name = "Ovis 2, Ovis 2.5",
     .model_types = "ovis ovis2 ovis2_5 ovis2_6 ovis2_6_moe",
     .decoders = "llm.model " VLM_DECODERS,
     .language = "qwen2",
     .vision = "visual_tokenizer vision_tower",
     .projector = "vte visual_embeddings_table"},
    {.name = "Molmo 2",
     .model_types = "molmo2 molmo_act2",
     .decoders = VLM_DECODERS " model.transformer.blocks",
     .language = "molmo2_text",
     .vision = "vision_backbone vision_tower image_vit",
     .projector = "multi_modal_projector image_projector image_pooling_2d"},
    {.name = "Fuyu, BLIP-2, InstructBLIP",
     .model_types = "fuyu blip-2 instructblip instructblipvideo",
     .decoders = "model.language_model language_model.model language_model.model.decoder "
                 "language_model",
     .language = "persimmon",
     .vision = "vision_model qformer",
     .projector = "vision_embed_tokens language_projection"},
    {.name = "further vision-language models",
     .model_types = "apertus1p5 aria exaone4_5 got_ocr2 pp_chart2table granite4_vision "
                    "hyperclovax_vision_v2 janus inkling_mm_model muse_glimmer muse_spark "
                    "emu3 fast_vlm perception_lm isaac kanana_v bailingmm",
     .decoders = LLM_DECODERS,
     .language = "llama",
     .vision = TOWERS,
     .projector = PROJECTORS,
     .action = ACTIONS},
    {.name = "Qwen2-Audio, Voxtral, Ultravox, Granite Speech",
     .model_types = "qwen2_audio qwen3_asr voxtral voxtral_realtime ultravox granite_speech "
                    "granite_speech_plus glmasr audioflamingo3 musicflamingo fun_asr_nano omniasr "
                    "moss_transcribe_diarize vibevoice_asr nemo_speechlm kimi_audio",
     .decoders = LLM_DECODERS " thinker.model language_model.model.model",
     .language = "llama",
     .vision = "audio_tower audio_encoder encoder speech_encoder acoustic_tokenizer_encoder "
               "semantic_tokenizer_encoder",
     .projector = "multi_modal_projector projector audio_adapter adapter"},
    {.name = "CSM",
     .model_types = "csm",
     .decoders = "backbone_model",
     .language = "llama",
     .vision = "codec_model",
     .action = SPEECH},
    {.name = "Llama 4",
     .model_types = "llama4",
     .decoders = "model language_model.model model.language_model",
     .language = "llama4_text",
     .vision = "vision_model",
     .projector = "multi_modal_projector"},

    /* ---- vision, language, action ---- */
    {.name = "SmolVLA",
     .model_types = "smolvla",
     .decoders = "model.vlm_with_expert.vlm.model.text_model vlm_with_expert.vlm.model.text_model",
     .language = "llama",
     .vision = "vlm.model.vision_model",
     .projector = "vlm.model.connector",
     .action = SMOLVLA_ACTION},
    {.name = "pi0, pi0-FAST, pi0.5",
     .model_types = "pi0 pi05 pi0_fast pi0fast",
     .decoders = PALIGEMMA("paligemma_with_expert.") " " PALIGEMMA(
         "model.paligemma_with_expert.") " model.vlm.language_model "
                                         "model.pi0_paligemma.model.language_model "
                                         "model.pi0_paligemma.language_model.model",
     .language = "gemma",
     .vision = "paligemma.model.vision_tower paligemma.vision_tower vlm.vision_tower "
               "pi0_paligemma.vision_tower vision_tower",
     .projector = "multi_modal_projector",
     .action = PI_ACTION},
    {.name = "OpenVLA, OpenVLA-OFT, Prismatic",
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
     .decoders =
         FLORENCE("language_model.model.") " " FLORENCE("vlm.language_model.model.") " " FLORENCE(
             "model.vlm.language_model.model.") " " FLORENCE("model.language_model."),
     .language = "florence2_language",
     .vision = "vision_tower",
     .projector = "image_projection image_proj_norm image_pos_embed multi_modal_projector",
     .action = "transformer soft_prompts soft_prompt_hub"},
    {.name = "Alpamayo",
     .model_types = "alpamayo_r1 alpamayo1_5 alpamayo2_super alpamayo",
     .decoders = "vlm.model.language_model vlm.language_model.model vlm.model",
     .language = "qwen3",
     .vision = QWEN_VISION,
     .projector = QWEN_MERGERS,
     .action = "expert action_in_proj action_out_proj action_space diffusion"},
    {.name = NULL}};

const struct fp8q_wrapper fp8q_general_wrapper = {
    .name = "general rule", .vision = TOWERS, .projector = PROJECTORS, .action = ACTIONS};
