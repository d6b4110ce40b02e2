"""Multiplies matrices of 8-bit integers without their zero points; products and sums are exact, in int32.

    sum of (a - a_zero) * (b - b_zero)

Where the right matrix is a weight, it is packed when the model is loaded: as panels of `packed_products`, with four
steps in a row, as signed numbers. Tiles then take four steps at a time, of unsigned by signed numbers, and sums of rows
and columns bring in the zero points:

    sum of a * b - a_zero * (sum of b) - b_zero * (sum of a - depth * a_zero)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    AnyTensor,
    DeviceContext,
    Index,
    InputTensor,
    Integral,
    OutputTensor,
    bitcast,
    ceildiv,
    int8,
    int32,
    min,
    parallel_for,
    register,
    store,
    uint8,
)
from ..algorithms.algorithm import product, unravelled
from ..algorithms.products import STEPS_OF_BYTES, WORK
from ..algorithms.rows import TASK
from .matmul import multiply
from .packed_products import AHEAD, by_panels

A = TypeVar("A", int8, uint8)
B = TypeVar("B", int8, uint8)


@register("matmul_8_bits", writes_once=True, reads={"a": 4, "b": 1})
def matmul_8_bits(
    out: OutputTensor[int32, "*s m n"],
    a: InputTensor[A, "*s m k"],
    b: InputTensor[B, "k n"],
    a_zero: InputTensor[int32, ""],
    b_zero: InputTensor[int32, "n"],
    ctx: DeviceContext,
) -> None:
    """The product of the rows of a with a matrix, each element less its zero point."""
    _multiply(ctx, out, a, b, a_zero, b_zero)


@register("matmul_8_bits_transposed", writes_once=True, reads={"a": 4, "b": 1})
def matmul_8_bits_transposed(
    out: OutputTensor[int32, "*s n"],
    a: InputTensor[A, "*s k"],
    b: InputTensor[B, "n k"],
    a_zero: InputTensor[int32, ""],
    b_zero: InputTensor[int32, "n"],
    ctx: DeviceContext,
) -> None:
    """As `matmul_8_bits` by the transposed b."""
    _multiply(ctx, out, a, b, a_zero, b_zero, True)


def _multiply(
    ctx: DeviceContext,
    out: AnyTensor,
    a: AnyTensor,
    b: AnyTensor,
    a_zero: AnyTensor,
    b_zero: AnyTensor,
    transposed: bool = False,
) -> None:
    rows = out.shape[:-1]

    def left(batch: Index, row: Index):
        lead = unravelled(row, rows)
        return lambda k: a[(*lead, k)].cast(int32) - a_zero[()]

    def put(batch: Index, row: Index):
        lead = unravelled(row, rows)
        return lambda j, value: store(out, (*lead, j), value)

    def right(batch: Index):
        if transposed:
            return lambda j, k, width: b.load((j, k), width=width).cast(int32) - b_zero[j]
        return lambda k, j: b[k, j].cast(int32) - b_zero[j]

    multiply(ctx, (1, product(rows), out.dim(-1), a.dim(-1)), int32, left, right, put, transposed)


@register("pack_bytes", writes_once=True)
def pack_bytes(out: OutputTensor[int8, "p k w"], b: InputTensor[B, "d n"]) -> None:
    """The columns of b in panels, four steps in a row, zeros behind the last one; unsigned numbers less 128."""
    _pack(out, b.dim(1), b.dim(0), lambda k, j: b[k, j])


@register("pack_bytes_transposed", writes_once=True)
def pack_bytes_transposed(out: OutputTensor[int8, "p k w"], b: InputTensor[B, "n d"]) -> None:
    """As `pack_bytes` of the transposed b."""
    _pack(out, b.dim(0), b.dim(1), lambda k, j: b[j, k])


def _pack(out: AnyTensor, n: Index, depth: Index, element: Callable[[Index, Index], Integral]) -> None:
    panels, rows, whole = out.shape
    width = whole // STEPS_OF_BYTES

    def panel(p: Index):
        columns = min(n - p * width, width)
        for k in range(rows):
            for j in range(width):
                for s in range(STEPS_OF_BYTES):
                    step = k * STEPS_OF_BYTES + s
                    there = (j < columns) & (step < depth)
                    value = _signed(element(step, p * width + j)) if there else int8(0)
                    out[p, k, j * STEPS_OF_BYTES + s] = value

    parallel_for(panels, panel, grain=ceildiv(WORK, rows * whole + 16))


@register("sums_of_bytes", writes_once=True)
def sums_of_bytes(out: OutputTensor[int32, "n"], b: InputTensor[B, "d n"]) -> None:
    """The sums of the columns of what `pack_bytes` packs."""
    _sum(out, b.dim(0), lambda k, j: b[k, j])


@register("sums_of_bytes_transposed", writes_once=True)
def sums_of_bytes_transposed(out: OutputTensor[int32, "n"], b: InputTensor[B, "n d"]) -> None:
    """As `sums_of_bytes` of the transposed b."""
    _sum(out, b.dim(1), lambda k, j: b[j, k])


def _sum(out: AnyTensor, depth: Index, element: Callable[[Index, Index], Integral]) -> None:
    def column(j: Index):
        total = int32(0)
        for k in range(depth):
            total = total + _signed(element(k, j)).cast(int32)
        out[j] = total

    parallel_for(out.dim(0), column, grain=ceildiv(TASK, depth + 16))


def _signed(value: Integral) -> Any:
    return value if value.dtype == int8 else bitcast(value ^ 128, int8)


def _unsigned(value: Integral) -> Any:
    return value if value.dtype == uint8 else bitcast(value, uint8) ^ 128


@register("matmul_8_bits_packed", writes_once=True, reads={"a": 4})
def matmul_8_bits_packed(
    out: OutputTensor[int32, "*s n"],
    a: InputTensor[A, "*s k"],
    a_zero: InputTensor[int32, ""],
    b_zero: InputTensor[int32, "n"],
    panels: InputTensor[int8, "p r w"],
    sums: InputTensor[int32, "n"],
    ctx: DeviceContext,
    *,
    unsigned: bool,
    lanes: int = 0,
) -> None:
    """As `matmul_8_bits` by a matrix in panels, with the sums of its columns; `unsigned` if 128 was subtracted.

    Panels have vectors of so many `lanes`; 0 for those of the target.
    """
    lanes = lanes or ctx.target.vector_bits // 32
    _multiply_packed(ctx, out, a, (a_zero, b_zero), panels, sums, lanes, 128 if unsigned else 0)


def _multiply_packed(
    ctx: DeviceContext,
    out: AnyTensor,
    a: AnyTensor,
    zeros: tuple[AnyTensor, AnyTensor],
    panels: AnyTensor,
    sums: AnyTensor,
    lanes: int,
    less: int,
) -> None:
    a_zero, b_zero = zeros
    rows = out.shape[:-1]
    depth = a.dim(-1)
    moved = a_zero[()] + (0 if a.dtype == uint8 else 128)

    def left(i: Index):
        lead = unravelled(i, rows)
        return lambda k: _unsigned(a[(*lead, k)])

    def right(p: Index, first: Index):
        def fours(k: Index, v: int):
            panels.prefetch(p, first // STEPS_OF_BYTES + k + AHEAD, STEPS_OF_BYTES * v * lanes)
            at = (p, first // STEPS_OF_BYTES + k, STEPS_OF_BYTES * v * lanes)
            return panels.load(at, width=STEPS_OF_BYTES * lanes)

        return fours

    def save(i: Index):
        lead = unravelled(i, rows)
        total = int32(0)
        for k in range(depth):
            total = total + _unsigned(a[(*lead, k)]).cast(int32)
        rest = total - depth.cast(int32) * moved

        def put(j: Index, value: Integral):
            zero = b_zero[j] - less
            store(out, (*lead, j), value - moved * sums[j] - zero * rest)

        return put

    strip_rows = 14 if ctx.target.vector_bits >= 512 else 6
    by_panels((product(rows), out.dim(-1), depth), int32, uint8, lanes, strip_rows, left, right, save)
