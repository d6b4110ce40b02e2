"""The header of files of the safetensors format: the dtypes that it names, and how one is written.

A file is 8 bytes with the length of the header, the header (a JSON object: each tensor's dtype, shape and place), and
the elements. Spaces after the object are allowed, by which the elements are aligned.

See also `weights.safetensors_file` (how files are read). The format: https://huggingface.co/docs/safetensors/index
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from ...dsl.types.dtype import DType

LENGTH: Final = 8  # bytes before the header, which say how long it is
LONGEST: Final = 100_000_000  # bytes of a header, as the format has it
MOST_AXES: Final = 64
METADATA: Final = "__metadata__"

# The format's dtypes, with the bits of an element, and ours; None for what no tensor here can have.
DTYPES: Final[dict[str, tuple[int, DType | None]]] = {
    "BOOL": (8, DType.bool),
    "F4": (4, DType.float4_e2m1fn),
    "F6_E2M3": (6, None),
    "F6_E3M2": (6, None),
    "U8": (8, DType.uint8),
    "I8": (8, DType.int8),
    "F8_E5M2": (8, DType.float8_e5m2),
    "F8_E4M3": (8, DType.float8_e4m3fn),
    "F8_E8M0": (8, DType.float8_e8m0fnu),
    "I16": (16, DType.int16),
    "U16": (16, DType.uint16),
    "F16": (16, DType.float16),
    "BF16": (16, DType.bfloat16),
    "I32": (32, DType.int32),
    "U32": (32, DType.uint32),
    "F32": (32, DType.float32),
    "C64": (64, DType.complex64),
    "F64": (64, DType.float64),
    "I64": (64, DType.int64),
    "U64": (64, DType.uint64),
}
NAMES: Final = {dtype: name for name, (bits, dtype) in DTYPES.items() if dtype is not None and bits % 8 == 0}


class HeaderEntry(TypedDict):
    """A tensor in a header: the format's name of its dtype, its shape, and its first byte and the byte behind it."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def entry_of(dtype: DType | None, shape: Sequence[int], start: int, size: int) -> HeaderEntry:
    """A tensor of `size` bytes; without a dtype, or with one that the format lacks or packs, an array of bytes."""
    kind = NAMES.get(dtype) if dtype is not None else None
    return {"dtype": kind or "U8", "shape": list(shape) if kind else [size], "data_offsets": [start, start + size]}


def header_of(entries: Mapping[str, HeaderEntry], alignment: int, metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes before the elements, a multiple of `alignment` of them: the length, the metadata, the entries."""
    about = {METADATA: metadata} if metadata is not None else {}
    text = json.dumps({**about, **entries}, separators=(",", ":")).encode()
    text += b" " * (-(LENGTH + len(text)) % alignment)
    return len(text).to_bytes(LENGTH, "little") + text
