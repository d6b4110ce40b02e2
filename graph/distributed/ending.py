"""Ends the processes of MPI together: an exception that ends one of them ends all, and no shared file outlives them."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from mpi4py import MPI

from ...dsl.diagnostics.errors import EinkornError

READ_SECONDS: Final = 0.3  # in which a launcher reads what a process has written
SHARED: Final = "/dev/shm/mpich_shm_"  # how the files begin in which MPICH has the memory that processes share


def end_all_on_failure(comm: MPI.Intracomm) -> None:
    """Shows the exception that ends this process under its rank, and ends the other processes."""
    before = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stdout.flush()
        if isinstance(error, EinkornError) or before is sys.__excepthook__:
            text = "".join(traceback.format_exception(kind, error, trace))
            sys.stderr.write("".join(f"[rank {comm.rank}] {line}" for line in text.splitlines(keepends=True)))
        else:
            before(kind, error, trace)
        sys.stderr.flush()
        wait_until_read(2)
        comm.Abort(os.EX_SOFTWARE if issubclass(kind, Exception) else 1)

    sys.excepthook = end


def wait_until_read(descriptor: int) -> None:
    """Waits until the launcher has read what was written to a pipe: it loses what comes with the end of a process."""
    end = time.monotonic() + READ_SECONDS
    try:
        while time.monotonic() < end and int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), "little"):
            time.sleep(0.001)
    except OSError:
        return  # not a pipe


def remove_shared_files(comm: MPI.Intracomm) -> None:
    """Removes the names of the files in which MPICH has shared memory, which no process opens again.

    MPICH removes them when all processes end. Where one is killed, they would stay, and take memory until the machine
    starts anew.
    """
    comm.Barrier()  # all processes have opened them
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return  # not Linux
    for path in {line[line.index(SHARED) :] for line in lines if SHARED in line}:
        Path(path).unlink(missing_ok=True)  # another process of the machine may have been first
