"""Stages ops that write updates into a copy of a tensor, where tensors of indices or a mask say.

Several updates of one element take effect in their row-major order, on every device and with any number
of threads: of `scatter` the last one stays, and sums of floats are always the same. A negative index counts from the
end of its axis; one that lies outside ends the call, unless checks are off.

See also `buffers` (memory that changes).
"""

from __future__ import annotations

from typing import Any

from ..arguments import axis_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.tensor_type import shown
from .gathering import check_places, depth_of
from .operands import (
    DimLike,
    as_shape,
    broadcast_shapes,
    check_dtype,
    check_equal,
    check_kind,
    dim_of,
    expand,
    indices_of,
    same_device,
    scalar,
    tensor,
)
from .stage import builtin, define_sizes, fail, op

__all__ = [
    "masked_scatter",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_mul",
]

_FAMILY = "scattering"


@op(
    dtypes={"input": "storable", "updates": "storable", "indices": "index"},
    example="ops.scatter(input, updates, indices, axis=1)",
)
def scatter(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1) -> TensorValue:
    """`input` with every update in the place that it has in `updates`, but at its index along `axis`.

    Args:
        input: a tensor.
        updates: of the dtype of `input` and the shape of `indices`; or one number for all places.
        indices: integers, of the rank of `input`; along the other axes they may be shorter.
        axis: the axis that the indices count along.

    Raises:
        GraphError: EK0421 ranks, EK0481 sizes that do not go together.
        DTypeError: EK0413, `updates` have another dtype, `indices` are not integers.
        KernelError: when it runs, an index lies outside.
    """
    return _scatter("scatter", input, updates, indices, axis, "set")


@op(
    dtypes={"input": "numeric", "updates": "numeric", "indices": "index"},
    example="ops.scatter_add(input, updates, indices, axis=1)",
)
def scatter_add(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """As `scatter`, but an update is added to what is there. Half types add in float32 and round each time."""
    return _scatter("scatter_add", input, updates, indices, axis, "add")


@op(
    dtypes={"input": "numeric", "updates": "numeric", "indices": "index"},
    example="ops.scatter_max(input, updates, indices, axis=1)",
)
def scatter_max(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """As `scatter`, but the larger of an update and what is there stays. NaN wins."""
    return _scatter("scatter_max", input, updates, indices, axis, "max")


@op(
    dtypes={"input": "numeric", "updates": "numeric", "indices": "index"},
    example="ops.scatter_min(input, updates, indices, axis=1)",
)
def scatter_min(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """As `scatter`, but the smaller of an update and what is there stays. NaN wins."""
    return _scatter("scatter_min", input, updates, indices, axis, "min")


@op(
    dtypes={"input": "numeric", "updates": "numeric", "indices": "index"},
    example="ops.scatter_mul(input, updates, indices, axis=1)",
)
def scatter_mul(
    input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike, axis: int = -1
) -> TensorValue:
    """As `scatter`, but what is there is multiplied by the update. Half types multiply in float32, and round."""
    return _scatter("scatter_mul", input, updates, indices, axis, "mul")


@op(
    dtypes={"input": "storable", "updates": "storable", "indices": "index"},
    example="ops.scatter_nd(input, updates, indices)",
)
def scatter_nd(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """`input` with each part of `updates` where a vector of indices points.

    Args:
        input: a tensor.
        updates: of the dtype of `input`, in the shape `indices.shape[:-1] + input.shape[depth:]`, with the length of
            the vectors as depth; or one number for all places.
        indices: integers; the vectors lie along the last axis, whose size is known and at most the rank of `input`.

    Raises:
        GraphError: EK0421 ranks, EK0481 sizes that do not go together.
        DTypeError: EK0413, `updates` have another dtype, `indices` are not integers.
        KernelError: when it runs, an index lies outside.
    """
    return _scatter_nd("scatter_nd", input, updates, indices, "set")


@op(
    dtypes={"input": "numeric", "updates": "numeric", "indices": "index"},
    example="ops.scatter_nd_add(input, updates, indices)",
)
def scatter_nd_add(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """As `scatter_nd`, but updates are added to what is there. Half types add in float32 and round each time."""
    return _scatter_nd("scatter_nd_add", input, updates, indices, "add")


@op(
    dtypes={"input": "numeric", "updates": "numeric", "indices": "index"},
    example="ops.scatter_nd_max(input, updates, indices)",
)
def scatter_nd_max(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """As `scatter_nd`, but the larger of an update and what is there stays. NaN wins."""
    return _scatter_nd("scatter_nd_max", input, updates, indices, "max")


@op(
    dtypes={"input": "numeric", "updates": "numeric", "indices": "index"},
    example="ops.scatter_nd_min(input, updates, indices)",
)
def scatter_nd_min(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """As `scatter_nd`, but the smaller of an update and what is there stays. NaN wins."""
    return _scatter_nd("scatter_nd_min", input, updates, indices, "min")


@op(
    dtypes={"input": "numeric", "updates": "numeric", "indices": "index"},
    example="ops.scatter_nd_mul(input, updates, indices)",
)
def scatter_nd_mul(input: TensorValueLike, updates: TensorValueLike, indices: TensorValueLike) -> TensorValue:
    """As `scatter_nd`, but what is there is multiplied by the update. Half types multiply in float32, and round."""
    return _scatter_nd("scatter_nd_mul", input, updates, indices, "mul")


def _scatter(name: str, input: object, updates: object, indices: object, axis: int, how: str) -> TensorValue:
    x = _target(name, input, how)
    at = axis_of(axis, x.rank)
    places = indices_of(name, "indices", indices, x.device)
    check_places(name, x, places, at)
    values = _updates(name, x, updates, places.shape, how)
    return builtin(_FAMILY, "scatter", [x, values, places], {"axis": at, "how": how})[0]


def _scatter_nd(name: str, input: object, updates: object, indices: object, how: str) -> TensorValue:
    x = _target(name, input, how)
    places = indices_of(name, "indices", indices, x.device)
    depth = depth_of(name, places)
    if depth > x.rank:
        text = f"vectors of {depth} indices are too long for {shown(x.shape)}"
        fail(name, text, code="EK0421", argument="indices", expected=f"at most {x.rank}", got=depth)
    values = _updates(name, x, updates, [*places.shape[:-1], *x.shape[depth:]], how)
    return builtin(_FAMILY, "scatter_nd", [x, values, places], {"depth": depth, "how": how})[0]


def _target(name: str, input: Any, how: str) -> TensorValue:
    x = tensor(name, "input", input)
    check_kind(name, "input", x, "storable" if how == "set" else "numeric")
    return x


def _updates(name: str, x: TensorValue, updates: Any, shape: Any, how: str) -> TensorValue:
    """The updates in the shape that they have to have; one number becomes as many."""
    if not isinstance(updates, TensorValue) or updates.rank == 0:
        return expand(scalar(name, "updates", updates, x), shape)
    values = tensor(name, "updates", updates)
    same_device(name, {"input": x, "updates": values})
    check_dtype(name, "updates", values, x.dtype)
    wanted = list(shape)
    if values.rank != len(wanted):
        text = f"updates of shape {shown(values.shape)} have to have the shape {shown(wanted)}"
        fail(name, text, code="EK0421", argument="updates", expected=shown(wanted), got=shown(values.shape))
    for k, (dim, other) in enumerate(zip(values.shape, wanted, strict=True)):
        check_equal(
            name, "updates", dim, other, f"the updates have size {dim} along axis {k}, and {other} is requested"
        )
    return as_shape(values, wanted)


@op(
    dtypes={"input": "storable", "mask": "bool", "updates": "storable"},
    example='ops.masked_scatter(input, mask, updates, out_dim="written")',
)
def masked_scatter(
    input: TensorValueLike, mask: TensorValueLike, updates: TensorValueLike, out_dim: DimLike
) -> TensorValue:
    """`input` with the updates, one after the other, in those places where the mask is true, in row-major order.

    Args:
        input: a tensor.
        mask: of bools; it broadcasts to the shape of `input`.
        updates: of the dtype of `input`, of any shape; those beyond the number of places are left over. One number
            fills all places.
        out_dim: a name for the number of places, which is known when the graph runs; or what it has to be.

    Raises:
        GraphError: EK0420, the mask does not broadcast; EK0454, at the call, `out_dim` is another size.
        DTypeError: EK0413, `mask` is not of bools, `updates` have another dtype.
        KernelError: when it runs, there are fewer updates than places.
    """
    name = "masked_scatter"
    x = tensor(name, "input", input)
    flags = tensor(name, "mask", mask)
    check_kind(name, "mask", flags, "bool")
    if broadcast_shapes(name, x.shape, flags.shape, "mask") != tuple(x.shape):
        text = f"the mask of shape {shown(flags.shape)} does not broadcast to {shown(x.shape)}"
        fail(name, text, code="EK0420", argument="mask", expected=shown(x.shape), got=shown(flags.shape))
    same_device(name, {"input": x, "mask": flags})
    flags = expand(flags, x.shape)
    single = not isinstance(updates, TensorValue) or updates.rank == 0
    values = scalar(name, "updates", updates, x) if single else tensor(name, "updates", updates)
    same_device(name, {"input": x, "updates": values})
    check_dtype(name, "updates", values, x.dtype)
    size = dim_of(name, "out_dim", out_dim)
    count = builtin("gathering", "nonzero_count", [flags])[0]
    define_sizes(name, count, [size], [f"{name}: out_dim is {size}, the mask has another number"])
    row = expand(values, [x.shape.num_elements]) if single else as_shape(values, [values.shape.num_elements])
    return builtin(_FAMILY, name, [x, flags, row])[0]
