/* SPDX-License-Identifier: Apache-2.0
 *
 * languages.c - the first of two tables: what the layers of each language model hold.
 *
 * Allow lists, fail closed: what no row names is left unquantized and listed.  Names were read in
 * published checkpoints and in transformers' classes, which rename some of them while loading: a row
 * has both forms.  What engines build without quantization is not in a row, and a note says so.
 */
#include "select/families.h"

/* ---- attention ------------------------------------------------------------------------------- */

#define QKV "self_attn.(q_proj k_proj v_proj) "
#define ATTENTION QKV "self_attn.o_proj "
#define OUT_PROJ_ATTENTION QKV "self_attn.out_proj "
/* Engines load the gate of the output beside q, k and v.  */
#define GATED_ATTENTION "self_attn.(q_proj k_proj v_proj gate_proj g_proj) self_attn.o_proj "
#define LATENT_PARTS                                                                               \
    "self_attn.(q_a_proj kv_a_proj_with_mqa) self_attn.q_b_proj self_attn.kv_b_proj "              \
    "self_attn.o_proj "
#define LATENT LATENT_PARTS QKV
#define GATED_DELTA                                                                                \
    "linear_attn.in_proj_qkvz linear_attn.(in_proj_qkv in_proj_z) linear_attn.out_proj "
/* With the few rows of b_proj beside them, q, k and v are no blocks for engines; alone they are the
 * query of latent attention.  */
#define KIMI_DELTA "self_attn.(q_proj k_proj v_proj b_proj f_a_proj g_a_proj) "

/* ---- what follows it ------------------------------------------------------------------------- */

#define MLP "mlp.(gate_proj up_proj) mlp.down_proj "
#define UP_DOWN "mlp.up_proj mlp.down_proj "
#define GATE_UP "mlp.gate_up_proj mlp.down_proj "
#define FC "mlp.fc1 mlp.fc2 "
#define DENSE_4H "mlp.dense_h_to_4h mlp.dense_4h_to_h "
#define FEED_FORWARD "feed_forward.(gate_proj up_proj) feed_forward.down_proj "
#define MOE "mlp.experts.E.(gate_proj up_proj down_proj) "
#define W123_MOE "block_sparse_moe.experts.E.(w1 w2 w3) "
#define SHARED_EXPERT "mlp.shared_expert.(gate_proj up_proj) mlp.shared_expert.down_proj "
#define SHARED_EXPERTS "mlp.shared_experts.(gate_proj up_proj) mlp.shared_experts.down_proj "
#define SHARED_MLP "mlp.shared_mlp.(gate_proj up_proj) mlp.shared_mlp.down_proj "
#define SPARSE_SHARED_EXPERTS                                                                      \
    "block_sparse_moe.shared_experts.(gate_proj up_proj) "                                         \
    "block_sparse_moe.shared_experts.down_proj "

#define LLAMA ATTENTION MLP
#define FUSED "self_attn.qkv_proj self_attn.o_proj " GATE_UP

/* Without attention.wqkv: its rows are interleaved by head groups, and engines take it apart while
 * loading, but not its scales.  */
#define INTERNLM2 "attention.wo feed_forward.(w1 w3) feed_forward.w2 "
#define INTERNLM2_NOTE                                                                             \
    "InternLM2: wqkv is left unquantized, engines split it while loading but not its scales"
#define HEADS_NOTE                                                                                 \
    "query_key_value is left unquantized: its rows are interleaved by heads, and engines reorder " \
    "them while loading, but not their scales"
#define BART                                                                                       \
    "self_attn.(q_proj k_proj v_proj) self_attn.out_proj encoder_attn.(k_proj v_proj) "            \
    "encoder_attn.q_proj encoder_attn.out_proj fc1 fc2 "
#define LONGCAT(N)                                                                                 \
    "self_attn." N ".(q_a_proj kv_a_proj_with_mqa) self_attn." N ".q_b_proj self_attn." N          \
    ".kv_b_proj self_attn." N ".q_proj self_attn." N ".o_proj mlps." N                             \
    ".(gate_proj up_proj) mlps." N ".down_proj "

const struct fp8q_language_model fp8q_language_models[] = {
    /* ---- dense ---- */
    {.name = "Llama, Mistral, SmolLM",
     .model_types = "llama mistral ministral ministral3 smollm3 cwm voxtral_realtime_text",
     .linears = LLAMA},
    {.name = "Qwen2, Qwen2.5", .model_types = "qwen2", .linears = LLAMA},
    {.name = "Qwen3", .model_types = "qwen3", .linears = LLAMA},
    {.name = "Qwen-VL (text)",
     .model_types = "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen3_vl_text",
     .decoders = "model.language_model",
     /* The last four as Cosmos 3 calls them.  */
     .linears = LLAMA "self_attn.(to_q to_k to_v) self_attn.to_out "},
    {.name = "Gemma (text)",
     .model_types = "gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text "
                    "vaultgemma",
     .linears = LLAMA,
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "per-layer projections and AltUp are left unquantized, as engines have them"},
    {.name = "Llama-like",
     .model_types = "olmo olmo2 olmo3 granite granite_swa cohere cohere2 seed_oss exaone4 ernie4_5 "
                    "helium stablelm hunyuan_v1_dense hunyuan_vl_text mimo minicpm internlm3 "
                    "diffllama hyperclovax iquestcoder paddleocr_vl_text granite_docling_text "
                    "flint orion aquila yi emu3_text_model step1 nemotron-nas deci "
                    "chameleon",
     .linears = LLAMA},
    {.name = "without gate_proj",
     .model_types = "nemotron apertus apertus1p5_text arcee jais2",
     .linears = ATTENTION UP_DOWN},
    {.name = "GLM-4, GLM-Edge",
     .model_types = "glm glm4 glm_ocr_text",
     .linears = ATTENTION GATE_UP},
    {.name = "ChatGLM, GLM-4 (first code)",
     .model_types = "chatglm",
     .decoders = "transformer.encoder",
     .linears = "self_attention.query_key_value self_attention.dense " DENSE_4H},
    {.name = "Phi-3, Phi-4", .model_types = "phi3", .linears = FUSED},
    {.name = "Phi-4-Multimodal (text)",
     .model_types = "phi4mm phi4_multimodal phi3_v",
     .linears = FUSED "self_attn.qkv_proj.base_layer self_attn.o_proj.base_layer "
                      "mlp.gate_up_proj.base_layer mlp.down_proj.base_layer "},
    {.name = "Phi-1, Phi-2", .model_types = "phi", .linears = QKV "self_attn.dense " FC},
    {.name = "NanoChat, Cosmos 3 Edge",
     .model_types = "nanochat cosmos3_edge_text",
     .linears = ATTENTION FC UP_DOWN "self_attn.(to_q to_k to_v) self_attn.to_out "},
    {.name = "Baichuan", .model_types = "baichuan", .linears = LLAMA "self_attn.W_pack "},
    {.name = "StarCoder2",
     .model_types = "starcoder2",
     .linears = ATTENTION "mlp.c_fc mlp.c_proj "},
    {.name = "InternLM2", .model_types = "internlm2", .linears = INTERNLM2, .note = INTERNLM2_NOTE},
    {.name = "InternVL (text)",
     .model_types = "internvl_language",
     .linears = LLAMA MOE INTERNLM2,
     .note = INTERNLM2_NOTE},
    {.name = "EXAONE 3",
     .model_types = "exaone",
     .decoders = "transformer.h",
     .linears = LLAMA "attn.attention.(q_proj k_proj v_proj) attn.attention.out_proj "
                      "mlp.(c_fc_0 c_fc_1) mlp.c_proj "},
    {.name = "Dory, AFM, Muse Glimmer",
     .model_types = "dory afmoe muse_glimmer_text",
     .decoders = "backbone",
     .linears = LLAMA "self_attn.gate_proj self_attn.g_proj " MOE SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Beam", .model_types = "beam", .linears = GATED_ATTENTION MLP MOE SHARED_EXPERTS},
    {.name = "Molmo, MolmoAct",
     .model_types = "molmo molmo2_text molmo_act molmoact",
     .decoders = "model.transformer.blocks transformer.blocks",
     .linears = LLAMA "self_attn.att_proj self_attn.attn_out mlp.ff_proj mlp.ff_out "
                      "att_proj attn_out ff_proj ff_out "},
    {.name = "OPT, BioGPT, XGLM, Kosmos-2",
     .model_types = "opt biogpt xglm kosmos_2_text_model kosmos_2_5_text_model",
     .decoders = "model.decoder decoder language_model.model.decoder biogpt",
     .linears = OUT_PROJ_ATTENTION "fc1 fc2 ffn.fc1 ffn.fc2 "},
    {.name = "GPT-NeoX, Pythia",
     .model_types = "gpt_neox gpt_neox_japanese",
     .decoders = "gpt_neox gpt_neox_japanese",
     .linears = "attention.dense " DENSE_4H,
     .note = HEADS_NOTE},
    {.name = "Falcon, BLOOM, Persimmon",
     .model_types = "falcon RefinedWeb RefinedWebModel bloom persimmon",
     .decoders = "transformer.h h",
     .linears = "self_attention.dense self_attn.dense " DENSE_4H,
     .note = HEADS_NOTE},
    {.name = "GPT-J, GPT-Neo, CodeGen, StarCoder",
     .model_types = "gptj gpt_neo codegen gpt_bigcode",
     .decoders = "transformer.h",
     .linears = "attn.(q_proj k_proj v_proj) attn.out_proj attn.c_proj "
                "attn.attention.(q_proj k_proj v_proj) attn.attention.out_proj "
                "mlp.fc_in mlp.fc_out mlp.c_fc mlp.c_proj ",
     .note = "a fused attn.qkv_proj or attn.c_attn is left unquantized: its rows are interleaved"},
    {.name = "MPT",
     .model_types = "mpt",
     .decoders = "transformer.blocks",
     .linears = "attn.Wqkv attn.out_proj ffn.up_proj ffn.down_proj "},
    {.name = "BART in Florence-2", .model_types = "florence2_language bart", .linears = BART},

    /* ---- mixtures of experts ---- */
    {.name = "Qwen2-MoE, Qwen3-MoE",
     .model_types = "qwen2_moe qwen3_moe qwen3_omni_moe_text",
     .linears = LLAMA MOE SHARED_EXPERT,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Qwen3-VL-MoE (text)",
     .model_types = "qwen3_vl_moe_text",
     .decoders = "model.language_model",
     .linears = LLAMA MOE,
     .experts = FP8Q_EXPERTS_STACKED},
    {.name = "GLM-4.5, GLM-4V (text)",
     .model_types = "glm4_moe glm4v_moe_text glm4v_text",
     .linears = LLAMA "mlp.gate_up_proj " MOE SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Llama-like with experts",
     .model_types = "olmoe flex_olmo cohere2_moe mellum solar_open exaone_moe ernie4_5_moe "
                    "ernie4_5_vl_moe_text dots1 laguna kolibri1 aria_text mimo_v2_flash mimo_v2 "
                    "unlimited_ocr_text deepseek_ocr2_text",
     .linears = LLAMA MOE SHARED_EXPERT SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "HunYuan MoE, Hy3",
     .model_types = "hunyuan_v1_moe hunyuan hy_v3",
     .linears = LLAMA MOE SHARED_MLP SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Ling, Ring (Bailing MoE), Sarvam",
     .model_types = "bailing_moe bailing_moe_v2 bailing_moe_linear bailing_hybrid sarvam_moe",
     .linears = LATENT_PARTS KIMI_DELTA
     "attention.query_key_value attention.dense "
     "attention.(q_a_proj kv_a_proj_with_mqa) attention.q_b_proj attention.kv_b_proj "
     "attention.(q_proj k_proj v_proj b_proj) " MLP MOE SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_SPLIT,
     .note = "of linear attention only the output projection is quantized"},
    {.name = "Mixtral", .model_types = "mixtral", .linears = ATTENTION W123_MOE MOE},
    {.name = "MiniMax-Text-01, MiniMax-M1",
     .model_types = "minimax minimax_text_01 minimax_m1",
     .linears = ATTENTION W123_MOE "self_attn.out_proj self_attn.output_gate ",
     .note = "qkv_proj of lightning attention is left unquantized: it is interleaved by heads"},
    {.name = "MiniMax-M2, Phi-3.5-MoE",
     .model_types = "minimax_m2 phimoe",
     .linears = ATTENTION W123_MOE},
    {.name = "MiniMax-M3 (text)",
     .model_types = "minimax_m3_vl_text minimax_m3",
     .linears = LLAMA W123_MOE SPARSE_SHARED_EXPERTS
     "mlp.shared_experts.gate_up_proj mlp.shared_experts.down_proj mlp.gate_up_proj "},
    {.name = "Step 3 (text)",
     .model_types = "step3_text step3p5",
     .linears = LLAMA "self_attn.wq share_expert.(gate_proj up_proj) share_expert.down_proj ",
     .note = "stacked experts (moe.gate_proj) are left unquantized"},
    {.name = "Granite 4, Granite MoE",
     .model_types = "granitemoe granitemoeshared granitemoehybrid granitemoe_swa",
     .linears = ATTENTION "shared_mlp.input_linear shared_mlp.output_linear mamba.out_proj ",
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "stacked experts (block_sparse_moe) and mamba.in_proj are left unquantized"},
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
    {.name = "Muse Spark (text)",
     .model_types = "muse_spark_text",
     .linears = GATED_ATTENTION MLP,
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "stacked experts, and the projections around them, are left unquantized"},
    {.name = "Inkling (text)",
     .model_types = "inkling_text",
     .decoders = "model.llm",
     .linears = "self_attn.(q_proj k_proj v_proj r_proj) self_attn.o_proj "
                "attn.(wq_du wk_dv wv_dv wr_du) attn.wo_ud " MLP,
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "w13 of MLPs and experts is interleaved: left unquantized"},

    /* ---- latent attention ---- */
    {.name = "DeepSeek-V2, DeepSeek-V3, Kimi-K2, GLM-5",
     .model_types = "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 glm4_moe_lite glm_moe_dsa axk1 "
                    "axk2 mistral4 sarvam_mla youtu minicpm3 "
                    "kimi_vl_text pangu_ultra_moe openpangu",
     .linears = LATENT "self_attn.q_gate_proj " MLP MOE SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_SPLIT,
     .note = "kv_a_proj_with_mqa has 576 rows: it and q_a_proj are left unquantized; so is the "
             "indexer"},
    {.name = "Hy4, dots 3",
     .model_types = "hy_v4 hy_v4_vl_text dots3_note_text dots3_note",
     .linears = LATENT "self_attn.gate_proj self_attn.linear_gate " MLP MOE SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_SPLIT,
     .note = "the indexer is left unquantized"},
    {.name = "Mistral Large 4 (text)",
     .model_types = "mistral_large4_text",
     .linears = LATENT MLP MOE SHARED_EXPERTS
     "attention.(wq_a wkv_a_with_mqa) attention.wq_b attention.wkv_b attention.wq attention.wo "
     "feed_forward.(w1 w3) feed_forward.w2 experts.E.(w1 w2 w3) "
     "shared_experts.(w1 w3) shared_experts.w2 ",
     .experts = FP8Q_EXPERTS_SPLIT,
     .note = "the indexer is left unquantized"},
    {.name = "DeepSeek-V4",
     .model_types = "deepseek_v4",
     .linears = "attn.(wq_a wkv) attn.wq_b attn.wo_b ffn.experts.E.(w1 w2 w3) "
                "ffn.shared_experts.(w1 w3) ffn.shared_experts.w2 self_attn.(q_a_proj kv_proj) "
                "self_attn.q_b_proj self_attn.o_b_proj " SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "the compressor, wo_a and the indexer are left unquantized"},
    {.name = "LongCat-Flash",
     .model_types = "longcat_flash longcat",
     .linears = LONGCAT("0") LONGCAT("1") MOE,
     .note = "kv_a_proj_with_mqa has 576 rows: it and q_a_proj are left unquantized"},
    {.name = "Kimi Linear, Kimi-K3",
     .model_types = "kimi_linear kimi_k3 kimi_k3_text",
     .linears = LATENT_PARTS KIMI_DELTA MLP MOE SHARED_EXPERTS W123_MOE SPARSE_SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_KEEP,
     .note = "of delta attention only the output projection is quantized"},
    {.name = "GLM-5-Next (text)",
     .model_types = "glm5_next_text",
     .linears = MLP MOE SHARED_EXPERTS,
     .experts = FP8Q_EXPERTS_SPLIT,
     .note = "engines build its attention without quantization"},

    /* ---- with linear attention, or a state ---- */
    {.name = "Qwen3-Next",
     .model_types = "qwen3_next",
     .decoders = "mtp",
     .linears = LLAMA MOE SHARED_EXPERT GATED_DELTA,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "Qwen3.5, Qwen3.6, Qwen4 (text)",
     .model_types = "qwen3_5_text qwen3_5_moe_text qwen4_exp_text lara_mini",
     .decoders = "mtp model.language_model",
     .linears = LLAMA MOE SHARED_EXPERT GATED_DELTA,
     .experts = FP8Q_EXPERTS_SPLIT},
    {.name = "OLMo Hybrid",
     .model_types = "olmo_hybrid",
     .linears = LLAMA,
     .note = "linear attention is left unquantized"},
    {.name = "Nemotron-H, Nemotron 3",
     .model_types = "nemotron_h nemotron_h_puzzle",
     .decoders = "backbone language_model.backbone",
     .linears = "mixer.(q_proj k_proj v_proj) mixer.o_proj mixer.up_proj mixer.down_proj "
                "mixer.out_proj mixer.experts.E.(up_proj down_proj) mixer.shared_experts.up_proj "
                "mixer.shared_experts.down_proj ",
     .note = "in_proj of Mamba layers is left unquantized: its parts are no multiples of 128"},
    {.name = "Falcon-H1, Bamba",
     .model_types = "falcon_h1 bamba",
     .linears = ATTENTION FEED_FORWARD "mamba.out_proj ",
     .note = "in_proj of Mamba layers is left unquantized: its parts are no multiples of 128"},
    {.name = "Jamba",
     .model_types = "jamba",
     .linears = ATTENTION FEED_FORWARD "feed_forward.experts.E.(gate_proj up_proj down_proj) ",
     .experts = FP8Q_EXPERTS_SPLIT,
     .note = "Mamba's linears are left unquantized"},
    {.name = "LFM2, LFM3",
     .model_types = "lfm2 lfm2_moe lfm3",
     .linears =
         OUT_PROJ_ATTENTION "conv.in_proj conv.out_proj feed_forward.(w1 w3) feed_forward.w2 "
                            "feed_forward.experts.E.(w1 w2 w3) ",
     .note = "the convolution itself is left unquantized"},
    {.name = NULL}};

const struct fp8q_language_model fp8q_general_language = {
    .name = "linears of usual names",
    .linears = LLAMA FUSED MOE SHARED_EXPERT SHARED_EXPERTS LATENT INTERNLM2 W123_MOE FEED_FORWARD
    "attention.(q_proj k_proj v_proj) attention.o_proj ",
    .experts = FP8Q_EXPERTS_KEEP};
