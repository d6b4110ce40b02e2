"""Describes GPUs that are simulated: kernels for them are run by the processor at hand, thread by thread.

    lookup("sim")             a GPU like sm_90a
    lookup("sim:gfx942")      one with 64 lanes
    lookup("sim:gfx942:checked")   one whose kernels report what they do with memory

See also `simulation.scheduler` (how threads are run), `graph.driver.simulated` (the device).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .base import GridOperations, Target, WarpOperations

PREFIX: Final = "sim"
CHECKED: Final = ":checked"  # how the names of those end that have their memory checked
LIKE: Final = "sm_90a"  # the GPU that is meant where none is given

# What the code generator uses: which instructions there are. Everything else is that of the GPU.
_OF_PROCESSORS: Final = frozenset({"fma", "f16c", "f16", "bf16", "bf16_convert", "bf16_dot", "ex2", "v_exp"})

_NOTHING: Final = GridOperations("", "", None, None, (), "", WarpOperations((), "", "", ""))


def simulated(like: Target, host: Target, *, checked: bool = False) -> Target:
    """The target of a simulated GPU; `checked` if its memory is."""
    return replace(
        host,
        name=f"{PREFIX}:{like.name}{CHECKED if checked else ''}",
        kind=PREFIX,
        capabilities=(like.capabilities - _OF_PROCESSORS) | (host.capabilities & _OF_PROCESSORS),
        lanes=like.lanes,
        limits=like.limits,
        grid=_NOTHING,
        simulates=True,
        checks_memory=checked,
    )
