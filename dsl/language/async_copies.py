"""Declares what stands for copies that are under way: a token for one copy, a group for several, and barriers."""

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


class MBarrier:
    """A barrier in shared memory at which threads and copies arrive; or several of them."""

    def __getitem__(self, stage: object) -> MBarrier:
        """One of several."""
        raise NotImplementedError

    def arrive(self, cluster: bool = False) -> None:
        """Counts this thread, and goes on. What the thread has read and stored comes before what those do that have
        waited for the phase. With `cluster`, it is counted at the same barrier of each block of the cluster."""

    def wait(self, phase: object) -> None:
        """Waits until a phase has ended. Phases are counted from 0; -1 has ended from the beginning. The barrier is in
        that phase, or in the one behind it: hardware confuses others."""
