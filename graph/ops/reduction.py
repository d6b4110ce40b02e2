"""Declares reductions over axes, and softmax. One row an op (see `rows`); `max` and `min` also take two tensors.

`axis` is an int, a tuple of ints, or None for all axes; negative ones count from the end. A reduced axis stays with
size 1 unless `keepdims` is False. Several axes are merged into one first, so the elements are accumulated in one go:
half types accumulate in float32 and are rounded once.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from ...dsl.types.dtype import DType
from ..staging.value import Axes, TensorValue, TensorValueLike
from .elementwise import logical_and, logical_or, maximum, minimum
from .operands import check_kind, tensor
from .rows import along, axes_of, check_not_empty, reduce_axes, reduction
from .stage import add_method, fail, op


class _Default(Enum):
    """Distinguishes `max(x, y)` from `max(x, y, axis=None)`."""

    LAST = -1


@reduction("comparable", sums=True, kernel="reduce_sum", method="sum", of_complex="pairs")
def sum(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The sum along `axis`; 0 over no elements. Integers and bools give int64, or uint64 if they are unsigned.

    Raises:
        GraphError: an axis is out of range or named twice.
    """


@reduction("comparable", integers=DType.float64, kernel="reduce_mean", method="mean", of_complex="pairs")
def mean(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The arithmetic mean along `axis`; NaN over no elements. Integers and bools give float64, as `div` does."""


@reduction("any", places=True, bools=DType.uint8, method="argmax")
def argmax(x: TensorValueLike, axis: int | None = -1, keepdims: bool = True) -> TensorValue:
    """The int64 index of the first maximum along `axis`, or among all elements in row-major order. NaN wins."""


@reduction("any", places=True, bools=DType.uint8, method="argmin")
def argmin(x: TensorValueLike, axis: int | None = -1, keepdims: bool = True) -> TensorValue:
    """The int64 index of the first minimum along `axis`, or among all elements in row-major order. NaN wins."""


@reduction("comparable", sums=True, kernel="reduce_prod", of_complex="complex_prod")
def prod(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The product along `axis`; 1 over no elements. Dtypes as of `sum`."""


@reduction("numeric", integers=DType.float64, kernel="reduce_var", method="var", changes=True)
def var(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The variance along `axis`, divided by the number of elements; NaN over none. Integers give float64."""


@reduction("numeric", integers=DType.float64, kernel="reduce_stdev", method="stdev", changes=True)
def stdev(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The standard deviation along `axis`: the square root of `var`. Integers give float64."""


@reduction("float")
def logsumexp(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """log(sum(exp(x))) along `axis` without overflow; -inf over no elements."""


@reduction("comparable", kernel="reduce_any", changes=True, of_complex="bools")
def any(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """Whether an element along `axis` is not zero, as bool; NaN is not zero. False over no elements."""


@reduction("comparable", kernel="reduce_all", changes=True, of_complex="bools")
def all(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """Whether no element along `axis` is zero, as bool; NaN is not zero. True over no elements."""


@reduction("comparable", changes=True, of_complex="bools")
def count_nonzero(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """How many elements along `axis` are not zero, as int64; NaN is not zero."""


@reduction("numeric", sums=True, changes=True)
def l1_norm(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The sum of the absolute values along `axis`, in the dtype of `sum`."""


@reduction("float", changes=True)
def l2_norm(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The square root of the sum of the squares along `axis`."""


@reduction("numeric", sums=True, changes=True)
def sum_of_squares(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The sum of the squares along `axis`, in the dtype of `sum`."""


@along("float")
def softmax(value: TensorValueLike, axis: int = -1) -> TensorValue:
    """exp(x) scaled to the sum 1 along `axis`, computed from x - max(x); half types compute in float32."""


@along("float")
def logsoftmax(value: TensorValueLike, axis: int = -1) -> TensorValue:
    """The logarithm of `softmax`, without its underflow."""


@op(dtypes={"x": "any", "y": "any"}, example="ops.max(x, axis=0)")
def max(
    x: TensorValueLike,
    y: TensorValueLike | None = None,
    /,
    axis: Axes | Literal[_Default.LAST] = _Default.LAST,
    keepdims: bool = True,
) -> TensorValue:
    """Of one tensor the maximum along `axis` (the last one when left out); of two the elementwise maximum.

    NaN wins, and True is above False. With two tensors there is no `axis` and no `keepdims`.

    Raises:
        GraphError: an axis out of range, named twice, or without elements (also at the call, where its size comes
            with it); EK0478 `axis` or `keepdims` with two tensors.
    """
    return _of_two("max", x, y, axis, keepdims) if y is not None else _of_one("max", x, axis, keepdims)


@op(dtypes={"x": "any", "y": "any"}, example="ops.min(x, axis=0)")
def min(
    x: TensorValueLike,
    y: TensorValueLike | None = None,
    /,
    axis: Axes | Literal[_Default.LAST] = _Default.LAST,
    keepdims: bool = True,
) -> TensorValue:
    """Of one tensor the minimum along `axis` (the last one when left out); of two the elementwise minimum.

    NaN wins, and False is below True. With two tensors there is no `axis` and no `keepdims`.

    Raises:
        GraphError: as `max`.
    """
    return _of_two("min", x, y, axis, keepdims) if y is not None else _of_one("min", x, axis, keepdims)


@add_method(TensorValue, "max")
def _max(x: TensorValue, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """See `ops.max`."""
    return max(x, axis=axis, keepdims=keepdims)


@add_method(TensorValue, "min")
def _min(x: TensorValue, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """See `ops.min`."""
    return min(x, axis=axis, keepdims=keepdims)


def _of_two(name: str, x: TensorValueLike, y: TensorValueLike, axis: Axes | _Default, keepdims: bool) -> TensorValue:
    if not isinstance(axis, _Default) or not keepdims:
        argument = "keepdims" if isinstance(axis, _Default) else "axis"
        text = f"of two operands the {name}imum is taken element by element, and {argument} has no meaning"
        hint = None
        if argument == "axis":
            hint = f"reduce the result: ops.{name}(ops.{name}(x, y), axis={axis})"
        elif type(y) is int and abs(y) < 64:  # an axis of a tensor
            hint = f"an axis is given by its name: ops.{name}(x, axis={y}, keepdims=False)"
        fail(name, text, code="EK0478", argument=argument, expected="one tensor", got="two operands", hint=hint)
    for argument, value in (("x", x), ("y", y)):
        if isinstance(value, TensorValue):
            check_kind(name, argument, value, "any")
    if _is_bool(x) and _is_bool(y):
        return (logical_or if name == "max" else logical_and)(x, y)
    return (maximum if name == "max" else minimum)(x, y)


def _is_bool(value: object) -> bool:
    return value.dtype is DType.bool if isinstance(value, TensorValue) else isinstance(value, bool)


def _of_one(name: str, x: TensorValueLike, axis: Axes | _Default, keepdims: bool) -> TensorValue:
    value = tensor(name, "x", x)
    check_kind(name, "x", value, "any")
    axes = axes_of(name, -1 if isinstance(axis, _Default) else axis, value.rank)
    check_not_empty(name, value, axes)
    kernel = f"reduce_{name}"
    if value.dtype is DType.bool:
        kernel = "reduce_any" if name == "max" else "reduce_all"
    return reduce_axes(name, ("reduction", kernel), value, axes, keepdims)
