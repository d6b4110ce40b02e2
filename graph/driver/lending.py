"""Tracks whether memory that was handed out is still in use.

NumPy gives a view the innermost base array of the view's own class. The owner of the memory is of another class here,
so every view, buffer and DLPack export of a lent array keeps that array alive, and a weak reference to it shows whether
the memory is in use. No references are counted, so this holds in every version of Python.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from .device import Array


class _Owner(np.ndarray[Any, Any]):
    """An array that owns its memory."""


class Lender:
    """Memory for an array, and whether anything still uses it.

    Args:
        shape: the sizes of the array.
        dtype: its dtype in NumPy.

    Raises:
        MemoryError, ValueError: there is not enough memory.
    """

    __slots__ = ("_lent", "_owner")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._owner = _Owner(shape, dtype)
        self._lent: weakref.ref[Array] | None = None

    @property
    def own(self) -> Array:
        """The memory as an array that does not count as lent: for the holder of the `Lender` alone."""
        return self._owner.view(np.ndarray)

    @property
    def in_use(self) -> bool:
        """Whether the array that was lent last is alive, by itself or by a view of it."""
        return self._lent is not None and self._lent() is not None

    def lend(self) -> Array:
        """The array: the one that was lent last while it is in use, else a new one over the same memory."""
        array = None if self._lent is None else self._lent()
        return self._new() if array is None else array

    def lend_unused(self) -> Array | None:
        """A new array; None while the one that was lent last is in use."""
        lent = self._lent
        return self._new() if lent is None or lent() is None else None

    def _new(self) -> Array:
        array = self._owner.view(np.ndarray)
        self._lent = weakref.ref(array)
        return array
