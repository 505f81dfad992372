"""The exclusion lists, read by the matchers of each engine over every module of every checkpoint.

Quantized exactly where the tensors are: a module that an engine builds as FP8 must have codes and a scale on disk,
one that it builds in high precision must not, and the parts of a merged module must agree.
"""
import re

import engines
from common import *

NOTHING = {"smolvla", "smolvlm-ragged", "gpt-oss", "unknown-family", "deepseek-v3-fp8", "qwen3-fp8-ct"}

# What vLLM's classes rename; the last rule is for the older names of the same models.
VLM = (("model.language_model.", "language_model.model."), ("model.visual.", "visual."),
       ("model.vision_tower.", "vision_tower."), ("model.multi_modal_projector.", "multi_modal_projector."))
MAPPERS = {"qwen2.5-vl-new": (*VLM, ("model.", "language_model.model.")),
           "qwen2.5-vl-old": (*VLM, ("model.", "language_model.model.")),
           "qwen3-vl-moe": VLM, "qwen3.5-moe": VLM, "paligemma": VLM, "internvl-hf": VLM}
# What transformers renames.
HF_OLD_VLM = (("language_model.model.", "model.language_model."), ("language_model.lm_head", "lm_head"),
              ("vision_tower.", "model.vision_tower."), ("multi_modal_projector.", "model.multi_modal_projector."))
HF_MAPPERS = {"qwen2.5-vl-old": (("visual.", "model.visual."), ("model.layers", "model.language_model.layers")),
              "paligemma": HF_OLD_VLM, "internvl-hf": HF_OLD_VLM}

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"],
         "in_proj_qkvz": ["in_proj_qkv", "in_proj_z"], "in_proj_ba": ["in_proj_b", "in_proj_a"],
         "fused_qkv_a_proj": ["q_a_proj", "kv_a_proj_with_mqa"]}
SGLANG_DEEPSEEK = {"fused_qkv_a_proj_with_mqa": ["q_a_proj", "kv_a_proj_with_mqa"]}

# Lists that a user's patterns make.
RECIPES = [("llama-tied", "layers.1"), ("llama-untied", "layers.0"), ("llama-untied", "down_proj"),
           ("qwen2", "self_attn"), ("qwen2.5-vl-new", "self_attn"), ("qwen2.5-vl-old", "self_attn"),
           ("qwen2.5-vl-old", "mlp"), ("qwen3-moe", "mlp.experts"), ("qwen3-moe", "re:.*layers\\.1\\."),
           ("qwen3-moe", "self_attn.q_proj"), ("qwen3-moe", "layers.0.mlp"), ("qwen3-next", "mtp"),
           ("qwen3-next", "linear_attn"), ("qwen3.5-moe", "linear_attn"), ("qwen3.5-moe", "experts"),
           ("qwen3.5-moe", "shared_expert"), ("qwen3-vl-moe", "experts"), ("qwen3-vl-moe", "self_attn"),
           ("mixtral", "experts.0"), ("mixtral", "self_attn"), ("deepseek-v3", "layers.2"),
           ("deepseek-v3", "shared_experts"), ("deepseek-v3", "mlp.experts"), ("phi3", "qkv_proj"),
           ("phi3", "mlp"), ("gemma3-text", "layers.1"), ("paligemma", "mlp.down_proj"), ("idefics3", "o_proj"),
           ("internvl-hf", "self_attn"), ("internvl-chat", "mlp"), ("openvla", "gate_proj"),
           ("gr00t-n1.5", "self_attn"), ("pi05-lerobot", "mlp"), ("llama4-text", "feed_forward")]


def runs():
    """(checkpoint, options): every checkpoint by its defaults, and the recipes."""
    for name in expected():
        if name not in NOTHING and name != "bare-file":
            yield name, ()
    for name, pattern in RECIPES:
        yield name, ("--ignore", pattern)


def is_linear(name, tensor):
    module = name.rpartition(".")[0]
    return name.endswith(".weight") and tensor.dim() == 2 and not re.search(
        r"embed|(norm\d?|token_table|lm_head|shared_head\.head|future_tokens)$", module)


def modules_of(tensors):
    """{module: whether it is quantized} for the linears; experts one by one, a stack as one module."""
    found = {n[:-len(".weight")]: t.dtype == F8 for n, t in tensors.items() if is_linear(n, t)}
    for name, tensor in tensors.items():
        if tensor.dim() == 3 and is_stack(name):
            found[name] = tensor.dtype == F8
    return found


def merged(modules, fused):
    """{module as an engine builds it: [quantized or not, of its parts]}"""
    whole = {part: last for last, parts in fused.items() for part in parts}
    built = {}
    for module, quantized_here in modules.items():
        head, _, last = module.rpartition(".")
        siblings = fused.get(whole.get(last), ())
        if ".experts." in module:
            built.setdefault(module[:module.index(".experts.") + len(".experts")], []).append(quantized_here)
        elif siblings and all(f"{head}.{s}" in modules for s in siblings):
            built.setdefault(f"{head}.{whole[last]}", []).append(quantized_here)
        else:
            built[module] = [quantized_here]
    return built


def respelt(modules, mapper):
    return {engines.renamed(m, mapper): q for m, q in modules.items()}


class Comparing(Case):
    """A matcher's answers against what lies on disk."""

    def compare(self, what, matcher, modules, fused, leave=None):
        for module, parts in merged(modules, fused).items():
            if leave and re.search(leave, module):
                continue
            self.check(len(set(parts)) == 1, f"{what}: {module}: parts differ: {parts}")
            try:
                skips = matcher.skips(module, fused)
            except engines.Split:
                self.fail(f"{what}: {module}: some but not all parts are listed")
            self.check(skips != parts[0], f"{what}: {module} is {'FP8' if parts[0] else 'high precision'} on disk, "
                                          f"the engine {'skips' if skips else 'quantizes'} it")

    def compare_compressed(self, what, matcher, modules, fused):
        """Experts are asked about one by one, under their own names, those of a stack too."""
        self.compare(what, matcher, {m: q for m, q in modules.items() if ".experts." not in m}, fused)
        for module, is_quantized in modules.items():
            if ".experts." in module:
                expert = module.rpartition(".")[0] + ".0.down_proj" if is_stack(module) else module
                self.check(matcher.one(expert) != is_quantized, f"{what}: {expert}")


class Matchers(Comparing):
    def over_all(self, check, *dialect):
        """Calls check(what, checkpoint, quantization_config, modules) for each output."""
        for name, options in runs():
            if dialect and name == "qwen3-vl-moe":
                continue                        # its stacks are no linears, so no target of the dialect meets them
            with self.subTest(f"{name} {options}"):
                out = quantized(source_of(name), *dialect, *options)
                check(f"{name} {' '.join(options)}", name, quantization(out), modules_of(read(out)))

    def fp8(self, check):
        self.over_all(check)

    def compressed(self, check):
        self.over_all(check, "--format", "compressed-tensors")

    def test_vllm(self):
        def check(what, name, settings, modules):
            mapper = MAPPERS.get(name, ())
            for newest in (False, True):
                self.compare(what, engines.VllmFp8(settings, mapper, newest), respelt(modules, mapper), FUSED)

        self.fp8(check)

    def test_vllm_before_0_10(self):
        """It knows the one key only."""
        def check(what, name, settings, modules):
            old = {"ignored_layers": settings["ignored_layers"]}
            mapper = MAPPERS.get(name, ())
            self.compare(what, engines.VllmFp8(old, mapper), respelt(modules, mapper), FUSED)

        self.fp8(check)

    def test_vllm_text_only(self):
        """The language model alone, under the names of a text model."""
        def check(what, name, settings, modules):
            text = text_only(modules)
            if text:
                self.compare(what, engines.VllmFp8(settings), text, FUSED)

        self.fp8(check)

    def test_sglang(self):
        def check(what, name, settings, modules):
            mapper = MAPPERS.get(name, ())
            for spelling in ((), mapper):
                built = {re.sub(r"\battn\.qkv$", "attn.qkv_proj", m): q for m, q in respelt(modules, spelling).items()}
                self.compare(what, engines.SglangFp8(settings, spelling), built, FUSED | SGLANG_DEEPSEEK)
            self.compare(what, engines.SglangFp8(settings), text_only(modules), FUSED | SGLANG_DEEPSEEK)

        self.fp8(check)

    def test_transformers_4(self):
        """Experts are modules of their own there."""
        def check(what, name, settings, modules):
            mapper = HF_MAPPERS.get(name, ())
            matcher = engines.Transformers4(settings)
            for module, is_quantized in respelt(modules, mapper).items():
                self.check(matcher.skips(module, {}) != is_quantized, f"{what}: {module}")

        self.fp8(check)

    def test_transformers_5(self):
        def check(what, name, settings, modules):
            mapper = HF_MAPPERS.get(name, ())
            for version in (engines.Transformers5, engines.Transformers524):
                matcher = version(settings, mapper)
                for module, parts in merged(respelt(modules, mapper), {}).items():
                    if not module.startswith("mtp."):
                        self.check(matcher.skips(module, {}) != parts[0], f"{what}: {module}")
                for module, parts in merged(text_only(modules), {}).items():
                    self.check(version(settings).skips(module, {}) != parts[0], f"{what}: {module}")

        self.fp8(check)

    def test_tensorrt(self):
        def check(what, name, settings, modules):
            for ancestors in (True, False):
                matcher = engines.TensorRt(settings, ancestors)
                for spelling in ((), HF_MAPPERS.get(name, ())):
                    # kv_b_proj is read as FP8 whatever the list says; merged modules go by their parts.
                    self.compare(what, matcher, respelt(modules, spelling), {}, leave=r"kv_b_proj$")

        self.fp8(check)

    def test_lmdeploy(self):
        def check(what, name, settings, modules):
            self.compare(what, engines.Lmdeploy(settings), modules, FUSED)

        self.fp8(check)

    def test_vllm_compressed(self):
        def check(what, name, settings, modules):
            mapper = MAPPERS.get(name, ())
            self.compare_compressed(what, engines.VllmCompressed(settings, mapper), respelt(modules, mapper), FUSED)

        self.compressed(check)

    def test_sglang_compressed(self):
        def check(what, name, settings, modules):
            for spelling in ((), MAPPERS.get(name, ())):
                built = {re.sub(r"\battn\.qkv$", "attn.qkv_proj", m): q for m, q in respelt(modules, spelling).items()}
                for version in (engines.SglangCompressed, engines.SglangCompressedNew):
                    self.compare_compressed(what, version(settings), built, FUSED | SGLANG_DEEPSEEK)

        self.compressed(check)

    def test_transformers_compressed(self):
        def check(what, name, settings, modules):
            matcher = engines.VllmCompressed(settings)          # equal or re.match, in the names of the file
            for module, is_quantized in modules.items():
                if modules[module] or ".experts" not in module or module.rpartition(".")[2].isdigit():
                    self.check(matcher.one(module) != is_quantized, f"{what}: {module}")

        self.compressed(check)


def is_stack(module):
    return module.endswith((".experts.gate_up_proj", ".experts.down_proj"))


def text_only(modules):
    """The decoder under `model.`, as a text-only class names it; towers, heads and draft layers are not there."""
    text = {}
    for module, is_quantized in modules.items():
        for prefix in ("model.language_model.", "language_model.model."):
            if module.startswith(prefix):
                text["model." + module[len(prefix):]] = is_quantized
    return text


if __name__ == "__main__":
    main(at_least=26500)
