"""Reads files of the safetensors format without copying: a header that is checked, and a map of the bytes behind it.

A file is 8 bytes with the length of the header, the header (a JSON object: each tensor's dtype, shape and place), and
the elements, little-endian, row-major, without gaps. The header is of unknown origin: it is believed only where the
file itself bears it out. Nothing is allocated by its claims, and no tensor reaches beyond its own bytes. (The package
`safetensors` copies each tensor that it gives to NumPy.)

See also `types.safetensors_header` (dtypes of the format), `access` (names with dots in them as a hierarchy). The
format: https://huggingface.co/docs/safetensors/index
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ...dsl.diagnostics.cached import cached
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, brief
from ...dsl.diagnostics.json_reading import Misread, count, expected, field, listed, of_fields, one_of, read_json, text
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.dtype import DType
from ..arguments import in_short
from ..driver.buffer import Buffer
from ..types.safetensors_header import DTYPES, LENGTH, LONGEST, METADATA, MOST_AXES

CODE = "EK0434"


@dataclass(frozen=True)
class SafetensorsEntry:
    """A tensor of a file: the format's name of its dtype, its shape, and where its bytes lie behind the header."""

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorFile:
    """A file that is open: what it holds, and its tensors over the mapped file.

    Args:
        path: of the file.

    Raises:
        GraphError: EK0434, it cannot be read, or is not a file of the format; the error names what is wrong.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            with open(self.path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                header = self._header(file)
        except OSError as error:
            raise_if_of_handler(error)
            self._fail(f"cannot be read: {error.strerror or error}")
        self.first = LENGTH + len(header)  # the byte at which the elements begin
        self.entries = self._entries(header)

    def _header(self, file: Any) -> bytes:
        if self.size < LENGTH:
            self._fail(f"has {self.size} bytes, and the format begins with {LENGTH} that are the header's length")
        length = int.from_bytes(file.read(LENGTH), "little")
        if length > LONGEST:
            self._fail(f"claims a header of {in_short(length)} bytes, and the format allows {LONGEST:,}")
        if length > self.size - LENGTH:
            self._fail(f"claims a header of {length:,} bytes, and {self.size - LENGTH:,} follow: it is truncated")
        header = file.read(length)
        if len(header) != length or not header.startswith(b"{"):
            self._fail("has a header that is not a JSON object")
        return bytes(header)

    def _entries(self, header: bytes) -> Mapping[str, SafetensorsEntry]:
        try:
            data = read_json(header)
            self.metadata: Mapping[str, str] = field(data, METADATA, _metadata) if METADATA in data else {}
            entries = {name: _named(name, data[name]) for name in data if name != METADATA}
        except Misread as wrong:
            self._fail(f"has a header in which {wrong}")
        except ValueError as error:
            raise_if_of_handler(error)
            self._fail(f"has a header that cannot be read: {brief(str(error), 200)}")
        self._check_places(entries)
        return entries

    def _check_places(self, entries: Mapping[str, SafetensorsEntry]) -> None:
        """That the tensors lie one behind the other, from the first byte behind the header to the last of the file."""
        reached, before = 0, ""
        for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
            if entry.start < reached:
                self._fail(f"has tensors that share bytes, {_shown(before)} and {_shown(name)}")
            if entry.start > reached:
                self._fail(f"has {entry.start - reached:,} bytes before tensor {_shown(name)} that belong to none")
            reached, before = entry.stop, name
        there = self.size - self.first
        if reached > there:
            self._fail(
                f"claims {in_short(reached)} bytes of elements, up to tensor {_shown(before)},"
                f" and {there:,} are there: it is truncated"
            )
        if reached < there:
            self._fail(f"has {there - reached:,} bytes behind its last tensor that belong to none")

    @cached
    def _bytes(self) -> np.ndarray[Any, Any]:
        """The file, mapped; pages are read when they are used."""
        try:
            return np.memmap(self.path, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise_if_of_handler(error)
            self._fail(f"cannot be mapped: {error}")

    def dtype(self, name: str) -> DType:
        """The dtype of a tensor.

        Raises:
            GraphError: EK0434, there is none like it here.
        """
        kind = self.entries[name].kind
        return DTYPES[kind][1] or self._fail(
            f"has tensor {_shown(name)} of dtype {kind}, which no tensor here can have"
        )

    def encoding(self, name: str) -> None:
        """How a tensor is quantised: the format does not say it."""

    def buffer(self, name: str) -> Buffer:
        """A tensor over the file's own bytes, which cannot be written; a copy where it lies askew to its elements."""
        entry, dtype = self.entries[name], self.dtype(name)
        if self._bytes.size != self.size:
            self._fail(f"has {self._bytes.size:,} bytes, and had {self.size:,} when it was opened")
        data = self._bytes[self.first + entry.start : self.first + entry.stop].view(np.ndarray)
        if dtype.is_packed():
            return Buffer.from_numpy(data).view(dtype, entry.shape)
        return Buffer.from_numpy(data.view(dtype.to_numpy()).reshape(entry.shape))

    def _fail(self, what: str) -> NoReturn:
        raise GraphError(
            f"the file of weights '{self.path}' {what}", code=CODE, place=user_place(), argument="path", got=self.path
        )


def _metadata(data: object) -> dict[str, str]:
    fields = of_fields(data, (), data if type(data) is dict else ())
    return {name: field(fields, name, text) for name in fields}


def _named(name: str, data: Any) -> SafetensorsEntry:
    try:
        return _entry(data)
    except Misread as wrong:
        raise wrong.below(f"tensor {_shown(name)}") from None


def _entry(data: Any) -> SafetensorsEntry:
    fields = of_fields(data, ("dtype", "shape", "data_offsets"))
    kind = field(fields, "dtype", lambda value: one_of(value, DTYPES))
    shape = field(fields, "shape", lambda value: listed(value, count))
    places = field(fields, "data_offsets", lambda value: listed(value, count))
    if len(shape) > MOST_AXES:
        raise Misread(f"has {len(shape)} axes")
    if len(places) != 2 or places[0] > places[1]:
        expected("a start and an end in .data_offsets", data["data_offsets"])
    bits = math.prod(shape) * DTYPES[kind][0]
    if bits != 8 * (places[1] - places[0]):
        sizes = ", ".join(map(in_short, shape))
        raise Misread(
            f"of {kind} with the shape [{sizes}] takes {in_short(-(-bits // 8))} bytes,"
            f" and its offsets make {in_short(places[1] - places[0])}"
        )
    return SafetensorsEntry(kind, shape, *places)


def _shown(name: str) -> str:
    return brief(name, 120)
