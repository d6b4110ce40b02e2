"""Reduces the rows or the columns of tiles by monoids.

A thread combines what it holds, then the lanes that share a row combine theirs, then the warps that do, through shared
memory. The order is fixed by the layout; since it is not that of the elements, a monoid has to be commutative.
"""

from __future__ import annotations

from functools import reduce as folded
from typing import Any

from ....dsl.types.dtype import DType, SIMDType
from ...ir.program import Value
from .. import dispatch
from ..evaluator import Point
from ..members.table import of_class
from ..values.aggregates import numbers_of, parts_of, replaced
from ..values.compile_time import ClassValue
from ..values.describe import describe
from ..values.tiles import Digit, TileAxis, TileLayout, TileValue
from . import layouts
from .layouts import lanes_of

State = Any  # what a monoid's functions take and give: a number, a tuple or a struct of numbers
INT32 = DType.int32


class Reduction:
    """A reduction of a tile along an axis by one monoid."""

    def __init__(self, call: Point, tile: TileValue, axis: int, monoid: ClassValue) -> None:
        self.call = call
        self.tile = tile
        self.axis = axis
        self.monoid = monoid
        layout = tile.layout
        self.reduced = layout.columns if axis == 1 else layout.rows
        self.result = layout.along(axis)

    def run(self) -> Any:
        """The tile of the values, or a tuple of tiles where the monoid's values are tuples."""
        states = self._own()
        lanes = self.call.evaluator.target.warp_size
        for digit in self.reduced.digits:
            if digit.divisor * digit.size <= lanes:
                states = [self._among_lanes(state, digit) for state in states]
        across = tuple(digit for digit in self.reduced.digits if digit.divisor * digit.size > lanes)
        if across:
            states = self._among_warps(states, across)
        values = [self._function("finish", self._function("settle", s, 0), self.tile.dtype) for s in states]
        return self._tiles(values)

    def _function(self, name: str, *operands: object) -> Any:
        return dispatch.call(self.call, of_class(self.monoid, name), list(operands), {})

    def _tiles(self, values: list[Any]) -> Any:
        parts = parts_of(values[0])
        if parts is not None:
            return tuple(self._tiles([(parts_of(value) or ())[k] for value in values]) for k in range(len(parts)))
        if not all(isinstance(value, Value) for value in values):
            text = f"the values of a monoid are numbers, not {describe(values[0])}"
            raise self.call.error("EK0652", text, "monoid")
        return TileValue(values[0].dtype, self.result, tuple(values))

    # within a thread

    def _own(self) -> list[State]:
        """The states of what this thread has: of each of its rows, or of each segment of its columns."""
        layout = self.tile.layout
        rows, segments = layout.rows.offsets, layout.columns.segments
        if self.axis == 1:
            return [self._of_row(k) for k in range(len(rows))]
        first = layouts.first_place(self.call, layout.rows)
        states = []
        for segment in range(len(segments)):
            lifted = []
            for row, offset in enumerate(rows):
                place = self.call.builder.iadd(first, self.call.builder.int_(offset))
                vector = self.tile.part(row, segment)
                lifted.append(self._function("lift", vector, self._places([place] * layouts.width_of(vector))))
            states.append(folded(lambda a, b: self._function("combine", a, b), lifted))
        return states

    def _of_row(self, row: int) -> State:
        """The state of a row: lanes of vectors are combined with those half a vector away."""
        builder, columns = self.call.builder, self.tile.layout.columns
        first = layouts.first_place(self.call, columns)
        states = []
        for segment, (start, length) in enumerate(columns.segments):
            offsets = columns.offsets[start : start + length]
            places = self._places([builder.iadd(first, builder.int_(offset)) for offset in offsets])
            state = self._function("lift", self.tile.part(row, segment), places)
            while length > 1:
                length //= 2
                low, high = (self._lanes(state, k, length) for k in (0, length))
                state = self._function("combine", low, high)
            states.append(state)
        return folded(lambda a, b: self._function("combine", a, b), states)

    def _places(self, places: list[Value]) -> Value:
        builder = self.call.builder
        return layouts.joined(builder, [builder.one("cast", [place], SIMDType(INT32)) for place in places])

    def _lanes(self, state: State, start: int, count: int) -> State:
        def taken(_: object, number: object) -> Any:
            if not isinstance(number, Value) or layouts.width_of(number) == 1:
                return number
            return lanes_of(self.call.builder, number, start, count)

        return replaced(state, taken)

    # among threads

    def _among_lanes(self, state: State, digit: Digit) -> State:
        """The state of the lanes that differ in a digit of their number; in each of them, with the same bits."""
        call, builder, step = self.call, self.call.builder, 1
        attrs = layouts.warp_of(call)
        several = parts_of(state) is not None
        while step < digit.size:
            distance = builder.int_(digit.divisor * step)

            def swapped(_: object, number: object, distance: Value = distance) -> Any:
                if not isinstance(number, Value):
                    return number
                return builder.one("warp_shuffle", [number, distance], number.type, kind="xor", **attrs)

            other = replaced(state, swapped)
            first, second = state, other
            if several:
                bit = builder.irem(builder.idiv(layouts.digit_of(call, digit), builder.int_(step)), builder.int_(2))
                low = builder.compare("eq", bit, builder.int_(0))
                first, second = self._chosen(low, state, other), self._chosen(low, other, state)
            state = self._function("combine", first, second)
            step *= 2
        return state

    def _chosen(self, condition: Value, a: State, b: State) -> State:
        builder, others = self.call.builder, dict(numbers_of(b))

        def choose(key: Any, number: Any) -> Any:
            other = others[key]
            if not isinstance(number, Value) or not isinstance(other, Value):
                return number
            width = layouts.width_of(number)
            mask = condition if width == 1 else builder.one("splat", [condition], SIMDType(DType.bool, width))
            return builder.one("select", [mask, number, other], number.type)

        return replaced(a, choose)

    def _among_warps(self, states: list[State], digits: tuple[Digit, ...]) -> list[State]:
        """The states of all warps that share what is reduced, one after the other."""
        count = 1
        own = []
        for digit in digits:
            own.append(Digit(digit.divisor, digit.size, count))
            count *= digit.size
        layout = self._of_states(TileAxis(count, tuple(own), (0,)))
        columns: dict[object, list[list[Value]]] = {}
        for key, number in numbers_of(states[0]):
            if isinstance(number, Value):
                columns[key] = self._exchanged([dict(numbers_of(state))[key] for state in states], layout, count, key)
        results = []
        for number, state in enumerate(states):
            several = [
                replaced(state, lambda key, old, k=k, n=number: columns[key][k][n] if key in columns else old)  # type: ignore[misc]
                for k in range(count)
            ]
            results.append(folded(lambda a, b: self._function("combine", a, b), several))
        return results

    def _of_states(self, axis: TileAxis) -> TileLayout:
        """The layout of the states of the warps: the axis that is reduced has a place for each of them."""
        layout = self.result
        if self.axis == 1:
            return TileLayout(layout.rows, axis, layout.threads)
        return TileLayout(axis, layout.columns, layout.threads)

    def _exchanged(self, values: list[Value], layout: TileLayout, count: int, key: object) -> list[list[Value]]:
        """Of each warp the numbers that it has for the places of this thread."""
        call, dtype = self.call, values[0].dtype
        tile = TileValue(dtype, layout, tuple(values))
        rows, columns = layout.shape
        buffer = layouts.shared_buffer(call.evaluator, dtype, rows * columns, f"states {key}")
        layouts.barrier(call)
        layouts.if_owner(call, layout, lambda: layouts.put(call, tile, buffer))
        layouts.barrier(call)
        made = []
        for k in range(count):
            one = TileAxis(count, (), (k,))
            rows_of, columns_of = (layout.rows, one) if self.axis == 1 else (one, layout.columns)
            made.append(list(layouts.got(call, tile, buffer, TileLayout(rows_of, columns_of, layout.threads)).parts))
        return made


def reduce(call: Point, tile: TileValue, axis: object, monoid: object) -> Any:
    """The rows (axis 1) or the columns (axis 0) of a tile, each as the value of a monoid.

    Raises:
        CompileError: EK0652, there is no such axis or it is not a monoid.
    """
    if type(axis) is not int or axis not in (0, 1):
        text = f"axis= of reduce is 0 or 1, known at compile time, not {describe(axis)}"
        raise call.error("EK0652", text, "axis")
    monoids = monoid if isinstance(monoid, tuple) else (monoid,)
    for each in monoids:
        if not isinstance(each, ClassValue) or "combine" not in each.members:
            text = f"reduce takes a monoid, or several in a tuple, not {describe(each)}"
            raise call.error("EK0652", text, "monoid", hint="from einkorn.stdlib import Max, Sum; t.reduce(1, Max)")
    layouts.together(call)
    layouts.readable(call, tile)
    results = [Reduction(call, tile, axis, each).run() for each in monoids]
    return tuple(results) if isinstance(monoid, tuple) else results[0]
