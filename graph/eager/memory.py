"""Hands out the memory of tensors, for reading, for writing in place, and to other libraries.

A tensor is written in place only where nothing else uses its memory: see `nodes.lent`.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ..driver.buffer import Buffer
from ..driver.devices import CPU
from ..driver.lending import Lender
from .contexts import RealizationState
from .nodes import FRESH, SHARED, Made, Recorded, Written, export, lent
from .realize import value_of


def value_now(tensor: Recorded) -> Any:
    """The value of a tensor, computed if need be."""
    pending = tensor._pending
    if isinstance(pending, RealizationState):
        if pending.ctx is None or id(tensor) not in pending.ctx._unrealized:
            _unanswerable(tensor)
        pending.ctx._realize_all()
    return value_of(tensor)


def _unanswerable(tensor: Recorded) -> NoReturn:
    raise GraphError(
        "a tensor has no value while its graph is built",
        code="EK0840",
        place=user_place(),
        hint="return it from the graph, and call the model",
    )


def value_lent(tensor: Recorded) -> Any:
    """The value of a tensor, which keeps its elements when the tensor is written."""
    value_now(tensor)
    return lent(tensor)


def buffer_of(tensor: Recorded) -> Buffer:
    """The memory of a tensor, which keeps its elements when the tensor is written."""
    return wrapped(value_lent(tensor))


def wrapped(value: Any) -> Buffer:
    """A value as a buffer."""
    return Buffer._wrap(value, CPU()) if isinstance(value, np.ndarray) else value


def on_host(value: Any) -> np.ndarray[Any, Any]:
    """The elements of a value as an array of the host."""
    return value if isinstance(value, np.ndarray) else value.to_numpy()


def elements_of(tensor: Recorded) -> np.ndarray[Any, Any]:
    """The elements of a tensor, to be read at once."""
    return on_host(value_now(tensor))


def exported(tensor: Recorded) -> Buffer:
    """Its memory for others, which may write it: calls that are recorded keep what it holds now."""
    value = value_now(tensor)
    if isinstance(value, np.ndarray) and tensor._pending is not SHARED:
        if not _is_alone(tensor, value):
            tensor._value = value.copy()
        export(tensor)
    return buffer_of(tensor)


def writable(tensor: Recorded) -> np.ndarray[Any, Any]:
    """The elements of a tensor, to be written: its own memory where nothing else uses that."""
    value = value_now(tensor)
    if not isinstance(value, np.ndarray):
        return np.array(value.to_numpy())
    pending = tensor._pending
    if pending is SHARED and value.flags.writeable:
        return value
    if _is_alone(tensor, value):
        return value
    lender = Lender(value.shape, value.dtype)
    array = tensor._value = lender.own
    np.copyto(array, value)
    tensor._pending = Written(pending.value if isinstance(pending, Made) else None, lender)
    return array


def _is_alone(tensor: Recorded, value: np.ndarray[Any, Any]) -> bool:
    """Whether nothing but a tensor uses its value."""
    pending = tensor._pending
    return (pending is FRESH and value.base is None) or (type(pending) is Written and not pending.lender.in_use)
