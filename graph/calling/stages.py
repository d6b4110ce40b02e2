"""Divides what a call has to evaluate by the stages of its entry: sizes, outputs, and checks of sizes."""

from __future__ import annotations

from ...dsl.diagnostics.dataclass import dataclass
from ..ir import Constraint, GraphIR
from ..passes.memory_plan import Plan
from ..types.dims import Dim
from .arena_layout import StageLayout
from .size_checks import SizeChecks


@dataclass(frozen=True)
class Stage:
    """What a stage of an entry is the first to know: dim slots, positions of outputs, whether sizes are possible, and
    where its temporaries lie."""

    slots: list[tuple[int, Dim]]
    outputs: list[int]
    checks: SizeChecks
    layout: StageLayout


def stages_of(ir: GraphIR, plan: Plan) -> list[Stage]:
    count = len(plan.steps) + 1
    slots: list[list[tuple[int, Dim]]] = [[] for _ in range(count)]
    outputs: list[list[int]] = [[] for _ in range(count)]
    values: list[list[int]] = [[] for _ in range(count)]
    constraints: list[list[Constraint]] = [[] for _ in range(count)]
    for slot, dim in enumerate(plan.slots):
        slots[plan.stage_of(dim)].append((slot, dim))
    for position, type in enumerate(ir.output_types):
        outputs[plan.stage_of(*type.shape)].append(position)
    unknown = {name for step in ir.steps if step not in plan.steps for name in step.names}  # of unused ops
    for node in ir.nodes:
        for value, type in zip(node.results, node.out_types, strict=True):
            if unknown.isdisjoint(type.shape.parameters):
                values[plan.stage_of(*type.shape)].append(value)
    for constraint in ir.constraints:
        constraints[plan.stage_of(constraint.left, constraint.right)].append(constraint)
    return [
        Stage(slots[k], outputs[k], SizeChecks(ir, values[k], constraints[k]), StageLayout(plan, k))
        for k in range(count)
    ]
