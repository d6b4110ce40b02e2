"""Writes the weights of an export into a file of their own, as safetensors, each at a multiple of 64 bytes.

The header begins with a digest of all weights, by which exported code recognises the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, BinaryIO, Final

from ...dsl.contract.exports import ALIGNMENT, WeightsFile
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..types.safetensors_header import METADATA, HeaderEntry, entry_of, header_of

_CHUNK: Final = 1 << 24


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A weight: its name, its dtype, its shape, its elements as bytes, and the array that has them.

    Elements of dtypes that the format lacks, or packs, are stored as bytes.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Any = field(repr=False)
    array: object = field(repr=False)


def lay_out(weights: Sequence[StoredWeight]) -> tuple[WeightsFile, list[int], bytes]:
    """The file, where each weight begins in it, and its header."""
    digest = hashlib.sha256()
    entries: dict[str, HeaderEntry] = {}
    places: list[int] = []
    end = 0
    for number, weight in enumerate(weights):
        view = memoryview(weight.data)
        for start in range(0, view.nbytes, _CHUNK):
            digest.update(view[start : start + _CHUNK])
        gap = -end % ALIGNMENT
        if gap:  # the format allows no bytes that are not of a tensor
            entries[_fresh(f"_gap{number}", entries)] = entry_of(None, (), end, gap)
            end += gap
        entries[_fresh(weight.name, entries)] = entry_of(weight.dtype, weight.shape, end, view.nbytes)
        places.append(end)
        end += view.nbytes
    about = {"einkorn": digest.hexdigest()}
    header = header_of(entries, ALIGNMENT, about)
    recognised = len(header_of({}, 1, about)) - 1  # up to the end of the metadata
    return WeightsFile(len(header) + end, header[:recognised]), [len(header) + place for place in places], header


def _fresh(name: str, entries: Mapping[str, HeaderEntry]) -> str:
    while name in entries or name == METADATA:
        name += "_"
    return name


def write_weights(file: BinaryIO, header: bytes, weights: Sequence[StoredWeight], places: Sequence[int]) -> None:
    """Writes the file in order."""
    file.write(header)
    at = len(header)
    for weight, place in zip(weights, places, strict=True):
        file.write(bytes(place - at))
        view = memoryview(weight.data)
        for start in range(0, view.nbytes, _CHUNK):
            file.write(view[start : start + _CHUNK])
        at = place + view.nbytes
