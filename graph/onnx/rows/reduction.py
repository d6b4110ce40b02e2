"""Converts reductions and softmax.

`axes` is an attribute in older versions and an input in newer ones; as an input it has to be known at import, for the
rank of the result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.rows import axes_of, reduce_axes
from ...staging.value import TensorValue
from ...types.dims import Shape
from ..call import NodeCall
from ..known import Array, known
from ..table import Ints, onnx_op

Reduce = Callable[[TensorValue, tuple[int, ...], bool], TensorValue]


def _reduction(name: str, reduce: Reduce, fold: Callable[..., object] | None = None) -> None:
    def convert(
        call: NodeCall, data: TensorValue, axes: Ints | None = None, *, keepdims: int, noop_with_empty_axes: int = 0
    ) -> TensorValue:
        if not axes and noop_with_empty_axes:
            return reduce(data, (), True) if data.rank else data
        if data.rank == 0:
            return reduce(data, (), True)
        return reduce(data, tuple(axes) if axes else tuple(range(data.rank)), bool(keepdims))

    def folded(data: Array, axes: Array | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        assert fold is not None
        if noop_with_empty_axes and (axes is None or not axes.size):
            raise ValueError
        over = tuple(int(axis) for axis in axes) if axes is not None and axes.size else None
        return np.asarray(fold(data, axis=over, keepdims=bool(keepdims))).astype(data.dtype)

    onnx_op(name, known=folded if fold else None)(convert)


def _wide(x: TensorValue) -> TensorValue:
    return ops.cast(x, DType.float32) if x.dtype.is_half() else x


def _in_own_dtype(reduce: Callable[..., TensorValue]) -> Reduce:
    """Sums of integers keep their dtype in ONNX, and wrap."""

    def apply(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
        return ops.cast(reduce(x, axes, keepdims), x.dtype)

    return apply


@_in_own_dtype
def _sum(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
    return ops.sum(x, axes, keepdims) if axes else x


def _mean(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
    return ops.cast(ops.mean(x, axes, keepdims), x.dtype) if axes else x


def _in_floats(reduce: Callable[..., TensorValue]) -> Reduce:
    """Integers compute in float64, half types in float32."""

    def apply(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
        wide = _wide(x) if x.dtype.is_float() else ops.cast(x, DType.float64)
        return ops.cast(reduce(wide, axes, keepdims), x.dtype)

    return apply


@_in_own_dtype
def _prod(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
    return ops.prod(x, axes, keepdims) if axes else x


@_in_own_dtype
def _sum_square(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
    return ops.sum_of_squares(x, axes, keepdims) if axes else x * x


@_in_floats
def _l2(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
    return ops.l2_norm(x, axes, keepdims) if axes else ops.abs(x)


@_in_floats
def _log_sum(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
    return ops.log(_sum(x, axes, keepdims))


@_in_floats
def _log_sum_exp(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
    return ops.logsumexp(x, axes, keepdims) if axes else x


def _extreme(largest: bool) -> Reduce:
    def reduce(x: TensorValue, axes: tuple[int, ...], keepdims: bool) -> TensorValue:
        if not axes:
            return x
        if x.dtype is DType.bool:
            return ops.cast(reduce(ops.cast(x, DType.uint8), axes, keepdims), DType.bool)
        name = "reduce_max" if largest else "reduce_min"
        # `ops.max` refuses an empty axis; ONNX gives the least value of the dtype, and so does the kernel
        return reduce_axes(name, ("reduction", name), x, axes_of(name, axes, x.rank), keepdims)

    return reduce


_reduction("ReduceSum", _sum, np.sum)
_reduction("ReduceMean", _mean)
_reduction("ReduceProd", _prod, np.prod)
_reduction("ReduceMax", _extreme(True), np.max)
_reduction("ReduceMin", _extreme(False), np.min)
_reduction("ReduceL1", lambda x, axes, keepdims: _sum(ops.abs(x) if x.dtype.is_signed() else x, axes, keepdims))
_reduction("ReduceL2", _l2)
_reduction("ReduceSumSquare", _sum_square)
_reduction("ReduceLogSum", _log_sum)
_reduction("ReduceLogSumExp", _log_sum_exp)


def _place(name: str, function: Callable[..., TensorValue]) -> None:
    def convert(data: TensorValue, *, axis: int, keepdims: int, select_last_index: int = 0) -> TensorValue:
        if not select_last_index:
            return function(data, axis, bool(keepdims))
        at = axis % data.rank if data.rank else 0
        backwards = data[tuple(slice(None, None, -1) if k == at else slice(None) for k in range(data.rank))]
        last = known([data.shape[at] - 1], DType.int64).tensor(data.device)
        return ops.reshape(last, []) - function(backwards, axis, bool(keepdims))

    onnx_op(name)(convert)


_place("ArgMax", ops.argmax)
_place("ArgMin", ops.argmin)


# *** scans ***


def _scan(name: str, function: Callable[..., TensorValue]) -> None:
    def convert(call: NodeCall, x: TensorValue, axis: Ints, *, exclusive: int = 0, reverse: int = 0) -> TensorValue:
        if len(axis) != 1:
            call.fail(f"goes along one axis, not {len(axis)}")
        return ops.cast(function(x, axis[0], bool(exclusive), bool(reverse)), x.dtype)

    onnx_op(name)(convert)


_scan("CumSum", ops.cumsum)
_scan("CumProd", ops.cumprod)


# *** softmax ***


def _softmax(name: str, function: Callable[[TensorValue, int], TensorValue]) -> None:
    def convert(x: TensorValue, *, axis: int) -> TensorValue:
        return function(x, axis) if x.rank else ops.reshape(function(ops.reshape(x, [1]), 0), [])

    def flat(x: TensorValue, *, axis: int) -> TensorValue:
        """Before version 13 all axes from this one on are one."""
        at = axis % x.rank if x.rank else 0
        rows = ops.reshape(x, [Shape(x.shape[:at]).num_elements, Shape(x.shape[at:]).num_elements])
        return ops.reshape(function(rows, 1), x.shape)

    onnx_op(name)(flat)
    onnx_op(name, since=13)(convert)


_softmax("Softmax", ops.softmax)
_softmax("LogSoftmax", ops.logsoftmax)
