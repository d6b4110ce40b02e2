"""The targets: `lookup("sm_90a")`, `host()`, `known()`, `fits("x86-64-v3")`.

One file a family, one record a target. An unknown name and a missing tool are different errors: the first is raised
here (EK0601), the second where the tool is needed (EK0602).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import TargetError, did_you_mean
from . import amdgcn, cpu, nvptx
from .base import FEATURES, Target
from .cpu import fits, host

__all__ = ["FEATURES", "Target", "fits", "host", "known", "lookup"]

_TARGETS = {**cpu.TARGETS, **nvptx.TARGETS, **amdgcn.TARGETS}


def known() -> tuple[str, ...]:
    """The names that `lookup` takes, CPUs first."""
    return ("host", *_TARGETS)


def lookup(name: str) -> Target:
    """The target of that name.

    Raises:
        TargetError: there is no such target; the nearest names and all names are in the message.
    """
    if name == "host":
        return host()
    if name in _TARGETS:
        return _TARGETS[name]
    raise TargetError(
        f"unknown target {name!r}",
        code="EK0601",
        got=name,
        expected=known(),
        notes=[f"known targets: {', '.join(known())}"],
        hint=did_you_mean(name, known()),
    )
