"""Finds the communicator for each collective of a model's code, and makes the exchanges that Python has to make.

Kernels of `stdlib/kernels/collectives.py` call a function by its address (see `dsl.contract.exchange`). At first that
is `CollectiveCalls.exchange`: it finds the group of ranks. Before a group's first exchange, the ranks compare the
collectives of their graphs. Where the communicator has a native function, later calls go there, without Python.

See also `calling.call_reports` (through which native code comes here).
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from ...dsl.contract import abi
from ...dsl.contract.collective_names import SEPARATOR, is_collective, is_later_part
from ...dsl.contract.exchange import AT_ONCE, SLOT_SIZE, Exchange, ExchangeSlot, exchange_at
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, KernelError, plural
from ...dsl.diagnostics.places import Place
from ...dsl.types.dtype import DType
from ..driver.device import Driver
from ..driver.devices import DeviceRef
from ..findings.report_callbacks import EXCHANGE
from ..findings.reports import EXCHANGE_SITE, Report
from ..ir import ConstantTensor, GraphIR, Node
from ..types.tensor_type import ShapedType
from .communicator import Bytes, CollectiveCall, Communicator, DeviceExchange, NativeRanks, gather_records, native_of
from .device_exchanges import exchange_on_device
from .failures import ranks_text
from .mesh import RankGroup, group_of

RECORD_SIZE: Final = 256  # bytes that ranks compare of a graph: a digest, and the beginning of its name
ABANDON_SECONDS: Final = 0.5  # for which a call that has failed waits for what it has begun
OF_TWO: Final = ("send", "recv")  # which some ranks of a group have and others have not


@dataclass(frozen=True)
class Collective:
    """What the code of a collective says of it.

    Attributes:
        op, group, dtype, option: as `ops.collectives.staged` joins them.
    """

    op: str
    group: str
    dtype: DType
    option: str

    @property
    def name(self) -> str:
        """As messages name it: "allreduce.sum"."""
        return f"{self.op}.{self.option}" if self.op in ("allreduce", "reducescatter") else self.op

    def details(self, axis: str) -> str:
        """What all ranks have to agree on; "{}" stands for the number of elements."""
        return "" if self.op == "barrier" else f"{self.dtype}, {{}} elements along {axis!r}"

    def pairs(self, rank: int) -> list[tuple[int, int]]:
        """The senders and the receivers; of a send or a receive the pair that this rank is in."""
        if self.op == "send":
            return [(rank, int(self.option))]
        if self.op == "recv":
            return [(int(self.option), rank)]
        if self.op != "permute":
            return []
        pairs = (pair.split(">") for pair in self.option.split(",") if pair)
        return sorted((int(source), int(to)) for source, to in pairs)


class CollectiveCalls:
    """The collectives of one caller's code, on the ranks of the thread that calls it.

    Attributes:
        address: where the slots of its reports lie, for `abi.Context.collectives`.
    """

    def __init__(self, ir: GraphIR, reports: Sequence[Report], driver: Driver) -> None:
        self._ir, self._driver = ir, driver
        self._known = {k: collective_of(each) for k, each in enumerate(reports) if each.kind == EXCHANGE_SITE}
        self._groups: dict[str, RankGroup] = {}
        self._places: dict[int, Place | None] = {}
        self._open: dict[int, Callable[[], None]] = {}  # by where their results come, what waits for what was begun
        self._slots = (ExchangeSlot * len(reports))()
        self._texts: list[Any] = []  # kept: slots hold their addresses
        self.address = ctypes.addressof(self._slots)
        for number in self._known:
            self._slots[number].function = EXCHANGE

    def exchange(self, context: int, slot_at: int, kind: int, to: int, source: int, size: int, *numbers: int) -> int:
        """Makes one exchange: 0, or another number where native code has already reported a failure.

        The next one of its slot goes to the communicator itself, if that has a native function.

        Raises:
            EinkornError: the ranks do not agree, or do not come.
        """
        count, node = numbers
        number = (slot_at - self.address) // SLOT_SIZE
        one, slot = self._known[number], self._slots[number]
        group = self._groups.get(one.group)
        if group is None:
            group = self._first(one.group)
        text = one.details(group.axis)
        call = CollectiveCall(one.name, text.format(count), self._places.get(node))
        if table := abi.Context.from_address(context).device:
            at_once = AT_ONCE.get(Exchange(kind), Exchange(kind))
            self._on_device(abi.DeviceTable.from_address(table), one, group, at_once, (to, source, size), call)
            return 0
        native = native_of(group.communicator)
        pairs = one.pairs(group.rank)
        if kind == Exchange.FAILED:
            assert native is not None
            raise native.error(ctypes.c_int32(size).value, call, [rank for pair in pairs for rank in pair])
        if native is not None and slot.function == EXCHANGE and (group.rank, group.rank) not in pairs:
            self._fill(slot, one, group, CollectiveCall(one.name, text).signature, native)
            if size <= native.most:
                return exchange_at(context, slot_at, kind, to, source, size, *numbers)
        self._run(one, group, Exchange(kind), to, source, size, call)
        return 0

    def _run(
        self, one: Collective, group: RankGroup, kind: Exchange, to: int, source: int, size: int, call: CollectiveCall
    ) -> None:
        """Makes an exchange by a communicator's functions for Python, or begins it, or waits for it."""
        start = getattr(group.communicator, "start", None)
        if kind is Exchange.WAIT:
            wait = self._open.pop(to, None)
            if wait is not None:
                wait()
        elif kind in (Exchange.START_ALLGATHER, Exchange.START_ALLTOALL) and start is not None and size:
            at_once = AT_ONCE[kind]
            sent = size * group.size if at_once is Exchange.ALLTOALL else size
            self._open[to] = start(at_once, _bytes(source, sent), _bytes(to, size * group.size), call)
        elif kind is not Exchange.PROGRESS:
            run(one, group, kind, to, source, size, call)

    def abandon(self, *kept: object) -> None:
        """A call has failed: ends what it has begun. Where other ranks do not come to that, its memory is kept."""
        self._open.clear()
        for group in self._groups.values():
            native = native_of(group.communicator)
            if native is not None and not native.end_open(ABANDON_SECONDS):
                group.kept.append(kept)

    def _on_device(
        self,
        table: abi.DeviceTable,
        one: Collective,
        group: RankGroup,
        kind: Exchange,
        at: tuple[int, int, int],
        call: CollectiveCall,
    ) -> None:
        """Makes an exchange of tensors that lie on a GPU: `at` are their addresses, and the bytes of a piece."""
        root = int(one.option) if one.op == "broadcast" else 0
        exchange = DeviceExchange(kind, *at, root, one.pairs(group.rank), call)
        on_host = lambda to, source: run(one, group, kind, to, source, at[2], call)  # noqa: E731
        exchange_on_device(self._driver, table, group, exchange, one.op in OF_TWO, on_host)

    def _fill(self, slot: ExchangeSlot, one: Collective, group: RankGroup, text: str, native: NativeRanks) -> None:
        """Lets a slot call the communicator itself."""
        pairs = one.pairs(group.rank)
        slot.target = next((to for source, to in pairs if source == group.rank), -1)
        slot.source = next((source for source, to in pairs if to == group.rank), -1)
        if one.op == "broadcast":
            slot.source = int(one.option)
        kept = ctypes.create_string_buffer(native.noted(text))
        self._texts.append(kept)
        slot.text, slot.size = ctypes.addressof(kept), len(kept)
        slot.ranks, slot.function = native.table, native.function

    def _first(self, text: str) -> RankGroup:
        """The group of that text, whose ranks have compared their graphs."""
        group = group_of(text)
        if not self._groups:
            self._places = {number_of(self._ir, node): node.place for node in collectives_of(self._ir)}
        key = digest_of(self._ir, group)
        if key not in group.mesh.compared and any(True for _ in _over(self._ir, group)):
            compare_programs(self._ir, group, key)
            group.mesh.compared.add(key)
        self._groups[text] = group
        return group


def _bytes(address: int, size: int) -> Bytes:
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.ctypeslib.as_array(memory)


def run(
    one: Collective, group: RankGroup, kind: Exchange, to: int, source: int, size: int, call: CollectiveCall
) -> None:
    """Makes an exchange by a communicator's functions for Python."""
    ranks = group.communicator
    if kind is Exchange.GATHER_PIECES:
        gather = getattr(ranks, "gather_pieces", ranks.allgather)
        gather(_bytes(source, size), _bytes(to, size * group.size), call)
        return
    kind = AT_ONCE.get(kind, kind)
    if kind == Exchange.ALLGATHER:
        ranks.allgather(_bytes(source, size), _bytes(to, size * group.size), call)
    elif kind == Exchange.ALLTOALL:
        ranks.alltoall(_bytes(source, size * group.size), _bytes(to, size * group.size), call)
    elif kind == Exchange.BROADCAST:
        ranks.broadcast(_bytes(to, size), int(one.option), call)
    elif one.op == "permute":
        permute(ranks, _bytes(source, size), _bytes(to, size), one.pairs(group.rank), call)
    elif one.op == "send":
        ranks.send(_bytes(source, size), int(one.option), call)
    else:
        assert one.op == "recv", one.op
        ranks.receive(_bytes(to, size), int(one.option), call)


def permute(ranks: Communicator, x: Bytes, out: Bytes, pairs: list[tuple[int, int]], call: CollectiveCall) -> None:
    """Sends tensors from rank to rank: of each pair from its first to its second; zeros where nothing comes.

    A rank sends after lower ones have, so that no two wait for each other.
    """
    out[:] = 0
    for source, to in pairs:
        if source == to == ranks.rank:
            out[:] = x
        elif source == ranks.rank:
            ranks.send(x, to, call)
        elif to == ranks.rank:
            ranks.receive(out, source, call)


def collective_of(report: Report) -> Collective:
    """What the code of a collective says of it."""
    op, group, dtype, option = str(report.parts[0]).split(SEPARATOR)
    return Collective(op, group, DType[dtype], option)


def collectives_of(ir: GraphIR) -> list[Node]:
    """The collectives of a graph, in the order in which they begin."""
    nodes = [node for node in ir.nodes if isinstance(node, Node) and is_collective(node.name)]
    return [node for node in nodes if not is_later_part(node.name)]


def results_of(ir: GraphIR, collective: Node) -> tuple[ShapedType, ...]:
    """The types of the results of a collective, which another node may give."""
    for node in ir.nodes:
        if isinstance(node, Node) and is_later_part(node.name) and collective.results[0] == node.operands[0]:
            return collective.out_types if node.out_types[0].shape == [0] else node.out_types
    return collective.out_types[:1]  # without what it needs while it runs


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


def number_of(ir: GraphIR, node: Node) -> int:
    """The number of a collective in its graph."""
    for item in ir.nodes:
        if isinstance(item, ConstantTensor) and item.result == node.operands[-1]:
            return int(item.array)
    return -1


def digest_of(ir: GraphIR, group: RankGroup) -> bytes:
    """What graphs with the same collectives over a group have in common."""
    lines = [
        " ".join([text, *(f"{each.dtype} {each.shape} {each.device.device_type}" for each in results_of(ir, node))])
        for node, text in _over(ir, group)
    ]
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
    counted = plural(len(nodes), "collective")
    if any(type.device != DeviceRef.CPU() for node in nodes for type in node.out_types):
        counted += " of tensors of GPUs"
    named = f"{ir.name} ({counted}" + (f", the first at {first})" if first else ")")
    call = CollectiveCall("the comparison of graphs", "", first)
    records = gather_records(group.communicator, digest + named.encode(), RECORD_SIZE, call)
    other = next((k for k, record in enumerate(records) if record[: len(digest)] != digest), None)
    if other is None:
        return
    names = [record[len(digest) :].partition(b"\0")[0].decode(errors="replace") for record in records]
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
