"""Declares what the threads of a warp or of a block do together: values go from one to the other, or become one.

Lanes count along x, then y, then z of the block. The last warp of a block may be partial: the lanes that it lacks take
no part. All threads of the warp have to come to such a call together, as those of the block
have to come to one of `block`; or those that the bits of `mask` name, where it is given.
"""

from __future__ import annotations

from typing import Any

from .stubs import named_namespace, written


@named_namespace("gpu.warp")
class warp:
    """The threads that run in lockstep: 32, or 64 on some targets of AMD's."""

    @staticmethod
    def sync(mask: Any = None) -> None:
        """Waits until every lane of the warp is here, and shows them what each has stored."""

    @staticmethod
    def shuffle_idx(v: Any, lane: Any, mask: Any = None) -> Any:
        """The value that lane number `lane` of the warp has as `v`; one's own if the warp has no such lane. `v` is a
        number, a vector, or a tuple or struct of these."""

    @staticmethod
    def shuffle_up(v: Any, n: Any, mask: Any = None) -> Any:
        """The value of the lane `n` before this one; one's own if there is none."""

    @staticmethod
    def shuffle_down(v: Any, n: Any, mask: Any = None) -> Any:
        """The value of the lane `n` behind this one; one's own if there is none."""

    @staticmethod
    def shuffle_xor(v: Any, bits: Any, mask: Any = None) -> Any:
        """The value of the lane whose number is this one's with `bits` turned over; one's own if there is
        none."""

    @staticmethod
    def broadcast(v: Any, lane: int = 0, mask: Any = None) -> Any:
        """The value of one lane, which is known at compile time, in all lanes; it is one of those of `mask`."""

    @staticmethod
    def any(p: Any, mask: Any = None) -> Any:
        """Whether a Bool holds in one of the lanes."""

    @staticmethod
    def all(p: Any, mask: Any = None) -> Any:
        """Whether a Bool holds in every lane."""

    @staticmethod
    def ballot(p: Any, mask: Any = None) -> Any:
        """The lanes in which a Bool holds, as the bits of a UInt64."""

    @staticmethod
    def match(v: Any, mask: Any = None) -> Any:
        """The lanes that have the same bits as `v`, as those of a UInt64. `v` is a number or a vector."""

    @staticmethod
    def elect() -> Any:
        """True in one lane of the warp, the first."""

    @staticmethod
    @written
    def reduce(v: Any, monoid: Any, *, mask: Any = None) -> Any:
        """What a monoid makes of the values of all lanes, in every lane; they are joined in the order of the lanes.
        With `mask`, of the lanes that it names, one after the other."""

    @staticmethod
    @written
    def scan(v: Any, monoid: Any, *, exclusive: bool = False, mask: Any = None) -> Any:
        """What a monoid makes of the values of this lane and of those before it; of those before it alone, if
        `exclusive`. With `mask`, of those that it names."""


@named_namespace("gpu.block")
class block:
    """The threads of a block, which share memory and wait for each other."""

    @staticmethod
    @written
    def reduce(v: Any, monoid: Any) -> Any:
        """What a monoid makes of the values of all threads, in every thread: those of a warp are joined in the order of
        its lanes, then the warps in theirs."""

    @staticmethod
    @written
    def scan(v: Any, monoid: Any, *, exclusive: bool = False) -> Any:
        """What a monoid makes of the values of this thread and of those before it; of those before it alone, if
        `exclusive`."""

    @staticmethod
    @written
    def broadcast(v: Any, thread: int = 0) -> Any:
        """The value of one thread, which is known at compile time, in all threads of the block."""


@named_namespace("gpu.cluster")
class cluster:
    """The blocks of a cluster, which run at once: they wait for each other, and reach each other's shared memory."""

    @staticmethod
    def sync() -> None:
        """Waits until every thread of the cluster is here, and shows them what each has stored."""

    @staticmethod
    def peer(tensor: Any, rank: Any) -> Any:
        """A tensor of shared memory as another block of the cluster has it: block number `rank`, counted along x, then
        y, then z of the cluster. A `sync` stands in front of it, and one before that block ends."""
