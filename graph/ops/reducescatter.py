"""Stages `reducescatter.sum`, `max`, `min` and `mean`: reductions in pieces, over ranks or devices."""

from __future__ import annotations

from collections.abc import Sequence

from ..staging.value import TensorValue, TensorValueLike
from .collectives import IN_GRAPHS, Ranks
from .reducing import reduced_and_scattered
from .stage import op

__all__ = ["max", "mean", "min", "sum"]


@op(
    namespace="reducescatter",
    dtypes={"inputs": "numeric"},
    example='ops.reducescatter.sum(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def sum(
    inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks, axis: int = 0
) -> TensorValue | list[TensorValue]:
    """The sum of all ranks' tensors, in the order of ranks; each gets its piece.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.
        axis: which is cut; its size is a multiple of the number of ranks.

    Raises:
        DTypeError: EK0413, a dtype that is not numeric.
        GraphError: EK0865, tensors and devices do not belong together; an axis that cannot be cut so.
    """
    return reduced_and_scattered("sum", inputs, signal_buffers, axis)


@op(
    namespace="reducescatter",
    dtypes={"inputs": "numeric"},
    example='ops.reducescatter.max(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def max(
    inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks, axis: int = 0
) -> TensorValue | list[TensorValue]:
    """The greatest elements (or NaN) of all ranks' tensors, in the order of ranks; each gets its piece.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.
        axis: which is cut; its size is a multiple of the number of ranks.

    Raises:
        DTypeError: EK0413, a dtype that is not numeric.
        GraphError: EK0865, tensors and devices do not belong together; an axis that cannot be cut so.
    """
    return reduced_and_scattered("max", inputs, signal_buffers, axis)


@op(
    namespace="reducescatter",
    dtypes={"inputs": "numeric"},
    example='ops.reducescatter.min(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def min(
    inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks, axis: int = 0
) -> TensorValue | list[TensorValue]:
    """The least elements (or NaN) of all ranks' tensors, in the order of ranks; each gets its piece.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.
        axis: which is cut; its size is a multiple of the number of ranks.

    Raises:
        DTypeError: EK0413, a dtype that is not numeric.
        GraphError: EK0865, tensors and devices do not belong together; an axis that cannot be cut so.
    """
    return reduced_and_scattered("min", inputs, signal_buffers, axis)


@op(
    namespace="reducescatter",
    dtypes={"inputs": "float"},
    example='ops.reducescatter.mean(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def mean(
    inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks, axis: int = 0
) -> TensorValue | list[TensorValue]:
    """The mean of all ranks' tensors, in the order of ranks; each gets its piece.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.
        axis: which is cut; its size is a multiple of the number of ranks.

    Raises:
        DTypeError: EK0413, a dtype that is not floating-point.
        GraphError: EK0865, tensors and devices do not belong together; an axis that cannot be cut so.
    """
    return reduced_and_scattered("mean", inputs, signal_buffers, axis)
