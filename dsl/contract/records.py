"""Writes records as JSON values, and reads them back: what reproducers hold.

A record is an object of a dataclass that is named here by its class. Its fields hold records, tuples, numbers, texts,
dtypes, portable programs, or objects of other classes (*atoms*), of which a function makes a JSON value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..frontend.program import PortableKernel
from ..frontend.read_program import read_program
from ..types.dtype import DType

Atom = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # how it is written, how it is read
ATOMS: Mapping[type, Atom] = {
    PortableKernel: (PortableKernel.to_json, read_program),
    DType: (lambda dtype: dtype.name, DType.__getitem__),
    float: (float.hex, float.fromhex),
    complex: (lambda z: [z.real.hex(), z.imag.hex()], lambda parts: complex(*map(float.fromhex, parts))),
}


class Records:
    """Writes and reads records of these classes."""

    def __init__(self, classes: Iterable[Any], atoms: Mapping[type, Atom] | None = None) -> None:
        self.classes = {one.__name__: one for one in classes}
        self.atoms = {**ATOMS, **(atoms or {})}
        self.readers = {kind.__name__: read for kind, (_, read) in self.atoms.items()}

    def write(self, value: Any) -> Any:
        """The JSON value of a record, or of what may stand in its fields."""
        for kind, (write, _) in self.atoms.items():
            if isinstance(value, kind):
                return {"@": kind.__name__, "value": write(value)}
        if type(value) in self.classes.values():
            fields = {field.name: self.write(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return {"@": type(value).__name__, "value": fields}
        return [self.write(item) for item in value] if isinstance(value, tuple) else value

    def read(self, value: Any) -> Any:
        """What `write` was given.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it has another form.
        """
        if isinstance(value, list):
            return tuple(self.read(item) for item in value)
        if not isinstance(value, dict):
            return value
        kind, inner = value["@"], value["value"]
        if kind in self.readers:
            return self.readers[kind](inner)
        return self.classes[kind](**{name: self.read(item) for name, item in inner.items()})
