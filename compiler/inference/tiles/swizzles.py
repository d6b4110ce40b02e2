"""Gives shared memory places other than row by row: by a swizzle for products, or by a layout of the author's.

`layout="dot"` exchanges pieces of 16 bytes within each row, by the low bits of the row's number, so that eight rows of
one column of pieces lie in different banks: what `ldmatrix` reads at once. Indices stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ...ir.builder import Builder
from ...ir.program import PointerType, Value
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor, Stored, View, side_by_side, store_apart, width_of

PATTERN = 1024  # bytes after which the pattern of a swizzle repeats, as matrix instructions read it
PIECE = 16  # bytes that stay together
BANKS = 128  # bytes that the banks give at once


@dataclass(frozen=True)
class RowSwizzle:
    """The bits of a row's number, from `shift` on and in `mask`, that pieces of `piece` elements are exchanged by."""

    piece: int
    shift: int
    mask: int

    def column(self, builder: Builder, row: Value, column: Value) -> Value:
        """Where a column of a row lies in it."""
        key = row if self.shift == 0 else builder.idiv(row, builder.int_(1 << self.shift))
        bits = builder.imul(builder.irem(key, builder.int_(self.mask + 1)), builder.int_(self.piece))
        if bits.const is not None and column.const is not None:
            return builder.int_(bits.const ^ column.const)
        return column if bits.const == 0 else builder.row("xor", [column, bits])


def swizzle_of(dtype: DType, columns: int) -> RowSwizzle | None:
    """The swizzle of rows of so many elements; None where rows are not whole powers of two of pieces."""
    size = columns * dtype.bits // 8
    if dtype.is_packed() or dtype.bits < 8 or size % PIECE or size < 2 * PIECE:
        return None
    pieces = min(size // PIECE & -(size // PIECE), BANKS // PIECE)
    if pieces == 1:
        return None
    shift = max((BANKS // PIECE // pieces).bit_length() - 1, 0)
    return RowSwizzle(PIECE * 8 // dtype.bits, shift, pieces - 1)


class LaidOut(Stored):
    """Shared memory whose elements lie where `place` says, for the components of an index.

    Attributes:
        swizzle: that by which pieces of rows are exchanged; None of a layout of the author's.
        panel: so many columns of all rows lie together, one row behind the other; 0 where whole rows do.
        neighbours: so many elements, from a multiple of it on, stay together.
    """

    def __init__(
        self,
        place: Callable[[Builder, tuple[Value, ...]], Value],
        swizzle: RowSwizzle | None,
        *args: Any,
        panel: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.place = place
        self.swizzle = swizzle
        self.panel = panel
        self.neighbours = 1 if swizzle is None else swizzle.piece

    def strides(self, builder: Builder) -> tuple[Value, ...]:
        strides = super().strides(builder)
        return (*strides[:-2], builder.int_(self.panel), strides[-1]) if self.panel else strides

    def offset(self, builder: Builder, index: BodyIndex) -> Value:
        return self.place(builder, index.components(builder))

    def load(self, builder: Builder, index: BodyIndex, width: int = 1) -> Value:
        return side_by_side(self, builder, index, width) if width > 1 else super().load(builder, index)

    def store(self, builder: Builder, index: BodyIndex, value: Value) -> None:
        if width_of(value) > 1:
            store_apart(self, builder, index, value)
        else:
            super().store(builder, index, value)


def root_of(tensor: KernelTensor) -> KernelTensor:
    """The tensor that views are made of."""
    while isinstance(tensor, View):
        tensor = tensor.base
    return tensor


def neighbours_of(tensor: KernelTensor) -> int:
    """How many elements of a row, from a multiple of that on, lie next to each other in a tensor that is laid out."""
    count = 0
    while isinstance(tensor, View):
        last, step = tensor.steps[-1] if tensor.steps else (-1, None)
        whole = last == tensor.base.rank - 1 and step is not None and step.const == 1
        size = tensor.dims[-1].const if tensor.dims else None
        if not whole or size is None or size != tensor.base.dims[-1].const:
            count = 1
        tensor = tensor.base
    return count or (tensor.neighbours if isinstance(tensor, LaidOut) else 1)


def rows_apart(builder: Builder, matrix: KernelTensor, rows: int) -> int | None:
    """By how many elements the place of each element differs from that so many rows further down.

    None where elements differ in that: a swizzle repeats after some rows, a layout of the author's need not.
    """
    distance, root = matrix.strides(builder)[0].const, root_of(matrix)
    if distance is None:
        return None
    if isinstance(root, LaidOut):
        columns = root.panel or root.dims[-1].const
        if root.swizzle is None or columns is None:
            return None
        if rows * distance % (columns * (root.swizzle.mask + 1 << root.swizzle.shift)):
            return None
    return rows * int(distance)


def place_of(tensor: KernelTensor, builder: Builder, components: tuple[Value, ...]) -> tuple[Value, Value]:
    """The pointer and the offset of an element of shared memory, laid out or not."""
    index = BodyIndex(tensor.dims, components=components)
    while isinstance(tensor, View):
        index, tensor = tensor.mapped(builder, index), tensor.base
    assert isinstance(tensor, Stored)
    return tensor.pointer, tensor.offset(builder, index)


def is_shared(tensor: KernelTensor) -> bool:
    """Whether a tensor lies in shared memory."""
    root = root_of(tensor)
    pointer = root.pointer.type if isinstance(root, Stored) else None
    return isinstance(pointer, PointerType) and pointer.space == "shared"


def is_laid_out(tensor: KernelTensor) -> bool:
    """Whether neighbours of a tensor need not lie next to each other."""
    return isinstance(root_of(tensor), LaidOut)
