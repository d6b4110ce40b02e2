"""Declares the atomic operations: changes of an element as one step that no other thread comes between."""

from __future__ import annotations

from typing import Any

from .stubs import namespace, stub

__all__ = ["atomic", "atomic_add"]


@stub("rule")
def atomic_add(out: Any, index: Any, value: Any) -> None:
    """Adds to an element so that no addition from another thread is lost: `atomic.add` without its result."""


@namespace
class atomic:
    """One step each, whatever other threads do; `ordering` says what they see of the stores before it.

    `scope` says which threads it is one step to: those of the block, the cluster, the device, or of all the system.
    """

    @staticmethod
    def add(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """Adds to an element; gives the value before."""

    @staticmethod
    def sub(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """Subtracts from an element; gives the value before."""

    @staticmethod
    def min(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """Stores the smaller of an element and a value, as `min`; gives the value before."""

    @staticmethod
    def max(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """Stores the larger of an element and a value, as `max`; gives the value before."""

    @staticmethod
    def and_(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """Keeps the bits of an integer that a value has, too; gives the value before."""

    @staticmethod
    def or_(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """Sets the bits of an integer that a value has; gives the value before."""

    @staticmethod
    def xor(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """Turns over the bits of an integer that a value has; gives the value before."""

    @staticmethod
    def exchange(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """Stores a value; gives the value before."""

    @staticmethod
    def compare_exchange(
        target: Any, index: Any, expected: Any, desired: Any, ordering: str = "relaxed", scope: str = "device"
    ) -> Any:
        """Stores `desired` if the element is `expected`, bit by bit; gives the value before."""

    @staticmethod
    def load(target: Any, index: Any, ordering: str = "relaxed", scope: str = "device") -> Any:
        """The element, as some thread stored it as a whole."""

    @staticmethod
    def store(target: Any, index: Any, value: Any, ordering: str = "relaxed", scope: str = "device") -> None:
        """Stores the element as a whole."""
