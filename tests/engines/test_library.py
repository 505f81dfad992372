# SPDX-License-Identifier: Apache-2.0
"""The Python module: matrices in memory through the shared library, against torch."""
import os
import subprocess
import sys

import numpy as np
import torch

if not os.environ.get("FP8Q_LIBRARY"):
    print("no shared library in this build: nothing tested")
    sys.exit(0)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/package/python"))
import fp8q  # noqa: E402


def reference(weight, scheme):
    """Values and scales as torch computes them: amax / 448, true division, clamped cast."""
    w = weight.float()
    rows, cols = w.shape
    if scheme == "FP8":
        amax = w.abs().max().reshape(1, 1)
        spread = amax
    elif scheme == "FP8_DYNAMIC":
        amax = w.abs().amax(1, keepdim=True)
        spread = amax
    else:
        padded = torch.nn.functional.pad(w, (0, -cols % 128, 0, -rows % 128))
        amax = padded.reshape(padded.shape[0] // 128, 128, -1, 128).abs().amax((1, 3))
        spread = amax.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
    scale = torch.where(amax == 0, torch.ones(()), amax / 448)
    each = torch.where(spread == 0, torch.ones(()), spread / 448)
    return (w / each).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def check(weight, scheme, dtype=None, array=None):
    array = weight.numpy() if array is None else array
    values, scales = fp8q.quantize_array(array, dtype=dtype, scheme=scheme)
    expected, expected_scales = reference(weight, scheme)
    assert np.array_equal(values, expected.view(torch.uint8).numpy()), (weight.shape, scheme)
    assert np.array_equal(scales, expected_scales.numpy().astype(np.float32))

    back = fp8q.dequantize_array(values, scales, scheme=scheme)
    spread = scales
    if scheme == "FP8_BLOCK":
        spread = scales.repeat(128, 0)[:back.shape[0]].repeat(128, 1)[:, :back.shape[1]]
    assert np.array_equal(back, expected.float().numpy() * spread)


torch.manual_seed(3)
for shape in ((1, 1), (128, 128), (130, 257), (300, 9000), (5, 128)):
    weight = torch.randn(shape) * 0.02
    weight[0, 0] = 0
    for scheme in ("FP8_BLOCK", "FP8_DYNAMIC", "FP8"):
        check(weight, scheme)
        check(weight.half(), scheme)
        check(weight.bfloat16(), scheme, "bf16", weight.bfloat16().view(torch.uint16).numpy())
        wide = torch.randn(shape[0], shape[1] + 5)  # rows that do not touch
        check(wide[:, :shape[1]], scheme)
check(torch.zeros(128, 256), "FP8_BLOCK")

try:
    fp8q.quantize_array(np.array([[1, 2], [np.inf, 0]], np.float32), name="layer.7")
    raise AssertionError("an infinity was quantized")
except fp8q.Error as error:
    assert error.id == "non-finite" and "layer.7" in str(error) and "[1, 0]" in str(error), error
print(f"fp8q {fp8q.__version__}: equal to torch, bit for bit")

# The example says so itself.
here = os.path.dirname(os.path.abspath(__file__))
example = subprocess.run([sys.executable, "-B", os.path.join(here, "../../examples/python/quantize_array.py")],
                         env=dict(os.environ, PYTHONPATH=os.path.join(here, "../../tools/package/python")),
                         capture_output=True, text=True)
assert example.returncode == 0 and "the same bits" in example.stdout, example.stdout + example.stderr
