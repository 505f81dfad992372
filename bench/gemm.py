#!/usr/bin/env python3
"""fp8q's matrix products, of F32 and of FP8 values, beside numpy's BLAS in F32, on the same shapes and threads, taking turns.

    cmake --build build/release --target bench_gemm
    python bench/gemm.py build/release/bench_gemm [THREADS]

Exit status 1 if a shape falls below 60 % of BLAS.
"""
import os
import subprocess
import sys
import time

threads = sys.argv[2] if len(sys.argv) > 2 else str(len(os.sched_getaffinity(0)))
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = threads
import numpy as np  # noqa: E402  (after the environment)


def blas(m, n, k):
    a, b = np.random.rand(m, k).astype("f"), np.random.rand(n, k).astype("f")
    best = 1e9
    for _ in range(7):
        start = time.perf_counter()
        a @ b.T
        best = min(best, time.perf_counter() - start)
    return 2e-9 * m * n * k / best


ours, fp8, theirs = {}, {}, {}
for _ in range(3):
    for line in subprocess.run([sys.argv[1], threads], capture_output=True, text=True, check=True).stdout.splitlines():
        *shape, speed, of_fp8 = line.split()
        shape = tuple(map(int, shape))
        ours[shape] = max(ours.get(shape, 0), float(speed))
        fp8[shape] = max(fp8.get(shape, 0), float(of_fp8))
        theirs[shape] = max(theirs.get(shape, 0), blas(*shape))
for shape in ours:
    print(f"{'x'.join(map(str, shape)):>16s}  {ours[shape]:7.1f}  {fp8[shape]:7.1f}  {theirs[shape]:7.1f} GFLOPS"
          f"  F32 {ours[shape] / theirs[shape]:.2f}  FP8 {fp8[shape] / theirs[shape]:.2f}")
sys.exit(any(ours[s] < 0.6 * theirs[s] for s in ours))
