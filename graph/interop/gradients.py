"""Computes the gradients of an op by what is recorded as its backward: the same for every library that calls kernels.

A backward is a function of a `GradientContext` and the gradients of the outputs, written with the arrays of code that
calls; the same on values of a graph, which is staged once for dtypes and ranks and serves all sizes; or a kernel whose
arguments are named after what they are.

See also `Runner` (how a library requests gradients, and how it runs kernels and graphs).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import Place, user_place
from ...dsl.frontend.base import place_of
from ...dsl.frontend.python.register import Kernel
from ...dsl.package.library import LibraryKernel
from ...dsl.signature.schema import OpSchema, Role
from ..ir import Control, GraphIR, Node
from ..ops.movement import rebind
from ..staging.graph import Graph
from ..types.dims import StaticDim, SymbolicDim
from ..types.tensor_type import TensorType
from .specialise import AnyKernel, Specialisation
from .uses import Uses


@dataclass(frozen=True)
class GradientContext:
    """A call whose gradients are requested.

    Attributes:
        inputs: what it was given, in the order of the signature; a list for a variadic argument.
        outputs: what it gave.
        parameters: the value of every parameter by name.
        needs_input_grad: for each input whether its gradient is needed; a list for a variadic argument.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    parameters: dict[str, Any]
    needs_input_grad: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        if not self.needs_input_grad:
            needs = tuple([True] * len(each) if isinstance(each, list | tuple) else True for each in self.inputs)
            object.__setattr__(self, "needs_input_grad", needs)


class Runner(Protocol):
    """How a library runs things on its arrays."""

    def kernel(self, kernel: AnyKernel, args: Sequence[object], parameters: Mapping[str, object]) -> Any:
        """A kernel: what a direct call gives."""

    def graph(self, backward: BackwardGraph, args: Sequence[object]) -> Sequence[Any]:
        """A graph, on flat arguments: its outputs."""

    def specialisation(self, kernel: AnyKernel, context: GradientContext) -> Specialisation:
        """The kernel for arrays as those of a call."""


def gradients(
    kernel: AnyKernel, context: GradientContext, grads: Sequence[object], runner: Runner, kept: Uses | None = None
) -> list[Any]:
    """A gradient for each input of a call; None for what has none, or where a graph need not compute it.

    Args:
        kernel: one that has a backward.
        context: the call.
        grads: the gradient of each output.
        runner: how to run what the backward consists of.
        kept: which inputs and outputs of the call have elements; all by default.

    Raises:
        GraphError: EK0882, the backward does not give a gradient for each input.
    """
    record = kernel.gradient
    assert record is not None
    if isinstance(record.compute, Kernel | LibraryKernel):
        return _by_kernel(kernel.schema, record.compute, context, grads, runner)
    if record.is_graph:
        return _by_graph(runner.specialisation(kernel, context), context, grads, runner, kept)
    return _checked(kernel.schema, record.compute(context, *grads), place_of(record.compute))


def _checked(schema: OpSchema, given: object, place: Place | None) -> list[Any]:
    results = list(given) if isinstance(given, list | tuple) else [given]
    if len(results) != len(schema.inputs):
        names = ", ".join(argument.name for argument in schema.inputs)
        _refuse(schema, f"gives {len(results)} gradients, and the op has {len(schema.inputs)} inputs ({names})", place)
    return results


_EACH = "return one gradient for each input, in their order, and None for what has none"


def _refuse(schema: OpSchema, what: str, place: Place | None, hint: str = _EACH) -> NoReturn:
    raise GraphError(
        f"the backward of op {schema.name!r} {what}",
        code="EK0882",
        place=place or user_place(),
        op=schema.name,
        hint=hint,
    )


def _flat(values: Sequence[object]) -> list[Any]:
    return [each for value in values for each in (value if isinstance(value, list | tuple) else [value])]


# *** by a kernel ***


def _by_kernel(
    schema: OpSchema, backward: AnyKernel, context: GradientContext, grads: Sequence[object], runner: Runner
) -> list[Any]:
    known: dict[str, Any] = dict(zip((a.name for a in schema.inputs), context.inputs, strict=True))
    outputs = [*schema.outputs, *(schema.mutable if len(grads) > len(schema.outputs) else ())]
    known |= dict(zip((a.name for a in schema.outputs), context.outputs, strict=True))
    known |= {f"grad_{a.name}": grad for a, grad in zip(outputs, grads, strict=True)}
    wanted = {f"grad_{argument.name}": k for k, argument in enumerate(schema.inputs)}
    for argument in backward.schema.tensors:
        names = wanted if argument.role is Role.OUTPUT else known
        if argument.name not in names:
            is_output = argument.role is Role.OUTPUT
            what = f"is kernel {backward.schema.name!r}, whose {'output' if is_output else 'input'} {argument.name!r}"
            hint = (
                "an output of such a kernel is named grad_x where it is the gradient of input x"
                if is_output
                else "an input of such a kernel has the name of an input or an output of the op, or is named grad_out"
                " where it is the gradient of output out"
            )
            _refuse(schema, f"{what} is none of {', '.join(names)}", argument.place, hint)
    taken = {parameter.name for parameter in backward.schema.parameters}
    parameters = {name: value for name, value in context.parameters.items() if name in taken}
    outcome = runner.kernel(backward, [known[argument.name] for argument in backward.schema.inputs], parameters)
    results: list[Any] = [None] * len(schema.inputs)
    several = outcome if isinstance(outcome, tuple) else (outcome,)
    for argument, result in zip(backward.schema.outputs, several, strict=True):
        results[wanted[argument.name]] = result
    return results


# *** by a graph ***


def _by_graph(
    special: Specialisation, context: GradientContext, grads: Sequence[object], runner: Runner, kept: Uses | None
) -> list[Any]:
    needs = tuple(map(bool, _flat(context.needs_input_grad)))
    backward = backward_graph(special, needs)
    if kept is not None and not kept.has(backward.uses):  # it reads more where fewer gradients are needed
        backward = backward_graph(special, kept.needs)
    results: Iterable[Any] = ()
    if backward.positions:
        results = runner.graph(backward, [*_flat(context.inputs), *_flat(context.outputs), *_flat(grads)])
    rest = iter(results)
    spread = iter([next(rest) if given else None for given in backward.given])
    return [[next(spread) for _ in each] if isinstance(each, list | tuple) else next(spread) for each in context.inputs]


@dataclass(frozen=True, eq=False)
class BackwardGraph:
    """A backward as a graph of inputs, outputs and gradients of outputs.

    Attributes:
        graph: its outputs are the gradients that there are.
        given: for each input whether the graph gives its gradient.
        read: which of all that the graph takes it reads the elements of.
        uses: the inputs and outputs of the op among these.
        positions: the inputs whose gradients the outputs are.
    """

    graph: Graph
    given: tuple[bool, ...]
    read: frozenset[int]
    uses: Uses

    @property
    def positions(self) -> list[int]:
        return [position for position, given in enumerate(self.given) if given]


_graphs: weakref.WeakKeyDictionary[Specialisation, tuple[object, dict[object, BackwardGraph]]] = (
    weakref.WeakKeyDictionary()
)


def backward_graph(special: Specialisation, needs: tuple[bool, ...]) -> BackwardGraph:
    """The backward of a kernel under `@op.backward(graph=True)`, staged for dtypes and ranks, and for the inputs whose
    gradients are needed.

    Raises:
        GraphError: EK0882, it does not give a gradient for each input; or what its ops raise.
    """
    record = special.kernel.gradient
    known = _graphs.get(special)
    if known is None or known[0] is not record:
        known = _graphs[special] = record, {}
    if needs not in known[1]:
        known[1][needs] = _staged(special, needs)
    return known[1][needs]


def _staged(special: Specialisation, needs: tuple[bool, ...]) -> BackwardGraph:
    record, schema = special.kernel.gradient, special.kernel.schema
    assert record is not None
    inputs = [TensorType(type.dtype, type.shape, type.device) for type in special.inputs]
    given: list[bool] = []

    def forward(*values: Any) -> list[Any]:
        count = len(inputs)
        shapes = [type.shape for type in (*special.outputs, *special.outputs)]
        ordered = iter([*values[:count], *map(rebind, values[count:], shapes)])
        took = _grouped(special, schema.inputs, ordered)
        made = _grouped(special, schema.outputs, ordered)
        grads = _grouped(special, schema.outputs, ordered)
        wanted = _grouped(special, schema.inputs, iter(needs))
        context = GradientContext(tuple(took), tuple(made), dict(special.parameters), tuple(wanted))
        result = _flat(_checked(schema, record.compute(context, *grads), place_of(record.compute)))
        given.extend(each is not None and need for each, need in zip(result, needs, strict=True))
        # A graph has an output; one whose gradients are all None is not run.
        return [each for each, is_given in zip(result, given, strict=True) if is_given] or _flat(grads)

    outputs = [_plain(type, number) for number, type in enumerate(special.outputs)]
    types = [*inputs, *outputs, *outputs]
    graph = Graph(f"backward of {schema.name}", forward=forward, input_types=types)
    read = _read(graph.ir)
    counts = dict(special.schema.counts)
    groups, number = [], 0
    for arguments in (schema.inputs, schema.outputs):
        places = []
        for place, argument in enumerate(arguments):
            count = counts.get(argument.name, 1)
            places += [place] * any(k in read for k in range(number, number + count))
            number += count
        groups.append(frozenset(places))
    return BackwardGraph(graph, tuple(given), read, Uses(groups[0], groups[1], needs))


def _read(ir: GraphIR) -> frozenset[int]:
    """The inputs of a graph whose elements decide what it gives."""
    wanted = {*ir.outputs, *(step.value for step in ir.steps)}
    for node in reversed(ir.nodes):
        if not isinstance(node, Node | Control) or wanted.isdisjoint(node.results):
            continue
        wanted.update(node.operands)
        if isinstance(node, Control):
            wanted.update(value for body in node.bodies for value in body.outputs)
    return frozenset(range(len(ir.inputs))) & wanted


def _plain(type: TensorType, number: int) -> TensorType:
    """The type of an output as that of an input, which has no computed dims."""
    shape = [d if isinstance(d, StaticDim | SymbolicDim) else f"size_{number}_{k}" for k, d in enumerate(type.shape)]
    return TensorType(type.dtype, shape, type.device)


def _grouped(special: Specialisation, arguments: Sequence[Any], values: Any) -> list[Any]:
    """The next values, one for each argument; a list for a variadic one."""
    counts = dict(special.schema.counts)
    return [[next(values) for _ in range(counts[a.name])] if a.name in counts else next(values) for a in arguments]
