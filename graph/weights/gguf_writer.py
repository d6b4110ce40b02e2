"""Writes GGUF files, of version 3.

write_gguf("model.gguf", {"output.weight": blocks}, {"general.architecture": "llama"},
           encodings={"output.weight": QuantizationEncoding.Q8_0})
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ...dsl.diagnostics.errors import GraphError, brief
from ...dsl.diagnostics.places import user_place
from ..driver.buffer import Buffer
from ..driver.dlpack import DLPackArray
from ..quantization.encodings import ENCODINGS, QuantizationEncoding, encoding_of
from .gguf_file import ALIGNMENT, ARRAY, CODE, DTYPES, MAGIC, MOST_AXES, TEXT, VALUES

_NUMBERS = {np.dtype(name): kind for kind, (name, letter) in VALUES.items() if letter}
_KINDS = {dtype: kind for kind, dtype in DTYPES.items()}


def write_gguf(
    path: str | os.PathLike[str],
    tensors: Mapping[str, DLPackArray | np.ndarray[Any, Any]],
    metadata: Mapping[str, object] | None = None,
    *,
    encodings: Mapping[str, QuantizationEncoding | str] | None = None,
) -> None:
    """Writes tensors and metadata into a file; an existing one is replaced.

    Args:
        path: of the file.
        tensors: arrays by name, outermost axis first; a quantised one as its bytes, in uint8.
        metadata: bools, ints (as uint32, or int64 if they do not fit), floats (as float32), texts, NumPy's numbers (in
            their own dtype), arrays of NumPy of one axis, and lists of texts.
        encodings: the encodings of quantised tensors by name.

    Raises:
        GraphError: EK0434, a value or a tensor that the format does not have.
    """
    chosen = {name: encoding_of("encodings", value) for name, value in (encodings or {}).items()}
    for name in chosen.keys() - tensors.keys():
        _fail(f"encodings: '{name}'", "the name of a tensor", name)
    described = b"".join(_text(name) + _value(f"metadata '{name}'", value) for name, value in (metadata or {}).items())
    arrays = {name: _array(name, value) for name, value in tensors.items()}
    rows, offset = [], 0
    for name, array in arrays.items():
        kind, shape = _format(name, array, chosen.get(name))
        sizes = tuple(reversed(shape))
        rows.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset))
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    head = MAGIC + struct.pack("<IQQ", 3, len(arrays), len(metadata or {})) + described + b"".join(rows)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for array in arrays.values():
            file.write(array.tobytes())
            file.write(bytes(-array.nbytes % ALIGNMENT))


def _array(name: str, value: object) -> np.ndarray[Any, Any]:
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else Buffer.from_dlpack(value).to_numpy()
    if array.ndim > MOST_AXES:
        _fail(f"tensor '{name}'", f"at most {MOST_AXES} axes", array.ndim)
    return np.asarray(array, array.dtype.newbyteorder("<"))


def _format(
    name: str, array: np.ndarray[Any, Any], encoding: QuantizationEncoding | None
) -> tuple[int, tuple[int, ...]]:
    """The number of a tensor's format, and the shape of its elements."""
    if encoding is not None:
        number, block = ENCODINGS[encoding].gguf, ENCODINGS[encoding].block
        if number is None or block is None:
            _fail(f"tensor '{name}'", "an encoding of GGUF", encoding.name)
        if array.dtype != np.uint8 or array.ndim == 0 or array.shape[-1] % block.block_size:
            wanted = f"uint8 with a last axis of a multiple of {block.block_size}"
            _fail(f"tensor '{name}'", wanted, f"{array.dtype} {array.shape}")
        return number, (*array.shape[:-1], array.shape[-1] // block.block_size * block.elements_per_block)
    for dtype, kind in _KINDS.items():
        if dtype.to_numpy() == array.dtype:
            return kind, array.shape
    _fail(f"tensor '{name}'", ", ".join(map(str, _KINDS)), array.dtype)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(field: str, value: object) -> bytes:
    """The number of a value's type, and the value."""
    if isinstance(value, str):
        return struct.pack("<I", TEXT) + _text(value)
    if isinstance(value, list | tuple):
        return _texts(field, value)
    if isinstance(value, bool):
        value = np.bool_(value)
    elif isinstance(value, int):
        value = np.uint32(value) if 0 <= value < 1 << 32 else np.array(value, np.int64)[()]
    elif isinstance(value, float):
        value = np.float32(value)
    if not isinstance(value, np.generic | np.ndarray) or value.dtype not in _NUMBERS or value.ndim > 1:
        _fail(field, "a number, a text, an array of numbers or a list of texts", brief(value))
    data = value.astype(value.dtype.newbyteorder("<")).tobytes()
    kind = _NUMBERS[value.dtype]
    if value.ndim == 0:
        return struct.pack("<I", kind) + data
    return struct.pack("<IIQ", ARRAY, kind, value.size) + data


def _texts(field: str, values: Any) -> bytes:
    for value in values:
        if not isinstance(value, str):
            _fail(field, "a list of texts; numbers as an array of NumPy", brief(value))
    return struct.pack("<IIQ", ARRAY, TEXT, len(values)) + b"".join(map(_text, values))


def _fail(field: str, expected: str, got: object) -> NoReturn:
    raise GraphError(
        f"no GGUF file can be written: {field}: expected {expected}, got {got}",
        code=CODE,
        place=user_place(),
        argument=field,
        expected=expected,
        got=str(got),
    )
