"""Makes code of a graph for targets that mean the same on every machine: what packages hold.

See also `engine.graph_package`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.contract.checks import SAFE, Checks
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import TargetError
from ...dsl.environment.compiling import compiling
from ...dsl.environment.log import start_log
from ..ir import GraphIR
from ..passes.pipeline import fuses
from .code import CompiledGraph
from .compile import chosen_checks, compile_graph, named_targets, reproducing_faults


@dataclass(frozen=True)
class TargetCode:
    """Code of a graph for a target, and the features that a machine must have for it."""

    name: str
    needs: tuple[str, ...]
    made: CompiledGraph


@compiling
def code_for_targets(ir: GraphIR, names: Sequence[str], checks: Checks | None) -> list[TargetCode]:
    """The code of a graph of the host for some CPUs; for the level of that at hand where none is named.

    Raises:
        TargetError: EK0601 an unknown target; EK0483 one that is no CPU.
        CompileError: a mistake in a kernel.
    """
    start_log()
    known = chosen_checks(checks) or SAFE
    made = []
    for target in named_targets(names or ("host",)):
        if target.has_grid:
            text = f"graphs of the host have no code for {target.name}"
            raise TargetError(text, code="EK0483", got=target.name, expected="a CPU")
        with reproducing_faults(ir, True, checks):
            result = compile_graph(ir, (target,), fuses() and not known.finds, known)
        made.append(TargetCode(target.name, tuple(sorted(target.needs)), result))
    return made
