"""Counts what a thread of a kernel executes, from the machine code that nvdisasm shows.

The code of a kernel is a graph of blocks. A thread goes along the path that moves most data by wide accesses: where
the code tests alignment or the border of a tensor, that is the way of aligned data within; reports of failed checks
are on no such path, nor is what functions of the library compute for rare numbers. A loop that touches global memory
runs as often as a thread's share of the elements requires; of loops that ptxas has made of one loop of the source the
one that takes most at once counts. Other loops count as `trips` says, once by default.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Final

import einkorn.stdlib.math
from einkorn.compiler.targets.machine_code import INSTRUCTION, SOURCE_LINE

_LABEL: Final = re.compile(r"^(\.L_x?_?\w+|\$\S+):")
_SECTION: Final = re.compile(r"^\.text\.(\S+):")
_TARGET: Final = re.compile(r"`\((\.?[\w$.]+)\)")
_SHARED_WORK: Final = ("SHFL", "BAR", "LDS", "STS", "REDUX", "LDSM", "HMMA", "HGMMA", "UTCHMMA", "FFMA", "MUFU")
BULK: Final = {"UTMALDG": 1024, "UTMASTG": 1024, "UBLKCP": 1024}  # copies of many bytes: at least so many of a thread
_JOINS: Final = ("BSSY", "BSYNC")
_ENDS: Final = ("EXIT", "RET", "BSYNC", "BRX")
_RARE: Final = ("_exp_anywhere",)  # functions of stdlib.math that are called behind `if rare(...)`


def _rare_lines() -> frozenset[str]:
    """The lines of these functions: file:line."""
    found = set()
    for file in FilePath(einkorn.stdlib.math.__file__).parent.glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name in _RARE:
                found |= {f"{file.name}:{line}" for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return frozenset(found)


_RARE_LINES: Final = _rare_lines()


@dataclass(frozen=True)
class Instruction:
    """An instruction: the predicate it stands under, its name with suffixes, its operands, and a line of the source."""

    predicate: str
    name: str
    operands: str
    line: str

    @property
    def opcode(self) -> str:
        return self.name.split(".")[0]

    @property
    def bytes(self) -> int:
        """Of an access of memory by one thread."""
        for part in self.name.split("."):
            if part in ("U8", "S8"):
                return 1
            if part in ("U16", "S16"):
                return 2
            if part in ("64", "128", "256"):
                return int(part) // 8
        return 4

    @property
    def is_jump(self) -> bool:
        """Whether it leads to a label of its kernel. To leave some loops ptxas calls a label and does not return."""
        return self.opcode in ("BRA", "JMP") or (self.opcode == "CALL" and "`(.L_x_" in self.operands)

    @property
    def is_global(self) -> bool:
        return self.opcode in ("LDG", "STG", "LDGSTS")


@dataclass(eq=False)
class BasicBlock:
    """Instructions that run one after the other."""

    instructions: list[Instruction] = field(default_factory=list)
    after: list[BasicBlock] = field(default_factory=list)
    may_end: bool = False  # the kernel ends here, if only under a predicate


@dataclass(frozen=True)
class Path:
    """What is executed along a path: how often which instruction; `weight` says how much of the work it does."""

    counts: Mapping[str, float] = field(default_factory=dict)
    wide: float = 0  # bytes of accesses of 16 bytes and more
    moved: float = 0  # bytes of accesses of global memory
    shared_work: float = 0  # shuffles, barriers, accesses of shared memory
    rare: float = 0  # instructions for rare numbers

    def __add__(self, other: Path) -> Path:
        counts = dict(self.counts)
        for name, count in other.counts.items():
            counts[name] = counts.get(name, 0) + count
        work, rare = self.shared_work + other.shared_work, self.rare + other.rare
        return Path(counts, self.wide + other.wide, self.moved + other.moved, work, rare)

    def times(self, factor: float) -> Path:
        counts = {name: count * factor for name, count in self.counts.items()}
        work, rare = self.shared_work * factor, self.rare * factor
        return Path(counts, self.wide * factor, self.moved * factor, work, rare)

    @property
    def total(self) -> float:
        return sum(self.counts.values())

    @property
    def weight(self) -> tuple[float, float, float, float, float]:
        reports = self.counts.get("ATOMG", 0) + self.counts.get("ATOM", 0)
        return -reports - self.rare, self.wide, self.moved, self.shared_work, -self.total


def functions(text: str) -> dict[str, list[BasicBlock]]:
    """The blocks of each kernel in a text of nvdisasm, the first one first."""
    found: dict[str, list[BasicBlock]] = {}
    for name, lines in _sections(text):
        found[name] = _blocks(lines)
    return found


def _sections(text: str) -> Iterable[tuple[str, list[str]]]:
    name, lines = "", []
    for line in text.splitlines():
        if match := _SECTION.match(line):
            if name:
                yield name, lines
            name, lines = match[1], []
        elif name:
            lines.append(line)
    if name:
        yield name, lines


def _blocks(lines: list[str]) -> list[BasicBlock]:
    blocks, labels, place = [BasicBlock()], {}, ""
    for line in lines:
        if match := SOURCE_LINE.search(line):
            place = f"{match[1]}:{match[2]}"
        elif match := _LABEL.match(line):
            if blocks[-1].instructions:
                blocks.append(BasicBlock())
            labels[match[1]] = blocks[-1]
        elif match := INSTRUCTION.match(line):
            one = Instruction(match[2] or "", match[3], match[4], place)
            blocks[-1].instructions.append(one)
            if one.is_jump or one.opcode in _ENDS:
                blocks.append(BasicBlock())
    _connect(blocks, labels)
    return blocks


def _connect(blocks: list[BasicBlock], labels: Mapping[str, BasicBlock]) -> None:
    joins: dict[str, BasicBlock] = {}
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        for one in block.instructions:
            if one.opcode == "BSSY" and (match := _TARGET.search(one.operands)):
                joins[one.operands.split(",")[0]] = labels[match[1]]
        last = block.instructions[-1] if block.instructions else None
        falls = True
        if last is not None and last.is_jump:
            match = _TARGET.search(last.operands)
            conditional = last.predicate or re.match(r"!?U?P\d", last.operands)
            falls = bool(conditional) or ".DIV" in last.name
            if match and ".DIV" not in last.name:
                block.after.append(labels[match[1]])
        elif last is not None and last.opcode in ("EXIT", "RET", "BRX"):
            falls = bool(last.predicate)
            block.may_end = last.opcode == "EXIT"
        elif last is not None and last.opcode == "BSYNC" and (joined := joins.get(last.operands.strip())):
            falls = bool(last.predicate)
            block.after.append(joined)
        if falls and following is not None:
            block.after.append(following)


@dataclass(frozen=True)
class Share:
    """What a thread has to do: `elements` of `itemsize` bytes in each of `inputs` tensors; trips of other loops."""

    elements: float
    itemsize: int
    inputs: int = 1
    trips: float = 1


def executed(blocks: list[BasicBlock], share: Share) -> Path:
    """What a thread executes."""
    return _best(blocks, blocks[0], None, share, _loop_lines(blocks)) or Path()


def _loop_lines(blocks: list[BasicBlock]) -> dict[str, float]:
    """For each line of the source with global accesses in a loop, the most bytes of it in one such loop."""
    most: dict[str, float] = {}
    for loop in _innermost(blocks):
        own: dict[str, float] = {}
        for block in loop:
            for one in block.instructions:
                if one.is_global:
                    own[one.line] = own.get(one.line, 0) + one.bytes
        for line, size in own.items():
            most[line] = max(most.get(line, 0), size)
    return most


def _innermost(blocks: list[BasicBlock], head: BasicBlock | None = None) -> list[list[BasicBlock]]:
    """The loops without another one within, of these blocks, or of those of a loop with this head."""
    found = []
    for group in _components(blocks, head or blocks[0], head):
        if _is_loop(group, head):
            found += _innermost(group, group[-1]) or [group]
    return found


def _is_loop(group: list[BasicBlock], head: BasicBlock | None) -> bool:
    return len(group) > 1 or (group[0] in group[0].after and group[0] is not head)


def _best(
    blocks: list[BasicBlock], entry: BasicBlock, head: BasicBlock | None, share: Share, lines: Mapping[str, float]
) -> Path | None:
    """The heaviest path through these blocks from `entry`: to the end, or once round the loop with this head."""
    groups = _components(blocks, entry, head)
    group_of = {id(block): number for number, group in enumerate(groups) for block in group}
    best: list[Path | None] = []
    for number, group in enumerate(groups):
        followers = {group_of[id(b)] for block in group for b in block.after if b is not head and id(b) in group_of}
        ways = [path for way in followers - {number} if (path := best[way]) is not None]
        if any(head in block.after if head is not None else block.may_end or not block.after for block in group):
            ways.append(Path())
        if not ways:
            best.append(None)  # it leads out of the loop
            continue
        own = _loop(group, share, lines) if _is_loop(group, head) else _straight(group)
        best.append(own + max(ways, key=lambda path: path.weight))
    return best[group_of[id(entry)]]


def _loop(group: list[BasicBlock], share: Share, lines: Mapping[str, float]) -> Path:
    """All rounds of a loop."""
    once = _best(group, group[-1], group[-1], share, lines) or Path()
    if _innermost(group, group[-1]):
        return once
    own = [one for block in group for one in block.instructions if one.is_global]
    if not own:
        return once.times(share.trips)
    size: dict[str, float] = {}
    for one in own:
        size[one.line] = size.get(one.line, 0) + one.bytes
    if any(size[line] < lines.get(line, 0) for line in size):
        return Path()  # the rest of a loop that takes several elements at once
    stored = sum(one.bytes for one in own if one.opcode in ("STG", "ST"))
    loaded = sum(one.bytes for one in own if one.opcode not in ("STG", "ST"))
    each = (stored or loaded / share.inputs) / share.itemsize
    return once.times(share.elements / each)


def _straight(group: list[BasicBlock]) -> Path:
    counts: dict[str, float] = {}
    wide = moved = work = rare = 0
    for block in group:
        for one in block.instructions:
            if one.opcode == "NOP":
                continue
            counts[one.opcode] = counts.get(one.opcode, 0) + 1
            if one.opcode not in _JOINS:
                rare += one.line.rpartition("/")[2] in _RARE_LINES
            if one.is_global:
                moved += one.bytes
                wide += one.bytes if one.bytes >= 16 else 0
            elif one.opcode in BULK:
                wide += BULK[one.opcode]
            elif one.opcode in _SHARED_WORK and one.predicate != "@!PT":  # ptxas writes loads that are never done
                work += 1
    return Path(counts, wide, moved, work, rare)


def _components(blocks: list[BasicBlock], entry: BasicBlock, head: BasicBlock | None) -> list[list[BasicBlock]]:
    """Strongly connected groups of blocks, by Tarjan, without edges to `head`: each behind those that it leads to,
    its entry last."""
    members = {id(block) for block in blocks}
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[BasicBlock] = []
    open_ones: set[int] = set()
    groups: list[list[BasicBlock]] = []

    def visit(block: BasicBlock) -> None:
        index[id(block)] = low[id(block)] = len(index)
        stack.append(block)
        open_ones.add(id(block))
        for follower in block.after:
            if follower is head or id(follower) not in members:
                continue
            if id(follower) not in index:
                visit(follower)
                low[id(block)] = min(low[id(block)], low[id(follower)])
            elif id(follower) in open_ones:
                low[id(block)] = min(low[id(block)], index[id(follower)])
        if low[id(block)] == index[id(block)]:
            at = stack.index(block)
            group = stack[at:][::-1]
            del stack[at:]
            open_ones.difference_update(map(id, group))
            groups.append(group)

    visit(entry)
    return groups


def accesses(blocks: list[BasicBlock]) -> str:
    """The widths of global accesses in the code, in bits; copies in bulk have none."""
    code = [one for block in blocks for one in block.instructions]
    found = {(one.opcode, 8 * one.bytes) for one in code if one.is_global}
    bulk = {one.opcode for one in code if one.opcode in BULK}
    return ", ".join([*(f"{name} {bits}" for name, bits in sorted(found)), *sorted(bulk)])


def steady_loop(blocks: list[BasicBlock], opcode: str) -> Path:
    """One round of the innermost loop that has most of an instruction, along a path without loops.

    Loops within it have none of the instruction: they copy data that is not aligned.
    """
    rounds = []
    for loop in _around(blocks, opcode):
        inner = {id(block) for each in _innermost(loop, loop[-1]) for block in each}
        straight = [block for block in loop if id(block) not in inner]
        rounds.append(_best(straight, loop[-1], loop[-1], Share(1, 1), {}) or Path())
    return max(rounds, key=lambda path: (products(path, opcode), path.wide), default=Path())


def _around(blocks: list[BasicBlock], opcode: str, head: BasicBlock | None = None) -> list[list[BasicBlock]]:
    """The loops that have an instruction while no loop within them does."""
    found = []
    for group in _components(blocks, head or blocks[0], head):
        if _is_loop(group, head) and products(_straight(group), opcode):
            found += _around(group, opcode, group[-1]) or [group]
    return found


def products(path: Path, opcode: str) -> float:
    """How often an instruction is done; that for two at once (FFMA2) counts twice."""
    return path.counts.get(opcode, 0) + 2 * path.counts.get(f"{opcode}2", 0)
