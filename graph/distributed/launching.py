"""Runs a program on several ranks: what `einkorn run -n 4 program.py` does.

Threads run the program in modules of their own, with one copy of all that it imports. Processes are started by the
launcher of MPI, which the extra `[mpi]` installs next to Python, or which is on the path.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final

from ...dsl.diagnostics.errors import DeviceError, EinkornError, KernelError
from ...dsl.diagnostics.places import user_place
from ...dsl.frontend.python.user_programs import program_arguments, run_program
from .world import LAUNCHED, RankedStream, rank, run_threads

BACKENDS: Final = ("processes", "threads")
FAILED: Final = 1
OF_SIGNALS: Final = 128  # what shells add to the number of a signal that has ended a process
PR_SET_PDEATHSIG: Final = 1  # of Linux's prctl
EXCEPTION: Final = "EK0915"  # the code of what a program has raised; the exception itself is its cause


def run_on_ranks(script: str, arguments: Sequence[str], ranks: int, backend: str) -> int:
    """Runs a Python program on so many ranks; the status with which it ends.

    Args:
        script: the file.
        arguments: those of the program.
        ranks: how many ranks there are.
        backend: "threads" of this process, or "processes".

    Raises:
        DeviceError: EK0864, there is no launcher of processes.
    """
    if backend == "threads":
        with _ranked_output() as stream, program_arguments(script, arguments):
            return _status(lambda: run_threads(lambda: _run(script, stream), ranks))
    child = [sys.executable, "-m", "einkorn", "run", "--as-rank", script, *arguments]
    return subprocess.run([launcher(), "-n", str(ranks), *child], check=False).returncode


def run_as_rank(script: str, arguments: Sequence[str]) -> None:
    """Runs a program in a child of the process that the launcher has started, which sees how the child ends."""
    if hasattr(os, "fork"):
        if child := os.fork():
            raise SystemExit(_end_of(child))
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the child ends with its parent
    rank()  # finds the other processes, and has exceptions end them
    try:
        with _ranked_output() as stream, program_arguments(script, arguments):
            _run(script, stream)
    except SystemExit as end:
        error = RuntimeError(f"the program has ended with status {end.code}")
        sys.excepthook(RuntimeError, error, None)  # which ends the other processes, too
        raise
    except Exception as error:
        raised = error.__cause__ if getattr(error, "code", "") == EXCEPTION and error.__cause__ else error
        sys.excepthook(type(raised), raised, _within(raised.__traceback__, script))
        raise SystemExit(FAILED) from None


def _end_of(child: int) -> int:
    """The status with which a child ends; a signal that ends it is reported.

    What MPICH's launcher itself reports may be another rank, which it has ended after this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the child gets, too
    signal.signal(signal.SIGTERM, lambda number, _: _signalled(child, number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status >= 0:
        return status
    number = next((int(os.environ[name]) for name in LAUNCHED if name in os.environ), 0)
    text = f"rank {number} was ended by signal {-status} ({signal.Signals(-status).name})"
    hint = "a machine with too little memory for all ranks ends one so" if -status == signal.SIGKILL else None
    print(f"[rank {number}] {KernelError(text, code='EK0863', got=-status, hint=hint)}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), -status)
    return OF_SIGNALS - status


def _signalled(child: int, number: int) -> None:
    """Passes a signal on to a child, which may have ended."""
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _within(trace: TracebackType | None, script: str) -> TracebackType | None:
    """A traceback without what called the program."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename != script:
        inner = inner.tb_next
    return inner or trace


def launcher() -> str:
    """The program that starts processes of MPI.

    Raises:
        DeviceError: EK0864, mpi4py or a launcher is not there.
    """
    installed = Path(sys.executable).with_name("mpiexec")
    found = str(installed) if os.access(installed, os.X_OK) else shutil.which("mpiexec")
    if found is None or find_spec("mpi4py") is None:
        missing = "mpi4py" if found is not None else "mpiexec"
        raise DeviceError(
            f"processes are started by MPI, and {missing} is not installed",
            code="EK0864",
            place=user_place(),
            hint="pip install mpi4py mpich; or run it on threads, by --backend threads",
        )
    return found


def _run(script: str, stream: RankedStream) -> None:
    try:
        run_program(script)
    finally:
        stream.finish()


def _status(work: Callable[[], object]) -> int:
    """0, or the status of the rank that failed first; errors of Einkorn are raised."""
    try:
        work()
    except SystemExit as end:
        notes = " ".join(getattr(end, "__notes__", []))
        print(f"the program has ended with status {end.code} ({notes})", file=sys.stderr)
        return end.code if isinstance(end.code, int) else FAILED
    except EinkornError as error:
        error.notes += getattr(error, "__notes__", [])
        raise
    return 0


@contextmanager
def _ranked_output() -> Iterator[RankedStream]:
    """Gives each line of standard output its rank."""
    before, stream = sys.stdout, RankedStream(sys.stdout)
    sys.stdout = stream
    try:
        yield stream
    finally:
        sys.stdout = before
