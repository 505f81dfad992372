"""A weight in memory to E4M3 values and scales, without files: what a trainer does that pushes weights to an engine.

    python quantize_array.py            needs numpy and the module fp8q (pip install fp8q, or tools/package/python)

The module calls the shared library through ctypes. Where torch is installed, the same is computed there and compared
bit by bit.
"""
import numpy as np

import fp8q

weight = np.random.default_rng(7).normal(0, 0.02, (300, 520)).astype(np.float32)
values, scales = fp8q.quantize_array(weight)  # uint8 bits of E4M3, and a float32 scale for each 128x128 block
print(f"{weight.nbytes} bytes -> {values.nbytes + scales.nbytes}, scales {scales.shape}")

back = fp8q.dequantize_array(values, scales)
print(f"relative error {np.linalg.norm(back - weight) / np.linalg.norm(weight):.4f}")

try:
    import torch
except ImportError:
    print("no torch: not compared")
else:
    w = torch.from_numpy(weight)
    padded = torch.nn.functional.pad(w, (0, -w.shape[1] % 128, 0, -w.shape[0] % 128))
    amax = padded.reshape(padded.shape[0] // 128, 128, -1, 128).abs().amax((1, 3))
    each = (amax / 448).repeat_interleave(128, 0)[:w.shape[0]].repeat_interleave(128, 1)[:, :w.shape[1]]
    codes = (w / each).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(codes, values) and np.array_equal((amax / 448).numpy(), scales)
    print("torch computes the same bits")
