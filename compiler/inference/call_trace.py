"""Lists the calls that led to a place, with their arguments.

note: in scaled(v: Float32, by=2), called from kernels.py:10:28
"""

from __future__ import annotations

from ...dsl.diagnostics.places import Place, is_shipped
from ...dsl.frontend import syntax
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Location
from .values.compile_time import Frame
from .values.describe import describe, literal_text


def trace_calls(frame: Frame, node: syntax.SyntaxNode) -> tuple[Place, list[tuple[str, Place]]]:
    """Where the author's text causes what happens at `node`, and the calls that led there, with a text before each.

    What happens inside a function that ships with Einkorn is shown where the author calls it.
    """
    steps: list[Location] = []
    step: Location | None = frame.location(node)
    while step is not None:
        steps.append(step)
        step = step.caller
    own = [k for k, step in enumerate(steps) if not is_shipped(step.place.file)] or list(range(len(steps)))
    return steps[own[0]].place, [(f"{_called(steps[k - 1])}called from", steps[k].place) for k in own[1:]]


def _called(step: Location) -> str:
    """`in scaled(v: Float32, by=2), `: the call that a place lies in, with what it was given."""
    if not step.function:
        return ""
    return f"in {step.function}({', '.join(_argument(name, value) for name, value in step.given)}), "


def _argument(name: str, value: object) -> str:
    if isinstance(value, bool | int | float | complex | str) or value is None:
        text = f"{name}={literal_text(value)}"
        return text if len(text) <= 40 else f"{name}=..."
    if isinstance(value, DType | SIMDType):
        return f"{name}={value}"
    return f"{name}: {describe(value).removeprefix('the ').removeprefix('a ').removeprefix('an ')}"
