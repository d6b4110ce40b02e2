"""Finds what fusion has to know of a kernel instance, by evaluating it over probes.

Input: a `NodeSpec` and the shapes of its inputs. Output: `Facts`. Non-goals: nothing is decided here (see
`graph.passes.fusion`), and nothing is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...dsl.contract.unit import NodeSpec, Size, Slot
from ...dsl.diagnostics.errors import CompileError
from ...dsl.types.dtype import INT, DType
from ..ir.program import Region, Value, count_operations, walk
from ..targets import Target
from .kernels import GroupEvaluator
from .recovery import Cascade
from .values.flow import Abandoned
from .values.index import Index
from .values.tensors import NotElementwise, Probe, Tensor


@dataclass(frozen=True)
class Facts:
    """What a kernel instance allows.

    Attributes:
        elementwise: one element of its outputs can be computed alone.
        cost: operations for one element; 0 when not elementwise.
        identity: for each input, whether it is read only at the element that is being computed.
        loads: for each input, how many loads one element takes.
        loops: the element has a loop inside, so that computing it again is dear.
    """

    elementwise: bool
    cost: int = 0
    identity: tuple[bool, ...] = ()
    loads: tuple[int, ...] = ()
    loops: bool = False


class _Prober(GroupEvaluator):
    """Evaluates one node in element mode over probes."""

    def __init__(self, node: NodeSpec, shapes: tuple[tuple[DType, tuple[Size, ...]], ...], target: Target) -> None:
        super().__init__((node,), target, [])
        self.shapes = shapes
        self.evaluator.level = "parallel"
        for _, shape in (*shapes, *node.outputs):
            for size in shape:
                if isinstance(size, Slot):
                    self.slots.setdefault(size.index, Value(INT))
        dims = self.dims(node.outputs[0][1])
        self.index = Index(dims, components=tuple(Value(INT) for _ in dims))
        self.probes: dict[int, Probe] = {}

    def operand(self, node: int, number: int) -> Tensor:
        if number not in self.probes:
            argument = self.nodes[0].kernel.schema.inputs[number]
            dtype, shape = self.shapes[number]
            self.probes[number] = Probe(self.index, **self.tensor_fields(0, argument, shape, dtype))
        return self.probes[number]


def find_facts(node: NodeSpec, shapes: tuple[tuple[DType, tuple[Size, ...]], ...], target: Target) -> Facts:
    """What `node` allows; `shapes` are its inputs' dtypes and shapes. A kernel with a mistake allows nothing."""
    schema = node.kernel.schema
    if not schema.fuse or schema.mutable or len({shape for _, shape in node.outputs}) != 1:
        return Facts(False)
    prober = _Prober(node, shapes, target)
    region = Region()
    try:
        with prober.evaluator.builder.inside(region):
            prober.element(0, 0, prober.index)
    except (NotElementwise, Cascade, Abandoned, CompileError):
        return Facts(False)
    opcodes = {op.opcode for op in walk(region)}
    if prober.evaluator.errors or any(opcode.has_effects for opcode in opcodes):
        return Facts(False)
    probes = [prober.probes.get(k) for k in range(len(shapes))]
    return Facts(
        elementwise=True,
        cost=count_operations(region),
        identity=tuple(p is None or not p.elsewhere for p in probes),
        loads=tuple(0 if p is None else p.loads for p in probes),
        loops=any(opcode.loops for opcode in opcodes),
    )
