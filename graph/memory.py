"""The host's memory as NumPy sees it: aligned allocation, addresses for native code, and what may be written where.

Input: dtypes, sizes, arrays. Output: arrays, addresses. Non-goals: no device memory, no views (that is `buffer`).
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

import ml_dtypes
import numpy as np

from ..dsl.errors import DeviceError, DTypeError, GraphError
from ..dsl.types import DType

Array = np.ndarray[Any, Any]
ALIGNMENT = 64  # bytes: a cache line, and the widest vector of any CPU target


def allocate(dtype: DType, sizes: tuple[int, ...]) -> Array:
    """Uninitialised memory that starts at a multiple of `ALIGNMENT`; NumPy's own starts at 16.

    Raises:
        DeviceError: EK0808 there is not enough of it.
    """
    size = math.prod(sizes) * dtype.size_in_bytes
    try:
        raw = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise DeviceError(f"cannot allocate {size} bytes for {dtype} of shape {sizes}", code="EK0808") from error
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + size].view(dtype.to_numpy()).reshape(sizes)


def address_of(array: Array) -> int:
    """Where an array's elements lie.

    `array.ctypes.data` builds an object each time (1.5 us). The pointer is the first field behind CPython's object
    header, as NumPy's binary interface fixes it (`PyArrayObject_fields`); `_DIRECT` says whether that holds here.
    """
    if _DIRECT:
        return _POINTER.from_address(id(array) + _HEADER).value or 0
    return int(array.ctypes.data)


_POINTER = ctypes.c_void_p
_HEADER = object.__basicsize__


def _header_holds() -> bool:
    probe = np.arange(8.0)[3:]
    return sys.implementation.name == "cpython" and (
        _POINTER.from_address(id(probe) + _HEADER).value == probe.ctypes.data
    )


_DIRECT = _header_holds()


def check_storable(source: Array, value: Any, dtype: DType) -> None:
    """Writing may round a float, never drop a fraction, a sign or high bits.

    `value` is what the user gave, `source` the same as an array.

    Raises:
        DTypeError: EK0803 the dtype does not hold numbers of this kind.
        GraphError: EK0805 a number is out of its range.
    """
    kind = "f" if source.dtype == ml_dtypes.bfloat16 else source.dtype.kind
    if kind not in ("fiub" if dtype.is_float() else "iub"):
        raise DTypeError(
            f"cannot write {value if source.ndim == 0 else source.dtype} into a buffer of {dtype}",
            code="EK0803",
            expected=str(dtype),
            got=str(source.dtype),
            hint="convert the values first",
        )
    if not dtype.is_float() and source.size:
        low, high = dtype.range
        if int(source.min()) < low or int(source.max()) > high:
            raise GraphError(
                f"a value is out of the range of {dtype}", code="EK0805", expected=f"{low} to {high}", got=value
            )
