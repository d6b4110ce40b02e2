"""Writes the weights of an export into a file of their own, as safetensors, each at a multiple of 64 bytes.

The header begins with a digest of all weights, by which exported code recognises the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import field
from typing import Any, BinaryIO, Final

from ...dsl.contract.exports import ALIGNMENT, WeightsFile
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType

_CHUNK: Final = 1 << 24
_NAMES: Final = {
    DType.bool: "BOOL",
    DType.float64: "F64",
    DType.float32: "F32",
    DType.float16: "F16",
    DType.bfloat16: "BF16",
    **{DType[f"int{bits}"]: f"I{bits}" for bits in (8, 16, 32, 64)},
    **{DType[f"uint{bits}"]: f"U{bits}" for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A weight: its name, its dtype, its shape, its elements as bytes, and the array that has them.

    Elements of dtypes that the format lacks are stored as bytes.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Any = field(repr=False)
    array: object = field(repr=False)


def lay_out(weights: Sequence[StoredWeight]) -> tuple[WeightsFile, list[int], bytes]:
    """The file, where each weight begins in it, and its header."""
    digest = hashlib.sha256()
    entries: dict[str, Any] = {}
    places: list[int] = []
    end = 0
    for number, weight in enumerate(weights):
        view = memoryview(weight.data)
        for start in range(0, view.nbytes, _CHUNK):
            digest.update(view[start : start + _CHUNK])
        gap = -end % ALIGNMENT
        if gap:  # the format allows no bytes that are not of a tensor
            entries[f"_gap{number}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [end, end + gap]}
            end += gap
        known = _NAMES.get(weight.dtype)
        shape = list(weight.shape) if known else [view.nbytes]
        entries[_fresh(weight.name, entries)] = {
            "dtype": known or "U8",
            "shape": shape,
            "data_offsets": [end, end + view.nbytes],
        }
        places.append(end)
        end += view.nbytes
    head = '{"__metadata__":' + json.dumps({"einkorn": digest.hexdigest()}, separators=(",", ":"))
    rest = "".join(f",{json.dumps(name)}:{json.dumps(entry)}" for name, entry in entries.items())
    text = f"{head}{rest}}}".encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    return WeightsFile(len(header) + end, header[: 8 + len(head)]), [len(header) + place for place in places], header


def _fresh(name: str, entries: dict[str, object]) -> str:
    while name in entries or name == "__metadata__":
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
