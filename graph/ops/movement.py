"""Stages ops that move or rename elements and compute nothing: shapes, axes, joining.

Sizes may be symbolic. Where sizes have to agree, they must be equal as expressions; `rebind` is the way to assert what
cannot be seen.

See also `indexing` (indexing).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...dsl.diagnostics.errors import DeviceError, DTypeError
from ...dsl.diagnostics.places import user_place
from ..arguments import axes_given, axis_of, list_of, text_of
from ..driver.devices import Device, DeviceRef
from ..ir import ConstantTensor
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim, SymbolicDim, is_below_zero, linear_in
from ..types.tensor_type import TensorType, shown
from .operands import (
    HINT_FOR_SYMBOLS,
    DimLike,
    as_indices,
    as_shape,
    check_equal,
    expand,
    permuted,
    same_device,
    sizes_tensor,
    tensor,
    tensors,
)
from .stage import add_method, builtin, current, define_sizes, fail, op, require

_FAMILY = "movement"


@op(dtypes={"x": "storable"}, example="ops.reshape(x, [-1, 2])", method="reshape")
def reshape(x: TensorValueLike, shape: Iterable[DimLike]) -> TensorValue:
    """The elements in row-major order under another shape. One size may be -1 and is inferred, symbolic dims too.

    Raises:
        GraphError: EK0423, the shapes do not (or cannot be seen to) have as many elements; a size is negative.
    """
    value = tensor("reshape", "x", x)
    target = list(Shape(shape))
    unknown = [axis for axis, dim in enumerate(target) if dim == -1]
    total = value.shape.num_elements
    known = math.prod((dim for axis, dim in enumerate(target) if axis not in unknown), start=Dim(1))
    possible = known == total if not unknown else len(unknown) == 1 and known != 0 and total // known * known == total
    if not possible:
        _fail_reshape(value, target, known, total, len(unknown))
    if unknown:
        target[unknown[0]] = total // known
    for axis, dim in enumerate(target):
        if is_below_zero(dim):
            fail("reshape", f"size {dim} on axis {axis} is negative", code="EK0423", argument="shape", got=str(dim))
    return as_shape(value, target)


def _fail_reshape(value: TensorValue, target: Sequence[Dim], known: Dim, total: Dim, unknown: int) -> None:
    if unknown > 1:
        message = f"shape {shown(target)} leaves {unknown} sizes open, and only one can be inferred"
    elif unknown and known == 0:
        message = f"the size left open in {shown(target)} could be anything, the others make 0 elements"
    elif unknown:
        message = f"{shown(value.shape)} has {total} elements, which the {known} of {shown(target)} do not divide"
    else:
        message = f"{shown(value.shape)} has {total} elements, and {shown(target)} has {known}"
    static = isinstance(known, StaticDim) and isinstance(total, StaticDim)
    fail(
        "reshape",
        message,
        code="EK0423",
        argument="shape",
        expected=str(total),
        got=str(known),
        hint=None if static or unknown > 1 else HINT_FOR_SYMBOLS,
    )


@op(dtypes={"x": "storable"}, example="ops.flatten(x, start_dim=1)", method="flatten")
def flatten(x: TensorValueLike, start_dim: int = 0, end_dim: int = -1) -> TensorValue:
    """Axes `start_dim` to `end_dim`, both included, as one; rank 0 becomes rank 1."""
    value = tensor("flatten", "x", x)
    if value.rank == 0:
        return as_shape(value, [1])
    first = axis_of(start_dim, value.rank, "start_dim")
    last = axis_of(end_dim, value.rank, "end_dim")
    if first > last:
        fail("flatten", f"start_dim {first} lies behind end_dim {last}", code="EK0422", argument="start_dim", got=first)
    merged = Shape(value.shape[first : last + 1]).num_elements
    return as_shape(value, [*value.shape[:first], merged, *value.shape[last + 1 :]])


@op(dtypes={"x": "storable"}, example="ops.squeeze(x, 1)")
def squeeze(x: TensorValueLike, axis: int) -> TensorValue:
    """Without one axis of size 1.

    Raises:
        GraphError: EK0421, its size is another.
    """
    value = tensor("squeeze", "x", x)
    at = axis_of(axis, value.rank)
    if value.shape[at] != 1:
        size = value.shape[at]
        fail("squeeze", f"axis {at} has size {size}, not 1", code="EK0421", argument="axis", expected=1, got=str(size))
    return as_shape(value, [dim for k, dim in enumerate(value.shape) if k != at])


@op(dtypes={"x": "storable"}, example="ops.unsqueeze(x, -1)")
def unsqueeze(x: TensorValueLike, axis: int) -> TensorValue:
    """With a new axis of size 1 at `axis`; a negative one counts from the end of the result."""
    value = tensor("unsqueeze", "x", x)
    at = axis_of(axis, value.rank + 1)
    return as_shape(value, [*value.shape[:at], 1, *value.shape[at:]])


@op(dtypes={"x": "storable"}, example="ops.permute(x, [2, 0, 1])")
def permute(x: TensorValueLike, dims: Iterable[int]) -> TensorValue:
    """Axis k of the result is axis `dims[k]` of `x`.

    Raises:
        GraphError: EK0422, `dims` does not name every axis once.
    """
    value = tensor("permute", "x", x)
    order = [axis_of(axis, value.rank, "dims") for axis in list_of("dims", dims, "axes", "EK0422")]
    if sorted(order) != list(range(value.rank)):
        fail(
            "permute",
            f"dims {order} have to name each of the {value.rank} axes once",
            code="EK0422",
            argument="dims",
            expected=list(range(value.rank)),
            got=order,
        )
    return permuted(value, order)


@op(dtypes={"x": "storable"}, example="ops.transpose(x, -1, -2)")
def transpose(x: TensorValueLike, axis_1: int, axis_2: int) -> TensorValue:
    """Two axes swapped."""
    value = tensor("transpose", "x", x)
    first = axis_of(axis_1, value.rank, "axis_1")
    second = axis_of(axis_2, value.rank, "axis_2")
    order = list(range(value.rank))
    order[first], order[second] = second, first
    return permuted(value, order)


@add_method(TensorValue, "permute")
def _permute(x: TensorValue, *dims: int | Iterable[int]) -> TensorValue:
    """See `ops.permute`; the axes may stand side by side, too."""
    return permute(x, axes_given(dims))


@add_method(TensorValue, "transpose")
def _transpose(x: TensorValue, axis_1: int, axis_2: int) -> TensorValue:
    """See `ops.transpose`."""
    return transpose(x, axis_1, axis_2)


@op(dtypes={"x": "storable"}, example='ops.broadcast_to(x, [3, "n", 4])', method="broadcast_to")
def broadcast_to(
    x: TensorValueLike, shape: Iterable[DimLike] | TensorValue, out_dims: Iterable[DimLike] | None = None
) -> TensorValue:
    """`x` repeated along axes of size 1 and new leading axes.

    Args:
        x: a tensor.
        shape: sizes; or a tensor of one axis that has them when the graph runs.
        out_dims: only of such a tensor: names for the sizes, or what they have to be.

    Raises:
        GraphError: EK0420, a size is neither 1 nor the one wanted; EK0431, a name that no input has; EK0482, a tensor
            without `out_dims`; EK0454, at the call: what the tensor says does not fit.
    """
    value = tensor("broadcast_to", "x", x)
    if isinstance(shape, TensorValue):
        return _broadcast_by(value, shape, out_dims)
    if out_dims is not None:
        text = "out_dims name what a tensor says, and the shape is not a tensor"
        fail("broadcast_to", text, code="EK0420", argument="out_dims", expected="None", got="out_dims")
    target = Shape(shape)
    offset = len(target) - value.rank
    fits = offset >= 0 and all(
        dim == 1 or dim == wanted for dim, wanted in zip(value.shape, target[max(offset, 0) :], strict=False)
    )
    if not fits:
        fail(
            "broadcast_to",
            f"shape {shown(value.shape)} does not broadcast to {shown(target)}",
            code="EK0420",
            argument="shape",
            expected="equal sizes, or 1, from the last axis on",
            got=shown(target),
        )
    return expand(value, target)


def _broadcast_by(value: TensorValue, shape: TensorValue, out_dims: Iterable[DimLike] | None) -> TensorValue:
    name = "broadcast_to"
    sizes = as_indices(name, "shape", tensor(name, "shape", shape))
    same_device(name, {"x": value, "shape": sizes})
    if out_dims is None:
        text = "a tensor as shape needs out_dims, a name or a size for each axis"
        fail(name, text, code="EK0482", argument="out_dims", expected="a list of dims", got="None")
    target = Shape(out_dims)
    if sizes.rank != 1 or sizes.shape[0] != len(target) or len(target) < value.rank:
        text = f"{shown(value.shape)} cannot be broadcast to {shown(target)} by a tensor of shape {shown(sizes.shape)}"
        fail(name, text, code="EK0420", argument="out_dims", expected=shown(sizes.shape), got=len(target))
    if not len(target):
        return value
    given = builtin("creation", "sizes", [sizes])[0]
    define_sizes(
        name, given, target, [f"{name}: axis {axis} has another size than {dim}" for axis, dim in enumerate(target)]
    )
    for axis, (dim, wanted) in enumerate(zip(value.shape[::-1], target[::-1], strict=False), 1):
        if dim != 1:
            text = f"axis {-axis} has size {dim}, and {wanted} is requested"
            check_equal(name, "shape", dim, wanted, text, "EK0420")
    return expand(as_shape(value, _with_names(value.shape, target)), target)


def _with_names(shape: Shape, target: Shape) -> list[Dim]:
    """The sizes of a shape by the names of another one, where the two are equal."""
    last = target[len(target) - len(shape) :]
    return [dim if dim == 1 else wanted for dim, wanted in zip(shape, last, strict=True)]


@op(dtypes={"original_vals": "storable"}, example="ops.concat([x, y], axis=1)")
def concat(original_vals: Iterable[TensorValueLike], axis: int = 0) -> TensorValue:
    """Tensors joined along an axis that they have.

    Raises:
        GraphError: EK0426, none given, or ranks or other sizes differ.
        DTypeError: EK0410, dtypes differ.
    """
    values = _of_one_dtype("concat", "original_vals", list_of("original_vals", original_vals, "tensors", "EK0426"))
    first = values[0]
    at = axis_of(axis, first.rank)
    for position, value in enumerate(values[1:], 1):
        same = value.rank == first.rank and all(
            a == b for k, (a, b) in enumerate(zip(value.shape, first.shape, strict=True)) if k != at
        )
        if not same:
            fail(
                "concat",
                f"tensors 0 and {position} have shapes {shown(first.shape)} and {shown(value.shape)},"
                f" which differ off axis {at}",
                code="EK0426",
                argument="original_vals",
                expected=shown(first.shape),
                got=shown(value.shape),
            )
    joined = first
    for value in values[1:]:
        joined = builtin(_FAMILY, "concat2", [joined, value], {"axis": at})[0]
    return joined


@op(dtypes={"values": "storable"}, example="ops.stack([x, y], axis=-1)")
def stack(values: Iterable[TensorValueLike], axis: int = 0) -> TensorValue:
    """Tensors of one shape joined along a new axis; a negative `axis` counts from the end of the result.

    Raises:
        GraphError: EK0426, none given, or shapes differ.
        DTypeError: EK0410, dtypes differ.
    """
    strong = _of_one_dtype("stack", "values", list_of("values", values, "tensors", "EK0426"))
    for position, value in enumerate(strong):
        if value.shape != strong[0].shape:
            fail(
                "stack",
                f"tensors 0 and {position} have shapes {shown(strong[0].shape)} and {shown(value.shape)}",
                code="EK0426",
                argument="values",
                expected=shown(strong[0].shape),
                got=shown(value.shape),
            )
    at = axis_of(axis, strong[0].rank + 1)
    return concat([unsqueeze(value, at) for value in strong], at)


def _of_one_dtype(name: str, argument: str, values: list[Any]) -> list[TensorValue]:
    strong = [value for value in values if isinstance(value, TensorValue)]
    if not values:
        fail(
            name,
            "needs at least one tensor",
            code="EK0426",
            argument=argument,
            expected="a list of tensors",
            got="none",
        )
    for value in strong[1:]:
        if value.dtype is not strong[0].dtype:
            fail(
                name,
                f"the tensors have dtypes {strong[0].dtype} and {value.dtype}",
                code="EK0410",
                kind=DTypeError,
                expected=str(strong[0].dtype),
                got=str(value.dtype),
                hint=f"cast them, as in ops.cast(x, DType.{strong[0].dtype})",
            )
    return tensors(name, **{f"{argument}[{position}]": value for position, value in enumerate(values)})


@op(dtypes={"x": "storable"}, example='ops.rebind(x, ["n", "n"], message="x is square")', method="rebind")
def rebind(x: TensorValueLike, shape: Iterable[DimLike], message: str = "", layout: object = None) -> TensorValue:
    """`x` under a shape that the user asserts. What cannot be proven is checked when the graph is called.

    A name that is new in the graph stands for the size of its axis from now on. In `4*k + 1` it stands for the number
    with which that is the size of the axis.

    Args:
        x: a tensor.
        shape: as many sizes as `x` has axes.
        message: added to the error of a call with other sizes.
        layout: keeps the documented form; layouts are arguments of the ops that they matter to.

    Raises:
        GraphError: EK0421 another rank, EK0423 a size that can be seen to be another, EK0431 an expression of
            several names that the graph does not have, or in which a new one is not multiplied by a number.
    """
    value = tensor("rebind", "x", x)
    target, note = Shape(shape), text_of("message", message)
    if len(target) != value.rank:
        fail(
            "rebind",
            f"shape {shown(target)} has rank {len(target)}, and {shown(value.shape)} has {value.rank}",
            code="EK0421",
            argument="shape",
            expected=value.rank,
            got=len(target),
        )
    axes = enumerate(zip(value.shape, target, strict=True))
    for axis, (dim, wanted) in sorted(axes, key=lambda item: not isinstance(item[1][1], SymbolicDim)):
        if dim == wanted:
            continue
        size = _solved(dim, wanted)
        right = wanted if size is None else wanted.substitute(size)
        negative = size is not None and any(map(is_below_zero, size.values()))
        if negative or (dim != right and isinstance(dim - right, StaticDim)):
            text = f"axis {axis} has size {dim}, never {wanted}"
            fail("rebind", text, code="EK0423", argument="shape", expected=str(dim), got=str(wanted))
        if size is not None:
            ((name, new_size),) = size.items()
            define_sizes("rebind", sizes_tensor("rebind", [new_size], value.device, computed=True), [Dim(name)], [""])
        if size is None or not isinstance(wanted, SymbolicDim):
            text = f"rebind: axis {axis} has to have size {wanted}"
            require("rebind", "equal", dim, wanted, f"{text}: {note}" if note else text)
    return as_shape(value, target)


def _solved(dim: Dim, wanted: Dim) -> dict[str, Dim] | None:
    """The only name in `wanted` that the graph does not know, with the size that makes `wanted` be `dim`, rounded down;
    None where all are known, or where there is no such size."""
    unknown = [name for name in wanted.parameters if not current("rebind").has_dim(name)]
    if len(unknown) != 1:
        return None
    form = linear_in(wanted, unknown[0])
    return None if form is None else {unknown[0]: (dim - form[1]) // form[0]}


@op(dtypes={"x": "storable"}, example="ops.transfer_to(x, DeviceRef.CPU())", method="to")
def transfer_to(x: TensorValueLike, device: DeviceRef | Device) -> TensorValue:
    """`x` on a device: a copy, when the graph runs; `x` itself when it lies there, and a constant made there.

    Raises:
        DeviceError: EK0809, it lies elsewhere, and this is in the body of a branch or loop.
    """
    name, value, target = "transfer_to", tensor("transfer_to", "x", x), DeviceRef.from_device(device)
    if target == value.device:
        return value
    graph = current(name)
    maker = graph.maker(value.number)
    if isinstance(maker, ConstantTensor):
        return graph.stage_constant(maker.array, target, user_place())
    if graph.bodies.open:
        body = graph.bodies.open[-1]
        fail(
            name,
            f"a copy from {value.device} to {target} cannot be made in a body of control flow, here {body.name}",
            code="EK0809",
            kind=DeviceError,
            argument="device",
            expected=str(value.device),
            got=str(target),
            notes=[f"the body is staged at {body.place}"] if body.place else [],
            hint="move what the body reads before it, and its results behind it",
        )
    place = user_place()
    kernel = graph.kernels.builtin(_FAMILY, "transfer_to")
    made = graph.stage(kernel, [value], {}, [TensorType(value.dtype, value.shape, target)], place)
    return made[0].tensor


add_method(TensorValue, "transfer_to")(transfer_to)
