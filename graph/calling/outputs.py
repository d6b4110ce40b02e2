"""Finds the memory of a model's results.

See also `passes.memory_plan` (temporaries).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...dsl.diagnostics.errors import DeviceError, DTypeError, EinkornError, GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.dtype import DType
from ..arguments import list_of
from ..driver.buffer import Buffer
from ..driver.device import Storage
from ..driver.device_buffer import buffer_class
from ..driver.devices import CPU, Device
from ..driver.lending import Lender


class Output:
    """Where an output of known size goes.

    Fresh pages for a large output cost as much as the work itself, so on the host the memory of earlier results is used
    again once no `Buffer`, view or DLPack export uses it.
    """

    MAX_KEPT = 2  # with `y = model(x)` in a loop the last result still lives during the next call
    MIN_KEPT_BYTES = 1 << 20

    def __init__(self, device: Device, dtype: DType, shape: tuple[int, ...], pointer: int | None) -> None:
        self.device = device
        self.dtype = dtype
        self.shape = shape
        self.pointer = pointer
        self.size = dtype.bytes_for(math.prod(shape))
        self.allocate, self.arguments = device.driver.allocator(dtype, shape)
        self.buffer_over: Callable[..., Buffer] = buffer_class(device, dtype)._over
        # Devices with memory of their own have pools.
        self.keeps = self.size >= self.MIN_KEPT_BYTES and self.allocate is np.empty
        self.kept: list[Lender] = []

    def take(self) -> Storage:
        """Storage that nothing else uses."""
        try:
            return self._lent() if self.keeps else self.allocate(*self.arguments)
        except (MemoryError, ValueError) as error:
            raise_if_of_handler(error)
            raise DeviceError(
                f"an output of {self.dtype} {self.shape} takes {self.size:,} bytes, which cannot be allocated",
                code=getattr(error, "code", "EK0813"),
                place=user_place(),
                got=self.size,
                notes=getattr(error, "notes", [str(error)]),
            ) from None

    def _lent(self) -> Storage:
        """Memory of an earlier result that is no longer in use, or new memory."""
        for lender in self.kept:
            if not lender.in_use:
                return lender.lend()
        made = Lender(*self.arguments)
        self.kept = [*self.kept, made][-self.MAX_KEPT :]
        return made.lend()


def as_outputs(out: Sequence[object], count: int) -> list[Buffer | None]:
    """What a caller passes as `out`, as buffers over its memory.

    Raises:
        GraphError: EK0451 there are more or fewer than outputs.
        DTypeError: EK0452 one is not a tensor that can be written.
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


def _as_output(position: int, value: object) -> Buffer:
    if isinstance(value, Buffer):
        return value
    if isinstance(value, np.ndarray) and not DType.from_numpy(value.dtype).is_packed():
        return Buffer._wrap(value, CPU())
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return Buffer.from_dlpack(value, copy=False)
    raise DTypeError(
        f"out[{position}] is not a tensor to write into but {type(value).__name__}",
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

    def _same(self, *_: object) -> Buffer:
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
