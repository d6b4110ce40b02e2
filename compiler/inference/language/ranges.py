"""Makes the ranges that loops run over: `range`, `unroll`.

See also `syntax.loops` (the loops).
"""

from __future__ import annotations

from typing import Any

from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import INT
from ...ir.program import Value
from ..advice import bound_of_range
from ..conversion import coerce
from ..evaluator import MAX_UNROLL, Point, rule
from ..values.compile_time import LoopRange, Unrolled
from ..values.describe import describe, literal_text
from ..values.index import BodyIndex
from .sequences import sequence


@rule("range")
def range_rule(call: Point, bounds: Any) -> LoopRange:
    low, high, step = _bounds(call, bounds)
    if type(step) is int and step == 0:
        raise call.error("EK0212", "a step of 0 never ends")
    return LoopRange(low, high, step)


def _bounds(call: Point, bounds: tuple[object, ...]) -> tuple[Any, Any, Any]:
    if not 1 <= len(bounds) <= 3:
        raise call.error("EK0208", "range takes one to three bounds")
    nodes: tuple[s.SyntaxNode, ...] = call.node.arguments if isinstance(call.node, s.Call) else ()
    nodes = nodes if len(nodes) == len(bounds) else (call.node,) * len(bounds)
    bounds = tuple(_bound(call, bound, node) for bound, node in zip(bounds, nodes, strict=True))
    if len(bounds) == 1:
        return 0, bounds[0], 1
    return bounds[0], bounds[1], bounds[2] if len(bounds) == 3 else 1


def _bound(call: Point, bound: object, node: s.SyntaxNode) -> Value | int:
    if isinstance(bound, Value) and bound.dtype.is_integral():
        what = "a bound of range() is an Int"
        return bound if bound.weak else coerce(call.on(node), bound, INT, what)
    if type(bound) is int:
        return bound
    hint = bound_of_range(bound, node, call.frame)
    text = f"a bound of range() is an Int, not {describe(bound)}"
    raise call.on(node).error("EK0212", text, hint=hint)


@rule("unroll")
def unroll(call: Point, bounds: Any) -> Unrolled:
    if len(bounds) == 1 and isinstance(bounds[0], tuple | BodyIndex | Unrolled):
        return Unrolled(sequence(call, bounds[0]))
    if len(bounds) == 1 and isinstance(bounds[0], LoopRange):
        bounds = (bounds[0].low, bounds[0].high, bounds[0].step)
    if not 1 <= len(bounds) <= 3:
        raise call.error("EK0208", "unroll takes one to three bounds, a range, or a tuple")
    for bound in bounds:
        if type(bound) is not int:
            text = f"a bound of unroll() is a whole number known at compile time, not {describe(bound)}"
            hint = "use `range` for a run-time loop" if isinstance(bound, Value) else None
            raise call.error("EK0212", text, hint=hint)
    if len(bounds) == 3 and bounds[2] == 0:
        raise call.error("EK0212", "a step of 0 never ends")
    span = range(*bounds)
    count = max(0, -((span.start - span.stop) // span.step))  # len() of a range has limits
    if count > MAX_UNROLL:
        text = f"unrolling {literal_text(count)} times is more than {MAX_UNROLL}"
        raise call.error("EK0216", text, hint="use `range` for a run-time loop")
    return Unrolled(tuple(span))
