"""Evaluates f-strings: texts known at compile time, and those whose values are filled in when the program runs.

See also `inference.language.python` (printing).
"""

from __future__ import annotations

from typing import Any

from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import DType, SIMDType
from ...ir.program import Value
from ..budget import MAX_ITEMS, overlong
from ..evaluator import Point, expression
from ..values.aggregates import parts_of
from ..values.compile_time import FormattedValue, StructValue
from ..values.describe import describe
from ..values.index import BodyIndex


@expression(s.Formatted)
def formatted(here: Point, node: s.Formatted) -> FormattedValue | str:
    values = here.values(node.parts)
    if any(
        isinstance(v, Value | BodyIndex | tuple | StructValue) and (any(node.formats) or not is_plain(v))
        for v in values
    ):
        for part, value, spec in zip(node.parts, values, node.formats, strict=True):
            check_format(here.on(part), value, spec)
        return FormattedValue(tuple(zip(values, node.formats, strict=True)))
    texts = []
    for part, value, spec in zip(node.parts, values, node.formats, strict=True):
        check_format(here.on(part), value, spec)
        readable = is_plain(value) or isinstance(value, complex | DType | SIMDType)
        try:
            texts.append(format(value, spec) if spec else str(value) if readable else describe(value))
        except ValueError as error:  # an integer of thousands of digits
            raise here.on(part).error("EK0206", f"this cannot be computed at compile time: {error}") from None
    return "".join(texts)


def is_plain(value: Any) -> bool:
    """Whether a value is a number or a text that is known, None, or a tuple of these: written as by Python."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return isinstance(value, bool | int | float | str) or value is None


def check_format(here: Point, value: Any, spec: str) -> None:
    """Whether a format of an f-string fits the values that it will show."""
    if not spec:
        return
    if overlong(spec):
        text = f"the format '{spec[:40]}' requests more than {MAX_ITEMS} characters"
        raise here.error("EK0210", text)
    if isinstance(value, FormattedValue | BodyIndex):
        raise here.error("EK0210", f"{describe(value)} takes no format")
    if isinstance(value, tuple | StructValue):
        for item in parts_of(value) or ():
            check_format(here, item, spec)
        return
    sample = value
    if isinstance(value, Value):
        sample = 1.5 if value.dtype.is_float() or value.dtype.is_complex() else value.dtype is DType.bool or 1
    try:
        format(sample, spec)
    except (ValueError, TypeError):
        text = f"the format '{spec}' does not fit {describe(value)}"
        raise here.error("EK0210", text) from None
