"""A graph's code, ready to be called: from a file that is mapped into the process.

Input: the path of a shared object and the plan of its buffers. Output: `LoadedCode`. Non-goals: where the file comes
from (see `engine.load`), and the memory of a call (see `engine.call`).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dsl.contract import abi
from ..driver.code import Library
from ..passes.memory_plan import Plan
from .reports import Report, read_reports


@dataclass(frozen=True)
class LoadedCode:
    """A graph's code: the native entry, the plan of its buffers, and what its reports mean.

    `library` is what has to live as long as the entry may be called; None when the entry is a Python function.
    """

    entry: Any
    plan: Plan
    reports: tuple[Report, ...]
    tier: str
    library: Library | None


def open_code(path: Path, plan: Plan, tier: str) -> LoadedCode:
    """Maps the code in a file.

    Raises:
        OSError: it cannot be mapped.
    """
    library = Library(path)
    entry = abi.EntryFunction(library.address(abi.ENTRY))
    table = ctypes.string_at(library.address(abi.REPORTS))
    return LoadedCode(entry, plan, read_reports(table), tier, library)
