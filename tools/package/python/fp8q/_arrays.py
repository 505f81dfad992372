# SPDX-License-Identifier: Apache-2.0
"""Matrices in memory: what numpy, torch and plain buffers have in common, without importing any of them."""
import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Optional, Tuple

from . import _native as c

_SIZES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1}
_WORDS = {"float32": "F32", "float16": "F16", "half": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
          "uint8": "F8_E4M3", "f": "F32", "e": "F16", "b": "F8_E4M3", "f32": "F32", "f16": "F16", "bf16": "BF16"}


@dataclass
class View:
    """A matrix somewhere in memory; `owner` keeps it there."""

    pointer: int
    rows: int
    cols: int
    stride: int  # elements from one row to the next
    dtype: Optional[str]
    itemsize: int
    owner: Any


def _name(dtype: Any) -> Optional[str]:
    return _WORDS.get(str(dtype).rsplit(".", 1)[-1].lower())


def _shape(shape: Any, what: str) -> Tuple[int, int]:
    sizes = tuple(int(size) for size in shape)
    if len(sizes) != 2:
        raise c.RequestError("usage", f"{what}: expected a matrix of two dimensions, found {list(sizes)}", -5)
    return sizes[0], sizes[1]


def _strided(array: Any, what: str, pointer: int, strides: Tuple[int, int], itemsize: int, dtype: Optional[str]) -> View:
    """Strides count elements.  Columns must touch; rows may lie apart."""
    rows, cols = _shape(array.shape, what)
    if (cols > 1 and strides[1] != 1) or (rows > 1 and strides[0] < cols):
        raise c.RequestError("usage", f"{what}: expected rows whose elements touch, found strides {list(strides)}; "
                             "make it contiguous first", -5)
    return View(pointer, rows, cols, strides[0] if rows > 1 else cols, dtype, itemsize, array)


def view(array: Any, what: str) -> View:
    """Where @array lies.  Nothing is copied but buffers that are read-only."""
    if callable(getattr(array, "data_ptr", None)):
        if array.device.type != "cpu":
            raise c.RequestError("usage", f"{what}: expected a CPU tensor, found one on {array.device}", -5)
        _shape(array.shape, what)
        return _strided(array, what, int(array.data_ptr()), tuple(array.stride()), int(array.element_size()), _name(array.dtype))

    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        rows, cols = _shape(array.shape, what)
        size = int(array.itemsize)
        strides = interface["strides"] or (cols * size, size)
        if any(stride % size for stride in strides):
            raise c.RequestError("usage", f"{what}: strides are no multiples of its elements", -5)
        return _strided(array, what, interface["data"][0], (strides[0] // size, strides[1] // size), size, _name(array.dtype))

    memory = memoryview(array)
    rows, cols = _shape(memory.shape or (), what)
    if not memory.c_contiguous:
        raise c.RequestError("usage", f"{what}: expected a contiguous buffer", -5)
    flat = memory.cast("B") if memory.nbytes else memory
    kind: Any = ctypes.c_char * memory.nbytes
    held = kind.from_buffer(flat) if not memory.readonly else kind.from_buffer_copy(flat)
    return View(ctypes.addressof(held), rows, cols, cols, _name(memory.format), memory.itemsize, held)


def make(like: Any, rows: int, cols: int, dtype: str) -> Tuple[Any, View]:
    """A new matrix of the kind of @like: a torch tensor, a numpy array, or a memoryview."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if callable(getattr(like, "data_ptr", None)) and torch is not None:
        kind = {"F8_E4M3": "float8_e4m3fn", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]
        array = torch.empty((rows, cols), dtype=getattr(torch, kind))
    elif hasattr(like, "__array_interface__") and numpy is not None:
        # numpy has neither E4M3 nor BF16: their bits.
        kind = {"F8_E4M3": "uint8", "F32": "float32", "F16": "float16", "BF16": "uint16"}[dtype]
        array = numpy.empty((rows, cols), dtype=kind)
    else:
        held: Any = (ctypes.c_char * (rows * cols * _SIZES[dtype]))()
        code: Any = {"F8_E4M3": "B", "F32": "f", "F16": "e", "BF16": "H"}[dtype]
        if rows and cols:
            array = memoryview(held).cast("B").cast(code, (rows, cols))
        else:
            array = memoryview(held)
        return array, View(ctypes.addressof(held), rows, cols, cols, dtype, _SIZES[dtype], held)
    return array, view(array, "output")


def checked(found: View, dtype: Optional[str], allowed: Tuple[str, ...], what: str) -> str:
    """The dtype of @found, or the given one where its bits are passed as integers."""
    name = _name(dtype) if dtype else found.dtype
    if dtype and name is None:
        raise c.RequestError("usage", f"{what}: unknown dtype {dtype!r}", -5)
    if name not in allowed or _SIZES[name] != found.itemsize:
        raise c.RequestError("usage", f"{what}: expected {' or '.join(allowed)}, found {name or 'another type'} of "
                             f"{found.itemsize} bytes; bits of BF16 need dtype=\"bf16\"", -5)
    return name


def matrix(rows: int, cols: int, dtype: str, stride: int, value_stride: int, scheme: str, scale_fmt: str,
           name: Optional[str]) -> c.Matrix:
    return c.sized(c.Matrix, rows=rows, cols=cols, dtype=c.DTYPES.index(dtype), row_stride=stride,
                   value_stride=value_stride, scheme=c.word(c.SCHEMES, scheme, "scheme"),
                   scale_fmt=c.word(c.SCALE_FMTS, scale_fmt, "scale_fmt"), name=c.encode(name))
