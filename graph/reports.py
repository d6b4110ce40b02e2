"""What compiled code reports: prints, failed asserts, raises.

The table of reports lies in the code itself, as JSON text. Input: that text, and the bit patterns that a report comes
with. Output: `Report`s and their texts. Non-goals: raising.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dsl.source import Place
from ..dsl.types import DType


@dataclass(frozen=True)
class Report:
    """A print, an assert or a raise in compiled code; see `compiler.program.Site`."""

    kind: str
    parts: tuple[str | tuple[str, str], ...]
    place: Place
    op: str


def read_reports(table: bytes) -> tuple[Report, ...]:
    """The reports of a table."""
    found = []
    for kind, parts, place, op in json.loads(table):
        shown = tuple(p if isinstance(p, str) else (p[0], p[1]) for p in parts)
        found.append(Report(kind, shown, Place(*place), op))
    return tuple(found)


def render(report: Report, arguments: Any) -> str:
    """The text of a report: its parts, with the values read from their bit patterns."""
    out = []
    position = 0
    for part in report.parts:
        if isinstance(part, str):
            out.append(part)
            continue
        spec, dtype = part
        bits = arguments[position]
        position += 1
        out.append(format(_number(bits, DType[dtype]), spec))
    return "".join(out)


def _number(bits: int, dtype: DType) -> bool | int | float:
    if dtype.is_float():
        value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
        # A float32 shows its own digits, not those of the double that carries it.
        return float(str(np.float32(value))) if dtype is DType.float32 else value
    if dtype is DType.bool:
        return bool(bits)
    return bits % (1 << 64) if dtype is DType.uint64 else bits
