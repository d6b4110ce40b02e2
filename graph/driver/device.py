"""Defines the driver interface of devices: memory, copies, code.

A kind of device is one file with a subclass of `Driver` and a `Backend`, and one row of `devices.KINDS`. Nothing else
in the product depends on the kinds: buffers, models and calls go through the driver of their device.

See also `host`, `devices` (the names of devices in graphs).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from ...dsl.contract import abi
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DeviceError, EinkornError
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.types.dtype import DType
from .gpu_names import CollectiveLibrary
from .shared_library import SharedLibrary

if TYPE_CHECKING:  # what few devices have
    from ...dsl.contract.checking import CheckState, FindingRecord
    from ...dsl.contract.kernels import KernelTable
    from .checked_memory import CheckedMemory

Array = np.ndarray[Any, Any]
ALIGNMENT = 64  # bytes: a cache line, and the widest vector of any CPU target

# An entry of compiled code: (address of the context, of the pointers, of the dims) -> 0, or a code for `Driver.error`.
Entry = Callable[[int, int, int], int]
ScratchSize = Callable[[int, int], int]  # of the address of the dims and the number of a stage: bytes


class DeviceMemory:
    """A piece of a device's memory that is not the process's own; `free` returns it when nothing refers to it any
    more."""

    __slots__ = ("__weakref__", "_free", "address", "size")

    def __init__(self, address: int, size: int, free: Callable[[int], object]) -> None:
        self.address = address
        self.size = size
        self._free = free

    def __del__(self) -> None:
        self._free(self.address)


# What tensors lie in: on devices whose memory is the process's own an array, elsewhere a piece of memory.
Storage = Array | DeviceMemory
Allocator = tuple[Callable[..., Storage], tuple[Any, ...]]


@dataclass(frozen=True)
class CodeFile:
    """A file that begins with a piece of code: what kind of code it is, the key of its target, and how many bytes."""

    kind: str
    target: str
    path: Path
    size: int

    def read(self) -> bytes:
        """The code alone, without what stands behind it in the file."""
        with open(self.path, "rb") as file:
            return file.read(self.size)


@dataclass(frozen=True)
class Code:
    """Code in a device: its entry, the table of its reports (JSON), and what has to live as long as it is called.

    Of a device with kernels that the entry launches: their `kernels`, and the driver's handles of these in their order.
    `scratch` says how many bytes of the device a stage of a call needs for itself, where one does.
    """

    entry: Entry
    reports: bytes
    keep: object
    kernels: KernelTable | None = None
    functions: Sequence[int] = ()
    scratch: ScratchSize | None = None


Deliver = Callable[[bool], None]  # shows or raises what kernels have reported; True where their call is over


class KernelReports(Protocol):
    """Memory into which kernels of a call report."""

    lock: Any  # held while they are enqueued, and while it is read

    def are_urgent(self) -> bool:
        """Whether the reports have to be read before more is enqueued."""


# The engine, which may compile, stands above drivers. By its name: the code that calls a library of GPUs; of a driver:
# the name of the target that code for it is made for.
LAUNCHERS: ExtensionPoint[Callable[[str], SharedLibrary]] = ExtensionPoint(
    "graph.loading.launchers", "launcher_library"
)
COMPILED_FOR: ExtensionPoint[Callable[[Driver], str]] = ExtensionPoint("graph.loading.compile", "compiled_for")


class Replayable(Protocol):
    """Work that a device has recorded."""

    def replay(self, owner: str, storages: Iterable[object]) -> None:
        """Enqueues it once more."""


class Driver(ABC):
    """One device, as the runtime uses it.

    Attributes:
        api: what runs the device, such as "cpu" or "cuda".
        collectives: by which library devices of its kind exchange memory; None if there is none.
        is_host: whether its memory is the process's own, so that tensors in it are arrays.
        targets: the names of the compile targets that its code is made for: the host's half first, if there are two.
        architecture: of an accelerator, such as "sm_90"; empty for the host.
        name: of a device that is called so next to its number, such as "sim:sm_90a"; empty for others.
        made_with: of a device that is simulated: what it was made with, which makes an equal one in another process.
        in_order: whether a call is the work of one thread of the process, in one order.
        draws: whether it draws that order from a seed.
        unchecked: what `checks="all"` of a session leaves out on this device, as a sentence; empty if nothing.
    """

    api: ClassVar[str]
    collectives: ClassVar[CollectiveLibrary | None] = None
    is_host: ClassVar[bool] = False
    targets: tuple[str, ...]
    architecture: str = ""
    name: str = ""
    made_with: tuple[Any, ...] | None = None
    in_order: bool = False
    draws: bool = False
    unchecked: str = ""
    dlpack_place: tuple[int, int] | None = None  # kind and number of the device in DLPack
    device: Any = None  # a `Device` that it drives
    default_stream: Any = None  # made on first use; see `streams`
    streams: int = 0  # how many were ever made; with one, nothing has to be ordered

    # memory

    @abstractmethod
    def allocate(self, size: int) -> Storage:
        """Uninitialised bytes that begin at a multiple of `ALIGNMENT`, as `DeviceMemory` or as an array of bytes.

        Raises:
            MemoryError: there are not so many.
        """

    def allocator(self, dtype: DType, shape: tuple[int, ...]) -> Allocator:
        """What to call for the storage of a tensor, and with which arguments."""
        return self.allocate, (dtype.bytes_for(math.prod(shape)),)

    @staticmethod
    def address_of(storage: Any, /) -> int:
        """Where storage lies, as compiled code gets it."""
        address: int = storage.address
        return address

    def attribute(self, storage: Storage, user: str) -> None:
        """Records the owner of storage, for messages about exhausted memory."""
        return None

    def allocate_pinned(self, size: int) -> Array:
        """Bytes of the host's memory that the device copies from and to directly; ordinary ones where there are none.
        Kernels of a device report into such memory, so they have to reach it.

        Raises:
            MemoryError: there are not so many.
        """
        return np.empty(size, np.uint8)

    @property
    def checked(self) -> CheckedMemory | None:
        """What is known of memory that is checked."""
        return None

    def finding(self) -> tuple[FindingRecord, CheckState] | None:
        """The findings of the memory checks since the last query."""
        return None

    def place(self, array: Array) -> Storage:
        """Storage with the elements of a contiguous array; on the host the array itself."""
        storage = self.allocate(array.nbytes)
        self.copy(storage, array)
        return storage

    @abstractmethod
    def copy(self, to: Storage, source: Storage) -> None:
        """Copies bytes within the device, to it or from it: one of the two may be a contiguous array."""

    def copy_from(self, to: Any, source: Any, other: Driver) -> None:
        """Copies bytes from the memory of another device: here through the host's."""
        data = np.empty(to.size, np.uint8)
        other.copy(data, source)
        self.copy(to, data)

    def integers(self, storage: Storage, count: int) -> list[int]:
        """What int64s lie in storage that holds so many."""
        result = np.zeros(count, np.int64)
        self.copy(result, storage)
        return [int(number) for number in result]

    @abstractmethod
    def fill(self, storage: Storage, byte: int) -> None:
        """Sets each byte."""

    # code

    @abstractmethod
    def load(self, files: Sequence[CodeFile]) -> Code:
        """Loads the pieces of one graph's code, one a target, in the order of `targets`.

        Raises:
            OSError: it cannot be loaded.
        """

    def runs(self, kind: str, target: str) -> bool:
        """Whether ready-made code of a kind for the target of this name runs on the device."""
        return target == self.targets[-1]

    def table(self, code: Code) -> abi.DeviceTable | None:
        """What the entry of this code launches kernels through, for one caller; None where it launches none."""
        return None

    def begin(self, table: abi.DeviceTable, owner: str, storages: Iterable[object]) -> None:
        """Before an entry launches kernels through a table: the calling thread's stream, behind what other streams do
        with these storages. `owner` is the graph, for messages."""
        return None

    def expect_reports(self, reports: KernelReports, deliver: Deliver) -> None:
        """After an entry whose kernels may report: delivers the reports when the kernels have ended, here at once.

        Raises:
            KernelError: what a kernel has reported.
        """
        deliver(False)

    def reports_elsewhere(self, reports: KernelReports) -> bool:
        """Whether kernels on another stream than the thread's may still report there."""
        return False

    def first_launch(self, table: abi.DeviceTable) -> int:
        """What the number of a call's launches counts from, in a schedule for a simulated device."""
        return -1

    def capture(self, run: Callable[[], object], keep: object) -> Replayable | None:
        """Records what `run` enqueues, none of which is done; None where calls are made anew instead.

        Raises:
            ReplayError: EK0836 it cannot be recorded.
        """
        return None

    def launch_error(self, code: int, notes: Sequence[str]) -> EinkornError | None:
        """What it means that a function of the table gave back this code; None where no more is known than `error`."""
        return None

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until all work on the device is done."""

    def can_access(self, other: Driver) -> bool:
        """Whether code on this device may read the memory of another one."""
        return False

    # streams; where everything is done at once they do nothing

    def create_stream(self) -> int:
        """The handle of a new stream."""
        return 0

    def destroy_stream(self, stream: int) -> None:
        """Gives a stream back when the work on it is done."""
        return None

    def synchronize_stream(self, stream: int) -> None:
        """Waits until the work on a stream is done."""
        self.synchronize()

    def order_streams(self, first: int, then: int) -> None:
        """What comes onto the stream `then` runs behind what is on `first` by now."""
        return None

    def order_later(self, first: int, then: Any, memory: DeviceMemory) -> None:
        """What comes onto `then`, a `DeviceStream`, runs behind what is on `first` when the next work is enqueued, and
        `memory` is kept until then. What a finalizer calls, in any thread, while any stream may record."""
        return None

    def error(self, code: int) -> str:
        """What it means that an entry returned this code without a report; empty when nothing is known."""
        return ""

    def notes(self) -> list[str]:
        """What to know of a failure of a kernel on it."""
        return []

    def properties(self) -> dict[str, str | int]:
        """What is known about the device, for people."""
        return {}


@dataclass(frozen=True)
class Backend:
    """A kind of device: what graphs call it ("cpu" or "gpu"), how many are here, and how one is opened by number."""

    label: str
    count: Callable[[], int]
    open: Callable[[int], Driver]
    missing: Callable[[], DeviceError | None] = lambda: None  # why none can be opened where there should be some
