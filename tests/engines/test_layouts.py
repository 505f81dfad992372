"""Every FP8 in circulation, made with torch and read by fp8q: dequantize, --requantize, inspect.

The oracle is torch's own conversion of each FP8 type, times a scale that is spread over its block by
indexing, rounded once to F32 and once more to the type asked for.
"""
import json
import os

from common import *

E5M2, FNUZ, E5FNUZ, E8M0 = (torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
                            torch.float8_e8m0fnu)
N, K, E = 256, 384, 3
MODULE = "model.layers.0.mlp.down_proj"
STACK = "model.layers.0.mlp.experts.down_proj"


def powers(shape):
    """Scales that E8M0 holds: one of five powers of two for each place."""
    n = 1
    for size in shape:
        n *= size
    return torch.exp2(((torch.arange(n) * 7) % 5 - 9).to(F32)).reshape(shape)


def stored(scales, kind):
    if kind == "u8":
        return (torch.log2(scales) + 127).to(torch.uint8)
    if kind == E8M0:
        return (torch.log2(scales) + 127).to(torch.uint8).view(E8M0)
    return scales.to(kind)


def layout(name, scale_name, kind, shape, block, scale_shape=None, dtype=F8, size=None, says=""):
    return dict(weight=name, scales=scale_name, kind=kind, shape=shape, block=block,
                scale_shape=scale_shape, dtype=dtype, config=size, says=says)


def grid(shape, block):
    return tuple(-(-n // b) for n, b in zip(shape, block))


W = MODULE + ".weight"
LAYOUTS = [
    layout(W, MODULE + ".weight_scale_inv", F32, (N, K), (128, 128), says="128x128"),
    layout(W, MODULE + ".weight_scale_inv", E8M0, (N, K), (128, 128), says="128x128"),
    layout(W, MODULE + ".weight_scale_inv", "u8", (N, K), (128, 128), size=[128, 128], says="128x128"),
    layout(W, MODULE + ".scale", F32, (N, K), (128, 128), says="128x128"),
    layout(W, MODULE + ".scale", E8M0, (N, K), (128, 128), says="128x128"),
    layout(W, MODULE + ".qscale_weight", BF16, (N, K), (N, K), scale_shape=(), says="per-tensor"),
    layout(W, MODULE + ".weight_scale_inv", "u8", (N, K), (1, 32), says="MXFP8"),
    layout(W, MODULE + ".weight_scale", "u8", (N, K), (1, 32), size=[1, 32], says="MXFP8"),
    layout(W, MODULE + ".weight_scale_inv", E8M0, (N, K), (32, 32), size=[32, 32], says="32x32"),
    layout(W, MODULE + ".weight_scale_inv", F32, (N, K), (64, 64), size=[64, 64], says="64x64"),
    layout(W, MODULE + ".weight_scale", F32, (N, K), (128, 128), scale_shape=(2, 1, 3, 1), says="128x128"),
    layout(W, MODULE + ".weight_scale", F32, (N, K), (1, K), says="per-channel"),
    layout(W, MODULE + ".weight_scale", BF16, (N, K), (1, K), scale_shape=(N,), says="per-channel"),
    layout(W, MODULE + ".weight_scale", F32, (N, K), (N, K), scale_shape=(1,), says="per-tensor"),
    layout(W, MODULE + ".weight_scale", F32, (N, K), (128, 128), dtype=E5M2, says="F8_E5M2"),
    layout(W, MODULE + ".weight_scale", F32, (N, K), (N, K), scale_shape=(1,), dtype=FNUZ, says="F8_E4M3FNUZ"),
    layout(W, MODULE + ".weight_scale", F32, (N, K), (1, K), dtype=E5FNUZ, says="F8_E5M2FNUZ"),
    layout(STACK, STACK + "_scale_inv", F32, (E, N, K), (128, 128), says="128x128"),
    layout(STACK, STACK + "_scale", BF16, (E, N, K), (N, K), scale_shape=(E, 1, 1), says="per-tensor"),
    layout(STACK, STACK + "_scale", F32, (E, N, K), (N, K), scale_shape=(E,), says="per-tensor"),
    layout(STACK, STACK + "_scale", F32, (E, N, K), (1, K), says="per-channel"),
    layout(STACK, STACK + "_scale", F32, (E, N, K), (N, 1), scale_shape=(E, 1, K), says="256x1"),
    layout(STACK, STACK + "_scale", "u8", (E, N, K), (1, 32), says="MXFP8"),
]


def make(case):
    """The directory and the weight's values in F32."""
    generator = torch.Generator().manual_seed(11)
    values = torch.randn(case["shape"], generator=generator) * 40
    codes = values.to(case["dtype"])
    flat = codes.view(torch.uint8).flatten()
    flat[:8] = torch.tensor([0, 1, 2, 3, 0x81, 0x82, 8, 9], dtype=torch.uint8)   # the smallest
    stack, (rows, cols) = case["shape"][:-2], case["shape"][-2:]
    scales = powers((*stack, *grid((rows, cols), case["block"])))
    spread = scales[..., torch.arange(rows) // case["block"][0], :][..., torch.arange(cols) // case["block"][1]]
    want = codes.to(F32) * spread

    tensors = {case["weight"]: codes,
               case["scales"]: stored(scales if case["scale_shape"] is None else scales.reshape(case["scale_shape"]),
                                      case["kind"]),
               "model.norm.weight": torch.ones(8, dtype=BF16)}
    if case["weight"].endswith(".weight"):
        tensors[MODULE + ".input_scale"] = torch.tensor(0.5)
    path = fresh_dir("layout")
    save_file(tensors, os.path.join(path, "model.safetensors"), {"format": "pt"})
    settings = {"model_type": "llama", "hidden_size": K}
    if case["config"]:
        settings["text_config"] = {"quantization_config": {"quant_method": "fp8", "weight_block_size": case["config"]}}
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f)
    return path, want


class Layouts(Case):
    def test_dequantize(self):
        for number, case in enumerate(LAYOUTS):
            path, want = make(case)
            for dtype, to in (("bf16", BF16), ("f16", F16), ("f32", F32)):
                with self.subTest(f"{number} {case['scales']} {dtype}"):
                    out = os.path.join(fresh_dir(), "out")
                    status, _, err = fp8q("dequantize", path, out, "-q", "--dtype", dtype)
                    self.equal((status, err), (0, ""), "dequantize")
                    got = read(out)
                    self.equal(sorted(got), sorted([case["weight"], "model.norm.weight"]), "names")
                    self.same_bytes(got[case["weight"]], want.to(to), "values")
                    self.equal("quantization_config" in json.dumps(config(out)), False, "config")

    def test_requantize(self):
        for number, case in enumerate(LAYOUTS):
            if len(case["shape"]) != 2:
                continue
            path, want = make(case)
            with self.subTest(f"{number} {case['scales']}"):
                out = os.path.join(fresh_dir(), "out")
                status, _, err = fp8q("quantize", "--requantize", path, out, "-q")
                self.equal(status, 0, err)
                got = read(out)
                codes, scales = ref.quantize_block(want)
                self.same_bytes(got[W], codes, "codes")
                self.same_bytes(got[W + "_scale_inv"], scales, "scales")
                self.equal(sorted(got), sorted([W, W + "_scale_inv", "model.norm.weight"]), "names")
                status, _, err = fp8q("verify", out, "--source", path, "-q")
                self.equal(status, 0, err)

    def test_inspect(self):
        for number, case in enumerate(LAYOUTS):
            path, _ = make(case)
            with self.subTest(f"{number} {case['scales']}"):
                status, result = fp8q_json("inspect", path)
                self.equal(status, 0, "exit")
                self.equal(case["says"] in result["quantization"], True, result["quantization"])

    def test_scales_of_the_cache_and_markers_go(self):
        """A plain checkpoint has no place for them; one that is FP8 again keeps those of the cache."""
        attn = "model.layers.0.self_attn"
        cache = {attn + end: torch.tensor(0.5) for end in (".k_scale", ".v_scale", ".k_proj.k_scale", ".v_proj.v_scale")}
        path, want = fresh_dir("cache"), torch.ones(N, K)
        save_file({W: want.to(F8), W + "_scale": torch.tensor([2.0]), MODULE + ".comfy_quant": torch.zeros(8, dtype=torch.uint8),
                   **cache}, os.path.join(path, "model.safetensors"))
        for command, kept in (("dequantize",), ()), (("quantize", "--requantize"), tuple(cache)):
            out = os.path.join(fresh_dir(), "out")
            status, _, err = fp8q(*command, path, out, "-q")
            self.equal(status, 0, err)
            got = set(read(out)) - {W, W + "_scale_inv"}
            self.equal(sorted(got), sorted(kept), command[0])

    def test_every_code(self):
        """All 256 codes of each type, through one scale."""
        for dtype in (F8, E5M2, FNUZ, E5FNUZ):
            with self.subTest(str(dtype)):
                codes = torch.arange(256, dtype=torch.uint8).reshape(2, 128).view(dtype)
                path = fresh_dir("codes")
                save_file({W: codes, W + "_scale": torch.tensor([0.5])}, os.path.join(path, "model.safetensors"))
                out = os.path.join(fresh_dir(), "out")
                status, _, err = fp8q("dequantize", path, out, "-q", "--dtype", "f32")
                self.equal(status, 0, err)
                got, want = read(out)[W], codes.to(F32) * 0.5
                self.equal(torch.equal(got.isnan(), want.isnan()), True, "NaN")
                self.equal(torch.equal(got.nan_to_num(0, 1e30, -1e30), want.nan_to_num(0, 1e30, -1e30)), True, "values")


if __name__ == "__main__":
    main(400)
