"""The compressed-tensors library reads our files: its schema, its matching, its arithmetic, its own dequantizer."""
import re

import transformers
from compressed_tensors.compressors.mxfp8.base import MXFP8QuantizationCompressor
from compressed_tensors.compressors.naive_quantized.base import FloatQuantizationCompressor
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationConfig, preset_name_to_scheme
from compressed_tensors.utils.match import match_name, match_targets

from common import *

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

CT = "--format", "compressed-tensors"
BLOCK, DYNAMIC, TENSOR = CT, (*CT, "--scheme", "FP8_DYNAMIC"), (*CT, "--scheme", "FP8")
UNALIGNED = (*CT, "--unaligned", "per-channel")
GROUP = (*CT, "--scheme", "MXFP8")
MIX = (*CT, "--scheme", "FP8", "--scheme", "mlp=MXFP8", "--scheme", "lm_head=FP8_DYNAMIC", "--scheme", "o_proj=FP8_BLOCK",
       "--allow-unmatched")
NOT_TO_QUANTIZE = {"deepseek-v3-fp8", "qwen3-fp8-ct", "unknown-family", "bare-file"}
NOTHING_ALIGNED = {"smolvla", "smolvlm-ragged", "gpt-oss"}
STACKED = {"qwen3-vl-moe"}
TIED = {"qwen2"}        # to the embeddings, and on disk all the same
REFERENCE = {"block": ref.quantize_block, "channel": ref.quantize_channel, "tensor": ref.quantize_tensor,
             "group": ref.quantize_group}
FORMATS = {GROUP: "mxfp8-quantized"}


def outputs():
    """(checkpoint, options) of all that the dialect can say."""
    for name in expected():
        if name in NOT_TO_QUANTIZE or name in STACKED:
            continue
        if name not in NOTHING_ALIGNED:
            yield name, BLOCK
        yield name, DYNAMIC
        yield name, TENSOR
        yield name, GROUP
        yield name, UNALIGNED
        if name not in TIED:
            yield name, MIX


class Linear(torch.nn.Linear):
    """So that a target "Linear" matches, as it does by class in the library."""

    def __init__(self):
        super().__init__(1, 1)


LINEAR = Linear()


def strategy_of(group):
    strategy = group.weights.strategy
    return getattr(strategy, "value", strategy)


def scheme_of(settings, module):
    """The group that the library gives a module, or None if it is ignored or met by none."""
    if any(match_name(module, entry) for entry in settings.ignore):
        return None
    by_target = {t: group for group in settings.config_groups.values() for t in group.targets}
    targets = match_targets(module, LINEAR, by_target)
    return by_target[targets[0]] if targets else None


FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"), ("in_proj_qkv", "in_proj_z"),
         ("in_proj_b", "in_proj_a"), ("q_a_proj", "kv_a_proj_with_mqa"))


def mates_of(module, modules):
    """Other quantized parts of the matrix that engines make of this module."""
    parent, _, last = module.rpartition(".")
    parts = next((group for group in FUSED if last in group), ())
    return [m for p in parts if p != last and (m := f"{parent}.{p}") in modules]


class CompressedTensors(Case):
    def each(self):
        for name, options in outputs():
            out = quantized(source_of(name), *options)
            yield f"{name} {' '.join(options[2:])}", name, options, out, QuantizationConfig.model_validate(quantization(out))

    def test_schema(self):
        """Valid for the installed library, and without a key that an older one forbids."""
        weights = {"num_bits", "type", "symmetric", "strategy", "dynamic", "block_structure"}
        groups = {"num_bits", "type", "symmetric", "strategy", "dynamic", "group_size", "scale_dtype"}
        for what, _, options, out, settings in self.each():
            q = quantization(out)
            formats = {g.format for g in settings.config_groups.values()}
            if options == MIX and len(settings.config_groups) > 1 and "group" in map(strategy_of, settings.config_groups.values()):
                self.equal(settings.format, "mixed-precision", what)    # as the library itself joins formats
                for group in settings.config_groups.values():
                    self.equal(group.format, "mxfp8-quantized" if strategy_of(group) == "group" else "float-quantized", what)
                continue
            self.equal(formats, {None}, what)
            self.equal(settings.format, FORMATS.get(options, "float-quantized"), what)
            self.equal(q["quant_method"], "compressed-tensors", what)
            if options == MIX:
                continue
            if options == GROUP:        # the scheme that the library itself calls MXFP8
                (group,) = settings.config_groups.values()
                preset = preset_name_to_scheme("MXFP8", ["Linear"])
                for side in ("weights", "input_activations"):
                    self.equal(set(q["config_groups"]["group_0"][side]), groups, what)
                    for key in sorted(groups):
                        self.equal(getattr(getattr(group, side), key), getattr(getattr(preset, side), key), what)
                self.check(MXFP8QuantizationCompressor.can_compress(torch.nn.Linear, group), what)
                continue
            for group in q["config_groups"].values():
                self.equal(set(group), {"targets", "weights", "input_activations"}, what)
                self.check(set(group["weights"]) <= weights, f"{what}: {group['weights']}")
                self.equal("block_structure" in group["weights"], group["weights"]["strategy"] == "block", what)
                self.check(set(group["input_activations"]) <= weights - {"block_structure"} | {"group_size"}, what)
                self.equal(group["weights"]["dynamic"], False, what)
                self.equal(group["input_activations"]["dynamic"], True, what)
                self.equal(group["input_activations"]["strategy"],
                           "group" if group["weights"]["strategy"] == "block" else "token", what)
            if "--unaligned" not in options:       # what llama.cpp's converter wants
                self.equal(len(q["config_groups"]), 1, what)

    def test_values(self):
        """Each module's scheme, scale shape, and decompressed values; nothing else is FP8."""
        for what, name, options, out, settings in self.each():
            source, tensors = read(source_of(name)), read(out)
            modules = [n[:-len(".weight")] for n, t in tensors.items() if n.endswith(".weight") and t.dim() == 2]
            for module in modules:
                weight, scale = tensors[module + ".weight"], tensors.get(module + ".weight_scale")
                scheme = scheme_of(settings, module)
                self.equal(scale is not None, weight.dtype == F8, f"{what}: {module}: scale")
                if weight.dtype != F8:
                    self.check(scheme is None or is_embedding(module), f"{what}: {module} is kept but not ignored")
                    continue
                self.check(scheme is not None, f"{what}: {module} is quantized but ignored")
                strategy = strategy_of(scheme)
                original = original_of(source, module + ".weight")
                codes, scales = REFERENCE[strategy](original)
                if strategy == "tensor":        # one scale for what engines load as one matrix
                    fused = [original] + [original_of(source, m + ".weight") for m in mates_of(module, modules)]
                    codes, scales = REFERENCE[strategy](torch.cat(fused))
                    codes = codes[:len(original)]
                self.same_bytes(weight, codes, f"{what}: {module}: codes")
                self.same_bytes(scale, scales, f"{what}: {module}: {strategy} scales")
                compressor = MXFP8QuantizationCompressor if strategy == "group" else FloatQuantizationCompressor
                library = compressor.decompress({"weight": weight, "weight_scale": scale}, scheme)
                values = library["weight"].to(F32)      # of MXFP8 in BF16, which is exact: four bits by a power of two
                self.same_bytes(values, ref.dequantize(codes, scales), f"{what}: {module}: values")

    def test_schemes(self):
        """--scheme PAT=NAME: each module has the scheme that was asked for."""
        found = set()
        for what, name, options, out, settings in self.each():
            if options != MIX:
                continue
            for weight, tensor in read(out).items():
                if tensor.dtype != F8:
                    continue
                module = weight.removesuffix(".weight")
                parts = module.split(".")
                wanted = ("block" if "o_proj" in parts else "channel" if "lm_head" in parts
                          else "group" if "mlp" in parts else "tensor")
                self.equal(strategy_of(scheme_of(settings, module)), wanted, f"{what}: {module}")
                found.add(wanted)
        self.equal(len(found), 4, f"strategies: {found}")
        for name in TIED:       # transformers would compare FP8 values with the embeddings
            status, _, err = fp8q("quantize", source_of(name), fresh_dir() + "/out", *MIX)
            self.check(status == 2 and "ties it" in err, err)

    def test_mixed(self):
        """--unaligned per-channel: blocks where they fit, rows where they do not, one scheme in a fused group."""
        found = set()
        for what, name, options, out, settings in self.each():
            if options != UNALIGNED:
                continue
            strategies = {strategy_of(g) for g in settings.config_groups.values()}
            found.add((len(settings.config_groups), *sorted(strategies)))
            for member, mates in (("q_proj", ("k_proj", "v_proj")), ("gate_proj", ("up_proj",)),
                                  ("q_a_proj", ("kv_a_proj_with_mqa",))):
                shapes = {n: tuple(t.shape) for n, t in read(out).items() if n.endswith(member + ".weight_scale")}
                for scale in shapes:
                    for mate in mates:
                        other = scale.replace(member, mate)
                        module = scale[:-len(".weight_scale")]
                        mine = scheme_of(settings, module)
                        his = scheme_of(settings, other[:-len(".weight_scale")])
                        self.check(mine == his, f"{what}: {module} and {mate} differ in scheme")
        self.check((1, "block") in found and (1, "channel") in found and (2, "block", "channel") in found,
                   f"kinds of mixes: {found}")


class Stacks(Case):
    """Stacked experts of sizes that blocks cannot serve, and draft layers beside the main ones."""
    HIDDEN, INNER = 256, 192
    SETTINGS = {"hidden_size": HIDDEN, "moe_intermediate_size": INNER, "num_attention_heads": 2, "head_dim": 128}

    def layer(self, prefix, inner=INNER):
        h = self.HIDDEN
        return {f"{prefix}.mlp.down_proj.weight": normal(h, inner), f"{prefix}.mlp.gate_proj.weight": normal(inner, h),
                f"{prefix}.mlp.up_proj.weight": normal(inner, h, seed=1),
                f"{prefix}.self_attn.o_proj.weight": normal(h, h)}

    def check_all(self, out, source):
        settings = QuantizationConfig.model_validate(quantization(out))
        found = set()
        for name, tensor in read(out).items():
            if tensor.dtype != F8:
                continue
            scheme = scheme_of(settings, name[:-len(".weight")])
            self.check(scheme is not None, f"{name}: no scheme")
            found.add(strategy_of(scheme))
            codes, scales = REFERENCE[strategy_of(scheme)](original_of(source, name))
            self.same_bytes(tensor, codes, f"{name}: codes")
            self.same_bytes(read(out)[name + "_scale"], scales, f"{name}: scales")
        return found

    def test_split(self):
        """[E, 2I, H] with I = 192 becomes per-expert weights with a scale for each row."""
        experts = "model.layers.0.mlp.experts."
        source = {experts + "gate_up_proj": normal(2, 2 * self.INNER, self.HIDDEN),
                  experts + "down_proj": normal(2, self.HIDDEN, self.INNER),
                  "model.layers.0.self_attn.o_proj.weight": normal(256, 256)}
        path = make(source, {"model_type": "qwen3_5_moe_text", **self.SETTINGS})
        out = quantized(path, *UNALIGNED)
        self.equal(self.check_all(out, source), {"block", "channel"}, "strategies")
        self.equal(sum(t.dtype == F8 for t in read(out).values()), 7, "quantized weights")
        self.equal(len(quantization(out)["config_groups"]["group_1"]["targets"]), 1, "targets")

    def test_draft_layers(self):
        """A draft layer of aligned sizes beside a main layer of the same number and unaligned ones."""
        source = self.layer("model.layers.0") | self.layer("mtp.layers.0", inner=256)
        path = make(source, {"model_type": "qwen3_next", **self.SETTINGS})
        self.equal(self.check_all(quantized(path, *UNALIGNED), source), {"block", "channel"}, "strategies")
        source = self.layer("model.layers.0", inner=256) | self.layer("mtp.layers.0")
        path = make(source, {"model_type": "qwen3_next", **self.SETTINGS})
        self.equal(self.check_all(quantized(path, *UNALIGNED), source), {"block", "channel"}, "strategies")

    def test_kept_stacked(self):
        """A stack that stays one, [E, H, 2I], has blocks or nothing: no rows, no whole, no block across experts."""
        experts = "model.language_model.layers.0.mlp.experts."
        for inner, options, want in ((256, BLOCK, True), (256, DYNAMIC, False), (256, TENSOR, False),
                                     (192, UNALIGNED, False), (192, ("--unaligned", "quantize"), False)):
            hidden = 128
            source = {experts + "gate_up_proj": normal(2, hidden, 2 * inner),
                      experts + "down_proj": normal(2, inner, hidden),
                      "model.language_model.layers.0.self_attn.o_proj.weight": normal(256, 256)}
            path = make(source, {"model_type": "qwen3_vl_moe", "text_config": {
                **self.SETTINGS, "hidden_size": hidden, "moe_intermediate_size": inner}})
            out = read(quantized(path, *options))
            for projection in ("gate_up_proj", "down_proj"):
                self.equal(out[experts + projection].dtype == F8, want, f"{inner} {options} {projection}")
                if want:
                    codes, scales = ref.quantize_block(source[experts + projection])
                    self.same_bytes(out[experts + projection], codes, projection)
                    self.same_bytes(out[experts + projection + "_scale"], scales, projection)
            listed = quantization(quantized(path, *options))
            listed = listed.get("ignore") or listed["modules_to_not_convert"]
            self.equal(any(e.endswith(".mlp.experts") for e in listed), not want, f"{options}: the list")


def is_embedding(module):
    return "embed" in module or module.endswith(("norm", "norm1", "token_table"))


def original_of(source, name):
    if name in source:
        return source[name]
    for stack, tensor in source.items():
        if tensor.dim() == 3 and ".experts." in stack:
            for weight, values in ref.split_experts(stack, tensor):
                if weight == name:
                    return values
    raise AssertionError(f"no source for {name}")


class Fp8Dialect(Case):
    def test_block_dequantizer(self):
        """The library's reader of the fp8 dialect gives the values of the reference, in F32 and BF16."""
        for name in expected():
            if name in NOT_TO_QUANTIZE | NOTHING_ALIGNED | STACKED:
                continue
            out = quantized(source_of(name))
            for dtype in (F32, BF16):
                converter = FP8BlockDequantizer.from_pretrained(out, dtype=dtype)
                tensors = read(out)
                scaled = [n for n, t in tensors.items() if t.dtype == F8]
                want = {n: ref.dequantize(tensors[n], tensors[n + "_scale_inv"], dtype) for n in scaled}
                values = converter.validate(dict(tensors))
                self.equal(sorted(n for n in values if n.endswith("_scale_inv")), [], name)
                for n in scaled:
                    self.same_bytes(values[n], want[n], f"{name}: {n} {dtype}")


class Loaded(Case):
    """transformers with the library, on a CPU: dense models.

    It keeps scales in the model's dtype where module names are those of the file.  Where it renames (the older
    names of VLMs), transformers 5.17 leaves F32 scales as they are, and the decompressed weights are F32 in a
    BF16 model: right values, but the model must be cast before it runs.
    """
    MODELS = {"llama-untied": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM",
              "llama-f32": "LlamaForCausalLM", "gemma3-text": "Gemma3ForCausalLM",
              "qwen2.5-vl-new": "Qwen2_5_VLForConditionalGeneration", "qwen2": "Qwen2ForCausalLM",
              "qwen2.5-vl-old": "Qwen2_5_VLForConditionalGeneration",
              "smolvlm-ragged": "SmolVLMForConditionalGeneration",
              "idefics3": "Idefics3ForConditionalGeneration",
              "internvl-hf": "InternVLForConditionalGeneration",
              "paligemma": "PaliGemmaForConditionalGeneration"}

    def one(self, name, options):
        out = quantized(source_of(name), *options)
        dtype = F32 if name == "llama-f32" else BF16
        cls = getattr(transformers, self.MODELS[name])
        how = transformers.CompressedTensorsConfig(dequantize=True)
        model, info = cls.from_pretrained(out, dtype=dtype, quantization_config=how, output_loading_info=True)
        for kind, keys in info.items():
            keys = [k for k in keys if not re.search(r"indexer\.wq_b", k)]
            self.check(not keys, f"{name} {options}: {kind}: {sorted(keys)[:3]}")
        stored, state = read(out), model.state_dict()
        names = {re.sub(r"^(model\.)?(language_model\.)?(model\.)?(text_model\.)?", "", n): n for n in state}
        quantized_names = [n for n, t in stored.items() if t.dtype == F8]
        for n in quantized_names:
            key = re.sub(r"^(model\.)?(language_model\.)?(model\.)?(text_model\.)?", "", n)
            got = state[names[key]]
            scales = stored[n + "_scale"]
            scales = scales if scales.dtype == torch.uint8 else scales.to(got.dtype)
            want = ref.dequantize(stored[n], scales, got.dtype)
            halves = stored[n + "_scale"].dtype == torch.uint8      # the library decompresses MXFP8 to BF16
            self.check(got.dtype == dtype or names[key] != n or halves, f"{name} {options}: {n}: {got.dtype}")
            self.check(torch.equal(got, want), f"{name} {options}: {n}: {describe(got, want)}")
        self.check(len(quantized_names) > 0, name)
        with torch.no_grad():
            answer = model.to(dtype)(input_ids=torch.tensor([[5, 17, 3, 99]]), use_cache=False).logits
        self.check(bool(answer.isfinite().all()), f"{name} {options}: logits")

    def test_models(self):
        for name in self.MODELS:
            for options in (BLOCK, DYNAMIC, TENSOR, UNALIGNED, GROUP, MIX):
                if (name in NOTHING_ALIGNED and options == BLOCK) or (name in TIED and options == MIX):
                    continue
                with self.subTest(f"{name} {options}"):
                    self.one(name, options)


if __name__ == "__main__":
    main(at_least=17000)
