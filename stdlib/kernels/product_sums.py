"""Computes matrix products whose results ranks reduce, so that what is computed first is exchanged meanwhile.

See also `collectives` (the exchanges), `graph.passes.cut_products` (which products are computed so).
"""

from __future__ import annotations

from typing import TypeVar

from ...dsl import (
    AnyTensor,
    DeviceContext,
    Index,
    InputTensor,
    Int64,
    Numeric,
    OutputTensor,
    Pointer,
    ceildiv,
    max,
    min,
    register,
    select,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from .collectives import BLOCK, reduce_in_place
from .matmul import multiply_rows
from .packed_products import multiply_packed

T = TypeVar("T", bound=Numeric)

ROWS = (
    64  # of a product, at least, so that the columns of b are not copied for few of them; a multiple of those of tiles
)


@register("collective::allreduce_product", effects=True, reads={"a": 4, "b": 1})
def allreduce_product(
    out: OutputTensor[T, "*s m n"],
    parts: OutputTensor[T, "c"],
    a: InputTensor[T, "*s m k"],
    b: InputTensor[T, "*t"],
    node: Int64,
    ctx: DeviceContext,
    *,
    what: str,
    how: str,
    ranks: int,
    small: int,
    product_of: str,
    lanes: int = 0,
    block: int = BLOCK,
) -> None:
    """The reduction of the products of all ranks; `product_of` is the kernel of these, such as "matmul_packed"."""
    outer, n, depth = out.shape[:-1], out.dim(-1), a.dim(-1)
    rows = product(outer)
    to = out.pointer()

    def rows_for(end: Index):
        """How many rows are computed for so many elements."""
        wanted = min(ceildiv(ceildiv(end, max(n, 1)), ROWS) * ROWS, rows)
        return select(rows - wanted < ROWS and end > 0, rows, wanted)

    def compute(begin: Index, end: Index) -> None:
        first = rows_for(begin)
        _multiply(ctx, to, a, b, (first, rows_for(end) - first, n, depth), outer, product_of, lanes)

    reduce_in_place(out, parts, node, compute, what, how, (ranks, small, block))


def _multiply(
    ctx: DeviceContext,
    to: Pointer[T],
    a: AnyTensor,
    b: AnyTensor,
    sizes: tuple[Index, ...],
    outer: tuple[Index, ...],
    product_of: str,
    lanes: int,
) -> None:
    """Stores some rows of a product. `sizes`: the first of them, how many they are, columns and inner steps."""
    first, count, n, depth = sizes

    def left(i: Index):
        lead = unravelled(first + i, outer)
        return lambda k: a[(*lead, k)]

    def put(i: Index):
        row = to + (first + i) * n

        def store(j: Index, value: Numeric) -> None:
            row[j] = value.cast(a.dtype)

        return store

    transposed = product_of == "matmul_transposed" or product_of == "matmul_transposed_packed"
    if count > 0:
        if product_of == "matmul" or product_of == "matmul_transposed":
            multiply_rows(ctx, (count, n, depth), a.dtype, left, b, put, transposed)
        else:
            multiply_packed(ctx, (count, n, depth), left, b, lanes, transposed, wide_dtype(a.dtype), put)
