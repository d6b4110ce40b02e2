"""Declares the names for grids of threads: where a thread is, and how the threads of a block wait for each other.

Input: nothing. Output: `gpu`. Non-goals: no meaning in code; that is the compiler's.
"""

from __future__ import annotations

from typing import Any

from . import collectives
from .stubs import Namespace, namespace, value

__all__ = ["gpu"]


class Axes(Namespace):
    """A number for each axis of the grid."""

    x: Any
    y: Any
    z: Any


def _axes(name: str, doc: str) -> Axes:
    names = {axis: value(f"gpu.{name}.{axis}", f"{doc}, axis {axis}.") for axis in "xyz"}
    return Axes(**names, _name=f"'gpu.{name}'")


@namespace
class gpu:
    """What a thread of a grid knows of itself and of its block."""

    thread_idx = _axes("thread_idx", "The thread's index within its block")
    block_idx = _axes("block_idx", "The block's index within the grid")
    block_dim = _axes("block_dim", "Threads in a block")
    grid_dim = _axes("grid_dim", "Blocks in the grid")
    global_idx = _axes("global_idx", "`block_idx * block_dim + thread_idx`")

    warp = collectives.warp

    @staticmethod
    def uniform(value: Any, scope: str = "warp") -> Any:
        """The value, which the author promises to be equal in all threads of the scope: warp, block, cluster or grid.

        A condition on it may stand around a barrier, or around what the threads of a warp do together.
        """

    @staticmethod
    def barrier() -> None:
        """Waits until every thread of the block is here, and makes their stores to shared memory visible."""
