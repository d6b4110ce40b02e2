"""Declares what stands for copies that are under way: a token for one copy, a group for several."""

from __future__ import annotations


class CopyToken:
    """A copy that `gpu.copy_async` has begun."""

    def wait(self) -> None:
        """Waits for every copy of this thread."""


class CopyGroup:
    """The copies of a thread between two calls of `gpu.commit`."""

    def wait(self, pending: int = 0) -> None:
        """Waits until at most the `pending` newest groups of this thread are under way. What was copied is then
        there for this thread; for the others of the block it is behind a barrier."""
