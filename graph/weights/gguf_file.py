"""Reads GGUF files without copying: checked metadata, a checked table of tensors, and a map of the bytes behind them.

A file is "GGUF", a version, the numbers of tensors and of metadata, the metadata (a name, a type and a value each), the
table (name, sizes with the innermost first, format and place of each tensor), and the elements, aligned. The file may
be hostile: every count, length and place is compared with the bytes that are left before anything is made of it, so
that what is allocated is bounded by the size of the file. (The reader of the `gguf` package is not used: it raises
whatever NumPy or Python raises.)

See also `access` (names with dots in them as a hierarchy), `gguf_writer`. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, brief
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.dtype import DType
from ..arguments import in_short
from ..driver.buffer import Buffer
from ..quantization.encodings import ENCODINGS, GGUF_ENCODINGS, QuantizationEncoding

CODE: Final = "EK0434"
MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MOST_AXES: Final = 4
MOST_NESTED: Final = 4  # arrays in arrays
ALIGNMENT: Final = 32  # of tensors, where the metadata has no other
MOST_ALIGNMENT: Final = 1 << 20
LARGEST: Final = (1 << 63) - 1

# Types of metadata by number: the name and struct's letter; "" for texts and arrays.
VALUES: Final = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "?"),
    8: ("string", ""),
    9: ("array", ""),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
TEXT, ARRAY = 8, 9
DTYPES: Final = {
    0: DType.float32,
    1: DType.float16,
    24: DType.int8,
    25: DType.int16,
    26: DType.int32,
    27: DType.int64,
    28: DType.float64,
    30: DType.bfloat16,
}
# Formats that are listed and not decoded: number -> name, elements and bytes of a block.
OTHERS: Final = {
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    41: ("Q1_0", 128, 18),
}


@dataclass(frozen=True)
class GgufEntry:
    """A tensor of a file.

    Attributes:
        kind: the name of its format.
        shape: its elements, outermost axis first.
        dtype, stored: dtype and shape of its memory; None and () of a format that is not decoded.
        encoding: of a quantised one.
        start, stop: its bytes in the file.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: DType | None
    stored: tuple[int, ...]
    encoding: QuantizationEncoding | None
    start: int
    stop: int


class GGUFFile:
    """A file that is open: its metadata, and its tensors over the mapped file.

    Args:
        path: of the file.

    Raises:
        GraphError: EK0434, it cannot be read, or is not a file of the format; the error names field, expected and got.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.at = 0
        try:
            with open(self.path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                self._bytes: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        except (OSError, ValueError) as error:
            raise_if_of_handler(error)
            self.fail("path", "a file that can be read", getattr(error, "strerror", None) or str(error))
        if self._take(4, "magic") != MAGIC:
            self.fail("magic", str(MAGIC), bytes(self._bytes[:4]))
        self.version = self._number("I", "version")
        if self.version not in VERSIONS:
            self.fail("version", " or ".join(map(str, VERSIONS)), self.version)
        tensors = self._number("Q", "tensor_count")
        count = self._count("metadata_kv_count", 13)
        self.metadata: Mapping[str, object] = self._metadata(count)
        self.alignment = self._alignment()
        self.entries: Mapping[str, GgufEntry] = self._entries(tensors)

    # *** what the file holds ***

    def encoding(self, name: str) -> QuantizationEncoding | None:
        """How a tensor is quantised."""
        return self.entries[name].encoding

    def dtype(self, name: str) -> DType:
        """The dtype of a tensor's memory; uint8 of a quantised one.

        Raises:
            GraphError: EK0434, its format is not decoded here.
        """
        entry = self.entries[name]
        if entry.dtype is None:
            known = ", ".join([*map(str, DTYPES.values()), *(each.name.upper() for each in GGUF_ENCODINGS.values())])
            self.fail(f"tensor {_shown(name)}: format", known, entry.kind)
        return entry.dtype

    def buffer(self, name: str) -> Buffer:
        """A tensor over the file's own bytes, which cannot be written; a quantised one as its bytes."""
        entry, dtype = self.entries[name], self.dtype(name)
        data = np.frombuffer(self._bytes, np.uint8, entry.stop - entry.start, entry.start)
        return Buffer.from_numpy(data.view(dtype.to_numpy()).reshape(entry.stored))

    # *** reading ***

    def _take(self, size: int, field: str) -> bytes:
        if size > self.size - self.at:
            self.fail(field, f"{in_short(size)} bytes from byte {self.at} on", f"{self.size - self.at}: truncated")
        data = self._bytes[self.at : self.at + size]
        self.at += size
        return bytes(data)

    def _number(self, letter: str, field: str) -> Any:
        size = struct.calcsize("<" + letter)
        return struct.unpack("<" + letter, self._take(size, field))[0]

    def _count(self, field: str, least: int) -> int:
        """A number of things that take at least so many bytes each."""
        count = int(self._number("Q", field))
        most = (self.size - self.at) // least
        if count > most:
            self.fail(field, f"at most {most} in the {self.size - self.at} bytes that follow", in_short(count))
        return count

    def _text(self, field: str) -> str:
        size = self._count(f"{field}: length", 1)
        data = self._take(size, field)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            self.fail(field, "UTF-8", f"byte {data[error.start]:#04x} at {error.start}")

    def _metadata(self, count: int) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for number in range(count):
            name = self._text(f"metadata {number}: name")
            if name in results:
                self.fail(f"metadata {number}: name", "a name that no other has", _shown(name))
            field = f"metadata {_shown(name)}"
            results[name] = self._value(self._number("I", f"{field}: type"), field, 0)
        return results

    def _value(self, kind: int, field: str, depth: int) -> Any:
        if kind not in VALUES:
            self.fail(f"{field}: type", f"0 to {max(VALUES)}", kind)
        if kind == TEXT:
            return self._text(field)
        if kind == ARRAY:
            return self._array(field, depth)
        letter = VALUES[kind][1]
        if letter == "?":
            return self._bool(field)
        return self._number(letter, field)

    def _bool(self, field: str) -> bool:
        byte = self._take(1, field)[0]
        if byte > 1:
            self.fail(field, "0 or 1", byte)
        return bool(byte)

    def _array(self, field: str, depth: int) -> Any:
        if depth == MOST_NESTED:
            self.fail(field, f"at most {MOST_NESTED} arrays in each other", "more")
        kind = self._number("I", f"{field}: type of elements")
        if kind not in VALUES:
            self.fail(f"{field}: type of elements", f"0 to {max(VALUES)}", kind)
        letter = VALUES[kind][1]
        least = 8 if kind == TEXT else 12 if kind == ARRAY else struct.calcsize("<" + letter)
        count = self._count(f"{field}: length", least)
        if not letter:
            return [self._value(kind, f"{field}[{k}]", depth + 1) for k in range(count)]
        data = np.frombuffer(
            self._take(count * least, field), np.dtype("u1" if letter == "?" else letter).newbyteorder("<")
        )
        if letter != "?":
            return data
        if data.size and int(data.max()) > 1:
            self.fail(field, "0 or 1", int(data.max()))
        return data.view(np.bool_)

    def _alignment(self) -> int:
        value = self.metadata.get("general.alignment", ALIGNMENT)
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not 1 <= value <= MOST_ALIGNMENT
            or value & (value - 1)
        ):
            self.fail("metadata general.alignment", f"a power of two up to {MOST_ALIGNMENT}", brief(value))
        return value

    def _entries(self, count: int) -> dict[str, GgufEntry]:
        most = (self.size - self.at) // 24
        if count > most:
            self.fail("tensor_count", f"at most {most} in the {self.size - self.at} bytes that follow", in_short(count))
        rows: dict[str, tuple[list[int], int, int]] = {}
        for number in range(count):
            name = self._text(f"tensor {number}: name")
            if name in rows:
                self.fail(f"tensor {number}: name", "a name that no other has", _shown(name))
            rows[name] = self._row(f"tensor {_shown(name)}")
        first = -(-self.at // self.alignment) * self.alignment
        entries = {name: self._entry(f"tensor {_shown(name)}", first, *row) for name, row in rows.items()}
        self._check_places(entries)
        return entries

    def _row(self, field: str) -> tuple[list[int], int, int]:
        axes = self._number("I", f"{field}: n_dims")
        if axes > MOST_AXES:
            self.fail(f"{field}: n_dims", f"at most {MOST_AXES}", axes)
        sizes = [self._number("Q", f"{field}: dims[{k}]") for k in range(axes)]
        return sizes, self._number("I", f"{field}: type"), self._number("Q", f"{field}: offset")

    def _entry(self, field: str, first: int, sizes: list[int], kind: int, offset: int) -> GgufEntry:
        name, elements, size, dtype, encoding = self._format(field, kind)
        for k, dim in enumerate(sizes):
            if dim > LARGEST:
                self.fail(f"{field}: dims[{k}]", f"at most {LARGEST}", in_short(dim))
        inner = sizes[0] if sizes else 1
        if inner % elements:
            self.fail(f"{field}: dims[0]", f"a multiple of {elements}, as {name} has blocks", in_short(inner))
        if math.prod(max(dim, 1) for dim in sizes) * size > LARGEST and 0 in sizes:
            self.fail(f"{field}: dims", f"at most {LARGEST} bytes along the axes that are not empty", tuple(sizes))
        taken = math.prod(sizes) // elements * size
        if offset % self.alignment:
            self.fail(f"{field}: offset", f"a multiple of {self.alignment}", in_short(offset))
        if first + offset + taken > self.size and taken:
            there = max(self.size - first, 0)
            self.fail(f"{field}: offset", f"{in_short(taken)} bytes within {there} of elements", in_short(offset))
        shape = tuple(reversed(sizes))
        stored = shape if encoding is None else (*shape[:-1], inner // elements * size)
        start = first + offset if taken else 0
        return GgufEntry(name, shape, dtype, stored if dtype is not None else (), encoding, start, start + taken)

    def _format(self, field: str, kind: int) -> tuple[str, int, int, DType | None, QuantizationEncoding | None]:
        if kind in DTYPES:
            dtype = DTYPES[kind]
            return str(dtype), 1, dtype.bytes_for(1), dtype, None
        if kind in GGUF_ENCODINGS:
            encoding = GGUF_ENCODINGS[kind]
            block = ENCODINGS[encoding].block
            assert block is not None
            return encoding.name, block.elements_per_block, block.block_size, DType.uint8, encoding
        if kind in OTHERS:
            return *OTHERS[kind], None, None
        known = ", ".join(map(str, sorted([*DTYPES, *GGUF_ENCODINGS, *OTHERS])))
        self.fail(f"{field}: type", f"one of {known}", kind)

    def _check_places(self, entries: Mapping[str, GgufEntry]) -> None:
        reached, before = 0, ""
        for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
            if entry.stop > entry.start:
                if entry.start < reached:
                    field = f"tensor {_shown(name)}: offset"
                    self.fail(
                        field, f"byte {reached} or later, where tensor {_shown(before)} ends", f"byte {entry.start}"
                    )
                reached, before = entry.stop, name

    def fail(self, field: str, expected: str, got: object) -> NoReturn:
        """Raises the error of a field of the file."""
        raise GraphError(
            f"the file of weights '{self.path}' is malformed: {field}: expected {expected}, got {got}",
            code=CODE,
            place=user_place(),
            argument="path",
            expected=expected,
            got=str(got),
        )


def _shown(name: str) -> str:
    return brief(name, 120)
