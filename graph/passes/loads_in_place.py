"""Finds the loads of buffers that need no copy: what reads the result of such a load reads the buffer itself.

A load may be read in place where no store to the buffer runs between the load and a kernel that reads its result.
Groups run in the order of the nodes that store their results, so that the times of stores and reads are numbers of
nodes. A kernel in a loop that the load stands outside of reads again in each round: there stores count up to the loop's
end.

    cache[0] -> slice -> attention             the slice is computed where attention reads the buffer
    cache[1] = x                               a store to another part: not counted

Not counted are stores to parts that are known to be others than the part that is read, and stores in the other body of
a branch. A store may also write the elements that it reads, each from itself: `b[2] = b[2] * 2`.

Memory of two buffers is never the same: calls refuse inputs that overlap memory that is changed.

See also `fusion` (which kernels run when).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.signature.schema import Role
from ..ir import Branch, GraphIR, Node
from ..types.dims import Dim, Shape, StaticDim
from ..types.tensor_type import BufferType

Interval = tuple[int | None, int | None]  # from where to before where; None is not known
UNKNOWN: Final[Interval] = (None, None)
MOVES: Final = ("slice", "permute", "reshape")  # that take each element of their first operand once
WHOLE: Final = "whole"


@dataclass(frozen=True)
class SlicedAxis:
    """An axis of a part of a buffer: which axis of the buffer it is; element i is the one at `offset + step * i`."""

    of: int
    offset: int | None = 0
    step: int = 1


@dataclass(frozen=True)
class BufferPart:
    """A part of a buffer, as far as it is known.

    Attributes:
        intervals: along each axis of the buffer, where its elements lie.
        axes: the axes of the part in its present shape; none where these are not axes of the buffer.
    """

    intervals: tuple[Interval, ...]
    axes: tuple[SlicedAxis, ...]

    @classmethod
    def whole(cls, rank: int) -> BufferPart:
        return cls((UNKNOWN,) * rank, tuple(map(SlicedAxis, range(rank))))

    def is_apart(self, other: BufferPart) -> bool:
        """Whether two parts of one buffer are known to have no element in common."""
        return any(
            _is_below(one, another) or _is_below(another, one)
            for one, another in zip(self.intervals, other.intervals, strict=True)
        )


def _is_below(one: Interval, other: Interval) -> bool:
    return one[1] is not None and other[0] is not None and one[1] <= other[0]


@dataclass(frozen=True)
class Read:
    """A kernel reads a part of what a load gives.

    `reader` is the first node on the way: it reads the load's result, or a reshape of it that lies in memory. `paired`
    is whether the kernel is a store that writes the elements that the kernel reads, each from itself.
    """

    reader: int
    part: BufferPart
    paired: bool = False


@dataclass(frozen=True)
class _Store:
    number: int
    part: BufferPart


class Loads:
    """The loads of a graph that may be read in place.

    Args:
        ir: the graph.
        live: the numbers of the nodes that run.
        keeps: whether a node reads an operand at the index of its result only, given the numbers of the two.
    """

    def __init__(self, ir: GraphIR, live: Iterable[int], keeps: Callable[[int, int], bool]) -> None:
        self.ir = ir
        self.regions = ir.regions
        self.keeps = keeps
        self.makers = {value: n for n, node in enumerate(ir.nodes) for value in node.results}
        self.stores: dict[int, list[_Store]] = {}  # by buffer
        self.loads: dict[int, int] = {}  # by value that a load gives, the number of the load
        taken = {*ir.outputs, *ir.regions.given(), *(step.value for step in ir.steps)}
        taken.update(node.condition for node in ir.nodes if isinstance(node, Branch))
        for n in live:
            node = _node(ir, n)
            if is_load(ir, node) and taken.isdisjoint(node.results):
                self.loads[node.results[0]] = n
            for argument, value in zip(node.kernel.schema.inputs, node.operands, strict=True):
                if argument.role is Role.MUTABLE:
                    self.stores.setdefault(value, []).append(_Store(n, self._stored(node)))

    def is_late(self, load: int, read: Read, time: int) -> bool:
        """Whether a kernel that runs at this time may read something else than what was loaded."""
        outer = self.regions.of[load]
        loops = list(self.regions.loops(self.regions.of[time], outer))
        end = max([time, *loops])
        for store in self.stores.get(_node(self.ir, load).operands[0], ()):
            if not load < store.number <= end or store.part.is_apart(read.part):
                continue
            paired = read.paired and store.number == time
            if loops or not (paired or self._excluded(store.number, time, outer)):
                return True
        return False

    def reads(self, value: int, members: Sequence[int], root: int, aliases: Iterable[int]) -> list[Read]:
        """What a kernel of these nodes reads of the result of a load. `aliases` are reshapes that are not computed."""
        begin = {value}
        for n in sorted(aliases):
            if _node(self.ir, n).operands[0] in begin:
                begin.update(_node(self.ir, n).results)
        whole = BufferPart.whole(self.ir.types[value].rank)
        parts = {each: [(-1, whole if each == value else replace(whole, axes=()))] for each in begin}
        results = []
        for n in members:
            node = _node(self.ir, n)
            for k, operand in enumerate(node.operands):
                for first, part in parts.get(operand, ()):
                    reader = n if first < 0 else first
                    moves = not k and not node.is_store and node.move in MOVES
                    part = self._moved(node, part) if moves else part
                    if moves:
                        parts.setdefault(node.results[0], []).append((reader, part))
                    if not moves or n in (root, members[-1]):
                        results.append(Read(reader, part))
        paired = self._is_paired(value, members, root, begin)
        return [replace(read, paired=True) for read in results] if paired else results

    def part_read(self, value: int, reader: int) -> BufferPart:
        """The part of what a load gives that a node takes which reads it."""
        node, whole = _node(self.ir, reader), BufferPart.whole(self.ir.types[value].rank)
        moves = not node.is_store and node.move in MOVES and node.operands[0] == value
        return self._moved(node, whole) if moves else whole

    # *** parts ***

    def _moved(self, node: Node, part: BufferPart) -> BufferPart:
        """The part of a part that a move takes."""
        if node.move == "reshape":
            return replace(part, axes=())
        if node.move == "permute":
            return replace(part, axes=tuple(part.axes[axis] for axis in node.order) if part.axes else ())
        return self._sliced(node, part, self.ir.types[node.operands[0]].shape, node.out_types[0].shape)

    def _stored(self, node: Node) -> BufferPart:
        """The part of a buffer that a node changes."""
        shape = self.ir.types[node.operands[0]].shape
        whole = BufferPart.whole(len(shape))
        if not (node.is_store and node.move == "slice"):
            return whole
        return self._sliced(node, whole, shape, self.ir.types[node.operands[1]].shape)

    def _sliced(self, node: Node, part: BufferPart, shape: Shape, sizes: Shape) -> BufferPart:
        starts, steps = _numbers(node)
        if len(part.axes) != len(starts):
            return replace(part, axes=())
        intervals, axes = list(part.intervals), []
        for axis, start, step, size, dim in zip(part.axes, starts, steps, sizes, shape, strict=True):
            if start is not None and start < 0:
                start = start + int(dim) if isinstance(dim, StaticDim) else None
            if start is None or step == 0 or axis.offset is None:
                axes.append(SlicedAxis(axis.of, None))
                continue
            axes.append(SlicedAxis(axis.of, axis.offset + axis.step * start, axis.step * step))
            intervals[axis.of] = _within(intervals[axis.of], _interval(axes[-1], size))
        return BufferPart(tuple(intervals), tuple(axes))

    # *** stores that read what they write ***

    def _is_paired(self, value: int, members: Sequence[int], root: int, begin: Iterable[int]) -> bool:
        """Whether the root stores to the loaded buffer, each element being computed from itself alone."""
        store = _node(self.ir, root)
        buffer = _node(self.ir, self.loads[value]).operands[0]
        if members[-1] != root or not store.is_store or store.operands[0] != buffer:
            return False
        chosen: dict[int, object] = dict.fromkeys(begin, WHOLE)  # by value, what its elements are made of, in order
        for n in members[:-1]:
            node = _node(self.ir, n)
            ways = {self._kept(n, k, chosen[each], value) for k, each in enumerate(node.operands) if each in chosen}
            if ways:
                chosen.update(dict.fromkeys(node.results, ways.pop() if len(ways) == 1 else None))
        wanted = WHOLE if store.move == "copy" else self._selection(store, 2)
        return chosen.get(store.operands[1]) == wanted and chosen.keys().isdisjoint(store.operands[2:])

    def _kept(self, n: int, operand: int, chosen: object, loaded: int) -> object:
        """What the elements of a node's result are made of, in their order, where those of an operand are `chosen`."""
        node = _node(self.ir, n)
        if node.move == "reshape":
            return chosen
        if node.move == "slice" and not node.is_store:
            same = self.ir.types[node.operands[0]].shape == self.ir.types[loaded].shape
            return self._selection(node, 1) if chosen == WHOLE and same and not operand else None
        return chosen if self.keeps(n, operand) else None

    def _selection(self, node: Node, operands: int) -> object:
        """A key that slices of one buffer have in common if they take the same elements in the same order."""
        sizes = node.out_types[0].shape if node.out_types else self.ir.types[node.operands[1]].shape
        starts, steps = _numbers(node)
        return (*starts, *steps, *sizes, *map(self._origin, node.operands[operands:]))

    def _origin(self, value: int) -> int:
        """The value whose elements these are, behind reshapes."""
        while (number := self.makers.get(value)) is not None:
            node = self.ir.nodes[number]
            if not isinstance(node, Node) or node.move != "reshape":
                break
            value = node.operands[0]
        return value

    # *** control flow ***

    def _excluded(self, store: int, time: int, outer: int) -> bool:
        """Whether a store stands in the other body of a branch than a kernel, within an outer region."""
        own = set(self._around(self.regions.of[time], outer))
        for region in self._around(self.regions.of[store], outer):
            number = self.regions.owner[region]
            other = 2 * self.regions.first[number] + 1 - region
            if isinstance(self.ir.nodes[number], Branch) and other in own:
                return True
        return False

    def _around(self, region: int, outer: int) -> Iterator[int]:
        while region not in (outer, 0):
            yield region
            region = self.regions.around(region)


def _node(ir: GraphIR, number: int) -> Node:
    node = ir.nodes[number]
    assert isinstance(node, Node)
    return node


def is_load(ir: GraphIR, node: Node) -> bool:
    """Whether a node only reads a buffer."""
    return node.move == "copy" and bool(node.results) and isinstance(ir.types[node.operands[0]], BufferType)


def _numbers(node: Node) -> tuple[list[int | None], list[int]]:
    """The starts of a slice, None where they are known at run time, and its steps, 0 where they are."""
    parameters: Mapping[str, tuple[int, ...]] = dict(node.parameters)
    starts = parameters["starts"]
    given_at = parameters.get("given_at", (-1,) * len(starts))
    return [start if at < 0 else None for start, at in zip(starts, given_at, strict=True)], list(parameters["steps"])


def _interval(axis: SlicedAxis, size: Dim) -> Interval:
    """Where the elements of an axis of this size lie."""
    assert axis.offset is not None
    if not isinstance(size, StaticDim):
        return (axis.offset, None) if axis.step > 0 else (None, axis.offset + 1)
    last = axis.offset + axis.step * max(int(size) - 1, 0)
    return min(axis.offset, last), max(axis.offset, last) + 1


def _within(one: Interval, other: Interval) -> Interval:
    """What two intervals have in common, where one is a part of the other."""
    return other[0] if one[0] is None else one[0] if other[0] is None else max(one[0], other[0]), (
        other[1] if one[1] is None else one[1] if other[1] is None else min(one[1], other[1])
    )
