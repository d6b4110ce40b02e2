"""Lays out large arrays of a linked file: each at a multiple of 64 bytes, equal ones once, none of them copied.

The arrays are only read when the file is written, piece by piece, so that files larger than memory can be linked. See
also `codegen.elf.image` (where they lie) and `codegen.elf.relocatable`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import IO, Any, Final

import numpy as np

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.environment.pages import release_pages
from ....dsl.package import elf
from .object_file import ObjectFile, Section, Symbol, fault

ALIGNMENT: Final = 64
SECTION: Final = ".ekweights"
_CHUNK: Final = 1 << 22  # bytes that are written or compared at a time
_SAMPLE: Final = 4096  # bytes of each end of an array that are hashed to find candidates for equality


@dataclass(frozen=True)
class Blob:
    """Read-only bytes of a linked file, and the symbol of their first byte.

    `data` is anything with the buffer protocol that is contiguous: a mapped file, an array.
    """

    symbol: str
    data: Any = field(repr=False)

    @property
    def bytes(self) -> memoryview:
        """The bytes, without a copy."""
        view = memoryview(self.data)
        return view.cast("B") if view.nbytes else memoryview(b"")


@dataclass(frozen=True)
class Stream:
    """The contents of a section: arrays, and where each begins. The gaps between them are zeros."""

    parts: tuple[tuple[int, memoryview], ...] = ()
    size: int = 0

    def write(self, file: IO[bytes]) -> None:
        """Writes the section in order. Pages of mapped files are released behind the position."""
        at = 0
        for start, view in self.parts:
            file.write(bytes(start - at))
            for piece in _pieces(view):
                file.write(piece)
            release_pages(np.frombuffer(view, np.uint8))
            at = start + len(view)
        file.write(bytes(self.size - at))


def place_blobs(blobs: Sequence[Blob]) -> tuple[tuple[int, ...], Stream]:
    """The offset of each array, and the section they make: arrays that are equal share their bytes."""
    placed: dict[tuple[int, bytes], list[tuple[int, memoryview]]] = {}
    parts: list[tuple[int, memoryview]] = []
    offsets: list[int] = []
    end = 0
    for blob in blobs:
        view = blob.bytes
        candidates = placed.setdefault((len(view), _sample(view)), [])
        known = next((start for start, other in candidates if _equal(view, other)), None)
        if known is None:
            known = -(-end // ALIGNMENT) * ALIGNMENT
            end = known + len(view)
            candidates.append((known, view))
            if len(view):
                parts.append((known, view))
        offsets.append(known)
    return tuple(offsets), Stream(tuple(parts), -(-end // ALIGNMENT) * ALIGNMENT)


def with_blobs(source: ObjectFile, blobs: Sequence[Blob]) -> tuple[ObjectFile, Stream]:
    """An object in which the symbols of arrays are defined, in a section that the stream has the contents of.

    Raises:
        InternalError: a symbol is defined already, or named twice.
    """
    offsets, stream = place_blobs(blobs)
    if not blobs:
        return source, stream
    number = len(source.sections)
    section = Section(number, SECTION, elf.SHT_PROGBITS, elf.SHF_ALLOC, b"", stream.size, 0, 0, ALIGNMENT)
    places = {blob.symbol: (offset, len(blob.bytes)) for blob, offset in zip(blobs, offsets, strict=True)}
    if len(places) != len(blobs):
        raise fault("two arrays have the same symbol")
    symbols: list[Symbol] = []
    for symbol in source.symbols:
        if symbol.name in places and symbol.binding != elf.STB_LOCAL:
            if not symbol.undefined:
                raise fault(f"{symbol.name!r} is defined twice")
            value, size = places[symbol.name]
            info = elf.STB_GLOBAL << 4 | elf.STT_OBJECT
            symbol = replace(symbol, info=info, section=number, value=value, size=size)
        symbols.append(symbol)
    return replace(source, sections=(*source.sections, section), symbols=tuple(symbols)), stream


def _pieces(view: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(view), _CHUNK):
        yield view[start : start + _CHUNK]


def _sample(view: memoryview) -> bytes:
    """A digest of both ends and the middle: arrays with different ones differ."""
    middle = len(view) // 2
    digest = hashlib.sha256(view[:_SAMPLE])
    digest.update(view[middle : middle + _SAMPLE])
    digest.update(view[max(0, len(view) - _SAMPLE) :])
    return digest.digest()


def _equal(one: memoryview, other: memoryview) -> bool:
    pairs = zip(_pieces(one), _pieces(other), strict=True)
    return all(bytes(left) == bytes(right) for left, right in pairs)
