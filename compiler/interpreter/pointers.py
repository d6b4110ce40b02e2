"""Memory as the interpreter sees it: buffers whose bounds are known, and which of their elements were written.

Every access is checked, whatever the kernel was compiled to check: outside of a buffer, or of uninitialised memory,
is a `KernelError` with the kernel's line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import KernelError
from ...dsl.types.dtype import DType
from ..ir.program import Location

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class InterpretedBuffer:
    """A buffer: its elements in order, its name for messages, and which elements hold a value.

    `written` is None where everything does. `shape` is what messages show; `strides`, in elements, are None when the
    elements lie in row-major order.
    """

    data: Array
    name: str
    shape: tuple[int, ...]
    written: Array | None = None
    strides: tuple[int, ...] | None = None
    written_bytes: Array | None = None  # where pointers of several dtypes point into it: `written` is a part of it


@dataclass(frozen=True)
class InterpretedPointer:
    """An element of a buffer."""

    memory: InterpretedBuffer
    offset: int = 0


def address_of(pointer: InterpretedPointer) -> int:
    """The address of the element."""
    data = pointer.memory.data
    return data.ctypes.data + pointer.offset * data.itemsize


def buffer(array: Array, name: str, shape: tuple[int, ...], *, written: bool = True) -> InterpretedPointer:
    """The start of an array of the caller's, which is contiguous."""
    data = array.reshape(-1)
    return InterpretedPointer(InterpretedBuffer(data, name, shape, None if written else np.zeros(data.shape, np.bool_)))


def window(array: Array, name: str, shape: tuple[int, ...], *, written: bool = True) -> InterpretedPointer:
    """The first element of an array of the caller's with any strides, in all the memory that it spans."""
    if array.size == 0:
        return buffer(array, name, shape, written=written)
    backwards = tuple(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides)
    low = array[backwards]
    span = 1 + sum((n - 1) * stride // array.itemsize for n, stride in zip(low.shape, low.strides, strict=True))
    data = as_strided(low, (span,), (array.itemsize,))
    first = (array.__array_interface__["data"][0] - low.__array_interface__["data"][0]) // array.itemsize
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return InterpretedPointer(
        InterpretedBuffer(data, name, shape, None if written else np.zeros(span, np.bool_), strides), first
    )


def as_strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view with these strides in bytes; NumPy's own function does not take every dtype of ml_dtypes."""
    if array.dtype.kind == "c":
        return np.lib.stride_tricks.as_strided(array, shape, strides)
    bits = array.view(f"u{array.itemsize}")
    return np.lib.stride_tricks.as_strided(bits, shape, strides).view(array.dtype)


def storage(dtype: DType, count: int, name: str, *, zeroed: bool) -> InterpretedPointer:
    """Fresh elements that belong to the kernel."""
    data = np.zeros(count, dtype.to_numpy())
    return InterpretedPointer(InterpretedBuffer(data, name, (count,), None if zeroed else np.zeros(count, np.bool_)))


def seen_as(pointer: InterpretedPointer, dtype: DType) -> InterpretedPointer:
    """The same address, of elements of another dtype: as many as fit behind it, and before it."""
    memory, kind = pointer.memory, dtype.to_numpy()
    old, new = memory.data.itemsize, kind.itemsize
    if memory.written is not None and memory.written_bytes is None:
        memory.written_bytes = np.repeat(memory.written, old)
        memory.written = memory.written_bytes[::old]
    start = pointer.offset * old
    first = start % new
    count = max(memory.data.size * old - first, 0) // new
    data = memory.data.view(np.uint8)[first : first + count * new].view(kind)
    known = None if memory.written_bytes is None else memory.written_bytes[first : first + count * new]
    seen = InterpretedBuffer(data, memory.name, data.shape, None if known is None else known[::new], None, known)
    return InterpretedPointer(seen, start // new)


def load(pointer: InterpretedPointer, offset: int, width: int, op: str, location: Location) -> Any:
    """A scalar, or `width` elements that follow each other."""
    memory, start = pointer.memory, _checked(pointer, offset, width, "reads", op, location)
    written = memory.written
    if written is not None and not (written[start] if width == 1 else written[start : start + width].all()):
        raise KernelError(
            f"{_subject(op)} reads element {_element(memory, start)} of '{memory.name}', which is uninitialised",
            code="EK0721",
            place=location.place,
            op=op or None,
            argument=memory.name,
            notes=_called(location),
            hint="write every element before it is read",
        )
    return memory.data[start] if width == 1 else memory.data[start : start + width].copy()


def store(value: Any, pointer: InterpretedPointer, offset: int, width: int, op: str, location: Location) -> None:
    """Writes a scalar or a vector."""
    memory, start = pointer.memory, _checked(pointer, offset, width, "writes", op, location)
    memory.data[start : start + width] = value
    if memory.written_bytes is not None:
        size = memory.data.itemsize
        memory.written_bytes[start * size : (start + width) * size] = True
    elif memory.written is not None:
        memory.written[start : start + width] = True


def _checked(pointer: InterpretedPointer, offset: int, width: int, what: str, op: str, location: Location) -> int:
    start, extent = pointer.offset + int(offset), len(pointer.memory.data)
    if 0 <= start <= extent - width:
        return start
    memory = pointer.memory
    where = str(start) if width == 1 else f"{start} to {start + width - 1}"
    raise KernelError(
        f"{_subject(op)} {what} outside of '{memory.name}': element {where} of {extent}",
        code="EK0720",
        place=location.place,
        op=op or None,
        argument=memory.name,
        expected=f"0 to {extent - 1}" if extent else "no access: it is empty",
        got=where,
        notes=[f"'{memory.name}' has shape {memory.shape}", *_called(location)],
    )


def _element(memory: InterpretedBuffer, start: int) -> str:
    if len(memory.shape) < 2 or memory.strides is not None:
        return str(start)
    return str(tuple(int(k) for k in np.unravel_index(start, memory.shape)))


def _subject(op: str) -> str:
    return f"op '{op}'" if op else "the kernel"


def _called(location: Location) -> list[str]:
    return [f"called from {place}" for place in location.chain()[1:]]
