"""Reads the tensors of a model: their dtypes, and their data, in the file or in files next to it.

A tensor's claims are compared with the bytes that are there before anything is made of them: dims, the number of
elements, the length of the data, offsets into other files. External data is memory-mapped. It lies in the model's
folder: a path that leads out of it is refused, links included.

See also `known` (values of a graph).
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import numpy_helper

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.dtype import DType

_T = onnx.TensorProto
DTYPES: dict[int, DType] = {
    _T.FLOAT: DType.float32,
    _T.UINT8: DType.uint8,
    _T.INT8: DType.int8,
    _T.UINT16: DType.uint16,
    _T.INT16: DType.int16,
    _T.INT32: DType.int32,
    _T.INT64: DType.int64,
    _T.BOOL: DType.bool,
    _T.FLOAT16: DType.float16,
    _T.DOUBLE: DType.float64,
    _T.UINT32: DType.uint32,
    _T.UINT64: DType.uint64,
    _T.BFLOAT16: DType.bfloat16,
    _T.FLOAT8E4M3FN: DType.float8_e4m3fn,
    _T.FLOAT8E4M3FNUZ: DType.float8_e4m3fnuz,
    _T.FLOAT8E5M2: DType.float8_e5m2,
    _T.FLOAT8E5M2FNUZ: DType.float8_e5m2fnuz,
    _T.UINT4: DType.uint4,
    _T.INT4: DType.int4,
    _T.FLOAT4E2M1: DType.float4_e2m1fn,
    _T.FLOAT8E8M0: DType.float8_e8m0fnu,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
# The field in which a tensor keeps its elements where they are not raw bytes.
_FIELDS = {
    **dict.fromkeys((_T.FLOAT,), "float_data"),
    **dict.fromkeys((_T.DOUBLE,), "double_data"),
    **dict.fromkeys((_T.INT64,), "int64_data"),
    **dict.fromkeys((_T.UINT32, _T.UINT64), "uint64_data"),
}
_MOST_ELEMENTS = 1 << 62


def dtype_of_code(code: int, what: str) -> DType:
    """The dtype of a number of ONNX's `TensorProto.DataType`.

    Raises:
        GraphError: EK0530, it has no counterpart.
    """
    dtype = DTYPES.get(code)
    if dtype is None:
        known = code in onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(code) if known else f"number {code}"
        text = f"{what} has the type {name}, which has no counterpart here"
        raise GraphError(text, code="EK0530", place=user_place(), expected=[str(t) for t in CODES], got=name)
    return dtype


def array_of(tensor: Any, folder: Path | None, what: str, elements: memoryview | None = None) -> np.ndarray[Any, Any]:
    """The elements of a `TensorProto`.

    Args:
        tensor: an `onnx.TensorProto`.
        folder: where external data lies; None when the model came without a file.
        what: names the tensor in errors.
        elements: their bytes, where the tensor came without them.

    Raises:
        GraphError: EK0526 its parts contradict each other, EK0530 its type, EK0531 its external data.
    """
    if tensor.HasField("segment"):
        _damaged(f"{what} is cut into segments, which no version of ONNX defines")
    dtype = dtype_of_code(tensor.data_type, what)
    shape = tuple(tensor.dims)
    count = _count(shape, what)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, dtype, shape, count, folder, what)
    if tensor.external_data:
        _damaged(f"{what} names external data, and declares that it has none")
    expected = dtype.bytes_for(count)
    if elements is not None or tensor.HasField("raw_data"):
        raw = tensor.raw_data if elements is None else elements
        if len(raw) != expected:
            _damaged(f"{what} of shape {shape} needs {expected} bytes and has {len(raw)}")
        if not dtype.is_packed():
            return np.frombuffer(raw, dtype.to_numpy()).reshape(shape)
        return _unpacked(tensor, shape, raw, what)
    else:
        field = _FIELDS.get(tensor.data_type, "int32_data")
        needed = expected if dtype.is_packed() else count
        if len(getattr(tensor, field)) != needed:
            _damaged(f"{what} of shape {shape} needs {needed} numbers and has {len(getattr(tensor, field))}")
    return _by_onnx(tensor, what)


def _unpacked(tensor: Any, shape: tuple[int, ...], raw: bytes | memoryview, what: str) -> np.ndarray[Any, Any]:
    """The elements of a dtype of which several lie in a byte."""
    return _by_onnx(onnx.TensorProto(data_type=tensor.data_type, dims=shape, raw_data=bytes(raw)), what)


def _by_onnx(tensor: object, what: str) -> np.ndarray[Any, Any]:
    try:
        array: np.ndarray[Any, Any] = numpy_helper.to_array(tensor)
    except Exception as error:  # a number beyond its type, for example
        raise_if_of_handler(error)
        _damaged(f"{what} cannot be read: {error}")
    return array


def _count(shape: tuple[int, ...], what: str) -> int:
    if any(size < 0 for size in shape):
        _damaged(f"{what} has a negative size, {shape}")
    if math.prod(size or 1 for size in shape) > _MOST_ELEMENTS or len(shape) > 64:
        _damaged(f"{what} has a shape that no memory holds, {shape}")
    return math.prod(shape)


def _external(
    tensor: Any, dtype: DType, shape: tuple[int, ...], count: int, folder: Path | None, what: str
) -> np.ndarray[Any, Any]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if folder is None:
        _outside(f"{what} is in an external file, and the path of the model is unknown")
    path = _path_inside(folder, entries.get("location", ""), what)
    size = path.stat().st_size
    offset, length = _number(entries, "offset", 0, what), _number(entries, "length", None, what)
    expected = dtype.bytes_for(count)
    if length is not None and length != expected:
        _outside(f"{what} of shape {shape} needs {expected} bytes, and its entry says {length}")
    assert offset is not None
    if offset + expected > size:
        _outside(f"{what} needs {expected} bytes from {offset} on, and {path.name} has {size}")
    if not count:
        return np.empty(shape, dtype.to_numpy())
    if dtype.is_packed():
        return _unpacked(tensor, shape, np.memmap(path, np.uint8, "r", offset, (expected,)).tobytes(), what)
    return np.asarray(np.memmap(path, dtype.to_numpy(), "r", offset, shape))


def _path_inside(folder: Path, location: str, what: str) -> Path:
    """The file of external data, which lies in the model's folder."""
    if not location or "\0" in location:
        _outside(f"{what} names no file for its external data")
    relative = Path(location.replace("\\", "/"))
    if relative.is_absolute() or ":" in location or ".." in relative.parts:
        _outside(f"{what} names the file {location!r}, which is not in the model's folder")
    try:
        root = os.path.realpath(folder, strict=True)
        path = os.path.realpath(Path(root) / relative, strict=True)
    except OSError as error:
        _outside(f"{what} names the file {location!r}: {error.strerror or error}")
    if os.path.commonpath([root, path]) != root:
        _outside(f"{what} names the file {location!r}, which a link leads out of the model's folder")
    if not os.path.isfile(path):
        _outside(f"{what} names {location!r}, which is not a file")
    return Path(path)


def _number(entries: dict[str, str], key: str, default: int | None, what: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        _outside(f"{what}: {key} {text[:40]!r} of its external data is not a number")
    return int(text)


def _damaged(message: str) -> NoReturn:
    raise GraphError(message, code="EK0526", place=user_place())


def _outside(message: str) -> NoReturn:
    raise GraphError(message, code="EK0531", place=user_place())
