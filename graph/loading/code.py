"""Loads a graph's code: its pieces go to the driver of the device that it runs on.

See also `loading.load` (where the files come from), `calling.call` (the memory of a call).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ...dsl.contract import abi
from ...dsl.contract.unit import Piece
from ...dsl.diagnostics.dataclass import dataclass
from ..driver.device import Code, CodeFile, Entry
from ..driver.devices import CPU, Device
from ..findings.prints import PrintOptions
from ..findings.reports import Report, read_reports
from ..passes.fusion import Partition
from ..passes.memory_plan import Plan


@dataclass(frozen=True)
class CompiledGraph:
    """What compilation made of a graph: its groups, the plan of its buffers, the pieces of its code, one a target."""

    parts: Partition
    plan: Plan
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class LoadedCode:
    """A graph's code on a device: the entry, the plan of its buffers, and what its reports mean.

    `tier` says where the code comes from, `abi` how it reports. `keep` is what has to live as long as the entry may be
    called; None when the entry is a Python function. `prints` say where `ops.print` shows tensors. With `waits` a call
    ends when its kernels have, so that what they report is raised there.
    """

    entry: Entry
    plan: Plan
    reports: tuple[Report, ...]
    tier: str
    keep: object = None
    device: Device = field(default_factory=CPU)
    prints: PrintOptions = field(default_factory=PrintOptions)
    abi: int = abi.ABI_VERSION
    waits: bool = False
    launching: Code | None = None  # where the entry launches kernels on the device, or takes memory of it for itself


def open_code(
    files: Sequence[CodeFile], device: Device, plan: Plan, tier: str, version: int = abi.ABI_VERSION
) -> LoadedCode:
    """Loads the pieces of a graph's code into a device.

    Raises:
        OSError: they cannot be loaded.
    """
    code = device.driver.load(files)
    launching = None if code.kernels is None and code.scratch is None else code
    reports = read_reports(code.reports)
    return LoadedCode(code.entry, plan, reports, tier, code.keep, device, abi=version, launching=launching)
