"""Finds what fusion has to know of a kernel instance, by evaluating it over probes.

See also `graph.passes.fusion`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...dsl.contract.unit import NodeSpec, Size, Slot
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import CompileError
from ...dsl.signature.schema import Form
from ...dsl.types.dtype import INT, DType
from ..ir.program import Op, Region, Value, count_operations, walk
from ..targets import Target
from .kernels import GroupEvaluator
from .recovery import Cascade
from .values.flow import Abandoned
from .values.index import BodyIndex
from .values.tensors import KernelTensor, NotElementwise, Probe


@dataclass(frozen=True)
class KernelFacts:
    """What a kernel instance allows.

    Attributes:
        elementwise: one element of its outputs can be computed alone.
        cost: operations for one element; 0 when not elementwise.
        identity: for each input, whether it is read only at the element that is being computed.
        loads: for each input, how many loads one element takes.
        loops: the element has a loop inside, so that computing it again is dear.
        indexed: the element is computed with its index or with sizes, and not with elements of the inputs alone.
    """

    elementwise: bool
    cost: int = 0
    identity: tuple[bool, ...] = ()
    loads: tuple[int, ...] = ()
    loops: bool = False
    indexed: bool = True


class _FactProber(GroupEvaluator):
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
        self.components = tuple(Value(INT) for _ in dims)
        self.index = BodyIndex(dims, components=self.components)
        self.probes: dict[int, Probe] = {}

    @property
    def places(self) -> set[Value]:
        """The index of the element, and the sizes that are known at the call only."""
        return {*self.components, *self.slots.values()}

    def operand(self, node: int, number: int) -> KernelTensor:
        if number not in self.probes:
            argument = self.nodes[0].kernel.schema.inputs[number]
            dtype, shape = self.shapes[number]
            self.probes[number] = Probe(self.index, **self.tensor_fields(0, argument, shape, dtype))
        return self.probes[number]


_GIVING = frozenset(["foreach", "fill"])  # what computes single elements of an output: see `Demand`


def find_facts(node: NodeSpec, shapes: tuple[tuple[DType, tuple[Size, ...]], ...], target: Target) -> KernelFacts:
    """What `node` allows; `shapes` are its inputs' dtypes and shapes. A kernel with a mistake allows nothing."""
    schema = node.kernel.schema
    single = schema.fuse and not schema.mutable and len({shape for _, shape in node.outputs}) == 1
    if not single or _GIVING.isdisjoint(node.kernel.names):  # to evaluate a product takes long
        return KernelFacts(False)
    prober = _FactProber(node, shapes, target)
    region = Region()
    try:
        with prober.evaluator.builder.inside(region):
            prober.element(0, 0, prober.index)
    except (NotElementwise, Cascade, Abandoned, CompileError):
        return KernelFacts(False)
    operations = list(walk(region))
    opcodes = {op.opcode for op in operations}
    if prober.evaluator.errors or any(opcode.has_effects for opcode in opcodes):
        return KernelFacts(False)
    probes = [prober.probes.get(k) for k in range(len(shapes))]
    return KernelFacts(
        elementwise=True,
        cost=count_operations(region),
        identity=tuple(p is None or not p.other_elements for p in probes),
        loads=tuple(0 if p is None else p.loads for p in probes),
        loops=any(opcode.loops for opcode in opcodes),
        indexed=not {operand for op in operations for operand in op.operands}.isdisjoint(prober.places),
    )


@dataclass(frozen=True)
class ElementFacts:
    """How a kernel instance computes one element of its outputs.

    Attributes:
        trouble: why the element is not made of the elements of the inputs at its place, and of nothing else; "" when it
            is.
        operation: the opcode's name, where the element is one operation on an element of each of two inputs; else "".
    """

    trouble: str
    operation: str = ""


def element_facts(node: NodeSpec, shapes: tuple[tuple[DType, tuple[Size, ...]], ...], target: Target) -> ElementFacts:
    """How `node` computes an element. What kernels print and assert does not matter here.

    Raises:
        CompileError: a mistake in the kernel.
    """
    schema = node.kernel.schema
    if schema.mutable:
        return ElementFacts(f"it changes '{schema.mutable[0].name}' in place")
    prober = _FactProber(node, shapes, target)
    region = Region()
    try:
        with prober.evaluator.builder.inside(region):
            prober.element(0, 0, prober.index)
    except NotElementwise:
        return ElementFacts("it does more than one `foreach` over its outputs")
    except (Cascade, Abandoned):
        prober.evaluator.raise_errors()
        return ElementFacts("its elements cannot be computed one by one")
    prober.evaluator.raise_errors()
    for number, argument in enumerate(schema.inputs):
        probe = prober.probes.get(number)
        if probe is not None and probe.other_elements and argument.form is not Form.SCALAR:
            text = f"it reads other elements of '{argument.name}' than the one at the place that it computes"
            return ElementFacts(text)
    operations = list(walk(region))
    if any(op.opcode.has_effects and not op.opcode.reports for op in operations):
        return ElementFacts("it does more than to compute elements")
    used = {operand for op in operations for operand in op.operands}
    if not used.isdisjoint(prober.components):
        return ElementFacts("it computes with the index")
    if not used.isdisjoint(prober.slots.values()):
        return ElementFacts("it computes with sizes")
    return ElementFacts("", _only_operation(operations, prober.probes))


def _only_operation(operations: Sequence[Op], probes: Mapping[int, Probe]) -> str:
    """The operation on one load of each of two inputs, where there is no other.

    A cast to the value's own type only ends an expression (see `exact_terms`): it does not count.
    """
    loads = [op.results[0] for op in operations if op.opcode.name == "load"]
    others = [op for op in operations if op.opcode.name != "load" and not _is_end(op)]
    if len(others) != 1 or len(loads) != 2 or [probe.loads for probe in probes.values()] != [1, 1]:
        return ""
    (only,) = others
    return only.opcode.name if len(only.operands) == 2 and set(only.operands) == set(loads) else ""


def _is_end(op: Op) -> bool:
    return op.opcode.name == "cast" and op.operands[0].type == op.results[0].type
