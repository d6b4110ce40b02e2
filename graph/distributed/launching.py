"""Runs a program on several ranks: what `einkorn run -n 4 program.py` does.

Threads run the program in modules of their own, with one copy of all that it imports. Processes are started by the
launcher of MPI, which the extra `[mpi]` installs next to Python, or which is on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ...dsl.diagnostics.errors import DeviceError, EinkornError
from ...dsl.diagnostics.places import user_place
from ...dsl.frontend.python.user_programs import program_arguments, run_program
from .world import RankedStream, rank, run_threads

BACKENDS: Final = ("processes", "threads")
FAILED: Final = 1


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
    """Runs a program in a process that the launcher has started."""
    rank()  # finds the other processes, and has exceptions end them
    try:
        with _ranked_output() as stream, program_arguments(script, arguments):
            _run(script, stream)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)  # which ends the other processes, too
        raise SystemExit(FAILED) from None


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
