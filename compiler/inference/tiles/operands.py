"""Gives operands of products one form: shared memory, as it is or transposed, and tiles, which are stored there."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.signature.schema import Role
from ....dsl.types.dtype import DType, SIMDType
from ...ir.builder import Builder
from ...ir.program import Value
from ..evaluator import Point
from ..values.describe import describe
from ..values.tensors import KernelTensor, Stored
from ..values.tiles import TileValue
from . import layouts
from .swizzles import (
    PATTERN,
    LaidOut,
    RowSwizzle,
    is_laid_out,
    is_shared,
    neighbours_of,
    place_of,
    root_of,
    rows_apart,
    swizzle_of,
)


@dataclass(frozen=True, eq=False)
class Transposed:
    """Shared memory whose axes are exchanged."""

    tensor: KernelTensor

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return f"the transposed tensor '{self.tensor.name}'"


@dataclass(frozen=True, eq=False)
class DotOperand:
    """A matrix that a product reads: `tile`, or else `tensor` in shared memory, whose rows are columns if `turned`."""

    shape: tuple[int, int]
    dtype: DType
    tensor: KernelTensor | None = None
    tile: TileValue | None = None
    turned: bool = False

    @classmethod
    def of(cls, call: Point, value: Any, argument: str) -> DotOperand:
        """The operand that an author names.

        Raises:
            CompileError: EK0653, it is neither a tile nor a view of shared memory.
        """
        if isinstance(value, TileValue):
            return cls(value.shape, value.dtype, tile=value)
        tensor = value.tensor if isinstance(value, Transposed) else value
        sizes = [dim.const for dim in tensor.dims] if isinstance(tensor, KernelTensor) else []
        if len(sizes) != 2 or None in sizes or not is_shared(tensor):
            text = f"{argument} of gpu.dot is a tile or a matrix in shared memory, not {describe(value)}"
            hint = "gpu.load(x.tile(i, j, (M, N))) is a tile; gpu.copy_async copies one into gpu.shared[T](M, N)"
            raise call.error("EK0653", text, argument, hint=hint)
        rows, columns = int(sizes[0]), int(sizes[1])
        if isinstance(value, Transposed):
            return cls((columns, rows), tensor.dtype, tensor, turned=True)
        return cls((rows, columns), tensor.dtype, tensor)

    def in_memory(self, call: Point, name: str, *, turned: bool = False) -> DotOperand:
        """The operand in shared memory, into which a tile is stored; `turned`: column by column."""
        if self.tile is None:
            return self
        builder = call.builder
        rows, columns = self.shape[::-1] if turned else self.shape
        align = PATTERN if layouts.has_panels(call.evaluator.target) else 16
        pointer = layouts.shared_buffer(call.evaluator, self.dtype, rows * columns, name, align)
        tensor = laid_out_tensor(call, pointer, self.dtype, (rows, columns), f"operand {name}")
        layouts.barrier(call)

        def put() -> None:
            assert self.tile is not None
            width = 1 if turned else min(self.tile.layout.columns.run, neighbours_of(tensor))
            for row, column, vector in layouts.runs(call, self.tile):
                for k in range(0, layouts.width_of(vector), width):
                    at = row, builder.iadd(column, builder.int_(k))
                    place, offset = place_of(tensor, builder, at[::-1] if turned else at)
                    part = layouts.lanes_of(builder, vector, k, width)
                    builder.add("store", [part, place, offset], **layouts.alignment(self.dtype, width))

        layouts.if_owner(call, self.tile.layout, put)
        layouts.barrier(call)
        return replace(self, tile=None, tensor=tensor, turned=turned)

    def place(self, call: Point, row: Value, column: Value) -> tuple[Value, Value]:
        """The pointer and the offset of an element."""
        assert self.tensor is not None
        return place_of(self.tensor, call.builder, (column, row) if self.turned else (row, column))

    def element(self, call: Point, row: Value, column: Value) -> Value:
        """One element, which a thread reads again wherever it needs it."""
        pointer, offset = self.place(call, row, column)
        return call.builder.one("load", [pointer, offset], SIMDType(self.dtype))

    def neighbours(self, call: Point, row: Value, column: Value, count: int) -> Value:
        """Neighbours of a row, from a multiple of `count` on."""
        builder, tensor = call.builder, self.tensor
        assert tensor is not None
        if self.turned:
            width = 1
        elif is_laid_out(tensor):
            width = min(count, neighbours_of(tensor))
        else:
            width = count if in_rows(tensor) else 1
        loads = []
        attrs = layouts.alignment(self.dtype, width) if is_laid_out(tensor) else {}
        for k in range(0, count, width):
            pointer, offset = self.place(call, row, builder.iadd(column, builder.int_(k)))
            loads.append(builder.one("load", [pointer, offset], SIMDType(self.dtype, width), **attrs))
        return layouts.joined(builder, loads)

    def along(
        self, call: Point, at: tuple[Value, int], inner: tuple[Value, int], count: int, *, by_columns: bool
    ) -> Value:
        """Neighbours along the inner axis, of row `at` (or column, of b: `by_columns`) from `inner` on.

        Both are numbers and constants to be added. Where rows of the matrix in memory that are that far apart have one
        distance, the constant is one of the address.
        """
        builder, tensor = call.builder, self.tensor
        assert tensor is not None
        lies_along = self.turned == by_columns
        (row, beyond), (column, behind) = (at, inner) if lies_along else (inner, at)
        apart = rows_apart(builder, tensor, beyond)
        row = row if apart is not None else builder.iadd(row, builder.int_(beyond))
        column = builder.iadd(column, builder.int_(behind))
        width, attrs = 1, {}
        if lies_along and is_laid_out(tensor):
            width = min(count, neighbours_of(tensor))
            attrs = layouts.alignment(self.dtype, width)
        elif lies_along and in_rows(tensor):
            width = count
        loads = []
        for k in range(0, count, width):
            steps = (builder.int_(0), builder.int_(k)) if lies_along else (builder.int_(k), builder.int_(0))
            pointer, offset = place_of(tensor, builder, (builder.iadd(row, steps[0]), builder.iadd(column, steps[1])))
            offset = builder.iadd(offset, builder.int_(apart or 0))
            loads.append(builder.one("load", [pointer, offset], SIMDType(self.dtype, width), **attrs))
        return layouts.joined(builder, loads)


def in_rows(tensor: KernelTensor) -> bool:
    """Whether neighbours of a row are neighbours in memory."""
    return type(tensor) is Stored or getattr(tensor, "unbroken", False)


def laid_out_tensor(call: Point, pointer: Value, dtype: DType, sizes: tuple[int, ...], name: str) -> KernelTensor:
    """Shared memory laid out for products: by rows, in which a swizzle exchanges pieces if it takes their size.

    For products of groups of warps, columns that a swizzle exchanges lie together (`panel`).
    """
    builder = call.builder
    dims = tuple(builder.int_(size) for size in sizes)
    swizzle = swizzle_of(dtype, sizes[-1])
    if swizzle is None or len(sizes) < 2:
        return Stored(pointer, name, dtype, dims, Role.MUTABLE, fixed=sizes)

    width = swizzle.piece * (swizzle.mask + 1)
    panel = width if layouts.has_panels(call.evaluator.target) and width < sizes[-1] else 0

    def place(builder: Builder, components: tuple[Value, ...]) -> Value:
        *outer, row, column = components
        total = builder.int_(0)
        if panel:
            number = builder.idiv(column, builder.int_(panel))
            total = builder.imul(number, builder.int_(sizes[-2] * panel))
            total = builder.iadd(total, builder.imul(row, builder.int_(panel)))
            column = builder.irem(column, builder.int_(panel))
        total = builder.iadd(total, swizzle.column(builder, row, column))
        for axis, part in enumerate(outer if panel else (*outer, row)):
            total = builder.iadd(total, builder.imul(part, builder.int_(math.prod(sizes[axis + 1 :]))))
        return total

    return LaidOut(place, swizzle, pointer, name, dtype, dims, Role.MUTABLE, fixed=sizes, panel=panel)


def swizzle_in(tensor: KernelTensor) -> RowSwizzle | None:
    """The swizzle of a tensor, if it has one."""
    root = root_of(tensor)
    return root.swizzle if isinstance(root, LaidOut) else None
