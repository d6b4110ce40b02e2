"""Computes what depends on constants alone when a graph is loaded, and not at each call.

    exp(constant) * x        constant * x

The values are computed by the ops' own kernels, compiled for the graph's device, so no bit differs. Ops that only move
or create elements are folded where others read them that are; by themselves they cost less than the memory of their
results. What grows more than `MAX_GROWTH` times is computed at each call, and so is what fails: the call reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..ir import ConstantTensor, GraphIR, Held, Item, Node, is_transfer
from ..renumbering import Rewriting
from ..types.dims import StaticDim
from ..types.tensor_type import ShapedType, TensorType
from .merge_equal import is_seen, own_memory

Evaluate = Callable[[GraphIR], Sequence[np.ndarray[Any, Any]] | None]  # None where the values are not available

MAX_GROWTH: Final = 4  # times the elements that a node reads
MAX_SMALL: Final = 256  # elements that a result may always have
MAX_ELEMENTS: Final = 1 << 22  # of one result


def fold_constants(ir: GraphIR, evaluate: Evaluate) -> GraphIR:
    """The graph with what depends on constants alone computed."""
    wanted = computed_from(ir, (ConstantTensor,), _may_fold, _is_cheap)
    if not wanted:
        return ir
    part, values = part_of(ir, wanted)
    arrays = evaluate(part)
    return ir if arrays is None else _ConstantFolding(ir, dict(zip(values, arrays, strict=True))).run()


class _ConstantFolding(Rewriting):
    """Writes a graph with constants in place of the nodes that make these values."""

    def __init__(self, ir: GraphIR, arrays: dict[int, np.ndarray[Any, Any]]) -> None:
        super().__init__(ir)
        self.arrays = arrays

    def rewrite(self, number: int, item: Item) -> None:
        if not isinstance(item, Node) or item.results[:1] == () or item.results[0] not in self.arrays:
            return self.keep(item)
        (type,) = item.out_types
        assert isinstance(type, TensorType)
        array = self.arrays[item.results[0]]
        array.setflags(write=False)
        return self.replace(item, self.add(ConstantTensor(array, type, 0, item.place)))


def computed_from(
    ir: GraphIR,
    kinds: tuple[type[Held], ...],
    may: Callable[[GraphIR, Node], bool],
    is_free: Callable[[GraphIR, Node], bool],
) -> list[int]:
    """The values to compute when a graph is loaded.

    These are the values that the rest of the graph reads of nodes that depend on values of these kinds alone, as far as
    `may` allows. Nodes that are free are not worth it by themselves.
    """
    fixed = own_memory(ir)
    makers: dict[int, Item] = {item.results[0]: item for item in ir.nodes if isinstance(item, kinds)}
    useful: set[int] = set()  # values that take computing
    for item in ir.nodes:
        if not isinstance(item, Node) or not item.operands or not all(value in makers for value in item.operands):
            continue
        if fixed.isdisjoint(item.results) and may(ir, item):
            (result,) = item.results
            makers[result] = item
            if not useful.isdisjoint(item.operands) or not is_free(ir, item):
                useful.add(result)
    read = {
        value
        for item in ir.nodes
        for value in getattr(item, "operands", ())
        if not (isinstance(item, Node) and item.results and item.results[0] in makers)
    }
    return sorted(useful & {*read, *ir.outputs} - set(ir.outputs))


def creates(ir: GraphIR, node: Node) -> bool:
    """Whether a node makes several elements of single numbers, as a range does."""
    many = elements_of(node.out_types[0])
    return many is not None and many > 1 and all(elements_of(ir.types[value]) == 1 for value in node.operands)


def _is_cheap(ir: GraphIR, node: Node) -> bool:
    """Whether an element takes no longer to compute than to read."""
    moves = node.move in ("reshape", "permute", "broadcast", "slice", "copy")
    return moves or "cast" in node.kernel.schema.laws or creates(ir, node)


def _may_fold(ir: GraphIR, node: Node) -> bool:
    if (
        len(node.results) != 1
        or ir.ordered(node)
        or is_transfer(ir, node)
        or is_seen(node)
        or not isinstance(node.out_types[0], TensorType)
    ):
        return False
    made = elements_of(node.out_types[0])
    read = [elements_of(ir.types[value]) for value in node.operands]
    if made is None or any(count is None for count in read):
        return False
    return made <= MAX_ELEMENTS and made <= max(
        MAX_SMALL, MAX_GROWTH * max((n for n in read if n is not None), default=0)
    )


def elements_of(type: ShapedType) -> int | None:
    """The number of elements; None where it is not known."""
    count = 1
    for dim in type.shape:
        if not isinstance(dim, StaticDim):
            return None
        count *= int(dim)
    return count


def part_of(ir: GraphIR, values: Sequence[int]) -> tuple[GraphIR, Sequence[int]]:
    """The graph of these values, without inputs."""
    needed, numbers = list(values), set[int]()
    while needed:
        number = ir.makers[needed.pop()]
        if number not in numbers:
            numbers.add(number)
            needed += getattr(ir.nodes[number], "operands", ())
    writing = Rewriting(GraphIR("constants", (), (), ()))
    writing.changed = 1  # the items get other numbers
    for number in sorted(numbers):
        writing.keep(ir.nodes[number])
    return GraphIR("constants", (), tuple(writing.made), writing.new(values)), values
