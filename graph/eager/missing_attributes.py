"""Raises helpful errors for attributes that arrays of other libraries have and tensors do not.

`MissingAttributes` is the last base class of `Tensor`.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import getattr_static
from typing import Any

REPLACEMENTS = {
    "numel": "x.num_elements()",
    "astype": "x.cast(dtype)",
    "view": "x.reshape(shape)",
    "dot": "x @ y",
    "copy": "copy.deepcopy(x)",
    "clone": "copy.deepcopy(x)",
    "cpu": "x.to(CPU())",
    "cuda": "x.to(Accelerator())",
    "dim": "x.rank",
}


class MissingAttributes:
    """Explains attributes that tensors lack: those of other libraries' arrays, and names of functions of `ops`.

    No `__getattr__` says so, because with it every attribute of a tensor takes longer.
    """

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return [
            name for name in super().__dir__() if not isinstance(getattr_static(self, name, None), _MissingAttribute)
        ]


class _MissingAttribute:
    """An attribute that is none, and says what to write."""

    def __init__(self, name: str, way: str) -> None:
        self.name = name
        self.way = way

    def __get__(self, tensor: object, owner: type) -> Any:
        text = f"{owner.__name__!r} object has no attribute {self.name!r}; write {self.way}"
        raise AttributeError(text, name=self.name, obj=tensor)


def add_missing_attributes(functions: Iterable[str]) -> None:
    """Names functions that are not methods."""
    for name, way in ({name: f"F.{name}(x)" for name in functions} | REPLACEMENTS).items():
        setattr(MissingAttributes, name, _MissingAttribute(name, way))
