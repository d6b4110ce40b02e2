"""Builds loops that call a function of the author's: in parallel, in vectors, in tiles.

See also `inference.language.elements` (`foreach`), `syntax.loops` (loops that are statements).
"""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.program import Value
from .. import dispatch
from ..advice import count_of
from ..conversion import coerce
from ..evaluator import Point, rule
from ..members.scalars import check_width
from ..members.spans import always
from ..members.vectors import from_lanes
from ..ownership import in_body, loop_index
from ..values.compile_time import is_comptime_number
from ..values.describe import describe
from ..values.flow import ABSENT
from .elements import check_body, spread


def _invoke(call: Point, name: str, body: object, args: list[Any]) -> None:
    """Calls a body, which gives no value."""
    value = dispatch.call(call, body, args, {})
    if value is not None and value is not ABSENT:
        text = f"the body of {name} returns a value, which would be discarded"
        raise call.error("EK0208", text, "body", hint="use store(...)")


def _total(call: Point, n: Any, name: str) -> Value:
    """How many there are: at least none."""
    node, what = call.nodes.get("n", call.node), f"{name} runs over an Int"
    if (hint := count_of(n)) is not None:
        raise call.error("EK0202", f"{what}, not {describe(n)}", "n", hint=hint)
    total = coerce(call.on(node), n, INT, what)
    if total.const is not None:
        return call.builder.int_(max(total.const, 0))
    return call.builder.one("max", [total, call.builder.int_(0)], INT)


def _grain(call: Point, grain: Any) -> Value:
    """How many calls a task does at least."""
    if is_comptime_number(grain) and grain < 1:
        raise call.error("EK0208", f"grain= is at least 1, not {grain}", "grain")
    return coerce(call.argument("grain"), grain, INT, "grain= takes an Int")


@rule("parallel_for")
def parallel_for(call: Point, n: object, body: object, grain: object = 1) -> None:
    builder = call.builder
    total, size = _total(call, n, "parallel_for"), _grain(call, grain)
    check_body(call, body, 1, "one Int", "k")

    def once(index: Value) -> None:
        in_body(call, loop_index(total, index), lambda: _invoke(call, "parallel_for", body, [index]))

    def chunk(low: Value, high: Value) -> None:
        loop = builder.for_loop(low, high)
        with builder.inside(loop):
            once(loop.args[0])
            builder.end()

    spread(call, total, chunk, once, size)


@rule("parallel_chunks")
def parallel_chunks(call: Point, n: object, body: object, grain: object = 1) -> None:
    total, size = _total(call, n, "parallel_chunks"), _grain(call, grain)
    check_body(call, body, 2, "where a chunk begins and ends", "low, high")

    def chunk(low: Value, high: Value) -> None:
        in_body(call, loop_index(total, low), lambda: _invoke(call, "parallel_chunks", body, [low, high]))

    def thread(index: Value) -> None:
        chunk(index, call.builder.iadd(index, call.builder.int_(1)))

    spread(call, total, chunk, thread, size)


def _blocks(call: Point, low: Value, total: Value, size: int) -> Value:
    """Where the last whole block of `size` ends that begins at `low` or one or several blocks behind it."""
    builder = call.builder
    if size == 1:
        return total
    left = builder.isub(total, low)
    return builder.iadd(low, builder.isub(left, builder.irem(left, builder.int_(size))))


def _each(call: Point, low: Value, high: Value, step: int, once: Any) -> None:
    """`once(i)` for i from low on, below high, in steps."""
    if low.const is not None and low.const == high.const:
        call.evaluator.pruned = True
        return
    builder = call.builder
    loop = builder.for_loop(low, high, builder.int_(step))
    with builder.inside(loop):
        once(loop.args[0])
        builder.end()


@rule("vectorize")
def vectorize(call: Point, n: Any, width: Any, body: Any, masked: Any = False) -> None:
    check_width(call, width, "width")
    if masked is not True and masked is not False:
        raise call.error("EK0208", f"masked= is True or False, not {describe(masked)}", "masked")
    builder, total = call.builder, _total(call, n, "vectorize")
    if masked:
        check_body(call, body, 3, "an index, a width and a mask", "k, width, mask")
    else:
        check_body(call, body, 2, "an index and a width", "k, width")
    whole = _blocks(call, builder.int_(0), total, width)
    every = [always(builder, width)] if masked else []

    def several(index: Value) -> None:
        _invoke(call, "vectorize", body, [index, width, *every])

    def single(index: Value) -> None:
        _invoke(call, "vectorize", body, [index, 1])

    def rest(index: Value) -> None:
        type = SIMDType(DType.int64, width)
        count = from_lanes(builder, [builder.int_(k) for k in range(width)])
        left = builder.one("splat", [builder.isub(total, index)], type)
        _invoke(call, "vectorize", body, [index, width, builder.row("lt", [count, left])])

    _each(call, builder.int_(0), whole, width, several)
    if width > 1:
        _each(call, whole, total, width if masked else 1, rest if masked else single)


@rule("tile")
def tile(call: Point, n: object, sizes: object, body: object) -> None:
    known = sizes if isinstance(sizes, tuple) else (sizes,)
    if not known or any(type(size) is not int or size < 1 for size in known):
        text = f"tile takes whole sizes >= 1 that are known at compile time, not {describe(sizes)}"
        raise call.error("EK0208", text, "sizes")
    if list(known) != sorted(set(known), reverse=True):
        raise call.error("EK0208", "the sizes of tile go from the largest to the smallest", "sizes")
    check_body(call, body, 2, "an index and a size", "k, size")
    builder, total = call.builder, _total(call, n, "tile")
    if known[-1] != 1 and (total.const is None or total.const % known[-1]):
        hint = f"write {(*known, 1)}"
        raise call.error("EK0208", "the last size of tile is 1, so that nothing is left over", "sizes", hint=hint)
    low = builder.int_(0)
    for size in known:
        high = _blocks(call, low, total, size)

        def once(index: Value, size: int = size) -> None:
            _invoke(call, "tile", body, [index, size])

        _each(call, low, high, size, once)
        low = high
