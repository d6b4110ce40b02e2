"""Reductions over axes, and softmax.

`axis` is an int, a tuple of ints, or None for all axes; negative ones count from the end. A reduced axis stays with
size 1 unless `keepdims` is False. Several axes are merged into one first, so the elements are accumulated in one go:
half types accumulate in float32 and are rounded once.

Input: tensors. Output: a tensor. Non-goals: scans; the accumulation itself, which is the kernels'.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from ...dsl.types.dtype import DType
from ..arguments import axis_of, flag_of
from ..staging.value import Axes, TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim, is_below_zero
from ..types.tensor_type import shown
from . import elementwise
from .movement import permute
from .operands import as_shape, cast_to, check_kind, tensor
from .stage import builtin, fail, op, require

_FAMILY = "reduction"


class _Default(Enum):
    """Tells `max(x, y)` from `max(x, y, axis=None)`."""

    LAST = -1


@op
def sum(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The sum along `axis`; 0 over no elements. Integers wrap.

    Raises:
        GraphError: an axis is out of range or named twice.
        DTypeError: a bool tensor; cast it to count.
    """
    value = tensor("sum", "x", x)
    check_kind("sum", "x", value, "numeric")
    return _reduce("sum", "reduce_sum", value, axis, keepdims)


@op
def mean(x: TensorValueLike, axis: Axes = -1, keepdims: bool = True) -> TensorValue:
    """The arithmetic mean along `axis`; NaN over no elements. Integers give float64, as `div` does."""
    value = tensor("mean", "x", x)
    check_kind("mean", "x", value, "numeric")
    strong = value if value.dtype.is_float() else cast_to(value, DType.float64)
    return _reduce("mean", "reduce_mean", strong, axis, keepdims)


@op
def max(
    x: TensorValueLike,
    y: TensorValueLike | None = None,
    /,
    axis: Axes | Literal[_Default.LAST] = _Default.LAST,
    keepdims: bool = True,
) -> TensorValue:
    """Of one tensor the maximum along `axis` (the last one when left out); of two the elementwise maximum. NaN wins.

    Raises:
        GraphError: `axis` along with two tensors; an axis out of range, named twice, or without elements (also at the
            call, where its size comes with it).
    """
    return _extreme("max", x, y, axis, keepdims)


@op
def min(
    x: TensorValueLike,
    y: TensorValueLike | None = None,
    /,
    axis: Axes | Literal[_Default.LAST] = _Default.LAST,
    keepdims: bool = True,
) -> TensorValue:
    """Of one tensor the minimum along `axis` (the last one when left out); of two the elementwise minimum. NaN wins.

    Raises:
        GraphError: as `max`.
    """
    return _extreme("min", x, y, axis, keepdims)


@op
def argmax(x: TensorValueLike, axis: int | None = -1, keepdims: bool = True) -> TensorValue:
    """The int64 index of the first maximum along `axis`, or among all elements in row-major order. NaN wins."""
    return _arg("argmax", x, axis, keepdims)


@op
def argmin(x: TensorValueLike, axis: int | None = -1, keepdims: bool = True) -> TensorValue:
    """The int64 index of the first minimum along `axis`, or among all elements in row-major order. NaN wins."""
    return _arg("argmin", x, axis, keepdims)


@op
def softmax(value: TensorValueLike, axis: int = -1) -> TensorValue:
    """exp(x) scaled to the sum 1 along `axis`, computed from x - max(x); half types compute in float32."""
    return _along("softmax", value, axis)


@op
def logsoftmax(value: TensorValueLike, axis: int = -1) -> TensorValue:
    """The logarithm of `softmax`, without its underflow."""
    return _along("logsoftmax", value, axis)


def _along(name: str, x: TensorValueLike, axis: int) -> TensorValue:
    value = tensor(name, "value", x)
    check_kind(name, "value", value, "float")
    return builtin(_FAMILY, name, [value], {"axis": axis_of(axis, value.rank)})[0]


def _extreme(
    name: str, x: TensorValueLike, y: TensorValueLike | None, axis: Axes | _Default, keepdims: bool
) -> TensorValue:
    if y is not None:
        if axis is not _Default.LAST:
            fail(name, "takes an axis with one tensor only, and got two", code="EK0422", argument="axis")
        return (elementwise.maximum if name == "max" else elementwise.minimum)(x, y)
    value = tensor(name, "x", x)
    check_kind(name, "x", value, "numeric")
    axes = -1 if isinstance(axis, _Default) else axis
    _check_not_empty(name, value, _axes_of(name, axes, value.rank))
    return _reduce(name, f"reduce_{name}", value, axes, keepdims)


def _arg(name: str, x: TensorValueLike, axis: int | None, keepdims: bool) -> TensorValue:
    value = tensor(name, "x", x)
    check_kind(name, "x", value, "numeric")
    axes = _axes_of(name, axis, value.rank) if axis is None else (axis_of(axis, value.rank),)
    _check_not_empty(name, value, axes)
    if axis is None:
        result = builtin(_FAMILY, name, [as_shape(value, [value.shape.num_elements])], {"axis": 0})[0]
    else:
        result = builtin(_FAMILY, name, [value], {"axis": axes[0]})[0]
    return as_shape(result, _reduced(value.shape, axes, flag_of("keepdims", keepdims)))


def _reduce(name: str, kernel: str, value: TensorValue, axis: Axes, keepdims: bool) -> TensorValue:
    axes = _axes_of(name, axis, value.rank)
    if not axes:
        return value
    if len(axes) == 1:
        merged, at = value, axes[0]
    else:
        kept = [k for k in range(value.rank) if k not in axes]
        ordered = permute(value, [*kept, *axes])
        outer = [value.shape[k] for k in kept]
        merged = as_shape(ordered, [*outer, Shape(value.shape[k] for k in axes).num_elements])
        at = len(kept)
    result = builtin(_FAMILY, kernel, [merged], {"axis": at})[0]
    return as_shape(result, _reduced(value.shape, axes, flag_of("keepdims", keepdims)))


def _reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> list[Dim]:
    one = StaticDim(1)
    return [one if k in axes else dim for k, dim in enumerate(shape) if keepdims or k not in axes]


def _axes_of(name: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """The axes named, counted from 0 and sorted."""
    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(sorted(axis_of(one, rank) for one in given))
    if len(set(axes)) != len(axes):
        fail(name, f"axis {axes} names an axis twice", code="EK0422", argument="axis", got=axes)
    return axes


def _check_not_empty(name: str, value: TensorValue, axes: tuple[int, ...]) -> None:
    """Of no elements none is the largest; where a size tells it when the graph is called, it is checked then."""
    for axis in axes:
        dim, text = value.shape[axis], f"axis {axis} of {shown(value.shape)} has no elements to choose from"
        if dim == 0:
            fail(name, text, code="EK0424", argument="x", expected="at least one element", got=str(value.type))
        if not is_below_zero(-dim):  # else it is surely 1 or more
            require(name, "at_least", dim, Dim(1), f"{name}: {text}", "EK0424")
