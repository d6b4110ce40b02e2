"""Lets groups that differ only in numbers share code: what are literals in them becomes what their calls pass.

A network has the same group many times, with another factor or bound in each. Code that loads the number from an
argument has the same bits as code that has it as a constant: the ops concerned compute with it as with any element.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..dsl.contract.groups import Numbering
from ..dsl.contract.unit import EntrySpec, FromNode, GroupSpec, Literal, NodeSpec, Operand, Passed
from ..dsl.types.dtype import DType

# Kernels that compute with a number as with any element, whatever it is. Not those of which a number that is known
# makes better code: the larger of two, a quotient.
_PLAIN = frozenset(["add", "sub", "mul", "equal", "not_equal"])
_SPREADING = frozenset(["broadcast_to"])  # what gives the number on
_TYPES = {DType.float32: "<f", DType.int64: "<q"}


@dataclass(frozen=True)
class Shared:
    """A group, and the numbers that its call passes."""

    group: Numbering
    passed: tuple[int, ...] = ()


def shared_groups(spec: EntrySpec) -> list[Shared]:
    """The groups of an entry; those that are equal but for numbers take these as arguments."""
    kinds: dict[str, list[tuple[int, ...]]] = {}
    whole = [_general(group) for group in spec.groups]
    for made in whole:
        if made is not None:
            kinds.setdefault(Numbering(spec, made[0]).key, []).append(made[1])
    found = []
    for group, made in zip(spec.groups, whole, strict=True):
        others = kinds[Numbering(spec, made[0]).key] if made is not None else []
        differing = [k for k, values in enumerate(zip(*others, strict=True)) if len(set(values)) > 1]
        general = _general(group, differing) if differing else None
        if general is None:
            found.append(Shared(Numbering(spec, group)))
        else:
            found.append(Shared(Numbering(spec, general[0]), general[1]))
    return found


def _general(group: GroupSpec, wanted: Sequence[int] | None = None) -> tuple[GroupSpec, tuple[int, ...]] | None:
    """A group whose literals are passed, and their bits; None where it has none that can be.

    Args:
        group: a group.
        wanted: which of these literals are passed; the others stay what they are.
    """
    numbers: list[int] = []
    nodes = []
    count = 0
    for number, node in enumerate(group.nodes):
        inputs: list[Operand] = []
        for operand in node.inputs:
            bits = _bits(operand) if _takes_any(group.nodes, number) else None
            if isinstance(operand, Literal) and bits is not None:
                if wanted is None or count in wanted:
                    operand = Passed(len(numbers), operand.dtype, operand.shape)
                    numbers.append(bits)
                count += 1
            inputs.append(operand)
        nodes.append(replace(node, inputs=tuple(inputs)))
    return (replace(group, nodes=tuple(nodes), passed=len(numbers)), tuple(numbers)) if numbers else None


def _bits(operand: Operand) -> int | None:
    """A literal's bits as a number of 64 bits; None of what is no literal, or of a dtype that cannot be passed."""
    if not isinstance(operand, Literal) or operand.dtype not in _TYPES:
        return None
    data = struct.pack(_TYPES[operand.dtype], operand.value)
    return int.from_bytes(data, "little", signed=operand.dtype is DType.int64)


def _takes_any(nodes: Sequence[NodeSpec], number: int) -> bool:
    """Whether a node, and each that it gives its operand on to, computes with a number as with any element."""
    name = nodes[number].kernel.schema.name
    if name in _PLAIN:
        return True
    if name not in _SPREADING:
        return False
    users = [
        k for k, node in enumerate(nodes) if any(isinstance(o, FromNode) and o.node == number for o in node.inputs)
    ]
    return all(_takes_any(nodes, user) for user in users)
