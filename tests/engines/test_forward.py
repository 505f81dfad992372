"""The forward pass of every architecture against transformers in float32, on small random models.

For each case: NLL of each sample of the source, and the KL divergence of a block-FP8 output with weights only, by
`fp8q eval --acts none`, beside what transformers gives for the source and for the dequantized output.
"""
import copy
import json
import os
import shutil
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import common as c

import transformers
from transformers import AutoConfig, AutoModelForCausalLM

SMALL = dict(hidden_size=256, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=320, head_dim=64, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
EXPERTS = SMALL | dict(moe_intermediate_size=128, num_experts=8, num_experts_per_tok=2)
# Latent attention: heads of 64 + 32 elements, values of another size.
LATENT = {k: v for k, v in EXPERTS.items() if k not in ("head_dim", "num_experts")} | dict(
    num_key_value_heads=4, n_routed_experts=8, n_shared_experts=2, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=128,
    num_experts_per_tok=3)
V3 = dict(q_lora_rank=128, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=2.5)
ERNIE = dict(moe_num_experts=8, moe_k=3, moe_intermediate_size=128, moe_num_shared_experts=2)
LONGROPE = dict(rope_type="longrope", short_factor=[1.0 + 0.05 * i for i in range(32)],
                long_factor=[1.5 + 0.2 * i for i in range(32)], rope_theta=10000.0,
                original_max_position_embeddings=64)


def rope(**parameters):
    return {"rope_parameters": {"rope_theta": 10000.0} | parameters}


VISION = dict(model_type="siglip_vision_model", hidden_size=64, intermediate_size=64, num_hidden_layers=1,
              num_attention_heads=2, image_size=28, patch_size=14)

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
    "olmo3": ("olmo3", SMALL | dict(sliding_window=24, layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "olmo3-pattern": ("olmo3", SMALL | dict(sliding_window=24, num_hidden_layers=5)),
    "olmo3-yarn": ("olmo3", SMALL | dict(sliding_window=24, num_hidden_layers=4, rope_parameters={
        "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5e5, "original_max_position_embeddings": 64},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}})),
    "ministral": ("ministral", SMALL | dict(sliding_window=24, layer_types=["sliding_attention", "full_attention",
                                                                            "sliding_attention"])),
    "ministral-all": ("ministral", SMALL | dict(sliding_window=24)),
    "seed-oss": ("seed_oss", SMALL),
    "seed-oss-biases": ("seed_oss", SMALL | dict(attention_out_bias=True, mlp_bias=True)),
    "ernie4.5": ("ernie4_5", SMALL),
    "ernie4.5-biases": ("ernie4_5", SMALL | dict(use_bias=True, tie_word_embeddings=False)),
    "smollm3": ("smollm3", SMALL | dict(no_rope_layer_interval=2)),
    "smollm3-list": ("smollm3", SMALL | dict(no_rope_layers=[0, 1, 1])),
    "olmoe": ("olmoe", SMALL | dict(num_experts=8, num_experts_per_tok=3)),
    "deepseek-v2": ("deepseek_v2", LATENT | dict(q_lora_rank=128, first_k_dense_replace=1)),
    "deepseek-v2-groups": ("deepseek_v2", LATENT | dict(topk_method="group_limited_greedy", n_group=4, topk_group=2,
                                                        routed_scaling_factor=4.0, q_lora_rank=None)),
    "deepseek-v2-yarn": ("deepseek_v2", LATENT | rope(rope_type="yarn", factor=40.0, mscale=0.707, mscale_all_dim=0.707,
                                                      original_max_position_embeddings=64) | dict(q_lora_rank=None)),
    "deepseek-v3": ("deepseek_v3", LATENT | V3),
    "deepseek-v3-yarn": ("deepseek_v3", LATENT | V3 | rope(rope_type="yarn", factor=40.0, mscale=1.0, mscale_all_dim=1.0,
                                                           original_max_position_embeddings=64)),
    "deepseek-v3-halves": ("deepseek_v3", LATENT | V3 | dict(rope_interleave=False, attention_bias=True,
                                                             norm_topk_prob=False)),
    "moonlight": ("deepseek_v3", LATENT | V3 | dict(q_lora_rank=None, n_group=1, topk_group=1, rms_norm_eps=1e-5)),
    "glm4-moe": ("glm4_moe", EXPERTS | dict(n_routed_experts=8, first_k_dense_replace=1, routed_scaling_factor=1.5,
                                            attention_bias=True)),
    "glm4-moe-norms": ("glm4_moe", EXPERTS | dict(n_routed_experts=8, use_qk_norm=True, n_shared_experts=2)),
    "dots1": ("dots1", EXPERTS | dict(n_routed_experts=8, n_shared_experts=2, first_k_dense_replace=1,
                                      norm_topk_prob=True, sliding_window=24, max_window_layers=2)),
    "ernie4.5-moe": ("ernie4_5_moe", SMALL | ERNIE),
    "ernie4.5-moe-range": ("ernie4_5_moe", SMALL | ERNIE | dict(moe_layer_start_index=0, moe_layer_end_index=1,
                                                                moe_num_shared_experts=0, moe_norm_min=0.5)),
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
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.1 * torch.randn(b.shape, generator=generator))
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
    # On copies: dynamic rotary embeddings remember the longest sample that they have seen.
    return [torch.log_softmax(copy.deepcopy(model)(input_ids=i[None]).logits[0].double(), -1)[:-1] for i in ids]


def write_inputs(path, ids):
    save_file({f"{i}.input_ids": x for i, x in enumerate(ids)}, path, metadata={"dataset": "random"})
    return path


def load(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def edit(directory, change):
    """Changes config.json in place."""
    edit_json(os.path.join(directory, "config.json"), change)


def edit_json(path, change):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    change(data)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f)


def mean_kld(source, output):
    return torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in zip(source, output)]).mean().item()


class Case(unittest.TestCase):
    def prepare(self, name, model_type, options, *quantize):
        """Source, its quantized form in SOURCE-q, dequantized in SOURCE-d; model, ids and their file."""
        source, model = make(name, model_type, options)
        ids = samples(options["vocab_size"])
        inputs = write_inputs(source + ".inputs.safetensors", ids)
        status, _, err = c.fp8q("quantize", source, source + "-q", "-q", *quantize)
        self.assertEqual(status, 0, err)
        status, _, err = c.fp8q("dequantize", source + "-q", source + "-d", "--dtype", "f32", "-q")
        self.assertEqual(status, 0, err)
        return source, model, ids, inputs

    def evaluate(self, source, inputs, *options):
        status, found = c.fp8q_json("eval", source, source + "-q", "--inputs", inputs, *options)
        self.assertEqual(status, 0, found)
        self.assertGreater(found["quantized_linears"], 0)
        return found


class Forward(Case):
    """One method a case, added below."""

    def compare(self, name, model_type, options):
        source, model, ids, inputs = self.prepare(name, model_type, options)
        found = self.evaluate(source, inputs, "--acts", "none")
        expected = log_probs(model, ids)
        for p, i, sample in zip(expected, ids, found["samples"]):
            nll = -p.gather(1, i[1:, None]).mean().item()
            self.assertAlmostEqual(sample["nll_source"], nll, delta=2e-5 * max(1, abs(nll)), msg=name)
        kld = mean_kld(expected, log_probs(load(source + "-d"), ids))
        self.assertGreater(kld, 1e-7)
        self.assertAlmostEqual(found["kld"]["mean"] / kld, 1, delta=0.01, msg=name)
        self.assertEqual(found["config_differences"], "")


def set_rope(**parameters):
    return lambda config: config["rope_parameters"].update(parameters)


def set_key(**keys):
    return lambda config: config.update(keys)


# What DST's own config.json may say otherwise than its source's: (model_type, config, change, what eval calls it)
OWN = {
    "attention-factor": ("llama", CASES["yarn"][1], set_rope(attention_factor=5.0), "rotary embedding"),
    "yarn-factor": ("llama", CASES["yarn"][1], set_rope(factor=2.0), "rotary embedding"),
    "llama3-factor": ("llama", CASES["llama-3.1"][1], set_rope(factor=2.0), "rotary embedding"),
    "theta": ("llama", SMALL, set_rope(rope_theta=1000.0), "rotary embedding"),
    "linear": ("llama", SMALL, set_rope(rope_type="linear", factor=2.0), "rotary embedding"),
    "dynamic-factor": ("llama", SMALL | dict(max_position_embeddings=64) | rope(rope_type="dynamic", factor=2.0),
                       set_rope(factor=16.0), "rotary embedding"),
    "dynamic-length": ("llama", SMALL | dict(max_position_embeddings=64) | rope(rope_type="dynamic", factor=2.0),
                       set_key(max_position_embeddings=32), "rotary embedding"),
    "longrope": ("phi3", CASES["phi3-longrope"][1], set_rope(long_factor=[1.0 + 0.5 * i for i in range(32)]),
                 "rotary embedding"),
    "eps": ("llama", SMALL, set_key(rms_norm_eps=0.05), "rms_norm_eps"),
    "window": ("mistral", SMALL | dict(sliding_window=48), set_key(sliding_window=12), "sliding_window"),
    "no-window": ("mistral", SMALL | dict(sliding_window=24), set_key(sliding_window=None), "sliding_window"),
    "layer-types": ("gemma2", CASES["gemma2"][1], set_key(layer_types=["full_attention"] * 3), "sliding_window"),
    "attention-cap": ("gemma2", CASES["gemma2-caps"][1], set_key(attn_logit_softcapping=0.5), "attn_logit_softcapping"),
    "logit-cap": ("gemma2", CASES["gemma2-caps"][1], set_key(final_logit_softcapping=2.0), "final_logit_softcapping"),
    "query-scalar": ("gemma3_text", CASES["gemma3"][1], set_key(query_pre_attn_scalar=300), "scale of attention"),
    "local-theta": ("gemma3_text", CASES["gemma3-scaled"][1],
                    lambda config: config["rope_parameters"]["sliding_attention"].update(rope_theta=100.0),
                    "rotary embedding"),
    "multiplier": ("granite", CASES["granite"][1], set_key(residual_multiplier=0.4), "residual_multiplier"),
    "logits-scaling": ("granite", CASES["granite"][1], set_key(logits_scaling=4.0), "logits_scaling"),
    "embedding": ("granite", CASES["granite"][1], set_key(embedding_multiplier=6.0), "embedding_multiplier"),
    "active-experts": ("qwen3_moe", CASES["qwen3-moe"][1], set_key(num_experts_per_tok=3), "num_experts_per_tok"),
    "norm-topk": ("qwen3_moe", CASES["qwen3-moe"][1], set_key(norm_topk_prob=False), "norm_topk_prob"),
    "no-rope": ("smollm3", CASES["smollm3-list"][1], set_key(no_rope_layers=[1, 1, 0]), "layers without rotation"),
}


def stack_shape(name, tensor):
    with safe_open(os.path.join(c.WORK, name, "model.safetensors"), "pt") as f:
        return list(f.get_slice(tensor).get_shape())


STACKED = ("mixtral", "qwen2-moe", "qwen3-moe", "deepseek-v3", "glm4-moe", "ernie4.5-moe", "olmoe")


class Stacked(Case):
    """Experts as transformers 5 has them in memory, one stack a layer: equal to the same ones by themselves."""

    def test_all(self):
        for name in STACKED:
            with self.subTest(name):
                self.compare(name)

    def compare(self, name):
        model_type, options = CASES[name]
        source, model, ids, inputs = self.prepare("apart-" + name, model_type, options)
        found = self.evaluate(source, inputs, "--acts", "none")

        stacked = os.path.join(c.WORK, "stacked-" + name)
        model.save_pretrained(stacked, save_original_format=False)
        shape = stack_shape("stacked-" + name, f"model.layers.{options['num_hidden_layers'] - 1}.mlp.experts.gate_up_proj")
        self.assertEqual(shape[2], options["hidden_size"])
        status, again = c.fp8q_json("eval", stacked, source + "-q", "--inputs", inputs, "--acts", "none")
        self.assertEqual(status, 0, again)
        self.assertEqual(again["kld"], found["kld"])
        self.assertEqual([s["nll_source"] for s in again["samples"]], [s["nll_source"] for s in found["samples"]])


class OwnConfig(Case):
    """The output is run by its own config.json, and a difference to the source's is named."""

    def compare(self, name, model_type, options, change, what):
        source, model, ids, inputs = self.prepare("own-" + name, model_type, options)
        before = self.evaluate(source, inputs, "--acts", "none")["kld"]["mean"]
        edit(source + "-q", change)
        edit(source + "-d", change)
        found = self.evaluate(source, inputs, "--acts", "none")
        kld = mean_kld(log_probs(model, ids), log_probs(load(source + "-d"), ids))
        self.assertAlmostEqual(found["kld"]["mean"] / kld, 1, delta=0.01, msg=name)
        self.assertGreater(found["kld"]["mean"], 1.01 * before)
        self.assertIn(what, found["config_differences"])
        self.assertIn("config-differs", [w["id"] for w in found["warnings"]])


class LeftOut(Case):
    """Keys that config.json may leave out, with the values that transformers' classes give them."""

    def compare(self, model_type, options, key, nested=None):
        name = f"left-out-{model_type}-{key}"
        directory, _ = make(name, model_type, options)

        def drop(config):
            self.assertIn(key, config)
            del config[key]
        edit(directory, drop)
        model = load(directory)
        ids = samples(options["vocab_size"])
        inputs = write_inputs(directory + ".inputs.safetensors", ids)
        status, _, err = c.fp8q("quantize", directory, directory + "-q", "-q")
        self.assertEqual(status, 0, err)
        found = self.evaluate(directory, inputs, "--acts", "none")
        for p, i, sample in zip(log_probs(model, ids), ids, found["samples"]):
            self.assertAlmostEqual(sample["nll_source"], -p.gather(1, i[1:, None]).mean().item(), delta=5e-5, msg=name)

    def test_keys(self):
        small = {k: v for k, v in SMALL.items() if k != "head_dim"} | dict(head_dim=64)
        for model_type, options, keys in (
                ("llama", small, ["rms_norm_eps", "rope_parameters", "hidden_act", "attention_bias", "mlp_bias", "head_dim"]),
                ("llama", small | dict(num_key_value_heads=4), ["num_key_value_heads"]),
                ("mistral", small, ["sliding_window", "rope_parameters"]),
                ("qwen2", small, ["use_sliding_window", "layer_types"]),
                ("mixtral", small | dict(num_local_experts=8, rms_norm_eps=1e-5), ["num_local_experts", "rms_norm_eps"]),
                ("gemma2", small, ["attn_logit_softcapping", "final_logit_softcapping", "layer_types", "sliding_window",
                                   "query_pre_attn_scalar"]),
                ("gemma3_text", small | dict(sliding_window=24, num_hidden_layers=7), ["layer_types", "rope_parameters"]),
                ("olmo3", small | dict(sliding_window=24, num_hidden_layers=5), ["layer_types", "rope_parameters"]),
                ("ernie4_5", small, ["rope_parameters", "use_bias", "rms_norm_eps"]),
                ("seed_oss", small, ["attention_bias", "attention_out_bias", "rope_parameters"]),
                ("ministral", small | dict(sliding_window=24), ["layer_types", "rope_parameters"]),
                ("smollm3", small | dict(num_hidden_layers=4), ["no_rope_layers", "rope_parameters"]),
                ("granite", CASES["granite"][1], ["embedding_multiplier", "residual_multiplier", "attention_multiplier"]),
                ("phi3", CASES["phi3"][1], ["rms_norm_eps"]),
                ("glm4", small, ["attention_bias", "rms_norm_eps"])):
            for key in keys:
                with self.subTest(f"{model_type} {key}"):
                    self.compare(model_type, options, key)

    def test_tied_or_not(self):
        for tied in (True, False):
            directory, model = make(f"left-out-tied-{tied}", "llama", SMALL | dict(tie_word_embeddings=tied))
            edit(directory, lambda config: config.pop("tie_word_embeddings"))
            ids = samples(SMALL["vocab_size"])
            inputs = write_inputs(directory + ".inputs.safetensors", ids)
            self.assertEqual(c.fp8q("quantize", directory, directory + "-q", "-q")[0], 0)
            found = self.evaluate(directory, inputs, "--acts", "none")
            for p, i, sample in zip(log_probs(model, ids), ids, found["samples"]):
                self.assertAlmostEqual(sample["nll_source"], -p.gather(1, i[1:, None]).mean().item(), delta=5e-5)


class Wrappers(Case):
    """The text parts of VLMs, in the layouts that their checkpoints have."""

    def wrapped(self, name, model_class, config, nested="text_config", prefix=None, positions=None):
        directory = os.path.join(c.WORK, "wrap-" + name)
        config._attn_implementation = "eager"
        torch.manual_seed(1)
        model = shaken(model_class(config).float().eval(), len(name))
        model.save_pretrained(directory)
        ids = samples(config.get_text_config().vocab_size - 20)
        tensors = {f"{i}.input_ids": x for i, x in enumerate(ids)}
        if prefix:
            tensors |= {f"{i}.prefix_len": torch.tensor([prefix(len(x))]) for i, x in enumerate(ids)}
        if positions:
            tensors |= {f"{i}.position_ids": positions(len(x)) for i, x in enumerate(ids)}
        inputs = directory + ".inputs.safetensors"
        save_file(tensors, inputs, metadata={"dataset": "random"})
        status, _, err = c.fp8q("quantize", directory, directory + "-q", "-q")
        self.assertEqual(status, 0, err)
        found = self.evaluate(directory, inputs, "--acts", "none")
        with torch.no_grad():
            for i, (x, sample) in enumerate(zip(ids, found["samples"])):
                options = {}
                if prefix:
                    types = torch.ones_like(x)
                    types[:prefix(len(x))] = 0
                    options["token_type_ids"] = types[None]
                if positions:
                    options["position_ids"] = positions(len(x))[:, None]
                logits = model(input_ids=x[None], **options).logits[0].double()
                p = torch.log_softmax(logits, -1)[:-1]
                nll = -p.gather(1, x[1:, None])[:, 0]
                if prefix:
                    nll = nll[max(prefix(len(x)) - 1, 0):]
                self.assertAlmostEqual(sample["nll_source"], nll.mean().item(), delta=5e-5, msg=f"{name} {i}")

    def test_paligemma(self):
        config = transformers.PaliGemmaConfig(text_config=SMALL | dict(model_type="gemma"), vision_config=VISION,
                                              image_token_id=319, projection_dim=256, vocab_size=320)
        self.wrapped("paligemma", transformers.PaliGemmaForConditionalGeneration, config,
                     prefix=lambda n: n // 2)
        self.wrapped("paligemma-short", transformers.PaliGemmaForConditionalGeneration, config, prefix=lambda n: 1)

    def test_paligemma2(self):
        config = transformers.PaliGemmaConfig(text_config=SMALL | dict(model_type="gemma2", sliding_window=512),
                                              vision_config=VISION, image_token_id=319, projection_dim=256)
        self.wrapped("paligemma2", transformers.PaliGemmaForConditionalGeneration, config, prefix=lambda n: n - 12)

    def test_llava(self):
        for kind in ("llama", "mistral", "qwen2"):
            config = transformers.LlavaConfig(text_config=SMALL | dict(model_type=kind), vision_config=VISION,
                                              image_token_index=319)
            self.wrapped("llava-" + kind, transformers.LlavaForConditionalGeneration, config)

    def test_gemma3(self):
        config = transformers.Gemma3Config(text_config=CASES["gemma3"][1] | dict(model_type="gemma3_text"),
                                           vision_config=VISION, image_token_index=319, mm_tokens_per_image=4)
        self.wrapped("gemma3", transformers.Gemma3ForConditionalGeneration, config)

    def test_qwen3_vl(self):
        text = SMALL | dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                             "mrope_section": [16, 8, 8], "mrope_interleaved": True})
        config = transformers.Qwen3VLConfig(
            text_config=text, vision_config=dict(depth=1, hidden_size=64, intermediate_size=64, num_heads=2,
                                                 out_hidden_size=256, deepstack_visual_indexes=[0]))
        self.wrapped("qwen3-vl", transformers.Qwen3VLForConditionalGeneration, config)
        self.wrapped("qwen3-vl-rows", transformers.Qwen3VLForConditionalGeneration, config,
                     positions=lambda n: torch.stack([torch.arange(n), torch.arange(n) // 3, torch.arange(n) % 7]))

    def test_qwen3_vl_moe(self):
        """Stacked experts, outputs before inputs as transformers 5 saves them and the other way round as published."""
        for name, width in (("qwen3-vl-moe", 384), ("qwen3-vl-moe-gate-square", 128), ("qwen3-vl-moe-down-square", 256)):
            config = transformers.Qwen3VLMoeConfig(
                text_config=EXPERTS | dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                            "mrope_section": [16, 8, 8], "mrope_interleaved": True},
                                           num_local_experts=8, moe_intermediate_size=width),
                vision_config=dict(depth=1, hidden_size=64, intermediate_size=64, num_heads=2, out_hidden_size=256,
                                   deepstack_visual_indexes=[0]))
            self.wrapped(name, transformers.Qwen3VLMoeForConditionalGeneration, config,
                         positions=lambda n: torch.stack([torch.arange(n), torch.arange(n) // 3, torch.arange(n) % 7]))
            source, inputs = os.path.join(c.WORK, "wrap-" + name), os.path.join(c.WORK, "wrap-" + name + ".inputs.safetensors")
            self.transpose_stacks(source, source + "-t")
            status, _, err = c.fp8q("quantize", source + "-t", source + "-t-q", "-q")
            self.assertEqual(status, 0, err)
            as_saved, published = self.evaluate(source, inputs, "--acts", "none"), self.evaluate(source + "-t", inputs, "--acts", "none")
            self.assertEqual([s["nll_source"] for s in published["samples"]], [s["nll_source"] for s in as_saved["samples"]])
            if width == 384:  # else transformers itself cannot tell which way a stack lies
                self.assertEqual(stack_shape("wrap-" + name + "-t", "model.language_model.layers.0.mlp.experts.gate_up_proj"),
                                 [8, 256, 768])
                self.compare_published(source, source + "-t", transformers.Qwen3VLMoeForConditionalGeneration)

    def compare_published(self, source, published, model_class):
        """KLD of what is quantized in the published layout, against transformers on the dequantized output."""
        status, _, err = c.fp8q("dequantize", published + "-q", published + "-d", "--dtype", "f32", "-q")
        self.assertEqual(status, 0, err)
        ids = samples(300)
        inputs = write_inputs(published + ".inputs.safetensors", ids)
        found = self.evaluate(published, inputs, "--acts", "none")
        self.assertGreater(found["quantized_linears"], 3 * 8 * 3)
        loaded = [model_class.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
                  for path in (source, published + "-d")]
        kld = mean_kld(*(log_probs(model, ids) for model in loaded))
        self.assertAlmostEqual(found["kld"]["mean"] / kld, 1, delta=0.01)

    def transpose_stacks(self, source, target):
        shutil.copytree(source, target)
        file = os.path.join(target, "model.safetensors")
        with safe_open(file, "pt") as f:
            tensors = {k: f.get_tensor(k) for k in f.keys()}
        for key in [k for k in tensors if ".mlp.experts." in k]:
            tensors[key] = tensors[key].transpose(1, 2).contiguous()
        save_file(tensors, file, metadata={"format": "pt"})

    def test_deepstack(self):
        """Embeddings with images in them, three rows of positions, and rows that join behind layers 0 and 1."""
        text = SMALL | dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                             "mrope_section": [16, 8, 8], "mrope_interleaved": True})
        config = transformers.Qwen3VLConfig(
            text_config=text, vision_config=dict(depth=1, hidden_size=64, intermediate_size=64, num_heads=2,
                                                 out_hidden_size=256, deepstack_visual_indexes=[0]))
        directory = os.path.join(c.WORK, "wrap-deepstack")
        config._attn_implementation = "eager"
        torch.manual_seed(1)
        model = shaken(transformers.Qwen3VLForConditionalGeneration(config).float().eval(), 3)
        model.save_pretrained(directory)
        status, _, err = c.fp8q("quantize", directory, directory + "-q", "-q")
        self.assertEqual(status, 0, err)
        generator = torch.Generator().manual_seed(9)
        n, seen = 60, slice(10, 46)
        visual = torch.zeros(n, dtype=torch.bool)
        visual[seen] = True
        embeds = torch.randn(n, 256, generator=generator)
        deep = [torch.randn(36, 256, generator=generator) for _ in range(2)]
        positions = torch.stack([torch.arange(n), torch.arange(n) // 2, torch.arange(n) % 9])
        labels = torch.randint(0, 300, (n,), generator=generator)
        tensors = {"0.inputs_embeds": embeds, "0.position_ids": positions, "0.labels": labels,
                   "0.modality": visual.to(torch.uint8)}
        for k, rows in enumerate(deep):
            tensors[f"0.deepstack.{k}"] = torch.zeros(n, 256)
            tensors[f"0.deepstack.{k}"][seen] = rows
        inputs = directory + ".inputs.safetensors"
        save_file(tensors, inputs)
        with torch.no_grad():
            hidden = model.model.language_model(inputs_embeds=embeds[None], position_ids=positions[:, None],
                                                visual_pos_masks=visual[None], deepstack_visual_embeds=deep)[0]
            p = torch.log_softmax(model.lm_head(hidden)[0].double(), -1)[:-1]
        nll = -p.gather(1, labels[1:, None]).mean().item()
        found = self.evaluate(directory, inputs, "--acts", "none")
        self.assertAlmostEqual(found["samples"][0]["nll_source"], nll, delta=5e-5)
        again = directory + ".again.inputs.safetensors"
        status, _, err = c.fp8q("eval", directory, directory + "-q", "--inputs", inputs, "--dump-inputs", again)
        if status == 0:
            self.assertAlmostEqual(self.evaluate(directory, again, "--acts", "none")["kld"]["mean"],
                                   found["kld"]["mean"], delta=1e-12)

    def test_mistral3(self):
        config = transformers.Mistral3Config(text_config=SMALL | dict(model_type="mistral", sliding_window=None),
                                             vision_config=VISION | dict(model_type="pixtral", head_dim=32),
                                             image_token_index=319)
        self.wrapped("mistral3", transformers.Mistral3ForConditionalGeneration, config)

    def test_smolvlm(self):
        config = transformers.SmolVLMConfig(text_config=SMALL | dict(model_type="llama"), vision_config=VISION,
                                            image_token_id=319, scale_factor=1)
        self.wrapped("smolvlm", transformers.SmolVLMForConditionalGeneration, config)


# ---------------------------------------------------------------- activations as served

def e4m3(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def by_block(x, pow2=False):
    out = []
    for group in x.split(128, -1):
        amax = group.abs().amax(-1, keepdim=True)
        scale = torch.where(amax == 0, torch.ones_like(amax), amax / 448)
        if pow2:
            scale = torch.exp2(torch.ceil(torch.log2(scale)))
        out.append(e4m3(group / scale) * scale)
    return torch.cat(out, -1)


def by_group(x):
    """MXFP8 as vLLM's reference in torch has it."""
    groups = x.unflatten(-1, (-1, 32))
    amax = groups.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    scale = torch.exp2(torch.ceil(torch.log2(amax / 448)).clamp(min=-127))
    return (e4m3(groups / scale) * scale).flatten(-2)


def by_token(x):
    amax = x.abs().amax(-1, keepdim=True)
    scale = torch.where(amax == 0, torch.ones_like(amax), amax / 448)
    return e4m3(x / scale) * scale


class Served(Case):
    """--acts served does what config.json and tensors of DST say."""

    def compare(self, name, fake, text, prepare=None, quantize=()):
        """@fake(module name, input): what an engine does; @prepare changes DST after it was made."""
        source, model, ids, inputs = self.prepare("served-" + name, "llama", SMALL, *quantize)
        if prepare:
            prepare(source + "-q")
        found = self.evaluate(source, inputs)
        back = load(source + "-d")
        for module_name, module in back.named_modules():
            if module_name.endswith("_proj"):
                module.register_forward_pre_hook(lambda m, a, n=module_name: (fake(n, a[0]),) + a[1:])
        kld = mean_kld(log_probs(model, ids), log_probs(back, ids))
        self.assertAlmostEqual(found["kld"]["mean"] / kld, 1, delta=0.06, msg=name)
        self.assertEqual(found["acts_served"], text)
        return found["kld"]["mean"]

    def test_block(self):
        self.compare("block", lambda n, x: by_block(x), "per token and 128 channels")

    def test_ue8m0(self):
        self.compare("ue8m0", lambda n, x: by_block(x, True), "per token and 128 channels, scales powers of two",
                     quantize=("--scale-fmt", "ue8m0"))

    def test_group(self):
        for dialect in ("compressed-tensors", "fp8"):
            self.compare("group-" + dialect, lambda n, x: by_group(x),
                         "per token and 32 channels, scales powers of two",
                         quantize=("--scheme", "MXFP8", "--format", dialect))

    def test_token(self):
        self.compare("token", lambda n, x: by_token(x), "per token",
                     quantize=("--format", "compressed-tensors", "--scheme", "FP8_DYNAMIC"))

    def test_tensor(self):
        self.compare("tensor", lambda n, x: by_token(x), "per token",
                     quantize=("--format", "compressed-tensors", "--scheme", "FP8"))

    def test_weights_only(self):
        def no_inputs(directory):
            def change(config):
                for group in config["quantization_config"]["config_groups"].values():
                    group["input_activations"] = None
            edit(directory, change)
        self.compare("w8a16", lambda n, x: x, "left as they are", no_inputs, ("--format", "compressed-tensors"))

    def static(self, name, scale_of):
        """Every linear has a static scale; those that share an input are served with the largest."""
        def prepare(directory):
            file = os.path.join(directory, c.SIDECAR)
            with safe_open(file, "pt") as f:
                tensors = {k: f.get_tensor(k) for k in f.keys()}
            linears = [key[:-len(".weight_scale_inv")] for key in tensors]
            scales = {n + ".input_scale": torch.tensor([scale_of(n)]) for n in linears}
            save_file(tensors | scales, file, metadata={"format": "pt"})  # another tool's: no manifest
            edit_json(os.path.join(directory, c.INDEX),
                      lambda index: index["weight_map"].update(dict.fromkeys(scales, c.SIDECAR)))
            edit(directory, lambda config: config["quantization_config"].update(activation_scheme="static"))

        def fake(linear, x):
            mates = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": ("gate", "up"), "up": ("gate", "up")}
            stem, last = linear.rsplit(".", 1)
            names = mates.get(last[:-5], (last[:-5],))
            scale = max(scale_of(f"{stem}.{n}_proj") for n in names)
            return e4m3(x / scale) * scale
        return self.compare(name, fake, "static scales", prepare)

    def test_static(self):
        self.static("static", lambda n: 0.01 if n.endswith(("k_proj", "up_proj")) else 0.006)

    def test_static_that_saturates(self):
        small = self.static("static-small", lambda n: 0.0006)
        large = self.static("static-fits", lambda n: 0.01)
        self.assertGreater(small, 3 * large)

    def test_a_missing_static_scale(self):
        source, _, _, inputs = self.prepare("static-missing", "llama", SMALL)
        edit(source + "-q", lambda config: config["quantization_config"].update(activation_scheme="static"))
        status, found = c.fp8q_json("eval", source, source + "-q", "--inputs", inputs)
        self.assertEqual((status, found["error"]["id"]), (3, "input-scale"))
        self.assertIn("q_proj.input_scale", found["error"]["message"])


# ---------------------------------------------------------------- experts: what they are given

def expert_inputs(model, ids, fake=lambda name, x: x):
    """Log-probabilities of @ids, and by name of its gate or down the rows that each expert was given, with @fake applied
    to every input of an expert and to those of other linears that are not the router's."""
    seen, handles, saved = {}, [], []

    def run(experts, name):
        def forward(hidden, index, weights):
            out = torch.zeros_like(hidden)
            for e in range(experts.num_experts):
                token, k = torch.where(index == e)
                if not len(token):
                    continue
                x = hidden[token]
                seen.setdefault(f"{name}.{e}.gate_proj", []).append(x)
                gate, up = torch.nn.functional.linear(fake(f"{name}.{e}.gate_proj", x), experts.gate_up_proj[e]).chunk(2, -1)
                x = experts.act_fn(gate) * up
                seen.setdefault(f"{name}.{e}.down_proj", []).append(x)
                x = torch.nn.functional.linear(fake(f"{name}.{e}.down_proj", x), experts.down_proj[e])
                out.index_add_(0, token, x * weights[token, k, None])
            return out
        return forward

    for name, module in model.named_modules():
        if name.endswith(".mlp.experts"):
            saved.append((module, module.forward))
            module.forward = run(module, name)
        elif name.endswith("_proj"):
            handles.append(module.register_forward_pre_hook(lambda m, a, n=name: (fake(n, a[0]),) + a[1:]))
    with torch.no_grad():
        logs = [torch.log_softmax(model(input_ids=i[None]).logits[0].double(), -1)[:-1] for i in ids]
    for handle in handles:
        handle.remove()
    for module, forward in saved:
        module.forward = forward
    return logs, {name: torch.cat(rows) for name, rows in seen.items()}


class Experts(Case):
    """Statistics of experts, and mixtures as served, against inputs gathered in torch."""

    def calibrated(self, name, case, *options):
        model_type, settings = CASES[case]
        source, model = make(name, model_type, settings)
        ids = samples(settings["vocab_size"])
        inputs = write_inputs(source + ".inputs.safetensors", ids)
        status, found = c.fp8q_json("calibrate", source, "--inputs", inputs, "-o", source + ".calib.safetensors",
                                    "--overwrite", *options)
        self.assertEqual(status, 0, found)
        with safe_open(source + ".calib.safetensors", "pt") as f:
            return source, model, ids, inputs, found, {k: f.get_tensor(k) for k in f.keys()}

    def compare(self, case):
        source, model, ids, _, found, calib = self.calibrated("experts-" + case, case)
        _, seen = expert_inputs(model, ids)
        self.assertEqual(sorted(k[:-6] for k in calib if ".experts." in k and k.endswith(".count")), sorted(seen))
        few = []
        for name, rows in seen.items():
            n = int(calib[name + ".count"].sum())
            self.assertEqual(n, len(rows), name)
            torch.testing.assert_close(calib[name + ".sumsq"].sum(0), rows.square().sum(0), rtol=2e-3, atol=1e-6)
            torch.testing.assert_close(calib[name + ".absmax"].amax(0), rows.abs().amax(0), rtol=1e-3, atol=1e-6)
            unit = rows / rows.norm(dim=-1, keepdim=True)
            moments = calib[name + ".hblk"] + calib[name + ".hblk_held"]
            torch.testing.assert_close(moments[0], unit[:, :128].T @ unit[:, :128], rtol=2e-3, atol=1e-5)
            self.assertEqual(int(calib[name + ".hblk_count"].sum()), n)
            if calib[name + ".hblk_count"][0] < 128:
                few.append(name)
        self.assertEqual(sorted(found["few_tokens"]), sorted(few))
        self.assertGreater(len(few), 0)

    def test_statistics(self):
        self.compare("qwen3-moe")

    def test_statistics_of_shared_and_latent(self):
        self.compare("deepseek-v3")

    def test_statistics_do_not_depend_on_threads(self):
        for options in (("--threads", "1"), ("--threads", "2")):
            source, _, _, _, _, _ = self.calibrated("experts-threads", "qwen2-moe", *options)
            with open(source + ".calib.safetensors", "rb") as f:
                data = f.read()
            header = int.from_bytes(data[:8], "little")
            self.assertEqual(data[8 + header:], self.__dict__.setdefault("first", data[8 + header:]))

    def served(self, name, fake, text, *quantize):
        source, model, ids, inputs, _, calib = self.calibrated("experts-served-" + name, "qwen3-moe", "--no-moments")
        if "FP8_STATIC" in quantize:
            self.make_loud(source + ".calib.safetensors", calib)
            quantize += ("--calibration", source + ".calib.safetensors")
        status, _, err = c.fp8q("quantize", source, source + "-q", "-q", "--overwrite", *quantize)
        self.assertEqual(status, 0, err)
        status, _, err = c.fp8q("dequantize", source + "-q", source + "-d", "--dtype", "f32", "-q")
        self.assertEqual(status, 0, err)
        status, _, err = c.fp8q("verify", source + "-q", "--source", source, "-q")
        self.assertEqual(status, 0, err)
        found = self.evaluate(source, inputs)
        expected, _ = expert_inputs(load(source + "-d"), ids, lambda n, x: fake(calib, n, x))
        kld = mean_kld(log_probs(model, ids), expected)
        self.assertAlmostEqual(found["kld"]["mean"] / kld, 1, delta=0.02)
        self.assertEqual(found["acts_served"], text)

    def swept(self, source, inputs, *options):
        status, found = c.fp8q_json("sweep", source, "--inputs", inputs, "--acts", "none", *options)
        self.assertEqual(status, 0, found)
        return found

    def as_written(self, source, inputs, target, *quantize):
        """KLD of what quantize really writes, and its bytes."""
        status, _, err = c.fp8q("quantize", source, target, "-q", "--overwrite", *quantize)
        self.assertEqual(status, 0, err)
        status, found = c.fp8q_json("eval", source, target, "--inputs", inputs, "--acts", "none")
        self.assertEqual(status, 0, found)
        size = 0
        for file in c.weight_files(target):
            with safe_open(file, "pt") as f:
                size += sum(f.get_tensor(k).nbytes for k in f.keys())
        return found["kld"]["mean"], size

    def sweep(self, source, others):
        """Each prediction is what a written checkpoint shows; @others: what is no expert."""
        inputs = write_inputs(source + ".inputs.safetensors", samples(300))
        found = self.swept(source, inputs, "--by", "kind")
        units = {u["name"]: u for u in found["units"]}
        kld, size = self.as_written(source, inputs, source + "-q")
        self.assertAlmostEqual(found["all"]["measured"] / kld, 1, delta=1e-4)
        self.assertEqual(found["source_bytes"] - sum(u["bytes_saved"] for u in units.values()), size)
        kld, size = self.as_written(source, inputs, source + "-e", *(o for other in others for o in ("--ignore", other)))
        self.assertAlmostEqual(units["all experts"]["kld"] / kld, 1, delta=1e-4)
        self.assertEqual(found["source_bytes"] - units["all experts"]["bytes_saved"], size)

        found = self.swept(source, inputs, "--by", "site", "--budget-kld", str(found["all"]["measured"] * 0.1),
                           "-o", source + ".keep", "--overwrite")
        self.assertTrue(found["chosen"]["met"])
        with open(source + ".keep", encoding="utf-8") as f:
            self.assertIn(".experts\n", f.read())
        kld, size = self.as_written(source, inputs, source + "-k", "--ignore-file", source + ".keep")
        self.assertAlmostEqual(found["chosen"]["measured"] / kld, 1, delta=1e-4)
        self.assertEqual(found["chosen"]["bytes"], size)

    def test_sweep(self):
        self.sweep(make("experts-sweep", *CASES["qwen3-moe"])[0], ["self_attn"])

    def test_sweep_shared(self):
        source, _ = make("experts-sweep-shared", *CASES["qwen2-moe"])
        self.sweep(source, ["self_attn", "mlp.shared_expert"])

    def test_sweep_latent(self):
        source, _ = make("experts-sweep-latent", *CASES["deepseek-v3"])
        self.sweep(source, ["self_attn", "mlp.shared_experts", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"])

    def test_block(self):
        self.served("block", lambda calib, n, x: by_block(x), "per token and 128 channels")

    def test_mxfp8(self):
        self.served("mxfp8", lambda calib, n, x: by_group(x), "per token and 32 channels, scales powers of two",
                    "--scheme", "MXFP8", "--format", "compressed-tensors")

    def make_loud(self, path, calib):
        """One expert of each layer claims larger inputs, so that it matters whose scale engines take: the largest."""
        for name in calib:
            if ".experts.3." in name and name.endswith(".absmax"):
                calib[name] *= 1e5
        with safe_open(path, "pt") as f:
            metadata = f.metadata()
        save_file(calib, path, metadata=metadata)

    def test_static(self):
        def fake(calib, name, x):
            site = name.replace("k_proj", "q_proj").replace("v_proj", "q_proj").replace("up_proj", "gate_proj")
            head, _, tail = site.partition(".experts.")
            names = [k[:-7] for k in calib if k.startswith(head + ".experts.") and k.endswith(tail.split(".")[-1] + ".absmax")
                     ] if tail else [site]
            scale = max(calib[n + ".absmax"].amax() for n in names) / 448
            return e4m3(x / scale) * scale
        self.served("static", fake, "static scales", "--scheme", "FP8_STATIC", "--format", "compressed-tensors")


def add(case, name, *arguments):
    setattr(case, "test_" + name.replace("-", "_").replace(".", "_"), lambda self: self.compare(name, *arguments))


for key, value in CASES.items():
    add(Forward, key, *value)
for key, value in OWN.items():
    add(OwnConfig, key, *value)

if __name__ == "__main__":
    unittest.main()
