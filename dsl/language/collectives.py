"""Declares what the threads of a warp do together: values go from lane to lane, and questions have one answer.

Lanes count along x, then y, then z of the block. The last warp of a block may be partial: the lanes that it lacks take
no part. All threads of the warp have to come to such a call together.

Input: nothing. Output: `warp`, which stands in `gpu`. Non-goals: no meaning in code; that is the compiler's.
"""

from __future__ import annotations

from typing import Any

from .stubs import named_namespace


@named_namespace("gpu.warp")
class warp:
    """The threads that run in lockstep: 32, or 64 on some targets of AMD's."""

    @staticmethod
    def shuffle_idx(v: Any, lane: Any) -> Any:
        """The value that lane number `lane` of the warp has as `v`; one's own if the warp has no such lane. `v` is a
        number, a vector, or a tuple or struct of these."""

    @staticmethod
    def shuffle_up(v: Any, n: Any) -> Any:
        """The value of the lane `n` before this one; one's own if there is none."""

    @staticmethod
    def shuffle_down(v: Any, n: Any) -> Any:
        """The value of the lane `n` behind this one; one's own if there is none."""

    @staticmethod
    def shuffle_xor(v: Any, mask: Any) -> Any:
        """The value of the lane whose number is this one's with the bits of `mask` turned over; one's own if there is
        none."""

    @staticmethod
    def broadcast(v: Any, lane: int = 0) -> Any:
        """The value of one lane, which is known at compile time, in all lanes."""

    @staticmethod
    def any(p: Any) -> Any:
        """Whether a Bool holds in one of the lanes."""

    @staticmethod
    def all(p: Any) -> Any:
        """Whether a Bool holds in every lane."""

    @staticmethod
    def ballot(p: Any) -> Any:
        """The lanes in which a Bool holds, as the bits of a UInt64."""
