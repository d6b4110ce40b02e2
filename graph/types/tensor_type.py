"""Describes graph values: their types.

`TensorType(DType.float32, ["rows", 10], DeviceRef.CPU())` says what is known about a tensor while the graph is built:
dtype, shape (static, symbolic or algebraic dims) and device. `BufferType` says the same of memory that the graph may
change. Shapes and dims are in `dims`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import check_bytes, dtype_of, least_bytes
from ..driver.devices import Device, DeviceRef
from .dims import Dim, Shape, StaticDim, is_below_zero


class Type:
    """What all types of graph values share."""


@dataclass(frozen=True, init=False)
class ShapedType(Type):
    """A dtype, a shape and a device: what `TensorType` and `BufferType` share.

    Attributes:
        dtype: the element type.
        shape: one `Dim` an axis; sizes as ints, names as strings, expressions as `Dim`.
        device: where the tensor lies; the host when left out.
    """

    dtype: DType
    shape: Shape
    device: DeviceRef

    def __init__(
        self, dtype: DType, shape: Iterable[int | str | Dim], device: DeviceRef | Device | None = None
    ) -> None:
        """
        Raises:
            DTypeError: `dtype` is not a `DType`.
            GraphError: EK0330 a dim is neither int, str nor Dim, EK0475 a size is below zero, EK0476 the tensor would
                take more bytes than 64 bits count.
        """
        sizes = Shape(shape)
        object.__setattr__(self, "dtype", dtype_of("dtype", dtype, "EK0407"))
        _check_sizes(dtype, sizes)
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "device", DeviceRef.CPU() if device is None else DeviceRef.from_device(device))

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def with_shape(self, shape: Iterable[int | str | Dim]) -> TensorType:
        """A tensor of the same dtype and device with another shape."""
        return TensorType(self.dtype, shape, self.device)

    def with_dtype(self, dtype: DType) -> TensorType:
        """A tensor of the same shape and device with another dtype."""
        return TensorType(dtype, self.shape, self.device)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ShapedType)
            and type(self) is type(other)
            and (self.dtype, self.device) == (other.dtype, other.device)
            and tuple(self.shape) == tuple(other.shape)
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.dtype, tuple(self.shape), self.device))

    def __str__(self) -> str:
        name = type(self).__name__.removesuffix("Type")
        return f"{name}[{self.dtype}, {shown(self.shape)}, {self.device}]"


class TensorType(ShapedType):
    """The type of a tensor with value semantics."""

    def as_buffer(self) -> BufferType:
        """Memory that holds such a tensor."""
        return BufferType(self.dtype, self.shape, self.device)


class BufferType(ShapedType):
    """The type of memory that the graph may change: a graph's input whose caller sees what ops write, or memory of its
    own (`ops.buffer_create`).
    """

    def as_tensor(self) -> TensorType:
        """What such memory holds at one time."""
        return TensorType(self.dtype, self.shape, self.device)


def bytes_of_static(dtype: DType, shape: Iterable[Dim]) -> int:
    """How many bytes the known sizes make, those of 0 aside: strides count past them, too."""
    return least_bytes(dtype, (int(dim) for dim in shape if isinstance(dim, StaticDim)))


def _check_sizes(dtype: DType, shape: Shape) -> None:
    """Refuses what is surely no shape of a tensor."""
    for axis, dim in enumerate(shape):
        if is_below_zero(dim):
            raise GraphError(
                f"size {dim} on axis {axis} of {shown(shape)} is below zero",
                code="EK0475",
                place=user_place(),
                argument="shape",
                expected="sizes from 0 on",
                got=str(dim),
            )
    check_bytes(bytes_of_static(dtype, shape), lambda: f"a tensor of {dtype} with the shape {shown(shape)}")


def shown(shape: Iterable[Any]) -> str:
    """A shape as messages and printed graphs write it: `(rows, 10)`."""
    return f"({', '.join(str(dim) for dim in shape)})"
