"""Reduces and scans tensors as the standard's functions do: over all axes unless some are named; they are dropped."""

from __future__ import annotations

import copy
import math
from typing import Any

from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..arguments import axis_of, int_of, wrong
from ..eager import functional as F
from ..eager.tensor import Tensor
from .operands import Axes, cast, tensor, together


@placed
def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements along the axes are true: not zero; true over none."""
    return F.all(tensor("x", x), axis, keepdims)


@placed
def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether an element along the axes is true: not zero; false over none."""
    return F.any(tensor("x", x), axis, keepdims)


@placed
def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements along the axes are not zero, as int64."""
    return F.count_nonzero(tensor("x", x), axis, keepdims)


@placed
def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element along the axes; NaN if there is one."""
    return F.max(tensor("x", x), axis=axis, keepdims=keepdims)


@placed
def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element along the axes; NaN if there is one."""
    return F.min(tensor("x", x), axis=axis, keepdims=keepdims)


@placed
def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean along the axes; NaN over no elements."""
    return F.mean(tensor("x", x), axis, keepdims)


@placed
def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The sum along the axes, in `dtype`; without it in int64 of signed integers and bools, uint64 of unsigned ones."""
    return cast(F.sum(cast(tensor("x", x), dtype), axis, keepdims), dtype)


@placed
def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The product along the axes, in the dtype of `sum`."""
    return cast(F.prod(cast(tensor("x", x), dtype), axis, keepdims), dtype)


@placed
def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance along the axes: squares divided by the number of elements less `correction`, which is above 0."""
    value = F.var(tensor("x", x), axis, keepdims)
    if not correction:
        return value
    count = math.prod(x.shape[k] for k in _axes(x, axis))
    return F.mul(value, count / (count - correction) if count > correction else math.nan)


@placed
def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`."""
    return F.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def _axes(x: Tensor, axis: Axes) -> list[int]:
    given = range(x.rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return [axis_of(each, x.rank) for each in given]


@placed
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """The sum of each element and of those before it along an axis, in the dtype of `sum`.

    Args:
        x: a tensor.
        axis: may be left out of a tensor with one.
        dtype: that of the result.
        include_initial: a 0 comes first.
    """
    return _scanned(F.cumsum, x, axis, dtype, include_initial, 0)


@placed
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """The product of each element and of those before it along an axis; arguments as of `cumulative_sum`."""
    return _scanned(F.cumprod, x, axis, dtype, include_initial, 1)


def _scanned(scan: Any, x: Tensor, axis: int | None, dtype: DType | None, initial: bool, first: int) -> Tensor:
    if axis is None and tensor("x", x).rank > 1:
        wrong("axis", axis, f"one of the {x.rank} axes", code="EK0422")
    value = F.reshape(x, [1]) if tensor("x", x).rank == 0 else x
    at = axis_of(0 if axis is None else axis, value.rank)
    result = cast(scan(cast(value, dtype), at), dtype)
    if not initial:
        return result
    sizes = [1 if k == at else size for k, size in enumerate(value.shape)]
    return F.concat([Tensor.full(sizes, first, dtype=result.dtype, device=x.device), result], at)


@placed
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours along an axis, n times over; `prepend` and `append` are joined to x first."""
    at, times = axis_of(axis, tensor("x", x).rank), int_of("n", n)
    if times < 0:
        wrong("n", n, "0 or more", code="EK0819")
    if times == 0:
        return copy.copy(x)
    parts = [each for each in (prepend, x, append) if each is not None]
    value = F.concat(together("diff", parts), at) if len(parts) > 1 else x
    before: tuple[Any, ...] = (slice(None),) * at
    for _ in range(times):
        if value.shape[at] == 0:
            break
        after, former = value[(*before, slice(1, None))], value[(*before, slice(None, -1))]
        value = F.logical_xor(after, former) if value.dtype is DType.bool else F.sub(after, former)
    return value
