# SPDX-License-Identifier: Apache-2.0
"""fp8q: a safetensors checkpoint to block-FP8, and the proof of it.

    import fp8q
    result = fp8q.quantize("Qwen3-4B", ignore=["layers.0"])
    assert fp8q.verify(result.output, source="Qwen3-4B").passed

    values, scales = fp8q.quantize_array(weight)       # numpy array, torch CPU tensor, or any buffer
    weight = fp8q.dequantize_array(values, scales, dtype="bf16")

Needs neither torch nor numpy.  Paths are str or os.PathLike.  What fails raises a kind of fp8q.Error, whose `id` is a
stable word.  Every call may be stopped with Ctrl-C: nothing half-made stays.
"""
import ctypes
import json
import os
import shutil
import subprocess
import sysconfig
from ctypes import byref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _arrays, _native
from ._native import (Cancelled, CheckFailed, Error, EvidenceError, FormatError, PolicyError, Progress, RequestError,
                      SystemFailure, UnsupportedError)

__all__ = ["Cancelled", "Check", "CheckFailed", "Checkpoint", "Conversion", "Error", "EvidenceError", "FormatError",
           "PlannedTensor", "PolicyError", "Progress", "RequestError", "SystemFailure", "Tensor", "UnsupportedError",
           "Verification", "Warning", "dequantize", "dequantize_array", "eval", "inspect", "quantize", "quantize_array",
           "run", "verify"]

Path_ = Union[str, "os.PathLike[str]"]

#: Version of the library.
__version__: str = _native.version().decode()


@dataclass(frozen=True)
class Warning:  # noqa: A001: the field's word
    """What to know about a call that went well."""

    id: str
    message: str


@dataclass(frozen=True)
class Tensor:
    """A tensor of a checkpoint."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    bytes: int
    shard: str
    role: str


@dataclass(frozen=True)
class PlannedTensor:
    """What becomes of a tensor: quantized, or left, and why."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    bytes: int
    shard: str
    quantize: bool
    reason: str
    scheme: Optional[str]


@dataclass(frozen=True)
class Conversion:
    """A conversion: planned, or done."""

    output: str
    architecture: str
    source_bytes: int
    output_bytes: int
    quantized: int
    exclusions: Tuple[str, ...]
    largest_tp: int
    tensors: Tuple[PlannedTensor, ...]
    warnings: Tuple[Warning, ...]


@dataclass(frozen=True)
class Check:
    """One check of verify: status is "pass", "warn" or "fail"."""

    id: str
    status: str
    observed: str
    limit: str
    where: str


@dataclass(frozen=True)
class Verification:
    """What verify found.  sqnr: signal to quantization noise in dB by tensor, worst first; only against a source."""

    passed: bool
    checks: Tuple[Check, ...]
    sqnr: Tuple[Tuple[str, float], ...]
    warnings: Tuple[Warning, ...]

    @property
    def failed(self) -> Tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == "fail")


@dataclass(frozen=True)
class Checkpoint:
    """What a file or directory holds."""

    path: str
    model_type: str
    architecture: str
    quantization: str
    bytes: int
    bits_per_weight: float
    tensors: Tuple[Tensor, ...]
    warnings: Tuple[Warning, ...]


def _warnings(job: _native.Job) -> Tuple[Warning, ...]:
    return tuple(Warning(*pair) for pair in job.take_warnings())


def _dtype(number: int) -> str:
    return _native.DTYPES[number]


def _pointer_to(items: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(items))(*[_native.encode(item) for item in items])


def _planned(handle: ctypes.c_void_p) -> Tuple[PlannedTensor, ...]:
    found: List[PlannedTensor] = []
    while True:
        pointer = _native.conversion_tensor(handle, len(found))
        if not pointer:
            return tuple(found)
        t = pointer.contents
        found.append(PlannedTensor(_native.decode(t.name), _dtype(t.dtype), tuple(t.shape[:t.ndim]), t.bytes,
                                   _native.decode(t.shard), t.quantize, _native.decode(t.reason),
                                   _native.decode(t.scheme) or None))


def _convert(request: _native.Request, dst: Optional[Path_], job: _native.Job, only_plan: bool) -> Conversion:
    handle = ctypes.c_void_p()
    try:
        job.must(_native.conversion_open, byref(request), byref(job.run), byref(handle), byref(job.warnings))
        info = _native.conversion_plan(handle).contents
        output = os.fspath(dst) if dst is not None else _native.decode(info.default_destination)
        if not only_plan:
            job.must(_native.conversion_run, handle, _native.encode(output), byref(job.warnings))
        return Conversion(output, _native.decode(info.architecture), info.source_bytes, info.output_bytes, info.n_quantized,
                          tuple(_native.decode(name) for name in info.exclusions[:info.n_exclusions]), info.largest_tp,
                          _planned(handle), _warnings(job))
    finally:
        _native.conversion_close(handle)
        job.take_warnings()


def _request(src: Path_, ignore: Sequence[str], include: Sequence[str], like: Optional[Path_],
             calibration: Optional[Path_], inputs: Optional[Path_], format: str, scheme: str,
             schemes: Dict[str, str], scales: str, scale_fmt: str, unaligned: str, input_range: str, kv_cache: str,
             tp: int, max_shard_size: int, flags: Dict[str, bool]) -> _native.Request:
    if isinstance(ignore, str) or isinstance(include, str):
        raise TypeError("ignore and include are lists of patterns")
    request = _native.sized(
        _native.Request, source=_native.encode(src), like=_native.encode(like), calibration=_native.encode(calibration),
        inputs=_native.encode(inputs), n_ignore=len(ignore), n_include=len(include), tp=tp,
        max_shard_size=max_shard_size,
        format=_native.word(_native.FORMATS, format, "format"),
        scales=_native.word(_native.SCALES, scales, "scales"),
        scale_fmt=_native.word(_native.SCALE_FMTS, scale_fmt, "scale_fmt"),
        scheme=_native.word(_native.SCHEMES, scheme, "scheme"),
        unaligned=_native.word(_native.UNALIGNED, unaligned, "unaligned"),
        input_range=_native.word(_native.INPUT_RANGES, input_range, "input_range"),
        kv_cache=_native.word(_native.KV_CACHES, kv_cache, "kv_cache"), **flags)
    # The struct keeps what it points to alive.
    request.ignore = _pointer_to(ignore)
    request.include = _pointer_to(include)
    request.schemes = _pointer_to([f"{pattern}={name}" for pattern, name in schemes.items()])
    request.n_schemes = len(schemes)
    return request


def quantize(src: Path_, dst: Optional[Path_] = None, *, ignore: Sequence[str] = (), include: Sequence[str] = (),
             like: Optional[Path_] = None, calibration: Optional[Path_] = None, inputs: Optional[Path_] = None,
             format: str = "auto", scheme: str = "FP8_BLOCK", schemes: Optional[Dict[str, str]] = None,
             scales: str = "sidecar", scale_fmt: str = "f32", unaligned: str = "keep", input_range: str = "absmax", kv_cache: str = "none",
             tp: int = 0, max_shard_size: int = 0, gptq: bool = False, no_gptq: bool = False,
             no_default_ignore: bool = False, allow_unmatched: bool = False, allow_tower: bool = False,
             strict: bool = False, requantize: bool = False, overwrite: bool = False, resume: bool = False,
             dry_run: bool = False, threads: int = 0, max_memory: int = 0, progress: Optional[Progress] = None) -> Conversion:
    """Writes a block-FP8 checkpoint of `src`, a file or a directory; `dst` is SRC-FP8 by default.

    Options are those of `fp8q quantize`; sizes are bytes; `dry_run` plans and writes nothing.
    `schemes` is {pattern: scheme}, for what matches; of several the last holds.
    `progress(stage, done, total, unit)` is called now and then, from another thread; what it raises stops the
    conversion and is raised here.
    """
    request = _request(src, ignore, include, like, calibration, inputs, format, scheme, schemes or {}, scales, scale_fmt,
                       unaligned, input_range, kv_cache, tp, max_shard_size,
                       {"no_default_ignore": no_default_ignore, "allow_unmatched": allow_unmatched,
                        "allow_tower": allow_tower, "strict": strict, "requantize": requantize, "gptq": gptq,
                        "no_gptq": no_gptq})
    return _convert(request, dst, _native.Job(progress, threads, max_memory, overwrite, resume), dry_run)


def dequantize(src: Path_, dst: Path_, *, dtype: str = "bf16", max_shard_size: int = 0, overwrite: bool = False,
               threads: int = 0, max_memory: int = 0, progress: Optional[Progress] = None) -> Conversion:
    """Writes a plain checkpoint of an FP8 one, of this tool or another; `dtype` is "bf16", "f16" or "f32"."""
    words = ("BF16", "F16", "F32")
    request = _native.sized(_native.Request, source=_native.encode(src), dequantize=True, max_shard_size=max_shard_size,
                            to=_native.DTYPES.index(words[_native.word(words, dtype, "dtype")]))
    return _convert(request, dst, _native.Job(progress, threads, max_memory, overwrite), False)


def verify(path: Path_, source: Optional[Path_] = None, *, lock: Optional[Path_] = None,
           calibration: Optional[Path_] = None, strict: bool = False, threads: int = 0,
           progress: Optional[Progress] = None) -> Verification:
    """Proves a checkpoint, alone or against its source.

    Returns what was found, also where checks fail (`passed`); raises only where it could not look.
    """
    request = _native.sized(_native.VerifyRequest, path=_native.encode(path), source=_native.encode(source),
                            lock=_native.encode(lock), calibration=_native.encode(calibration), strict=strict)
    job, handle = _native.Job(progress, threads), ctypes.c_void_p()
    try:
        status = job.call(_native.verification_open, byref(request), byref(job.run), byref(handle), byref(job.warnings))
        if status not in (0, _native.MISMATCH, _native.POLICY) or not handle:
            _native.raise_error(job.err)
        return Verification(status == 0, _checks(handle), _sqnr(handle), _warnings(job))
    finally:
        _native.verification_close(handle)
        job.take_warnings()


def _checks(handle: ctypes.c_void_p) -> Tuple[Check, ...]:
    found: List[Check] = []
    while True:
        pointer = _native.verification_check(handle, len(found))
        if not pointer:
            return tuple(found)
        check = pointer.contents
        found.append(Check(_native.decode(check.id), ("pass", "warn", "fail")[check.status], check.observed.decode(),
                           check.limit.decode(), check.where.decode()))


def _sqnr(handle: ctypes.c_void_p) -> Tuple[Tuple[str, float], ...]:
    found: List[Tuple[str, float]] = []
    name, db = ctypes.c_char_p(), ctypes.c_double()
    while _native.verification_sqnr(handle, len(found), byref(name), byref(db)):
        found.append((_native.decode(name.value), db.value))
    return tuple(found)


def inspect(path: Path_) -> Checkpoint:
    """What a file or directory holds, and how it is quantized; reads headers and config only."""
    job, handle = _native.Job(), ctypes.c_void_p()
    try:
        job.must(_native.checkpoint_open, _native.encode(path), byref(job.run), byref(handle), byref(job.warnings))
        info = _native.checkpoint_info(handle).contents
        tensors = []
        for index in range(info.n_tensors):
            t = _native.checkpoint_tensor(handle, index).contents
            tensors.append(Tensor(_native.decode(t.name), _dtype(t.dtype), tuple(t.shape[:t.ndim]), t.bytes,
                                  _native.decode(t.shard), _native.decode(t.role)))
        return Checkpoint(_native.decode(info.path), _native.decode(info.model_type), _native.decode(info.architecture),
                          _native.decode(info.quantization), info.bytes, info.bits_per_weight, tuple(tensors),
                          _warnings(job))
    finally:
        _native.checkpoint_close(handle)
        job.take_warnings()


def _program() -> str:
    """The program that came with this module, else the one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "fp8q"
    found = os.environ.get("FP8Q") or (str(beside) if beside.exists() else shutil.which("fp8q"))
    if not found:
        raise SystemFailure("io", "the program fp8q is neither beside this Python nor on PATH", -1)
    return found


def run(command: str, *arguments: Path_) -> Dict[str, Any]:
    """Runs `fp8q COMMAND --json ARGUMENTS`, and returns its object.

    A result of "fail" is an answer and is returned ("status"); what kept the command from giving one is raised.
    """
    done = subprocess.run([_program(), command, "--json", *[os.fspath(a) for a in arguments]], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    try:
        answer: Dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise Error("io", f"fp8q {command} ended with status {done.returncode}: {os.fsdecode(done.stderr)}") from None
    if answer["status"] == "error":
        raise Error(answer["error"]["id"], answer["error"]["message"])
    return answer


def eval(src: Path_, dst: Path_, *, inputs: Optional[Path_] = None, text: Optional[Path_] = None,
         output: Optional[Path_] = None, samples: int = 0, threads: int = 0) -> Dict[str, Any]:  # noqa: A001
    """How far the outputs of `dst` are from those of `src`: the object of `fp8q eval --json` ("kld", "top1", "ppl")."""
    arguments: List[Path_] = [src, dst]
    for option, value in (("--inputs", inputs), ("--text", text), ("--output", output), ("--samples", samples or None),
                          ("--threads", threads or None)):
        if value is not None:
            arguments += [option, str(value) if isinstance(value, int) else value]
    return run("eval", *arguments)


def quantize_array(weight: Any, *, dtype: Optional[str] = None, scheme: str = "FP8_BLOCK", scale_fmt: str = "f32",
                   threads: int = 0, name: Optional[str] = None) -> Tuple[Any, Any]:
    """E4M3 values and F32 scales of a matrix: the bits that `quantize` writes.

    `weight` is a torch CPU tensor, a numpy array or any two-dimensional buffer of F32, F16 or BF16, and is not copied
    (read-only buffers are).  BF16 bits in an integer array need dtype="bf16".  What comes back is of the same kind:
    torch.float8_e4m3fn and torch.float32; numpy.uint8 (the bits) and numpy.float32; or memoryviews.
    """
    w = _arrays.view(weight, "weight")
    kind = _arrays.checked(w, dtype, ("F32", "F16", "BF16"), "weight")
    values, v = _arrays.make(weight, w.rows, w.cols, "F8_E4M3")
    matrix = _arrays.matrix(w.rows, w.cols, kind, w.stride, v.stride, scheme, scale_fmt, name)
    job = _native.Job(threads=threads)
    shape = (ctypes.c_uint64 * 2)()
    job.must(_native.matrix_scales, byref(matrix), shape)
    scales, s = _arrays.make(weight, shape[0], shape[1], "F32")
    job.must(_native.matrix_quantize, byref(matrix), w.pointer, v.pointer, s.pointer, byref(job.run))
    return values, scales


def dequantize_array(values: Any, scales: Any, *, dtype: str = "f32", scheme: str = "FP8_BLOCK", threads: int = 0,
                     name: Optional[str] = None) -> Any:
    """The way back: value * scale as "f32", "f16" or "bf16" (numpy: the bits of BF16 as uint16)."""
    v, s = _arrays.view(values, "values"), _arrays.view(scales, "scales")
    _arrays.checked(v, None, ("F8_E4M3",), "values")
    _arrays.checked(s, None, ("F32",), "scales")
    words = ("F32", "F16", "BF16")
    kind = words[_native.word(words, dtype, "dtype")]
    floats, f = _arrays.make(values, v.rows, v.cols, kind)
    matrix = _arrays.matrix(v.rows, v.cols, kind, f.stride, v.stride, scheme, "f32", name)
    job = _native.Job(threads=threads)
    shape = (ctypes.c_uint64 * 2)()
    job.must(_native.matrix_scales, byref(matrix), shape)
    if (s.rows, s.cols) != tuple(shape) or (s.rows > 1 and s.stride != s.cols):
        raise RequestError("usage", f"scales: expected {list(shape)}, row by row, found [{s.rows}, {s.cols}]", -5)
    job.must(_native.matrix_dequantize, byref(matrix), v.pointer, s.pointer, f.pointer, byref(job.run))
    return floats
