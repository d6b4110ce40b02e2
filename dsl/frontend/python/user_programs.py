"""Turns exceptions of Python files that Einkorn runs for the user into errors at their place.

See also `import_file` (kernel files).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...diagnostics.errors import EinkornError
from ...diagnostics.shield import raise_if_of_handler
from .recovery import as_mistake


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
