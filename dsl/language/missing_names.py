"""Refuses names that a module does not have, and says what to write instead.

Python drops the message of an `AttributeError` where a name is imported, as in `from einkorn.dsl import prange`. There
the error is an `ImportError`, whose message remains.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Final

from ..diagnostics.errors import did_you_mean
from .foreign_names import of_name

_IMPORT: Final = dis.opmap["IMPORT_FROM"]


def missing(module: str, name: str, known: Iterable[str], caller: FrameType | None) -> AttributeError | ImportError:
    """The error for a name that `module` does not have: `caller` has requested it; `known` are the names it has."""
    hint = None if name.startswith("_") else of_name(name) or did_you_mean(name, known)
    behind = "" if hint is None else f"; {hint}"
    waits = f"{module}.{name}" in sys.modules  # a module of the package, while that is being imported
    if not waits and caller is not None and caller.f_code.co_code[caller.f_lasti] == _IMPORT:
        return ImportError(f"cannot import name '{name}' from '{module}'{behind}", name=module)
    return AttributeError(f"module '{module}' has no attribute '{name}'{behind}", name=name)
