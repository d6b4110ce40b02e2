"""Finds the ranks of a program: threads of `run_threads`, processes of an MPI launcher, or the process alone."""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, TextIO, TypeVar

from ...dsl.diagnostics.errors import DeviceError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ..arguments import int_of, wrong
from .communicator import Alone, Communicator
from .threads import ThreadCommunicator, ThreadRanks

R = TypeVar("R")

MAX_THREAD_RANKS: Final = 1024
# What launchers of MPI set for each process.
LAUNCHED: Final = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")


class World:
    """The ranks of a program, and the meshes over them that this rank has made.

    Attributes:
        communicator: of all ranks.
        meshes: of each text the newest `Mesh`.
        line: what kernels have printed of a line that has not ended.
        at_end: what is called when the rank ends, with whether it has failed.
    """

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.meshes: dict[str, Any] = {}
        self.line = ""
        self.at_end: list[Callable[[bool], None]] = []

    def end(self, failed: bool = False) -> None:
        """The rank ends."""
        while self.at_end:
            self.at_end.pop()(failed)

    def ranked(self, text: str) -> str:
        """The lines that a text ends, each with the number of this rank; the line that it begins is kept."""
        *lines, self.line = (self.line + text).split("\n")
        return "".join(f"[rank {self.communicator.rank}] {line}\n" for line in lines)


class _Worlds(threading.local):
    """The world of a thread that is a rank, and that of the process."""

    own: World | None = None


class _Process:
    """The world of a process, found at its first use."""

    world: World | None = None
    lock = fork_lock()

    def get(self) -> World:
        with self.lock:
            if self.world is None:
                self.world = World(_launched())
                atexit.register(self.world.end)
            return self.world


_worlds = _Worlds()
_process = _Process()


def current_world() -> World:
    """The ranks that this thread belongs to."""
    return _worlds.own or _process.get()


def rank() -> int:
    """The number of this rank, from 0."""
    return current_world().communicator.rank


def size() -> int:
    """How many ranks the program has."""
    return current_world().communicator.size


class RankedStream(io.TextIOBase):
    """A stream of text that begins each line with the rank that has written it, and writes whole lines only."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream

    def write(self, text: str) -> int:
        """Adds to the line of this rank; lines that end are handed on at once, since another rank may end this one."""
        self.stream.write(current_world().ranked(text))
        if "\n" in text:
            self.stream.flush()
        return len(text)

    def flush(self) -> None:
        """Hands on what has been written; a line that has not ended stays here."""
        self.stream.flush()

    def finish(self) -> None:
        """Ends the line of this rank."""
        if current_world().line:
            self.write("\n")
        self.flush()


def ranked(text: str) -> str:
    """What is written for a text that a kernel prints: of several ranks, whole lines that begin with the rank."""
    world = _worlds.own or _process.world
    if world is None or world.communicator.size == 1 or isinstance(sys.stdout, RankedStream):
        return text
    return world.ranked(text)


def run_threads(function: Callable[[], R], ranks: int) -> list[R]:
    """Calls a function on so many threads, each of which is a rank; what each gave back, in the order of ranks.

    Args:
        function: takes nothing; `rank()` and meshes say which rank it is called by.
        ranks: how many there are.

    Raises:
        GraphError: EK0478, not a number of ranks.
        the exception of the first rank that failed; the other ranks end when they next wait for it.
    """
    count = int_of("ranks", ranks)
    if not 1 <= count <= MAX_THREAD_RANKS:
        wrong("ranks", ranks, f"a number from 1 to {MAX_THREAD_RANKS}")

    def work(communicator: ThreadCommunicator) -> R:
        with as_rank(World(communicator)):
            return function()

    return ThreadRanks[R](count).run(work)


@contextmanager
def as_rank(world: World) -> Iterator[None]:
    """Makes this thread a rank of a world."""
    outer, _worlds.own = _worlds.own, world
    failed = True
    try:
        yield
        failed = False
    finally:
        world.end(failed)
        _worlds.own = outer


def _launched() -> Communicator:
    """The processes that were started with this one.

    Raises:
        DeviceError: EK0864 a launcher of MPI has started it, and mpi4py is not installed.
    """
    launched = any(name in os.environ for name in LAUNCHED)
    if not launched and "mpi4py.MPI" not in sys.modules:
        return Alone()
    if find_spec("mpi4py") is None:
        raise DeviceError(
            "an MPI launcher has started this process, and mpi4py is not installed",
            code="EK0864",
            place=user_place(),
            hint="pip install mpi4py mpich",
        )
    with shielded():
        from .mpi import world_communicator  # an extra
    return world_communicator()
