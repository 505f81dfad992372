"""Loads a checkpoint of fp8q into any torch module, and keeps its FP8 weights as they are.

    from load_fp8 import load_fp8
    policy = PI05Policy(config)                     # or any nn.Module whose names are those of the checkpoint
    load_fp8(policy, "pi05-FP8")                    # linears that are FP8 in the file are FP8 in memory
    action = policy.select_action(observation)

Policies such as LeRobot's know no FP8. With this one file, which needs torch alone, they take half the memory for what is
quantized: each FP8 linear is made wide for its product and forgotten again, so that it computes what the dequantized
checkpoint computes, bit for bit. Where weights have a scale a row or a tensor and the GPU has FP8 tensor cores,
`fast=True` multiplies in FP8 (torch._scaled_mm) and rounds inputs to FP8, as serving engines do.

Read are the layouts that fp8q writes: both checkpoint formats, scales in a sidecar or inline, a scale for a block of
128x128, a row, a tensor, or 32 columns of a row (MXFP8).
"""
import json
import math
import mmap
import pathlib

import torch
from torch import nn

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
          "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
SCALE_NAMES = ("_scale_inv", "_scale")
STATIC_NAMES = (".input_scale", ".k_scale", ".v_scale")  # of engines that round inputs by a fixed scale


# ---- the files ----------------------------------------------------------------------------------

class Checkpoint:
    """Tensors of a .safetensors file or a directory with an index, mapped, by name."""

    def __init__(self, path):
        self.where = {}
        for file in shards(pathlib.Path(path)):
            with open(file, "rb") as f:
                data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            begin = 8 + int.from_bytes(data[:8], "little")
            for name, entry in json.loads(data[8:begin]).items():
                if name != "__metadata__":
                    self.where[name] = (data, begin, entry)

    def __contains__(self, name):
        return name in self.where

    def __getitem__(self, name):
        data, begin, entry = self.where[name]
        start, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        if end == start:
            return torch.empty(entry["shape"], dtype=dtype)
        # A copy: the file may go, and its mapping must not be written.
        raw = torch.frombuffer(bytearray(data[begin + start:begin + end]), dtype=torch.uint8)
        return raw.view(dtype).reshape(entry["shape"])


def shards(path):
    if path.is_file():
        sidecar = path.with_suffix(".scales.safetensors")
        return [path] + ([sidecar] if sidecar.exists() else [])
    index = path / "model.safetensors.index.json"
    if index.exists():
        return [path / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    return [path / "model.safetensors"]


def scale_of(checkpoint, name):
    """Name of the scales of FP8 weight @name."""
    for ending in SCALE_NAMES:
        if name + ending in checkpoint:
            return name + ending
    raise ValueError(f"{name}: is FP8 and has no scales")


# ---- values -------------------------------------------------------------------------------------

def spread(scale, shape):
    """The scale of each element of a weight of @shape, to be multiplied with it: F32, of a shape that broadcasts."""
    if scale.dtype == torch.uint8:  # E8M0: the exponent alone
        scale = torch.ldexp(torch.ones_like(scale, dtype=torch.float32), scale.to(torch.int32) - 127)
    scale = scale.to(torch.float32)
    if scale.numel() == 1:
        return scale.reshape([1] * len(shape))
    for axis, size in enumerate(shape):
        n = scale.shape[axis]
        if n in (1, size):
            continue
        block = next((b for b in (128, 32) if math.ceil(size / b) == n), None)
        if block is None:
            raise ValueError(f"scales of shape {list(scale.shape)} for a weight of {list(shape)}")
        scale = scale.repeat_interleave(block, axis).narrow(axis, 0, size)
    return scale


def dequantize(weight, scale, dtype):
    """value * scale in F32, rounded once more: the values of `fp8q dequantize`."""
    return (weight.to(torch.float32) * spread(scale, weight.shape)).to(dtype)


# ---- modules ------------------------------------------------------------------------------------

class FP8Linear(nn.Module):
    """A linear whose weight stays FP8."""

    def __init__(self, weight, scale, bias, dtype, fast=False):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.dtype, self.wide, self.fast = dtype, dtype, fast  # rounded to one, then cast as the module is
        # Buffers: nothing here is trained, and .to(device) takes them along. _apply() keeps their types.
        self.register_buffer("weight_fp8", weight)
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", bias)

    def _apply(self, fn, recurse=True):
        """.to(torch.bfloat16) of the whole policy must not make the weight wide, nor round its scales."""
        kept = self.weight_fp8.dtype, self.weight_scale.dtype
        self.weight_fp8, self.weight_scale = self.weight_fp8.view(torch.uint8), self.weight_scale.view(torch.uint8)
        super()._apply(fn, recurse)
        self.weight_fp8, self.weight_scale = self.weight_fp8.view(kept[0]), self.weight_scale.view(kept[1])
        self.wide = fn(torch.zeros((), dtype=self.wide, device=self.weight_scale.device)).dtype
        return self

    @property
    def weight(self):
        """The wide weight, made anew each time: policies cast their inputs to its dtype (SmolVLA, pi0)."""
        return dequantize(self.weight_fp8, self.weight_scale, self.dtype).to(self.wide)

    def multiplies_in_fp8(self, x):
        by_row = self.weight_scale.numel() in (1, self.out_features)
        return (self.fast and by_row and x.is_cuda and torch.cuda.get_device_capability(x.device) >= (8, 9)
                and self.in_features % 16 == 0 and self.out_features % 16 == 0)

    def forward(self, x):
        if self.multiplies_in_fp8(x):
            return self.forward_fp8(x)
        return nn.functional.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))

    def forward_fp8(self, x):
        rows = x.reshape(-1, self.in_features)
        scale = (rows.abs().amax(1, keepdim=True).to(torch.float32) / 448).clamp(min=2.0 ** -126)
        codes = (rows.to(torch.float32) / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        by_row = self.weight_scale.reshape(1, -1).expand(1, self.out_features).contiguous()
        y = torch._scaled_mm(codes, self.weight_fp8.t(), scale_a=scale, scale_b=by_row, out_dtype=torch.bfloat16)
        y = y.to(x.dtype).reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias.to(x.dtype)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, scales={list(self.weight_scale.shape)}"


def owner_of(module, name):
    """The module that holds parameter or buffer @name, and the last component."""
    path, _, leaf = name.rpartition(".")
    return (module.get_submodule(path) if path else module), leaf


def put(module, name, value):
    """@value in place of the parameter or buffer @name, in its dtype and on its device."""
    owner, leaf = owner_of(module, name)
    old = getattr(owner, leaf)
    if old.shape != value.shape:
        raise ValueError(f"{name}: the module has {list(old.shape)}, the checkpoint {list(value.shape)}")
    device = "cpu" if old.is_meta else old.device
    value = value.to(device=device, dtype=old.dtype)
    if leaf in owner._parameters:
        owner._parameters[leaf] = nn.Parameter(value, requires_grad=False)
    else:
        owner._buffers[leaf] = value


def replace_linear(module, name, weight, scale, fast):
    """The nn.Linear that holds @name becomes an FP8Linear."""
    path = name.removesuffix(".weight")
    linear = module.get_submodule(path)
    if linear.weight.shape != weight.shape:
        raise ValueError(f"{name}: the module has {list(linear.weight.shape)}, the checkpoint {list(weight.shape)}")
    device = "cpu" if linear.weight.is_meta else linear.weight.device
    bias = None if linear.bias is None else linear.bias.data
    parent, leaf = owner_of(module, path)
    setattr(parent, leaf, FP8Linear(weight.to(device), scale.to(device), bias, linear.weight.dtype, fast))


def load_fp8(module, path, rename=lambda name: name, strict=True, fast=False):
    """Loads checkpoint @path into @module; returns it.

    rename   name in the checkpoint -> name in the module, or None to leave a tensor out
    strict   an error for tensors without a place and for parameters without a tensor (tied ones have theirs)
    fast     multiply in FP8 where the GPU and the scales allow it
    """
    checkpoint = Checkpoint(path)
    have = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    scales = {scale_of(checkpoint, n) for n in checkpoint.where if checkpoint.where[n][2]["dtype"].startswith("F8_E")
              and not n.endswith(SCALE_NAMES)}
    tied = {id(t) for t in have.values()}
    unplaced = []

    for name in sorted(checkpoint.where):
        if name in scales or name.endswith(STATIC_NAMES) or (target := rename(name)) is None:
            continue
        if target not in have:
            unplaced.append(name)
            continue
        tied.discard(id(have[target]))
        value = checkpoint[name]
        if not value.dtype.is_floating_point or value.element_size() != 1:
            put(module, target, value)
            continue
        scale = checkpoint[scale_of(checkpoint, name)]
        owner, leaf = owner_of(module, target)
        if type(owner) is nn.Linear and leaf == "weight":
            replace_linear(module, target, value, scale, fast)
        else:  # stacked experts and what else is no linear: wide, as there is no module to keep it narrow
            put(module, target, dequantize(value, scale, have[target].dtype))

    # Buffers that a module computes for itself need no tensor.
    parameters = {id(p) for p in dict(module.named_parameters()).values()}
    missing = [n for n, t in have.items() if id(t) in tied and id(t) in parameters]
    if strict and (unplaced or missing):
        raise ValueError(f"no place for {unplaced[:5]} ({len(unplaced)}), nothing for {missing[:5]} ({len(missing)})")
    retie(module, have)
    return module


def retie(module, before):
    """Parameters that were one before are one again: an output head that is the table of tokens."""
    groups = {}
    for name, tensor in before.items():
        groups.setdefault(id(tensor), []).append(name)
    for names in groups.values():
        new = []
        for name in names:
            owner, leaf = owner_of(module, name)
            value = getattr(owner, leaf, None)
            if value is not None and value is not before[name]:
                new.append(value)
        for name in names if new else []:
            owner, leaf = owner_of(module, name)
            if leaf in owner._parameters and owner._parameters[leaf] is before[name]:
                owner._parameters[leaf] = new[0]
