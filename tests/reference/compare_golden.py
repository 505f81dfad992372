#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/compare/normal-512.safetensors and prints the figures that compare must find.

512x512 normal weights, sigma 0.02, from numpy's default_rng(0), with two outliers in one 128x128 block.
Needs numpy, ml_dtypes and safetensors.
"""
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

F = np.float32


def weights():
    w = np.random.default_rng(0).normal(0, 0.02, (512, 512)).astype(F)
    w[10, 20], w[40, 80] = 6.0, -5.0
    return w


def fp8(w, amax):
    s = (amax / F(448)).astype(F)
    return np.clip((w / s).astype(F), -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(F) * s


def ue8m0(w, amax):
    s = np.exp2(np.ceil(np.log2(amax.astype(np.float64) / 448))).astype(F)
    return np.clip((w / s).astype(F), -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(F) * s


def integer(w, amax, top):
    s = (amax / F(top)).astype(F)
    return np.clip(np.rint(w / s), -top, top).astype(F) * s


def amax(w, kind):
    a = np.abs(w)
    if kind == "tensor":
        return np.full_like(w, a.max())
    if kind == "channel":
        return np.broadcast_to(a.max(1, keepdims=True), w.shape)
    if kind == "mx-32":
        return np.repeat(a.reshape(w.shape[0], -1, 32).max(2), 32, 1)
    blocks = a.reshape(w.shape[0] // 128, 128, -1, 128).max((1, 3))
    return np.repeat(np.repeat(blocks, 128, 0), 128, 1)


def main():
    w = weights()
    if len(sys.argv) > 1:
        save_file({"model.layers.0.mlp.up_proj.weight": w}, Path(sys.argv[1]))
    rows = [("FP8-E4M3", k, fp8(w, amax(w, k))) for k in ("tensor", "channel", "block")]
    rows.append(("FP8-E4M3", "block-ue8m0", ue8m0(w, amax(w, "block"))))
    rows.append(("FP8-E4M3", "mx-32", ue8m0(w, amax(w, "mx-32"))))
    for name, top in (("INT8", 127), ("INT4", 7)):
        rows += [(name, k, integer(w, amax(w, k), top)) for k in ("tensor", "channel", "block")]
    for name, kind, out in rows:
        d2 = ((w.astype(np.float64) - out.astype(np.float64)) ** 2).sum()
        w2 = (w.astype(np.float64) ** 2).sum()
        print(f"{name} {kind} rmse {np.sqrt(d2 / w.size):.10g} relative {np.sqrt(d2 / w2):.10g} "
              f"sqnr_db {10 * np.log10(w2 / d2):.8f}")


if __name__ == "__main__":
    main()
