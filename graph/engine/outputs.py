"""Finds the memory of a model's results.

Input: the device, the dtype and the shape of an output. Output: storage that nobody else sees. Non-goals:
temporaries (see `passes.memory_plan`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...dsl.diagnostics.errors import DeviceError, DTypeError, EinkornError, GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import list_of
from ..driver.buffer import Buffer
from ..driver.device import Storage
from ..driver.device_buffer import buffer_class
from ..driver.devices import CPU, Device


class Output:
    """Where an output of known size goes.

    Fresh pages for a large output cost as much as the work itself, so the memory of earlier results is taken again once
    nobody can see it any more: a `Buffer`, a view or a DLPack export each hold a reference to the storage.
    """

    KEPT = 2  # with `y = model(x)` in a loop the last result still lives during the next call
    LARGE = 1 << 20

    def __init__(self, device: Device, dtype: DType, shape: tuple[int, ...], pointer: int | None) -> None:
        self.device = device
        self.dtype = dtype
        self.shape = shape
        self.pointer = pointer
        self.size = dtype.bytes_for(math.prod(shape))
        self.allocate, self.arguments = device.driver.allocator(dtype, shape)
        self.buffer_over: Callable[..., Buffer] = buffer_class(device, dtype)._over
        self.keeps = self.size >= self.LARGE and _FREE > 0
        self.kept: list[Storage] = []

    def take(self) -> Storage:
        """Storage that nobody else sees."""
        found = _unseen(self.kept) if self.keeps else None
        if found is not None:
            return found
        try:
            storage = self.allocate(*self.arguments)
        except (MemoryError, ValueError) as error:
            raise DeviceError(
                f"an output of {self.dtype} {self.shape} takes {self.size:,} bytes, which cannot be had",
                code=getattr(error, "code", "EK0813"),
                place=user_place(),
                got=self.size,
                notes=getattr(error, "notes", [str(error)]),
            ) from None
        if self.keeps:
            self.kept = [*self.kept, storage][-self.KEPT :]
        return storage


def as_outputs(out: Sequence[Any], count: int) -> list[Buffer | None]:
    """What a caller passes as `out`, as buffers over its memory.

    Raises:
        GraphError: EK0451 there are more or fewer than outputs.
        DTypeError: EK0452 one is no tensor that can be written.
    """
    given = list_of("out", out, "Buffers or arrays, or None", "EK0451")
    if len(given) != count:
        raise GraphError(
            f"out has {len(given)} places, and there are {count} outputs",
            code="EK0451",
            place=user_place(),
            argument="out",
            expected=count,
            got=len(given),
        )
    return [None if each is None else _as_output(position, each) for position, each in enumerate(given)]


def _as_output(position: int, value: Any) -> Buffer:
    if isinstance(value, Buffer):
        return value
    if isinstance(value, np.ndarray) and not DType.from_numpy(value.dtype).is_packed():
        return Buffer._wrap(value, CPU())
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return Buffer.from_dlpack(value, copy=False)
    raise DTypeError(
        f"out[{position}] is no tensor to write into but {type(value).__name__}",
        code="EK0452",
        place=user_place(),
        argument=f"out[{position}]",
        expected="a Buffer or an array",
        got=type(value).__name__,
        hint="pass None for a fresh buffer",
    )


class Filling:
    """What memory is filled with before kernels run, shared by a call and its variants."""

    def __init__(self, byte: int = 0) -> None:
        self.byte = byte
        self.quiet = False  # whether prints are left out

    def fill(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The same memory, with this byte everywhere."""
        memory.reshape(-1).view(np.uint8).fill(self.byte)
        return memory


class FilledOutput(Output):
    """An output of the host whose memory is filled before it is written."""

    def __init__(
        self, device: Device, dtype: DType, shape: tuple[int, ...], pointer: int | None, filling: Filling
    ) -> None:
        super().__init__(device, dtype, shape, pointer)
        self.filling = filling

    def take(self) -> Storage:
        storage: Any = super().take()
        return self.filling.fill(storage)


class KeptOutput(Output):
    """An output whose memory stays the same from call to call, as long as its size does."""

    def __init__(self, device: Device, dtype: DType, shape: tuple[int, ...], pointer: int | None) -> None:
        super().__init__(device, dtype, shape, pointer)
        self.storage: Storage = super().take()
        self.buffer = self.buffer_over(self.storage, device, dtype, shape)
        self.buffer_over = self._same

    def take(self) -> Storage:
        return self.storage

    def _same(self, *_: Any) -> Buffer:
        return self.buffer


class GivenOutput(Output):
    """An output in memory of the caller's.

    Raises:
        DTypeError: EK0452 it is of another dtype.
        GraphError: EK0430 it lies on another device, EK0454 its shape is another, EK0453 it is not contiguous.
    """

    def __init__(self, wanted: Output, position: int, buffer: Buffer) -> None:
        self.pointer, self.device, self.dtype, self.shape = wanted.pointer, wanted.device, wanted.dtype, wanted.shape
        self.buffer = buffer
        self.buffer_over = lambda *_: buffer  # no method: it would make a circle, and the memory would be kept longer
        name = f"out[{position}]"
        if buffer.dtype is not wanted.dtype:
            _misfit(name, "holds", buffer.dtype, wanted.dtype, "EK0452", DTypeError)
        if buffer.device != wanted.device:
            _misfit(name, "lies on", buffer.device, wanted.device, "EK0430")
        if tuple(buffer.shape) != wanted.shape:
            _misfit(name, "has the shape", tuple(buffer.shape), wanted.shape, "EK0454")
        if not buffer.is_contiguous:
            _misfit(name, "is", "a view with gaps", "a contiguous array", "EK0453")

    def take(self) -> Storage:
        return self.buffer._array


def _misfit(
    name: str, verb: str, got: object, wanted: object, code: str, kind: type[EinkornError] = GraphError
) -> NoReturn:
    raise kind(
        f"{name} {verb} {got}, and the graph gives {wanted}",
        code=code,
        place=user_place(),
        argument=name,
        expected=str(wanted),
        got=str(got),
    )


def _unseen(kept: list[Storage]) -> Storage | None:
    """One of the pieces of storage that nobody but the list refers to, or None."""
    for storage in kept:
        if sys.getrefcount(storage) == _FREE:
            return storage
    return None


def _references_of_unseen() -> int:
    """What `getrefcount` says in `_unseen` of an array that only the list refers to; it differs between Pythons.

    0 where counts say nothing: elsewhere than in CPython, and without the global lock.
    """
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not locked:
        return 0
    for array in [np.empty(1)]:
        return sys.getrefcount(array)
    return 0


_FREE = _references_of_unseen()
