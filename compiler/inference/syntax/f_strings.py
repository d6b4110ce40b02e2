"""f-strings: texts that are known at compile time, and those whose values are shown when the program runs.

Input: the parts of an f-string. Output: a string, or a `FormattedValue`. Non-goals: printing (see
`inference.language.python`).
"""

from __future__ import annotations

from typing import Any

from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import DType, SIMDType
from ...ir.program import Value
from ..budget import MAX_ITEMS, overlong
from ..evaluator import Evaluator, expression
from ..values.aggregates import parts_of
from ..values.compile_time import FormattedValue, Frame, StructValue
from ..values.describe import describe
from ..values.index import Index


@expression(s.Formatted)
def formatted(evaluator: Evaluator, node: s.Formatted, frame: Frame) -> Any:
    values = evaluator.values(node.parts, frame)
    if any(isinstance(v, Value | Index | tuple | StructValue) for v in values):
        for part, value, spec in zip(node.parts, values, node.formats, strict=True):
            check_format(evaluator, part, value, spec, frame)
        return FormattedValue(tuple(zip(values, node.formats, strict=True)))
    texts = []
    for part, value, spec in zip(node.parts, values, node.formats, strict=True):
        check_format(evaluator, part, value, spec, frame)
        readable = isinstance(value, bool | int | float | str | DType | SIMDType) or value is None
        try:
            texts.append(format(value, spec) if spec else str(value) if readable else describe(value))
        except ValueError as error:  # an integer of thousands of digits
            raise evaluator.error("EK0206", f"this cannot be computed at compile time: {error}", part, frame) from None
    return "".join(texts)


def check_format(evaluator: Evaluator, node: s.Expr, value: Any, spec: str, frame: Frame) -> None:
    """Whether a format of an f-string fits the values that it will show."""
    if not spec:
        return
    if overlong(spec):
        text = f"the format '{spec[:40]}' asks for more than {MAX_ITEMS} characters"
        raise evaluator.error("EK0210", text, node, frame)
    if isinstance(value, FormattedValue | Index):
        raise evaluator.error("EK0210", f"{describe(value)} takes no format", node, frame)
    if isinstance(value, tuple | StructValue):
        for item in parts_of(value) or ():
            check_format(evaluator, node, item, spec, frame)
        return
    sample = value
    if isinstance(value, Value):
        sample = 1.5 if value.dtype.is_float() else value.dtype is DType.bool or 1
    try:
        format(sample, spec)
    except (ValueError, TypeError):
        text = f"the format '{spec}' does not fit {describe(value)}"
        raise evaluator.error("EK0210", text, node, frame) from None
