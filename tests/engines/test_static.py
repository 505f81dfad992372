"""Static input scales against torch: statistics, ranges, both layouts, and inputs as served."""
import os
import unittest

import torch
from compressed_tensors.quantization import QuantizationConfig
from safetensors import safe_open
from safetensors.torch import save_file

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
