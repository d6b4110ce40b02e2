"""The host's memory as NumPy sees it: aligned allocation, addresses for native code, and what may be written where.

Input: dtypes, sizes, arrays. Output: arrays, addresses. Non-goals: no device memory, no views (that is `buffer`).
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ..dsl.errors import DeviceError, DTypeError, GraphError
from ..dsl.types import DType
from .places import user_place

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


def check_memory(arrays: Sequence[Array], changed: Sequence[int]) -> None:
    """The inputs of a call that a graph changes in place can be written, and share nothing with the others.

    Raises:
        GraphError: EK0461 one is read-only; EK0462 one overlaps another input, or itself.
    """
    for number in changed:
        array = arrays[number]
        if not array.flags.writeable:
            raise GraphError(
                f"'input{number}' is changed in place, and the array is read-only",
                code="EK0461",
                place=user_place(),
                argument=f"input{number}",
                expected="an array that can be written",
                got="a read-only array",
                hint="pass an array of its own: x.copy()",
            )
        for other, theirs in enumerate(arrays):
            if other != number and _overlap(array, theirs):
                raise _shared(f"'input{number}' is changed in place, and shares memory with 'input{other}'", number)
        if array.size > 1 and not _apart(array):
            raise _shared(f"'input{number}' is changed in place, and its elements share memory with each other", number)


def _overlap(a: Array, b: Array) -> bool:
    if not np.may_share_memory(a, b):  # compares bounds; without an overlap of these there is none
        return False
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]  # NumPy's stub knows 0 and -1 only
    except np.exceptions.TooHardError:
        return True


def _apart(array: Array) -> bool:
    """Whether each element has memory of its own: every stride steps over all that the smaller strides reach."""
    reach = array.itemsize
    for stride, size in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            return False
        reach = stride * (size - 1) + reach
    return True


def _shared(message: str, number: int) -> GraphError:
    return GraphError(
        message,
        code="EK0462",
        place=user_place(),
        argument=f"input{number}",
        expected="memory of its own",
        got="shared memory",
        hint="pass a copy of one of them",
    )


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
