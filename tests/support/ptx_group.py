"""Threads that run together, and how instructions become steps that all of them take at once.

    @step("add", "sub")
    def _sum(ins: Instruction, code: Code) -> Step: ...

The registers of a group are arrays of one value a thread, or one value for all; nothing changes an array in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from support.ptx_memory import UNSIGNED, Array, Slabs
from support.ptx_numbers import Type, type_of
from support.ptx_parse import Immediate, Instruction, Kernel, Operand, Register, Special, Symbol, Tuple, Variable

if TYPE_CHECKING:
    from support.ptx import Machine

Step = Callable[["Group"], None]
Source = Callable[["Group"], Array]

STEPS: dict[str, Callable[[Instruction, Code], Step]] = {}


def step(*names: str) -> Callable[[Callable[[Instruction, Code], Step]], Callable[[Instruction, Code], Step]]:
    """Registers the function that makes steps of these instructions."""

    def register(make: Callable[[Instruction, Code], Step]) -> Callable[[Instruction, Code], Step]:
        STEPS.update(dict.fromkeys(names, make))
        return make

    return register


@dataclass
class Group:
    """Threads at the same place: those of `threads`, or all if it is None."""

    machine: Machine
    threads: Any
    count: int
    values: dict[str, Array] = field(default_factory=dict)

    def take(self, values: Array) -> Array:
        """Of values for every thread those of the group."""
        return values if self.threads is None or np.ndim(values) == 0 else values[self.threads]

    @property
    def numbers(self) -> Any:
        """The numbers of the threads."""
        return self.machine.all_threads if self.threads is None else self.threads

    def spread(self, value: Array) -> Any:
        """One value a thread."""
        return np.broadcast_to(value, (self.count,))

    def part(self, mask: Any) -> Group:
        """The threads of the group for which the mask is true."""
        chosen = self.numbers[mask]
        values = {name: value if np.ndim(value) == 0 else value[mask] for name, value in self.values.items()}
        return Group(self.machine, chosen, len(chosen), values)


@dataclass
class Code:
    """What instructions request about their kernel: widths of registers, places of variables."""

    kernel: Kernel
    variables: dict[str, Variable]
    addresses: dict[str, int]  # of every variable within its space
    _widths: dict[str, int] = field(default_factory=dict)

    def width(self, name: str) -> int:
        if name not in self._widths:
            registers = self.kernel.registers
            actual = registers[name] if name in registers else registers.get(name.rstrip("0123456789"))
            assert actual is not None, f"{name} is not declared"
            self._widths[name] = actual
        return self._widths[name]

    def source(self, ins: Instruction, operand: Operand, kind: Type) -> Source:
        """Reads an operand as numbers of a type."""
        read = kind.read
        if isinstance(operand, Register):
            name = operand.name
            return lambda group: read(group.values[name])
        if isinstance(operand, Immediate):
            value = read(self.constant(operand.value, kind.bits))
            return lambda group: value
        if isinstance(operand, Special):
            special = operand.name
            return lambda group: read(group.take(group.machine.special(special)))
        if isinstance(operand, Symbol) and operand.name in self.addresses:
            address = read(self.constant(self.addresses[operand.name] + operand.offset, max(kind.bits, 32)))
            return lambda group: address
        raise ins.fail(f"operand {operand} is not known")

    def constant(self, value: int, bits: int) -> Array:
        if bits == 1:
            return np.bool_(value != 0)
        return UNSIGNED[bits](value & ((1 << bits) - 1))

    def target(self, ins: Instruction, operand: Operand, kind: Type) -> Callable[[Group, Array], None]:
        """Writes numbers of a type into an operand."""
        if operand is None:
            return lambda group, value: None
        if isinstance(operand, Register):
            name, width, into = operand.name, self.width(operand.name), kind.into

            def write(group: Group, value: Array) -> None:
                group.values[name] = into(value, width)

            return write
        raise ins.fail(f"{operand} cannot be written")


def written(operand: Operand) -> list[str]:
    """The registers of an operand."""
    if isinstance(operand, Register):
        return [operand.name]
    if isinstance(operand, Tuple):
        return [name for part in operand.parts for name in written(part)]
    return []


def apply(kind: str, function: Callable[..., Array], result: str = "") -> Callable[[Instruction, Code], Step]:
    """The step of an instruction that takes operands of one type and gives a result of the same or another one."""

    def make(ins: Instruction, code: Code) -> Step:
        to = code.target(ins, ins.operands[0], type_of(result or kind))
        sources = [code.source(ins, operand, type_of(kind)) for operand in ins.operands[1:]]
        if len(sources) == 1:
            (one,) = sources
            return lambda group: to(group, function(one(group)))
        if len(sources) == 2:
            one, two = sources
            return lambda group: to(group, function(one(group), two(group)))
        return lambda group: to(group, function(*[source(group) for source in sources]))

    return make


__all__ = ["STEPS", "Code", "Group", "Slabs", "Source", "Step", "apply", "step", "written"]
