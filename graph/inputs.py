"""What a model takes: each input of a call as an array of the right dtype, or an error that says what is wrong with it.

Input: what a caller passes. Output: NumPy arrays over the caller's memory. Non-goals: shapes (see `call`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dsl.errors import DTypeError, GraphError
from ..dsl.packing import pack
from ..dsl.types import DType
from .buffer import Buffer
from .places import user_place
from .promotion import weak_array
from .strides import whole
from .type import BufferType, ShapedType


class InputCheck:
    """Turns what a caller passes into an array of the right dtype, or says what is wrong."""

    def __init__(self, position: int, type: ShapedType) -> None:
        self.name = f"input{position}"
        self.type = type
        self.dtype = type.dtype.to_numpy()
        self.is_buffer = isinstance(type, BufferType)
        self.packed = type.dtype.is_packed()
        self.misalign = self.dtype.alignment - 1  # the bits of an address that have to be 0

    def scalar(self, value: bool | int | float) -> np.ndarray[Any, Any]:
        """A Python number for an input of rank 0; what the dtype cannot hold is refused, not cut."""
        dtype = self.type.dtype
        if isinstance(value, bool) == (dtype is DType.bool):
            return weak_array(value, dtype, f"'{self.name}'", self.name, user_place())
        raise DTypeError(
            f"'{self.name}' takes a {dtype}, not {value!r}",
            code="EK0452",
            place=user_place(),
            argument=self.name,
            expected=str(dtype),
            got=repr(value),
        )

    def packed_bytes(self, value: Any) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
        """The memory and the shape of an input whose elements share bytes; only a `Buffer` has them so already."""
        if isinstance(value, Buffer) and value.dtype is self.type.dtype:
            return value._array, value.shape
        if self.is_buffer:
            raise DTypeError(
                f"'{self.name}' is changed in place, and only a Buffer of {self.type.dtype} has its packed elements",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=f"Buffer of {self.type.dtype}",
                got=type(value).__name__,
                hint="make one by Buffer.from_numpy(x), and look at it by to_numpy() afterwards",
            )
        found = self.array(value)
        return pack(found), found.shape

    def array(self, value: Any) -> np.ndarray[Any, Any]:
        if isinstance(value, Buffer):
            found = value.to_numpy()
        elif isinstance(value, np.ndarray):
            found = value
        elif isinstance(value, np.generic) and not self.is_buffer:
            found = np.asarray(value)
        elif isinstance(value, bool | int | float) and self.type.rank == 0 and not self.is_buffer:
            found = self.scalar(value)
        elif hasattr(value, "__dlpack__"):
            found = Buffer.from_dlpack(value).to_numpy()
        else:
            raise DTypeError(
                f"'{self.name}' is no tensor but {type(value).__name__}",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=str(self.type),
                got=type(value).__name__,
                hint="pass a Buffer, a NumPy array, or anything that speaks DLPack",
            )
        if found.dtype != self.dtype:
            raise DTypeError(
                f"'{self.name}' holds {found.dtype}, the graph takes {self.type.dtype}",
                code="EK0452",
                place=user_place(),
                argument=self.name,
                expected=str(self.type.dtype),
                got=str(found.dtype),
                hint=f"convert it: x.astype({self.dtype.name!r})",
            )
        if not found.flags.c_contiguous and not whole(found):
            raise GraphError(
                f"'{self.name}' has strides of {found.strides} bytes, and its elements take {found.itemsize}",
                code="EK0453",
                place=user_place(),
                argument=self.name,
                expected=f"strides that are multiples of {found.itemsize} bytes",
                got=f"strides {found.strides}",
                hint="copy it: np.ascontiguousarray(x)",
            )
        return found

    def misplaced(self, value: np.ndarray[Any, Any], address: int) -> None:
        """Refuses an array of which native code cannot read the elements where they lie.

        Raises:
            GraphError: EK0464 its address is not aligned.
        """
        if value.size == 0:
            return
        least = self.misalign + 1
        raise GraphError(
            f"'{self.name}' lies at {address:#x}, and elements of {self.type.dtype} need a multiple of {least}",
            code="EK0464",
            place=user_place(),
            argument=self.name,
            expected=f"an address that is a multiple of {least}",
            got=f"{address:#x}",
            hint="copy it: np.array(x)",
        )
