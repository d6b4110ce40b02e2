"""Computes slices: where `start:stop:step` of an axis begins, and how many elements it has.

See also `tensor_members.make_view`.
"""

from __future__ import annotations

from ....dsl.types.dtype import INT
from ...ir.builder import Builder
from ...ir.program import Value


def slice_of(
    builder: Builder, dim: Value, start: Value | None, stop: Value | None, step: int
) -> tuple[Value, Value, Value]:
    """Start, step and extent of the slice `start:stop:step` of an axis of size `dim`; bounds count from its start."""
    zero, last = builder.int_(0), builder.isub(dim, builder.int_(1))
    if start is None and stop is None:
        begin, extent = zero if step > 0 else last, dim
    elif step > 0:
        begin = zero if start is None else start
        end = dim if stop is None else builder.one("min", [stop, dim], INT)
        extent = builder.one("max", [builder.isub(end, begin), zero], INT)
    else:
        before = builder.int_(-1)
        begin = last if start is None else builder.one("min", [start, last], INT)
        end = before if stop is None else builder.one("max", [stop, before], INT)
        extent = builder.one("max", [builder.isub(begin, end), zero], INT)
    if abs(step) != 1:
        extent = builder.idiv(builder.iadd(extent, builder.int_(abs(step) - 1)), builder.int_(abs(step)))
    return begin, builder.int_(step), extent
