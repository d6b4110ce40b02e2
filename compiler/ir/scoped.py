"""Changes attributes of an object for a while: `with builder.scope(fastmath=frozenset()): ...`.

Everything that holds for a part of the work alone is changed so, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Scoped:
    """An object with attributes that a scope changes."""

    @contextmanager
    def scope(self, **changes: object) -> Iterator[None]:
        """Gives attributes other values until the end of the block, however that is left."""
        before = {name: getattr(self, name) for name in changes}
        for name, value in changes.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)
