"""Runs Python programs for the user, and turns their exceptions into errors at their place.

See also `import_file` (kernel files).
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...diagnostics.errors import EinkornError
from ...diagnostics.shield import raise_if_of_handler
from .recovery import as_mistake


@contextmanager
def program_arguments(file: str, arguments: Sequence[str]) -> Iterator[None]:
    """A context in which `sys.argv` has the arguments of a program, and `sys.path` begins with its folder."""
    before = sys.argv[:], sys.path[:]
    sys.argv, sys.path[0:0] = [file, *arguments], [str(Path(file).resolve().parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


def run_program(file: str) -> None:
    """Runs a program as `__main__`.

    Raises:
        CompileError, EinkornError: as `running` does.
        SystemExit: the program has ended with another status than 0.
    """
    try:
        with running(file):
            runpy.run_path(file, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


@contextmanager
def running(file: str) -> Iterator[None]:
    """A context in which code of the file runs.

    Raises:
        CompileError: EK0100 the file is not valid Python; EK0915 it raised an exception, the cause of this one.
        EinkornError: one that the file raised itself.
    """
    try:
        yield
    except EinkornError:
        raise
    except Exception as error:
        raise_if_of_handler(error)
        raise as_mistake(error, file, what="running this file", code="EK0915") from error
