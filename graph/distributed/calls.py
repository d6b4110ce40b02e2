"""Runs the collectives of a model's calls: kernels report addresses and sizes, and the rank moves the memory.

A kernel of `stdlib/kernels/collectives.py` reports a text (the op, its group, its dtype and options), and five numbers:
the addresses of its output and its input, the elements of the input, the rows before its axis, and the number of the op
in its graph. Before the first call, the ranks of each group compare the collectives of their graphs.

See also `calling.call_reports` (where the reports come in).
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, KernelError, plural
from ...dsl.diagnostics.places import Place
from ...dsl.types.dtype import DType
from ..findings.reports import Report
from ..ir import ConstantTensor, GraphIR, Node
from . import collectives
from .communicator import CollectiveCall
from .failures import ranks_text
from .mesh import RankGroup, group_of
from .names import SEPARATOR, is_collective

OF_TWO: Final = ("send", "recv")  # which some ranks of a group have and others have not


@dataclass(frozen=True)
class Collective:
    """What a kernel reports of its collective.

    Attributes:
        op, group, dtype, option: as `ops.collectives.staged` joins them.
        numbers: of the five numbers, whether it is known when code is made, and it, or else its place among the values.
    """

    op: str
    group: str
    dtype: DType
    option: str
    numbers: tuple[tuple[bool, int], ...]

    @property
    def name(self) -> str:
        """As messages name it: "allreduce.sum"."""
        return f"{self.op}.{self.option}" if self.op in ("allreduce", "reducescatter") else self.op


class CollectiveCalls:
    """The collectives of one caller's graph, on the ranks of the thread that calls it."""

    def __init__(self, ir: GraphIR) -> None:
        self._ir = ir
        self._known: dict[int, Collective] = {}  # by the identity of the report, which the code keeps
        self._groups: dict[str, RankGroup] = {}
        self._places: dict[int, Place | None] = {}

    def take(self, report: Report, arguments: Any) -> None:
        """Makes one collective, of whose arguments there are bit patterns."""
        one = self._known.get(id(report))
        if one is None:
            one = self._known[id(report)] = collective_of(report)
        out_at, x_at, count, outer, site = (k if known else arguments[k] for known, k in one.numbers)
        group = self._groups.get(one.group)
        if group is None:
            group = self._first(one.group)
        dtype = one.dtype.to_numpy()
        details = f"{one.dtype}, {count} elements along {group.axis!r}"
        call = CollectiveCall(one.name, details if one.op != "barrier" else "", self._places.get(site))
        run(one, group, _array(x_at, dtype, count), out_at, outer, call)

    def _first(self, text: str) -> RankGroup:
        """The group of that text, whose ranks have compared their graphs."""
        group = group_of(text)
        if not self._groups:
            self._places = {site_of(self._ir, node): node.place for node in collectives_of(self._ir)}
        key = digest_of(self._ir, group)
        if key not in group.mesh.compared:
            compare_programs(self._ir, group, key)
            group.mesh.compared.add(key)
        self._groups[text] = group
        return group


def _array(address: int, dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
    size = count * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address & (1 << 64) - 1)
    return np.ctypeslib.as_array(memory).view(dtype)


def run(
    one: Collective, group: RankGroup, x: np.ndarray[Any, Any], out_at: int, outer: int, call: CollectiveCall
) -> None:
    """Makes a collective: reads `x` and writes what comes out to the address `out_at`."""
    ranks, count = group.communicator, x.size
    sizes = {"allgather": count * group.size, "reducescatter": count // group.size}
    out = _array(out_at, x.dtype, sizes.get(one.op, count))
    if one.op == "allreduce":
        collectives.allreduce(ranks, x, out, one.option, call)
    elif one.op == "reducescatter":
        collectives.reducescatter(ranks, x, out, one.option, outer, call)
    elif one.op == "allgather":
        collectives.allgather(ranks, x, out, outer, call)
    elif one.op == "alltoall":
        collectives.alltoall(ranks, x, out, outer, call)
    elif one.op == "broadcast":
        collectives.broadcast(ranks, x, out, int(one.option), call)
    elif one.op == "permute":
        pairs = [tuple(map(int, pair.split(">"))) for pair in one.option.split(",") if pair]
        collectives.permute(ranks, x, out, [(source, to) for source, to in pairs], call)
    elif one.op == "send":
        out[...] = x
        ranks.send(collectives.as_bytes(x), int(one.option), call)
    elif one.op == "recv":
        ranks.receive(collectives.as_bytes(out), int(one.option), call)
    else:
        assert one.op == "barrier", one.op
        collectives.barrier(ranks, call)


def collective_of(report: Report) -> Collective:
    """What the report of a kernel says."""
    places = itertools.count()
    text = "".join(part if isinstance(part, str) else f"@{next(places)}" for part in report.parts)
    op, group, dtype, option, *fields = text.strip().split(SEPARATOR)
    numbers = tuple((not field.startswith("@"), int(field.removeprefix("@"))) for field in fields)
    return Collective(op, group, DType[dtype], option, numbers)


def collectives_of(ir: GraphIR) -> list[Node]:
    """The collectives of a graph, in their order."""
    return [node for node in ir.nodes if isinstance(node, Node) and is_collective(node.name)]


def exportable(ir: GraphIR, reports: Sequence[Report]) -> Sequence[Report]:
    """The reports of a graph that is exported.

    Raises:
        GraphError: EK0866, a collective is among them.
    """
    op = next((report.op for report in reports if is_collective(report.op)), None)
    if op is None:
        return reports
    raise GraphError(
        f"graph '{ir.name}' cannot be exported: exported code has no ranks, and op '{op}' is a collective",
        code="EK0866",
        place=next((node.place for node in collectives_of(ir) if node.name == op), None),
        op=op,
        hint="export a package (.pkg), which programs in Python load on each rank",
    )


def site_of(ir: GraphIR, node: Node) -> int:
    """The number of a collective in its graph."""
    for item in ir.nodes:
        if isinstance(item, ConstantTensor) and item.result == node.operands[-1]:
            return int(item.array)
    return -1


def digest_of(ir: GraphIR, group: RankGroup) -> bytes:
    """What graphs with the same collectives over a group have in common."""
    lines = [f"{text} {', '.join(map(str, node.out_types))}" for node, text in _over(ir, group)]
    return hashlib.sha256("\n".join([group.text, *lines]).encode()).digest()[:16]


def _over(ir: GraphIR, group: RankGroup) -> Iterator[tuple[Node, str]]:
    """The collectives of a graph over a group, with what they report."""
    for node in collectives_of(ir):
        text = str(dict(node.parameters)["what"])
        op, name, *_ = text.split(SEPARATOR)
        if name == group.text and op not in OF_TWO:
            yield node, text


def compare_programs(ir: GraphIR, group: RankGroup, digest: bytes) -> None:
    """Compares the collectives of a graph over a group with those of the graphs of its other ranks.

    Raises:
        KernelError: EK0861, they differ.
    """
    nodes = [node for node, _ in _over(ir, group)]
    first = next((node.place for node in nodes), None)
    named = f"{ir.name} ({plural(len(nodes), 'collective')}" + (f", the first at {first})" if first else ")")
    mine = np.zeros(256, np.uint8)
    mine[:16] = np.frombuffer(digest, np.uint8)
    data = named.encode()[:240]
    mine[16 : 16 + len(data)] = np.frombuffer(data, np.uint8)
    everyone = np.empty((group.size, 256), np.uint8)
    call = CollectiveCall("the comparison of graphs", "", first)
    group.communicator.allgather(mine, everyone.reshape(-1), call)
    other = next((k for k in range(group.size) if bytes(everyone[k, :16]) != digest), None)
    if other is None:
        return
    names = [bytes(row[16:]).partition(b"\0")[0].decode(errors="replace") for row in everyone]
    raise KernelError(
        f"{ranks_text([group.ranks[group.rank]])} runs graph {names[group.rank]}, "
        f"and {ranks_text([group.ranks[other]])} runs graph {names[other]}, which has other collectives",
        code="EK0861",
        place=first,
        expected=names[group.rank],
        got=names[other],
        notes=[f"rank {rank} runs graph {name}" for rank, name in zip(group.ranks, names, strict=True)],
        hint="all ranks of a group build the same graph; what differs by rank comes in as elements, not as ops",
    )
