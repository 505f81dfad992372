# SPDX-License-Identifier: Apache-2.0
"""fp8q from Python without a compiled module: libfp8q.so through ctypes.

    import fp8q
    values, scales = fp8q.quantize(weight)                  # F32 or F16 numpy array
    weight = fp8q.dequantize(values, scales, weight.dtype)

numpy has neither BF16 nor E4M3: BF16 is passed as uint16 bits with dtype="bf16", and values come as
uint8 bits, which torch.from_numpy(values).view(torch.float8_e4m3fn) reads.  The library is looked
for by the loader; FP8Q_LIBRARY names one.
"""
import ctypes
import os

import numpy as np

BLOCK, CHANNEL, TENSOR = 0, 1, 2  # enum fp8q_scheme: one scale for 128x128, per row, per tensor
F32_SCALES, UE8M0_SCALES = 0, 1   # enum fp8q_scale_fmt
_DTYPES = {"f32": 4, "bf16": 7, "f16": 8}  # enum fp8q_dtype


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("id", ctypes.c_char * 40), ("message", ctypes.c_char * 2000)]


class _Matrix(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rows", ctypes.c_uint64), ("cols", ctypes.c_uint64),
                ("dtype", ctypes.c_int), ("row_stride", ctypes.c_uint64), ("value_stride", ctypes.c_uint64),
                ("scheme", ctypes.c_int), ("scale_fmt", ctypes.c_int), ("name", ctypes.c_char_p)]


class Error(Exception):
    """What the library says; .id is a stable word."""

    def __init__(self, err):
        super().__init__(err.message.decode())
        self.id = err.id.decode()


_lib = ctypes.CDLL(os.environ.get("FP8Q_LIBRARY", "libfp8q.so.0"))
_lib.fp8q_version.restype = ctypes.c_char_p


def version():
    return _lib.fp8q_version().decode()


def _call(function, *args):
    err = _Error()
    if function(*args, ctypes.byref(err)) != 0:
        raise Error(err)


def _pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def _matrix(rows, cols, dtype, stride, scheme, scale_fmt, name):
    return _Matrix(ctypes.sizeof(_Matrix), rows, cols, _DTYPES[dtype], stride, 0, scheme, scale_fmt,
                   name.encode() if name else None)


def _dtype_of(array, dtype):
    found = dtype or {"float32": "f32", "float16": "f16"}.get(array.dtype.name)
    if found not in _DTYPES or array.itemsize != (4 if found == "f32" else 2):
        raise TypeError(f"expected F32, F16 or (dtype='bf16') BF16 bits, found {array.dtype}")
    return found


def quantize(weight, dtype=None, scheme=BLOCK, scale_fmt=F32_SCALES, name=None):
    """E4M3 values (uint8, [rows, cols]) and F32 scales of a matrix whose rows are contiguous."""
    dtype = _dtype_of(weight, dtype)
    rows, cols = weight.shape
    if cols and weight.strides[1] != weight.itemsize or weight.strides[0] % weight.itemsize:
        weight = np.ascontiguousarray(weight)
    stride = weight.strides[0] // weight.itemsize if rows > 1 else cols
    matrix = _matrix(rows, cols, dtype, stride, scheme, scale_fmt, name)

    shape = (ctypes.c_uint64 * 2)()
    _call(_lib.fp8q_matrix_scales, ctypes.byref(matrix), shape)
    values = np.empty((rows, cols), np.uint8)
    scales = np.empty((shape[0], shape[1]), np.float32)
    _call(_lib.fp8q_matrix_quantize, ctypes.byref(matrix), _pointer(weight), _pointer(values), _pointer(scales), None)
    return values, scales


def dequantize(values, scales, dtype="f32", scheme=BLOCK, name=None):
    """The way back: F32 or F16 floats, or with "bf16" their bits as uint16."""
    dtype = {"float32": "f32", "float16": "f16"}.get(getattr(np.dtype(dtype), "name", dtype)
                                                     if dtype not in _DTYPES else dtype, dtype)
    rows, cols = values.shape
    values, scales = np.ascontiguousarray(values), np.ascontiguousarray(scales, np.float32)
    floats = np.empty((rows, cols), {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[dtype])
    matrix = _matrix(rows, cols, dtype, 0, scheme, F32_SCALES, name)
    _call(_lib.fp8q_matrix_dequantize, ctypes.byref(matrix), _pointer(values), _pointer(scales), _pointer(floats), None)
    return floats


if __name__ == "__main__":
    weight = np.random.default_rng(1).normal(0, 0.02, (1024, 4096)).astype(np.float32)
    values, scales = quantize(weight)
    error = dequantize(values, scales) - weight
    print(f"fp8q {version()}: {weight.nbytes} bytes became {values.nbytes + scales.nbytes}, "
          f"{100 * np.linalg.norm(error) / np.linalg.norm(weight):.2f} % relative error")
