"""Sorts run-time values whose number is known: `sorted((a, b, c))` becomes compares and selects without branches.

    a, b  =>  first = a if keep else b;  second = b if keep else a;  keep: a <= b, or b is NaN

Algorithm: odd-even merging (K. E. Batcher, Sorting networks and their applications, 1968), in the form for any number
of items (D. E. Knuth, The Art of Computer Programming 3, algorithm 5.2.2M).

Zeros of either sign are equal, and come in any order. See also `sequences` (tuples of compile-time values).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....dsl.types.dtype import SIMDType
from ...ir.program import Value
from ..conversion import DEFAULTS, coerce
from ..evaluator import Point
from ..values.compile_time import is_comptime_number
from ..values.describe import describe

MAX_ITEMS = 256  # items: 3839 exchanges


def sort_values(call: Point, items: Sequence[object]) -> tuple[Value, ...]:
    """The items in ascending order.

    Raises:
        CompileError (EK0229): they are not numbers of one dtype with an order, or too many.
    """
    type = _common_type(call, items)
    values = [coerce(call, item, type) for item in items]
    for low, high in exchanges(len(values)):
        values[low], values[high] = _in_order(call, values[low], values[high])
    return tuple(values)


def _common_type(call: Point, items: Sequence[object]) -> SIMDType:
    """The type of the run-time values, as wide as the widest."""
    if len(items) > MAX_ITEMS:
        text = f"sorted() takes up to {MAX_ITEMS} run-time values, not {len(items)}"
        raise call.error("EK0229", text, "x", hint="einkorn.stdlib has `sort` for rows of tensors")
    wrong = next((item for item in items if not isinstance(item, Value) and not is_comptime_number(item)), None)
    values = [item for item in items if isinstance(item, Value)]
    types = [value.type for value in values if value.weak is None] or [DEFAULTS[str(values[0].weak)]]
    first = types[0]
    other = next((type for type in types if not isinstance(type, SIMDType) or type.dtype is not first.dtype), None)
    if wrong is not None or other is not None:
        what = describe(wrong) if other is None else f"{first} and {other}"
        raise call.error(
            "EK0229", f"sorted() takes run-time numbers of one dtype, not {what}", "x", hint="cast them to one"
        )
    if first.dtype.is_complex() or first.dtype.is_storage():
        text = f"sorted() takes numbers that have an order, not {first}"
        raise call.error("EK0229", text, "x", hint="cast them, or sort what is computed from them, such as abs(z)")
    simd = [type for type in types if isinstance(type, SIMDType)]
    widths = {type.width for type in simd} - {1}
    if len(widths) > 1:
        raise call.error("EK0229", f"sorted() takes vectors of one width, not of {sorted(widths)}", "x")
    return max(simd, key=lambda type: type.width)


def _in_order(call: Point, a: Value, b: Value) -> tuple[Value, Value]:
    builder, dtype = call.builder, a.dtype
    if dtype.is_integral():
        return builder.row("min", [a, b]), builder.row("max", [a, b])
    if dtype.kind == "bool":
        return builder.row("and_", [a, b]), builder.row("or_", [a, b])
    keep = builder.row("or_", [builder.row("le", [a, b]), builder.row("isnan", [b])])
    return builder.one("select", [keep, a, b], a.type), builder.one("select", [keep, b, a], a.type)


def exchanges(count: int) -> Iterator[tuple[int, int]]:
    """The pairs of places that are compared, in their order."""
    first = 1 << max(0, (count - 1).bit_length() - 1)
    step = first
    while step > 0:
        last, remainder, distance = first, 0, step
        while True:
            yield from ((i, i + distance) for i in range(count - distance) if i & step == remainder)
            if last == step:
                break
            distance, last, remainder = last - step, last >> 1, step
        step >>= 1
