#!/usr/bin/env python3
"""Repeat the measurements on real models that docs/results/accuracy.md reports, and hold them against torch's figures.

    python bench/real_eval.py build/release/fp8q MODELS [--only qwen05] [--work DIR] [--samples N]

MODELS holds the directories qwen05 (Qwen2.5-Coder-0.5B-Instruct, BF16) and smollm2 (SmolLM2-135M-Instruct, BF16). Inputs
(token ids of prose and code) and torch's figures lie in tests/data/eval/real. Quantizes plainly and with
calibration on other text, evaluates weight-only and as served, and prints one table with what is expected and
whether it holds: NLL of the source within 1e-3, KLD within 1 % (weight-only, plain rounding; 10 % as served), top-1
within 0.3 points (weight-only), compensated weight-only KLD at most 0.90 (qwen05) or 0.65 (smollm2) of plain rounding, and, with 512
tokens, random ids or log lines as calibration, never above 1.02; --gptq at most 0.70 or 0.45, and never above 1.00. Standard library only; minutes a model on two cores.
"""
import argparse
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "tests/data/eval/real"
LIMIT = {"qwen05": 0.90, "smollm2": 0.65}
GPTQ_LIMIT = {"qwen05": 0.70, "smollm2": 0.45}
VOCABULARY = {"qwen05": 151936, "smollm2": 49152}
failures = 0


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def check(what, found, expected, holds):
    global failures
    failures += not holds
    print(f"  {what:44s} {found:>10s}   {expected:24s} {'ok' if holds else 'FAILED'}", flush=True)


def write_ids(path, samples):
    header, data = {}, b""
    for i, ids in enumerate(samples):
        raw = struct.pack(f"<{len(ids)}q", *ids)
        header[f"{i}.input_ids"] = {"dtype": "I64", "shape": [len(ids)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Model:
    def __init__(self, args, name, work):
        self.fp8q, self.name, self.source, self.work = args.fp8q, name, args.models / name, work
        self.inputs = ["--inputs", DATA / f"{name}.eval.inputs.safetensors"]
        if args.samples:
            self.inputs += ["--samples", args.samples]

    def quantize(self, fmt, *rounding):
        out = self.work / "out"
        shutil.rmtree(out, ignore_errors=True)
        run(self.fp8q, "quantize", self.source, out, "--unaligned", "quantize", "--scale-fmt", fmt, "--json",
            *rounding)
        return out

    def evaluate(self, out, acts, *more):
        return run(self.fp8q, "eval", self.source, out, *self.inputs, "--acts", acts, "--json", *more)

    def calibrate(self, *inputs):
        """Statistics of the samples, and the samples themselves."""
        out, samples = self.work / "c.calib.safetensors", self.work / "c.inputs.safetensors"
        samples.unlink(missing_ok=True)
        run(self.fp8q, "calibrate", self.source, *inputs, "--dump-inputs", samples, "-o", out, "--overwrite", "--json")
        return out, samples


def compare_kld(what, result, expected, relative):
    kld, want = result["kld"]["mean"], expected["kld"]
    check(f"{what} KLD", f"{kld:.6f}", f"torch {want:.6f}", abs(kld - want) <= max(relative * want, 1e-6))
    if relative <= 0.01:
        check(f"{what} top-1", f"{result['top1']:.4f}", f"torch {expected['top1']:.4f}",
              abs(result["top1"] - expected["top1"]) <= 0.003)


def measure(model, reference, whole):
    """@whole: all samples are run, so torch's means apply."""
    recipes, plain = reference["recipes"], {}
    for fmt in ("f32", "ue8m0"):
        out = model.quantize(fmt)
        weights = model.evaluate(out, "none")
        plain[fmt] = weights["kld"]["mean"]
        if fmt == "f32":
            for i, sample in enumerate(weights["samples"]):
                want = reference["source_nll"][i]
                check(f"source NLL, sample {i}", f"{sample['nll_source']:.6f}", f"torch {want:.6f}",
                      abs(sample["nll_source"] - want) < 1e-3)
        if whole:
            served = model.evaluate(out, "served", *(["--decompose", "--requant-ue8m0"] if fmt == "f32" else []))
            compare_kld(f"plain {fmt}, weights only", weights, recipes[f"plain {fmt} none"], 0.01)
            compare_kld(f"plain {fmt}, as served", served, recipes[f"plain {fmt} served"], 0.1)
            for row, name in (("activations-only", "activations-only"), ("requantized-ue8m0", "requantized-ue8m0 served")):
                if row in served["rows"]:
                    compare_kld(row, served["rows"][row], recipes[name], 0.1)
    calibrations = {
        "other text": (["--inputs", DATA / f"{model.name}.calib.inputs.safetensors"], LIMIT[model.name]),
        "512 tokens": (["--inputs", DATA / f"{model.name}.calib.inputs.safetensors", "--samples", 1], 1.02),
    }
    rng = random.Random(1)
    ids = model.work / "random.safetensors"
    write_ids(ids, [[rng.randrange(VOCABULARY[model.name]) for _ in range(512)] for _ in range(8)])
    calibrations["random ids"] = (["--inputs", ids], 1.02)
    log = model.work / "log.txt"
    log.write_text("".join(f"2026-01-{1 + i % 28:02d} {i % 24:02d}:{i * 7 % 60:02d}:{i * 13 % 60:02d} host{i % 9} kernel: "
                           f"[{i * 977}.{i * 31 % 1000}] eth{i % 3}: link up, {10 ** (1 + i % 4)} Mbps\n" for i in range(120)))
    calibrations["log lines"] = (["--text", log], 1.02)
    for name, (inputs, limit) in calibrations.items():
        calibration, samples = model.calibrate(*inputs)
        for way, rounding in (("compensated", ("--calibration", calibration)), ("gptq", ("--gptq", "--inputs", samples))):
            if way == "gptq":
                limit = GPTQ_LIMIT[model.name] if name == "other text" else 1.0
            for fmt in ("f32", "ue8m0"):
                ratio = model.evaluate(model.quantize(fmt, *rounding), "none")["kld"]["mean"] / plain[fmt]
                check(f"{way} with {name}, {fmt}", f"{ratio:.3f}", f"of plain, at most {limit}", ratio <= limit)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("fp8q", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only", choices=LIMIT)
    parser.add_argument("--work", type=Path, help="where checkpoints are written (default: a temporary directory)")
    parser.add_argument("--samples", type=int, help="fewer samples: faster, and torch's means are not compared")
    args = parser.parse_args()
    references = json.loads((DATA / "reference.json").read_text())["models"]
    for name in [args.only] if args.only else LIMIT:
        print(name)
        with tempfile.TemporaryDirectory(dir=args.work) as work:
            measure(Model(args, name, Path(work)), references[name], args.samples is None)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
