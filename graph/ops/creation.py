"""Stages tensors that are made of few numbers: sequences, one number over and over, indicators, sizes.

See also `constant` (literals).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import axis_of, dtype_of, wrong
from ..driver.devices import Device, DeviceRef
from ..staging.sizes import stage_dim
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim, ceildiv
from ..types.promotion import is_weak, literal_array, promote
from ..types.tensor_type import TensorType, shown
from .operands import (
    DimLike,
    as_indices,
    cast_to,
    check_at_least,
    check_kind,
    check_known,
    dim_of,
    expand,
    same_device,
    scalar,
    sizes_tensor,
    tensor,
)
from .stage import builtin, current, define_sizes, fail, op, require

__all__ = [
    "arange",
    "full",
    "full_like",
    "one_hot",
    "ones",
    "ones_like",
    "range",
    "shape_to_tensor",
    "zeros",
    "zeros_like",
]

_FAMILY = "creation"
_Number = int | float | Dim | TensorValue


# *** sizes ***


@op(example="ops.shape_to_tensor([2, 3])")
def shape_to_tensor(shape: Iterable[DimLike]) -> TensorValue:
    """The sizes of a shape as an int64 tensor of one axis, on the host; named ones as they are when the graph runs."""
    return sizes_tensor("shape_to_tensor", list(Shape(shape)), DeviceRef.CPU())


def named_size(name: str, size: Dim, out_dim: DimLike | None, device: DeviceRef) -> Dim:
    """The dim that a user gives to a size that is known as an expression: a new name, or one that has to be equal."""
    wanted = size if out_dim is None else dim_of(name, "out_dim", out_dim)
    if wanted == size:
        return size
    graph = current(name)
    text = f"{name}: the size is {size}, and out_dim is {wanted}"
    if all(graph.has_dim(symbol) for symbol in wanted.parameters):
        if isinstance(wanted - size, StaticDim):
            fail(name, text.partition(": ")[2], code="EK0423", argument="out_dim", expected=str(size), got=str(wanted))
        require(name, "equal", size, wanted, text)
    else:
        define_sizes(name, sizes_tensor(name, [size], device, computed=True), [wanted], [text])
    return wanted


# *** sequences ***


@op(example="ops.range(0, 10, 2, dtype=DType.int32)")
def range(
    start: TensorValueLike,
    stop: TensorValueLike,
    step: TensorValueLike = 1,
    out_dim: DimLike | None = None,
    *,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> TensorValue:
    """start, start + step, start + 2 * step, ... up to `stop`, which is left out. Floats are computed in float64.

    Args:
        start, stop, step: numbers, dims, or tensors of rank 0. The step is not 0, and leads from start to stop.
        out_dim: the number of elements, or a name for it. Tensors need it, since it is known when the graph runs.
        dtype: of the result; when left out that of the tensors, or float32.
        device: where the result lies; when left out where the tensors do, or the host.

    Raises:
        GraphError: EK0480 the step is 0 or leads elsewhere; EK0482 tensors without `out_dim`; EK0421 one with axes.
        DTypeError: EK0413, a dtype that is not a number.
        KernelError: when it runs, a tensor has a step that leads elsewhere.
    """
    return _range("range", start, stop, step, out_dim, dtype, device)


@op(example="ops.arange(0, 10, 2, dtype=DType.int32)")
def arange(
    start: TensorValueLike,
    stop: TensorValueLike,
    step: TensorValueLike = 1,
    out_dim: DimLike | None = None,
    *,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> TensorValue:
    """Another name of `range`."""
    return _range("arange", start, stop, step, out_dim, dtype, device)


def _range(
    name: str,
    start: object,
    stop: object,
    step: object,
    out_dim: DimLike | None,
    dtype: DType | None,
    device: DeviceRef | Device | None,
) -> TensorValue:
    given = {"start": start, "stop": stop, "step": step}
    values = {argument: _number(name, argument, value) for argument, value in given.items()}
    strong = {argument: value for argument, value in values.items() if isinstance(value, TensorValue)}
    place = DeviceRef.from_device(device) if device is not None else DeviceRef.CPU()
    if strong:
        place = place if device is not None else next(iter(strong.values())).device
        same_device(name, strong, place)
    kind = dtype_of("dtype", dtype) if dtype is not None else _common(list(strong.values()))
    computed = DType.float64 if kind.is_float() else DType.int64
    _check_numeric(name, kind)
    scalars = [_as_scalar(name, argument, value, computed, place) for argument, value in values.items()]
    if strong:
        if out_dim is None:
            text = "tensors need out_dim, the number of elements or a name for it"
            fail(name, text, code="EK0482", argument="out_dim", expected="a size or a name", got="None")
        size = dim_of(name, "out_dim", out_dim)
        count = builtin(_FAMILY, "range_size", scalars)[0]
        define_sizes(name, count, [size], [f"{name}: out_dim is {size}, and the range has another number of elements"])
    else:
        size = named_size(name, _count(name, *values.values()), out_dim, place)
    return builtin(_FAMILY, "range", [scalars[0], scalars[2]], {"dtype": kind}, [TensorType(kind, [size], place)])[0]


def _number(name: str, argument: str, value: object) -> _Number:
    """What bounds a range: a tensor of rank 0, a dim, or a plain number."""
    if hasattr(value, "__tensorvalue__") or isinstance(value, TensorValue):
        bound = tensor(name, argument, value)
        check_kind(name, argument, bound, "numeric")
        if bound.rank:
            text = f"argument '{argument}' has shape {bound.shape}, and one number is requested"
            fail(name, text, code="EK0421", argument=argument, expected="rank 0", got=str(bound.shape))
        return bound
    if isinstance(value, Dim):
        return int(value) if isinstance(value, StaticDim) else value
    array = literal_array(value, None, name, user_place()) if is_weak(value) else None
    if array is None or array.ndim or array.dtype.kind not in "iuf":
        wrong(argument, value, "a number, a dim or a tensor of rank 0", code="EK0480")
    return int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else array.item()


def _common(strong: list[TensorValue]) -> DType:
    return promote([value.dtype for value in strong], "range", user_place()) if strong else DType.float32


def _as_scalar(name: str, argument: str, value: _Number, dtype: DType, device: DeviceRef) -> TensorValue:
    """A number, a dim or a tensor of rank 0 in the dtype in which ranges are computed."""
    if isinstance(value, TensorValue):
        return cast_to(value, dtype)
    if isinstance(value, Dim):
        check_known(name, argument, [value])
        return cast_to(stage_dim(current(name), value, device, user_place()), dtype)
    if dtype is DType.float64:
        array = np.array(value, np.float64)
    elif isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        array = np.array(value & ((1 << 64) - 1), np.uint64).view(np.int64)
    else:
        text = f"argument '{argument}' is {value}, and integers are requested"
        fail(name, text, code="EK0480", argument=argument, expected="an integer", got=str(value))
    return current(name).stage_constant(array, device, user_place())


def _count(name: str, start: Any, stop: Any, step: Any) -> Dim:
    """The number of elements of a range whose bounds are numbers and dims."""
    text = f"a step of {step} does not lead from {start} to {stop}"
    if not isinstance(step, int | float) or step == 0:
        text = text if isinstance(step, int | float) else f"the step {step} has to be a number or a tensor"
        fail(name, text, code="EK0480", argument="step", expected="a number that is not 0", got=str(step))
    if isinstance(start, float) or isinstance(stop, float) or isinstance(step, float):
        if isinstance(start, Dim) or isinstance(stop, Dim):
            text = "dims go with whole numbers only"
            fail(name, text, code="EK0480", argument="step", expected="whole numbers", got=str(step))
        steps = (stop - start) / step
        if not math.isfinite(steps) or steps < 0:
            fail(name, text, code="EK0480", argument="step", expected="a step that leads there", got=str(step))
        return Dim(math.ceil(steps))
    if isinstance(start, int) and isinstance(stop, int) and (stop - start) * step >= 0:
        return Dim(-((start - stop) // step))
    span = Dim(stop) - start if step > 0 else Dim(start) - stop
    check_at_least(name, "step", span, 0, text)
    return ceildiv(span, abs(step))


def _check_numeric(name: str, dtype: DType) -> None:
    if dtype.is_storage() or dtype is DType.bool:
        text = f"numbers of {dtype} cannot be counted"
        fail(name, text, code="EK0413", kind=DTypeError, argument="dtype", expected="numeric", got=str(dtype))


# *** one number over and over ***


@op(example="ops.full([2, 3], 0.5, DType.float32)")
def full(
    shape: Iterable[DimLike],
    value: TensorValueLike,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> TensorValue:
    """A tensor of one number.

    Args:
        shape: its sizes; names of dims of the graph, too.
        value: a number, or a tensor of rank 0.
        dtype: of the result; when left out that of the tensor, or as `constant` takes a number.
        device: where it lies; when left out where the tensor does, or the host.
    """
    return _full("full", shape, value, dtype, device)


@op(example="ops.zeros([2, 3], DType.float32)")
def zeros(
    shape: Iterable[DimLike], dtype: DType = DType.float32, device: DeviceRef | Device | None = None
) -> TensorValue:
    """A tensor of zeros."""
    return _full("zeros", shape, 0, dtype, device)


@op(example="ops.ones([2, 3], DType.float32)")
def ones(
    shape: Iterable[DimLike], dtype: DType = DType.float32, device: DeviceRef | Device | None = None
) -> TensorValue:
    """A tensor of ones."""
    return _full("ones", shape, 1, dtype, device)


@op(dtypes={"x": "storable"}, example="ops.full_like(x, 2)")
def full_like(x: TensorValueLike, value: TensorValueLike, dtype: DType | None = None) -> TensorValue:
    """A tensor of one number, in the shape of `x` and where it lies, and of its dtype when none is given."""
    like = tensor("full_like", "x", x)
    return _full("full_like", like.shape, value, like.dtype if dtype is None else dtype, like.device)


@op(dtypes={"x": "storable"}, example="ops.zeros_like(x)")
def zeros_like(x: TensorValueLike, dtype: DType | None = None) -> TensorValue:
    """A tensor of zeros, in the shape of `x` and where it lies, and of its dtype when none is given."""
    like = tensor("zeros_like", "x", x)
    return _full("zeros_like", like.shape, 0, like.dtype if dtype is None else dtype, like.device)


@op(dtypes={"x": "storable"}, example="ops.ones_like(x, DType.bool)")
def ones_like(x: TensorValueLike, dtype: DType | None = None) -> TensorValue:
    """A tensor of ones, in the shape of `x` and where it lies, and of its dtype when none is given."""
    like = tensor("ones_like", "x", x)
    return _full("ones_like", like.shape, 1, like.dtype if dtype is None else dtype, like.device)


def _full(
    name: str,
    shape: Iterable[int | str | Dim] | Shape,
    value: object,
    dtype: DType | None,
    device: DeviceRef | Device | None,
) -> TensorValue:
    wanted = None if dtype is None else dtype_of("dtype", dtype)
    target = Shape(shape)
    if isinstance(value, TensorValue):
        one = tensor(name, "value", value)
        one = one if wanted is None else cast_to(one, wanted)
        same_device(name, {"value": one}, one.device if device is None else DeviceRef.from_device(device))
    else:
        array = literal_array(int(value) if isinstance(value, StaticDim) else value, wanted, name, user_place())
        place = DeviceRef.CPU() if device is None else DeviceRef.from_device(device)
        one = current(name).stage_constant(array, place, user_place())
    if one.rank:
        text = f"argument 'value' has shape {shown(one.shape)}, and one number is requested"
        fail(name, text, code="EK0421", argument="value", expected="rank 0", got=shown(one.shape))
    check_known(name, "shape", target)
    return expand(one, target)


@op(dtypes={"indices": "index"}, example="ops.one_hot(indices, 4)")
def one_hot(
    indices: TensorValueLike,
    depth: DimLike,
    axis: int = -1,
    on_value: TensorValueLike = 1,
    off_value: TensorValueLike = 0,
    dtype: DType = DType.float32,
) -> TensorValue:
    """For each index a row that is `on_value` in its place and `off_value` elsewhere.

    Args:
        indices: integers. A negative one counts from the end; one that lies outside has no place.
        depth: the length of the rows.
        axis: where the rows lie in the result; a negative one counts from its end.
        on_value, off_value: numbers, or tensors of rank 0 of the dtype.
        dtype: of the result: any type that computes.

    Raises:
        DTypeError: EK0413, `indices` are not integers, a value is of another dtype.
        GraphError: EK0480, a depth below 0.
    """
    name = "one_hot"
    places = as_indices(name, "indices", tensor(name, "indices", indices))
    at = axis_of(axis, places.rank + 1)
    size = dim_of(name, "depth", depth)
    check_known(name, "depth", [size])
    check_at_least(name, "depth", size, 0, f"the depth is {size}")
    shape = [*places.shape[:at], size, *places.shape[at:]]
    out = TensorType(dtype_of("dtype", dtype), shape, places.device)
    if out.dtype.is_storage():
        _check_numeric(name, out.dtype)
    on, off = (scalar(name, a, v, out) for a, v in (("on_value", on_value), ("off_value", off_value)))
    return builtin(_FAMILY, name, [places, on, off], {"axis": at}, [out])[0]
