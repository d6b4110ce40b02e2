"""Optimises graphs: runs the passes of `PASSES` before a graph is divided into kernels.

Each pass takes a graph and gives one that computes the same bits. It is timed and logged, and known by its name with
"graph." before it:

    EINKORN_DUMP=graph.simplify       prints the graph after a pass to standard error
    EINKORN_STOP=graph.merge_equal    ends loading after a pass
    EINKORN_WITHOUT=graph.simplify    leaves a pass out; "graph" leaves out all of them
    EINKORN_VERIFY=1                  verifies the graph after each pass

Input: a `GraphIR`. Output: `Optimised`: the graph, and what each pass did. Non-goals: fusion and memory, which follow
(see `fusion` and `memory_plan`).
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ...dsl.diagnostics.errors import CompileError
from ...dsl.environment.knobs import Knob, Knobs, knobs
from ..ir import GraphIR
from .drop_unread import drop_unread
from .fold_constants import Evaluate, fold_constants
from .merge_equal import merge_equal
from .simplify import simplify
from .sink_moves import FactsOf, sink_moves
from .verify import verify_graph

PREFIX: Final = "graph."
_log = logging.getLogger("einkorn.load")


@dataclass(frozen=True)
class Tools:
    """What passes ask of the compiler.

    Attributes:
        evaluate: computes a graph without inputs; None where that fails.
        facts_of: what a node of a graph allows; see `fusion.Facts`.
    """

    evaluate: Evaluate
    facts_of: FactsOf


@dataclass(frozen=True)
class GraphPass:
    """A row of `PASSES`: the name of a pass, and what it does to a graph."""

    name: str
    run: Callable[[GraphIR, Tools], GraphIR]


@dataclass(frozen=True)
class PassSummary:
    """What a pass did: how many nodes the graph had before it and has after it, and the seconds that it took."""

    name: str
    before: int
    after: int
    changed: bool
    seconds: float

    def __str__(self) -> str:
        did = f"{self.before} -> {self.after} nodes" if self.changed else "nothing to do"
        return f"{PREFIX}{self.name}: {did}, {self.seconds * 1e3:.2f} ms"


@dataclass(frozen=True)
class Optimised:
    """A graph after the passes, with what each of them did."""

    ir: GraphIR
    passes: tuple[PassSummary, ...] = ()


def _plain(change: Callable[[GraphIR], GraphIR]) -> GraphPass:
    """The row of the function that gives a file of this folder its name."""
    return GraphPass(change.__name__, lambda ir, _: change(ir))


PASSES: Final = (
    GraphPass(sink_moves.__name__, lambda ir, tools: sink_moves(ir, tools.facts_of)),
    _plain(simplify),
    GraphPass(fold_constants.__name__, lambda ir, tools: fold_constants(ir, tools.evaluate)),
    _plain(merge_equal),
    _plain(drop_unread),
)


def optimise(ir: GraphIR, tools: Tools) -> Optimised:
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
        name, before, start = PREFIX + each.name, ir, time.perf_counter()
        if name not in without and "graph" not in without:
            ir = each.run(ir, tools)
        summary = PassSummary(
            each.name, len(before.nodes), len(ir.nodes), ir is not before, time.perf_counter() - start
        )
        summaries.append(summary)
        _log.debug("%s", summary)
        if ir is not before and (dump or stop or knobs.verify):
            verify_graph(ir, before, name)
        if name in dump:
            print(f"=== {name} ===\n{ir}", file=sys.stderr)
        if name == stop:
            raise CompileError(f"stopped after the pass '{name}', as requested by EINKORN_STOP", code="EK0606")
    return Optimised(ir, tuple(summaries))


def names() -> list[str]:
    """What can be dumped, stopped after and left out."""
    return [PREFIX + each.name for each in PASSES]


def _check_names(given: Iterable[str], knob: Knob[Any], *others: str) -> None:
    for name in sorted(given):
        if (name.startswith(PREFIX) or others) and name not in (*names(), *others):
            raise knob.refusal(name, (*names(), *others))
