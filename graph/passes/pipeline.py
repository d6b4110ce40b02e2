"""Runs the passes over a graph, from what the user wrote to the plan of a compile unit: `PASSES`.

    graph --> simpler graph --> groups of nodes --> plan of buffers
          rewriting          fuse               plan_memory

A rewriting pass takes a graph and gives one that computes the same bits, unless its row says that it is not exact.
Planning decides what becomes one kernel and where values lie. Each pass is timed and
logged, and has its name with "graph." before it in variables:

    EINKORN_DUMP=graph.simplify       prints the graph after a pass to standard error
    EINKORN_STOP=graph.merge_equal    ends loading after a pass
    EINKORN_WITHOUT=graph.simplify    leaves a pass out; "graph" leaves out all that rewrite
    EINKORN_VERIFY=1                  verifies the graph after each pass
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import field, replace
from typing import Any, Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import CompileError
from ...dsl.environment.knobs import Knob, Knobs, knobs
from ..ir import GraphIR, Node, PreparedValue
from .control_flow import ControlFlow
from .cut_products import cut_products
from .drop_unread import drop_unread
from .fold_batch_norm import fold_batch_norm
from .fold_constants import Evaluate, fold_constants
from .fusion import Facts, Partition, partition
from .memory_plan import Plan, check_partition, plan_memory
from .merge_equal import merge_equal
from .overlap import overlap
from .pack_filters import pack_filters, pair_filters
from .pack_weights import KernelOf, pack_weights
from .pass_summary import PREFIX, PassSummary
from .prepare_weights import prepare_weights
from .schedule import schedule
from .simplify import simplify
from .sink_moves import FactsOf, sink_moves
from .square_filters import square_filters
from .verify import verify_graph

_log = logging.getLogger("einkorn.load")


@dataclass(frozen=True)
class PassTools:
    """What passes use of the compiler.

    Attributes:
        evaluate: computes a graph without inputs; None where that fails.
        facts_of: what a node of a graph allows; see `fusion.Facts`.
        vector_bits: the width of the vectors of the device that a graph runs on; 0 of a GPU.
        kernel_of: a kernel that ships with the package.
        prepares: whether passes may compute values of weights when a model is loaded.
    """

    evaluate: Evaluate
    facts_of: FactsOf
    vector_bits: Callable[[GraphIR], int]
    kernel_of: KernelOf
    prepares: bool = True


@dataclass
class Planning:
    """What the planning passes work on: each reads what those before it left.

    Attributes:
        ir: the graph.
        facts_of: what a node allows.
        fuse: whether nodes are fused at all.
        apart: nodes with which nothing is fused.
        entry: whether a compile unit is wanted.
    """

    ir: GraphIR
    facts_of: Callable[[Node], Facts]
    fuse: bool = True
    apart: Collection[int] = ()
    entry: bool = True
    parts: Partition | None = None  # made by `fuse`, or known
    flow: ControlFlow = field(init=False)  # made by `plan_memory`
    plan: Plan = field(init=False)  # made by `plan_memory`

    @property
    def groups(self) -> Partition:
        """The groups, once they are there."""
        assert self.parts is not None
        return self.parts


@dataclass(frozen=True)
class GraphPass:
    """A row of `PASSES` that rewrites a graph. Results of a pass that is not `exact` may differ by rounding."""

    name: str
    run: Callable[[GraphIR, PassTools], GraphIR]
    exact: bool = True


@dataclass(frozen=True)
class PlanningPass:
    """A row of `PASSES` that plans what becomes of a graph.

    `show` gives what it decided as text, `count` in a few words. Without the pass there is a plan, too.
    """

    name: str
    run: Callable[[Planning], None]
    show: Callable[[Planning], str]
    count: Callable[[Planning], str]


@dataclass(frozen=True)
class Optimised:
    """A graph after the passes, with what each of them did."""

    ir: GraphIR
    passes: tuple[PassSummary, ...] = ()


def _plain(change: Callable[[GraphIR], GraphIR]) -> GraphPass:
    """The row of the function that gives a file of this folder its name."""
    return GraphPass(change.__name__, lambda ir, _: change(ir))


def _fuse(planning: Planning) -> None:
    if planning.parts is None:
        fuse = planning.fuse and fuses()
        planning.parts = partition(planning.ir, planning.facts_of, fuse=fuse, apart=planning.apart)


def _plan_memory(planning: Planning) -> None:
    check_partition(planning.ir, planning.groups)
    planning.flow = ControlFlow(planning.ir, planning.groups)
    shared = PREFIX + "plan_memory" not in knobs.without
    planning.plan = plan_memory(planning.ir, planning.groups, planning.flow, entry=planning.entry, shared=shared)


def _fused(planning: Planning) -> str:
    nodes = sum(isinstance(item, Node) for item in planning.ir.nodes)
    return f"{nodes} nodes in {len(planning.groups.groups)} kernels"


def _placed(planning: Planning) -> str:
    plan = planning.plan
    return f"{len(plan.buffers)} buffers, {len(plan.temps)} of them temporary"


def _planned(planning: Planning) -> str:
    return f"{planning.flow.text()}\n{planning.plan.text()}"


PASSES: Final[tuple[GraphPass | PlanningPass, ...]] = (
    GraphPass(sink_moves.__name__, lambda ir, tools: sink_moves(ir, tools.facts_of)),
    _plain(simplify),
    GraphPass(fold_constants.__name__, lambda ir, tools: fold_constants(ir, tools.evaluate)),
    _plain(merge_equal),
    GraphPass(prepare_weights.__name__, lambda ir, tools: prepare_weights(ir) if tools.prepares else ir),
    GraphPass(
        fold_batch_norm.__name__,
        lambda ir, tools: fold_batch_norm(ir, tools.kernel_of) if tools.prepares else ir,
        exact=False,
    ),
    GraphPass(
        square_filters.__name__,
        lambda ir, tools: square_filters(ir, tools.vector_bits, tools.kernel_of) if tools.prepares else ir,
        exact=False,
    ),
    GraphPass(
        pair_filters.__name__,
        lambda ir, tools: pair_filters(ir, tools.vector_bits, tools.kernel_of) if tools.prepares else ir,
        exact=False,
    ),
    GraphPass(
        pack_filters.__name__,
        lambda ir, tools: pack_filters(ir, tools.vector_bits, tools.kernel_of) if tools.prepares else ir,
    ),
    GraphPass(
        pack_weights.__name__,
        lambda ir, tools: pack_weights(ir, tools.vector_bits, tools.kernel_of) if tools.prepares else ir,
    ),
    _plain(drop_unread),
    _plain(schedule),
    GraphPass(overlap.__name__, lambda ir, tools: overlap(ir, tools.kernel_of, tools.facts_of)),
    GraphPass(cut_products.__name__, lambda ir, tools: cut_products(ir, tools.kernel_of)),
    PlanningPass("fuse", _fuse, lambda planning: planning.groups.text(planning.ir), _fused),
    PlanningPass("plan_memory", _plan_memory, _planned, _placed),
)


def optimise(ir: GraphIR, tools: PassTools) -> Optimised:
    """Runs all passes over a graph.

    Raises:
        CompileError: EK0606 `EINKORN_STOP` names a pass.
        KnobError: EK0692 a variable names a pass that there is not.
    """
    dump, stop, without = knobs.dump, knobs.stop, knobs.without
    _check_names(dump, Knobs.dump)
    _check_names([stop] if stop else [], Knobs.stop)
    _check_names(without, Knobs.without, "graph")
    summaries = []
    for each in PASSES:
        if isinstance(each, PlanningPass):
            continue
        name, before, start = PREFIX + each.name, ir, time.perf_counter()
        if name not in without and "graph" not in without:
            ir = each.run(ir, tools)
        summary = _summary(each.name, before, ir, time.perf_counter() - start)
        summaries.append(summary)
        _log.debug("%s", summary)
        if ir is not before and (dump or stop or knobs.verify):
            verify_graph(ir, before, name)
        _show(name, lambda ir=ir: str(ir))  # type: ignore[misc]  # each its own
    return Optimised(ir, tuple(summaries))


def plan_graph(planning: Planning) -> Plan:
    """Runs the planning passes: what becomes one kernel, and where values lie.

    Raises:
        CompileError: EK0606 `EINKORN_STOP` names a pass.
        InternalError: EK0908, a group reads what no group before it stores.
    """
    summaries, nodes = [], len(planning.ir.nodes)
    for each in PASSES:
        if isinstance(each, PlanningPass):
            start = time.perf_counter()
            each.run(planning)
            seconds = time.perf_counter() - start
            summaries.append(PassSummary(each.name, nodes, nodes, False, seconds, planned=each.count(planning)))
            _log.debug("%s", summaries[-1])
            _show(PREFIX + each.name, lambda each=each: each.show(planning))  # type: ignore[misc]
    return replace(planning.plan, passes=tuple(summaries))


def fuses() -> bool:
    """Whether nodes are fused: unless the pass is left out."""
    return PREFIX + "fuse" not in knobs.without


def _summary(name: str, before: GraphIR, ir: GraphIR, seconds: float) -> PassSummary:
    made = () if ir is before else [item for item in ir.nodes if isinstance(item, PreparedValue)]
    old = {id(item.part) for item in before.nodes if isinstance(item, PreparedValue)} if made else ()
    new = [item.type for item in made if id(item.part) not in old]
    size = sum(type.dtype.bytes_for(int(type.shape.num_elements)) for type in new)
    return PassSummary(name, len(before.nodes), len(ir.nodes), ir is not before, seconds, len(new), size)


def _show(name: str, text: Callable[[], str]) -> None:
    """Prints what a pass gave where it is requested, and ends after the pass that is named so."""
    if name in knobs.dump:
        print(f"=== {name} ===\n{text()}", file=sys.stderr)
    if name == knobs.stop:
        raise CompileError(f"stopped after the pass '{name}', as requested by EINKORN_STOP", code="EK0606")


def names() -> list[str]:
    """What can be dumped and stopped after."""
    return [PREFIX + each.name for each in PASSES]


def _check_names(given: Iterable[str], knob: Knob[Any], *others: str) -> None:
    """`others` are further names of passes that are left out."""
    known = (*names(), *others)
    for name in sorted(given):
        if (name.startswith(PREFIX) or others) and name not in known:
            raise knob.refusal(name, known)
