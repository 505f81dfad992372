"""What the loaders of engines share: a process for each checkpoint, poison before loading, the trace after it."""
import json
import os
import sys
import tempfile
import traceback

import torch

import vision  # noqa: F401  (before transformers)
from tracing import F8, Trace


def poison(parameters):
    """Nothing may stay as it was: what is not loaded is NaN, and in no file."""
    for tensor in parameters.values():
        if tensor.dtype == F8:
            tensor.view(torch.uint8).fill_(0x7F)
        elif tensor.dtype.is_floating_point:
            tensor.fill_(float("nan"))


def examine(path, ways, model, parameters, is_fp8):
    """Faults of a loaded model against its files, the tensors that it does not hold, and how many matrices are FP8."""
    trace = Trace(path, ways)
    unused, faults = trace.parameters(parameters), trace.faults
    for name, module in model.named_modules():
        chosen = is_fp8(module)
        for weight in ("weight", "w13_weight", "w2_weight"):
            held = trace.composed.get(f"{name}.{weight}", ())
            on_disk = {trace.files.tensors[t].dtype == F8 for t in held}
            if chosen is not None and held and on_disk != {chosen}:
                faults.append(f"{name}: built {'in FP8' if chosen else 'in high precision'}, which {sorted(held)} is not")
    return faults, unused, trace.n_fp8


def work(path, ways, rank, port, load, is_fp8, out):
    answer = {"path": path, "rank": rank, "loaded": False, "faults": [], "error": None}
    try:
        model, parameters, method = load(path, ways, rank, port)
        answer["faults"], answer["unused"], answer["fp8"] = examine(path, ways, model, parameters, is_fp8)
        answer.update(method=method, loaded=True)
    except BaseException as e:
        answer["error"] = f"{type(e).__name__}: {str(e)[:600]}"
        if os.environ.get("FP8Q_TRACEBACK"):
            traceback.print_exc()
    with open(out, "w", encoding="utf-8") as f:
        json.dump(answer, f)


def main(arguments, version, load, is_fp8):
    """Forks for each checkpoint (and rank), so that the imports are paid once."""
    torch.set_num_threads(1)
    ways, paths = int(arguments[0]), arguments[1:]
    print(json.dumps({"version": version}), flush=True)
    for number, path in enumerate(paths):
        with tempfile.TemporaryDirectory() as scratch:
            outs = [os.path.join(scratch, str(rank)) for rank in range(ways)]
            port = 20000 + (os.getpid() * 31 + number * 7) % 20000
            children = []
            for rank in range(ways):
                child = os.fork()
                if child == 0:
                    if not os.environ.get("FP8Q_TRACEBACK"):
                        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                    os.dup2(2, 1)
                    work(path, ways, rank, port, load, is_fp8, outs[rank])
                    os._exit(0)
                children.append(child)
            for child in children:
                os.waitpid(child, 0)
            for rank, out in enumerate(outs):
                gone = {"path": path, "rank": rank, "loaded": False, "faults": [], "error": "the loader died"}
                answer = gone
                if os.path.exists(out):
                    with open(out, encoding="utf-8") as f:
                        answer = json.load(f)
                print(json.dumps(answer), flush=True)
    sys.stdout.flush()
    os._exit(0)
