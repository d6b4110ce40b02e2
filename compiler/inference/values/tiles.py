"""Defines tiles: matrices that the threads of a block hold together, and the parts of tensors that they are read from.

A `TileLayout` says which elements a thread holds. Its rows and columns are independent of each other: the number of a
thread, taken apart into digits, gives its first row and its first column, and a list of distances gives the others.

    rows     thread // 4 % 8, and 0, 8           a thread of a warp has two rows of a tile of 16 x 8,
    columns  thread % 4 * 2, and 0, 1            and in each two neighbouring columns

A thread holds its rows as vectors: those are the numbers of a `TileValue` that go round loops and through branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ...ir.program import Value
from .tensors import KernelTensor


@dataclass(frozen=True)
class Digit:
    """A part of the number of a thread, `number // divisor % size`, each step of which is `step` elements."""

    divisor: int
    size: int
    step: int


@dataclass(frozen=True)
class TileAxis:
    """The places of a thread along one axis: the sum of its digits, plus each of the `offsets`."""

    size: int
    digits: tuple[Digit, ...]
    offsets: tuple[int, ...]

    @property
    def run(self) -> int:
        """How many places lie next to each other, a power of two that divides their number."""
        count = len(self.offsets)
        length = count & -count
        while any(self.offsets[k] != self.offsets[k - k % length] + k % length for k in range(count)):
            length //= 2
        return length

    @property
    def segments(self) -> tuple[tuple[int, int], ...]:
        """The offsets cut into parts whose lengths are powers of two: the first of each, and its length."""
        parts, start, left = [], 0, len(self.offsets)
        while left:
            length = 1 << (left.bit_length() - 1)
            parts.append((start, length))
            start, left = start + length, left - length
        return tuple(parts)


ONE_PLACE = (0,)


@dataclass(frozen=True)
class TileLayout:
    """Which elements of a tile each thread of a block holds; `threads` are all digits of the number of a thread."""

    rows: TileAxis
    columns: TileAxis
    threads: tuple[Digit, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, self.columns.size

    @property
    def copies(self) -> tuple[Digit, ...]:
        """The digits that decide nothing: threads that differ in them alone hold the same elements."""
        used = {(digit.divisor, digit.size) for axis in (self.rows, self.columns) for digit in axis.digits}
        return tuple(digit for digit in self.threads if (digit.divisor, digit.size) not in used)

    @property
    def count(self) -> int:
        """How many elements a thread holds."""
        return len(self.rows.offsets) * len(self.columns.offsets)

    def along(self, axis: int) -> TileLayout:
        """The layout of what is left when an axis becomes one place: of a column for axis 1, of a row for axis 0."""
        one = TileAxis(1, (), ONE_PLACE)
        if axis == 1:
            return TileLayout(self.rows, one, self.threads)
        return TileLayout(one, self.columns, self.threads)

    def __str__(self) -> str:
        def text(axis: TileAxis) -> str:
            digits = [f"{d.step} * (t // {d.divisor} % {d.size})" for d in axis.digits]
            return " + ".join([*digits, "{" + ", ".join(map(str, axis.offsets)) + "}"])

        return f"rows {text(self.rows)}; columns {text(self.columns)}"


@dataclass(frozen=True, eq=False)
class TileValue:
    """A tile: for each row of a thread, and each segment of its columns, a vector.

    `number` is what every element is, where that is known: such a tile takes any layout without a move.
    """

    dtype: DType
    layout: TileLayout
    parts: tuple[Any, ...]
    number: Any = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.layout.shape

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return f"a tile of {self.shape[0]} x {self.shape[1]} {self.dtype}"

    def part(self, row: int, segment: int) -> Value:
        """The vector of one row and one segment of columns."""
        made = self.parts[row * len(self.layout.columns.segments) + segment]
        assert isinstance(made, Value)
        return made


@dataclass(frozen=True, eq=False)
class TileProduct:
    """A product under way: the sums that `wait` gives.

    `first` is the first column of tensor memory that they lie in; None where they lie in registers.
    """

    tile: TileValue
    first: int | None = None

    @property
    def words(self) -> str:
        """What it is, for messages."""
        where = "" if self.first is None else f", in tensor memory from column {self.first} on"
        return f"a product under way{where}"


@dataclass(frozen=True, eq=False)
class TileView:
    """A part of a tensor of two axes, which may reach beyond its end; places there are read as `fill`.

    `align` is what its author promises: that rows begin, and the tensor's rows end, at multiples of so many bytes.
    """

    tensor: KernelTensor
    row: Value
    column: Value
    shape: tuple[int, int]
    fill: object = 0
    align: int = 1

    @property
    def beyond(self) -> object:
        """What stands beyond the end: `fill`; for 0 the number whose bits are zeros where the dtype has no 0."""
        without = self.tensor.dtype is DType.float8_e8m0fnu and type(self.fill) in (int, float) and self.fill == 0
        return 2.0**-127 if without else self.fill

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return f"a view of {self.shape[0]} x {self.shape[1]} {self.tensor.dtype}"


def common_shape(shapes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The shape that tiles have together, where sizes of 1 are repeated; None where they do not fit."""
    sizes = []
    for axis in (0, 1):
        wide = {shape[axis] for shape in shapes} - {1}
        if len(wide) > 1:
            return None
        sizes.append(wide.pop() if wide else 1)
    return sizes[0], sizes[1]
