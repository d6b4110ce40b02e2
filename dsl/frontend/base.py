"""What a frontend is, and what it gives: the record that a language for kernels fills in.

Input: nothing. Output: `Frontend`, `SourceKernel`. Non-goals: which frontends there are (see `readers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics.errors import EinkornError
from ..signature.schema import OpSchema
from .program import PortableKernel
from .reference import Reference


@dataclass(frozen=True, eq=False)
class SourceKernel:
    """A kernel of a file, with its contract.

    Attributes:
        make: makes the portable program, when somebody asks for it; its mistakes say what is outside the language.
        override: whether it replaces an op of the same name.
        reference: the NumPy function that says what it computes, if there is one.
        usable: False where its signature has a mistake: it can be looked at, and nothing can be made of it.
    """

    schema: OpSchema
    make: Callable[[], PortableKernel]
    override: bool = False
    reference: Reference | None = None
    usable: bool = True


@dataclass(frozen=True, eq=False)
class Frontend:
    """Reads the files of one language.

    Attributes:
        read: the kernels of a file, in the order of its text; mistakes around their bodies are added to the list.
        holds_kernels: whether a file of a folder belongs to the folder's library, told without running anything.
        is_test: whether a file is left out of a folder's library because it holds tests.
        is_broken: whether the text of a file is not of the language at all.
    """

    read: Callable[[Path, list[EinkornError]], Sequence[SourceKernel]]
    holds_kernels: Callable[[Path], bool]
    is_test: Callable[[Path], bool]
    is_broken: Callable[[Path], bool]
