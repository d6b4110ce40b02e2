"""Keeps tensors of 4-bit elements: two share a byte, as kernels see them.

NumPy has no arrays of half bytes. So a packed buffer shares no memory with one: `from_numpy` packs a copy of an array
of ml_dtypes' `int4`, `uint4` or `float4_e2m1fn` (a byte an element), `to_numpy` unpacks a copy. Elements have no
address of their own: there are no views of some of them. `view(DType.uint8, shape)` gives the packed bytes, and the
`view` of bytes as a packed type takes them without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dsl.diagnostics.errors import DTypeError
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ...dsl.types.packing import unpack
from .buffer import Buffer, WholeBuffer
from .device import Array
from .devices import Device, DeviceRef


class PackedBuffer(WholeBuffer):
    """A buffer of a packed dtype; `_array` is its bytes, in one axis."""

    __slots__ = ()

    @placed
    def __init__(
        self, dtype: DType, shape: Sequence[int], device: Device | DeviceRef | None = None, pinned: bool = False
    ) -> None:
        super().__init__(dtype, shape, device, pinned)
        self._array[-1:] = 0  # the half behind an odd number of elements

    @property
    def element_size(self) -> int:
        """
        Raises:
            DTypeError: EK0251, always.
        """
        raise DTypeError(
            f"an element of {self.dtype} takes half a byte",
            code="EK0251",
            got=str(self.dtype),
            hint="size_in_bytes is that of the whole buffer",
        )

    @placed
    def __getitem__(self, index: object) -> Buffer:
        raise DTypeError(
            f"two elements of {self.dtype} share a byte, so that some of them cannot be viewed",
            code="EK0251",
            got=str(self.dtype),
            hint="index the array that to_numpy() returns, which is a copy",
        )

    def to_numpy(self) -> Array:
        """The elements as a NumPy array of ml_dtypes' type: a copy, one byte an element."""
        return unpack(self._array, self._dtype, self._shape)

    def __dlpack__(self, **keywords: Any) -> Any:
        raise BufferError(f"a buffer of {self.dtype} does not go through DLPack; view it as uint8")
