"""Leaves out the nodes whose results nothing reads.

What changes memory, prints, or computes a size that is needed stays, with all that it reads. Branches and loops stay,
and so do weights: a model checks them by name.

Input: a `GraphIR`. Output: the graph without unread nodes.
"""

from __future__ import annotations

from ..ir import Carried, Control, External, GraphIR, Item, Node
from ..renumbering import Rewriting


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
    stays: set[int] = set()
    for number in range(len(ir.nodes) - 1, -1, -1):
        item = ir.nodes[number]
        always = isinstance(item, Control | Carried | External) or (isinstance(item, Node) and ir.changes(item))
        if always or not read.isdisjoint(item.results):
            stays.add(number)
            read.update(getattr(item, "operands", ()))
    return stays
