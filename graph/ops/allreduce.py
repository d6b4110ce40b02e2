"""Stages `allreduce.sum`, `max`, `min` and `mean`: reductions over the ranks of a mesh, or over devices."""

from __future__ import annotations

from collections.abc import Sequence

from ..staging.value import TensorValue, TensorValueLike
from .collectives import IN_GRAPHS, Ranks
from .reducing import allreduced
from .stage import op

__all__ = ["max", "mean", "min", "sum"]


@op(
    namespace="allreduce",
    dtypes={"inputs": "numeric"},
    example='ops.allreduce.sum(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def sum(inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks) -> TensorValue | list[TensorValue]:
    """The sum of all ranks' tensors, in the order of ranks; every rank gets it.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.

    Raises:
        DTypeError: EK0413, a dtype that is not numeric.
        GraphError: EK0865, tensors and devices do not belong together.
    """
    return allreduced("sum", inputs, signal_buffers)


@op(
    namespace="allreduce",
    dtypes={"inputs": "numeric"},
    example='ops.allreduce.max(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def max(inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks) -> TensorValue | list[TensorValue]:
    """The greatest elements (or NaN) of all ranks' tensors, in the order of ranks; every rank gets it.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.

    Raises:
        DTypeError: EK0413, a dtype that is not numeric.
        GraphError: EK0865, tensors and devices do not belong together.
    """
    return allreduced("max", inputs, signal_buffers)


@op(
    namespace="allreduce",
    dtypes={"inputs": "numeric"},
    example='ops.allreduce.min(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def min(inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks) -> TensorValue | list[TensorValue]:
    """The least elements (or NaN) of all ranks' tensors, in the order of ranks; every rank gets it.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.

    Raises:
        DTypeError: EK0413, a dtype that is not numeric.
        GraphError: EK0865, tensors and devices do not belong together.
    """
    return allreduced("min", inputs, signal_buffers)


@op(
    namespace="allreduce",
    dtypes={"inputs": "float"},
    example='ops.allreduce.mean(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def mean(inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks) -> TensorValue | list[TensorValue]:
    """The mean of all ranks' tensors, in the order of ranks; every rank gets it.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.

    Raises:
        DTypeError: EK0413, a dtype that is not floating-point.
        GraphError: EK0865, tensors and devices do not belong together.
    """
    return allreduced("mean", inputs, signal_buffers)
