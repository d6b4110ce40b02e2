"""`kernels_of(text)`: runs a text that stands in no file, and gives the kernels that it registers.

See also `import_file` (files).
"""

from __future__ import annotations

from typing import Any

from ...diagnostics.collecting import collect, collecting
from ...diagnostics.errors import CompileError, EinkornError, joined
from ...diagnostics.places import user_place
from ...diagnostics.shield import Interruption, passes_signals
from ...diagnostics.text import fresh_name, keep_text
from .import_file import LOCK
from .recovery import as_mistake, recover
from .register import REGISTERED, Kernel


@passes_signals
def kernels_of(text: str, name: str = "<text>", names: dict[str, Any] | None = None) -> dict[str, Kernel]:
    """Runs the Python text of a module, and gives the kernels that it registers, by the names of their ops.

    The text is kept, as that of a file is: messages show its lines under `name`, with a number where another text has
    that name already. `exec` keeps no text, so that kernels made by it have none.

    Args:
        text: what would stand in a kernel file, its imports included.
        name: how messages call it.
        names: the names that the text finds and changes, such as `globals()`; by default it has a module of its own.

    Raises:
        CompileError: the text is not Python, running it fails, or a signature is wrong; all mistakes together.
    """
    if not isinstance(text, str):
        what = f"the text of kernels is a string, not a value of type {type(text).__name__}"
        raise CompileError(what, code="EK0110", place=user_place(), argument="text", expected="str", got=type(text))
    file = fresh_name(name, text)
    module: dict[str, Any] = {"__name__": file} if names is None else names
    known = {id(kernel) for kernel in module.get(REGISTERED, ())}
    keep_text(module, file, text)
    if names is None:
        _run(module, file, text)
    else:
        try:
            exec(compile(text, file, "exec", dont_inherit=True), names)
        except (KeyboardInterrupt, Interruption):
            raise
        except BaseException as error:
            raise as_mistake(error, file) from None
    return {kernel.schema.name: kernel for kernel in module.get(REGISTERED, ()) if id(kernel) not in known}


def _run(module: dict[str, Any], file: str, text: str) -> None:
    """Runs a text in a module of its own, in which all mistakes can be found."""
    mistakes: list[EinkornError] = []
    with LOCK, collecting(mistakes):
        try:
            exec(compile(text, file, "exec", dont_inherit=True), module)
        except (KeyboardInterrupt, Interruption):
            raise
        except BaseException as error:
            _read_on(module, file, text, error)
    if mistakes:
        raise joined(mistakes)


def _read_on(module: dict[str, Any], file: str, text: str, error: BaseException) -> None:
    """Looks for further mistakes behind the one that has ended a text."""
    try:
        recover(module, file, text, error, collect)
    except (KeyboardInterrupt, Interruption):
        raise
    except BaseException as again:
        collect(as_mistake(again, file))
