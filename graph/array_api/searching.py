"""Orders elements and looks for them as the standard's functions do: sorts, places, sets of distinct elements."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..arguments import axis_of, choice_of, flag_of, wrong
from ..eager import functional as F
from ..eager.tensor import Tensor
from .operands import Operand, column, dtype_of_number, flat, operands, tensor, together


class UniqueAll(NamedTuple):
    """The distinct elements, the places where they come first, of each element the place of its value, and counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The distinct elements, and how often each is there."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The distinct elements, and for each element of the tensor the place of its value."""

    values: Tensor
    inverse_indices: Tensor


@placed
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The int64 place of the first maximum along the axis, or among all elements; NaN wins."""
    return F.argmax(tensor("x", x), axis, keepdims)


@placed
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The int64 place of the first minimum along the axis, or among all elements; NaN wins."""
    return F.argmin(tensor("x", x), axis, keepdims)


@placed
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The int64 places of the elements along an axis in order; equal ones keep theirs, NaN comes last."""
    flag_of("stable", stable)  # it always is
    return F.argsort(tensor("x", x), not flag_of("descending", descending), axis_of(axis, x.rank))


@placed
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements along an axis in order; equal ones keep theirs, NaN comes last."""
    flag_of("stable", stable)
    return F.sort(tensor("x", x), axis, descending)


@placed
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of the elements that are not zero, in row-major order: an int64 tensor for each axis.

    Raises:
        GraphError: EK0422, x has rank 0.
    """
    if tensor("x", x).rank == 0:
        wrong("x", x, "a tensor with axes", code="EK0422")
    places = F.nonzero(x, "count")
    return tuple(places[:, k] for k in range(x.rank))


@placed
def searchsorted(
    x1: Tensor, x2: Operand, /, *, side: Literal["left", "right"] = "left", sorter: Tensor | None = None
) -> Tensor:
    """The int64 places in x1 before which the elements of x2 keep it in order.

    Args:
        x1: a tensor of one axis, in order; or brought into it by `sorter`.
        x2: what is looked for.
        side: the place before elements that are equal, or behind them ("right").
        sorter: the places of the elements of x1 in order.
    """
    right = choice_of("side", side, known=("left", "right"), code="EK0819") == "right"
    if tensor("x1", x1).rank != 1:
        wrong("x1", x1, "a tensor of one axis", code="EK0422")
    row = x1 if sorter is None else F.gather(x1, tensor("sorter", sorter), 0)
    row, wanted = together("searchsorted", [row, _on_its_device(x2, x1)])
    return F.searchsorted(row, wanted, right)


@placed
def where(condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
    """Elements of x1 where the condition is true, of x2 elsewhere; all three broadcast."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        kinds = [dtype_of_number(each) for each in (x1, x2)]
        dtype = max(kinds, key=[DType.bool, DType.int64, DType.float32].index)
        x1 = Tensor.constant(x1, dtype=dtype, device=tensor("condition", condition).device)
    return F.where(tensor("condition", condition), *operands({"x1": x1, "x2": x2}))


# *** sets ***


@placed
def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is one of x2's; with `invert`, whether it is none of them. NaN is not an element of
    anything."""
    like = x2 if isinstance(x2, Tensor) else tensor("x1", x1)
    first, second = together("isin", [_on_its_device(x1, like), _on_its_device(x2, like)])
    row = F.sort(flat(second))
    if row.size == 0:
        contained = Tensor.full(first.shape, False, dtype=DType.bool, device=first.device)
    else:
        places = F.minimum(F.searchsorted(row, first, False), row.size - 1)
        contained = F.equal(F.gather(row, places, 0), first)
    return F.logical_not(contained) if flag_of("invert", invert) else contained


@placed
def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements in ascending order, their first places, the places of their values, and their counts.

    Each NaN is distinct; -0.0 and 0.0 are one. Complex numbers are in the order of their real parts, and of their
    imaginary parts where these are equal.
    """
    row = flat(tensor("x", x))
    order = _order(row)
    arranged = F.gather(row, order, 0)
    begins = _begins(arranged)
    starts = F.nonzero(begins, "count")[:, 0] if row.size else column([], x)
    group = F.sub(F.cumsum(begins), 1)
    inverse = F.scatter(F.zeros_like(order), group, order, 0) if row.size else order
    ends = F.concat([starts[1:], column([row.size], x)], 0) if row.size else starts
    return UniqueAll(
        F.gather(arranged, starts, 0) if row.size else row,
        F.gather(order, starts, 0) if row.size else order,
        F.reshape(inverse, x.shape),
        F.sub(ends, starts),
    )


def _on_its_device(value: Operand, like: Tensor) -> Tensor:
    """A number as a tensor with the dtype of another."""
    return value if isinstance(value, Tensor) else Tensor.constant(value, dtype=like.dtype, device=like.device)


def _order(row: Tensor) -> Tensor:
    """The places of elements in ascending order; of complex numbers by their real and then their imaginary parts."""
    if not row.dtype.is_complex():
        return F.argsort(row)
    first = F.argsort(F.imag(row))
    return F.gather(first, F.argsort(F.gather(F.real(row), first, 0)), 0)


def _begins(arranged: Tensor) -> Tensor:
    """Where in a row that is in order another value begins."""
    if arranged.size < 2:
        return Tensor.full(arranged.shape, True, dtype=DType.bool, device=arranged.device)
    first = Tensor.full([1], True, dtype=DType.bool, device=arranged.device)
    return F.concat([first, F.not_equal(arranged[1:], arranged[:-1])], 0)


@placed
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements in ascending order, and how often each is there."""
    unique = unique_all(x)
    return UniqueCounts(unique.values, unique.counts)


@placed
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements in ascending order, and for each element the place of its value, in the shape of x."""
    unique = unique_all(x)
    return UniqueInverse(unique.values, unique.inverse_indices)


@placed
def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements in ascending order."""
    row = flat(tensor("x", x))
    row = F.gather(row, _order(row), 0) if row.dtype.is_complex() else F.sort(row)
    return F.gather(row, F.nonzero(_begins(row), "count")[:, 0], 0) if row.size else row
