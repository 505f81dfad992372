"""The torch reference against the oracle vectors, and the program against it on unaligned and odd shapes."""
import glob
import os

from safetensors.torch import load_file, save_file

from common import *

ORACLE = os.path.join(DATA, "..", "oracle")
NAME = "model.layers.0.mlp.down_proj.weight"
SHAPES = [(128, 128), (1, 1), (1, 128), (128, 1), (127, 129), (129, 127), (256, 384), (300, 70), (576, 256)]


def written(weight, *options):
    """codes, scales of one file with one weight."""
    folder = fresh_dir()
    save_file({NAME: weight}, os.path.join(folder, "in.safetensors"))
    out = os.path.join(folder, "out.safetensors")
    status, _, err = fp8q("quantize", os.path.join(folder, "in.safetensors"), out, "-q", "--scales", "inline",
                          *options)
    if status:
        raise AssertionError(f"{tuple(weight.shape)} {options}: {err}")
    tensors = read(out)
    scales = [t for n, t in tensors.items() if n != NAME]
    return tensors[NAME], scales[0]


class Reference(Case):
    def test_casts(self):
        for dtype, file in ((BF16, "e4m3_from_bf16.bin"), (F16, "e4m3_from_f16.bin")):
            with open(os.path.join(ORACLE, file), "rb") as f:
                want = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
            values = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype).to(F32)
            finite = ~values.isnan()
            got = ref.codes_of(values).view(torch.uint8)
            self.check(torch.equal(got[finite], want[finite]), file)

    def test_blocks(self):
        for file in sorted(glob.glob(os.path.join(ORACLE, "blocks", "*.in.safetensors"))):
            weight = load_file(file)[NAME]
            for kind in ("f32", "ue8m0"):
                want = load_file(file.replace(".in.", f".{kind}."))
                codes, scales = ref.quantize_block(weight, kind == "ue8m0")
                self.same_bytes(codes, want[NAME], f"{file} {kind} codes")
                self.same_bytes(scales, want[NAME + "_scale_inv"], f"{file} {kind} scales")


class Program(Case):
    def matrices(self):
        for i, shape in enumerate(SHAPES):
            for dtype in (BF16, F16, F32):
                weight = normal(*shape, dtype=dtype, seed=i)
                weight[-1] = -0.0                   # a last row of negative zeros
                yield weight

    def compare(self, weight, options, want):
        codes, scales = written(weight, *options)
        self.same_bytes(codes, want[0], f"{tuple(weight.shape)} {weight.dtype} {options} codes")
        self.same_bytes(scales, want[1], f"{tuple(weight.shape)} {weight.dtype} {options} scales")

    def test_block(self):
        for weight in self.matrices():
            self.compare(weight, ("--unaligned", "quantize"), ref.quantize_block(weight))
            self.compare(weight, ("--unaligned", "quantize", "--scale-fmt", "ue8m0"), ref.quantize_block(weight, True))

    def test_channel(self):
        for weight in self.matrices():
            options = "--scheme", "FP8_DYNAMIC", "--format", "compressed-tensors"
            self.compare(weight, options, ref.quantize_channel(weight))

    def test_tensor(self):
        for weight in self.matrices():
            options = "--scheme", "FP8", "--format", "compressed-tensors"
            self.compare(weight, options, ref.quantize_tensor(weight))

    def test_group(self):
        """MXFP8 in both dialects, also with groups of zeros, of subnormals and at every edge of the exponent."""
        edges = torch.cat([normal(64, 512, dtype=F32) * 2.0 ** e for e in (-140, -126, -30, 0, 30, 120)])
        edges[0] = 0
        edges[:, 0] = torch.tensor([1.75, 1.7500001, 1.0, 0.5])[torch.arange(len(edges)) % 4] * edges.abs().amax(-1)
        for weight in (*self.matrices(), edges):
            if weight.shape[1] % 32:
                continue
            for dialect in ("compressed-tensors", "fp8"):
                self.compare(weight, ("--scheme", "MXFP8", "--format", dialect), ref.quantize_group(weight))

    def test_group_threads(self):
        weight = normal(300, 416, seed=3)
        for kernel in (("--kernel", "scalar"), ()):
            for threads in (1, 2, 7):
                self.compare(weight, ("--scheme", "MXFP8", *kernel, "-t", threads), ref.quantize_group(weight))

    def test_group_refuses(self):
        """Columns that are no multiple of 32 are left; there is nothing else here."""
        for shape in ((128, 33), (128, 48), (32, 16)):
            try:
                written(normal(*shape), "--scheme", "MXFP8")
            except AssertionError as error:
                self.check("nothing to quantize" in str(error) and "multiple of 32" in str(error), str(error))
            else:
                self.check(False, f"{shape} was quantized")

    def test_kernels(self):
        weight = normal(300, 385, seed=3)
        for kernel in (("--kernel", "scalar"), ()):
            for threads in (1, 2, 7):
                self.compare(weight, ("--unaligned", "quantize", *kernel, "-t", threads),
                             ref.quantize_block(weight))


if __name__ == "__main__":
    main(at_least=400)
