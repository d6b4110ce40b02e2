"""The doors there are: a row each, with the function that writes its text.

A door's file defines `ek_door`. See also `graph.calling.doors` (where the object is kept, and what its table holds).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...dsl.contract.doors import DoorSpec
from ...dsl.diagnostics.errors import TargetError
from ..codegen.llvm import compile_module
from ..targets import Target
from .python import PROBE, getter_text, python_text
from .torch import torch_text
from .torch_dispatch import dispatch_text as kernels_text
from .ufunc import dispatch_text, loop_text, moves_text
from .xla import xla_text

DOORS: Final[dict[str, Callable[[DoorSpec, Any], str]]] = {
    "python": python_text,
    "getter": lambda spec, form: getter_text(form),
    "torch": torch_text,
    "torch kernels": lambda spec, form: kernels_text(),
    "probe": lambda spec, form: PROBE,
    "xla": xla_text,
    "ufunc": lambda spec, form: loop_text(spec),
    "ufuncs": lambda spec, form: dispatch_text(form),
    "moves": lambda spec, form: moves_text(),
}

# How far LLVM goes with what loops, and with what is compiled once for all; with the others, which run straight on, it
# would take 20 ms for nothing.
LEVELS: Final = {"moves": 2, "torch kernels": 2}


def door_text(name: str, spec: DoorSpec, form: object) -> str:
    """The text of a door."""
    return DOORS[name](spec, form)


def door_object(name: str, text: str, target: Target) -> bytes:
    """The code of a door as a shared object.

    Raises:
        TargetError: EK0602 LLVM is not installed; EK0609 the target is not a host.
    """
    if target.system is None:
        raise TargetError(f"there are no doors for {target.name}", code="EK0609")
    return compile_module(text, target, level=LEVELS.get(name, 0)).link(f"einkorn_{name.replace(' ', '_')}.so")
