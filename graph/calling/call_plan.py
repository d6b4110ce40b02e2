"""Says how the code of a graph is called: what is checked, where each value goes, in which stages.

See also `call_memory` (memory), `call` (the call itself).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.places import Place
from ...dsl.frontend.program import PortableKernel
from ..driver.device import Driver, Storage
from ..driver.devices import Device
from ..ir import GraphIR, Node
from ..loading.code import LoadedCode
from ..types.strides import Pattern
from .inputs import InputCheck
from .stages import Stage, stages_of

Load = Callable[[GraphIR], LoadedCode]


@dataclass(frozen=True, eq=False)
class CallPlan:
    """What is the same in every call of a graph's code.

    Attributes:
        ir: the graph, for arrays that lie as its patterns say.
        load: gives the code of the graph with other patterns.
        code: what is called.
        checks: of each input.
        weights: by the number of the node; shared with other models, and never written.
        threads: how many take part in a call; None leaves it to the environment.
        inputs: the check of each input, and the number of its pointer.
        changed: the positions of the inputs that are changed in place.
        output_pointers: the number of each output's pointer; None of one that is copied.
        computed: the numbers of the pointers to sizes that the entry computes.
        stages: what is known from which stage on.
        repeats: pointers that are an earlier one once more.
        copies: outputs that are copies of a buffer.
    """

    ir: GraphIR
    load: Load
    code: LoadedCode
    checks: Sequence[InputCheck]
    weights: Mapping[int, Storage]
    threads: int | None
    device: Device
    driver: Driver
    inputs: tuple[tuple[InputCheck, int], ...]
    changed: tuple[int, ...]
    output_pointers: tuple[int | None, ...]
    computed: tuple[int, ...]
    stages: tuple[Stage, ...]
    repeats: tuple[tuple[int, int], ...]
    copies: tuple[tuple[int, int], ...]

    def for_patterns(self, patterns: tuple[Pattern, ...]) -> CallPlan:
        """The plan for inputs that lie so."""
        ir = dataclasses.replace(self.ir, patterns=patterns)
        return plan_calls(ir, self.load, self.checks, self.weights, self.threads)

    def programs(self) -> list[PortableKernel]:
        """The kernels whose text reports are about."""
        programs = [node.kernel.portable for node in self.ir.nodes if isinstance(node, Node)]
        return [*programs, *(program.shape for program in programs if program.shape is not None)]

    def staged(self, op: str) -> list[Place]:
        """Where an op was staged; several places when the graph has several of that name."""
        return [n.place for n in self.ir.nodes if isinstance(n, Node) and n.name == op and n.place is not None]


def plan_calls(
    ir: GraphIR,
    load: Load,
    checks: Sequence[InputCheck],
    weights: Mapping[int, Storage] | None = None,
    threads: int | None = None,
) -> CallPlan:
    """Loads the code of a graph, and says how it is called."""
    code = load(ir)
    plan = code.plan
    again = {number for number, _ in plan.repeats}
    pointer_of = {b.source: n for n, b in enumerate(plan.buffers) if b.source[0] != "temp" and n not in again}
    copied = {output for output, _ in plan.copies}
    return CallPlan(
        ir=ir,
        load=load,
        code=code,
        checks=checks,
        weights=weights or {},
        threads=threads,
        device=code.device,
        driver=code.device.driver,
        inputs=tuple((check, pointer_of["input", k]) for k, check in enumerate(checks)),
        changed=tuple(k for k, check in enumerate(checks) if check.is_buffer),
        output_pointers=tuple(None if k in copied else pointer_of["output", k] for k in range(len(ir.outputs))),
        computed=tuple(pointer_of["sizes", k] for k in range(len(plan.steps))),
        stages=tuple(stages_of(ir, plan)),
        repeats=plan.repeats,
        copies=plan.copies,
    )
