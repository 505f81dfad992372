"""The forward pass of every architecture against transformers in float32, on small random models.

For each case: NLL of each sample of the source, and the KL divergence of a block-FP8 output with weights only, by
`fp8q eval --acts none`, beside what transformers gives for the source and for the dequantized output.
"""
import json
import os
import unittest

import torch
from safetensors.torch import load_file, save_file

import common as c

import transformers
from transformers import AutoConfig, AutoModelForCausalLM

SMALL = dict(hidden_size=256, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=320, head_dim=64, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
EXPERTS = SMALL | dict(moe_intermediate_size=128, num_experts=8, num_experts_per_tok=2)
LONGROPE = dict(rope_type="longrope", short_factor=[1.0 + 0.05 * i for i in range(32)],
                long_factor=[1.5 + 0.2 * i for i in range(32)], rope_theta=10000.0,
                original_max_position_embeddings=64)


def rope(**parameters):
    return {"rope_parameters": {"rope_theta": 10000.0} | parameters}


# name: (model_type, config)
CASES = {
    "llama": ("llama", SMALL),
    "llama-tied-bias": ("llama", SMALL | dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "llama-3.1": ("llama", SMALL | rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=64)),
    "llama-3.2": ("llama", SMALL | dict(tie_word_embeddings=True) |
                  rope(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                       original_max_position_embeddings=32, rope_theta=500000.0)),
    "yarn": ("llama", SMALL | rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)),
    "yarn-deepseek": ("llama", SMALL | rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
                                            mscale=1.0, mscale_all_dim=0.8, beta_fast=16.0, truncate=False)),
    "mistral": ("mistral", SMALL | dict(sliding_window=24)),
    "mixtral": ("mixtral", SMALL | dict(num_local_experts=6, num_experts_per_tok=2)),
    "mixtral-window": ("mixtral", SMALL | dict(num_local_experts=4, num_experts_per_tok=1, sliding_window=24)),
    "qwen2": ("qwen2", SMALL),
    "qwen2-moe": ("qwen2_moe", EXPERTS | dict(shared_expert_intermediate_size=256)),
    "qwen2-moe-mixed": ("qwen2_moe", EXPERTS | dict(shared_expert_intermediate_size=128, decoder_sparse_step=2,
                                                    norm_topk_prob=True)),
    "qwen3": ("qwen3", SMALL),
    "qwen3-moe": ("qwen3_moe", EXPERTS | dict(norm_topk_prob=True)),
    "qwen3-moe-mixed": ("qwen3_moe", EXPERTS | dict(norm_topk_prob=False, mlp_only_layers=[1])),
    "gemma": ("gemma", SMALL),
    "gemma2": ("gemma2", SMALL | dict(sliding_window=24, query_pre_attn_scalar=48)),
    "gemma2-caps": ("gemma2", SMALL | dict(sliding_window=24, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma3": ("gemma3_text", SMALL | dict(sliding_window=24, query_pre_attn_scalar=48,
                                           layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "gemma3-scaled": ("gemma3_text", SMALL | dict(
        sliding_window=24, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "phi3": ("phi3", SMALL | dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                   "partial_rotary_factor": 1.0})),
    "phi3-longrope": ("phi3", SMALL | dict(original_max_position_embeddings=64, rope_parameters=LONGROPE)),
    "phi4-partial": ("phi3", SMALL | dict(tie_word_embeddings=True, sliding_window=40,
                                          rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                           "partial_rotary_factor": 0.75})),
    "granite": ("granite", SMALL | dict(embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
                                        attention_multiplier=0.015625)),
    "olmo2": ("olmo2", SMALL),
    "smollm3": ("smollm3", SMALL | dict(no_rope_layer_interval=2)),
    "smollm3-list": ("smollm3", SMALL | dict(no_rope_layers=[0, 1, 1])),
    "glm": ("glm", SMALL),
    "glm4": ("glm4", SMALL),
}


def shaken(model, seed):
    """Weights that are no longer all alike: norms away from 1, biases away from 0, a router with opinions."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.ndim == 1:
                p.add_(0.2 * noise)
            elif name.endswith("gate.weight"):
                p.copy_(0.3 * noise)
            else:
                p.copy_(0.06 * noise)
    return model


def make(name, model_type, options):
    directory = os.path.join(c.WORK, "forward-" + name)
    config = AutoConfig.for_model(model_type, **options)
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    model = shaken(AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval(), len(name))
    model.save_pretrained(directory)
    return directory, model


def samples(vocab):
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, vocab, (n,), generator=generator) for n in (70, 33, 130)]


@torch.no_grad()
def log_probs(model, ids):
    return [torch.log_softmax(model(input_ids=i[None]).logits[0].double(), -1)[:-1] for i in ids]


class Forward(unittest.TestCase):
    """One method a case, added below."""

    def compare(self, name, model_type, options):
        source, model = make(name, model_type, options)
        ids = samples(options["vocab_size"])
        inputs = source + ".inputs.safetensors"
        save_file({f"{i}.input_ids": x for i, x in enumerate(ids)}, inputs, metadata={"dataset": "random"})
        status, _, err = c.fp8q("quantize", source, source + "-q", "-q")
        self.assertEqual(status, 0, err)
        status, found = c.fp8q_json("eval", source, source + "-q", "--inputs", inputs, "--acts", "none")
        self.assertEqual(status, 0, found)
        self.assertGreater(found["quantized_linears"], 0)

        expected = log_probs(model, ids)
        for p, i, sample in zip(expected, ids, found["samples"]):
            nll = -p.gather(1, i[1:, None]).mean().item()
            self.assertAlmostEqual(sample["nll_source"], nll, delta=2e-5 * max(1, abs(nll)), msg=name)

        status, _, err = c.fp8q("dequantize", source + "-q", source + "-d", "--dtype", "f32", "-q")
        self.assertEqual(status, 0, err)
        back = AutoModelForCausalLM.from_pretrained(source + "-d", dtype=torch.float32,
                                                    attn_implementation="eager").eval()
        output = log_probs(back, ids)
        kld = torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in zip(expected, output)])
        self.assertGreater(kld.mean().item(), 1e-7)
        self.assertAlmostEqual(found["kld"]["mean"] / kld.mean().item(), 1, delta=0.01, msg=name)


def add(name, model_type, options):
    setattr(Forward, "test_" + name.replace("-", "_").replace(".", "_"),
            lambda self: self.compare(name, model_type, options))


for case, (kind, settings) in CASES.items():
    add(case, kind, settings)

if __name__ == "__main__":
    unittest.main()
