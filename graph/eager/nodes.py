"""Defines what a tensor of `einkorn.tensor` consists of, for those who record, run and make tensors.

A tensor has a value, or a call that will give it one. Calls that are recorded hold the *values* of their operands where
these have one: what is written to a tensor later, which gives it another value, does not reach them.

Input: nothing. Output: `Recorded`. Non-goals: what users see (see `tensor`).
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from .kinds import Kind

# A call that has not run: the op with the kinds of its operands (a `patterns.Call`); its inputs, which are values and
# tensors that have none yet, then numbers; the user's line as a frame tells it, by code and instruction; the length of
# the chain of pending calls that it ends; of a call with several results, weak references to their tensors. A plain
# tuple, for one is made for every op that is recorded.
Pending = tuple[Any, tuple[Any, ...], CodeType | None, int, int, tuple[Any, ...] | None]
DEEPEST = 64  # a longer chain of calls runs


class Made:
    """Marks a tensor that was recorded and has run: `value` is what its call gave, whatever is written to it later."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Shared:
    """Marks a tensor over memory that others may write: it is read when an op is called, not later."""


SHARED = Shared()


class Recorded:
    """The parts of a tensor.

    Attributes:
        _kind: dtype, sizes, device.
        _value: a NumPy array, or a `Buffer`; None before its call has run.
        _pending: the call that will give the value; a `Made`, `SHARED`, or None.
    """

    __slots__ = ("__weakref__", "_kind", "_pending", "_value")
    _kind: Kind
    _value: Any
    _pending: Any  # Pending | Made | Shared | None, or a state of `contexts`


FUNCTIONS: dict[str, Any] = {}  # ops on tensors by name: `operators` fills it, and files below it look there
CLASSES: list[Any] = []  # the class of tensors, which `tensor` puts there
