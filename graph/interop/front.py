"""Puts doors in front of kernels: from the third call of a kind on, no step is made in Python.

A kernel object gets a class of its own whose `__call__` is a built-in function: its newest door. Each door hands
on what it does not serve to the one before it, the first to Python. There are at most four: dtypes, ranks, parameters,
kinds of views. What comes later stays with Python.

Input: calls that Python has served. Output: none; the kernel is called otherwise from then on. Non-goals: what a door
is (see `engine.python_door`).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.frontend.caller import Called
from ...dsl.frontend.reads import Reads
from ...dsl.types.dtype import DType
from ..driver.buffer import Buffer
from ..engine.call import Caller
from ..engine.python_door import ABSENT, python_door
from ..types.strides import pattern_of, whole
from .explained import explained
from .specialise import CHECKS, AnyKernel, Prepared, Specialisation, specialise

MOST = 4  # doors of a kernel
OPEN_AT = 2  # calls of a kind
KINDS = 64  # that are counted
NUMBERS = {bool: "bool", int: "int", float: "float"}

_lock = fork_lock()


def serve(kernel: AnyKernel, state: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """After a call that Python has served: a door for calls like this one, when they repeat."""
    front: Front | None = state.front
    if front is None or front.loaded is not state.loaded:  # its doors compare with other variables
        front = state.front = Front(kernel, state)
    front.note(state, args, kwargs)


class Front:
    """The doors of a kernel, for as long as its program stays what it is."""

    def __init__(self, kernel: AnyKernel, state: Prepared) -> None:
        self.kernel = weakref.ref(kernel)
        self.loaded = state.loaded
        self.first: Any = _ToPython(kernel)  # what is called
        self.count = 0
        self.calls: dict[Any, int] = {}  # by kind, as long as there may be a door

    def note(self, state: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Counts a call; the second of a kind opens a door."""
        if self.count >= MOST:
            return
        kind = _kind(args, kwargs)
        if kind is None:
            return
        with _lock:
            calls = self.calls.get(kind, 0) + 1
            if calls > OPEN_AT or (calls == 1 and len(self.calls) >= KINDS):
                return
            self.calls[kind] = calls
            if calls == OPEN_AT:
                self.open(state, args, kwargs)

    def open(self, state: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Makes a door for calls like this one, where there can be one, and puts it before the others."""
        kernel, reads = self.kernel(), variables(state.reads)
        if kernel is None or reads is None:
            return
        named = {name: kwargs[name] for name in sorted(kwargs) if name != "out"}
        made = _served(kernel, args, named)
        if made is None or (caller := _caller(made, args)) is None:
            return
        names, cells = reads
        scalars = [NUMBERS.get(type(value), "") for value in args]
        held = [type(value) is Buffer for value in args]
        door = python_door(
            caller,
            kernel.__name__,
            self.first,
            scalars=scalars,
            keywords=named,
            names=[*names, (*CHECKS, ABSENT if state.checks is None else state.checks)],
            cells=cells,
            buffers="same" if any(held) else "",
            held=held if any(held) else (),
            explain=lambda error: explained(error, made, ()),
        )
        if door is not None:
            self.first, self.count = door, self.count + 1
            self.install()

    def install(self) -> None:
        """Lets the kernel be called through the newest door."""
        kernel = self.kernel()
        own = type(kernel)
        if kernel is not None and Called in own.__bases__:  # the class is still that of all kernels
            members = {"__call__": self.first, "__doc__": vars(own)["__doc__"], "__module__": own.__module__}
            kernel.__class__ = type(own.__name__, (own,), members)
        elif kernel is not None:
            type(kernel).__call__ = self.first  # type: ignore[method-assign]


class _ToPython:
    """What the last door hands calls on to: the kernel, which its doors do not keep alive."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: AnyKernel) -> None:
        self.kernel = weakref.ref(kernel)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kernel = self.kernel()
        assert kernel is not None  # whoever calls has it
        return Called.__call__(kernel, *args, **kwargs)


def _kind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What one door serves; None where none does."""
    found: list[Any] = []
    for value in args:
        array = value._array if type(value) is Buffer else value
        if type(array) is np.ndarray:
            if not whole(array):
                return None
            found.append((type(value), array.dtype, array.ndim, pattern_of(array)))
        elif type(value) in NUMBERS:
            found.append(type(value))
        else:
            return None
    if "out" in kwargs and type(kwargs["out"]) is not np.ndarray:
        return None
    return tuple(found), frozenset((name, type(value), value) for name, value in kwargs.items() if name != "out")


def _array_of(value: Any) -> Any:
    """The array that an argument is, or that a buffer holds; None for a number."""
    return value._array if type(value) is Buffer else value if isinstance(value, np.ndarray) else None


def _served(kernel: AnyKernel, args: tuple[Any, ...], parameters: Mapping[str, Any]) -> Specialisation | None:
    """What has served such a call."""
    kinds: list[Any] = []
    for value in args:
        array = _array_of(value)
        kinds.append(value if array is None else (DType.from_numpy(array.dtype), array.ndim))
    try:
        made = specialise(kernel, kinds, parameters)
    except EinkornError:  # `out=` told dtypes that nothing else tells
        return None
    return made if made.is_loaded and not made.late else None


def _caller(made: Specialisation, args: tuple[Any, ...]) -> Caller | None:
    """Whose code has read arrays that lie so."""
    caller = made.model._call
    arrays = map(_array_of, args)
    patterns = tuple(None if array is None else pattern_of(array) for array in arrays)
    return caller.known.get(patterns) if any(patterns) else caller


def variables(reads: Reads) -> tuple[list[tuple[dict[str, Any], str, Any]], list[tuple[Any, Any]]] | None:
    """The names that a program was made of, as doors compare them: members of classes are names of their dicts. None
    where one of them is inherited, or a variable was empty. Helpers are compared as variables that hold their code."""
    names, cells = list(reads.globals), list(reads.cells)
    for owner, name, value in reads.members:
        (members,) = (each for each in gc.get_referents(vars(owner)) if type(each) is dict)
        if name not in members:
            return None
        names.append((members, name, value))
    if any(not _holds(cell, value) for cell, value in cells):
        return None
    return names, [*cells, *reads.codes]


def _holds(cell: Any, value: Any) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:
        return False
