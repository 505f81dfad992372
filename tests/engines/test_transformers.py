"""from_pretrained of the output, on a CPU, where transformers dequantizes.

For each checkpoint the loaded model must hold the values of an independent dequantization bit for bit (rounded
once to the model's dtype), and give the same logits, bit for bit, as the source model into which those values
were put.  qwen3-vl-moe is left out: transformers 5.17 reports its 3-D scales as unexpected and reads bare codes.
"""
import os
import re

import transformers
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

from common import *
from test_matchers import RECIPES

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

#   checkpoint: class, dtype, unexpected names (roots that transformers leaves out)
MODELS = {
    "llama-tied": ("LlamaForCausalLM", BF16, ""),
    "llama-untied": ("LlamaForCausalLM", BF16, ""),
    "llama-f16": ("LlamaForCausalLM", F16, r"inv_freq$"),
    "llama-f32": ("LlamaForCausalLM", F32, r"self_attn\.indexer\.wq_b\.weight$"),
    "qwen2": ("Qwen2ForCausalLM", BF16, ""),
    "qwen2.5-vl-new": ("Qwen2_5_VLForConditionalGeneration", BF16, ""),
    "qwen2.5-vl-old": ("Qwen2_5_VLForConditionalGeneration", BF16, ""),
    "qwen3": ("Qwen3ForCausalLM", BF16, ""),
    "qwen3-moe": ("Qwen3MoeForCausalLM", BF16, ""),
    "qwen3-next": ("Qwen3NextForCausalLM", BF16, r"^mtp\."),
    "qwen3.5-moe": ("Qwen3_5MoeForConditionalGeneration", BF16, r"^mtp\."),
    "mixtral": ("MixtralForCausalLM", BF16, ""),
    "deepseek-v3": ("DeepseekV3ForCausalLM", BF16, r"^model\.layers\.2\."),
    "phi3": ("Phi3ForCausalLM", BF16, ""),
    "phi3-ragged-parts": ("Phi3ForCausalLM", BF16, ""),
    "gemma3-text": ("Gemma3ForCausalLM", BF16, ""),
    "paligemma": ("PaliGemmaForConditionalGeneration", BF16, ""),
    "idefics3": ("Idefics3ForConditionalGeneration", BF16, ""),
    "internvl-hf": ("InternVLForConditionalGeneration", BF16, ""),
    "llama4-text": ("Llama4ForCausalLM", BF16, ""),
}
# Nothing can be quantized by default: these run with --unaligned per-channel in test_compressed_tensors.
LEFT_OUT = {"qwen3-vl-moe", "smolvlm-ragged", "gpt-oss", "deepseek-v3-fp8", "qwen3-fp8-ct"}


def load(path, name):
    cls, dtype, _ = MODELS[name]
    model, info = getattr(transformers, cls).from_pretrained(path, dtype=dtype, output_loading_info=True)
    return model.eval(), info


def reference_model(name, ue8m0=False):
    """The source with its quantized weights replaced by what the codes mean, by the reference's arithmetic."""
    source, actions = read(source_of(name)), expected()[name]
    replaced = {}
    for tensor, value in source.items():
        if actions[tensor][2] == "quantize":
            value = ref.dequantize(*ref.quantize_block(value, ue8m0), dtype=value.dtype)
        replaced[tensor] = value
    path = make(replaced)
    for file in os.listdir(checkpoint(name)):
        if file.endswith(".json") and file != INDEX:
            os.link(os.path.join(checkpoint(name), file), os.path.join(path, file))
    return load(path, name)[0]


def logits(model):
    ids = torch.tensor([[5, 17, 3, 99, 42, 7, 64, 11, 2, 31]])
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


class Transformers(Case):
    def test_complete(self):
        """Every checkpoint whose architecture transformers has is here, or named above."""
        for name in expected():
            path = os.path.join(checkpoint(name), "config.json")
            if not os.path.exists(path):
                continue
            architecture = (config(checkpoint(name)).get("architectures") or [""])[0]
            if hasattr(transformers, architecture):
                self.check(name in MODELS or name in LEFT_OUT, f"{name} is not tested")

    def one(self, name, *options):
        out = quantized(source_of(name), *options)
        loaded, info = load(out, name)
        unexpected = MODELS[name][2]
        for kind, keys in info.items():
            if kind == "unexpected_keys" and unexpected:
                keys = [k for k in keys if not re.search(unexpected, k)]
            self.check(not keys, f"{name}: {kind}: {sorted(keys)[:3]}")
        wanted = reference_model(name, "ue8m0" in options)
        state = loaded.state_dict()
        for tensor, value in wanted.state_dict().items():
            self.same_bytes(state[tensor], value, f"{name}: {tensor}")
        a, b = logits(loaded), logits(wanted)
        self.check(bool(a.isfinite().all()) and a.numel() > 0, f"{name}: logits")
        self.same_bytes(a, b, f"{name}: logits")

    def test_differs_from_source(self):
        """Logits are not compared with themselves: the source's differ a little."""
        source = logits(load(checkpoint("llama-untied"), "llama-untied")[0]).float()
        ours = logits(load(quantized(source_of("llama-untied")), "llama-untied")[0]).float()
        error = ((ours - source).norm() / source.norm()).item()
        self.check(0 < error < 0.2, f"relative difference {error}")


    def test_variants(self):
        """Other placements and scale formats, where the layout on disk is the most varied."""
        for name in ("qwen2.5-vl-old", "qwen3-moe", "llama-untied"):
            for options in (("--scales", "inline"), ("--scale-fmt", "ue8m0"), ("--max-shard-size", "300kB")):
                with self.subTest(f"{name} {options}"):
                    self.one(name, *options)


class Fp8Modules(Case):
    """The same with FP8 modules, as on a GPU: transformers' own reading of the exclusion list.

    Nothing is computed.  A kept weight that the list lacks leaves a scale without a value (missing key); a
    quantized one that the list names leaves a scale without a place (unexpected key).
    """

    def setUp(self):
        kept = {n: getattr(FineGrainedFP8HfQuantizer, n) for n in ("validate_environment", "update_device_map")}
        FineGrainedFP8HfQuantizer.validate_environment = lambda self, *args, **kwargs: None
        FineGrainedFP8HfQuantizer.update_device_map = lambda self, device_map: device_map
        self.addCleanup(lambda: [setattr(FineGrainedFP8HfQuantizer, n, f) for n, f in kept.items()])

    def one(self, name, *options):
        out = quantized(source_of(name), *options)
        model, info = load(out, name)
        for kind, keys in info.items():
            keys = [k for k in keys if not re.search(MODELS[name][2] or "^$", k)]
            self.check(not keys, f"{name} {options}: {kind}: {sorted(keys)[:3]}")
        state, stored = model.state_dict(), read(out)
        mine = {decoder_name(n): t for n, t in stored.items()}
        codes = [n for n, t in state.items() if t.dtype == F8]
        self.check(len(codes) > 0, name)
        for n in codes:
            self.check(n + "_scale_inv" in state, f"{name}: {n}: no scale")
            if ".experts." not in n:
                for suffix in ("", "_scale_inv"):
                    self.same_bytes(state[n + suffix], mine[decoder_name(n) + suffix], f"{name}: {n}{suffix}")

    def test_defaults(self):
        for name in MODELS:
            with self.subTest(name):
                self.one(name)

    def test_recipes(self):
        for name, pattern in RECIPES:
            if name in MODELS:
                with self.subTest(f"{name} {pattern}"):
                    self.one(name, "--ignore", pattern)


def decoder_name(tensor):
    """Without what differs between the older and newer names of a VLM."""
    return re.sub(r"^(model\.)?(language_model\.)?(model\.)?(?=layers)", "", tensor)


def add_test(name):
    setattr(Transformers, "test_" + re.sub(r"\W", "_", name), lambda self: self.one(name))


for model in MODELS:
    add_test(model)

if __name__ == "__main__":
    main(at_least=2600)
