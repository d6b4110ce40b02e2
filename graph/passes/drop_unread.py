"""Leaves out the nodes whose results nothing reads.

What changes memory, prints, or computes a size that is needed stays, with all that it reads. Branches and loops stay,
and so do weights: a model checks them by name. Calls check computed sizes, also of values that nothing reads: a node
with such a size stays where no other node has it. It is in no kernel.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir import Carried, Control, External, GraphIR, Item, Node
from ..renumbering import Rewriting
from ..types.dims import AlgebraicDim, Dim


def drop_unread(ir: GraphIR) -> GraphIR:
    """The graph without the nodes whose results nothing reads."""
    return _Dropping(ir).run()


class _Dropping(Rewriting):
    def __init__(self, ir: GraphIR) -> None:
        super().__init__(ir)
        self.stays = _read_items(ir)

    def rewrite(self, number: int, item: Item) -> None:
        if number in self.stays:
            self.keep(item)
        else:
            self.changed += 1


def _read_items(ir: GraphIR) -> set[int]:
    """The numbers of the items that stay."""
    read = {*ir.outputs, *ir.regions.given(), *(step.value for step in ir.steps)}
    stays = _with_operands(ir, read)
    if len(stays) == len(ir.nodes):
        return stays
    seen = {dim for type in ir.inputs for dim in type.shape}
    seen.update(dim for number in stays for dim in _dims(ir.nodes[number]))
    for item in ir.nodes:
        new = [dim for dim in _dims(item) if isinstance(dim, AlgebraicDim) and dim not in seen]
        seen.update(new)
        read.update(item.results if new else ())
    return _with_operands(ir, read)


def _dims(item: Item) -> list[Dim]:
    return [dim for type in item.out_types for dim in type.shape]


def _with_operands(ir: GraphIR, values: Iterable[int]) -> set[int]:
    """The numbers of the items that make these values, or always stay, with those that make their operands."""
    read, stays = set(values), set[int]()
    for number in range(len(ir.nodes) - 1, -1, -1):
        item = ir.nodes[number]
        always = isinstance(item, Control | Carried | External) or (isinstance(item, Node) and ir.changes(item))
        if always or not read.isdisjoint(item.results):
            stays.add(number)
            read.update(getattr(item, "operands", ()))
    return stays
