"""Serves calls that look like an earlier one: the same types, dtypes, ranks and parameters, whatever the sizes.

What a call was found to mean is kept under what it looks like, so that the next one needs no analysis: it is one lookup
into a table, and a call of the model. What a table does not know, or what a model refuses, goes the whole way.

See also `calling.python_door` (calls without Python).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.signature.schema import Role
from ..driver.buffer import Buffer
from ..driver.devices import DeviceRef
from ..engine.model import Model
from .explained import explained
from .kinds import BUFFER, NUMPY, Operand, operand_of
from .specialise import Specialisation
from .spread import spread_of

MISS = object()
HOST = DeviceRef.CPU()
MAX_KINDS = 256  # kinds of calls that are kept for one kernel
_BEFORE = ("EK0451", "EK0452", "EK0453", "EK0454", "EK0461", "EK0462", "EK0464", "EK0477", "EK0430")  # nothing has run
_NUMBERS = (float, int, bool)


def look_of(args: Sequence[Any], kwargs: Mapping[str, Any], joint: Sequence[int] = ()) -> Any:
    """The key of a call: different for calls with different meanings; None for a call that is never kept.

    `joint` are the positions of the arguments that broadcast together.
    """
    looks: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is np.ndarray:
            looks.append((value.dtype, value.ndim))
        elif isinstance(value, Buffer):
            looks.append((kind, value._dtype, len(value.shape), value._device))
        elif kind in _NUMBERS:
            looks.append(kind)
        else:
            return None
    for name, value in kwargs.items():
        if name == "out":
            if type(value) is not np.ndarray or not value.flags.c_contiguous:
                return None
            looks.append((name, value.dtype, value.ndim))
        elif type(value) in (int, bool, str):
            looks.append((name, type(value), value))
        elif type(value) is float:
            looks.append((name, value.hex()))
        else:
            return None
    if joint and len(joint) <= len(args):
        looks.append(spread_of([getattr(args[k], "shape", ()) for k in joint]))
    return tuple(looks)


class Repeated:
    """A kind of call, and what runs it."""

    def __init__(self, made: Specialisation, args: Sequence[Any], kind: str, group: bool) -> None:
        self.made = made
        self.model: Model = made.model
        self.arrays = kind == NUMPY
        self.single = len(made.outputs) == 1 and not group
        self.numbers = [(k, made.inputs[k].dtype.to_numpy()) for k, value in enumerate(args) if type(value) in _NUMBERS]

    def run(self, args: tuple[Any, ...], out: Any) -> Any:
        """The results, or `MISS` where nothing has run and the whole way says why."""
        values: Sequence[Any] = args
        if self.numbers:
            values = list(args)
            for position, dtype in self.numbers:
                number = _exact(args[position], dtype)
                if number is None:
                    return MISS
                values[position] = number
        try:
            results = self.model(*values) if out is None else self.model(*values, out=(out,))
        except EinkornError as error:
            if error.code in _BEFORE:
                return MISS
            raise explained(error, self.made, self._operands(args)) from error.__cause__
        if out is not None:
            return out
        if not results:
            return None
        if self.single:
            return results[0]._array if self.arrays else results[0]
        return tuple(each._array for each in results) if self.arrays else tuple(results)

    def _operands(self, args: Sequence[object]) -> list[Operand]:
        names = [argument.name for argument in self.made.schema.inputs]
        return [operand_of(value, self.made.schema.name, name) for value, name in zip(args, names, strict=True)]


def _exact(number: bool | int | float, dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """A number as an array without axes; None where it is not plainly one of the dtype."""
    kind = dtype.kind
    if kind == "f":
        limit, whole = _LIMITS[dtype.itemsize]
        if type(number) is float:
            fits = -limit <= number <= limit or number != number or number in (math.inf, -math.inf)
        else:
            fits = type(number) is int and -whole <= number <= whole
        return np.array(number, dtype) if fits else None
    wanted = bool if kind == "b" else int
    if type(number) is not wanted or kind not in "biu":
        return None
    try:
        return np.array(number, dtype)
    except OverflowError:
        return None


# By the bytes of a float: the largest one, and up to where every integer is one.
_LIMITS = {2: (65504.0, 1 << 11), 4: (float(np.finfo(np.float32).max), 1 << 24), 8: (math.inf, 1 << 53)}


def keep(table: dict[Any, Repeated], look: object, made: Specialisation, args: Sequence[object], kind: str) -> None:
    """Keeps what a call was found to mean, where the short way serves it."""
    schema = made.schema
    if kind not in (NUMPY, BUFFER) or len(args) != len(schema.inputs) or schema.counts or made.late:
        return
    if any(type.dtype.is_packed() for type in (*made.inputs, *made.outputs)):
        return
    host = all(type.device == HOST for type in made.inputs)
    changed = any(a.role is Role.MUTABLE for a in schema.inputs)
    if not host and (any(type(value) in _NUMBERS for value in args) or changed):
        return
    if len(table) >= MAX_KINDS:
        table.clear()
    table[look] = Repeated(made, args, kind, bool(schema.counts))
