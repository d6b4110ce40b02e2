"""Stages ops that take elements where tensors of indices say.

A negative index counts from the end of its axis. One that lies outside ends the call with an error that names op, index
and size, unless checks are off.

See also `indexing` (indexing by numbers and slices).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType
from ..arguments import axis_of, in_short, int_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import StaticDim
from ..types.tensor_type import TensorType, shown
from .operands import DimLike, are_set, check_at_least, check_equal, check_kind, dim_of, indices_of, tensor
from .stage import builtin, define_sizes, fail, op

__all__ = ["gather", "gather_nd", "nonzero", "take_along_axis"]

_FAMILY = "gathering"


@op(dtypes={"input": "storable", "indices": "index"}, example="ops.gather(input, indices, axis=0)")
def gather(input: TensorValueLike, indices: TensorValueLike, axis: int) -> TensorValue:
    """The elements at `indices` along `axis`, as `numpy.take` has them: the axes of `indices` stand in its place.

    Args:
        input: a tensor.
        indices: integers of any shape; a single one takes the axis away.
        axis: an axis of `input`; a negative one counts from the end.

    Raises:
        DTypeError: EK0413, `indices` are not integers.
        KernelError: when it runs, an index lies outside.
    """
    x = tensor("gather", "input", input)
    at = axis_of(axis, x.rank)
    places = indices_of("gather", "indices", indices, x.device)
    return builtin(_FAMILY, "gather", [x, places], {"axis": at})[0]


@op(dtypes={"x": "storable", "indices": "index"}, example="ops.take_along_axis(x, indices, axis=1)")
def take_along_axis(x: TensorValueLike, indices: TensorValueLike, axis: int = -1) -> TensorValue:
    """For each element of `indices` the element of `x` that lies in the same place, but at this index along `axis`.

    Other libraries call it gather or GatherElements. Along the other axes `indices` may be shorter than `x`.

    Raises:
        GraphError: EK0421 another rank, EK0481 longer than `x` along another axis.
        DTypeError: EK0413, `indices` are not integers.
        KernelError: when it runs, an index lies outside.
    """
    name = "take_along_axis"
    value = tensor(name, "x", x)
    at = axis_of(axis, value.rank)
    places = indices_of(name, "indices", indices, value.device)
    check_places(name, value, places, at)
    return builtin(_FAMILY, name, [value, places], {"axis": at}, [value.type.with_shape(places.shape)])[0]


def check_places(name: str, value: TensorValue, indices: TensorValue, axis: int) -> None:
    """Refuses indices along one axis that have another rank than the tensor, or are longer along another axis."""
    if indices.rank != value.rank:
        text = f"indices of shape {shown(indices.shape)} have another rank than {shown(value.shape)}"
        fail(name, text, code="EK0421", argument="indices", expected=value.rank, got=indices.rank)
    for k, (dim, most) in enumerate(zip(indices.shape, value.shape, strict=True)):
        if k != axis and dim != most:
            text = f"the indices have size {dim} along axis {k}, and the tensor {most}"
            check_at_least(name, "indices", most, dim, text, "EK0481")


@op(dtypes={"input": "storable", "indices": "index"}, example="ops.gather_nd(input, indices, batch_dims=1)")
def gather_nd(input: TensorValueLike, indices: TensorValueLike, batch_dims: int = 0) -> TensorValue:
    """What lies where vectors of indices point: elements, or parts when a vector has fewer numbers than there are axes.

    The shape is `input.shape[:batch_dims] + indices.shape[batch_dims:-1] + input.shape[batch_dims + depth:]`, with the
    length of the vectors as depth.

    Args:
        input: a tensor.
        indices: integers; the vectors lie along the last axis, whose size has to be known.
        batch_dims: how many leading axes the two share: they are equal, and nothing broadcasts.

    Raises:
        GraphError: EK0422 `batch_dims`, EK0421 ranks, EK0481 sizes that do not go together.
        DTypeError: EK0413, `indices` are not integers.
        KernelError: when it runs, an index lies outside.
    """
    name = "gather_nd"
    x = tensor(name, "input", input)
    places = indices_of(name, "indices", indices, x.device)
    batch = int_of("batch_dims", batch_dims, "EK0422")
    depth = depth_of(name, places)
    if not 0 <= batch < places.rank:
        text = f"batch_dims {in_short(batch)} is out of range for indices of rank {places.rank}"
        fail(name, text, code="EK0422", argument="batch_dims", expected=f"0 to {places.rank - 1}", got=in_short(batch))
    if batch + depth > x.rank:
        text = f"{batch} axes of batches and vectors of {depth} indices are too many for {shown(x.shape)}"
        fail(name, text, code="EK0421", argument="indices", expected=f"at most {x.rank - batch}", got=depth)
    for k in range(batch):
        text = f"axis {k} has size {x.shape[k]} in input and {places.shape[k]} in indices"
        check_equal(name, "indices", places.shape[k], x.shape[k], text)
    out = x.type.with_shape([*x.shape[:batch], *places.shape[batch:-1], *x.shape[batch + depth :]])
    return builtin(_FAMILY, name, [x, places], {"batch": batch, "depth": depth}, [out])[0]


def depth_of(name: str, indices: TensorValue) -> int:
    """How many indices the vectors along the last axis have."""
    if not indices.rank or not isinstance(indices.shape[-1], StaticDim):
        text = f"the last axis of indices of shape {shown(indices.shape)} has to have a known size"
        fail(name, text, code="EK0481", argument="indices", expected="a known size", got=shown(indices.shape))
    return int(indices.shape[-1])


@op(dtypes={"x": "comparable"}, example='ops.nonzero(x, out_dim="found")')
def nonzero(x: TensorValueLike, out_dim: DimLike) -> TensorValue:
    """The int64 indices of all elements that are not zero, one row each, in row-major order. NaN is not zero.

    Args:
        x: a tensor.
        out_dim: a name for the number of rows, which is known when the graph runs; or what it has to be.

    Raises:
        GraphError: EK0454, at the call: `out_dim` has a size already, and it is another.
    """
    value = tensor("nonzero", "x", x)
    check_kind("nonzero", "x", value, "comparable")
    value = are_set(value) if value.dtype.is_complex() else value
    size = dim_of("nonzero", "out_dim", out_dim)
    count = builtin(_FAMILY, "nonzero_count", [value])[0]
    define_sizes("nonzero", count, [size], [f"nonzero: out_dim is {size}, and x has another number of them"])
    return builtin(_FAMILY, "nonzero", [value], {}, [TensorType(DType.int64, [size, value.rank], value.device)])[0]
