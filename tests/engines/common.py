"""What the consumer tests share: running the program, reading checkpoints, counting checks."""
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import quantize_ref as ref

torch.set_num_threads(1)

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "checkpoints")
FP8Q = os.environ.get("FP8Q", "fp8q")
WORK = tempfile.mkdtemp(prefix="fp8q-consumers-")
atexit.register(shutil.rmtree, WORK, True)

INDEX = "model.safetensors.index.json"
SIDECAR = "model-scales.safetensors"
LEROBOT = ("pi05-lerobot", "smolvla")  # policies, which take no inline scales
BF16, F16, F32, F8 = torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn

checks = 0


def checkpoint(name):
    return os.path.join(DATA, name)


def fp8q(*arguments):
    """Runs the program; returns exit status, standard output, standard error."""
    done = subprocess.run([FP8Q, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def fp8q_json(*arguments):
    """With --json: exit status and the object, which must be the only thing on standard output."""
    status, out, err = fp8q(*arguments, "--json")
    try:
        return status, json.loads(out)
    except ValueError:
        raise AssertionError(f"{arguments}: no JSON object: {out!r} {err!r}")


_made = {}


def quantized(source, *options):
    """Output directory of `quantize source options`; each is made once."""
    key = (source, options)
    if key not in _made:
        out = os.path.join(WORK, f"out{len(_made)}")
        status, _, err = fp8q("quantize", source, out, "-q", *options)
        if status != 0:
            raise AssertionError(f"quantize {source} {options}: exit {status}: {err}")
        _made[key] = out
    return _made[key]


def fresh_dir(name="case"):
    return tempfile.mkdtemp(prefix=name + "-", dir=WORK)


# ---- reading ------------------------------------------------------------------------------------

def weight_files(path):
    """The shards that a loader opens: those of the index, or the one file."""
    if os.path.isfile(path):
        return [path]
    index = os.path.join(path, INDEX)
    if os.path.exists(index):
        with open(index, encoding="utf-8") as f:
            names = sorted(set(json.load(f)["weight_map"].values()))
        return [os.path.join(path, n) for n in names]
    return [os.path.join(path, "model.safetensors")]


def read(path):
    """All tensors by name, by the official library.  No name may lie in two shards."""
    tensors = {}
    for file in weight_files(path):
        with safe_open(file, "pt") as f:
            for name in f.keys():
                if name in tensors:
                    raise AssertionError(f"{path}: {name} lies in two shards")
                tensors[name] = f.get_tensor(name)
    return tensors


def config(path):
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        return json.load(f)


def quantization(path):
    return config(path)["quantization_config"]


def expected():
    """{checkpoint: {tensor: (dtype, shape, action, reason)}} of EXPECTED.tsv."""
    table = {}
    with open(os.path.join(DATA, "EXPECTED.tsv"), encoding="utf-8") as f:
        for line in f:
            if line.startswith("#"):
                continue
            name, tensor, dtype, shape, action, reason = line.rstrip("\n").split("\t")
            table.setdefault(name, {})[tensor] = (dtype, json.loads(shape), action, reason)
    return table


def source_of(name):
    """The argument for quantize: `bare-file` is a file."""
    path = checkpoint(name)
    return os.path.join(path, "model.safetensors") if name == "bare-file" else path


def raw(tensor):
    """The bytes of a tensor, for comparisons that must see NaNs and signs."""
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def scale_name(weight, suffix="_scale_inv"):
    return weight + suffix


# ---- making -------------------------------------------------------------------------------------

def normal(*shape, dtype=BF16, seed=0, std=0.02):
    generator = torch.Generator().manual_seed(seed + sum(shape) * 7 + len(shape))
    return (torch.randn(*shape, generator=generator) * std).to(dtype)


def make(tensors, settings=None, shards=None, path=None):
    """A checkpoint directory of tensors {name: tensor}; shards {file: [names]} writes an index."""
    path = path or fresh_dir()
    if settings is not None:
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            json.dump(settings, f, indent=2)
    if not shards:
        save_file(tensors, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
        return path
    weight_map = {}
    for file, names in shards.items():
        save_file({n: tensors[n] for n in names}, os.path.join(path, file), metadata={"format": "pt"})
        weight_map.update({n: file for n in names})
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    with open(os.path.join(path, INDEX), "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": size}, "weight_map": weight_map}, f)
    return path


# ---- checking -----------------------------------------------------------------------------------

class Case(unittest.TestCase):
    """Counts what it checks, so that a run that found nothing to check can fail."""
    maxDiff = None

    def check(self, condition, message=""):
        global checks
        checks += 1
        if not condition:
            self.fail(message)

    def equal(self, got, want, message=""):
        self.check(got == want, f"{message}: got {got!r}, expected {want!r}")

    def same_bytes(self, got, want, message):
        self.check(got.dtype == want.dtype and got.shape == want.shape and raw(got) == raw(want),
                   f"{message}: {describe(got, want)}")


def describe(got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}"
    differ = (got.to(torch.float64) != want.to(torch.float64)).reshape(-1)
    first = int(differ.int().argmax()) if differ.any() else -1
    return f"{int(differ.sum())} of {differ.numel()} values differ, the first at {first}"


def main(at_least):
    """Runs the tests of the calling script; fails when fewer than at_least checks were made."""
    program = unittest.main(module="__main__", exit=False)
    ok = program.result.wasSuccessful()
    print(f"{program.result.testsRun} tests, {checks} checks")
    if ok and len(sys.argv) == 1 and (checks < at_least or program.result.skipped):
        print(f"expected at least {at_least} checks and no skipped test")
        ok = False
    sys.exit(0 if ok else 1)
