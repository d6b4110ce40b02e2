"""Finds targets by name: `lookup("sm_90a")`, `host()`, `known()`, and what runs here: `fits("x86-64-v3")`.

One file a family, one record a target; a family is known by its row in `_FAMILIES`. An unknown name and a missing tool
are different errors: the first is raised here (EK0601), the second where the tool is needed (EK0602).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.diagnostics.errors import PackageError, TargetError, did_you_mean
from . import amdgcn, cpu, nvptx, simulated
from .base import FEATURES, Target
from .cpu import host

__all__ = ["FEATURES", "Target", "architecture", "fits", "host", "known", "lacking", "lookup", "named", "newest_for"]

_FAMILIES = (cpu.TARGETS, nvptx.TARGETS, amdgcn.TARGETS)
_TARGETS = {name: target for family in _FAMILIES for name, target in family.items()}


def known() -> tuple[str, ...]:
    """The names that `lookup` takes, CPUs first; `sim:` before that of a GPU means one that is simulated."""
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
    family, _, like = name.partition(":")
    like, checked = like.removesuffix(simulated.CHECKED), like.endswith(simulated.CHECKED)
    if family == simulated.PREFIX and _is_gpu(like or simulated.LIKE):
        return simulated.simulated(_TARGETS[like or simulated.LIKE], host(), checked=checked)
    raise TargetError(
        f"unknown target {name!r}",
        code="EK0601",
        got=name,
        expected=known(),
        notes=[f"known targets: {', '.join(known())}"],
        hint=did_you_mean(name, known()),
    )


def newest_for(architecture: str) -> Target:
    """The target whose code is best on a device: that of its architecture, or the newest that it still runs. Newer GPUs
    of NVIDIA's run the PTX of older ones; AMD's run their own code alone.

    Raises:
        TargetError: EK0835 there is none.
    """
    known_so = architecture in _TARGETS and f"{architecture}a" not in _TARGETS
    if known_so or architecture.partition(":")[0] in ("host", simulated.PREFIX):
        return lookup(architecture)
    entry = nvptx.newest_for(architecture) or _TARGETS.get(architecture)
    if entry is not None:
        return entry
    raise TargetError(
        f"there is no target that makes code for {architecture}",
        code="EK0835",
        got=architecture,
        expected=known(),
        notes=[f"known targets: {', '.join(known())}"],
    )


def _is_gpu(name: str) -> bool:
    return name in _TARGETS and _TARGETS[name].has_grid


def named(target: Target) -> Target:
    """A target that means the same on every machine: for the one at hand, its best level.

    Raises:
        PackageError: EK0514, this machine has no level; EK0734, a simulated GPU has none.
    """
    if target.simulates:
        raise PackageError(
            f"packages hold no code for {target.name}, which this machine's processor simulates",
            code="EK0734",
            got=target.name,
            hint="build for the GPU itself: a session compiles a package's sources for a simulated one",
        )
    if not target.identity:
        return target
    level = cpu.best_level()
    if level is None:
        raise PackageError("this machine has no named level to build for", code="EK0514", got=target.name)
    return _TARGETS[level]


def architecture(name: str) -> str:
    """The architecture that code for the target `name` runs on; the name itself where there is no such target."""
    return _TARGETS[name].architecture if name in _TARGETS else name


def fits(name: str) -> bool:
    """Whether this machine can run code made for the target `name` in a process; False for unknown targets."""
    return name == "host" or not lacking(name)


def lacking(name: str, requirements: Sequence[str] = ()) -> tuple[str, ...]:
    """What this machine lacks to run code that was made for a named target and has further requirements.

    These are features in the words of /proc/cpuinfo, or names of targets; a target that cannot run here lacks itself.
    """
    here = cpu.machine()
    missing = cpu.lacking(_TARGETS[name], here) if name in _TARGETS else frozenset({name})
    further = {r for r in requirements if r not in here.flags and (r not in _TARGETS or lacking(r))}
    return tuple(sorted(missing | further))
