# SPDX-License-Identifier: Apache-2.0
"""libfp8q as ctypes sees it: the structs of fp8q.h, and how a call is made.

tools/package/python/try_layout.py compares every struct with the header.
"""
import ctypes
import os
import threading
from ctypes import (POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint32,
                    c_uint64, c_void_p)
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Tuple, Type, TypeVar

DTYPES = ("U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "F8_E5M2FNUZ", "F8_E4M3FNUZ",
          "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "F6_E3M2", "F6_E2M3", "F4", "BOOL")
# Words of options, in the order of their enums; try_module.py asks the program for them.
FORMATS = ("auto", "fp8", "compressed-tensors", "modelopt")
SCALES = ("sidecar", "inline")
SCALE_FMTS = ("f32", "ue8m0")
SCHEMES = ("FP8_BLOCK", "FP8_DYNAMIC", "FP8", "MXFP8", "FP8_STATIC")
UNALIGNED = ("keep", "quantize", "per-channel")
INPUT_RANGES = ("absmax", "p99.99", "p99.9", "mse")
KV_CACHES = ("none", "fp8")
UNITS = ("bytes", "tokens", "steps", "tensors")
MISMATCH, POLICY, CANCELLED = -6, -7, -9

#: Called with stage, done, total and unit ("bytes", "tokens", "steps", "tensors").
Progress = Callable[[str, int, int, str], None]


class Error(Exception):
    """What the library says.  `id` is a stable word (docs/reference/errors.md), `status` its kind."""

    #: Stable word of the condition: "dst-exists", "non-finite", ...
    id: str
    #: enum fp8q_status of fp8q.h.
    status: int

    def __init__(self, id: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.id = id
        self.status = status


class FormatError(Error, ValueError):
    """A file breaks its own format."""


class UnsupportedError(Error, ValueError):
    """Valid, but not for fp8q: a dtype, an architecture."""


class RequestError(Error, ValueError):
    """The request is wrong: the output exists, a pattern matches nothing."""


class SystemFailure(Error):
    """The system refused: no such file, no space."""


class CheckFailed(Error):
    """A check failed, or there is nothing to quantize."""


class PolicyError(Error):
    """The quantized set is wider than it may be, or a tower would be reached."""


class EvidenceError(Error):
    """Evidence, calibration or parts are missing, foreign or stale."""


class Cancelled(Error):
    """The call was stopped."""


_KINDS = {-1: SystemFailure, -2: FormatError, -3: UnsupportedError, -4: Error, -5: RequestError, -6: CheckFailed,
          -7: PolicyError, -8: EvidenceError, -9: Cancelled}


class ErrorStruct(Structure):
    _fields_ = [("status", c_int), ("id", c_char * 40), ("message", c_char * 2000)]


class WarningStruct(Structure):
    _fields_ = [("id", c_char * 40), ("message", c_char_p)]


class Warnings(Structure):
    _fields_ = [("items", POINTER(WarningStruct)), ("count", c_size_t)]


Update = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_uint64, c_uint64, c_int)


class ProgressStruct(Structure):
    _fields_ = [("update", Update), ("ctx", c_void_p)]


class Cancel(Structure):
    _fields_ = [("requested", c_int)]


class Run(Structure):
    _fields_ = [("size", c_size_t), ("threads", c_uint), ("max_memory", c_uint64), ("kernel", c_char_p),
                ("overwrite", c_bool), ("resume", c_bool), ("progress", POINTER(ProgressStruct)),
                ("cancel", POINTER(Cancel))]


class Request(Structure):
    _fields_ = [("size", c_size_t), ("source", c_char_p), ("like", c_char_p), ("calibration", c_char_p),
                ("ignore", POINTER(c_char_p)), ("include", POINTER(c_char_p)), ("n_ignore", c_size_t),
                ("n_include", c_size_t), ("no_default_ignore", c_bool), ("allow_unmatched", c_bool),
                ("allow_tower", c_bool), ("strict", c_bool), ("requantize", c_bool), ("format", c_int),
                ("scales", c_int), ("scale_fmt", c_int), ("scheme", c_int), ("unaligned", c_int),
                ("max_shard_size", c_uint64), ("tp", c_uint64), ("dequantize", c_bool), ("to", c_int),
                ("input_range", c_int), ("kv_cache", c_int), ("schemes", POINTER(c_char_p)), ("n_schemes", c_size_t),
                ("gptq", c_bool), ("inputs", c_char_p), ("no_gptq", c_bool)]


class Result(Structure):
    _fields_ = [("complete", c_bool), ("n_quantized", c_size_t), ("n_kept", c_size_t), ("source_bytes", c_uint64),
                ("output_bytes", c_uint64), ("file_bytes", c_uint64), ("source_fingerprint", c_uint32),
                ("output_fingerprint", c_uint32), ("resumed_shards", c_size_t), ("n_gptq", c_size_t),
                ("n_plain", c_size_t)]


class PlanInfo(Structure):
    _fields_ = [("n_tensors", c_size_t), ("n_quantized", c_size_t), ("n_outputs", c_size_t), ("source_bytes", c_uint64),
                ("output_bytes", c_uint64), ("peak_memory", c_uint64), ("threads", c_uint), ("architecture", c_char_p),
                ("model_type", c_char_p), ("note", c_char_p), ("custom_runtime", c_bool), ("dequantizes", c_bool),
                ("double_rounding", c_bool), ("largest_tp", c_uint), ("tp_limit", c_char_p),
                ("exclusions", POINTER(c_char_p)), ("n_exclusions", c_size_t), ("default_destination", c_char_p), ("n_parts", c_uint),
                ("bytes_read_twice", c_uint64)]


class PlannedTensor(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("ndim", c_uint32), ("shape", POINTER(c_uint64)),
                ("bytes", c_uint64), ("shard", c_char_p), ("quantize", c_bool), ("reason", c_char_p),
                ("scheme", c_char_p)]


class CheckpointInfo(Structure):
    _fields_ = [("path", c_char_p), ("is_directory", c_bool), ("n_tensors", c_size_t), ("n_shards", c_size_t),
                ("n_groups", c_size_t), ("bytes", c_uint64), ("model_type", c_char_p), ("architecture", c_char_p),
                ("quantization", c_char_p), ("bits_per_weight", c_double)]


class TensorInfo(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("ndim", c_uint32), ("shape", POINTER(c_uint64)),
                ("bytes", c_uint64), ("role", c_char_p), ("shard", c_char_p)]


class VerifyRequest(Structure):
    _fields_ = [("size", c_size_t), ("path", c_char_p), ("source", c_char_p), ("lock", c_char_p),
                ("calibration", c_char_p), ("strict", c_bool)]


class CheckStruct(Structure):
    _fields_ = [("id", c_char_p), ("status", c_int), ("observed", c_char * 256), ("limit", c_char * 128),
                ("where", c_char * 400)]


class VerificationInfo(Structure):
    _fields_ = [("n_checks", c_size_t), ("n_failed", c_size_t), ("n_warned", c_size_t), ("has_manifest", c_bool),
                ("bound_factor", c_double), ("n_sqnr", c_size_t), ("sqnr_mean", c_double)]


class Matrix(Structure):
    _fields_ = [("size", c_size_t), ("rows", c_uint64), ("cols", c_uint64), ("dtype", c_int), ("row_stride", c_uint64),
                ("value_stride", c_uint64), ("scheme", c_int), ("scale_fmt", c_int), ("name", c_char_p)]


#: The structs that a caller fills in or reads, by their names in fp8q.h.
STRUCTS = {"fp8q_error": ErrorStruct, "fp8q_warning": WarningStruct, "fp8q_warnings": Warnings,
           "fp8q_progress": ProgressStruct, "fp8q_cancel": Cancel, "fp8q_run": Run, "fp8q_request": Request,
           "fp8q_result": Result, "fp8q_plan_info": PlanInfo, "fp8q_planned_tensor": PlannedTensor,
           "fp8q_checkpoint_info": CheckpointInfo, "fp8q_tensor_info": TensorInfo,
           "fp8q_verify_request": VerifyRequest, "fp8q_check": CheckStruct,
           "fp8q_verification_info": VerificationInfo, "fp8q_matrix": Matrix}

_lib = ctypes.CDLL(os.environ.get("FP8Q_LIBRARY") or str(Path(__file__).parent / "libfp8q.so"))


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_lib, name)
    function.restype = result
    function.argtypes = list(arguments)
    return function


_WARN, _ERR = POINTER(Warnings), POINTER(ErrorStruct)
version = _declare("fp8q_version", c_char_p)
cancel = _declare("fp8q_cancel", None, POINTER(Cancel))
warnings_reset = _declare("fp8q_warnings_reset", None, _WARN)

conversion_open = _declare("fp8q_conversion_open", c_int, POINTER(Request), POINTER(Run), POINTER(c_void_p), _WARN, _ERR)
conversion_close = _declare("fp8q_conversion_close", None, c_void_p)
conversion_plan = _declare("fp8q_conversion_plan", POINTER(PlanInfo), c_void_p)
conversion_tensor = _declare("fp8q_conversion_tensor", POINTER(PlannedTensor), c_void_p, c_size_t)
conversion_check = _declare("fp8q_conversion_check", c_int, c_void_p, c_char_p, c_uint, POINTER(c_bool), _ERR)
conversion_run = _declare("fp8q_conversion_run", c_int, c_void_p, c_char_p, _WARN, _ERR)
conversion_result = _declare("fp8q_conversion_result", POINTER(Result), c_void_p)

checkpoint_open = _declare("fp8q_checkpoint_open", c_int, c_char_p, POINTER(Run), POINTER(c_void_p), _WARN, _ERR)
checkpoint_close = _declare("fp8q_checkpoint_close", None, c_void_p)
checkpoint_info = _declare("fp8q_checkpoint_info", POINTER(CheckpointInfo), c_void_p)
checkpoint_tensor = _declare("fp8q_checkpoint_tensor", POINTER(TensorInfo), c_void_p, c_size_t)

verification_open = _declare("fp8q_verification_open", c_int, POINTER(VerifyRequest), POINTER(Run), POINTER(c_void_p),
                             _WARN, _ERR)
verification_close = _declare("fp8q_verification_close", None, c_void_p)
verification_check = _declare("fp8q_verification_check", POINTER(CheckStruct), c_void_p, c_size_t)
verification_info = _declare("fp8q_verification_info", POINTER(VerificationInfo), c_void_p)
verification_sqnr = _declare("fp8q_verification_sqnr", c_bool, c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_double))

matrix_scales = _declare("fp8q_matrix_scales", c_int, POINTER(Matrix), POINTER(c_uint64), _ERR)
matrix_quantize = _declare("fp8q_matrix_quantize", c_int, POINTER(Matrix), c_void_p, c_void_p, c_void_p, POINTER(Run), _ERR)
matrix_dequantize = _declare("fp8q_matrix_dequantize", c_int, POINTER(Matrix), c_void_p, c_void_p, c_void_p, POINTER(Run), _ERR)


T = TypeVar("T", bound=Structure)


def sized(kind: Type[T], **members: Any) -> T:
    """A struct that begins with its size."""
    return kind(size=ctypes.sizeof(kind), **members)


def encode(text: Any) -> Optional[bytes]:
    """A path or a text for C; None stays."""
    return None if text is None else os.fsencode(text)


def decode(text: Optional[bytes]) -> str:
    return os.fsdecode(text) if text is not None else ""


def word(words: Sequence[str], given: str, what: str) -> int:
    """Index of a word of an enum."""
    for index, known in enumerate(words):
        if known.lower() == given.lower():
            return index
    raise RequestError("usage", f"{what}: expected one of {', '.join(words)}, found {given!r}", -5)


def raise_error(err: ErrorStruct) -> None:
    kind = _KINDS.get(err.status, Error)
    raise kind(decode(err.id), err.message.decode(errors="replace"), err.status)


class Job:
    """A call that may take long: how it is run, who looks on, and how it is stopped.

    The library works in a thread of its own, so that Ctrl-C and exceptions of the progress callback reach it.
    """

    def __init__(self, progress: Optional[Progress] = None, threads: int = 0, max_memory: int = 0,
                 overwrite: bool = False, resume: bool = False, kernel: Optional[str] = None) -> None:
        self.warnings = Warnings()
        self.err = ErrorStruct()
        self.token = Cancel()
        self.raised: Optional[BaseException] = None
        self._progress = progress
        # Kept alive for as long as C may call it.
        self._struct = ProgressStruct(update=Update(self._update) if progress else Update())
        self.run = sized(Run, threads=threads, max_memory=max_memory, kernel=encode(kernel), overwrite=overwrite,
                         resume=resume, cancel=ctypes.pointer(self.token))
        if progress:
            self.run.progress = ctypes.pointer(self._struct)

    def _update(self, _ctx: Any, stage: bytes, done: int, total: int, unit: int) -> None:
        try:
            if self._progress and self.raised is None:
                self._progress(stage.decode(), done, total, UNITS[unit])
        except BaseException as exception:  # noqa: B902: it is raised again by call()
            self.raised = exception
            cancel(byref(self.token))

    def call(self, function: Any, *arguments: Any) -> int:
        """Calls it with the error struct behind @arguments, and returns its status."""
        status = []
        thread = threading.Thread(target=lambda: status.append(function(*arguments, byref(self.err))), daemon=True)
        thread.start()
        while thread.is_alive():
            try:
                thread.join(0.1)
            except BaseException as exception:  # noqa: B902: KeyboardInterrupt above all
                self.raised = self.raised or exception
                cancel(byref(self.token))
        if self.raised is not None:
            raise self.raised
        return int(status[0])

    def must(self, function: Any, *arguments: Any) -> None:
        if self.call(function, *arguments) != 0:
            raise_error(self.err)

    def take_warnings(self) -> Tuple[Tuple[str, str], ...]:
        """(id, message) of each, taken over from C."""
        found = tuple((decode(self.warnings.items[i].id), decode(self.warnings.items[i].message))
                      for i in range(self.warnings.count))
        warnings_reset(byref(self.warnings))
        return found
