"""Multiplies by instructions that four warps execute together, which read their operands from shared memory.

An operand is described to the hardware by where it begins, the width of its swizzle and two distances. Rows of eight
follow each other within a panel of as many columns as the swizzle exchanges; panels follow each other. The inner axis
goes along the rows of memory; of elements of 16 bits it may go along its columns. The first operand may be a tile of
such elements, which is fragments as those of `mma.sync`.

See also `swizzles` (where elements lie), `targets.products`.
"""

from __future__ import annotations

from ....dsl.diagnostics.dataclass import dataclass
from ...ir.program import Value
from ...targets.products import MatrixProduct
from ..evaluator import Point
from ..values.tensors import View
from ..values.tiles import TileLayout, TileValue
from . import fragments, layouts
from .operands import DotOperand, swizzle_in
from .swizzles import place_of, root_of, swizzle_of

EIGHT = 8  # rows of a panel that a swizzle exchanges pieces of


def misfit(row: MatrixProduct, layout: TileLayout, depth: int, left: DotOperand, right: DotOperand) -> str | None:
    """Why a row does not multiply operands for sums of a layout; None where it does."""
    if not layouts.is_of_groups(layout) or layout.shape[1] == 1:
        return "the sums are not 64 rows, and at most 256 columns, for each four warps"
    if not takes_columns(row, layout.shape[1]):
        return f"{layout.shape[1]} columns of sums are not 8, 24 or a multiple of 16"
    if depth % row.shape[2]:
        return f"the inner size of {depth} is not a multiple of {row.shape[2]}"
    for name, operand in (("a", left), ("b", right)):
        in_registers = name == "a" and operand.tile is not None and fragments.is_fragment(row, operand.tile, layout)
        reason = None if in_registers else unreadable(row, operand, name)
        if reason is not None:
            return f"{name} {reason}"
    return None


def takes_columns(row: MatrixProduct, columns: int) -> bool:
    """Whether the instruction has so many columns, of which there are a multiple of eight."""
    return row.acc.is_float() or columns in (8, 24) or columns % 16 == 0


def unreadable(row: MatrixProduct, operand: DotOperand, name: str) -> str | None:
    """Why hardware does not read an operand from shared memory."""
    tensor = operand.tensor
    if tensor is None:
        rows, columns = operand.shape[::-1] if stored_turned(row, name) else operand.shape
        return None if swizzle_of(operand.dtype, columns) is not None and rows % EIGHT == 0 else "is a small tile"
    rows, columns = _in_memory(operand)
    if not row.reads_across and operand.turned != (name == "b"):
        kept = "N x K, and b.transpose() is multiplied" if name == "b" else "M x K"
        return f"lies across the inner axis in shared memory, which only 16-bit elements may: it is kept as {kept}"
    root = root_of(tensor)
    if swizzle_in(tensor) is None:
        return 'is not of layout="dot"'
    if rows % EIGHT or [dim.const for dim in root.dims[-2:]] != [rows, columns]:
        return "is a part of a matrix in shared memory"
    view = tensor
    while isinstance(view, View):
        if [step.const for _, step in view.steps[-2:]] != [1, 1]:
            return "is a part of a matrix in shared memory"
        view = view.base
    return None


def stored_turned(row: MatrixProduct, name: str) -> bool:
    """Whether a tile that is an operand is stored column by column."""
    return name == "b" and not row.reads_across


def _in_memory(operand: DotOperand) -> tuple[int, int]:
    """The rows and columns of an operand as it lies in memory."""
    rows, columns = operand.shape
    return (columns, rows) if operand.turned else (rows, columns)


@dataclass(frozen=True)
class Description:
    """How an operand lies in shared memory, in bytes.

    Attributes:
        width: of a panel, and of its swizzle.
        rows: of the memory.
        size: of an element.
        across: whether the rows of memory go along the inner axis.
    """

    width: int
    rows: int
    size: int
    across: bool

    @classmethod
    def of(cls, operand: DotOperand, *, by_columns: bool) -> Description:
        swizzle = swizzle_in(operand.tensor)  # type: ignore[arg-type]
        assert swizzle is not None
        width = swizzle.piece * (swizzle.mask + 1) * operand.dtype.bits // 8
        return cls(width, _in_memory(operand)[0], operand.dtype.bits // 8, operand.turned != by_columns)

    @property
    def attribute(self) -> tuple[int, int, int, bool]:
        """As `multiply_groups` has it: the width, the distances of panels and of eight rows, the order of axes."""
        return self.width, self.rows * self.width, EIGHT * self.width, self.across

    def at(self, outer: int, inner: int) -> int:
        """Where the elements from a row of a (a column of b) and a place of the inner axis on begin."""
        row, column = (inner, outer) if self.across else (outer, inner)
        panel, within = divmod(column * self.size, self.width)
        return panel * self.rows * self.width + row * self.width + within


def multiply(
    call: Point, row: MatrixProduct, left: DotOperand, right: DotOperand, acc: TileValue, waits: bool
) -> TileValue:
    """`acc + left @ right`, by the instruction of a row; `waits`: whether it has ended then.

    It has, too, where an operand is a tile that shared memory was written with: the next product may write it again.
    """
    builder, layout = call.builder, acc.layout
    depth, step = left.shape[1], row.shape[2]
    tall, steps = len(layout.rows.offsets) // 2, range(0, depth, step)
    left_stored = left.tile is not None and not fragments.is_fragment(row, left.tile, layout)
    stored = left_stored or right.tile is not None
    right = right.in_memory(call, "b", turned=stored_turned(row, "b"))
    described = Description.of(right, by_columns=True)
    operands = list(right.place(call, builder.int_(0), builder.int_(0)))
    held: list[Value] = []
    of_left: tuple[object, ...] = ()
    left_at: tuple[int, ...] = ()
    if left.tile is not None and not left_stored:
        held = [fragments.of_tile(call, left.tile, i, k) for i in range(tall) for k in range(len(steps))]
        operands += held
    else:
        left = left.in_memory(call, "a")
        of_a = Description.of(left, by_columns=False)
        of_left = of_a.attribute
        left_at = tuple(of_a.at(layout.rows.offsets[2 * i], k) for i in range(tall) for k in steps)
        operands += _first_of_group(call, left, of_a, layout)
    results = builder.add(
        "multiply_groups",
        [*operands, *acc.parts],
        [part.type for part in acc.parts],
        row=row.name,
        columns=layout.shape[1],
        held=len(held),
        left=of_left,
        left_at=left_at,
        right=described.attribute,
        right_at=tuple(described.at(0, k) for k in steps),
        fresh=acc.number == 0,
        waits=waits or stored,
        lanes=layouts.GROUP_WARPS * call.evaluator.target.warp_size,
        block=layouts.warp_of(call)["block"],
    )
    return TileValue(acc.dtype, layout, tuple(results))


def _first_of_group(call: Point, left: DotOperand, described: Description, layout: TileLayout) -> tuple[Value, Value]:
    """Where the rows of a of this group of warps begin: rows and panels have one distance, whatever the group is."""
    builder = call.builder
    assert left.tensor is not None
    pointer, offset = place_of(left.tensor, builder, (builder.int_(0), builder.int_(0)))
    lanes = layouts.GROUP_WARPS * call.evaluator.target.warp_size
    for digit in layout.rows.digits:
        if digit.divisor >= lanes:
            apart = builder.int_(described.at(digit.step, 0) // described.size)
            offset = builder.iadd(offset, builder.imul(layouts.digit_of(call, digit), apart))
    return pointer, offset
