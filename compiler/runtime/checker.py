"""The checks of a simulated device's memory (see `simulation.shadow_memory`) as machine code."""

from __future__ import annotations

from ..codegen.llvm import compile_module
from ..simulation.shadow_memory import checker_text
from ..targets import Target


def checker_object(target: Target) -> bytes:
    """The code as a shared object."""
    return compile_module(checker_text(target), target, level=2).link("einkorn_checks.so")
