# SPDX-License-Identifier: Apache-2.0
"""The module as its users meet it: try_module.py CHECKPOINT EVAL_INPUTS [numpy|torch...]

Runs with the standard library alone; the packages that are named must be there and are used too.  Which figures are right
is told by torch (tests/engines/test_library.py) and by the program.
"""
import array
import contextlib
import os
import subprocess
import sys
import tempfile

import fp8q

checkpoint, inputs = (os.path.abspath(path) for path in sys.argv[1:3])
packages = sys.argv[3:]
assert not {"numpy", "torch"} & set(sys.modules), "the module imports what it does not need"
work = tempfile.TemporaryDirectory(prefix="fp8q-module-")
os.chdir(work.name)


@contextlib.contextmanager
def raises(kind, id):
    try:
        yield
    except kind as error:
        assert error.id == id, error.id
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


# The words of options are the program's.
for option, words in (("format", "FORMATS"), ("scales", "SCALES"), ("scale-fmt", "SCALE_FMTS"), ("scheme", "SCHEMES"),
                      ("unaligned", "UNALIGNED"), ("input-range", "INPUT_RANGES"), ("kv-cache", "KV_CACHES")):
    known = subprocess.run([fp8q._program(), "__complete", "quantize", f"--{option}", ""], stdout=subprocess.PIPE, text=True)
    assert tuple(known.stdout.split()) == getattr(fp8q._native, words), (option, known.stdout)

# A checkpoint: the same bytes as the program's.
calls = []
planned = fp8q.quantize(checkpoint, "module", ignore=["up_proj"], dry_run=True)
assert planned.quantized > 0 and not os.path.exists("module")
done = fp8q.quantize(checkpoint, "module", ignore=["up_proj"], progress=lambda *call: calls.append(call), threads=2)
assert done == planned and calls and calls[-1][3] in ("bytes", "tensors"), (done, calls)
assert [t.name for t in done.tensors if t.reason == "ignored"] and done.source_bytes > done.output_bytes
program = fp8q._program()
subprocess.run([program, "quantize", "-q", checkpoint, "program", "--ignore", "up_proj"], check=True)
for name in sorted(os.listdir("program")):
    assert open(f"program/{name}", "rb").read() == open(f"module/{name}", "rb").read(), name

report = fp8q.verify("module", source=checkpoint)
assert report.passed and not report.failed and report.sqnr and report.sqnr == tuple(sorted(report.sqnr, key=lambda x: x[1]))
found = fp8q.inspect("module")
assert len(found.tensors) > len(done.tensors) - 1 and found.quantization.startswith("block FP8"), found.quantization
assert {t.dtype for t in found.tensors} >= {"F8_E4M3", "BF16"}
fp8q.dequantize("module", "back")
assert fp8q.inspect("back").quantization == "none"
answer = fp8q.eval(checkpoint, "module", inputs=inputs, samples=1)
assert answer["status"] == "ok" and 0 <= answer["kld"]["mean"] < 1, answer

# Damage is an answer, everything else an exception with its id.
with open("module/model-00001-of-00001.safetensors", "r+b") as file:
    file.seek(-1, os.SEEK_END)
    last = file.read(1)
    file.seek(-1, os.SEEK_END)
    file.write(bytes([last[0] ^ 1]))
report = fp8q.verify("module")
assert not report.passed and "tensor-crc" in [check.id for check in report.failed], report.failed
with raises(fp8q.RequestError, "dst-exists"):
    fp8q.quantize(checkpoint, "module")
with raises(fp8q.RequestError, "pattern-unmatched"):
    fp8q.quantize(checkpoint, "other", ignore=["no_such_module"])
with raises(fp8q.RequestError, "usage"):
    fp8q.quantize(checkpoint, "other", scheme="FP9")
with raises(fp8q.SystemFailure, "io"):
    fp8q.inspect("nowhere")


# What a callback raises stops the conversion and comes through; nothing stays.
class Stop(Exception):
    pass


def stop(*_):
    raise Stop


try:
    fp8q.quantize(checkpoint, "stopped", progress=stop)
    raise AssertionError("the exception of the callback was lost")
except Stop:
    assert not [name for name in os.listdir() if name.startswith("stopped")], os.listdir()

# Matrices: a plain buffer.
numbers = array.array("f", [(i * 37 % 1000 - 500) / 7 for i in range(130 * 257)])
plain = memoryview(numbers).cast("B").cast("f", (130, 257))
values, scales = fp8q.quantize_array(plain)
assert values.shape == (130, 257) and scales.shape == (2, 3) and values.format == "B"
assert scales[0, 0] == array.array("f", [max(abs(plain[r, c]) for r in range(128) for c in range(128)) / 448])[0]
back = fp8q.dequantize_array(values, scales)
assert all(abs(back[r, c] - plain[r, c]) <= abs(plain[r, c]) / 16 + 1e-3 for r in range(0, 130, 7) for c in range(257))
again = fp8q.quantize_array(memoryview(bytes(numbers)).cast("f", (130, 257)))
assert again[0].tobytes() == values.tobytes(), "a read-only buffer"
numbers[5] = float("nan")
with raises(fp8q.FormatError, "non-finite"):
    fp8q.quantize_array(plain, name="layer.7")
with raises(fp8q.RequestError, "usage"):
    fp8q.quantize_array(numbers)
with raises(fp8q.RequestError, "usage"):
    fp8q.quantize_array(values)
with raises(fp8q.RequestError, "usage"):
    fp8q.dequantize_array(values, scales, scheme="FP8")
numbers[5] = 1.0

if "numpy" in packages:
    import numpy

    weight = numpy.frombuffer(numbers, numpy.float32).reshape(130, 257)
    values, scales = fp8q.quantize_array(weight)
    assert isinstance(values, numpy.ndarray) and values.dtype == numpy.uint8 and scales.shape == (2, 3)
    wide = numpy.zeros((130, 300), numpy.float32)
    wide[:, :257] = weight
    assert (fp8q.quantize_array(wide[:, :257])[0] == values).all(), "rows that do not touch"
    bits = (weight.view(numpy.uint32) >> 16).astype(numpy.uint16)
    kept = (bits.astype(numpy.uint32) << 16).view(numpy.float32)
    assert (fp8q.quantize_array(bits, dtype="bf16")[0] == fp8q.quantize_array(kept)[0]).all()
    assert fp8q.dequantize_array(values, scales, dtype="f16").dtype == numpy.float16
    with raises(fp8q.RequestError, "usage"):
        fp8q.quantize_array(weight.T)
    with raises(fp8q.RequestError, "usage"):
        fp8q.quantize_array(bits)

if "torch" in packages:
    import torch

    weight = torch.randn(300, 513, dtype=torch.float32).bfloat16()
    values, scales = fp8q.quantize_array(weight)
    assert values.dtype == torch.float8_e4m3fn and scales.dtype == torch.float32 and scales.shape == (3, 5)
    other, _ = fp8q.quantize_array(weight.float())
    assert torch.equal(other.view(torch.uint8), values.view(torch.uint8))
    spread = scales.repeat_interleave(128, 0)[:300].repeat_interleave(128, 1)[:, :513]
    back = fp8q.dequantize_array(values, scales, dtype="bf16")
    assert torch.equal(back, (values.float() * spread).bfloat16())
    with raises(fp8q.RequestError, "usage"):
        fp8q.quantize_array(torch.empty(2, 2, device="meta"))

os.chdir("/")
print(f"fp8q {fp8q.__version__}: module works" + (f", with {' and '.join(packages)}" if packages else ""))
