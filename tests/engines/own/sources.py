"""Small checkpoints that engines accept: real model classes of transformers with random weights.  sources.py OUT [NAME...]

Sizes are such that two ways of tensor parallelism cut whole blocks.
"""
import json
import os
import pathlib
import re
import sys
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import vision  # noqa: E402, F401  (before transformers)
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DENSE = dict(hidden_size=512, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=128, vocab_size=256, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)
MOE = dict(DENSE, moe_intermediate_size=256, num_experts=4, num_experts_per_tok=2)

SECTIONS = dict(rope_type="default", rope_theta=1e4, mrope_section=[16, 24, 24])
TOWER = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=1, num_attention_heads=2, image_size=56, patch_size=14)
QWEN_TOWER = dict(depth=1, hidden_size=128, intermediate_size=256, num_heads=2, out_hidden_size=512)
QWEN3_TOWER = dict(QWEN_TOWER, patch_size=16, deepstack_visual_indexes=[0], num_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=40.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0,
            original_max_position_embeddings=4096)
LATENT = dict(DENSE, moe_intermediate_size=256, n_routed_experts=4, num_experts_per_tok=2, first_k_dense_replace=1, n_shared_experts=1,
              n_group=1, topk_group=1, kv_lora_rank=128, qk_rope_head_dim=64, qk_nope_head_dim=64, v_head_dim=128,
              num_key_value_heads=4, head_dim=64, rope_parameters=YARN)


def language(kind, settings=DENSE, **more):
    return dict(settings, model_type=kind, **more)


SOURCES = {
    "llama": ("LlamaForCausalLM", DENSE),
    "mistral": ("MistralForCausalLM", DENSE),
    "smollm3": ("SmolLM3ForCausalLM", DENSE),
    "qwen2": ("Qwen2ForCausalLM", DENSE),
    "qwen3": ("Qwen3ForCausalLM", DENSE),
    "phi3": ("Phi3ForCausalLM", DENSE),
    "gemma2": ("Gemma2ForCausalLM", DENSE),
    "mixtral": ("MixtralForCausalLM", dict(DENSE, num_local_experts=4, num_experts_per_tok=2)),
    "qwen3-moe": ("Qwen3MoeForCausalLM", dict(MOE, decoder_sparse_step=1, mlp_only_layers=[])),
    "lfm2": ("Lfm2ForCausalLM", dict(DENSE, block_ff_dim=512, block_auto_adjust_ff_dim=False, conv_L_cache=3, conv_dim=512, block_dim=512,
                                     conv_bias=False, layer_types=["conv", "full_attention"])),
    "glm4-moe": ("Glm4MoeForCausalLM", dict(MOE, n_routed_experts=4, n_shared_experts=1, first_k_dense_replace=1,
                                            n_group=1, topk_group=1)),
    "gpt-oss": ("GptOssForCausalLM", dict(DENSE, num_local_experts=4, num_experts_per_tok=2)),
    "deepseek-v2": ("DeepseekV2ForCausalLM", dict(LATENT, q_lora_rank=None, topk_method="greedy")),
    "deepseek-v3": ("DeepseekV3ForCausalLM", dict(LATENT, q_lora_rank=128)),
    "qwen2.5-vl": ("Qwen2_5_VLForConditionalGeneration",
                   dict(text_config=dict(DENSE, rope_parameters=SECTIONS),
                        vision_config=dict(QWEN_TOWER, patch_size=14, fullatt_block_indexes=[0]))),
    "qwen3-vl": ("Qwen3VLForConditionalGeneration",
                 dict(text_config=dict(DENSE, rope_parameters=dict(SECTIONS, mrope_interleaved=True)), vision_config=QWEN3_TOWER)),
    "qwen3-vl-moe": ("Qwen3VLMoeForConditionalGeneration",
                     dict(text_config=dict(MOE, moe_intermediate_size=768, num_experts=2, decoder_sparse_step=1, mlp_only_layers=[],
                                           norm_topk_prob=True, rope_parameters=dict(SECTIONS, mrope_interleaved=True)),
                          vision_config=QWEN3_TOWER)),
    "internvl": ("InternVLForConditionalGeneration",
                 dict(text_config=language("qwen2"), vision_config=dict(TOWER, image_size=[56, 56], patch_size=[14, 14]),
                      image_token_id=10, tie_word_embeddings=False)),
    "smolvlm": ("SmolVLMForConditionalGeneration",
                dict(text_config=language("llama"), vision_config=TOWER, image_token_id=10, scale_factor=2)),
    "idefics3": ("Idefics3ForConditionalGeneration",
                 dict(text_config=language("llama"), vision_config=TOWER, image_token_id=10, scale_factor=2)),
    "paligemma": ("PaliGemmaForConditionalGeneration",
                  dict(text_config=language("gemma"), projection_dim=512, image_token_index=10,
                       vision_config=dict(TOWER, model_type="siglip_vision_model", projection_dim=512, vision_use_head=False))),
    "gemma3": ("Gemma3ForConditionalGeneration",
               dict(text_config=DENSE, vision_config=dict(TOWER, vision_use_head=False), image_token_index=10,
                    mm_tokens_per_image=4, boi_token_index=11, eoi_token_index=12)),
    "mistral3": ("Mistral3ForConditionalGeneration",
                 dict(text_config=language("mistral"), image_token_index=10, tie_word_embeddings=False,
                      vision_config=dict(TOWER, model_type="pixtral", head_dim=64, num_channels=3))),
    "llava": ("LlavaForConditionalGeneration",
              dict(text_config=language("llama"), image_token_index=10, vision_feature_layer=-1,
                   vision_config=dict(TOWER, model_type="clip_vision_model", projection_dim=128, hidden_act="gelu"))),
}


# What transformers writes otherwise than the checkpoints on the hub have it.
TOWER_NAMES = (r"vision_tower\.(?!vision_model)", "vision_tower.vision_model.")
PUBLISHED_NAMES = {"paligemma": TOWER_NAMES, "gemma3": TOWER_NAMES, "llava": TOWER_NAMES}
TRANSPOSED = {"qwen3-vl-moe": r"experts\."}
PUBLISHED_CONFIG = {
    "gemma2": dict(hidden_act="gelu_pytorch_tanh"),
    "deepseek-v2": dict(scoring_func="softmax", topk_method="greedy", moe_layer_freq=1),
    "deepseek-v3": dict(scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1),
}


def fill(name, tensor):
    """Values that depend on the tensor's name alone; matrices have rows and columns that stand out."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    values = torch.randn(tensor.shape, generator=generator) * (0.1 if tensor.dim() < 2 else 0.02)
    if tensor.dim() >= 2 and min(tensor.shape[-2:]) > 8:
        values[..., 3, :] *= 8
        values[..., 5] *= 8
    if "embed_tokens" in name:
        values[0] = 0       # of the padding token: some engines set it
    tensor.copy_(values)


def as_published(source, out):
    """Gives a checkpoint the names, the layout of stacks and the settings of published ones."""
    file, config = out / "model.safetensors", out / "config.json"
    names, stacks = PUBLISHED_NAMES.get(source, ("$^", "")), TRANSPOSED.get(source, "$^")
    tensors = {re.sub(*names, n): t.transpose(1, 2) if t.dim() == 3 and re.search(stacks, n) else t
               for n, t in load_file(file).items()}
    save_file({n: t.contiguous() for n, t in tensors.items()}, file, metadata={"format": "pt"})

    settings = json.loads(config.read_text()) | PUBLISHED_CONFIG.get(source, {})
    config.write_text(json.dumps(settings, indent=2))


def main(out, *names):
    for source in names or SOURCES:
        class_name, settings = SOURCES[source]
        network = getattr(transformers, class_name)
        model = network(network.config_class(**settings)).to(torch.bfloat16)
        with torch.no_grad():
            for key, tensor in model.state_dict().items():
                if tensor.dtype.is_floating_point:
                    fill(key, tensor)
        model.save_pretrained(out / source)
        as_published(source, out / source)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
