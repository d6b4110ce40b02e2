"""Spells what the libraries of GPUs have in common: CUDA's driver and HIP know the same things by other names.

Handles are ints. What a library refuses is a `GpuFault` with its own number and name; `graph.driver.gpu` says what that
means for the user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Final

from ...dsl.diagnostics.dataclass import dataclass

# Of copies, as in `dsl.contract.abi`.
WITHIN: Final = 0
TO_DEVICE: Final = 1
TO_HOST: Final = 2

_NOT_READY: Final = 600  # of both libraries: work is still under way


class GpuFault(Exception):
    """What a library gave back instead of success: its number, name and sentence, and the `log` of a compilation."""

    def __init__(self, call: str, status: int, name: str, text: str, log: str = "") -> None:
        super().__init__(f"{call}: {name} ({text})" if text else f"{call}: {name}")
        self.call, self.status, self.name, self.text, self.log = call, status, name, text, log


@dataclass(frozen=True)
class Codes:
    """The numbers of a library that mean something here."""

    memory: int  # there is not enough of it
    lost: frozenset[int]  # a kernel failed, and nothing can be done in this process any more
    capture: frozenset[int]  # what cannot be recorded
    architecture: frozenset[int]  # the code is for another one
    version: frozenset[int]  # the code is newer than the library
    enabled: int = 704  # one GPU may read the memory of another already


@dataclass(frozen=True)
class GpuProperties:
    """What is known of a GPU. `driver` is the version of its library, for people."""

    name: str
    architecture: str
    total_memory: int
    multiprocessors: int
    lanes: int
    shared_memory: int
    driver: str
    more: Mapping[str, str | int] = field(default_factory=dict)


class GpuLibrary(ABC):
    """One GPU as its library shows it. Every method may raise `GpuFault`."""

    launchers: ClassVar[str]  # the name of the code that calls it; see `compiler.runtime.launchers`
    blocking: ClassVar[str]  # what lets each launch wait for its end
    codes: ClassVar[Codes]
    dlpack_device: ClassVar[int]
    functions: ClassVar[tuple[str, ...]]  # those that launchers call, in the order of their table
    encodes: ClassVar[bool] = False  # whether launchers write tensor maps
    context: int  # what makes the GPU that of a thread, for native code

    @abstractmethod
    def properties(self) -> GpuProperties: ...

    @abstractmethod
    def uuid(self) -> bytes:
        """16 bytes that no other GPU has."""

    @abstractmethod
    def can_access(self, number: int) -> bool:
        """Whether kernels here may read the memory of another GPU of the library, once that is enabled."""

    @abstractmethod
    def current(self) -> int:
        """The `context` of the GPU that is the calling thread's; 0 of CUDA's where none is."""

    @abstractmethod
    def activate(self, context: int) -> None:
        """Makes the GPU of a context that of the calling thread."""

    @abstractmethod
    def describe(self, status: int) -> tuple[str, str]:
        """The name of a number, and a sentence."""

    def _fault(self, call: str, status: int, log: str = "") -> GpuFault:
        return GpuFault(call, status, *self.describe(status), log)

    def _is_ready(self, call: str, status: int) -> bool:
        """Whether a query of a stream or an event says that its work is done."""
        if status not in (0, _NOT_READY):
            raise self._fault(call, status)
        return status == 0

    # memory

    @abstractmethod
    def allocate(self, size: int) -> int: ...

    @abstractmethod
    def free(self, address: int) -> None: ...

    @abstractmethod
    def free_memory(self) -> int: ...

    @abstractmethod
    def allocate_pinned(self, size: int) -> int: ...

    @abstractmethod
    def free_pinned(self, address: int) -> None: ...

    @abstractmethod
    def copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None: ...

    @abstractmethod
    def copy_peer(self, to: int, source: int, context: int, size: int, stream: int) -> None:
        """Copies from the memory of the GPU of another context."""

    @abstractmethod
    def enable_access(self, context: int) -> None:
        """Lets the thread's GPU read the memory of another one; again does nothing."""

    @abstractmethod
    def fill(self, address: int, byte: int, size: int, stream: int) -> None: ...

    # streams and events

    @abstractmethod
    def create_stream(self) -> int: ...

    @abstractmethod
    def destroy_stream(self, stream: int) -> None: ...

    @abstractmethod
    def is_idle(self, stream: int) -> bool:
        """Whether all work on a stream is done. This must not be called for a stream that records."""

    @abstractmethod
    def create_event(self, timing: bool = False) -> int: ...

    @abstractmethod
    def destroy_event(self, event: int) -> None: ...

    @abstractmethod
    def record(self, event: int, stream: int) -> None: ...

    @abstractmethod
    def wait(self, stream: int, event: int) -> None: ...

    @abstractmethod
    def is_done(self, event: int) -> bool: ...

    @abstractmethod
    def elapsed(self, first: int, second: int) -> float:
        """Milliseconds between two events."""

    @abstractmethod
    def synchronize(self) -> None: ...

    # code

    @abstractmethod
    def load(self, code: bytes, is_text: bool) -> int: ...

    @abstractmethod
    def unload(self, module: int) -> None: ...

    @abstractmethod
    def function(self, module: int, symbol: str) -> int:
        """A kernel of loaded code, which may be launched with as much dynamic shared memory as the GPU has."""

    @abstractmethod
    def address_of(self, name: str) -> int:
        """Where one of the `functions` lies, for native code."""

    # recorded work

    @abstractmethod
    def begin_capture(self, stream: int) -> None: ...

    @abstractmethod
    def capture_status(self, stream: int) -> int:
        """Not 0 while what is enqueued on a stream is recorded."""

    def is_capturing(self, stream: int) -> bool:
        """Whether what is enqueued on a stream is recorded."""
        try:
            return self.capture_status(stream) != 0
        except GpuFault as fault:  # the default stream, while another one is captured
            if fault.status in self.codes.capture:
                return True
            raise

    @abstractmethod
    def end_capture(self, stream: int) -> int:
        """What was recorded, ready to be replayed."""

    @abstractmethod
    def replay(self, recorded: int, stream: int) -> None: ...

    @abstractmethod
    def destroy_recorded(self, recorded: int) -> None: ...
