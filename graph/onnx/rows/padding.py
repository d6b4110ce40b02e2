"""Converts `Pad`.

See also `movement` (slices).
"""

from __future__ import annotations

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Dim, is_below_zero
from ..call import NodeCall
from ..known import KnownTensor, dims_from, dims_in, known_dims
from ..table import Ints, Value, onnx_op
from .indexing import steps


@onnx_op("Pad")
def pad(
    call: NodeCall,
    data: TensorValue,
    pads: Value,
    constant_value: TensorValue | None = None,
    axes: Ints | None = None,
    *,
    mode: str = "constant",
    value: float | None = None,
) -> TensorValue:
    """More elements around a tensor, or fewer; how many may depend on sizes, or be known when the graph runs."""
    over = [axis % data.rank for axis in axes] if axes is not None else list(range(data.rank))
    if constant_value is not None:
        fill = ops.reshape(constant_value, [])
    else:
        fill = ops.constant(0 if value is None or value == 0 else value, data.dtype, data.device)
    if isinstance(pads, KnownTensor) and not pads.symbolic:
        given = [int(each) for each in pads.array.reshape(-1)]
        paddings = [0] * (2 * data.rank)
        for k, axis in enumerate(over):
            paddings[2 * axis], paddings[2 * axis + 1] = given[k], given[k + len(over)]
        return ops.pad(data, paddings, mode, fill) if mode == "constant" else ops.pad(data, paddings, mode)
    counts = ops.reshape(call.tensor(pads), [2 * len(over)])
    for k, axis in enumerate(over):
        sizes = None
        if isinstance(pads, KnownTensor):
            low, high = dims_in(pads.array.reshape(-1)[[k, k + len(over)]])
            if low == 0 and high == 0:
                continue
            sizes = low + data.shape[axis] + high
        data = padded_axis(call, data, axis, (counts[k], counts[k + len(over)]), sizes, (mode, fill))
    return data


def padded_axis(
    call: NodeCall,
    data: TensorValue,
    axis: int,
    pads: tuple[TensorValue, TensorValue],
    size: Dim | None,
    filled: tuple[str, TensorValue],
) -> TensorValue:
    """`data` with more elements at both ends of an axis: each place of the result names the element that it holds."""
    mode, fill = filled
    low, high = (ops.cast(each, DType.int64) for each in pads)
    own = ops.reshape(known_dims([data.shape[axis]]).tensor(call.device), [])
    lost = ops.maximum(-low, 0)
    inner = own - lost - ops.maximum(-high, 0)
    if size is None or is_below_zero(size):
        size = dims_from(ops.reshape(low + own + high, [1]), f"{call.node.name or 'pad'}_size")[0]
    places = steps(size, call.device) - ops.maximum(low, 0)
    if mode == "constant":
        inside = ops.logical_and(ops.greater_equal(places, 0), ops.less(places, inner))
        row = [1 if k == axis else dim for k, dim in enumerate(data.shape)]
        more = ops.concat([data, ops.broadcast_to(ops.cast(fill, data.dtype), row)], axis)
        return ops.gather(more, ops.where(inside, places + lost, own), axis)
    if mode == "wrap":
        places = ops.mod(places, inner)
    elif mode == "reflect":
        period = ops.maximum(2 * (inner - 1), 1)
        turned = ops.mod(places, period)
        places = ops.minimum(turned, period - turned)
    elif mode == "edge":
        places = ops.minimum(ops.maximum(places, 0), inner - 1)
    else:
        call.fail(f"pads by constant, reflect, edge or wrap, not {mode!r}", argument="mode")
    return ops.gather(data, places + lost, axis)
