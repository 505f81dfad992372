"""Families that no checkpoint of the tests has: published names, with what must be quantized, and the engines' matchers.

Each row: settings, names to quantize, names to keep.  All sizes are multiples of 128, so that names alone decide.
"""
import engines
from common import *
from test_matchers import FUSED, Comparing, modules_of

QKVO = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj".split()
LLAMA = QKVO + "mlp.gate_proj mlp.up_proj mlp.down_proj".split()
SIGLIP = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj mlp.fc1 mlp.fc2".split()
BART = ("self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj fc1 fc2").split()
CROSS = "encoder_attn.q_proj encoder_attn.k_proj encoder_attn.v_proj encoder_attn.out_proj".split()


def under(prefix, names):
    return [f"{prefix}.{n}" for n in names]


def sizes(**more):
    return {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 128, **more}


PHI = "self_attn.qkv_proj self_attn.o_proj mlp.gate_up_proj mlp.down_proj".split()
DIT = under("action_head.model.transformer_blocks.0", "attn1.to_q attn1.to_k attn1.to_v attn1.to_out.0 ff.net.2".split())

FAMILIES = {
    "mistral": ({"model_type": "mistral"}, under("model.layers.0", LLAMA), ["lm_head"]),
    "smollm3": ({"model_type": "smollm3"}, under("model.layers.10", LLAMA), ["lm_head"]),
    "gemma2": ({"model_type": "gemma2"}, under("model.layers.0", LLAMA), ["lm_head"]),
    "qwen2_vl": ({"model_type": "qwen2_vl"}, under("model.layers.0", LLAMA),
                 under("visual.blocks.0", "attn.qkv attn.proj mlp.fc1 mlp.fc2".split()) +
                 ["visual.merger.mlp.0", "visual.merger.mlp.2", "lm_head"]),
    "qwen3_vl": ({"model_type": "qwen3_vl"}, under("model.language_model.layers.0", LLAMA),
                 under("model.visual.blocks.0", "attn.qkv attn.proj mlp.linear_fc1 mlp.linear_fc2".split()) +
                 ["model.visual.merger.linear_fc1", "model.visual.deepstack_merger_list.0.linear_fc2", "lm_head"]),
    "qwen3_5": ({"model_type": "qwen3_5"},
                under("model.language_model.layers.0", ["linear_attn.in_proj_qkv", "linear_attn.in_proj_z",
                                                        "linear_attn.out_proj"]) +
                under("mtp.layers.0", LLAMA) + under("model.language_model.layers.3", LLAMA),
                under("model.language_model.layers.0", ["linear_attn.in_proj_a", "linear_attn.in_proj_b"]) +
                ["mtp.fc", "lm_head", "model.visual.blocks.0.attn.qkv"]),
    "deepseek_v2": ({"model_type": "deepseek_v2"},
                    under("model.layers.0.self_attn", "q_proj kv_b_proj o_proj kv_a_proj_with_mqa".split()) +
                    under("model.layers.1.mlp", "experts.0.gate_proj experts.0.up_proj experts.0.down_proj "
                          "shared_experts.gate_proj shared_experts.up_proj shared_experts.down_proj".split()),
                    ["model.layers.1.mlp.gate", "lm_head"]),
    "gemma3": ({"model_type": "gemma3"}, under("language_model.model.layers.0", LLAMA),
               under("vision_tower.vision_model.encoder.layers.0", SIGLIP) + ["language_model.lm_head"]),
    "llava": ({"model_type": "llava"}, under("language_model.model.layers.0", LLAMA),
              under("vision_tower.vision_model.encoder.layers.0", SIGLIP) +
              ["multi_modal_projector.linear_1", "multi_modal_projector.linear_2", "language_model.lm_head"]),
    "llava, first names": ({"model_type": "llava"}, under("model.layers.0", LLAMA),
                           under("model.vision_tower.vision_tower.vision_model.encoder.layers.0", SIGLIP) +
                           ["model.mm_projector.0", "model.mm_projector.2", "lm_head"]),
    "llava, new names": ({"model_type": "llava"}, under("model.language_model.layers.0", LLAMA),
                         under("model.vision_tower.vision_model.encoder.layers.0", SIGLIP) +
                         ["model.multi_modal_projector.linear_1", "lm_head"]),
    "mistral3": ({"model_type": "mistral3"}, under("language_model.model.layers.0", LLAMA),
                 under("vision_tower.transformer.layers.0", "attention.q_proj attention.o_proj feed_forward.gate_proj "
                       "feed_forward.down_proj".split()) +
                 ["multi_modal_projector.patch_merger.merging_layer", "multi_modal_projector.linear_1"]),
    "llama4": ({"model_type": "llama4"},
               under("language_model.model.layers.0", QKVO + under("feed_forward", "gate_proj up_proj down_proj".split())),
               under("vision_model.model.layers.0", "self_attn.q_proj self_attn.o_proj mlp.fc1".split()) +
               ["multi_modal_projector.linear_1", "language_model.model.layers.1.feed_forward.router"]),
    "internvl, InternLM2": ({"model_type": "internvl_chat", "llm_config": sizes()},
                            under("language_model.model.layers.0", "attention.wo feed_forward.w1 feed_forward.w2 "
                                  "feed_forward.w3".split()),
                            ["language_model.model.layers.0.attention.wqkv", "language_model.output", "mlp1.1",
                             "vision_model.encoder.layers.0.attn.qkv"]),
    "internvl, new names": ({"model_type": "internvl"}, under("model.language_model.layers.0", LLAMA),
                            under("model.vision_tower.encoder.layer.0", "attention.q_proj mlp.fc1".split()) +
                            ["model.multi_modal_projector.linear_1", "lm_head"]),
    "internlm2": ({"model_type": "internlm2", **sizes()},
                  under("model.layers.0", "attention.wo feed_forward.w1 feed_forward.w2 feed_forward.w3".split()),
                  ["model.layers.0.attention.wqkv", "output"]),
    "minicpmv": ({"model_type": "minicpmv"}, under("llm.model.layers.0", LLAMA),
                 under("vpm.encoder.layers.0", SIGLIP) + ["resampler.attn.out_proj", "resampler.kv_proj", "llm.lm_head"]),
    "minicpmo": ({"model_type": "minicpmo"}, under("llm.model.layers.0", LLAMA),
                 under("apm.layers.0", SIGLIP) + under("tts.model.layers.0", LLAMA) +
                 ["audio_projection_layer.linear1", "resampler.kv_proj"]),
    "phi3_v": ({"model_type": "phi3_v", **sizes()},
               under("model.layers.0", PHI),
               under("model.vision_embed_tokens.img_processor.vision_model.encoder.layers.0", SIGLIP) +
               ["model.vision_embed_tokens.img_projection.0"]),
    "florence2": ({"model_type": "florence2"},
                  under("language_model.model.encoder.layers.0", BART) +
                  under("language_model.model.decoder.layers.0", BART + CROSS),
                  ["vision_tower.blocks.0.0.spatial_block.ffn.fn.net.fc1", "language_model.lm_head"]),
    "xvla": ({"model_type": "xvla"}, under("vlm.language_model.model.encoder.layers.0", BART),
             ["transformer.blocks.0.attn.qkv", "transformer.blocks.0.mlp.fc1", "transformer.vlm_proj",
              "vlm.vision_tower.blocks.0.0.channel_block.ffn.fn.net.fc1"]),
    "openvla-oft": ({"model_type": "openvla"}, under("language_model.model.layers.0", LLAMA),
                    ["action_head.model.fc1", "proprio_projector.fc1", "projector.fc1", "language_model.lm_head",
                     "vision_backbone.featurizer.blocks.0.attn.qkv"]),
    "gr00t-n1.6": ({"model_type": "gr00t_n1_6"}, under("backbone.eagle_model.language_model.model.layers.0", LLAMA),
                   DIT + ["backbone.eagle_model.mlp1.0", "backbone.eagle_linear",
                          "backbone.eagle_model.vision_model.vision_model.encoder.layers.0.mlp.fc1"]),
    "gr00t-n1.7": ({"model_type": "gr00t_n1_7"}, under("backbone.model.model.language_model.layers.0", LLAMA),
                   DIT + ["backbone.model.model.visual.blocks.0.attn.qkv",
                          "backbone.model.model.visual.merger.linear_fc1"]),
    "pi0": ({"type": "pi0"}, under("model.paligemma_with_expert.paligemma.model.language_model.layers.0", LLAMA),
            under("model.paligemma_with_expert.gemma_expert.model.layers.0", LLAMA) +
            ["model.state_proj", "model.action_in_proj", "model.action_time_mlp_in",
             "model.paligemma_with_expert.paligemma.model.multi_modal_projector.linear"] +
            under("model.paligemma_with_expert.paligemma.model.vision_tower.vision_model.encoder.layers.0", SIGLIP)),
    "pi0, openpi": ({"type": "pi0"}, under("paligemma_with_expert.paligemma.model.language_model.layers.0", LLAMA),
                    under("paligemma_with_expert.gemma_expert.model.layers.0", LLAMA) + ["action_out_proj"]),
    "smolvla": ({"type": "smolvla"}, under("model.vlm_with_expert.vlm.model.text_model.layers.0", LLAMA),
                under("model.vlm_with_expert.lm_expert.layers.0", LLAMA) +
                under("model.vlm_with_expert.vlm.model.vision_model.encoder.layers.0", SIGLIP) +
                ["model.vlm_with_expert.vlm.model.connector.modality_projection.proj", "model.state_proj",
                 "model.action_time_mlp_out", "model.vlm_with_expert.vlm.lm_head"]),
    "video_llava": ({"model_type": "video_llava"}, under("model.language_model.layers.0", LLAMA),
                    under("model.image_tower.encoder.layers.0", SIGLIP) +
                    under("model.video_tower.encoder.layers.0", SIGLIP) + ["model.multi_modal_projector.linear_1"]),
    "qwen3_omni": ({"model_type": "qwen3_omni_moe"}, under("thinker.model.layers.0", LLAMA),
                   under("talker.model.layers.0", LLAMA) + under("talker.code_predictor.model.layers.0", LLAMA) +
                   under("code2wav.pre_transformer.layers.0", LLAMA) + ["thinker.lm_head", "talker.codec_head"]),
    "qwen3 embedding": ({"model_type": "qwen3"}, under("layers.0", LLAMA), []),
    "internvl, qwen3_moe": ({"model_type": "internvl_chat", "llm_config": {"model_type": "qwen3_moe", **sizes()}},
                            under("language_model.model.layers.0", QKVO) +
                            under("language_model.model.layers.0.mlp", ["experts.0.gate_proj", "experts.0.up_proj",
                                                                        "experts.0.down_proj"]),
                            ["language_model.model.layers.0.mlp.gate", "mlp1.1", "language_model.lm_head"]),
    "unknown wrapper": ({"model_type": "not-published-yet", "text_config": {"model_type": "glm4_moe", **sizes()}},
                        under("model.language_model.layers.0", LLAMA),
                        under("model.image_tower.layers.0", LLAMA) + under("model.sam_model.layers.0", LLAMA) + ["lm_head"]),
    "unknown type": ({"model_type": "not-published-yet"}, under("model.layers.0", LLAMA),
                     under("visual.blocks.0", ["attn.qkv"]) + ["lm_head", "mm_projector.0", "some.other.linear"]),
}


class Families(Comparing):
    def source(self, name):
        settings, wanted, kept = FAMILIES[name]
        tensors = {m + ".weight": normal(256, 256, seed=i) for i, m in enumerate(wanted + kept)}
        for n in tensors:                       # fused on disk: the parts are of 256 rows
            rows = 768 if n.endswith(("qkv_proj.weight", "wqkv.weight")) else 512 if "gate_up_proj" in n else 256
            tensors[n] = normal(rows, 256)
        return make(tensors, settings)

    def test_selection(self):
        for name, (_, wanted, kept) in FAMILIES.items():
            with self.subTest(name):
                _, answer = fp8q_json("quantize", self.source(name), "--dry-run")
                got = sorted(t["name"] for t in answer["tensors"] if t["action"] == "quantize")
                self.equal(got, sorted(m + ".weight" for m in wanted), name)

    def test_lists(self):
        """In the names of the file, for every matcher."""
        for name in FAMILIES:
            with self.subTest(name):
                path = self.source(name)
                out, compressed = quantized(path), quantized(path, "--format", "compressed-tensors")
                modules, settings = modules_of(read(out)), quantization(out)
                for matcher in (engines.VllmFp8(settings), engines.VllmFp8(settings, (), True),
                                engines.SglangFp8(settings), engines.Lmdeploy(settings)):
                    self.compare(f"{name} {type(matcher).__name__}", matcher, modules, FUSED)
                self.compare(name, engines.TensorRt(settings), modules, {}, leave="kv_b_proj$")
                for module, is_quantized in modules.items():
                    for matcher in (engines.Transformers4(settings), engines.Transformers5(settings),
                                    engines.Transformers524(settings)):
                        self.check(matcher.skips(module, {}) != is_quantized, f"{name} {type(matcher).__name__} {module}")
                settings = quantization(compressed)
                for matcher in (engines.VllmCompressed(settings), engines.SglangCompressed(settings),
                                engines.SglangCompressedNew(settings)):
                    self.compare_compressed(f"{name} {type(matcher).__name__}", matcher, modules, FUSED)


if __name__ == "__main__":
    main(at_least=4500)
