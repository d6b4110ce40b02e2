"""Stages what orders elements: sorts, places in order, the k largest and smallest; and looks for places in an order.

All of it is stable: equal elements keep their order, -0.0 and 0.0 are equal, and NaN comes last in either direction.

See also `reduction` (keys that are computed on the way; the places of extremes).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import GraphError
from ..arguments import axis_of, flag_of, in_short, int_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim
from ..types.tensor_type import shown
from .indexing import slice_tensor
from .operands import check_kind, permuted, tensor, tensors
from .stage import builtin, fail, op, require

_FAMILY = "order"
MOST_INSERTED = 64  # elements that are kept in order while a row is gone over; more are found by sorting it


@op(dtypes={"x": "any"}, example="ops.argsort(x, ascending=True)")
def argsort(
    x: TensorValueLike, ascending: bool = True, axis: int = 0, *, descending: bool | None = None
) -> TensorValue:
    """The int64 places of the elements along the first axis, or another one, in order; NaN last.

    Args:
        x: a tensor; the result has its shape.
        ascending: whether the smallest come first, else the largest; equal elements keep their order.
        axis: the axis along which elements are ordered.
        descending: the opposite of `ascending`, by the name that `sort` has for it; instead of that.

    Raises:
        GraphError: axis is out of range; x has rank 0.
    """
    rising = flag_of("ascending", ascending) if descending is None else not flag_of("descending", descending)
    value, at, turned = _taken("argsort", "x", x, axis, not rising)
    rows = _rows(value, at)
    return _back(builtin(_FAMILY, "argsort", [rows], _parameters(rows, turned))[0], at)


@op(dtypes={"x": "any"}, example="ops.sort(x, axis=-1)")
def sort(x: TensorValueLike, axis: int = -1, descending: bool = False) -> TensorValue:
    """The elements along `axis` in order: equal ones keep theirs, NaN comes last.

    Raises:
        GraphError: axis is out of range; x has rank 0.
    """
    value, at, turned = _taken("sort", "x", x, axis, descending)
    rows = _rows(value, at)
    return _back(builtin(_FAMILY, "sort", [rows], _parameters(rows, turned))[0], at)


@op(dtypes={"row": "any", "x": "any"}, example="ops.searchsorted(row, x)")
def searchsorted(row: TensorValueLike, x: TensorValueLike, right: bool = False) -> TensorValue:
    """The int64 places in a row before which each element of x keeps it in order.

    Args:
        row: a tensor of one axis in ascending order, NaN last, as `sort` gives it; it is not checked.
        x: what is looked for, of the same dtype after promotion.
        right: whether the place is the one behind elements that are equal.

    Raises:
        GraphError: EK0421, row has another rank than 1.
        DTypeError: dtypes that do not go together.
    """
    ordered, wanted = tensors("searchsorted", row=row, x=x)
    check_kind("searchsorted", "row", ordered, "any")
    if ordered.rank != 1:
        text = f"row has the shape {shown(ordered.shape)}"
        fail("searchsorted", text, code="EK0421", argument="row", expected="rank 1", got=ordered.rank)
    return builtin(_FAMILY, "searchsorted", [ordered, wanted], {"right": flag_of("right", right)})[0]


@op(dtypes={"input": "any"}, example="ops.top_k(input, 2, axis=-1)")
def top_k(input: TensorValueLike, k: int, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The k largest elements along `axis`, the largest first, and their int64 places; of equals the first. NaN is last.

    Raises:
        GraphError: axis is out of range; k is below 0, or there are less elements (also at the call, where their
            number comes with it).
    """
    return _first("top_k", input, k, axis, True)


@op(dtypes={"input": "any"}, example="ops.bottom_k(input, 2, axis=-1)")
def bottom_k(input: TensorValueLike, k: int, axis: int = -1) -> tuple[TensorValue, TensorValue]:
    """The k smallest elements along `axis`, the smallest first, and their places; of equals the first. NaN is last.

    Raises:
        GraphError: as `top_k`.
    """
    return _first("bottom_k", input, k, axis, False)


# *** parts ***


def _taken(name: str, argument: str, x: TensorValueLike, axis: int, turned: bool) -> tuple[TensorValue, int, bool]:
    value = tensor(name, argument, x)
    check_kind(name, argument, value, "any")
    return value, axis_of(axis, value.rank), flag_of("descending", turned)


def _rows(value: TensorValue, axis: int) -> TensorValue:
    """The axis as the last one."""
    return permuted(value, [*(k for k in range(value.rank) if k != axis), axis])


def _back(rows: TensorValue, axis: int) -> TensorValue:
    last = rows.rank - 1
    return permuted(rows, [*range(axis), last, *range(axis, last)])


def _parameters(rows: TensorValue, descending: bool) -> dict[str, bool | int]:
    return {"descending": descending, "words": 2 if rows.dtype.bits == 64 else 1}


def _first(name: str, input: TensorValueLike, k: int, axis: int, descending: bool) -> tuple[TensorValue, TensorValue]:
    value, at, _ = _taken(name, "input", input, axis, descending)
    count, dim = int_of("k", k), value.shape[at]
    _check_count(name, count, dim, at)
    if 0 < count <= MOST_INSERTED:
        values, places = builtin(_FAMILY, "top_k", [value], {"k": count, "axis": at, "descending": descending})
        return values, places
    rows = _rows(value, at)
    pair = builtin(_FAMILY, "sort_pairs", [rows], _parameters(rows, descending))[:2]
    values, places = (_back(slice_tensor(one, [..., slice(0, count)]), at) for one in pair)
    return values, places


def _check_count(name: str, k: int, dim: Dim, axis: int) -> None:
    text = f"k is {in_short(k)}, and axis {axis} has {dim} elements"
    try:
        fits = k >= 0 and dim >= k
    except GraphError:  # the size comes with the call
        require(name, "at_least", dim, Dim(k), f"{name}: {text}")
        return
    if not fits:
        fail(name, text, code="EK0421", argument="k", expected=f"0 to {dim}", got=in_short(k))
