"""Begins collectives early and waits for them late, so that a rank computes while others are not there yet.

    a = f(x); y = allreduce(a)          a = f(x); parts = start_allreduce(a)
    b = g(x); z = h(y, b)               b = g(x); y = finish_allreduce(parts, a); z = h(y, b)

An exchange begins right after its tensor is computed, and is waited for right before the first op that reads its
result, or at the end of its body. All ranks begin their exchanges in the order in which the ops were staged, also with
those of `send`, `recv` and `barrier`, which stay where they are. Until the end both tensors lie in memory: the second
kernel reads them. Bits do not differ, and neither do the exchanges: ranks whose graphs differ elsewhere may be cut in
another way.

A collective stays one kernel where nothing is computed meanwhile but elementwise ops, which other kernels may compute
where they read; on GPUs, whose exchanges are waited for; and where its pieces do not lie together in memory.

See also `stdlib/kernels/collectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final

from ...dsl.contract.collective_names import PREFIX, SEPARATOR, is_collective
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.package.library import LoadedKernel
from ...dsl.types.dtype import DType
from ..driver.devices import DeviceRef
from ..ir import Carried, ConstantTensor, Control, GraphIR, Item, Node, begin_of
from ..renumbering import Rewriting
from ..types.dims import Dim
from ..types.tensor_type import ShapedType, TensorType
from .fold_constants import elements_of
from .merge_equal import own_memory
from .sink_moves import FactsOf

KernelOf = Callable[[str, str], LoadedKernel]  # of a family and a name

FAMILY: Final = "collectives"
MIN_BYTES: Final = 1 << 14  # of a tensor whose exchange is tested while others are computed, so that it goes on
HOST = DeviceRef.CPU()


def overlap(ir: GraphIR, kernel_of: KernelOf, facts_of: FactsOf) -> GraphIR:
    """The graph with collectives in two parts, where something is computed between them."""
    splits = _Finding(ir, facts_of).splits if any(map(_splittable, ir.nodes)) else []
    return _Splitting(ir, splits, kernel_of).run() if splits else ir


def _parameters(node: Node) -> dict[str, Any]:
    return dict(node.parameters)


def _kind(node: Node) -> str:
    return node.name.removeprefix(PREFIX)


def _splittable(item: Item) -> bool:
    """Whether a collective may have two parts."""
    if not isinstance(item, Node) or not is_collective(item.name) or not item.kernel.shipped:
        return False
    parameters = _parameters(item)
    if item.out_types[0].device != HOST or parameters.get("ranks", 1) == 1:
        return False
    if _kind(item) in ("reducescatter", "alltoall"):
        return bool(parameters["axis"] == 0)
    return _kind(item) in ("allreduce", "allgather")


def _has_two_steps(item: Item) -> bool:
    """Whether a collective exchanges pieces once more, after its first exchange; see `Exchange.GATHER_PIECES`."""
    return isinstance(item, Node) and item.name == f"{PREFIX}allreduce" and _parameters(item)["ranks"] > 2


@dataclass
class SplitCollective:
    """A collective in two parts.

    Attributes:
        number: of its node.
        start, end: after which entries of its body the parts stand; -1 for the beginning of the graph.
        tested: the entries between them after which the exchange is tested.
    """

    number: int
    start: int
    end: int
    tested: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class BodyEntry:
    """A node of a body, or a branch or loop with all that belongs to it: the numbers from `first` to `last`."""

    first: int
    last: int


class _Finding:
    """Finds the collectives that are cut, and where their parts stand.

    Attributes:
        splits: with numbers of nodes for `start`, `end` and `tested`.
    """

    def __init__(self, ir: GraphIR, facts_of: FactsOf) -> None:
        self.ir, self.facts_of = ir, facts_of
        self.makers = {value: number for number, item in enumerate(ir.nodes) for value in item.results}
        self.fixed = own_memory(ir)
        self.splits: list[SplitCollective] = []
        bodies: dict[int, list[BodyEntry]] = {}
        for number, item in enumerate(ir.nodes):
            if not isinstance(item, Carried):
                first = begin_of(item, ir.nodes) if isinstance(item, Control) else number
                bodies.setdefault(ir.regions.of[number], []).append(BodyEntry(first, number))
        for region, entries in bodies.items():
            if any(_splittable(ir.nodes[entry.last]) for entry in entries):
                self._body(region, entries)

    def _body(self, region: int, entries: list[BodyEntry]) -> None:
        """Finds those of one body. While this goes on, places are those of entries."""
        ready = {entry.last: k for k, entry in enumerate(entries)}  # by number of node, where its results are there
        found: list[SplitCollective] = []
        before = 0 if region else -1  # where the exchange before this one begins
        for k, entry in enumerate(entries):
            item = self.ir.nodes[entry.last]
            if not self._exchanges(entry):
                continue
            split = self._split(k, entries, ready, before) if _splittable(item) else None
            if split is not None and isinstance(item, Node):
                if _has_two_steps(item):
                    self._limit(found, item, split.end)
                found.append(split)
                ready[entry.last], before = split.end, split.start
                continue
            before = k
            if _has_two_steps(item) or isinstance(item, Control):
                self._limit(found, item, k - 1)
        numbers = {-1: -1, **{k: entry.last for k, entry in enumerate(entries)}}
        for split in found:
            tested = [numbers[k] for k in split.tested if split.start < k < split.end]
            self.splits.append(SplitCollective(split.number, numbers[split.start], numbers[split.end], tested))

    def _split(self, k: int, entries: list[BodyEntry], ready: dict[int, int], before: int) -> SplitCollective | None:
        """How the collective of an entry is cut; None where it stays one kernel."""
        number = entries[k].last
        node = self.ir.nodes[number]
        assert isinstance(node, Node)
        if _is_in_place(node) and not self.fixed.isdisjoint(node.results):
            return None
        start = max(before, ready.get(self.makers.get(node.operands[0], -1), before))
        later = (j for j in range(k + 1, len(entries)) if node.results[0] in self._read(entries[j]))
        end = next(later, len(entries)) - 1
        working = [j for j in range(start + 1, end + 1) if j != k and self._works(entries[j])]
        if not working:
            return None
        size = elements_of(self.ir.types[node.operands[0]])
        is_large = size is None or node.out_types[0].dtype.bytes_for(size) >= MIN_BYTES
        return SplitCollective(number, start, end, working if is_large else [])

    def _limit(self, found: list[SplitCollective], item: Item, end: int) -> None:
        """Lets what exchanges pieces once more do so before others of the same ranks do."""
        for split in found:
            other = self.ir.nodes[split.number]
            if _has_two_steps(other) and (isinstance(item, Control) or _group(other) == _group(item)):
                split.end = min(split.end, end)

    def _read(self, entry: BodyEntry) -> Iterator[int]:
        for item in self.ir.nodes[entry.first : entry.last + 1]:
            yield from getattr(item, "operands", ())
            for body in item.bodies if isinstance(item, Control) else ():
                yield from body.outputs

    def _exchanges(self, entry: BodyEntry) -> bool:
        items = self.ir.nodes[entry.first : entry.last + 1]
        return any(isinstance(item, Node) and is_collective(item.name) for item in items)

    def _works(self, entry: BodyEntry) -> bool:
        """Whether an entry takes time, and does so where it stands."""
        item = self.ir.nodes[entry.last]
        if isinstance(item, Control):
            return True
        if not isinstance(item, Node) or item.move:
            return False
        return is_collective(item.name) or not self.facts_of(self.ir, item).elementwise


def _group(item: Item) -> str:
    assert isinstance(item, Node)
    return str(_parameters(item)["what"]).split(SEPARATOR)[1]


def _is_in_place(node: Node) -> bool:
    """Whether what comes from the ranks is the result."""
    return _kind(node) == "alltoall" or (_kind(node) == "allgather" and _parameters(node)["axis"] == 0)


class _Splitting(Rewriting):
    pass_name = "overlap"

    def __init__(self, ir: GraphIR, splits: list[SplitCollective], kernel_of: KernelOf) -> None:
        super().__init__(ir)
        self.kernel_of = kernel_of
        self.dropped = {split.number for split in splits}
        self.after: dict[int, list[Callable[[], None]]] = {}
        self.parts: dict[int, tuple[int, int]] = {}  # by node, what comes from the ranks, and the number of the node
        makers = {value: number for number, item in enumerate(ir.nodes) for value in item.results}
        for split in splits:
            node = ir.nodes[split.number]
            assert isinstance(node, Node)
            self.dropped.add(makers[node.operands[-1]])
        self._place(splits)

    def _place(self, splits: list[SplitCollective]) -> None:
        """Says what stands behind which node: the ends of what has begun before, then what begins."""
        places = sorted({split.end for split in splits} | {split.start for split in splits})
        for place in places:
            ending = [split for split in splits if split.end == place and split.start < place]
            self.after[place] = [lambda split=split: self._finish(split) for split in ending]  # type: ignore[misc]
            for split in splits:
                if split.start == place:
                    self.after[place].append(lambda split=split: self._start(split))  # type: ignore[misc]
                    if split.end == place:
                        self.after[place].append(lambda split=split: self._finish(split))  # type: ignore[misc]
        for split in splits:
            for place in split.tested:
                self.after.setdefault(place, []).append(lambda split=split: self._test(split))  # type: ignore[misc]

    def rewrite(self, number: int, item: Item) -> None:
        if number == 0:
            self._emit(-1)
        if number in self.dropped:
            self.changed += 1
        else:
            self.keep(item)
        self._emit(number)

    def _emit(self, place: int) -> None:
        for add in self.after.get(place, ()):
            add()

    def _node(self, split: SplitCollective) -> Node:
        node = self.ir.nodes[split.number]
        assert isinstance(node, Node)
        return node

    def _add(self, split: SplitCollective, name: str, operands: tuple[int, ...], out: ShapedType) -> int:
        """Writes a part of a collective, which has those of its parameters that the part takes."""
        node, kernel = self._node(split), self.kernel_of(FAMILY, PREFIX + name)
        taken = {parameter.name for parameter in kernel.schema.parameters}
        parameters = tuple(pair for pair in node.parameters if pair[0] in taken)
        return self.add(Node(kernel, parameters, operands, (out,), (0,), node.place))[0]

    def _start(self, split: SplitCollective) -> None:
        node = self._node(split)
        constant = self.ir.nodes[self._maker_of_number(node)]
        assert isinstance(constant, ConstantTensor)
        (number,) = self.add(constant)
        x = self.values[node.operands[0]]
        kind = "alltoall" if _kind(node) == "reducescatter" else _kind(node)
        parts = self._add(split, f"start_{kind}", (x, number), self._parts_type(node))
        self.parts[split.number] = parts, number

    def _maker_of_number(self, node: Node) -> int:
        return next(number for number, item in enumerate(self.ir.nodes) if node.operands[-1] in item.results)

    def _parts_type(self, node: Node) -> ShapedType:
        """The type of what comes from all ranks."""
        x, result = self.ir.types[node.operands[0]], node.out_types[0]
        if _is_in_place(node):
            return result
        count, parameters = x.shape.num_elements, _parameters(node)
        ranks = parameters["ranks"]
        if _kind(node) == "allgather" or (_kind(node) == "allreduce" and ranks == 2):
            count = ranks * Dim(count)
        elif _kind(node) == "allreduce":
            known = elements_of(x)
            whole = known is not None and known <= parameters["small"]
            rest = ranks if known is not None else max(ranks, parameters["small"])
            count = ranks * Dim(count) if whole else Dim(count) + ranks * rest
        return TensorType(x.dtype, [count], x.device)

    def _finish(self, split: SplitCollective) -> None:
        node, (parts, number) = self._node(split), self.parts[split.number]
        operands = parts, self.values[node.operands[0]], number
        if _is_in_place(node):
            self._add(split, "wait", operands, TensorType(DType.int8, [0], HOST))
            self.replace(node, [parts])
        else:
            self.replace(node, [self._add(split, f"finish_{_kind(node)}", operands, node.out_types[0])])

    def _test(self, split: SplitCollective) -> None:
        self._add(split, "progress", self.parts[split.number][1:], TensorType(DType.int8, [0], HOST))
