"""Lists what a graph holds in the order of reading: bodies stand in the braces of their branch or loop."""

from __future__ import annotations

from collections.abc import Iterator

from ...dsl.diagnostics.dataclass import dataclass
from ..ir import Branch, Carried, ConstantTensor, Control, External, GraphIR, Item, Loop, Node, shown_array


@dataclass(frozen=True)
class OutlineLine:
    """A line of the outline.

    Attributes:
        kind: "input", "output", "op", "constant", "weight", "open" (a branch or loop), "else", "close" or "yield".
        depth: how many bodies are around it.
        name: what it says first.
        takes: the numbers of the values that it reads.
        gives: those of the values that it makes, with those that a loop carries.
        results: those of its results alone.
        node: its number among the graph's nodes.
    """

    kind: str
    depth: int
    name: str
    takes: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    node: int | None = None


def outline(ir: GraphIR) -> list[OutlineLine]:
    """The lines of a graph."""
    inputs = [
        OutlineLine("input", 0, f"input {number}", gives=(number,), results=(number,))
        for number in range(len(ir.inputs))
    ]
    outputs = [OutlineLine("output", 0, f"output {number}", takes=(value,)) for number, value in enumerate(ir.outputs)]
    members: dict[int, list[int]] = {}
    for number, region in enumerate(ir.regions.of):
        members.setdefault(region, []).append(number)
    return [*inputs, *_lines(ir, members, 0, 0), *outputs]


def _lines(ir: GraphIR, members: dict[int, list[int]], region: int, depth: int) -> Iterator[OutlineLine]:
    for number in members.get(region, ()):
        node = ir.nodes[number]
        if isinstance(node, Carried):
            continue  # drawn with its loop
        if not isinstance(node, Control):
            yield OutlineLine(_kind(node), depth, _name(node), _operands(node), node.results, node.results, number)
            continue
        carried = node.carried if isinstance(node, Loop) else ()
        yield OutlineLine("open", depth, node.name, node.operands, (*carried, *node.results), node.results, number)
        for k, body in enumerate(node.bodies):
            if k:
                yield OutlineLine("else", depth, "do" if isinstance(node, Loop) else "else", node=number)
            yield from _lines(ir, members, ir.regions.first[number] + k, depth + 1)
            if body.outputs:
                yield OutlineLine("yield", depth + 1, "yield", body.outputs, node=number)
        yield OutlineLine("close", depth, "end", node=number)


def _kind(node: Item) -> str:
    return "constant" if isinstance(node, ConstantTensor) else "weight" if isinstance(node, External) else "op"


def _name(node: Item) -> str:
    if isinstance(node, ConstantTensor):
        return f"constant {shown_array(node.array)}"
    return f"weight {node.name}" if isinstance(node, External) else getattr(node, "name", "")


def _operands(node: Item) -> tuple[int, ...]:
    return node.operands if isinstance(node, Node | Branch | Loop) else ()
