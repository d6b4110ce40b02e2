"""Says what runs of a graph in which order: groups of fused kernels, and copies between devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.shield import shielded
from ..driver.devices import DeviceRef
from ..ir import GraphIR, Node
from ..passes.devices import Copy, Segment, divide
from ..passes.fusion import Group, partition
from ..passes.memory_plan import Plan
from ..passes.pipeline import Planning, plan_graph
from .compile import facts_on_device

if TYPE_CHECKING:
    from ..passes.summaries import FusedOp, KernelSummary, Unfused


@dataclass(frozen=True)
class PlannedStep:
    """What runs on one device of a graph, or a copy to another one.

    Attributes:
        groups: the groups of kernels, over the nodes of the whole graph; of a copy the transfer alone.
        plan: where values lie; None of a copy.
        device: where it runs, or where the copy goes to.
    """

    groups: tuple[Group, ...]
    plan: Plan | None
    device: DeviceRef


def planned_steps(ir: GraphIR) -> list[PlannedStep]:
    """The steps of a graph; one, where it runs on one device."""
    if len(ir.devices) == 1:
        groups, plan = _planned(ir)
        return [PlannedStep(groups, plan, ir.device)]
    steps = []
    for step in divide(ir):
        if isinstance(step, Copy):
            device = ir.types[step.result].device
            steps.append(PlannedStep((Group((step.node,), step.node, None, device),), None, device))
        else:
            groups, plan = _planned(step.ir)
            steps.append(PlannedStep(tuple(_within(step, group) for group in groups), plan, step.device))
    return steps


def _planned(ir: GraphIR) -> tuple[tuple[Group, ...], Plan]:
    plan = plan_graph(Planning(ir, facts_on_device(ir), entry=False))
    return plan.groups, plan


def _within(segment: Segment, group: Group) -> Group:
    """A group of a segment, over the nodes of the whole graph."""
    at = segment.nodes
    epilogue = None if group.epilogue is None else at[group.epilogue]
    members, moves = (tuple(at[n] for n in numbers) for numbers in (group.nodes, group.moves))
    return Group(members, at[group.root], epilogue, group.device, moves)


def kernel_summaries(ir: GraphIR, plans: Sequence[Plan]) -> list[KernelSummary]:
    """What was fused into what, and why the rest was not. `plans` are those of the loaded code, one a segment."""
    if len(ir.devices) == 1:
        return _summaries(ir, plans[0])
    with shielded():
        from ..passes.summaries import FusedOp, KernelSummary

    results: list[KernelSummary] = []
    planned = iter(plans)
    for step in divide(ir):
        if isinstance(step, Segment):
            results += [_summary_within(step, summary) for summary in _summaries(step.ir, next(planned))]
            continue
        node = ir.nodes[step.node]
        assert isinstance(node, Node)
        results.append(KernelSummary(node.name, (FusedOp(node.name, step.node, "root", node.place),), ()))
    return results


def _summaries(ir: GraphIR, plan: Plan) -> list[KernelSummary]:
    with shielded():
        from ..passes.summaries import summarize  # few processes request it

    facts = facts_on_device(ir)
    return summarize(ir, plan.parts or partition(ir, facts), facts)


def _summary_within(segment: Segment, summary: KernelSummary) -> KernelSummary:
    """A summary of a segment, with the numbers of the whole graph."""

    def op(of: FusedOp) -> FusedOp:
        return dataclasses.replace(of, node=segment.nodes[of.node])

    def edge(of: Unfused) -> Unfused:
        return dataclasses.replace(of, producer=op(of.producer), reader=op(of.reader), value=segment.values[of.value])

    return dataclasses.replace(summary, ops=tuple(map(op, summary.ops)), unfused=tuple(map(edge, summary.unfused)))
