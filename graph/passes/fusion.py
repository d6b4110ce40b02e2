"""Groups the nodes of a graph into kernels.

A value is *materialised* (it gets a buffer) or *inlined* into every kernel that reads it. A kernel can be inlined when
one of its elements can be computed alone; it is inlined when its readers read each element a bounded number of times
and computing it again is cheap enough. What is left are groups, each with one root whose loops run. Then, where a root
stores each element exactly once, and all that is made of it leads through one kernel that takes just that element, this
kernel moves into the root's stores (the epilogue).

    x -> mul -> add -> softmax -> relu          groups: {mul, add, softmax: root, relu: epilogue}

A kernel that is inlined stands in the group of every reader. What could be an epilogue is not inlined into several
groups: to keep its results costs no more than to keep those of the root.

    x -> matmul -> add -> {mean, sub}           groups: {matmul: root, add: epilogue}, {mean}, {sub}
    x -> matmul -> add -> gelu -> matmul        groups: {matmul: root, add, gelu: epilogue}, {matmul}

Neither does it cost more where one other group reads it, which may then read each element many times. On the way from a
root to its epilogue may stand *moves*: reshapes and permutes, after which an element only has another place.

A group runs on one device, and in one body of a branch or loop: kernels of two devices or bodies are never fused. What
a branch or loop takes, and what its bodies give back, is materialised. What changes or reads a buffer happens when its
turn comes: it is a root of its own, and never moves into a group that runs later. Tensors never change, so nothing else
has to keep an order but that of its operands.

What runs while a collective goes on stays there: it takes no epilogue that reads the collective's result.

Built-in and custom kernels are treated alike: the decision rests on `Facts`, which `compiler.inference.facts` finds by
evaluating the kernel, and on what its author promised in `@register`. Where the compiler then finds that it cannot
build a group, the graph retries with this group's root `apart`: what was to be fused with it forms groups of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Protocol

from ...dsl.contract.collective_names import is_end
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.signature.schema import Form
from ..driver.devices import DeviceRef
from ..ir import Control, GraphIR, Node
from ..types.dims import Shape
from ..types.tensor_type import BufferType
from .loads_in_place import Loads, Read

MAX_RECOMPUTED_COST = 6  # operations that may be done again for every reader
MAX_INLINE_COST = 400  # operations that one inlined element may take in all
MAX_INLINE_DEPTH = 24  # kernels that may be inlined into each other one behind the other
UNBOUNDED = 1 << 30


class Facts(Protocol):
    """What the compiler finds out about a kernel instance; see `compiler.inference.kernels.Facts`."""

    @property
    def elementwise(self) -> bool: ...
    @property
    def cost(self) -> int: ...
    @property
    def identity(self) -> tuple[bool, ...]: ...
    @property
    def loads(self) -> tuple[int, ...]: ...
    @property
    def loops(self) -> bool: ...
    @property
    def indexed(self) -> bool: ...


@dataclass(frozen=True)
class Unasked:
    """Stands for the facts of a kernel that nothing could be fused with."""

    elementwise: bool = False
    cost: int = 0
    identity: tuple[bool, ...] = ()
    loads: tuple[int, ...] = ()
    loops: bool = False
    indexed: bool = True


UNASKED: Final = Unasked()


@dataclass(frozen=True)
class Group:
    """Numbers of graph nodes in topological order, all of one device; the root among them, and the epilogue if any.

    `moves` are those from the root to its epilogue, itself included, that only change an element's place.
    """

    nodes: tuple[int, ...]
    root: int
    epilogue: int | None
    device: DeviceRef
    moves: tuple[int, ...] = ()


def make_group(ir: GraphIR, nodes: Iterable[int], root: int, epilogue: int | None = None) -> Group:
    """A group of these nodes, on the device of its root. Of an epilogue, the moves that lead to it are found here."""
    node = ir.nodes[root]
    assert isinstance(node, Node)
    members = tuple(nodes)
    moves = () if epilogue is None else tuple(n for n, member in _made_of(ir, members, root) if is_move(member))
    return Group(members, root, epilogue, ir.device_of(node), moves)


def _made_of(ir: GraphIR, members: Iterable[int], root: int) -> Iterator[tuple[int, Node]]:
    """What of a group's members is made of what its root stores, in topological order."""
    made = set(ir.nodes[root].results)
    for n in members:
        node = ir.nodes[n]
        assert isinstance(node, Node)
        if n != root and not made.isdisjoint(node.operands):
            made.update(node.results)
            yield n, node


@dataclass(frozen=True)
class Partition:
    """The groups in the order of the nodes that they store; one is in the body that this node is in.

    `aliases` are reshapes of materialised values, and loads of buffers that are read in place: they cost nothing.
    `controls` are the numbers of the branches and loops that are wanted. `apart` are nodes with which nothing was found
    to fuse: each is its own group.
    """

    groups: tuple[Group, ...]
    aliases: tuple[int, ...]
    controls: tuple[int, ...] = ()
    apart: frozenset[int] = frozenset()

    def roots(self, numbers: Iterable[int]) -> frozenset[int]:
        """The roots of those of the groups with these numbers that hold more nodes than the root."""
        groups = [self.groups[number] for number in numbers]
        return frozenset(group.root for group in groups if len(group.nodes) > 1)

    def text(self, ir: GraphIR) -> str:
        """A line for each group: its nodes, the root and the epilogue among them."""
        lines = []
        for number, group in enumerate(self.groups):
            roles = {group.root: " (root)", group.epilogue: " (epilogue)"}
            nodes = [f"{getattr(ir.nodes[n], 'name', '')}{roles.get(n, '')}" for n in group.nodes]
            lines.append(f"group {number} on {group.device}: {', '.join(nodes)}")
        return "\n".join(lines)


def partition(
    ir: GraphIR, facts_of: Callable[[Node], Facts], *, fuse: bool = True, apart: Collection[int] = ()
) -> Partition:
    """Groups the nodes of a graph. Dead nodes are left out. Without `fuse` every node is its own group, and so is one
    that is to be `apart`."""
    return Fusion(ir, facts_of, fuse, apart).run()


class Fusion:
    def __init__(self, ir: GraphIR, facts_of: Callable[[Node], Facts], fuse: bool, apart: Collection[int] = ()) -> None:
        self.ir = ir
        self.fuse = fuse
        self.apart = frozenset(apart)
        self.producer: dict[int, int] = {}
        self.nodes = {number: node for number, node in enumerate(ir.nodes) if isinstance(node, Node)}
        for number, node in enumerate(ir.nodes):
            for value in node.results:
                self.producer[value] = number
        self.regions = ir.regions
        self.kept = {*ir.outputs, *(step.value for step in ir.steps)}  # what has to lie in memory
        self.controls: list[int] = []
        self.live = self._live()
        # By node, what makes its operands: the number of an item, None for an input.
        self.makers = {n: tuple(map(self.producer.get, self.nodes[n].operands)) for n in self.live}
        self.places = {n: (self.device(n), self.regions.of[n]) for n in self.live}
        self.readers: dict[int, list[int]] = {n: [] for n in self.live}
        reading: set[int] = set()
        for n in self.live:
            for made_by in self.makers[n]:
                if made_by in self.readers:
                    reading.add(n)
                    if n not in self.readers[made_by]:
                        self.readers[made_by].append(n)
        # To find them takes as long as a quarter of a compilation, and those of a single node are not needed.
        needed = {n for n in self.live if fuse and (n in reading or self.readers[n])}
        self.facts: dict[int, Facts] = {n: facts_of(self.node(n)) if n in needed else UNASKED for n in self.live}
        self.materialised: set[int] = set()
        self.weight: dict[int, int] = {}
        self.depth: dict[int, int] = {}  # the longest chain of kernels before and including this one
        self.loops: set[int] = set()  # what has a loop in its element, of its own or of a kernel before it
        self.stored: set[int] = set()  # epilogues that several groups read
        self.stands: dict[int, set[int]] = {}  # the roots of the groups in which a kernel stands
        self.early: set[int] = set()  # what has to be computed before a store to the buffer that it reads
        self.exchanges = [  # by which node a collective is begun, and by which it is waited for
            (self.producer[self.node(n).operands[0]], n) for n in self.live if is_end(self.node(n).name)
        ]
        self.loads = Loads(ir, self.live if fuse else (), self._keeps)
        self.sources = {n for n in self.live if fuse and self._takes_epilogues(n)}

    def node(self, number: int) -> Node:
        return self.nodes[number]

    def device(self, number: int) -> DeviceRef:
        return self.ir.device_of(self.node(number))

    def _live(self) -> list[int]:
        wanted = set(self.ir.outputs)
        makers = {name: step.value for step in self.ir.steps for name in step.names}
        named = {name for type in self.ir.output_types for name in type.shape.parameters}
        named.update(n for c in self.ir.constraints for dim in (c.left, c.right) for n in dim.parameters)
        wanted.update(makers[name] for name in named if name in makers)
        live: list[int] = []
        changing = self._changing()
        for number in range(len(self.ir.nodes) - 1, -1, -1):
            node = self.ir.nodes[number]
            if isinstance(node, Control) and (number in changing or any(value in wanted for value in node.results)):
                self.controls.append(number)
                taken = {*node.operands, *(value for body in node.bodies for value in body.outputs)}
                self.kept |= taken
                wanted |= taken
            if not isinstance(node, Node):
                continue
            if self.ir.changes(node) or any(value in wanted for value in node.results):
                live.append(number)
                wanted.update(node.operands)
                shapes = (name for type in node.out_types for name in type.shape.parameters)
                wanted.update(makers[name] for name in shapes if name in makers)
        return live[::-1]

    def _changing(self) -> set[int]:
        """The branches and loops that change memory, for these run in any case."""
        results: set[int] = set()
        for number, node in enumerate(self.ir.nodes):
            region = self.regions.of[number]
            if isinstance(node, Node) and self.ir.changes(node):
                while region:
                    results.add(self.regions.owner[region])
                    region = self.regions.around(region)
        return results

    def run(self) -> Partition:
        settled = False
        while not settled:
            while self._decide():
                pass
            aliases = self._aliases()
            groups = [self._group(n) for n in self.live if n in self.materialised and n not in aliases]
            groups = self._with_epilogues(groups)
            settled = self._reads_in_time(groups, aliases)
        return Partition(tuple(groups), tuple(sorted(aliases)), tuple(sorted(self.controls)), self.apart)

    def _keeps(self, n: int, operand: int) -> bool:
        """Whether a node reads an operand at the index of its result only."""
        facts = self.facts[n]
        return facts.elementwise and facts.identity[operand]

    def _reads_in_time(self, groups: Iterable[Group], aliases: Collection[int]) -> bool:
        """Whether no store changes what a load gives before it is read.

        Where one does, a slice of the load is computed at its turn, or else the load copies.
        """
        early: set[int] = set()
        copied: set[int] = set()
        for value, load in self.loads.loads.items():
            for group in groups:
                time = group.root if group.epilogue is None else group.epilogue
                for read in self.loads.reads(value, group.nodes, group.root, aliases):
                    if not self.loads.is_late(load, read, time):
                        continue
                    alone = len(self.readers[load]) == 1 or is_slice(self.node(read.reader))
                    in_turn = Read(read.reader, self.loads.part_read(value, read.reader))
                    if alone and read.reader != time and not self.loads.is_late(load, in_turn, read.reader):
                        early.add(read.reader)
                    else:
                        copied.add(value)
        for value in copied:
            del self.loads.loads[value]
        self.early |= early
        return not early and not copied

    def _decide(self) -> bool:
        """What is materialised; whether more is known than before of what is done in a root's stores.

        Then the decision is made again: what reads a buffer weighs less.
        """
        known = len(self.stored)
        self.materialised = set(self.stored)
        for n in self.live:
            self._weigh(n)
        for n in reversed(self.live):
            self.stands[n] = set().union(*(self.stands[reader] for reader in self.readers[n]))
            if any(value in self.kept for value in self.node(n).results) or not self._may_inline(n):
                self.materialised.add(n)
                self.stands[n] = {n}
        return len(self.stored) > known

    def _weigh(self, n: int) -> None:
        """Operations for one element of `n`, and how deep kernels stand in it, if all before it that may is inlined.

        What has grown too heavy or too deep gets a buffer: for its readers it is a load.
        """
        facts = self.facts[n]
        weight, depth, loops = facts.cost, 1, facts.loops
        for k, made_by in enumerate(self.makers[n]):
            if made_by in self.weight and made_by not in self.materialised and k < len(facts.loads):
                # At one index an element is computed once, however often it is read.
                weight += (min(facts.loads[k], 1) if facts.identity[k] else facts.loads[k]) * self.weight[made_by]
                depth = max(depth, 1 + self.depth[made_by])
                loops = loops or made_by in self.loops
        (self.loops.add if loops else self.loops.discard)(n)
        self.weight[n], self.depth[n] = weight, depth
        alone = n in self.apart or n in self.early or self.ir.ordered(self.node(n))
        if alone or not self.fuse or not facts.elementwise or weight > MAX_INLINE_COST or depth > MAX_INLINE_DEPTH:
            self.materialised.add(n)

    def _may_inline(self, n: int) -> bool:
        """Whether every reader of `n` can compute its elements itself, at a fair price."""
        if n in self.materialised or any(not self._may_share(reader, n) for reader in self.readers[n]):
            return False
        if self._should_store(n):
            self.stored.add(n)
            return False
        loops = n in self.loops
        reads = sum(self._reads(reader, n) for reader in self.readers[n])
        return (
            reads <= 1
            or (not loops and reads * self.weight[n] <= 4 * MAX_RECOMPUTED_COST)
            or (not loops and self.weight[n] <= MAX_RECOMPUTED_COST and reads < UNBOUNDED)
        )

    def _should_store(self, n: int) -> bool:
        """Whether `n` is better done in the stores of the root before it than where it is read.

        It is, unless its reader can be done there, too; or it is a move that would scatter what lies side by side.
        """
        if not self.facts[n].elementwise or self._source_of(self._group(n)) is None:
            return False
        if len(self.stands[n]) > 1:
            return True
        readers = [self._group(root) for root in self.stands[n]]
        return not _scatters(self.node(n)) and all(self._source_of(reader) is None for reader in readers)

    def _may_share(self, one: int, other: int) -> bool:
        """Whether two kernels may stand in one group: what runs in a body is not mixed with what runs around it.

        Neither is that with which nothing was found to fuse.
        """
        if one in self.apart or other in self.apart:
            return False
        return self.places[one] == self.places[other]

    def _reads(self, reader: int, n: int) -> int:
        """How often `reader` computes an element of `n`; at its own index once, however many operands that is."""
        facts = self.facts[reader]
        reads = [(k, self._reads_of(reader, k)) for k, made_by in enumerate(self.makers[reader]) if made_by == n]
        alike = [count for k, count in reads if facts.elementwise and facts.identity[k]]
        return sum(count for _, count in reads) - sum(alike) + max(alike, default=0)

    def _reads_of(self, reader: int, operand: int) -> int:
        """How often `reader` computes an element of its operand."""
        facts, schema = self.facts[reader], self.node(reader).kernel.schema
        argument = schema.inputs[operand]
        if argument.form is Form.SCALAR and not facts.elementwise:
            return 1  # read once, before the kernel does anything
        promised = dict(schema.reads).get(argument.name, UNBOUNDED)
        if facts.elementwise:
            if facts.identity[operand]:
                return 1 if facts.loads[operand] else 0
            if promised < UNBOUNDED:
                return promised
            if facts.loops:
                return UNBOUNDED
            return facts.loads[operand] * self._spread(reader, operand)
        if not schema.fuse:
            return UNBOUNDED
        return promised

    def _spread(self, reader: int, operand: int) -> int:
        """A reader with more elements than its operand (a broadcast) reads each of them several times."""
        source = self.ir.types[self.node(reader).operands[operand]].shape
        result = self.node(reader).out_types[0].shape
        return 1 if _as_many(source, result) else 8

    def _aliases(self) -> set[int]:
        """Materialised reshapes of values that lie in memory anyway, and loads of buffers that are read in place.

        One that is an output gives its memory to what it is a reshape of, if that is neither an output nor given.
        """
        results: set[int] = set(self.loads.loads.values())
        outputs = set(self.ir.outputs)
        taken = set(self.kept)
        for n in self.live:
            node = self.node(n)
            if n not in self.materialised or n in self.early or not is_reshape(node):
                continue
            if node.results[0] in self.kept and node.results[0] not in outputs:
                continue  # control flow says where it lies
            if node.results[0] in outputs:
                origin = self._origin(node.operands[0], results)
                made_by = self.producer.get(origin)
                own = not isinstance(self.ir.types[origin], BufferType)
                if own and made_by in self.materialised and origin not in taken and not self.ir.steps:
                    taken.add(origin)
                    results.add(n)
                continue
            made_by = self.producer.get(node.operands[0])
            if self.ir.pattern(self._origin(node.operands[0], results)) is not None:
                continue  # its elements lie in another order
            if made_by is None or made_by in self.materialised or not isinstance(self.ir.nodes[made_by], Node):
                results.add(n)
        return results

    def _origin(self, value: int, aliases: set[int]) -> int:
        """The value whose memory this one is."""
        while (made_by := self.producer.get(value)) in aliases:
            assert made_by is not None
            value = self.node(made_by).operands[0]
        return value

    def _group(self, root: int) -> Group:
        """The root and everything that is inlined into it."""
        members: set[int] = set()

        def visit(n: int) -> None:
            members.add(n)
            for made_by in self.makers[n]:
                if made_by in self.facts and made_by not in self.materialised and made_by not in members:
                    assert made_by is not None
                    visit(made_by)

        visit(root)
        return make_group(self.ir, sorted(members), root)

    def _with_epilogues(self, groups: list[Group]) -> list[Group]:
        """Moves elementwise roots into the stores of the root before them, where that is sound."""
        by_root = {group.root: group for group in groups}
        gone: set[int] = set()
        for group in groups:
            source = self._source_of(group) if self.fuse else None
            if source is not None:
                before = by_root[source]
                gone.add(source)
                nodes = tuple(sorted({*before.nodes, *group.nodes}))
                by_root[group.root] = make_group(self.ir, nodes, before.root, group.root)
        return [by_root[g.root] for g in groups if g.root not in gone]

    def _source_of(self, group: Group) -> int | None:
        """The root that can do `group` in its stores, or None."""
        root = self.node(group.root)
        if not self.facts[group.root].elementwise:
            return None
        for candidate in self._sources_read(group):
            if not self._may_share(candidate, group.root):
                continue  # it would run elsewhere
            if self._is_meanwhile(candidate, group.root):
                continue
            made = self.node(candidate).out_types[0].shape
            if _as_many(made, root.out_types[0].shape) and self._leads_through(group, candidate):
                return candidate
        return None

    def _takes_epilogues(self, n: int) -> bool:
        """Whether a node may do what follows in its stores, whatever that is.

        One that is ordered would run later than its turn.
        """
        node = self.node(n)
        schema = node.kernel.schema
        if not (schema.writes_once and schema.fuse and len(node.results) == 1) or node.results[0] in self.kept:
            return False
        return not self.facts[n].elementwise and not self.ir.ordered(node)

    def _is_meanwhile(self, number: int, later: int) -> bool:
        """Whether a node runs while a collective goes on that is waited for before a later one."""
        return any(begin < number < end < later for begin, end in self.exchanges)

    def _sources_read(self, group: Group) -> list[int]:
        """The roots that the group reads and that take epilogues, latest first."""
        read = {made_by for n in group.nodes for made_by in self.makers[n] if made_by in self.sources}
        return sorted(read & self.materialised, reverse=True)

    def _leads_through(self, group: Group, source: int) -> bool:
        """Whether all that is made of `source` goes through the group's root, each element from one element.

        A member that reads `source` may stand in other groups, too; these read `source` then, so that it has to be
        stored. Nothing is in the way when each reader, of `source` and of what in the group depends on it, is a member.
        Up to a move elements are read at one index, from there on at another: no reader may read on both sides of it.
        """
        members = set(group.nodes)
        moved, count = {source: 0}, 0  # for each that depends on the source, how many moves are before it
        for n in group.nodes:
            node, facts = self.node(n), self.facts[n]
            operands = self.makers[n]
            before = {moved[made] for made in operands if made in moved}
            if not before:
                continue
            if before != {count}:
                return False
            if is_move(node):
                count += 1
            elif not all(same for made, same in zip(operands, facts.identity, strict=True) if made in moved):
                return False
            moved[n] = count
        return all(reader in members for n in moved if n != group.root for reader in self.readers[n])


def is_reshape(node: Node) -> bool:
    """Whether a node only gives its operand another shape."""
    return node.move == "reshape"


def is_slice(node: Node) -> bool:
    """Whether a node takes a part of its operand."""
    return node.move == "slice" and not node.is_store


def is_move(node: Node) -> bool:
    """Whether a node only gives each element another place."""
    return node.move in ("reshape", "permute")


def _scatters(node: Node) -> bool:
    """Whether elements that are neighbours before a node are none after it."""
    return node.move == "permute" and node.order[-1:] != (len(node.order) - 1,)


def _as_many(a: Shape, b: Shape) -> bool:
    if a == b:
        return True
    try:
        return bool(a.num_elements == b.num_elements)
    except GraphError:  # a number of elements that 64 bits do not hold, unless some size is 0
        return False
