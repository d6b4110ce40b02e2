"""Says what was fused into what, and of every edge between two kernels why it was not fused.

The reasons are those of `passes.fusion`, found once more: the decision is made again, and each test that stood in the
way is put into words.
"""

from __future__ import annotations

from collections.abc import Callable

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.places import Place, shown_path
from ..ir import GraphIR, Node
from .cut_products import product_before, why_whole
from .fusion import MAX_INLINE_COST, MAX_INLINE_DEPTH, MAX_RECOMPUTED_COST, UNBOUNDED, Facts, Fusion, Group, Partition
from .light_work import light_products
from .pass_summary import PREFIX


@dataclass(frozen=True)
class FusedOp:
    """An op of a kernel.

    `role` is "root" (its loops run), "read" (it is computed where the root reads), or "store" (it is done where the
    root stores). `node` is its number in the graph, `place` the line that staged it, `made_by` the pass over the graph
    that made it of another op, such as "pack_weights".
    """

    name: str
    node: int
    role: str
    place: Place | None = None
    made_by: str = ""

    def __str__(self) -> str:
        by = f", made by {PREFIX}{self.made_by}" if self.made_by else ""
        return f"{self.name}{f' ({shown_path(self.place.file)}:{self.place.line}{by})' if self.place else ''}"


@dataclass(frozen=True)
class Unfused:
    """An edge between two kernels: `reader` reads `value`, which `producer` has stored; `reason` says why."""

    producer: FusedOp
    reader: FusedOp
    value: int
    reason: str

    def __str__(self) -> str:
        return f"{self.reader} reads %{self.value} of {self.producer}: {self.reason}"


@dataclass(frozen=True)
class KernelSummary:
    """A kernel of a model: its ops in the order of the graph, and what it reads that other kernels have stored."""

    name: str
    ops: tuple[FusedOp, ...]
    unfused: tuple[Unfused, ...]

    def __str__(self) -> str:
        root = next(op for op in self.ops if op.role == "root")
        lines = [f"kernel {root}"]
        for role, text in (("read", "computes where it reads"), ("store", "does where it stores")):
            ops = [str(op) for op in self.ops if op.role == role]
            lines += [f"  {text}: {', '.join(ops)}"] * bool(ops)
        return "\n".join([*lines, *(f"  not fused: {edge}" for edge in self.unfused)])


def summarize(ir: GraphIR, parts: Partition, facts_of: Callable[[Node], Facts]) -> list[KernelSummary]:
    """A summary of each group of a partition, in the order in which they run."""
    reasons = _Reasons(ir, facts_of, True, parts.apart)
    if reasons.run() != parts:
        reasons.given = "nothing is fused: the graph is interpreted or checked for NaN"
    reasons.light = light_products(ir, facts_of) & parts.apart if parts.apart else parts.apart
    roles = [_roles(ir, group) for group in parts.groups]
    maker = {value: ops[n] for group, ops in zip(parts.groups, roles, strict=True) for value, n in _stored(ir, group)}
    results = []
    for group, ops in zip(parts.groups, roles, strict=True):
        edges = []
        for n, op in ops.items():
            for value in dict.fromkeys(reasons.origin(value, parts) for value in reasons.node(n).operands):
                producer = maker.get(value)
                if producer is not None and producer.node not in ops:
                    edges.append(Unfused(producer, op, value, reasons.reason(producer.node, n, group)))
        results.append(KernelSummary(ops[group.root].name, tuple(ops.values()), tuple(edges)))
    return results


def _stored(ir: GraphIR, group: Group) -> list[tuple[int, int]]:
    """The values that a group stores, each with the number of its node."""
    last = group.root if group.epilogue is None else group.epilogue
    return [(value, last) for value in ir.nodes[last].results]


def _roles(ir: GraphIR, group: Group) -> dict[int, FusedOp]:
    """The ops of a group by number of node."""
    results: dict[int, FusedOp] = {}
    made: set[int] = set()
    for n in group.nodes:
        node = ir.nodes[n]
        assert isinstance(node, Node)
        after = n != group.root and not made.isdisjoint(node.operands)
        made.update(node.results if after or n == group.root else ())
        role = "root" if n == group.root else "store" if after else "read"
        results[n] = FusedOp(node.name, n, role, node.place, node.made_by)
    return results


class _Reasons(Fusion):
    """Fusion that says why."""

    given = ""  # the one reason, where nothing was fused
    light: frozenset[int] = frozenset()  # products that do little of the work

    def origin(self, value: int, parts: Partition) -> int:
        """The value whose memory this one is."""
        return self._origin(value, set(parts.aliases))

    def reason(self, producer: int, reader: int, group: Group) -> str:
        """Why what `producer` gives is stored and read again by `reader`, which stands in this group."""
        first, second = self.node(producer).name, self.node(reader).name
        if self.given:
            return self.given
        if self.device(producer) != self.device(reader):
            return "they run on different devices"
        if self.regions.of[producer] != self.regions.of[reader]:
            return "they are in different control flow bodies"
        if product_before(self.ir, self.node(reader)) == producer and (why := why_whole(self.ir, self.node(reader))):
            return f"it is computed before it is exchanged: {why}"
        for number, name in ((producer, first), (reader, second)):
            if self.ir.ordered(self.node(number)):
                return f"'{name}' changes or reads a buffer, and runs when its turn comes"
        for number in (producer, reader, *self.readers[producer]):
            if number in self.apart:
                name = self.node(number).name
                if number in self.light:
                    return f"'{name}' does little of the graph's work: its code is shared by all that are alike"
                return f"'{name}' cannot be compiled together with other ops, and runs alone"
        if why := self._kept_for(producer):
            return why
        if not self.node(producer).kernel.schema.fuse:
            return f"'{first}' is registered with fuse=False"
        if not self.facts[producer].elementwise:
            stores = self._no_epilogue(group, producer)
            return f"no element of '{first}' can be computed alone, and {stores}"
        if self.weight[producer] > MAX_INLINE_COST:
            weight = self.weight[producer]
            return f"an element of '{first}' takes {weight} operations with all before it (over {MAX_INLINE_COST})"
        if self.depth[producer] > MAX_INLINE_DEPTH:
            return f"'{first}' is the last of {self.depth[producer]} kernels in a row (over {MAX_INLINE_DEPTH})"
        if producer in self.stored:
            return f"'{first}' is done in the stores of the kernel before it"
        return self._too_many_reads(producer)

    def _kept_for(self, producer: int) -> str:
        """Why else the result of a node has to lie in memory."""
        results = set(self.node(producer).results)
        if not results.isdisjoint(self.ir.outputs):
            return "it is an output of the graph"
        if any(step.value in results for step in self.ir.steps):
            return "sizes are read from it"
        return "" if results.isdisjoint(self.kept) else "control flow takes it"

    def _no_epilogue(self, group: Group, producer: int) -> str:
        """Why a group is not done in the stores of a producer."""
        node, root = self.node(producer), self.node(group.root)
        schema = node.kernel.schema
        if not self.facts[group.root].elementwise:
            return f"neither can one of '{root.name}'"
        if not schema.writes_once:
            return f"'{node.name}' does not promise to store each element once"
        if len(node.results) > 1:
            return f"'{node.name}' has several results"
        if self._is_meanwhile(producer, group.root):
            return f"'{node.name}' runs while a collective goes on"
        if len(self.readers[producer]) > 1:
            return f"{len(self.readers[producer])} ops read it, which do not all lead to '{root.name}' at one index"
        return f"'{root.name}' does not take just the element that '{node.name}' stores"

    def _too_many_reads(self, producer: int) -> str:
        """How dear it would be for the readers to compute elements themselves."""
        name, readers = self.node(producer).name, self.readers[producer]
        counts = {reader: self._reads(reader, producer) for reader in readers}
        most = max(readers, key=lambda reader: counts[reader])
        if counts[most] >= UNBOUNDED:
            return f"'{self.node(most).name}' reads elements of '{name}' again and again"
        loops = ", with a loop in each" if producer in self.loops else ""
        total, weight = sum(counts.values()), self.weight[producer]
        most = 4 * MAX_RECOMPUTED_COST
        return f"its elements are read {total} times at {weight} operations each{loops} (over {most} in all)"
