"""Defines the parts of a tensor of `einkorn.tensor`.

A tensor has a value, or a call that will give it one. Calls that are recorded hold the *values* of their operands where
these have one: what is written to a tensor later, which gives it another value, does not reach them.

See also `tensor` (what users see).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import CodeType
from typing import Any

from ...dsl.diagnostics.extension_points import ExtensionPoint
from ..driver.lending import Lender
from .kinds import TensorKind

# A call that has not run: the op with the kinds of its operands (a `patterns.Call`); its inputs, which are values and
# tensors that have none yet, then numbers; the user's line, by code and instruction of its frame; the length of
# the chain of pending calls that it ends; of a call with several results, weak references to their tensors. A plain
# tuple, for one is made for every op that is recorded.
Pending = tuple[Any, tuple[Any, ...], CodeType | None, int, int, tuple[Any, ...] | None]
MAX_CHAIN = 64  # a longer chain of calls runs


class Made:
    """Marks a tensor that was recorded and has run: `value` is what its call gave, whatever is written to it later."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class SharedStorage:
    """Marks a tensor over memory that others may write: it is read when an op is called, not later."""


class Fresh:
    """Marks a tensor whose value nothing else has used yet: it may be written in place."""


class Written(Made):
    """Marks a tensor that was written. Its memory is its own, and a `Lender` keeps track of what else uses it.

    `value` is what the tensor's call gave, as of `Made`; None of a tensor that was not recorded.
    """

    __slots__ = ("lender",)

    def __init__(self, value: Any, lender: Lender) -> None:
        super().__init__(value)
        self.lender = lender


SHARED = SharedStorage()
FRESH = Fresh()


def lent(tensor: Recorded) -> Any:
    """The value of a tensor that has one, for use beyond the current call: a later write leaves it as it is.

    Every use of a value that outlasts a call goes through here, but for that of a tensor whose `_pending` is None.
    """
    pending = tensor._pending
    if pending is FRESH:
        tensor._pending = None
    elif type(pending) is Written:
        return pending.lender.lend()
    return tensor._value


class Recorded:
    """The parts of a tensor.

    Attributes:
        _kind: dtype, sizes, device.
        _value: a NumPy array, or a `Buffer`; None before its call has run.
        _pending: the call that will compute the value, or the users of the value: a `Made`, `Written`, `SHARED`,
            `FRESH`, or None, where that is not known.
    """

    __slots__ = ("__weakref__", "_kind", "_pending", "_value")
    _kind: TensorKind
    _value: Any
    _pending: Any  # Pending | Made | Written | Shared | Fresh | None, or a state of `contexts`


FUNCTIONS: dict[str, Any] = {}  # ops on tensors by name
TENSOR: ExtensionPoint[Any] = ExtensionPoint("graph.eager.tensor", "Tensor")
_exported: dict[int, tuple[weakref.ref[Recorded], object]] = {}  # by identity: tensors compare element by element


def add_functions(functions: Mapping[str, object]) -> None:
    """Makes ops on tensors known by their names; files below those that define them find them so."""
    assert FUNCTIONS.keys().isdisjoint(functions)
    FUNCTIONS.update(functions)


def export(tensor: Recorded) -> None:
    """Marks a tensor as memory that others may write; calls that were recorded with it still get what its call gave."""
    pending, key = tensor._pending, id(tensor)
    if isinstance(pending, Made):
        _exported[key] = weakref.ref(tensor, lambda _: _exported.pop(key, None)), pending.value
    tensor._pending = SHARED


def result_of(tensor: Recorded) -> Any:
    """What the call of a tensor gave, whatever was written to the tensor later."""
    pending = tensor._pending
    if isinstance(pending, Made):
        return pending.value
    return _exported[id(tensor)][1] if id(tensor) in _exported else tensor._value
