"""Loads checkpoints with transformers and compressed-tensors on a CPU: transformers_load.py 1 CHECKPOINT...

There FP8 becomes floats, of compressed-tensors on use.  Each is loaded as it is and again after `fp8q dequantize --dtype f32`:
nothing may be missing or left over, and every value must be the same, bit for bit.  One line of JSON for each checkpoint.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import vision  # noqa: E402, F401  (before transformers)
import transformers  # noqa: E402

UNREAD = (".k_scale", ".v_scale")       # there is no cache in FP8
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def values(path):
    """All values of the model that transformers makes of it, and what it had to say of the names."""
    config = transformers.AutoConfig.from_pretrained(path)
    network = getattr(transformers, config.architectures[0])
    model, info = network.from_pretrained(path, dtype=torch.float32, output_loading_info=True)
    faults = [f"{kind}: {sorted(map(str, names))[:3]}" for kind, names in info.items()
              if set(names) - {n for n in names if str(n).endswith(UNREAD)}]
    tensors = model.state_dict()
    return {n: on_use(n, t, tensors) for n, t in tensors.items() if not n.endswith(("_scale", ".weight_shape"))}, faults


def on_use(name, tensor, tensors):
    """What compressed-tensors makes of a weight when it is used."""
    if tensor.dtype != torch.float8_e4m3fn:
        return tensor
    scale = tensors[name + "_scale"]
    scale = (scale.float() - 127).exp2() if scale.dtype == torch.uint8 else scale.float()
    if scale.dim() == 2:
        scale = scale.repeat_interleave(-(-tensor.shape[0] // scale.shape[0]), 0)[:tensor.shape[0]]
        scale = scale.repeat_interleave(-(-tensor.shape[1] // scale.shape[1]), 1)[:, :tensor.shape[1]]
    return tensor.float() * scale


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def examine(path, scratch):
    answer = {"path": path, "loaded": False, "faults": [], "error": None, "fp8": 1}
    plain = scratch / "plain"
    subprocess.run([os.environ.get("FP8Q", "fp8q"), "dequantize", "-q", "--dtype", "f32", path, plain], check=True,
                   capture_output=True)
    wanted, faults = values(plain)
    assert not faults, f"the plain checkpoint: {faults}"
    try:
        got, answer["faults"] = values(path)
        answer["loaded"] = True
    except Exception as e:
        answer["error"] = f"{type(e).__name__}: {str(e)[:300]}"
        return answer

    answer["faults"] += [f"{n}: {'differs' if n in got else 'is not there'}" for n in wanted if n not in got or not same(got[n], wanted[n])]
    answer["faults"] += [f"{n}: is left over" for n in got if n not in wanted]
    return answer


def main(paths):
    print(json.dumps({"version": transformers.__version__}), flush=True)
    for path in paths:
        with tempfile.TemporaryDirectory() as scratch:
            print(json.dumps(examine(path, pathlib.Path(scratch))), flush=True)


if __name__ == "__main__":
    main(sys.argv[2:])
