"""The debugger in an interpreted kernel.

`breakpoint()` opens what Python's own would: the debugger of the environment, or pdb, which then steps over the
interpreter's insides and stops on lines of kernels (and of the program around) only.
"""

from __future__ import annotations

import os
import pdb
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from .pointers import Array, InterpretedPointer, as_strided

KERNEL = f"{__name__.split('.')[0]}.kernel"  # what the functions of kernels have as their module
_INSIDES = tuple(f"{__name__.split('.')[0]}.{floor}." for floor in ("compiler", "graph", "dsl"))


class KernelDebugger(pdb.Pdb):
    """pdb that does not stop in the interpreter, nor in what the interpreter calls."""

    def stop_here(self, frame: FrameType) -> bool:
        caller: FrameType | None = frame
        while caller is not None:
            module = caller.f_globals.get("__name__", "")
            if module == KERNEL:
                break
            if module.startswith(_INSIDES):
                return False
            caller = caller.f_back
        return super().stop_here(frame)


def debugger() -> Callable[..., Any]:
    """What `breakpoint()` calls here; the frame that calls it is the one that is looked at."""
    chosen = os.environ.get("PYTHONBREAKPOINT", "")
    if sys.breakpointhook is not sys.__breakpointhook__ or chosen not in ("", "pdb.set_trace"):
        return sys.breakpointhook
    return KernelDebugger().set_trace


def tensor(pointer: InterpretedPointer, *dims: Any) -> Array:
    """A tensor as an array to look at."""
    memory, shape = pointer.memory, tuple(int(n) for n in dims)
    if memory.strides is not None:
        steps = tuple(stride * memory.data.itemsize for stride in memory.strides)
        return as_strided(memory.data[pointer.offset :], shape, steps)
    count = 1
    for n in shape:
        count *= n
    return memory.data[pointer.offset : pointer.offset + count].reshape(shape)
