"""Static input scales against torch: statistics, ranges, both layouts, and inputs as served."""
import json
import math
import os
import shutil
import unittest

import torch
from compressed_tensors.quantization import QuantizationConfig
from safetensors import safe_open
from safetensors.torch import save_file

from transformers.models.llama import modeling_llama

import quantize_ref as ref
import test_forward as forward
from common import *

MATES = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
RANGES = ("absmax", "p99.99", "p99.9", "mse")
LAYOUTS = ("compressed-tensors", "modelopt")


def site_of(linear):
    stem, last = linear.rsplit(".", 1)
    return f"{stem}.{MATES.get(last, last)}"


def inputs_of(model, ids):
    """{linear: all inputs that it sees, [tokens, channels]} of the decoder's linears."""
    seen, hooks = {}, []
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            hooks.append(module.register_forward_pre_hook(
                lambda m, a, n=name: seen.setdefault(n, []).append(a[0].detach().flatten(0, -2))))
    with torch.no_grad():
        for i in ids:
            model(input_ids=i[None])
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(parts) for name, parts in seen.items()}


def quantized_to(x, value_range):
    scale = value_range / 448
    return forward.e4m3(x / scale) * scale


def fp8q_ok(*arguments):
    status, _, err = fp8q(*arguments)
    if status:
        raise AssertionError(f"{arguments}: exit {status}: {err}")


class Static(Case):
    @classmethod
    def setUpClass(cls):
        cls.source, cls.model = forward.make("static", "llama", forward.SMALL)
        cls.ids = forward.samples(forward.SMALL["vocab_size"])
        cls.inputs = forward.write_inputs(cls.source + ".inputs.safetensors", cls.ids)
        cls.calib = cls.source + ".calib.safetensors"
        fp8q_ok("calibrate", cls.source, "--inputs", cls.inputs, "-o", cls.calib, "-q")
        cls.seen = inputs_of(cls.model, cls.ids)
        with safe_open(cls.calib, "pt") as f:
            cls.statistics = {name: f.get_tensor(name) for name in f.keys()}

    def output(self, layout, value_range="absmax", *more):
        return quantized(self.source, "--scheme", "FP8_STATIC", "--format", layout, "--calibration", self.calib,
                         "--input-range", value_range, *more)

    def test_histogram(self):
        """16 bins for each power of two, over all values; here by frexp instead of bits."""
        for name, x in self.seen.items():
            if site_of(name) != name:
                continue
            mantissa, exponent = torch.frexp(x.abs().flatten())         # mantissa in [0.5, 1)
            bins = (exponent - 1 + 24) * 16 + ((mantissa * 2 - 1) * 16).floor().int()
            bins = torch.where(x.abs().flatten() == 0, torch.zeros_like(bins), bins).clamp(0, 767)
            want = torch.bincount(bins, minlength=768)
            got = self.statistics[name + ".value_hist"]
            self.equal(int(got.sum()), x.numel(), name)
            # Another order of additions may carry a value over the edge of its bin.
            self.check(int((got - want).abs().sum()) <= 2 + x.numel() // 1000, f"{name}: {(got - want).abs().sum()}")

    def range_of(self, name, kind):
        return float(self.scales[name + ".input_scale"]) * 448

    def test_ranges(self):
        for kind in RANGES:
            self.scales = read(self.output("compressed-tensors", kind))
            for name, x in self.seen.items():
                x, absmax = x.abs().flatten(), float(x.abs().max())
                got = self.range_of(name, kind)
                self.equal(got, self.range_of(site_of(name), kind), f"{kind} {name} and its mates")
                self.check(got <= absmax * 1.00001, f"{kind} {name}: beyond absmax")
                if kind == "absmax":
                    self.check(abs(got / absmax - 1) < 1e-5, f"{name}: {got} {absmax}")
                elif kind == "mse":
                    candidates = absmax * 2.0 ** -(torch.arange(80) / 20)
                    errors = [float(((x - quantized_to(x, float(c))) ** 2).sum()) for c in candidates]
                    error = float(((x - quantized_to(x, got)) ** 2).sum())
                    self.check(error <= 1.05 * min(errors), f"{name}: {error}, the least is {min(errors)}")
                else:
                    share = float(kind[1:]) / 100
                    exact = float(x.sort().values[min(int(share * x.numel()), x.numel() - 1)])
                    self.check(exact / 1.07 <= got <= exact * 1.07, f"{kind} {name}: {got}, exactly {exact}")

    def test_layouts(self):
        """Names, shapes, weights with one scale for each merged matrix; config.json and hf_quant_config.json."""
        source = read(self.source)
        for layout in LAYOUTS:
            for more in ((), ("--scales", "inline")):
                out = self.output(layout, "absmax", *more)
                tensors = read(out)
                linears = sorted(self.seen)
                for linear in linears:
                    mates = [l for l in linears if site_of(l) == site_of(linear)]
                    amax = max(float(source[l + ".weight"].float().abs().max()) for l in mates)
                    scale = ref.scale_of(torch.tensor(amax)).reshape(1)
                    self.same_bytes(tensors[linear + ".weight_scale"], scale, f"{layout} {linear} scale")
                    codes = ref.codes_of(source[linear + ".weight"].float() / scale)
                    self.same_bytes(tensors[linear + ".weight"], codes, f"{layout} {linear} values")
                    self.equal((tensors[linear + ".input_scale"].shape, tensors[linear + ".input_scale"].dtype),
                               ((1,), F32), linear)
                names = {l + e for l in linears for e in (".weight", ".weight_scale", ".input_scale")}
                self.equal(names | {n for n in source if n[:-7] not in linears}, set(tensors), layout)
                for arguments in ((), ("--source", self.source), ("--source", self.source, "--calibration", self.calib)):
                    fp8q_ok("verify", out, "-q", *arguments)
                q = quantization(out)
                if layout == "modelopt":
                    self.equal((q["quant_method"], q["quant_algo"], q["ignore"]), ("modelopt", "FP8", ["lm_head"]), layout)
                    with open(os.path.join(out, "hf_quant_config.json"), encoding="utf-8") as f:
                        told = json.load(f)
                    self.equal(told["quantization"], {"quant_algo": "FP8", "kv_cache_quant_algo": None,
                                                      "exclude_modules": ["lm_head"]}, layout)
                    continue
                self.check(not os.path.exists(os.path.join(out, "hf_quant_config.json")), layout)
                (group,) = QuantizationConfig.model_validate(q).config_groups.values()
                for side in (group.weights, group.input_activations):
                    self.equal((side.strategy, side.dynamic, side.num_bits, side.symmetric), ("tensor", False, 8, True), layout)

    def test_loaded(self):
        """transformers loads the compressed-tensors layout, and has the input scales as parameters."""
        out = self.output("compressed-tensors")
        tensors = read(out)
        model = forward.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
        state = model.state_dict()
        for linear in self.seen:
            self.equal(float(state[linear + ".input_scale"].float().reshape(())),
                       float(tensors[linear + ".input_scale"]), linear)

    def test_served(self):
        """eval: inputs divided by the stored scale and saturated, whatever the range."""
        for layout, value_range in (("compressed-tensors", "absmax"), ("modelopt", "p99.9")):
            out = self.output(layout, value_range)
            back = out + "-d"
            fp8q_ok("dequantize", out, back, "--dtype", "f32", "-q")
            scales = read(out)
            model = forward.load(back)
            for name, module in model.named_modules():
                if name.endswith("_proj"):
                    module.register_forward_pre_hook(
                        lambda m, a, n=name: (quantized_to(a[0], 448 * scales[n + ".input_scale"]),) + a[1:])
            kld = forward.mean_kld(forward.log_probs(self.model, self.ids), forward.log_probs(model, self.ids))
            status, found = fp8q_json("eval", self.source, out, "--inputs", self.inputs)
            self.equal((status, found["acts_served"]), (0, "static scales"), layout)
            self.check(abs(found["kld"]["mean"] / kld - 1) < 0.06, f"{layout}: {found['kld']['mean']}, torch {kld}")

    def shares(self, out, seen):
        """{linear: (clipped share, unused powers of two)} of these inputs, by torch."""
        scales, found = read(out), {}
        for name, x in seen.items():
            value_range = 448 * scales[name + ".input_scale"]
            largest = float(x.abs().max() / value_range)
            found[name] = float((x.abs() > value_range).float().mean()), max(-math.log2(largest), 0)
        return found

    def test_clipping(self):
        """eval reports what each linear clips; inputs of the quantized network, so of its own earlier layers too."""
        for value_range in ("p99.9", "absmax"):
            out = self.output("compressed-tensors", value_range)
            back = out + "-clip"
            fp8q_ok("dequantize", out, back, "--dtype", "f32", "-q")
            scales = read(out)
            model, seen = forward.load(back), {}
            for name, module in model.named_modules():
                if name.endswith("_proj"):
                    def hook(m, a, n=name):
                        seen.setdefault(n, []).append(a[0].detach().flatten(0, -2))
                        return (quantized_to(a[0], 448 * scales[n + ".input_scale"]),) + a[1:]
                    module.register_forward_pre_hook(hook)
            with torch.no_grad():
                for i in self.ids:
                    model(input_ids=i[None])
            want = self.shares(out, {n: torch.cat(parts) for n, parts in seen.items()})
            status, found = fp8q_json("eval", self.source, out, "--inputs", self.inputs)
            self.equal(status, 0, "eval")
            got = {e["name"]: (e["clipped"], e["unused"]) for e in found["static"]["linears"]}
            self.equal(sorted(got), sorted(want), "linears")
            for name, (clipped, unused) in want.items():
                self.check(abs(got[name][0] - clipped) <= 2e-4 + 0.05 * clipped, f"{value_range} {name}: {got[name]} {clipped}")
                # One value decides this, and one code of an earlier layer, a step of a sixteenth, may move it.
                self.check(abs(got[name][1] - unused) < 0.0625, f"{value_range} {name}: {got[name]} {unused}")
            self.equal(found["static"]["clipped"], max(c for c, _ in got.values()), "the worst")
            self.equal(found["static"]["unused"], max(u for _, u in got.values()), "the worst")
            if value_range == "p99.9":
                self.check(found["static"]["clipped"] > 0.0005, "nothing is clipped")

    def test_drift(self):
        """Louder inputs clip, quieter ones leave the range unused; drift and the gate say so."""
        out = self.output("compressed-tensors")
        generator = torch.Generator().manual_seed(9)
        embeds = self.model.get_input_embeddings()
        alike, louder = self.source + ".alike", self.source + ".louder"
        for path, factor in ((alike, 1.0), (louder, 3.0)):
            # A few channels grow, as with another camera or prompt: norms do not take that out.
            tensors = {}
            for i, ids in enumerate(self.ids):
                x = embeds(torch.randint(0, 320, ids.shape, generator=generator)).detach().clone()
                x[:, :4] *= factor * 4 if factor > 1 else 1
                tensors[f"{i}.inputs_embeds"] = x
            save_file(tensors, path + ".inputs.safetensors")
            fp8q_ok("calibrate", self.source, "--inputs", path + ".inputs.safetensors", "-o", path + ".calib.safetensors", "-q")

        limits = ("--max-rms", "9", "--max-absmax", "9", "--min-overlap", "0", "--max-hist", "9", "--max-channels", "9")
        status, found = fp8q_json("drift", self.calib, self.calib, "--static", out, *limits)
        self.equal((status, max(s["clipped"] for s in found["sites"])), (0, 0), "the same inputs")
        status, found = fp8q_json("drift", self.calib, louder + ".calib.safetensors", "--static", out, *limits)
        self.equal((status, found["stale"]), (5, True), "louder inputs")
        with safe_open(louder + ".calib.safetensors", "pt") as f:
            hist = {k: f.get_tensor(k) for k in f.keys() if k.endswith(".value_hist")}
        scales, edges = read(out), 2.0 ** (-24 + torch.arange(768) // 16) * (1 + torch.arange(768) % 16 / 16)
        for site in found["sites"]:
            counts, value_range = hist[site["name"] + ".value_hist"], 448 * float(scales[site["name"] + ".input_scale"])
            want = float(counts[edges > value_range].sum() / counts.sum())
            self.check(abs(site["clipped"] - want) < 1e-9, f"{site}: {want}")
        self.check(max(s["clipped"] for s in found["sites"]) > 0.001, "louder inputs are not clipped")

        # What the gate makes of evidence on either, and what the clipping costs in first choices.
        top1 = {}
        policy = out + ".policy.json"
        with open(policy, "w", encoding="utf-8") as f:
            f.write('{"schema": "fp8q-policy/1", "eval": {"min_tokens": 1, "kld_max": 1e6, "top1_drop_vs_baseline": null}}')
        for path, verdict in ((alike, "pass"), (louder, "fail")):
            evidence = path + ".json"
            fp8q_ok("eval", self.source, out, "--inputs", path + ".inputs.safetensors", "-o", evidence, "-q")
            status, found = fp8q_json("gate", out, "--source", self.source, "--evidence", evidence, "--policy", policy)
            checks = {check["id"]: check["status"] for check in found["checks"]}
            self.equal(checks["eval.clipped"], verdict, f"{path}: {checks}")
            self.equal(status, 0 if verdict == "pass" else 1, path)
            with open(evidence, encoding="utf-8") as f:
                top1[verdict] = json.load(f)["top1"]
        self.check(top1["fail"] < top1["pass"] - 0.01, f"first choices: {top1}")

    def attended(self, model, seen, scales=None):
        """Log-probabilities; @seen gets each layer's keys behind the rotation and values; @scales: an FP8 cache."""
        def attend(module, query, key, value, *more, **named):
            seen.setdefault(module.layer_idx, []).append((key.detach(), value.detach()))
            if scales:
                key, value = (quantized_to(x, 448 * s) for x, s in zip((key, value), scales[module.layer_idx]))
            return plain(module, query, key, value, *more, **named)
        plain, modeling_llama.eager_attention_forward = modeling_llama.eager_attention_forward, attend
        try:
            return forward.log_probs(model, self.ids)
        finally:
            modeling_llama.eager_attention_forward = plain

    def test_cache(self):
        """Scales of an FP8 cache: what calibrate saw, names and keys in each layout, and eval with such a cache."""
        seen = {}
        plain = self.attended(self.model, seen)
        amax = {layer: [torch.stack([x.abs().amax((0, 2, 3)) for x in half]).amax(0) for half in zip(*parts)]
                for layer, parts in seen.items()}
        for layer, halves in amax.items():
            got = self.statistics[f"model.layers.{layer}.self_attn.cache_absmax"]
            self.check(torch.allclose(got, torch.stack(halves), rtol=1e-4), f"{layer}: {got} {halves}")

        base = ("--calibration", self.calib, "--kv-cache", "fp8")
        static = ("--scheme", "FP8_STATIC", "--format")
        ct = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}
        for options, key, value in (((), "kv_cache_quant_algo", "FP8"), (("--format", "compressed-tensors"), "kv_cache_scheme", ct),
                                    ((*static, "compressed-tensors"), "kv_cache_scheme", ct),
                                    ((*static, "modelopt"), "kv_cache_scheme", ct), (("--scales", "inline"), "kv_cache_quant_algo", "FP8")):
            out = quantized(self.source, *base, *options)
            tensors = read(out)
            self.equal(quantization(out)[key], value, f"{options}")
            scales = {}
            for layer, halves in amax.items():
                for half, most in zip("kv", halves):
                    name = f"model.layers.{layer}.self_attn.{half}_proj.{half}_scale"
                    self.equal((tensors[name].shape, tensors[name].dtype), ((1,), F32), name)
                    self.check(abs(float(tensors[name]) / float(most.max() / 448) - 1) < 1e-4, name)
                    scales.setdefault(layer, []).append(float(tensors[name]))
            self.equal(sum(n.endswith(("k_scale", "v_scale")) for n in tensors), 2 * len(amax), f"{options}: no other")
            for arguments in ((), ("--source", self.source), ("--source", self.source, "--calibration", self.calib)):
                fp8q_ok("verify", out, "-q", *arguments)
        with open(os.path.join(quantized(self.source, *base, *static, "modelopt"), "hf_quant_config.json"), encoding="utf-8") as f:
            self.equal(json.load(f)["quantization"]["kv_cache_quant_algo"], "FP8", "hf_quant_config.json")

        # A scale that fits, and one so small that the cache saturates.
        out = quantized(self.source, *base, "--format", "compressed-tensors", "--scheme", "FP8_DYNAMIC")
        back, damaged = out + "-kv", out + "-small"
        fp8q_ok("dequantize", out, back, "--dtype", "f32", "-q")
        self.equal([n for n in read(back) if n.endswith("_scale")], [], "scales are not carried")
        shutil.copytree(out, damaged)
        file = os.path.join(damaged, SIDECAR)
        with safe_open(file, "pt") as f:
            tensors = {k: f.get_tensor(k) / (8 if k.endswith(("k_scale", "v_scale")) else 1) for k in f.keys()}
        save_file(tensors, file, metadata={"format": "pt"})
        klds = []
        for path, factor in ((out, 1), (damaged, 1 / 8)):
            cached = self.attended(forward.load(back), {}, {l: [s * factor for s in both] for l, both in scales.items()})
            status, found = fp8q_json("eval", self.source, path, "--inputs", self.inputs, "--kv-cache", "--acts", "none")
            self.equal((status, found["kv_cache"]), (0, "fp8"), path)
            kld = forward.mean_kld(plain, cached)
            klds.append(kld)
            self.check(abs(found["kld"]["mean"] / kld - 1) < 0.06, f"{path}: {found['kld']['mean']}, torch {kld}")
        self.check(klds[1] > 3 * klds[0], f"saturation shows: {klds}")
        got, found = fp8q_json("quantize", self.source, fresh_dir() + "/out", "--kv-cache", "fp8")
        self.equal((got, found["error"]["id"]), (2, "static-calibration"), "without a calibration")

    def test_refusals(self):
        """No calibration, another one, and what the layouts cannot say."""
        base = ("quantize", self.source, fresh_dir() + "/out", "-q", "--scheme", "FP8_STATIC")
        for more, status, id in (((), 2, "static-calibration"),
                                 (("--calibration", self.calib + "x"), 5, "calibration-missing"),
                                 (("--calibration", self.calib, "--format", "fp8"), 2, "scheme-format")):
            got, found = fp8q_json(*base, *more)
            self.equal((got, found["error"]["id"]), (status, id), f"{more}")
        got, found = fp8q_json("quantize", self.source, base[2], "--format", "modelopt")
        self.equal((got, found["error"]["id"]), (2, "scheme-format"), "modelopt in blocks")
        other, _ = forward.make("static-other", "llama", forward.SMALL)
        got, found = fp8q_json("quantize", other, base[2], "--scheme", "FP8_STATIC", "--calibration", self.calib)
        self.equal((got, found["error"]["id"]), (5, "calibration-foreign"), "other weights")
        self.check(not os.path.exists(base[2]), "nothing under the name")

    def test_verified(self):
        """Scales that the calibration does not give are found, by checksum and by derivation."""
        out = self.output("compressed-tensors", "p99.9")
        ids = [i[:20] for i in self.ids]
        inputs = forward.write_inputs(self.source + ".short.safetensors", ids)
        short = self.source + ".short.calib.safetensors"
        fp8q_ok("calibrate", self.source, "--inputs", inputs, "-o", short, "-q")
        status, found = fp8q_json("verify", out, "--source", self.source, "--calibration", short)
        failed = [check["id"] for check in found["checks"] if check["status"] == "fail"]
        self.equal((status, failed), (1, ["data-scales"]), "another calibration")


if __name__ == "__main__":
    main(at_least=300)
