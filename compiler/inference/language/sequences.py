"""Evaluates sequences that are known at compile time: generator expressions, and Python's functions on tuples.

How many items there are is known; the items themselves may be values of the running program. A generator expression
computes an item when it is requested, so that `any` and `all` stop where Python stops.

See also `syntax.loops` (loops over them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ....dsl.frontend import syntax as s
from ...ir.program import Value
from ..accumulators import begun
from ..advice import over_indices
from ..arithmetic import binary, call_row
from ..budget import CALL, MAX_ITEMS
from ..conditions import short_circuit, truth
from ..evaluator import MAX_UNROLL, RULES, Point, expression, rule
from ..syntax.statements import bind
from ..values.compile_time import Frame, Generated, LoopRange, Unrolled, is_comptime_number
from ..values.describe import describe, literal_text
from ..values.index import BodyIndex
from .sorting_networks import sort_values


@expression(s.Generator)
def generator(here: Point, node: s.Generator) -> Generated:
    results: list[Callable[[], Any]] = []
    for inner in _rounds(here.within(here.frame.snapshot()), node.clauses):
        results.append(lambda inner=inner: here.evaluator.expr(node.item, inner))  # type: ignore[misc]
        if len(results) > MAX_UNROLL:
            text = f"a generator expression of more than {MAX_UNROLL} items"
            raise here.error("EK0216", text, hint="use `range` for a run-time loop")
    return Generated(tuple(results))


def _rounds(here: Point, clauses: tuple[s.Clause, ...]) -> Iterator[Frame]:
    """A frame for each item, with the loop variables in it."""
    if not clauses:
        yield here.frame
        return
    clause = clauses[0]
    for value in sequence(here.on(clause.iterable), here.expr(clause.iterable)):
        here.builder.steps += CALL
        inner = here.frame.snapshot()
        bind(here.within(inner), clause.target, value, clause.iterable)
        if all(_holds(here.within(inner), test) for test in clause.tests):
            yield from _rounds(here.within(inner), clauses[1:])


def _holds(here: Point, test: s.Expr) -> bool:
    value = truth(here.on(test), here.expr(test))
    if isinstance(value, Value):
        text = "how many items there are has to be known at compile time, and this condition is not"
        raise here.on(test).error("EK0123", text, hint="choose between values: `x if condition else 0`")
    return bool(value)


def sequence(here: Point, value: object, function: str = "") -> tuple[Any, ...]:
    """The items of anything that has a number of them that is known at compile time; `function` requests them."""
    match value:
        case tuple():
            return value
        case BodyIndex():
            return value.components(here.builder)
        case Unrolled():
            return value.values
        case Generated():
            return tuple(item() for item in value.items)
        case LoopRange() if _is_known(value):
            numbers = range(value.low, value.high, value.step)
            count = max(0, -((numbers.start - numbers.stop) // numbers.step))  # len() of a range has limits
            if count > MAX_ITEMS:
                text = f"{literal_text(count)} items are too many for a compile-time value"
                raise here.error("EK0206", text)
            return tuple(numbers)
        case LoopRange():
            text = "the bounds of this range are not known at compile time"
            hint = "write a loop over the range, and count in it"
            raise here.error("EK0212", text, hint=hint)
    advice = over_indices(value, here.node, here.frame, function)
    raise here.error("EK0212", f"{describe(value)} has no items", hint=advice)


def _is_known(x: LoopRange) -> bool:
    return all(map(is_comptime_number, (x.low, x.high, x.step)))


def _items(call: Point, value: object, argument: str = "x") -> tuple[Any, ...]:
    node, name = call.nodes.get(argument, call.node), ""
    if isinstance(call.node, s.Call):
        function, arguments = call.node.function, call.node.arguments
        name = function.name if isinstance(function, s.Global) else ""
        node = arguments[0] if node is call.node and len(arguments) == 1 else node
    return sequence(call.on(node), value, name)


@rule("tuple")
def tuple_rule(call: Point, x: object) -> tuple[Any, ...]:
    return _items(call, x)


@rule("enumerate")
def enumerate_rule(call: Point, x: object, start: object = 0) -> tuple[Any, ...]:
    if type(start) is not int:
        raise call.error("EK0208", f"start= is an int known at compile time, not {describe(start)}", "start")
    return tuple(enumerate(_items(call, x), start))


@rule("zip")
def zip_rule(call: Point, sequences: Any, strict: Any = False) -> tuple[Any, ...]:
    nodes = call.node.arguments if isinstance(call.node, s.Call) else ()
    at = nodes if len(nodes) == len(sequences) else (call.node,) * len(sequences)
    items = [sequence(call.on(node), x) for x, node in zip(sequences, at, strict=True)]
    if strict and len({len(part) for part in items}) > 1:
        lengths = " and ".join(str(len(part)) for part in items)
        raise call.error("EK0208", f"zip(..., strict=True) takes sequences of one length, not of {lengths}")
    return tuple(zip(*items, strict=False))


@rule("reversed")
def reversed_rule(call: Point, x: object) -> Any:
    if isinstance(x, LoopRange) and not _is_known(x):
        if x.step not in (1, -1):
            hint = "write the range the other way round"
            raise call.error("EK0212", "reversed() of a run-time range wants a step of 1 or -1", "x", hint=hint)
        node = call.nodes.get("x", call.node)
        first, last = (binary(call.on(node), "sub", end, x.step, (node, node)) for end in (x.high, x.low))
        return LoopRange(first, last, -x.step)
    if isinstance(x, LoopRange):
        numbers = range(x.low, x.high, x.step)[::-1]
        return LoopRange(numbers.start, numbers.stop, numbers.step)
    return tuple(reversed(_items(call, x)))


@rule("sum")
def sum_rule(call: Point, x: Any, start: Any = 0) -> Any:
    node: Any = call.nodes.get("x", call.node)
    total = start
    for item in _items(call, x):
        if type(total) in (int, float) and isinstance(item, Value):
            total = begun(call, total, item)
        total = binary(call, "add", total, item, (node, node))
    return total


def _quantified(call: Point, op: str, x: object) -> Any:
    """Items joined by `and` or `or`, each computed only where those before it do not decide."""
    node: Any = call.nodes.get("x", call.node)
    items = x.items if isinstance(x, Generated) else [lambda item=item: item for item in _items(call, x)]
    value: Any = op == "and"
    for item in items:
        value = short_circuit(call, op, value, item, node)
    return truth(call.on(node), value)


@rule("any")
def any_rule(call: Point, x: object) -> Any:
    return _quantified(call, "or", x)


@rule("all")
def all_rule(call: Point, x: object) -> Any:
    return _quantified(call, "and", x)


@rule("sorted")
def sorted_rule(call: Point, x: object, reverse: object = False) -> tuple[Any, ...]:
    items = _items(call, x)
    if not isinstance(reverse, bool):
        raise call.error("EK0206", "reverse= of sorted() is True or False, known at compile time", "reverse")
    if any(isinstance(item, Value) for item in items):
        values = sort_values(call, items)
        return values[::-1] if reverse else values
    try:
        return tuple(sorted(items, reverse=reverse))
    except TypeError:
        raise call.error("EK0206", "sorted() puts numbers or strings in order", "x") from None


def smallest_or_largest(call: Point, name: str, x: object) -> Any:
    """`min(t)`, `max(t)` of a tuple."""
    if is_comptime_number(x) or isinstance(x, Value):
        raise call.error("EK0208", f"{name} takes two or more values, or a tuple of them")
    items = _items(call, x)
    if not items:
        raise call.error("EK0206", f"{name} of no values")
    value = items[0]
    for other in items[1:]:
        value = call_row(call, name, [value, other])
    return value


RULES["smallest or largest"] = smallest_or_largest
