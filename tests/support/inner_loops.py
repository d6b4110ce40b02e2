"""The innermost loops of x86-64 assembly, and what stands in them.

A loop is the text from a label to the last jump back to it within one function; it is innermost when no other begins in
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(r"^([.\w$@]+):")
_JUMP = re.compile(r"^j\w+\s+(\S+)$")
_SCALAR = re.compile(
    r"^v?(?:add|sub|mul|div|sqrt|min|max|round|rcp|rsqrt|fn?m(?:add|sub)\d*|u?comi|cmp\w*|cvt\w*2|cvtt?)s[sd](?:2\w*)?\b"
)
_PACKED_FLOAT = re.compile(
    r"^v?(?:add|sub|mul|div|sqrt|min|max|round|rndscale|cmp\w*|fn?m(?:add|sub)\d+)p[sd]\b|^v?cvt\w*(?:ps|dq|pd)"
)
_PACKED_INTEGER = re.compile(r"^v?p(?:add|sub|max|min|mul|sll|sra|srl|cmp|and|or|xor|blend)\w*\s.*%[xyz]mm")
_ZERO = re.compile(r"^v?p?xor\w*\s(%[xyz]mm\d+), \1(?:, \1)?$")  # how a register is cleared, for scalars too
_VECTOR = re.compile(r"%[xyz]mm\d+")


_SLOT = re.compile(r"-?\d*\(%rsp\b[^)]*\)|-?\d+\(%rbp\)")  # rbp with an index is any register, or an array's


@dataclass(frozen=True)
class Loop:
    """An innermost loop: the function that it is in, and its instructions."""

    function: str
    instructions: tuple[str, ...]

    @property
    def scalar(self) -> list[str]:
        """Floating-point arithmetic on one number at a time."""
        return [line for line in self.instructions if _SCALAR.match(line)]

    @property
    def packed(self) -> list[str]:
        """Arithmetic on vectors."""
        result = (_PACKED_FLOAT, _PACKED_INTEGER)
        return [line for line in self.instructions if not _ZERO.match(line) and any(p.match(line) for p in result)]

    @property
    def frame(self) -> list[str]:
        """Accesses to the function's frame."""
        return [line for line in self.instructions if _SLOT.search(line)]

    @property
    def kept(self) -> list[str]:
        """Operands that lie in the frame and do not change: written before the loop, and only read in it."""
        return [line for line in self.frame if self._is_kept(line)]

    @property
    def spills(self) -> list[str]:
        """Accesses to the frame by which something that changes goes through memory."""
        return [line for line in self.frame if not self._is_kept(line)]

    def _is_kept(self, line: str) -> bool:
        slot = _SLOT.search(line)
        assert slot is not None
        return not any(other.endswith(f", {slot[0]}") for other in self.instructions)

    @property
    def calls(self) -> list[str]:
        return [line for line in self.instructions if line.startswith("call")]

    @property
    def widths(self) -> set[str]:
        """The kinds of vector registers in the packed arithmetic: `x`, `y`, `z`."""
        return {name[1] for line in self.packed for name in _VECTOR.findall(line)}


def innermost_loops(assembly: str) -> list[Loop]:
    """All innermost loops, in the order of the text."""
    return [loop for name, lines in _functions(assembly) for loop in _loops_of(name, lines)]


def _functions(assembly: str) -> Iterator[tuple[str, list[str]]]:
    """Each function's name and its lines: labels with a colon, and instructions."""
    name, lines = "", list[str]()
    for raw in assembly.splitlines():
        line = raw.split("#")[0].strip()
        label = _LABEL.match(line)
        if label and not label[1].startswith(".L"):
            if lines:
                yield name, lines
            name, lines = label[1], []
        elif label:
            lines.append(f"{label[1]}:")
        elif line and not line.startswith("."):
            lines.append(re.sub(r"\s+", " ", line))
    if lines:
        yield name, lines


def _after_poll(lines: list[str], number: int) -> bool:
    """Whether a line is how a poll ends, which stands out of the way of loops: a jump back from there closes none."""
    while number > 0 and not lines[number].endswith(":"):
        if lines[number] == "callq ek.poll":
            return True
        number -= 1
    return False


def _loops_of(name: str, lines: list[str]) -> Iterator[Loop]:
    labels = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        jump = None if _after_poll(lines, number) else _JUMP.match(line)
        if jump and labels.get(jump[1], number + 1) <= number:
            ends[labels[jump[1]]] = number
    for first, last in ends.items():
        if not any(first < other <= last for other in ends):
            inside = tuple(line for line in lines[first : last + 1] if not line.endswith(":"))
            yield Loop(name, inside)
