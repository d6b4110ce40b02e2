"""Extension points: what a room uses of one that stands above it, found by its name at the first use.

    CALL: ExtensionPoint[Call] = ExtensionPoint("graph.interop.direct", "call")
    CALL.get()(kernel, args, kwargs)

A point is declared where it is used, with the type of what it gives. Its provider is imported under a shield, once. A
module that is not imported before it is needed, in the same room or below, is a point, too. docs/architecture.md lists
all points; a test compares.
"""

from __future__ import annotations

import sys
from typing import Any, Generic, TypeVar

from .installation import PACKAGE
from .shield import import_whole

T = TypeVar("T")


class ExtensionPoint(Generic[T]):
    """A function, a class or a module that another room provides.

    Args:
        provider: the module that has it, without the name of the package.
        name: its name there; "" for the module itself.
    """

    __slots__ = ("_found", "name", "provider")

    def __init__(self, provider: str, name: str = "") -> None:
        self.provider, self.name = provider, name
        self._found: T | None = None

    def get(self) -> T:
        """What the provider has; it is imported at the first use."""
        result = self._found
        return self._import() if result is None else result

    def get_if_loaded(self) -> T | None:
        """The same where something else has imported the provider; None where it is not loaded, or not yet whole."""
        if self._found is None:
            module = sys.modules.get(f"{PACKAGE}.{self.provider}")
            self._found = getattr(module, self.name, None) if self.name else module  # type: ignore[assignment]
        return self._found

    def within(self, module: str) -> Any:
        """A module of the provider, which is a package."""
        return import_whole(f"{PACKAGE}.{self.provider}.{module}")

    def _import(self) -> T:
        module: Any = import_whole(f"{PACKAGE}.{self.provider}")
        result: T = getattr(module, self.name) if self.name else module
        self._found = result
        return result
