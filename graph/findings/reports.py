"""Reads what compiled code reports: prints, failed asserts, raises, failed checks.

The table of reports lies in the code itself, as JSON text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import KernelError
from ...dsl.diagnostics.json_reading import Misread, count, expected, listed, of_fields, one_of, read_json, text
from ...dsl.diagnostics.places import InnerPlace, Place, is_shipped
from ...dsl.frontend.anchors import Anchor, place_at, plain_anchor
from ...dsl.frontend.program import PortableKernel
from ...dsl.types.dtype import DType


@dataclass(frozen=True)
class Report:
    """A print, an assert, a raise or a check in compiled code; see `compiler.ir.program.Site`."""

    kind: str
    parts: tuple[str | tuple[str, str], ...]
    anchor: Anchor
    op: str
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[tuple[str, Anchor], ...] = ()


@dataclass(frozen=True)
class Failure:
    """A report of a failure with its text, and its details as values."""

    report: Report
    text: str
    details: Mapping[str, Any]


def read_reports(table: bytes) -> tuple[Report, ...]:
    """The reports of a table.

    Raises:
        Misread: it is not a valid table. What is read here is trusted when code reports: how many values it brings, and
            as what they are shown.
    """
    try:
        return listed(read_json(table), _report)
    except Misread as wrong:
        raise wrong.below("reports") from None
    except ValueError as error:
        raise Misread(f"has reports that are not JSON: {error}") from None


EXCHANGE_SITE = "exchange"  # the kind of report that is none: its text says which collective calls there
MAX_VALUES = 1024  # that one report brings
_DETAILS = {
    "nan": {"tensor", "position", "shape", "value"},
    "bounds": {"tensor", "axis", "index", "extent"},
    "grid": {"limit", "size"},
    "waiting": {"threads", "resident", "left", "places"},
    "access": {"tensor", "access", "position", "shape", "width", "call", "owned", "value"},
}
_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?z?#?0?[0-9]{0,5}[,_]?([.][0-9]{1,5})?[a-zA-Z%]?")


def _report(data: object) -> Report:
    if type(data) is not list or len(data) != 6:
        expected("a report of six parts", data)
    kind, parts, anchor, op, details, notes = data
    if type(details) is not dict or set(details) != _DETAILS.get(text(kind), set()):
        expected("the details of such a report", details)
    shown = listed(parts, _part)
    if len(shown) > MAX_VALUES:
        raise Misread("has too many parts")
    described = {name: _value(value) for name, value in details.items()}
    return Report(kind, shown, _anchor(anchor), text(op), described, listed(notes, _note))


def _part(data: object) -> str | tuple[str, str]:
    """A text, or the format and the type of a value."""
    if type(data) is str:
        return data
    if type(data) is not list or len(data) != 2:
        expected("a text or a value", data)
    spec, dtype = text(data[0]), one_of(data[1], DType.__members__)
    try:
        if not _SPEC.fullmatch(spec):
            raise ValueError
        format(_number(0, DType[dtype]), spec)
    except ValueError:
        expected(f"a format for {dtype}", spec)
    return spec, dtype


def _value(data: object) -> Any:
    """A detail that is known, or the number of a value that the code brings."""
    if type(data) is list:
        return list(listed(data, _value))
    if type(data) is dict:
        fields = of_fields(data, ("value", "dtype"))
        if count(fields["value"]) >= MAX_VALUES:
            expected("the number of a value", fields["value"])
        return {"value": fields["value"], "dtype": one_of(fields["dtype"], DType.__members__)}
    return data if data is None or type(data) in (bool, int, str) else expected("a detail", data)


def _anchor(data: object) -> Anchor:
    if type(data) is list and 2 <= len(data) <= 5 and type(data[0]) is str and all(type(n) is int for n in data[1:]):
        return data
    expected("a place", data)


def _note(data: object) -> tuple[str, Anchor]:
    if type(data) is not list or len(data) != 2:
        expected("a note with its place", data)
    return text(data[0]), _anchor(data[1])


def reports_of(sites: Iterable[Any]) -> tuple[Report, ...]:
    """The reports of a program that is interpreted; see `compiler.ir.program.Site`."""
    return tuple(
        Report(
            s.kind,
            s.parts,
            plain_anchor(s.place),
            s.op,
            dict(s.details),
            tuple((t, plain_anchor(p)) for t, p in s.notes),
        )
        for s in sites
    )


def read_failure(report: Report, arguments: object) -> Failure:
    """A failure, with everything read while its bit patterns are still there."""
    details = {name: detail_of(value, arguments) for name, value in report.details.items()}
    return Failure(report, render(report, arguments), details)


def detail_of(value: Any, arguments: Any) -> Any:
    """A detail of a report, as the values that it comes with say."""
    if isinstance(value, list):
        return tuple(detail_of(item, arguments) for item in value)
    return _number(arguments[value["value"]], DType[value["dtype"]]) if isinstance(value, dict) else value


CODES = {
    "bounds": "EK0703",
    "division": "EK0704",
    "nan": "EK0705",
    "parted": "EK0722",
    "barrier": "EK0642",
    "mbarrier": "EK0643",
    "grid": "EK0830",
    "access": "EK0740",
    "alignment": "EK0745",
    "scratch_size": "EK0747",
    "scratch_memory": "EK0748",
    "unwritten": "EK0749",
}  # everything else is the author's own: EK0701


def failure_error(
    failure: Failure, kernels: Sequence[PortableKernel], staged: list[Place], notes: list[str]
) -> KernelError:
    """The error that a failure becomes.

    `kernels` are the graph's, whose text the report is about; `staged` is where the graph's author wrote the op.
    """
    report, details = failure.report, dict(failure.details)
    place = place_at(report.anchor, kernels)
    if staged and (place is None or is_shipped(place.file)):
        place, staged = staged[0], staged[1:]  # the author wrote the graph, not the kernel
        if isinstance(place, InnerPlace):
            notes = [f"it was staged by the call at {place.caller}", *notes]
            place = Place(place.file, place.line, place.column, place.end_line, place.end_column)
    calls = [(text, at) for text, anchor in report.notes if (at := place_at(anchor, kernels)) is not None]
    described = [f"{text} {at}" for text, at in calls]
    if staged:
        described.append(f"op '{report.op}' was staged at {' or '.join(dict.fromkeys(map(str, staged)))}")
    chain = [at for text, at in calls if text == "called from"]
    if report.kind not in CODES:
        what = "assertion failed" if report.kind == "assert" else report.kind
        text = f"{what} in op '{report.op}'{': ' + failure.text if failure.text else ''}"
        return KernelError(text, code="EK0701", place=place, op=report.op, notes=[*described, *notes], chain=chain)
    text = f"{failure.text}, in op '{report.op}'"
    if report.kind == "nan":
        shape, position = details.pop("shape"), details.pop("position")
        details["index"] = tuple(int(n) for n in np.unravel_index(position, shape)) if shape else ()
        details["extent"] = shape
        text = f"{failure.text} at index {list(details['index'])}, in op '{report.op}'"
    code = CODES[report.kind]
    return KernelError(
        text,
        code=code,
        place=place,
        op=report.op,
        argument=details.get("tensor"),
        expected=details.get("extent", details.pop("limit", None)),
        got=details.get("index", details.pop("size", None)),
        notes=[*described, *notes],
        hint=HINTS.get(report.kind),
        chain=chain,
        **details,
    )


def nan_notes(failure: Failure, names: Sequence[str], inputs: Sequence[np.ndarray[Any, Any]]) -> list[str]:
    """For a NaN that was stored: which of the call's inputs already hold one."""
    if failure.report.kind != "nan":
        return []
    notes = []
    for name, array in zip(names, inputs, strict=True):
        if array.dtype.kind in "biu":
            continue
        result = np.argwhere(array != array)
        if len(result):
            notes.append(f"'{name}' of the call holds a NaN already, first at {[int(n) for n in result[0]]}")
    return notes


HINTS = {
    "scratch_size": "a size is 0 or more: max(n, 0)",
    "scratch_memory": "take less memory, or keep what is large in an output",
    "unwritten": "write each element before it is read, or use zeroed=True",
    "bounds": "keep the index inside, with a condition or with min() and max()",
    "access": "let each call write elements of its own, or use `reduce` or an atomic operation",
    "alignment": "leave out align=, or access a multiple of it",
    "parted": "every thread of a block has to reach the same barriers",
    "division": 'make sure that the divisor is not 0; without checks="all" the result is 0',
}


def render(report: Report, arguments: object, spec: str = "") -> str:
    """The text of a report: its parts, with the values read from their bit patterns.

    `spec` is the format of floats that have none of their own.
    """
    numbers = iter(numbers_of(report, arguments))
    out = []
    for part in report.parts:
        if isinstance(part, str):
            out.append(part)
        else:
            value = next(numbers)
            out.append(format(value, part[0] or (spec if isinstance(value, float) else "")))
    return "".join(out)


def numbers_of(report: Report, arguments: Any) -> list[bool | int | float]:
    """The values of a report, read from their bit patterns."""
    dtypes = [DType[part[1]] for part in report.parts if not isinstance(part, str)]
    return [_number(arguments[position], dtype) for position, dtype in enumerate(dtypes)]


def _number(bits: int, dtype: DType) -> bool | int | float:
    if dtype.is_float():
        value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
        # A float32 shows its own digits, not those of the double that carries it.
        return float(str(np.float32(value))) if dtype is DType.float32 else value
    if dtype is DType.bool:
        return bool(bits)
    return bits % (1 << 64) if dtype is DType.uint64 else bits
