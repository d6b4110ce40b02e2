"""Collects the mistakes of a kernel file while it is imported, instead of raising the first of them.

What a mistake keeps from being made is replaced by a `Broken`, so that the file can be read to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from .errors import EinkornError, each_of

BROKEN = "__einkorn_broken__"  # where a module keeps the names that it would have, but for mistakes, with these


class Broken:
    """Stands for what a mistake, which has been noted, kept from being made."""

    def __init__(self, error: EinkornError | None) -> None:
        self.error = error

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if given and isinstance(given[0], FunctionType | type) else self

    def __getitem__(self, index: object) -> Broken:
        return self

    def __getattr__(self, name: str) -> Broken:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


_collected: list[list[EinkornError]] = []  # of the files that are being imported; imports hold a lock


@contextmanager
def collecting(mistakes: list[EinkornError]) -> Iterator[None]:
    """While it lasts, `collect` adds to these mistakes."""
    _collected.append(mistakes)
    try:
        yield
    finally:
        _collected.pop()


def collect(mistake: EinkornError) -> bool:
    """Notes a mistake of a file that is being imported, to be raised with all others of it; False when none is."""
    if _collected:
        _collected[-1].extend(each_of(mistake))
    return bool(_collected)
