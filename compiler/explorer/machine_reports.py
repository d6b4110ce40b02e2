"""Reports what a GPU of NVIDIA's executes for each line of a kernel: instructions, accesses, and registers in use.

Both texts of nvdisasm are read: one with lines of the source, one with the registers that are live at each instruction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import TargetError, plural
from ...dsl.diagnostics.places import is_shipped
from ..pipeline import Artifact
from ..targets.machine_code import (
    INSTRUCTION,
    KIND,
    SECTION,
    SOURCE_LINE,
    check_disassembly,
    disassemble,
    live_registers,
)
from ..targets.nvptx import assemble
from .listing import Spot, chains_of

_MEMORY = ("LDG", "STG", "LDS", "STS", "LDL", "STL", "LDGSTS", "LDSM", "STSM", "ATOM", "ATOMG", "ATOMS", "RED")
_PRODUCTS = ("HMMA", "IMMA", "DMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA")


@dataclass(frozen=True)
class MachineInstruction:
    """An instruction: its kernel and address, its name with suffixes, and the line of the source that it names."""

    place: tuple[str, str]
    name: str
    spot: Spot

    @property
    def access(self) -> str:
        """`LDG 128` of an access of memory; the name of a product of matrices; empty for all others."""
        opcode, *suffixes = self.name.split(".")
        if opcode in _PRODUCTS:
            return opcode
        if opcode not in _MEMORY:
            return ""
        bits = next((part for part in suffixes if part in ("64", "128", "256")), "")
        bits = bits or next((part[1:] for part in suffixes if part in ("U8", "S8", "U16", "S16")), "32")
        return opcode if opcode in ("LDSM", "STSM") else f"{opcode} {bits}"


def instructions(text: str) -> Iterator[MachineInstruction]:
    """The instructions of a text of nvdisasm with lines."""
    kernel, spot = "", ("", 0)
    for line in text.splitlines():
        if section := SECTION.match(line):
            kernel, spot = section[1], ("", 0)
        elif place := SOURCE_LINE.search(line):
            spot = place[1], int(place[2])
        elif instruction := INSTRUCTION.match(line):
            yield MachineInstruction((kernel, instruction[1]), instruction[3], spot)


def machine_reports(artifact: Artifact) -> dict[Spot, str]:
    """For each line of the author's what the machine code has for it; nothing where no tool shows machine code."""
    if artifact.target.kind != KIND:
        return {}
    try:
        check_disassembly(artifact.target)
    except TargetError:
        return {}
    cubin = assemble(artifact.asm, artifact.target)
    live = live_registers(cubin, artifact.target)
    authors = _authors(artifact)
    counted: dict[Spot, Counter[str]] = {}
    most: dict[Spot, int] = {}
    for instruction in instructions(disassemble(cubin, artifact.target)):
        spot = authors.get(instruction.spot)
        if spot is not None:
            counts = counted.setdefault(spot, Counter())
            counts["instructions"] += 1
            counts[instruction.access] += 1
            most[spot] = max(most.get(spot, 0), live.get(instruction.place, 0))
    return {spot: _sentence(counts, most[spot]) for spot, counts in sorted(counted.items())}


def _authors(artifact: Artifact) -> dict[Spot, Spot]:
    """The author's line of each line that code comes from: the innermost one, where only one calls it."""
    found: dict[Spot, set[Spot]] = {}
    for spots in chains_of(artifact):
        own = [spot for spot in spots if not is_shipped(spot[0])]
        if own:
            found.setdefault(spots[0], set()).add(own[0])
    return {spot: min(own) for spot, own in found.items() if len(own) == 1}


def _sentence(counts: Counter[str], registers: int) -> str:
    """`12 instructions (LDG 128, 2 STS 32), up to 34 registers live`."""
    names = sorted(name for name, count in counts.items() if count and name not in ("", "instructions"))
    accesses = ", ".join(name if counts[name] == 1 else f"{counts[name]} {name}" for name in names)
    total = plural(counts["instructions"], "instruction") + (f" ({accesses})" if accesses else "")
    return f"{total}, up to {plural(registers, 'register')} live"
