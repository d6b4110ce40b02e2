"""Goes through blocks of rows and columns where a loop over elements reads across memory, as a transpose does.

    for row: for column: out[row, column] = x[column, row]

reads another cache line for each element, and comes back to it a whole row later, when it is gone. In blocks a line is
read once: it holds the elements of as many neighbouring rows as the block has.

    for each task: for left in columns by 8: for row in 16 rows: for column in left, ..., left + 7: the same

That is done where elements of one column and neighbouring rows are neighbours in memory, and those of one row are not;
of short bodies, for in long ones memory is not what counts, and of such as do nothing but compute.
"""

from __future__ import annotations

from collections.abc import Callable

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import INT, SIMDType
from ...ir.opcodes import LOAD
from ...ir.polynomials import split
from ...ir.program import Region, Value, walk
from ...ir.schedule import LoopHints
from ..evaluator import Evaluator
from ..values.index import BodyIndex, unravel
from .turned import is_far

LINE = 512  # bits of a cache line
COLUMNS = 8  # lines that stay in the first cache even where all fall on one place of it
MAX_SHORT_ROW = 16  # columns; rows as short as that read no more lines than stay there
TASK = 256  # columns of a task
MAX_OPERATIONS = 32  # operations of a body


@dataclass(frozen=True)
class Nest:
    """A loop over rows around one over columns: the components of the row, the column, the inner loop."""

    leading: tuple[Value, ...]
    column: Value
    region: Region


def rows_of_a_line(evaluator: Evaluator, nest: Nest) -> int:
    """How many neighbouring rows share the lines that the loop reads; 0 where blocks are nothing for it."""
    ops = list(walk(nest.region))
    if len(ops) > MAX_OPERATIONS:
        return 0
    if any(op.regions or (op.opcode.has_effects and not op.opcode.writes) for op in ops):
        return 0
    for op in ops:
        if op.opcode is LOAD and op.results[0].type == SIMDType(op.results[0].dtype):
            place = evaluator.ranges.poly(op.operands[-1])
            factor, _ = split(place, nest.column.serial)
            if is_far(factor) and any(split(place, v.serial)[0] == {(): 1} for v in nest.leading):
                return LINE // max(op.results[0].dtype.bits, 8)
    return 0


def in_blocks(
    evaluator: Evaluator, dims: tuple[Value, ...], height: int, element: Callable[[BodyIndex], None]
) -> tuple[Value, Callable[[Value, Value], None]]:
    """How many tasks there are, and what builds those from one number on, below another; each is `height` rows."""
    builder = evaluator.builder
    *outer, inner = dims
    rows = builder.product(outer)
    across = _blocks(evaluator, inner, TASK)
    size = builder.int_(COLUMNS)

    def line(row: Value, low: Value, high: Value, left: Value | None) -> None:
        leading = unravel(builder, row, tuple(outer))
        loop = builder.for_loop(low, high)
        with builder.inside(loop):
            column = loop.args[0]
            if left is not None:
                column = builder.iadd(left, column)
                evaluator.ranges.inside(column, inner)
            else:
                builder.counter(column, None, inner)
            element(BodyIndex(dims, components=(*leading, column)))
            builder.end()
        if left is not None:
            builder.region.ops[-1].attrs["hints"] = LoopHints(unrolled=True)

    def block(top: Value, bottom: Value, left: Value, whole: bool) -> Region:
        region = Region()
        with builder.inside(region):
            loop = builder.for_loop(top, bottom)
            with builder.inside(loop):
                row = builder.counter(loop.args[0], None, rows)
                if whole:
                    line(row, builder.int_(0), size, left)
                else:
                    line(row, left, inner, None)
                builder.end()
            builder.region.ops[-1].attrs["hints"] = LoopHints(apart=True)  # else vectors of rows are stored, scattered
            builder.end()
        return region

    def task(number: Value) -> None:
        top = builder.imul(builder.idiv(number, across), builder.int_(height))
        begin = builder.imul(builder.irem(number, across), builder.int_(TASK))
        bottom = builder.one("min", [builder.iadd(top, builder.int_(height)), rows], INT)
        end = builder.one("min", [builder.iadd(begin, builder.int_(TASK)), inner], INT)
        loop = builder.for_loop(begin, end, size)
        with builder.inside(loop):
            left = builder.counter(loop.args[0], None, inner)
            fits = builder.compare("le", builder.iadd(left, size), inner)
            builder.add("if", [fits], regions=[block(top, bottom, left, True), block(top, bottom, left, False)])
            builder.end()

    def chunk(low: Value, high: Value) -> None:
        loop = builder.for_loop(low, high)
        with builder.inside(loop):
            task(loop.args[0])
            builder.end()

    return builder.imul(_blocks(evaluator, rows, height), across), chunk


def _blocks(evaluator: Evaluator, count: Value, size: int) -> Value:
    builder = evaluator.builder
    return builder.idiv(builder.iadd(count, builder.int_(size - 1)), builder.int_(size))
