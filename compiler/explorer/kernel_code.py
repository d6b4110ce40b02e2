"""Reads the machine code of kernels: their instructions with jumps and the author's lines, and what launches take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import TargetError
from ...dsl.diagnostics.places import is_shipped
from ..pipeline import Artifact
from ..targets.machine_code import KIND, check_disassembly, disassemble, resources
from ..targets.nvptx import assemble
from .instruction_costs import NOTHING, Cost, amd, nvidia
from .listing import Spot, asm_lines, chains_of

_LABEL: Final = re.compile(r"^(\.?L\w+):")
_JUMP: Final = re.compile(r"\b(?:BRA|s_c?branch\w*)\b.*?(\.L\w+)")
_INSTRUCTION: Final = re.compile(r"^\s+(?:/\*[0-9a-f]{4,}\*/\s+)?(?:@!?U?P\w+\s+)?([A-Za-z][\w.]*)")
_ENDS: Final = ("BRA", "EXIT", "RET", "BRX", "JMP")
_CONDITION: Final = re.compile(r"BRA(?:\.\w+)*\s+!?U?P\d")
_METADATA: Final = ("name", "vgpr_count", "group_segment_fixed_size", "max_flat_workgroup_size")


@dataclass(frozen=True)
class Coded:
    """An instruction: its cost, where it jumps to, the author's line, and whether what follows it is not run next."""

    cost: Cost = NOTHING
    to: str = ""
    spot: Spot | None = None
    always: bool = False


@dataclass(frozen=True)
class KernelCode:
    """A kernel's instructions, the places of its labels among them, and what its launch takes."""

    name: str
    code: tuple[Coded, ...]
    labels: dict[str, int] = field(hash=False)
    registers: int
    shared: int
    threads: int


def kernel_codes(artifact: Artifact) -> Iterator[KernelCode]:
    """The kernels of an artifact; nothing where no tool shows machine code."""
    target = artifact.target
    if target.kind != KIND:
        yield from _of_amd(artifact)
        return
    try:
        check_disassembly(target)
    except TargetError:
        return
    cubin, about = assemble(artifact.asm, target), resources(artifact.asm, target)
    authors = _authors(artifact)
    text = disassemble(cubin, target)
    threads = {name: _threads(artifact.asm, name) for name in about}
    for part in re.split(r"^\.text\.", text, flags=re.M)[1:]:
        name = part.split(":", 1)[0]
        spot: Spot | None = None
        code: list[Coded] = []
        labels: dict[str, int] = {}
        for line in part.splitlines()[1:]:
            if place := re.search(r'//## File "([^"]*)", line (\d+)', line):
                spot = authors.get((place[1], int(place[2])))
            elif label := _LABEL.match(line):
                labels[label[1]] = len(code)
            elif "/*" in line and (one := _INSTRUCTION.match(line)) and one[1] != "NOP":
                jump = _JUMP.search(line)
                always = one[1].split(".")[0] in _ENDS and "@" not in line and not _CONDITION.search(line)
                code.append(Coded(nvidia(one[1]), jump[1] if jump else "", spot, always))
        if code and name in about:
            taken = about[name]
            yield KernelCode(name, tuple(code), labels, taken.registers, taken.shared, threads[name])


def _threads(ptx: str, kernel: str) -> int:
    """The threads of a block, as the PTX says them for a kernel."""
    match = re.search(rf"\.entry {re.escape(kernel)}\(.*?\.reqntid (\d+)(?:, (\d+))?(?:, (\d+))?", ptx, re.S)
    sizes = [int(size) for size in match.groups() if size] if match else [256]
    return math.prod(sizes)


def _of_amd(artifact: Artifact) -> Iterator[KernelCode]:
    """The kernels in the assembly of AMD's; what they take stands behind them, as metadata."""
    authors = _authors(artifact)
    about: dict[str, list[int]] = {}
    for entry in re.split(r"^  - \.agpr_count|^  - \.args", artifact.asm, flags=re.M)[1:]:
        given = {name: re.search(rf"\.{name}:\s+(\S+)", entry) for name in _METADATA}
        if (name := given["name"]) is not None:
            about[name[1]] = [int(each[1]) if each else 0 for key, each in given.items() if key != "name"]
    found: dict[str, tuple[list[Coded], dict[str, int]]] = {}
    code: list[Coded] = []
    labels: dict[str, int] = {}
    for line in asm_lines(artifact):
        start = re.match(r"^(\w+):", line.text)
        if start and start[1] in about:
            code, labels = found[start[1]] = [], {}
        elif label := _LABEL.match(line.text):
            labels[label[1]] = len(code)
        elif one := _INSTRUCTION.match(line.text):
            own = [authors[spot] for spot in line.spots[:1] if spot in authors]
            jump = _JUMP.search(line.text)
            always = one[1] in ("s_branch", "s_endpgm")
            cost = amd(one[1], artifact.target.lanes)
            code.append(Coded(cost, jump[1] if jump else "", own[0] if own else None, always))
    for kernel, (code, labels) in found.items():
        registers, shared, threads = about[kernel]
        if code:
            yield KernelCode(kernel, tuple(code), labels, registers, shared, threads)


def _authors(artifact: Artifact) -> dict[Spot, Spot]:
    """The author's line of each line that code comes from."""
    found: dict[Spot, Spot] = {}
    for spots in chains_of(artifact):
        own = [spot for spot in spots if not is_shipped(spot[0])]
        if own:
            found.setdefault(spots[0], own[0])
    return found
