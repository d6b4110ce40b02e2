"""Computes values as late as possible, so that fewer of them lie in memory at the same time.

    a = f(x); b = g(x); c = h(a); d = k(b, c)        a = f(x); c = h(a); b = g(x); d = k(b, c)

A node is moved in front of what first reads its result, where its operands are in memory until then anyway: they are
inputs, weights or constants, or are read later, too. Nodes that it alone reads are moved with it. So no value lives
longer than before. What reads or changes buffers keeps its turn with all that is computed of it, and so do branches,
loops and what lies in them. Small results are not worth it, and neither are moves, which take no memory of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..ir import Control, GraphIR, Held, Item, Node, begin_of
from ..renumbering import Rewriting
from .fold_constants import elements_of
from .merge_equal import own_memory

MAX_MOVED: Final = 16  # nodes that are moved because of one
MIN_BYTES: Final = 1 << 16  # of a result that is worth it


def schedule(ir: GraphIR) -> GraphIR:
    """The graph with its nodes in another order."""
    if len(ir.devices) > 1:
        return ir
    order = _Order(ir).order()
    return ir if order is None else _Scheduling(ir, order).run()


class _Scheduling(Rewriting):
    """Writes a graph in another order of its nodes."""

    def __init__(self, ir: GraphIR, order: Sequence[int]) -> None:
        super().__init__(ir)
        self.order = order
        self.changed = 1


class _Order:
    """Finds an order, from the last node to the first. Times are numbers of nodes: when a value is read, it is by the
    node of this number, or by one that is moved in front of it."""

    def __init__(self, ir: GraphIR) -> None:
        self.ir = ir
        self.first_read: dict[int, int] = {}
        self.last_read = dict.fromkeys((*range(len(ir.inputs)), *ir.outputs), len(ir.nodes))
        self.readers: dict[int, int] = {}
        self.movable: dict[int, Node] = {}  # by value, what makes it
        self.waiting: set[int] = set()  # values that are computed late
        ordered: set[int] = set()  # values that are read of buffers, and what is computed of them
        stays = {*own_memory(ir), *ir.outputs}
        self.work = [0]  # by time, how much runs before
        for number, item in enumerate(ir.nodes):
            self.work.append(self.work[-1] + (isinstance(item, Node | Control) and not _is_move(item)))
            for value in _read(item):
                self.readers[value] = self.readers.get(value, 0) + 1
            if isinstance(item, Held):
                self.last_read[item.results[0]] = len(ir.nodes)
            elif isinstance(item, Node) and item.results:
                if ir.ordered(item) or not ordered.isdisjoint(item.operands):
                    ordered.update(item.results)
                elif not ir.regions.of[number] and stays.isdisjoint(item.results):
                    self.movable.update(dict.fromkeys(item.results, item))

    def order(self) -> list[int] | None:
        """The numbers of the nodes in the order in which they are to stand; None where that is the one of before."""
        nodes = self.ir.nodes
        parts: list[tuple[int, bool, range]] = []  # when it is its turn, and what stays together: a node, or a loop
        end, moved = len(nodes), False
        while end > 0:
            number, item = end - 1, nodes[end - 1]
            begin = begin_of(item, nodes) if isinstance(item, Control) else number
            time = self._time(item, number)
            moved = moved or time > number
            parts.append((time, time == number, range(begin, end)))
            for inside in nodes[begin:end]:
                for value in _read(inside):
                    self.first_read[value] = min(self.first_read.get(value, time), time)
                    self.last_read[value] = max(self.last_read.get(value, time), time)
            end = begin
        if not moved:
            return None
        parts.sort(key=lambda part: (part[0], part[1], part[2].start))
        return [number for *_, numbers in parts for number in numbers]

    def _time(self, item: Item, number: int) -> int:
        """When an item runs: at its turn, or as late as its result is read."""
        if not isinstance(item, Node) or not item.results or item.results[0] not in self.movable:
            return number
        time = min((self.first_read[value] for value in item.results if value in self.first_read), default=number)
        if time > number + 1 and _is_large(item) and self.work[time] > self.work[number] + 1:
            moved: list[Node] = []
            if self._may_wait(item, time, moved):
                self.waiting.update(value for node in moved for value in node.results)
        return time if item.results[0] in self.waiting else number

    def _may_wait(self, node: Node, time: int, moved: list[Node]) -> bool:
        """Whether the operands of a node are there at a time anyway, or are computed of such as are by `moved`."""
        moved.append(node)
        return len(moved) <= MAX_MOVED and all(
            self.last_read.get(value, -1) >= time
            or (
                self.readers[value] == 1
                and (maker := self.movable.get(value)) is not None
                and len(maker.results) == 1
                and self._may_wait(maker, time, moved)
            )
            for value in node.operands
        )


def _is_large(node: Node) -> bool:
    """Whether the results of a node take memory, and more than little, as far as is known."""
    if _is_move(node):
        return False
    counts = [(type.dtype, elements_of(type)) for type in node.out_types]
    return any(count is None or dtype.bytes_for(count) >= MIN_BYTES for dtype, count in counts)


def _is_move(item: Item) -> bool:
    return isinstance(item, Node) and item.move in ("reshape", "permute", "broadcast", "slice")


def _read(item: Item) -> list[int]:
    """The values that an item reads by itself, those that its bodies give back among them."""
    if isinstance(item, Control):
        return [*item.operands, *(value for body in item.bodies for value in body.outputs)]
    return [*item.operands] if isinstance(item, Node) else []
