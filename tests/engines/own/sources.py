"""Small checkpoints that engines accept: real model classes of transformers with random weights.  sources.py OUT

Sizes are such that two ways of tensor parallelism cut whole blocks.
"""
import os
import sys
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()

DENSE = dict(hidden_size=512, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=128, vocab_size=256, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)
MOE = dict(DENSE, moe_intermediate_size=256, num_experts=4, num_experts_per_tok=2)

SOURCES = {
    "llama": ("LlamaForCausalLM", DENSE),
    "qwen2": ("Qwen2ForCausalLM", DENSE),
    "qwen3": ("Qwen3ForCausalLM", DENSE),
    "phi3": ("Phi3ForCausalLM", DENSE),
    "gemma2": ("Gemma2ForCausalLM", DENSE),
    "mixtral": ("MixtralForCausalLM", dict(DENSE, num_local_experts=4, num_experts_per_tok=2)),
    "qwen3-moe": ("Qwen3MoeForCausalLM", dict(MOE, decoder_sparse_step=1, mlp_only_layers=[0])),
    "glm4-moe": ("Glm4MoeForCausalLM", dict(MOE, n_routed_experts=4, n_shared_experts=1, first_k_dense_replace=1,
                                            n_group=1, topk_group=1)),
}


def fill(name, tensor):
    """Values that depend on the tensor's name alone; matrices have rows and columns that stand out."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    values = torch.randn(tensor.shape, generator=generator) * (0.1 if tensor.dim() < 2 else 0.02)
    if tensor.dim() >= 2 and min(tensor.shape[-2:]) > 8:
        values[..., 3, :] *= 8
        values[..., 5] *= 8
    tensor.copy_(values)


def main(out):
    for name, (class_name, settings) in SOURCES.items():
        network = getattr(transformers, class_name)
        model = network(network.config_class(**settings)).to(torch.bfloat16)
        with torch.no_grad():
            for key, tensor in model.state_dict().items():
                if tensor.dtype.is_floating_point:
                    fill(key, tensor)
        model.save_pretrained(os.path.join(out, name))


if __name__ == "__main__":
    main(sys.argv[1])
