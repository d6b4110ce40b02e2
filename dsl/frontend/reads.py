"""Keeps what a program was made of: the constants, helpers and closures that its functions named.

A program is a picture of these at one time. Code that keeps it checks whether it still holds: whether every name still
stands for the very object that it stood for.
"""

from __future__ import annotations

import inspect
from types import CellType, CodeType, FunctionType
from typing import Any, TypeVar

from ..diagnostics.installation import is_own_module
from ..language.annotations import TensorAnnotation

_MISSING = object()
ANNOTATIONS = TensorAnnotation.__module__


class Reads:
    """What was read, and from where.

    Attributes:
        globals: a namespace, a name in it, and the object that it stood for.
        cells: variables of enclosing functions, and what they held.
        members: a class, the name of a member, and what that was.
        codes: helpers, and the code that they had.
    """

    def __init__(self) -> None:
        self.globals: list[tuple[dict[str, Any], str, object]] = []
        self.cells: list[tuple[CellType, object]] = []
        self.members: list[tuple[type, str, object]] = []
        self.codes: list[tuple[FunctionType, CodeType]] = []
        self._known: set[tuple[int, str]] = set()

    def in_namespace(self, names: dict[str, Any], name: str) -> None:
        """A name of a module, or of the cell of a notebook. Einkorn's own modules stay as they are."""
        value = names.get(name, _MISSING)
        if value is _MISSING or is_own_module(str(names.get("__name__", ""))) or _is_annotation(value):
            return
        if (id(names), name) not in self._known:
            self._known.add((id(names), name))
            self.globals.append((names, name, value))

    def in_cell(self, cell: CellType) -> None:
        """A variable of an enclosing function."""
        if not any(known is cell for known, _ in self.cells):
            self.cells.append((cell, _content(cell)))

    def in_class(self, owner: type, name: str) -> None:
        """A member of a class that groups functions and constants."""
        self.members.append((owner, name, inspect.getattr_static(owner, name, _MISSING)))

    def in_function(self, function: FunctionType) -> None:
        """A helper. Einkorn's own stay as they are."""
        own = is_own_module(str(function.__globals__.get("__name__", "")))
        if not own and not any(known is function for known, _ in self.codes):
            self.codes.append((function, function.__code__))

    def hold(self) -> bool:
        """Whether each name still stands for the object that was read. Loops, since each call checks."""
        for names, name, value in self.globals:
            if names.get(name, _MISSING) is not value:
                return False
        for cell, value in self.cells:
            if _content(cell) is not value:
                return False
        for function, code in self.codes:
            if function.__code__ is not code:
                return False
        if self.members:
            return all(inspect.getattr_static(owner, name, _MISSING) is value for owner, name, value in self.members)
        return True


def _is_annotation(value: object) -> bool:
    """Whether it only says what arguments are: the signature was read when the kernel was registered."""
    if isinstance(value, TypeVar) or type(value).__module__ == ANNOTATIONS:
        return True
    return isinstance(value, type) and value.__module__ == ANNOTATIONS


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return _MISSING
